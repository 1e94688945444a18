"""Files of other programs, as they look: what becomes of each, and that a second import adds nothing."""

from __future__ import annotations

import json
import os
import threading
import time
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import BinaryIO

import pytest

from satchel.clock import ManualClock
from satchel.errors import NotFound, UsageError
from satchel.memory import Memory, MemoryRecord
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.formats import NamedReader
from satchel.memory.transfer.parts import LeftOut, Part
from satchel.memory.transfer.report import ImportReport
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

FILES = Path(__file__).parent / "files"
NOON = datetime(2026, 4, 1, 12, tzinfo=UTC)


async def taken(where: Path, **options: object) -> tuple[ImportReport, list[MemoryRecord]]:
    """What an import reports, and what is there then, in the order in which it was stored."""
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(NOON)) as memory:
        report = await memory.import_from(where, **options)  # type: ignore[arg-type]
        again = await memory.import_from(where, **options)  # type: ignore[arg-type]
        assert (again.new, again.known, again.edges) == (0, report.new + report.known, 0)
        found = await memory.list(limit=10_000)
    return report, sorted(
        found, key=lambda one: (one.source.session or "", one.source.turn or 0, one.source.position or 0)
    )


def lines(found: list[MemoryRecord]) -> list[tuple[int | None, int | None, str, str, str]]:
    return [(one.source.turn, one.source.position, one.speaker, one.trust, one.content) for one in found]


@requirement("memory:import:transcripts")
async def test_a_claude_code_transcript_gives_what_the_two_said_and_nothing_else() -> None:
    report, found = await taken(FILES / "claude")
    assert lines(found) == [
        (1, 0, "user", "user", "Which database shall we take for Harbour? I lean towards PostgreSQL."),
        (
            1,
            1,
            "assistant",
            "agent",
            "PostgreSQL 17 fits: the schema is relational and you need several writers.",
        ),
        (2, 0, "user", "user", "Good, PostgreSQL it is. The password for staging is [redacted:password]."),
    ]
    assert {one.source.session for one in found} == {"claude-code:0b6f6c1e-5a55-4d8e-9a39-0c6e1d1f2a11"}
    assert found[0].said_at == datetime(2026, 3, 2, 9, 0, 5, tzinfo=UTC)
    assert {one.kind for one in found} == {"episode"}
    assert (report.new, report.redacted, report.skipped) == (3, 1, {"the last line is truncated": 1})
    assert report.ignored == {
        "written by the agent's own program": 3,
        "no text of a person or a model in it": 2,
        "thinking": 1,
        "the call of a tool": 1,
        "the output of a tool": 1,
        "the work of a sub-agent": 2,
    }


@pytest.fixture
def california(monkeypatch: pytest.MonkeyPatch) -> Iterator[timezone]:
    """A process in California in winter, as a rule that needs no database of zones."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "PST8PDT,M3.2.0,M11.1.0")
        time.tzset()
        yield timezone(timedelta(hours=-8))
    time.tzset()


@requirement("memory:import:transcripts")
@pytest.mark.parametrize(
    "line",
    [
        {"type": "user", "sessionId": "s", "uuid": "u", "timestamp": "2026-11-24T04:30:00.000Z",
         "message": {"role": "user", "content": "The dentist is tomorrow at nine."}},
        [{"title": "t", "conversation_id": "c", "create_time": 1795494600.0, "current_node": "b", "mapping": {
            "a": {"id": "a", "message": None, "parent": None, "children": ["b"]},
            "b": {"id": "b", "parent": "a", "children": [], "message": {
                "id": "b", "author": {"role": "user"}, "create_time": 1795494600.0,
                "content": {"content_type": "text", "parts": ["The dentist is tomorrow at nine."]}}}}}],
    ],
)  # fmt: skip
async def test_tomorrow_is_the_day_after_that_of_the_users_own_zone(
    tmp_path: Path, california: timezone, line: object
) -> None:
    # Programs write times in UTC, where the evening of Monday in California is Tuesday.
    (tmp_path / ("a.jsonl" if isinstance(line, dict) else "conversations.json")).write_text(json.dumps(line))
    now = datetime(2026, 11, 23, 21, tzinfo=california)
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(now)) as memory:
        assert (await memory.import_from(tmp_path)).new == 1
        (said,) = await memory.list()
        assert said.said_at.isoformat() == "2026-11-23T20:30:00-08:00"
        assert [line.days for line in (await memory.agenda()).memories] == ["Tue 2026-11-24"]


@pytest.mark.parametrize(
    ("written", "said_at"),
    [
        ("20260302", "2026-03-02T00:00:00-08:00"),
        ("202603021015", "2026-03-02T10:15:00-08:00"),
        ("20260302101530", "2026-03-02T10:15:30-08:00"),
        ("1795494600", "2026-11-23T20:30:00-08:00"),
        ("1795494600000", "2026-11-23T20:30:00-08:00"),
        ("2026", "2026-11-24T20:30:00-08:00"),  # The file's.
    ],
)
async def test_a_day_in_digits_alone_is_no_number_of_seconds(
    tmp_path: Path, california: timezone, written: str, said_at: str
) -> None:
    note = tmp_path / "note.md"
    note.write_text(f"---\ncreated: {written}\n---\nThe keys are in the shed.\n")
    os.utime(note, (1795581000, 1795581000))
    now = datetime(2026, 12, 1, tzinfo=california)
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(now)) as memory:
        await memory.import_from(tmp_path)
        assert [one.said_at.isoformat() for one in await memory.list()] == [said_at]


@requirement("memory:import:transcripts")
async def test_what_was_imported_in_one_zone_is_known_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"header": "Gemini Apps", "title": "Prompted Where is Graz?", "time": "2026-11-24T04:30:00.123Z"}
    (tmp_path / "MyActivity.json").write_text(json.dumps([asked]))
    reports = []
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(NOON)) as memory:
        for zone in ("UTC0", "PST8PDT,M3.2.0,M11.1.0"):
            with monkeypatch.context() as patched:
                patched.setenv("TZ", zone)
                time.tzset()
                reports.append(await memory.import_from(tmp_path))
            time.tzset()
    assert [(one.new, one.known) for one in reports] == [(1, 0), (0, 1)]


@requirement("memory:import:transcripts")
async def test_codex_transcripts_of_both_kinds_give_what_the_two_said() -> None:
    report, found = await taken(FILES / "codex")
    assert lines(found) == [
        (1, 0, "user", "user", "Move the ships table to the new schema"),
        (1, 1, "assistant", "agent", "The ships table now lives in the fleet schema."),
        (2, 0, "user", "user", "Rename ships to vessels"),
        (1, 0, "user", "user", "Is the old parser still needed?"),
        (1, 1, "assistant", "agent", "No, nothing imports it."),
    ]
    assert found[1].said_at == datetime(2026, 3, 4, 10, 0, 9, tzinfo=UTC)
    # The old kind dates its beginning alone.
    assert found[3].said_at == datetime(2025, 5, 10, 10, tzinfo=UTC)
    assert report.files == {"codex": 2}
    assert report.skipped == {}


@requirement("memory:import:transcripts")
@pytest.mark.parametrize("packed", [False, True])
async def test_a_chatgpt_export_gives_the_branch_that_was_shown_last(packed: bool, tmp_path: Path) -> None:
    where = FILES / "chatgpt"
    if packed:
        where = tmp_path / "export.zip"
        with zipfile.ZipFile(where, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(FILES / "chatgpt" / "conversations.json", "conversations.json")
            archive.write(FILES / "chatgpt" / "user.json", "user.json")
            archive.writestr("../../evil.md", "# Nothing is written where this points\n\nReally.\n")
    report, found = await taken(where, source="chatgpt")
    assert lines([one for one in found if one.source.session == "chatgpt:67c1-sourdough"]) == [
        (1, 0, "user", "user", "My sourdough is too dense. I use 80 % whole wheat."),
        (1, 1, "assistant", "agent", "Let it rise longer: whole wheat needs about two hours more."),
        (2, 0, "user", "user", "What is this loaf?"),
        (2, 1, "assistant", "agent", "You have a rye loaf there."),
    ]
    assert found[-4].said_at == datetime.fromtimestamp(1772000001.25, UTC)
    assert report.skipped == {
        "a conversation that is a cycle: it was read once around": 1,
        "a conversation without a current branch: the latest one was read": 1,
    }
    assert report.new == 8
    assert list(tmp_path.parent.glob("evil.md")) == []


@requirement("memory:import:mcp")
async def test_the_graph_of_the_mcp_memory_server_becomes_facts_and_edges() -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(NOON)) as memory:
        report = await memory.import_from(FILES / "mcp-memory.jsonl")
        found = {one.content: one for one in await memory.list(limit=100)}
        assert set(found) == {
            "Ann Becker (person)",
            "Ann Becker: Speaks fluent Spanish",
            "Ann Becker: Is allergic to shellfish",
            "Harbour (project)",
            "Harbour: Uses PostgreSQL 17 since March",
            "Ann Becker works on Harbour",
            "Lisbon office",
            "Harbour is run by Lisbon office",
            "Harbour depends on Harbour",
        }
        allergy = found["Ann Becker: Is allergic to shellfish"]
        assert (allergy.trust, allergy.tags) == ("agent", ("Ann Becker", "person", "undated"))
        assert allergy.said_at.timestamp() == pytest.approx(
            (FILES / "mcp-memory.jsonl").stat().st_mtime, abs=1e-5
        )
        near = await memory.related(found["Ann Becker (person)"].id, depth=1)
        assert {(one.memory.content, one.relation) for one in near} == {
            ("Harbour (project)", "works_on"),
            ("Ann Becker: Speaks fluent Spanish", "elaborates"),
            ("Ann Becker: Is allergic to shellfish", "elaborates"),
            ("Ann Becker works on Harbour", "elaborates"),
        }
        assert (report.new, report.edges) == (9, 10)
        assert (await memory.import_from(FILES / "mcp-memory.jsonl")).known == 9


async def test_mem0s_memories_keep_their_dates_and_categories() -> None:
    report, found = await taken(FILES / "mem0.json")
    assert {(one.content, one.tags) for one in found} == {
        ("Ann plans a trip to Lisbon in May", ("travel", "plans")),
        ("Ann's cat is called Pixel", ()),
        ("Ann dislikes coriander", ("undated",)),
    }
    dates = {one.content: one.said_at.isoformat() for one in found}
    assert dates["Ann plans a trip to Lisbon in May"] == "2026-02-03T10:16:05.490548-07:00"
    assert dates["Ann's cat is called Pixel"] == "2026-02-05T08:00:00+00:00"
    assert report.skipped == {"a memory without text": 1}
    assert report.ignored == {"a relation, which only repeats memories": 1}


async def test_each_section_of_a_markdown_folder_is_a_memory_with_its_headings_date_and_tags() -> None:
    report, found = await taken(FILES / "notes")
    assert [(one.content, one.tags, one.said_at.date().isoformat(), one.trust) for one in found] == [
        ("PostgreSQL 17 came out in September 2024.", ("databases", "reading"), "2026-02-20", "outside"),
        ("What we learnt about cooking for guests.", ("cooking", "home"), "2026-01-15", "user"),
        ("Guests > Ann\nNo shellfish, and no coriander either.", ("cooking", "home"), "2026-01-15", "user"),
        (
            "Guests > Ben\nEats everything.\n\n```sh\n# not a heading\necho hello\n```",
            ("cooking", "home"),
            "2026-01-15",
            "user",
        ),
    ]
    assert report.files == {"markdown": 2}


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "# Café\n\nUn café crème à midi, s'il vous plaît.\n"),
        ("cp1251", "# Кухня\n\nСегодня мы готовим борщ и пироги для гостей, а завтра поедем в гости.\n"),
        ("utf-16", "# Küche\n\nHeute gibt es Käsespätzle.\n"),
        ("utf-8-sig", "# Küche\n\nHeute gibt es Käsespätzle.\n"),
        ("utf-16-le", "# Kitchen\n\nToday there is soup.\n"),
    ],
)
async def test_text_in_another_encoding_is_read_as_it_was_meant(
    encoding: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "2026-02-11.md").write_bytes(text.encode(encoding))
    _, found = await taken(tmp_path)
    heading, _, words = text.strip().partition("\n\n")
    assert [one.content for one in found] == [f"{heading[2:]}\n{words}"]
    assert found[0].said_at.date().isoformat() == "2026-02-11"


async def test_lines_in_utf_16_are_read_too(tmp_path: Path) -> None:
    """As a shell on Windows redirects them; U+2028 ends no line of JSON."""
    text = (FILES / "mcp-memory.jsonl").read_text().replace('"observations":["', '"observations":["\u2028')
    assert "\u2028" in text
    (tmp_path / "memory.jsonl").write_bytes(text.encode("utf-16"))
    report, _ = await taken(tmp_path)
    assert report.new == 9


@requirement("memory:import:transcripts")
async def test_a_folder_of_everything_is_sorted_out_file_by_file_and_a_dry_run_counts_the_same() -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(NOON)) as memory:
        dry = await memory.import_from(FILES, dry_run=True)
        assert (await memory.stats()).memories == 0
        report = await memory.import_from(FILES)
        assert dry.new == report.new == (await memory.stats()).memories == 32
        assert report.files == {
            "chatgpt": 1,
            "claude-code": 2,
            "codex": 2,
            "markdown": 2,
            "mcp": 1,
            "mem0": 1,
        }


async def test_what_was_forgotten_does_not_come_back_with_the_same_file() -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(NOON)) as memory:
        await memory.import_from(FILES / "claude")
        gone = next(one.id for one in await memory.list() if "PostgreSQL 17" in one.content)
        await memory.forget(gone)
        again = await memory.import_from(FILES / "claude")
        assert (again.new, again.known) == (0, 2)
        assert again.skipped["forgotten here before"] == 1


async def test_what_was_stored_by_hand_and_forgotten_does_not_come_back_with_an_export_of_before(
    tmp_path: Path,
) -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(NOON)) as memory:
        id = await memory.add("The safe is behind the clock.")
        await memory.export_to(tmp_path / "before.jsonl")
        await memory.forget(id)
        again = await memory.import_from(tmp_path / "before.jsonl")
        assert (again.new, again.skipped["forgotten here before"]) == (0, 1)
        assert await memory.add("The safe is behind the clock.") != id, "said anew, it is kept"


@requirement("memory:capture:echo")
async def test_text_that_satchel_put_into_a_transcript_stays_out(tmp_path: Path) -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(NOON)) as memory:
        await memory.add("Ann is allergic to shellfish")
        block = (await memory.surface("What is Ann allergic to, is it shellfish?")).text
        assert block
        message = {"role": "user", "content": f"What shall we cook for Ann?\n\n{block}"}
        line = {
            "type": "user",
            "sessionId": "s",
            "uuid": "u",
            "timestamp": "2026-03-01T10:00:00Z",
            "message": message,
        }
        (tmp_path / "s.jsonl").write_text(json.dumps(line) + "\n")
        report = await memory.import_from(tmp_path)
        assert (report.new, report.stripped) == (1, 1)
        assert [one.content.strip() for one in await memory.list(kind="episode")] == [
            "What shall we cook for Ann?"
        ]


async def test_memories_of_one_scope_are_not_known_in_another(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    for scope in ("default", "project:harbour"):
        async with Memory.open(path, embedder="none", scope=scope) as memory:
            assert (await memory.import_from(FILES / "mem0.json")).new == 3


async def test_a_path_with_nothing_and_a_file_of_no_format_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    (tmp_path / "y.jsonl").write_text("hello\n")
    async with Memory.open(":memory:", embedder="none") as memory:
        with pytest.raises(NotFound, match="There is no file or folder"):
            await memory.import_from(tmp_path / "nothing")
        with pytest.raises(UsageError, match="The format of .* is unknown"):
            await memory.import_from(tmp_path / "x.json")
        with pytest.raises(UsageError, match="There is no source 'notes'"):
            await memory.import_from(tmp_path, source="notes")
        report = await memory.import_from(tmp_path)
        assert (report.files, report.skipped) == ({}, {"a file of an unknown format": 2})


async def test_a_reader_works_in_one_thread_so_that_it_may_keep_a_connection(tmp_path: Path) -> None:
    threads = set()

    def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
        for number in range(1_200):
            threads.add(threading.current_thread().name)
            yield LeftOut(reason=f"line {number % 2}", where=file.name)

    (tmp_path / "a.txt").write_text("words")
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(NOON)) as memory:
        await memory.import_from(tmp_path / "a.txt", reader=NamedReader("mine", read))
    assert [name.partition("_")[0] for name in threads] == ["satchel-import"]
