"""What requests for a chat completion and for a response have in common: the model, tools, parameters and files."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Protocol, TypeAlias

from pydantic import Field

from satchel.errors import UsageError
from satchel.server.client_turns import ClientFile, ClientRequest, ClientTool
from satchel.server.service import Service
from satchel.server.v1_errors import V1Failure
from satchel.tools.input_schema import check_schema

HOME_MODEL: Final = "satchel"
"""The model of the home."""
EPHEMERAL_MODEL: Final = "satchel-ephemeral"
"""The same agent, without storing anything of the conversation."""
MOST_TOOLS: Final = 512
_PICTURE_TAG: Final = re.compile(r'</image>|<image name=[^<>]*?(?: path="(?P<path>[^"<>]*)")?>')
"""What Codex writes before and after a picture. The user said neither; the picture is called as its file is."""

Limit: TypeAlias = Annotated[int, Field(ge=1, le=10_000_000)] | None
Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2)] | None
Stop: TypeAlias = str | Annotated[list[str], Field(max_length=16)] | None
Temperature: TypeAlias = Annotated[float, Field(ge=0, le=2)] | None
TopP: TypeAlias = Annotated[float, Field(ge=0, le=1)] | None

_NEUTRAL: Final[Mapping[str, Any]] = {
    "top_p": 1,
    "stop": [],
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "seed": None,
    "parallel_tool_calls": True,
}
"""Values that change nothing. Many clients send them with every request, so no model has to know them."""


class _Sampled(Protocol):
    top_p: TopP
    parallel_tool_calls: bool | None


def options_in(request: _Sampled, choice: str | None) -> dict[str, Any]:
    """The parameters that only some models know, for `ModelRequest.options`, without neutral values.

    Args:
        request: May have any of the parameters.
        choice: What the model must call, as `chosen` returns it.
    """
    found = {name: getattr(request, name, None) for name in _NEUTRAL}
    if isinstance(found["stop"], str):
        found["stop"] = [found["stop"]] if found["stop"] else []
    options = {name: value for name, value in found.items() if value not in (None, _NEUTRAL[name])}
    return options | ({"tool_choice": choice} if choice else {})


async def check_options(service: Service, asked: ClientRequest) -> None:
    """Refuse parameters that the model of a request can't honour.

    Raises:
        V1Failure: It can't honour one.
        NotFound, ConfigError, ModelError: The model is unavailable.
    """
    options = asked.sampling.options if asked.sampling is not None else {}
    if not options:
        return
    model = await service.satchel.model(asked.model)
    for name in options.keys() - await service.satchel.model_options(asked.model):
        raise unsupported(name, options[name], f"{model.provider}:{model.model} can't honour it")


def model_of(name: str) -> str | None:
    """The model that a request names; None for the home's.

    Raises:
        V1Failure: There is no such model.
    """
    if name in (HOME_MODEL, EPHEMERAL_MODEL):
        return None
    if ":" not in name:
        raise V1Failure(
            404,
            f"There is no model {name!r}. GET /v1/models lists some; PROVIDER:MODEL works too.",
            param="model",
            code="model_not_found",
        )
    return name


def tool_in(function: Mapping[str, Any], where: str) -> ClientTool:
    """A function that the client runs.

    Raises:
        V1Failure: It has no name, or its parameters are not the schema of an object.
    """
    name, schema = function.get("name"), function.get("parameters") or {}
    if not isinstance(name, str) or not name:
        raise invalid(where, "must be a function with a name")
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise invalid(f"{where}.parameters", "must be the schema of an object")
    try:
        json.dumps(schema, allow_nan=False)
        check_schema(schema, subject="the schema")
    except ValueError:
        raise invalid(f"{where}.parameters", "must be JSON without NaN and Infinity") from None
    except UsageError as error:
        raise invalid(f"{where}.parameters", f"can't be used: {error}") from None
    return ClientTool(
        name=name,
        description=str(function.get("description") or ""),
        schema={"properties": {}, **schema, "type": "object"},
    )


def chosen(tools: Sequence[ClientTool], choice: Any) -> tuple[tuple[ClientTool, ...], str | None]:
    """The tools that the model gets, and what it must call: None, "required" or a name.

    Raises:
        V1Failure: The choice has no such form, or names a tool that isn't there.
    """
    by_name = {tool.name: tool for tool in tools}
    match choice:
        case None | "auto":
            return tuple(by_name.values()), None
        case "none":
            return (), None
        case "required" if by_name:
            return tuple(by_name.values()), "required"
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            if name in by_name:
                return tuple(by_name.values()), name
        case _:
            pass
    raise unsupported(
        "tool_choice", choice, 'It must be "auto", "none", "required", or a function of `tools`'
    )


def form_of(wanted: Mapping[str, Any] | None, where: str) -> tuple[Mapping[str, Any] | None, str]:
    """A schema for the answer, and the same in words for endpoints that accept no schema.

    Raises:
        V1Failure: The format is none of OpenAI's.
    """
    match wanted:
        case None | {"type": "text"}:
            return None, ""
        case {"type": "json_object"}:
            return {"type": "object"}, "Answer with one JSON object and nothing else."
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}} | {
            "type": "json_schema",
            "schema": dict(schema),
        }:
            try:
                words = json.dumps(schema, ensure_ascii=False, sort_keys=True, allow_nan=False)
            except ValueError:
                raise invalid(where, "must be JSON without NaN and Infinity") from None
            return schema, f"Answer with JSON that matches this schema, and nothing else:\n{words}"
        case _:
            raise unsupported(where, wanted, "It must be text, json_object or json_schema")


def content_of(content: Any, where: str) -> tuple[str, tuple[ClientFile, ...]]:
    """The text and the files of a message, whose parts are those of a chat completion or of a response.

    Raises:
        V1Failure: There is a part of another kind, or a file without its content.
    """
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        raise invalid(where, "must be a text or a list of parts")
    texts: list[str] = []
    files: list[ClientFile] = []
    picture = "picture"
    for number, part in enumerate(content):
        here = f"{where}[{number}]"
        match part:
            case {"type": "input_text", "text": str(text)} if any(
                isinstance(near, dict) and "image_url" in near
                for near in content[max(0, number - 1) : number + 2]
            ) and (tag := _PICTURE_TAG.fullmatch(text)):
                picture = (tag["path"] or "").rpartition("/")[2] or "picture"
            case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
                texts.append(text)
            case {"type": "refusal", "refusal": str(text)}:
                texts.append(text)
            case {"image_url": {"url": str(address)}} | {"image_url": str(address)}:
                files.append(ClientFile(name=picture, content=_inlined(address, here)))
            case {"file": {"file_data": str(address), **about}} | {"file_data": str(address), **about}:
                name = str(about.get("filename") or "file")
                files.append(ClientFile(name=name, content=_inlined(address, here)))
            case _:
                raise _unknown_part(here)
    return "\n".join(texts), tuple(files)


def text_of(content: Any, where: str) -> str:
    """The text of a message that may hold no files. Raises as `content_of`."""
    text, files = content_of(content, where)
    if files:
        raise V1Failure(
            400,
            f"{where} has a picture or a file. Satchel accepts them in messages of the user.",
            param=where,
            code="unsupported_content",
        )
    return text


def _unknown_part(where: str) -> V1Failure:
    return V1Failure(
        400,
        f"{where} is of a kind that Satchel doesn't know there. It accepts text, and of the user pictures and files "
        "with their content as a data: address.",
        param=where,
        code="unsupported_content",
    )


def _inlined(address: str, where: str) -> bytes:
    """The bytes of a `data:` address. Satchel fetches nothing that a client names.

    Raises:
        V1Failure: It is another address, or not base64.
    """
    head, comma, content = address.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise invalid(where, 'must hold its content as "data:…;base64,…"; Satchel fetches no addresses')
    try:
        return b64decode(content, validate=True)
    except ValueError:
        raise invalid(where, "isn't valid base64") from None


def invalid(where: str, what: str) -> V1Failure:
    """The failure of a request with a part that has the wrong form."""
    return V1Failure(400, f"{where} {what}.", param=where, code="invalid_value")


def unsupported(name: str, value: Any, why: str) -> V1Failure:
    """The failure of a request with a value that can't be honoured. `why` is a sentence."""
    return V1Failure(
        400,
        f"{name} is {json.dumps(value, default=str)[:100]}. {why}.",
        param=name,
        code="unsupported_value",
    )
