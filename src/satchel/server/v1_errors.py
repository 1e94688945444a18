"""Errors below /v1, in the form that the official clients of OpenAI and Anthropic turn into their exceptions.

Both read the status and `error.message`. OpenAI's form has `param` and `code` beside it, Anthropic's a `type` around
it; readers ignore what they don't know, so one form serves both.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, Field

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_CODES: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


class V1ErrorParts(BaseModel):
    """What went wrong."""

    type: str = Field(description='The kind of error, such as "invalid_request_error".')
    message: str = Field(description="What happened, to what, and what to do.")
    param: str | None = Field(None, description="The part of the request that is wrong.")
    code: str | None = Field(None, description="A code for the error, if there is one.")


class V1Error(BaseModel):
    """Why a request below /v1 failed."""

    type: str = Field("error", description="Always error.")
    error: V1ErrorParts


class V1Failure(Exception):
    """Ends a request below /v1 with an error."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        """See `v1_fields`."""
        super().__init__(message)
        self.status = status
        self.fields = v1_fields(status, message, param=param, code=code)


def has_v1_form(path: str) -> bool:
    """Whether clients of this path expect this form of errors."""
    return path.startswith("/v1/")


def v1_fields(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The error as plain JSON data. The type follows from the status."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    parts = {"type": kind, "message": message, "param": param, "code": code or _CODES.get(status)}
    return {"type": "error", "error": parts}
