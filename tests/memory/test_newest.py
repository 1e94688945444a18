"""Newest of a kind: what has one value at a time is told once, and what there can be several of stays together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import ManualClock
from satchel.memory import Context, Episode, Memory, strip_injected
from satchel.memory.toolset import MemoryTools
from satchel.models.embedding import HashingEmbedder
from tests.memory.test_toolset import call
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

START = datetime(2026, 3, 2, 9, tzinfo=UTC)

REPLACES = (
    ("User lives in Hamburg.", "User now lives in Leipzig."),
    ("My phone number is 0151 2345.", "My new phone number is 0160 999."),
    ("The user's employer is Siemens.", "The user's employer is Bosch."),
    ("The head of the choir is Mr Long.", "The head of the choir is Mrs Short."),
    ("The user is 41 years old.", "The user is 42 years old."),
    ("User takes 20 mg of ramipril.", "User takes 40 mg of ramipril."),
    ("User's address is 12 Mill Lane.", "User's address is 4 Park Road."),
    ("The dentist appointment is on Thursday.", "The dentist appointment is on Friday."),
    ("The project deadline is 3 March.", "The project deadline is 10 March."),
    ("The status of the order is pending.", "The status of the order is shipped."),
    ("Hines Ward plays the position of receiver.", "Hines Ward plays the position of cornerback."),
    ("My favourite colour is green.", "My favourite colour is blue."),
    ("Ich wohne in Köln.", "Ich wohne jetzt in Bonn."),
    ("Mein Chef ist Herr Braun.", "Mein Chef ist Frau Weiß."),
    ("Der Termin beim Zahnarzt ist am 3. Mai.", "Der Termin beim Zahnarzt ist am 7. Mai."),
    ("Vivo en Sevilla.", "Ahora vivo en Cádiz."),
    ("La dirección de mi tía es Calle Sol 3.", "La dirección de mi tía es Calle Luna 5."),
    ("J'habite à Lyon.", "J'habite maintenant à Nantes."),
    ("Le loyer est de 600 euros.", "Le loyer est de 650 euros."),
    ("我住在上海。", "我现在住在杭州。"),
    ("公司的地址是南京路1号。", "公司的地址是北京路2号。"),
)

BOTH = (
    ("User is allergic to peanuts.", "User is allergic to shellfish."),
    ("The allergy of the user is Penicillin.", "The allergy of the user is Ibuprofen."),
    ("User can't eat what has traces of nuts in it.", "User can't eat what has traces of gluten in it."),
    ("User's child is Mia.", "User's child is Ben."),
    ("My daughter is called Mia.", "My daughter is called Zoe."),
    ("My daughter lives in Oslo.", "My daughter lives in Bergen."),
    ("User speaks Dutch.", "User speaks Thai."),
    ("User takes ramipril.", "User takes aspirin."),
    ("User is on insulin.", "User is on metformin."),
    ("User is in a choir.", "User is in a book club."),
    ("User has diabetes.", "User has asthma."),
    ("My wife is Linh.", "My wife is Vietnamese."),
    ("User lives with Tom.", "User lives in Berlin."),
    ("The meeting is in room 4.", "The meeting is on Friday."),
    ("I don't live in Rome.", "I don't live in Oslo."),
    ("The capital of Peru is Lima.", "The capital of Chile is Santiago."),
    ("Room 12 is free.", "Room 14 is free."),
    ("Ich bin allergisch gegen Nüsse.", "Ich bin allergisch gegen Milch."),
    ("Mein Sohn heißt Jan.", "Mein Sohn heißt Ole."),
    ("Soy alérgico a las nueces.", "Soy alérgico al marisco."),
    ("Mon fils s'appelle Léo.", "Mon fils s'appelle Tom."),
    ("我对花生过敏。", "我对海鲜过敏。"),
)


async def shown(
    statements: Sequence[str], question: str, *, turns: bool = False, embedder: Any = None, **showing: Any
) -> Context:
    """What is shown of statements that were made a day apart."""
    clock = ManualClock(START)
    async with Memory.open(":memory:", embedder=embedder or HashingEmbedder(), clock=clock) as memory:
        for number, text in enumerate(statements):
            if turns:
                await memory.add_episodes([Episode(session=f"s{number}", turn=1, speaker="user", text=text)])
            else:
                await memory.add(text)
            clock.advance(86_400)
        return await memory.surface(question, **showing)


def lines_of(context: Context) -> list[str]:
    return [hit.memory.content for hit in context.memories]


@requirement("memory:surface:newest")
@pytest.mark.parametrize("turns", [False, True], ids=["facts", "turns"])
@pytest.mark.parametrize(("older", "newer"), REPLACES)
async def test_the_newest_stands_alone_with_the_older_value_on_its_line(
    older: str, newer: str, turns: bool
) -> None:
    context = await shown([older, newer], f"What holds now? {older}", turns=turns, threshold=0.0)
    assert lines_of(context) == [newer]
    assert [one.content for one in context.memories[0].before] == [older]
    assert "(earlier, 2026-03-02: " in context.text


@requirement("memory:surface:several")
@pytest.mark.parametrize("turns", [False, True], ids=["facts", "turns"])
@pytest.mark.parametrize(("older", "newer"), BOTH)
async def test_what_there_can_be_several_of_stays_together(older: str, newer: str, turns: bool) -> None:
    context = await shown([older, newer], f"{older} {newer}"[:-1], turns=turns, threshold=0.0)
    assert sorted(lines_of(context)) == sorted([older, newer])
    assert "earlier" not in context.text


@requirement("memory:surface:newest")
async def test_nothing_is_marked_and_the_older_statement_is_still_found(tmp_path: Path) -> None:
    clock = ManualClock(START)
    async with Memory.open(tmp_path / "m.db", embedder=HashingEmbedder(), clock=clock) as memory:
        older = await memory.add("User lives in Hamburg.")
        clock.advance(60)
        newer = await memory.add("User lives in Leipzig.")
        before = await memory.stats()
        await memory.surface("Where do I, the user, live?", threshold=0.0)
        record = await memory.get(older)
        assert record.valid_to is None
        assert await memory.later([older]) == {}
        assert {change.action for id in (older, newer) for change in await memory.history(id)} == {"add"}
        assert (await memory.stats()).memories == before.memories
        assert {hit.memory.id for hit in await memory.search("lives in Hamburg")} == {older, newer}


@requirement("memory:surface:newest")
@pytest.mark.parametrize("trust", ["outside", "agent"])
async def test_what_is_trusted_less_takes_no_value_from_the_users_words(trust: Any) -> None:
    clock = ManualClock(START)
    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock) as memory:
        await memory.add("The user's address is 4 Park Road.")
        clock.advance(60)
        await memory.add("The user's address is 9 Fraud Street.", trust=trust)
        context = await memory.surface("What is the user's address?", threshold=0.0)
        assert "The user's address is 4 Park Road." in lines_of(context)


@requirement("memory:surface:newest")
async def test_two_speakers_have_values_of_their_own() -> None:
    clock = ManualClock(START)
    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock) as memory:
        for number, (speaker, city) in enumerate((("Ann", "Oslo"), ("Bob", "Bergen"))):
            await memory.add_episodes(
                [Episode(session=f"s{number}", turn=1, speaker=speaker, text=f"I live in {city}.")]
            )
            clock.advance(60)
        context = await memory.surface("Who lives in which city? I live in", threshold=0.0)
        assert sorted(lines_of(context)) == ["I live in Bergen.", "I live in Oslo."]


@requirement("memory:surface:newest")
@pytest.mark.parametrize("told", ["shown", "said"])
async def test_an_older_value_does_not_come_after_the_newest_was_shown_or_said(told: str) -> None:
    clock = ManualClock(START)
    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock) as memory:
        await memory.add("My phone number is 0151 2345.", speaker="user", kind="episode")
        clock.advance(60)
        newer = Episode(session="now", turn=1, speaker="user", text="My phone number is 0160 999.")
        (id,) = await memory.add_episodes([newer])
        showing: dict[str, Any] = {"exclude": [id]} if told == "shown" else {"exclude_session": "now"}
        assert not await memory.surface("What is my phone number?", threshold=0.0, **showing)
        recall = await memory.recall("What is my phone number?", threshold=0.0, **showing)
        assert "a newer value is before the model" in [why for _, why in recall.left_out]


@requirement("memory:surface:newest", "memory:capture:echo")
async def test_a_block_with_an_earlier_value_is_recognised_when_it_comes_back() -> None:
    clock = ManualClock(START)
    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock) as memory:
        await memory.add("User lives in Hamburg.")
        clock.advance(60)
        await memory.add("User lives in Leipzig.")
        text = (await memory.surface("Where does the user live?", threshold=0.0)).text
        assert 'Leipzig." (earlier, 2026-03-02: "Hamburg")' in text
        assert strip_injected(f"Hello\n{text}\nBye") == "Hello\nBye"
        line = next(line for line in text.splitlines() if line.startswith("- "))
        (id,) = await memory.add_episodes(
            [Episode(session="s", turn=1, speaker="user", text=f"You said:\n{line}\nIs that so?")]
        )
        assert (await memory.get(id)).content == "You said:\nIs that so?"


@requirement("memory:surface:newest")
async def test_a_model_that_recalls_reads_the_newest_first() -> None:
    clock = ManualClock(START)
    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock) as memory:
        older = await memory.add("The capital of Kendria is Aldor.")
        clock.advance(60)
        newer = await memory.add("The capital of Kendria is Belmark.")
        result = await call(MemoryTools(memory), "recall_memory", {"query": "the capital of Kendria"})
        assert [hit["memory"]["id"] for hit in result.data] == [newer]
        assert [one["id"] for one in result.data[0]["before"]] == [older]
        assert '(earlier, 2026-03-02: "Aldor")' in result.text


FAMILY = (
    "The manager of the Blue Harbour is Ada Lorne.",
    "The manager of the Blue Harbour is Ines Maro.",
    "Ada Lorne was born in Oslo.",
    "Ines Maro was born in Ghent.",
    "Ines Maro was born in Bruges.",
    "The mayor of Bruges is Piet Aerts.",
    *(f"The shop in street {number} sells lamps and chairs." for number in range(30)),
)


@requirement("memory:surface:mentioned")
@pytest.mark.parametrize("turns", [False, True], ids=["facts", "turns"])
async def test_what_the_newest_answer_mentions_is_asked_next(turns: bool) -> None:
    context = await shown(
        FAMILY,
        "In which city was the manager of the Blue Harbour born?",
        turns=turns,
        embedder="minilm",
    )
    lines = lines_of(context)
    assert lines.index("Ines Maro was born in Bruges.") > lines.index(FAMILY[1])
    assert not {FAMILY[0], FAMILY[2], FAMILY[4 - 1]} & set(lines)


LINH = (
    "User's wife is Linh, who is Vietnamese.",
    *(
        f"Linh {what}."
        for what in (
            "can't stand dairy",
            "loves coriander",
            "is superstitious",
            "has gallstones",
            "reads on the user's phone",
            "was born in Huế",
            "works at the town library",
            "dislikes surprises",
            "married the user in 2001",
            "is afraid of dogs",
        )
    ),
    "The clinic is the Winterberg in Saarbrücken.",
    *(
        f"The user {what}."
        for what in (
            "restores accordions",
            "is a lock keeper",
            "wants short answers",
            "drives a van",
            "plays musette waltzes",
            "hangs the shed key behind the door",
            "needs new tyres",
            "has a neighbour called Jochen",
            "closes the boat ramp in winter",
            "has a boss called Keller",
        )
    ),
)


@requirement("memory:surface:names")
@pytest.mark.parametrize("turns", [False, True], ids=["facts", "turns"])
async def test_a_name_that_many_memories_share_does_not_hide_what_was_asked_for(turns: bool) -> None:
    lines = lines_of(await shown(LINH, "Which clinic is Linh in?", turns=turns, embedder="minilm"))
    assert lines[0] == "The clinic is the Winterberg in Saarbrücken."
    assert len([line for line in lines if "Linh" in line]) <= 2


@requirement("memory:list:folded")
async def test_a_list_has_each_fact_once_and_a_search_finds_its_turns_by_their_words() -> None:
    clock = ManualClock(START)
    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock) as memory:
        turn, echo = await memory.add_episodes(
            [
                Episode(session="s", turn=1, speaker="user", text="We named the terrier Bobik yesterday."),
                Episode(session="s", turn=1, speaker="assistant", text="Noted: Bobik it is.", trust="agent"),
            ]
        )
        (other,) = await memory.add_episodes(
            [Episode(session="s", turn=2, speaker="user", text="The kettle is broken.")]
        )
        (model,) = await memory.add_episodes(
            [Episode(session="s", turn=3, speaker="assistant", text="Good morning!", trust="agent")]
        )
        fact = await memory.add("The user's dog is called Bobik.", session="s", turn=1, said_at=START)
        ended = await memory.add("The user's van is red.", session="s", turn=2, said_at=START)
        await memory.edit(ended, valid_to=START + timedelta(hours=1))
        clock.advance(7_200)

        assert {one.id for one in await memory.list(folded=True)} == {fact, ended}
        assert await memory.count(folded=True) == 2
        assert {one.id for one in await memory.list()} == {turn, echo, other, model, fact, ended}
        # The fact of turn 2 doesn't fit the filter, so that its turn is a row again.
        assert {one.id for one in await memory.list(folded=True, as_of=clock.now())} == {fact, other}
        assert {one.id for one in await memory.list(folded=True, kind="episode")} == {
            turn,
            echo,
            other,
            model,
        }
        assert [one.id for one in (await memory.evidence([fact]))[fact]] == [turn, echo]

        folded = [hit.memory.id for hit in await memory.search("Bobik", folded=True)]
        assert folded[0] == fact
        assert not {turn, echo} & set(folded)
        assert {hit.memory.id for hit in await memory.search("Bobik")} >= {turn, echo, fact}
        found = await memory.search("terrier yesterday", folded=True, limit=1, kind="episode")
        assert [hit.memory.id for hit in found] == [turn]
