"""Goes back to an earlier message: a branch from there, and on request the files that tools changed since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from satchel.errors import NotFound, UsageError
from satchel.tools.builtin.changes import Restored, undo

if TYPE_CHECKING:
    from satchel.runtime.satchel import Satchel
    from satchel.runtime.session import Session

_MOST_NAMED = 30
"""Of the files that a command changed, which may be thousands: a message to the model has a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound:
    """The session to go on in.

    Attributes:
        session_id: It repeats the old one up to the message, which is not in it.
        said: The words of the message, to say them otherwise.
        files: How many files were attached to the message.
        changed: The files that were put back, or stay as tools changed them since.
    """

    session_id: str
    said: str
    files: int
    changed: tuple[str, ...]


async def rewind(satchel: Satchel, session: Session, turn: int, *, files: bool) -> Rewound:
    """Go back to before a message. The old session stays as it was; `/redo` in it makes its file changes again. It
    has no running turn; `turn` is the one that the message began. With `files`, all of them are put back, too, or none.

    Raises:
        NotFound: There is no such turn.
        UsageError: A turn is running, nothing of the session is kept, or somebody else has changed the files.
        SatchelError: A file, or the log, can't be read or written.
    """
    said, attached = await said_at(satchel, session.id, turn)
    restored = await files_since(satchel, session, turn, only_looks=not files)
    if files:
        check_restored(restored)
    names = restored.names + restored.conflicts if restored is not None else ()
    new = await satchel.sessions.branch(session.id, turn, undoes=True)
    if names:
        which = f"the files that tools changed from turn {turn} of it on"
        kept = f"{which} are as they were before: " if files else f"{which} stay changed: "
        what = f"The user went back to an earlier message of this conversation, and {kept}{named(names)}."
        # The model would take the files to be as it has seen them.
        await satchel.post(new, what, source="the user's /rewind")
        if files:
            await satchel.post(session.id, f"Undone: {which} ({named(names)}).", source="the user's /rewind")
    return Rewound(session_id=new, said=said, files=attached, changed=names)


async def said_at(satchel: Satchel, session_id: str, number: int) -> tuple[str, int]:
    """The words of the message that began a turn, and how many files were attached to it.

    Raises:
        NotFound: There is no such turn.
    """
    turn = await satchel.sessions.turn(session_id, number)
    if turn is None or turn.start is None:
        raise NotFound(f"This conversation has no message {number}.")
    return turn.said, len(turn.start.message.files)


async def files_since(satchel: Satchel, session: Session, turn: int, *, only_looks: bool) -> Restored | None:
    """Put back what the file tools changed from a turn on, or only look; None if that is nothing.

    Raises:
        UsageError: A turn is running, or nothing of the session is kept.
        SatchelError: A file can't be read or written.
    """
    if session.running is not None:
        raise UsageError("A turn is running. Wait until it ends, or interrupt it.")
    if session.path is None:
        raise UsageError("Nothing of this conversation is kept, so nothing can be undone.")
    look = partial(undo, since=turn, only_looks=only_looks)
    return await satchel.parts.pool.run(look, session.path.with_suffix(".spill"))


def turns_of(restored: Restored) -> str:
    """Which turns these are, in words."""
    if restored.turn == restored.last:
        return f"turn {restored.turn}"
    return f"turns {restored.turn} to {restored.last}"


def named(names: Sequence[str]) -> str:
    """The names of files in a sentence, the first ones of many."""
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def check_restored(restored: Restored | None) -> None:
    """Check that nobody else changed the files.

    Raises:
        UsageError: Somebody did, so nothing was written.
    """
    if restored is not None and restored.conflicts:
        raise UsageError(
            f"Nothing was written, because these files have changed since {turns_of(restored)}: "
            f"{named(restored.conflicts)}."
        )


def commanded_notes(looked: Restored) -> list[str]:
    """What whoever takes back what commands changed has to know before."""
    if not looked.by_commands:
        return []
    return [
        f"While commands ran, {named(looked.by_commands)} changed: if you changed them in that time, your changes "
        "go as well, until /redo. What commands changed outside of the folder, and in what .gitignore names, stays."
    ]


def uncovered_notes(left: Sequence[str]) -> list[str]:
    """What commands changed and can't be taken back, in words."""
    return [f"Not part of it: {named(left)}."] if left else []
