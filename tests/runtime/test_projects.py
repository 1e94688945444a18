"""Projects: what their conversations are told and remember, what stays inside, moving, and what deleting leaves."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from satchel.errors import NotFound, StorageError, StorageUnwritable, UsageError
from satchel.events import SessionFiled
from satchel.memory import Memory
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.runtime import Satchel
from satchel.runtime.home import Home
from satchel.runtime.rebuilding import rebuild
from satchel.sessions.journal import FileJournal
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in

pytestmark = pytest.mark.anyio

SECRET = "The code name of the merger with Brandt is Heron, and it closes on 3 December 2026."
ASKED = "What is the code name of the merger with Brandt?"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
OWN = "My dog is called Bello and is allergic to chicken."


def tools_for(**inputs: dict[str, object]) -> ScriptedModel:
    """A model that first calls tools, where the message has the word "look", and then says that it sees."""

    def reply(request: ModelRequest) -> Reply:
        last = request.messages[-1]
        if "look" in last.text and "ToolResultBlock" not in str(last):
            return Reply(calls=[Call(name=name, input=given) for name, given in inputs.items()])
        return Reply(text="I see.")

    return ScriptedModel(reply)


def sent(model: ScriptedModel) -> str:
    """All that a model was sent last."""
    request = model.requests[-1]
    return request.system + str(request.messages)


async def words(memory: Memory | None) -> Sequence[str]:
    return (
        [] if memory is None else [one.content for one in await memory.list(kind="episode", speaker="user")]
    )


async def said_in(satchel: Satchel, project: str, text: str) -> str:
    session = await satchel.session(project=project)
    await session.run_turn(text)
    await session.aclose()
    return session.id


@requirement("projects:instructions")
async def test_conversations_follow_the_instructions_of_their_project(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: "I see.")
    async with opened(tmp_path, model) as satchel:
        project = satchel.home.projects.create("Merger", instructions="Answer in Latin.")
        inside, outside = await satchel.session(project="merger"), await satchel.session()
        await inside.run_turn("Hello.")
        assert 'from the project "Merger"\n\nAnswer in Latin.' in model.requests[-1].system
        await outside.run_turn("Hello.")
        assert "Latin" not in model.requests[-1].system
        await satchel.change_project(project, instructions="Answer in Greek.")
        await inside.run_turn("Again.")
        assert "Greek" in model.requests[-1].system
        assert "Latin" not in model.requests[-1].system
        await satchel.move(inside.id, "")
        await inside.run_turn("And now?")
        assert "Greek" not in model.requests[-1].system
        with pytest.raises(UsageError, match="already"):
            satchel.home.projects.create("MERGER")
        with pytest.raises(NotFound):
            await satchel.session(project="Nothing")


@requirement("projects:memory")
async def test_what_is_said_in_a_project_is_found_in_it_and_nowhere_else(tmp_path: Path) -> None:
    model = tools_for(
        recall_memory={"query": ASKED}, deep_memory={"query": ASKED}, forget_memory={"query": ASKED}
    )
    async with opened(tmp_path, model) as satchel:
        satchel.home.projects.create("Merger")
        satchel.home.projects.create("Garden")
        await said_in(satchel, "", OWN)
        await said_in(satchel, "Merger", SECRET)
        for place in ("", "Garden"):
            await said_in(satchel, place, f"{ASKED} Please look it up. What is on my agenda in December?")
            assert "Heron" not in sent(model)
            assert "3 December" not in sent(model)
        await said_in(satchel, "Merger", ASKED)
        assert "Heron" in sent(model)
        await said_in(satchel, "Merger", f"{ASKED} Please look.")
        assert sent(model).count("Heron") >= 3  # surfaced, recalled, and found deeply


@requirement("projects:memory")
@pytest.mark.parametrize("own_only", [False, True])
async def test_the_users_own_memories_are_seen_in_a_project_unless_it_has_its_own_only(
    tmp_path: Path, own_only: bool
) -> None:
    model = tools_for(recall_memory={"query": "What is my dog allergic to?"})
    async with opened(tmp_path, model) as satchel:
        assert satchel.memory is not None
        await satchel.memory.pin(await satchel.memory.add("The user lives in Oslo.", trust="user"))
        satchel.home.projects.create("Merger", own_memory_only=own_only)
        await said_in(satchel, "", OWN)
        await said_in(satchel, "Merger", "What is my dog allergic to?")
        assert ("chicken" in sent(model)) is not own_only
        assert ("Oslo" in sent(model)) is not own_only
        await said_in(satchel, "Merger", "Please look.")
        assert ("chicken" in sent(model)) is not own_only


@requirement("projects:page")
async def test_a_project_has_a_page_of_its_own_that_its_conversations_begin_with(tmp_path: Path) -> None:
    facts = {
        "Brandt": {"content": "The merger with Brandt closes in December.", "quote": "closes in December"},
        "Bello": {"content": "The user's dog is called Bello.", "quote": "My dog is called Bello"},
    }

    def reply(request: ModelRequest) -> Reply:
        if request.system.startswith("You keep what"):
            new = request.messages[-1].text.rpartition("<new>")[2]
            return Reply(text=json.dumps({"facts": [fact for name, fact in facts.items() if name in new]}))
        return Reply(text="I see.")

    model = ScriptedModel(reply)
    async with opened(tmp_path, model, memory__distill="off") as satchel:
        project = satchel.home.projects.create("Merger")
        await said_in(satchel, "", "My dog is called Bello.")
        await said_in(satchel, "Merger", "Brandt is what we buy, and it closes in December.")
        await satchel.distilling.run()
        await said_in(satchel, "Merger", "Good morning.")
        own, inside = sent(model).split("<satchel-profile>")[1:3]
        assert "Bello" in own
        assert "The merger with Brandt closes" in inside
        await said_in(satchel, "", "Good morning.")
        assert "Bello" in sent(model)
        assert "December" not in sent(model)
        memory = await satchel.home.memory_in(project.id)
        assert memory is not None
        page = await memory.page()
        assert page is not None
        await satchel.forget([line.id for line in page.memories])
        await said_in(satchel, "Merger", "Good evening.")
        assert "The merger with Brandt closes" not in sent(model)


@requirement("projects:memory")
async def test_a_fact_that_is_said_in_a_project_replaces_none_of_the_users_own(tmp_path: Path) -> None:
    inputs: dict[str, object] = {"content": "Bello is allergic to beef."}
    model = tools_for(store_memory=inputs)
    async with opened(tmp_path, model) as satchel:
        project = satchel.home.projects.create("Merger")
        assert satchel.memory is not None
        inputs["supersedes"] = own = await satchel.memory.add("Bello is allergic to chicken.")
        await said_in(satchel, "Merger", "Please look.")
        assert f"{own} still holds" in sent(model)
        assert [one.id for one in await satchel.memory.list()] == [own]
        memory = await satchel.home.memory_in(project.id)
        assert memory is not None
        assert [one.content for one in await memory.list(kind="fact")] == ["Bello is allergic to beef."]
        inputs["supersedes"] = "m0000000000000000"
        await said_in(satchel, "Merger", "Please look.")
        assert "There is no memory 'm0000000000000000'" in sent(model)


@requirement("projects:moving")
async def test_a_conversation_moves_with_all_that_was_learnt_from_it(tmp_path: Path) -> None:
    model = tools_for(store_memory={"content": "Heron closes early."})
    async with opened(tmp_path, model) as satchel:
        project = satchel.home.projects.create("Merger")
        session = await satchel.session()
        await session.run_turn(f"{SECRET} Please look.")
        inside = await satchel.home.memory_in(project.id)
        assert satchel.memory is not None
        assert inside is not None
        before = {one.id for one in await satchel.memory.list()}
        for _ in range(2):  # and back, and in again
            await satchel.move(session.id, "Merger")
            assert not await satchel.memory.list()
            assert {one.id for one in await inside.list()} == before
            await session.run_turn("This too.")
            assert "This too." in await words(inside)
            await satchel.move(session.id, "")
            assert not await inside.list()
            assert before < {one.id for one in await satchel.memory.list()}
            before = {one.id for one in await satchel.memory.list()}
        assert {one.project for one in await satchel.sessions.list()} == {""}
        await satchel.move(session.id, project.id)
        branch = await satchel.sessions.branch(session.id, 2)
        assert (await satchel.sessions.info(branch)).project == project.id


@requirement("projects:moving")
@pytest.mark.parametrize("until", ["the log", "the copy"])
async def test_a_move_that_a_crash_interrupted_is_finished_when_the_home_is_opened(
    tmp_path: Path, until: str
) -> None:
    settings = settings_in(tmp_path)
    async with opened(tmp_path, ScriptedModel(lambda _: "I see.")) as satchel:
        project = satchel.home.projects.create("Merger")
        id = await said_in(satchel, "", SECRET)
        inside = await satchel.home.memory_in(project.id)
        assert satchel.memory is not None
        assert inside is not None
        said = (await satchel.memory.list(kind="episode", speaker="user"))[0]
        await satchel.memory.edit(said.id, content="Heron closes early.")
        await satchel.home.note_of(id, SessionFiled(project=project.id))
        if until == "the copy":
            await satchel.memory.carry(id, inside)
            assert [gone.id for gone in (await satchel.forget([said.id], dry_run=True)).store.forgotten] == [
                said.id
            ] * 2  # wherever it is
        assert await words(satchel.memory) == ["Heron closes early."]  # the process dies here
    async with Home.open(settings, embedder="none") as home:
        assert await words(home.memory) == []
        assert await words(await home.memory_in(project.id)) == ["Heron closes early."]


@requirement("projects:moving")
async def test_what_was_edited_and_merged_comes_back_whenever_its_conversation_does(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    async with opened(tmp_path, ScriptedModel(lambda _: "I see.")) as satchel:
        project = satchel.home.projects.create("Merger")
        id = await said_in(satchel, "", "I moved to Oslo in May.")
        own, inside = satchel.memory, await satchel.home.memory_in(project.id)
        assert own is not None
        assert inside is not None
        await own.edit(await own.add("The user lives in Oslo.", session=id, turn=1), content="In Bergen.")
        await own.edit((await own.list(kind="episode", speaker="user"))[0].id, content="I moved to Bergen.")
        pair = [await own.add(f"The user {does} Oslo.", session=id, turn=1) for does in ("loves", "adores")]
        await own.merge(pair, "The user loves and adores Oslo.")
        before = {one.content for one in await own.list()}
        for _ in range(2):
            await satchel.move(id, "Merger")
            assert {one.content for one in await inside.list()} == before
            assert not await own.list()
            await satchel.move(id, "")
            assert {one.content for one in await own.list()} == before
            assert not await inside.list()
    for path in settings.home.glob("satchel.db*"):
        path.unlink()
    async with Home.open(settings, embedder="none") as home:
        assert home.memory is not None
        assert {one.content for one in await home.memory.list()} == before


@requirement("projects:moving")
async def test_what_another_conversation_bears_out_stays_and_nothing_is_stored_twice(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    async with opened(tmp_path, ScriptedModel(lambda _: "You live by the fjord in Oslo.")) as satchel:
        project = satchel.home.projects.create("Merger")
        moved = await said_in(satchel, "", "I live in Oslo.")
        stays = await said_in(satchel, "", "As I said, I live in Oslo.")
        own = satchel.memory
        assert own is not None
        fact = await own.add("The user lives in Oslo.", session=moved, turn=1, quote="I live in Oslo.")
        for one in await own.list(kind="episode", speaker="user"):
            await own.link(fact, one.id, "derived_from")
        answer = [one.id for one in await own.list(session=moved, speaker="assistant")]
        await satchel.forget(answer)
        await satchel.move(moved, "Merger")
        assert [one.source.session for one in await own.list(kind="fact")] == [stays]
        inside = await satchel.home.memory_in(project.id)
        assert inside is not None
        before = {one.id for one in await inside.list()}
        assert fact in before
    async with Home.open(settings, embedder="none") as home:
        memory = await home.memory_in(project.id)
        assert memory is not None
        assert {one.id for one in await memory.list()} == before


@requirement("projects:moving")
async def test_a_move_that_fails_loses_nothing_and_shows_nothing_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, ScriptedModel(lambda _: "I see.")) as satchel:
        project = satchel.home.projects.create("Merger")
        session = await satchel.session(project="Merger")
        await session.run_turn(SECRET)
        own, inside = satchel.memory, await satchel.home.memory_in(project.id)
        assert own is not None
        assert inside is not None

        async def full(*_: object, **__: object) -> None:
            raise StorageUnwritable("The disk is full.")

        with monkeypatch.context() as patch:
            patch.setattr(FileJournal, "append", full)
            with pytest.raises(StorageUnwritable):
                await satchel.move(session.id, "")
        assert not await own.list()
        gone = await inside.add("The user likes Heron.", session=session.id, turn=1)
        await satchel.forget([gone])
        await satchel.move(session.id, "")
        await own.add("The user likes Heron.", session=session.id, turn=1)
        with pytest.raises(StorageError, match="1 of the memories"):
            await satchel.move(session.id, "Merger")  # where these words were forgotten
        assert await words(own) == [SECRET]
        assert [one.content for one in await own.list(kind="fact")] == ["The user likes Heron."]


@requirement("projects:moving")
async def test_what_is_sent_while_a_conversation_moves_is_said_where_it_belongs_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, ScriptedModel(lambda _: "I see.")) as satchel:
        project = satchel.home.projects.create("Merger")
        session = await satchel.session()
        await session.run_turn("Hello.")
        running, carry = [], Memory.carry

        async def slowly(self: Memory, *given: Any) -> None:
            await carry(self, *given)
            running.append(await session.start(SECRET))

        monkeypatch.setattr(Memory, "carry", slowly)
        await satchel.move(session.id, "Merger")
        assert (await running[0].result()).status == "done"
        assert await words(satchel.memory) == []
        assert await words(await satchel.home.memory_in(project.id)) == [SECRET, "Hello."]


@requirement("projects:kept")
@pytest.mark.parametrize("lost", ["database", "database and journal"])
async def test_a_new_database_puts_each_conversation_into_its_project(tmp_path: Path, lost: str) -> None:
    settings = settings_in(tmp_path, memory__embedder="none")
    async with opened(tmp_path, ScriptedModel(lambda _: "I see.")) as satchel:
        projects = [satchel.home.projects.create(name) for name in ("Merger", "Garden")]
        await said_in(satchel, "", OWN)
        await said_in(satchel, "Merger", SECRET)
        moved = await said_in(satchel, "Merger", "Tulips are planted in October.")
        await satchel.move(moved, "Garden")
    for path in settings.home.glob("satchel.db*"):
        path.unlink()
    if lost == "database and journal":
        shutil.rmtree(settings.home / "journal")
    await rebuild(settings)
    async with Home.open(settings) as home:
        found = [await words(await home.memory_in(id)) for id in ("", *(one.id for one in projects))]
        assert found == [[OWN], [SECRET], ["Tulips are planted in October."]]


@requirement("projects:kept")
@pytest.mark.parametrize("state", ["damaged", "lost"])
async def test_a_file_that_is_damaged_or_lost_stops_nothing_else(tmp_path: Path, state: str) -> None:
    model = ScriptedModel(lambda _: "I see.")
    settings = settings_in(tmp_path)
    async with opened(tmp_path, model) as satchel:
        project = satchel.home.projects.create("Merger", instructions="Speak of Quetzals.")
        inside = await said_in(satchel, "Merger", SECRET)
        outside = await said_in(satchel, "", OWN)
    file = settings.home / "projects" / f"{project.id}.toml"
    file.write_text("name") if state == "damaged" else file.unlink()
    async with opened(tmp_path, model) as satchel:
        told = [notice.text for notice in satchel.notices if notice.part == "projects"]
        assert len(told) == (state == "damaged")
        assert satchel.home.projects.all() == []
        await satchel.distilling.run()
        session = await satchel.session(inside)
        await session.run_turn(f"And {ASKED}")  # it sees what it saw, and nothing else
        assert "Heron" in sent(model)
        assert "chicken" not in sent(model)
        await session.aclose()
        await satchel.forget(session=outside)
        memory = await satchel.home.memory_in(project.id)
        assert memory is not None
        said = [one.id for one in await memory.list(kind="episode", speaker="user") if one.content == SECRET]
        assert [gone.id for gone in (await satchel.forget(said)).store.forgotten] == said
        if state == "damaged":
            broken = satchel.home.projects.find(project.id)
            assert (broken.name, broken.own_memory_only) == (project.id, True)
            assert project.id in told[0]
            repaired = await satchel.change_project(broken, name="Merger")
            assert satchel.home.projects.all() == [repaired]
            file.write_text("name")
            await satchel.delete_project(satchel.home.projects.find(project.id))
            assert not file.exists()
            assert [info.id for info in await satchel.sessions.list()] == [outside]
        else:
            await satchel.move(inside, "")
            assert await words(satchel.memory) == [f"And {ASKED}"]
    await rebuild(settings)


def traces(home: Path, *needles: str) -> list[str]:
    """The files of a home in which one of these stands."""
    return [
        str(path)
        for path in home.rglob("*")
        if path.is_file() and any(needle.encode() in path.read_bytes() for needle in needles)
    ]


@requirement("projects:deleting")
async def test_deleting_a_project_leaves_nothing_of_it(tmp_path: Path) -> None:
    home = settings_in(tmp_path).home
    model = ScriptedModel(
        lambda request: "It is Heron." if "code name" in str(request.messages[-1]) else "I see."
    )
    async with opened(tmp_path, model) as satchel:
        project = satchel.home.projects.create("Zebrafish", instructions="Speak of Quetzals.")
        await said_in(satchel, "", OWN)
        await said_in(satchel, "Zebrafish", SECRET)
        moved = await said_in(satchel, "Zebrafish", ASKED)  # it was shown the secret, and repeats it
        assert "Heron" in sent(model)
        await satchel.move(moved, "")
        still_open = await satchel.session(project="Zebrafish")
        await satchel.delete_project(project)
        assert satchel.home.projects.all() == []
        assert not satchel.has_open(still_open.id)
        assert [info.id for info in await satchel.sessions.list()][:1] == [moved]
        assert OWN in await words(satchel.memory)
        assert satchel.memory is not None
        assert not [one for one in await satchel.memory.list() if "Heron" in one.content]
    assert traces(home, "Heron", "Zebrafish", "Quetzal", project.id) == [] or traces(home, project.id) == [
        str(path) for path in home.glob(f"sessions/*/*{moved}.jsonl")
    ]
    assert traces(home, "Heron is", "is Heron", "Zebrafish", "Quetzal") == []


@requirement("projects:deleting")
async def test_deleting_a_project_leaves_what_was_moved_out_and_pictures_that_are_known_elsewhere(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, ScriptedModel(lambda _: "I see.")) as satchel:
        project = satchel.home.projects.create("Merger")
        for place in ("", "Merger"):
            talk = await satchel.session(project=place)
            cat = satchel.parts.uploads.add([PNG], name="cat.png", now=satchel.clock.now())
            await (await talk.start("This cat.", files=[cat])).result()
            await talk.aclose()
        inside = await satchel.session(project="Merger")
        for text in (SECRET, "And the weather?"):
            await inside.run_turn(text)
        await inside.aclose()
        outside, stays = [await satchel.sessions.branch(inside.id, 2) for _ in range(2)]
        await satchel.home.move(outside, "")  # alone, as before branches went along
        assert len(list(satchel.settings.home.rglob("*cat.png"))) == 2
        await satchel.delete_project(project)
        assert len(list(satchel.settings.home.rglob("*cat.png"))) == 1
        assert SECRET in await satchel.sessions.export(outside, form="markdown")
        assert stays not in {info.id for info in await satchel.sessions.list()}


@requirement("projects:deleting")
async def test_forgetting_reaches_projects_and_what_was_repeated_in_them(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(lambda _: f"You told me: {OWN}")) as satchel:
        project = satchel.home.projects.create("Merger")
        assert satchel.memory is not None
        inside = await satchel.home.memory_in(project.id)
        assert inside is not None
        id = await satchel.memory.add(OWN)
        session = await said_in(satchel, "Merger", "What is my dog allergic to?")
        assert [one for one in await inside.list() if "Bello" in one.content]
        planned = await satchel.forget([id], dry_run=True)
        assert [gone.id for gone in planned.store.forgotten] == [id]
        await satchel.forget([id])
        assert not [one for one in await inside.list() if "Bello" in one.content]
        receipt = await satchel.forget(session=session)
        assert receipt.store.forgotten
        assert not await inside.list()
        assert traces(satchel.settings.home, "Bello") == []
