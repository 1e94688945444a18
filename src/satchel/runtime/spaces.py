"""What a person shares with others of a server: asked for at its front door, which knows who asks (decision 153)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import httpx2

from satchel.config.home import replace_file
from satchel.errors import NotFound, Refused, SatchelError, ServerUnavailable
from satchel.memory import Context, Hit, MemoryRecord
from satchel.memory.records import SHARED, SharedHits, Source, Trust, time_from_json
from satchel.memory.text import lexicon
from satchel.memory.text.block import block_of, said_texts
from satchel.messages import Message
from satchel.runtime.people import Role, owner_of, spaces_token
from satchel.runtime.server_api import ServerApi
from satchel.runtime.serving import SPACES_FILE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_WAIT_S: Final = 20.0
"""A space whose process has to be started answers within two seconds; more only where the machine is busy."""
_SHOW_WAIT_S: Final = 4.0
"""How long a message waits for what is shared, and a page for the names of the spaces."""
_ALL: Final = "the shared spaces"
_MESSAGES: Final = 3
_MOST_CHARS: Final = 10_000
"""Of a message, its end: what is asked stands there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSpace:
    """A space that a person is in or is invited to.

    Attributes:
        you: What the person is in it.
        members: Everybody in it or invited, in the order in which they came.
    """

    name: str
    you: Role
    members: Mapping[str, Role]

    @property
    def owner(self) -> str:
        """Who may remove members and every entry, and delete it."""
        return owner_of(self.members)

    @property
    def others(self) -> list[str]:
        """The members, without the owner and those who are only invited."""
        return [name for name, role in self.members.items() if role == "member"]

    @property
    def invited(self) -> list[str]:
        """Who hasn't accepted yet."""
        return [name for name, role in self.members.items() if role == "invited"]

    @property
    def leaving(self) -> str:
        """What leaving does, to be said beforehand."""
        heir = f" {self.others[0]} owns it from then on." if self.you == "owner" and self.others else ""
        return (
            f"What you shared in {self.name} stays there; forget first what should not. You are shown nothing of it "
            f"any more.{heir}"
        )

    @property
    def deleting(self) -> str:
        """What deleting it does, to be said beforehand."""
        return (
            f"Everything in {self.name} is deleted for all of its members. A backup stays with the administrator of "
            "this server."
        )


class Spaces:
    """The spaces of the person whose home this is. Ids of what is shared are "SPACE/ID".

    Attributes:
        me: The person's name.
        known: The spaces that the person was in when they were last asked for.

    Every method raises the errors that the front door reports, and `ServerUnavailable` if it doesn't answer; those that
    only look find nothing then.
    """

    def __init__(self, *, socket: str, name: str, token: str) -> None:
        """Use `of`."""
        self.me = name
        self.known: tuple[str, ...] = ()
        self._socket = socket
        self._token = token

    @classmethod
    def of(cls, home: Path) -> Spaces | None:
        """Those of a home; None if it isn't the home of one of several people, or its front door doesn't run."""
        try:
            content = json.loads((home / SPACES_FILE).read_bytes())
            found = cls(**content)
        except (OSError, ValueError, TypeError):
            return None
        return found if Path(found._socket).is_socket() else None

    async def all(self) -> Sequence[SharedSpace]:
        """The spaces that the person is in or is invited to, by name."""
        async with self._api(wait_s=_SHOW_WAIT_S) as api:
            found = [SharedSpace(**found) for found in await api.get("/spaces")]
        self.known = tuple(one.name for one in found if one.you != "invited")
        return found

    async def refresh(self) -> None:
        """The same for `known`, which stays as it was if the front door doesn't answer."""
        with suppress(SatchelError):
            await self.all()

    async def get(self, name: str) -> SharedSpace:
        """One of them.

        Raises:
            NotFound: The person is in no such space.
        """
        for one in await self.all():
            if one.name == name:
                return one
        raise NotFound(f"You are in no space named {name!r}.")

    async def make(self, name: str) -> None:
        """Make a space, which the person owns."""
        async with self._api() as api:
            await api.post(f"/spaces/{_part(name)}", {})

    async def delete(self, name: str) -> None:
        """Delete a space with all that is in it; only its owner may."""
        async with self._api(wait_s=600) as api:
            await api.delete(f"/spaces/{_part(name)}")

    async def invite(self, name: str, who: str) -> str:
        """Invite somebody; only the owner may. What is returned is told to the user, as by the methods that follow."""
        async with self._api() as api:
            await api.post(f"/spaces/{_part(name)}/members/{_part(who)}", {})
        return f"{who} is invited to {name}."

    async def accept(self, name: str) -> str:
        """Accept an invitation."""
        async with self._api() as api:
            await api.post(f"/spaces/{_part(name)}/accept", {})
        return f"You are in {name}. What its members share is shown in your conversations where it fits."

    async def take_out(self, name: str, who: str = "") -> str:
        """Remove a member or an invitation, which only the owner may; without `who`, leave or decline."""
        async with self._api() as api:
            await api.delete(f"/spaces/{_part(name)}/members/{_part(who or self.me)}")
        if who:
            return f"{who} is no longer in {name}. What they shared stays; you may forget it."
        return f"You are not in {name}."

    async def add(self, name: str, content: str, *, trust: Trust = "user") -> MemoryRecord:
        """Share something. The front door notes who said it; `trust` says whose words these are of the user's."""
        async with self._api() as api:
            asked = {"content": content, "trust": trust}
            return self._record(name, await api.post(f"/memories/{_part(name)}", asked))

    async def forget(self, id: str) -> MemoryRecord:
        """Forget an entry, which who wrote it and the space's owner may.

        Returns:
            What it was.
        """
        space, _, rest = id.partition("/")
        async with self._api() as api:
            return self._record(space, await api.delete(f"/memories/{_part(space)}/{_part(rest)}"))

    async def list(self, *, space: str | None = None, limit: int = 50) -> SharedHits:
        """The newest entries, of one space or of all."""
        return await self._found("GET", "/memories", {"space": space, "limit": limit})

    async def search(self, query: str, *, space: str | None = None, limit: int = 10) -> SharedHits:
        """The entries that fit a question best, best first; those that share nothing with it are left out."""
        return await self._found("POST", "/search", {"query": query, "space": space, "limit": limit})

    async def surface(
        self,
        messages: Sequence[Message],
        *,
        budget_tokens: int,
        limit: int,
        exclude: Collection[str] = (),
    ) -> tuple[Context, tuple[str, ...]]:
        """What to show a model now, as `Memory.surface`; and which spaces could not be asked."""
        said = [
            {"role": role, "content": text[-_MOST_CHARS:]} for role, text in said_texts(messages)[-_MESSAGES:]
        ]
        if not said:
            return Context(), ()
        asked = {
            "messages": said,
            "budget_tokens": budget_tokens,
            "limit": limit,
            "exclude": [id for id in exclude if "/" in id],
        }
        found = await self._found("POST", "/surface", asked, wait_s=_SHOW_WAIT_S)
        stems = lexicon.stems_of(said[-1]["content"])
        return block_of(found.hits, stems=stems, budget_tokens=budget_tokens, limit=limit), found.away

    async def _found(
        self, method: Literal["GET", "POST"], path: str, asked: Mapping[str, Any], wait_s: float = _WAIT_S
    ) -> SharedHits:
        """What was found; without the front door, nothing, which goes on without it."""
        try:
            async with self._api(wait_s) as api:
                answer = await (api.get(path, **asked) if method == "GET" else api.post(path, asked))
        except (ServerUnavailable, Refused):  # such as while another password ends this process
            return SharedHits((), (_ALL,))
        hits = [
            Hit(memory=self._record(one["space"], one["memory"]), score=one["score"], signals={})
            for one in answer["hits"]
        ]
        return SharedHits(tuple(hits), tuple(answer["away"]))

    def _record(self, space: str, found: Mapping[str, Any]) -> MemoryRecord:
        given = {each.name: found[each.name] for each in fields(MemoryRecord)}
        times = {
            name: datetime.fromisoformat(given[name]) if given[name] else None
            for name in ("said_at", "valid_from", "valid_to", "created_at", "last_accessed")
        }
        lists = {name: tuple(given[name]) for name in ("tags", "spheres")}
        return replace(
            MemoryRecord(**{**given, **times, **lists}),
            id=f"{space}/{given['id']}",
            scope=f"{SHARED}{space}",
            user=self.me,
            source=Source(),
            time=time_from_json(given["time"]),
            # Words of somebody else's are data: no more may be done for them than for a page of the web.
            trust=given["trust"] if given["speaker"] == self.me else "outside",
        )

    @asynccontextmanager
    async def _api(self, wait_s: float = _WAIT_S) -> AsyncIterator[ServerApi]:
        async with httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(uds=self._socket, verify=False),  # no TLS on a Unix socket
            base_url="http://door",
            headers={"authorization": f"Bearer {self.me} {self._token}"},
            timeout=wait_s,
            trust_env=False,
        ) as client:
            yield ServerApi(client)


def write_access(home: Path, *, socket: str, name: str, door_token: str) -> None:
    """Note in a person's home how its commands reach the person's spaces. Errors as in `replace_file`."""
    content = {"socket": socket, "name": name, "token": spaces_token(door_token)}
    replace_file(home / SPACES_FILE, json.dumps(content) + "\n")


def _part(text: str) -> str:
    if text in (".", ".."):  # in a URL, they lead elsewhere, such as from a member to the space
        raise NotFound("There is no such name or memory.")
    return quote(text, safe="")
