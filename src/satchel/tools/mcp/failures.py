"""Errors of servers and of the SDK, as reasons that a sentence can hold."""

from __future__ import annotations

import logging

from satchel.errors import SatchelError
from satchel.tools.visible import visible


def load_sdk() -> None:
    """Import the SDK (0.7 s, in a thread) and keep its log off the terminal: the user gets reasons instead."""
    import mcp  # noqa: F401, PLC0415

    for name in ("mcp", "client"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
            logger.propagate = False


def first_error(error: BaseException) -> BaseException:
    """The error itself, taken out of the groups in which task groups wrap it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException) -> str:
    """An error as a clause of at most 500 characters."""
    first = first_error(error)
    text = visible(" ".join(str(first).split())[:500].rstrip("."))
    if text and (isinstance(first, SatchelError) or type(first).__name__ == "MCPError"):
        return text
    return f"{type(first).__name__}: {text}" if text else type(first).__name__


def is_refusal(error: BaseException) -> bool:
    """Whether the server answered with an error, as against not answering at all."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415  loaded in `load_sdk`

    return isinstance(first_error(error), MCPError)
