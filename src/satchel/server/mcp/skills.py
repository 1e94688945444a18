"""The Skills extension of MCP (SEP-2640): skills and active capabilities, file by file, under `skill://` addresses."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast
from urllib.parse import quote, unquote

import anyio.to_thread
from mcp.types import CacheableResult, RequestParams

from satchel.capabilities.front_matter import front_fields
from satchel.capabilities.records import skill_name
from satchel.capabilities.skills import DOCUMENT, Skill
from satchel.capabilities.toolset import OwnTool
from satchel.errors import NotFound, SatchelError, StorageError, UsageError
from satchel.runtime import Satchel
from satchel.runtime.agent_calls import AgentCalls
from satchel.tools.visible import visible

EXTENSION: Final = "io.modelcontextprotocol/skills"
SCHEME: Final = "skill://"
SKILL_TEMPLATE: Final = "skill://{skill}/{+file}"
_CAPABILITIES: Final = "satchel_capabilities/"
"""Before the name of a capability. No skill is named so: their names have no underscore."""
_MOST_FILES: Final = 512
_MOST_BYTES: Final = 16_777_216
"""The limits of the extension; nobody has to take a larger skill, so it isn't served."""


class GetSkillParams(RequestParams):
    """Of `skills/get`."""

    uri: str


class ListSkillsResult(CacheableResult):
    """Of `skills/list`: each with its address, its front matter, and the digest and size of every file."""

    skills: list[dict[str, Any]]


class GetSkillResult(CacheableResult):
    """Of `skills/get`: one of the same entries."""

    skill: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """A skill: its path in addresses, the names of its files, what reads one of them, and its capability or "".

    Reading blocks.
    """

    path: str
    files: tuple[str, ...]
    read: Callable[[str], bytes]
    capability: str = ""

    def uri(self, file: str = DOCUMENT) -> str:
        return f"{SCHEME}{self.path}/{quote(file)}"

    def entry(self) -> dict[str, Any]:
        """What the extension says of it; blocks.

        Raises:
            UsageError: It has no valid front matter, or is too large.
            OSError: A file can't be read.
        """
        if len(self.files) > _MOST_FILES:
            raise UsageError(f"The skill {self.path} has more than {_MOST_FILES} files.")
        resources: list[dict[str, Any]] = []
        left = _MOST_BYTES
        for file in self.files:
            content = self.read(file)
            left -= len(content)
            if left < 0:
                raise UsageError(f"The skill {self.path} is larger than {_MOST_BYTES:,} bytes.")
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            resources.append({"uri": self.uri(file), "digest": digest, "size": len(content)})
        front = front_fields(self.read(DOCUMENT).decode("utf-8", "replace"))
        return {"uri": self.uri(), "frontmatter": front, "resources": resources}


class ServedSkills:
    """What is served. Files come as they are on the disk, because clients compare digests."""

    def __init__(self, satchel: Satchel, calls: AgentCalls) -> None:
        """Both are read when a request asks."""
        self._satchel = satchel
        self._calls = calls

    async def entries(self) -> list[dict[str, Any]]:
        """The entry of each skill, the user's first; those that can't be served are left out."""
        served = await self._served()
        return await anyio.to_thread.run_sync(
            lambda: [entry for one in served.values() if (entry := _entry(one))]
        )

    async def entry(self, uri: str) -> dict[str, Any]:
        """The entry of the skill with this address of a SKILL.md.

        Raises:
            NotFound: There is none, or it can't be served.
        """
        for one in (await self._served()).values():
            if one.uri() == uri and (entry := await anyio.to_thread.run_sync(_entry, one)):
                return entry
        raise NotFound(f"There is no skill {visible(uri[:200])!r}.")

    async def read(self, uri: str) -> tuple[bytes, str]:
        """A file and its media type. Only listed files are: no path is looked up on the disk.

        Raises:
            NotFound: No skill lists such a file, or it has gone.
        """
        for one in (await self._served()).values():
            prefix = f"{SCHEME}{one.path}/"
            file = unquote(uri.removeprefix(prefix))
            if uri.startswith(prefix) and file in one.files:
                try:
                    content = await anyio.to_thread.run_sync(one.read, file)
                except (OSError, UsageError, ValueError) as error:
                    raise NotFound(f"{visible(uri[:200])!r} can't be read: {error}") from error
                if one.capability and self._satchel.capabilities is not None:
                    await self._satchel.capabilities.catalogue.note_read(one.capability)
                return content, mimetypes.guess_type(file)[0] or "application/octet-stream"
        raise NotFound(f"There is no resource {visible(uri[:200])!r}.")

    async def state(self) -> object:
        """A value that stays equal while there are the same skills."""
        parts = self._satchel.capabilities
        made = await parts.catalogue.version() if parts is not None else None
        return tuple(await self._calls.skills()), made

    async def _served(self) -> Mapping[str, _Served]:
        found: dict[str, _Served] = {}
        for skill in await self._calls.skill_folders():
            files = await anyio.to_thread.run_sync(skill.files)
            found[skill.name] = _Served(path=skill.name, files=files, read=partial(_on_disk, skill))
        parts = self._satchel.capabilities
        packages = dict(await self._calls.own_skills())
        if parts is not None:
            for tool in await self._calls.capabilities():
                capability = cast("OwnTool", tool).capability
                with suppress(NotFound, StorageError, UsageError):  # `satchel doctor` says so.
                    packages[capability.name] = await parts.catalogue.registered(
                        capability.name, capability.version
                    )
        for name, package in packages.items():
            path = f"{_CAPABILITIES}{skill_name(name)}"
            found[path] = _Served(
                path=path,
                files=tuple(sorted(package.files)),
                read=partial(_of, package.files),
                capability=name,
            )
        return found


def _on_disk(skill: Skill, file: str) -> bytes:
    with skill.path(file).open("rb") as opened:
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{visible(file)} of the skill {skill.name} is larger than {_MOST_BYTES:,} bytes.")
    return content


def _of(files: Mapping[str, bytes], file: str) -> bytes:
    return files[file]


def _entry(one: _Served) -> dict[str, Any] | None:
    try:
        return one.entry()
    except (OSError, SatchelError, ValueError):  # one odd skill, or name of a file, hides no other skill
        return None
