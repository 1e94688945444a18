"""What the file tools changed, turn by turn, so that it can be taken back: beside the session's long results.

A change is on disk before the file is. Of a turn that is undone or redone, every file is as the tools left it, or as it
was before; if any is not, somebody else changed it, and nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from satchel.errors import NotFound, SatchelError, StorageUnwritable
from satchel.tools.builtin.fence import Place
from satchel.tools.builtin.seen import read_whole
from satchel.tools.port import ToolContext

__all__ = ["Keep", "Restored", "keep_change", "keeper", "redo", "undo"]

_FOLDER: Final = "changes"
_JOURNAL: Final = "journal.jsonl"

Keep: TypeAlias = Callable[[bytes | None, bytes], None]
Direction: TypeAlias = Literal["undone", "redone"]


@dataclass(slots=True)
class _Turn:
    """The changes of one turn. A file is in it once: as it was before the first change, and after the last."""

    number: int
    files: dict[tuple[str, tuple[str, ...]], tuple[str | None, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of a turn's files.

    Attributes:
        turn: Its number.
        names: The files that were written, or removed.
        conflicts: Files that somebody else changed; if there are any, nothing was written.
    """

    turn: int
    names: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def keeper(context: ToolContext, place: Place) -> Keep:
    """A function that keeps a change of a file; see `keep_change`. Without a session there is nothing to take back."""
    if not context.session_id:
        return lambda _before, _after: None
    return partial(keep_change, context.spill_dir, context.turn, place)


def keep_change(spill_dir: Path, turn: int, place: Place, before: bytes | None, after: bytes) -> None:
    """Keep a change that is about to be made. Blocks.

    Args:
        spill_dir: The session's folder for long results.
        turn: Its turn.
        place: The file.
        before: Its content; None if there is no such file.
        after: Its content to be.

    Raises:
        Refused, StorageUnwritable, UsageError: It can't be kept. The file must not be changed then.
    """
    folder = spill_dir / _FOLDER
    try:
        line = {
            "turn": turn,
            "root": str(place.root),
            "parts": place.parts,
            "before": _kept(folder, before) if before is not None else None,
            "after": _kept(folder, after),
        }
        _append(folder, line)
    except OSError as error:
        raise place.failure(error) from error


def undo(spill_dir: Path) -> Restored | None:
    """Put the files of the newest turn with changes back to what they were before it. None if there is none."""
    done, _ = _turns(spill_dir / _FOLDER)
    return _restore(spill_dir / _FOLDER, done[-1], "undone") if done else None


def redo(spill_dir: Path) -> Restored | None:
    """Make the changes again that were undone last; None if there are none, or others were made since."""
    _, taken_back = _turns(spill_dir / _FOLDER)
    return _restore(spill_dir / _FOLDER, taken_back[-1], "redone") if taken_back else None


def _restore(folder: Path, turn: _Turn, direction: Direction) -> Restored:
    planned: list[tuple[Place, bytes | None, os.stat_result | None]] = []
    conflicts = []
    for (root, parts), (before, after) in turn.files.items():
        place = Place(root=Path(root), parts=parts, name=str(Path(root, *parts)))
        try:
            now, state = read_whole(place)
        except NotFound:
            now, state = None, None
        except SatchelError:
            conflicts.append(place.name)
            continue
        digest = hashlib.sha256(now).hexdigest() if now is not None else None
        if digest not in (before, after):
            conflicts.append(place.name)
        wanted = before if direction == "undone" else after
        if digest != wanted:
            planned.append((place, (folder / wanted).read_bytes() if wanted is not None else None, state))
    if conflicts:
        return Restored(turn=turn.number, conflicts=tuple(conflicts))
    for place, content, state in planned:
        if content is None:
            place.remove(expected=state)
        else:
            place.replace(content, expected=state)
    # Last: whoever is killed before has the turn as it was, and every file is accepted in both states.
    try:
        _append(folder, {direction: turn.number})
    except OSError as error:
        raise StorageUnwritable(f"The change is made, and can't be noted: {error.strerror}.") from error
    return Restored(turn=turn.number, names=tuple(place.name for place, _, _ in planned))


def _turns(folder: Path) -> tuple[list[_Turn], list[_Turn]]:
    """The turns whose changes stand, and those that were taken back, the last one last."""
    done: list[_Turn] = []
    taken_back: list[_Turn] = []
    for line in _lines(folder):
        if "undone" in line:
            if done:
                taken_back.append(done.pop())
        elif "redone" in line:
            if taken_back:
                done.append(taken_back.pop())
        else:
            taken_back.clear()
            if not done or done[-1].number != line["turn"]:
                done.append(_Turn(line["turn"]))
            file = line["root"], tuple(line["parts"])
            first = done[-1].files.get(file, (line["before"], ""))[0]
            done[-1].files[file] = first, line["after"]
    return done, taken_back


def _lines(folder: Path) -> list[dict[str, Any]]:
    found = []
    with suppress(FileNotFoundError):
        for line in (folder / _JOURNAL).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # the last one, of a process that was killed
                found.append(json.loads(line))
    return found


def _kept(folder: Path, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    path = folder / digest
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        # Calls of one answer run at the same time, and may keep the same content.
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    return digest


def _append(folder: Path, line: dict[str, Any]) -> None:
    with open(folder / _JOURNAL, "ab", opener=_private) as file:
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
