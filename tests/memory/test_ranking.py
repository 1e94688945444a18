"""What comes first: roles, days, quotations, long texts, and scripts that an embedder doesn't read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.models.embedding.hashing import HashingEmbedder
from satchel.models.port import EmbedderInfo, EmbedRole, Vectors
from satchel.runtime.lines import hit_line
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


def said(turn: int, text: str, *, speaker: str = "user", days: int = 0, session: str = "") -> Episode:
    return Episode(
        session=session or f"s{turn}",
        turn=turn,
        speaker=speaker,
        text=text,
        said_at=NOON + timedelta(days=days),
    )


ESSAY = " ".join(
    ["Here is what to know about my dentist appointment, the dentist and appointments in general."]
    + [
        f"Point {n}: bring papers to the dentist, be early for the appointment, and ask about costs."
        for n in range(40)
    ]
)


@requirement("memory:search:roles")
@pytest.mark.parametrize(
    ("speaker", "trust"),
    [("assistant", "agent"), ("Assistant", "user"), ("Claudia", "agent"), ("Claudia", "outside")],
)
async def test_what_the_user_said_is_not_buried_under_an_answer_that_repeats_the_question(
    speaker: str, trust: str
) -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        for turn in range(0, 12, 2):
            answer = said(turn + 1, ESSAY, speaker=speaker, session=f"s{turn}")
            await memory.add_episodes(
                [
                    said(turn, f"Tell me about topic {turn}.", session=f"s{turn}"),
                    Episode(**{name: getattr(answer, name) for name in answer.__slots__} | {"trust": trust}),
                ]
            )
        await memory.add_episodes([said(20, "My dentist appointment moved to Thursday at ten.")])
        hits = await memory.search("When is my dentist appointment?")
    assert hits[0].memory.content == "My dentist appointment moved to Thursday at ten."
    assert "speaker" in hits[0].signals
    assert all("speaker" not in hit.signals for hit in hits if hit.memory.speaker == speaker)


@requirement("memory:search:roles")
async def test_a_question_about_what_the_assistant_said_finds_that() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add_episodes(
            [
                said(1, "I like walks by the river, as a routine."),
                said(1, "I recommend walks by the river, as a routine.", speaker="assistant"),
            ]
        )
        by_assistant = await memory.search("Which routine did the assistant think of, walks by the river?")
        by_user = await memory.search("What is the user's routine, walks by the river?")
    assert [hits[0].memory.speaker for hits in (by_assistant, by_user)] == ["assistant", "user"]


@requirement("memory:search:days")
@pytest.mark.parametrize(
    "question",
    [
        "What did I do on 3 March 2026?",
        "What did I do on March 3rd?",
        "Was habe ich am 3. März gemacht?",
        "在3月3日这天我做了什么？",
    ],
)
@pytest.mark.parametrize("embedder", [HashingEmbedder(), "none"], ids=["vectors", "words"])
async def test_a_question_about_a_day_finds_that_day_without_a_word_in_common(
    question: str, embedder: HashingEmbedder | str
) -> None:
    """There are more other turns than both arms give candidates, and the day's own have no word of the question."""
    async with Memory.open(":memory:", embedder=embedder, clock=ManualClock(NOON)) as memory:
        await memory.add_episodes(
            [said(turn, f"The garden needs water, note {turn}.", days=-30 - turn % 40) for turn in range(300)]
            + [said(400, "Ran twelve kilometres along the canal.", days=-11)]
            + [said(401, "Painted the fence.", days=-10), said(402, "Bought shoes.", days=-9)]
        )
        hits = await memory.search(question, limit=3)
    assert hits[0].memory.content == "Ran twelve kilometres along the canal."
    assert "date" in hits[0].signals


@requirement("memory:search:days")
async def test_yesterday_is_counted_from_the_clock_of_the_user() -> None:
    clock = ManualClock(NOON)
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        await memory.add_episodes(
            [said(turn, f"Something about soup {turn}.", days=-turn) for turn in range(5)]
        )
        assert (await memory.search("What did I say about soup yesterday?"))[0].memory.content.endswith("1.")


@requirement("memory:search:length")
async def test_a_long_text_gets_nothing_for_its_length() -> None:
    """The page has a passage that is as near as the short text; so has one page in fourteen by chance."""
    clue = "The lighthouse keeper keeps bees."
    filler = [" ".join(f"word{page}x{n}" for n in range(75)) + "." for page in range(14)]
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        page = await memory.add(" ".join([*filler[:7], clue, *filler[7:]]))
        short = await memory.add(clue)
        hits = await memory.search("Who keeps bees at the lighthouse?")
    assert [hit.memory.id for hit in hits] == [short, page]
    near, far = (hit.signals["meaning"] or 0 for hit in hits)
    assert near > far


class Latin:
    """Reads one script, and takes all other texts for the same."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @property
    def info(self) -> EmbedderInfo:
        return EmbedderInfo(id="latin", dimension=2, max_tokens=256, threshold=0.3, script="LATIN")

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        if role == "query":
            self.asked += texts
        return np.array([[1, 0] if text.isascii() else [0, 1] for text in texts], np.float32)

    async def aclose(self) -> None: ...


@requirement("memory:search:scripts")
async def test_an_embedder_does_not_vote_on_a_script_that_it_does_not_read() -> None:
    embedder = Latin()
    async with Memory.open(":memory:", embedder=embedder) as memory:
        for text in ("我在公园里跑步。", "他喜欢喝绿茶。", "猫在睡觉。"):
            await memory.add(text)
        chinese = await memory.search("谁喜欢喝茶？")
        assert embedder.asked == []
        await memory.search("Who likes tea?")
    assert chinese[0].memory.content == "他喜欢喝绿茶。"
    assert "meaning" not in chinese[0].signals
    assert embedder.asked == ["Who likes tea?"]


@requirement("memory:search:presented")
async def test_of_a_long_memory_the_passage_that_fits_is_shown_with_its_place() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add_episodes(
            [said(1, ESSAY + " The parking garage is on Elm Street. " + ESSAY, speaker="assistant")]
        )
        await memory.add("A short note about parking.")
        long, short = sorted(await memory.search("parking garage"), key=lambda hit: -len(hit.memory.content))
    assert short.passage is None
    assert long.passage is not None
    assert "The parking garage is on Elm Street." in long.passage.text
    assert 1 < long.passage.number < long.passage.of
    assert f"(part {long.passage.number} of {long.passage.of})" in hit_line(long)
    assert "Elm Street" in hit_line(long)


@requirement("memory:search:presented")
@pytest.mark.parametrize(
    ("before", "trust", "answers"),
    [
        ("Long day. Where shall we eat on Sunday?", "user", "Where shall we eat on Sunday?"),
        ("Let us eat out on Sunday.", "user", None),
        ("Where shall we eat on Sunday?", "outside", None),
    ],
)
async def test_a_short_reply_is_shown_with_the_question_that_it_answers(
    before: str, trust: str, answers: str | None
) -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        asked = Episode(session="s", turn=1, speaker="Ann", text=before, said_at=NOON, trust=trust)  # type: ignore[arg-type]
        long = "At the harbour they serve soup, bread, fish and cake from noon until the evening, every day."
        await memory.add_episodes(
            [
                asked,
                said(2, "The harbour!", session="s", speaker="Bob"),
                said(3, long, session="s", speaker="Ann"),
            ]
        )
        hits = {hit.memory.content: hit.answers for hit in await memory.search("harbour")}
    assert hits["The harbour!"] == answers
    assert hits[long] is None


@requirement("memory:search:compounds")
@pytest.mark.parametrize(
    ("question", "whole", "compound"),
    [
        ("Welche Geräte gibt es?", "Das Gerät ist neu.", "Die Leihgeräte sind im Schuppen."),
        ("Zahnarzt", "Zahnarzt in Bremen", "Zahnarzttermin Dienstag 14 Uhr"),
        ("Welke verzekering?", "Een verzekering kost veel geld.", "De ziektekostenverzekering loopt af."),
        ("försäkring", "En försäkring kostar pengar.", "Bilförsäkring: ring dem på tisdag"),
    ],
)
async def test_a_word_finds_compounds_that_begin_or_end_with_it_after_itself(
    question: str, whole: str, compound: str
) -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        for text in (whole, "Milch 12, Käse 7", compound):
            await memory.add(text)
        found = [hit.memory.content for hit in await memory.search(question) if hit.signals.get("words")]
    assert found == [whole, compound]


@requirement("memory:search:compounds")
async def test_what_is_forgotten_by_a_word_is_not_what_only_begins_with_it() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add("Peter kommt am Montag.")
        kept = await memory.add("Die Petersilie ist auf dem Balkon.")
        await memory.forget(query="Peter")
        assert [one.id for one in await memory.list()] == [kept]
        assert [hit.memory.id for hit in await memory.search("Peter")] == [kept]
