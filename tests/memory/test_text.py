from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.memory.find.question import NamedDays, closeness, is_widespread, possible_names, read_question
from satchel.memory.find.relevance import examples
from satchel.memory.text.lexicon import QUESTION, commonness, hash_stem, read_text, stems_of, words_of
from satchel.memory.text.passages import MAX_PASSAGES, passages
from tests.requirements import requirement

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


def test_a_reading_counts_stems_and_notes_questions() -> None:
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
        "In 2019, was it?": QUESTION,
    }
    assert {text: read_text(text).features for text in features} == features


@requirement("memory:search:compounds")
def test_a_reading_knows_the_parts_of_long_words_unless_it_is_english() -> None:
    def part_counts(text: str, *words: str) -> list[int | None]:
        read = read_text(text)
        counts = dict(zip(read.stems.tolist(), read.counts.tolist(), strict=True))
        return [counts.get(hash_stem(word)) for word in words]

    assert part_counts("Das sind Leihgeräte", "gerat", "leihgerate", "eihgerate", "rate") == [
        0,
        1,
        None,
        None,
    ]
    assert part_counts("Leihgeräte sind Geräte", "gerate") == [1]
    # Neither a function word nor what is left of one letter or two.
    assert part_counts("Das sind die Unterlagen", "unter", "unterlag") == [None, None]
    assert part_counts("The lighthouses are old", "light", "houses", "lighthouse") == [None, None, 1]
    assert len(read_text("Das ist " + "x" * 41).stems) == len(read_text("Das ist Tee").stems)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    read = read_text(text)
    assert len(read.stems) == len(read.counts) == len(set(read.stems.tolist()))
    assert np.count_nonzero(read.counts) <= sum(map(int, read.counts))
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
        ("What did the assistant say about Annabel?", "What did say about Annabel?", None),
        ("Ann", "Ann", 0),
    ],
)
def test_known_names_are_taken_out_of_a_question(query: str, text: str, speaker: int | None) -> None:
    question = read_question(query, ANN_AND_BOB)
    assert (question.text, question.speaker) == (text, speaker)


NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)  # A Monday.


def days(first: str, last: str = "", *, yearly: bool = False) -> NamedDays:
    return NamedDays(date.fromisoformat(first), date.fromisoformat(last or first), yearly)


def test_a_question_tells_what_it_names_and_asks_a_day_of() -> None:
    question = read_question(
        'When did Mara fix QX-4711 in "the old harbour" on 3 May 2021?', [], asked_at=NOW
    )
    assert question.days == (days("2021-05-03"),)
    assert set(question.names) == {
        hash_stem("mara"),
        hash_stem("qx"),
        hash_stem("4711"),
        *stems_of("3 2021"),
    } - {0}
    plain = read_question("May I ask about tea?", [], asked_at=NOW)
    assert (plain.days, plain.names) == ((), ())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("What happened in July 2022?", [("2022-07-01", "2022-07-31")]),
        ("the 4th of July, 1999", [("1999-07-04",)]),
        ("2023-02-30", []),
        ("back in 2019", [("2019-01-01", "2019-12-31")]),
        ("What did I say yesterday?", [("2026-11-22",)]),
        ("Was habe ich letzte Woche erzählt?", [("2026-11-16", "2026-11-22")]),
        ("我昨天说了什么？", [("2026-11-22",)]),
        ("What did we talk about at Easter?", [("2026-04-05",)]),
        ("On Friday", [("2026-11-20",)]),
        ("What is on tomorrow?", []),
    ],
)
@requirement("memory:search:days")
def test_the_days_of_a_question_are_found_in_any_language_of_the_calendar(
    words: str, expected: list[tuple[str, ...]]
) -> None:
    assert list(read_question(words, [], asked_at=NOW).days) == [days(*span) for span in expected]


@pytest.mark.parametrize("words", ["on July 4th", "在7月4日这天我做了什么？", "Was war am 4. Juli?"])
def test_a_day_without_a_year_is_that_day_of_every_year(words: str) -> None:
    (named,) = read_question(words, [], asked_at=NOW).days
    assert named.yearly
    said = np.array([day(year, 7, 4) for year in (2019, 2023, 2026)])
    assert named.contain(said).all()
    assert not named.contain(said + 1).any()


def day(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()


@requirement("memory:search:days")
def test_the_day_itself_outranks_its_neighbours() -> None:
    def fit(named: NamedDays, *said: int) -> list[float]:
        return [round(float(found), 1) for found in closeness([named], np.array(said))]

    fourth = day(2022, 7, 4)
    around = [fourth + late for late in (-4, -3, -1, 0, 1, 2, 8, 9, 30, 31)]
    assert fit(days("2022-07-04"), *around) == [0, 0.2, 0.5, 1, 0.5, 0.4, 0.4, 0.2, 0.2, 0]
    assert fit(days("2022-07-01", "2022-07-31"), day(2022, 6, 30), day(2022, 7, 30), day(2022, 8, 3)) == [
        0,
        1,
        0.5,
    ]
    assert fit(days("2022-01-01", "2022-12-31"), day(2022, 1, 1), day(2023, 1, 1)) == [1, 0]
    assert fit(days("2020-02-29", yearly=True), day(2024, 2, 29), day(2023, 2, 27)) == [1, 0]


def test_no_language_of_the_calendar_has_a_word_for_a_day_that_is_not_looked_for() -> None:
    for words in (
        "gestern",
        "ayer",
        "avant-hier",
        "昨天",
        "last week",
        "im Mai",
        "le 3 mai",
        "25/12/2021",
        "este mes",
    ):
        assert read_question(f"{words} ?", [], asked_at=NOW).days, words


@requirement("memory:search:roles")
@pytest.mark.parametrize(
    ("query", "text", "side"),
    [
        ("What is the user's favourite tea?", "What is favourite tea?", "user"),
        ("What did the assistant recommend?", "What did recommend?", "assistant"),
        ("What does the user think of what the assistant said?", "What does think of what said?", "anybody"),
        ("How do we name the table of user accounts?", "How do we name the table of user accounts?", "user"),
        ("the user", "the user", "user"),
        ("Which films did you recommend?", "Which films did you recommend?", "anybody"),
        ("你曾经给我推荐过哪些画家？", "你曾经给我推荐过哪些画家？", "anybody"),
        ("Can you book a table?", "Can you book a table?", "user"),
    ],
)
def test_a_side_of_a_conversation_is_named_like_a_person(query: str, text: str, side: str) -> None:
    question = read_question(query, [("user", 1), ("assistant", 2)])
    assert (question.text, question.side) == (text, side)
    assert read_question(query, [("Ann", 1), ("user", 2)]).text == query


def test_a_name_that_is_everywhere_is_not_embedded() -> None:
    query = "When did Caroline's sister paint in Lisbon? Caroline knows."
    assert {hash_stem("carolin"), hash_stem("lisbon")} <= possible_names(query) | {hash_stem("carolin")}
    question = read_question(query, [], widespread=[*stems_of("Caroline")])
    assert (question.text, question.side) == ("When did sister paint in Lisbon? knows.", "anybody")
    assert set(stems_of("Caroline")) <= set(question.stems)
    assert [is_widespread(having, 20) for having in (1, 2)] == [False, True]
    assert not is_widespread(9, 9)


def test_the_example_messages_are_of_both_kinds() -> None:
    helped = [helps for _, helps in examples()]
    assert (len(helped), sum(helped)) == (164, 80)
    assert all(text.strip() == text and text for text, _ in examples())
