"""A session as its model sees it: the messages, what is still open, and what has been spent.

A `Conversation` is built by applying the events of a session in order. The loop applies exactly the events that it
emits, and `from_records` applies those that the log holds, so a live session and a resumed one have the same messages,
byte for byte, and the provider's cache of the prefix stays valid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import assert_never

from satchel import events as kinds
from satchel.events import (
    Action,
    AskUser,
    Assistant,
    Compaction,
    ContextAdded,
    Event,
    Final,
    MemorySurfaced,
    ModelCalled,
    Observation,
    Posted,
    Record,
    SessionStart,
    TurnEnd,
    TurnStart,
    TurnStatus,
)
from satchel.messages import (
    Block,
    FileBlock,
    Message,
    Origin,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    clean_text,
    size_of_message,
)
from satchel.spacing import FORGOTTEN, without_lines

QUESTIONS = frozenset(("query", "keywords"))
"""Fields of a call that say what to look for. Where that led to a memory, they are forgotten with it."""

INTERRUPTED = (
    # The words of DESIGN 4.
    "The program ended while this call was running: interrupted; outcome unknown; check before repeating."
)
_NOT_STARTED = "Not started: the program ended before this call began. It had no effect."
_NO_RESULT = "The program that runs this call gave no result for it."
_UNREADABLE = "(What was said here can't be read any more.)"


@dataclass(slots=True, kw_only=True)
class NewestTurn:
    """What has happened in the newest turn so far.

    Attributes:
        start: How it began.
        has_context: Memory, or the text of a hook, was added to its message.
        answer: The model's newest answer.
        final: What the user was told.
        usage: Of its model calls, compaction included.
        status: How it ended; None while it runs, and where the program stopped before its end.
    """

    start: TurnStart
    has_context: bool = False
    answer: Assistant | None = None
    final: Final | None = None
    usage: Usage = field(default_factory=Usage)
    status: TurnStatus | None = None


class Conversation:
    """Grows by one event at a time; no operation but a compaction reads what was there before.

    The messages are a valid history (see `Message`) whenever no call is open. Calls are open while they run, while a
    question to the user or calls that the caller runs have no answer, and after the program stopped in the middle of a
    turn: `TurnStart` then answers what is left, or the turn goes on (`TurnResumed`).

    Attributes:
        turns: The number of the newest turn; 0 before the first.
        turn: The newest turn, or None before the first.
        question: The open question to the user, whose answer is the next message.
        usage: Tokens and money of the whole session.
        provider: Of the newest answer; before the first, of the session's start. So is `model`.
        untrusted: Something from outside has been put before the model, however long ago. What was said since, a
            summary included, may come from there.
        is_compacted: Older messages were replaced by a summary; `compactions` counts how often, `compacted_in` is the
            turn of the last time, or 0.
        size: Of the messages together, in bytes, near enough to estimate tokens.
        to_do: The newest result of the model's to-do list, which outlives a compaction; None if there is none.
    """

    def __init__(self) -> None:
        """Begin an empty one."""
        self.turns = 0
        self.turn: NewestTurn | None = None
        self.question: AskUser | None = None
        self.usage = Usage()
        self.provider = self.model = ""
        self.untrusted = False
        self.is_compacted = False
        self.compactions = 0
        self.compacted_in = 0
        self.size = 0
        self.to_do: Observation | None = None
        self._seq = 0
        self._messages: list[Message] = []
        self._call_ids: set[str] = set()
        self._surfaced: dict[str, str] = {}
        self._stood: dict[str, str] = {}
        self._parts: dict[str, str] = {}
        # The memories that each block shows, in the order of its lines.
        self._blocks: dict[str, tuple[str, ...]] = {}
        self._standing: dict[str, MemorySurfaced] = {}
        self._untrusted_posts: set[str] = set()
        # The calls of the newest answer until all have results; then the results become one message.
        self._pending: dict[str, ToolUseBlock] = {}
        self._results: dict[str, ToolResultBlock] = {}
        # The tools of the calls that were started, by the calls' ids: a call may stand for another tool's.
        self._started: dict[str, str] = {}
        self._after_results: tuple[Block, ...] = ()

    @classmethod
    def from_records(cls, records: Iterable[Record]) -> Conversation:
        """Replay the records of one session, in order. Any prefix of a log will do."""
        conversation = cls()
        for record in records:
            conversation.apply(record.event)
        return conversation

    @property
    def status(self) -> TurnStatus | None:
        """How the newest turn ended; None where it has not ended, and before the first."""
        return self.turn.status if self.turn is not None else None

    @property
    def is_unfinished(self) -> bool:
        """Whether the newest turn has not ended. Where none is running, the program stopped in the middle of it."""
        return self.turn is not None and self.turn.status is None

    @property
    def turn_usage(self) -> Usage:
        """What the running turn has used; nothing between turns."""
        return self.turn.usage if self.turn is not None and self.is_unfinished else Usage()

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of them. Results of calls beside an open one are in the last message."""
        results = tuple(self._results_in_order())
        if results:
            return (*self._messages, Message(role="user", blocks=results))
        return tuple(self._messages)

    @property
    def messages_for_guest(self) -> tuple[Message, ...]:
        """The same without what memory added for the user: what stands with the newest words was chosen for a guest."""
        messages = self.messages
        said = (at for at, message in enumerate(messages) if message.role == "user" and message.text)
        newest = max(said, default=-1)
        return tuple(
            message
            if at == newest
            else replace(
                message,
                blocks=tuple(
                    b for b in message.blocks if not (isinstance(b, TextBlock) and b.origin == "memory")
                ),
            )
            for at, message in enumerate(messages)
        )

    @property
    def is_sendable(self) -> bool:
        """Whether a model can be asked now: no call is open, and the user's side spoke last."""
        return not self._pending and bool(self._messages) and self._messages[-1].role == "user"

    @property
    def call_ids(self) -> Set[str]:
        """The ids of all calls so far, of those that a compaction left out too."""
        return self._call_ids

    @property
    def surfaced_ids(self) -> Set[str]:
        """The memories whose whole text still stands in the messages, so that they need not be shown again."""
        return self._surfaced.keys()

    @property
    def shown_ids(self) -> Set[str]:
        """The same, those in profiles and agendas, and those of which a part stands there."""
        return self._surfaced.keys() | self._stood.keys() | self._parts.keys()

    @property
    def standing_ids(self) -> Set[str]:
        """The memories whose whole text stands in a profile or an agenda in the messages."""
        return self._stood.keys()

    def standing(self, name: str) -> MemorySurfaced | None:
        """The newest profile or agenda that still stands in the messages, or None."""
        return self._standing.get(name)

    @property
    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """The calls of the newest answer that have no result yet, in the order asked."""
        return tuple(call for id, call in self._pending.items() if id not in self._results)

    @property
    def calls_for_caller(self) -> tuple[ToolUseBlock, ...]:
        """The open calls that the caller runs: the next message holds their results."""
        return self.open_calls if self.status == "calling" else ()

    def was_started(self, call_id: str) -> bool:
        """Whether an open call may have had an effect: its `Action` was written down."""
        return call_id in self._started

    def take(self, record: Record) -> None:
        """Take in the next record of a log; see `end` and `apply`."""
        self.end(record.seq - 1)
        self._seq = record.seq
        self.apply(record.event)

    def end(self, last_seq: int) -> None:
        """Compare with the number of the log's last line: lines that can't be read any more may have said that a call
        began, and what may have run is not run again.
        """
        if last_seq > self._seq:
            self._started |= {call.id: call.name for call in self.open_calls if call.id not in self._started}

    @property
    def proposes_plan(self) -> bool:
        """Whether the open question to the user is a plan."""
        return self.question is not None and self._started.get(self.question.call_id) == "propose_plan"

    def last_words(self, count: int) -> tuple[Message, ...]:
        """The newest messages in which something was said, at most `count` of them, oldest first."""
        found: list[Message] = []
        for message in reversed(self._messages):
            if len(found) == count:
                break
            if message.text.strip():
                found.append(message)
        return tuple(reversed(found))

    def apply(self, event: Event) -> None:
        """Take in what happened. Events that change nothing for the model are ignored.

        Whoever writes an event of the session to its log applies it, before or while it is written, in the same order.
        """
        match event:
            case SessionStart():
                self.provider, self.model = event.provider, event.model
            case ModelCalled():
                self._spend(event.usage)
            case Posted():
                if event.untrusted:
                    self._untrusted_posts.add(event.id)
            case TurnStart():
                self._start_turn(event)
            case MemorySurfaced():
                for memory in event.memories:
                    shown = self._stood if event.standing else self._surfaced
                    (self._parts if memory.is_part else shown)[memory.id] = event.text
                self._blocks[clean_text(event.text)] = tuple(memory.id for memory in event.memories)
                self._add_context(event.text, "memory", untrusted=event.untrusted)
                if event.standing:
                    self._standing[event.standing] = event
            case ContextAdded():
                self._add_context(event.text, "context", untrusted=event.untrusted)
            case Assistant():
                self._add_answer(event)
            case Action():
                if self._is_open(event.call_id):
                    self._started[event.call_id] = event.tool
            case Observation():
                self._observe(event)
            case AskUser():
                if self._is_open(event.call_id):
                    self.question = event
            case Compaction():
                self._replace_messages(event)
            case Final():
                self.untrusted = self.untrusted or event.untrusted
                if self.turn is not None:
                    self.turn.final = event
            case TurnEnd():
                if self.turn is not None:
                    self.turn.status = event.status
            case (
                kinds.TurnResumed() | kinds.MemoryCaptured() | kinds.QuestionAsked() | kinds.QuestionAnswered()
                | kinds.Permission() | kinds.RoundObserved() | kinds.SubAgentEvent() | kinds.MessageWaiting()
                | kinds.MessageTakenBack() | kinds.BuildPosted() | kinds.Notice() | kinds.Failure()
                | kinds.SessionTitled() | kinds.SessionFiled() | kinds.SessionBranched() | kinds.SessionEnd()
                | kinds.Transient()
            ):  # fmt: skip
                pass
            case _:
                assert_never(event)

    def _start_turn(self, event: TurnStart) -> None:
        blocks = event.message.blocks
        results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResultBlock)}
        blocks = tuple(block for block in blocks if not isinstance(block, ToolResultBlock))
        answered = self.question.call_id if self.question is not None else event.answers
        if answered is not None and not event.resumes and self._is_open(answered):
            results[answered] = ToolResultBlock(tool_use_id=answered, content=event.message.text)
            # The words are the call's result; they are not said twice.
            blocks = tuple(b for b in blocks if not (isinstance(b, TextBlock) and b.origin == "said"))
        self._close_calls(results, keep=answered if event.resumes else None)
        self.question = None
        self.turns = max(self.turns, event.turn)
        self.turn = NewestTurn(start=event)
        # Whoever wrote a file may not be the user.
        brought_in = bool(event.message.files) or not self._untrusted_posts.isdisjoint(event.inbox)
        self.untrusted = self.untrusted or brought_in
        self._say(blocks)

    def _add_context(self, text: str, origin: Origin, *, untrusted: bool) -> None:
        text = clean_text(text)
        if text.strip():
            self._say((TextBlock(text=text, origin=origin),))
            self.untrusted = self.untrusted or untrusted
        if self.turn is not None:
            self.turn.has_context = True

    def _add_answer(self, event: Assistant) -> None:
        self._close_calls({})
        self.provider, self.model = event.provider, event.model
        self._spend(event.usage)
        if self.turn is not None:
            self.turn.answer = event
        if not event.blocks:
            return
        if not self._messages or self._messages[-1].role == "assistant":
            # A line of the log could not be read: what stood between the two is unknown, but two answers in a row are
            # refused by every provider.
            self._say((TextBlock(text=_UNREADABLE, origin="notice"),))
        self._append(Message(role="assistant", blocks=event.blocks))
        self._pending = {call.id: call for call in self._messages[-1].tool_uses}
        self._call_ids.update(self._pending)

    def _observe(self, event: Observation) -> None:
        is_open = self._is_open(event.call_id)
        # A call that the user ran by hand has round 0 and is never open: the model does not see what came of it.
        self.untrusted = self.untrusted or (event.untrusted and (is_open or event.round > 0))
        tool = self._started.get(event.call_id, event.tool)
        # A plan that is not approved has no data and leaves the list as it is.
        if is_open and not event.is_error and (tool == "todo" or (tool == "propose_plan" and event.data)):
            self.to_do = event if event.data else None
        if is_open:
            result = ToolResultBlock(
                tool_use_id=event.call_id, content=event.text, is_error=event.is_error, files=event.files
            )
            self._add_results({event.call_id: result})

    def _replace_messages(self, event: Compaction) -> None:
        self._spend(event.usage)
        self.is_compacted = True
        self.compactions += 1
        self.compacted_in = self.turns
        self._messages = list(event.messages)
        self._pending = {call.id: call for message in self._messages[-2:] for call in message.tool_uses}
        last = self._messages[-1].blocks if self._messages else ()
        results = {block.tool_use_id: block for block in last if isinstance(block, ToolResultBlock)}
        if results and len(results) == len(last) < len(self._pending):
            # Calls are open: the results beside them wait for theirs, as in `messages`.
            self._messages.pop()
        elif self._messages and self._messages[-1].role == "user":
            self._pending = {}
        results = self._results | results
        self._results = {id: results[id] for id in self._pending if id in results}
        self.size = sum(map(size_of_message, self._messages))
        kept = {b.text for m in event.messages for b in m.blocks if isinstance(b, TextBlock)}
        self._surfaced = {id: text for id, text in self._surfaced.items() if text in kept}
        self._stood = {id: text for id, text in self._stood.items() if text in kept}
        self._parts = {id: text for id, text in self._parts.items() if text in kept}
        self._standing = {name: event for name, event in self._standing.items() if event.text in kept}

    def _spend(self, usage: Usage) -> None:
        self.usage += usage
        if self.turn is not None:
            self.turn.usage += usage

    def _is_open(self, call_id: str) -> bool:
        return call_id in self._pending and call_id not in self._results

    def _results_in_order(self) -> Iterator[ToolResultBlock]:
        return (self._results[id] for id in self._pending if id in self._results)

    def _add_results(self, results: Mapping[str, ToolResultBlock]) -> None:
        """Keep results of open calls. Once all are there, they become one message, in the order asked."""
        self._results |= results
        if self.question is not None and self.question.call_id in results:
            self.question = None
        if not self._pending or len(self._results) < len(self._pending):
            return
        blocks = (*self._results_in_order(), *self._after_results)
        self._after_results = ()
        self._pending.clear()
        self._results.clear()
        self._started.clear()
        self._append(Message(role="user", blocks=blocks))

    def _close_calls(self, results: Mapping[str, ToolResultBlock], *, keep: str | None = None) -> None:
        """Give every open call but `keep` its result; one that has none in `results` gets an error."""
        missing = _NO_RESULT if self.status == "calling" else _NOT_STARTED
        self._add_results(
            {
                call.id: results.get(call.id)
                or ToolResultBlock(
                    tool_use_id=call.id,
                    content=INTERRUPTED if call.id in self._started else missing,
                    is_error=True,
                )
                for call in self.open_calls
                if call.id != keep
            }
        )

    def has_shown(self, ids: Iterable[str]) -> bool:
        """Whether one of these memories was shown, in a block or in a tool's result."""
        wanted = tuple(ids)
        return not self.shown_ids.isdisjoint(wanted) or bool(self._calls_that_found(wanted))

    def _calls_that_found(self, ids: Collection[str]) -> frozenset[str]:
        """The calls whose results name one of these memories."""
        results = [block for message in self._messages for block in message.blocks]
        return frozenset(
            block.tool_use_id
            for block in (*results, *self._results.values())
            if isinstance(block, ToolResultBlock) and any(id in block.content for id in ids)
        )

    def rewrite(self, clean_words: Callable[[str], str], gone: Collection[str] = ()) -> bool:
        """Replace words in everything that a model was and will be shown, because they were forgotten. Returns whether
        there were any in the messages.

        Args:
            clean_words: Gives a text without them.
            gone: The memories that are forgotten: what blocks show of them goes, whatever it is, and so does what was
                looked for where they were found.
        """
        calls = self._calls_that_found(gone)
        without = {
            text: without_lines(text, [at for at, id in enumerate(ids) if id in gone], of=len(ids))
            for text, ids in self._blocks.items()
        }

        def clean(text: str) -> str:
            return clean_words(without.get(text, text))

        def _rewritten(block: Block) -> Block:
            if isinstance(block, ToolUseBlock) and block.id in calls and block.input is not None:
                asked = {name: FORGOTTEN for name in QUESTIONS if name in block.input}
                block = replace(block, input={**block.input, **asked})
            return _cleaned(block, clean)

        def rewritten(message: Message) -> Message:
            return replace(message, blocks=tuple(_rewritten(block) for block in message.blocks))

        def surfaced(event: MemorySurfaced) -> MemorySurfaced:
            memories = tuple(
                replace(memory, content=FORGOTTEN, why="")
                if memory.id in gone
                else replace(memory, content=clean(memory.content))
                for memory in event.memories
            )
            return replace(event, text=clean(event.text), memories=memories)

        before, self._messages = self._messages, [rewritten(message) for message in self._messages]
        pending = (_rewritten(call) for call in self._pending.values())
        self._pending = {call.id: call for call in pending if isinstance(call, ToolUseBlock)}
        results = (_rewritten(result) for result in self._results.values())
        self._results = {
            result.tool_use_id: result for result in results if isinstance(result, ToolResultBlock)
        }
        self._after_results = tuple(_rewritten(block) for block in self._after_results)
        if self.to_do is not None:
            items = [{name: clean(str(part)) for name, part in item.items()} for item in self.to_do.data]
            self.to_do = replace(self.to_do, text=clean(self.to_do.text), data=items)
        # The ids stay: what was forgotten can't be surfaced again.
        self._surfaced = {id: clean(text) for id, text in self._surfaced.items()}
        self._stood = {id: clean(text) for id, text in self._stood.items()}
        self._parts = {id: clean(text) for id, text in self._parts.items()}
        self._standing = {name: surfaced(event) for name, event in self._standing.items()}
        self._blocks = {clean(text): ids for text, ids in self._blocks.items()}
        if self.turn is not None:
            self.turn.start = replace(self.turn.start, message=rewritten(self.turn.start.message))
            if self.turn.answer is not None:
                blocks = tuple(_rewritten(block) for block in self.turn.answer.blocks)
                self.turn.answer = replace(self.turn.answer, blocks=blocks)
            if self.turn.final is not None:
                self.turn.final = replace(self.turn.final, text=clean(self.turn.final.text))
        self.size = sum(map(size_of_message, self._messages))
        return before != self._messages

    def _say(self, blocks: tuple[Block, ...]) -> None:
        """Add to what the user's side says now: to the same message, and after results that are still due."""
        if self._pending:
            self._after_results += blocks
        elif blocks and self._messages and self._messages[-1].role == "user":
            addition = Message(role="user", blocks=blocks)
            self._messages[-1] = Message(role="user", blocks=self._messages[-1].blocks + blocks)
            self.size += size_of_message(addition)
        elif blocks:
            self._append(Message(role="user", blocks=blocks))

    def _append(self, message: Message) -> None:
        self._messages.append(message)
        self.size += size_of_message(message)


def _cleaned(block: Block, clean: Callable[[str], str]) -> Block:
    match block:
        case TextBlock():
            return replace(block, text=clean(block.text))
        case FileBlock():
            return replace(block, name=clean(block.name))
        case ToolResultBlock():
            files = tuple(replace(file, name=clean(file.name)) for file in block.files)
            return replace(block, content=clean(block.content), files=files)
        case ToolUseBlock(input=None):
            return replace(block, unparsed=clean(block.unparsed))
        case ToolUseBlock():
            written = json.dumps(block.input, ensure_ascii=False)
            shown = clean(written)
            try:
                return block if shown == written else replace(block, input=json.loads(shown))
            except ValueError:
                return replace(block, input={})
        case ThinkingBlock():
            shown = clean(block.text)
            # The signature is over the words that are gone; a provider would refuse the block.
            return block if shown == block.text else replace(block, text=shown, signature="")
