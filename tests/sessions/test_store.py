"""All sessions: lists, search, export, deletion and forgetting, with and without the index."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from sqlalchemy import Connection
from sqlalchemy import text as sql

from satchel.clock import ManualClock
from satchel.conversation import Conversation
from satchel.errors import NotFound, StorageLocked, UsageError
from satchel.events import (
    CallConsent,
    Compaction,
    Event,
    MemoryCaptured,
    Notice,
    Observation,
    QuestionAnswered,
    QuestionAsked,
    SessionBranched,
    SessionEnd,
    SessionFiled,
    SessionTitled,
)
from satchel.messages import Message, TextBlock, ThinkingBlock, Usage
from satchel.sessions import SessionStore, Words, index
from satchel.sessions.branches import Versions, versions
from satchel.sessions.index import SessionIndex
from satchel.sessions.log import LogLine, read_lines
from satchel.sessions.logs import Logs
from satchel.sessions.places import session_id_of
from satchel.spacing import Finder
from satchel.storage import Database
from tests.postgresql import server_of
from tests.requirements import requirement
from tests.sessions.worlds import (
    SPENT,
    answered,
    began,
    call,
    ended,
    exchange,
    observed,
    said,
    started,
    surfaced,
)

pytestmark = pytest.mark.anyio

WITHOUT, WITH, SERVER = "without the index", "with the index", "on a server"


class Interrupted(Exception):
    """The program ends here."""


class World:
    """A store with a clock that can be moved."""

    def __init__(self, folder: Path, database: Database | None) -> None:
        self.folder = folder
        self.database = database
        self.clock = ManualClock()
        self.url: str | None = None
        self.store = SessionStore(folder / "sessions", database, clock=self.clock)

    async def session(self, id: str, *events: Event, cwd: str = "/w") -> Path:
        self.clock.advance(60)
        async with await self.store.create(cwd, session_id=id) as journal:
            await journal.append([started(id, cwd), *events])
        return journal.path

    def another(self) -> SessionStore:
        """A store of another program, which knows nothing yet."""
        database = self.database if self.url is not None else None
        return SessionStore(self.folder / "sessions", database, clock=self.clock)

    def log(self, path: Path) -> bytes:
        """The lines of a log."""
        if self.url is None:
            return path.read_bytes()
        query = "SELECT line FROM conversation_lines WHERE session_id = %s ORDER BY seq"
        with psycopg.connect(self.url) as connection:
            return b"".join(line + b"\n" for (line,) in connection.execute(query, [session_id_of(path)]))

    def everything(self) -> bytes:
        """All that is kept anywhere."""
        found = everything_below(self.folder)
        if self.url is not None:
            with psycopg.connect(self.url) as connection:
                for (table,) in connection.execute(
                    "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
                ):
                    for row in connection.execute(f'SELECT * FROM "{table}"'.encode()):
                        found += repr(row).encode() + b"\n"
        return found

    async def found(self, query: str) -> list[tuple[str, int, str]]:
        return sorted((hit.session_id, hit.turn, hit.kind) for hit in await self.store.search(query))


@pytest.fixture(params=[WITHOUT, WITH, SERVER])
async def world(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    if request.param == WITHOUT:
        yield World(tmp_path, None)
    elif request.param == WITH:
        async with Database.open(tmp_path / "satchel.db") as database:
            yield World(tmp_path, database)
    else:
        server = server_of(tmp_path_factory)
        url = server.copy(tmp_path)
        async with Database.open(url) as database:
            world = World(tmp_path, database)
            world.url = url
            yield world


@pytest.fixture
def in_files(world: World) -> World:
    """For what only a log in a file can meet."""
    if world.url is not None:
        pytest.skip("the logs are rows")
    return world


@requirement("storage:postgres:files")
async def test_files_beside_a_log_are_found_branched_forgotten_and_deleted_with_it(world: World) -> None:
    secret = "the vault opens with wendehals"
    async with await world.store.create("/w", session_id="s1") as journal:
        spill, picture = journal.spill_dir / "c1.txt", journal.spill_dir / "attached" / "0ab1-a cat.png"
        picture.parent.mkdir(parents=True)
        picture.write_bytes(b"cat")
        spill.write_text(f"{secret} and more")
        events: list[Event] = [
            started("s1", "/w"),
            said(secret),
            answered("Yes."),
            observed("c1", "the", spill=str(spill)),
        ]
        await journal.append([*events, *ended(text="Yes.")])
    await world.store.branch("s1", 2)

    def forget_copies() -> None:
        # Where the logs are on a server, the folder holds copies.
        if world.url is not None:
            for folder in world.folder.rglob("*.spill"):
                shutil.rmtree(folder)

    forget_copies()
    done = await world.store.redact([Words(text=secret)])
    assert sorted(len(one.files) for one in done.sessions) == [1, 1]
    assert [one.error for one in done.sessions] == ["", ""]
    forget_copies()
    infos = await world.store.list()
    for info in infos:
        folder = await world.store.folder_of(info)
        assert (folder / "c1.txt").read_text() == "[forgotten] and more"
        assert (folder / "attached" / "0ab1-a cat.png").read_bytes() == b"cat"
    forget_copies()
    pictures = await world.store.files_beside("attached/0ab1-")
    assert [path.read_bytes() for path in pictures] == [b"cat", b"cat"]
    assert await world.store.files_beside("attached/0ab1-", "s1") == [picture]
    picture.write_bytes(b"a described cat")
    await world.store.keep_files([picture])
    forget_copies()
    assert (await world.store.files_beside("attached/0ab1-", "s1"))[0].read_bytes() == b"a described cat"
    await world.store.remove_files([picture])
    assert len(await world.store.files_beside("attached/0ab1-")) == 1
    for info in infos:
        await world.store.delete(info.id)
    assert await world.store.files_beside("") == []
    assert not [path for path in world.folder.rglob("*") if path.is_file() and path.name == "c1.txt"]


@requirement("sessions:list")
async def test_a_list_shows_titles_turns_and_costs_the_last_active_first(world: World) -> None:
    await world.session("s1", *exchange("Plan a   dinner\nfor six people", "Yes."), cwd="/w/kitchen")
    long = "Tell me about the history of the potato in Europe and everything that came of it, please"
    await world.session("s2", *exchange(long, "Well."))
    world.clock.advance(3600)
    async with await world.store.open("s1") as journal:
        await journal.append(exchange("More", "Sure.", turn=2))
    first, second = await world.store.list()
    assert (first.id, first.title, first.turns, first.cwd) == (
        "s1",
        "Plan a dinner for six people",
        2,
        "/w/kitchen",
    )
    assert (first.provider, first.model, first.usage) == ("openai", "gpt-x", SPENT + SPENT)
    assert first.last_at - first.started_at == timedelta(seconds=3660)
    assert [(row.day, row.calls, row.usage) for row in first.spent] == [("2026-01-01", 2, SPENT + SPENT)]
    assert (second.id, second.title) == ("s2", "Tell me about the history of the potato in Europe and…")
    last = await world.store.last("/w/kitchen")
    assert last == first
    assert await world.store.last("/elsewhere") is None
    assert await world.store.info("s2") == second
    # A title that the user gave takes the place of the first message; the session keeps its place in the list.
    world.clock.advance(3600)
    async with await world.store.open("s2") as journal:
        await journal.append([SessionTitled(title="Potatoes")])
    assert [(each.id, each.title) for each in await world.store.list()] == [
        ("s1", "Plan a dinner for six people"),
        ("s2", "Potatoes"),
    ]
    assert (await world.store.info("s2")).last_at == second.last_at


@requirement("sessions:filing", "sessions:programs")
async def test_pinned_sessions_come_first_and_archived_ones_and_builds_are_left_out(world: World) -> None:
    for id in ("s1", "s2", "s3", "build-7"):
        await world.session(id, *exchange("Hello", "Hi."))

    async def file(id: str, *events: Event) -> None:
        async with await world.store.open(id) as journal:
            await journal.append(events)

    async def ids(*, archived: bool = False) -> list[str]:
        return [info.id for info in await world.store.listed(archived=archived)]

    assert await ids() == ["s3", "s2", "s1"]
    await file("s1", SessionFiled(pinned=True))
    await file("s2", SessionFiled(archived=True))
    await file("s3", SessionTitled(title="Mine"), SessionTitled(title="A model's", by="model"))
    # A store that knows nothing yet reads the same from the logs.
    for store in (world.store, world.another()):
        assert [info.id for info in await store.listed()] == ["s1", "s3"]
        assert [info.id for info in await store.listed(archived=True)] == ["s2"]
        assert (await store.info("s3")).title == "Mine"
    assert len(await world.store.list()) == 4
    last = await world.store.last("/w")
    assert last is not None
    assert last.id == "s3"
    # What is said in an archived session brings it back.
    await file("s1", SessionFiled(archived=True))
    assert (await world.store.info("s1")).pinned
    await file("s1", SessionFiled(pinned=False))
    await file("s2", *exchange("One more thing", "Yes?", turn=2))
    assert (await ids(), await ids(archived=True)) == (["s2", "s3"], ["s1"])


@requirement("sessions:branches")
async def test_a_branch_repeats_what_came_before_a_turn_and_costs_and_finds_it_once(world: World) -> None:
    path = await world.session(
        "s1", said("Which bees are kept?"), answered("Let me see.", call("c1")), began("c1")
    )
    spill = path.with_suffix(".spill")
    async with await world.store.open("s1") as journal:
        (spill / "changes").mkdir(parents=True)
        (spill / "c1.txt").write_text("a very long list")
        await journal.append(
            [
                observed("c1", "a long list", spill=str(spill / "c1.txt")),
                *ended(text="Carniolan."),
                MemoryCaptured(turn=1, ids=("m1",)),
                *exchange("And in summer?", "Still.", turn=2),
                SessionTitled(title="Bees"),
                SessionFiled(pinned=True),
            ]
        )
    before = world.log(path)
    id = await world.store.branch("s1", 2)
    assert world.log(path) == before
    info, log = await world.store.info(id), await world.store.load(id)
    assert (info.branch_of, info.branch_turn, info.turns, info.title, info.pinned) == ("s1", 2, 1, "", False)
    assert info.usage == Usage()
    assert [record.seq for record in log.records] == list(range(1, len(log.records) + 1))
    assert [type(record.event).__name__ for record in log.records] == [
        "SessionStart", "SessionBranched", "TurnStart", "Assistant", "Action", "Observation", "Final", "TurnEnd",
        "MemoryCaptured",
    ]  # fmt: skip
    assert log.records[-1].event == MemoryCaptured(turn=1, ids=())
    copy = info.path.with_suffix(".spill")
    assert [file.name for file in copy.iterdir()] == ["c1.txt"]
    assert log.records[5].event == observed("c1", "a long list", spill=str(copy / "c1.txt"))
    # It goes on, is named by what is its own, and what both say is found once.
    async with await world.store.open(id) as journal:
        await journal.append(exchange("And in winter, the bees?", "They cluster.", turn=2))
    assert (await world.store.info(id)).title == "And in winter, the bees?"
    assert await world.found("bees") == sorted([("s1", 1, "user"), (id, 2, "user")])
    assert sum(each.usage.cost_usd or 0 for each in await world.store.list()) == 1.5
    second = await world.store.branch(id, 1)
    assert (await world.store.load(second)).records[-1].event == SessionBranched(
        session_id=id, turn=1, repeats={id: 1, "s1": 1}
    )
    third = await world.store.branch(id, 3)
    assert sorted(await world.store.repeating("s1", 1)) == sorted([id, third])
    assert await world.store.repeating("s1", 2) == []
    for turn in (0, 4):
        with pytest.raises(NotFound):
            await world.store.branch(id, turn)


@requirement("sessions:branches:one")
async def test_branches_are_one_entry_with_their_versions_even_without_the_one_between(world: World) -> None:
    async def says(id: str, turn: int, text: str) -> None:
        world.clock.advance(60)
        async with await world.store.open(id) as journal:
            await journal.append(exchange(text, "I see.", turn=turn))

    await world.session("s1", *exchange("Which bees?", "These."), *exchange("In May?", "No.", turn=2))
    middle = await world.store.branch("s1", 2)
    await says(middle, 2, "In June?")
    await says(middle, 3, "Why?")
    world.clock.advance(60)
    third = await world.store.branch(middle, 3)
    await says(third, 3, "How?")
    world.clock.advance(60)
    empty = await world.store.branch(third, 2)
    await says("s1", 3, "Where?")
    world.clock.advance(60)
    async with await world.store.open(middle) as journal:
        await journal.append([SessionEnd(reason="closed")])  # which is no use of it
    assert await shown(world) == ("s1", "Which bees?", ["s1", middle, third])
    family = await world.store.branches(third)
    assert [info.id for info in family] == ["s1", middle, third, empty]
    by_id = {info.id: versions(info, family) for info in family}
    one, other = (
        Versions(number=1, count=2, before="", after=third),
        Versions(number=2, count=2, before="s1", after=""),
    )
    assert by_id["s1"] == {2: one}
    assert by_id[middle] == {2: other, 3: Versions(number=1, count=2, before="", after=third)}
    assert by_id[third] == {2: other, 3: Versions(number=2, count=2, before=middle, after="")}
    assert by_id[empty] == {2: Versions(number=3, count=3, before=third, after="")}
    assert {hit.title for hit in await world.store.search("why")} == {"Which bees?"}
    # What the deleted ones said first is still said once, in what repeats it.
    await world.store.delete(middle)
    await world.store.delete("s1")
    assert await shown(world) == (third, "How?", [])
    last = await world.store.branch(third, 3)
    await says(last, 3, "Who?")
    assert await shown(world) == (last, "How?", [third, last])
    text = await world.store.export(last, form="markdown")
    assert [text.count(words) for words in ("Which bees?", "In June?", "How?", "Who?")] == [1, 1, 2, 1]


@requirement("sessions:branches:one")
async def test_a_branch_in_another_project_is_another_entry_and_private_ones_are_told_when_asked_for(
    world: World,
) -> None:
    await world.session("s1", *exchange("Which bees?", "These."), *exchange("In May?", "No.", turn=2))
    private, moved, open_one = [await world.store.branch("s1", 2) for _ in range(3)]
    start = replace(started(private, "/w"), private=True, resumed=True)
    for id, said_there, first in (
        (private, "Zanzibar?", start),
        (moved, "Yukon?", SessionFiled(project="p1")),
        (open_one, "In June?", None),
    ):
        world.clock.advance(60)
        async with await world.store.open(id) as journal:
            await journal.append([*([first] if first else ()), *exchange(said_there, "I see.", turn=2)])
    entries = {info.project: sorted(info.branches) for info in await world.store.listed()}
    assert entries == {"": sorted(["s1", private, open_one]), "p1": []}
    assert [info.id for info in await world.store.branches(moved)] == [moved]
    assert moved not in [info.id for info in await world.store.branches("s1")]
    words = ("Which bees?", "Zanzibar?", "Yukon?", "In June?")
    for id, told in (("s1", (1, 0, 0, 1)), (private, (1, 1, 0, 1)), (moved, (1, 0, 1, 0))):
        for form in ("markdown", "json"):
            text = await world.store.export(id, form=form)
            assert [word in text for word in words] == [bool(count) for count in told], (id, form)
        assert private == id or private not in str(await world.store.told(id))


async def shown(world: World) -> tuple[str, str, list[str]]:
    """The only entry of the list."""
    (entry,) = await world.store.listed()
    return entry.id, entry.title, list(entry.branches)


@requirement("sessions:search")
async def test_search_finds_what_was_said_and_what_tools_got_and_gave(world: World) -> None:
    await world.session(
        "s1",
        said("Where is the Zürich invoice?"),
        surfaced("Ann hides invoices in the attic"),
        answered(
            ThinkingBlock(text="secret musing"),
            "Let me look.",
            call("c1", input={"command": "grep -r invoice"}),
        ),
        began("c1", input={"command": "grep -r invoice"}),
        observed("c1", "box_7/invoice-2026.pdf: TOTAL 99 CHF"),
        answered("In box seven.", round=2),
        *ended(),
    )
    await world.session("build-1", *exchange("Build an invoice reader.", "The invoice is read."))
    await world.session("s2", *exchange("東京の天気は？", "Sunny in 東京 today \ud800 \x00 hat"))
    assert await world.found("invoice") == [("s1", 1, "input"), ("s1", 1, "output"), ("s1", 1, "user")]
    assert await world.found("INVOICE zurich") == [("s1", 1, "user")]
    assert await world.found("invo") == [("s1", 1, "input"), ("s1", 1, "output"), ("s1", 1, "user")]
    assert await world.found('"box seven"') == [("s1", 1, "assistant")]
    assert await world.found("box 7") == [("s1", 1, "output")]
    assert await world.found("天気") == [("s2", 1, "user")]
    assert await world.found("hat") == [("s2", 1, "assistant")]
    for nothing in ("attic", "musing", "voice", "seven box hat", "ＮＯ", "OR", 'foo"bar* AND ('):
        assert await world.found(nothing) == []
    (hit,) = await world.store.search("total chf")
    assert hit.snippet == "box_7/invoice-2026.pdf: TOTAL 99 CHF"
    assert hit.title == "Where is the Zürich invoice?"
    with pytest.raises(UsageError, match="nothing to search for"):
        await world.store.search("  ")


async def test_signs_alone_are_looked_for_as_they_stand(world: World) -> None:
    await world.session("s1", *exchange("What does :-> mean?", "An arrow."))
    assert await world.found(":->") == [("s1", 1, "user")]
    assert await world.found("!?") == []


async def test_what_is_added_after_a_search_is_found_by_the_next(world: World) -> None:
    path = await world.session("s1", *exchange("apples", "red"))
    assert await world.found("plums") == []
    async with await world.store.open("s1") as journal:
        await journal.append([said("plums", turn=2)])
        assert await world.found("plums") == [("s1", 2, "user")]
        assert await world.found("apples") == [("s1", 1, "user")]
    if world.url is not None:
        return
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line.replace(b"apples", b"pears!") for line in lines))
    os.utime(path, ns=(1, 1))
    assert await world.found("pears") == [("s1", 1, "user")]
    path.unlink()
    assert (await world.found("plums"), await world.store.list()) == ([], [])


@requirement("sessions:search", "storage:index:derived")
async def test_search_works_while_the_full_text_index_is_broken(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "satchel.db") as database:
        world = World(tmp_path, database)
        await world.session("s1", *exchange("apples", "red"))
        assert await world.found("apples") == [("s1", 1, "user")]
        await database.write(lambda connection: connection.execute(sql("DELETE FROM session_fts_data")))
        assert await world.found("apples") == [("s1", 1, "user")]
        await world.session("s2", *exchange("more apples", "green"))
        assert await world.found("apples") == [("s1", 1, "user"), ("s2", 1, "user")]
        await database.write(lambda connection: connection.execute(sql("DELETE FROM session_fts_data")))
        await world.store.redact([Words(text="green")])
        assert await world.found("green") == []
        assert await world.found("apples") == [("s1", 1, "user"), ("s2", 1, "user")]
        assert b"green" not in everything_below(tmp_path)
        await database.write(lambda connection: connection.execute(sql("DROP TABLE session_log")))
        assert await world.found("apples") == [("s1", 1, "user"), ("s2", 1, "user")]
        assert [info.id for info in await world.store.list()] == ["s2", "s1"]


@requirement("sessions:export")
async def test_export_as_markdown_reads_like_the_conversation(world: World) -> None:
    await world.session(
        "s1",
        said("List the # files"),
        surfaced("Ann likes lists"),
        answered("Looking.", call("c1")),
        began("c1"),
        observed("c1", "```\na.txt\n```"),
        answered("One file: a.txt", round=2),
        Notice(part="memory", text="The embedder is down."),
        *ended(text="One file: a.txt"),
    )
    when = f"{world.clock.now():%Y-%m-%d %H:%M}"
    assert await world.store.export("s1", form="markdown") == (
        f"# List the \\# files\n\nSession s1, {when}, in `/w`\n\n## 1. You ({when})\n\nList the # files\n\n"
        "> Remembered:\n> - Ann likes lists\n\n### openai:gpt-x\n\nLooking.\n\n**Tool `bash`**\n\n"
        '```json\n{\n  "command": "ls"\n}\n```\n\nResult:\n\n````\n```\na.txt\n```\n````\n\n'
        "### openai:gpt-x\n\nOne file: a.txt\n\n*The embedder is down.*\n"
    )
    value = json.loads(await world.store.export("s1", form="json"))
    assert (value["id"], value["turns"], value["model"], value["cwd"]) == ("s1", 1, "openai:gpt-x", "/w")
    assert [event["type"] for event in value["events"]][:3] == [
        "session_start",
        "turn_start",
        "memory_surfaced",
    ]


@requirement("sessions:delete")
async def test_delete_takes_the_log_its_spilled_results_and_its_words_in_the_index(world: World) -> None:
    path = await world.session("s1", *exchange("apples", "red"))
    await world.session("s2", *exchange("apples too", "green"))
    spill = path.with_suffix(".spill")
    spill.mkdir(parents=True)
    (spill / "c1.txt").write_text("apples")
    # Left by a process that was killed while it took words out of the log.
    if world.url is None:
        path.with_suffix(".rewriting").write_text("apples")
    assert await world.found("apples") == [("s1", 1, "user"), ("s2", 1, "user")]
    async with await world.store.open("s1"):
        with pytest.raises(StorageLocked):
            await world.store.delete("s1")
    assert await world.store.delete("s1") == "s1"
    assert (path.exists(), spill.exists()) == (False, False)
    assert await world.found("apples") == [("s2", 1, "user")]
    await world.store.delete("s2")
    assert b"apples" not in world.everything()
    with pytest.raises(NotFound):
        await world.store.delete("s1")


def everything_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@requirement("sessions:redact:giant")
@pytest.mark.parametrize("world", [WITH, SERVER], indirect=True)
async def test_words_of_400_kb_are_redacted_however_they_are_broken_into_lines(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, longest = re.compile, []

    def measured(pattern: str | re.Pattern[str], flags: int = 0) -> re.Pattern[str]:
        longest.append(len(pattern) if isinstance(pattern, str) else 0)
        return compiled(pattern, flags)

    monkeypatch.setattr(re, "compile", measured)
    prepared = []

    class Counted(Finder):
        def __init__(self, words: Collection[str], *, parts: bool = False) -> None:
            prepared.append(words)
            super().__init__(words, parts=parts)

    words = " ".join(f'garden{n} "word"' for n in range(20_000))
    broken = words.replace(" ", "  \n")
    path = await world.session(
        "s1",
        *exchange(f"Keep this: {words} Thanks.", f"You said <i>{html.escape(broken)}</i>"),
        *exchange(words.replace("19999", "20000"), json.dumps({"said": broken}), turn=2),
    )
    for session in ("s2", "s3", "s4"):
        await world.session(session, *exchange("Hello", "Hi."))
    monkeypatch.setattr("satchel.sessions.redaction.Finder", Counted)
    await world.store.redact([Words(text=broken)])
    assert len(prepared) == 1, "the words are prepared once, not for each log"
    log = world.log(path).decode()
    assert "Keep this: [forgotten] Thanks." in log
    assert "<i>[forgotten]</i>" in log
    assert json.dumps(json.dumps({"said": "[forgotten]"}))[1:-1] in log
    assert log.count("garden7 ") == 1
    assert "garden20000" in log
    assert max(longest, default=0) < 100_000  # Compiling one for all of the words takes seconds.


@requirement("sessions:redact")
async def test_redacted_words_are_gone_wherever_they_stood(world: World) -> None:
    secret = 'The "vault" code\nis 4711 & höher'
    spill = world.folder / "sessions" / "spilled.txt"
    spill.parent.mkdir()
    spill.write_text(f"begin {secret} end")
    outside = world.folder.parent / f"{world.folder.name}-outside.txt"
    outside.write_text(secret)
    nested = {"command": f"echo {secret}", "type": secret, secret: [{"deep": secret}], "fine": 1}
    message = Message(role="user", blocks=(TextBlock(text=f"Summary: {secret}"),))
    thought = ThinkingBlock(text=f"So: {secret}", signature="proof")
    await world.session(
        "s1",
        said(f"Remember: {secret}!"),
        answered(thought, f"I will remember {secret}.", call("c1", input=nested)),
        began("c1", input=nested),
        observed("c1", json.dumps({"stdout": secret}), spill=str(spill)),
        observed("c2", "other", spill=str(outside)),
        *ended(text=f"I will remember {secret}."),
        Compaction(
            turn=1, messages=(message,), before_tokens=2, after_tokens=1, trigger="manual", focus=secret
        ),
    )
    await world.session("s2", said("What was it?"), surfaced(" ".join(secret.split())), *ended())
    path = await world.session("s3", *exchange("Nothing of that", "Good."))
    untouched = world.log(path)
    assert await world.found("vault") != []

    redaction = await world.store.redact([Words(text=secret)])

    assert [(entry.session_id, entry.records) for entry in redaction.sessions] == [
        ("s2", (3,)),
        ("s1", (2, 3, 4, 5, 7, 9)),
    ]
    assert [entry.files for entry in redaction.sessions] == [(), (spill,)]
    assert spill.read_text() == "begin [forgotten] end"
    assert outside.read_text() == secret
    outside.unlink()
    assert world.log(path) == untouched
    assert await world.found("vault") == []
    assert b"4711" not in world.everything()
    assert b"vault" not in world.everything()
    log = await world.store.load("s1")
    assert log.skipped == ()
    assert [record.seq for record in log.records] == list(range(1, 10))
    assert log.records[2].event == answered(
        ThinkingBlock(text="So: [forgotten]"),
        "I will remember [forgotten].",
        call("c1", input=json.loads(json.dumps(nested).replace(json.dumps(secret)[1:-1], "[forgotten]"))),
    )
    assert Conversation.from_records(log.records).messages == (
        Message(role="user", blocks=(TextBlock(text="Summary: [forgotten]"),)),
    )
    assert (await world.store.redact([Words(text=secret)])).sessions == ()


@requirement("sessions:redact")
async def test_what_a_cut_left_of_the_words_is_forgotten_with_them(world: World) -> None:
    """Long results lose their middle, and the cut may go through the words."""
    note = "\n\n[… 4,711 characters, too long to show: the middle is left out, see c1.txt …]\n\n"
    await world.session(
        "s1",
        *exchange("Hello", "Hm."),
        observed("c1", f"Well, Ann's number is 02{note}mber is 0231 4711, I think"),
        observed("c2", f"Ann's{note}4711"),
        observed("c3", f"An{note}11 and Ann's number"),
    )
    redaction = await world.store.redact([Words(text="Ann's number is 0231 4711")])
    assert [entry.records for entry in redaction.sessions] == [(6, 7)]
    events = [record.event for record in (await world.store.load("s1")).records]
    texts = [event.text for event in events if isinstance(event, Observation)]
    assert texts == [
        f"Well, [forgotten]{note}[forgotten], I think",
        f"[forgotten]{note}[forgotten]",
        f"An{note}11 and Ann's number",
    ]


@requirement("sessions:redact")
async def test_forgetting_that_was_interrupted_is_finished_by_the_next_in_the_index_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.session("s1", *exchange("The vault opens with 4711", "Noted."))
    assert len(await world.found("vault")) == 1

    async def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SessionIndex, "forget", killed)
        with contextlib.suppress(KeyboardInterrupt):
            await world.store.redact([Words(text="The vault opens with 4711")])
    await world.store.redact([Words(text="The vault opens with 4711")])
    assert b"vault" not in world.everything()


async def test_words_of_one_turn_are_forgotten_there_and_where_they_were_carried_and_nowhere_else(
    world: World,
) -> None:
    def summary(text: str, turn: int) -> Compaction:
        message = Message(role="user", blocks=(TextBlock(text=text),))
        return Compaction(
            turn=turn, messages=(message,), before_tokens=2, after_tokens=1, trigger="auto", usage=Usage()
        )

    await world.session(
        "s1",
        *exchange("yes", "fine, yes"),
        *exchange("yes", "again: yes", turn=2),
        summary("They said yes.", 3),
    )
    await world.session("s2", *exchange("yes", "hm"))
    await world.session(
        "s3", said("?"), surfaced("yes", id="m9", session="s1", source_turn=1), summary("Ah, yes.", 1)
    )
    await world.session("s4", said("?"), surfaced("yes", id="m8", session="s1", source_turn=2))
    await world.store.redact([Words(text="yes", session="s1", turn=1)])

    async def told(id: str) -> str:
        return " ".join(
            record_text
            for record in (await world.store.load(id)).records
            for record_text in [
                str(getattr(record.event, name, "")) for name in ("message", "blocks", "text", "messages")
            ]
        )

    assert (await told("s1")).count("[forgotten]") == 4  # question, answer, its final, the compaction
    assert (await told("s1")).count("yes") == 3
    assert "[forgotten]" not in await told("s2") + await told("s4")
    assert (await told("s3")).count("[forgotten]") == 2
    assert "yes" not in await told("s3")


async def test_words_that_memory_brought_into_another_session_are_forgotten_in_its_answers_too(
    world: World,
) -> None:
    words = "Mara is allergic to shellfish."
    await world.session("s1", *exchange(words, "Noted."), *exchange(f"I said: {words}", "Yes.", turn=2))
    await world.session(
        "s2", said("?"), surfaced(words, id="m9", session="s1", source_turn=1), answered(f"You said: {words}")
    )
    recalled = observed("c1", f"m9: {words}")
    await world.session(
        "s3", said("?"), answered(call("c1")), began("c1"), recalled, answered(f"Well: {words}")
    )
    await world.session("s4", *exchange(words, "Somebody else said the same."))
    await world.store.redact([Words(text=words, session="s1", turn=1)], memory_ids=["m9"])
    for id, expected in (("s1", False), ("s2", False), ("s3", False), ("s4", True)):
        assert (words in await world.store.export(id, form="json")) is expected, id


async def test_what_was_surfaced_under_a_forgotten_id_is_forgotten(world: World) -> None:
    await world.session("s1", said("?"), surfaced("A fact, cut sh…", id="m1"), surfaced("Another", id="m2"))
    await world.store.redact([], memory_ids=["m1"])
    kept = await world.store.export("s1", form="json")
    assert "cut sh" not in kept
    assert "Another" in kept


async def test_forgetting_names_of_fields_breaks_no_log(world: World) -> None:
    question = QuestionAsked(id="ask_1", turn=1, kind="permission", text="once, a permission?")
    consent = CallConsent(call_id="c1", consent="once", words="once")
    await world.session(
        "s1",
        *exchange("type user text turn s1 bash", "seq"),
        question,
        QuestionAnswered(id="ask_1", consents=(consent,), by="terminal"),
    )
    names = ("type", "user", "text", "turn_start", "bash", "s1", "1", "permission", "once", "ask_1")
    await world.store.redact([Words(text=word) for word in names])
    log = await world.store.load("s1")
    assert log.skipped == ()
    asked, answered = (record.event for record in log.records[-2:])
    assert asked == replace(question, text="[forgotten], a [forgotten]?")
    assert answered == QuestionAnswered(
        id="ask_1", consents=(replace(consent, words="[forgotten]"),), by="terminal"
    )
    assert (
        Conversation.from_records(log.records).messages[0].text
        == "[forgotten] [forgotten] [forgotten] turn [forgotten] [forgotten]"
    )


async def test_an_open_session_continues_in_the_rewritten_log(world: World) -> None:
    async with await world.store.create("/w", session_id="s1") as journal:
        await journal.append([started("s1"), said("the code is 4711")], durable=True)
        redaction = await world.store.redact([Words(text="4711")])
        assert [(e.session_id, e.records, e.open_in) for e in redaction.sessions] == [
            ("s1", (2,), os.getpid())
        ]
        await journal.append([answered("ok")], durable=True)
    log = await world.store.load("s1")
    assert [record.seq for record in log.records] == [1, 2, 3]
    assert b"4711" not in world.log(journal.path)


async def test_appending_while_words_are_forgotten_loses_nothing(world: World) -> None:
    async with await world.store.create("/w", session_id="s1") as journal:
        await journal.append([started("s1"), said("the code is 4711")])
        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:

                async def append(name: str) -> None:
                    for number in range(30):
                        await journal.append(
                            [Notice(part=name, text=f"{number} 4711")], durable=number % 5 == 0
                        )

                async def redact() -> None:
                    for _ in range(10):
                        await world.store.redact([Words(text="4711")])

                group.start_soon(append, "a")
                group.start_soon(append, "b")
                group.start_soon(redact)
        await world.store.redact([Words(text="4711")])
    log = await world.store.load("s1")
    assert [record.seq for record in log.records] == list(range(1, 63))
    assert b"4711" not in world.log(journal.path)


async def test_a_log_that_cannot_be_rewritten_is_reported_and_the_others_are_done(in_files: World) -> None:
    blocked = await in_files.session("s1", said("4711"))
    await in_files.session("s2", said("4711"))
    blocked.with_suffix(".rewriting").mkdir()
    redaction = await in_files.store.redact([Words(text="4711")])
    assert [(entry.session_id, entry.records) for entry in redaction.sessions] == [("s2", (2,)), ("s1", ())]
    (error,) = redaction.errors
    assert "can't be written: Is a directory" in error
    assert b"4711" in blocked.read_bytes()


async def test_foreign_files_in_the_folder_are_ignored(in_files: World) -> None:
    path = await in_files.session("s1", *exchange("hi", "ho"))
    (path.parent / "notes.jsonl").write_text("{}")
    (path.parent / "2026-01-01_120000_.jsonl").write_text("{}")
    (path.parent / "2026-01-01_120000_x y.jsonl").write_text("{}")
    (path.parent / "2026-01-01_120000_empty.jsonl").write_text("")
    assert [info.id for info in await in_files.store.list()] == ["s1"]


async def test_a_log_is_unsettled_until_it_is_settled_and_again_when_it_grew(world: World) -> None:
    await world.session("s1", *exchange("hi", "ho"))
    await world.session("s2", *exchange("hi", "ho"))

    async def open_ends() -> list[str]:
        return [file.session_id for file in await world.store.unsettled()]

    assert await open_ends() == ["s2", "s1"]
    if world.database is None:
        return
    for file in await world.store.unsettled():
        await world.store.settle(file)
        await world.store.settle(file)
    assert await open_ends() == []
    async with await world.store.open("s1") as journal:
        assert await open_ends() == []
        await journal.append(exchange("more", "yes", turn=2))
        (state,) = await world.store.unsettled()
        await journal.append(exchange("and more", "yes", turn=3))
    await world.store.settle(state)
    assert await open_ends() == ["s1"]


@requirement("sessions:flat")
async def test_a_part_of_the_list_is_that_of_the_whole_and_looks_at_no_other_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store that lists didn't write any of it, as if another process had."""
    reader = SessionStore(world.folder / "sessions", world.database, clock=world.clock)

    async def agrees(store: SessionStore) -> None:
        for archived in (False, True):
            whole = [info for info in await world.another().listed(archived=archived) if info.turns]
            with monkeypatch.context() as patch:
                if world.database is not None:
                    patch.setattr(type(store._logs), "files", None)
                parts = [await store.part(archived=archived, first=first, most=2) for first in range(0, 9, 2)]
                spent = await store.spent_on("2026-01-01")
            assert [info for part in parts for info in part.infos] == whole
            assert {(part.total, part.pinned) for part in parts} == {
                (len(whole), sum(info.pinned for info in whole))
            }
            assert spent == await world.another().spent_on("2026-01-01")

    for number in range(6):
        await world.session(f"s{number}", *exchange("hi", "hello"), cwd=f"/w{number % 2}")
    await world.session("build-1", *exchange("make it", "made"))
    await reader.first_look()
    await agrees(reader)
    if world.database is not None:
        with (
            monkeypatch.context() as patch
        ):  # no log has changed, so none is looked for among those that have
            patch.setattr(index, "name_of", None)
            assert (await reader.part(most=2)).total == 6
            await reader.spent_on("2026-01-01")
    await agrees(
        world.another()
        if world.database is None
        else SessionStore(world.folder / "sessions", world.database, clock=world.clock)
    )

    async with await world.store.open("s1") as journal:
        await agrees(reader)
        for turn in (2, 3):
            world.clock.advance(60)
            await journal.append(exchange("more", "yes", turn=turn))
            await agrees(reader)
        await journal.append([SessionFiled(pinned=True)])
    await agrees(reader)
    # Opened, gone on with and closed between two looks.
    for id, event in (("s2", SessionFiled(archived=True)), ("s3", SessionFiled(project="p1"))):
        async with await world.store.open(id) as journal:
            await journal.append([event])
        await agrees(reader)
    branch = await world.store.branch("s4", 2)
    async with await world.store.open(branch) as journal:
        await journal.append(exchange("otherwise", "well", turn=2))
    await agrees(reader)
    assert {info.id for info in await reader.branches("s4")} == {"s4", branch}
    await world.store.delete("s4")
    await agrees(reader)
    await world.store.redact([Words(text="hello")])
    await agrees(reader)
    await world.session("s9", *exchange("new", "yes"), cwd="/another")
    await agrees(reader)
    # What was killed never closed its log.
    journal = await world.store.open("s5")
    await journal.append(exchange("the last", "words", turn=2))
    await agrees(reader)
    await journal.aclose()
    await agrees(reader)


@requirement("sessions:flat")
async def test_a_page_waits_neither_for_the_first_look_nor_for_others_nor_for_a_log_that_cannot_be_read(
    in_files: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (database := in_files.database) is None:
        pytest.skip("there is no index")
    store = in_files.store
    for id in ("s1", "s2"):
        await in_files.session(id, *exchange("hi", "hello"))

    async def ids() -> set[str]:
        return {info.id for info in (await store.part(most=9)).infos}

    with monkeypatch.context() as patch:
        patch.setattr(database, "write", None)
        assert await ids() == {"s1", "s2"}
    await store.first_look()

    await in_files.session("s3", *exchange("hi", "hello"))
    (file,) = in_files.folder.glob("*.db")
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with anyio.fail_after(15):  # a turn's write waits for twice as long
            assert await ids() == {"s1", "s2", "s3"}
    assert await ids() == {"s1", "s2", "s3"}

    path = await in_files.session("s4", *exchange("hi", "hello"))
    path.rename(path.with_suffix(".away"))
    path.mkdir()
    monkeypatch.setattr(type(store._logs), "files", None)
    assert await ids() == {"s1", "s2", "s3"}
    path.rmdir()
    path.with_suffix(".away").rename(path)
    assert await ids() == {"s1", "s2", "s3", "s4"}


@requirement("loop:budget:day")
async def test_what_was_spent_on_a_day_is_known_while_sessions_go_on_here_and_elsewhere(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = "2026-01-01"
    elsewhere = world.another()
    lines = len([started("s1"), *exchange("hi", "hello")])
    for number in range(3):
        await world.session(f"s{number}", *exchange("hi", "hello"))
    read: list[tuple[str | None, int]] = []

    def watched(path: Path, *, start: int = 0, number: int = 1) -> Iterator[LogLine]:
        read.append((session_id_of(path), number))
        return read_lines(path, start=start, number=number)

    async def spent() -> float:
        with monkeypatch.context() as patch:
            patch.setattr("satchel.sessions.files.read_lines", watched)
            # A model call waits for nobody that writes.
            patch.setattr(Database, "write", None)
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(world.store.spent_on, day)
            return await world.store.spent_on(day)

    assert await spent() == 1.5
    async with await world.store.open("s1") as here, await elsewhere.open("s2") as there:
        for total, known in ((2.5, lines), (3.5, 2 * lines - 1)):
            await here.append(exchange("more", "yes"))
            await there.append(exchange("more", "yes"))
            read.clear()
            assert await spent() == total
            # Only what was added is read, and once.
            assert sorted(read) == ([(id, known + 1) for id in ("s1", "s2")] if world.url is None else [])
        world.clock.advance(24 * 3600)
        await here.append(exchange("tomorrow", "yes"))
        assert (await world.store.spent_on(day), await world.store.spent_on("2026-01-02")) == (3.5, 0.5)
    assert (await world.store.spent_on(day), await world.store.spent_on("2026-01-02")) == (3.5, 0.5)
    await world.store.delete("s2")
    assert await world.store.spent_on(day) == 2.0
    # Nor what another process has deleted, though its log was read here, ahead of the index.
    await world.store.list()
    async with await world.store.open("s1") as here:
        await here.append(exchange("the day after", "yes"))
        assert await world.store.spent_on(day) == 2.0
    await elsewhere.delete("s1")
    assert await world.store.spent_on(day) == 0.5


@requirement("sessions:titles:forgotten")
async def test_a_title_that_a_model_made_goes_with_the_words_even_if_it_stands_before_them(
    world: World,
) -> None:
    """As in the log of an imported conversation."""
    titled = SessionTitled(title="Tangerine", by="model")
    path = await world.session("s1", titled, *exchange("Anna is citrus.", "I see."))
    await world.session("s2", titled, *exchange("Bob is citrus.", "I see."))
    other = world.another()
    assert [info.title for info in await other.list()] == ["Tangerine", "Tangerine"]
    await world.store.redact([Words(text="Anna is citrus.", session="s1", turn=1)])
    assert b"Tangerine" not in world.log(path)
    for store in (world.store, other):
        assert [info.title for info in await store.list()] == ["Tangerine", "[forgotten]"]


@requirement("loop:budget:day")
async def test_a_budget_reads_the_logs_that_were_written_on_its_day_and_no_other_before_there_is_an_index(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.url is not None:
        pytest.skip("the server has the sums")
    await world.session("old", *exchange("hi", "hello"))
    await world.session("packed", *exchange("hi", "hello"))
    await world.session("long", *exchange("hi", "x" * 100_000), said("x" * 100_000, turn=2))
    world.clock.advance(2 * 24 * 3600)
    await world.session("new", *exchange("hi", "hello"))
    await world.session("torn", *exchange("hi", "hello"))
    await world.store.compress(await world.store.info("packed"))
    paths = await world.store.places()
    with paths["torn"].open("ab") as file:
        file.write(b'{"seq":9,"a')
    for path in paths.values():  # as after a restore
        os.utime(path)
    read: list[str | None] = []

    def watched(path: Path, *, start: int = 0, number: int = 1) -> Iterator[LogLine]:
        read.append(session_id_of(path))
        return read_lines(path, start=start, number=number)

    store = SessionStore(world.folder / "sessions", world.database, clock=world.clock)
    monkeypatch.setattr("satchel.sessions.files.read_lines", watched)
    monkeypatch.setattr(Database, "write", None)
    for _ in range(2):
        assert await store.spent_on("2026-01-03") == 1.0
        assert sorted(map(str, read)) == ["new", "torn"]
    assert {row.session_id for row in await store.spent("2026-01-03")} == {"new", "torn"}
    assert await store.spent_on("2026-01-01") == 1.5


@requirement("sessions:search")
async def test_a_large_log_is_indexed_in_short_transactions_and_resumes_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Database.open(tmp_path / "satchel.db") as database:
        world = World(tmp_path, database)
        texts = [f"word{number} " + "filler " * 3000 for number in range(100)]
        path = await world.session("s1", *(said(text, turn=n) for n, text in enumerate(texts, 1)))
        written: list[int] = []
        write = index._write

        def spy(connection: Connection, logs: Logs, reading: index.LogReading, *rest: Any) -> bool:
            if len(written) == 3:
                raise Interrupted
            written.append(sum(len(passage.text) for passage in reading.passages))
            return write(connection, logs, reading, *rest)

        monkeypatch.setattr(index, "_write", spy)
        with pytest.raises(Interrupted):
            await world.store.list()
        monkeypatch.setattr(index, "_write", write)
        assert len(written) == 3
        assert max(written) < 300_000
        read: list[int] = []

        def watched(path: Path, *, start: int, number: int) -> Iterator[LogLine]:
            read.append(number)
            return read_lines(path, start=start, number=number)

        monkeypatch.setattr("satchel.sessions.files.read_lines", watched)
        assert await world.found("word99") == [("s1", 100, "user")]
        assert len(await world.store.search("filler", limit=200)) == 100
        assert min(read) > 30
        # Another file with the same words is read from its beginning, and nothing is found twice.
        copy = path.with_suffix(".copy")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
        assert len(await world.store.search("filler", limit=200)) == 100
        assert min(read) == 1


async def test_two_stores_that_index_one_log_at_the_same_time_find_everything_once(tmp_path: Path) -> None:
    async with (
        Database.open(tmp_path / "satchel.db") as one,
        Database.open(tmp_path / "satchel.db") as other,
    ):
        world = World(tmp_path, one)
        second = SessionStore(tmp_path / "sessions", other, clock=world.clock)
        texts = [f"word{number} " + "filler " * 3000 for number in range(100)]
        await world.session("s1", *(said(text, turn=n) for n, text in enumerate(texts, 1)))
        async with anyio.create_task_group() as group:
            group.start_soon(world.store.list)
            group.start_soon(second.list)
        assert len(await world.store.search("filler", limit=200)) == 100
