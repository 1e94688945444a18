"""Hooks: what a program that embeds the loop may see, add, change and refuse.

A hook is any object with one or more of the methods below, async or not. One that raises or takes too long is reported
as a `Failure` and passed over: the turn goes on as if it were not there. What must never be passed over belongs in the
permission gate, not in a hook.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import anyio

from satchel.events import Action, ContextAdded, Event, Failure, Final, Notice, TurnStart
from satchel.loop.calls import OUTSIDE_MARK, failure_event
from satchel.loop.emitter import Emitter
from satchel.messages import clean_text
from satchel.models.port import ModelRequest
from satchel.tools.port import ToolResult

T = TypeVar("T")

_MOST_CONTEXT = 20_000
"""Characters that one hook may add to a message: about 5,000 tokens. The rest is left out with a notice, because what a
hook adds stays in the conversation and is paid for with every request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddContext:
    """Add text to the user's message, below their words and the memory that was surfaced.

    Attributes:
        untrusted: The text comes from outside; the model is told so.
    """

    text: str
    untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Run the call with this input instead. It is validated and permitted like any other.

    A call that the caller runs is not rewritten: the caller gets it as the model asked for it.
    """

    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Don't run the call; the model gets `reason`."""

    reason: str


@runtime_checkable
class OnTurnStart(Protocol):
    """Sees each turn begin."""

    async def on_turn_start(self, start: TurnStart) -> AddContext | str | None:
        """Called after the message is on disk and before a model is asked.

        Returns:
            Text to add to the message, up to 20,000 characters; None adds nothing.
        """
        ...


@runtime_checkable
class OnRequest(Protocol):
    """Sees each request to the model, those for summaries included."""

    async def on_request(self, request: ModelRequest) -> None:
        """Called before the request is sent. It can't be changed here."""
        ...


@runtime_checkable
class OnAction(Protocol):
    """Sees each call before it is validated and permitted."""

    async def on_action(self, action: Action) -> Rewrite | Refuse | None:
        """Let it pass (None), change its input, or refuse it. If this raises or takes too long, the call passes."""
        ...


@runtime_checkable
class OnObservation(Protocol):
    """Sees each result before the model does, whole: before it is cut to size."""

    async def on_observation(self, action: Action, result: ToolResult) -> ToolResult | None:
        """Let it pass (None), or give another result."""
        ...


@runtime_checkable
class OnFinal(Protocol):
    """Sees how each turn ends."""

    async def on_final(self, final: Final) -> None:
        """Called after the answer is on disk."""
        ...


Hook: TypeAlias = OnTurnStart | OnRequest | OnAction | OnObservation | OnFinal


class HookChain:
    """The hooks of a turn, called one after the other in the order given."""

    def __init__(self, hooks: Sequence[Hook], *, emitter: Emitter, limit_s: float) -> None:
        """Sort the hooks by what they listen to, once; `limit_s` is the time that each call of one may take."""
        self._emitter = emitter
        self._limit_s = limit_s
        self._on_turn_start = [hook for hook in hooks if isinstance(hook, OnTurnStart)]
        self._on_request = [hook for hook in hooks if isinstance(hook, OnRequest)]
        self._on_action = [hook for hook in hooks if isinstance(hook, OnAction)]
        self._on_observation = [hook for hook in hooks if isinstance(hook, OnObservation)]
        self._on_final = [hook for hook in hooks if isinstance(hook, OnFinal)]

    @property
    def hears_final(self) -> bool:
        """Whether any hook listens for the turn's end."""
        return bool(self._on_final)

    async def turn_started(self, start: TurnStart) -> None:
        """Show the turn's beginning, and emit what the hooks add to its message."""
        for hook in self._on_turn_start:
            added = await self._guard(
                "on_turn_start", hook, hook.on_turn_start, start, gives=(str, AddContext)
            )
            if isinstance(added, str):
                added = AddContext(text=added)
            if not isinstance(added, AddContext) or not await self._is_text(
                "on_turn_start", hook, added.text
            ):
                continue
            if added.text.strip():
                await self._add_context(start.turn, type(hook).__name__, added)

    async def _add_context(self, turn: int, source: str, added: AddContext) -> None:
        text = clean_text(added.text[:_MOST_CONTEXT])
        if added.untrusted:
            text = f"{OUTSIDE_MARK}\n{text}"
        events: list[Event] = [ContextAdded(turn=turn, source=source, text=text, untrusted=added.untrusted)]
        left_out = len(added.text) - _MOST_CONTEXT
        if left_out > 0:
            note = f"The hook {source} added {len(added.text):,} characters; the last {left_out:,} were left out."
            events.append(Notice(part="hooks", text=note))
        await self._emitter(*events)

    async def request(self, request: ModelRequest) -> None:
        """Show a request."""
        for hook in self._on_request:
            await self._guard("on_request", hook, hook.on_request, request)

    async def action(self, action: Action) -> Action | Refuse:
        """Show the call, to each hook as the one before it left it; the first refusal holds."""
        for hook in self._on_action:
            answer = await self._guard("on_action", hook, hook.on_action, action, gives=(Rewrite, Refuse))
            if isinstance(answer, Refuse):
                return answer
            if isinstance(answer, Rewrite):
                action = replace(action, input=answer.input)
        return action

    async def observation(self, action: Action, result: ToolResult) -> ToolResult:
        """Show the result, to each hook as the one before it left it."""
        for hook in self._on_observation:
            answer = await self._guard(
                "on_observation", hook, hook.on_observation, action, result, gives=(ToolResult,)
            )
            if isinstance(answer, ToolResult) and await self._is_text("on_observation", hook, answer.text):
                result = answer
        return result

    async def final(self, final: Final) -> None:
        """Show how the turn ended."""
        for hook in self._on_final:
            await self._guard("on_final", hook, hook.on_final, final)

    async def _is_text(self, name: str, hook: object, given: object) -> bool:
        """Whether what a hook gave as a text is one; anything else becomes a `Failure`."""
        if isinstance(given, str):
            return True
        await self._emitter(
            Failure(
                part=f"hook {type(hook).__name__}.{name}",
                message=f"The hook returned a {type(given).__name__} instead of a text and was passed over.",
                error="TypeError",
            )
        )
        return False

    async def _guard(
        self,
        name: str,
        hook: object,
        method: Callable[..., Awaitable[T]],
        /,
        *args: object,
        gives: tuple[type, ...] = (object,),
    ) -> T | None:
        """Call one hook, which may return None or one of the types `gives`. Anything else, an exception and a call that
        takes too long become a `Failure`.
        """
        part = f"hook {type(hook).__name__}.{name}"
        answer: Any = None
        try:
            with anyio.move_on_after(self._limit_s) as scope:
                answer = method(*args)
                answer = await answer if isinstance(answer, Awaitable) else answer
        # A boundary: a hook is somebody else's code, and it must not stop the turn.
        except Exception as error:  # noqa: BLE001
            found = failure_event(part, error)
            failure = replace(found, message=f"The hook failed and was passed over: {found.message}")
        else:
            if scope.cancelled_caught:
                text, error_type = f"The hook took longer than {self._limit_s:g} s", "TimeoutError"
            elif answer is None or isinstance(answer, gives):
                return answer  # type: ignore[return-value]
            else:
                text = f"The hook returned a {type(answer).__name__}, which is not accepted,"
                error_type = "TypeError"
            failure = Failure(part=part, message=f"{text} and was passed over.", error=error_type)
        await self._emitter(failure)
        return None
