"""The request for a page to a language model, and the parsing of its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib import resources
from typing import Any, Final

from satchel.memory.distill.asking import Unreadable, values_in
from satchel.memory.framing import CHARS_A_TOKEN, day_of
from satchel.memory.page.checking import stands
from satchel.memory.page.records import SECTIONS, PageVersion, Section, section_named
from satchel.memory.page.rows import News
from satchel.memory.records import MemoryRecord
from satchel.memory.spending import Asked, complete
from satchel.messages import Message, TextBlock
from satchel.models.port import ChatModel, ModelRequest

__all__ = ["Answer", "Proposed", "Request", "ask", "ask_again"]

_MAX_TOKENS: Final = 8_000
"""Of an answer: several pages, because some models count their thinking as output."""
_MAX_LINES: Final = 200

_LINE: Final[Mapping[str, Any]] = {
    "section": {"type": "string", "enum": list(SECTIONS)},
    "text": {"type": "string"},
    "facts": {"type": "array", "items": {"type": "integer"}},
    "until": {"type": "string"},
}
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "keep": {"type": "array", "items": {"type": "integer"}},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": _LINE,
                "required": list(_LINE),
                "additionalProperties": False,
            },
        },
    },
    "required": ["keep", "lines"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A line that a model proposed; only its form has been checked."""

    section: Section
    text: str
    facts: tuple[int, ...]
    until: date | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model wants on the page: the numbers of the lines that stay, and the new ones."""

    keep: tuple[int, ...]
    lines: tuple[Proposed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a model is asked: the facts by their numbers, and the text. Lines are numbered from 1 on."""

    facts: Mapping[int, MemoryRecord]
    text: str


def request_of(news: News, *, today: date, budget_tokens: int) -> Request:
    """Show a model the page and what is new."""
    numbers: dict[str, int] = {}
    for id in (*news.held, *(fact.id for fact in news.fresh)):
        numbers.setdefault(id, len(numbers) + 1)
    found = {number: news.held[id] for id, number in numbers.items() if id in news.held}
    found |= {numbers[fact.id]: fact for fact in news.fresh}
    lines: list[dict[str, Any]] = [
        {"today": f"{today:%A} {today.isoformat()}", "room": int(budget_tokens * CHARS_A_TOKEN)}
    ]
    if news.base is not None:
        lines += _shown(news.base, news, numbers)
    lines += [
        {
            "fact": numbers[fact.id],
            "said": day_of(fact.said_at)[:10],
            "importance": fact.importance,
            "says": fact.content,
        }
        for fact in news.fresh
    ]
    return Request(facts=found, text="\n".join(json.dumps(line, ensure_ascii=False) for line in lines))


def _shown(base: PageVersion, news: News, numbers: Mapping[str, int]) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(base.lines, 1):
        if not line.text:
            continue
        shown: dict[str, Any] = {
            "line": number,
            "section": line.section,
            "text": line.text,
            "facts": [numbers[id] for id in line.facts if id in numbers],
        }
        if line.by == "user":
            shown["by"] = "user"
        elif not stands(line, news.held):
            ended = [id for id in line.facts if id not in news.held]
            by = [numbers[new] for id in ended for new in news.replaced.get(id, ()) if new in numbers]
            shown["gone"] = f"replaced by fact {by[0]}" if by else "no longer holds, or was changed"
        found.append(shown)
    return found


async def ask(model: ChatModel, request: Request, spent: list[Asked]) -> tuple[Answer, list[Message]]:
    """Ask for a page; once more where the answer can't be read.

    Returns:
        The answer, and the conversation until then.

    Raises:
        ModelError: The model is unavailable or rejected the request.
        Unreadable: It gave two answers that can't be parsed.
    """
    return await _ask(model, [_said("user", request.text)], spent, tries=2)


async def ask_again(
    model: ChatModel, messages: Sequence[Message], refused: Sequence[tuple[Proposed, str]], spent: list[Asked]
) -> Answer:
    """Ask once more for lines that were refused. Raises like `ask`."""
    reasons = "\n".join(
        json.dumps({"text": line.text, "refused": why}, ensure_ascii=False) for line, why in refused
    )
    text = (
        f"These lines are refused:\n{reasons}\n"
        'Write them once more in "lines", as their facts say it, or leave them out. "keep" is []: the rest is taken.'
    )
    answer, _ = await _ask(model, [*messages, _said("user", text)], spent, tries=1)
    return answer


async def _ask(
    model: ChatModel, messages: list[Message], spent: list[Asked], *, tries: int
) -> tuple[Answer, list[Message]]:
    problem = ""
    for _ in range(tries):
        completion = await complete(
            model,
            ModelRequest(
                system=_prompt(), messages=messages, max_tokens=_MAX_TOKENS, response_schema=_SCHEMA
            ),
            purpose="page",
            asked=spent,
        )
        said = completion.message.text
        messages = [*messages, _said("assistant", said or "(nothing)")]
        try:
            return _read(said), messages
        except ValueError as error:
            problem = str(error)
            messages.append(
                _said("user", f"That can't be read: {problem} Answer with the JSON object alone.")
            )
    raise Unreadable(f"{model.provider}:{model.model} wrote no page that can be read: {problem}")


@cache
def _prompt() -> str:
    return (resources.files("satchel.memory.page") / "prompts" / "page.md").read_text(encoding="utf-8")


def _said(role: Any, text: str) -> Message:
    return Message(role=role, blocks=(TextBlock(text=text),))


def _read(answer: str) -> Answer:
    for value in values_in(answer):
        if isinstance(value, dict) and isinstance(value.get("lines"), list):
            keep = value.get("keep")
            return Answer(
                keep=_numbers(keep),
                lines=tuple(
                    _read_line(line, place) for place, line in enumerate(value["lines"][:_MAX_LINES], 1)
                ),
            )
    raise ValueError('there is no JSON object with a list "lines" in it.')


def _read_line(line: object, place: int) -> Proposed:
    if not isinstance(line, dict):
        raise ValueError(f"line {place} is not an object.")
    text, section = line.get("text"), section_named(str(line.get("section")))
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f'line {place} has no "text".')
    if section is None:
        raise ValueError(f"line {place} is in no section.")
    until: date | None = None
    with suppress(ValueError):  # What isn't said ends with its facts.
        until = date.fromisoformat(str(line.get("until") or ""))
    return Proposed(
        section=section, text=" ".join(text.split()), facts=_numbers(line.get("facts")), until=until
    )


def _numbers(found: object) -> tuple[int, ...]:
    if not isinstance(found, list):
        return ()
    return tuple(dict.fromkeys(one for one in found if isinstance(one, int) and not isinstance(one, bool)))
