"""Makes a tool from an async function and a schema: how built-in tools and features are written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from satchel.errors import SatchelError
from satchel.tools.port import Annotations, Effect, Source, Tool, ToolContext, ToolResult, ToolSpec

__all__ = ["FunctionTool", "client_tool", "function_tool"]

Call: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolResult]]
Effects: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Sequence[Effect]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A tool whose call is a function. An error that Satchel raises on purpose becomes an error result."""

    spec: ToolSpec
    function: Call
    effects_of: Effects | None = None

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        """What `effects_of` says; nothing for an input that the call will refuse."""
        try:
            return () if self.effects_of is None else self.effects_of(input, context)
        except SatchelError:
            return ()

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Call the function. What is no `SatchelError` is a defect and passes through."""
        try:
            return await self.function(input, context)
        except SatchelError as error:
            return ToolResult(text=str(error), is_error=True)


def function_tool(
    function: Call,
    *,
    name: str,
    description: str,
    properties: Mapping[str, Any],
    required: Sequence[str] = (),
    annotations: Annotations | None = None,
    effects: Effects | None = None,
    source: Source = "builtin",
    origin: str = "",
    timeout_s: float | None = None,
    pattern_key: str = "",
) -> Tool:
    """Make a tool.

    Args:
        function: Does it; may raise a `SatchelError`, whose message the model is shown.
        properties: JSON Schema of each input field, in the order shown to the model; no other field is
            allowed.
        required: The fields that must be there.
        annotations: None takes the cautious default.
        effects: See `Tool.effects`; None says that calls never collide.
        name: See `ToolSpec`, as for what is not explained here.
        description: For the model: what it does, when to use it, what comes back.
        source: See `ToolSpec`.
        origin: See `ToolSpec`.
        timeout_s: See `ToolSpec`.
        pattern_key: See `ToolSpec`.
    """
    return FunctionTool(
        spec=ToolSpec(
            name=name,
            description=description,
            input_schema={
                "type": "object",
                "properties": dict(properties),
                "required": list(required),
                "additionalProperties": False,
            },
            source=source,
            origin=origin,
            annotations=annotations or Annotations(),
            timeout_s=timeout_s,
            pattern_key=pattern_key,
        ),
        function=function,
        effects_of=effects,
    )


def client_tool(*, name: str, description: str, input_schema: Mapping[str, Any]) -> Tool:
    """Make a tool whose calls the program that runs the turn answers itself (see `ToolSpec.client_side`).

    Args:
        name: See `ToolSpec`.
        description: For the model.
        input_schema: JSON Schema of type "object"; a call that does not fit is refused before the program sees it.
    """

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:  # noqa: ARG001  # the port's shape
        return ToolResult(
            text=f"{name} is run by the program that brought it, not by Satchel.", is_error=True
        )

    spec = ToolSpec(name=name, description=description, input_schema=input_schema, client_side=True)
    return FunctionTool(spec=spec, function=call)
