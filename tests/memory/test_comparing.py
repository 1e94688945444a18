from __future__ import annotations

import json
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.memory import Comparison, Episode, Memory, compare
from satchel.memory.comparing import FEATURES, features_of, judge_pair
from satchel.models.embedding import HashingEmbedder
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
    # Half of them were fitted on; benchmarks/compare.py reports the other half by itself.
    assert right / len(PAIRS) >= 0.84


def test_statements_that_are_empty_equal_or_without_telling_words_have_a_clear_answer() -> None:
    assert compare("", "x", embedder="none") == Comparison(relation="unrelated", confidence=1.0)
    assert compare("Tea is hot.", "tea is HOT", embedder="none") == Comparison(
        relation="restates", confidence=1.0
    )
    assert compare("a", "b", embedder="none") == Comparison(relation="unrelated", confidence=0.5)
    huge = compare("word " * 200_000, "other " * 200_000, embedder="none")
    assert 0 <= huge.confidence <= 1
    assert tuple(features_of("a 4 pm", "b 16:00", None)) == FEATURES
    assert features_of("At 4 pm on Monday", "At 16:00 on Monday", None)["numbers_differ"] == 0
    assert features_of("It costs 12,000", "It costs 12,500", None)["numbers_differ"] == 1


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The router's address is 192.168.1.1", "The printer's address is 192.168.1.7"),
        ("Invoice 17 is paid", "Invoice 18 is not paid"),
        ("The staging server is kite-2", "The production server is kite-7"),
        ("Fact 1: the sky is blue", "Fact 2: the sky is blue"),
        ("This is test memory 1", "This is test memory 2"),
        ("cuisine note 3", "cuisine note 4"),
    ],
)
def test_what_is_said_of_two_subjects_is_no_correction(older: str, newer: str) -> None:
    assert compare(older, newer, embedder="none").relation != "corrects"


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
        assert done.superseded + done.contradicted >= 1
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
