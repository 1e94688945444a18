"""Hooks and middlewares: what a program that embeds the loop may see, change and refuse.

A hook is any object with one or more of the four methods below, awaited or not. One that throws or takes too long is
reported as a `Failure` and passed over: the turn goes on as if it had not been there. What must never be
passed over belongs into the permission gate, not into a hook.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import anyio

from satchel.events import Action, Failure, Final, TurnStart
from satchel.loop.emitter import Emitter
from satchel.tools.port import ToolResult

__all__ = ["Hook", "HookChain", "OnAction", "OnFinal", "OnObservation", "OnTurnStart", "Refuse", "Rewrite"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Run the call with this input instead. It is validated and permitted like any other."""

    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Don't run the call; the model gets `reason`."""

    reason: str


@runtime_checkable
class OnTurnStart(Protocol):
    """Sees each turn begin."""

    async def on_turn_start(self, start: TurnStart) -> None:
        """Called after the message is on disk and before a model is asked."""
        ...


@runtime_checkable
class OnAction(Protocol):
    """Sees each call before it is validated and permitted."""

    async def on_action(self, action: Action) -> Rewrite | Refuse | None:
        """Let it pass (None), change its input, or refuse it."""
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


Hook: TypeAlias = OnTurnStart | OnAction | OnObservation | OnFinal


class HookChain:
    """The hooks of a turn, called one after the other in the order inputs."""

    def __init__(self, hooks: Sequence[Hook], *, emitter: Emitter, limit_s: float) -> None:
        """Sort the hooks by what they listen to, once."""
        self._emitter = emitter
        self._limit_s = limit_s
        self._on_turn_start = [hook for hook in hooks if isinstance(hook, OnTurnStart)]
        self._on_action = [hook for hook in hooks if isinstance(hook, OnAction)]
        self._on_observation = [hook for hook in hooks if isinstance(hook, OnObservation)]
        self._on_final = [hook for hook in hooks if isinstance(hook, OnFinal)]

    @property
    def hears_final(self) -> bool:
        """Whether any hook waits for the turn's end."""
        return bool(self._on_final)

    async def turn_started(self, start: TurnStart) -> None:
        """Tell all."""
        for hook in self._on_turn_start:
            await self._guard("on_turn_start", hook, hook.on_turn_start, start)

    async def action(self, action: Action) -> Action | Refuse:
        """Let all see the call, each what the one before made of it; the first refusal holds."""
        for hook in self._on_action:
            answer = await self._guard("on_action", hook, hook.on_action, action)
            if isinstance(answer, Refuse):
                return answer
            if isinstance(answer, Rewrite):
                action = replace(action, input=answer.input)
        return action

    async def observation(self, action: Action, result: ToolResult) -> ToolResult:
        """Let all see the result, each what the one before made of it."""
        for hook in self._on_observation:
            answer = await self._guard("on_observation", hook, hook.on_observation, action, result)
            if isinstance(answer, ToolResult):
                result = answer
        return result

    async def final(self, final: Final) -> None:
        """Tell all."""
        for hook in self._on_final:
            await self._guard("on_final", hook, hook.on_final, final)

    async def _guard(
        self, name: str, hook: object, method: Callable[..., Awaitable[T]], /, *args: object
    ) -> T | None:
        """Call one hook; what it throws, and a hook that takes too long, becomes a `Failure`."""
        part = f"hook {type(hook).__name__}.{name}"
        try:
            with anyio.move_on_after(self._limit_s) as scope:
                answer: Any = method(*args)
                return await answer if isinstance(answer, Awaitable) else answer  # type: ignore[no-any-return]
        # A boundary: a hook is somebody else's code, and it must not stop the turn.
        except Exception as error:  # noqa: BLE001
            failure = Failure(
                part=part,
                message=f"The hook failed and was passed over: {error}",
                error=type(error).__name__,
                traceback=traceback.format_exc(),
            )
        else:
            if not scope.cancelled_caught:
                return None
            failure = Failure(
                part=part,
                message=f"The hook took longer than {self._limit_s:g} s and was passed over.",
                error="TimeoutError",
            )
        await self._emitter(failure)
        return None
