"""Says what the sandbox had to do with a command's failure, and what the model can ask for."""

from __future__ import annotations

import os.path
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from satchel.config.home import expanded
from satchel.sandbox.port import Denial
from satchel.sandbox.process import ProcessResult
from satchel.sandbox.selfrun import ASIDE
from satchel.sandbox.workspace import SYSTEM_TOPS, VISIBLE_BELOW
from satchel.tools.paths import is_below

_MOST = 5
_HOST: Final = r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.[A-Za-z]{2,}|localhost)"
_UNREACHABLE: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Could not resolve (?:host|hostname|proxy)?:? ?'?\"?{_HOST}",
        rf"unable to resolve host address .{_HOST}",
        rf"getaddrinfo (?:ENOTFOUND|EAI_AGAIN) {_HOST}",
        rf"lookup {_HOST}(?: on \S+)?: ",
        rf"host='{_HOST}'",
        rf"Failed to (?:connect|fetch|resolve|download)\D{{0,40}}?(?:https?://)?{_HOST}",
        rf"(?:connect to|resolving|reach|fetch) (?:host )?(?:https?://)?{_HOST}",
        rf"https?://{_HOST}\S*.{{0,80}}(?:failed|unreachable|refused|resol)",
    )
)
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
_SERVICES: Final = ("/run", "/var/run")
_UNKNOWN: Final = re.compile(r"not found|No such file or directory", re.IGNORECASE)
NOT_FOUND: Final = 127
"""With this exit code, shells say that there is no such program."""
_LOCK: Final = re.compile(r"could not (?:lock|write) config file (?P<path>[^\s:]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """What the sandbox refused to a command, as far as that can be told.

    Attributes:
        hosts: Hosts that it wanted to reach.
        no_network: It wanted some host.
        timed_out: It ran too long, without a network.
        loopback: Servers on this computer that did not answer, because the box has a loopback of its own.
        hidden: Paths that it did not find and that the box hides, whether they exist or not.
        paths: Paths outside the writable ones that it wanted to change.
        syscall: The kernel ended it for a system call that is forbidden in the sandbox.
        moved: Protected files that it made, and where they are now.
    """

    hosts: tuple[str, ...] = ()
    no_network: bool = False
    timed_out: bool = False
    loopback: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    syscall: bool = False
    moved: tuple[tuple[Path, Path], ...] = ()

    def __bool__(self) -> bool:
        reached = self.hosts or self.no_network or self.timed_out or self.loopback
        return bool(reached or self.hidden or self.paths or self.syscall or self.moved)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "hosts": list(self.hosts),
            "loopback": list(self.loopback),
            "hidden": list(self.hidden),
            "paths": list(self.paths),
            "network": self.no_network or bool(self.hosts),
            "syscall": self.syscall,
            "moved": {str(path): str(to) for path, to in self.moved},
        }


def find_refusals(
    result: ProcessResult,
    *,
    denied: Sequence[Denial],
    moved: Sequence[tuple[Path, Path]],
    writable: Sequence[str],
    readable: Sequence[str],
    programs: Sequence[str],
    has_network: bool,
    cwd: Path,
    home: str,
) -> Refusals:
    """Find out what the sandbox refused.

    The proxy knows which hosts it refused. Everything else is read from what a command that failed printed: a
    guess, which is worth a hint and nothing else.

    Args:
        result: Of the command.
        denied: What the proxy refused while it ran.
        moved: See `Refusals`.
        writable: The real paths that it could write.
        readable: Those that it could read beyond these and the system.
        programs: Where programs on PATH lie that it could not see.
        has_network: It had a proxy.
        cwd: Where it started.
        home: HOME.
    """
    hosts = [denial.target for denial in denied]
    paths: list[str] = []
    hidden: list[str] = []
    loopback: list[str] = []
    no_network = False
    if result.exit_code != 0:
        said = f"{result.stderr.text[-20_000:]}\n{result.stdout.text[-20_000:]}"
        if not has_network and _NO_NETWORK.search(said):
            no_network = True
            hosts += [match["host"].lower() for pattern in _UNREACHABLE for match in pattern.finditer(said)]
        loopback = [
            f"{match['host']}:{match['port']}"
            for line in said.splitlines()
            if _REFUSED.search(line)
            for match in _LOOPBACK.finditer(line)
        ]
        hidden = [
            path
            for line in said.splitlines()
            if _ABSENT.search(line)
            for path in _paths_in(line, cwd=cwd, home=home)
            if is_hidden(path, home=home, shown=(*writable, *readable))
        ]
        if result.exit_code == NOT_FOUND and _UNKNOWN.search(said):
            hidden += programs
        paths = [
            _existing(path, writable=writable, readable=readable, home=home)
            for line in said.splitlines()
            if _DENIED.search(line)
            for path in _paths_in(line, cwd=cwd, home=home)
            # In the workspace, only what is protected is on a read-only file system.
            if _READ_ONLY.search(line) or not is_below(path, writable)
        ]
    return Refusals(
        hosts=tuple(dict.fromkeys(hosts))[:_MOST],
        no_network=no_network,
        timed_out=result.timed_out and not has_network and not no_network,
        loopback=tuple(dict.fromkeys(loopback))[:_MOST],
        hidden=tuple(dict.fromkeys(hidden))[:_MOST],
        paths=tuple(dict.fromkeys(paths))[:_MOST],
        syscall=result.signal == signal.SIGSYS or result.exit_code == 128 + signal.SIGSYS,
        moved=tuple(moved),
    )


def _paths_in(line: str, *, cwd: Path, home: str) -> Iterator[str]:
    for match in (*_PATH.finditer(line), *_LOCK.finditer(line), *_BESIDE.finditer(line)):
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


def refusal_notes(refusals: Refusals, *, can_ask: bool) -> list[str]:
    """The refusals as lines for the model and the user. `can_ask` says that the tool has inputs in which the model asks
    for more.
    """
    notes = []
    if refusals.hosts or refusals.no_network:
        where = f"did not let it reach {', '.join(refusals.hosts)}" if refusals.hosts else "has no network"
        ask = f"network={_quoted(refusals.hosts or ('HOST',))}"
        notes.append(f"The sandbox {where}.{_advice(ask) if can_ask else ''}")
    if refusals.timed_out:
        notes.append(
            "The sandbox has no network. If the command waited for a host"
            + (
                ', repeat it with network=["HOST"] and a reason: the user is asked.'
                if can_ask
                else ", that is why."
            )
        )
    if refusals.loopback:
        ask = f"network={_quoted(refusals.loopback)}"
        notes.append(
            f"The sandbox has a loopback of its own, where only this command's servers answer: "
            f"{', '.join(refusals.loopback)} outside can't be reached.{_advice(ask) if can_ask else ''}"
        )
    services = [path for path in refusals.hidden if is_below(path, _SERVICES)]
    if services:
        notes.append(
            f"The sandbox hides the sockets of services: {', '.join(services)}."
            + (_advice("outside_box=true") if can_ask else "")
        )
    if files := [path for path in refusals.hidden if path not in services]:
        notes.append(
            f"The sandbox hides {', '.join(files)}, whether it exists or not."
            + (_advice(f"read={_quoted(files)} (or write, to change it)") if can_ask else "")
        )
    if refusals.paths:
        ask = f"write={_quoted(refusals.paths)}"
        paths = ", ".join(refusals.paths)
        notes.append(f"The sandbox does not let it write {paths}.{_advice(ask) if can_ask else ''}")
    if refusals.syscall:
        notes.append(
            "The sandbox ended it for a system call that is forbidden there."
            + (_advice("outside_box=true") if can_ask else "")
        )
    notes += moved_notes(refusals.moved, can_ask=can_ask)
    return notes


def moved_notes(moved: Sequence[tuple[Path, Path]], *, can_ask: bool) -> Iterator[str]:
    """What was set aside, and where it is now, as `refusal_notes`."""
    why = "may start programs outside the sandbox, so it was moved to"
    for path, to in moved[:_MOST]:
        if path == to:
            yield f"{path} may start programs outside the sandbox, and could not be moved. Look at it, and remove it."
            continue
        yield f"{path} {why} {to}." + (_advice(f"write={_quoted([str(path)])}") if can_ask else "")
    if len(moved) > _MOST:
        yield f"So were {len(moved) - _MOST:,} more files, whose names end in {ASIDE}."


def _advice(ask: str) -> str:
    return f" If it has to, repeat the call with {ask} and a reason: the user is asked."


def _quoted(values: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


def data_of(refusals: Refusals) -> Mapping[str, Any]:
    """The part of a result's data that says what the sandbox refused."""
    return {"sandbox": refusals.to_json()} if refusals else {}
