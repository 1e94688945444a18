"""A process that is copied."""

from __future__ import annotations

import os
from pathlib import Path

from satchel.sandbox.original import Copy, Original


def test_copies_run_what_is_asked_for_until_an_upgrade_needs_another_original(tmp_path: Path) -> None:
    version, log = tmp_path / "version.py", tmp_path / "log"
    version.write_text("1")
    original = Original(("json",), {}, version)

    def started() -> Copy:
        with Path(os.devnull).open() as given:
            return original.start(
                ("this",), cwd=tmp_path, environ={}, log=log, uid=None, fd=given.fileno(), first_line=""
            )

    copies = [started(), started()]
    version.rename(tmp_path / "old")
    version.write_text("2")
    copies.append(started())
    first, second, third = (_parent(each.pid) for each in copies)
    assert first == second != third
    for each in copies:
        while not each.has_ended:
            os.sched_yield()
        original.end(each, wait_s=1)
    original.close()
    assert log.read_text().count("The Zen of Python") == len(copies)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
