"""The kind of time that a fact has: which days it means, when it is in the agenda, and how it is over by itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory, strip_injected
from satchel.memory.text.dates import resolve_dates
from satchel.models import ScriptedModel
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.every_database]

TUESDAY = datetime(2026, 3, 3, 18, tzinfo=UTC)


@dataclass(kw_only=True)
class Life:
    """A store, its clock, and the conversations so far."""

    memory: Memory
    clock: ManualClock
    conversations: int = 0

    async def says(self, text: str, *facts: dict[str, Any], at: datetime) -> list[str]:
        """Say something in a conversation of its own, which a model reads at once. Gives the ids of its facts."""
        self.clock.at = at
        self.conversations += 1
        await self.memory.add_episodes(
            [Episode(session=f"s{self.conversations}", turn=1, speaker="user", text=text, said_at=at)]
        )
        model = ScriptedModel(lambda _: json.dumps({"facts": list(facts)}))
        return list((await self.memory.distill(model=model)).facts)

    async def agenda(self, day: date, *, hour: int = 8) -> list[tuple[str, str]]:
        """What the agenda says on a day, as days and words."""
        self.clock.at = datetime(day.year, day.month, day.day, hour, tzinfo=UTC)
        lines = (await self.memory.agenda(budget_tokens=400)).memories
        return [(line.days, "; ".join([line.words, *(words for _, words in line.more)])) for line in lines]


def fact(content: str, quote: str, time: str, **more: Any) -> dict[str, Any]:
    return {"content": content, "quote": quote, "importance": 3, "time": time, **more}


@asynccontextmanager
async def opened() -> AsyncIterator[Life]:
    clock = ManualClock(at=TUESDAY)
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        yield Life(memory=memory, clock=clock)


LOCK = "Lock 27 closed for gate repair 16 to 20 March, boats wait at the upper pontoon."


@requirement("memory:time:days")
@pytest.mark.parametrize(
    ("said", "found", "at", "content", "first", "last"),
    [
        pytest.param(
            LOCK,
            fact(
                "Lock 27 will be closed 16 to 20 March.",
                "Lock 27 closed for gate repair 16 to 20 March",
                "period",
                when="16 to 20 March",
            ),
            TUESDAY,
            "Lock 27 will be closed 16 to 20 March.",
            "2026-03-16",
            "2026-03-20",
            id="a range ahead is not last year's",
        ),
        pytest.param(
            "Für unseren 25. Hochzeitstag am 2. Juni schenke ich Linh eine Reise.",
            fact(
                "Der Benutzer schenkt Linh zum 25. Hochzeitstag am 2. Juni eine Reise.",
                "25. Hochzeitstag am 2. Juni",
                "event",
                when="am 2. Juni",
            ),
            TUESDAY,
            "Der Benutzer schenkt Linh zum 25. Hochzeitstag am 2. Juni eine Reise.",
            "2026-06-02",
            "2026-06-02",
            id="the number of an anniversary is no day",
        ),
        pytest.param(
            "Low fat for four weeks, says the doctor.",
            fact(
                "Linh eats low fat for four weeks.",
                "Low fat for four weeks",
                "period",
                until="for four weeks",
            ),
            datetime(2026, 3, 13, 14, tzinfo=UTC),
            "Linh eats low fat for four weeks (2026-03-13 to 2026-04-10).",
            "2026-03-13",
            "2026-04-10",
            id="a length has an end",
        ),
        pytest.param(
            "She stays till Monday.",
            fact(
                "Linh stays in the clinic till Monday.",
                "She stays till Monday",
                "period",
                until="till Monday",
            ),
            datetime(2026, 3, 13, 14, tzinfo=UTC),
            "Linh stays in the clinic till Monday (2026-03-16).",
            "2026-03-13",
            "2026-03-16",
            id="until a weekday",
        ),
        pytest.param(
            "The same people as on the 15th come for Easter Sunday lunch.",
            fact(
                "The same people as on the 15th come for Easter Sunday lunch.",
                "come for Easter Sunday lunch",
                "event",
                when="Easter Sunday",
            ),
            datetime(2026, 3, 22, 9, tzinfo=UTC),
            "The same people as on the 15th come for Easter Sunday (2026-04-05) lunch.",
            "2026-04-05",
            "2026-04-05",
            id="a day that something is compared with is not computed",
        ),
        pytest.param(
            "I told Matthieu two more weeks.",
            fact(
                "The accordion for Matthieu is due in two more weeks.",
                "I told Matthieu two more weeks",
                "deadline",
                until="two more weeks",
            ),
            datetime(2026, 3, 17, 21, tzinfo=UTC),
            "The accordion for Matthieu is due in two more weeks (2026-03-31).",
            "2026-03-31",
            "2026-03-31",
            id="a deadline after a length",
        ),
        pytest.param(
            "Résiliation jusqu'au 20 mars par lettre recommandée.",
            fact(
                "Le contrat se résilie jusqu'au 20 mars.",
                "Résiliation jusqu'au 20 mars",
                "deadline",
                when="jusqu'au 20 mars",
            ),
            TUESDAY,
            "Le contrat se résilie jusqu'au 20 mars.",
            "2026-03-20",
            "2026-03-20",
            id="French",
        ),
        pytest.param(
            "低脂饮食四个星期。",
            fact("用户低脂饮食四个星期。", "低脂饮食四个星期", "period", until="四个星期"),
            TUESDAY,
            "用户低脂饮食四个星期 (2026-03-03 to 2026-03-31)。",
            "2026-03-03",
            "2026-03-31",
            id="Chinese",
        ),
        pytest.param(
            "The lock was closed 16 to 20 March.",
            fact(
                "Lock 27 was closed 16 to 20 March.", "closed 16 to 20 March", "past", when="16 to 20 March"
            ),
            TUESDAY,
            "Lock 27 was closed 16 to 20 March.",
            "2025-03-16",
            "2025-03-20",
            id="what was over is last year's",
        ),
        pytest.param(
            "The party is some time in spring, nobody knows when.",
            fact(
                "The party is some time in spring.",
                "The party is some time in spring",
                "event",
                when="next Sunday",
            ),
            TUESDAY,
            "The party is some time in spring.",
            None,
            None,
            id="words that nobody said mean no day",
        ),
    ],
)
async def test_a_model_says_what_kind_of_time_a_fact_has_and_the_program_computes_the_days(
    said: str, found: dict[str, Any], at: datetime, content: str, first: str | None, last: str | None
) -> None:
    async with opened() as life:
        (id,) = await life.says(said, found, at=at)
        record = await life.memory.get(id)
        assert record.content == content
        assert record.time is not None
        assert record.time.kind == found["time"]
        days = (record.time.first, record.time.last)
        assert tuple(day and day.isoformat() for day in days) == (first, last)


@requirement("memory:time:ranges")
@pytest.mark.parametrize(
    "sentence",
    [
        "The lock will be closed from {} to {} March.",
        "The lock is going to be repaired {} to {} March.",
        "It must be done {} to {} March.",
        "Die Schleuse wird vom {}. bis {}. März geschlossen.",
        "La esclusa estará cerrada del {} al {} de marzo.",
        "L'écluse sera fermée du {} au {} mars.",
        "船闸将于3月{}日至{}日关闭。",
    ],
)
@pytest.mark.parametrize("said", [date(2026, 1, 2), date(2026, 3, 3), date(2026, 3, 15), date(2026, 11, 30)])
def test_a_range_in_a_sentence_about_the_future_never_goes_backwards(sentence: str, said: date) -> None:
    (found,) = resolve_dates(sentence.format(16, 20), said)
    year = said.year + (said > date(said.year, 3, 16))
    assert (found.start, found.end) == (date(year, 3, 16), date(year, 3, 20))


@requirement("memory:time:over")
async def test_what_is_over_leaves_by_itself_and_is_told_as_past_when_it_is_asked_for() -> None:
    async with opened() as life:
        operation, fasting = await life.says(
            "The clinic called: Friday the 13th now, 7:30, nothing to eat from midnight.",
            fact(
                "Linh's gallbladder operation is on Friday the 13th at 7:30.",
                "Friday the 13th now, 7:30",
                "event",
                when="Friday the 13th",
            ),
            fact(
                "Linh may eat nothing from midnight before her gallbladder operation.",
                "nothing to eat from midnight",
                "event",
                when="Friday the 13th",
            ),
            at=datetime(2026, 3, 9, 19, tzinfo=UTC),
        )
        asked = "What about Linh's gallbladder operation?"

        async def surfaced(question: str = asked) -> set[str]:
            found = await life.memory.surface(question, threshold=0.0, exclude_session=None)
            return {hit.memory.id for hit in found.memories}

        assert await surfaced() == {operation, fasting}
        # Both are about one thing on one day.
        ((day, words),) = await life.agenda(date(2026, 3, 10))
        assert day == "Fri 2026-03-13"
        assert "7:30" in words
        assert "nothing from midnight" in words
        assert len(await life.agenda(date(2026, 3, 13), hour=6)) == 1
        assert await life.agenda(date(2026, 3, 14)) == []
        assert await surfaced() == set()
        assert (await life.memory.profile()).memories == ()
        hits = await life.memory.search("gallbladder operation", kind="fact")
        assert {hit.memory.id: hit.is_over for hit in hits} == {operation: True, fasting: True}
        past = await life.memory.surface("When was Linh's gallbladder operation?", threshold=0.0)
        assert operation in {hit.memory.id for hit in past.memories}
        assert ", over: " in past.text
        assert strip_injected(f"{past.text}\nHello") == "Hello"


@requirement("memory:agenda:kinds")
async def test_the_agenda_holds_deadlines_rounds_and_ends_until_they_are_done_or_over() -> None:
    async with opened() as life:
        (deadline,) = await life.says(
            "The insurance must be cancelled by 20 March.",
            fact(
                "The user wants to cancel the insurance by 20 March.",
                "cancelled by 20 March",
                "deadline",
                when="by 20 March",
                importance=5,
            ),
            at=TUESDAY,
        )
        await life.says(
            "We rehearse Tuesdays 19:30 in the barn.",
            fact(
                "The quartet rehearses Tuesdays at 19:30 in the barn.",
                "We rehearse Tuesdays 19:30",
                "recurrence",
                when="Tuesdays",
                every=["tuesday"],
            ),
            fact("The rent is due each month.", "We rehearse Tuesdays 19:30", "recurrence", every=["month"]),
            at=TUESDAY + timedelta(minutes=5),
        )
        await life.says(
            "Low fat for four weeks.",
            fact(
                "Linh eats low fat for four weeks.",
                "Low fat for four weeks",
                "period",
                until="for four weeks",
            ),
            at=TUESDAY + timedelta(minutes=9),
        )
        rehearsal = "The quartet rehearses Tuesdays at 19:30 in the barn."
        assert await life.agenda(date(2026, 3, 12)) == [("Tue 2026-03-17", rehearsal)]
        assert await life.agenda(date(2026, 3, 13)) == [
            ("Tue 2026-03-17", rehearsal),
            ("by Fri 2026-03-20", "The user wants to cancel the insurance by 20 March."),
        ]
        assert [day for day, _ in await life.agenda(date(2026, 3, 24))] == [
            "Tue 2026-03-24",
            "until Tue 2026-03-31",
        ]
        assert [day for day, _ in await life.agenda(date(2026, 4, 1))] == ["Tue 2026-04-07"]
        # Done before its day.
        life.clock.at = datetime(2026, 3, 18, 8, tzinfo=UTC)
        done = await life.memory.add("The user sent the cancellation.")
        await life.memory.supersede(deadline, done)
        assert [day for day, _ in await life.agenda(date(2026, 3, 18))] == ["Tue 2026-03-24"]
        hits = await life.memory.search("cancel the insurance", kind="fact")
        assert deadline not in {hit.memory.id for hit in hits}


@requirement("memory:agenda:room")
async def test_where_there_is_no_room_importance_decides_and_a_deadline_that_must_not_be_missed_stays() -> (
    None
):
    async with opened() as life:
        for number, place in enumerate(
            ("harbour", "museum", "library", "market", "garden", "stadium", "castle")
        ):
            await life.says(
                f"On 5 March there is something at the {place}.",
                fact(
                    f"The user visits the {place} on 5 March.",
                    f"something at the {place}",
                    "event",
                    when="5 March",
                    importance=2,
                ),
                at=TUESDAY + timedelta(minutes=number),
            )
        await life.says(
            "The insurance must be cancelled by 9 March, and Uta's birthday dinner is on 8 March.",
            fact(
                "The insurance must be cancelled by 9 March.",
                "cancelled by 9 March",
                "deadline",
                when="by 9 March",
                importance=5,
            ),
            fact(
                "Uta's birthday dinner is on 8 March.",
                "Uta's birthday dinner is on 8 March",
                "event",
                when="on 8 March",
                importance=4,
            ),
            at=TUESDAY + timedelta(hours=1),
        )
        found = await life.memory.agenda(budget_tokens=100)
        assert [line.days for line in found.memories][-2:] == ["Sun 2026-03-08", "by Mon 2026-03-09"]
        assert {why for _, why in found.left_out} == {"no room left"}
        tiny = await life.memory.agenda(budget_tokens=10)
        assert [line.days for line in tiny.memories] == ["by Mon 2026-03-09"]
        # Nor is what the user stored by hand: no model has said of what kind its day is.
        await life.memory.add("The tax return goes off on 7 March 2026.", importance=5)
        tiny = await life.memory.agenda(budget_tokens=10)
        assert [line.days for line in tiny.memories] == ["Sat 2026-03-07", "by Mon 2026-03-09"]
        life.clock.at = datetime(2026, 3, 5, 7, tzinfo=UTC)
        today = await life.memory.agenda(budget_tokens=10)
        assert {line.days for line in today.memories} == {
            "Thu 2026-03-05",
            "Sat 2026-03-07",
            "by Mon 2026-03-09",
        }


@requirement("memory:agenda:room")
async def test_what_is_long_makes_room_and_what_is_near_comes_before_what_is_far() -> None:
    async with opened() as life:
        await life.says(
            "No diving from 9 March for three weeks after my ear is done on 9 March. Ballet Wednesdays at 17.",
            fact(
                "The user may not dive, fly or swim under water from 9 March for three weeks after the ear operation, "
                "which the clinic in Split moved from February.",
                "No diving from 9 March for three weeks",
                "period",
                when="from 9 March",
                until="for three weeks",
                importance=4,
            ),
            fact(
                "Ear operation on 9 March at 7:30 in Firule.",
                "my ear is done on 9 March",
                "event",
                when="9 March",
                importance=4,
            ),
            fact(
                "The user takes Iva to ballet on Wednesdays at 17:00; keep it in mind when planning anything.",
                "Ballet Wednesdays at 17",
                "recurrence",
                when="Wednesdays",
                every=["wednesday"],
                importance=3,
            ),
            at=TUESDAY,
        )
        found = await life.memory.agenda(budget_tokens=100)
        assert [line.days.split(" to ")[0] for line in found.memories] == ["Wed 2026-03-04", "Mon 2026-03-09"]
        assert "ballet on Wednesdays" in found.text
        assert found.tokens <= 100
        # A fact that says what was moved calls off no other fact.
        assert "7:30 in Firule" in (await life.memory.agenda(budget_tokens=400)).text
        assert not any(line.whole_ids for line in found.memories if "…" in line.text)


@requirement("memory:agenda:read-by-a-model")
async def test_the_days_of_a_turn_count_only_until_a_model_has_read_it() -> None:
    async with opened() as life:
        life.clock.at = TUESDAY
        await life.memory.add_episodes(
            [
                Episode(
                    session="s0",
                    turn=1,
                    speaker="user",
                    text="I'll be at the dentist on Thursday at ten.",
                    said_at=TUESDAY,
                )
            ]
        )
        assert [day for day, _ in await life.agenda(TUESDAY.date())] == ["Thu 2026-03-05"]
        life.clock.at = TUESDAY
        await life.memory.distill(model=ScriptedModel(lambda _: '{"facts": []}'))
        assert await life.agenda(TUESDAY.date()) == []


@requirement("memory:time:moves")
async def test_the_time_of_a_fact_moves_with_an_export_and_goes_with_the_words_that_an_edit_takes(
    tmp_path: Path,
) -> None:
    async with opened() as life:
        (id,) = await life.says(
            "Low fat for four weeks.",
            fact(
                "Linh eats low fat for four weeks.",
                "Low fat for four weeks",
                "period",
                until="for four weeks",
            ),
            at=TUESDAY,
        )
        before = await life.memory.get(id)
        assert before.time is not None
        await life.memory.export_to(tmp_path / "all.jsonl")
        async with opened() as other:
            await other.memory.import_from(tmp_path / "all.jsonl")
            assert (await other.memory.get(id)).time == before.time
            assert [day for day, _ in await other.agenda(date(2026, 3, 28))] == ["until Tue 2026-03-31"]
        change = await life.memory.edit(id, content="Linh eats low fat.")
        after = await life.memory.get(id)
        assert (after.time, after.valid_to) == (None, None)
        assert change is not None
        await life.memory.undo(change)
        assert (await life.memory.get(id)).time == before.time
        assert [day for day, _ in await life.agenda(date(2026, 3, 28))] == ["until Tue 2026-03-31"]


@requirement("memory:time:days")
async def test_what_comes_round_on_the_31st_is_on_the_last_day_of_a_shorter_month() -> None:
    async with opened() as life:
        rent = "The rent is due on 31 March and on the 31st of each month after it."
        await life.says(
            rent,
            fact(rent, "The rent is due on 31 March", "recurrence", when="31 March", every=["month"]),
            at=TUESDAY,
        )
        days = [date(2026, 3, 31), date(2026, 4, 30), date(2026, 5, 31), date(2027, 2, 28), date(2028, 2, 29)]
        for day in days:
            assert [line[0] for line in await life.agenda(day)] == [f"{day:%a %Y-%m-%d}"]
        assert await life.agenda(date(2026, 4, 1)) == []
        # Seven days ahead, once.
        assert [line[0] for line in await life.agenda(date(2026, 4, 28))] == ["Thu 2026-04-30"]


@requirement("memory:time:moves")
async def test_a_slip_corrected_in_what_was_replaced_does_not_let_it_hold_again() -> None:
    async with opened() as life:
        (old,) = await life.says(
            "My dentist is on Friday.",
            fact(
                "The user sees the dentist on Friday.", "My dentist is on Friday", "event", when="on Friday"
            ),
            at=TUESDAY,
        )
        new = await life.memory.add("The user sees the dentist on 12 March 2026.", said_at=TUESDAY)
        await life.memory.supersede(old, new)
        before = (await life.memory.get(old)).valid_to
        await life.memory.edit(old, content="The user sees Dr. Wulff, the dentist, on Friday.")
        assert before is not None
        assert (await life.memory.get(old)).valid_to == before
