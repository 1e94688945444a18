"""Records as plain JSON data: a record is declared once, as a dataclass, and its JSON has its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from functools import cache
from pathlib import PurePath
from typing import Any


def as_json(value: object) -> Any:
    """A value as plain JSON data: dataclasses and mappings as objects, sequences as lists, times in ISO 8601."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    kind: Any = type(value)
    return {name: as_json(getattr(value, name)) for name in _names(kind)}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def json_in(text: str | bytes) -> Any:
    """What a stranger's text is as JSON data; None if it is no JSON, or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def encodable(text: str) -> str:
    """Without lone surrogates, which have no form in UTF-8."""
    return text.encode("utf-8", "replace").decode()


def storable(text: str) -> str:
    """Without lone surrogates, which SQLite refuses, and NUL, which PostgreSQL does, and where SQLite's words end."""
    return encodable(text.replace("\0", " "))
