"""JSON as it goes over the wire: bytes that any endpoint can read, arguments read back without being bent.

Every text that leaves for an endpoint passes `encode`, so lone surrogates and NUL are made safe in one place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from satchel.messages import clean_text

__all__ = ["encode", "parse_object"]

_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def encode(value: Any) -> bytes:
    """JSON as UTF-8, compact, the same bytes for the same value; keys in their own order."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    if "\\u0000" in text:
        text = _ESCAPED_NUL.sub("\\1\ufffd", text)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return clean_text(text).encode()


def _finite(value: Any) -> Any:
    """The value with null for the numbers that JSON does not have."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON.")


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is, or None where it is anything else.

    No text at all is `{}`: that is how providers send a call without arguments.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
