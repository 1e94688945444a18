"""Errors as problem JSON (RFC 9457), with one status for each class of error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, Field

from satchel.errors import (
    BudgetExceeded,
    ConfigError,
    EmbedderError,
    LineFull,
    ModelAuthError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    NoSandbox,
    NotFound,
    Refused,
    SandboxError,
    SatchelError,
    ServerUnavailable,
    SessionInUse,
    StorageError,
    StorageLocked,
    StorageUnwritable,
    UserError,
)
from satchel.server.json_answers import json_bytes

PROBLEM_TYPE: Final = "application/problem+json"
DEFECT: Final = "An internal error. The details are in the server's log: logs/server.log in SATCHEL_HOME."

_STATUS: Final[tuple[tuple[type[SatchelError], int], ...]] = (
    (NotFound, 404),
    (LineFull, 429),
    (ConfigError, 400),
    (UserError, 400),
    (Refused, 403),
    (BudgetExceeded, 403),
    (ModelUnavailable, 503),
    (ModelAuthError, 502),
    (ModelRejected, 502),
    (ModelError, 502),
    (ServerUnavailable, 503),
    (EmbedderError, 503),
    (SessionInUse, 409),
    (StorageLocked, 503),
    (StorageUnwritable, 507),
    (StorageError, 503),
    (NoSandbox, 503),
    (SandboxError, 500),
)
"""The first class that matches is used."""
_CODES: Final[Mapping[int, str]] = {
    400: "bad_request",
    401: "no_token",
    403: "forbidden",
    404: "not_found",
    405: "no_such_method",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    421: "wrong_host",
    422: "invalid",
    429: "too_many_requests",
    431: "headers_too_large",
    500: "internal_error",
    503: "unavailable",
}
_LOCKED_RETRY_S: Final = 5


class Problem(BaseModel):
    """Why a request failed (RFC 9457)."""

    type: str = Field("about:blank", description="Always about:blank: `code` says what it is.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The status code of the answer.")
    detail: str = Field(description="What happened, to what, and what to do.")
    code: str = Field(description='A stable code for the error, such as "not_found".')


def status_of(error: SatchelError) -> int:
    """The status of the answer to a request that ended with this error."""
    return status_of_class(type(error))


def status_of_class(error: type[SatchelError]) -> int:
    """The status for errors of this class."""
    return next((status for cls, status in _STATUS if issubclass(error, cls)), 500)


def retry_after(error: SatchelError) -> int | None:
    """The seconds after which the request may succeed; None if that is not known."""
    if isinstance(error, ModelUnavailable) and error.retry_after_s is not None:
        return max(1, round(error.retry_after_s))
    return _LOCKED_RETRY_S if isinstance(error, StorageLocked) else None


def problem_of(error: SatchelError) -> dict[str, Any]:
    """The problem that describes an error."""
    return problem_fields(status_of(error), str(error), code=_code(type(error).__name__))


def problem_fields(status: int, detail: str, *, code: str = "") -> dict[str, Any]:
    """A problem as plain JSON data. The code of one that is no `SatchelError` follows from its status."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code or _CODES.get(status, "error"),
    }


def problem_body(status: int, detail: str) -> bytes:
    """The body of an answer."""
    return json_bytes(problem_fields(status, detail))


def invalid_detail(errors: Iterable[Mapping[str, Any]]) -> str:
    """What is wrong with a request, without its values, which may be secret or huge."""
    found = [
        f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
        for error, _ in zip(errors, range(10), strict=False)
    ]
    return f"The request doesn't have the expected form. {'; '.join(found)}."


def _code(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
