"""Spoken dates are resolved by the conventions of docs/concepts/dates.md, and left unknown where they can't be."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.clock import ManualClock, in_zone_of
from satchel.errors import UsageError
from satchel.memory import Memory, resolve_dates
from satchel.memory.text.dates import named_days
from tests.requirements import requirement

SATURDAY = "2026-11-21T14:00:00+01:00"
WEDNESDAY = "2026-11-18T14:00:00+01:00"


def spans(text: str, said_at: str) -> list[tuple[str, str] | None]:
    """The ranges found, as ISO days; None where a mention stays unknown."""
    return [
        (found.start.isoformat(), found.end.isoformat()) if found.start and found.end else None
        for found in resolve_dates(text, said_at)
    ]


def one(first: str, last: str | None = None) -> list[tuple[str, str] | None]:
    """A single range."""
    return [(first, last or first)]


@pytest.mark.parametrize(
    ("text", "said_at", "expected"),
    [
        # Verbs that look the same in the past: none after an auxiliary.
        ("She will quit in June", WEDNESDAY, one("2027-06-01", "2027-06-30")),
        ("She quit in June", WEDNESDAY, one("2026-06-01", "2026-06-30")),
        ("I would have gone on Tuesday", WEDNESDAY, one("2026-11-17")),
        ("I've got an exam on Tuesday", WEDNESDAY, one("2026-11-24")),
        ("I got the news on Tuesday", WEDNESDAY, one("2026-11-17")),
        ("I haven't seen him since Tuesday", WEDNESDAY, one("2026-11-17")),
        ("We moved the meeting to Friday", WEDNESDAY, one("2026-11-20")),
        ("I bought tickets for Saturday", WEDNESDAY, one("2026-11-21")),
        ("The match was moved to Saturday", WEDNESDAY, one("2026-11-21")),
        ("The match had been moved to Friday", WEDNESDAY, [None]),
        ("The match was planned for Friday", WEDNESDAY, [None]),
        ("At the end of October I left", WEDNESDAY, [None]),
        # A weekday and a day with dots; nothing is guessed where they disagree.
        ("We meet Saturday 28.11. at ten", WEDNESDAY, one("2026-11-28")),
        ("We meet Sat 28.11.", WEDNESDAY, one("2026-11-28")),
        ("Wir treffen uns Sa 28.11. um 15 Uhr", WEDNESDAY, one("2026-11-28")),
        ("Wir treffen uns am Samstag, 28.11. um 15 Uhr", WEDNESDAY, one("2026-11-28")),
        ("We meet Friday 9.10. at the lake", WEDNESDAY, [None]),
        ("We meet Friday 9.10 at the lake", WEDNESDAY, [None]),
        # 1 and 2: calendar steps, nights
        ("I'm tired today", WEDNESDAY, one("2026-11-18")),
        ("See you tomorrow", "2026-11-18T01:00:00", one("2026-11-19")),
        ("I saw it the day before yesterday", WEDNESDAY, one("2026-11-16")),
        ("Let's meet the day after tomorrow", WEDNESDAY, one("2026-11-20")),
        ("Tonight we dance", WEDNESDAY, one("2026-11-18")),
        ("Tonight we dance", "2026-11-18T04:59:00", [None]),
        ("I slept badly last night", WEDNESDAY, one("2026-11-17", "2026-11-18")),
        ("I slept badly last night", "2026-11-18T00:30:00", [None]),
        ("The night before last was worse", WEDNESDAY, one("2026-11-16", "2026-11-17")),
        # 3: weeks and other calendar units
        ("I was ill last week", WEDNESDAY, one("2026-11-09", "2026-11-15")),
        ("We fly next week", "2026-11-22", one("2026-11-23", "2026-11-29")),
        ("This week is full", WEDNESDAY, one("2026-11-16", "2026-11-22")),
        ("We met last month", WEDNESDAY, one("2026-10-01", "2026-10-31")),
        ("We move next year", WEDNESDAY, one("2027-01-01", "2027-12-31")),
        ("It was the week before last", WEDNESDAY, one("2026-11-02", "2026-11-08")),
        # 4 to 6: weekdays
        ("I met her last Tuesday", WEDNESDAY, one("2026-11-17")),
        ("I met her last Wednesday", WEDNESDAY, one("2026-11-11")),
        ("We'll talk next Friday", WEDNESDAY, [None]),
        ("We'll talk next Tuesday", WEDNESDAY, one("2026-11-24")),
        ("We'll talk next Wednesday", WEDNESDAY, one("2026-11-25")),
        ("We will talk on Friday", WEDNESDAY, one("2026-11-20")),
        ("I met her on Friday", WEDNESDAY, one("2026-11-13")),
        ("I met her on Wednesday", WEDNESDAY, one("2026-11-11")),
        ("I'll meet her on Wednesday", WEDNESDAY, [None]),
        ("I'm free this Monday", WEDNESDAY, one("2026-11-16")),
        ("I met her the Friday before last", WEDNESDAY, one("2026-11-06")),
        ("We hiked the weekend before last", WEDNESDAY, one("2026-11-07", "2026-11-08")),
        ("We leave tomorrow week", WEDNESDAY, one("2026-11-26")),
        ("We leave Friday week", WEDNESDAY, one("2026-11-27")),
        ("The party is a week on Friday", WEDNESDAY, one("2026-11-27")),
        ("The party is two weeks from Friday", WEDNESDAY, one("2026-12-04")),
        ("Meet me on Tuesday next week", WEDNESDAY, one("2026-11-24")),
        # 7: weekends
        ("What are we doing this weekend", WEDNESDAY, one("2026-11-21", "2026-11-22")),
        ("We hiked last weekend", WEDNESDAY, one("2026-11-14", "2026-11-15")),
        ("We hike next weekend", WEDNESDAY, [None]),
        ("We hike next weekend", SATURDAY, one("2026-11-28", "2026-11-29")),
        # 8: counted
        ("I quit three days ago", WEDNESDAY, one("2026-11-15")),
        ("I started 2 weeks ago", WEDNESDAY, one("2026-11-04")),
        ("It happened a fortnight ago", WEDNESDAY, one("2026-11-04")),
        ("I fly in ten days", WEDNESDAY, one("2026-11-28")),
        ("It broke twenty-five days ago", WEDNESDAY, one("2026-10-24")),
        ("We met a month ago", "2026-03-31", one("2026-02-28")),
        ("It expires in one year", "2024-02-29", one("2025-02-28")),
        ("We married 5 years ago", WEDNESDAY, one("2021-11-18")),
        # 9: parts of months, what comes once a year
        ("We will move in early March", WEDNESDAY, one("2027-03-01", "2027-03-10")),
        ("We moved in mid-March", WEDNESDAY, one("2026-03-11", "2026-03-20")),
        ("They arrive late February 2028", WEDNESDAY, one("2028-02-21", "2028-02-29")),
        ("I was in Rome in May", WEDNESDAY, one("2026-05-01", "2026-05-31")),
        ("I will be in Rome in May", WEDNESDAY, one("2027-05-01", "2027-05-31")),
        ("We married in May last year", WEDNESDAY, one("2025-05-01", "2025-05-31")),
        ("Last year in May we married", WEDNESDAY, one("2025-05-01", "2025-05-31")),
        ("We marry on 3 May next year", WEDNESDAY, one("2027-05-03")),
        ("We skied at Christmas last year", WEDNESDAY, one("2025-12-24", "2025-12-26")),
        ("We will meet on the 3rd Thursday of January", WEDNESDAY, one("2027-01-21")),
        ("We grilled on the Fourth of July", WEDNESDAY, one("2026-07-04")),
        ("They will come on the twenty-first of May", WEDNESDAY, one("2027-05-21")),
        ("In May 2023 I was in Rome", WEDNESDAY, one("2023-05-01", "2023-05-31")),
        ("The rent is due on the 15th", WEDNESDAY, one("2026-12-15")),
        ("I paid on the 15th", WEDNESDAY, one("2026-11-15")),
        ("I will pay on the 31st", "2026-02-03", one("2026-03-31")),
        ("We will meet on the first Monday of May", WEDNESDAY, one("2027-05-03")),
        ("We met on the last Friday in October", WEDNESDAY, one("2026-10-30")),
        # 10: quarters, holidays, decades
        ("We shipped it in Q1", WEDNESDAY, one("2026-01-01", "2026-03-31")),
        ("It will ship in Q1 2028", WEDNESDAY, one("2028-01-01", "2028-03-31")),
        ("We will ski at Christmas", WEDNESDAY, one("2026-12-24", "2026-12-26")),
        ("We skied at Christmas", WEDNESDAY, one("2025-12-24", "2025-12-26")),
        ("She visited at Easter", WEDNESDAY, one("2026-04-05")),
        ("I bought it on Black Friday", WEDNESDAY, one("2025-11-28")),
        ("We fasted on Ash Wednesday", WEDNESDAY, one("2026-02-18")),
        ("I lived there between 2019 and 2021", WEDNESDAY, one("2019-01-01", "2021-12-31")),
        ("I lived there in 2019-2021", WEDNESDAY, one("2019-01-01", "2021-12-31")),
        ("I have been ill since 2026-11-16", WEDNESDAY, one("2026-11-16")),
        (
            "I was ill until 16.11.2026 and before 2026/11/02",
            WEDNESDAY,
            one("2026-11-16") + one("2026-11-02"),
        ),
        ("I moved in the year 2019", WEDNESDAY, one("2019-01-01", "2019-12-31")),
        ("I was born in the nineties", WEDNESDAY, one("1990-01-01", "1999-12-31")),
        ("She lived there in the 80s", WEDNESDAY, one("1980-01-01", "1989-12-31")),
        # 11: digits
        ("It was on 05/06/2023", WEDNESDAY, [None]),
        ("It was on 25/06/2023", WEDNESDAY, one("2023-06-25")),
        ("It was on 06/25/2023", WEDNESDAY, one("2023-06-25")),
        ("It was on 25-06-2023", WEDNESDAY, one("2023-06-25")),
        ("Call 030-12-2023", WEDNESDAY, []),
        ("It was on 7/7/2023", WEDNESDAY, one("2023-07-07")),
        ("It was on 2023-06-05", WEDNESDAY, one("2023-06-05")),
        ("It was on 2023/06/05", WEDNESDAY, one("2023-06-05")),
        ("It was on May 7, 2023", WEDNESDAY, one("2023-05-07")),
        ("It was on the 7th of May 2023", WEDNESDAY, one("2023-05-07")),
        ("The fair is from May 3-5, 2027", WEDNESDAY, one("2027-05-03", "2027-05-05")),
        ("My flight leaves on December 3rd", WEDNESDAY, one("2026-12-03")),
        # 12: vague
        ("I'll do it soon", WEDNESDAY, [None]),
        ("I saw him the other day", WEDNESDAY, [None]),
        ("We met about three weeks ago", WEDNESDAY, [None]),
        ("We met over a year ago", WEDNESDAY, [None]),
        ("We will move in about two months", WEDNESDAY, [None]),
        ("The last week of June was hot", WEDNESDAY, [None]),
        ("It was a few weeks ago", WEDNESDAY, [None]),
        ("We will party on my birthday", WEDNESDAY, [None]),
        ("I swim every Sunday", WEDNESDAY, [None]),
        ("I swim on Sundays", WEDNESDAY, [None]),
        ("I'll travel when I retire", WEDNESDAY, [None]),
        # never guessed
        ("It may rain, and they march on", WEDNESDAY, []),
        ("Nothing here", WEDNESDAY, []),
        ("It was on 31 April 2023", WEDNESDAY, [None]),
        ("It was on Monday, May 9, 2023", WEDNESDAY, [None]),
        ("It was two years ago", "0001-06-01", [None]),
        ("It will be in ten years", "9995-06-01", [None]),
    ],
)
def test_a_spoken_date_means_what_the_conventions_say(
    text: str, said_at: str, expected: list[tuple[str, str] | None]
) -> None:
    assert spans(text, said_at) == expected


def test_each_clause_has_its_own_tense() -> None:
    assert spans("We met on Friday, but I'll call her on Monday.", WEDNESDAY) == [
        ("2026-11-13", "2026-11-13"),
        ("2026-11-23", "2026-11-23"),
    ]


def test_a_mention_tells_its_words_and_its_place() -> None:
    (found,) = resolve_dates("So, last Tuesday it rained.", datetime(2026, 11, 18, 9, tzinfo=UTC))
    assert (found.text, found.offset, found.start, found.end) == (
        "last Tuesday",
        4,
        date(2026, 11, 17),
        date(2026, 11, 17),
    )


def test_marks_without_a_letter_are_no_date() -> None:
    """Without its accents and vowel signs, such a word is empty."""
    assert spans("क्वागा का कोड ४७११ है", SATURDAY) == []
    assert spans("رَمْزُ خِزَانَةِ الكُوَاجَا هُوَ ٤٧١١", SATURDAY) == []


def test_what_is_no_date_is_refused() -> None:
    with pytest.raises(UsageError, match="'someday' is no date"):
        resolve_dates("today", "someday")


@given(
    st.dates(min_value=date(1800, 1, 1), max_value=date(2190, 1, 1)),
    st.sampled_from(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]),
)
def test_last_and_coming_weekdays_lie_within_a_week_and_on_that_day(day: date, weekday: str) -> None:
    (last,) = resolve_dates(f"I saw it last {weekday}", day)
    (coming,) = resolve_dates(f"I will see it this coming {weekday}", day)
    assert last.start
    assert coming.start
    assert timedelta(days=1) <= day - last.start <= timedelta(days=7)
    assert timedelta(days=1) <= coming.start - day <= timedelta(days=7)
    assert last.start.weekday() == coming.start.weekday()


@given(st.text(max_size=300), st.dates())
def test_any_text_on_any_day_gives_ordered_mentions_that_stand_in_the_text(text: str, day: date) -> None:
    found = resolve_dates(text + " today and 3 weeks ago, in May", day)
    reached = 0
    for mention in found:
        assert mention.offset >= reached
        reached = mention.offset + len(mention.text)
        assert (text + " today and 3 weeks ago, in May")[mention.offset : reached] == mention.text
        assert (mention.start is None) == (mention.end is None)
        assert mention.start is None or mention.end is None or mention.start <= mention.end


TABLE = [
    [field.strip() for field in line.split("|")]
    for line in (Path(__file__).parent / "data" / "dates.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
"""Phrases in five languages: language, moment and locale, text, and what it means."""
MOMENTS = {"wed": WEDNESDAY, "sat": SATURDAY}


def meaning(text: str, said_at: str, locale: str = "") -> str:
    """What a phrase means, as the table writes it."""
    found = resolve_dates(text, said_at, locale=locale)
    days = [f"{f.start} .. {f.end}" if f.start != f.end else f"{f.start or 'unknown'}" for f in found]
    return ", ".join(days) or "none"


@requirement("memory:dates:verbs", "memory:dates:languages", "memory:dates:parts", "memory:dates:ranges")
@pytest.mark.parametrize(("language", "moment", "text", "expected"), TABLE, ids=[row[2] for row in TABLE])
def test_a_phrase_of_the_table_means_what_it_says(
    language: str, moment: str, text: str, expected: str
) -> None:
    at, _, locale = moment.partition("@")
    assert meaning(text, MOMENTS.get(at.strip(), at.strip()), locale) == expected, language


LOOKALIKES = [
    [field.strip() for field in line.split("|", 1)]
    for line in (Path(__file__).parent / "data" / "not_dates.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
"""Language and locale, and a text that has no date that could be known."""


@requirement("memory:dates:unsure")
@pytest.mark.parametrize("language", ["en", "de", "es", "fr", "zh"])
def test_what_only_looks_like_a_date_is_never_read_as_one(language: str) -> None:
    of_language = [row for row in LOOKALIKES if row[0].partition("@")[0].strip() == language]
    assert len(of_language) > 90
    read = {
        text: [
            found.text for found in resolve_dates(text, WEDNESDAY, locale=of.partition("@")[2]) if found.start
        ]
        for of, text in of_language
    }
    assert {text: found for text, found in read.items() if found} == {}


def known(text: str, locale: str = "") -> list[str]:
    """The words of the dates whose days are known."""
    return [found.text for found in resolve_dates(text, WEDNESDAY, locale=locale) if found.start]


@requirement("memory:dates:unsure")
@given(
    st.sampled_from(TABLE),
    st.sampled_from(
        [
            'He wrote: "{}"',
            "Sie sagte: „{}“",
            "Ella dijo: «{}»",
            "Elle a dit : « {} »",
            "他说：“{}”",
            "《{}》",
        ]
    ),
)
def test_of_words_in_quotation_marks_only_full_dates_are_known(row: list[str], quoted: str) -> None:
    _, _, text, _ = row
    assert [found for found in known(quoted.format(text)) if not re.search(r"\d{4}", found)] == []


@requirement("memory:dates:unsure")
@given(
    st.sampled_from(
        [
            "Monday",
            "Friday",
            "Sunday",
            "Christmas",
            "Easter",
            "Halloween",
            "May",
            "October",
            "summer",
            "winter",
        ]
    ),
    st.sampled_from(["the", "a", "my", "her", "our", "that", "every", "another", "Anna's"]),
    st.sampled_from(
        ["party", "dress", "flight", "menu", "sale", "edition", "blues", "market", "lecture", "schedule"]
    ),
    st.sampled_from(["I missed", "We liked", "They will cancel", "She paid for"]),
)
def test_a_date_that_describes_a_thing_is_not_known(date: str, owner: str, thing: str, start: str) -> None:
    assert known(f"{start} {owner} {date} {thing}.") == []
    assert known(f"{start} {owner} {date} {thing} because it was cheap.") == []


@requirement("memory:dates:unsure")
@given(
    st.sampled_from(
        [
            ("We walked in {} {}.", ["steps", "meters", "heavy boots", "feet of snow"]),
            ("It was found after {} {}.", ["tries", "miles", "euros", "pages"]),
            ("Das steht in {} {}.", ["Meter Höhe", "Büchern", "Zeilen"]),
            ("Er sprach vor {} {}.", ["Leuten", "Gästen"]),
            ("Está en {} {}.", ["metros de altura", "libros", "páginas"]),
            ("C'est écrit en {} {}.", ["mots", "lignes", "exemplaires"]),
        ]
    ),
    st.integers(1500, 2199),
    st.data(),
)
def test_a_number_with_its_unit_is_no_year(
    case: tuple[str, list[str]], number: int, data: st.DataObject
) -> None:
    text, units = case
    assert known(text.format(number, data.draw(st.sampled_from(units)))) == []


@requirement("memory:dates:unsure")
@given(
    st.sampled_from(
        [
            (
                "It broke {} twenty days ago.",
                ["a hundred and", "one hundred", "a thousand and", "2,5", "three hundred and"],
            ),
            ("Il est parti il y a {} vingt jours.", ["cent", "deux cents", "mille"]),
            ("Pasó hace {} veinte días.", ["ciento", "doscientos", "mil"]),
            ("{}二十天前我来过。", ["一百", "三千", "一万", "几", "好几"]),
            ("Das war vor {} zwanzig Tagen.", ["hundert", "tausend", "zweihundert"]),
        ]
    ),
    st.data(),
)
def test_the_end_of_a_greater_number_is_not_counted(case: tuple[str, list[str]], data: st.DataObject) -> None:
    text, numbers = case
    assert known(text.format(data.draw(st.sampled_from(numbers)))) == []


@requirement("memory:dates:unsure")
@given(
    st.sampled_from(["2019 ", "of 2019 ", "in 2019 "]),
    st.sampled_from(
        ["yesterday", "on Friday", "last week", "next month", "three days ago", "in the first half of May"]
    ),
)
def test_a_year_that_a_phrase_does_not_take_in_leaves_it_unknown(year: str, date: str) -> None:
    assert [found for found in known(f"We met {date} {year}in Rome.") if "2019" not in found] == []


@requirement("memory:dates:order")
def test_digits_are_read_in_the_order_of_the_language_or_of_the_user_s_country() -> None:
    assert meaning("The exam is on 5/2.", WEDNESDAY) == "unknown"
    assert meaning("The exam is on 5/2.", WEDNESDAY, "en_GB.UTF-8") == "2027-02-05"
    assert meaning("The exam is on 5/2.", WEDNESDAY, "en-US") == "2027-05-02"
    assert meaning("Die Prüfung ist am 5.2.", WEDNESDAY) == "2027-02-05"
    assert meaning("El examen es el 5/2.", WEDNESDAY, "es_US") == "unknown"  # language and country disagree


@requirement("memory:dates:birthday")
def test_a_birthday_without_a_year_is_unknown_and_one_with_a_year_is_that_day() -> None:
    assert meaning("Her birthday is May 5th.", WEDNESDAY) == "unknown"
    assert meaning("She was born on May 5th, 1990.", WEDNESDAY) == "1990-05-05"
    assert meaning("Her birthday was yesterday.", WEDNESDAY) == "2026-11-17"


@given(st.sampled_from(TABLE), st.sampled_from([str.lower, str.upper, str.title, str.swapcase]))
def test_capitals_change_nothing(row: list[str], change: Callable[[str], str]) -> None:
    language, moment, text, expected = row
    at, _, locale = moment.partition("@")
    changed = change(text)
    # "ß" has no capital of its own, and after "31.12. " a capital begins the next sentence.
    if len(changed) == len(text) and not re.search(r"\d\. [a-z]", text):
        assert meaning(changed, MOMENTS.get(at.strip(), at.strip()), locale) == expected, language


@given(st.sampled_from(TABLE), st.sampled_from([" ", "  ", "\t", "\n", " \n ", "\u00a0", "\u2003 "]))
def test_white_space_changes_nothing(row: list[str], space: str) -> None:
    language, moment, text, expected = row
    at, _, locale = moment.partition("@")
    changed = space + space.join(text.split(" ")) + space
    assert meaning(changed, MOMENTS.get(at.strip(), at.strip()), locale) == expected, language


WORDS = [
    "in",
    "on",
    "the",
    "of",
    "from",
    "to",
    "last",
    "next",
    "this",
    "first",
    "second",
    "half",
    "day",
    "days",
    "before",
    "after",
    "between",
    "until",
    "may",
    "march",
    "5",
    "5/2",
    "2026",
    "12",
    "monday",
    "week",
    "weeks",
    "year",
    "ago",
    "two",
    "am",
    "bis",
    "vom",
    "ersten",
    "nächsten",
    "hace",
    "de",
    "la",
    "semana",
    "que",
    "viene",
    "il",
    "y",
    "a",
    "dans",
    "trois",
    "jours",
    "le",
    "du",
    "au",
    "月",
    "日",
    "年",
    "前",
    "后",
    "下周",
    "三",
    "的",
    "到",
    "every",
    "birthday",
    ",",
    ".",
    "-",
    "/",
]


@given(
    st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join),
    st.dates(),
    st.sampled_from(["", "en_US", "de_AT"]),
)
def test_any_row_of_date_words_gives_ranges_that_begin_before_they_end(
    text: str, day: date, locale: str
) -> None:
    reached = 0
    for found in resolve_dates(text, day, locale=locale):
        assert found.offset >= reached
        reached = found.offset + len(found.text)
        assert text[found.offset : reached] == found.text
        assert (found.start is None) == (found.end is None)
        assert found.start is None or found.end is None or found.start <= found.end


@requirement("memory:dates:linear")
@pytest.mark.parametrize(
    "unit",
    [
        "1",
        "in ",
        "in in on ",
        "day before ",
        "first half of ",
        "May 5 to ",
        "5/5/",
        "on Friday, ",
        "月",
        "昨天",
        "ge ",
        "bin ",
    ],
)
def test_a_hostile_text_takes_linear_time(unit: str) -> None:
    def cost(size: int) -> float:
        text = unit * (size // len(unit))
        started = time.process_time()
        resolve_dates(text, WEDNESDAY)
        return time.process_time() - started

    resolve_dates("on Friday", WEDNESDAY)  # reads the grammars
    small = min(cost(2_000) for _ in range(3))
    # Sixteen times the text, at most 100 times the time, for the noise of a loaded machine; quadratic would be 256 times.
    assert any(cost(32_000) <= 100 * small + 0.1 for _ in range(3))


@requirement("memory:dates:linear")
def test_of_thousands_of_dates_the_last_are_found_and_left_unknown() -> None:
    found = resolve_dates("I saw her yesterday. " * 6_000, WEDNESDAY)
    assert len(found) == 6_000
    assert found[0].start == date(2026, 11, 17)
    assert found[-1].start is None


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in Berlin, as a rule that needs no database of zones."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@requirement("memory:dates:offset")
@pytest.mark.anyio
@pytest.mark.usefixtures("berlin")
async def test_a_naive_time_has_the_offset_of_its_own_day(tmp_path: Path) -> None:
    november = ManualClock(at=datetime(2026, 11, 18, 14, tzinfo=timezone(timedelta(hours=1))))
    async with Memory.open(tmp_path / "m.db", embedder="none", clock=november) as memory:
        summer = await memory.get(await memory.add("It was hot", said_at="2026-07-01T12:00"))
        winter = await memory.get(await memory.add("It was cold", said_at="2026-01-02T12:00"))
        abroad = await memory.get(await memory.add("It was far", said_at="2026-07-01T12:00+09:00"))
    assert summer.said_at.isoformat() == "2026-07-01T12:00:00+02:00"
    assert winter.said_at.isoformat() == "2026-01-02T12:00:00+01:00"
    assert abroad.said_at.isoformat() == "2026-07-01T12:00:00+09:00"


@pytest.mark.usefixtures("berlin")
def test_a_zone_is_taken_from_an_offset_only_where_they_agree() -> None:
    noon = datetime(2026, 7, 1, 12)  # noqa: DTZ001
    berlin = datetime(2026, 11, 18, tzinfo=timezone(timedelta(hours=1)))
    assert in_zone_of(berlin, noon).utcoffset() == timedelta(hours=2)
    tokyo = datetime(2026, 11, 18, tzinfo=timezone(timedelta(hours=9)))
    assert in_zone_of(tokyo, noon).utcoffset() == timedelta(hours=9)
    assert in_zone_of(berlin, noon.replace(year=1800)).utcoffset() == timedelta(hours=1)


@pytest.mark.parametrize(
    "text", ["Zahnarzt 8. August?", "8. August", "18. November 2026", "Termine 3. April"]
)
def test_a_day_that_german_writes_with_a_dot_is_a_day_also_without_another_word_of_german(text: str) -> None:
    ((first, last, _),) = named_days(text, datetime(2026, 11, 30, 9, tzinfo=UTC))
    assert first == last
    assert first.day == int(re.findall(r"\d+", text)[0])


def test_a_month_that_begins_a_sentence_after_a_number_is_no_day_of_it() -> None:
    found = named_days("The score was 8. August was hot.", datetime(2026, 11, 30, 9, tzinfo=UTC))
    assert all(first.day != 8 or first != last for first, last, _ in found)
