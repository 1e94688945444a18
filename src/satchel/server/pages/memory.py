"""`/memories/{id}`: one memory with its source, history and links; correct it, pin it, forget it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

from fastapi import APIRouter, HTTPException, Request
from starlette.datastructures import UploadFile
from starlette.responses import Response

from satchel.errors import NotFound, Refused, UsageError
from satchel.memory import Change, Edge, Hit, Memory, MemoryRecord
from satchel.memory.spheres import SPHERES, moved_spheres
from satchel.memory.transfer.report import ImportReport
from satchel.runtime.forgetting import ForgetReceipt
from satchel.runtime.importing import CONVERSATIONS
from satchel.runtime.lines import counted, one_line
from satchel.runtime.pictures import picture_file
from satchel.server.pages.charts import Neighbour, graph
from satchel.server.pages.kept import kept_of
from satchel.server.pages.memories import learnt_lately, tags_in, titles_of
from satchel.server.pages.memory_words import (
    DISCRETIONS,
    TIERS,
    TRUST,
    TYPES,
    change_words,
    changed_fields,
    field_words,
    reasons_of,
    receipt_sentence,
    relation_words,
    said_of,
    shown,
    value_words,
)
from satchel.server.pages.queries import FieldReader, day_start, path_with
from satchel.server.pages.rendering import Form, Saying, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)

_IMPORT_WAIT_S: Final = 2.0
"""An import that takes longer shows how far it is."""
_MOST_LINKED: Final = 60
_MOST_SURFACED: Final = 8
_MOST_AT_ONCE: Final = 200
_QUOTE_CHARS: Final = 1200
_FIELDS: Final = (
    "content",
    "tags",
    "valid_from",
    "valid_to",
    "importance",
    "memory_type",
    "tier",
    "speaker",
    "why",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """A memory that edges lead to.

    Attributes:
        words: How the shown memory is related to it.
        is_source: It is a source of the shown memory.
        is_thread: One of the two is a source of the other.
        is_past: The shown memory replaced it.
    """

    memory: MemoryRecord
    words: str
    weight: float
    is_source: bool
    is_thread: bool
    is_past: bool


@dataclass(frozen=True, slots=True)
class Quoted:
    """The words that a memory is based on: before, in and after the quote."""

    memory: MemoryRecord
    before: str
    quote: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStep:
    """A change in the history.

    Attributes:
        words: Who did what.
        fields: Each field with its name, before and after.
        link: For a changed link: how this memory is related to the other, in words, and the other's id.
        is_link_gone: The link was removed.
    """

    change: Change
    words: str
    fields: Sequence[tuple[str, str, str]]
    link: tuple[str, str] | None
    is_link_gone: bool
    can_undo: bool


async def _page(
    request: Request,
    service: Service,
    record: MemoryRecord,
    *,
    asked: FieldReader,
    typed: Mapping[str, str] | None = None,
    problem: str = "",
    changed_meanwhile: bool = False,
) -> Response:
    memory = await service.memory_with(record.id)
    later = await memory.later([record.id])
    linked = await _linked(memory, record)
    history = await memory.history(record.id)
    message = asked.text("message")
    titles = await titles_of(service)
    now = service.satchel.clock.now()
    return await page(
        request,
        "memory.html",
        title=one_line(record.content, 60),
        current="/memories",
        status=422 if problem else 409 if changed_meanwhile else asked.status,
        one=shown(record, later=later, titles=titles),
        record=record,
        picture=await picture_file(service.satchel.sessions, record),
        is_over=record.valid_to is not None and record.valid_to <= now,
        trust=TRUST[record.trust],
        tiers=TIERS,
        discretions=DISCRETIONS,
        spheres=(*SPHERES, *(one for one in record.spheres if one not in SPHERES)),
        types=TYPES,
        quotes=_quotes(record, linked),
        linked=linked,
        drawing=_drawing(record, linked, later.get(record.id, ())),
        steps=_steps(history, record.id),
        names={link.memory.id: one_line(link.memory.content, 80) for link in linked},
        seen=history[-1].id if history else "",
        surfaced=(await kept_of(request).lately.surfaced_with(record.id))[:_MOST_SURFACED],
        message=message,
        why=await _why(service, record, message) if message else None,
        typed=typed or _typed(record),
        problem=problem,
        changed_meanwhile=changed_meanwhile,
    )


def _typed(record: MemoryRecord) -> dict[str, str]:
    """The fields of the form, as the memory is now."""
    return {
        "content": record.content,
        "tags": ", ".join(record.tags),
        "valid_from": record.valid_from.date().isoformat() if record.valid_from else "",
        "valid_to": record.valid_to.date().isoformat() if record.valid_to else "",
        "importance": str(record.importance),
        "memory_type": record.memory_type,
        "tier": record.tier,
        "speaker": record.speaker,
        "why": "",
    }


# ---- Where it comes from, and what it is linked to


async def _linked(memory: Memory, record: MemoryRecord) -> list[Linked]:
    """The memories at the other ends, each once: the strongest first."""
    by_other: dict[str, list[Edge]] = {}
    for edge in (await memory.edges(record.id))[:_MOST_LINKED]:
        by_other.setdefault(_other(edge, record.id), []).append(edge)
    found = []
    for other, edges in by_other.items():
        try:
            there = await memory.get(other)
        except NotFound:  # forgotten meanwhile
            continue
        words = dict.fromkeys(
            relation_words(edge.relation, outgoing=edge.source == record.id) for edge in edges
        )
        outgoing = {edge.relation for edge in edges if edge.source == record.id}
        found.append(
            Linked(
                memory=there,
                words=", ".join(words),
                weight=max(edge.weight for edge in edges),
                is_source="derived_from" in outgoing,
                is_thread=any(edge.relation == "derived_from" for edge in edges),
                is_past="supersedes" in outgoing,
            )
        )
    return found


def _other(edge: Edge, id: str) -> str:
    return edge.target if edge.source == id else edge.source


def _quotes(record: MemoryRecord, linked: Sequence[Linked]) -> list[Quoted]:
    """Its sources, oldest first: the turns with the quote in them, or the quote alone."""
    quote = record.source.quote or ""
    found = [
        _quoted(one.memory, quote)
        for one in sorted(linked, key=lambda one: one.memory.said_at)
        if one.is_source
    ]
    return found if found or not quote else [Quoted(record, "", quote, "")]


def _quoted(source: MemoryRecord, quote: str) -> Quoted:
    """A turn around the quote, or its beginning if the quote isn't in it."""
    text = source.content
    at = text.find(quote) if quote else -1
    if at < 0:
        return Quoted(source, one_line(text, _QUOTE_CHARS), "", "")
    end = at + len(quote)
    before, after = text[max(0, at - _QUOTE_CHARS // 2) : at], text[end : end + _QUOTE_CHARS // 2]
    return Quoted(
        source,
        f"… {before}" if at > _QUOTE_CHARS // 2 else before,
        quote,
        f"{after} …" if end + _QUOTE_CHARS // 2 < len(text) else after,
    )


def _drawing(record: MemoryRecord, linked: Sequence[Linked], later: Sequence[Any]) -> Any:
    if not linked:
        return None
    sources = [one for one in linked if one.is_source]
    others = [one for one in linked if not one.is_source]
    label = f"{counted(len(sources), 'memory leads', 'memories lead')} to this one. "
    label += f"It is linked to {counted(len(others), 'other')}. The list below says the same."
    return graph(
        record.content,
        sources=[
            Neighbour(
                words=f"turn {one.memory.source.turn}" if one.memory.source.turn else "stored",
                href=f"/memories/{one.memory.id}",
                relation=f"{one.memory.said_at.day} {one.memory.said_at:%b %Y}",
                is_thread=True,
            )
            for one in sources
        ],
        others=[
            Neighbour(
                words=one.memory.content,
                href=f"/memories/{one.memory.id}",
                relation=one.words,
                is_thread=one.is_thread,
                is_past=one.is_past,
            )
            for one in others
        ],
        label=label,
        is_past=any(one.is_certain for one in later),
    )


# ---- Its history


def _steps(history: Sequence[Change], id: str) -> list[HistoryStep]:
    """The newest first."""
    return [_step(change, id) for change in reversed(history)]


def _step(change: Change, id: str) -> HistoryStep:
    after = change.after.get("edge")
    edge = after or change.before.get("edge")
    link = None
    if isinstance(edge, Mapping):
        outgoing = edge.get("source") == id
        other = str(edge.get("target" if outgoing else "source"))
        link = relation_words(str(edge.get("relation")), outgoing=outgoing), other
    return HistoryStep(
        change=change,
        words=change_words(change),
        fields=()
        if change.action == "add"
        else [
            (
                field_words(name),
                value_words(name, change.before.get(name)),
                value_words(name, change.after.get(name)),
            )
            for name in changed_fields(change)
        ],
        link=link,
        is_link_gone=not isinstance(after, Mapping) or after.get("weight") is None,
        can_undo=change.action not in ("add", "forget") and change.undone_by is None,
    )


# ---- Why it is recalled


@dataclass(frozen=True, slots=True)
class Why:
    """The result for a message: the memory would be shown with these reasons, or why not."""

    is_shown: bool
    sure: float | None
    reasons: Sequence[str]
    left_out: str
    instead: Sequence[Hit]


async def _why(service: Service, record: MemoryRecord, message: str) -> Why:
    settings = service.satchel.settings.memory
    found = await (await service.memory_with(record.id)).recall(
        message,
        budget_tokens=settings.budget_tokens,
        limit=settings.limit,
        threshold=settings.surface_threshold,
    )
    instead = found.context.memories[:3]
    for hit in found.context.memories:
        if hit.memory.id == record.id:
            return Why(True, hit.score, reasons_of(hit), "", ())
    for hit, reason in found.left_out:
        if hit.memory.id == record.id:
            return Why(False, hit.score or None, reasons_of(hit), reason, instead)
    return Why(False, None, (), "it is not relevant enough", instead)


# ---- Import and export


@router.get("/memories/move")
async def moving(request: Request, service: Serves) -> Response:
    """Send a file to import, see how far the import is, and download everything."""
    return await _moving(request, service)


async def _moving(request: Request, service: Service, problem: str = "") -> Response:
    importing = copy(service.importing)  # it may end while the page is made
    return await page(
        request,
        "memory-move.html",
        title="Import and export",
        current="/memories",
        status=422 if problem else 200,
        problem=problem,
        importing=importing,
        came=_came_of(importing.report) if importing.report is not None else None,
    )


@router.post("/memories/move")
async def import_file(request: Request, service: Serves) -> Response:
    """Import the file that was sent, in whichever known format it is."""
    async with request.form(max_files=1, max_fields=10) as form:
        sent = form.get("file")
        if not isinstance(sent, UploadFile) or not sent.filename:
            return await _moving(request, service, "Choose a file first.")
        await service.importing.begin(await sent.read(), sent.filename, wait_s=_IMPORT_WAIT_S)
    problem, service.importing.problem = service.importing.problem, ""
    if problem:
        return await _moving(request, service, problem)
    if service.importing.report is None:
        return see_other(request, "/memories/move")
    came, service.importing.report = _came_of(service.importing.report), None
    return see_other(request, "/memories", say=came)


def _came_of(report: ImportReport) -> Saying:
    """What came of an import."""
    skipped = sum(report.skipped.values())
    conversations = [
        f"{counted(n, 'conversation')} {CONVERSATIONS[what]}"
        for what, n in report.conversations.items()
        if what != "new"
    ]
    new = report.conversations.get("new", 0)
    came = f"{counted(new, 'new conversation')}, " if new else ""
    memories = counted(report.new, "memory", "memories")
    return Saying(
        text=f"Imported {came}{memories}; {report.known:,} known, {skipped:,} skipped.",
        state="done" if report.new or report.known else "off",
        raw="\n".join([*conversations, *(f"{n:,} skipped: {why}" for why, n in report.skipped.items())]),
        link="/sessions" if report.conversations else "",
        link_label="Conversations" if report.conversations else "",
    )


@router.get("/memories/export")
async def export(service: Serves) -> Response:
    """All memories as a download, as `satchel memory export` writes them."""
    written = BytesIO()
    await service.memory.export_to(written)
    day = service.satchel.clock.now().date()
    return Response(
        written.getvalue(),
        media_type="application/octet-stream",
        headers={
            "cache-control": "private, no-store",
            "content-disposition": f"attachment; filename=memories-{day}.jsonl",
        },
    )


# ---- Changes that one button makes, of one memory or of several


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deed:
    """A change that needs no more than a button.

    Attributes:
        said: What the user is told of one memory, and `done` the word for several.
        fields: What is edited; "now" stands for the time. Nothing for pins.
    """

    said: str
    done: str
    fields: Mapping[str, Any] = field(default_factory=dict)


_DEEDS: Final = {
    "pin": _Deed(said="Every conversation begins with it from now on.", done="Pinned"),
    "unpin": _Deed(
        said="No longer pinned. Its importance may still keep it in the profile.",
        done="No longer pinned",
    ),
    "outdated": _Deed(
        said="It no longer holds.",
        done="No longer holding",
        fields={"valid_to": "now", "why": "It is out of date."},
    ),
    "holds": _Deed(
        said="It holds again.",
        done="Holding again",
        fields={"valid_to": None, "why": "It holds after all."},
    ),
    "confidential": _Deed(
        said="It will be shown only when you ask about it.",
        done="Confidential",
        fields={"discretion": "confidential"},
    ),
    "open": _Deed(
        said="It will be shown again where it helps.",
        done="No longer confidential",
        fields={"discretion": "open"},
    ),
}


_DONE: Final = {"sphere": "Moved", "correct": "Corrected"}


async def carry_out(service: Service, id: str, do: str, form: Form, *, why: str = "") -> str | None:
    """Change a memory; `why` stands in its history. Returns the change, or None if it was so already."""
    match do:
        case "correct":
            return await (await service.memory_with(id)).edit(id, content=form.get("content"), why=why)
        case "sphere":
            memory = await service.memory_with(id)
            record = await memory.get(id)
            return await memory.edit(id, spheres=moved_spheres(record.spheres, form.get("sphere")))
        case "pin":
            return await (await service.memory_with(id)).pin(id)
        case "unpin":
            return await (await service.memory_with(id)).unpin(id)
        case _:
            now = service.satchel.clock.now()
            fields: dict[str, Any] = dict(_DEEDS[do].fields)
            if fields.get("valid_to") == "now":
                fields["valid_to"] = now
            return await (await service.memory_with(id)).edit(id, **fields | ({"why": why} if why else {}))


@router.post("/memories/many")
async def many(request: Request, service: Serves) -> Response:
    """Change or forget several. What can't be done with one of them is told, and is done with the others."""
    form = await form_of(request)
    do, back = form.get("do"), form.get("back")
    ids = list(dict.fromkeys([*form.all("id"), *form.get("ids").split()]))
    if do != "undo":  # Half of the changes would be worse than none.
        ids = ids[:_MOST_AT_ONCE]
    back = _way_back(back)
    if not ids:
        say = Saying(text="Tick the boxes of the memories first.", state="off")
    elif do == "forget":
        say = await _forget_many(request, service, ids, back, is_confirmed=form.has("confirmed"))
    elif do == "merge":
        return see_other(request, path_with("/memories/merge", {"ids": " ".join(ids), "back": back}))
    elif do == "undo":
        # The ids are those of changes then.
        await service.undo(*ids)
        say = Saying(text=f"Undone: {counted(len(ids), 'change')}.")
    elif do in _DEEDS or do in ("sphere", "correct"):
        if do == "correct" and len(ids) > 1:
            raise UsageError("Correct one memory at a time.")
        done, failed = list[str](), list[str]()
        for id in ids:
            try:
                change = await carry_out(service, id, do, form)
                done += [change] if change is not None else []
            except (UsageError, Refused, NotFound) as error:
                failed.append(f"{id}: {error}")
        say = Saying(
            text=f"{_DONE.get(do) or _DEEDS[do].done}: {counted(len(done), 'memory', 'memories')}.",
            state="warn" if failed else "done" if done else "off",
            raw="\n".join(failed),
            action="/memories/many" if done else "",
            fields={"ids": " ".join(done), "do": "undo", "back": back},
        )
    else:
        raise UsageError(f"A memory can't be {do!r}.")
    return see_other(request, back, say=say)


def _way_back(given: str) -> str:
    """Where a form came from, if that is a list of memories."""
    is_list = given in ("/memories", "/memories/review") or given.startswith(
        ("/memories?", "/memories/review?")
    )
    return given if is_list else "/memories"


@router.get("/memories/merge")
async def before_merging(request: Request, service: Serves) -> Response:
    """The facts that are to become one, with the words to choose."""
    asked = FieldReader.of(request)
    return await _merging(request, service, asked.text("ids").split(), asked.text("back"))


async def _merging(
    request: Request, service: Service, ids: Sequence[str], back: str, *, content: str = "", problem: str = ""
) -> Response:
    memory = await service.memory_with(ids[0]) if ids else service.memory
    told = await _told(memory, ids[:_MOST_AT_ONCE])
    records = sorted(told.values(), key=lambda one: one.said_at, reverse=True)
    return await page(
        request,
        "memory-merge.html",
        title="Merge memories",
        current="/memories",
        status=422 if problem else 200,
        records=records,
        said=[said_of(one, service.satchel.clock.now()) for one in records],
        content=content or (records[0].content if records else ""),
        problem=problem,
        back=_way_back(back),
    )


@router.post("/memories/merge")
async def merge(request: Request, service: Serves) -> Response:
    """Make one fact of several."""
    form = await form_of(request)
    ids, back = form.all("id"), _way_back(form.get("back"))
    try:
        memory = await service.memory_with(ids[0]) if ids else service.memory
        kept, done = await memory.merge(ids[:_MOST_AT_ONCE], form.get("content"))
    except (UsageError, Refused, NotFound) as error:
        return await _merging(request, service, ids, back, content=form.get("content"), problem=str(error))
    say = Saying(
        text=f"Merged: {counted(len(ids), 'memory', 'memories')} are one now.",
        action="/memories/many",
        fields={"ids": " ".join(done), "do": "undo", "back": back},
        link=f"/memories/{kept}",
    )
    return see_other(request, back, say=say)


@router.get("/memories/review")
async def review(request: Request, service: Serves) -> Response:
    """The facts of the week that the user hasn't looked at, one at a time, the oldest first."""
    asked = FieldReader.of(request)
    wanted = learnt_lately(service)
    total = await service.memory.count(**wanted)
    later = asked.number("later", 0, low=0, high=_MOST_AT_ONCE)
    at = max(0, total - 1 - later)
    found = await service.memory.list(limit=1, offset=at, **wanted) if total > later else ()
    evidence = await service.memory.evidence([one.id for one in found])
    titles = await titles_of(service)
    return await page(
        request,
        "memory-review.html",
        title="Review",
        current="/memories",
        status=asked.status,
        ones=[shown(one, later={}, titles=titles, evidence=evidence) for one in found],
        total=total,
        later=later,
    )


@router.post("/memories/review")
async def judge(request: Request, service: Serves) -> Response:
    """Keep a fact as it is, or with other words."""
    form = await form_of(request)
    memory = await service.memory_with(form.get("id"))
    record = await memory.get(form.get("id"))
    try:
        change = (
            await memory.edit(record.id, content=form.get("content"), why="Changed in a review.")
            if form.get("do") == "change"
            else None
        )
        change = change or await memory.keep(record.id)
    except (UsageError, Refused) as error:
        return see_other(request, "/memories/review", say=Saying(text=str(error), state="warn"))
    say = Saying(
        text=f"{'Changed' if form.get('do') == 'change' else 'Kept'}: {one_line(record.content, 80)}",
        action="/memories/many",
        fields={"ids": change, "do": "undo", "back": "/memories/review"},
    )
    number = form.get("later")
    return see_other(request, path_with("/memories/review", {"later": number}), say=say)


async def _forget_many(
    request: Request, service: Service, ids: Sequence[str], back: str, *, is_confirmed: bool
) -> Saying:
    if is_confirmed:
        return _saying_of(request, await service.satchel.forget(ids))
    plan = (await service.satchel.forget(ids, dry_run=True)).store
    along = len(plan.forgotten) - len(ids)
    more = f", and {along:,} that rest on them alone" if along > 0 else ""
    return Saying(
        text=f"Forget {counted(len(ids), 'memory', 'memories')} for good{more}? It can’t be undone.",
        state="warn",
        action="/memories/many",
        label="Forget for good",
        fields={"ids": " ".join(ids), "do": "forget", "confirmed": "1", "back": back},
    )


@router.get("/memories/{id}")
async def show(request: Request, service: Serves, id: str) -> Response:
    """One memory, or that it was forgotten."""
    try:
        record = await (await service.memory_with(id)).get(id)
    except NotFound:
        return await _forgotten(request, service, id)
    return await _page(request, service, record, asked=FieldReader.of(request))


# ---- Changing it


@router.post("/memories/{id}")
async def edit(request: Request, service: Serves, id: str) -> Response:
    """Correct it. If something is wrong, the form keeps what was typed."""
    form = await form_of(request)
    memory = await service.memory_with(id)
    record = await memory.get(id)
    typed = {name: form.get(name) for name in _FIELDS}
    history = await memory.history(record.id)
    if form.get("seen") and history and history[-1].id != form.get("seen"):
        return await _page(
            request, service, record, asked=FieldReader({}), typed=typed, changed_meanwhile=True
        )
    try:
        change = await memory.edit(record.id, **_edits(form, record, service), why=typed["why"])
    except (UsageError, Refused) as error:
        return await _page(request, service, record, asked=FieldReader({}), typed=typed, problem=str(error))
    return see_other(request, f"/memories/{record.id}", say=_said(record.id, "Saved.", change))


def _edits(form: Form, record: MemoryRecord, service: Service) -> dict[str, Any]:
    """The differences between the form and the stored memory.

    Raises:
        UsageError: A field can't be read.
    """
    now = _typed(record)
    edits: dict[str, Any] = {}
    for name in ("content", "memory_type", "tier", "speaker"):
        if form.has(name) and form.get(name) != now[name].strip():
            edits[name] = form.get(name)
    if form.has("tags") and tags_in(form.get("tags")) != list(record.tags):
        edits["tags"] = tags_in(form.get("tags"))
    if form.has("importance") and form.get("importance") != now["importance"]:
        number = form.get("importance")
        if number not in ("1", "2", "3", "4", "5"):
            raise UsageError(f"The importance is {number[:40]!r}; it goes from 1 (trivial) to 5 (critical).")
        edits["importance"] = int(number)
    zone = service.satchel.clock.now().tzinfo
    asked = FieldReader({name: form.get(name) for name in ("valid_from", "valid_to")})
    for name, stored in (("valid_from", record.valid_from), ("valid_to", record.valid_to)):
        if form.has(name) and form.get(name) != now[name]:
            day = asked.day(name)
            edits[name] = day_start(day, stored.tzinfo if stored else zone) if day else None
    if asked.problems:
        raise UsageError(" ".join(asked.problems.values()))
    return edits


def _said(id: str, text: str, change: str | None) -> Saying:
    if change is None:
        return Saying(text="Nothing was changed.", state="off")
    return Saying(text=text, action=f"/memories/{id}/undo", fields={"change": change})


@router.post("/memories/{id}/undo")
async def undo(request: Request, service: Serves, id: str) -> Response:
    """Undo a change."""
    record = await (await service.memory_with(id)).get(id)
    number = (await form_of(request)).get("change")
    # Only changes of this memory: the id comes from a page.
    if number not in {change.id for change in await (await service.memory_with(id)).history(record.id)}:
        raise NotFound("There is no such change of this memory.")
    try:
        done = await (await service.memory_with(id)).undo(number)
    except UsageError as error:
        return see_other(request, f"/memories/{record.id}", say=Saying(text=str(error), state="warn"))
    return see_other(request, f"/memories/{record.id}", say=_said(record.id, "Undone.", done))


@router.post("/memories/{id}/spheres")
async def spheres(request: Request, service: Serves, id: str) -> Response:
    """Put it into a sphere, or take it out."""
    record = await (await service.memory_with(id)).get(id)
    wanted = (await form_of(request)).get("sphere")
    kept = [one for one in record.spheres if one != wanted]
    done = await (await service.memory_with(id)).edit(
        record.id, spheres=kept if wanted in record.spheres else [*kept, wanted]
    )
    return see_other(request, f"/memories/{record.id}", say=_said(record.id, "Saved.", done))


# ---- Forgetting it


@router.get("/memories/{id}/forget")
async def before_forgetting(request: Request, service: Serves, id: str) -> Response:
    """A preview of what would be removed with it."""
    record = await (await service.memory_with(id)).get(id)
    plan = (await service.satchel.forget([record.id], dry_run=True)).store
    told = await _told(
        await service.memory_with(id), [*plan.echoes, *plan.still_said, *plan.requoted, *plan.reopened]
    )
    along = [gone.id for gone in plan.forgotten if gone.id != record.id]
    return await page(
        request,
        "memory-forget.html",
        title="Forget a memory",
        current="/memories",
        record=record,
        plan=plan,
        own=next((gone for gone in plan.forgotten if gone.id == record.id), None),
        along=await _told(await service.memory_with(id), along),
        told=told,
        titles=await titles_of(service),
        in_review=FieldReader.of(request).text("review") == "1",
        later=FieldReader.of(request).text("later"),
    )


async def _told(memory: Memory, ids: Sequence[str]) -> Mapping[str, MemoryRecord]:
    found = {}
    for id in dict.fromkeys(ids):
        try:
            found[id] = await memory.get(id)
        except NotFound:
            continue
    return found


@router.post("/memories/{id}/forget")
async def forget(request: Request, service: Serves, id: str) -> Response:
    """Forget it for good, and show the receipt."""
    record = await (await service.memory_with(id)).get(id)
    form = await form_of(request)
    wanted = [record.id]
    if form.has("restated"):
        plan = (await service.satchel.forget([record.id], dry_run=True)).store
        wanted += [other for other in form.all("also") if other in plan.still_said]
    receipt = await service.satchel.forget(wanted)
    if receipt.is_empty:
        raise NotFound(f"There is no memory {id!r}.")
    review = path_with("/memories/review", {"later": form.get("later")})
    to = review if form.has("review") else "/memories"
    return see_other(request, to, say=_saying_of(request, receipt))


def _saying_of(request: Request, receipt: ForgetReceipt) -> Saying:
    gone = receipt.store.forgotten
    number = kept_of(request).receipts.keep(receipt)
    return Saying(
        text=receipt_sentence(
            len(gone), sum(one.because_of is not None for one in gone), len(receipt.logs.sessions)
        ),
        meta="It can’t be restored.",
        state="warn" if receipt.logs.errors else "done",
        link=f"/memories/receipts/{number}",
        link_label="Receipt",
    )


@router.get("/memories/receipts/{number}")
async def receipt(request: Request, number: str) -> Response:
    """What was forgotten."""
    found: ForgetReceipt | None = kept_of(request).receipts.get(number)
    if found is None:
        raise NotFound("This receipt is no longer kept: the server shows the newest twenty since its start.")
    store = found.store
    return await page(
        request,
        "memory-receipt.html",
        title="Forgotten",
        current="/memories",
        receipt=found,
        vectors=sum(gone.vectors for gone in store.forgotten),
        edges=sum(gone.edges for gone in store.forgotten),
        tags=sum(gone.tags for gone in store.forgotten),
    )


async def _forgotten(request: Request, service: Service, id: str) -> Response:
    """The page of a forgotten memory, of which nothing else is left.

    Raises:
        NotFound: There never was one.
    """
    history = await (await service.memory_with(id)).history(id)
    return await page(
        request,
        "memory-forgotten.html",
        title="Forgotten",
        current="/memories",
        status=404,
        at=history[-1].at,
        who=change_words(history[-1]),
    )


@router.post("/memories/{id}/{do}")
async def change(request: Request, service: Serves, id: str, do: str) -> Response:
    """Pin it, say that it no longer holds, hold it back, or take one of these back."""
    if do not in _DEEDS:
        raise HTTPException(404)
    record = await (await service.memory_with(id)).get(id)
    try:
        done = await carry_out(service, record.id, do, await form_of(request))
    except (UsageError, Refused) as error:
        return see_other(request, f"/memories/{record.id}", say=Saying(text=str(error), state="warn"))
    return see_other(request, f"/memories/{record.id}", say=_said(record.id, _DEEDS[do].said, done))
