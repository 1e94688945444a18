"""What is said in one session is there in the next, and only where it helps."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from sqlalchemy import Connection, delete, func, select

from satchel.capabilities.kept import Returned
from satchel.events import Event, MemoryCaptured, MemorySurfaced
from satchel.loop import TurnLimits
from satchel.memory import Rebuilt
from satchel.memory.store.tables import memories
from satchel.messages import TextBlock
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.runtime import home
from satchel.runtime.health import examine
from satchel.runtime.lines import receipt_lines
from satchel.runtime.rebuilding import rebuild
from satchel.runtime.session_log import SessionLog
from satchel.storage import Database
from tests.capabilities.world import register
from tests.requirements import requirement
from tests.runtime.world import logged, opened, settings_in

pytestmark = pytest.mark.anyio


def blocks_of(request: ModelRequest) -> list[tuple[str, str]]:
    """Origin and words of the newest message's texts."""
    blocks = [block for block in request.messages[-1].blocks if isinstance(block, TextBlock)]
    return [(block.origin, block.text) for block in blocks if block.origin != "context"]


@requirement("promise:remembers:verbatim", "memory:surface:marked", "memory:capture:every-exchange")
async def test_what_was_said_in_one_session_is_shown_to_the_model_in_another(tmp_path: Path) -> None:
    model = ScriptedModel(["I'll keep that in mind.", "No shellfish for Mara."])
    async with opened(tmp_path, model) as satchel:
        first = await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
    async with opened(tmp_path, model) as satchel:
        second = await (await satchel.session()).run_turn("What is my sister Mara allergic to?")
    shown = {(memory.session, memory.source_turn, memory.content) for memory in second.memory}
    assert (first.session_id, 1, "My sister Mara is allergic to shellfish.") in shown
    assert all(0 < memory.score <= 1 for memory in second.memory)
    said, surfaced = blocks_of(model.requests[1])
    assert said == ("said", "What is my sister Mara allergic to?")
    assert surfaced[0] == "memory"
    assert "My sister Mara is allergic to shellfish." in surfaced[1]


@requirement("promise:durable:kill")
@pytest.mark.parametrize("fault", ["missing", "empty", "missing with its journal"])
async def test_a_home_that_has_lost_its_database_says_so_and_has_what_was_said_and_added(
    tmp_path: Path, fault: str
) -> None:
    async with opened(tmp_path, ScriptedModel(["Noted.", "Noted.", "Noted."])) as satchel:
        session = await satchel.session()
        await session.run_turn("My sister Mara is allergic to shellfish.")
        await session.run_turn("The gate code of the summer house is kept by Jonas.")
        assert satchel.memory is not None
        (gone,) = [hit for hit in await satchel.memory.search("gate code") if "Jonas" in hit.memory.content]
        await satchel.forget([gone.memory.id])
        await satchel.memory.pin(await satchel.memory.add("Mara lives in the orchard house."))
        await (await satchel.session(private=True)).run_turn("Nobody may keep this about the orchard.")
    for file in (tmp_path / "home").glob("satchel.db*"):
        file.unlink()
    if fault == "empty":
        (tmp_path / "home/satchel.db").touch()
    elif fault == "missing with its journal":
        shutil.rmtree(tmp_path / "home/journal")
    added = [] if fault == "missing with its journal" else ["Mara lives in the orchard house."]
    for _ in range(2):
        async with opened(tmp_path, ScriptedModel([])) as satchel:
            assert satchel.memory is not None
            found = [hit.memory for hit in await satchel.memory.search("Mara shellfish Jonas gate orchard")]
            assert sorted(memory.content for memory in found if memory.speaker == "user") == [
                "My sister Mara is allergic to shellfish."
            ]
            assert [memory.content for memory in found if memory.pinned] == added
            (check,) = [check for check in await examine(satchel) if "was missing or empty" in check.text]
            assert (check.part, check.state) == ("memory", "failed")
    await rebuild(settings_in(tmp_path, memory__embedder="none"))
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        assert not satchel.notices


@requirement("promise:durable:capabilities")
async def test_capabilities_are_there_again_after_their_database_was_lost(tmp_path: Path) -> None:
    async def lose(*names: str) -> None:
        async with opened(tmp_path) as satchel:
            assert satchel.capabilities is not None
            for name in names:
                await register(satchel.capabilities.catalogue, name)
        for file in (tmp_path / "home").glob("satchel.db*"):
            file.unlink()

    await lose("greet", "thank")
    async with opened(tmp_path) as satchel:
        assert satchel.capabilities is not None
        assert [each.name for each in await satchel.capabilities.catalogue.list("active")] == [
            "greet",
            "thank",
        ]
        (notice,) = satchel.notices
        assert (notice.part, "greet, thank" in notice.text) == ("capabilities", True)
    await lose()
    (changed,) = [
        path
        for path in (tmp_path / "home").glob("capabilities/*/v1")
        if "thank" in (path / "manifest.json").read_text()
    ]
    (changed / "requirements.txt").write_text("# mine\n")
    done = await rebuild(settings_in(tmp_path, memory__embedder="none"))
    assert done.capabilities == (
        Returned(name="greet", is_changed=False),
        Returned(name="thank", is_changed=True),
    )
    async with opened(tmp_path) as satchel:
        assert not satchel.notices
        assert satchel.capabilities is not None
        assert [each.name for each in await satchel.capabilities.catalogue.list("active")] == ["greet"]


@requirement("promise:durable:journal")
async def test_a_damaged_database_is_set_aside_and_made_again(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(["Noted."])) as satchel:
        assert satchel.memory is not None
        await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        kept = await satchel.memory.add("The barn is red.")
        await satchel.forget([await satchel.memory.add("The quagga code is 4711.")])
        before = sorted(record.content for record in await satchel.memory.list())
    database = tmp_path / "home/satchel.db"
    with database.open("r+b") as file:
        file.write(os.urandom(8192))
    async with opened(tmp_path) as satchel:
        assert satchel.memory is None
        assert any("satchel memory rebuild" in notice.text for notice in satchel.notices)
    done = await rebuild(settings_in(tmp_path, memory__embedder="none"))
    assert done.aside is not None
    assert done.journal.memories == len(before)
    async with opened(tmp_path) as satchel:
        assert satchel.memory is not None
        assert sorted(record.content for record in await satchel.memory.list()) == before
        # The file that was set aside is a copy like a backup.
        assert done.aside in (await satchel.forget([kept])).backups
    again = await rebuild(settings_in(tmp_path, memory__embedder="none"))
    assert (again.aside, again.journal, again.logs.lacking) == (None, Rebuilt(), 0)


@requirement("promise:durable:journal")
async def test_doctor_compares_the_logs_with_memory_and_names_damaged_ones(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(["Noted.", "Noted."])) as satchel:
        assert satchel.home.database is not None
        await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        session = await satchel.session()
        await session.run_turn("The barn is red.")
        log = logged(session)
        assert [check.state for check in await examine(satchel) if check.part == "logs"] == ["ok"]
        await satchel.home.database.write(
            lambda connection: connection.execute(delete(memories).where(memories.c.content.like("%Mara%")))
        )
        (check,) = [check for check in await examine(satchel) if check.part == "logs"]
        assert check.text.startswith("1 message of the conversation logs is not in memory")
    await rebuild(settings_in(tmp_path, memory__embedder="none"))
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:1], b"\0" * 4096 + b"\n", lines[1][:20] + b"\n", *lines[2:]]))
    async with opened(tmp_path) as satchel:
        (check,) = [check for check in await examine(satchel) if check.part == "logs"]
        assert (check.state, "2 lines" in check.text, str(log) in check.text) == ("warning", True, True)


@requirement("promise:durable:kill")
async def test_turns_that_the_database_has_lost_with_its_end_are_captured_again(tmp_path: Path) -> None:
    database = tmp_path / "home/satchel.db"
    async with opened(tmp_path, ScriptedModel(["Noted."])) as satchel:
        session = await satchel.session()
        await session.run_turn("The red kite hangs on the roof of the barn.")
    before = database.read_bytes()
    async with opened(tmp_path, ScriptedModel(["Noted."])) as satchel:
        await (await satchel.session(session.id)).run_turn("My sister Mara is allergic to shellfish.")
    for file in (tmp_path / "home").glob("satchel.db-*"):
        file.unlink()
    database.write_bytes(before)
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        assert satchel.memory is not None
        hits = await satchel.memory.search("Mara shellfish")
        assert "My sister Mara is allergic to shellfish." in [hit.memory.content for hit in hits]


@requirement("promise:durable:kill")
async def test_a_turn_is_on_the_disk_before_the_log_says_that_it_was_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite syncs a commit only if it is asked to, and the log is synced at the end of a turn."""
    done: list[str] = []
    write, record = Database.write, SessionLog.record

    async def watched_write(self: Database, function: Any, *, durable: bool = False, **more: Any) -> Any:
        result = await write(self, function, durable=durable, **more)
        if durable and not isinstance(result, Exception):
            stored = await self.read(
                lambda connection: connection.execute(select(func.count(memories.c.rid))).scalar()
            )
            done.append(f"synced {stored}")
        return result

    async def watched_record(self: SessionLog, *events: Event) -> Any:
        done.extend("captured" for event in events if isinstance(event, MemoryCaptured))
        return await record(self, *events)

    monkeypatch.setattr(Database, "write", watched_write)
    monkeypatch.setattr(SessionLog, "record", watched_record)
    async with opened(tmp_path, ScriptedModel(["Noted."])) as satchel:
        await (await satchel.session()).run_turn("The red kite hangs on the roof of the barn.")
    assert "synced 2" in done[: done.index("captured")]


async def test_a_first_home_has_lost_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        assert not satchel.notices


@requirement("memory:surface:judge")
async def test_a_judge_that_cannot_be_had_is_named_once_and_memory_chooses_without_it(tmp_path: Path) -> None:
    model = ScriptedModel(["Noted.", "Shellfish.", "Yes, Mara."])
    judge = {
        "memory__surface_judge": "small_model",
        "small_model": "nosuch:tiny",
        "memory__profile_tokens": 0,
    }
    async with opened(tmp_path, model, **judge) as satchel:
        await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        session = await satchel.session()
        turns = [
            await session.run_turn("What is my sister Mara allergic to?"),
            await session.run_turn("Mara?"),
        ]
        named = [notice.text for notice in satchel.notices if "memory.surface_judge" in notice.text]
    assert "My sister Mara is allergic to shellfish." in [memory.content for memory in turns[0].memory]
    assert len(named) == 1
    assert "nosuch" in named[0]


@requirement("promise:remembers:nothing-irrelevant", "memory:surface:nothing")
async def test_what_a_search_finds_is_not_shown_where_it_does_not_help(tmp_path: Path) -> None:
    asked = "Is the capital of France on the Seine?"
    model = ScriptedModel(["Noted.", "It is."])
    # What was said last stands before every conversation, whatever it is about.
    async with opened(tmp_path, model, memory__profile_tokens=0) as satchel:
        await (await satchel.session()).run_turn("The river in our town flooded France Street in spring.")
        assert satchel.memory is not None
        assert await satchel.memory.search(asked)
        turn = await (await satchel.session()).run_turn(asked)
    assert turn.memory == ()
    assert blocks_of(model.requests[1]) == [("said", asked)]


@requirement("memory:surface:once", "promise:cache:stable-prefix")
async def test_a_memory_is_shown_once_in_a_session_and_replayed_byte_for_byte(tmp_path: Path) -> None:
    model = ScriptedModel(["Noted.", "Shellfish.", "Still shellfish.", "Shellfish, as I said."])
    async with opened(tmp_path, model) as satchel:
        await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        session = await satchel.session()
        first = await session.run_turn("What is my sister Mara allergic to?")
        again = await session.run_turn("My sister Mara, what is she allergic to?")
    assert [len(turn.memory) > 0 for turn in (first, again)] == [True, False]
    assert model.requests[2].messages[0] == model.requests[1].messages[0]
    async with opened(tmp_path, model) as satchel:
        resumed = await satchel.session(session.id)
        await resumed.run_turn("And once more?")
    assert model.requests[3].messages[:4] == (*model.requests[2].messages, model.requests[3].messages[3])


@requirement("memory:capture:echo")
async def test_what_was_injected_is_never_captured_again(tmp_path: Path) -> None:
    model = ScriptedModel(["Noted.", "Shellfish."])
    async with opened(tmp_path, model) as satchel:
        await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        turn = await (await satchel.session()).run_turn("What is my sister Mara allergic to?")
        assert turn.memory
        assert satchel.memory is not None
        contents = sorted(record.content for record in await satchel.memory.list())
    assert contents == sorted(
        [
            "My sister Mara is allergic to shellfish.",
            "Noted.",
            "What is my sister Mara allergic to?",
            "Shellfish.",
        ]
    )


@requirement("memory:capture:echo")
async def test_a_list_of_dates_as_far_as_there_are_is_captured_as_it_was_said(tmp_path: Path) -> None:
    said = '- 0001-01-01, the start: "x"\n- 9999-12-31, the end: "y"'
    async with opened(tmp_path, ScriptedModel(["Noted."])) as satchel:
        await (await satchel.session()).run_turn(said)
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        assert satchel.memory is not None
        assert said in [record.content for record in await satchel.memory.list()]


@requirement("memory:capture:private")
async def test_a_private_session_and_a_turn_without_memory_leave_nothing_in_the_store(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two."])
    async with opened(tmp_path, model) as satchel:
        await (await satchel.session(private=True)).run_turn("My PIN is a secret.")
        await (await satchel.session()).run_turn("Nobody may know this.", memory=False)
    async with opened(tmp_path, model) as satchel:
        assert satchel.memory is not None
        assert await satchel.memory.list() == ()


@requirement("sessions:recaptured")
async def test_a_turn_that_only_the_log_has_is_captured_when_satchel_opens_again(tmp_path: Path) -> None:
    model = ScriptedModel(["Noted."])
    async with opened(tmp_path, model, memory__enabled=False) as satchel:
        # As after a crash between the log and the store: the log tells of no capture.
        session = await satchel.session()
        await session.run_turn("The garage code changes on Monday.")
        lines = logged(session).read_text().splitlines(keepends=True)
        path = logged(session)
    path.write_text("".join(line for line in lines if "memory_captured" not in line))
    async with opened(tmp_path, model) as satchel:
        assert satchel.memory is not None
        found = {(r.content, r.source.session, r.source.turn) for r in await satchel.memory.list()}
    assert found == {
        ("The garage code changes on Monday.", session.id, 1),
        ("Noted.", session.id, 1),
    }


@requirement("promise:offline:memory-whole")
async def test_without_a_model_the_answer_quotes_what_fits_with_its_source_and_is_not_kept(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as satchel:
        noted = await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        answer = await (await satchel.session()).run_turn("What is my sister Mara allergic to?")
        assert satchel.memory is not None
        kept = {record.speaker for record in await satchel.memory.list()}
    assert "My sister Mara is allergic to shellfish." in answer.text
    assert noted.session_id in answer.text
    assert "To add one, set ANTHROPIC_API_KEY or OPENAI_API_KEY, start Ollama, or run" in answer.text
    assert kept == {"user"}


@requirement(
    "promise:forget:session-log", "promise:forget:row-vector-index", "promise:forget:stays-forgotten"
)
async def test_forgetting_takes_the_words_out_of_the_store_and_out_of_every_log(tmp_path: Path) -> None:
    model = ScriptedModel(["Noted.", "Shellfish it is."])
    async with opened(tmp_path, model) as satchel:
        first = await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        session = await satchel.session()
        second = await session.run_turn("What is my sister Mara allergic to?")
        (id,) = [memory.id for memory in second.memory if "shellfish" in memory.content]
        receipt = await satchel.forget([id])
        assert [gone.id for gone in receipt.store.forgotten] == [id]
        assert {entry.session_id for entry in receipt.logs.sessions} == {first.session_id, session.id}
        assert not any(
            "allergic to shellfish" in b.text
            for m in session.messages
            for b in m.blocks
            if isinstance(b, TextBlock)
        )
        assert (await satchel.forget([id])).is_empty
    for path in (tmp_path / "home").rglob("*"):
        if path.is_file():
            assert b"allergic to shellfish" not in path.read_bytes(), path
    async with opened(tmp_path, model) as satchel:
        assert satchel.memory is not None
        assert not [r for r in await satchel.memory.list() if "shellfish." in r.content]


@requirement("memory:cues:forgotten")
async def test_the_cues_that_a_model_stored_leave_the_log_with_their_fact(tmp_path: Path) -> None:
    input = {"content": "Mara is allergic to shellfish.", "cues": ["a zyzzyva brunch", "a quokka"]}
    model = ScriptedModel([Reply(calls=[Call(name="store_memory", input=input)]), "Noted."])
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        session = await satchel.session()
        await session.run_turn("Keep that about Mara in mind.")
        assert satchel.memory is not None
        assert b"zyzzyva" in logged(session).read_bytes()
        (id,) = [record.id for record in await satchel.memory.list(kind="fact")]
        assert not (await satchel.forget([id])).is_empty
        # Also what the open session would send again.
        assert not any(
            "zyzzyva" in repr(message) or "quokka" in repr(message) for message in session.messages
        )
    for path in (tmp_path / "home").rglob("*"):
        if path.is_file():
            assert b"zyzzyva" not in path.read_bytes(), path
            assert b"quokka" not in path.read_bytes(), path


@requirement("memory:forget:receipt")
async def test_the_receipt_says_when_another_process_keeps_the_words_in_the_databases_log(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        assert satchel.memory is not None
        first, second = [
            await satchel.memory.add(f"The safe behind the {place} opens with 4711.")
            for place in ("mirror", "painting")
        ]
        with closing(sqlite3.connect(satchel.settings.database_location, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM memories").fetchall()
            held = receipt_lines(await satchel.forget([first]))
        free = receipt_lines(await satchel.forget([second]))
    assert [line for line in held if "another process" in line] == [
        "  ! another process is using the database: its log keeps the words until that ends"
    ]
    assert not any("another process" in line for line in free)
    home = tmp_path / "home"
    assert not [file for file in home.rglob("*") if file.is_file() and b"mirror" in file.read_bytes()]


@requirement("promise:degrade:goes-on", "memory:resilient")
async def test_with_a_corrupt_database_the_conversation_continues_and_memory_catches_up_later(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["Noted."])
    database = tmp_path / "home" / "satchel.db"
    database.parent.mkdir()
    database.write_bytes(b"this is no database" * 100)
    async with opened(tmp_path, model) as satchel:
        assert [notice.part for notice in satchel.notices] == ["memory"]
        turn = await (await satchel.session()).run_turn("Remember the milk.")
    assert (turn.status, turn.text) == ("done", "Noted.")
    assert database.read_bytes() == b"this is no database" * 100
    database.unlink()
    async with opened(tmp_path, model) as satchel:
        assert satchel.memory is not None
        assert {record.content for record in await satchel.memory.list()} == {"Remember the milk.", "Noted."}


@requirement("promise:degrade:goes-on")
async def test_recall_alone_says_when_it_could_not_look(tmp_path: Path) -> None:
    database = tmp_path / "home" / "satchel.db"
    database.parent.mkdir()
    database.write_bytes(b"this is no database" * 100)
    async with opened(tmp_path) as satchel:
        turn = await (await satchel.session()).run_turn("What is my cat called?")
    assert turn.text.startswith("Memory is unavailable now, so I looked nothing up")
    database.unlink()
    async with opened(tmp_path) as satchel:
        session = await satchel.session()
        left_out = await session.run_turn("What is my cat called?", memory=False)
        asked = await session.run_turn("What is my cat called?")
    assert left_out.text.startswith("Memory is left out of this message, so I looked nothing up")
    assert asked.text == "I remember nothing that fits."
    async with opened(tmp_path, memory__enabled=False) as satchel:
        off = await (await satchel.session()).run_turn("My cat is called Momo.")
    assert off.text.startswith("Memory is switched off (memory.enabled), so I looked nothing up")


@requirement("promise:degrade:goes-on")
async def test_while_another_process_locks_the_database_the_turn_ends_and_memory_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TurnLimits().emit_timeout_s > home._LOCK_TIMEOUT_S
    monkeypatch.setattr(home, "_LOCK_TIMEOUT_S", 0.05)
    model = ScriptedModel(["Fine.", "Noted.", "Noted, too."])
    async with opened(tmp_path, model) as satchel:
        await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        assert satchel.memory is not None
        assert await satchel.memory.surface(
            "What is my sister Mara allergic to?"
        )  # and so the vectors are made
    let_go = threading.Event()
    async with (
        opened(tmp_path, model) as satchel,
        Database.open(tmp_path / "home" / "satchel.db") as other,
        anyio.create_task_group() as group,
    ):
        is_held = threading.Event()

        def hold(_: Connection) -> None:
            is_held.set()
            let_go.wait(120)

        group.start_soon(other.write, hold)
        await anyio.to_thread.run_sync(is_held.wait)
        try:
            turn = await (await satchel.session()).run_turn("What is my sister Mara allergic to?")
            async with opened(tmp_path, model) as later:
                (missing,) = later.notices
                again = await (await later.session()).run_turn("And the bread.")
        finally:
            let_go.set()
    assert (turn.status, turn.text, again.text) == ("done", "Noted.", "Noted, too.")
    assert [memory.content for memory in turn.memory] == ["My sister Mara is allergic to shellfish."]
    assert [
        notice.startswith("This turn is in the session log and not yet in memory") for notice in turn.notices
    ] == [True]
    assert missing.text.startswith("What was said before may not be in memory yet: ")
    async with opened(tmp_path, model) as satchel:
        assert satchel.memory is not None
        kept = {record.content for record in await satchel.memory.list()}
    assert kept >= {"What is my sister Mara allergic to?", "Noted.", "And the bread.", "Noted, too."}


@requirement("promise:degrade:goes-on")
async def test_when_memory_cannot_be_read_from_a_database_everything_else_works(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["Noted.", "Noted, too."])
    async with opened(tmp_path, model) as satchel:
        await (await satchel.session()).run_turn("Remember the milk.")
    async with Database.open(tmp_path / "home" / "satchel.db") as database:
        await database.write(
            lambda connection: connection.exec_driver_sql("ALTER TABLE memory_spaces RENAME TO gone")
        )
    async with opened(tmp_path, model) as satchel:
        assert [notice.part for notice in satchel.notices] == ["memory"]
        assert [session.title for session in await satchel.sessions.list()] == ["Remember the milk."]
        assert [check.part for check in await examine(satchel) if check.state == "failed"] == ["memory"]
        assert (await (await satchel.session()).run_turn("And the bread.")).text == "Noted, too."


@requirement("memory:episodes:same-transaction")
async def test_the_events_of_a_turn_tell_what_was_shown_and_what_was_kept(tmp_path: Path) -> None:
    model = ScriptedModel(["Noted.", "Shellfish."])
    async with opened(tmp_path, model) as satchel:
        await (await satchel.session()).run_turn("My sister Mara is allergic to shellfish.")
        session = await satchel.session()
        events = [event async for event in session.stream("What is my sister Mara allergic to?")]
    types = [event.type for event in events if event.type not in ("text_delta",)]
    assert types == ["turn_start", "memory_surfaced", "assistant", "final", "memory_captured", "turn_end"]
    (surfaced,) = [event for event in events if isinstance(event, MemorySurfaced)]
    (captured,) = [event for event in events if isinstance(event, MemoryCaptured)]
    assert surfaced.tokens <= 500
    assert len(captured.ids) == 2


async def test_without_a_model_what_was_said_earlier_in_the_same_session_is_recalled_too(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as satchel:
        session = await satchel.session()
        await session.run_turn("My sister Mara is allergic to shellfish.")
        first = await session.run_turn("What is my sister Mara allergic to?")
        again = await session.run_turn("What is my sister Mara allergic to?")
    assert "My sister Mara is allergic to shellfish." in first.text
    assert "My sister Mara is allergic to shellfish." in again.text
