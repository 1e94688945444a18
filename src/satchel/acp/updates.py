"""A session's events as ACP's session updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, assert_never

from acp.helpers import (
    plan_entry,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_user_message_text,
)
from acp.schema import (
    PlanEntryStatus,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)

from satchel.events import (
    AskedCall,
    AskUser,
    BuildPosted,
    Compaction,
    Event,
    Failure,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    Notice,
    Observation,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    ThinkingDelta,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from satchel.runtime.tool_display import describe_call, display_of, text_for_people
from satchel.sessions.view import LastWords, Said, SessionView, ToolCall
from satchel.tools.visible import visible
from satchel.wording import cut_text

_MOST_SHOWN_CHARS: Final = 10_000
"""The most of a result that is sent. The model and the session have all of it."""
_PLAN: Final[Mapping[str, PlanEntryStatus]] = {
    "pending": "pending",
    "doing": "in_progress",
    "done": "completed",
}


def _title(tool: str, input: Mapping[str, Any]) -> str:
    return visible(f"{tool}: {describe_call(tool, input)}".rstrip(": "))[:300]


def _locations(input: Mapping[str, Any], cwd: Path) -> list[ToolCallLocation] | None:
    path = input.get("path")
    return [ToolCallLocation(path=str(cwd / path))] if isinstance(path, str) and "\0" not in path else None


def asked_call(call: AskedCall, cwd: Path) -> ToolCallUpdate:
    """The call that a question for permission is about."""
    return ToolCallUpdate(
        tool_call_id=call.call_id,
        title=_title(call.tool, call.input),
        kind=display_of(call.tool).kind,
        status="pending",
        raw_input=dict(call.input),
        locations=_locations(call.input, cwd),
        content=[tool_content(text_block(visible(f"Asked because of {call.reason}.")))]
        if call.reason
        else None,
    )


@dataclass(slots=True)
class Translator:
    """Turns the events of a session, live or from its log, into updates for the client.

    Attributes:
        cwd: What paths of tools are relative to.
        is_replay: Show what the user said, too.
        pictures: The content blocks of the pictures of the result that is fed next.
    """

    cwd: Path
    is_replay: bool = False
    pictures: Sequence[Any] = ()
    view: SessionView = field(default_factory=SessionView)

    def feed(self, event: Event, *, own: bool = True) -> Iterator[Any]:
        """The updates that an event makes.

        Args:
            event: The event.
            own: The client that gets the updates began this turn, or made this post by a command: it knows what was
                said.
        """
        part = self.view.take(event)
        match part:
            case None:
                pass
            case TurnStart():
                if (self.is_replay or not own) and part.message.text:
                    yield update_user_message_text(visible(part.message.text))
            case Said(added=text):
                if text:
                    yield update_agent_message_text(text)
            case ThinkingDelta(text=text):
                yield update_agent_thought_text(text)
            case LastWords(rest=rest, question=question):
                if rest:
                    options = question.options if question is not None else ()
                    yield update_agent_message_text("\n".join([rest, *_options(options)]))
            case ToolCall():
                yield from self._call(part)
            case MemorySurfaced(memories=memories, standing="") if memories:
                lines = "\n".join(
                    f"- {visible(' '.join(memory.content.split()))[:300]}" for memory in memories
                )
                yield update_agent_thought_text(f"From memory:\n{lines}\n")
            case Notice() if part.part != "command":
                yield update_agent_thought_text(f"{visible(part.text)}\n")
            case Failure():
                yield update_agent_thought_text(f"{visible(part.part)}: {visible(part.message)}\n")
            case Posted():
                # Where the user typed a command, what came of it is shown already.
                words = "told with your next message" if own and not self.is_replay else part.text
                yield update_agent_message_text(f"[{visible(part.source)}] {visible(words)}\n")
            case BuildPosted():
                yield from _build(part)
            case (
                MemorySurfaced()
                | TurnResumed()
                | QuestionAsked()
                | QuestionAnswered()
                | AskUser()
                | Compaction()
                | MessageWaiting()
                | MessageTakenBack()
                | Notice()
                | TurnEnd()
            ):
                pass
            case _:
                assert_never(part)

    def _call(self, call: ToolCall) -> Iterator[Any]:
        if call.is_begun and display_of(call.tool).is_plan and "items" in call.input:
            if call.state == "running":
                yield _plan(call.input["items"])
        elif call.result is not None:
            yield from self._result(call, call.result)
            if display_of(call.tool).is_plan and isinstance(call.result.data, list):
                yield _plan(call.result.data)
        elif call.refusal is not None:
            if call.refusal.by != "user":
                yield update_agent_thought_text(f"{call.tool} was refused: {visible(call.refusal.reason)}\n")
        elif call.progress is not None:
            shown = call.progress.get("text") or call.progress.get("message")
            if shown and call.is_begun:
                yield ToolCallProgress(
                    session_update="tool_call_update",
                    tool_call_id=call.id,
                    status="in_progress",
                    content=[tool_content(text_block(visible(str(shown))[-_MOST_SHOWN_CHARS:]))],
                )
        else:
            yield self._start(call)

    def _start(self, call: ToolCall) -> ToolCallStart:
        content: list[Any] | None = None
        path = call.input.get("path")
        display = display_of(call.tool)
        change = _change(call)
        if change is not None and isinstance(path, str):
            old, new = change
            content = [tool_diff_content(str(self.cwd / path), new, old)]
        return ToolCallStart(
            session_update="tool_call",
            tool_call_id=call.id,
            title=_title(call.tool, call.input),
            kind=display.kind,
            status="in_progress",
            raw_input=dict(call.input),
            locations=_locations(call.input, self.cwd),
            content=content,
        )

    def _result(self, call: ToolCall, result: Observation) -> Iterator[Any]:
        display = display_of(call.tool)
        if not call.is_begun:
            # It was refused, or its input was invalid.
            yield ToolCallStart(
                session_update="tool_call",
                tool_call_id=call.id,
                title=_title(call.tool, call.input),
                kind=display.kind,
                status="failed",
            )
        text = cut_text(visible(text_for_people(result)), _MOST_SHOWN_CHARS)
        is_diff = _change(call) is not None and not result.is_error
        yield ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=call.id,
            status="failed" if result.is_error else "completed",
            content=None
            if is_diff
            else [tool_content(block) for block in (text_block(text), *self.pictures)],
            raw_output=result.data if result.data is not None else None,
        )


def _change(call: ToolCall) -> tuple[str, str] | None:
    """The text that the call replaces and what takes its place, if its input has both."""
    names = display_of(call.tool).replaces
    if names is None or not set(names) <= set(call.input):
        return None
    old, new = (str(call.input[name]) for name in names)
    return old, new


def _plan(items: Any) -> Any:
    entries = [
        plan_entry(visible(str(item.get("text", ""))), status=_PLAN.get(str(item.get("status")), "pending"))
        for item in items
        if isinstance(item, Mapping)
    ]
    return update_plan(entries)


def _options(options: Any) -> list[str]:
    return [f"{number}. {visible(option)}" for number, option in enumerate(options, 1)]


def _build(event: BuildPosted) -> Iterator[Any]:
    text = visible(event.text)
    match event.kind:
        case "question":
            asked = "\n".join([f"The Builder of {event.capability} asks: {text}", *_options(event.options)])
            yield update_agent_message_text(f"{asked}\n")
        case "progress":
            yield update_agent_thought_text(f"{event.capability}: {text}\n")
        case "complete" | "error":
            yield update_agent_message_text(f"[{event.capability}] {text}\n")
        case "answer":
            pass
        case _:
            assert_never(event.kind)
