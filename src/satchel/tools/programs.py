"""Which words of a command make its program start another one: an allow rule has to spell them out.

`bash(git *)` is meant for git, and `git -c alias.x='!rm -r .' x` runs rm. The programs here are common, do something
plain, and start others, delete, or write wherever they are told, only where their arguments say so. Programs that run
whatever they are given in any case, such as `python`, `make` and `npm`, are not here: who allows them with a star has
said what they want.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["ASSIGNMENT", "RUNS_ANYTHING", "SUBCOMMANDS", "WRAPPERS", "words_to_spell_out"]

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=.*", re.DOTALL)
WRAPPERS = frozenset([
    "bwrap", "builtin", "busybox", "chroot", "chrt", "command", "doas", "env", "eval", "exec", "firejail",
    "flock", "ionice", "ltrace", "nice", "nohup", "nsenter", "parallel", "prlimit", "proot", "runuser",
    "script", "setpriv", "setsid", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset",
    "time", "timeout", "toybox", "unbuffer", "unshare", "valgrind", "watch", "xargs", "xvfb-run",
])  # fmt: skip
"""Programs whose arguments are another command; a deny rule looks behind them."""
SUBCOMMANDS = frozenset([
    "apt", "apt-get", "brew", "bundle", "cargo", "conda", "deno", "docker", "gh", "git", "go", "gradle",
    "helm", "just", "kubectl", "make", "mvn", "nix", "npm", "npx", "pip", "pip3", "pipx", "pnpm", "podman",
    "poetry", "rustup", "systemctl", "terraform", "uv", "yarn",
])  # fmt: skip
"""Programs whose first argument says what they do, so that a suggested rule names it too."""
RUNS_ANYTHING = frozenset([
    "awk", "bash", "chmod", "chown", "curl", "dash", "dd", "doas", "env", "eval", "exec", "find", "kill",
    "node", "parallel", "perl", "php", "python", "python3", "rm", "rsync", "ruby", "scp", "sed", "sh",
    "sqlite3", "ssh", "sudo", "tee", "wget", "xargs", "zsh",
])  # fmt: skip
"""Programs that run other programs, write or delete by their arguments: a suggested rule names the whole
command."""
_VALUE = re.compile(r"[\d.:]+[smhd]?")
"""What stands before a wrapper's command without a dash: how long, how often, which processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Telling:
    """How a program is told of another one.

    Attributes:
        words: Arguments that say so as they are.
        long: Options that do; GNU programs and git take them shortened as well.
        short: The letters of short options that do, alone or among others.
        starts: What such an argument begins with.
    """

    words: frozenset[str] = frozenset()
    long: tuple[str, ...] = ()
    short: str = ""
    starts: tuple[str, ...] = ()

    def tells(self, word: str) -> bool:
        if word in self.words or (self.starts and word.startswith(self.starts)):
            return True
        if word.startswith("--"):
            option = word.partition("=")[0]
            return len(option) > 2 and any(known.startswith(option) for known in self.long)
        return word.startswith("-") and any(letter in word[1:] for letter in self.short)


_FIND = _Telling(
    words=frozenset(
        ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0", "-fprintf"]
    )
)
_FD = _Telling(long=("--exec", "--exec-batch"), short="xX")
_TELLING: Mapping[str, _Telling] = {
    "fd": _FD,
    "fdfind": _FD,
    "find": _FIND,
    "man": _Telling(long=("--pager", "--html", "--preprocessor"), short="PH"),
    "rg": _Telling(long=("--pre", "--hostname-bin")),
    "rsync": _Telling(long=("--rsh", "--rsync-path"), short="e"),
    "sort": _Telling(long=("--compress-program",)),
    "split": _Telling(long=("--filter",)),
    "tar": _Telling(
        long=(
            "--checkpoint-action", "--info-script", "--new-volume-script", "--rmt-command", "--rsh-command",
            "--to-command", "--use-compress-program",
        ),
        short="IF",
    ),
    "zip": _Telling(words=frozenset({"-TT"}), long=("--unzip-command",)),
}  # fmt: skip
_GIT = _Telling(
    long=(
        "--config", "--config-env", "--exec", "--exec-path", "--extcmd", "--open-files-in-pager", "--output",
        "--receive-pack", "--sendmail-cmd", "--template", "--to-cmd", "--cc-cmd", "--upload-pack",
    ),
    # Transports that are commands.
    starts=("ext::", "fd::"),
)  # fmt: skip
_GIT_SHORT = {"archive": "o", "clone": "cu", "format-patch": "o", "grep": "O", "rebase": "x"}
_GIT_TAKES_VALUE = frozenset(
    {"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"}
)
_GIT_RUNS = frozenset([
    "config", "daemon", "difftool", "filter-branch", "for-each-repo", "hook", "instaweb", "merge-index",
    "mergetool", "remote-ext", "remote-fd", "send-email", "shell", "web--browse",
])  # fmt: skip
"""Subcommands that run what they, or the configuration that they write, name."""
_GIT_READS = frozenset({"--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"})
_GIT_RUN_WORDS = {"bisect": "run", "submodule": "foreach", "submodule--helper": "foreach"}


def words_to_spell_out(words: Sequence[str]) -> int:
    """How many of the first words have to stand in an allow rule as they are.

    Args:
        words: Of one simple command, without quotes; at least one.

    Returns:
        Up to and with the last word that says which other program is started; 0 where none is.
    """
    program = words[0].rsplit("/", 1)[-1]
    if program in WRAPPERS:
        inner = _inner(words)
        return inner + max(1, words_to_spell_out(words[inner:])) if inner < len(words) else len(words)
    if program == "git":
        return min(_git(words), len(words))
    telling = _TELLING.get(program)
    if telling is None:
        return 0
    arguments = list(words)
    if program == "tar" and len(words) > 1 and not words[1].startswith("-"):
        # `tar cIf` is `tar -c -I -f`.
        arguments[1] = f"-{words[1]}"
    return min(_last(telling, arguments, after=0), len(words))


def _last(telling: _Telling, words: Sequence[str], *, after: int) -> int:
    """Up to and with the last telling word, and what is told by it."""
    found = [at for at in range(after + 1, len(words)) if telling.tells(words[at])]
    return found[-1] + (1 if "=" in words[found[-1]] else 2) if found else 0


def _inner(words: Sequence[str]) -> int:
    """Where a wrapper's own command begins, rather too late than too early."""
    at = 1
    while at < len(words):
        word, before = words[at], words[at - 1]
        if not (
            word.startswith("-")
            or (at > 1 and before.startswith("-"))
            or ASSIGNMENT.fullmatch(word)
            or _VALUE.fullmatch(word)
        ):
            break
        at += 1
    return at


def _git(words: Sequence[str]) -> int:
    at = 1
    count = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at].startswith("-c"):
            count = at + 2
            at += words[at] == "-c"
        at += words[at] in _GIT_TAKES_VALUE if at < len(words) else 0
        at += 1
    count = max(count, _last(_GIT, words, after=0))
    if at >= len(words):
        return count
    name, rest = words[at], words[at + 1 :]
    if name in _GIT_RUNS and not (name == "config" and rest and rest[0] in _GIT_READS):
        return len(words)
    if _GIT_RUN_WORDS.get(name, "") in rest:
        return len(words)
    short = _GIT_SHORT.get(name)
    return max(count, _last(_Telling(short=short), words, after=at)) if short else count
