"""`kill -9` at any moment of forgetting: what was not to be forgotten is there, and of what was, no byte comes back."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from satchel.memory import Memory
from satchel.models import ScriptedModel
from satchel.runtime.health import examine
from tests.killing import Killing
from tests.requirements import requirement
from tests.runtime.forget_worker import LONG, reply, sentence
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio

KILLS = 8
SESSIONS, TURNS = 4, 18
LINES_OF_A_ROUND = 5
CHECKED_EACH = 3


async def say_all(folder: Path) -> dict[str, list[str]]:
    """Fill a home; the words by the session that they were said in."""
    said: dict[str, list[str]] = {}
    async with opened(folder, ScriptedModel(reply), **LONG) as satchel:
        for number in range(SESSIONS):
            session = await satchel.session()
            # Ended by a letter that is no digit of a hash: what stands after it in a file makes no other word of it.
            said[session.id] = [f"quagga{number}x{turn}z" for turn in range(TURNS)]
            for word in said[session.id]:
                await session.run_turn(sentence(word))
            await session.aclose()
        await satchel.sessions.list()
    return said


def words_in(folder: Path) -> set[str]:
    """All words of that kind that stand in any part of any file, in whatever case."""
    return {
        found.decode()
        for path in folder.rglob("*")
        if path.is_file()
        for found in re.findall(rb"quagga\d+x\d+z", path.read_bytes().lower())
    }


async def ids_by_word(memory: Memory) -> dict[str, list[str]]:
    """The ids of what was said with each word, by both sides."""
    found: dict[str, list[str]] = {}
    for record in await memory.list(limit=10_000):
        found.setdefault(record.content.split()[-1], []).append(record.id)
    return found


@requirement("promise:durable:kill", "promise:forget:session-log", "promise:forget:stays-forgotten")
async def test_kills_lose_nothing_and_bring_nothing_forgotten_back(tmp_path: Path) -> None:
    chance = random.Random(20261123)
    home = tmp_path / "home"
    said = await say_all(tmp_path)
    alive = {word for words in said.values() for word in words}
    assert words_in(home) == alive
    async with opened(tmp_path) as satchel:
        assert satchel.memory is not None
        ids = await ids_by_word(satchel.memory)
    forgotten: set[str] = set()
    in_doubt: set[str] = set()
    again = 0
    with Killing("tests.runtime.forget_worker") as killing:
        for number in killing.rounds(KILLS, lambda: again > 0):  # noqa: B023 - its value then
            # Whoever gave an order and got no answer gives it again.
            forget = [*sorted(in_doubt), *chance.sample(sorted(ids.keys() & alive - in_doubt), k=2)]
            lines = killing.round(
                folder=str(tmp_path),
                session=chance.choice(sorted(said)),
                forget=[(word, ids[word]) for word in forget],
                say=f"quagga{SESSIONS}x{number}z" if chance.random() < 0.3 else "",
                after=chance.randint(1, LINES_OF_A_ROUND),
                later_s=chance.uniform(0, 0.03),
            )
            alive.update(word for what, word in lines if what == "said")
            done = {word for what, word in lines if what == "forgot"}
            again += len(done & in_doubt)
            forgotten |= done
            in_doubt |= {word for what, word in lines if what == "forgetting"}
            in_doubt -= forgotten
            alive -= forgotten
            assert words_in(home) & forgotten == set()
            if number % CHECKED_EACH == 0:
                async with opened(tmp_path) as satchel:
                    assert satchel.memory is not None
                    assert satchel.home.database is not None
                    ids = await ids_by_word(satchel.memory)
                    assert forgotten & ids.keys() == set()
                    assert all(len(ids[word]) == 2 for word in alive - in_doubt)
                    assert (await satchel.home.database.doctor()).problems == ()
    async with opened(tmp_path) as satchel:
        assert satchel.memory is not None
        await satchel.memory.embed_pending()
        assert (await satchel.memory.check()).problems == ()
        assert [check for check in await examine(satchel) if check.state == "failed"] == []
    logs = b"".join(path.read_bytes() for path in home.rglob("*.jsonl"))
    assert [word for word in sorted(alive - in_doubt) if sentence(word).encode() not in logs] == []
    assert words_in(home) & forgotten == set()
