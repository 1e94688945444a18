"""The days that a model reads in words are held to the words; what they contradict is computed, or stays unknown."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.memory.distill.days import fits, said_in
from satchel.models import ModelRequest, ScriptedModel
from tests.requirements import requirement

ZONE = timezone(timedelta(hours=1))


async def stored(
    said_on: str, text: str, content: str, kind: str, when: str, *days: str, until: str = ""
) -> tuple[str, str, str]:
    """What becomes of the days that a model reads: the first, the last, and the fact's words."""
    at = datetime.combine(date.fromisoformat(said_on), time(9), ZONE)
    first, last = (*days, "", "")[:2]
    fact = {
        "content": content, "quote": text, "time": kind, "when": when, "until": until, "first": first, "last": last,
    }  # fmt: skip
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(at=at), back_fill=False) as memory:
        await memory.add_episodes([Episode(session="s", turn=1, speaker="user", text=text, said_at=at)])
        report = await memory.distill(model=ScriptedModel(lambda _: json.dumps({"facts": [fact], "off": []})))
        (id,) = report.facts
        record = await memory.get(id)
    assert record.time is not None
    return str(record.time.first or ""), str(record.time.last or ""), record.content


@requirement("memory:time:read")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("said_on", "text", "kind", "when", "until", "days", "found"),
    [
        ("2026-03-02", "choir on Saturday 28.3. in the hall", "event", "Saturday 28.3.", "", ["2026-03-28"], None),
        ("2026-03-02", "am 14. April kommt der Monteur", "event", "am 14. April", "", ["2026-04-14"], None),
        ("2026-01-19", "el lunes 26 entra el albañil", "event", "el lunes 26", "", ["2026-01-26"], None),
        ("2026-01-13", "el sábado 14 de febrero es el examen", "event", "el sábado 14 de febrero", "",
         ["2026-02-14"], None),
        ("2026-05-12", "Bornholm, thu 4 - sun 7 june", "event", "thu 4 - sun 7 june", "",
         ["2026-06-04", "2026-06-07"], None),
        ("2026-05-08", "on call mon 11 08:00 to mon 18 08:00", "period", "mon 11 08:00", "mon 18 08:00",
         ["2026-05-11", "2026-05-18"], None),
        ("2026-01-28", "lo ingresa así desde febrero", "period", "desde febrero", "", ["2026-02-01"],
         ("2026-02-01", "")),
        # What is only a distance from today is computed, whatever the model says.
        ("2026-05-12", "my flight is tomorrow", "event", "tomorrow", "", ["2026-05-15"], ("2026-05-13", "2026-05-13")),
        # Lengths are computed from the day that was read.
        ("2026-03-02", "low fat from Thursday 12 March for two weeks", "period", "Thursday 12 March", "two weeks",
         ["2026-03-12", "2026-03-20"], ("2026-03-12", "2026-03-26")),
        ("2026-01-24", "la semana q viene otra vez de madrugada", "period", "la semana q viene", "",
         ["2026-01-26", "2026-02-01"], None),
        ("2026-05-05", "zero biegania do poniedziałku 1 czerwca", "period", "", "do poniedziałku 1 czerwca",
         ["2026-05-05", "2026-06-01"], None),
        # In place of the words, a day that was said; none that wasn't.
        ("2026-09-19", "grandpa is 80 on saturday 24 october", "event", "2026-10-24", "", ["2026-10-24"], None),
        ("2026-09-19", "the jury sits on 2 october", "deadline", "", "2026-10-02", [], ("2026-10-02", "2026-10-02")),
        ("2026-09-19", "the jury sits on 2 october", "event", "2026-10-09", "", [], ("", "")),
        # A day that the words contradict is none: another weekday, another number, another month, too far away.
        ("2026-01-19", "el lunes 26 entra el albañil", "event", "el lunes 26", "", ["2026-01-27"], ("", "")),
        ("2026-01-19", "el lunes 26 entra el albañil", "event", "el lunes 26", "", ["2026-10-26"], ("", "")),
        ("2026-05-07", "the talk is on 31 May", "event", "31 May", "", ["2026-06-30"], ("2026-05-31", "2026-05-31")),
    ],
)  # fmt: skip
async def test_days_that_agree_with_the_words_are_taken_and_others_are_not(
    said_on: str,
    text: str,
    kind: str,
    when: str,
    until: str,
    days: list[str],
    found: tuple[str, str] | None,
) -> None:
    first, last, content = await stored(said_on, text, text, kind, when, *days, until=until)
    assert (first, last) == (found or (days[0], days[-1]))
    assert content.startswith(text[:5])


@requirement("memory:time:read")
@pytest.mark.anyio
async def test_a_note_may_name_its_days_as_dates_and_none_that_nobody_said() -> None:
    text = "on call mon 11 to sun 17, Magda takes 16-17 and I take 23-24"
    note = "User: on call Mon 2026-05-11 to Sun 2026-05-17; Magda has 2026-05-16; User has 2026-05-23"
    assert (await stored("2026-05-08", text, note, "lasting", ""))[2] == note
    today = "User decided on 2026-05-08 to take the swap"
    assert (await stored("2026-05-08", text, today, "lasting", ""))[2] == today
    exam = "Pia: has her driving test in July 2026"
    assert (await stored("2026-05-08", "pia has driving test in july", exam, "lasting", ""))[2] == exam
    invited = "Meeting Sat 2026-04-18, invitations by Sat 2026-04-04"
    said = "the meeting moves to Saturday 18 April, write the invitations two weeks before"
    assert (await stored("2026-03-17", said, invited, "lasting", ""))[2] == invited
    ten = "Eli: 10 on Sat 2026-06-06, six lads for tea"
    assert (await stored("2026-05-31", "elis 10 on sat, six lads for tea", ten, "lasting", ""))[2] == ten
    # A time behind it makes a date no surer.
    wrong = "User: away from Fri 2026-05-29 7.30"
    assert (await stored("2026-05-08", text, wrong, "lasting", ""))[2] == "User: away from Fri … 7.30"
    with pytest.raises(ValueError, match="not enough values"):
        await stored(
            "2026-05-08", "pia has driving test in july", exam.replace("July", "August"), "lasting", ""
        )
    away = "User: away on 2026-05-29"
    assert (await stored("2026-05-08", text, away, "lasting", ""))[2] == "User: away on …"


@requirement("memory:time:days")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("said_on", "content", "kind", "when", "until", "days", "found"),
    [
        ("2026-03-04", "gesperrt vom 2. bis 8. April", "period", "2.", "bis 8. April", ["2026-04-02", "2026-04-08"],
         "gesperrt vom 2. bis 8. April"),
        ("2026-03-04", "no wine for Lent", "period", "", "Lent", ["2026-03-04", "2026-04-04"], "no wine for Lent"),
        ("2026-03-06", "il a fait 6 mois il y a 3 ans", "lasting", "", "", [], "il a fait 6 mois il y a 3 ans"),
        ("2026-06-17", "drops for four weeks from Wed 2026-06-17", "period", "today", "four weeks", ["2026-06-17"],
         "drops for four weeks from Wed 2026-06-17"),
        ("2026-01-20", "control mañana miércoles a las 8:15", "event", "mañana miércoles", "", [],
         "control mañana miércoles (2026-01-21) a las 8:15"),
        ("2026-05-06", "Ewa bakes on Sunday", "event", "on Sunday", "", [], "Ewa bakes on Sunday (2026-05-10)"),
    ],
)  # fmt: skip
async def test_a_day_is_added_once_and_only_to_words_that_mean_another_one_later(
    said_on: str, content: str, kind: str, when: str, until: str, days: list[str], found: str
) -> None:
    said = f"{content}, from today" if when == "today" else content
    assert (await stored(said_on, said, content, kind, when, *days, until=until))[2] == found


WEEKDAYS = {
    "en": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    "de": ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"],
    "es": ["lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo"],
    "fr": ["lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"],
}


@requirement("memory:time:read")
@given(
    st.dates(date(2024, 1, 1), date(2030, 12, 31)),
    st.integers(-20, 45),
    st.sampled_from(sorted(WEEKDAYS)),
    st.integers(-400, 400),
)
def test_a_day_never_contradicts_the_weekday_or_the_number_that_was_said(
    said_on: date, distance: int, language: str, slip: int
) -> None:
    meant = said_on + timedelta(days=distance)
    said = said_in(f"{WEEKDAYS[language][meant.weekday()]} {meant.day}, 20:30")
    assert fits(said, meant, meant, said_on)
    read = meant + timedelta(days=slip)
    if fits(said, read, read, said_on):
        assert (read.weekday(), read.day) == (meant.weekday(), meant.day)


@requirement("memory:distill:again")
@pytest.mark.anyio
async def test_a_note_that_is_refused_is_asked_for_once_more_with_the_reason() -> None:
    at = datetime(2026, 3, 17, 19, tzinfo=ZONE)
    text = "the meeting moves to Saturday 18 April, write the invitations two weeks before"
    asked: list[str] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request.messages[0].text)
        due = "" if len(asked) > 1 else ", invitations by Sat 2026-04-11"
        note = {
            "content": f"Meeting Sat 2026-04-18{due}", "quote": "the meeting moves to Saturday 18 April",
            "time": "event", "when": "Saturday 18 April", "first": "2026-04-18",
        }  # fmt: skip
        other = {
            "content": "User writes the invitations",
            "quote": "write the invitations",
            "section": "running",
        }
        return json.dumps({"facts": [other, note] if len(asked) == 1 else [note], "off": []})

    async with Memory.open(":memory:", embedder="none", clock=ManualClock(at=at), back_fill=False) as memory:
        await memory.add_episodes([Episode(session="s", turn=1, speaker="user", text=text, said_at=at)])
        report = await memory.distill(model=ScriptedModel(answer))
        assert len(asked) == 2
        assert "it names a day that nobody said" in asked[1]
        assert "User writes the invitations" not in asked[1].partition("refused them.")[2]
        found = sorted([(await memory.get(id)).content for id in report.facts])
        assert found == ["Meeting Sat 2026-04-18", "User writes the invitations"]
        assert report.windows[0].dropped == ()


@requirement("memory:time:days")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "when", "content", "found"),
    [
        ("dentist tomorow at 9", "tomorrow", "The user sees the dentist on 2026-05-13 at 9.", "2026-05-13"),
        ("Zahnarzt am Donerstag um 9", "am Donnerstag", "User: Zahnarzt am 2026-05-14.", "2026-05-14"),
        ("la dentista mañna a las 9", "mañana", "User: dentista el 2026-05-13.", "2026-05-13"),
        # Another word is no slip of the pen.
        ("dentist next Thursday at 9", "next tuesday", "The user sees the dentist on 2026-05-19.", ""),
        ("dentist next thusday at 9", "next tuesday", "The user sees the dentist on 2026-05-19.", ""),
        ("dentist on the 14th at 9", "on the 24th", "The user sees the dentist on 2026-05-24.", ""),
    ],
)
async def test_a_day_that_was_misspelt_is_the_day_that_was_meant(
    text: str, when: str, content: str, found: str
) -> None:
    at = datetime(2026, 5, 12, 9, tzinfo=ZONE)
    fact = {"content": content, "quote": text, "time": "event", "when": when, "importance": 3}
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(at=at), back_fill=False) as memory:
        await memory.add_episodes([Episode(session="s", turn=1, speaker="user", text=text, said_at=at)])
        report = await memory.distill(model=ScriptedModel(lambda _: json.dumps({"facts": [fact], "off": []})))
        (stored,) = [await memory.get(id) for id in report.facts]
    assert stored.time is not None
    assert str(stored.time.first) == (found or "None")
    assert ("…" in stored.content) == (not found)
