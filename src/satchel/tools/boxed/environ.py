"""The environment of boxed programs: no keys, caches of their own, and who the user is for git."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

_PASSED: Final = frozenset([
    "CC", "CFLAGS", "CI", "CLASSPATH", "COLORTERM", "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "CPPFLAGS", "CXX", "CXXFLAGS",
    "DEBIAN_FRONTEND", "DOTNET_ROOT", "EDITOR", "FORCE_COLOR", "GOFLAGS", "GOROOT", "HOME", "JAVA_HOME", "LANG",
    "LANGUAGE", "LDFLAGS", "LD_LIBRARY_PATH", "LOGNAME", "MAKEFLAGS", "MANPATH", "NODE_ENV", "NODE_EXTRA_CA_CERTS",
    "NODE_PATH", "NO_COLOR", "NVM_BIN", "NVM_DIR", "PATH", "PIP_CERT", "PIP_FIND_LINKS", "PKG_CONFIG_PATH",
    "PYENV_ROOT", "PYENV_VERSION", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONUNBUFFERED",
    "RBENV_ROOT", "REQUESTS_CA_BUNDLE", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "SHELL", "SOURCE_DATE_EPOCH",
    "SSL_CERT_DIR", "SSL_CERT_FILE", "TERM", "TZ", "USER", "VIRTUAL_ENV",
])  # fmt: skip
"""Variables that programs need and that hold no secrets; LC_* are passed on as well. Everything else is left out: keys
are called anything, and what is harmless is known."""
_MARKS: Final = ("_SATCHEL_RUN", "_SATCHEL_REPORT_FD")
_GLOBAL_NPM: Final = "npm-global"
_LAST: Final = {
    "PATH": ("python/bin", f"{_GLOBAL_NPM}/bin"),
    "NODE_PATH": (f"{_GLOBAL_NPM}/lib/node_modules",),
}
"""Lists of folders that end with these of the box's own cache, so that what was installed hides nothing."""
CACHE_VARIABLES: Final[Mapping[str, str]] = {
    "XDG_CACHE_HOME": "cache",  # pip, uv, go build, deno, ccache, pre-commit, corepack, playwright
    "PIP_CACHE_DIR": "cache/pip",
    "UV_CACHE_DIR": "cache/uv",
    "PYTHONUSERBASE": "python",  # where pip installs if it may not write beside the interpreter
    "npm_config_cache": "npm",
    "npm_config_prefix": _GLOBAL_NPM,  # npm install -g
    "PNPM_HOME": "pnpm",  # its store is below
    "YARN_CACHE_FOLDER": "yarn",
    "BUN_INSTALL_CACHE_DIR": "bun",
    "GOPATH": "go",
    "GOCACHE": "cache/go-build",
    "CARGO_HOME": "cargo",
    "GRADLE_USER_HOME": "gradle",
    "NUGET_PACKAGES": "nuget",
    "PUB_CACHE": "pub",
    "COMPOSER_HOME": "composer",
}
"""Where package managers and compilers keep what they fetched or built: folders below the box's own cache."""
_GIT_KEYS: Final = re.compile(
    r"user\.(?:name|email)|init\.defaultbranch|core\.(?:autocrlf|eol|quotepath|abbrev)|pull\.(?:rebase|ff)|"
    r"merge\.(?:conflictstyle|ff)|diff\.(?:algorithm|renames)|rebase\.(?:autosquash|autostash)|color\.[a-z.]+"
)
"""Of the user's git settings, what changes how git works and neither names a program nor holds a key."""


def boxed_environ(
    environ: Mapping[str, str], *, caches: Path, git_settings: Path, granted: Iterable[str] = ()
) -> dict[str, str]:
    """The environment of a boxed program. `granted` names further variables that the user lets boxed programs have;
    `git_settings` takes the place of `~/.gitconfig`.
    """
    names = {*_PASSED, *_MARKS, *granted}
    kept = {name: value for name, value in environ.items() if name in names or name.startswith("LC_")}
    caching = {name: str(caches / folder) for name, folder in CACHE_VARIABLES.items() if name not in granted}
    lists = {
        name: ":".join([*filter(None, [environ.get(name)]), *(str(caches / folder) for folder in folders)])
        for name, folders in _LAST.items()
        if name in environ
    }
    return {
        **kept,
        **lists,
        **caching,
        "GIT_CONFIG_GLOBAL": str(git_settings),
        # The proxy of the box answers programs that ask it; without one there is no network anyway.
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # The system's folders are read-only here, so what it manages is safe from pip.
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
        "npm_config_update_notifier": "false",
        "npm_config_audit": "false",
        "npm_config_fund": "false",
    }


def git_settings_text(listed: str) -> str:
    """The git settings of boxed programs, from the user's own. `listed` is what `git config --global --list --null`
    prints.
    """
    lines = []
    for entry in listed.split("\0"):
        key, newline, value = entry.partition("\n")
        if newline and _GIT_KEYS.fullmatch(key.lower()):
            section, _, name = key.rpartition(".")
            lines.append(f"[{_section(section.split('.', 1))}]\n\t{name} = {_quoted(value)}\n")
    # Inside the box another user may own the same files; what a repository's settings start is boxed as well.
    return "".join([*lines, "[safe]\n\tdirectory = *\n", "[gc]\n\tauto = 0\n"])


def _section(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f'{parts[0]} "{parts[1]}"'


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
