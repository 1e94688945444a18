"""JSON for the wire: bytes that any endpoint can parse, and arguments that are parsed without being altered.

All text for endpoints passes through `encode`, so lone surrogates and NUL are replaced in one place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from satchel.messages import clean_text

_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def encode(value: Any) -> bytes:
    """Compact JSON in UTF-8. The same value always gives the same bytes; keys keep their order."""
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
    """The value with null instead of numbers that JSON doesn't support."""
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
    """The text as a JSON object, or None if it is anything else.

    Empty text means `{}`, because providers send it for a call without arguments.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
