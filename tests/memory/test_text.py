from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.memory.lexicon import QUESTION, TIME_WORDS, commonness, hash_stem, read_text, stems_of, words_of
from satchel.memory.passages import MAX_PASSAGES, passages
from satchel.memory.question import NamedDate, date_closeness, read_question
from satchel.memory.relevance import examples

ANN_AND_BOB = [("Ann Miller", 0), ("Bob", 1), ("assistant", 2), ("Will", 3), ("", 4)]


def test_words_are_folded_and_scripts_without_spaces_are_cut_in_pairs() -> None:
    assert words_of("Don't STOP the naïve_café—9,5!") == [
        "don",
        "t",
        "stop",
        "the",
        "naive",
        "cafe",
        "9",
        "5",
    ]
    assert words_of("明日の会議x中y") == ["明日", "日の", "の会", "会議", "x", "中", "y"]
    assert words_of("") == []


def test_stems_join_forms_of_a_word_and_leave_function_words_out() -> None:
    assert stems_of("the configuring of networks") == stems_of("Configured network")
    assert stems_of("the of and") == []
    assert hash_stem("the") == 0
    assert len(stems_of("fetchUserName")) == 4
    assert commonness(hash_stem("time")) > 0.2 > commonness(hash_stem("xylophone"))


def test_a_reading_counts_stems_and_notes_questions_and_times() -> None:
    read = read_text("Boats and boats, a harbour", ["harbour", "the"])
    assert read.words == 5
    assert sorted(read.counts.tolist()) == [2, 2]
    assert (np.diff(read.stems.astype(np.int64)) > 0).all()
    assert len(read.to_bytes()) == 2 * (4 + 2)
    features = {
        "Where is it?": QUESTION,
        'He asked "why?"': QUESTION,
        "How so? [photo: a dog]": QUESTION,
        "Why? Because.": 0,
        "It was last week.": TIME_WORDS,
        "In 2019, was it?": TIME_WORDS | QUESTION,
    }
    assert {text: read_text(text).features for text in features} == features


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    read = read_text(text)
    assert len(read.stems) == len(read.counts) <= sum(map(int, read.counts))
    assert all(passages(text)) or not text.strip()


@given(st.lists(st.sampled_from(["word ", "end. ", "\n", "x" * 300, "ends! "]), max_size=400).map("".join))
def test_passages_hold_every_word_once_and_none_is_too_long(text: str) -> None:
    parts = passages(text)
    assert 1 <= len(parts) <= MAX_PASSAGES
    assert all(len(part) <= 1_000 for part in parts)
    if len(parts) < MAX_PASSAGES:
        assert "".join("".join(parts).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("query", "text", "speaker"),
    [
        ("What did Ann's sister buy?", "What did sister buy?", 0),
        ("what did ann miller buy", "what did buy", 0),
        ("Did Ann call Bob?", "Did call ?", None),
        ("Will it rain?", "Will it rain?", None),
        ("What does Will eat?", "What does eat?", 3),
        ("What did the assistant say about Annabel?", "What did the assistant say about Annabel?", None),
        ("Ann", "Ann", 0),
    ],
)
def test_known_names_are_taken_out_of_a_question(query: str, text: str, speaker: int | None) -> None:
    question = read_question(query, ANN_AND_BOB)
    assert (question.text, question.speaker) == (text, speaker)


def test_a_question_tells_what_it_names_and_when_it_asks_for() -> None:
    question = read_question('When did Mara fix QX-4711 in "the old harbour" on 3 May 2021?', [])
    assert question.asks_when
    assert question.dates == (NamedDate(year=2021, month=5, day=3),)
    assert set(question.names) == {
        hash_stem("mara"),
        hash_stem("qx"),
        hash_stem("4711"),
        *stems_of("3 2021"),
    } - {0}
    plain = read_question("May I ask about tea?", [])
    assert (plain.asks_when, plain.dates, plain.names) == (False, (), ())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("in July 2022", [NamedDate(year=2022, month=7)]),
        ("July 4th", [NamedDate(month=7, day=4)]),
        ("the 4th of July, 1999", [NamedDate(year=1999, month=7, day=4)]),
        ("2023-02-30", [NamedDate(year=2023, month=2, day=30)]),
        ("back in 2019", [NamedDate(year=2019)]),
        ("in May", []),
        ("May 2020", [NamedDate(year=2020, month=5)]),
    ],
)
def test_dates_are_found_in_a_question(words: str, expected: list[NamedDate]) -> None:
    assert list(read_question(f"What happened {words}?", []).dates) == expected


def test_how_well_a_day_fits_a_date() -> None:
    def fit(named: NamedDate, year: int, month: int, day: int) -> float:
        return date_closeness(named, date(year, month, day))

    fourth = NamedDate(year=2022, month=7, day=4)
    assert [fit(fourth, 2022, 7, day) for day in (1, 2, 3, 4, 5, 12, 13, 31)] == [
        0.4,
        0.4,
        1,
        1,
        1,
        0.8,
        0.4,
        0.4,
    ]
    assert [fit(fourth, 2022, month, 20) for month in (6, 8)] == [0.0, 0.0]
    assert fit(NamedDate(month=7, day=4), 2030, 7, 4) == 1
    assert fit(NamedDate(year=2023, month=2, day=30), 2023, 2, 28) == 0
    assert [
        fit(NamedDate(year=2022, month=7), *when) for when in ((2022, 7, 30), (2022, 8, 3), (2022, 8, 20))
    ] == [
        1.0,
        0.5,
        0.0,
    ]
    assert [fit(NamedDate(year=2022), year, 1, 1) for year in (2022, 2023)] == [1.0, 0.0]


def test_the_example_messages_are_of_both_kinds() -> None:
    helped = [helps for _, helps in examples()]
    assert (len(helped), sum(helped)) == (164, 80)
    assert all(text.strip() == text and text for text, _ in examples())
