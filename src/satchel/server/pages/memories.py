"""`/memories`: search, browse and add memories; the profile and the agenda; and what models were shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final, get_args

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.errors import NotFound, Refused, UsageError
from satchel.memory import Filters, Hit, Kind, Memory, MemoryRecord, Recall
from satchel.memory.spheres import SPHERES
from satchel.memory.store.counts import DayCount
from satchel.memory.store.page_lines import SECTIONS
from satchel.runtime.lines import counted
from satchel.server.pages.charts import ChartColumn, column_chart
from satchel.server.pages.kept import kept_of
from satchel.server.pages.memory_words import KINDS, TYPES, reasons_of, shown
from satchel.server.pages.queries import MOST_PAGES, FieldReader, day_start, part_of, path_with
from satchel.server.pages.rendering import Saying, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)

_PAGE: Final = 15
_MOST_FOUND: Final = 200
_MOST_SHARED: Final = 5
_MOST_TAGS: Final = 40
_MOST_COLUMNS: Final = 24
_MOST_SURFACED: Final = 10
_FILTERS: Final = ("show", "kind", "type", "tag", "since", "until", "as_of")
"""The fields of the search that stand folded until one of them is used."""
_MOST_DAYS: Final = 10
_MOST_TAGS_GIVEN: Final = 100


@router.get("/memories")
async def memories(request: Request, service: Serves) -> Response:
    """Search, or list the latest."""
    asked = FieldReader.of(request)
    memory, settings = service.memory, service.satchel.settings.memory
    wanted = _filters(asked, service)
    query = asked.text("q")
    number = asked.number("page", 1, low=1, high=MOST_PAGES)
    show = asked.one_of("show", ("all", "now", "faded"))
    everything = show == "all"
    if show == "faded":
        wanted["faded"] = True
    is_unfiltered = not any(wanted.values())
    is_start = not query and number == 1 and is_unfiltered
    found = await _found(
        memory, asked, wanted, query, number, service.satchel.clock.now(), everything=everything
    )
    titles = await titles_of(service)
    ids = [_memory_of(one).id for one in found.shown]
    later, evidence = await memory.later(ids), await memory.evidence(ids)
    return await page(
        request,
        "memories.html",
        title="Memories",
        status=asked.status,
        asked=asked,
        query=query,
        everything=everything,
        is_unfiltered=is_unfiltered,
        is_filtered=any(asked.text(name) for name in _FILTERS),
        show=show,
        found=found,
        part=part_of(asked, "/memories", _PAGE, found.shown, found.total),
        shared=await _shared(service, query) if number == 1 and is_unfiltered else (),
        rows=[shown(one, later=later, titles=titles, evidence=evidence, query=query) for one in found.shown],
        spheres=SPHERES,
        ways=await memory.ways() if is_start else None,
        days=_days(await memory.by_day()) if is_start else (),
        with_way=lambda name, value: path_with("/memories", {name: value}),
        here=path_with("/memories", {**asked.values, "chosen": ""}),
        chosen=asked.text("chosen") == "1",
        choose=path_with("/memories", {**asked.values, "chosen": "" if asked.text("chosen") else "1"}),
        learnt=await memory.count(**learnt_lately(service)),
        show_all=path_with("/memories", {**asked.values, "show": "all", "page": ""}),
        without_session=path_with("/memories", {**asked.values, "session": "", "page": ""}),
        session_title=titles.get(asked.text("session"), ""),
        stats=await memory.stats(),
        tags=await memory.tags(limit=_MOST_TAGS),
        kinds=KINDS,
        types=TYPES,
        is_start=is_start,
        profile=await memory.standing(
            page_tokens=settings.page_tokens, profile_tokens=settings.profile_tokens, confidential=True
        ),
        sections=SECTIONS,
        waits=await memory.page_waits(),
        agenda=await memory.agenda(budget_tokens=settings.agenda_tokens),
        settings=settings,
        degraded=memory.degraded,
        over_time=over_time(await memory.by_day(), service.satchel.clock.now().date()) if is_start else None,
        typed={},
        problems={},
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A page of results, their number, and whether there may be more."""

    shown: Sequence[Any]
    total: int
    is_capped: bool = False


async def _shared(service: Service, query: str) -> Sequence[MemoryRecord]:
    """What others share with the user and fits, or the newest of it; the page Shared has all."""
    spaces = service.satchel.home.spaces
    if spaces is None:
        return ()
    found = await (spaces.search(query, limit=_PAGE) if query else spaces.list(limit=_MOST_SHARED))
    return [hit.memory for hit in found.hits]


def _memory_of(found: Any) -> MemoryRecord:
    memory: MemoryRecord = found if isinstance(found, MemoryRecord) else found.memory
    return memory


async def _found(
    memory: Memory,
    asked: FieldReader,
    wanted: Filters,
    query: str,
    number: int,
    now: datetime,
    *,
    everything: bool,
) -> _Found:
    if asked.problems:
        return _Found((), 0)
    wanted["folded"] = True
    if not query:
        if not everything and wanted.get("as_of") is None:
            wanted["as_of"] = now
        listed = await memory.list(limit=_PAGE, offset=(number - 1) * _PAGE, facts_first=True, **wanted)
        return _Found(listed, await memory.count(**wanted))
    wanted["not_by_models"] = True
    hits: Sequence[Hit] = await memory.search(
        query, limit=_MOST_FOUND, relevant_only=True, include_superseded=everything, **wanted
    )
    return _Found(hits[(number - 1) * _PAGE : number * _PAGE], len(hits), len(hits) == _MOST_FOUND)


def _filters(asked: FieldReader, service: Service) -> Filters:
    zone = service.satchel.clock.now().tzinfo
    since, until, as_of = asked.day("since"), asked.day("until"), asked.day("as_of")
    kind = asked.one_of("kind", get_args(Kind))
    about = asked.one_of("type", TYPES)
    tag = asked.text("tag")
    return Filters(
        kind=kind or None,  # type: ignore[typeddict-item]
        memory_type=about or None,  # type: ignore[typeddict-item]
        tags=[tag] if tag else [],
        session=asked.text("session") or None,
        sphere=asked.text("sphere") or None,
        named=asked.text("named") or None,
        since=day_start(since, zone) if since else None,
        # "Until" a day includes it.
        until=day_start(until + timedelta(days=1), zone) if until else None,
        as_of=day_start(as_of + timedelta(days=1), zone) if as_of else None,
    )


def learnt_lately(service: Service) -> Filters:
    """The facts of the last seven days that hold and that the user has neither kept nor changed yet."""
    now = service.satchel.clock.now()
    return Filters(unreviewed=True, since=now - timedelta(days=7), as_of=now)


def _days(counts: Sequence[DayCount]) -> list[date]:
    """The newest days on which something was said that is remembered."""
    return sorted({one.day for one in counts}, reverse=True)[:_MOST_DAYS]


async def titles_of(service: Service) -> Mapping[str, str]:
    """The titles of all sessions, by id."""
    return {info.id: info.title for info in await service.satchel.sessions.list()}


@router.post("/memories")
async def add(request: Request, service: Serves) -> Response:
    """Store one memory."""
    form = await form_of(request)
    content, tags = form.get("content"), tags_in(form.get("tags"))
    try:
        if space := form.get("space"):
            await service.spaces.add(space, content)
            return see_other(request, "/spaces", say=Saying(text=f"Shared in {space}."))
        id = await service.memory.add(content, tags=tags, cues=[])
        if form.has("pin"):
            await service.memory.pin(id)
    except (NotFound, UsageError, Refused) as error:
        return await page(
            request,
            "memory-add.html",
            title="Add a memory",
            current="/memories",
            status=422,
            problem=str(error),
            content=content,
            form_tags=", ".join(tags),
            pin=form.has("pin"),
        )
    return see_other(request, f"/memories/{id}", say=Saying(text="Remembered."))


def tags_in(text: str) -> list[str]:
    """The tags in a field, separated by commas."""
    return [tag.strip() for tag in text.split(",") if tag.strip()][:_MOST_TAGS_GIVEN]


# ---- What models are shown


@router.get("/memories/recalled")
async def recalled(request: Request, service: Serves) -> Response:
    """What a message would recall now and why, and what models were shown recently."""
    asked = FieldReader.of(request)
    message = asked.text("message")
    settings = service.satchel.settings.memory
    found: Recall | None = None
    if message:
        found = await service.memory.recall(
            message,
            budget_tokens=settings.budget_tokens,
            limit=settings.limit,
            threshold=settings.surface_threshold,
        )
    newest = await kept_of(request).lately.surfaced()
    return await page(
        request,
        "recalled.html",
        title="What is recalled",
        current="/memories",
        status=asked.status,
        asked=asked,
        message=message,
        found=found,
        reasons=reasons_of,
        threshold=settings.surface_threshold,
        titles=await titles_of(service),
        surfaced=part_of(asked, "/memories/recalled", _MOST_SURFACED, newest),
    )


# ---- What is kept over time


@dataclass(frozen=True, slots=True)
class _Span:
    """One column: a month, a quarter or a year."""

    words: str
    label: str
    said: int
    facts: int
    summaries: int
    is_now: bool

    @property
    def total(self) -> int:
        return self.said + self.facts + self.summaries


@dataclass(frozen=True, slots=True)
class OverTime:
    """The chart, and the same as a table, the newest first."""

    chart: Any
    spans: Sequence[_Span]
    unit: str


_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


def over_time(days: Sequence[DayCount], today: date) -> OverTime | None:
    """Memories by the time when they were said: by month, or by longer spans if there would be too many columns."""
    if not days:
        return None
    first = min(day.day for day in days)
    last = max(today, max(day.day for day in days))
    fitting = (one for one in _MONTHS if _index(last, one) - _index(first, one) < _MOST_COLUMNS)
    unit = next(fitting, "year")
    counts: Counter[tuple[int, str]] = Counter()
    for day in days:
        counts[_index(day.day, unit), day.kind] += day.count
    end = _index(last, unit)
    begin = max(_index(first, unit), end - _MOST_COLUMNS + 1)
    spans = [
        _Span(
            *_span_words(index, unit),
            counts[index, "episode"],
            counts[index, "fact"],
            counts[index, "summary"],
            index == _index(today, unit),
        )
        for index in range(begin, end + 1)
    ]
    most = max(spans, key=lambda span: span.total)
    chart = column_chart(
        [
            ChartColumn(
                span.label, (float(span.said), float(span.facts), float(span.summaries)), is_now=span.is_now
            )
            for span in spans
        ],
        title=f"Memories by the {unit} in which they were said",
        description=f"The most, {most.total:,}, are from {most.words}. "
        f"{counted(sum(span.facts for span in spans), 'fact')} and "
        f"{counted(sum(span.said for span in spans), 'message')} are drawn. The table below has every number.",
        id="over-time",
    )
    return OverTime(chart, spans[::-1], unit)


def _index(day: date, unit: str) -> int:
    return (day.year * 12 + day.month - 1) // _MONTHS[unit]


def _span_words(index: int, unit: str) -> tuple[str, str]:
    """A span in words, and the label of its column: the year, where one begins."""
    year, month = divmod(index * _MONTHS[unit], 12)
    quarter = month // 3 + 1
    name = f"{date(2000, month + 1, 1):%B}"
    words = {"month": f"{name} {year}", "quarter": f"quarter {quarter} of {year}", "year": str(year)}
    return words[unit], str(year) if month == 0 else name[:3] if unit == "month" else f"Q{quarter}"
