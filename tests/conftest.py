"""What every test gets: asyncio as the one event loop, hypothesis without deadlines, the real embedder."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy.event
from hypothesis import settings
from sqlalchemy import Connection, Engine
from sqlalchemy.engine.default import DefaultDialect

from satchel.errors import EmbedderError
from satchel.models.embedding import fetch_weights
from satchel.sandbox import process
from tests.patience import be_patient
from tests.tools.external.executables import processes_that_say

# In the background of a shell SIGINT is ignored, and would be by every program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every Satchel that a test opens has threads, and for each glibc would keep an arena of its own: 75 of 421 MB after 104
# tests of the server, of which nothing of Satchel stays alive. Workers read it when they start.
os.environ.setdefault("MALLOC_ARENA_MAX", "2")
# OpenBLAS's threads spin while they wait for each other: with a worker for each core that is 0.1 s for each home opened.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Nor is the machine's own keyring anything to a test, or the one that a test of keyrings defines to any other test.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
be_patient()  # imports numpy, and OpenBLAS reads its variable then
_LIBC = ctypes.CDLL(None)

# Nothing that is imported or collected is garbage, and to look for some takes a quarter of the 12 s of each worker.
gc.disable()

# Where the environment forbids bytecode, every worker would compile every test, and every program all of Satchel.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shared machine makes any deadline a coin toss; what is slow is found by benchmarks. `make test` draws the same
# examples everywhere, so that a red run can be repeated and a green one means something; `make fuzz` draws new ones.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("same")

# Each home of a test has an engine of its own, which would compile all statements anew: a quarter of the CPU time of a
# home that is opened for one turn. What is compiled is found by the dialect, which is the same for all.
DefaultDialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
_COMPILED: dict[object, object] = {}


@sqlalchemy.event.listens_for(Engine, "engine_connect")
def _compile_once(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)


_LONG = (
    "test_two_people",
    "_kill",
    "test_attacks",
    "test_box_attempts",
    "test_doors",
    "_states",
    "_in_chromium",
)
"""Names of files with tests that take half a minute each on a busy machine."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: half of the time a test waits for the disk or for other processes."""
    return 2 * (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that none of them is left for one worker at the end."""
    items.sort(key=lambda item: not any(word in item.path.name for word in _LONG))


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of the collector's sight: it stays, and to look through these 800,000
    objects takes half a second after each file.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Give back what the tests of a file have freed: glibc keeps it, and each worker would grow by the largest of every
    suite. After those of `models`, a worker has 250 MB, and 358 without this.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        getattr(_LIBC, "malloc_trim", lambda _: None)(0)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """After the whole run there is no process that Satchel started in it."""
    yield
    # Those carry the mark of this program's warden in their environment.
    assert processes_that_say(f"{process._warden.mark}-") == []


@pytest.fixture(scope="session")
def minilm_home(request: pytest.FixtureRequest) -> Path:
    """A SATCHEL_HOME with the real model, kept in pytest's cache between runs; skips where it can't be had."""
    assert request.config.cache is not None
    home = Path(request.config.cache.mkdir("satchel-home"))
    try:
        fetch_weights(home, environ=dict(os.environ))
    except EmbedderError as error:
        pytest.skip(f"THE DEFAULT EMBEDDER WAS NOT TESTED: {error}")
    return home
