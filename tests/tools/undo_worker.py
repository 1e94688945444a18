"""Undoes three turns at once, killed before each of its steps in turn: a program of its own, since it forks."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from satchel.tools.builtin.changes import keep_change, redo, undo
from satchel.tools.builtin.fence import Place

STEPS = {"open", "os.rename", "os.remove"}
NAMES = ("a", "b", "c")


def main(folder: Path) -> None:
    """Write how many were killed to stdout."""
    killed = 0
    for how in ("undo", "redo"):
        for number in range(1000):
            work, spill = folder / f"{how}{number}", folder / f"{how}{number}.spill"
            work.mkdir()
            (work / "a").write_text("first")
            for turn, (name, content) in enumerate(
                [("a", "one"), ("b", "new"), ("c", "new"), ("a", "two")], 1
            ):
                place = Place(root=work, parts=(name,), name=name)
                before = place.path.read_bytes() if place.path.exists() else None
                keep_change(spill, turn, place, before, content.encode())
                place.path.write_text(content)
            before_it = ["first", None, None]
            changed = ["two", "new", "new"]
            if how == "redo":
                undo(spill, since=1)
            was_killed = killed_at(number, spill, how)
            killed += was_killed
            for name, *either in zip(NAMES, before_it, changed, strict=True):
                assert said(work / name) in either, (how, number, name)
            # Whatever was reached, the next call of either kind ends in one of the two states, and not between them.
            again = undo(spill) if how == "undo" else redo(spill)
            assert again is None or not again.conflicts, (how, number, again)
            if how == "undo" and again is not None and again.turn == again.last == 4:
                undo(spill, since=1)  # it was killed before the first file
            wanted = before_it if how == "undo" else changed
            assert [said(work / name) for name in NAMES] == wanted, (how, number)
            assert sorted(each.name for each in work.iterdir() if not each.name.startswith(".")) == [
                name for name, content in zip(NAMES, wanted, strict=True) if content is not None
            ]
            if not was_killed:
                break
    sys.stdout.write(str(killed))


def said(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def killed_at(number: int, spill: Path, how: str) -> bool:
    """Undo or redo in a process that is killed before that step of it; whether it had so many."""
    child = os.fork()
    if child == 0:
        left = [number]

        def step(event: str, _: object) -> None:
            if event in STEPS:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(step)
        undo(spill, since=1) if how == "undo" else redo(spill)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL)
    return code != 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
