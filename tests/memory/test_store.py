from __future__ import annotations

import io
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from satchel.clock import ManualClock
from satchel.errors import UsageError
from satchel.memory import Episode, Memory, MemoryRecord, Source, record_to_json
from satchel.memory.store.tables import metadata
from satchel.models.embedding import HashingEmbedder
from satchel.storage import Database
from tests.memory.embedders import Broken, Counting, Down, Topical
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))


def said(turn: int, text: str, *, speaker: str = "Ann", session: str = "s1") -> Episode:
    return Episode(session=session, turn=turn, speaker=speaker, text=text, said_at=NOON)


@requirement("memory:alone", "python:memory", "memory:add", "memory:get")
async def test_what_is_added_comes_back_with_everything_that_was_said_about_it(tmp_path: Path) -> None:
    clock = ManualClock(at=NOON)
    async with Memory.open(tmp_path / "m.db", embedder="none", clock=clock) as memory:
        id = await memory.add(
            "User is allergic to shellfish",
            tags=["health", " food ", "health", ""],
            tier="long_term",
            memory_type="preference",
            importance=5,
            speaker="Ann",
            said_at=datetime(2020, 5, 6, 7, 8, 9, 123456),  # noqa: DTZ001 - read on the clock's offset
            valid_from=datetime(2020, 1, 1, tzinfo=UTC),
            session="s9",
            turn=4,
            quote="I can't eat shrimp",
        )
        expected = MemoryRecord(
            id=id,
            content="User is allergic to shellfish",
            kind="fact",
            tier="long_term",
            memory_type="preference",
            importance=5,
            priority=0.85,
            decay_rate=0.005,
            tags=("health", "food"),
            speaker="Ann",
            said_at=datetime(2020, 5, 6, 7, 8, 9, 123456, tzinfo=NOON.tzinfo),
            valid_from=datetime(2020, 1, 1, tzinfo=UTC),
            valid_to=None,
            source=Source(session="s9", turn=4, position=None, quote="I can't eat shrimp"),
            trust="user",
            created_at=NOON.astimezone(UTC),
            last_accessed=None,
            access_count=0,
            scope="default",
            user="default",
        )
        assert await memory.get(id) == expected
    async with Memory.open(tmp_path / "m.db", embedder="none", clock=clock) as memory:
        assert await memory.get(id) == expected
        assert await memory.list() == (expected,)
    value = record_to_json(expected)
    assert value["source"] == {"session": "s9", "turn": 4, "position": None, "quote": "I can't eat shrimp"}
    assert value["said_at"] == "2020-05-06T07:08:09.123456+02:00"


@requirement("memory:episodes:verbatim", "memory:episodes:idempotent")
async def test_episodes_are_kept_word_for_word_and_storing_them_again_changes_nothing() -> None:
    text = '  "Grüße", said Ann:\n\n\t1 < 2 🎉  '
    episodes = [said(1, text), said(1, "Noted.", speaker="assistant"), said(2, "And then?")]
    async with Memory.open(":memory:", embedder="none") as memory:
        ids = await memory.add_episodes(episodes)
        before = await memory.list()
        assert await memory.add_episodes(episodes) == ids
        other = replace(said(1, "other words at the same place"), position=0)
        assert await memory.add_episodes([other]) == ids[:1]
        assert await memory.list() == before
        assert len(set(ids)) == 3
        first = await memory.get(ids[0])
        assert (first.content, first.kind, first.speaker, first.said_at) == (text, "episode", "Ann", NOON)
        assert [(await memory.get(id)).source for id in ids] == [
            Source(session="s1", turn=1, position=0),
            Source(session="s1", turn=1, position=1),
            Source(session="s1", turn=2, position=0),
        ]


@requirement("memory:episodes:idempotent")
async def test_a_question_and_its_answer_stored_one_after_the_other_are_both_kept() -> None:
    asked, answered = said(1, "Which one?"), said(1, "The red one.", speaker="assistant")
    async with Memory.open(":memory:", embedder="none") as memory:
        (first,) = await memory.add_episodes([asked])
        # Nothing is lost in silence: the place that is counted has other words.
        with pytest.raises(UsageError, match=r"Turn 1 of session 's1' has other words .* its position"):
            await memory.add_episodes([answered])
        (second,) = await memory.add_episodes([replace(answered, position=1)])
        # A repeat is nothing new, alone or together.
        assert await memory.add_episodes([asked, answered]) == (first, second)
        assert [(await memory.get(id)).source.position for id in (first, second)] == [0, 1]
        # What was edited is not brought back by its old words, nor what was forgotten by its own.
        await memory.edit(first, content="Which colour?")
        assert await memory.add_episodes([asked]) == (first,)
        await memory.forget(second)
        assert await memory.add_episodes([asked, answered]) == (first,)
        assert [record.content for record in await memory.list()] == ["Which colour?"]


async def test_an_episodes_id_says_where_it_is_from_and_nothing_else() -> None:
    async def ids(user: str, scope: str, episode: Episode) -> tuple[str, ...]:
        async with Memory.open(":memory:", embedder="none", user=user, scope=scope) as memory:
            return await memory.add_episodes([episode])

    first = await ids("ann", "work", said(1, "x"))
    assert await ids("ann", "work", said(1, "y")) == first
    others = {
        *await ids("bob", "work", said(1, "x")),
        *await ids("ann", "home", said(1, "x")),
        *await ids("ann", "work", said(2, "x")),
        *await ids("ann", "work", said(1, "x", session="s2")),
    }
    assert len(others) == 4
    assert not others & set(first)


@requirement("memory:list")
async def test_list_filters_by_everything_and_gives_what_was_said_last_first() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        for day in range(1, 6):
            await memory.add(
                f"day {day}",
                said_at=datetime(2026, 1, day, 12, tzinfo=UTC),
                tags=["odd"] if day % 2 else ["even", "all"],
                tier="short_term" if day == 1 else "long_term",
                speaker="Ann" if day < 3 else "Bob",
                memory_type="decision" if day == 4 else "general",
                session=f"s{day}",
            )

        async def days(**wanted: Any) -> list[str]:
            return [memory.content[4:] for memory in await memory_.list(**wanted)]

        memory_ = memory
        assert await days() == ["5", "4", "3", "2", "1"]
        assert await days(limit=2, offset=1) == ["4", "3"]
        assert await days(tags=["odd"]) == ["5", "3", "1"]
        assert await days(tags=["even", "all"]) == ["4", "2"]
        assert await days(tags=["even", "odd"]) == []
        assert await days(tier="short_term") == ["1"]
        assert await days(memory_type="decision") == ["4"]
        assert await days(speaker="Bob", since=datetime(2026, 1, 4, tzinfo=UTC)) == ["5", "4"]
        assert await days(until=datetime(2026, 1, 2, tzinfo=UTC)) == ["1"]
        assert await days(session="s3", kind="fact") == ["3"]
        assert await days(kind="episode") == []
        assert await memory.count(tags=["odd"]) == 3


@requirement("memory:stats")
async def test_stats_count_what_is_there() -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        ids = await memory.add_episodes([said(1, "one"), said(1, "two", session="s2"), said(2, "three")])
        await memory.add("four", memory_type="fact")
        await memory.forget(ids[2])
        await memory.search("one")
        stats = await memory.stats()
    assert (stats.memories, stats.sessions, stats.forgotten, stats.embedded) == (3, 2, 1, 3)
    assert stats.by_kind == {"episode": 2, "fact": 1}
    assert stats.by_tier == {"long_term": 1, "short_term": 2}
    assert stats.by_type == {"conversation": 2, "fact": 1}
    assert stats.embedder == "hashing-512/1"
    assert stats.oldest == NOON


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"content": " \n "}, "no words"),
        ({"content": ""}, "no words"),
        ({"content": "x" * 16_000_001}, "at most 16,000,000 characters"),
        ({"content": "x", "importance": 6}, "from 1 .* to 5"),
        ({"content": "x", "importance": True}, "whole number"),
        ({"content": "x", "priority": 1.5}, "from 0 to 1"),
        ({"content": "x", "priority": math.nan}, "from 0 to 1"),
        ({"content": "x", "decay_rate": -1}, "from 0 to 1"),
        ({"content": "x", "tier": "eternal"}, "no tier 'eternal'"),
        ({"content": "x", "kind": "dream"}, "no kind 'dream'"),
        ({"content": "x", "memory_type": "?"}, "no memory type"),
        ({"content": "x", "trust": "blind"}, "no trust"),
        ({"content": "x", "session": ""}, "session is empty"),
        ({"content": "x", "turn": 2**70}, "whole number"),
    ],
)
async def test_what_is_out_of_range_is_refused_with_a_sentence(given: dict[str, object], words: str) -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        with pytest.raises(UsageError, match=words):
            await memory.add(**given)  # type: ignore[arg-type]
        assert await memory.count() == 0


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone(timedelta(hours=-12))),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
async def test_dates_at_the_ends_of_the_calendar_survive_exactly(moment: datetime) -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        id = await memory.add("a date", said_at=moment)
        assert (await memory.get(id)).said_at == moment
        assert (await memory.get(id)).said_at.utcoffset() == moment.utcoffset()
        assert [hit.memory.id for hit in await memory.search("a date in May 2020")] == [id]


async def test_an_episode_without_words_is_left_out_and_a_malformed_one_stores_nothing() -> None:
    malformed = Episode(session="s", turn="D1:3", speaker="", text="x")  # type: ignore[arg-type]
    async with Memory.open(":memory:", embedder="none") as memory:
        ids = await memory.add_episodes([said(1, "  "), said(2, "words")])
        assert ids == ((await memory.list())[0].id,)
        with pytest.raises(UsageError, match="turn"):
            await memory.add_episodes([said(3, "good"), malformed])
        assert await memory.count() == 1
        assert await memory.add_episodes([]) == ()


async def test_an_error_in_the_callers_code_leaves_the_store_as_itself() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with Memory.open(":memory:", embedder="none"):
            raise KeyError("mine")


@requirement("memory:search:hybrid", "memory:search:by-meaning")
async def test_both_arms_find_what_the_other_cannot() -> None:
    async with Memory.open(":memory:", embedder=Topical()) as memory:
        await memory.add_episodes(
            [
                said(1, "The router upstairs needs new firmware.", session="a"),
                said(1, "Ticket QX-4711 was closed on Friday.", session="b"),
                said(1, "Lunch was fine.", session="c"),
                said(1, "The weather stays cold.", session="d"),
            ]
        )
        by_meaning = await memory.search("WiFi problem")
        by_words = await memory.search("what about QX-4711")
        assert by_meaning[0].memory.content == "The router upstairs needs new firmware."
        assert by_words[0].memory.content == "Ticket QX-4711 was closed on Friday."
        assert await memory.search("WiFi problem", mode="lexical") == ()


@requirement("memory:search:explains")
async def test_every_hit_says_what_its_score_is_made_of() -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        await memory.add_episodes(
            [said(1, "Where shall we eat?"), said(2, "At the harbour, on Monday.", speaker="Bob")]
        )
        hits = await memory.search("When does Bob want to eat at the harbour?")
    best = hits[0]
    assert best.memory.content == "At the harbour, on Monday."
    assert set(best.signals) == {
        *("words", "meaning", "dense", "session", "echo", "speaker"),
        *("times_importance", "times_recency", "times_priority"),
    }
    times = math.prod(value or 0 for name, value in best.signals.items() if name.startswith("times_"))
    parts = {name: value or 0 for name, value in best.signals.items() if not name.startswith("times_")}
    assert 0 < parts.pop("dense") < 1  # The plain cosine, of which `meaning` is made.
    assert sum(parts.values()) * times == pytest.approx(best.score, abs=1e-5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(0 <= hit.score <= 1.1**3 for hit in hits)


@requirement("memory:search:hostile-query")
@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "\x00",
        "\ud800",
        '"',
        "NEAR(a b) AND * OR ^col:x",
        "%",
        "the of and",
        "🎉",
        "a" * 3_000_000,
        "x y " * 500_000,
    ],
)
async def test_any_text_is_a_query(query: str) -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        await memory.add("something about a harbour")
        with anyio.fail_after(120):
            assert len(await memory.search(query)) in (0, 1)


async def test_a_search_must_make_sense() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        assert await memory.search("anything") == ()
        with pytest.raises(UsageError, match="hybrid, lexical, semantic"):
            await memory.search("x", mode="psychic")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="1 or more"):
            await memory.search("x", limit=0)


async def test_a_search_gives_no_more_than_asked_and_everything_when_asked() -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        await memory.add_episodes([said(turn, f"the boat number {turn}") for turn in range(1, 301)])
        assert len(await memory.search("boat", limit=7)) == 7
        assert len({hit.memory.id for hit in await memory.search("boat", limit=1000)}) == 300


async def test_words_are_found_in_other_forms_scripts_and_spellings() -> None:
    pairs = {
        "We are configuring networks": "network configuration",
        "Der Käse ist müde": "kase MUDE",
        "会議は明日の午後です": "明日の会議",
        "def getUserName(self): ...": "user name",
        "Версия собрана вчера": "версия",
        "naïve café": "naive cafe",
    }
    async with Memory.open(":memory:", embedder="none") as memory:
        for text in pairs:
            await memory.add(text)
        for text, query in pairs.items():
            assert [hit.memory.content for hit in await memory.search(query)] == [text]


@requirement("memory:writes:no-embedder")
async def test_writing_needs_no_embedder_and_a_search_embeds_what_is_missing_once() -> None:
    embedder = Counting()
    async with Memory.open(":memory:", embedder=embedder, back_fill=False) as memory:
        await memory.add_episodes([said(1, "one boat"), said(2, "two boats")])
        assert embedder.documents == []
        assert (await memory.stats()).embedded == 0
        await memory.search("boat")
        await memory.search("boat")
        assert sorted(embedder.documents) == ["one boat", "two boats"]
        await memory.add("three boats")
        await memory.search("boat")
        assert embedder.documents[2:] == ["three boats"]
        assert (await memory.stats()).embedded == 3
        assert not embedder.closed
    assert not embedder.closed


async def test_an_empty_store_and_words_alone_never_wake_the_embedder() -> None:
    embedder = Counting()
    async with Memory.open(":memory:", embedder=embedder) as memory:
        await memory.search("boat")
        await memory.surface("boat")
        await memory.add("a boat")
        assert (await memory.search("boat", mode="lexical"))[0].signals["dense"] is None
    assert (embedder.documents, embedder.queries) == ([], [])


async def test_long_memories_are_embedded_in_passages_and_the_best_one_counts() -> None:
    embedder = Counting()
    filler = "The committee met again and spoke about the usual matters at length. " * 60
    async with Memory.open(":memory:", embedder=embedder, back_fill=False) as memory:
        long = await memory.add(filler + "Then the lighthouse keeper sang. " + filler)
        await memory.add("A different thing.")
        hits = await memory.search("lighthouse keeper sang", mode="semantic", threshold=0.0)
        assert hits[0].memory.id == long
    assert len(embedder.documents) == 21
    assert max(len(text.split()) for text in embedder.documents) <= 104


@requirement("memory:search:lexical-alone", "memory:resilient")
async def test_when_the_embedder_is_down_words_serve_and_the_user_is_told_until_it_is_back() -> None:
    embedder, clock = Down(), ManualClock()
    async with Memory.open(":memory:", embedder=embedder, clock=clock, back_fill=False) as memory:
        await memory.add("the boat is blue")
        hits = await memory.search("boat")
        assert [hit.memory.content for hit in hits] == ["the boat is blue"]
        assert hits[0].signals["dense"] is None
        assert memory.degraded == ("Search uses only words: The embedding service does not answer. Start it.")
        assert (await memory.surface("is the boat blue?")).memories
        embedder.up = True
        clock.advance(31)
        hits = await memory.search("boat")
        assert hits[0].signals["dense"] is not None
        assert memory.degraded is None


@pytest.mark.parametrize(
    "answer",
    [
        np.full((1, 512), np.nan, np.float32),
        np.zeros((0, 512), np.float32),
        np.zeros((2, 512), np.float32),
        np.zeros(512, np.float32),
        np.zeros((1, 0), np.float32),
    ],
)
async def test_an_embedder_that_answers_nonsense_is_not_used(answer: np.ndarray) -> None:
    async with Memory.open(":memory:", embedder=Broken(answer), back_fill=False) as memory:
        await memory.add("the boat is blue")
        assert [hit.signals["dense"] for hit in await memory.search("boat")] == [None]
        assert "did not return one vector" in (memory.degraded or "")
        assert (await memory.stats()).embedded == 0


@requirement("memory:embedder:never-mixed")
async def test_another_embedder_gets_vectors_of_its_own_and_says_so(tmp_path: Path) -> None:
    first, second = Counting("first"), Down("second")
    async with Memory.open(tmp_path / "m.db", embedder=first, back_fill=False) as memory:
        await memory.add("the boat is blue")
        await memory.search("boat")
        assert memory.degraded is None
    clock = ManualClock()
    async with Memory.open(tmp_path / "m.db", embedder=second, clock=clock, back_fill=False) as memory:
        assert [hit.signals["dense"] for hit in await memory.search("boat")] == [None]
        second.up = True
        clock.advance(31)
        assert (await memory.search("boat"))[0].signals["dense"] is not None
        assert memory.degraded is None
    assert second.documents == ["the boat is blue"]
    async with Memory.open(tmp_path / "m.db", embedder=first, back_fill=False) as memory:
        await memory.search("boat")
    assert first.documents == ["the boat is blue"]


async def test_the_same_name_with_vectors_of_another_length_is_refused(tmp_path: Path) -> None:
    async with Memory.open(tmp_path / "m.db", embedder=Counting("same"), back_fill=False) as memory:
        await memory.add("the boat is blue")
        await memory.search("boat")
    impostor = Broken(np.ones((1, 7), np.float32))
    impostor._info = Counting("same").info
    async with Memory.open(tmp_path / "m.db", embedder=impostor, back_fill=False) as memory:
        assert [hit.signals["dense"] for hit in await memory.search("boat")] == [None]
        assert "a different model with the same name" in (memory.degraded or "")


async def test_what_another_handle_writes_and_forgets_is_seen_at_the_next_search(tmp_path: Path) -> None:
    async with (
        Memory.open(tmp_path / "m.db", embedder=HashingEmbedder()) as one,
        Memory.open(tmp_path / "m.db", embedder=HashingEmbedder()) as other,
    ):
        assert await one.search("boat") == ()
        id = await other.add("a boat")
        assert [hit.memory.id for hit in await one.search("boat")] == [id]
        newer = await other.add("another boat")
        assert {hit.memory.id for hit in await one.search("boat")} == {id, newer}
        await other.forget(id)
        assert [hit.memory.id for hit in await one.search("boat")] == [newer]


async def test_the_tables_are_what_the_migrations_make(tmp_path: Path) -> None:
    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_object": lambda thing, name, kind, reflected, other: (
                    kind != "table" or name in metadata.tables
                ),
                "compare_type": True,
            },
        )
        return list(compare_metadata(context, metadata))

    async with Database.open(tmp_path / "m.db") as database:
        assert await database.read(differences) == []


async def test_ten_thousand_tags_are_filtered_by_and_times_must_be_in_order() -> None:
    tags = [f"t{number}" for number in range(10_000)]
    async with Memory.open(":memory:", embedder="none") as memory:
        id = await memory.add("The lease", tags=tags)
        await memory.add("The rent", tags=tags[1:])
        assert [record.id for record in await memory.list(tags=tags)] == [id]
        assert await memory.count(tags=tags[1:]) == 2
        with pytest.raises(UsageError, match="before it begins"):
            await memory.add("x", valid_from=NOON, valid_to=NOON - timedelta(days=1))


async def test_a_filter_that_there_is_none_of_is_refused_instead_of_finding_nothing() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add("The router's name is Ida.")
        for ask in (
            lambda: memory.search("router", kind="facts"),  # type: ignore[arg-type]
            lambda: memory.list(tier="medium"),  # type: ignore[arg-type]
            lambda: memory.count(memory_type="opinion"),  # type: ignore[arg-type]
            lambda: memory.export_to(io.BytesIO(), kind="facts"),  # type: ignore[arg-type]
        ):
            with pytest.raises(UsageError, match="There is no"):
                await ask()
        with pytest.raises(TypeError, match="spaeker"):
            await memory.list(spaeker="Ida")  # type: ignore[call-arg]


@pytest.mark.parametrize("room", [0, 1 << 20])
async def test_a_search_finds_the_same_whether_or_not_what_its_words_give_was_kept(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.memory.find.candidates.index.MAX_STEMS_BYTES", room)
    turns = [
        "the harbour map",
        "a map of Lisbon",
        "we walked",
        "harbour lights and harbour rain",
        "nothing",
    ] * 4
    clock = ManualClock(at=NOON)
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        await memory.add_episodes(
            said(turn, text, session=f"s{turn // 7}") for turn, text in enumerate(turns[:-2])
        )
        asked = ("harbour map", "map", "harbour Lisbon rain", "harbour map")
        first = [[(hit.memory.id, hit.score) for hit in await memory.search(query)] for query in asked]
        again = [[(hit.memory.id, hit.score) for hit in await memory.search(query)] for query in asked]
        assert again == first
        assert first[0] == first[3]
        await memory.add_episodes([said(99, "the harbour map on the wall", session="s9")])
        assert (await memory.search("harbour map wall"))[0].memory.source.turn == 99
        assert len(await memory.search("map", limit=100)) > len(first[1])
