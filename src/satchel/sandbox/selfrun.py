"""Which files of a workspace programs act upon by themselves: what one rule calls settings.

A box is worth little if what it writes is run outside of it later by a program that nobody started for that: an editor
that opens the folder, a shell that enters it, an agent, git. All of them look for names that begin with a dot, and new
ones will, too. So every such name is a setting, in every folder, unless it is known to be none: a list that lacks a
name costs a question, where a list of settings that lacks one would cost the box.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["settings", "built", "ordinary"]
"""Programs act upon it by themselves; builds make it, and the rule doesn't hold in it; anything else."""

ASIDE: Final = ".from-sandbox"
"""What was set aside has this at the end of its name, and nothing looks for it there."""
_BUILT: Final = re.compile(
    # Dependencies and results: full of dot names, and nobody opens them as a project.
    r"node_modules|site-packages|vendor|target|build|dist|out|_build|cmake-build-.*|"
    # Environments and caches, as the tools that make them call them.
    r"\.v?env|\.(?:\w[\w-]*[_-])?cache|\.(?:tox|nox|eggs|next|nuxt|output|svelte-kit|turbo|gradle|kotlin|terraform|"
    r"hypothesis|ipynb_checkpoints|dart_tool|build|angular|nyc_output|astro|expo|docusaurus|stack-work|yarn|pnpm-store|"
    r"lake|cxx|vite|parcel-cache|deps|libs|cmake|fingerprint|coverage|serverless|aws-sam|wrangler|vercel|pnpm)"
)
_ASIDE: Final = re.compile(rf".*{re.escape(ASIDE)}(?:-\d+)?", re.DOTALL)
_ORDINARY: Final = re.compile(
    # What git and forges read; settings of git are in its folders, and have their own rule.
    r"\.git(?:ignore|attributes|modules|keep|lab-ci\.ya?ml|-blame-ignore-revs)|\.(?:mailmap|editorconfig|keep|npmkeep)|"
    # What other tools leave out; variables for the project's own programs; locks.
    r"\.\w+ignore|\.env(?:\.[\w.-]+)?|\.(?:.*[._-])?lock(?:[._-].*)?|"
    # What compilers, builds and editors leave beside their files.
    r"\.coverage(?:rc|\..*)?|\.\w*cache|\.ninja_\w+|\.dirstamp|\.depend|\.rustc_info\.json|\.package-lock\.json|\.pnp\..*|"
    r"\..+\.(?:cmd|d|o|lo|so|tmp|sw[a-p]|log|pid|stamp|cache|pyc)|\.DS_Store|\.nfs\w+|\.tmp\w*|\.flutter-\w+|\.packages|"
    r"\.metadata|\.buildinfo|\.nojekyll|"
    # What an unpacked Office document has.
    r"\.rels"
)
_FORGES: Final = frozenset((".github", ".gitlab", ".gitea", ".forgejo"))
_OF_FORGES: Final = re.compile(
    r"workflows|actions|.*_templates?(?:\.\w+)?|codeowners|[\w-]+\.ya?ml|(?:readme|contributing|security|support|"
    r"code_of_conduct)(?:\.md)?|.*\.(?:png|svg|jpe?g|gif)",
    re.IGNORECASE,
)
"""In the folder of a forge, what the forge alone reads: agents read instructions and hooks beside it."""
_UNDOTTED: Final = re.compile(
    # Instructions of agents, and their settings.
    r"(?:agents?|claude|gemini|qwen|crush|warp)(?:\.\w+)?\.md|(?:opencode|crush)\.jsonc?|"
    # What hooks start, and shells that enter a folder.
    r"(?:lefthook(?:-local)?|prek|hk|captainhook|grumphp)\.\w+|mise(?:(?:\.[\w.-]+)?\.toml)?|"
    # What git, darcs and rustup take programs from; start-up files.
    r"git-rebase-todo|_darcs|_fossil_|rust-toolchain(?:\.toml)?|_\w+rc|irb\.rc",
    re.IGNORECASE,
)
"""Settings without a dot."""
HARMLESS_TEXTS: Final = (
    # No step that runs something.
    (re.compile(r"git-rebase-todo"), re.compile(r"(?!.*^[ \t]*(?:x|exec)\b)", re.MULTILINE | re.DOTALL)),
    # Versions, not paths of programs.
    (re.compile(r"(?:.*/)?\.(?:[\w-]+-version|nvmrc)"), re.compile(r"[\w.@*<>=~^+ \t\r\n-]*\Z")),
)
"""Keys of settings whose text may be known to be harmless."""
GIT_SETTINGS: Final = ("config", "config.worktree", "commondir")
"""Files in a git folder that name programs, or another folder whose files do."""
_IN_GIT: Final = frozenset((name,) for name in (*GIT_SETTINGS, "hooks", "gitdir"))


def kind_of(name: str, *, is_folder: bool, around: str = "") -> Kind:
    """What a name in a folder is, apart from `.git`.

    Only folders are built, and only files are known to be no settings. `around` is the name of the folder that it is
    in.
    """
    if around in _FORGES:
        return "ordinary" if _OF_FORGES.fullmatch(name) else "settings"
    if is_folder and name in _FORGES:
        return "ordinary"
    if (is_folder and _BUILT.fullmatch(name)) or _ASIDE.fullmatch(name):
        return "built"
    if name.startswith(".") and (is_folder or not _ORDINARY.fullmatch(name)):
        return "settings"
    return "settings" if _UNDOTTED.fullmatch(name) else "ordinary"


def has_settings(parts: Sequence[str]) -> bool:
    """Whether a path below a workspace is a setting, or in a folder of settings."""
    for number, name in enumerate(parts):
        if name == ".git":
            return tuple(parts[number + 1 : number + 2]) in _IN_GIT
        kind = kind_of(name, is_folder=number < len(parts) - 1, around=parts[number - 1] if number else "")
        if kind != "ordinary":
            return kind == "settings"
    return False
