"""The resources for other agents: the conversations of this home, the profile, and single memories."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import quote

from mcp.types import BlobResourceContents, TextResourceContents

from satchel.errors import NotFound, UsageError
from satchel.memory import record_to_json
from satchel.runtime import Satchel
from satchel.server.mcp.skills import SCHEME, ServedSkills
from satchel.server.mcp.tools import granted_memory
from satchel.sessions import SessionInfo
from satchel.tools.visible import visible
from satchel.wording import cut_text

PROFILE: Final = "satchel://profile"
SESSION_TEMPLATE: Final = "satchel://sessions/{id}"
MEMORY_TEMPLATE: Final = "satchel://memories/{id}"

_PLACE: Final = re.compile(r"satchel://(sessions|memories)/((?:[A-Za-z0-9_-]|%3A){1,100})")
"""The only addresses that are looked up: without dots or slashes, and without escapes other than that of a colon."""
_PAGE: Final = 100
_MOST_CHARS: Final = 1_000_000
"""The most characters of a conversation. A longer one is cut and ends with a note."""
_MOST_COMPLETIONS: Final = 100
"""The protocol's own limit."""


class Resources:
    """Reads what other agents may read. Private conversations are treated as missing."""

    def __init__(self, satchel: Satchel, skills: ServedSkills) -> None:
        """Both are read when a request asks."""
        self._satchel = satchel
        self._skills = skills

    async def page(self, cursor: str | None) -> tuple[Sequence[SessionInfo], str | None]:
        """A page of the conversations, the most recent first, and the cursor of the next one, or None.

        Raises:
            UsageError: The cursor was not issued by this list.
        """
        if cursor is not None and not re.fullmatch(r"[0-9]{1,9}", cursor):
            raise UsageError("The cursor doesn't belong to this list.")
        first = int(cursor or "0")
        sessions = await self._open_sessions()
        rest = len(sessions) > first + _PAGE
        return sessions[first : first + _PAGE], str(first + _PAGE) if rest else None

    async def read(self, uri: str) -> TextResourceContents | BlobResourceContents:
        """Read a resource.

        Raises:
            NotFound: There is none at this address.
            StorageError: It can't be read.
        """
        if uri == PROFILE:
            return _text(uri, await standing_text(self._satchel))
        if uri.startswith(SCHEME):
            content, mime_type = await self._skills.read(uri)
            try:
                return _text(uri, content.decode(), mime_type)
            except UnicodeDecodeError:
                return blob(uri, content, mime_type)
        found = _PLACE.fullmatch(uri)
        if found is None:
            raise NotFound(f"There is no resource {visible(uri[:200])!r}.")
        kind, id = found[1], found[2].replace("%3A", ":")
        if kind == "memories":
            memory = self._satchel.memory
            if memory is None:
                raise NotFound("Memory is off, or could not be opened.")
            record = await granted_memory(memory, id, self._satchel.settings.memory.agent_spheres)
            text = json.dumps(record_to_json(record), ensure_ascii=False, indent=1)
            return _text(uri, text, "application/json")
        if not any(info.id == id for info in await self._open_sessions()):
            raise NotFound(f"There is no session {id!r}.")
        text = visible(await self._satchel.sessions.export(id, form="markdown"))
        return _text(uri, cut_text(text, _MOST_CHARS))

    async def completed(self, template: str, beginning: str) -> tuple[list[str], int]:
        """Ids that begin with this text, and how many there are in all."""
        if template != SESSION_TEMPLATE:
            return [], 0
        ids = [info.id for info in await self._open_sessions() if info.id.startswith(beginning)]
        return ids[:_MOST_COMPLETIONS], len(ids)

    async def moments(self) -> Mapping[str, datetime]:
        """When something was last said in each conversation, by its address, in the order of the list."""
        return {session_uri(info): info.last_at for info in await self._open_sessions()}

    async def state(self, uri: str) -> object:
        """A value that stays equal until the resource changes.

        Raises:
            NotFound, StorageError: As `read`.
        """
        said = (await self.moments()).get(uri)
        return said if said is not None else await self.read(uri)

    async def _open_sessions(self) -> list[SessionInfo]:
        """Those that other programs may read: what is said in a project stays in it."""
        found = await self._satchel.sessions.list()
        return [info for info in found if not info.private and not info.project]


def _text(uri: str, text: str, mime_type: str = "text/markdown") -> TextResourceContents:
    return TextResourceContents(uri=uri, text=text, mime_type=mime_type)


def blob(uri: str, content: bytes, mime_type: str) -> BlobResourceContents:
    """A content that is not text."""
    return BlobResourceContents(uri=uri, blob=base64.b64encode(content).decode(), mime_type=mime_type)


def session_uri(info: SessionInfo) -> str:
    """The address of a conversation."""
    return f"satchel://sessions/{quote(info.id, safe='')}"


async def standing_text(satchel: Satchel) -> str:
    """The page or the profile, and the agenda, as models see them."""
    if satchel.memory is None:
        return "Memory is off, or could not be opened."
    settings = satchel.settings.memory
    profile = await satchel.memory.standing(
        page_tokens=settings.page_tokens,
        profile_tokens=settings.profile_tokens,
        granted=settings.agent_spheres,
    )
    agenda = await satchel.memory.agenda(
        budget_tokens=settings.agenda_tokens, granted=settings.agent_spheres, standing=profile.whole_ids
    )
    parts = [standing.text for standing in (profile, agenda) if standing.memories]
    return "\n".join(parts) or "Nothing is known about the user yet."
