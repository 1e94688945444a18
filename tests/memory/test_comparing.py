from __future__ import annotations

import json
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.errors import Refused
from satchel.memory import Comparison, Episode, Grouped, Memory, Trust, compare
from satchel.memory.comparing import FEATURES, features_of, judge_pair
from satchel.memory.wording import read_statement
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import ModelRequest
from satchel.models.scripted import Reply, ScriptedModel
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

PAIRS = json.loads((Path(__file__).parent / "data" / "pairs.json").read_text(encoding="utf-8"))


@requirement("memory:compare")
def test_the_labelled_pairs_are_mostly_told_right_by_words_alone() -> None:
    assert len(PAIRS) >= 120
    right = sum(
        compare(pair["older"], pair["newer"], embedder="none").relation == pair["relation"] for pair in PAIRS
    )
    # The weights were fitted to them; benchmarks/compare.py measures with weights that were not.
    assert right / len(PAIRS) >= 0.8


def test_statements_that_are_empty_equal_or_without_telling_words_have_a_clear_answer() -> None:
    assert compare("", "x", embedder="none") == Comparison(relation="unrelated", confidence=1.0)
    assert compare("Tea is hot.", "tea is HOT", embedder="none") == Comparison(
        relation="restates", confidence=1.0
    )
    assert compare("a", "b", embedder="none") == Comparison(relation="unrelated", confidence=0.5)
    huge = compare("word " * 200_000, "other " * 200_000, embedder="none")
    assert 0 <= huge.confidence <= 1
    assert tuple(_features("a 4 pm", "b 16:00")) == FEATURES


def _features(older: str, newer: str) -> dict[str, float]:
    return features_of(read_statement(older), read_statement(newer), None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("At 4 pm on Monday", "At 16:00 on Monday"),
        ("The alarm goes off at 6:30", "The alarm goes off at half past six"),
        ("It costs 12,000 euros", "It costs twelve thousand euros"),
        ("Paid on the twenty-fifth", "Paid on the 25th"),
        ("We have two cats", "We have 2 cats"),
        ("A salary of 78k", "A salary of 78,000"),
    ],
)
def test_the_same_number_in_another_form_is_no_other_number(one: str, other: str) -> None:
    assert _features(one, other)["numbers_differ"] == 0
    assert _features(one, other)["numbers_shared"] == 1
    assert _features(one, other + " or 999")["numbers_added"] > 0


@pytest.mark.parametrize(
    ("older", "newer", "evidence"),
    [
        ("User likes horror films.", "User hates horror films.", "opposite"),
        ("The rent is 950 euros a month", "The rent went up to 1,020 euros a month", "number"),
        (
            "The standup of the team starts at 9:15",
            "The standup of the team starts at quarter to ten",
            "number",
        ),
        ("My phone number is 555 1234.", "My phone number is now 555 9876.", "number"),
        ("My locker has the code 4411", "My locker has the new code 9021", "number"),
        ("The review is on Tuesday at 10", "The review was moved to Thursday at 10", "day"),
        ("We use MySQL for the orders", "We moved the orders from MySQL to PostgreSQL", "left"),
    ],
)
def test_where_the_words_show_which_value_was_replaced_a_correction_may_take_effect(
    older: str, newer: str, evidence: str
) -> None:
    assert compare(older, newer, embedder="none").evidence == evidence


@requirement("memory:compare:subjects")
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("User had a knee operation in 2019", "User's wife had a knee operation in 2024"),
        ("User takes 50 mg of sertraline", "User's sister takes 100 mg of sertraline"),
        ("My flight is on Monday", "My brother's flight is on Friday"),
        ("User is a nurse", "User lives in Berlin"),
        ("User lives in Rotterdam", "If the visa comes through, user will move from Rotterdam to Melbourne"),
        ("User likes tea", "As a child the user hated tea"),
        ("User pays 840 euros rent", "User also pays 60 euros rent for a garage"),
        ("User doesn't eat meat", "User is a vegetarian"),
        ("My phone number is 555 1234.", "My sister's phone number is now 555 9876."),
        ("My phone number is 555 1234.", "My office phone number is now 555 9876."),
        ("Ticket 4411 is open now.", "Ticket 4412 is open now, since today."),
        ("Die Miete ist 950 Euro im Monat", "Die Miete ist auf 1.020 Euro im Monat gestiegen"),
        ("La reunión es el martes", "La reunión se pasó del martes al jueves"),
        ("会议定在周三下午两点", "会议改到周五上午十点了"),
    ],
)
def test_what_is_said_of_another_person_time_or_matter_or_in_another_language_ends_nothing(
    older: str, newer: str
) -> None:
    found = compare(older, newer, embedder="none")
    assert found.evidence is None
    # A sure similarity doesn't change that.
    assert judge_pair(older, newer, 0.9).evidence is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The router's address is 192.168.1.1", "The printer's address is 192.168.1.7"),
        ("Invoice 17 is paid", "Invoice 18 is not paid"),
        ("The staging server is kite-2", "The production server is kite-7"),
        ("Fact 1: the sky is blue", "Fact 2: the sky is blue"),
        ("This is test memory 1", "This is test memory 2"),
        ("cuisine note 3", "cuisine note 4"),
        (
            "Tove is vegetarian: no meat, no fish.",
            "Tove's cargo bike is a Tern; its battery was replaced in April.",
        ),
        ("The landlord's roof was replaced last week.", "The landlord is no longer in town."),
    ],
)
def test_what_is_said_of_two_subjects_is_no_correction(older: str, newer: str) -> None:
    for similarity in (None, 0.3, 0.5):
        found = judge_pair(older, newer, similarity)
        assert (found.relation != "corrects", found.correction) == (True, 0.0)


@pytest.mark.parametrize("similarity", [None, 0.2, 0.4])
def test_what_denies_something_else_says_nothing_again(similarity: float | None) -> None:
    for older, newer in (
        ("Mara has a dog, no cats, no birds.", "Ben can't swim. He is afraid of water."),
        ("Tove is vegetarian: no meat, no fish.", "Emil can't eat gluten."),
    ):
        assert judge_pair(older, newer, similarity).relation != "restates"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Decision: the database is MySQL", "Decision: the database is PostgreSQL, replacing MySQL"),
        ("We will use SQLite for storage", "We decided to move storage from SQLite to Postgres"),
        ("We decided to use Postgres", "We decided against Postgres; SQLite it is"),
    ],
)
def test_what_takes_leave_of_the_older_choice_corrects_it(older: str, newer: str) -> None:
    assert compare(older, newer, embedder="none").relation == "corrects"


async def test_it_may_be_called_while_an_event_loop_runs() -> None:
    found = compare("The sky is blue today", "The sky is blue today, said Ann", embedder=HashingEmbedder())
    assert found.similarity is not None
    assert found == judge_pair("The sky is blue today", "The sky is blue today, said Ann", found.similarity)


async def test_a_language_model_is_asked_and_one_that_talks_nonsense_is_done_without(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m.db", embedder="none") as memory:
        model = ScriptedModel(
            [Reply(text='Sure: {"relation": "corrects", "confidence": 0.9}'), Reply(text="hm")]
        )
        found = await memory.compare("Ann is 6", "Ann is 7", model=model)
        assert found == Comparison(relation="corrects", confidence=0.9, by_model=True)
        assert not (await memory.compare("Ann is 6", "Ann is 7", model=model)).by_model


@requirement("memory:dedup:grouped")
async def test_a_language_model_is_asked_once_about_two_new_facts_and_its_answer_takes_effect() -> None:
    asked: list[str] = []

    def answer(request: ModelRequest) -> Reply:
        asked.append(request.messages[0].text)
        return Reply(text='{"relation": "corrects", "confidence": 0.95}')

    clock = ManualClock()
    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock) as memory:
        first = await memory.add("The choir rehearses in the town hall with Oskar")
        clock.advance(60)
        second = await memory.add("The choir with Oskar: the old school is where it rehearses")
        done = await memory.group(model=ScriptedModel(answer))
        assert (done.compared, done.superseded) == (2, 1)
        assert [(later.memory.id, later.is_certain) for later in (await memory.later([first]))[first]] == [
            (second, True)
        ]
    assert len(asked) == 1


@requirement("memory:dedup:grouped", "memory:dedup:threshold")
async def test_near_facts_are_tied_or_superseded_never_merged_and_all_of_it_can_be_undone(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with Memory.open(tmp_path / "m.db", embedder=HashingEmbedder(), clock=clock) as memory:
        first = await memory.add("The launch is planned for 3 June")
        clock.advance(60)
        again = await memory.add("The launch is planned for 3 June.")
        moved = await memory.add("The launch was moved to 10 June instead of 3 June")
        await memory.add("Bananas are yellow")
        before = await memory.list()
        done = await memory.group()
        assert (done.compared, done.restated) == (4, 1)
        assert done.superseded + done.may_replace >= 1
        assert await memory.group() == type(done)()
        assert {record.id: record.content for record in await memory.list()} == {
            record.id: record.content for record in before
        }
        assert [
            edge.relation for edge in await memory.edges(again) if first in (edge.source, edge.target)
        ] == ["restates"]
        for id in (moved, again, first):
            for change in reversed(await memory.history(id)):
                if change.action in ("link", "supersede") and change.undone_by is None:
                    await memory.undo(change.id)
        assert await memory.edges(first) == await memory.edges(moved) == ()
        assert await memory.list() == before


async def test_what_comes_from_outside_never_takes_the_place_of_what_the_user_said(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Memory.open(tmp_path / "m.db", embedder=HashingEmbedder(), clock=clock) as memory:
        own = await memory.add("The launch is on June 3")
        clock.advance(60)
        await memory.add("The launch was moved to June 10", trust="outside")
        assert (await memory.group()).superseded == 0
        assert (await memory.get(own)).valid_to is None


@requirement("memory:dedup:grouped")
@pytest.mark.parametrize("embedder", ["none", HashingEmbedder()], ids=["words", "vectors"])
async def test_what_was_said_does_not_keep_a_fact_from_being_compared_with_another(
    embedder: HashingEmbedder | str,
) -> None:
    async with Memory.open(":memory:", embedder=embedder, back_fill=False) as memory:
        older = await memory.add("The launch is planned for 3 June")
        await memory.add_episodes(
            Episode(session="s", turn=n, speaker="user", text="The launch is planned for 3 June!")
            for n in range(8)
        )
        newer = await memory.add("The launch is planned for 3 June.")
        await memory.group()
        assert [(edge.source, edge.target) for edge in await memory.edges(newer)] == [(newer, older)]


@requirement("memory:supersede:trust")
@pytest.mark.parametrize(
    ("older", "newer", "by", "ends"),
    [
        ("user", "outside", "agent", False),
        ("agent", "outside", "agent", False),
        ("outside", "outside", "agent", True),
        ("user", "agent", "agent", True),
        ("user", "agent", "compare", False),
        ("user", "outside", "distill", False),
        ("user", "user", "compare", True),
        ("agent", "user", "distill", True),
        ("user", "outside", "user", True),
    ],
)
async def test_who_may_end_what_whom_said_is_decided_in_one_place(
    older: Trust, newer: Trust, by: str, ends: bool
) -> None:
    clock = ManualClock()
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        old = await memory.add("The launch is on June 3", trust=older)
        clock.advance(60)
        new = await memory.add("The launch is on June 10", trust=newer)
        if ends:
            assert await memory.supersede(old, new, by=by)
        else:
            with pytest.raises(Refused, match=f"{old} still holds.*comes from.*memory link {new} {old}"):
                await memory.supersede(old, new, by=by)
        assert ((await memory.get(old)).valid_to is not None) == ends


@requirement("memory:may-replace")
async def test_a_possible_correction_is_a_candidate_that_leaves_both_and_can_be_undone() -> None:
    clock = ManualClock()
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        old = await memory.add("The gym is open until 22:00", speaker="Ann")
        clock.advance(60)
        # Another speaker takes nothing back, however clear the words are.
        new = await memory.add("The gym is open until 20:00 now", speaker="Ben")
        done = await memory.group()
        assert (done.superseded, done.may_replace) == (0, 1)
        assert (await memory.get(old)).valid_to is None
        (edge,) = await memory.edges(old)
        assert (edge.source, edge.target, edge.relation) == (new, old, "may_replace")
        assert 0.12 <= edge.weight < 1
        (change,) = (change for change in await memory.history(new) if change.action == "link")
        assert (change.who, change.why.split(",")[0]) == ("compare", "compared: corrects")
        await memory.undo(change.id)
        assert await memory.edges(old) == ()


async def test_pages_are_not_compared_as_statements() -> None:
    async with Memory.open(":memory:", embedder="none", back_fill=False) as memory:
        await memory.add("The garden is dry. " * 40 + "It rains on Monday.")
        await memory.add("The garden is dry. " * 40 + "It rains on Tuesday.")
        assert await memory.group() == Grouped(compared=2)


@requirement("memory:may-replace:turns")
async def test_what_the_user_says_later_is_linked_with_the_earlier_turn_that_it_may_make_out_of_date() -> (
    None
):
    clock = ManualClock()

    def said(session: str, text: str, speaker: str = "user", trust: Trust = "user") -> Episode:
        return Episode(session=session, turn=0, speaker=speaker, text=text, trust=trust)

    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock, back_fill=False) as memory:
        (old,) = await memory.add_episodes([said("s1", "Sumaira minds Kofi on Monday, Janet has the key.")])
        (fox,) = await memory.add_episodes([said("s2", "We saw a fox behind the shed.")])
        clock.advance(86_400)
        text = (
            "Sumaira stopped, she moved to Hull. From now on Lorraine minds Kofi instead, Monday as before."
        )
        (new,) = await memory.add_episodes([said("s3", text)])
        clock.advance(86_400)
        # An assistant's words, and those from outside, replace nothing that the user said.
        await memory.add_episodes([said("s4", text, "assistant"), said("s5", text, "Eve", "outside")])
        # Nor do questions, and nothing replaces a question.
        question = "Sumaira stopped? From now on does Lorraine mind Kofi instead, Monday as before?"
        (asked,) = await memory.add_episodes([said("s6", question)])
        clock.advance(86_400)
        await memory.add_episodes([said("s7", question)])
        await memory.group()
        assert await memory.edges(asked) == ()
        links = [(edge.source, edge.target, edge.relation) for edge in await memory.edges(old)]
        assert links == [(new, old, "may_replace")]
        assert await memory.edges(fox) == ()
        assert (await memory.get(old)).valid_to is None
        (change,) = (change for change in await memory.history(new) if change.action == "link")
        assert change.why.startswith("compared: may be out of date, probability 0.")
        await memory.group()
        assert len(await memory.edges(old)) == 1
