"""Surfacing by words alone, read straight from the database file: for hooks of other agents while no server runs.

It goes by the same fitted weights as `surface` without an embedder (`need.shipped_weights`), over at most the newest
20,000 memories, and needs neither numpy nor SQLAlchemy: those take longer to load than a hook may take altogether.
Unlike `surface`, it doesn't recognise appointments that are over, and finds what was said later only by edges.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from satchel.memory.framing import (
    AGENDA_EMPTY,
    AGENDA_HEAD,
    AGENDA_TAIL,
    PROFILE_HEAD,
    PROFILE_TAIL,
    agenda_line,
    block_text,
    day_of_agenda,
    days_of_agenda,
    is_mere_question,
    profile_line,
    tokens_of,
)
from satchel.memory.need import READ_CHARS, asked_about, need_of, shipped_weights
from satchel.memory.newest import newest_of_each
from satchel.memory.stems import commonness, stems_of

if TYPE_CHECKING:
    from satchel.storage import Rows

__all__ = ["AGENDA_AHEAD_DAYS", "Glance", "KeptLine", "changed_of", "glance", "space_of", "standing_text"]

AGENDA_AHEAD_DAYS: Final = 7

_MOST_MEMORIES: Final = 20_000
"""The newest; each costs a microsecond for each of `_ASKED_STEMS`."""
_ASKED_STEMS: Final = 12
"""Those that tell most are looked for in every memory, the others only in those that were found."""
_MOST_STEMS: Final = 200
_NEAR: Final = 60
_EACH: Final = 16
"""As in `surface`: so many lines are weighed."""
_MESSAGE_CHARS: Final = 4_000
_K1: Final = 1.2
_B: Final = 0.75
_PRIOR_TEXTS: Final = 50.0
_MOST_WORDS: Final = 20.0
"""As in `candidates.evidence` and `choosing`."""
_BESIDE: Final = 0.3
_OUTSIDE_SHARE: Final = 3
_COUNT: Final = 0x7FFF
_FLOOR: Final = 0.05
_DAY_MICROS: Final = 86_400_000_000

_COLUMNS: Final = (
    "m.rid, m.id, m.content, m.kind, m.speaker, m.trust, m.said_at, m.said_offset_min, m.source_session, "
    "m.source_turn, m.priority, m.decay_rate, coalesce(u.last_accessed, m.created_at)"
)
_HOLDS: Final = (
    "m.discretion = 'open' AND (m.valid_to IS NULL OR m.valid_to > ?) "
    "AND (m.valid_from IS NULL OR m.valid_from <= ?)"
)


class _Source(NamedTuple):
    session: str | None
    turn: int | None


class _Memory(NamedTuple):
    """The fields of a `MemoryRecord` that a line shows."""

    rid: int
    id: str
    content: str
    kind: str
    speaker: str
    trust: str
    said_at: datetime
    source: _Source
    priority: float
    discretion: str = "open"
    kept_from: str = ""

    @property
    def is_assistants(self) -> bool:
        return self.trust == "agent" or self.speaker.casefold() == "assistant"


class Glance(NamedTuple):
    """What to show: the block, or "", and the ids of the memories in it."""

    text: str
    ids: tuple[str, ...]


class KeptLine(NamedTuple):
    """Where a line of the profile or the agenda stands in its memory, so that no words are kept a second time.

    Attributes:
        id: The memory's.
        changed: The memory's number of changes then; with another one, the words may be others.
        start: Where the words begin in its content; `length` is how many characters they have.
        first: Of an appointment, its first day in ISO 8601; `last` its last. "" in the profile.
        doubt: As in `agenda.AgendaLine`, and so are `lead` and `is_never_dropped`.
    """

    id: str
    changed: int
    start: int
    length: int
    first: str = ""
    last: str = ""
    doubt: str = ""
    lead: str = ""
    is_never_dropped: bool = False


def space_of(rows: Rows, *, user: str = "default", scope: str = "default") -> int | None:
    """The number of a space, or None if nothing was ever stored in it."""
    found = rows("SELECT id FROM memory_spaces WHERE user_id = ? AND scope = ?", (user, scope))
    return found[0][0] if found else None


def changed_of(rows: Rows, space: int, ids: Sequence[str]) -> dict[str, int]:
    """The number of the last change of some memories, by id."""
    marks = ", ".join("?" * len(ids))
    query = f"SELECT id, changed FROM memories WHERE space_id = ? AND id IN ({marks})"  # noqa: S608
    found = rows(query, (space, *ids))
    return dict(found)


def glance(
    rows: Rows,
    text: str,
    *,
    space: int,
    now: datetime,
    budget_tokens: int,
    limit: int,
    threshold: float | None = None,
    exclude: Collection[str] = (),
    exclude_session: str = "",
) -> Glance:
    """Choose what to show before a message, by its words.

    Args:
        rows: Reads the database.
        text: The message.
        space: By `space_of`.
        now: An aware time.
        budget_tokens: Of the block.
        limit: The most lines.
        threshold: How sure a line must be, 0 to 1; None is 0.5.
        exclude: Ids that were shown before.
        exclude_session: The session that goes on.

    Raises:
        StorageError: The database can't be read.
    """
    if len(text) > _MESSAGE_CHARS:
        text = f"{text[: _MESSAGE_CHARS // 2]}\n{text[-_MESSAGE_CHARS // 2 :]}"
    text = asked_about(text)
    stems = list(dict.fromkeys(stems_of(text)))[:_MOST_STEMS]
    if not stems or limit < 1:
        return Glance("", ())
    at = int(now.timestamp() * 1_000_000)
    found = _Found(rows, space, stems, at=at, exclude=exclude, exclude_session=exclude_session)
    lines = found.lines(at)
    kinds = newest_of_each([line.memory for line in lines])
    chosen = _chosen(lines, text, kinds, at_least=0.5 if threshold is None else threshold, limit=limit)
    chosen = _with_later(rows, chosen, space=space, at=at, exclude=exclude, exclude_session=exclude_session)
    before = {lines[at].memory.id: [lines[one].memory for one in older] for at, older in kinds.items()}
    block, places = block_text(chosen, stems=stems, budget_tokens=budget_tokens, limit=limit, before=before)
    return Glance(block, tuple(chosen[place].id for place in places))


class _Line(NamedTuple):
    memory: _Memory
    features: dict[str, float]


class _Found:
    """The memories that have words of a message."""

    def __init__(
        self,
        rows: Rows,
        space: int,
        stems: Sequence[int],
        *,
        at: int,
        exclude: Collection[str],
        exclude_session: str,
    ) -> None:
        self._rows = rows
        self._space = space
        self._stems = stems
        self._exclude = exclude
        asked = sorted(stems, key=commonness)[:_ASKED_STEMS]
        newest = rows("SELECT max(rid) FROM memory_words", ())[0][0] or 0
        oldest = newest - _MOST_MEMORIES
        count, length = rows(
            "SELECT count(*), avg(length(stems)) FROM memory_words WHERE rid > ?", (oldest,)
        )[0]
        self._count = count + _PRIOR_TEXTS
        self._mean = max((length or 0.0) / 6, 1.0)
        bytes_of = [number.to_bytes(4, "little") for number in asked]
        bits = " + ".join(f"(instr(w.stems, ?) > 0) * {1 << place}" for place in range(len(asked)))
        some = " OR ".join(["instr(w.stems, ?) > 0"] * len(asked))
        # The words come first: only those rows of `memories` are read whose words were found.
        self._matches = rows(
            f"SELECT w.rid, {bits} FROM memory_words w CROSS JOIN memories m ON m.rid = w.rid "  # noqa: S608
            f"WHERE w.rid > ? AND ({some}) AND m.space_id = ? AND {_HOLDS} "
            "AND (m.source_session IS NULL OR m.source_session <> ?)",
            (*bytes_of, oldest, *bytes_of, space, at, at, exclude_session),
        )
        having = dict.fromkeys(asked, 0)
        for place, number in enumerate(asked):
            having[number] = sum(1 for _, bits_found in self._matches if bits_found >> place & 1)
        self._rarity = {number: self._rarity_of(number, having.get(number)) for number in stems}
        self._asked = asked

    def _rarity_of(self, number: int, having: int | None) -> float:
        common = commonness(number)
        known = (self._count - _PRIOR_TEXTS) * common if having is None else having
        texts = known + _PRIOR_TEXTS * common
        return math.log(1 + (self._count - texts + 0.5) / (texts + 0.5))

    def lines(self, at: int) -> list[_Line]:
        """Those with most words in common, measured; without what asks only, repeats the message or has faded."""
        worth = [self._rarity[number] for number in self._asked]

        def rough(match: tuple[Any, ...]) -> tuple[float, int]:
            return sum(value for place, value in enumerate(worth) if match[1] >> place & 1), match[0]

        near = [rid for rid, _ in sorted(self._matches, key=rough, reverse=True)[:_NEAR]]
        if not near:
            return []
        marks = ", ".join("?" * len(near))
        found = self._rows(
            f"SELECT {_COLUMNS}, w.stems FROM memories m JOIN memory_words w ON w.rid = m.rid "  # noqa: S608
            f"LEFT JOIN memory_uses u ON u.rid = m.rid WHERE m.rid IN ({marks})",
            near,
        )
        total = sum(math.log(1 / commonness(number)) for number in self._stems)
        measured = []
        for row in found:
            memory = _memory(row, at)
            if memory.id in self._exclude or memory.priority < _FLOOR:
                continue
            if is_mere_question(memory):
                continue
            words, information = self._measure(row[-1])
            measured.append((words, information / max(total, 1e-9), memory))
        measured.sort(key=lambda one: -one[0])
        measured = measured[:_EACH]
        return [
            _Line(
                memory,
                {
                    "words": min(words, _MOST_WORDS) / 10,
                    "covered": share,
                    "fact": float(memory.kind != "episode"),
                    "own": float(memory.kind == "episode" and not memory.is_assistants),
                },
            )
            for words, share, memory in measured
        ]

    def _measure(self, blob: bytes) -> tuple[float, float]:
        """BM25 of a memory, and the information in nats of the words that it shares."""
        number = len(blob) // 6
        own, counts = array("I", blob[: 4 * number]), array("H", blob[4 * number : 6 * number])
        if sys.byteorder == "big":
            own.byteswap()
            counts.byteswap()
        there = dict(zip(own, counts, strict=True))
        length = sum(count & _COUNT for count in counts)
        norm = _K1 * (1 - _B + _B * length / self._mean)
        words = information = 0.0
        for stem in self._stems:
            count = there.get(stem, 0) & _COUNT
            if count:
                words += self._rarity[stem] * (_K1 + 1) * count / (count + norm)
                information += math.log(1 / commonness(stem))
        return words, information


def _memory(row: Sequence[Any], at: int) -> _Memory:
    rid, id, content, kind, speaker, trust, said_at, offset, session, turn, priority, rate, used = row[:13]
    said = datetime.fromtimestamp(said_at / 1_000_000, UTC).astimezone(timezone(timedelta(minutes=offset)))
    left = priority - rate * max(0.0, (at - used) / _DAY_MICROS)
    return _Memory(rid, id, content, kind, speaker, trust, said, _Source(session, turn), left)


def _chosen(
    lines: Sequence[_Line], text: str, kinds: Mapping[int, Sequence[int]], *, at_least: float, limit: int
) -> list[_Memory]:
    """The lines that are sure enough, the surest first, of each kind the newest; see `surface.choose`."""
    if not lines:
        return []
    weights = shipped_weights(with_vectors=False)
    need = need_of(text, weights.need)
    log_odds = [
        max(-20.0, min(20.0, float(weights.line.log_odds({**line.features, "need": need})))) for line in lines
    ]
    told = {at for older in kinds.values() for at in older}
    ordered = sorted(log_odds, reverse=True)
    message = float(
        weights.message.log_odds(
            {
                "best": ordered[0],
                "second": ordered[1] if len(ordered) > 1 else ordered[0] - 2.0,
                "expected": math.log(sum(1 / (1 + math.exp(-one)) for one in ordered)),
                "words": max(line.features["words"] for line in lines),
                "covered": max(line.features["covered"] for line in lines),
                "need": need,
                "length": math.log(len(text[:READ_CHARS].split()) + 1),
            }
        )
    )
    sure: list[tuple[float, int]] = []
    for place, line in enumerate(lines):
        if place in told:
            continue
        odds = max(log_odds[one] for one in (place, *kinds.get(place, ())))
        by = odds - (weights.line_from if line.features["fact"] else weights.turn_from)
        by += min(message - weights.message_from, 0.0)
        chance = 1 / (1 + math.exp(-max(-30.0, min(30.0, by))))
        if chance >= at_least:
            sure.append((-chance, place))
    passing = [lines[place].memory for _, place in sorted(sure)]
    with_fact = {(one.source.session, one.source.turn) for one in passing if one.kind != "episode"}
    chosen: list[_Memory] = []
    from_outside = 0
    for one in passing:
        if (
            one.kind == "episode"
            and not one.is_assistants
            and (one.source.session, one.source.turn) in with_fact
        ):
            continue  # Its fact says it.
        if one.trust == "outside":
            if from_outside >= max(1, limit // _OUTSIDE_SHARE):
                continue
            from_outside += 1
        chosen.append(one)
    return chosen


def _with_later(
    rows: Rows,
    chosen: Sequence[_Memory],
    *,
    space: int,
    at: int,
    exclude: Collection[str],
    exclude_session: str,
) -> list[_Memory]:
    """What may take the place of a memory, before it. A turn is left out if what superseded its fact can't be shown."""
    if not chosen:
        return []
    marks = ", ".join("?" * len(chosen))
    rids = [one.rid for one in chosen]
    # A fact that was drawn from a turn, and what replaces that.
    drawn = rows(
        f"SELECT target_rid, source_rid FROM memory_edges WHERE relation = 'derived_from' AND target_rid IN ({marks})",  # noqa: S608
        rids,
    )
    owner = {rid: rid for rid in rids} | {fact: turn for turn, fact in drawn}
    marks = ", ".join("?" * len(owner))
    found = rows(
        f"SELECT e.target_rid, {_COLUMNS} FROM memory_edges e JOIN memories m ON m.rid = e.source_rid "  # noqa: S608
        f"LEFT JOIN memory_uses u ON u.rid = m.rid WHERE e.target_rid IN ({marks}) "
        "AND (e.relation = 'supersedes' OR (e.relation = 'may_replace' AND e.weight >= ?)) "
        f"AND m.space_id = ? AND {_HOLDS} AND (m.source_session IS NULL OR m.source_session <> ?) "
        "ORDER BY e.relation DESC, e.weight DESC",
        (*owner, _BESIDE, space, at, at, exclude_session),
    )
    superseded = rows(
        f"SELECT target_rid FROM memory_edges WHERE relation = 'supersedes' AND target_rid IN ({marks})",  # noqa: S608
        list(owner),
    )
    outdated = {owner[rid] for (rid,) in superseded}
    later: dict[int, _Memory] = {}
    for row in found:
        memory = _memory(row[1:], at)
        if memory.id not in exclude:
            later.setdefault(owner[row[0]], memory)
    shown: dict[str, _Memory] = {}
    for one in chosen:
        if one.kind == "episode" and one.rid in outdated and one.rid not in later:
            continue
        for memory in (*([later[one.rid]] if one.rid in later else ()), one):
            shown.setdefault(memory.id, memory)
    return list(shown.values())


def standing_text(
    rows: Rows,
    *,
    space: int,
    now: datetime,
    profile: Sequence[KeptLine],
    agenda: Sequence[KeptLine],
    profile_tokens: int,
    agenda_tokens: int,
) -> Glance:
    """The profile and the agenda, as they were chosen when they were kept, with the words that the memories have now.

    What has changed since, no longer holds or was forgotten is left out.

    Raises:
        StorageError: The database can't be read.
    """
    at = int(now.timestamp() * 1_000_000)
    ids = list({line.id for line in (*profile, *agenda)})
    marks = ", ".join("?" * len(ids))
    found = {
        row[0]: row[1:]
        for row in rows(
            f"SELECT m.id, m.changed, m.content, m.kind, m.said_at, m.said_offset_min FROM memories m "  # noqa: S608
            f"WHERE m.space_id = ? AND {_HOLDS} AND m.id IN ({marks})",
            (space, at, at, *ids),
        )
    }

    def words_of(line: KeptLine) -> str:
        row = found.get(line.id)
        return (
            row[1][line.start : line.start + line.length]
            if row is not None and row[0] == line.changed
            else ""
        )

    shown: list[str] = []
    kept: list[str] = []
    left = profile_tokens - tokens_of(PROFILE_HEAD + PROFILE_TAIL)
    for line in profile:
        words = words_of(line)
        if not words:
            continue
        _, _, kind, said_at, offset = found[line.id]
        said = datetime.fromtimestamp(said_at / 1_000_000, UTC) + timedelta(minutes=offset)
        text = profile_line(line.id, words, said_at=said if kind == "episode" else None)
        cost = tokens_of(f"{text}\n")
        if cost <= left:
            left -= cost
            kept.append(f"{text}\n")
            shown.append(line.id)
    blocks = [PROFILE_HEAD + "".join(kept) + PROFILE_TAIL] if kept else []
    ahead, coming = _ahead(agenda, now, words_of, agenda_tokens)
    if ahead:
        blocks.append(ahead)
        shown += coming
    return Glance("\n".join(blocks), tuple(dict.fromkeys(shown)))


def _ahead(
    agenda: Sequence[KeptLine], now: datetime, words_of: Any, budget_tokens: int
) -> tuple[str, list[str]]:
    today = now.date()
    head = AGENDA_HEAD.format(day=day_of_agenda(today))
    left = budget_tokens - tokens_of(head + AGENDA_TAIL)
    lines: list[str] = []
    ids: list[str] = []
    for line in agenda:
        first, last = datetime.fromisoformat(line.first).date(), datetime.fromisoformat(line.last).date()
        words = words_of(line)
        if not words or last < today or first > today + timedelta(days=AGENDA_AHEAD_DAYS):
            continue
        days = f"{line.lead}{days_of_agenda(first, last)}"
        text = agenda_line(line.id, [words], days=days, doubt=line.doubt)
        cost = tokens_of(f"{text}\n")
        if cost > left and not line.is_never_dropped:
            continue
        left -= cost
        lines.append(f"{text}\n")
        ids.append(line.id)
    if not agenda and not lines:
        return "", []
    return head + ("".join(lines) or f"{AGENDA_EMPTY}\n") + AGENDA_TAIL, ids
