"""Converts an endpoint's error response into a typed error that says who must act and what to do.

Endpoints agree on little: the status says roughly who is at fault, and the text says the rest. The texts below were
observed from Anthropic, OpenAI, DeepSeek, OpenRouter, Groq, Mistral, Gemini, Ollama, vLLM, llama.cpp, LM Studio and
TGI.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from satchel.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    ToolsUnsupported,
)

# The words that endpoints use for tools.
_TOOLS: Final = r"(?:tools?|function[ _]?call(?:ing|s)?|tool[ _]?(?:use|calls?|calling|choice))"

_NO_TOOLS: Final = re.compile(
    rf"(?:does not|do not|doesn't|don't) support (?:the )?(?:use of )?{_TOOLS}"  # Ollama, Groq
    r"|enable-auto-tool-choice|tool-call-parser"  # vLLM
    r"|tools? param\w* requires? --jinja"  # llama.cpp
    r"|unsupported param\w*: ['\"`]?\b(?:tools|tool_choice|functions)\b",  # llama.cpp, older
    re.IGNORECASE,
)

# Unknown endpoints use their own words: something about tools, and that they are unavailable. Errors about the schema
# of one tool or about a broken history also mention tools but are a different matter.
_ABOUT_TOOLS: Final = re.compile(
    r"\b(?:tools?|functions?)\b|\b(?:tool|function)[ _-]?(?:us|call|choice)", re.IGNORECASE
)
_CANNOT: Final = re.compile(
    r"\b(?:not?|n't|never|without)\b[^.]{0,30}(?:support|available|enabled|allowed|permitted|recogni[sz]ed|implemented)"
    r"|n't (?:support|accept|take)|\bun(?:supported|available|recogni[sz]ed|known|expected)|\bcan(?:not|'t)\b|disabled",
    re.IGNORECASE,
)
_NOT_ABOUT_SUPPORT: Final = re.compile(
    r"tool_use_id|tool_call_id|tool_result|tool_use`? (?:ids?|blocks?)|schema|role ['\"`]?tool|duplicate|too many"
    r"|names?\b|signature",
    re.IGNORECASE,
)

_TOO_LONG: Final = re.compile(
    r"context_length_exceeded|exceed_context_size|context[ _](?:length|window|size|limit)"
    r"|prompt is too long|input is too long|request_too_large|too many (?:input )?tokens"
    r"|maximum (?:context|prompt|input) length|input (?:token count|length)[^.]{0,80}exceed"
    r"|exceeds? the (?:available |model'?s? )?(?:maximum )?(?:context|number of tokens|token limit)"
    r"|reduce the length of the (?:messages|prompt|input)|larger than the maximum context",
    re.IGNORECASE,
)

_NO_CREDIT: Final = re.compile(
    r"insufficient[_ ](?:quota|balance|credits?|funds)|credit balance is too low|exceeded your current quota"
    r"|billing[_ ](?:hard_limit|not_active|details)|payment required|more credits|quota exhausted"
    r"|account (?:is )?(?:suspended|deactivated)",
    re.IGNORECASE,
)

_RETRY_LATER: Final = re.compile(r"(?:retry|try again) in \d", re.IGNORECASE)

_BAD_KEY: Final = re.compile(
    r"invalid[_ ](?:x-)?api[_ -]?key|incorrect api key|authentication[_ ](?:error|fails)|api key not valid"
    r"|no auth credentials",
    re.IGNORECASE,
)

_OVERLOADED: Final = re.compile(
    r"overloaded|rate[_ ]limit|capacity|try again|temporarily|timed? ?out", re.IGNORECASE
)

# Longer texts are truncated, because some endpoints answer with a whole HTML page.
_MAX_WORDS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The information about an endpoint that error messages need.

    Attributes:
        provider: The provider's name in the configuration.
        model: The requested model.
        place: Its address without user and password; "" for the provider's default address.
        env_api_key: The variable that holds the key, or "".
    """

    provider: str
    model: str
    place: str = ""
    env_api_key: str = ""

    @property
    def name(self) -> str:
        """The name in messages: provider, model and place."""
        where = f" at {self.place}" if self.place else ""
        return f"{self.provider}:{self.model}{where}"


def message_in(body: Any) -> str:
    """The message in the body of an error response; "" if there is none."""
    if isinstance(body, list) and body:
        # Gemini puts its error into a list.
        body = body[0]
    match body:
        case {"error": {"message": str(message), **rest}}:
            details = [str(rest[key]) for key in ("type", "code") if isinstance(rest.get(key), str)]
            # OpenRouter nests the message of the upstream endpoint one level deeper.
            if isinstance(metadata := rest.get("metadata"), Mapping) and metadata.get("raw"):
                details.append(str(metadata["raw"]))
            words = " ".join([message, *(f"({detail})" for detail in details if detail not in message)])
        case {"error": str(message)} | {"message": str(message)} | {"detail": str(message)}:
            words = message
        case {"error": Mapping() as error}:
            words = json.dumps(dict(error), ensure_ascii=False, default=str)
        case Mapping() | list():
            words = json.dumps(body, ensure_ascii=False, default=str)
        case str():
            words = re.sub(r"<[^>]*>", " ", body) if body.lstrip().startswith("<") else body
        case _:
            words = ""
    words = " ".join(words.split())
    return words if len(words) <= _MAX_WORDS else words[:_MAX_WORDS] + "…"


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """The delay in seconds that an endpoint requests, or None.

    Args:
        headers: With lower-case names, or a case-insensitive mapping.
        now: The reference time for a date in `Retry-After`.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * unit_s
        except ValueError:
            try:
                seconds = (email.utils.parsedate_to_datetime(value) - now).total_seconds()
            except (ValueError, TypeError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def failure_of(
    status: int | None, body: Any, *, endpoint: Endpoint, offered_tools: bool, wait_s: float | None = None
) -> ModelError:
    """The typed error for an endpoint's error response.

    Args:
        status: The HTTP status, or None for an error in the middle of a stream.
        body: The body as JSON data, or as text if it isn't JSON.
        endpoint: The endpoint that answered.
        offered_tools: Whether the request had tool definitions.
        wait_s: The delay that the endpoint requested.
    """
    said = message_in(body)
    code = status if status is not None else _status_in(body)
    what = f"{endpoint.name} answered {code or 'with an error'}: {said or 'nothing more'}"
    if not what.endswith((".", "!", "…", "?")):
        what += "."
    key = f"the key in {endpoint.env_api_key}" if endpoint.env_api_key else "the key"

    if offered_tools and code not in (401, 402, 403, 429) and _refuses_tools(code, said):
        return ToolsUnsupported(what)
    # Gemini also says "exceeded your current quota" for a limit per minute, and then says when to retry.
    is_temporary = wait_s is not None or bool(_RETRY_LATER.search(said))
    if code == 402 or (code in (None, 400, 403, 429) and _NO_CREDIT.search(said) and not is_temporary):
        return ModelAuthError(
            f"{what} The account behind {key} has no credit left: top it up, or choose another model."
        )
    if code in (401, 403) or (code in (None, 400) and _BAD_KEY.search(said)):
        if not endpoint.env_api_key:
            return ModelAuthError(
                f"{what} No key was sent. Name the variable that holds it as env_api_key of "
                f"[providers.{endpoint.provider}]."
            )
        return ModelAuthError(f"{what} Check whether {key} is correct, and what it is allowed to do.")
    if code == 413 or (code in (None, 400, 404, 422, 500) and _TOO_LONG.search(said)):
        return ContextOverflow(what)
    if code is None:
        return ModelUnavailable(what, retry_after_s=wait_s)
    if code in (408, 409, 425, 429) or code >= 500:
        return ModelUnavailable(what, retry_after_s=wait_s)
    if code == 404:
        return ModelRejected(f"{what} Is the model's name right? `satchel model list` lists the models.")
    return ModelRejected(what)


def _refuses_tools(code: int | None, said: str) -> bool:
    if _NO_TOOLS.search(said):
        return True
    return (
        code in (400, 404, 405, 422, 501)
        and bool(_ABOUT_TOOLS.search(said))
        and bool(_CANNOT.search(said))
        and not _NOT_ABOUT_SUPPORT.search(said)
    )


def _status_in(body: Any) -> int | None:
    """The status that corresponds to an error in a stream, if it says so."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return None
    if isinstance(code := error.get("code"), int) and 400 <= code < 600:
        return code
    match error.get("type"):
        case "overloaded_error" | "api_error" | "server_error" | "timeout_error":
            return 529 if error["type"] == "overloaded_error" else 500
        case "rate_limit_error":
            return 429
        case "authentication_error" | "permission_error":
            return 401
        case "billing_error":
            return 402
        case "invalid_request_error":
            # Some endpoints use this name for temporary failures, too.
            return None if _OVERLOADED.search(str(error.get("message", ""))) else 400
        case _:
            return None
