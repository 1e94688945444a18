"""What is left in the memories that stay when one of them is forgotten, and what the receipt says of it."""

from __future__ import annotations

import hashlib
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory, Trust, receipt_to_json
from satchel.storage import Database
from tests.memory.test_forgetting import link
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SAID = "My sister Mara is allergic to shellfish."


def said(turn: int, text: str, *, trust: Trust = "user", session: str = "s1") -> Episode:
    position = 0 if trust == "user" else 1
    speaker = "user" if trust == "user" else "assistant"
    return Episode(session=session, turn=turn, speaker=speaker, text=text, position=position, trust=trust)


@requirement("memory:forget:quote")
@pytest.mark.parametrize("again", ["She can't eat prawns either.", f"As I said: {SAID}"])
async def test_a_fact_that_rests_on_two_turns_does_not_quote_the_one_that_was_forgotten(
    tmp_path: Path, again: str
) -> None:
    async with Database.open(tmp_path / "m.db") as database, Memory.open(database, embedder="none") as memory:
        one, two = await memory.add_episodes([said(1, f"Hello! {SAID}"), said(4, again)])
        fact = await memory.add("Mara must avoid seafood", session="s1", turn=1, quote=SAID)
        other = await memory.add("Mara is a sister", session="s1", turn=9, quote="something else")
        await link(database, fact, one, two)
        await link(database, other, one, two)
        receipt = await memory.forget(one)
        source = (await memory.get(fact)).source
        assert (source.turn, source.quote) == (4, SAID if SAID in again else "")
        assert receipt.requoted == (fact,)
        assert (await memory.get(other)).source.quote == "something else"
    assert (SAID.encode() in (tmp_path / "m.db").read_bytes()) is (SAID in again)


@requirement("memory:forget:reopens")
async def test_when_the_newer_of_two_is_forgotten_the_older_holds_again() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        old, middle, new = [await memory.add(f"Mara lives in {city}.") for city in ("Bern", "Basel", "Chur")]
        await memory.supersede(old, middle)
        await memory.supersede(middle, new)
        # What took the forgotten one's place has taken the older one's too.
        assert (await memory.forget(middle)).reopened == ()
        assert (await memory.get(old)).valid_to is not None
        assert (await memory.forget(new)).reopened == (old,)
        assert (await memory.get(old)).valid_to is None
        assert [hit.memory.id for hit in await memory.search("Where does Mara live?")] == [old]
        assert (await memory.history(old))[-1].why == "what had superseded it was forgotten"


async def test_an_end_that_was_set_by_hand_stays_when_the_newer_one_is_forgotten() -> None:
    clock = ManualClock(at=datetime(2026, 5, 1, tzinfo=UTC))
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        old, one, two, newer = [await memory.add(f"Flat {n} is rented.") for n in range(4)]
        await memory.supersede(old, one)
        await memory.supersede(old, two)
        end = datetime(2026, 4, 1, tzinfo=UTC)
        await memory.edit(old, valid_to=end)
        await memory.supersede(newer, old)
        await memory.forget(one)
        assert (await memory.get(old)).valid_to == end
        assert (await memory.forget(two)).reopened == ()
        assert (await memory.get(old)).valid_to == end


@requirement("memory:forget:same-words")
async def test_forgetting_one_yes_keeps_no_later_yes_away() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        ids = await memory.add_episodes([said(turn, "Yes, please.") for turn in (1, 2)])
        receipt = await memory.forget(ids[0])
        assert (receipt.echoes, receipt.still_said) == ((), ())
        assert len(await memory.add_episodes([said(3, "Yes, please.")])) == 1
        assert await memory.add_episodes([said(1, "Yes, please.")]) == ()
        assert [found.source.turn for found in await memory.list()] == [3, 2]


@requirement("memory:forget:echoes")
async def test_the_words_leave_the_answers_that_repeat_them_and_the_receipt_says_so(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m.db", embedder="none", clock=ManualClock()) as memory:
        first, answer, bare, elsewhere, own = await memory.add_episodes(
            [
                said(1, SAID),
                said(1, f'Noted: "{SAID}" I will keep it in mind.', trust="agent"),
                said(2, SAID, trust="agent"),
                said(1, f"You told me: {SAID.replace('sister ', 'sister  ')}", trust="agent", session="s2"),
                said(7, f"By the way, {SAID}", session="s3"),
            ]
        )
        await memory.edit(answer, content=f"Noted: {SAID} Will do.", why=SAID)
        planned = await memory.forget(first, dry_run=True)
        receipt = await memory.forget(first)
        assert (receipt.echoes, receipt.still_said) == (planned.echoes, planned.still_said)
        assert (receipt.echoes, receipt.still_said) == ((answer, elsewhere), (own,))
        assert {gone.id: gone.because_of for gone in receipt.forgotten} == {first: None, bare: first}
        assert [(await memory.get(id)).content for id in receipt.echoes] == [
            "Noted: [forgotten] Will do.",
            "You told me: [forgotten]",
        ]
        assert receipt_to_json(receipt)["echoes"] == [answer, elsewhere]
        assert await memory.search("shellfish") == (*await memory.search("shellfish", session="s3"),)
        await memory.forget(own)
    assert b"allergic to shellfish" not in (tmp_path / "m.db").read_bytes()


@requirement("memory:forget:unguessable")
async def test_nobody_can_test_a_guess_against_what_is_kept_of_forgotten_words(tmp_path: Path) -> None:
    """Neither against what this version keeps, nor against what a database has from an older one."""
    digest = hashlib.sha256(SAID.encode()).hexdigest()
    text = "".join(f"{len(part)}:{part};" for part in ("words", "s1", digest))
    unkeyed = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    where = tmp_path / "m.db"
    async with Memory.open(where, embedder="none") as memory:
        await memory.add_episodes([said(1, "Hello")])
        receipt = await memory.forget(await memory.add(SAID, session="s1"))
        assert digest not in str(receipt_to_json(receipt))
        assert digest not in str(await memory.history(receipt.forgotten[0].id))
        await memory.export_to(tmp_path / "m.jsonl")
        with pytest.raises(Exception, match="forgotten"):
            await memory.add(SAID, session="s1")
    database = sqlite3.connect(where)
    kept = [str(row) for row in database.execute("SELECT words_hash FROM memory_tombstones")]
    with database:
        database.execute("UPDATE memory_tombstones SET words_hash = ?", (unkeyed,))
    database.close()
    assert unkeyed not in "".join(kept) + (tmp_path / "m.jsonl").read_text()
    assert oct((tmp_path / "forgotten.key").stat().st_mode)[-3:] == "600"
    async with Memory.open(where, embedder="none") as memory:
        # What the older version knew is still refused.
        with pytest.raises(Exception, match="forgotten"):
            await memory.add(SAID, session="s1")
        await memory.add(SAID, session="s2")
    assert unkeyed.encode() not in where.read_bytes()
