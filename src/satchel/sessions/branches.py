"""What belongs together of sessions: the branches of one conversation, and where they part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from satchel.messages import Usage
from satchel.sessions.summary import SessionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions of a message in the branches of a conversation, oldest first.

    Attributes:
        number: Which of them this one is, from 1 on.
        count: How many there are, at least two.
        before, after: The branch that was used last of those with the version beside this one; "" at the ends.
    """

    number: int
    count: int
    before: str
    after: str


def by_age(infos: Iterable[SessionInfo]) -> list[SessionInfo]:
    """Branches of one conversation, the oldest first, and each after the one that it repeats."""
    return sorted(infos, key=lambda info: (info.path.name.rpartition("_")[0], len(info.repeats), info.id))


def grouped(infos: Iterable[SessionInfo]) -> dict[tuple[str, str], list[SessionInfo]]:
    """Sessions by their conversation and project; the order stays."""
    found: dict[tuple[str, str], list[SessionInfo]] = {}
    for info in infos:
        found.setdefault((info.conversation, info.project), []).append(info)
    return found


def folded(infos: Iterable[SessionInfo]) -> list[SessionInfo]:
    """One entry for each conversation: the branch that was used last, under the title of the oldest.

    It is pinned if any branch is, and archived if all are. Its usage is that of all. Branches in which nothing was said
    yet don't count.
    """
    return [_entry(group) for group in grouped(infos).values()]


def _entry(group: Sequence[SessionInfo]) -> SessionInfo:
    said = [info for info in group if info.turns >= info.branch_turn] or list(group[:1])
    if len(said) == 1:
        return said[0]
    oldest = by_age(said)
    return replace(
        said[0],
        title=next((info.title for info in oldest if info.title), ""),
        usage=sum((info.usage for info in said), start=Usage()),
        pinned=any(info.pinned for info in said),
        archived=all(info.archived for info in said),
        branches=tuple(info.id for info in oldest),
    )


def as_listed(info: SessionInfo, family: Iterable[SessionInfo]) -> SessionInfo:
    """A session with the title and the place in lists of its conversation, which has these branches."""
    entry = _entry(sorted(family, key=lambda each: each.last_at, reverse=True))
    return replace(
        info, title=entry.title, pinned=entry.pinned, archived=entry.archived, branches=entry.branches
    )


def told_once(infos: Sequence[SessionInfo]) -> Iterator[tuple[SessionInfo, int]]:
    """The first of some branches with 0, then the others that say something more, each with the first turn that those
    before it don't have.
    """
    told: set[tuple[str, int]] = set()
    for info in infos:
        turns = [(_said_in(info, turn), turn) for turn in range(1, info.turns + 1)]
        first = next((turn for id, turn in turns if (id, turn) not in told), 0)
        told.update(turns)
        if info is infos[0]:
            yield info, 0
        elif first:
            yield info, first


def versions(info: SessionInfo, infos: Iterable[SessionInfo]) -> dict[int, Versions]:
    """The versions of the messages of a session, by turn, where there are several. The message that it is to have, if
    nothing was said in it yet, is one.
    """
    family = by_age(infos)
    found: dict[int, Versions] = {}
    for turn in {before for each in family for before in each.repeats.values()}:
        there: dict[str, SessionInfo] = {}
        for each in family:
            has_turn = each.turns >= turn or (each.id == info.id and turn == info.branch_turn)
            if has_turn and _said_in(each, turn - 1) == _said_in(info, turn - 1):
                said_in = _said_in(each, turn)
                used = there.setdefault(said_in, each)
                if each.last_at > used.last_at:
                    there[said_in] = each
        own = _said_in(info, turn)
        if own in there and len(there) > 1:
            ids, number = [each.id for each in there.values()], list(there).index(own)
            found[turn] = Versions(
                number=number + 1,
                count=len(ids),
                before=ids[number - 1] if number else "",
                after=ids[number + 1] if number + 1 < len(ids) else "",
            )
    return found


def _said_in(info: SessionInfo, turn: int) -> str:
    """The session in which a turn was said first; it may be deleted."""
    return next((id for id in reversed([*info.repeats]) if turn < info.repeats[id]), info.id)
