"""What search finds and what surfaces with the embedder that people have: on the sets that are published, and in stores
of every size.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from satchel.memory import Episode, Memory
from satchel.memory.find.embedding import Fill
from satchel.models.embedding import MiniLmEmbedder
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
ALLERGY = "My sister Mara is allergic to shellfish."


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"own_{name}.json").read_text(encoding="utf-8"))
    return found


class Remembering(MiniLmEmbedder):
    """The default embedder, which keeps what these tests have it embed: they share their texts, and a vector depends on
    nothing but its text.
    """

    known: ClassVar[OrderedDict[str, Any]] = OrderedDict()

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._recent = self.known

    def _unload(self) -> None:
        self._model = self._tokenizer = None


@pytest.fixture(autouse=True)
def embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.models.embedding.minilm._RECENT_TEXTS", 10_000)
    monkeypatch.setattr("satchel.models.embedding.opening.MiniLmEmbedder", Remembering)


async def store(memory: Memory, entries: list[dict[str, Any]]) -> dict[str, str]:
    """The names of the ids."""
    name_of: dict[str, str] = {}
    for turn, entry in enumerate(entries):
        if entry.get("session"):
            (id,) = await memory.add_episodes(
                [Episode(session=entry["session"], turn=turn, speaker=entry["speaker"], text=entry["text"])]
            )
        else:
            id = await memory.add(entry["text"])
        name_of[id] = entry["id"]
    return name_of


@requirement("memory:search:hybrid", "memory:search:by-meaning")
async def test_one_line_facts_are_found_by_questions_in_other_words(minilm_home: Path) -> None:
    facts = read("facts")
    async with Memory.open(":memory:", home=minilm_home, back_fill=False) as memory:
        name_of = await store(memory, facts["entries"])

        async def found(mode: Any) -> float:
            """The mean share of what answers among the first five."""
            total = 0.0
            for query in facts["queries"]:
                hits = await memory.search(query["query"], limit=5, mode=mode)
                names = {name_of[hit.memory.id] for hit in hits}
                total += len(names & set(query["evidence"])) / len(query["evidence"])
            return total / len(facts["queries"])

        assert await found("hybrid") >= 0.97
        assert 0.6 <= await found("lexical") <= 0.8


@requirement("memory:surface:measured", "memory:surface:nothing", "memory:surface:budget")
async def test_what_surfaces_helps_three_times_in_four_and_seven_of_eight_get_what_helps(
    minilm_home: Path,
) -> None:
    data = read("surface")
    shown = helped = wanted = 0
    async with Memory.open(":memory:", home=minilm_home, back_fill=False) as memory:
        name_of = await store(memory, data["entries"])
        for query in data["queries"]:
            context = await memory.surface(query["query"], budget_tokens=300)
            assert context.tokens <= 300
            names = {name_of[hit.memory.id] for hit in context.memories}
            shown += bool(names)
            helped += bool(names & set(query["evidence"]))
            wanted += bool(query["evidence"])
    assert len(data["queries"]) - wanted >= len(data["queries"]) / 3
    # Nothing was fitted to this set. Nineteen of twenty got what helps before small stores counted (decision 53).
    assert helped / shown >= 0.75
    assert helped / wanted >= 0.875


@requirement("memory:surface:nothing", "memory:surface:last-messages")
@pytest.mark.parametrize("size", [1, 2, 6, 50])
async def test_an_allergy_surfaces_in_a_store_of_any_size_and_the_worlds_knowledge_in_none(
    minilm_home: Path, size: int
) -> None:
    others = [
        entry["text"]
        for entry in read("facts")["entries"]
        if "Mara" not in entry["text"] and "fish" not in entry["text"]
    ]
    async with Memory.open(":memory:", home=minilm_home, back_fill=False) as memory:
        await memory.add_episodes(
            [Episode(session="a", turn=1, speaker="user", text=ALLERGY)]
            + [Episode(session="a", turn=1, speaker="assistant", text="Noted.")] * (size > 1)
        )
        for text in others[: max(0, size - 2)]:
            await memory.add(text)

        async def shown(*messages: str) -> list[str]:
            return [hit.memory.content for hit in (await memory.surface(messages)).memories]

        assert ALLERGY in await shown("What should I keep in mind when I cook for Mara?")
        assert ALLERGY in await shown(
            "Mara is coming for dinner on Friday.", "Nice.", "what should I cook for her?"
        )
        for message in (
            "What is the capital of France?",
            "thanks!",
            "How do I reverse a list in Python?",
            "Noted.",
        ):
            assert await shown(message) == []


FIRST_WEEK = (
    "The user's daughter Lena is six and starts school in September.",
    "The user works nights as a nurse on a cardiology ward.",
    "The user is allergic to penicillin.",
    "The user has been restoring an old wooden canoe in the garage.",
    "The user's brother Pavel lives in Brno and drives a lorry.",
    "The user prefers short answers without an introduction.",
    "The user sings alto in the parish choir on Wednesdays.",
    "The user rents a flat on the third floor without a lift.",
)
HELPED_BY = {
    "What should the doctor know before he gives me an antibiotic?": 2,
    "How old is Lena?": 0,
    "What time of day do I usually work?": 1,
    "Which varnish is right for the canoe?": 3,
    "Where does my brother live?": 4,
    "Which evening is choir?": 6,
}
HELPED_BY_NOTHING = (
    "What should I say to a neighbour who plays the drums at ten in the evening?",
    "When is my car due for its inspection?",
    "My laptop gets hot when I edit videos. What could it be?",
    "How do I tell my boss that I was late because of the snow?",
    "My bike has been stolen from outside the station. What do I do first?",
    "I want to get better at chess, where do I start?",
    "How much did I pay for the winter tyres?",
    "I'd like to read something funny on the train.",
    "Which wine did my uncle like so much at the wedding?",
    "My tomatoes have brown spots. Is that serious?",
)
"""All concern the user's own life. Before weights were fitted to small stores, each was shown one to four lines."""


@requirement("memory:surface:small-stores")
async def test_in_a_first_week_little_is_shown_where_nothing_helps_and_what_helps_is_shown(
    minilm_home: Path,
) -> None:
    async with Memory.open(":memory:", home=minilm_home, back_fill=False) as memory:
        for fact in FIRST_WEEK:
            await memory.add(fact)

        async def shown(message: str) -> list[str]:
            return [hit.memory.content for hit in (await memory.surface(message)).memories]

        spare = 0
        for message, place in HELPED_BY.items():
            lines = await shown(message)
            assert FIRST_WEEK[place] in lines
            spare += len(lines) - 1
        assert spare <= 2  # 5 before.
        lines_of = [len(await shown(message)) for message in HELPED_BY_NOTHING]
        assert sum(not lines for lines in lines_of) >= 4
        assert sum(lines_of) <= 8  # 23 before.


@requirement("memory:search:by-meaning")
async def test_a_wifi_problem_finds_the_network_configuration_among_many_facts_and_words_alone_do_not(
    minilm_home: Path,
) -> None:
    network = "network configuration issue at home"
    async with Memory.open(":memory:", home=minilm_home, back_fill=False) as memory:
        for entry in read("facts")["entries"]:
            await memory.add(entry["text"])
        await memory.add(network)
        assert await memory.count() > 50
        assert (await memory.search("WiFi problem"))[0].memory.content == network
        assert (await memory.search("WiFi problem", mode="semantic", threshold=0.0))[
            0
        ].memory.content == network
        by_words = await memory.search("WiFi problem", mode="lexical")
        assert network not in [hit.memory.content for hit in by_words]


async def test_an_old_decision_from_a_conversation_is_not_shown_without_the_one_that_took_it_back(
    minilm_home: Path,
) -> None:
    older, newer = (
        "We decided to use MySQL as the database for the shop",
        "We decided to move the shop's database from MySQL to PostgreSQL",
    )
    async with Memory.open(":memory:", home=minilm_home, back_fill=False) as memory:
        others = [entry["text"] for entry in read("facts")["entries"][:20]]
        await memory.add_episodes(
            Episode(
                session=f"s{day}",
                turn=1,
                speaker="user",
                text=text,
                said_at=datetime(2026, 1, 1 + day, tzinfo=UTC),
            )
            for day, text in enumerate([older, *others, newer])
        )
        context = await memory.surface("what did we decide about the database?")
        assert newer in [hit.memory.content for hit in context.memories]


async def test_a_message_all_of_whose_words_stand_in_one_memory_is_shown_it(minilm_home: Path) -> None:
    bees = "My neighbour Ottokar keeps bees and hates lilies."
    async with Memory.open(":memory:", home=minilm_home, back_fill=False) as memory:
        await memory.add_episodes([Episode(session="s1", turn=1, speaker="user", text=bees)])
        # No words of a person who asks for themselves: a name nobody else knows says that it is.
        (hit,) = (await memory.surface("What does Ottokar hate?")).memories
        assert hit.memory.content == bees
        assert not await memory.surface("Does honey go bad?")


@requirement("memory:search:no-waiting")
async def test_a_store_that_is_half_embedded_finds_more_than_words_alone_do(minilm_home: Path) -> None:
    facts = read("facts")
    async with Memory.open(":memory:", home=minilm_home, embed_within_s=0, back_fill=False) as memory:
        name_of = await store(memory, facts["entries"])

        async def found(mode: Any) -> float:
            """The mean of 1 divided by the place of the first that answers."""
            total = 0.0
            for query in facts["queries"]:
                hits = await memory.search(query["query"], limit=10, mode=mode)
                names = [name_of[hit.memory.id] in query["evidence"] for hit in hits]
                total += 1 / (names.index(True) + 1) if any(names) else 0
            return total / len(facts["queries"])

        by_words = await found("lexical")
        dense = memory._space.dense
        assert dense is not None
        await dense.open()
        await dense.fill(Fill(limit=len(name_of) // 2))
        half = await found("hybrid")
        assert memory.degraded is not None
        await dense.fill()
        assert by_words < half < await found("hybrid")


@requirement("memory:search:no-waiting")
async def test_a_score_stays_a_share_where_hardly_anything_is_embedded(minilm_home: Path) -> None:
    async with Memory.open(":memory:", home=minilm_home, embed_within_s=0, back_fill=False) as memory:
        dense = memory._space.dense
        assert dense is not None
        await dense.open()
        await memory.add("What should I cook for Mara?")
        await dense.fill()
        for number in range(200):
            await memory.add(f"The serial number of pump {number} is {number * 7919}.")
        await dense.fill(Fill(limit=4))
        first, *_ = await memory.search("serial number of pump 7")
    assert "pump 7 " in first.memory.content
    assert first.score < 1.2  # recency and the like add a tenth each
