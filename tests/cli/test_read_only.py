"""A home that can't be written: a read-only file system, or a folder of somebody else."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.programs import Ran, environ_for
from tests.requirements import requirement


def read_only(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run `satchel` where its home is read-only. For root, only a file system is."""
    satchel = [sys.executable, "-m", "satchel", *command]
    environ = {**os.environ, **environ_for(folder, None)}
    del environ["SATCHEL_MEMORY_EMBEDDER"]  # the default one, of which nothing is stored
    home = environ["SATCHEL_HOME"]
    if os.geteuid() == 0:
        script = (
            f"mount --bind {home} {home} && mount -o remount,bind,ro {home} && exec {shlex.join(satchel)}"
        )
        satchel = ["unshare", "--mount", "sh", "-c", script]
    ran = subprocess.run(
        satchel, env=environ, cwd=folder / "work", capture_output=True, text=True, timeout=120
    )
    if "mount:" in ran.stderr or "unshare:" in ran.stderr:
        pytest.skip(f"A READ-ONLY HOME WAS NOT TESTED: {ran.stderr.strip()}")
    return ran


@requirement("storage:read-only")
def test_a_read_only_home_is_read_searched_exported_and_backed_up_and_takes_nothing(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    assert run("memory", "add", "Ann likes quagga tea").code == 0
    home = Path(environ_for(tmp_path, None)["SATCHEL_HOME"])
    if os.geteuid():
        for path in (home, home / "satchel.db"):
            path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        for command in (("memory", "list"), ("memory", "search", "tea")):
            found = read_only(tmp_path, *command)
            assert (found.returncode, "Ann likes quagga tea" in found.stdout) == (0, True), found.stderr
            assert "can't be written" in found.stderr
        assert read_only(tmp_path, "memory", "export", str(tmp_path / "all.jsonl")).returncode == 0
        assert "quagga" in (tmp_path / "all.jsonl").read_text()
        assert read_only(tmp_path, "backup", str(tmp_path / "b.tar.gz")).returncode == 0
        refused = read_only(tmp_path, "memory", "add", "Bob likes coffee")
        assert (refused.returncode, "nothing can be stored" in refused.stderr) == (1, True)
    finally:
        home.chmod(0o700)
        (home / "satchel.db").chmod(0o600)
    assert "Bob" not in run("memory", "list").out
