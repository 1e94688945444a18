"""`/search`: conversations, memories, documents, capabilities and settings, each by its own search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from satchel.errors import SatchelError
from satchel.runtime.lines import one_line
from satchel.server.pages.settings import found_settings
from satchel.server.pages.site import page
from satchel.server.service import Serves, Service

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_MOST: Final = 6
"""Of each kind, so that all kinds are seen at once; a link leads to the rest."""
_SNIPPET_CHARS: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    path: str
    words: str
    meta: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The results of one kind.

    Attributes:
        more: Where the search of this kind alone is; "" if these are all.
        problem: Why this kind could not be searched.
    """

    name: str
    results: Sequence[_Result] = ()
    more: str = ""
    problem: str = ""


@router.get("/search")
async def search(
    request: Request, service: Serves, q: Annotated[str, Query(max_length=1000)] = ""
) -> Response:
    """The best of every kind. A kind that can't be searched now says why; the others are shown."""
    words = q.strip()
    groups: list[_Group] = []
    for name, find in _KINDS.items() if words else ():
        try:
            groups += await find(service, words)
        except SatchelError as error:
            groups.append(_Group(name=name, problem=str(error)))
    groups = [group for group in groups if group.results or group.problem]
    return await page(request, "search.html", title="Search", q=words, groups=groups)


async def _conversations(service: Service, words: str) -> Sequence[_Group]:
    store = service.satchel.sessions
    wanted = words.lower().split()
    infos = [*await store.listed(), *await store.listed(archived=True)]
    titled = {
        info.id: _Result(path=f"/chat/{info.id}", words=info.title, meta=f"{info.last_at:%-d %B %Y}")
        for info in infos
        if info.turns and all(word in info.title.lower() for word in wanted)
    }
    said = [
        _Result(
            path=f"/chat/{hit.session_id}#turn-{hit.turn}",
            words=hit.snippet,
            meta=f"{hit.title or 'Untitled'}, turn {hit.turn}, {hit.kind}",
        )
        for hit in await store.search(words, limit=2 * _MOST)
        if hit.session_id not in titled
    ]
    return (_Group(name="Conversations", results=[*titled.values(), *said][:_MOST], more="/sessions?q="),)


async def _memories(service: Service, words: str) -> Sequence[_Group]:
    memories: list[_Result] = []
    passages: list[_Result] = []
    for hit in await service.memory.search(words, limit=4 * _MOST, relevant_only=True, folded=True):
        memory = hit.memory
        file = memory.source.document.rpartition("/")[2]
        (passages if file else memories).append(
            _Result(
                path=f"/memories/{memory.id}",
                words=one_line(memory.content, _SNIPPET_CHARS),
                meta=f"{file}, {memory.source.place}" if file else f"{memory.said_at:%-d %B %Y}",
            )
        )
    return (
        _Group(name="Memories", results=memories[:_MOST], more="/memories?q="),
        _Group(name="Documents", results=passages[:_MOST]),
    )


async def _capabilities(service: Service, words: str) -> Sequence[_Group]:
    found = await service.capabilities.lookup.search(
        words, limit=_MOST, statuses=("active", "building", "proposed", "failed", "disabled")
    )
    return (
        _Group(
            name="Capabilities",
            results=[
                _Result(
                    path=f"/capabilities/{one.capability.name}",
                    words=one.capability.name,
                    meta=one_line(one.capability.description, _SNIPPET_CHARS),
                )
                for one in found
            ],
            more="/capabilities?q=",
        ),
    )


async def _settings(_: Service, words: str) -> Sequence[_Group]:
    found = [_Result(path=path, words=name, meta=about) for path, name, about in found_settings(words)]
    return (_Group(name="Settings", results=found[:_MOST], more="/settings?q="),)


_KINDS: Final = {
    "Conversations": _conversations,
    "Memories": _memories,
    "Capabilities": _capabilities,
    "Settings": _settings,
}
