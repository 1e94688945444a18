"""Imports: what was said elsewhere becomes memories, and each conversation one of Satchel's own.

The memories of a conversation are stored before its log, so that an import that is cut off finds them when it is made
again, and then writes the log. `docs/decisions/0112-imported-conversations.md` says how the two belong together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import anyio.to_thread

from satchel.errors import NotFound, SessionInUse
from satchel.events import (
    Action,
    Assistant,
    ContextAdded,
    Event,
    Final,
    MemoryCaptured,
    Observation,
    Record,
    SessionBranched,
    SessionStart,
    SessionTitled,
    TurnEnd,
    TurnStart,
)
from satchel.memory import Memory
from satchel.memory.transfer.parts import ImportedConversation, ImportedMessage
from satchel.memory.transfer.report import ImportReport
from satchel.messages import Block, FileBlock, Message, TextBlock, ToolUseBlock, Usage, text_of
from satchel.runtime.home import Home
from satchel.sessions import FORGOTTEN, SessionInfo, title_of
from satchel.sessions.attachments import MOST_BYTES, plain_name
from satchel.tools.kept import SharedFiles, keep
from satchel.tools.paths import is_below
from satchel.version import __version__

CONVERSATIONS = {
    "new": "new",
    "longer": "with new messages",
    "known": "known",
    "gone on": "gone on with here, and so left alone",
    "in a project": "in a project here, and so left alone",
    "deleted": "deleted or forgotten here, and so not taken",
}
"""What the report says of conversations, by what became of them."""
_PICTURE = "picture"
"""The tool whose results are the pictures that a model made elsewhere."""
_Keep: TypeAlias = Callable[[str, bytes], FileBlock]
"""Keeps a file of this name beside a log."""
_NO_MESSAGE = "(The assistant speaks first.)"
_GOES_ON = "(The answer goes on.)"


async def import_into(home: Home, memory: Memory, where: str | Path, **options: Any) -> ImportReport:
    """Import memories and conversations; see `Memory.import_from` for the arguments and errors.

    Conversations belong to the user's own memories: an import into another scope makes memories alone.
    """
    if memory is not home.memory or memory.scope != "default":
        return await memory.import_from(where, **options)
    # What was said in them is in the project's memory, and must not get out of it.
    elsewhere = frozenset(info.id for info in await home.sessions.list() if info.project and info.source)
    intake = _Conversations(home, elsewhere)
    report = await memory.import_from(where, conversations=intake.take, elsewhere=elsewhere, **options)
    if report.conversations.keys() & {"new", "longer"}:
        await home.sessions.list()  # the next list finds them in the index
    return report


@dataclass(slots=True)
class _State:
    """What the log of an imported conversation has, by its records."""

    turns: int = 0
    answers: int = 0
    resumed: bool = False
    is_gone_on: bool = False
    ids: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __call__(self, record: Record) -> None:
        match record.event:
            case SessionStart(resumed=True):
                self.resumed = True
            case TurnStart(turn=turn):
                self.turns, self.answers = turn, 0
                self.is_gone_on = self.is_gone_on or self.resumed
            case Assistant(blocks=blocks):
                self.answers += sum(isinstance(block, TextBlock) for block in blocks)
            case MemoryCaptured(turn=turn, ids=ids):
                self.ids[turn] = ids
            case _:
                pass

    def is_of(self, messages: Sequence[ImportedMessage]) -> bool:
        """Whether these are its messages, and perhaps more."""
        there = {(message.turn, message.id) for message in messages}
        return bool(messages) and all((turn, id) in there for turn, ids in self.ids.items() for id in ids)


@dataclass(frozen=True, slots=True)
class _Said:
    """The words of a conversation's messages.

    Attributes:
        stored: Those of the memories that there are, by their ids.
        clean: Gives another text as it would be stored.
        told: The ids of the messages that memories are made of.
    """

    stored: Mapping[str, str]
    clean: Callable[[str], str]
    told: frozenset[str]

    def of(self, message: ImportedMessage) -> str:
        """The words of a message. What is not in memory was forgotten; of other branches, nothing is in memory."""
        if message.id in self.stored:
            return self.stored[message.id]
        text = self.clean(message.text)
        return FORGOTTEN if text.strip() and message.id in self.told else text


class _Conversations:
    """Takes imported conversations into the logs of a home."""

    def __init__(self, home: Home, elsewhere: Collection[str]) -> None:
        self._home = home
        self._elsewhere = elsewhere
        self._places: dict[str, Path] | None = None
        self._infos: dict[str, SessionInfo] = {}
        self._deleted: frozenset[str] = frozenset()
        self._shared_files = SharedFiles(home.settings.home / "sessions")

    async def take(
        self, found: ImportedConversation, words: Mapping[str, str], clean: Callable[[str], str]
    ) -> str:
        """See `TakeConversation`."""
        if found.session in self._elsewhere:
            return "in a project"
        sessions = self._home.sessions
        if self._places is None:
            self._infos = {info.id: info for info in await sessions.list()}
            self._places = await sessions.places()
            self._deleted = await sessions.client_history.deleted()
        if found.session in self._deleted:
            return "deleted"
        said = _Said(words, clean, frozenset(message.id for message in found.messages))
        paths, place = [found.messages, *found.branches], self._places.get(found.session)
        main, outcome = found.messages, "known"
        try:
            if place is None:
                if known := await self._in_another(found, words):
                    return known
                if all((text := said.of(one)) == FORGOTTEN or not (text or one.files) for one in main):
                    return "deleted"
                title = "" if any(said.of(one) == FORGOTTEN for one in main) else title_of(clean(found.title))
                await self._write(found, found.session, main, said, title=title)
                outcome = "new"
            elif not self._is_same(found.session, main):
                state = await self._state(found.session)
                main = next((path for path in paths if state.is_of(path)), ())
                if state.is_gone_on or not main:
                    return "gone on"
                outcome = await self._extend(found.session, place, state, main, said, captured=True)
        except SessionInUse:
            return "gone on"
        await self._take_branches(found, [path for path in paths if path is not main], main, said)
        return outcome

    async def _in_another(self, found: ImportedConversation, words: Mapping[str, str]) -> str:
        """What became of another conversation that has all messages of this one; "" if there is none.

        Some exports have no conversations, so that one whose first messages are gone there looks like another one.
        """
        assert self._places is not None
        assert self._home.memory is not None
        # What was forgotten in a branch has an id in `words`, and no memory.
        told = {message.id for message in found.messages if words.get(message.id, FORGOTTEN) != FORGOTTEN}
        if not told:
            return ""
        try:
            other = (await self._home.memory.get(min(told))).source.session or ""
        except NotFound:  # it was forgotten meanwhile
            return ""
        if other == found.session or other not in {*self._places, *self._deleted}:
            return ""
        if other in self._deleted:
            return "deleted"
        there = {id for ids in (await self._state(other)).ids.values() for id in ids}
        return "known" if told <= there else ""

    async def _take_branches(
        self,
        found: ImportedConversation,
        paths: Sequence[tuple[ImportedMessage, ...]],
        main: tuple[ImportedMessage, ...],
        said: _Said,
    ) -> None:
        """Keep the other branches: each goes off the first that has what stands before it."""
        assert self._places is not None
        owners = {message.id: found.session for message in main}
        repeats: dict[str, dict[str, int]] = {found.session: {}}
        for path in paths:
            own = next((at for at, message in enumerate(path) if message.id not in owners), None)
            if own is None:
                continue
            first = path[own]
            id = f"{found.session}-{hashlib.sha256(first.id.encode()).hexdigest()[:8]}"
            owners |= {message.id: id for message in path[own:]}
            parent = owners[path[own - 1].id] if own else found.session
            earlier = {other: min(turn, first.turn) for other, turn in repeats[parent].items()}
            repeats[id] = {parent: first.turn, **earlier}
            if id in self._deleted:
                continue
            if (place := self._places.get(id)) is None:
                branched = SessionBranched(session_id=parent, turn=first.turn, repeats=repeats[id])
                with suppress(SessionInUse):  # another import has written it meanwhile
                    await self._write(found, id, path, said, branched=branched)
            elif not self._is_same(id, path):
                state = await self._state(id)
                if not state.is_gone_on:
                    with suppress(SessionInUse):
                        await self._extend(id, place, state, path, said, captured=False)

    def _is_same(self, id: str, messages: Sequence[ImportedMessage]) -> bool:
        """Whether a conversation ends here as it ends there, so that its log needn't be read."""
        info, turn = self._infos.get(id), messages[-1].turn
        last_at = max(message.at for message in messages if message.turn == turn)
        return info is not None and (info.turns, info.last_at) == (turn, last_at)

    async def _state(self, id: str) -> _State:
        state = _State()
        await self._home.sessions.load(id, visit=state)
        return state

    async def _write(
        self,
        found: ImportedConversation,
        id: str,
        messages: tuple[ImportedMessage, ...],
        said: _Said,
        *,
        title: str = "",
        branched: SessionBranched | None = None,
    ) -> None:
        sessions, at = self._home.sessions, messages[0].at
        source = found.session.partition(":")[0]
        cwd = _folder(found.cwd, self._home)
        start = SessionStart(
            session_id=id, cwd=cwd, provider=source, model=messages[0].model, version=__version__
        )
        place = sessions.place(id, cwd, at)
        events: list[tuple[datetime, Event]] = [(at, start)]
        if branched is not None:
            events.append((at, branched))
        if title:
            events.append((at, SessionTitled(title=title, by="model")))

        def make() -> list[Record]:
            keeping = self._keeping(place)
            is_main = branched is None
            events.extend(_turns(messages, said, source, keeping, captured=is_main))
            return [Record(seq=seq, at=at, event=event) for seq, (at, event) in enumerate(events, start=1)]

        records = await anyio.to_thread.run_sync(make)
        await sessions.write(place, id, records)
        assert self._places is not None
        self._places[id] = place

    async def _extend(
        self,
        id: str,
        place: Path,
        state: _State,
        messages: tuple[ImportedMessage, ...],
        said: _Said,
        *,
        captured: bool,
    ) -> str:
        """Add what was said since."""
        source = id.partition(":")[0]
        answers = [
            one for one in messages if one.turn == state.turns and one.role != "user" and one.text.strip()
        ]
        late, later = answers[state.answers :], [one for one in messages if one.turn > state.turns]
        if not late and not later:
            return "known"

        def make() -> list[tuple[datetime, Event]]:
            keeping = self._keeping(place)
            return list(_turns((*late, *later), said, source, keeping, captured=captured, goes_on=bool(late)))

        events = await anyio.to_thread.run_sync(make)
        async with await self._home.sessions.open(id) as journal:
            for at, group in groupby(events, key=lambda one: one[0]):
                await journal.append([event for _, event in group], at=at)
            await journal.append([], durable=True)
        return "longer"

    def _keeping(self, place: Path) -> _Keep:
        """Keeps files beside this log."""
        return partial(keep, place.with_suffix(".spill"), write=self._shared_files.write)


def _folder(cwd: str, home: Home) -> str:
    """Where a conversation was held, for showing; the home for a place that may hold keys, which somebody else may have
    written there.
    """
    try:
        forms = [os.path.normpath(cwd), os.path.realpath(cwd)]
    except (OSError, ValueError):  # such as a NUL
        forms = []
    closed = ["/proc", "/etc", os.path.realpath(home.settings.home)]
    may_hold = any("/." in form or is_below(form.replace("//", "/"), closed) for form in forms)
    if forms and cwd.startswith("/") and cwd.isprintable() and not may_hold:
        return cwd
    return home.settings.environ.get("HOME") or str(home.settings.home)


def _turns(
    messages: Sequence[ImportedMessage],
    words: _Said,
    source: str,
    keeping: _Keep,
    *,
    captured: bool,
    goes_on: bool = False,
) -> Iterator[tuple[datetime, Event]]:
    """The events of messages, with their times; keeps their files. Blocks. With `captured`, the messages are in memory.
    If it `goes_on`, the first turn is in the log already, and its answer goes on.
    """
    for turn, group in groupby(messages, key=lambda message: message.turn):
        said = list(group)
        at, answers = said[0].at, [message for message in said if message.role == "assistant"]
        if goes_on:
            goes_on = False
            yield at, ContextAdded(turn=turn, source=source, text=_GOES_ON)
        elif said[0].role == "user":
            texts = [TextBlock(text=text)] if (text := words.of(said[0])) else []
            blocks: tuple[Block, ...] = (*texts, *_kept(said[0], words, keeping))
            yield at, TurnStart(turn=turn, message=Message(role="user", blocks=blocks))
        else:
            opening = TextBlock(text=_NO_MESSAGE, origin="notice")
            yield at, TurnStart(turn=turn, message=Message(role="user", blocks=(opening,)))
        # In one batch with the beginning: a turn without it would be captured once more after a crash.
        ids = tuple(message.id for message in said if message.id in words.stored) if captured else ()
        yield at, MemoryCaptured(turn=turn, ids=ids)
        rounds = 0
        spoken: list[str] = []
        last = ""
        for number, message in enumerate(answers):
            at = max(at, message.at)
            if text := words.of(message):
                # A block for each message, because they are counted; joined, each is a paragraph.
                spoken.append(f"\n{text}" if spoken else text)
            files = _kept(message, words, keeping)
            if not files and number < len(answers) - 1:
                continue
            rounds += 1
            # A message may be there twice, and no provider takes two calls of one id.
            call = ToolUseBlock(id=f"{source}-{message.id}-{turn}-{rounds}", name=_PICTURE, input={})
            answer: tuple[Block, ...] = tuple(TextBlock(text=text) for text in spoken)
            last = text_of(answer) or last
            spoken = []
            yield (
                at,
                Assistant(
                    turn=turn,
                    round=rounds,
                    blocks=(*answer, call) if files else answer,
                    stop_reason="tool_use" if files else "end_turn",
                    provider=source,
                    model=message.model,
                    usage=Usage(),
                ),
            )
            if files:
                yield at, Action(turn=turn, round=rounds, call_id=call.id, tool=_PICTURE, input={})
                names = ", ".join(file.name for file in files)
                yield (
                    at,
                    Observation(
                        turn=turn, round=rounds, call_id=call.id, tool=_PICTURE, text=names, files=files
                    ),
                )
        if last:
            yield at, Final(turn=turn, text=last, status="done")
        status: Any = "done" if answers else "cancelled"
        yield at, TurnEnd(turn=turn, status=status, rounds=rounds, usage=Usage(), duration_ms=0)


def _kept(message: ImportedMessage, words: _Said, keeping: _Keep) -> tuple[FileBlock, ...]:
    """The files of a message, copied beside the log; those of a message that was forgotten are gone."""
    kept = []
    for file in message.files if words.of(message) != FORGOTTEN else ():
        with suppress(OSError):  # a part of the archive that is damaged
            content = file.read()
            if 0 < len(content) <= MOST_BYTES:
                kept.append(keeping(plain_name(file.name), content))
    return tuple(kept)
