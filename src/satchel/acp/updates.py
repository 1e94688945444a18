"""A session's events as ACP's session updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    Action,
    AskedCall,
    AskUser,
    Assistant,
    BuildPosted,
    Compaction,
    Event,
    Failure,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    Notice,
    Observation,
    Permission,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    TextDelta,
    ThinkingDelta,
    ToolProgress,
    Transient,
    TurnEnd,
    TurnResumed,
    TurnStart,
    Unshown,
)
from satchel.events import Final as FinalEvent
from satchel.messages import text_of
from satchel.runtime.tool_display import describe_call, display_of, text_for_people
from satchel.tools.visible import visible

__all__ = ["Translator", "asked_call"]

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
        begun: Tool calls that the client knows, with their inputs.
        asked: The titles of those that the user was asked about.
    """

    cwd: Path
    is_replay: bool = False
    begun: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    chars: int = 0
    said: str = ""

    def feed(self, event: Event, *, own: bool = True) -> Iterator[Any]:
        """The updates that an event makes.

        Args:
            event: The event.
            own: The client that gets the updates began this turn, and knows what it said.
        """
        match event:
            case TurnStart():
                self.chars, self.said = 0, ""
                if (self.is_replay or not own) and event.message.text:
                    yield update_user_message_text(visible(event.message.text))
            case TextDelta():
                self.chars += len(event.text)
                yield update_agent_message_text(event.text)
            case ThinkingDelta():
                yield update_agent_thought_text(event.text)
            case Assistant():
                self.said = text_of(event.blocks)
                rest = self.said[self.chars :]
                self.chars = 0
                if rest:
                    yield update_agent_message_text(rest)
            case FinalEvent():
                # Text from Satchel itself, such as why a turn ended early.
                if event.text and event.text not in self.said:
                    self.said = event.text
                    yield update_agent_message_text(event.text)
            case AskUser():
                if event.question not in self.said:
                    self.said = event.question
                    yield update_agent_message_text("\n".join([event.question, *_options(event.options)]))
            case QuestionAsked():
                self.asked |= {call.call_id: _title(call.tool, call.input) for call in event.calls}
            case Action() if display_of(event.tool).is_plan and "items" in event.input:
                self.begun[event.call_id] = event.input
                yield _plan(event.input["items"])
            case Action():
                self.begun[event.call_id] = event.input
                yield self._start(event)
            case ToolProgress() if event.call_id in self.begun:
                shown = event.data.get("text") or event.data.get("message")
                if shown:
                    yield ToolCallProgress(
                        session_update="tool_call_update",
                        tool_call_id=event.call_id,
                        status="in_progress",
                        content=[tool_content(text_block(visible(str(shown))[-_MOST_SHOWN_CHARS:]))],
                    )
            case Observation():
                yield from self._result(event)
            case MemorySurfaced(memories=memories, standing="") if memories:
                lines = "\n".join(
                    f"- {visible(' '.join(memory.content.split()))[:300]}" for memory in memories
                )
                yield update_agent_thought_text(f"From memory:\n{lines}\n")
            case Permission(decision="deny", by="rule" | "mode" | "nobody"):
                yield update_agent_thought_text(f"{event.tool} was refused: {visible(event.reason)}\n")
            case Notice() if event.part != "command":
                yield update_agent_thought_text(f"{visible(event.text)}\n")
            case Failure(part=part) if part not in (
                "model",
                "turn",
            ):  # those end the turn, and `Final` says why
                yield update_agent_thought_text(f"{visible(part)}: {visible(event.message)}\n")
            case Posted() if not event.id.startswith("build-"):  # the build's own message was shown
                yield update_agent_message_text(f"[{visible(event.source)}] {visible(event.text)}\n")
            case BuildPosted():
                yield from _build(event)
            case (
                Unshown()
                | Transient()
                | TurnResumed()
                | MemorySurfaced()
                | QuestionAnswered()
                | Permission()
                | Compaction()
                | Posted()
                | MessageWaiting()
                | MessageTakenBack()
                | Notice()
                | Failure()
                | TurnEnd()
            ):
                pass
            case _:
                assert_never(event)

    def _start(self, event: Action) -> ToolCallStart:
        content: list[Any] | None = None
        path = event.input.get("path")
        display = display_of(event.tool)
        if display.replaces is not None and isinstance(path, str):
            old, new = (str(event.input.get(name, "")) for name in display.replaces)
            content = [tool_diff_content(str(self.cwd / path), new, old)]
        return ToolCallStart(
            session_update="tool_call",
            tool_call_id=event.call_id,
            title=_title(event.tool, event.input),
            kind=display.kind,
            status="in_progress",
            raw_input=dict(event.input),
            locations=_locations(event.input, self.cwd),
            content=content,
        )

    def _result(self, event: Observation) -> Iterator[Any]:
        display = display_of(event.tool)
        if display.is_plan and event.call_id in self.begun:
            return
        if event.call_id not in self.begun:
            # It was refused, or its input was invalid, so it never started.
            yield ToolCallStart(
                session_update="tool_call",
                tool_call_id=event.call_id,
                title=self.asked.get(event.call_id, visible(event.tool)[:300]),
                kind=display.kind,
                status="failed",
            )
        text = visible(text_for_people(event))
        if len(text) > _MOST_SHOWN_CHARS:
            text = f"{text[:_MOST_SHOWN_CHARS]}\n[… {len(text) - _MOST_SHOWN_CHARS:,} more characters …]"
        is_diff = display.replaces is not None and not event.is_error
        yield ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=event.call_id,
            status="failed" if event.is_error else "completed",
            content=None if is_diff else [tool_content(text_block(text))],
            raw_output=event.data if event.data is not None else None,
        )


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
        case _:
            pass
