"""Satchel's own file: taken in by an empty store and written again it has the same bytes."""

from __future__ import annotations

import io
import json
from datetime import UTC, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from satchel.clock import ManualClock
from satchel.errors import SatchelError, StorageUnwritable, UsageError
from satchel.memory import Episode, Memory
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

words = st.text(min_size=1, max_size=60).filter(lambda text: text.strip())
moments = st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-11))])
)
steps = st.one_of(
    st.tuples(st.just("add"), words, moments, st.lists(words, max_size=3), st.integers(1, 5)),
    st.tuples(st.just("say"), words, st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.just("link"), st.integers(0, 9), st.integers(0, 9), words, st.floats(0, 1)),
    st.tuples(st.just("edit"), st.integers(0, 9), words),
    st.tuples(st.just("undo"), st.integers(0, 9)),
    st.tuples(st.just("supersede"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("forget"), st.integers(0, 9)),
    st.tuples(st.just("surface"), words),
    st.tuples(st.just("wait"), st.integers(0, 10**6)),
)


async def exported(memory: Memory) -> bytes:
    stream = io.BytesIO()
    await memory.export_to(stream)
    return stream.getvalue()


async def live(memory: Memory, clock: ManualClock, plan: list[tuple[object, ...]]) -> None:
    """Do what a plan says with a store; what it refuses is refused."""
    ids: list[str] = []
    for step in plan:
        at = [
            ids[n % len(ids)] if ids else ""
            for n in step[1:]
            if isinstance(n, int) and not isinstance(n, bool)
        ]
        try:
            match step:
                case ("add", content, moment, tags, importance):
                    ids.append(await memory.add(content, said_at=moment, tags=tags, importance=importance))  # type: ignore[arg-type]
                case ("say", text, turn, position):
                    ids += await memory.add_episodes(
                        [Episode(session="s", turn=turn, position=position, speaker="Ann", text=text)]  # type: ignore[arg-type]
                    )
                case ("link", _, _, relation, weight):
                    await memory.link(at[0], at[1], relation, weight=weight)  # type: ignore[arg-type]
                case ("edit", _, content):
                    await memory.edit(at[0], content=content)  # type: ignore[arg-type]
                case ("undo", _):
                    await memory.undo((await memory.history(at[0]))[-1].id)
                case ("supersede", _, _):
                    await memory.supersede(at[0], at[1])
                case ("forget", _):
                    await memory.forget(at[0])
                case ("surface", text):
                    await memory.surface(str(text))
                case ("wait", seconds):
                    clock.advance(float(seconds))  # type: ignore[arg-type]
                case _:
                    raise AssertionError(step)
        except SatchelError:
            continue


@requirement("memory:export:round-trip")
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(plan=st.lists(steps, max_size=25))
async def test_what_an_empty_store_took_in_it_writes_with_the_same_bytes(
    plan: list[tuple[object, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock = ManualClock()
    file = tmp_path_factory.mktemp("round") / "m.jsonl"
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        await live(memory, clock, plan)
        first = await exported(memory)
        listed = await memory.list(limit=1000)
    file.write_bytes(first)
    clock.advance(1000)
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        report = await memory.import_from(file)
        assert report.skipped == {}
        assert await exported(memory) == first
        assert await memory.list(limit=1000) == listed
        again = await memory.import_from(file)
        assert (again.new, again.edges, again.changes, again.tombstones) == (0, 0, 0, 0)
        assert await exported(memory) == first


async def test_the_file_lines_up_memories_edges_history_and_what_was_forgotten(tmp_path: Path) -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock()) as memory:
        one, two = await memory.add("one"), await memory.add("two", tags=["x"])
        said = await memory.add_episodes([Episode(session="s", turn=1, speaker="Ann", text="three")])
        await memory.link(one, two, "related", weight=0.5)
        await memory.forget(said)
        report = await memory.export_to(tmp_path / "all.jsonl")
        found = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
        assert [line["type"] for line in found] == [
            "satchel-memory", "memory", "memory", "edge", "change", "change", "tombstone", "end"
        ]  # fmt: skip
        assert (report.memories, report.edges, report.bytes) == (
            2,
            1,
            (tmp_path / "all.jsonl").stat().st_size,
        )
        assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600
        # A filter takes what hangs on its memories alone.
        await memory.export_to(tmp_path / "some.jsonl", tags=["x"])
        found = [json.loads(line) for line in (tmp_path / "some.jsonl").read_text().splitlines()]
        assert [line["type"] for line in found] == ["satchel-memory", "memory", "end"]


async def test_the_tombstones_of_an_export_keep_the_forgotten_away_in_the_other_store_too(
    tmp_path: Path,
) -> None:
    episode = Episode(session="s", turn=1, speaker="Ann", text="my secret plan")
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.forget(await memory.add_episodes([episode]))
        await memory.export_to(tmp_path / "m.jsonl")
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.import_from(tmp_path / "m.jsonl")
        assert await memory.add_episodes([episode]) == ()
        # New memories get numbers that no tombstone has.
        await memory.forget(await memory.add("another"))


async def test_a_file_that_was_cut_short_is_taken_in_as_far_as_it_goes_and_told(tmp_path: Path) -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        for number in range(5):
            await memory.add(f"memory {number}")
        whole = await exported(memory)
    (tmp_path / "m.jsonl").write_bytes(whole[: whole.rindex(b'"memory 4"') + 20])
    async with Memory.open(":memory:", embedder="none") as memory:
        report = await memory.import_from(tmp_path / "m.jsonl")
        assert (report.new, report.skipped) == (
            4,
            {"the last line is truncated": 1, "the file is truncated: its last line is missing": 1},
        )
        (tmp_path / "m.jsonl").write_bytes(whole)
        report = await memory.import_from(tmp_path / "m.jsonl")
        assert (report.new, report.known, report.skipped) == (1, 4, {})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", 7),
        ("content", " "),
        ("content", None),
        ("kind", "rumour"),
        ("importance", 6),
        ("importance", True),
        ("priority", "NaN"),
        ("priority", 1e400),
        ("priority", 10**400),
        ("tags", [1]),
        ("said_at", "yesterday"),
        ("said_at", "2026-01-01T00:00:00"),
        ("said_at", 10**30),
        ("valid_to", {}),
        ("source", []),
        ("trust", "everybody"),
        ("access_count", -1),
    ],
)
async def test_a_field_that_no_store_can_hold_is_named_and_the_others_are_taken_in(
    field: str, value: object, tmp_path: Path
) -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add("good")
        await memory.add("bad")
        found = [json.loads(line) for line in (await exported(memory)).splitlines()]
    found[2][field] = value
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))
    async with Memory.open(":memory:", embedder="none") as memory:
        report = await memory.import_from(tmp_path / "m.jsonl")
        assert (report.new, report.skipped) == (1, {f"a memory with an invalid {field}": 1})


async def test_a_file_of_a_newer_format_is_refused_whole(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"type":"satchel-memory","format":2}\n{"type":"memory"}\n')
    async with Memory.open(":memory:", embedder="none") as memory:
        report = await memory.import_from(tmp_path / "m.jsonl")
        assert report.skipped == {"a file of format 2, which needs a newer Satchel": 1}


async def test_a_place_that_cannot_be_written_is_told_and_leaves_what_was_there(tmp_path: Path) -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add("one")
        with pytest.raises(StorageUnwritable, match="can.t be written"):
            await memory.export_to(tmp_path / "none" / "m.jsonl")
        with pytest.raises(UsageError):
            await memory.import_from(Path("/dev/null"), source="nothing")
