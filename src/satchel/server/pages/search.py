"""`/search`: conversations, memories, documents, capabilities and settings, each by its own search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from satchel.errors import SatchelError, StorageError
from satchel.runtime import Satchel
from satchel.runtime.lines import one_line
from satchel.server.pages.rendering import said_where
from satchel.server.pages.settings import found_settings
from satchel.server.pages.site import page
from satchel.server.service import Serves

router = APIRouter(include_in_schema=False)

_MOST: Final = 6
"""Of each kind, so that all kinds are seen at once; a link leads to the rest."""
_SNIPPET_CHARS: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One of them: the path of its page, what it says, and what it is about."""

    path: str
    words: str
    meta: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultGroup:
    """The results of one kind.

    Attributes:
        more: Where the search of this kind alone is; "" if these are all.
        problem: Why this kind could not be searched.
    """

    name: str
    results: Sequence[SearchResult] = ()
    more: str = ""
    problem: str = ""


@router.get("/search")
async def search(
    request: Request, service: Serves, q: Annotated[str, Query(max_length=1000)] = ""
) -> Response:
    """The best of every kind."""
    groups = await find_everything(service.satchel, q)
    return await page(request, "search.html", title="Search", q=q.strip(), groups=groups)


async def find_everything(satchel: Satchel, words: str) -> list[ResultGroup]:
    """The best of every kind that has something. A kind that can't be searched now says why."""
    groups: list[ResultGroup] = []
    for name, find in _KINDS.items() if words.strip() else ():
        try:
            groups += await find(satchel, words.strip())
        except SatchelError as error:
            groups.append(ResultGroup(name=name, problem=str(error)))
    return [group for group in groups if group.results or group.problem]


async def _conversations(satchel: Satchel, words: str) -> Sequence[ResultGroup]:
    store = satchel.sessions
    wanted = words.lower().split()
    infos = [*await store.listed(), *await store.listed(archived=True)]
    titled = {
        info.id: SearchResult(path=f"/chat/{info.id}", words=info.title, meta=f"{info.last_at:%-d %B %Y}")
        for info in infos
        if info.turns and all(word in info.title.lower() for word in wanted)
    }
    there = {id for info in infos if info.id in titled for id in (info.id, *info.branches)}
    said = [
        SearchResult(
            path=f"/chat/{hit.session_id}#turn-{hit.turn}",
            words=hit.snippet,
            meta=f"{said_where(hit.kind)} in “{hit.title or 'Untitled'}”",
        )
        for hit in await store.search(words, limit=2 * _MOST)
        if hit.session_id not in there
    ]
    return (
        ResultGroup(name="Conversations", results=[*titled.values(), *said][:_MOST], more="/sessions?q="),
    )


async def _memories(satchel: Satchel, words: str) -> Sequence[ResultGroup]:
    memories: list[SearchResult] = []
    passages: list[SearchResult] = []
    if satchel.memory is None:
        raise StorageError("Memory is off (memory.enabled) or could not be opened.")
    wanted = words.lower().split()
    found = [
        hit.memory
        for hit in await satchel.memory.search(
            words,
            limit=4 * _MOST,
            relevant_only=True,
            clearly=True,
            folded=True,
            not_by_models=True,  # That is found among the conversations.
        )
    ]
    # Who types words wants these; what is only near in meaning is a click further, unless there is nothing else.
    found = [one for one in found if all(word in one.content.lower() for word in wanted)] or found
    for memory in found:
        file = memory.source.document.rpartition("/")[2]
        (passages if file else memories).append(
            SearchResult(
                path=f"/memories/{memory.id}",
                words=one_line(memory.content, _SNIPPET_CHARS),
                meta=f"{file}, {memory.source.place}" if file else f"{memory.said_at:%-d %B %Y}",
            )
        )
    return (
        ResultGroup(name="Memories", results=memories[:_MOST], more="/memories?q="),
        ResultGroup(name="Documents", results=passages[:_MOST]),
    )


async def _capabilities(satchel: Satchel, words: str) -> Sequence[ResultGroup]:
    if satchel.capabilities is None:
        raise StorageError("Capabilities are unavailable. `satchel doctor` shows why.")
    found = await satchel.capabilities.lookup.search(
        words, limit=_MOST, statuses=("active", "building", "proposed", "failed", "disabled")
    )
    return (
        ResultGroup(
            name="Capabilities",
            results=[
                SearchResult(
                    path=f"/capabilities/{one.capability.name}",
                    words=one.capability.name,
                    meta=one_line(one.capability.description, _SNIPPET_CHARS),
                )
                for one in found
            ],
            more="/capabilities?q=",
        ),
    )


async def _settings(_: Satchel, words: str) -> Sequence[ResultGroup]:
    found = [SearchResult(path=path, words=name, meta=about) for path, name, about in found_settings(words)]
    return (ResultGroup(name="Settings", results=found[:_MOST], more="/settings?q="),)


_KINDS: Final = {
    "Conversations": _conversations,
    "Memories": _memories,
    "Capabilities": _capabilities,
    "Settings": _settings,
}
