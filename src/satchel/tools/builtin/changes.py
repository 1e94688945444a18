"""What the file tools and commands changed, turn by turn, so that it can be taken back: beside the long results.

A change of a tool is on disk before the file is, one of a command after it. Of a turn that is undone or redone, every
file is as the tools left it, or as it was before; if any is not, somebody else changed it, and nothing is written.
Several turns are taken back as if they were one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from satchel.config.home import replacing
from satchel.errors import NotFound, SatchelError, StorageUnwritable
from satchel.tools.builtin.fence import Place
from satchel.tools.builtin.seen import read_whole
from satchel.tools.port import ToolContext
from satchel.wording import shown

_FOLDER: Final = "changes"
_JOURNAL: Final = "journal.jsonl"

Keep: TypeAlias = Callable[[bytes | None, bytes], None]
Direction: TypeAlias = Literal["undone", "redone"]
_File: TypeAlias = tuple[str, tuple[str, ...]]
"""A root, and the path below it."""


@dataclass(slots=True)
class _Turn:
    """The changes of one turn. A file is in it once: as it was before the first change, and after the last.

    Attributes:
        modes: Of the files that a command changed, to make one again that it removed.
        parts: The turns that are taken back together, the first one first; none for a turn of its own.
        broken: Files that somebody else changed between two of these, or between two changes of one turn.
    """

    number: int
    files: dict[_File, tuple[str | None, str | None]] = field(default_factory=dict)
    modes: dict[_File, int] = field(default_factory=dict)
    parts: tuple[_Turn, ...] = ()
    broken: frozenset[_File] = frozenset()

    @property
    def last(self) -> int:
        return self.parts[-1].last if self.parts else self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of a turn's files.

    Attributes:
        turn: Its number, or that of the first of several.
        last: That of the last of several.
        names: The files that were written, or removed.
        conflicts: Files that somebody else changed; if there are any, nothing was written.
        by_commands: Those of `names` that changed while commands ran.
        uncovered: What commands changed and can't be taken back: files that are too large, and others in words.
    """

    turn: int
    last: int
    names: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    by_commands: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()


def keeper(context: ToolContext, place: Place) -> Keep:
    """A function that keeps a change of a file; see `keep_change`. Without a session there is nothing to take back."""
    if not context.session_id:
        return lambda _before, _after: None
    return partial(keep_change, context.spill_dir, context.turn, place)


def keep_change(spill_dir: Path, turn: int, place: Place, before: bytes | None, after: bytes) -> None:
    """Keep a change that is about to be made. Blocks. Content is None where there is no such file.

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


def noted_bytes(spill_dir: Path) -> int:
    """How much is noted of changes; it grows with each. Blocks."""
    with suppress(OSError):
        return (spill_dir / _FOLDER / _JOURNAL).stat().st_size
    return 0


def keep_commands_changes(
    spill_dir: Path,
    turn: int,
    changes: Iterable[tuple[Place, bytes | None, bytes | None, int] | str],
    *,
    noted_before: int,
) -> None:
    """Keep what a command changed. Blocks.

    Thousands of files change at once, so only the journal waits for the disk; `_content` finds what a loss of power
    left incomplete.

    Args:
        spill_dir: The session's folder for long results.
        turn: Its turn.
        changes: Of each file, its place, its content before the command and now (None if there is no such file), and
            its mode; or what can't be taken back, see `note_uncovered`.
        noted_before: `noted_bytes` when the command began.

    Raises:
        StorageUnwritable: They can't be kept, or not all of them.
    """
    folder = spill_dir / _FOLDER
    is_beside = noted_bytes(spill_dir) != noted_before
    lines: list[dict[str, Any]] = []
    try:
        for change in changes:
            if isinstance(change, str):
                lines.append({"turn": turn, "uncovered": change})
                continue
            place, before, after, mode = change
            was, is_now = (
                None if content is None else _kept(folder, content, durable=False)
                for content in (before, after)
            )
            line = {"root": str(place.root), "parts": place.parts, "before": was, "after": is_now}
            lines.append({"turn": turn, **line, "mode": mode, "beside": is_beside})
    except OSError as error:
        raise StorageUnwritable(f"What a command changed can't be kept: {error.strerror}.") from error
    finally:
        if lines:
            _note(folder, *lines)


def note_uncovered(spill_dir: Path, turn: int, what: str) -> None:
    """Note that commands changed something that can't be taken back: a path, or a clause. Blocks.

    Raises:
        StorageUnwritable: It can't be noted.
    """
    _note(spill_dir / _FOLDER, {"turn": turn, "uncovered": what})


def undo(spill_dir: Path, *, since: int | None = None, only_looks: bool = False) -> Restored | None:
    """Put files back to what they were. None if there is nothing to undo. Blocks.

    Args:
        spill_dir: The session's folder for long results.
        since: The first turn whose changes are undone, with all after it: exactly, or none of them. `redo` makes them
            all again. None undoes the newest turn with changes.
        only_looks: Find out what would be written, and write nothing.

    Raises:
        SatchelError: A file can't be written. What was written by then stays, and the next call goes on.
    """
    folder = spill_dir / _FOLDER
    turns, _ = _turns(folder)
    # Whoever began to take several back, and was stopped before the first file, has them one by one.
    untouched = [turn for turn in turns if _is_untouched(turn)]
    done = [part for turn in turns for part in (turn.parts if turn in untouched else (turn,))]
    taken = done[-1:] if since is None else [turn for turn in done if turn.last >= since]
    if not taken:
        return None
    for turn in () if only_looks else untouched:
        _note(folder, {"parted": turn.number})
    if len(taken) == 1:
        return _restore(folder, taken[0], "undone", only_looks=only_looks)
    together = _joined(taken)
    looked = _restore(folder, together, "undone", only_looks=True)
    if only_looks or looked.conflicts:
        return looked
    # Before the first file: whoever is killed in the middle has one change to undo, which accepts both states of each.
    _note(folder, {"joined": together.number})
    return _restore(folder, together, "undone")


def uncovered(spill_dir: Path, *, since: int = 0) -> tuple[str, ...]:
    """What commands changed from a turn on and can't be taken back, as they noted it; see `note_uncovered`. Blocks."""
    lines = [line for line in _lines(spill_dir / _FOLDER) if "uncovered" in line and line["turn"] >= since]
    return tuple(dict.fromkeys(line["uncovered"] for line in lines))


def redo(spill_dir: Path) -> Restored | None:
    """Make the changes again that were undone last; None if there are none, or others were made since."""
    _, taken_back = _turns(spill_dir / _FOLDER)
    return _restore(spill_dir / _FOLDER, taken_back[-1], "redone") if taken_back else None


def copy_changes(source: Path, copy: Path, *, before: int) -> None:
    """Give a session what can be undone of another one, of the turns before one. Both are folders for long results."""
    done, _ = _turns(source / _FOLDER)
    for turn in done:
        for part in turn.parts or (turn,):
            for (root, parts), (was, is_now) in part.files.items() if part.number < before else ():
                for digest in (was, is_now):
                    if digest is not None:
                        _kept(copy / _FOLDER, (source / _FOLDER / digest).read_bytes())
                line = {"turn": part.number, "root": root, "parts": parts, "before": was, "after": is_now}
                mode = part.modes.get((root, parts))
                _append(copy / _FOLDER, line if mode is None else {**line, "mode": mode})


def _restore(folder: Path, turn: _Turn, direction: Direction, *, only_looks: bool = False) -> Restored:
    planned: list[tuple[Place, bytes | None, os.stat_result | None, int | None]] = []
    conflicts = [shown(str(Path(root, *parts))) for root, parts in turn.broken]
    for (root, parts), (before, after) in turn.files.items():
        place = Place(root=Path(root), parts=parts, name=shown(str(Path(root, *parts))))
        try:
            digest, state = _now(place)
        except SatchelError:
            conflicts.append(place.name)
            continue
        if digest not in (before, after) and place.name not in conflicts:
            conflicts.append(place.name)
        wanted = before if direction == "undone" else after
        if digest != wanted:
            content = _content(folder, wanted, place) if wanted is not None else None
            planned.append((place, content, state, turn.modes.get((root, parts))))
    if conflicts:
        return Restored(turn=turn.number, last=turn.last, conflicts=tuple(sorted(conflicts)))
    restored = Restored(
        turn=turn.number,
        last=turn.last,
        names=tuple(place.name for place, *_ in planned),
        by_commands=tuple(place.name for place, _, _, mode in planned if mode is not None),
        uncovered=uncovered(folder.parent, since=turn.number),
    )
    if only_looks:
        return restored
    for place, content, state, mode in planned:
        if content is None:
            place.remove(expected=state)
        else:
            place.replace(content, expected=state, mode=mode)
    # Last: whoever is killed before has the turn as it was, and every file is accepted in both states.
    _note(folder, {direction: turn.number})
    return restored


def _now(place: Place) -> tuple[str | None, os.stat_result | None]:
    """The digest of a file's content; None for one that is not there."""
    try:
        content, state = read_whole(place)
    except NotFound:
        return None, None
    return hashlib.sha256(content).hexdigest(), state


def _is_untouched(turn: _Turn) -> bool:
    """Whether several turns were to be taken back together, and no file is as it was before them."""
    for (root, parts), (before, after) in turn.files.items() if turn.parts else ():
        try:
            now, _ = _now(Place(root=Path(root), parts=parts, name=parts[-1]))
        except SatchelError:
            return False
        if now == before != after:
            return False
    return bool(turn.parts)


def _note(folder: Path, *lines: dict[str, Any]) -> None:
    try:
        _append(folder, *lines)
    except OSError as error:
        raise StorageUnwritable(f"What is undone can't be noted: {error.strerror}.") from error


def _joined(turns: Sequence[_Turn]) -> _Turn:
    """Several turns, to be taken back together."""
    files: dict[_File, tuple[str | None, str | None]] = {}
    broken = {file for turn in turns for file in turn.broken}
    for turn in turns:
        for file, (before, after) in turn.files.items():
            first, then = files.get(file, (before, before))
            if then != before:
                broken.add(file)
            files[file] = first, after
    parts = tuple(part for turn in turns for part in turn.parts or (turn,))
    modes = {file: mode for turn in turns for file, mode in turn.modes.items()}
    return _Turn(parts[0].number, files, modes, parts, frozenset(broken))


def _turns(folder: Path) -> tuple[list[_Turn], list[_Turn]]:
    """The turns whose changes stand, and those that were taken back, the last one last."""
    done: list[_Turn] = []
    taken_back: list[_Turn] = []
    for line in _lines(folder):
        if "uncovered" in line:
            continue
        if "undone" in line:
            if done:
                taken_back.append(done.pop())
        elif "redone" in line:
            if taken_back:
                turn = taken_back.pop()
                done.extend(turn.parts or (turn,))
        elif "parted" in line:
            done = [
                part
                for turn in done
                for part in (turn.parts if turn.number == line["parted"] and turn.parts else (turn,))
            ]
        elif "joined" in line:
            first = next((at for at, turn in enumerate(done) if turn.number >= line["joined"]), len(done))
            done[first:] = [_joined(done[first:])] if done[first:] else []
        else:
            taken_back.clear()
            if not done or done[-1].parts or done[-1].number != line["turn"]:
                done.append(_Turn(line["turn"]))
            file = line["root"], tuple(line["parts"])
            was, then = done[-1].files.get(file, (line["before"], line["before"]))
            # Commands at the same time note a change twice, each as it found the file.
            is_same = line.get("beside", False) and line["after"] == then
            if line["before"] not in (was, then) and not is_same:
                done[-1].broken |= {file}
            done[-1].files[file] = was, line["after"]
            if "mode" in line:
                done[-1].modes[file] = line["mode"]
    return done, taken_back


def _lines(folder: Path) -> list[dict[str, Any]]:
    found = []
    with suppress(FileNotFoundError):
        for line in (folder / _JOURNAL).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # an empty one, or that of a process that was killed
                found.append(json.loads(line))
    return found


def _kept(folder: Path, content: bytes, *, durable: bool = True) -> str:
    digest = hashlib.sha256(content).hexdigest()
    path = folder / digest
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path, durable=durable) as copy:
            copy.write(content)
    return digest


def _content(folder: Path, digest: str, place: Place) -> bytes:
    try:
        content = (folder / digest).read_bytes()
    except FileNotFoundError:
        content = b""
    if hashlib.sha256(content).hexdigest() != digest:
        raise NotFound(f"What {place.name} contained is not kept any more, so nothing was written.")
    return content


def _append(folder: Path, *lines: dict[str, Any]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(folder / _JOURNAL, "ab", opener=_private) as file:
        # After a process that was killed in the middle of its line, too.
        file.write(b"".join(b"\n" + json.dumps(line).encode() + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
