"""Where a build works: a folder, and commands that run in it in a sandbox.

The folder is on the host and stays when the program is killed. Each command gets a fresh sandbox around it, with the
packages that were asked for and the hosts that the user has allowed, and nothing else.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from satchel.capabilities.running import LayerMaker
from satchel.errors import NotFound, UsageError
from satchel.sandbox.port import (
    Broker,
    CommandResult,
    Network,
    Sandbox,
    SandboxSession,
    SessionSpec,
)

REQUIREMENTS: Final = "requirements.txt"
_MOST_REQUIREMENTS: Final = 16_000
_INSTALLERS: Final = (
    ("pip", "install"), ("pip3", "install"), ("python", "-m", "pip", "install"), ("python3", "-m", "pip", "install"),
    ("uv", "pip", "install"), ("uv", "add"),
)  # fmt: skip
_HARMLESS_FLAGS: Final = frozenset(
    ("-q", "-qq", "--quiet", "-U", "--upgrade", "--user", "--no-cache-dir", "--no-input", "--system",
     "--break-system-packages", "--disable-pip-version-check", "--prefer-binary")
)  # fmt: skip

_RUN_CODE: Final = """\
import ast, sys
sys.path.insert(0, "")
_tree = ast.parse(sys.stdin.read(), "code.py")
_last = _tree.body.pop() if _tree.body and isinstance(_tree.body[-1], ast.Expr) else None
_scope = {"__name__": "__main__"}
exec(compile(_tree, "code.py", "exec"), _scope)
if _last is not None:
    _value = eval(compile(ast.Expression(_last.value), "code.py", "eval"), _scope)
    if _value is not None:
        print(_value if isinstance(_value, str) else repr(_value))
"""
"""Runs code from stdin in the sandbox as a notebook would: the value of the last expression is printed."""


class Workshop:
    """One build's folder, open for commands."""

    def __init__(
        self,
        sandbox: Sandbox,
        spec: SessionSpec,
        *,
        layers: LayerMaker,
        network: Callable[[Sequence[str]], Network],
        lend: Callable[[Sequence[str]], AbstractContextManager[Broker]] | None = None,
    ) -> None:
        """Use `async with`.

        Args:
            sandbox: The backend.
            spec: The folder and the limits.
            layers: Makes packages available.
            network: The network for hosts that the user has allowed.
            lend: The broker for what the user has allowed to call; None for none.
        """
        self._sandbox = sandbox
        self._spec = spec if lend is None else replace(spec, lend=lambda: lend(self._hosts))
        self._layers = layers
        self._network = network
        self._session: SandboxSession | None = None
        self._hosts: tuple[str, ...] = ()
        self._requirements: tuple[str, ...] = ()

    async def __aenter__(self) -> Workshop:
        """Open the folder."""
        self._session = await self._sandbox.open(self._spec)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """End what runs. The folder stays."""
        if self._session is not None:
            await self._session.aclose()

    async def write(self, path: str, content: str | bytes) -> None:
        """Write a file of the folder.

        Raises:
            UsageError: The path leaves the folder, or the folder is full.
        """
        await self._open_session.write(
            path, content if isinstance(content, bytes) else content.encode("utf-8", "replace")
        )

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """A file of the folder; None if there is no such regular file.

        Raises:
            UsageError: It is larger than `max_bytes`, or the path leaves the folder.
        """
        try:
            content = await self._open_session.read(path, max_bytes=max_bytes + 1)
        except NotFound:
            return None
        if len(content) > max_bytes:
            raise UsageError(f"{path} is larger than {max_bytes:,} bytes.")
        return content

    async def files(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """The named files and all that is in the named folders, by their paths.

        Raises:
            NotFound: One of them is missing.
            UsageError: They are too many or too large.
        """
        return {found.path: found.content for found in await self._open_session.export(paths)}

    async def allow(self, hosts: Sequence[str]) -> None:
        """Let the following commands reach these hosts as well."""
        wanted = tuple(sorted({*self._hosts, *hosts}))
        if wanted == self._hosts:
            return
        session = self._open_session
        self._spec = replace(self._spec, network=self._network(wanted))
        self._session = await self._sandbox.open(self._spec)
        self._session.use_layer(self._spec.layer)
        self._hosts = wanted
        await session.aclose()

    async def requirements(self) -> tuple[str, ...]:
        """The lines of `requirements.txt` that name a package.

        Raises:
            UsageError: The file is too large.
        """
        content = await self.read(REQUIREMENTS, max_bytes=_MOST_REQUIREMENTS)
        lines = (content or b"").decode("utf-8", "replace").splitlines()
        return tuple(line.strip() for line in lines if line.strip() and not line.strip().startswith("#"))

    async def require(self, packages: Sequence[str]) -> None:
        """Add packages to `requirements.txt`, and make them available to the following commands.

        Raises:
            UsageError: One of them can't be had; the file is unchanged.
        """
        before = await self.requirements()
        wanted = (*before, *(package for package in packages if package not in before))
        await self._use(wanted)
        await self.write(REQUIREMENTS, "".join(f"{line}\n" for line in wanted))

    async def run_code(self, code: str, *, timeout_s: float) -> CommandResult:
        """Run Python code.

        Raises:
            UsageError: A package of `requirements.txt` can't be had.
        """
        await self._use(await self.requirements())
        return await self._open_session.exec(
            ("python", "-c", _RUN_CODE),
            stdin=code.encode("utf-8", "replace"),
            timeout_s=timeout_s,
        )

    async def run_command(self, command: str, *, timeout_s: float) -> CommandResult:
        """Run a shell command.

        Raises:
            UsageError: A package of `requirements.txt` can't be had.
        """
        await self._use(await self.requirements())
        return await self._open_session.exec(("/bin/sh", "-c", command), timeout_s=timeout_s)

    async def _use(self, requirements: Sequence[str]) -> None:
        if tuple(requirements) == self._requirements:
            return
        layer = await self._layers(requirements)
        self._spec = replace(self._spec, layer=layer)
        self._open_session.use_layer(layer)
        self._requirements = tuple(requirements)

    @property
    def _open_session(self) -> SandboxSession:
        assert self._session is not None, "the workshop is not open"
        return self._session


def wanted_packages(command: str) -> tuple[str, ...] | None:
    """The packages that a command would install with pip or uv; None if it is another command.

    There is no installer in the sandbox and no index within reach, so such a command is carried out on the host:
    packages are resolved, locked and unpacked there, and nothing of them runs. "-r requirements.txt" names no package
    of its own, because whatever that file asks for is made available anyway.

    Raises:
        UsageError: It installs from somewhere else, or has options that mean something here.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    found = next((start for start in _INSTALLERS if tuple(words[: len(start)]) == start), None)
    if found is None:
        return None
    packages: list[str] = []
    rest = iter(words[len(found) :])
    for word in rest:
        if word in ("-r", "--requirement"):
            if next(rest, "").removeprefix("./") != REQUIREMENTS:
                raise UsageError("Only requirements.txt of the working folder can be installed from.")
        elif word in _HARMLESS_FLAGS:
            continue
        elif word.startswith("-") or any(mark in word for mark in ("&", "|", ";", "$", "`")):
            raise UsageError(
                f"{word!r} can't be used here. Packages come from the package index as wheels: pip install NAME, with "
                "a version if one is needed (NAME==1.2). Run other commands apart from it."
            )
        else:
            packages.append(word)
    return tuple(packages)
