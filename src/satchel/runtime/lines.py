"""One-line texts for memories, sessions, approvals and costs, the same in every face.

The texts may come from a model, a tool or a file. A face that writes to a terminal has to escape control characters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from satchel.memory.show.page.records import Page
from satchel.memory.show.profile import LATELY
from satchel.memory.store.page_lines import SECTIONS
from satchel.memory.text.framing import earlier, short_id
from satchel.messages import Usage
from satchel.wording import LINE_CHARS, counted, one_line

if TYPE_CHECKING:
    from satchel.builder.records import BuildMessage
    from satchel.capabilities.kept import Returned
    from satchel.capabilities.records import Capability
    from satchel.config.settings import MemorySettings
    from satchel.memory import Agenda, Hit, MemoryRecord, PageVersion, Profile, Successor
    from satchel.runtime.forgetting import ForgetReceipt
    from satchel.sessions import SessionInfo, UsageRow
    from satchel.tools.external import ApprovalRecord, ExternalDefinition

__all__ = ["counted", "one_line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filing:
    """What a verb does to conversations: the arguments of `Satchel.file`, and the words that say that it is done."""

    change: Mapping[str, bool]
    done: str


FILING: Mapping[str, Filing] = {
    "pin": Filing(change={"pinned": True}, done="pinned"),
    "unpin": Filing(change={"pinned": False}, done="no longer pinned"),
    "archive": Filing(change={"archived": True}, done="archived"),
    "unarchive": Filing(change={"archived": False}, done="taken out of the archive"),
}
"""The verbs by which every face pins and archives conversations."""

_MEMORY_CHARS = 160
_PAGE_CHARS = 400
_MOST_LEFT_OUT = 10
_NO_ROOM = "No line has room: raise memory.agenda_tokens."
_NOTHING_AHEAD = "Nothing is known of today and the next seven days."
_MOST_FORGOTTEN = 100
"""The most ids of a receipt; a document may have thousands of passages."""


def memory_line(
    record: MemoryRecord,
    later: Sequence[Successor] = (),
    *,
    chars: int = _MEMORY_CHARS,
    evidence: Sequence[MemoryRecord] = (),
) -> str:
    """A memory: its id, date, speaker, beginning, tags and source, and whether it still holds. For `later` and
    `evidence`, see the methods of `Memory`; turns that it rests on have no lines of their own.
    """
    source = record.source
    if record.shared_in:
        place = f"shared in {record.shared_in}"
    elif source.document:
        place = f"{one_line(source.document)}, {source.place}"
    else:
        place = (
            f"session {one_line(source.session)}, turn {source.turn}" if source.session else "stored by hand"
        )
    speaker = f"{one_line(record.speaker)}: " if record.speaker else ""
    tags = f"  [{one_line(', '.join(record.tags))}]" if record.tags else ""
    content = one_line(record.content, chars)
    line = f"{record.id}  {record.said_at:%Y-%m-%d}  {speaker}{content}{tags}  ({place})"
    rests = f"  rests on {', '.join(one.id for one in evidence)}" if evidence else ""
    return line + rests + _holds(record, later) + _held_back(record)


def _held_back(record: MemoryRecord) -> str:
    """What a line says of a memory that is not shown unasked, and of its spheres."""
    why = f": {one_line(record.kept_from, 60)}" if record.kept_from else ""
    mark = "" if record.discretion == "open" else f"  {record.discretion}{why}"
    return mark + (f"  sphere: {', '.join(record.spheres)}" if record.spheres else "")


def _holds(record: MemoryRecord, later: Sequence[Successor]) -> str:
    """What a line says of a memory that has an end, or that a later one replaces; "" for one that simply holds."""
    end = record.valid_to if record.time is None else record.time.last
    until = "" if record.valid_to is None or end is None else f"  until {end:%Y-%m-%d}"
    certain = [one.memory.id for one in later if one.is_certain]
    if certain:
        return f"{until}  no longer holds: {', '.join(certain)}"
    likely = [one.memory.id for one in later]
    return f"{until}  may no longer hold: {', '.join(likely)}" if likely else until


def held_back_notice(held: Sequence[MemoryRecord]) -> str:
    """What was held back at the user's word, and how to forget or to lift it, without its words: it goes to the log."""
    ids = " ".join(short_id(one.id) for one in held)
    what = counted(len(held), "memory", "memories")
    if any(one.discretion == "withheld" for one in held):
        return (
            f"Held back, as you asked: {what} will be shown to no model. To remove for good: "
            f"`satchel memory forget {ids}`. To take it back: `satchel memory edit ID --discretion open`."
        )
    return (
        f"Confidential, as you asked: {what} will be shown only when you ask about it ({ids}). To take it back: "
        "`satchel memory edit ID --discretion open`."
    )


def hit_line(hit: Hit, later: Sequence[Successor] = (), *, evidence: Sequence[MemoryRecord] = ()) -> str:
    """A memory that a search found, with its score: of a long one the passage that fits, and where in it that is.

    `later` and `evidence` are as for `memory_line`.
    """
    line = memory_line(hit.memory, later, evidence=evidence)
    if hit.passage is not None:
        shown = replace(hit.memory, content=hit.passage.text)
        part = f"  (part {hit.passage.number} of {hit.passage.of})"
        line = memory_line(shown, later, chars=LINE_CHARS, evidence=evidence) + part
    if hit.answers is not None:
        line += f"  (answers: {one_line(hit.answers, _MEMORY_CHARS)})"
    if hit.is_over:
        line += "  over"
    return f"{hit.score:.2f}  {line}{earlier(hit.memory, hit.before)}"


def profile_lines(profile: Profile, *, budget_tokens: int) -> tuple[list[str], list[str]]:
    """The profile, and why it holds this and no more: what was asked for, and notes."""
    lines = [
        f"{line.id}  {one_line(line.words, _MEMORY_CHARS)}  "
        f"({line.section}; {line.why}; {counted(line.tokens, 'token')})"
        for line in profile.memories
    ]
    if not budget_tokens:
        return lines, ["The profile is off (memory.profile_tokens = 0)."]
    notes = [
        f"{profile.tokens:,} of {counted(budget_tokens, 'token')}. A conversation begins with it; pin and unpin "
        "change it."
        if lines
        else "Nothing is known yet that holds at all times. Say it, or pin a memory."
    ]
    notes += [_left_out(line.id, line.words, why) for line, why in profile.left_out[:_MOST_LEFT_OUT]]
    return lines, notes


def page_lines(page: Page, *, budget_tokens: int) -> tuple[list[str], list[str]]:
    """The page, and what it is: what was asked for, and notes."""
    lines: list[str] = []
    section = ""
    for line in page.memories:
        if line.section != section:
            section = line.section
            lines.append(SECTIONS[line.section])
        until = "" if line.until is None else f"until {line.until.isoformat()}; "
        by = {"user": "yours; ", "pin": "pinned; ", "room": "while there is room; "}.get(line.by, "")
        lines.append(f"  {one_line(line.words, _PAGE_CHARS)}  ({until}{by}{short_id(line.id)})")
    notes = [f"{page.tokens:,} of {counted(budget_tokens, 'token')}, {version_words(page.version)}."]
    if page.version.state == "proposed":
        notes.append(
            "No model sees it yet: it was written from what memory knew before. Accept it, or edit it first."
        )
    notes += [_left_out(line.id, line.words, why) for line, why in page.left_out[:_MOST_LEFT_OUT]]
    return lines, notes


def standing_lines(found: Page | Profile, settings: MemorySettings) -> tuple[list[str], list[str]]:
    """What stands before a model in every session: the page, or the profile where there is none."""
    if isinstance(found, Page):
        return page_lines(found, budget_tokens=settings.page_tokens)
    return profile_lines(found, budget_tokens=(1 + LATELY) * settings.profile_tokens)


def version_words(version: PageVersion) -> str:
    """What a version of the page is, in a few words."""
    by = "you" if version.by == "user" else version.model or "reading what was said"
    return f"version {version.number}, written {version.written_at.astimezone():%Y-%m-%d %H:%M} by {by}"


def agenda_lines(agenda: Agenda, *, budget_tokens: int) -> tuple[list[str], list[str]]:
    """The agenda, and why it holds this and no more: what was asked for, and notes."""
    lines = [
        f"{line.days}{line.doubt}  {memory.id}  {one_line(words, _MEMORY_CHARS)}"
        for line in agenda.memories
        for memory, words in ((line.memory, line.words), *line.more)
    ]
    if not budget_tokens:
        return lines, ["The agenda is off (memory.agenda_tokens = 0)."]
    # A memory that names its day twice says itself what it says.
    left_out = [(line, why) for line, why in agenda.left_out if line.id not in why]
    has_no_room = any(why == "no room left" for _, why in left_out)
    notes = [] if lines else [_NO_ROOM if has_no_room else _NOTHING_AHEAD]
    notes += [
        _left_out(line.id, f"{line.first}: {line.words}", why) for line, why in left_out[:_MOST_LEFT_OUT]
    ]
    return lines, notes


def _left_out(id: str, words: str, why: str) -> str:
    return f"Not in it: {id}  {one_line(words, 90)}  ({why})"


def receipt_lines(receipt: ForgetReceipt) -> list[str]:
    """What was forgotten, and where the words may remain."""
    gone = receipt.store.forgotten
    vectors, edges = sum(entry.vectors for entry in gone), sum(entry.edges for entry in gone)
    more = f" and {len(gone) - _MOST_FORGOTTEN:,} more" if len(gone) > _MOST_FORGOTTEN else ""
    lines = [f"Forgotten: {', '.join(entry.id for entry in gone[:_MOST_FORGOTTEN])}{more}"]
    lines += [
        f"  {entry.id} was forgotten too, because it was derived from {entry.because_of} alone"
        for entry in gone
        if entry.because_of
    ]
    index = counted(len(gone), "index entry", "index entries")
    lines.append(f"  with {index}, {counted(vectors, 'vector')}, {counted(edges, 'edge')}")
    store = receipt.store
    for ids, what in (
        (store.echoes, "repeated the words, which are replaced there"),
        (store.requoted, "rests on something else too, and no longer quotes what is gone"),
        (store.reopened, "holds again, because what superseded it was forgotten"),
    ):
        lines += [f"  {id} {what}" for id in ids]
    lines += [f"  ! {id} says the same in its own right, and is unchanged" for id in store.still_said]
    if not store.log_emptied:
        lines.append("  ! another process is using the database: its log keeps the words until that ends")
    for entry in receipt.logs.sessions:
        if entry.error:
            lines.append(f"  ! the log of conversation {entry.session_id} still has the words: {entry.error}")
        else:
            records = counted(len(entry.records), "record")
            lines.append(f"  and from {records} in the log of conversation {entry.session_id}")
        # This process has already reloaded its own sessions.
        if entry.open_in not in (None, os.getpid()):
            lines.append(
                f"  ! that conversation is open in process {entry.open_in}, which keeps the words until its "
                "next request"
            )
    return [
        *lines,
        *(f"  ! {path} may still hold the words: backups are not changed" for path in receipt.backups),
    ]


def session_line(info: SessionInfo) -> str:
    """A session: its id, the time of its last event, its title and its number of turns."""
    marks = [counted(len(info.branches), "branch", "branches")] if info.branches else []
    marks += [f"from {info.source}"] if info.source else []
    marks += [name for name in ("private", "pinned", "archived") if getattr(info, name)]
    when = f"{info.last_at.astimezone():%Y-%m-%d %H:%M}"
    title = one_line(info.title) or "(no messages)"
    return f"{info.id}  {when}  {title}  ({', '.join([counted(info.turns, 'turn'), *marks])})"


def usage_line(usage: Usage) -> str:
    """Tokens and cost in a few words; "" if nothing was spent."""
    if not usage.total_tokens:
        return ""
    about = "about " if usage.estimated else ""
    cached = f" ({usage.cache_read_tokens:,} cached)" if usage.cache_read_tokens else ""
    cost = f" · ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    tokens = counted(usage.input_tokens, "token")
    return f"{about}{tokens} in{cached}, {usage.output_tokens:,} out{cost}"


def spent_by_purpose(rows: Iterable[UsageRow]) -> dict[tuple[str, str, str], tuple[int, Usage]]:
    """Calls and usage by (day, model, purpose), the newest day first."""
    total: dict[tuple[str, str, str], tuple[int, Usage]] = {}
    for row in rows:
        key = (row.day, f"{row.provider}:{row.model}" if row.model else row.provider, row.purpose)
        calls, spent = total.get(key, (0, Usage()))
        total[key] = (calls + row.calls, spent + row.usage)
    return dict(sorted(sorted(total.items()), key=lambda item: item[0][0], reverse=True))


def usage_table(rows: Iterable[UsageRow], *, with_day: bool = True) -> str:
    """A line for each day, model and purpose, and their total; `with_day` says the day, which is the same otherwise."""
    spent = spent_by_purpose(rows)
    width = max((len(model) for _, model, _ in spent), default=5)
    wide = max(len(purpose) for purpose in ("purpose", *(purpose for _, _, purpose in spent)))

    def place(day: str, model: str, purpose: str) -> str:
        return (f"{day:10}  " if with_day else "") + f"{model:{width}}  {purpose:{wide}}"

    lines = [
        f"{place('day', 'model', 'purpose')}  {'calls':>5}  {'tokens in':>10}  {'cached':>10}  {'out':>9}  {'cost':>9}"
    ]
    total = Usage()
    all_calls = 0
    for (day, model, purpose), (calls, usage) in spent.items():
        total += usage
        all_calls += calls
        lines.append(_usage_row(place(day, model, purpose), calls, usage))
    if len(spent) > 1:
        lines.append(_usage_row(f"{'total':{len(place('', '', ''))}}", all_calls, total))
    unknown = dict.fromkeys(model for (_, model, _), (_, usage) in spent.items() if usage.cost_usd is None)
    if unknown and total.cost_usd is not None:
        lines.append(f"The cost of {', '.join(unknown)} is unknown and not part of the total.")
    return "\n".join(lines)


def _usage_row(what: str, calls: int, usage: Usage) -> str:
    cost = "unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    return (
        f"{what}  {calls:>5,}  {usage.input_tokens:>10,}  {usage.cache_read_tokens:>10,}  "
        f"{usage.output_tokens:>9,}  {cost:>9}"
    )


def approval_lines(record: ApprovalRecord) -> list[str]:
    """What an approval of an executable changed."""
    if record.was_same:
        return [f"{record.name} ({record.path}) is already approved and has not changed."]
    lines = [f"{record.name} ({record.path}) may be run from now on.", f"  sha256 {record.sha256}"]
    before = _definition_lines(record.before) if record.before is not None else []
    after = _definition_lines(record.after)
    lines += [f"  - {line}" for line in before if line not in after]
    lines += [f"  {'+' if line not in before else ' '} {line}" for line in after]
    return lines


def _definition_lines(definition: ExternalDefinition) -> list[str]:
    properties = definition.input_schema.get("properties", {})
    parameters = [f"{name}: {json.dumps(part, ensure_ascii=False)}" for name, part in properties.items()]
    required = ", ".join(definition.input_schema.get("required", ()))
    return [
        f"name: {definition.name}",
        f"description: {definition.description}",
        *parameters,
        *([f"required: {required}"] if required else []),
    ]


def asks_user(capability: Capability, asking: Iterable[BuildMessage]) -> bool:
    """Whether a build or a change of it, or a proposal of either, waits for the user's answer; `asking` are the open
    questions of builds.
    """
    return any(one.build_id == capability.build_id for one in asking)


def status_in_a_word(capability: Capability, asking: Iterable[BuildMessage]) -> str:
    """Its status, and "waiting" while its first version waits for the user's answer."""
    return (
        "waiting" if capability.status == "building" and asks_user(capability, asking) else capability.status
    )


def saved_in_words(calls: float, tokens: float, seconds: float) -> str:
    """What an earned tool saves; "" if that is nothing."""
    parts = {"call": round(calls), "token": round(tokens), "second": round(seconds)}
    return ", ".join(counted(number, unit) for unit, number in parts.items() if number)


def returned_line(returned: Sequence[Returned]) -> str:
    """What came back after the database was lost, what of it has to be approved again, and what changed elsewhere."""
    text = " ".join(
        f"{each.name} was changed at another machine, too. "
        + (
            f"What was changed here is in {each.place}, and is not used."
            if each.place is not None
            else "What was edited here is gone, because something in it is forgotten."
        )
        for each in returned
        if each.elsewhere
    )
    names = ", ".join(each.name for each in returned if not each.elsewhere)
    if not names:
        return text
    text += (" " if text else "") + (
        f"The database lacked what was last decided on capabilities. It was read back from their folders: {names}."
    )
    changed = ", ".join(each.name for each in returned if each.is_changed)
    if changed:
        text += (
            f" Files of {changed} are not those that were registered: read them, and then approve them again with "
            "`satchel capability approve NAME`."
        )
    return text
