"""A process that is copied."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

from satchel.processes import has_ended
from satchel.sandbox.original import Copy, Original

_STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.close(0)
print("here", flush=True)
signal.pause()
"""


def test_copies_run_what_is_asked_for_until_an_upgrade_needs_another_original(tmp_path: Path) -> None:
    version, log = tmp_path / "version.py", tmp_path / "log"
    version.write_text("1")
    original = Original(("json",), {}, version)

    started = partial(_started, original, tmp_path)
    copies = [started("this"), started("this")]
    first, second = (_parent(each.pid) for each in copies)  # Once the original has gone, they can go unseen.
    version.rename(tmp_path / "old")
    version.write_text("2")
    copies.append(started("this"))
    assert first == second != _parent(copies[2].pid)
    for each in copies:
        while not each.has_ended:
            os.sched_yield()
        original.end(each, wait_s=1)
    original.close()
    assert log.read_text().count("The Zen of Python") == len(copies)


def test_a_copy_that_hears_nothing_is_killed_and_holds_up_no_other(tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text("1")
    original = Original(("json",), {}, tmp_path / "version.py")
    stubborn = _started(original, tmp_path, "timeit", "-n1", "-r1", _STUBBORN)
    while "here" not in (tmp_path / "log").read_text():
        os.sched_yield()
    assert not has_ended(stubborn.pid)
    original.end(stubborn, wait_s=0)
    assert has_ended(stubborn.pid)
    other = _started(original, tmp_path, "this")
    assert _parent(other.pid)
    original.end(other, wait_s=1)
    original.close()


def test_an_original_that_hangs_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text("1")
    original = Original(("json",), {}, tmp_path / "version.py")
    first = _started(original, tmp_path, "this")
    hangs = _parent(first.pid)
    os.kill(hangs, signal.SIGSTOP)
    assert original._asked is not None
    assert original._asked.gettimeout()
    original._asked.settimeout(0.1)  # the next one has the two minutes of the program
    other = _started(original, tmp_path, "this")
    assert _parent(other.pid) != hangs
    for each in (first, other):
        original.end(each, wait_s=1)
    original.close()


def _started(original: Original, folder: Path, *arguments: str) -> Copy:
    with Path(os.devnull).open() as given:
        return original.start(
            arguments,
            cwd=folder,
            environ={},
            log=folder / "log",
            uid=None,
            fd=given.fileno(),
            first_line="",
        )


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
