"""What refusals of real endpoints mean."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from satchel.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    ToolsUnsupported,
)
from satchel.models.failures import Endpoint, failure_of, message_in, retry_after_s
from tests.requirements import requirement

ENDPOINT = Endpoint(provider="here", model="m", place="http://h/v1", env_api_key="HERE_KEY")


def refusal(status: int | None, message: str, **more: Any) -> ModelError:
    return failure_of(status, {"error": {"message": message, **more}}, endpoint=ENDPOINT, offered_tools=True)


@requirement("models:error:typed")
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "registry.ollama.ai/library/gemma3:4b does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (500, "Unsupported param: tools"),
        (
            404,
            "No endpoints found that support tool use. To learn more about provider routing, visit the docs.",
        ),
        (400, "`tool calling` is not supported with this model"),
        (400, "This model doesn't support function calling."),
        (422, "tools: Extra inputs are not permitted"),
        (400, "Unrecognized request argument supplied: tools"),
        (501, "Tool use is not supported"),
        (400, "tools not supported"),
        (400, "This endpoint cannot use tools."),
        (400, "tools are unavailable here"),
        (422, "No tool support in this build"),
        (400, "Function calling has been disabled by the administrator"),
        (400, "deepseek-reasoner does not support Function Calling"),
    ],
)
def test_refusals_of_tools_are_known_by_their_words(status: int, message: str) -> None:
    assert type(refusal(status, message)) is ToolsUnsupported
    without = failure_of(status, {"error": {"message": message}}, endpoint=ENDPOINT, offered_tools=False)
    assert type(without) is not ToolsUnsupported


@requirement("models:error:overflow")
@pytest.mark.parametrize(
    ("status", "message", "more"),
    [
        (400, "This model's maximum context length is 8192 tokens. However, you requested 9000.", {}),
        (400, "Your input exceeds the limit.", {"code": "context_length_exceeded"}),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", {}),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", {}),
        (413, "Request exceeds the maximum size", {"type": "request_too_large"}),
        (400, "request (5031 tokens) exceeds the available context size (2048 tokens)", {}),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", {}),
        (400, "Please reduce the length of the messages or completion.", {}),
        (500, "the request exceeds the available context size. try increasing the context size", {}),
    ],
)
def test_requests_that_are_too_long_are_known_by_their_words(
    status: int, message: str, more: dict[str, str]
) -> None:
    assert type(refusal(status, message, **more)) is ContextOverflow


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "Invalid value for messages", ModelRejected),
        (400, "messages.2: `tool_use` ids were found without `tool_result` blocks", ModelRejected),
        (400, "tools.0.input_schema: JSON schema is invalid, unsupported keyword", ModelRejected),
        (400, "tools: Tool names must be unique", ModelRejected),
        (400, "Messages with role 'tool' cannot come first", ModelRejected),
        (500, "The tool server is not available", ModelUnavailable),
        (404, "The model `x` does not exist", ModelRejected),
        (422, "Unprocessable", ModelRejected),
        (401, "Incorrect API key provided", ModelAuthError),
        (403, "Country not supported", ModelAuthError),
        (402, "Insufficient Balance", ModelAuthError),
        (400, "API key not valid. Please pass a valid API key.", ModelAuthError),
        (429, "Rate limit reached for requests", ModelUnavailable),
        (429, "You exceeded your current quota. Please retry in 34.5s.", ModelUnavailable),
        (500, "Internal error", ModelUnavailable),
        (529, "Overloaded", ModelUnavailable),
        (None, "Something odd", ModelUnavailable),
    ],
)
def test_the_status_says_who_must_act_where_the_words_do_not(
    status: int | None, message: str, kind: type[ModelError]
) -> None:
    error = refusal(status, message)
    assert type(error) is kind
    assert message.rstrip(".") in str(error)
    assert "here:m at http://h/v1" in str(error)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "a", "type": "t", "code": "c"}}, "a (t) (c)"),
        ({"error": {"message": "Provider returned error", "metadata": {"raw": "too much"}}}, "Provider returned error (too much)"),
        ({"error": "plain"}, "plain"),
        ({"message": "plain"}, "plain"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"detail": [{"msg": "x"}]}, '{"detail": [{"msg": "x"}]}'),
        ("<html><body><h1>502</h1> Bad\nGateway</body></html>", "502 Bad Gateway"),
        ("", ""),
        (None, ""),
        ("x" * 9999, "x" * 500 + "…"),
    ],
)  # fmt: skip
def test_an_endpoints_words_are_found_wherever_it_puts_them(body: Any, words: str) -> None:
    assert message_in(body) == words


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-5"}, 0.0),
    ],
)
def test_when_to_come_back_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, datetime(2026, 1, 1, 12, tzinfo=UTC)) == seconds
