"""Starts this Python as an ordinary user, whoever runs the tests."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

__all__ = ["USER", "folder_of_a_user", "python_of_a_user", "python_of_root"]

USER = 61_234
"""A number that nobody has."""
ROOT = Path(__file__).parents[2]


def _environ() -> dict[str, str]:
    packages = [*site.getsitepackages(), sysconfig.get_paths()["purelib"]]
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": ":".join(dict.fromkeys([str(ROOT / "src"), str(ROOT), *packages])),
    }


@cache
def python_of_a_user() -> tuple[tuple[str, ...], dict[str, str]]:
    """The beginning of a command line, and the environment. Skips where an ordinary user can't run these tests."""
    if os.geteuid() != 0:
        return (sys.executable,), _environ()
    # setpriv itself still has root's rights when it executes a program; env has none.
    become = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env")
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (getattr(sys, "_base_executable", ""), f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        command = (*become, python)
        try:
            tried = subprocess.run(
                [*command, "-c", "import satchel.sandbox.choice, tests.sandbox.attacks"],
                env=_environ(),
                cwd="/",
                capture_output=True,
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return command, _environ()
    pytest.skip("THE SANDBOX WAS NOT TESTED AS AN ORDINARY USER: no Python here that other users can run")


def python_of_root() -> tuple[tuple[str, ...], dict[str, str]]:
    """The same for root; skips for everybody else."""
    if os.geteuid() != 0:
        pytest.skip("this test is for root")
    return (sys.executable,), _environ()


@contextmanager
def folder_of_a_user(*, root: bool = False) -> Iterator[Path]:
    """An empty folder that an ordinary user owns, or root; pytest's own belong to whoever runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="satchel-test-", dir="/tmp"))
    try:
        if os.geteuid() == 0 and not root:
            os.chown(folder, USER, USER)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
