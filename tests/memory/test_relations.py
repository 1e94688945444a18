"""What replaces what: only what the user or an extractor says marks anything, and what was marked by scores is undone."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import ManualClock
from satchel.errors import Refused
from satchel.memory import Episode, Memory, Trust
from satchel.models import FunctionModel
from satchel.storage import REVISIONS
from tests.memory.older import go_back_to_0016
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

MARCH = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEVER_RELATED = (
    ("The user is allergic to peanuts.", "User is allergic to shellfish."),
    ("The user is 41 years old.", "The user moved to Austin."),
    ("The user's name is Jonas.", "The user has three locks on the canal."),
    ("User's wife Linh can't stand dairy.", "User's wife Linh is superstitious."),
    ("User's wedding anniversary is on 5 March.", "The kitchen fitters come on 5 March."),
    ("User has a son, Tom.", "User has a daughter, Mai."),
    ("User speaks French.", "User speaks Vietnamese."),
    ("User wants short answers.", "User wants metric units."),
)


def said(
    turn: int, text: str, *, session: str = "s1", speaker: str = "user", at: datetime = MARCH
) -> Episode:
    trust: Trust = "user" if speaker == "user" else "agent"
    return Episode(
        session=session,
        turn=turn,
        position=int(trust == "agent"),
        speaker=speaker,
        text=text,
        said_at=at,
        trust=trust,
    )


def extracting(**changes: Any) -> FunctionModel:
    """A model that finds every window worth reading, and draws one fact."""
    fact = {
        "content": "",
        "quote": "",
        "more_quotes": [],
        "importance": 5,
        "memory_type": "fact",
        "tags": [],
        "tier": "long_term",
        "since": "",
        "until": "",
        "relation": "new",
        "to": "",
        "ended": "",
        "cues": [],
        "profile": False,
    } | changes
    return FunctionModel(
        lambda request: json.dumps(
            {"worth": True} if request.system.startswith("You decide") else {"facts": [fact]}
        )
    )


@requirement("memory:relations:no-scores")
@pytest.mark.parametrize(("older", "newer"), NEVER_RELATED)
@pytest.mark.parametrize("kind", ["facts", "turns"])
async def test_without_a_model_nothing_that_is_said_later_marks_or_displaces_anything(
    older: str, newer: str, kind: str
) -> None:
    clock = ManualClock(at=MARCH)
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        ids = []
        for session, text in enumerate((older, newer)):
            if kind == "facts":
                ids.append(await memory.add(text, importance=5))
            else:
                ids += await memory.add_episodes([said(1, text, session=f"s{session}", at=clock.now())])
            clock.advance(86_400)
        await memory.keep_up()
        await memory.search(newer)
        assert await memory.later(ids) == {}
        assert [await memory.edges(id) for id in ids] == [(), ()]
        assert [(await memory.get(id)).valid_to for id in ids] == [None, None]
        profile = await memory.profile()
        standing = {line.id for line in (*profile.memories, *(await memory.agenda()).memories)}
        if kind == "facts":
            assert standing == set(ids)
        assert not any("later" in why for _, why in profile.left_out)


@requirement("memory:profile:together")
async def test_two_allergies_stand_in_the_profile_whatever_was_said_last() -> None:
    clock = ManualClock(at=MARCH)
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        peanuts = await memory.add("The user is allergic to peanuts.", importance=5)
        clock.advance(86_400)
        shellfish = await memory.add("User is allergic to shellfish", importance=5)
        assert {line.id for line in (await memory.profile()).memories} == {peanuts, shellfish}


@requirement("memory:relations:users-word")
async def test_a_correction_that_the_assistants_line_completes_is_the_users_and_ends_what_was_wrong() -> None:
    clock = ManualClock(at=MARCH)
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        turns = [
            said(1, "Linh's operation is on Thursday 12 March at the Winterberg clinic."),
            said(1, "I noted the operation on Thursday 12 March.", speaker="assistant"),
        ]
        await memory.add_episodes(turns)
        old = await memory.add(
            "Linh's operation is on Thursday 12 March.", session="s1", turn=1, importance=5, said_at=MARCH
        )
        clock.advance(86_400)
        when = clock.now()
        turns = [
            said(1, "So the operation is on Thursday 12 March?", session="s2", speaker="assistant", at=when),
            said(2, "The clinic called: not Thursday, Friday the 13th now.", session="s2", at=when),
        ]
        await memory.add_episodes(turns)
        model = extracting(
            content="Linh's operation is on Friday the 13th.",
            quote="not Thursday, Friday the 13th now",
            more_quotes=["the operation is on Thursday 12 March"],
            relation="corrects",
            to=old[:8],
        )
        await memory.distill(model=model)
        (new,) = [record for record in await memory.list(kind="fact") if record.id != old]
        assert (new.trust, new.speaker) == ("user", "user")
        assert (await memory.get(old)).valid_to is not None
        assert [(one.memory.id, one.is_certain) for one in (await memory.later([old]))[old]] == [
            (new.id, True)
        ]
        assert "12 March" not in (await memory.profile()).text + (await memory.agenda()).text
        # The turn that the wrong day was drawn from never stands alone, whatever was shown or stands there already.
        question = "Which operation is Linh having at the Winterberg clinic?"
        for exclude, standing in (((), ()), ((new.id,), ()), ((), (new.id,))):
            shown = await memory.surface(
                question, threshold=0.0, limit=20, exclude=exclude, standing=standing
            )
            lines = [hit.memory for hit in shown.memories]
            wrong = [line for line in lines if "12 March" in line.content and line.speaker == "user"]
            assert bool(wrong) == (not exclude and not standing)
            assert not wrong or lines.index(new) < lines.index(wrong[0])


@requirement("memory:relations:users-word")
@pytest.mark.parametrize(
    ("quote", "speaker", "expected"),
    [
        ("book it for eight people", "assistant", "user"),
        ("Yes.", "assistant", "agent"),
        ("book it for eight people", "page", "outside"),
    ],
)
async def test_the_first_quote_says_whose_a_fact_is_and_a_line_from_outside_lowers_it(
    quote: str, speaker: str, expected: Trust
) -> None:
    async with Memory.open(":memory:", embedder="none", back_fill=False) as memory:
        trust: Trust = "outside" if speaker == "page" else "agent"
        line = "The table at Lindt & Sohn is free on Friday evening."
        await memory.add_episodes(
            [
                Episode(session="s", turn=1, speaker=speaker, text=line, trust=trust, said_at=MARCH),
                said(2, "Yes. Then book it for eight people.", session="s"),
            ]
        )
        model = extracting(
            content="The table at Lindt & Sohn is for eight people.",
            quote=quote,
            more_quotes=["The table at Lindt & Sohn is free"],
        )
        (id,) = (await memory.distill(model=model)).facts
        assert (await memory.get(id)).trust == expected


@requirement("memory:supersede:trust")
@pytest.mark.parametrize(
    ("older", "newer", "by", "ends"),
    [
        ("user", "outside", "agent", False),
        ("agent", "outside", "agent", False),
        ("outside", "outside", "agent", True),
        ("user", "agent", "agent", True),
        ("user", "agent", "distill", False),
        ("user", "outside", "distill", False),
        ("user", "user", "distill", True),
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


@requirement("memory:supersede")
@pytest.mark.parametrize(
    ("since", "newer_since", "until", "ends"),
    [
        (None, None, None, 2),  # when the newer one was said
        (None, 1, None, 1),  # from when the newer one holds
        (None, 5, None, 3),  # what begins later than today ends what holds today
        (None, -1, None, 3),  # what began before the older one was said did not end it then
        (2, 1, None, 2),  # nothing ends before it begins
        (2, None, 1, 2),
    ],
)
async def test_a_memory_that_is_superseded_holds_until_the_newer_one_does(
    since: int | None, newer_since: int | None, until: int | None, ends: int
) -> None:
    """Days after 1 March: the older one is said on day 0, the newer one on day 2, and it is day 3."""

    def day(number: int | None) -> datetime | None:
        return None if number is None else MARCH + timedelta(days=number)

    clock = ManualClock(MARCH)
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        old = await memory.add("In Bern", valid_from=day(since))
        clock.advance(2 * 86_400)
        new = await memory.add("In Basel", valid_from=day(newer_since))
        clock.advance(86_400)
        assert await memory.supersede(old, new, valid_to=day(until))
        assert (await memory.get(old)).valid_to == day(ends)
        assert await memory.supersede(old, new, valid_to=day(ends)) is None
        # Said again with an earlier end, it ends then.
        earlier = day(ends - 1) if since is None else None
        if earlier is not None:
            assert await memory.supersede(old, new, valid_to=earlier)
            assert (await memory.get(old)).valid_to == earlier


async def test_undoing_one_of_two_supersessions_leaves_the_other() -> None:
    async with Memory.open(":memory:", embedder="none", back_fill=False) as memory:
        old, first, second = [await memory.add(text) for text in ("In Bern", "In Basel", "In Chur")]
        change = await memory.supersede(old, first) or ""
        await memory.supersede(old, second)
        await memory.undo(change)
        assert (await memory.get(old)).valid_to is not None
        assert [edge.source for edge in await memory.edges(old)] == [second]


# A home that the version before wrote.


async def marked_home(path: Path) -> dict[str, str]:
    """Eight facts, a pin, marks that comparing made, and marks that the user and an extractor made."""
    async with Memory.open(path, embedder="none", back_fill=False) as memory:
        ids = {text: await memory.add(text) for text in itertools.chain(*NEVER_RELATED[:4])}
        some = list(ids.values())
        await memory.pin(some[0])
        for number, relation in enumerate(("may_replace", "restates", "elaborates")):
            await memory.link(some[2 * number + 1], some[2 * number], relation, 0.6, by="compare")
        await memory.supersede(some[1], some[0], by="compare")
        await memory.supersede(some[6], some[7], by="user")
        await memory.supersede(some[4], some[5], by="compare")
        await memory.supersede(some[4], some[3], by="distill")
        await memory.link(some[7], some[0], "may_replace", 0.5, by="distill")
        await memory.undo(await memory.link(some[2], some[0], "restates", 0.6, by="compare") or "")
    with closing(sqlite3.connect(path)) as database, database:
        go_back_to_0016(database)
        database.execute("INSERT INTO memory_compared SELECT rid, 0 FROM memories")
        database.execute("INSERT INTO memory_claims VALUES ('compare', '1', 'x', 0)")
    return dict(zip("abcdefgh", ids.values(), strict=True))


@requirement("memory:relations:upgrade")
async def test_an_upgrade_takes_back_what_comparing_marked_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    ids = await marked_home(path)
    async with Memory.open(path, embedder="none", back_fill=False) as memory:
        names = {id: name for name, id in ids.items()}
        left = {
            (names[edge.source], names[edge.target], edge.relation)
            for id in names
            for edge in await memory.edges(id)
        }
        assert left == {("h", "g", "supersedes"), ("d", "e", "supersedes"), ("h", "a", "may_replace")}
        over = {names[record.id] for record in await memory.list(limit=99) if record.valid_to is not None}
        assert over == {"g", "e"}
        assert await memory.count() == 8
        assert [line.id for line in (await memory.profile()).memories if line.why == "pinned"] == [ids["a"]]
        # The history says what was marked, and that it was taken back.
        changes = [(one.action, one.who) for one in await memory.history(ids["b"]) if one.action != "add"]
        assert changes == [
            ("link", "compare"),
            ("supersede", "compare"),
            ("undo", "upgrade"),
            ("undo", "upgrade"),
        ]
        assert all(one.undone_by for one in await memory.history(ids["b"]) if one.who == "compare")
        assert (await memory.check()).problems == ()


@requirement("memory:relations:upgrade")
async def test_a_program_that_does_not_know_the_new_schema_says_so_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(path, embedder="none", back_fill=False) as memory:
        await memory.add("The user is allergic to peanuts.")
    before = path.read_bytes()
    known = REVISIONS[: REVISIONS.index("0018_relations")]
    monkeypatch.setattr("satchel.storage.schema.REVISIONS", known)
    with pytest.raises(Exception, match=f"A newer Satchel wrote the database .*{REVISIONS[-1]}"):
        async with Memory.open(path, embedder="none", back_fill=False):
            pass
    assert path.read_bytes() == before


@requirement("memory:relations:upgrade")
async def test_an_export_of_the_version_before_brings_no_marks_back(tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    async with Memory.open(tmp_path / "old.db", embedder="none", back_fill=False) as memory:
        peanuts = await memory.add("The user is allergic to peanuts.")
        shellfish = await memory.add("User is allergic to shellfish.")
        await memory.supersede(peanuts, shellfish, by="compare")
        await memory.export_to(file)
    async with Memory.open(tmp_path / "new.db", embedder="none", back_fill=False) as memory:
        await memory.import_from(file)
        assert (await memory.get(peanuts)).valid_to is None
        assert await memory.edges(peanuts) == ()
        assert [one.who for one in await memory.history(peanuts)][1:] == ["compare", "upgrade"]
