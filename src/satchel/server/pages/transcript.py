"""A conversation as its page shows it: turns, each with memories, tool calls, questions and text.

A `Transcript` reads the records of a session, from the log or live, and knows after each which parts of the page have
changed. It renders nothing; the templates do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar, assert_never

from markupsafe import Markup

from satchel.builder.asking import is_consent
from satchel.events import (
    AskedCall,
    AskUser,
    BuildPosted,
    Compaction,
    Failure,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    Notice,
    Observation,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    SurfacedMemory,
    ThinkingDelta,
    TurnEnd,
    TurnResumed,
    TurnStart,
    TurnStatus,
)
from satchel.messages import FileBlock, Usage
from satchel.runtime.tool_display import describe_call, describe_progress, display_of, show_observation
from satchel.server.pages.markdown import MarkdownBlocks
from satchel.sessions.view import LastWords, Said, SessionView, ToolCall
from satchel.tools.display import ShownResult
from satchel.tools.visible import visible

_LONG_CHARS: Final = 600
_LONG_LINES: Final = 8
"""A longer message of the user is set smaller and folded."""
_CLIP_CHARS: Final = 280

Progress: TypeAlias = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class LedgerCall:
    """One call of a tool, as a line of the ledger.

    Attributes:
        words: What it does, or was to do where it was refused; "" if it never started otherwise.
        progress: How far it is, "" before it says so; `part` is that as two numbers, if it gives some.
        shown: Its result; None while it runs.
        full: Its whole result, for who wants to read it.
        made: The files that a capability made, by their paths in its folder `out`.
        beneath: The calls of its sub-agent.
        files: The pictures and files of its result, without those of a capability.
        reason: Why it was refused.
    """

    id: str
    tool: str
    state: Literal["running", "done", "failed", "refused", "unknown"]
    input: Mapping[str, Any]
    words: str
    progress: str
    part: Progress
    reason: str
    shown: ShownResult | None = None
    full: str = ""
    made: Sequence[str] = ()
    beneath: Sequence[LedgerCall] = ()
    files: Sequence[FileBlock] = ()
    duration_ms: float = 0.0
    untrusted: bool = False

    @classmethod
    def of(cls, call: ToolCall) -> LedgerCall:
        """The line of a call."""
        input = call.input if call.is_begun else {}
        progress = call.progress or {}
        line = cls(
            id=call.id,
            tool=call.tool,
            state="running" if call.state == "asked" else call.state,
            input=input,
            words=describe_call(call.tool, call.input) if call.is_begun or call.refusal is not None else "",
            progress=describe_progress(progress) if progress else "",
            part=_part(progress),
            reason=call.refusal.reason if call.refusal is not None else "",
            beneath=[cls.of(each) for each in call.beneath],
        )
        result = call.result
        if result is None or line.state == "refused":
            return line
        return replace(
            line,
            # The program ended with these.
            beneath=[
                replace(each, state="unknown") if each.state == "running" else each for each in line.beneath
            ],
            shown=show_observation(result, input),
            full=result.text,
            made=(made := _made(result)),
            files=() if made else result.files,
            duration_ms=result.duration_ms,
            untrusted=result.untrusted,
        )


@dataclass(slots=True)
class Steps:
    """Calls that follow each other."""

    calls: list[LedgerCall] = field(default_factory=list)
    kind: Literal["steps"] = "steps"

    @property
    def is_over(self) -> bool:
        """Whether none of them runs."""
        return all(call.state != "running" for call in self.calls)

    @property
    def failed(self) -> int:
        """How many failed or were refused."""
        return sum(call.state in ("failed", "refused") for call in self.calls)

    @property
    def duration_ms(self) -> float:
        """Their total duration."""
        return sum(call.duration_ms for call in self.calls)


@dataclass(slots=True)
class ModelAnswer:
    """What the model says.

    Attributes:
        text: The whole text; while it is written, what is there.
        blocks: Reads the text while it is written; None once it is complete.
    """

    text: str = ""
    blocks: MarkdownBlocks | None = None
    kind: Literal["answer"] = "answer"

    def drawn(self) -> Sequence[Markup]:
        """All blocks of a text that is being written; `blocks` continues after them."""
        self.blocks = MarkdownBlocks()
        return [block for _, block in self.blocks.feed(self.text)[0]]


@dataclass(slots=True)
class Thought:
    """The model's reasoning before the answer, if it reports any."""

    text: str = ""
    kind: Literal["thought"] = "thought"


@dataclass(slots=True)
class QuestionCard:
    """A question that waits for the user, or was answered.

    Attributes:
        id: What the answer names.
        asks: Who wants to know: for permission, a tool in its call, the agent at the end of a turn, or the Builder.
        calls: What permission is asked for, each with what it does in words.
        is_consent: The Builder asks for permission: only yes or no is an answer, and nothing happens without one.
        answer: What was answered; None while it is open, "" where nobody answered.
    """

    id: str
    asks: Literal["permission", "tool", "agent", "builder"]
    text: str = ""
    options: Sequence[str] = ()
    calls: Sequence[tuple[AskedCall, str]] = ()
    is_secret: bool = False
    is_consent: bool = False
    answer: str | None = None
    kind: Literal["ask"] = "ask"


@dataclass(slots=True)
class BuildCard:
    """A capability that is being built for this conversation.

    Attributes:
        steps: What the Builder said it does, with the time since the first of them in milliseconds.
        ask: Its newest question.
        status: "active", "proposed" or "failed"; "" while it is built.
    """

    id: str
    name: str
    began: datetime
    steps: list[tuple[str, float]] = field(default_factory=list)
    ask: QuestionCard | None = None
    status: str = ""
    end: str = ""
    kind: Literal["build"] = "build"


@dataclass(slots=True)
class Note:
    """A message of the program beside the conversation.

    Attributes:
        action: "resume" for a button that resumes an interrupted turn.
        is_over: What it says has passed, so it is no longer shown.
        raw: Output of a command, shown as it is.
    """

    text: str
    state: Literal["warn", "failed", "off", "done", "on"] = "warn"
    meta: str = ""
    action: str = ""
    raw: str = ""
    is_over: bool = False
    kind: Literal["note"] = "note"


Item: TypeAlias = Steps | ModelAnswer | Thought | QuestionCard | BuildCard | Note
_I = TypeVar("_I", bound=Item)


@dataclass(slots=True)
class Turn:
    """One turn.

    Attributes:
        after_seq: The number of the record before its first one.
        said: The user's words.
        files: What is attached to them.
        recalled: The memories that were shown, the best first.
        profile: What the model was shown of the page about the user, or the profile; `agenda` of the next seven days.
        status: How it ended; None while it runs, or where it was cut off.
        learnt: How many memories were captured from it.
    """

    number: int
    at: datetime
    after_seq: int
    said: str
    files: tuple[FileBlock, ...] = ()
    recalled: list[SurfacedMemory] = field(default_factory=list)
    profile: tuple[SurfacedMemory, ...] = ()
    agenda: tuple[SurfacedMemory, ...] = ()
    items: list[Item] = field(default_factory=list)
    status: TurnStatus | None = None
    usage: Usage | None = None
    duration_ms: float = 0.0
    learnt: int = 0

    @property
    def is_long(self) -> bool:
        """Whether the user's words are folded."""
        return len(self.said) > _LONG_CHARS or self.said.count("\n") >= _LONG_LINES

    @property
    def clip(self) -> str:
        """The beginning of words that are folded."""
        return " ".join(self.said[: _CLIP_CHARS * 2].split())[:_CLIP_CHARS]

    @property
    def is_over(self) -> bool:
        """Whether it has ended in good order."""
        return self.status is not None


@dataclass(frozen=True, slots=True)
class Redraw:
    """A part of the page that has to be drawn again, or for the first time.

    Attributes:
        turn: Its turn; None for what comes before the first one.
        item: Which of its items; None draws the whole turn.
        call: Which call of the item; None draws the whole item.
    """

    turn: int | None
    item: int | None = None
    call: int | None = None


class Transcript:
    """Reads records in their order.

    Attributes:
        turns: By number.
        preface: Messages before the first turn.
        seq: The number of the last record that was read.
        view: What the records come to.
    """

    def __init__(self) -> None:
        self.turns: dict[int, Turn] = {}
        self.preface: list[Item] = []
        self.seq = 0
        self._turn: Turn | None = None
        self._answer: ModelAnswer | None = None
        self._answer_place = Redraw(None)
        self._calls: dict[str, Redraw] = {}
        # Questions, builds and messages in line: what happens later changes them, in whichever turn they are.
        self._named: dict[str, tuple[int | None, int]] = {}
        self._waits: list[tuple[Note, Redraw]] = []
        self._changes: dict[Redraw, None] = {}
        self._texts: dict[Redraw, str] = {}
        self.view = SessionView()

    @property
    def last(self) -> Turn | None:
        """The newest turn."""
        return self._turn

    @property
    def is_running(self) -> bool:
        """Whether the newest turn has not ended, as far as the log says."""
        return self._turn is not None and not self._turn.is_over

    @property
    def open_asks(self) -> list[QuestionCard]:
        """The questions that wait for the user."""
        return [item for turn in self.turns.values() for item in _asks_of(turn) if item.answer is None]

    @property
    def open_chars(self) -> int:
        """How much text of the answer that is being written is drawn again with each piece."""
        return self._answer.blocks.open_chars if self._answer and self._answer.blocks else 0

    def take_changes(self) -> Iterator[tuple[Redraw, str | None]]:
        """What has changed since the last call, in the order of the page.

        With a change comes the new piece of an answer, if only that was added to it; otherwise None.
        """
        changes, texts = tuple(self._changes), self._texts
        self._changes, self._texts = {}, {}
        whole = {change for change in changes if change not in texts}
        for change in changes:
            covers = (Redraw(change.turn), Redraw(change.turn, change.item))
            if any(cover in whole and cover != change for cover in covers):
                continue
            yield change, texts.get(change)

    def feed(self, record: Record) -> None:
        """Take the next record."""
        before, self.seq = self.seq, max(self.seq, record.seq)
        part = self.view(record)
        if isinstance(part, Said | ThinkingDelta | ToolCall):
            self._end_wait()
        match part:
            case None:
                pass
            case TurnStart():
                self._begin(part, record, before)
            case TurnResumed():
                self._close_answer()
                self._drop_interruption()
            case Said(answer=None, added=text):
                self._write(text)
            case Said():
                self._complete(part)
            case ThinkingDelta(text=text):
                self._think(text)
            case MemorySurfaced():
                self._surfaced(part)
            case ToolCall():
                self._called(part, record.at)
            case QuestionAsked():
                self._asked(part)
            case QuestionAnswered():
                self._answered(part)
            case AskUser(call_id=id, question=text, options=options):
                self._ask(QuestionCard(id, "agent", text, options))
            case BuildPosted():
                self._built(part, record.at)
            case LastWords():
                self._final(part)
            case TurnEnd():
                self._end(part)
            case Notice(part="command", text=text):
                head, _, rest = text.partition("\n")
                self._add(Note(head, "done", raw=rest))
            case Notice(part=name, text=text):
                note = Note(text)
                place = self._add(note)
                if name == "model":
                    self._waits.append((note, place))
            case MessageWaiting(id=id, text=text):
                self._add(Note(text, "on", meta="waits for its turn"), id)
            case MessageTakenBack(id=id):
                self._settle_waiting(id, "was taken back")
            case Posted(source=source, text=text):
                self._add(Note(text, "on", meta=f"from {source}"))
            case Compaction(before_tokens=tokens, after_tokens=after):
                self._add(
                    Note(
                        "Earlier turns were summed up to make room. Nothing is lost here.", "done",
                        meta=f"{tokens:,} tokens became {after:,}",
                    )
                )  # fmt: skip
            case Failure(part=name, message=message):
                self._add(Note(message, "failed", meta=name))
            case _:
                assert_never(part)

    def cut_off(self) -> None:
        """Mark the newest turn as interrupted: nobody runs it."""
        turn = self._turn
        if turn is None or turn.is_over or any(isinstance(i, Note) and i.action for i in turn.items):
            return
        self._close_answer()
        for place, item in enumerate(turn.items):
            if isinstance(item, Steps):
                for number, call in enumerate(item.calls):
                    if call.state == "running":
                        item.calls[number] = replace(call, state="unknown")
                        self._changed(Redraw(turn.number, place, number))
        words = "Satchel stopped during this turn. Everything up to here is kept."
        if any(isinstance(i, Steps) and any(c.state == "unknown" for c in i.calls) for i in turn.items):
            words += " Whether the last call finished is not known."
        self._add(Note(words, "warn", action="resume"))

    # Turns

    def _begin(self, event: TurnStart, record: Record, before: int) -> None:
        self._close_answer()
        if ask := self._change(event.answers, QuestionCard):
            ask.answer = event.message.text
        for id in event.inbox:
            self._settle_waiting(id, "waited")
        turn = Turn(
            number=event.turn,
            at=record.at,
            after_seq=min(before, record.seq - 1),
            said=event.message.text,
            files=event.message.files,
        )
        # The agent's question is no longer open when the user sends another message.
        for earlier in self.turns.values():
            for place, item in enumerate(earlier.items):
                if isinstance(item, QuestionCard) and item.asks == "agent" and item.answer is None:
                    item.answer = ""
                    self._changed(Redraw(earlier.number, place))
        self.turns[event.turn] = self._turn = turn
        self._redraw()

    def _settle_waiting(self, id: str, how: str) -> None:
        if note := self._change(id, Note):
            note.state, note.meta = "done", how

    def _surfaced(self, event: MemorySurfaced) -> None:
        turn = self._turn
        if turn is None:
            return
        if event.standing == "profile":
            turn.profile = event.memories
        elif event.standing == "agenda":
            turn.agenda = event.memories
        else:
            turn.recalled.extend(event.memories)
        self._redraw()

    def _final(self, closing: LastWords) -> None:
        self._close_answer()
        match closing.final.status:
            case "asking" | "calling":
                pass
            case "cancelled":
                self._add(Note("You stopped it. Everything up to here is kept.", "off"))
            case "done":
                if closing.rest:
                    self._add(ModelAnswer(closing.rest))
            case status:
                words = closing.rest or (closing.failure.message if closing.failure is not None else "")
                self._add(Note(words, "failed" if status == "failed" else "warn"))

    def _end(self, event: TurnEnd) -> None:
        self._close_answer()
        turn = self._turn
        if turn is None:
            return
        turn.status, turn.usage, turn.duration_ms = event.status, event.usage, event.duration_ms
        turn.learnt = len(self.view.turn.captured or ())
        for item in turn.items:
            if isinstance(item, QuestionCard) and item.answer is None and item.asks in ("permission", "tool"):
                item.answer = ""
        self._redraw()

    # Words

    def _write(self, text: str) -> None:
        if self._turn is None:
            return
        if self._answer is None:
            self._answer = ModelAnswer(blocks=MarkdownBlocks())
            self._answer_place = self._add(self._answer)
        self._answer.text += text
        change = self._answer_place
        if change in self._changes and change not in self._texts:
            return  # it is drawn as a whole
        self._texts[change] = self._texts.get(change, "") + text
        self._changes.setdefault(change)

    def _end_wait(self) -> None:
        """The model answers: that it was silent, or was tried again, no longer matters."""
        for note, place in self._waits:
            note.is_over = True
            self._changed(place)
        self._waits.clear()

    def _think(self, text: str) -> None:
        turn = self._turn
        if turn is None:
            return
        last = turn.items[-1] if turn.items else None
        if isinstance(last, Thought):
            last.text += text
            self._changed(Redraw(turn.number, len(turn.items) - 1))
        else:
            self._add(Thought(text))

    def _complete(self, said: Said) -> None:
        if self._answer is None:
            if said.text.strip():
                self._add(ModelAnswer(said.text))
            return
        self._answer.text = said.text or self._answer.text
        self._close_answer()

    def _close_answer(self) -> None:
        """A complete answer is drawn again as a whole: links may be defined after their use."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.blocks = None
            self._changed(self._answer_place)

    # Calls

    def _called(self, call: ToolCall, at: datetime) -> None:
        turn = self._turn
        if turn is None or (display_of(call.tool).is_question and call.state == "running"):
            return  # the turn ends with the question, which is shown then
        last = turn.items[-1] if turn.items else None
        known = self._calls.get(call.id)
        if known is not None and known.turn == turn.number:
            steps = turn.items[known.item or 0]
            assert isinstance(steps, Steps)
            steps.calls[known.call or 0] = LedgerCall.of(call)
            self._changed(known)
        elif isinstance(last, Steps):
            last.calls.append(LedgerCall.of(call))
            self._calls[call.id] = Redraw(turn.number, len(turn.items) - 1, len(last.calls) - 1)
            self._changed(self._calls[call.id])
        else:
            self._add(Steps([LedgerCall.of(call)]))
            self._calls[call.id] = Redraw(turn.number, len(turn.items) - 1, 0)
        match call.tool == "request_capability" and call.result and call.result.data:
            case {"status": "building", "build_id": str(id), "capability_id": _} if id:
                self._build(id, str(call.input.get("name", "")), at)
            case _:
                pass

    # Questions

    def _asked(self, event: QuestionAsked) -> None:
        calls = [(call, visible(describe_call(call.tool, call.input))) for call in event.calls]
        asks: Literal["permission", "tool"] = event.kind
        self._ask(QuestionCard(event.id, asks, event.text, event.options, calls, event.is_secret))

    def _ask(self, ask: QuestionCard) -> None:
        if self._turn is not None:
            self._add(ask, ask.id)

    def _answered(self, event: QuestionAnswered) -> None:
        item = self._change(event.id, QuestionCard)
        if item is None:
            return
        if event.consents:
            item.answer = ", ".join(dict.fromkeys(_CONSENTS[each.consent] for each in event.consents))
        elif item.is_secret:
            item.answer = "answered; the answer was not stored"
        else:
            item.answer = event.text if event.text is not None else ("declined" if event.by else "")

    # Builds

    def _built(self, event: BuildPosted, at: datetime) -> None:
        item = self._build(event.build_id, event.capability, at)
        took_ms = (at - item.began).total_seconds() * 1000
        match event.kind:
            case "question":
                item.ask = QuestionCard(
                    event.id, "builder", event.text, event.options, is_consent=is_consent(event.question_id)
                )
            case "answer":
                asked = f"{item.ask.text} " if item.ask else ""
                item.steps.append(
                    (f"{asked}“{event.text}”" if event.text else "The Builder decides.", took_ms)
                )
                item.ask = None
            case "progress":
                if event.question_id:
                    item.ask = None
                if event.status != "waiting":  # the question is shown, with the way to answer it
                    item.steps.append((event.text, took_ms))
            case "complete" | "error":
                item.ask, item.end = None, event.text
                item.status = event.status or ("failed" if event.kind == "error" else "active")
            case _:
                assert_never(event.kind)

    @property
    def open_builds(self) -> Sequence[str]:
        """The ids of builds whose end it doesn't know."""
        items = (self._items(turn)[at] for turn, at in self._named.values())
        return [item.id for item in items if isinstance(item, BuildCard) and not item.status]

    def end_build(self, id: str, status: str, outcome: str) -> None:
        """Show how a build ended that this conversation was not told of: a branch goes on without the news."""
        if item := self._change(id, BuildCard):
            item.ask, item.status, item.end = None, status, outcome

    def _build(self, id: str, name: str, at: datetime) -> BuildCard:
        """The card of a build, which is drawn again, or for the first time."""
        card = self._change(id, BuildCard)
        if card is None:
            self._add(card := BuildCard(id, name, at), id)
        return card

    # Changes

    def _items(self, turn: int | None) -> list[Item]:
        return self.preface if turn is None else self.turns[turn].items

    def _add(self, item: Item, id: str = "") -> Redraw:
        """Add an item at the end, or in the place of the one with its id."""
        newest = self._turn.number if self._turn else None
        turn, at = self._named.get(id, (newest, len(self._items(newest))))
        self._items(turn)[at : at + 1] = [item]
        if id:
            self._named[id] = turn, at
        self._changed(place := Redraw(turn, at))
        return place

    def _change(self, id: str | None, kind: type[_I]) -> _I | None:
        """The item with this id, which is drawn again; None if there is none."""
        if id is None or id not in self._named:
            return None
        turn, at = self._named[id]
        item = self._items(turn)[at]
        assert isinstance(item, kind)
        self._changed(Redraw(turn, at))
        return item

    def _redraw(self) -> None:
        assert self._turn is not None
        self._changed(Redraw(self._turn.number))

    def _changed(self, change: Redraw) -> None:
        self._changes.setdefault(change)
        self._texts.pop(change, None)

    def _drop_interruption(self) -> None:
        turn = self._turn
        if turn is None:
            return
        for place, item in enumerate(turn.items):
            if isinstance(item, Note) and item.action:
                turn.items[place] = Note("It continued after Satchel was started again.", "done")
                self._changed(Redraw(turn.number, place))


_CONSENTS: Final = {
    "no": "not allowed",
    "once": "allowed",
    "session": "allowed for this conversation",
    "always": "allowed for good",
}


def _asks_of(turn: Turn) -> Iterator[QuestionCard]:
    for item in turn.items:
        if isinstance(item, QuestionCard):
            yield item
        elif isinstance(item, BuildCard) and item.ask is not None:
            yield item.ask


def _made(result: Observation) -> Sequence[str]:
    is_capability = result.tool.startswith("cap_") and isinstance(result.data, Mapping)
    return [file["path"] for file in result.data.get("artifacts", ())] if is_capability else ()


def _part(data: Mapping[str, Any]) -> Progress:
    """The two numbers of a progress that has them."""
    done, total = data.get("progress"), data.get("total")
    numbers = [each for each in (done, total) if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) == 2 and 0 <= numbers[0] <= numbers[1] < 1e15 and numbers[1] > 0:
        return float(numbers[0]), float(numbers[1])
    return None
