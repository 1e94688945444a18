"""Makes tools from functions: an async function and a schema, as in built-in tools, or any plain function."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_type_hints

from satchel.errors import SatchelError, UsageError
from satchel.tools.port import Annotations, Effect, Source, Tool, ToolContext, ToolResult, Toolset, ToolSpec
from satchel.tools.registry import StaticToolset

Call: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolResult]]
Effects: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Sequence[Effect]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A tool that calls a function. A `SatchelError` becomes an error result."""

    spec: ToolSpec
    function: Call
    effects_of: Effects | None = None
    fails: Callable[[Mapping[str, Any], ToolContext], str] | None = None

    def foresee(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """The result of `fails`."""
        return "" if self.fails is None else self.fails(input, context)

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        """The result of `effects_of`; empty for an input that the call will reject."""
        try:
            return () if self.effects_of is None else self.effects_of(input, context)
        except SatchelError:
            return ()

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Call the function. Any exception that is not a `SatchelError` is a bug and propagates."""
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
    fails: Callable[[Mapping[str, Any], ToolContext], str] | None = None,
    source: Source = "builtin",
    origin: str = "",
    timeout_s: float | None = None,
    pattern_key: str = "",
    repeatable: bool = False,
    seldom: Sequence[str] = (),
    is_deferred: bool = False,
    vouched_for: bool = False,
) -> Tool:
    """Make a tool from an async function, which may raise a `SatchelError`, whose message the model sees.

    `properties` has the JSON Schema of each input field, in the order shown to the model; no other fields are allowed.
    Without `annotations`, the cautious defaults hold; without `effects` (see `Tool.effects`), calls never conflict.
    `fails` is `Foreseeing.foresee`. The rest is as in `ToolSpec`.
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
            repeatable=repeatable,
            seldom=seldom,
            is_deferred=is_deferred,
            vouched_for=vouched_for,
        ),
        function=function,
        effects_of=effects,
        fails=fails,
    )


def client_tool(*, name: str, description: str, input_schema: Mapping[str, Any]) -> Tool:
    """Make a tool whose calls are run by the program that runs the turn (see `ToolSpec.client_side`). Calls that don't
    match the schema, of type "object", are rejected before the program sees them.
    """

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:  # noqa: ARG001  # the port's shape
        return ToolResult(
            text=f"{name} is run by the program that brought it, not by Satchel.", is_error=True
        )

    spec = ToolSpec(name=name, description=description, input_schema=input_schema, client_side=True)
    return FunctionTool(spec=spec, function=call)


FunctionOrTool: TypeAlias = Callable[..., Any] | Tool
"""A plain function or a tool."""


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    annotations: Annotations | None = None,
    timeout_s: float | None = None,
) -> Tool:
    """Make a tool from a plain function.

    The input schema is derived from the parameters' types, including `Annotated[...,
    pydantic.Field(description="…")]`. A parameter of type `ToolContext` receives the call's context and is not an
    input. A function that is not async runs on a thread. If it returns a string or a `ToolResult`, that is the
    result; None becomes "Done."; any other value becomes JSON.

    Args:
        function: Its exceptions are reported to the model as failures of the tool.
        name: None uses the function's name.
        description: For the model; None uses the docstring.
        annotations: None uses the cautious defaults.
        timeout_s: See `ToolSpec`.

    Raises:
        UsageError: It has parameters that can't be passed by name (`*args`, positional-only), or types without a JSON
            Schema.
    """
    # Importing pydantic takes 100 ms. Only programs that bring their own functions need it.
    from pydantic import ConfigDict, ValidationError, create_model  # noqa: PLC0415
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError  # noqa: PLC0415

    name = name or function.__name__
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"{name} can't be a tool: the type of a parameter can't be resolved ({error})."
        ) from error
    fields: dict[str, Any] = {}
    context_name = ""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(
                f"{name} can't be a tool: models pass arguments by name, and {parameter} can't be passed by name."
            )
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext:
            context_name = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hint, default)
    try:
        model = create_model(
            name, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
        )
        schema = model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise UsageError(f"{name} can't be a tool: {str(error).splitlines()[0]}") from error
    schema.pop("title", None)

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            values = model.model_validate(input)
        except ValidationError as error:  # what a schema can't express, such as a type's own validator
            return ToolResult(text=str(error), is_error=True)
        arguments = {field: getattr(values, field) for field in fields}
        if context_name:
            arguments[context_name] = context
        if inspect.iscoroutinefunction(function):
            return _as_result(await function(**arguments))
        return _as_result(await context.blocking(lambda: function(**arguments)))

    return FunctionTool(
        spec=ToolSpec(
            name=name,
            description=description if description is not None else inspect.getdoc(function) or name,
            input_schema={"properties": {}, **schema, "type": "object"},
            origin="this program",
            annotations=annotations or Annotations(),
            timeout_s=timeout_s,
        ),
        function=call,
    )


def _as_result(value: Any) -> ToolResult:
    match value:
        case ToolResult():
            return value
        case None:
            return ToolResult(text="Done.")
        case str():
            return ToolResult(text=value)
        case _:
            return ToolResult(text=json.dumps(value, ensure_ascii=False, default=str), data=value)


def toolset_of(tools: FunctionOrTool | Toolset) -> Toolset:
    """Make a toolset from a function, a tool or a toolset.

    Raises:
        UsageError: It is none of these; or see `tool_from_function`.
    """
    if isinstance(tools, type):
        raise UsageError(f"{tools.__name__} is a class. Pass a function, a tool or a toolset.")
    candidate: Any = tools
    if hasattr(candidate, "spec") and hasattr(candidate, "call"):
        return StaticToolset((candidate,))
    if hasattr(candidate, "tools"):
        toolset: Toolset = candidate
        return toolset
    if callable(candidate):
        return StaticToolset((tool_from_function(candidate),))
    raise UsageError(f"{tools!r} is not a tool. Pass a function, a tool or a toolset.")
