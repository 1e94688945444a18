"""The journal: a database that is lost, or lost its end, is made again from it, and what was forgotten stays so."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 4, 1, 12, tzinfo=UTC)


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Memory]:
    async with Memory.open(
        home / "satchel.db", home=home, embedder="none", clock=ManualClock(NOON), back_fill=False
    ) as memory:
        yield memory


async def exported(memory: Memory) -> list[dict[str, Any]]:
    """All that the store holds, in an order that doesn't depend on when it was stored."""
    out = io.BytesIO()
    await memory.export_to(out)
    lines = [json.loads(raw) for raw in out.getvalue().splitlines()]
    for line in lines:
        line.pop("number", None)
        line.pop("undoes", None)
        line.pop("request", None)
    return sorted((line for line in lines if line["type"] != "end"), key=lambda line: json.dumps(line))


def states(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same without the history, and without tombstones that only repeat words which are known as forgotten."""
    words = {line["words_hash"] for line in lines if line["type"] == "forgotten_words"}
    return [
        line
        for line in lines
        if line["type"] != "change"
        and not (line["type"] == "tombstone" and line["place_hash"] is None and line["words_hash"] in words)
    ]


def lose(home: Path, before: Path | None = None) -> None:
    """Remove the database, or put an older state of it in its place."""
    for path in home.glob("satchel.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if before is not None:
        shutil.copytree(before, home, dirs_exist_ok=True)


def kept(home: Path, to: Path) -> Path:
    """The database as it is now, to be put back."""
    to.mkdir()
    for path in home.glob("satchel.db*"):
        shutil.copytree(path, to / path.name) if path.is_dir() else shutil.copy(path, to)
    return to


async def live(memory: Memory) -> None:
    """A little of everything that can be done."""
    tea = await memory.add("Ann drinks green tea", tags=["drink"], session="s1", turn=1, importance=4)
    coffee = await memory.add("Ann drinks coffee")
    await memory.edit(tea, content="Ann drinks white tea", why="she said so")
    await memory.pin(coffee)
    await memory.link(tea, coffee, "may_replace", weight=0.4)
    await memory.supersede(coffee, tea)
    await memory.add_episodes(
        [Episode(session="s1", turn=turn, speaker="Ann", text=f"We met at {turn}.") for turn in (1, 2)]
    )
    await memory.forget([await memory.add("The quagga code is 4711", session="s1", turn=2)])
    await memory.undo((await memory.history(tea))[-1].id)


@requirement("promise:durable:journal")
async def test_a_lost_database_is_made_again_with_corrections_pins_and_links(tmp_path: Path) -> None:
    async with opened(tmp_path) as memory:
        await live(memory)
        before = await exported(memory)
    lose(tmp_path)
    async with opened(tmp_path) as memory:
        assert await exported(memory) == before
        assert memory.rebuilt.memories == 4
        with pytest.raises(Exception, match="forgotten"):
            await memory.add("The quagga code is 4711", session="s1", turn=2)
    async with opened(tmp_path) as memory:
        assert await exported(memory) == before
        assert memory.rebuilt.memories == 0
        assert (await memory.rebuild()).memories == 0


@requirement("promise:durable:journal", "promise:forget:stays-forgotten")
async def test_a_database_that_lost_its_end_gets_it_back_and_forgets_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with opened(home) as memory:
        await live(memory)
        gone = await memory.add("The okapi sleeps in Ulm")
    old = kept(home, tmp_path / "old")
    async with opened(home) as memory:
        await memory.forget([gone])
        await memory.edit((await memory.search("white tea", mode="lexical"))[0].memory.id, tags=["new"])
        await memory.add("Ann moved to Graz")
        before = await exported(memory)
    lose(home, old)
    async with opened(home) as memory:
        assert memory.rebuilt.forgotten == 1
        lines = await exported(memory)
    # That it was forgotten again is in its history.
    assert states(lines) == states(before)
    assert b"okapi" not in b"".join(p.read_bytes() for p in home.rglob("*") if p.is_file())


@requirement("promise:forget:stays-forgotten")
async def test_no_word_of_what_was_forgotten_stays_in_the_journal_nor_of_what_repeated_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "The quagga in the cellar is called Rosalind"
    async with opened(tmp_path) as memory:
        id = await memory.add(secret, session="s", turn=1)
        echo = await memory.add(f"I see. {secret}. Noted.", trust="agent", session="s", turn=1)
        await memory.edit(echo, tags=["zoo"], why=f"because {secret}")
        await memory.link(echo, id, "derived_from")
        await memory.link(id, await memory.add("Zoos have cellars"), "about", why="Rosalind lives there")
        await memory.add("Zoos have ponds")
    journal = next((tmp_path / "journal").glob("*.jsonl"))
    assert b"Rosalind" in journal.read_bytes()
    loads, parsed = json.loads, list[str]()
    async with opened(tmp_path) as memory:
        monkeypatch.setattr(json, "loads", lambda raw: [parsed.append(str(raw)), loads(raw)][1])  # type: ignore[func-returns-value]
        await memory.forget([id])
        monkeypatch.undo()
        assert b"Rosalind" not in journal.read_bytes()
        # Not of the whole journal: a changed note would cost more the more notes there are.
        assert not any("ponds" in raw for raw in parsed)
        before = await exported(memory)
    lose(tmp_path)
    async with opened(tmp_path) as memory:
        assert await exported(memory) == before


async def test_a_journal_that_was_removed_or_cut_is_written_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as memory:
        await live(memory)
        before = await exported(memory)
    journal = next((tmp_path / "journal").glob("*.jsonl"))
    for cut in (0, 1, 300, journal.stat().st_size - 5):
        journal.write_bytes(journal.read_bytes()[:cut])
        async with opened(tmp_path) as memory:
            assert await exported(memory) == before
        lose(tmp_path)
        async with opened(tmp_path) as memory:
            assert await exported(memory) == before
    journal.unlink()
    async with opened(tmp_path) as memory:
        pass
    assert b"white tea" in journal.read_bytes()


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "edit", "pin", "link", "forget", "say", "close"]), st.integers(0, 9)),
    max_size=25,
)


@requirement("promise:durable:journal", "promise:forget:stays-forgotten")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=STEPS, after=STEPS, is_missing=st.booleans())
@example(before=[("add", 0)], after=[*[("add", 0)] * 3, ("edit", 3), ("forget", 3)], is_missing=False)
def test_whatever_was_done_is_there_after_the_loss(
    before: list[tuple[str, int]], after: list[tuple[str, int]], is_missing: bool, tmp_path_factory: Any
) -> None:
    anyio.run(_lived_and_lost, tmp_path_factory.mktemp("lost"), before, after, is_missing)


async def _lived_and_lost(
    tmp: Path, before: list[tuple[str, int]], after: list[tuple[str, int]], is_missing: bool
) -> None:
    home, turns = tmp / "home", iter(range(1, 1000))

    async def run(steps: list[tuple[str, int]]) -> list[dict[str, Any]]:
        at = 0
        while True:
            async with opened(home) as memory:
                while at < len(steps):
                    what, number = steps[at]
                    at += 1
                    if what == "close":
                        break
                    await step(memory, what, number)
                else:
                    return await exported(memory)

    async def step(memory: Memory, what: str, number: int) -> None:
        ids = [record.id for record in await memory.list(limit=100)]
        one, other = (ids[number % len(ids)], ids[(number + 1) % len(ids)]) if ids else ("", "")
        turn = next(turns)
        match what:
            case "add":
                await memory.add(f"Fact {turn} about quaggas", tags=[f"t{number}"], session="s", turn=turn)
            case "say":
                await memory.add_episodes(
                    [Episode(session="s", turn=turn, speaker="Ann", text=f"Said {turn}.")]
                )
            case "edit" if one:
                await memory.edit(one, content=f"Corrected {turn}", importance=1 + number % 5)
            case "pin" if one:
                await memory.pin(one)
            case "link" if one and one != other:
                await memory.link(one, other, "about", weight=0.1 + number / 20)
            case "forget" if one:
                await memory.forget([one])

    await run(before)
    old = None if is_missing else kept(home, tmp / "old")
    lines = await run(after)
    lose(home, old)
    async with opened(home) as memory:
        found = await exported(memory)
    assert states(found) == states(lines)
    async with opened(home) as memory:
        assert await exported(memory) == found
        assert (await memory.check()).problems == ()


@requirement("promise:durable:journal")
async def test_a_memory_with_an_odd_id_is_forgotten_in_the_journal_too(tmp_path: Path) -> None:
    async with opened(tmp_path / "other") as memory:
        id = await memory.add("The combination is xylophone.")
        await memory.export_to(tmp_path / "m.jsonl")
    lines = (tmp_path / "m.jsonl").read_text().replace(id, 'my \\"best\\" one')
    (tmp_path / "m.jsonl").write_text(lines)
    async with opened(tmp_path / "home") as memory:
        assert (await memory.import_from(tmp_path / "m.jsonl")).new == 1
        await memory.keep_up()
        (journal,) = (tmp_path / "home" / "journal").glob("*.jsonl")
        assert "xylophone" in journal.read_text()
        assert (await memory.forget('my "best" one')).missing == ()
        assert "xylophone" not in journal.read_text()
