"""The two requests to language models, and the parsing and validation of their answers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, TypeVar, get_args

from satchel.errors import SatchelError
from satchel.memory.distill.windows import Window, shown
from satchel.memory.records import MemoryRecord, MemoryType, TimeKind
from satchel.memory.spheres import fitting_spheres
from satchel.memory.store.cues import fitting_cues
from satchel.memory.store.page_lines import SECTIONS, PageFacts, Section, section_named
from satchel.memory.store.spending import Asked, complete
from satchel.messages import Message, TextBlock
from satchel.models.port import ChatModel, ModelRequest

T = TypeVar("T")

Relation = Literal["new", "restates", "corrects", "elaborates"]

_GATE_TOKENS: Final = 1_000
_EXTRACT_TOKENS: Final = 8_000
"""The limits of an answer: many times what it needs, because some models count their thinking as output."""
_ID_CHARS: Final = 4
"""Of an id that a model is shown, if they tell those apart."""
_MAX_FACTS: Final = 30
_MAX_FACT_CHARS: Final = 1_000
_MAX_QUOTE_CHARS: Final = 2_000

_YES_NO: Final = re.compile(r"\W*(yes|no)\b\W*(.*)", re.IGNORECASE | re.DOTALL)


class Unreadable(SatchelError):
    """A model gave two answers that can't be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowVerdict:
    """The small model's judgement of a window."""

    worth: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A fact that a model proposed; only its form has been checked.

    Attributes:
        time: What kind of time it has; "" where the model didn't say.
        when: The words for the day that it happens on, is due by, comes round on, or began on; "" for none.
        until: The words for its end, or for how long it lasts; "" for none.
        first, last: The first and the last day as the model reads them, "2026-03-28"; "" for none.
        every: When it comes round, in the words of `EVERY`.
        to: The short id of the known fact that `relation` refers to, as the model wrote it; "" for none.
        ended: Of a correction, the words for the time since when the known fact no longer holds; "" for none.
        section: Where it stands on the page that a model has before it in every conversation; None for what need not.
        confidential: The words that ask to keep it to oneself, or from somebody; "" for none.
        spheres: The parts of the user's life that it belongs to.
    """

    content: str
    quotes: tuple[str, ...]
    importance: int
    memory_type: MemoryType
    tags: tuple[str, ...]
    time: TimeKind | Literal[""]
    when: str
    until: str
    first: str
    last: str
    every: tuple[str, ...]
    relation: Relation
    to: str
    ended: str
    cues: tuple[str, ...]
    section: Section | None
    confidential: str = ""
    spheres: tuple[str, ...] = ()

    @property
    def is_confidential(self) -> bool:
        """Whether only the user's own conversations may have it."""
        return bool(self.confidential) or self.section == "confidential"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReading:
    """What a model read in a window.

    Attributes:
        off: The ids of facts that need not stand on the page any more.
        short: What their lines on the page may say instead of all that they say, by their ids.
    """

    facts: tuple[Proposal, ...]
    off: tuple[str, ...]
    short: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What an extractor is shown of what is known.

    Attributes:
        near: Facts that are not on it, and near to what was said.
    """

    page: PageFacts = field(default_factory=PageFacts)
    near: tuple[MemoryRecord, ...] = ()

    @property
    def facts(self) -> dict[str, MemoryRecord]:
        """All of them by their ids."""
        return {fact.id: fact for fact in (*(fact for _, fact in self.page.facts), *self.near)}

    @property
    def chars(self) -> int:
        """How many characters of the ids tell them apart."""
        ids, chars = list(self.facts), _ID_CHARS
        while len({id[:chars] for id in ids}) < len(ids):
            chars += 1
        return chars

    def id_of(self, short: str) -> str:
        """The id that begins so; "" where there is none."""
        if len(short) < self.chars:
            return ""
        return next((id for id in self.facts if id.startswith(short)), "")

    @property
    def text(self) -> str:
        """The lines, as the extractor sees them; no text can pose as another line. Months and days are enough to tell
        what is old, and cost little.
        """
        lines: list[str] = []
        if self.page.room:
            lines.append(f"on the page ({self.page.used:,} of {self.page.room:,} letters):")
        section = ""
        for place, fact in self.page.facts:
            if place != section:
                lines.append(section := place)
            lines.append(self._line(fact))
        if self.near and self.page.room:
            lines.append("not on the page:")
        return "\n".join([*lines, *map(self._line, self.near)]) or "(nothing)"

    def _line(self, fact: MemoryRecord) -> str:
        mark = " …" if fact.id in self.page.short else ""
        return f"{fact.id[: self.chars]} {fact.said_at:%m-%d} {' '.join(fact.content.split())}{mark}"


EVERY: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "month", "year")
"""When something comes round: on a weekday, or on the day of the month or of the year that `Proposal.when` names."""

_GATE_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"worth": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["worth", "reason"],
    "additionalProperties": False,
}
_FACT: Final[Mapping[str, Any]] = {
    "content": {"type": "string"},
    "quote": {"type": "string"},
    "more_quotes": {"type": "array", "items": {"type": "string"}},
    "importance": {"type": "integer", "enum": [1, 2, 3, 4, 5]},
    "memory_type": {"type": "string", "enum": list(get_args(MemoryType))},
    "tags": {"type": "array", "items": {"type": "string"}},
    "time": {"type": "string", "enum": list(get_args(TimeKind))},
    "when": {"type": "string"},
    "until": {"type": "string"},
    "first": {"type": "string"},
    "last": {"type": "string"},
    "every": {"type": "array", "items": {"type": "string", "enum": list(EVERY)}},
    "relation": {"type": "string", "enum": list(get_args(Relation))},
    "to": {"type": "string"},
    "ended": {"type": "string"},
    "cues": {"type": "array", "items": {"type": "string"}},
    "section": {"type": "string", "enum": ["", *SECTIONS]},
    "confidential": {"type": "string"},
    "spheres": {"type": "array", "items": {"type": "string"}},
}
_EXTRACT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": _FACT,
                "required": ["content", "quote"],
                "additionalProperties": False,
            },
        },
        "off": {"type": "array", "items": {"type": "string"}},
        "short": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "string"}, "text": {"type": "string"}},
                "required": ["id", "text"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["facts", "off"],
    "additionalProperties": False,
}


@cache
def _prompt(name: str) -> str:
    return (resources.files("satchel.memory.distill") / "prompts" / f"{name}.md").read_text(encoding="utf-8")


def gate_version() -> str:
    """Names the gate's prompt: a verdict that another one gave doesn't count."""
    return hashlib.sha256(_prompt("gate").encode()).hexdigest()[:12]


async def ask_gate(model: ChatModel, window: Window, spent: list[Asked]) -> WindowVerdict:
    """Ask a small model whether a window contains anything worth remembering.

    The cost is appended to `spent`, even if the request fails.

    Raises:
        ModelError: The model is unavailable or rejected the request.
        Unreadable: It gave two answers that can't be parsed.
    """
    return await _ask(model, "gate", shown(window), _GATE_SCHEMA, _read_verdict, _GATE_TOKENS, spent)


async def ask_extractor(
    model: ChatModel,
    window: Window,
    known: Known,
    spent: list[Asked],
    *,
    refused: Sequence[tuple[Proposal, str]] = (),
) -> WindowReading:
    """Ask a model for the facts in a window, beside what is known; or once more for those that were `refused`, each
    with the reason. See `ask_gate`.
    """
    text = "conversation:\n" + shown(window) + "\n\nknown:\n" + known.text
    if refused:
        lines = [
            json.dumps({"content": one.content, "quote": one.quotes[:1], "refused": why}, ensure_ascii=False)
            for one, why in refused
        ]
        text += (
            "\n\nYou wrote these notes, and a program refused them. Write them once more so that the reason is gone, "
            'or leave them out. Nothing else is wanted; "off" is [].\n' + "\n".join(lines)
        )
    read = await _ask(model, "extract", text, _EXTRACT_SCHEMA, _read_answer, _EXTRACT_TOKENS, spent)
    return WindowReading(
        facts=tuple(replace(fact, to=known.id_of(fact.to)) for fact in read.facts),
        off=tuple(dict.fromkeys(id for id in map(known.id_of, read.off) if id)),
        short={id: text for short, text in read.short.items() if (id := known.id_of(short))},
    )


async def _ask(
    model: ChatModel,
    purpose: str,
    text: str,
    schema: Mapping[str, Any],
    read: Callable[[str], T],
    max_tokens: int,
    spent: list[Asked],
) -> T:
    messages = [Message(role="user", blocks=(TextBlock(text=text),))]
    problem = ""
    for _ in range(2):
        completion = await complete(
            model,
            ModelRequest(
                system=_prompt(purpose), messages=messages, max_tokens=max_tokens, response_schema=schema
            ),
            purpose=purpose,
            asked=spent,
        )
        answer = completion.message.text
        try:
            return read(answer)
        except ValueError as error:
            problem = str(error)
            messages = [
                *messages,
                Message(role="assistant", blocks=(TextBlock(text=answer or "(nothing)"),)),
                Message(
                    role="user",
                    blocks=(
                        TextBlock(text=f"That can't be read: {problem} Answer with the JSON object alone."),
                    ),
                ),
            ]
    raise Unreadable(f"{model.provider}:{model.model} answered twice in a form that can't be read: {problem}")


def values_in(answer: str) -> Iterator[Any]:
    """The JSON objects and arrays in an answer; other text is skipped."""
    decoder = json.JSONDecoder()
    at = 0
    while True:
        starts = [place for place in (answer.find("{", at), answer.find("[", at)) if place >= 0]
        if not starts:
            return
        at = min(starts)
        try:
            value, at = decoder.raw_decode(answer, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            yield value


def _read_verdict(answer: str) -> WindowVerdict:
    for value in values_in(answer):
        if isinstance(value, dict):
            worth = value.get("worth")
            if not isinstance(worth, bool):
                raise ValueError('"worth" is neither true nor false.')
            return WindowVerdict(worth=worth, reason=str(value.get("reason") or "")[:300])
    # Small models often answer yes or no instead of JSON.
    said = _YES_NO.match(answer)
    if said is None:
        raise ValueError("there is no JSON object in it.")
    return WindowVerdict(worth=said[1].lower() == "yes", reason=said[2].strip()[:300])


def _read_answer(answer: str) -> WindowReading:
    facts: object = None
    off: object = None
    short: object = None
    for value in values_in(answer):
        if isinstance(value, dict):
            facts, off, short = value.get("facts"), value.get("off"), value.get("short")
        elif (value or "{" not in answer) and all(isinstance(fact, dict) for fact in value):
            facts = value  # the list without the object around it
        if isinstance(facts, list):
            return WindowReading(
                facts=tuple(
                    _read_proposal(fact, number) for number, fact in enumerate(facts[:_MAX_FACTS], 1)
                ),
                off=tuple(map(_id, off)) if isinstance(off, list) else (),
                short=_read_short(short),
            )
    raise ValueError('there is no JSON object with a list "facts" in it.')


def _read_short(short: object) -> dict[str, str]:
    """From a list of objects with id and text, or one object with a text for each id."""
    listed = [one for one in short if isinstance(one, dict)] if isinstance(short, list) else []
    pairs = short.items() if isinstance(short, dict) else [(one.get("id"), one.get("text")) for one in listed]
    return {_id(id): text for id, text in pairs if isinstance(text, str)}


def _read_proposal(fact: object, number: int) -> Proposal:
    if not isinstance(fact, dict):
        raise ValueError(f"fact {number} is not an object.")
    content, quote = fact.get("content"), fact.get("quote")
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f'fact {number} has no "content".')
    if not isinstance(quote, str):
        raise ValueError(f'fact {number} has no "quote".')
    more = fact.get("more_quotes")
    quotes = [quote, *(more if isinstance(more, list) else [])]
    importance = fact.get("importance")
    tags, every = fact.get("tags", fact.get("topic_tags")), fact.get("every")
    return Proposal(
        content=" ".join(content.split())[:_MAX_FACT_CHARS],
        quotes=tuple(str(text)[:_MAX_QUOTE_CHARS] for text in quotes[:5] if str(text).strip()),
        # A missing or invalid importance is no reason to lose a fact.
        importance=importance if type(importance) is int and 1 <= importance <= 5 else 3,
        memory_type=_one_of(fact.get("memory_type"), MemoryType, "fact"),
        tags=tuple(str(tag)[:60] for tag in tags[:6]) if isinstance(tags, list) else (),
        time=_one_of(fact.get("time"), TimeKind, ""),
        when=_text(fact.get("when")),
        until=_text(fact.get("until")),
        first=_text(fact.get("first")),
        last=_text(fact.get("last")),
        every=tuple(day for day in EVERY if day in every) if isinstance(every, list) else (),
        relation=_one_of(fact.get("relation"), Relation, "new"),
        to=_id(fact.get("to")),
        ended=_text(fact.get("ended")),
        cues=fitting_cues(fact.get("cues")),
        section=section_named(_text(fact.get("section"))),
        confidential=_text(fact.get("confidential")),
        spheres=fitting_spheres(fact.get("spheres")),
    )


def _id(value: object) -> str:
    return value.strip(" []#\"'") if isinstance(value, str) else ""


def _text(value: object) -> str:
    return value.strip()[:100] if isinstance(value, str) else ""


def _one_of(value: object, allowed: Any, default: Any) -> Any:
    return value if value in get_args(allowed) else default
