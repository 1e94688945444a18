"""What others do while sessions are open: remove the home, forget words, hold the database."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.errors import StorageError
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.runtime import home, session_memory
from tests.requirements import requirement
from tests.runtime.world import logged, opened, write_locked

pytestmark = pytest.mark.anyio


@requirement("storage:home-removed")
async def test_a_home_that_disappears_is_named_by_every_open_session_and_closing_goes_well(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(120):
        async with opened(tmp_path, ScriptedModel(lambda _: Reply(text="Yes."))) as satchel:
            spoken, silent = await satchel.session(), await satchel.session()
            assert (await spoken.run_turn("hi")).status == "done"
            shutil.rmtree(tmp_path / "home")
            for session in (spoken, silent):
                with pytest.raises(
                    StorageError, match=rf"{session.path}, was removed while the session was open"
                ):
                    await session.run_turn("and now?")
            # A new one is written into a home that is made again; the database is not there any more.
            new = await satchel.session()
            turn = await new.run_turn("start over")
            assert turn.status == "done"
            assert "satchel.db was removed while it was open" in turn.notices[0]
            assert [info.id for info in await satchel.sessions.list()] == [new.id]


@requirement("sessions:redact")
async def test_words_that_are_forgotten_while_a_turn_runs_are_not_sent_or_written_again(
    tmp_path: Path,
) -> None:
    asked, answer = anyio.Event(), anyio.Event()

    async def hold() -> None:
        asked.set()
        await answer.wait()

    def reply(request: ModelRequest) -> Reply:
        return Reply(text="Noted.", before=hold if "Wait" in str(request.messages[-1]) else None)

    model = ScriptedModel(reply)
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        await session.run_turn("My locker code is tangerine seven.")
        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run_turn, "Wait for me.")
                await asked.wait()
                receipt = await satchel.forget(query="tangerine")
                answer.set()
        assert [entry.session_id for entry in receipt.logs.sessions] == [session.id]
        await session.run_turn("What is next?")
        assert "tangerine" not in str(model.requests[-1])
        assert "Wait for me." in str(model.requests[-1])
        assert session.path is not None
        assert "tangerine" not in session.path.read_text()


@requirement("sessions:recaptured", "storage:errors:locked")
async def test_a_turn_that_is_stopped_while_another_process_holds_the_database_ends_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_memory, "_CAPTURE_WAIT_S", 0.5)
    asked = anyio.Event()

    async def hold() -> None:
        asked.set()
        await anyio.sleep_forever()

    model = ScriptedModel(lambda _: Reply(text="Yes.", before=hold))
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        with anyio.fail_after(120):
            running = await session.start("The heron nests by the mill.")
            await asked.wait()
            with write_locked(tmp_path / "home" / "satchel.db"):
                session.cancel()
                turn = await running.result()
        assert turn.status == "cancelled"
        assert "not yet in memory" in turn.notices[-1]
        assert session.path is not None
        kinds = [json.loads(line)["type"] for line in session.path.read_text().splitlines()]
        assert kinds.count("turn_end") == 1
        assert "error" not in kinds
    async with opened(tmp_path, model) as satchel:
        assert satchel.memory is not None
        assert len(await satchel.memory.search("heron")) == 1


async def test_many_sessions_close_together_while_another_process_holds_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = 4
    all_asked = anyio.Event()

    async def hold() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            all_asked.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(home, "_LOCK_TIMEOUT_S", 1000.0)
    with ExitStack() as lock, anyio.fail_after(120):
        async with opened(tmp_path, ScriptedModel(lambda _: Reply(text="Yes.", before=hold))) as satchel:
            sessions = [await satchel.session() for _ in range(4)]
            for session in sessions:
                await session.start("hi")
            await all_asked.wait()
            lock.enter_context(write_locked(tmp_path / "home" / "satchel.db"))
    for session in sessions:
        assert session.path is not None
        assert '"type":"turn_end"' in session.path.read_text()


SAID = "My locker code is tangerine seven."


@requirement("memory:forget:running-session")
async def test_what_another_process_forgets_leaves_a_conversation_that_is_open(tmp_path: Path) -> None:
    """That process can't reach this one; this one sees that its log was rewritten."""
    model = ScriptedModel(lambda request: Reply(text=f"Noted: {request.messages}"))
    async with opened(tmp_path, model) as here, opened(tmp_path) as there:
        session, other = await here.session(), await here.session()
        await session.run_turn(SAID)
        await other.run_turn(SAID)
        assert there.memory is not None
        receipt = await there.forget([memory.id for memory in await there.memory.list()])
        assert len(receipt.logs.sessions) == 2
        at = len(model.requests)
        await session.run_turn("What is next?")
        await session.compact()
        await other.compact()
        await other.run_turn("And now?")
        assert at < len(model.requests)
        assert [n for n, r in enumerate(model.requests[at:]) if "tangerine" in str(r)] == []
    held = [file for file in tmp_path.rglob("*") if file.is_file() and b"tangerine" in file.read_bytes()]
    assert held == []


@requirement("memory:forget:running-session")
async def test_what_a_turn_forgets_is_in_no_later_prompt_nor_in_any_file(tmp_path: Path) -> None:
    """The turn reads the words, forgets them, and repeats them; then it goes on, and is compacted and resumed."""
    wanted: list[str] = []

    def reply(request: ModelRequest) -> Reply:
        said, last = str(request.messages), str(request.messages[-1])
        if "summary" in request.system.lower() or "summar" in last.lower():
            return Reply(text=f"Summary: {'tangerine' if 'tangerine' in said else 'nothing'}.")
        if "Removed for good" in last:
            return Reply(text=f"I have forgotten this: {SAID}")
        if "ToolResultBlock" in last:
            return Reply(calls=[Call(name="forget_memory", input={"ids": wanted})])
        if "Forget" in last:
            return Reply(calls=[Call(name="recall_memory", input={"query": "locker code"})])
        return Reply(text="Noted.")

    model = ScriptedModel(reply)
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        assert satchel.memory is not None
        session, other = await satchel.session(), await satchel.session()
        await session.run_turn(SAID)
        await other.run_turn("What is my locker code?")
        wanted += [memory.id for memory in await satchel.memory.list()]
        turn = await session.run_turn(f"Forget this: {SAID}")
        assert turn.status == "done"
        at = len(model.requests)
        await session.compact()
        await session.run_turn("What is next?")
        await other.run_turn("And now?")
        await other.compact()
        assert at < len(model.requests)
        assert [n for n, r in enumerate(model.requests[at - 1 :]) if "tangerine" in str(r)] == []
        assert "tangerine" not in str(await satchel.memory.list())
        ids = session.id
    async with opened(tmp_path, model) as satchel:
        resumed = await satchel.session(ids)
        await resumed.run_turn("Go on.")
        assert "tangerine" not in str(model.requests[-1])
    held = [file for file in tmp_path.rglob("*") if file.is_file() and b"tangerine" in file.read_bytes()]
    assert held == []


@requirement("memory:forget:running-session")
async def test_what_another_process_forgets_during_a_turn_is_not_sent_or_written_again(
    tmp_path: Path,
) -> None:
    """The model repeats the words once they are forgotten, with a call, so that the turn has another round."""
    asked, answer = anyio.Event(), anyio.Event()

    async def hold() -> None:
        asked.set()
        await answer.wait()

    def reply(request: ModelRequest) -> Reply:
        last = str(request.messages[-1])
        if "ToolResultBlock" in last:
            return Reply(text=f"Once more: {SAID}" if "tangerine" in str(request) else "I have lost it.")
        if "Wait" in last:
            call = Call(name="recall_memory", input={"query": SAID})
            return Reply(text=f"You said: {SAID}", calls=[call], before=hold)
        return Reply(text="Noted.")

    model = ScriptedModel(reply)
    async with opened(tmp_path, model, agent__mode="bypass") as here, opened(tmp_path) as there:
        session, resumed = await here.session(), await here.session()
        await session.run_turn(SAID)
        await resumed.run_turn(SAID)
        await resumed.aclose()
        resumed = await here.session(resumed.id)
        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run_turn, "Wait for me.")
                await asked.wait()
                assert there.memory is not None
                await there.forget([memory.id for memory in await there.memory.list()])
                answer.set()
        await session.compact()
        await resumed.run_turn("And now?")
        assert [n for n, r in enumerate(model.requests[3:]) if "tangerine" in str(r)] == []
        assert [r for r in model.requests if "ToolResultBlock" in str(r.messages[-1])]
        assert here.memory is not None
        assert [found.content for found in await here.memory.list() if "tangerine" in found.content] == []
    held = [file for file in tmp_path.rglob("*") if file.is_file() and b"tangerine" in file.read_bytes()]
    assert held == []


@requirement("memory:forget:running-session")
@pytest.mark.parametrize("moment", ["logs are redacted", "profile", "surface", "search"])
async def test_what_another_process_forgets_while_a_turn_finds_it_stays_in_no_log(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn finds it in the store before it is deleted, and logs it after the logs were redacted."""

    def reply(request: ModelRequest) -> Reply:
        if moment == "search" and "ToolResultBlock" not in str(request.messages[-1]):
            return Reply(calls=[Call(name="recall_memory", input={"query": "locker code"})])
        return Reply(text=f"I was shown {request.messages[-1]}.")

    model = ScriptedModel(reply)
    options = {"agent__mode": "bypass", "memory__profile_tokens": 400 if moment == "profile" else 0}
    async with opened(tmp_path, model, **options) as here, opened(tmp_path) as there:
        assert here.memory is not None
        assert there.memory is not None
        id = await there.memory.add(SAID)
        session = await here.session()
        owner: Any = there.home.sessions if moment == "logs are redacted" else here.memory
        name = {"logs are redacted": "redact", "profile": "standing"}.get(moment, moment)
        real = getattr(owner, name)

        async def meanwhile(*args: Any, **keywords: Any) -> Any:
            found = await real(*args, **keywords)
            monkeypatch.undo()
            if owner is there.home.sessions:
                await session.run_turn("What is my locker code?")
            else:
                assert not (await there.forget([id])).is_empty
            return found

        monkeypatch.setattr(owner, name, meanwhile)
        if owner is there.home.sessions:
            await there.forget([id])
        else:
            await session.run_turn("What is my locker code?" if moment == "surface" else "Hello.")
        at = len(model.requests)
        await session.run_turn("And now?")
        assert "tangerine" not in str(model.requests[at:])
        assert "tangerine" not in str(await here.memory.list())
    held = [file for file in tmp_path.rglob("*") if file.is_file() and b"tangerine" in file.read_bytes()]
    assert held == []


@requirement("config:sandbox:named")
async def test_a_sandbox_that_does_not_exist_is_told_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, sandbox__backend="bublewrap") as satchel:
        told = {notice.part: notice.text for notice in satchel.notices}
    assert told["sandbox"].startswith(
        "sandbox.backend is 'bublewrap', and there is no such sandbox. There are:"
    )


async def test_a_log_of_a_newer_version_goes_on_without_what_this_one_does_not_know(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(lambda _: "Yes.")) as satchel:
        session = await satchel.session()
        await session.run_turn("Is it Tuesday?")
    path = logged(session)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["type"] == "assistant":
            line["stop_reason"] = "hologram"
    at = {"seq": lines[-1]["seq"] + 1, "at": lines[-1]["at"]}
    built = {"id": "i", "build_id": "b", "number": 1, "capability": "c", "kind": "hologram"}
    lines.append({**at, "type": "build_posted", **built})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = ScriptedModel(lambda _: "Still.")
    async with opened(tmp_path, model) as satchel:
        turn = await (await satchel.session(session.id)).run_turn("And now?")
        assert turn.text == "Still."
    assert [(one.role, one.text) for one in model.requests[-1].messages[1:]] == [
        ("assistant", "Yes."),
        ("user", "And now?"),
    ]
