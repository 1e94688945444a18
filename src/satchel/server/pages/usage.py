"""`/usage`: tokens and money by day, by model and by purpose."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.clock import local_day
from satchel.messages import Usage
from satchel.runtime.background_models import BACKGROUND, CALLED_BY_CODE, EARN, TITLE
from satchel.server.pages.charts import ChartColumn, column_chart, share
from satchel.server.pages.queries import FieldReader
from satchel.server.pages.site import page
from satchel.server.service import Serves
from satchel.sessions import UsageRow

router = APIRouter(include_in_schema=False)

_MONTH: Final = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")
_PURPOSES: Final[Mapping[str, str]] = {
    "conversation": "Answering",
    "compaction": "Summing up long conversations",
    "build": "Building capabilities",
    "gate": "Judging what is worth remembering",
    "extract": "Drawing facts from conversations",
    "page": "Writing the page about you",
    "compare": "Comparing memories",
    "expand": "Deep search: other wordings",
    "answer": "Deep search: the answer",
    "judge": "Choosing what is recalled",
    "picture": "Describing pictures",
    TITLE: "Naming conversations",
    EARN: "Noticing work that is worth a tool",
    CALLED_BY_CODE: "For the code of capabilities",
    "sampling": "For MCP servers",
    "test": "Testing models",
}
_OF_MEMORY: Final = ({*BACKGROUND} - {TITLE, EARN, CALLED_BY_CODE}) | {"page", "compare", "expand", "answer"}


@dataclass(frozen=True, slots=True)
class Day:
    """The usage of one day."""

    day: date
    calls: int
    usage: Usage

    @property
    def fresh(self) -> int:
        """Input tokens that were not read from a cache."""
        return max(0, self.usage.input_tokens - self.usage.cache_read_tokens)


@dataclass(frozen=True, slots=True)
class Part:
    """A model or a purpose: its name, its usage, and a bar of its share."""

    name: str
    calls: int
    usage: Usage
    share: float
    bar: Any


@router.get("/usage")
async def usage(request: Request, service: Serves) -> Response:
    """One month."""
    asked = FieldReader.of(request)
    rows = await service.satchel.usage()
    today = date.fromisoformat(local_day(service.satchel.clock.now()))
    month = asked.text("month") or f"{today:%Y-%m}"
    if not _MONTH.fullmatch(month):
        asked.problems["month"] = f"{month[:40]!r} is not a month. Write it as 2026-11."
        month = f"{today:%Y-%m}"
    months = sorted({row.day[:7] for row in rows} | {f"{today:%Y-%m}", month}, reverse=True)
    chosen = [row for row in rows if row.day.startswith(month)]
    days = _days(month, chosen, today)
    total = _total(chosen)
    of_today = _total([row for row in rows if row.day == today.isoformat()])
    budget = service.satchel.settings.budget
    spent_today = await service.satchel.home.spent_on(today.isoformat())
    return await page(
        request,
        "usage.html",
        title="Usage",
        status=asked.status,
        asked=asked,
        month=month,
        months=[(value, _month_words(value)) for value in months],
        month_words=_month_words(month),
        days=days,
        has_any=bool(rows),
        total=total,
        calls=sum(row.calls for row in chosen),
        unpriced=_unpriced(chosen),
        before=_same_days_before(rows, month, today),
        memory=_total([row for row in chosen if row.purpose in _OF_MEMORY]),
        chart=_chart(days, month, today) if chosen else None,
        models=_parts(chosen, lambda row: f"{row.provider}:{row.model}" if row.model else row.provider),
        purposes=_parts(chosen, lambda row: _PURPOSES.get(row.purpose, row.purpose)),
        sessions=len({row.session_id for row in chosen if row.session_id}),
        today_usd=spent_today,
        today_unknown=of_today.total_tokens and of_today.cost_usd is None,
        is_now=month == f"{today:%Y-%m}",
        budget=budget,
        background=await service.satchel.home.background_day(today.isoformat()),
        names=_PURPOSES,
    )


def _total(rows: Sequence[UsageRow]) -> Usage:
    return sum((row.usage for row in rows), Usage())


def _days(month: str, rows: Sequence[UsageRow], today: date) -> list[Day]:
    """Every day of the month that has come, the first first."""
    year, number = int(month[:4]), int(month[5:])
    if year < date.min.year:
        return []
    last = calendar.monthrange(year, number)[1]
    by_day: dict[str, list[UsageRow]] = {}
    for row in rows:
        by_day.setdefault(row.day, []).append(row)
    found = []
    for day in (date(year, number, one) for one in range(1, last + 1)):
        of_day = by_day.get(day.isoformat(), [])
        if day <= today or of_day:
            found.append(Day(day, sum(row.calls for row in of_day), _total(of_day)))
    return found


def _chart(days: Sequence[Day], month: str, today: date) -> Any:
    most = max(days, key=lambda day: day.usage.total_tokens)
    dearest = max(days, key=lambda day: day.usage.cost_usd or 0.0)
    words = f"The most tokens, {most.usage.total_tokens:,}, were used on {most.day.day} {most.day:%B}."
    if dearest.usage.cost_usd:
        words += f" The most expensive day is {dearest.day.day} {dearest.day:%B} with ${dearest.usage.cost_usd:,.2f}."
    top = max(day.usage.total_tokens for day in days)
    return column_chart(
        [
            ChartColumn(
                str(day.day.day),
                (
                    float(day.usage.cache_read_tokens),
                    float(day.fresh),
                    float(day.usage.output_tokens),
                ),
                day.usage.cost_usd or 0.0,
                is_now=day.day == today,
            )
            for day in days
        ],
        title=f"Tokens and money by day, {_month_words(month)}",
        description=f"{words} The table below has every number.",
        says_up=_unit_of(top),
        up_scale=_scale_of(top),
        id="by-day",
    )


def _scale_of(most: int) -> float:
    return 1e6 if most >= 1_000_000 else 1e3 if most >= 1_000 else 1.0


def _unit_of(most: int) -> str:
    return "{:,g} M" if most >= 1_000_000 else "{:,g} k" if most >= 1_000 else "{:,g}"


def _unpriced(rows: Sequence[UsageRow]) -> list[str]:
    """Models without a known price."""
    return sorted(
        {
            f"{row.provider}:{row.model}"
            for row in rows
            if row.usage.cost_usd is None and row.usage.total_tokens
        }
    )


def _parts(rows: Sequence[UsageRow], name_of: Callable[[UsageRow], str]) -> list[Part]:
    """Usage by name, the most expensive first. The bars show money, or tokens if nothing has a price."""
    found: dict[str, tuple[int, Usage]] = {}
    for row in rows:
        calls, used = found.get(name_of(row), (0, Usage()))
        found[name_of(row)] = (calls + row.calls, used + row.usage)
    money = sum(used.cost_usd or 0.0 for _, used in found.values())
    tokens = sum(used.total_tokens for _, used in found.values())

    def part_of(used: Usage) -> float:
        if money:
            return (used.cost_usd or 0.0) / money
        return used.total_tokens / tokens if tokens else 0.0

    parts = [
        Part(name, calls, used, part_of(used), share(part_of(used))) for name, (calls, used) in found.items()
    ]
    return sorted(parts, key=lambda part: (-part.share, -part.usage.total_tokens, part.name))


def _same_days_before(rows: Sequence[UsageRow], month: str, today: date) -> tuple[str, float] | None:
    """What the month before cost up to the same day, in words and dollars; None where it cost nothing."""
    year, number = int(month[:4]), int(month[5:])
    earlier = f"{year - (number == 1):04d}-{(number - 2) % 12 + 1:02d}"
    is_now = month == f"{today:%Y-%m}"
    last = f"{earlier}-{today.day:02d}" if is_now else f"{earlier}-31"
    cost = sum(row.usage.cost_usd or 0.0 for row in rows if row.day.startswith(earlier) and row.day <= last)
    words = _month_words(earlier)
    return (f"to {today.day} {words}" if is_now else words, cost) if cost else None


def _month_words(month: str) -> str:
    return f"{calendar.month_name[int(month[5:])]} {int(month[:4])}"
