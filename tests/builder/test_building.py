"""Builds from a request to a registered version, or to a failure with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import update

from satchel.builder.queue import BuildQueue
from satchel.builder.records import CANCELLED, EARNED, BuildMessage
from satchel.builder.tables import builds
from satchel.builder.workshop import wanted_packages
from satchel.capabilities.records import Access, Provenance, Wanted
from satchel.clock import ManualClock
from satchel.config import PermissionRule, RuleAction, RuleOptions
from satchel.errors import ModelUnavailable, NotFound, StorageUnwritable, UsageError
from satchel.events import MemoryCaptured, SessionEnd, TurnEnd, TurnStart
from satchel.memory.text.hashing import WordHasher
from satchel.models.port import ModelRequest
from satchel.models.scripted import Call, Reply
from tests.builder.world import CASES, GREET, WHOLE, World, open_world, register, tries, write
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("builder:tools", "promise:capability:tested-first")
async def test_a_build_writes_tests_and_registers_and_its_capability_is_active(tmp_path: Path) -> None:
    progress = Call(name="report_progress", input={"text": "I write\nthe greeting."})
    script = [Reply(calls=[progress]), *WHOLE]
    async with open_world(tmp_path, script) as world:
        build, capability = await world.build()
        assert (build.status, capability.status, capability.version) == ("active", "active", 1)
        assert capability.provenance.build_id == build.id
        assert [tool.name for tool in world.model.requests[0].tools] == [
            "write_file", "run_code", "run_command", "ask_user", "report_progress", "register_capability",
        ]  # fmt: skip
        assert "Greet a city." in world.model.requests[0].messages[0].text
        assert "def run(args: dict) -> str" in world.model.requests[0].system
        said = await world.said(build)
        assert said[0] == ("progress", "I write the greeting.")
        assert said[1][0] == "complete"
        assert said[1][1].startswith("greet is ready (version 1, 2 cases passed)")
        # The registration ends the work: the model is not asked once more.
        assert len(world.model.requests) == 4
        log = await world.sessions.load(build.session_id)
        assert [r.event.status for r in log.records if isinstance(r.event, TurnEnd)] == ["done"]
        assert isinstance(log.records[-1].event, SessionEnd)
        assert any(isinstance(r.event, MemoryCaptured) for r in log.records), "a build is no conversation"
        assert await world.builder.build(build.id) == build, "what has ended is not begun again"


@requirement("builder:answer-tokens")
async def test_an_answer_of_the_builder_has_at_most_4096_tokens(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.build()
        assert {request.max_tokens for request in world.model.requests} == {4096}


@requirement("builder:cases")
async def test_a_registration_whose_cases_fail_is_refused_with_reasons_that_the_model_corrects(
    tmp_path: Path,
) -> None:
    wrong = CASES.replace("Hello, Austin!", "Hello, Dallas!")
    script = [
        Reply(calls=[write("main.py", GREET), write("tests/cases.jsonl", wrong)]),
        Reply(calls=[tries()]),
        Reply(calls=[register()]),
        Reply(calls=[write("tests/cases.jsonl", CASES)]),
        Reply(calls=[register()]),
    ]
    async with open_world(tmp_path, script) as world:
        build, capability = await world.build()
        assert "Hello, Dallas!" in world.results[3]
        assert world.results[3].startswith("Refused")
        assert (build.status, capability.version) == ("active", 1)


@requirement("builder:cases")
async def test_the_samples_that_cases_name_are_registered_with_them(tmp_path: Path) -> None:
    case = '{"name": "a file", "input": {"city": "tests/at/ulm.txt"}, "expect": {"contains": "tests/"}}\n'
    files = [
        write("main.py", GREET),
        write("tests/cases.jsonl", CASES + case),
        write("tests/at/ulm.txt", "Ulm"),
    ]
    script = [Reply(calls=[*files, write("tests/other.txt", "")]), Reply(calls=[tries(), register()])]
    async with open_world(tmp_path, script) as world:
        await world.build()
        package = await world.catalogue.registered("greet", 1)
        assert {path for path in package.files if path.startswith("tests/")} == {
            "tests/cases.jsonl",
            "tests/at/ulm.txt",
        }


async def test_a_registration_without_a_test_is_refused_also_after_the_code_was_changed(
    tmp_path: Path,
) -> None:
    files = [write("main.py", GREET), write("tests/cases.jsonl", CASES)]
    script = [
        Reply(calls=[*files, register()]),
        # Installing is no test, and neither is code that fails.
        Reply(calls=[Call(name="run_command", input={"command": "pip install tabulate"}), register()]),
        Reply(calls=[tries("1/0"), register()]),
        Reply(calls=[tries(), write("main.py", GREET + "\n"), register()]),
        Reply(calls=[tries(), register()]),
    ]
    async with open_world(tmp_path, script) as world:
        build, _ = await world.build()
        refused = [text for text in world.results if "nothing has run without an error" in text]
        assert (len(refused), build.status) == (4, "active")
        assert world.required[-1] == ("tabulate",)


async def test_registering_without_the_files_names_them(tmp_path: Path) -> None:
    script: list[Any] = [Reply(calls=[tries("1"), register()]), "Cannot build: I give up."]
    async with open_world(tmp_path, script) as world:
        build, capability = await world.build()
        assert "main.py and tests/cases.jsonl is missing" in world.results[1]
        assert (build.status, capability.status) == ("failed", "failed")
        assert capability.reasons == ("Cannot build: I give up.",)
        # Nothing that others wrote was read, so the reason is not told as coming from outside.
        assert (await world.queue.messages(build.id))[-1].payload["is_own"]
        await world.catalogue.approve("greet", Access(hosts=("api.example.org:443",)))
        assert await world.builder.registering.reads_others(build)


@requirement("builder:limits")
async def test_a_builder_that_loops_is_stopped_after_its_last_round(tmp_path: Path) -> None:
    def loop(request: ModelRequest) -> Reply:
        return Reply(calls=[tries(f"{len(request.messages)}")])

    async with open_world(tmp_path, loop) as world:
        build, capability = await world.build()
        assert len(world.model.requests) == 25
        assert (build.status, capability.status) == ("failed", "failed")
        assert "25 answers of the model (builder.max_rounds)" in build.outcome
        assert (await world.said(build))[-1][0] == "error"


@requirement("builder:limits")
async def test_a_build_ends_when_its_time_is_over_in_the_middle_of_a_call(tmp_path: Path) -> None:
    async with open_world(tmp_path, timeout_s=0.6) as world:
        world.sandbox.before_run = anyio.sleep_forever
        build, _ = await world.build()
        assert build.status == "failed"
        assert "minutes (builder.timeout_s)" in build.outcome


@requirement("builder:cancel")
async def test_a_cancelled_build_stops_what_runs_and_registers_nothing(tmp_path: Path) -> None:
    """In the middle of an answer of the model, of a question, and of the cases of a registration."""
    for number, where in enumerate(("answer", "question", "registration")):
        reached = anyio.Event()

        async def for_ever(reached: anyio.Event = reached) -> None:
            reached.set()
            await anyio.sleep_forever()

        script = {
            "answer": [Reply(text="Hm.", before=for_ever)],
            "question": [Reply(calls=[Call(name="ask_user", input={"question": "Which?"})])],
            "registration": WHOLE,
        }[where]
        async with open_world(tmp_path / str(number), script, question_wait_s=600.0) as world:
            if where == "registration":
                world.sandbox.before_run = for_ever
            build = await world.request()
            async with anyio.create_task_group() as group:
                group.start_soon(world.builder.build, build.id)
                if where == "question":
                    while not await world.queue.open_questions():  # noqa: ASYNC110 - a row is no event
                        await anyio.sleep(0.01)
                else:
                    await reached.wait()
                await world.catalogue.fail("greet", [CANCELLED], build_id=build.id)
            # The build has ended by itself: the group waited for it.
            build = await world.queue.get(build.id)
            assert (build.status, build.outcome) == ("failed", CANCELLED)
            assert (await world.said(build))[-1] == ("error", CANCELLED)
            capability = await world.catalogue.get("greet")
            assert (capability.status, capability.reasons) == ("failed", (CANCELLED,))
            assert await world.catalogue.versions("greet") == ()
            assert list((tmp_path / str(number) / "capabilities").rglob("*.py")) == []
            assert await world.queue.open_questions() == ()
            # Asked for again, it is built anew.
            again = await world.request()
            assert again.id != build.id


@requirement("builder:cancel")
async def test_a_build_whose_capability_is_removed_ends(tmp_path: Path) -> None:
    async with open_world(
        tmp_path, [Reply(calls=[Call(name="ask_user", input={"question": "Which?"})])]
    ) as world:
        build = await world.request()
        await world.catalogue.remove("greet")
        assert (await world.builder.build(build.id)).status == "failed"
        assert world.model.requests == []


async def test_the_same_call_again_and_again_ends_the_build(tmp_path: Path) -> None:
    async with open_world(tmp_path, lambda request: Reply(calls=[tries("1")])) as world:
        build, _ = await world.build()
        assert build.status == "failed"
        assert "with the same result" in build.outcome
        assert len(world.model.requests) == 4


async def test_a_tool_that_does_not_exist_is_refused_and_the_build_goes_on(tmp_path: Path) -> None:
    script = [Reply(calls=[Call(name="bash", input={"command": "ls"})]), *WHOLE]
    async with open_world(tmp_path, script) as world:
        build, _ = await world.build()
        assert build.status == "active"
        assert world.results[0].startswith("Unknown tool: bash")


async def test_a_model_that_stops_without_registering_is_reminded_and_its_last_words_are_the_reason(
    tmp_path: Path,
) -> None:
    async with open_world(tmp_path, ["I am done!", "Really, it works.", "I don't know."]) as world:
        build, _ = await world.build()
        reminded = [m.text for m in world.model.requests[-1].messages if m.role == "user"]
        assert sum("Nothing is registered yet" in text for text in reminded) == 2
        assert (build.status, build.outcome) == ("failed", "I don't know.")


async def test_a_build_that_ends_after_a_refused_registration_says_why_it_was_refused(tmp_path: Path) -> None:
    files = [write("main.py", GREET), write("tests/cases.jsonl", CASES)]
    script: list[Any] = [Reply(calls=[*files, register()]), "Done.", "Done.", "Done."]
    async with open_world(tmp_path, script) as world:
        build, capability = await world.build()
        assert build.outcome.startswith(
            "Done.\nThe last registration was refused: since main.py was last written, nothing has run"
        )
        assert capability.reasons == (build.outcome,)


async def test_a_model_that_dies_in_the_middle_leaves_a_failed_build_with_the_reason_and_the_whole_story(
    tmp_path: Path,
) -> None:
    script: list[Any] = [Reply(calls=[write("main.py", GREET)]), ModelUnavailable("the endpoint is down")]
    async with open_world(tmp_path, script) as world:
        build, capability = await world.build()
        assert build.status == "failed"
        assert "the endpoint is down" in build.outcome
        assert capability.reasons == (build.outcome,)
        log = await world.sessions.export(build.session_id, form="markdown")
        assert "main.py" in log
        assert "the endpoint is down" in log
        # Asked for again, it is built again.
        world.model._script, world.model._position = WHOLE, 0
        again, capability = await world.build()
        assert (again.id != build.id, again.status, capability.status) == (True, "active", "active")


async def test_packages_are_resolved_outside_and_a_missing_one_is_an_answer(tmp_path: Path) -> None:
    def install(command: str) -> Reply:
        return Reply(calls=[Call(name="run_command", input={"command": command})])

    script = [install("pip install -q humanize==4.9 tabulate"), install("pip install no-such"), *WHOLE]
    async with open_world(tmp_path, script) as world:
        build, capability = await world.build()
        assert world.results[:2] == [
            "Installed. requirements.txt: humanize==4.9, tabulate.",
            "There is no package no-such.",
        ]
        assert world.files(build)["requirements.txt"] == "humanize==4.9\ntabulate\n"
        assert capability.requirements == ("humanize==4.9", "tabulate")


@pytest.mark.parametrize(
    ("command", "packages"),
    [
        ("pip install requests", ("requests",)),
        ("python3 -m pip install -U 'httpx[http2]>=0.27'", ("httpx[http2]>=0.27",)),
        ("uv pip install --quiet a b", ("a", "b")),
        ("pip install -r requirements.txt", ()),
        ("pip list", None),
        ("python main.py", None),
        ("echo 'unclosed", None),
    ],
)
@requirement("builder:packages")
async def test_commands_that_install_are_told_from_others(command: str, packages: Any) -> None:
    assert wanted_packages(command) == packages


@pytest.mark.parametrize(
    "command",
    ["pip install -r other.txt", "pip install --index-url http://x y", "pip install -e .", "pip install a && curl b",
     "pip install $(cat x)", "pip install a; rm -rf /"],
)  # fmt: skip
@requirement("builder:packages")
async def test_installing_from_elsewhere_is_refused(command: str) -> None:
    with pytest.raises(UsageError):
        wanted_packages(command)


@requirement("builder:packages")
async def test_the_prompt_asks_for_few_packages_and_free_services(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.build()
        system = world.model.requests[0].system
        assert "The standard library first" in system
        assert "cost nothing" in system


async def test_two_builds_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> Reply:
        return WHOLE[sum(message.role == "assistant" for message in request.messages)]

    async with open_world(tmp_path, reply) as world:
        first, second = await world.request(name="greet"), await world.request(name="greet_too")
        async with anyio.create_task_group() as group:
            for build in (first, second):
                group.start_soon(world.builder.build, build.id)
        assert [(await world.queue.get(b.id)).status for b in (first, second)] == ["active", "active"]


# Questions


async def answers(world: World, build_id: str, text: str | None) -> None:
    """Answer the first question that the build asks."""
    with anyio.fail_after(60):
        while not (found := await world.queue.open_questions()):  # noqa: ASYNC110 - the database tells nobody
            await anyio.sleep(0.02)
    await world.queue.answer(build_id, found[0].id, text, by="test")


def asking(then: list[Any], **more: Any) -> list[Any]:
    question = {"question": "Celsius or Fahrenheit?", "options": ["Celsius", "Fahrenheit"], **more}
    return [Reply(calls=[Call(name="ask_user", input=question)]), *then]


@requirement("builder:question")
async def test_a_question_gets_the_users_answer_and_both_are_stored(tmp_path: Path) -> None:
    async with open_world(tmp_path, asking(list(WHOLE)), question_wait_s=30.0) as world:
        build = await world.request()
        async with anyio.create_task_group() as group:
            group.start_soon(answers, world, build.id, "Celsius")
            build = await world.builder.build(build.id)
        assert world.results[0] == "Celsius"
        messages = await world.queue.messages(build.id)
        assert [(m.type, m.direction) for m in messages] == [
            ("question", "to_user"), ("answer", "to_builder"), ("complete", "to_user"),
        ]  # fmt: skip
        assert messages[0].payload == {
            "text": "Celsius or Fahrenheit?",
            "options": ["Celsius", "Fahrenheit"],
        }
        assert messages[1].read


@requirement("builder:question")
async def test_without_an_answer_the_builder_takes_its_default_and_says_which(tmp_path: Path) -> None:
    script = asking(list(WHOLE), default="Celsius")
    async with open_world(tmp_path, script, question_wait_s=0.1) as world:
        build, _ = await world.build()
        assert (
            "did not answer within 0.1 s. They were told that you go on with your default: Celsius"
            in (world.results[0])
        )
        said = await world.said(build)
        assert ("progress", "No answer within 0.1 s. The Builder goes on with: Celsius") in said
        assert await world.queue.open_questions() == ()


async def test_a_question_is_answered_once_and_not_after_the_end(tmp_path: Path) -> None:
    async with open_world(tmp_path, asking(list(WHOLE), default="Celsius"), question_wait_s=0.05) as world:
        build, _ = await world.build()
        with pytest.raises(UsageError, match="has ended"):
            await world.queue.answer(build.id, "call_1", "too late", by="test")
        with pytest.raises(NotFound, match="no question"):
            await world.queue.answer(build.id, "call_9", "what?", by="test")
        build = await world.request(name="other")
        await world.queue.tell(build.id, id="q", type="question", payload={"text": "Which?"})
        await world.queue.answer(build.id, "q", "this", by="terminal")
        with pytest.raises(UsageError, match="answered already by terminal"):
            await world.queue.answer(build.id, "q", "that", by="web")


@requirement("builder:question")
async def test_a_question_without_a_default_waits_overnight_and_its_answer_is_used_the_next_day(
    tmp_path: Path,
) -> None:
    async with open_world(tmp_path, asking(list(WHOLE))) as world:
        build, capability = await world.build()
        assert (build.status, capability.status) == ("waiting", "building")
        assert (await world.said(build))[-1] == (
            "progress",
            "It waits for your answer, now or later (/answer TEXT, or satchel capability answer greet TEXT): "
            "Celsius or Fahrenheit?",
        )
        again = await world.builder.build(build.id)
        assert (again, len(world.model.requests)) == (build, 1), "nobody asks the model meanwhile"
        assert [each.id for each in await world.queue.open_builds()] == [build.id]
    async with open_world(tmp_path, WHOLE) as world:
        await world.queue.answer(build.id, "call_1", "Celsius", by="the web page")
        assert (await world.queue.get(build.id)).status == "queued"
        world.model._calls = 100
        build = await world.builder.build(build.id)
        assert build.status == "active"
        told = world.model.requests[0].messages[-1].text
        assert told.startswith("[Late answer to call_1]\nThe user was asked: Celsius or Fahrenheit?\n")
        assert "They answer: Celsius" in told
        assert "Nothing is registered yet" not in told


async def test_pauses_do_not_count_as_turns_that_the_model_ended_or_as_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [reply for _ in range(4) for reply in asking([])] + list(WHOLE)
    clock = ManualClock()
    async with open_world(tmp_path, script, clock=clock, question_wait_s=0.3, timeout_s=600) as world:
        answer_to = world.queue.answer_to

        async def an_hour_later(*question: str) -> BuildMessage | None:
            clock.advance(3600)
            return await answer_to(*question)

        monkeypatch.setattr(world.queue, "answer_to", an_hour_later)
        build, _ = await world.build()
        for number in range(1, 5):
            assert build.status == "waiting"
            await world.queue.answer(build.id, f"call_{number}", "Celsius", by="test")
            build = await world.builder.build(build.id)
        assert build.status == "active", build.outcome


async def test_an_answer_that_comes_while_the_build_is_laid_aside_is_not_lost(tmp_path: Path) -> None:
    async with open_world(tmp_path, asking(list(WHOLE))) as world:

        async def answer(events: Any) -> None:
            if any(isinstance(event, SessionEnd) for event in events) and len(world.model.requests) == 1:
                await world.queue.answer(build.id, "call_1", "Celsius", by="test")

        world.before_log = answer
        build = await world.request()
        assert (await world.builder.build(build.id)).status == "queued"
        assert "progress" not in [kind for kind, _ in await world.said(build)], "nobody is told to answer"
        assert (await world.builder.build(build.id)).status == "active"


async def test_what_is_not_approved_yet_pauses_the_round_and_is_no_error_of_the_code(tmp_path: Path) -> None:
    """Neither the call that needs it, nor those that the model has put behind it, run."""
    files = [write("main.py", GREET), write("tests/cases.jsonl", CASES)]
    script = [Reply(calls=[*files, tries(hosts=HOSTS), register(state=True)]), Reply(calls=[tries(hosts=HOSTS)]),
              Reply(calls=[register(state=True)]), Reply(calls=[register(state=True)])]  # fmt: skip
    async with open_world(tmp_path, script) as world:
        build, _ = await world.build()
        assert (build.status, world.sandbox.commands) == ("waiting", [])
        (question,) = await world.queue.open_questions()
        await world.queue.answer(build.id, question.id, "yes", by="test")
        build = await world.builder.build(build.id)
        assert world.results[2:4] == ["No answer yet: the build goes on when the user has answered."] * 2
        assert build.status == "waiting", "now for the files that it keeps"
        (question,) = await world.queue.open_questions()
        assert "keeps files of its own" in question.text
        await world.queue.answer(build.id, question.id, "no", by="test")
        build = await world.builder.build(build.id)
        assert (build.status, build.outcome.split(".")[0]) == (
            "proposed", "greet is built (version 1) and waits for your approval",
        )  # fmt: skip


@requirement("storage:postgres:builds")
@pytest.mark.parametrize("forged", ["an answer", "the build"])
async def test_who_can_write_to_the_database_allows_no_build_anything(tmp_path: Path, forged: str) -> None:
    """The database is a file here; on a server others may be able to write its rows."""
    files = [write("main.py", GREET), write("tests/cases.jsonl", CASES), tries()]
    script = [Reply(calls=files), *[Reply(calls=[register(state=True)])] * 3]
    async with open_world(tmp_path, script) as world:
        world.queue = BuildQueue(
            world.database, clock=world.clock, user_id="default", seal=WordHasher(tmp_path / "key")
        )
        build, _ = await world.build()
        (question,) = await world.queue.open_questions()
        if forged == "an answer":
            theirs = BuildQueue(world.database, clock=world.clock, user_id="default")
            await theirs.answer(build.id, question.id, "yes", by="thief")
        else:
            other = (
                await world.catalogue.create(
                    Wanted(name="other", description="x"), provenance=Provenance(made_by="user")
                )
            ).id
            await world.queue.answer(build.id, question.id, "yes", by="test")
            change = update(builds).values(capability_id=other)
            await world.database.write(lambda connection: connection.execute(change))
        build = await world.builder.build(build.id)
        for capability in await world.catalogue.list():
            assert await world.catalogue.approved(capability.id) == Access()
        if forged == "an answer":
            assert (build.status, [one.id for one in await world.queue.open_questions()]) == (
                "waiting", [question.id],
            )  # fmt: skip
            await world.queue.answer(build.id, question.id, "yes", by="test")
            assert (await world.builder.build(build.id)).status == "active"
            assert await world.catalogue.approved("greet") == Access(state=True)


@requirement("storage:postgres:builds")
async def test_who_can_write_to_the_database_has_no_proposal_registered(tmp_path: Path) -> None:
    async with open_world(tmp_path, []) as world:
        world.queue = BuildQueue(
            world.database, clock=world.clock, user_id="default", seal=WordHasher(tmp_path / "key")
        )
        draft = {"description": "How to greet.", "document": "Say hello."}
        build = await world.request(
            build_id="earned-1", question={"text": "Keep it?", "before": None, "cases": [], "draft": draft}
        )
        theirs = BuildQueue(world.database, clock=world.clock, user_id="default")
        await theirs.answer(build.id, EARNED, "yes", by="thief")
        assert (await world.builder.build(build.id)).status == "waiting"
        assert (await world.catalogue.get("greet")).version == 0
        await world.queue.answer(build.id, EARNED, "yes", by="test")
        assert (await world.builder.build(build.id)).status == "active"


@requirement("builder:unapproved")
async def test_a_secret_without_a_value_is_a_question_until_a_process_has_it(tmp_path: Path) -> None:
    files = [write("main.py", GREET), write("tests/cases.jsonl", CASES), tries()]
    ends = Reply(calls=[register(secrets=["BOARD_KEY"])])
    async with open_world(tmp_path, [Reply(calls=files), *[ends] * 4]) as world:
        build, _ = await world.build()
        (consent,) = await world.queue.open_questions()
        await world.queue.answer(build.id, consent.id, "yes", by="test")
        for _ in range(2):  # answered where it has none either
            build = await world.builder.build(build.id)
            (question,) = await world.queue.open_questions()
            assert (build.status, question.text.split(",")[0]) == ("waiting", "greet needs BOARD_KEY")
            await world.queue.answer(build.id, question.id, "It is set", by="test")
        world.secrets["BOARD_KEY"] = "k"
        build = await world.builder.build(build.id)
        assert build.status == "active"
        assert not any("Correct this" in result for result in world.results)


@requirement("builder:wish")
async def test_what_the_user_adds_reaches_the_builder_before_it_can_register(tmp_path: Path) -> None:
    whole = [write("main.py", GREET), write("tests/cases.jsonl", CASES), tries(), register()]
    async with open_world(tmp_path, [Reply(calls=whole), Reply(calls=[register()])]) as world:

        async def add(events: Any) -> None:
            if any(isinstance(event, TurnStart) for event in events):
                await world.queue.add_wish(build.id, "Make it also shout.")
                await world.queue.add_wish(build.id, "Make it also shout.")
                await world.queue.add_wish(build.id, "Greet a city.")  # it is in the task
                await world.queue.add_wish(build.id, "a city")  # so is this, as a part of something else

        world.before_log = add
        build = await world.request()
        build = await world.builder.build(build.id)
        assert [("also shout" in result, result.startswith("Refused")) for result in world.results] == [
            (True, False), (False, False), (False, False), (False, True),
        ]  # fmt: skip
        assert (build.status, "too late" in build.outcome) == ("active", False)
        assert "a part of your task: a city" in world.results[0]
        assert ("progress", "The Builder is told as well: Make it also shout.") in await world.said(build)
        with pytest.raises(UsageError, match="had just ended"):
            await world.queue.add_wish(build.id, "And whisper.")


@requirement("builder:wish")
async def test_what_the_user_adds_while_it_is_registered_is_named_at_the_end(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        build = await world.request()

        async def add() -> None:
            await world.queue.add_wish(build.id, "Make it also shout.")

        world.sandbox.before_run = add
        build = await world.builder.build(build.id)
        assert build.outcome.endswith("is not in it: “Make it also shout.” Ask for it as a change.")


# Hosts


HOSTS = ["api.example.org:443"]


@pytest.mark.parametrize(("answer", "allowed"), [("yes", True), ("no", False), ("yes, but later", False)])
async def test_a_host_is_asked_about_once_and_reached_only_if_the_user_says_yes(
    tmp_path: Path, answer: str, allowed: bool
) -> None:
    networked = CASES.replace('"input": {"city": "Austin"}', '"network": true, "input": {"city": "Austin"}')
    cases = networked + '{"name": "offline", "input": {"city": "X"}, "expect": {"contains": "X"}}\n'
    script = [
        Reply(calls=[write("main.py", GREET), write("tests/cases.jsonl", cases)]),
        Reply(calls=[tries(hosts=HOSTS)]),
        Reply(calls=[tries()]),
        Reply(calls=[register(hosts=["api.example.org"])]),
    ]
    async with open_world(tmp_path, script, question_wait_s=30.0) as world:
        build = await world.request()
        async with anyio.create_task_group() as group:
            group.start_soon(answers, world, build.id, answer)
            build = await world.builder.build(build.id)
        questions = [text for kind, text in await world.said(build) if kind == "question"]
        assert len(questions) == 1
        assert "greet may connect to api.example.org" in questions[0]
        hosts = {network.hosts for _, network in world.sandbox.commands}
        capability = await world.catalogue.get("greet")
        if allowed:
            assert hosts == {tuple(HOSTS)}
            assert (build.status, capability.access.hosts) == ("active", tuple(HOSTS))
        else:
            assert "connections to api.example.org:443 and did not allow them" in world.results[2]
            assert hosts == {()}
            assert (build.status, capability.status, capability.version) == ("proposed", "proposed", 0)
            assert "satchel capability approve greet" in build.outcome


@requirement("capabilities:approval-by-rule")
@pytest.mark.parametrize("action", ["allow", "deny"])
async def test_a_rule_answers_for_the_user_and_nothing_is_asked(tmp_path: Path, action: RuleAction) -> None:
    options = RuleOptions(network=tuple(HOSTS), secrets=("KEY",)) if action == "allow" else RuleOptions()
    script = [
        Reply(calls=[write("main.py", GREET), write("tests/cases.jsonl", CASES), tries(hosts=HOSTS)]),
        Reply(calls=[tries()]),
        Reply(calls=[register(hosts=["api.example.org"])]),
    ]
    rules = [PermissionRule(action=action, tool="cap_greet", options=options)]
    async with open_world(tmp_path, script, rules=rules, question_wait_s=600.0) as world:
        build, capability = await world.build()
        assert "question" not in [kind for kind, _ in await world.said(build)]
        if action == "allow":
            assert (build.status, capability.access.hosts) == ("active", tuple(HOSTS))
        else:
            assert (build.status, capability.version) == ("proposed", 0)
            assert "not allowed connections to api.example.org:443" in world.results[2]


# The queue


@requirement("builder:messages", "builder:messages:fields")
async def test_messages_are_stored_in_order_and_a_late_subscriber_sees_all_of_them(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_world(tmp_path, clock=clock) as world:
        build = await world.request()
        for number in range(3):
            clock.advance(1)
            await world.queue.tell(
                build.id, id=f"p{number}", type="progress", payload={"text": f"step {number}"}
            )
        before = await world.queue.version()
        await world.queue.tell(build.id, id="p1", type="progress", payload={"text": "said twice"})
        assert await world.queue.version() == before
        late = BuildQueue(world.queue._database, clock=clock, user_id="default")
        messages = await late.messages(build.id)
        assert [m.text for m in messages] == ["step 0", "step 1", "step 2"]
        assert [m.number for m in messages] == sorted({m.number for m in messages})
        assert {(m.direction, m.type, m.read, m.build_id) for m in messages} == {
            ("to_user", "progress", False, build.id)
        }
        assert await late.messages(build.id, after=messages[1].number) == messages[2:]
        assert await late.messages_for("s1") == messages
        assert await late.messages_for("another session") == ()
        await late.mark_read([messages[0].number])
        assert [m.read for m in await late.messages(build.id)] == [True, False, False]
        other = BuildQueue(world.queue._database, clock=clock, user_id="somebody else")
        assert await other.messages(build.id) == ()
        assert await other.open_builds() == ()
        with pytest.raises(NotFound):
            await other.get(build.id)


async def test_the_first_end_of_a_build_holds(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        build = await world.request()
        await world.queue.end(build.id, "failed", "no")
        ended = await world.queue.end(build.id, "active", "yes")
        assert (ended.status, ended.outcome) == ("failed", "no")
        assert await world.said(build) == [("error", "no")]
        assert await world.queue.open_builds() == ()


# The disk


async def test_a_disk_that_is_full_at_registration_registers_nothing_and_the_build_says_why(
    tmp_path: Path,
) -> None:
    script: list[Any] = [*WHOLE, "Cannot build: the disk is full."]
    async with open_world(tmp_path, script) as world:

        async def full(*_: Any, **__: Any) -> Any:
            raise StorageUnwritable("The disk is full.")

        world.catalogue.commit = full  # type: ignore[method-assign]
        build, capability = await world.build()
        assert "The disk is full." in world.results[-1]
        assert (build.status, capability.status, capability.version) == ("failed", "failed", 0)
        assert await world.catalogue.versions("greet") == ()


async def test_a_disk_that_is_full_when_the_log_is_written_ends_the_build_with_the_reason(
    tmp_path: Path,
) -> None:
    async with open_world(tmp_path) as world:
        count = 0

        async def full(events: Any) -> None:
            nonlocal count
            count += 1
            if count == 6:
                raise StorageUnwritable("The disk is full.")

        world.before_log = full
        build, capability = await world.build()
        assert (build.status, capability.status) == ("failed", "failed")
        assert "The disk is full." in build.outcome
