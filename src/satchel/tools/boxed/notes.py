"""Says what the sandbox had to do with a command's failure, and what the model can ask for."""

from __future__ import annotations

import os.path
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from satchel.config.home import expanded
from satchel.sandbox.aside import Moved
from satchel.sandbox.port import Denial
from satchel.sandbox.process import ProcessResult
from satchel.sandbox.selfrun import ASIDE
from satchel.sandbox.workspace import SYSTEM_TOPS, VISIBLE_BELOW
from satchel.tools.paths import is_below

_MOST = 5
_NO_NETWORK: Final = re.compile(
    r"Could not resolve|Temporary failure in name resolution|Name or service not known|Network is unreachable|"
    r"No address associated with hostname|ENOTFOUND|EAI_AGAIN|ENETUNREACH|nodename nor servname|"
    r"dns error|failed to lookup address|no such host|Unknown host|UnknownHostException",
    re.IGNORECASE,
)
_READ_ONLY: Final = re.compile(r"Read-only file system|EROFS|Device or resource busy")
_DENIED: Final = re.compile(rf"{_READ_ONLY.pattern}|Permission denied|EACCES")
_PATH: Final = re.compile(r"(?:(?<=['\"`‘ =:(])|^)(?P<path>(?:~|\.{1,2})?/[^\s'\"`’:;,)]+)", re.MULTILINE)
_BESIDE: Final = re.compile(
    rf"(?P<path>[^\s:'\"`‘]+)['\"’]?: (?:{_READ_ONLY.pattern})|"
    rf"(?:{_READ_ONLY.pattern})[^'\"\n]{{0,20}}['\"](?P<quoted>[^'\"\n]+)"
)
"""A name beside the reason, as shells, coreutils and Python print it; it needs no slash at its beginning."""
_ABSENT: Final = re.compile(r"No such file or directory|ENOENT|cannot connect", re.IGNORECASE)
_REFUSED: Final = re.compile(
    r"Connection refused|ECONNREFUSED|(?:Couldn't|Failed to|Could not) connect", re.IGNORECASE
)
_LOOPBACK: Final = re.compile(
    r"(?P<host>127(?:\.\d{1,3}){3}|localhost|\[::1\])(?::|[^\d\n]{1,20}port )(?P<port>\d{1,5})\b"
)
OF_SERVICES: Final = ("/run", "/dev", "/proc", "/sys")
_UNKNOWN: Final = re.compile(r"not found|No such file or directory", re.IGNORECASE)
NOT_FOUND: Final = 127
"""With this exit code, shells say that there is no such program."""


def refusal_notes(
    result: ProcessResult,
    *,
    denied: Sequence[Denial],
    moved: Sequence[Moved],
    writable: Sequence[str],
    readable: Sequence[str],
    programs: Sequence[str],
    has_network: bool,
    cwd: Path,
    home: str,
    can_ask: bool,
) -> list[str]:
    """What the sandbox refused to a command, as lines for the model and the user.

    The proxy knows which hosts it refused. Everything else is guessed from what a command that failed printed; a wrong
    guess costs one line.

    Args:
        result: Of the command.
        denied: What the proxy refused while it ran.
        moved: Protected files that it made, and where they are now.
        writable: The real paths that it could write.
        readable: Those that it could read beyond these and the system.
        programs: Where programs on PATH lie that it could not see.
        has_network: It had a proxy.
        cwd: Where it started.
        home: HOME.
        can_ask: The tool has inputs in which the model asks for more.
    """

    def note(text: str, ask: str) -> str:
        advice = f" If it has to, repeat the call with {ask} and a reason: the user is asked."
        return text + (advice if can_ask else "")

    failed = result.exit_code != 0
    said = f"{result.stderr.text[-20_000:]}\n{result.stdout.text[-20_000:]}" if failed else ""
    lines = said.splitlines()
    notes = []
    if hosts := _few(denial.target for denial in denied):
        notes.append(
            note(f"The sandbox did not let it reach {', '.join(hosts)}.", f"network={_quoted(hosts)}")
        )
    elif not has_network and (result.timed_out or _NO_NETWORK.search(said)):
        notes.append(note("The sandbox has no network.", 'network=["HOST"]'))
    if loopback := _few(
        f"{match['host']}:{match['port']}"
        for line in lines
        if _REFUSED.search(line)
        for match in _LOOPBACK.finditer(line)
    ):
        text = "The sandbox has a loopback of its own, where only this command's servers answer: "
        notes.append(
            note(f"{text}{', '.join(loopback)} outside can't be reached.", f"network={_quoted(loopback)}")
        )
    hidden = [
        path
        for line in lines
        if _ABSENT.search(line)
        for path in _paths_in(line, cwd=cwd, home=home)
        if is_hidden(path, home=home, shown=(*writable, *readable))
    ]
    if result.exit_code == NOT_FOUND and _UNKNOWN.search(said):
        hidden += programs
    if files := _few(hidden):
        text = f"The sandbox hides {', '.join(files)}, whether it exists or not."
        # No box is given a socket of a service.
        is_service = any(is_below(each, OF_SERVICES) for each in files)
        notes.append(
            note(
                text, "outside_box=true" if is_service else f"read={_quoted(files)} (or write, to change it)"
            )
        )
    if paths := _few(
        _existing(path, writable=writable, readable=readable, home=home)
        for line in lines
        if _DENIED.search(line)
        for path in _paths_in(line, cwd=cwd, home=home)
        # In the workspace, only what is protected is on a read-only file system.
        if _READ_ONLY.search(line) or not is_below(path, writable)
    ):
        text = f"The sandbox does not let it write {', '.join(paths)}."
        notes.append(note(text, f"write={_quoted(paths)}"))
    if result.signal == signal.SIGSYS or result.exit_code == 128 + signal.SIGSYS:
        text = "The sandbox ended it for a system call that is forbidden there."
        notes.append(note(text, "outside_box=true"))
    return [*notes, *moved_notes(moved, can_ask=can_ask)]


def _few(found: Iterable[str]) -> list[str]:
    """The first few, each once."""
    return list(dict.fromkeys(found))[:_MOST]


def _paths_in(line: str, *, cwd: Path, home: str) -> Iterator[str]:
    for match in (*_PATH.finditer(line), *_BESIDE.finditer(line)):
        found = match.groupdict()
        text = (found["path"] or found["quoted"]).rstrip(".")
        if "\0" in text:
            continue  # no file is called so
        yield os.path.realpath(cwd / expanded(text, home))


def _existing(path: str, *, writable: Sequence[str], readable: Sequence[str], home: str) -> str:
    """The path, or the folder in which it would be created: outside the workspace, what exists can be asked for."""
    if is_below(path, writable) or is_hidden(path, home=home, shown=readable):
        return path
    folder = Path(path)
    while not os.path.lexists(folder):
        folder = folder.parent
    return str(folder)


def is_hidden(path: str, *, home: str, shown: Sequence[str] = ()) -> bool:
    """Whether a box hides a real path, apart from those that it was made to show.

    Nothing is looked up: that a hidden file exists is not for the model to know.
    """
    if is_below(path, shown):
        return False
    # /tmp, /dev and /proc are there, with contents of the box's own.
    tops = [f"/{name}" for name in (*SYSTEM_TOPS, "tmp", "dev", "proc")]
    return bool(home and is_below(path, [home])) or not is_below(path, (*tops, *VISIBLE_BELOW))


def moved_notes(moved: Sequence[Moved], *, can_ask: bool) -> Iterator[str]:
    """What was set aside, and where it is now, as `refusal_notes`."""
    for path, to in moved[:_MOST]:
        why = f"{path} may start programs outside the sandbox"
        if path == to:
            yield f"{why}, and could not be moved. Look at it, and remove it."
        else:
            ask = f" If it has to, repeat the call with write={_quoted([str(path)])} and a reason: the user is asked."
            yield f"{why}, so it was moved to {to}." + (ask if can_ask else "")
    if len(moved) > _MOST:
        yield f"So were {len(moved) - _MOST:,} more files, whose names end in {ASIDE}."


def _quoted(values: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
