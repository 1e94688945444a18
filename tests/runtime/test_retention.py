"""Old conversations are compressed by the program itself, and deleted only if the user has set that."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.clock import ManualClock
from satchel.models import ScriptedModel
from satchel.runtime import Satchel, retention
from satchel.runtime.memory_worker import run_memory_work
from satchel.runtime.retention import Retained, retain
from satchel.sessions.log import is_compressed
from tests.requirements import requirement
from tests.runtime.world import logged, settings_in

pytestmark = pytest.mark.anyio

DAY_S = 86_400.0


async def say(folder: Path, words: str, clock: ManualClock) -> tuple[str, Path]:
    settings = settings_in(folder, memory__embedder="none")
    async with Satchel.open(settings, model=ScriptedModel(["Noted."]), clock=clock) as satchel:
        session = await satchel.session()
        await session.run_turn(words)
        return session.id, logged(session)


@requirement("sessions:retention")
async def test_a_conversation_is_compressed_and_then_deleted_after_the_days_that_are_set(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    id, path = await say(tmp_path, "My sister Mara is allergic to shellfish.", clock)
    path.with_suffix(".spill").mkdir()
    clock.advance(20 * DAY_S)
    _, newer = await say(tmp_path, "The spare key hangs behind the red door.", clock)

    async def kept(**settings: Any) -> Retained:
        given = settings_in(tmp_path, memory__embedder="none", **settings)
        async with Satchel.open(given, clock=clock, upkeep="none") as satchel:
            done = await retain(satchel.home)
            told = [notice.text for notice in satchel.notices if notice.part == "sessions"]
            assert len(told) == len(done.deleted)
            assert satchel.memory is not None
            assert await satchel.memory.search("Mara shellfish")
            return done

    assert await kept() == Retained()
    clock.advance(11 * DAY_S)
    assert await kept(sessions__compress_after_days=0) == Retained()
    assert await kept() == Retained(compressed=1)
    assert (is_compressed(path), is_compressed(newer)) == (True, False)
    assert await kept(sessions__delete_after_days=30) == Retained(deleted=(id,))
    assert [each.name for each in path.parent.iterdir()] == [newer.name]


@requirement("sessions:branches:one", "sessions:retention")
async def test_a_conversation_is_deleted_when_all_its_branches_are_old(tmp_path: Path) -> None:
    clock = ManualClock()
    id, _ = await say(tmp_path, "Mara likes tea.", clock)
    settings = settings_in(tmp_path, memory__embedder="none", sessions__delete_after_days=30)
    clock.advance(20 * DAY_S)
    async with Satchel.open(settings, model=ScriptedModel(["Noted."]), clock=clock) as satchel:
        branch = await satchel.sessions.branch(id, 1)
        session = await satchel.session(branch)
        await session.run_turn("Mara likes coffee.")
    for days, deleted, told in ((20, (), 0), (20, (branch, id), 1)):
        clock.advance(days * DAY_S)
        async with Satchel.open(settings, clock=clock, upkeep="none") as satchel:
            assert (await retain(satchel.home)).deleted == deleted
            notices = [notice.text for notice in satchel.notices if notice.part == "sessions"]
            assert [text.startswith("1 conversation without") for text in notices] == [True] * told


@requirement("sessions:retention")
async def test_where_no_such_process_is_started_whoever_answers_does_it(tmp_path: Path) -> None:
    _, path = await say(tmp_path, "Mara likes tea.", ManualClock(datetime(2020, 1, 1, tzinfo=UTC)))
    settings = settings_in(tmp_path, memory__embedder="none", memory__worker="off")
    async with Satchel.open(settings, model=ScriptedModel(["Noted."]), upkeep="worker") as satchel:
        await (await satchel.session()).run_turn("Mara likes coffee, too.")
        with anyio.fail_after(30):
            while not is_compressed(path):  # noqa: ASYNC110 - what the background writes is no event here
                await anyio.sleep(0.01)


@requirement("sessions:retention")
async def test_an_old_conversation_with_which_the_user_goes_on_is_not_deleted_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, path = await say(tmp_path, "Mara likes tea.", ManualClock(datetime(2020, 1, 1, tzinfo=UTC)))
    settings = settings_in(
        tmp_path, memory__embedder="none", memory__worker="off", sessions__delete_after_days=30
    )
    done: list[Retained] = []
    is_done = anyio.Event()

    async def noted(home: Any) -> Retained:
        done.append(await retain(home))
        is_done.set()
        return done[-1]

    monkeypatch.setattr(retention, "retain", noted)
    async with Satchel.open(settings, model=ScriptedModel(["Noted."]), upkeep="worker") as satchel:
        await anyio.wait_all_tasks_blocked()
        session = await satchel.session(id)
        await is_done.wait()
        assert (await session.run_turn("Mara likes coffee, too.")).turn == 2
    assert (done, path.exists()) == ([Retained()], True)


@requirement("sessions:retention")
async def test_the_process_that_does_memorys_work_compresses_old_logs(tmp_path: Path) -> None:
    _, path = await say(tmp_path, "Mara likes tea.", ManualClock(datetime(2020, 1, 1, tzinfo=UTC)))
    settings = settings_in(tmp_path, memory__embedder="none", memory__worker_idle_s=0)
    assert await run_memory_work(settings, tell=lambda _: None)
    assert is_compressed(path)
