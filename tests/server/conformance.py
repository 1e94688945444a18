"""What the public conformance suite of the Model Context Protocol expects of a server, on ours.

Most of its scenarios call tools, prompts and resources of the suite's own test server. Here they stand beside
Satchel's in the real server, so that everything but their few words is the program's: the gate, both carriers, both
eras, subscriptions, log levels, sealed request state.

`make conformance` runs it. It needs npm and a package index, so it is no part of `make test`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    INVALID_PARAMS,
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListRootsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    SamplingMessage,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    Tool,
    UnsubscribeRequestParams,
)

from satchel.server.gate import RequestGate
from satchel.server.mcp.face import McpFace
from tests.server.world import serving

__all__ = ["SuiteFace"]

_KNOWN: Final = Path(__file__).with_suffix(".yml")
_SUITES: Final[Mapping[str, tuple[str, ...]]] = {
    "0.1.16": (),
    "0.2.0-alpha.12": ("--expected-failures", str(_KNOWN)),
}
"""The newest release, and the newest version for the revision of 2026-07-28, each with its options."""

_Context = ServerRequestContext[Any, Any]
_PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
_MISSING_CAPABILITY: Final = -32021


def _text(text: str) -> TextContent:
    return TextContent(text=text)


def _image() -> ImageContent:
    return ImageContent(data=_PNG, mime_type="image/png")


def _resource(uri: str, kind: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=kind, text=text))


def _form(message: str, *required: str, **properties: Any) -> ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sampling(text: str, tokens: int) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=_text(text))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=tokens))


_STRING: Final = {"type": "string"}
_PLAIN: Final[Mapping[str, list[ContentBlock]]] = {
    "test_simple_text": [_text("This is a simple text response for testing.")],
    "test_image_content": [_image()],
    "test_audio_content": [AudioContent(data=_WAV, mime_type="audio/wav")],
    "test_embedded_resource": [
        _resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        _text("Multiple content types test:"),
        _image(),
        _resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "json_schema_2020_12_tool": [_text("ok")],
}
_TITLED: Final = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
_PLAIN_OPTIONS: Final = ["option1", "option2", "option3"]
_FORMS: Final[Mapping[str, ElicitRequest]] = {
    "test_elicitation": _form("", "username", "email", username=_STRING, email=_STRING),
    "test_elicitation_sep1034_defaults": _form(
        "Please review",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    ),
    "test_elicitation_sep1330_enums": _form(
        "Please choose",
        untitledSingle={"type": "string", "enum": _PLAIN_OPTIONS},
        titledSingle={"type": "string", "oneOf": _TITLED},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": _PLAIN_OPTIONS}},
        titledMulti={"type": "array", "items": {"anyOf": _TITLED}},
    ),
}
_NAME: Final = _form("What is your name?", "name", name=_STRING)
_ROUNDS: Final[Mapping[str, list[Mapping[str, Any]]]] = {
    "test_input_required_result_elicitation": [{"user_name": _NAME}],
    "test_input_required_result_sampling": [
        {"capital_question": _sampling("What is the capital of France?", 100)}
    ],
    "test_input_required_result_list_roots": [{"client_roots": ListRootsRequest()}],
    "test_input_required_result_request_state": [
        {"confirm": _form("Please confirm", "ok", ok={"type": "boolean"})}
    ],
    "test_input_required_result_tampered_state": [
        {"confirm": _form("Please confirm", "ok", ok={"type": "boolean"})}
    ],
    "test_input_required_result_multiple_inputs": [
        {
            "user_name": _NAME,
            "greeting": _sampling("Generate a greeting", 50),
            "client_roots": ListRootsRequest(),
        }
    ],
    "test_input_required_result_multi_round": [
        {"step1": _form("Step 1: What is your name?", "name", name=_STRING)},
        {"step2": _form("Step 2: What is your favorite color?", "color", color=_STRING)},
    ],
    "test_input_required_result_capabilities": [
        {"user_name": _NAME, "greeting": _sampling("Generate a greeting", 50)}
    ],
    "test_streaming_elicitation": [{"user_name": _NAME}],
}
"""What each tool asks the client for, round by round."""
_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": _STRING}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": _STRING}, "required": ["message"]},
    "test_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": _STRING, "city": _STRING},
            }
        },
        "properties": {
            "name": _STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": _STRING,
            "email": _STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
_OTHERS: Final = (
    "test_tool_with_logging",
    "test_error_handling",
    "test_tool_with_progress",
    "test_sampling",
    "test_missing_capability",
    "test_logging_tool",
    "test_header",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
)
_TOOLS: Final = (*_PLAIN, *_FORMS, *_ROUNDS, *_OTHERS)
_PROMPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}
_PROMPT_ROUND: Final = {
    "user_context": _form("What context should the prompt use?", "context", context=_STRING)
}


class SuiteFace(McpFace):
    """Our server with the suite's tools, prompts and resources beside its own."""

    async def _list_tools(self, context: _Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        own = await super()._list_tools(context, params)
        tools = [
            Tool(name=name, description=name, input_schema=dict(_SCHEMAS.get(name, {"type": "object"})))
            for name in _TOOLS
        ]
        return own.model_copy(update={"tools": [*own.tools, *tools]})

    async def _call_tool(self, context: _Context, params: CallToolRequestParams) -> Any:
        name = params.name
        if name not in _TOOLS:
            return await super()._call_tool(context, params)
        if name in _PLAIN:
            return CallToolResult(content=list(_PLAIN[name]))
        if name in _ROUNDS:
            asked = _asked(context, params.input_responses, params.request_state, _ROUNDS[name])
            if asked is not None:
                return asked
            return _said(f"state-ok {json.dumps(_answers(params.input_responses))}")
        if name in _FORMS:
            return await self._elicited(context, params)
        return await self._other(context, params)

    async def _other(self, context: _Context, params: CallToolRequestParams) -> CallToolResult:
        match params.name:
            case "test_error_handling":
                content = [_text("This tool intentionally returns an error for testing")]
                return CallToolResult(content=list(content), is_error=True)
            case "test_missing_capability":
                raise MCPError(
                    _MISSING_CAPABILITY,
                    "The tool needs sampling.",
                    {"requiredCapabilities": {"sampling": {}}},
                )
            case "test_sampling":
                message = _sampling(str((params.arguments or {})["prompt"]), 100)
                answer = await context.session.send_request(
                    message,
                    CreateMessageResult,
                    metadata=ServerMessageMetadata(related_request_id=context.request_id),
                )
                return _said(f"LLM response: {answer.model_dump()}")
            case "test_trigger_tool_change":
                await self._following.tell(ToolsListChanged)
            case "test_trigger_prompt_change":
                await self._following.tell(PromptsListChanged)
            case "test_tool_with_progress":
                for step in (0, 50, 100):
                    await context.session.report_progress(step, 100)
            case _:
                for words in (
                    "Tool execution started",
                    "Tool processing data",
                    "Tool execution completed",
                ):
                    await self._following.log(context, "info", {"message": words})
        return _said("done")

    async def _elicited(self, context: _Context, params: CallToolRequestParams) -> CallToolResult:
        form = _FORMS[params.name].params
        assert isinstance(form, ElicitRequestFormParams)
        message = str((params.arguments or {}).get("message") or form.message)
        answer = await context.session.elicit_form(message, form.requested_schema, context.request_id)
        return _said(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}")

    async def _list_prompts(
        self, context: _Context, params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        own = await super()._list_prompts(context, params)
        prompts = [
            Prompt(
                name=name,
                description=name,
                arguments=[PromptArgument(name=one, description=one, required=True) for one in arguments],
            )
            for name, arguments in _PROMPTS.items()
        ]
        return own.model_copy(update={"prompts": [*own.prompts, *prompts]})

    async def _get_prompt(  # type: ignore[override]
        self, context: _Context, params: GetPromptRequestParams
    ) -> GetPromptResult | InputRequiredResult:
        given = params.arguments or {}
        content: list[ContentBlock]
        match params.name:
            case "test_simple_prompt":
                content = [_text("This is a simple prompt for testing.")]
            case "test_prompt_with_arguments":
                words = f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"
                content = [_text(words)]
            case "test_prompt_with_embedded_resource":
                content = [
                    _resource(given["resourceUri"], "text/plain", "Embedded resource content for testing."),
                    _text("Please process the embedded resource above."),
                ]
            case "test_prompt_with_image":
                content = [_image(), _text("Please analyze the image above.")]
            case "test_input_required_result_prompt":
                asked = _asked(context, params.input_responses, params.request_state, [_PROMPT_ROUND])
                if asked is not None:
                    return asked
                content = [_text(json.dumps(_answers(params.input_responses)))]
            case _:
                return await super()._get_prompt(context, params)
        return GetPromptResult(messages=[PromptMessage(role="user", content=one) for one in content])

    async def _read_resource(
        self, context: _Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        uri = str(params.uri)
        if uri == "test://static-binary":
            return ReadResourceResult(
                contents=[BlobResourceContents(uri=uri, mime_type="image/png", blob=_PNG)]
            )
        if uri.startswith("test://template/") and uri.endswith("/data"):
            id = uri.split("/")[3]
            data = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
            found = TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))
        elif uri == "test://static-text":
            words = "This is the content of the static text resource."
            found = TextResourceContents(uri=uri, mime_type="text/plain", text=words)
        else:
            return await super()._read_resource(context, params)
        return ReadResourceResult(contents=[found])

    async def _subscribe(self, context: _Context, params: SubscribeRequestParams) -> EmptyResult:
        """The suite's resource stands for one of the user's, which every home has."""
        if str(params.uri) == "test://watched-resource":
            params = SubscribeRequestParams(uri="satchel://profile")
        return await super()._subscribe(context, params)

    async def _unsubscribe(self, context: _Context, params: UnsubscribeRequestParams) -> EmptyResult:
        if str(params.uri) == "test://watched-resource":
            params = UnsubscribeRequestParams(uri="satchel://profile")
        return await super()._unsubscribe(context, params)


def _said(text: str) -> CallToolResult:
    return CallToolResult(content=[_text(text)])


def _answers(responses: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        key: one.model_dump(mode="json", by_alias=True, exclude_none=True)
        for key, one in (responses or {}).items()
    }


def _asked(
    context: _Context,
    responses: Mapping[str, Any] | None,
    state: str | None,
    rounds: list[Mapping[str, Any]],
) -> InputRequiredResult | None:
    """What the client is still asked for; None if it has answered everything."""
    number = 0
    while number < len(rounds) and set(rounds[number]) <= set(responses or {}):
        number += 1
    if state and state.isdigit():
        number = max(number, int(state) + (set(rounds[int(state)]) <= set(responses or {})))
    if number >= len(rounds):
        return None
    requests = {key: one for key, one in rounds[number].items() if _can(context, one)}
    if not requests:
        raise MCPError(INVALID_PARAMS, "The client has none of the capabilities that are needed.")
    return InputRequiredResult(input_requests=requests, request_state=str(number))


def _can(context: _Context, request: Any) -> bool:
    capabilities = context.session.client_capabilities
    if capabilities is None:
        return False
    match request:
        case ElicitRequest():
            return capabilities.elicitation is not None
        case CreateMessageRequest():
            return capabilities.sampling is not None
        case _:
            return capabilities.roots is not None


def main() -> int:
    """Run each suite against a server. The suite can't send a token, so none is asked for."""
    failed = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("satchel.server.mcp.face.McpFace", SuiteFace),
        mock.patch.object(RequestGate, "_has_token", return_value=True),
        serving(Path(folder), server__requests_per_s=10_000) as world,
    ):
        for version, options in _SUITES.items():
            command = ["npx", "--yes", "-p", "node@22", "-p", f"@modelcontextprotocol/conformance@{version}"]
            target = ["conformance", "server", "--url", f"{world.url}/mcp", "--suite", "all", *options]
            failed += subprocess.run([*command, *target], check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
