"""What a boxed call may do beyond its workspace: hosts to reach, paths to read and write; and how this is worded."""

from __future__ import annotations

import os.path
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from satchel.config import RuleOptions, host_problem, rule_text
from satchel.config.home import expanded
from satchel.errors import UsageError
from satchel.sandbox.selfrun import has_settings
from satchel.tools.paths import is_below

NETWORK, READ, WRITE, OUTSIDE, REASON = "network", "read", "write", "outside_box", "reason"
"""The fields of a built-in tool's input in which the model asks for more than the box gives."""
_WEB_PORTS = ("80", "443")
"""The ports of a host that is named without one."""
_MOST_WISHES = 32
_MOST_LINKS = 40
"""As the kernel."""
_MOST_REASON = 300
"""Characters of the model's own reason that the user is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """How a call runs in the sandbox of its workspace, beyond what every boxed call may do.

    Attributes:
        network: Hosts that it may reach, as rules name them; none by default.
        read: Real absolute paths that it may read besides the system's folders, with everything below them.
        write: The same for writing, besides the workspace; they may be read as well.
    """

    network: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def __or__(self, other: Box) -> Box:
        """What either of the two allows."""
        return Box(
            network=tuple(dict.fromkeys((*self.network, *other.network))),
            read=tuple(dict.fromkeys((*self.read, *other.read))),
            write=tuple(dict.fromkeys((*self.write, *other.write))),
        )

    def lacks(self, wanted: Box) -> Box:
        """What is wanted and not allowed here; a false value if nothing is."""
        return Box(
            network=tuple(
                host for host in wanted.network if not any(host_covers(own, host) for own in self.network)
            ),
            read=tuple(path for path in wanted.read if not is_below(path, (*self.read, *self.write))),
            write=tuple(path for path in wanted.write if not any(_covers(own, path) for own in self.write)),
        )

    def __bool__(self) -> bool:
        return bool(self.network or self.read or self.write)

    @property
    def words(self) -> str:
        """What it allows, as a clause after "wants": "to reach api.example.org and to write /home/ann/notes"."""
        hosts = "every public address" if "*" in self.network else _listed(self.network)
        parts = [f"to reach {hosts}"] if self.network else []
        if self.read:
            parts.append(f"to read {_listed(self.read)}")
        if self.write:
            parts.append(f"to write {_listed(self.write)}")
        return " and ".join(parts)

    @property
    def text(self) -> str:
        """For the log: "workspace network=pypi.org"."""
        return self.rule("workspace")

    def rule(self, tool: str) -> str:
        """The text of the rule that allows this for every call of a tool."""
        return rule_text(tool, RuleOptions(network=self.network, read=self.read, write=self.write))


def _covers(own: str, path: str) -> bool:
    """Whether a path that may be written holds another one, and this is no setting in it."""
    return is_below(path, [own]) and not has_settings(Path(path).relative_to(own).parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a call asks for in its input.

    Attributes:
        outside: It asks to run outside the box.
        reason: The model's own words, on one line.
    """

    box: Box = Box()
    outside: bool = False
    reason: str = ""


class Boxing(Protocol):
    """Where boxed calls of a session run, as far as deciding about them needs to know."""

    def lacking(self, source: str, *, quietly: bool = False) -> Awaitable[str]:
        """Why calls of tools of that source can't run in a box here, as a clause; "" where they can.

        Unless `quietly`, the user is told once.
        """
        ...

    def wish(self, tool: str) -> Wish:
        """What calls of a tool need that is neither built in nor asks itself."""
        ...

    @property
    def areas(self) -> Sequence[str]:
        """Real paths of the folders that every boxed call may write."""
        ...

    def is_writable(self, path: str) -> bool:
        """Whether every boxed call may write a real path: it is in the workspace, and nothing protects it."""
        ...

    def is_readable(self, path: str) -> bool:
        """Whether every boxed call may read a real path."""
        ...

    def problem(self, path: str, *, reads: bool = False) -> str:
        """Why no box may write or read a real path, whoever allows it, as a sentence; or ""."""
        ...

    def programs(self) -> Awaitable[tuple[str, ...]]:
        """Real paths that boxed calls have to read if programs on PATH are to work, and don't see without a grant."""
        ...


def read_wish(input: Mapping[str, Any], *, cwd: Path, user_home: str, boxing: Boxing) -> Wish:
    """What a call's input asks for. What every boxed call may do anyway is left out.

    Raises:
        UsageError: It asks for what can't be given; says why, for the model.
    """
    hosts = [text.strip().lower() for text in _texts(input.get(NETWORK))]
    for host in hosts:
        problem = host_problem(host)
        if problem:
            raise UsageError(problem)
    reads = []
    for text in _texts(input.get(READ)):
        real = real_path(text, cwd=cwd, user_home=user_home)
        problem = boxing.problem(real, reads=True)
        if problem:
            raise UsageError(problem)
        if not boxing.is_readable(real):
            reads.append(real)
    paths = []
    for text in _texts(input.get(WRITE)):
        real = real_path(text, cwd=cwd, user_home=user_home)
        problem = boxing.problem(real)
        if problem:
            raise UsageError(problem)
        if not boxing.is_writable(real):
            paths.append(real)
    reason = input.get(REASON)
    return Wish(
        box=Box(
            network=tuple(dict.fromkeys(hosts)),
            read=tuple(dict.fromkeys(reads)),
            write=tuple(dict.fromkeys(paths)),
        ),
        outside=input.get(OUTSIDE) is True,
        reason=" ".join(reason.split())[:_MOST_REASON] if isinstance(reason, str) else "",
    )


def real_path(text: str, *, cwd: Path, user_home: str) -> str:
    """A path as rules and calls write it, made absolute, with `~` and symlinks resolved."""
    return os.path.realpath(_absolute(text, cwd=cwd, user_home=user_home))


def granted_paths(texts: Sequence[str], *, cwd: Path, user_home: str, areas: Sequence[str]) -> dict[str, str]:
    """The real paths that rules let boxed calls read or write, by the texts of the rules.

    A path is left out if a link is on the way to it that a boxed call may have made: one in the workspace, or in
    another folder of these. Otherwise a command could lead the next box to any folder of the user. `areas` are the real
    paths of the folders that every boxed call may write.
    """
    paths = [_absolute(text, cwd=cwd, user_home=user_home) for text in texts]
    reals = [os.path.realpath(path) for path in paths]
    granted = {}
    for number, path in enumerate(paths):
        real = _resolved(path, no_links_in=(*areas, *reals[:number], *reals[number + 1 :]))
        if real is not None:
            granted[texts[number]] = real
    return granted


def _resolved(path: str, *, no_links_in: Sequence[str]) -> str | None:
    """The real path; None if a link on the way lies in one of these folders, or below."""
    here, parts, links = "/", path.split("/"), 0
    while parts:
        name = parts.pop(0)
        if name == "..":
            here = here.rpartition("/")[0] or "/"
        elif name not in ("", "."):
            there = f"{here.rstrip('/')}/{name}"
            try:
                target = str(Path(there).readlink())
            except OSError:
                here = there
                continue
            links += 1
            if is_below(here, no_links_in) or links > _MOST_LINKS:
                return None
            here = "/" if target.startswith("/") else here
            parts = target.split("/") + parts
    return here


def _absolute(text: str, *, cwd: Path, user_home: str) -> str:
    return str(cwd / expanded(text, user_home).replace("\0", "\ufffd"))


def host_covers(own: str, wanted: str) -> bool:
    """Whether a host that is allowed covers one that is wanted.

    Without a port, a host stands for the ports of http and https.
    """
    if own == "*":
        return True
    own_host, own_ports = _split(own)
    host, ports = _split(wanted)
    if not set(ports) <= set(own_ports):
        return False
    return host == own_host or (own_host.startswith("*.") and host.endswith(own_host[1:]))


def _split(host: str) -> tuple[str, tuple[str, ...]]:
    name, colon, port = host.lower().rpartition(":")
    if colon and port.isdecimal() and (":" not in name or name.endswith("]")):
        return name, (port,)
    return host.lower(), _WEB_PORTS


def _texts(value: Any) -> Sequence[str]:
    if not isinstance(value, list | tuple):
        return ()
    return [text for text in value if isinstance(text, str) and text.strip()][:_MOST_WISHES]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
