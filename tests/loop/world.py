"""A small world for turns: a journal in memory, a gate that permits, tools made of functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel.clock import ManualClock
from satchel.conversation import Conversation
from satchel.events import Compaction, Event, is_transient
from satchel.loop import CallEnvironment, HardBudget, Toolbox, ToolPool, TurnInput, TurnOutcome, TurnRunner
from satchel.messages import Message, TextBlock
from satchel.models.scripted import Script, ScriptedModel
from satchel.tools.function import function_tool
from satchel.tools.permissions import Decision, PlannedCall
from satchel.tools.port import Annotations, Effect, Question, Tool, ToolContext, ToolResult

__all__ = ["OpenGate", "World", "asks", "fails", "gives", "knows_that", "says", "tool"]


def says(text: str) -> Message:
    return Message(role="user", blocks=(TextBlock(text=text),))


def tool(
    name: str,
    function: Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolResult]],
    *,
    properties: Mapping[str, Any] | None = None,
    required: Sequence[str] = (),
    effects: Callable[[Mapping[str, Any], ToolContext], Sequence[Effect]] | None = None,
    timeout_s: float | None = None,
) -> Tool:
    return function_tool(
        function,
        name=name,
        description=f"The tool {name}.",
        properties=properties if properties is not None else {"x": {}},
        required=required,
        annotations=Annotations(read_only=True),
        effects=effects,
        timeout_s=timeout_s,
    )


def gives(text: str, name: str = "look", **more: Any) -> Tool:
    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=text, **more)

    return tool(name, call)


def knows_that(words: str, name: str) -> Tool:
    """A tool that knows why its call would fail."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        raise AssertionError("it must not run")

    return function_tool(call, name=name, description="", properties={"x": {}}, fails=lambda *_: words)


def fails(error: BaseException, name: str = "break") -> Tool:
    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        raise error

    return tool(name, call)


def asks(text: str, name: str = "ask_user") -> Tool:
    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text="", question=Question(text=text, options=("yes", "no")))

    return tool(name, call)


@dataclass
class OpenGate:
    """Permits all, but the tools named."""

    refuses: frozenset[str] = frozenset()
    asked: list[list[str]] = field(default_factory=list)

    async def decide(self, calls: Sequence[PlannedCall]) -> Sequence[Decision]:
        self.asked.append([call.spec.name for call in calls])
        return [
            Decision(allowed=False, by="rule", rule=call.spec.name, reason="the rule says no")
            if call.spec.name in self.refuses
            else Decision(allowed=True, by="mode")
            for call in calls
        ]


class World:
    """Everything that a turn needs; keeps its events in `events` and the transient ones too in `shown`."""

    def __init__(
        self, script: Script, *tools: Tool, context_window: int | None = None, **options: Any
    ) -> None:
        self.model = ScriptedModel(script, context_window=context_window)
        self.toolbox = Toolbox(tools)
        self.gate: Any = options.pop("gate", None) or OpenGate()
        self.pool = ToolPool(workers=16)
        self.clock = ManualClock()
        self.spilled: dict[str, str] = {}
        self.events: list[Event] = []
        self.shown: list[Event] = []
        self.writes: list[tuple[Event, ...]] = []
        self.on_emit: Callable[[Event], Awaitable[None]] | None = None
        self.conversation = Conversation()
        self.options = options

    async def emit(self, events: Sequence[Event]) -> None:
        for event in events:
            self.shown.append(event)
            if not is_transient(event):
                self.events.append(event)
        self.writes.append(tuple(events))
        for event in events:
            if self.on_emit is not None:
                await self.on_emit(event)

    async def spill(self, call_id: str, text: str) -> str:
        self.spilled[call_id] = text
        return f"/spill/{call_id}.txt"

    @property
    def environment(self) -> CallEnvironment:
        return CallEnvironment(
            tools=self.toolbox,
            gate=self.gate,
            pool=self.pool,
            spill=self.spill,
            session_id="s1",
            cwd=Path("/here"),
            roots=(Path("/here"),),
            spill_dir=Path("/spill"),
        )

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.conversation.messages

    def begin_with(self, *messages: Message) -> None:
        """Start from a history, as a compaction leaves it."""
        self.conversation = Conversation()
        self.conversation.apply(
            Compaction(turn=0, messages=messages, before_tokens=0, after_tokens=0, trigger="manual")
        )

    def budget(self, **limits: Any) -> HardBudget:
        """Of this conversation, which is the day's only one."""

        async def spent() -> float:
            return self.conversation.usage.cost_usd or 0.0

        given = {"conversation": lambda: self.conversation, "spent_on_day": spent, **limits}
        return HardBudget(**given)

    def turn(self, message: str | Message | None = "Go.", **options: Any) -> TurnRunner:
        return TurnRunner(
            TurnInput(
                message=says(message) if isinstance(message, str) else message,
                conversation=self.conversation,
                turn=self.conversation.turns + (message is not None),
                model=self.model,
                system="You are a test.",
                environment=self.environment,
                emit=self.emit,
                clock=self.clock,
                **{**self.options, **options},
            )
        )

    async def run(self, message: str | Message | None = "Go.", **options: Any) -> TurnOutcome:
        return await self.turn(message, **options).run()

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]
