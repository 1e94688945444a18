"""Takes out of a session's events what its log may not hold: secrets, and the parts that were marked as private.

The model sees every word while the session is open. The log, and with it a session that is resumed, has
`[redacted:kind]` and `[private]` in their place (docs/guides/privacy.md).

Which fields are cleaned follows from their types: every text, however deep in an event, unless `_ID` or `_VERBATIM`
exempts its field. A new event or field is therefore cleaned without anybody thinking of it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

from satchel.events import (
    Assistant,
    Event,
    Failure,
    MemorySurfaced,
    Observation,
    SessionFiled,
    SessionStart,
    SurfacedMemory,
    TurnStart,
)
from satchel.loop import ToolPool
from satchel.memory.store.redaction import PRIVATE, find_secrets, hide_private, private_parts, redact
from satchel.messages import TextBlock, ThinkingBlock

Clean: TypeAlias = Callable[[str], str]

_INLINE_CHARS: Final = 20_000
"""A longer text is looked at in a thread only."""
_MIN_HIDDEN_CHARS: Final = 6
"""Shorter private parts are not looked for in answers and calls: such words stand everywhere."""
_MIN_HIDDEN_LINE_CHARS: Final = 12
"""The same for a single line of a longer private part."""
_MAX_PAIR_CHARS: Final = 500
"""A longer argument is no password that only its name gives away."""

_ID: Final = re.compile(r"ids?|\w+_ids?")
"""Fields with such names hold identifiers, by which a call or a question is found again."""
_VERBATIM: Final[Mapping[type, frozenset[str]]] = {
    SessionStart: frozenset({"cwd", "provider", "model", "version", "project"}),
    SessionFiled: frozenset({"project"}),
    TurnStart: frozenset({"answers"}),
    # Memory holds no secrets, and is replayed byte for byte.
    MemorySurfaced: frozenset({"text"}),
    SurfacedMemory: frozenset({"content", "session"}),
    Assistant: frozenset({"provider", "model"}),
    Observation: frozenset({"spill"}),
    ThinkingBlock: frozenset({"signature"}),
    Failure: frozenset({"error"}),
}
"""Other fields whose texts are identifiers, or are replayed as they are."""
_NAMES: Final = frozenset({"tool", "name"})
"""Fields that hold the name of a tool, which the model chose where there is no such tool."""


class LogRedactor:
    """Cleans the events of one session before they are written down."""

    def __init__(self, *, redacts: bool, pool: ToolPool) -> None:
        """Take the setting `memory.redact`, and the threads to look closely in."""
        self._redacts = redacts
        self._pool = pool
        self._hidden: list[re.Pattern[str]] = []
        self._forgotten: list[Clean] = []

    def forget(self, clean: Clean) -> None:
        """Take forgotten words out of the events that follow, until `end_turn`."""
        self._forgotten.append(clean)

    def end_turn(self) -> None:
        """What is said from now on was not said before it was forgotten: it is kept."""
        self._forgotten.clear()

    async def redacted(self, events: Sequence[Event]) -> Sequence[Event]:
        """The same events, as the log may hold them."""
        for event in events:
            if isinstance(event, TurnStart):
                for part in private_parts(event.message.text):
                    self._hidden += _ways_to_write(part)
        seen: list[str] = []

        def look(text: str) -> str:
            seen.append(text)
            return text

        for event in events:
            _cleaned(event, look)
        if not self._are_suspicious(seen):
            return events
        return await self._pool.run(lambda: [_cleaned(event, self._clean) for event in events])

    async def redacted_text(self, text: str) -> str:
        """One text, for a file beside the log."""
        return await self._pool.run(self._clean, text)

    def _are_suspicious(self, texts: Sequence[str]) -> bool:
        # Looking takes nearly as long for a word as for a page, and what is found in a text is found in them together.
        together = "\n".join(texts)
        return (
            (
                self._redacts
                and (any(len(text) > _INLINE_CHARS for text in texts) or find_secrets(together) != ())
            )
            or "<" in together
            or any(part.search(together) for part in self._hidden)
            or any(clean(text) != text for clean in self._forgotten for text in texts)
        )

    def _clean(self, text: str) -> str:
        text = hide_private(text)
        for part in self._hidden:
            text = part.sub(PRIVATE, text)
        for clean in self._forgotten:
            text = clean(text)
        return redact(text) if self._redacts else text


def _ways_to_write(part: str) -> list[re.Pattern[str]]:
    """Patterns for a private part: as it was said, and as JSON, a shell command and a permission rule quote it."""
    wanted = [part] if len(part) >= _MIN_HIDDEN_CHARS else []
    lines = [line.strip() for line in part.splitlines()]
    wanted += [line for line in lines if len(line) >= _MIN_HIDDEN_LINE_CHARS and line != part]
    written: dict[str, None] = {}
    for text in wanted:
        in_json = json.dumps(text, ensure_ascii=False)[1:-1]
        in_shell = shlex.quote(text).strip("'")
        for way in (text, in_json, json.dumps(text)[1:-1], in_shell):
            # A star and a backslash are escaped in a rule (`satchel.tools.patterns.escaped`).
            written |= dict.fromkeys((way, re.sub(r"[\\*]", r"\\\g<0>", way)))
    # Whoever repeats it may begin a sentence with it, or break its lines elsewhere.
    return [
        re.compile(r"\s+".join(re.escape(word) for word in way.split()), re.IGNORECASE) for way in written
    ]


@cache
def _wordy(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass that may hold words."""
    hints, verbatim = get_type_hints(cls), _VERBATIM.get(cls, frozenset())
    return tuple(
        name
        for name in (field.name for field in fields(cls))
        if name not in verbatim and not _ID.fullmatch(name) and _has_words(hints[name])
    )


def _has_words(hint: Any) -> bool:
    if hint in (int, float, bool, datetime, type(None)) or get_origin(hint) is Literal:
        return False
    parts = [part for part in get_args(hint) if part is not Ellipsis]
    return not parts or any(map(_has_words, parts))


def _cleaned(value: Any, clean: Clean) -> Any:
    """A value without what may not be written down; the same object where nothing was taken out of a dataclass."""
    if isinstance(value, tuple):
        return tuple(_cleaned(each, clean) for each in value)
    if not is_dataclass(value) or isinstance(value, type):
        return _data(value, clean)
    # What came out of memory holds no secret, and is replayed byte for byte.
    if isinstance(value, TextBlock) and value.origin == "memory":
        return value
    changed = {}
    for name in _wordy(type(value)):
        before = getattr(value, name)
        after = _name(before, clean) if name in _NAMES else _cleaned(before, clean)
        if after != before:
            changed[name] = after
    if changed and isinstance(value, ThinkingBlock):
        # The proof is over the words that are gone; a provider would refuse the block.
        changed["signature"] = ""
    return replace(value, **changed) if changed else value


def _name(value: str, clean: Clean) -> str:
    shown = clean(value)
    # A provider refuses a name with other characters.
    return value if shown == value else re.sub(r"[^A-Za-z0-9_-]+", "_", shown).strip("_")


def _data(value: Any, clean: Clean) -> Any:
    """JSON data, such as the arguments of a call."""
    try:
        return _data_below(value, clean)
    except RecursionError:
        # What can't be looked through is not written down.
        return {"redacted": "These arguments were nested too deeply to be looked through for secrets."}


def _data_below(value: Any, clean: Clean) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Mapping):
        return {clean(str(key)): _member(str(key), item, clean) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_data_below(item, clean) for item in value]
    # A card's number may come as a number.
    written = str(value)
    shown = clean(written)
    return value if shown == written else shown


def _member(key: str, value: Any, clean: Clean) -> Any:
    """A value of an object: its name may say that it is a secret, as in {"password": "…"}."""
    cleaned = _data_below(value, clean)
    if not isinstance(value, str | int | float) or isinstance(value, bool) or cleaned != value:
        return cleaned
    written = str(value)
    if not written or len(written) > _MAX_PAIR_CHARS:
        return cleaned
    head = f"{json.dumps(key, ensure_ascii=False)}: "
    pair = head + json.dumps(written, ensure_ascii=False)
    shown = clean(pair)
    if shown == pair or clean(head) != head:
        return cleaned
    found = re.search(r"\[redacted:[a-z-]+\]|" + re.escape(PRIVATE), shown)
    return found[0] if found else "[redacted]"
