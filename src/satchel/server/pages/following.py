"""Live updates of a conversation's page: the parts that have changed, as HTML."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import anyio
from starlette.types import Scope

from satchel.errors import NotFound, UsageError
from satchel.events import Record
from satchel.server.pages.rendering import text_of_template
from satchel.server.pages.transcript import ModelAnswer, Redraw, Steps, Transcript
from satchel.server.service import Service
from satchel.server.streams import ServerEvent

_LOOK_S: Final = 1.0
"""How often the log of a session that is not open here is polled."""
_GATHER_S: Final = 0.05
_MOST_GATHER_S: Final = 1.0
_CHARS_PER_S: Final = 200_000
"""A long unfinished block is redrawn less often, so that the cost of redrawing stays bounded."""
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedPart:
    """Which part of which session a page shows.

    Attributes:
        session_id: Its full id.
        first: The number of the record before the first turn on the page.
        after: The number of the last record that the page has.
    """

    session_id: str
    first: int
    after: int


async def read_transcript(
    service: Service, session_id: str, *, first: int = 0, until: int | None = None
) -> Transcript:
    """Read a session from its log, from the record after `first` up to `until`, with how its builds ended."""
    transcript, seq = Transcript(), first
    while page := await service.satchel.sessions.records(session_id, after_seq=seq, limit=_PAGE):
        wanted = [record for record in page if until is None or record.seq <= until]
        for record in wanted:
            transcript.feed(record)
            seq = record.seq
        if len(wanted) < len(page):
            break
    await _end_builds(service, transcript)
    return transcript


async def _end_builds(service: Service, transcript: Transcript) -> None:
    """Show how builds ended: a branch is not told of them."""
    if (builds := service.satchel.builds) is None:
        return
    for id in transcript.open_builds:
        try:
            build = await builds.queue.get(id)
        except NotFound:  # while its turn runs, it is yet to come
            if not transcript.is_running:
                transcript.end_build(id, "failed", "It is not known here.")
        else:
            if build.has_ended:
                transcript.end_build(id, build.status, build.outcome)


async def who_runs(service: Service, session_id: str, transcript: Transcript) -> str:
    """Who runs the session's turn: "here", which may be another server, "elsewhere" if another process has it open and
    keeps it, or "nobody".
    """
    kept = service.sessions.kept_session(session_id)
    if service.sessions.turns_of(session_id) or (kept is not None and kept.running is not None):
        return "here"
    if kept is not None:
        return "nobody"
    store = service.satchel.sessions
    if await store.writer(session_id, keeps=True) is not None:
        return "elsewhere"
    # Another server carries out what it is asked here; see `PassingOn`.
    is_there = transcript.is_running and await store.writer(session_id) is not None
    return "here" if is_there else "nobody"


async def follow(service: Service, scope: Scope, followed: FollowedPart) -> AsyncGenerator[ServerEvent, None]:
    """Yield the changes of the page since `followed`, until the reader leaves.

    The events are `put` {id, html, into}: an element to replace, or to add at the end of another; `write` {id, blocks,
    count}: blocks of an answer that is being written; and `state` {running, asks, where, turn, mode, title}. All may
    come twice.
    """
    transcript = await read_transcript(
        service, followed.session_id, first=followed.first, until=followed.after
    )
    tuple(transcript.take_changes())
    drawing = _Drawing(service, scope, followed, transcript)
    seq = followed.after
    while True:
        async with aclosing(_batches(service, followed.session_id, seq, transcript)) as batches:
            async for batch in batches:
                for record in batch:
                    transcript.feed(record)
                seq = max(seq, transcript.seq)
                if not batch:
                    await _end_builds(service, transcript)
                where = await who_runs(service, followed.session_id, transcript)
                if where == "nobody" and transcript.is_running:
                    transcript.cut_off()
                for event in drawing.events(where, seq):
                    yield event


async def _batches(
    service: Service, session_id: str, seq: int, transcript: Transcript
) -> AsyncGenerator[Sequence[Record], None]:
    """Records as they come, in batches; an empty batch only marks that time has passed."""
    kept = service.sessions.kept_session(session_id)
    try:
        subscription = kept.subscribe(seq) if kept is not None else None
    except UsageError:  # it was closed just now
        subscription = None
    if subscription is None:
        page = await service.satchel.sessions.records(session_id, after_seq=seq, limit=_PAGE)
        yield page
        if not page:
            await anyio.sleep(_LOOK_S)
        return
    batch: list[Record] = []
    is_open = True
    try:
        while is_open:
            wait_s = min(_MOST_GATHER_S, _GATHER_S + transcript.open_chars / _CHARS_PER_S)
            with anyio.move_on_after(wait_s) as moment:
                async for record in subscription:
                    batch.append(record)  # noqa: PERF401 - what is there is kept when the time is up
            yield batch
            batch, is_open = [], moment.cancelled_caught
            # Of a build that goes on, nothing may come here.
            with anyio.move_on_after(_LOOK_S if transcript.open_builds else math.inf):
                following = await anext(subscription, None) if is_open else None
                batch, is_open = ([following], True) if following is not None else ([], False)
    finally:
        await subscription.aclose()
    await anyio.sleep(_LOOK_S)  # it was closed; its log is polled from now on


class _Drawing:
    """Turns changes of a transcript into events."""

    def __init__(
        self, service: Service, scope: Scope, followed: FollowedPart, transcript: Transcript
    ) -> None:
        self._service = service
        self._scope = scope
        self._followed = followed
        self._transcript = transcript
        self._state: dict[str, Any] | None = None

    def events(self, where: str, seq: int) -> Sequence[ServerEvent]:
        """The events that the page doesn't have yet."""
        # Only the last event has the id to resume from, so a reader that gets only the first ones loses nothing.
        drawn = [
            self._written(change, piece) if piece is not None else self._put(change, where)
            for change, piece in self._transcript.take_changes()
        ]
        kept = self._service.sessions.kept_session(self._followed.session_id)
        state = {
            "running": self._transcript.is_running and where != "nobody",
            "asks": len(self._transcript.open_asks),
            "where": where,
            "turn": self._transcript.last.number if self._transcript.last else 0,
            "mode": kept.mode if kept is not None else "",
            "title": self._transcript.view.title,
        }
        if state != self._state:
            self._state = state
            drawn.append(("state", state))
        names = [ServerEvent(name=name, data=data) for name, data in drawn]
        if names:
            place = f"{self._followed.first}.{seq}"
            names[-1] = ServerEvent(name=names[-1].name, data=names[-1].data, id=place)
        return names

    def _written(self, change: Redraw, piece: str) -> tuple[str, dict[str, Any]]:
        assert change.turn is not None
        assert change.item is not None
        answer = self._transcript.turns[change.turn].items[change.item]
        assert isinstance(answer, ModelAnswer)
        assert answer.blocks is not None
        blocks, count = answer.blocks.feed(piece)
        return "write", {"id": f"turn-{change.turn}-{change.item}", "blocks": blocks, "count": count}

    def _put(self, change: Redraw, where: str) -> tuple[str, dict[str, Any]]:
        turn = self._transcript.turns[change.turn] if change.turn is not None else None
        known: dict[str, Any] = {
            "session_id": self._followed.session_id,
            "where": where,
            "turn": turn,
            "ended": frozenset(),
        }
        if turn is not None and change.item is None:
            html = self._draw("chat_turn.html", before=self._transcript.turns.get(turn.number - 1), **known)
            return "put", {"id": f"turn-{turn.number}", "html": html, "into": "turns"}
        assert change.item is not None
        prefix = f"turn-{turn.number}" if turn is not None else "preface"
        item = (turn.items if turn is not None else self._transcript.preface)[change.item]
        id = f"{prefix}-{change.item}"
        if change.call is not None and isinstance(item, Steps):
            html = self._draw(
                "chat_call.html", call=item.calls[change.call], id=f"{id}-{change.call}", **known
            )
            return "put", {"id": f"{id}-{change.call}", "html": html, "into": id}
        html = self._draw("chat_item.html", item=item, id=id, **known)
        return "put", {"id": id, "html": html, "into": f"{prefix}-items"}

    def _draw(self, template: str, **context: Any) -> str:
        return text_of_template(self._scope, template, **context).strip()
