"""Clients, hooks and programs that misbehave: none of them may end a session, take another's turn or fill a prompt."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.errors import NotFound, SatchelError, UsageError
from satchel.events import Action, Posted, QuestionAsked, TurnStart
from satchel.loop import AddContext, Refuse, Rewrite
from satchel.messages import TextBlock, Usage
from satchel.models import Call, Reply, ScriptedModel
from satchel.runtime import Session
from satchel.tools import Question, ToolContext, ToolResult, function_tool
from tests.requirements import requirement
from tests.runtime.test_clients import followed, question_of
from tests.runtime.world import logged, opened

pytestmark = pytest.mark.anyio

WRITES = Reply(calls=[Call(name="bash", input={"command": "echo hi > made.txt"})])

SAME_ID = Reply(calls=[Call(name="bash", id="call_0", input={"command": "echo hi > made.txt"})])

NUMBERS: list[Any] = [
    -1,
    999,
    10**30,
    2**63,
    -(2**63),
    1.5,
    float("nan"),
    float("inf"),
    "1",
    b"1",
    True,
    [1],
    {},
]


@requirement("clients:replay")
async def test_a_number_that_no_event_has_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(["One."])) as satchel:
        session = await satchel.session()
        await session.run_turn("Hello.")
        for number in NUMBERS:
            with pytest.raises(UsageError, match="There is no event"):
                session.subscribe(number)
        assert (await anext(session.subscribe(0))).seq == 1


# Everything that a client may send as an answer to a permission question for one call.
ANSWERS: dict[str, dict[str, Any]] = {
    "another question's id": {"id": "ask_0_1", "consent": "once"},
    "an empty id": {"id": "", "consent": "once"},
    "an id with a prefix": {"id": "{id} ", "consent": "once"},
    "no answer": {"id": "{id}"},
    "words for consent": {"id": "{id}", "text": "yes"},
    "an unknown consent": {"id": "{id}", "consent": "forever"},
    "a number": {"id": "{id}", "consent": 1},
    "true": {"id": "{id}", "consent": True},
    "a list": {"id": "{id}", "consent": ["once"]},
    "another call": {"id": "{id}", "consent": {"call_99": "always"}},
    "a mapping with a wrong value": {"id": "{id}", "consent": {"{call}": True}},
    "a mapping with no text": {"id": "{id}", "consent": {"{call}": ["once"]}},
    "an id that is no text": {"id": 7, "consent": "once"},
    "an id that is a list": {"id": ["x"], "consent": "once"},
    "words that are no text": {"id": "{id}", "consent": "once", "words": {"a": 1}},
    "a name that is no text": {"id": "{id}", "consent": "once", "by": 7},
}


@requirement("questions:once")
async def test_an_invalid_answer_leaves_the_question_open_and_runs_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel([WRITES, "Fine."])) as satchel:
        session = await satchel.session(interactive=True)
        with anyio.fail_after(120):
            running = await session.start("Write it.")
            question = await question_of(session)
            names = {"{id}": question.id, "{id} ": f"{question.id} ", "{call}": question.calls[0].call_id}
            for given in ANSWERS.values():
                answer = {key: _filled(value, names) for key, value in given.items()}
                with pytest.raises(SatchelError):
                    await session.answer(**answer)
                assert [asked.id for asked in session.open_questions if isinstance(asked, QuestionAsked)] == [
                    question.id
                ]
            await session.answer(question.id, consent="no")
            assert (await running.result()).text == "Fine."
    assert not (tmp_path / "work" / "made.txt").exists()


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {names.get(key, key): item for key, item in value.items()}
    return value


@requirement("questions:once")
async def test_the_id_of_another_sessions_question_answers_nothing_here(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(lambda _: WRITES)) as satchel:
        one, two = await satchel.session(interactive=True), await satchel.session(interactive=True)
        with anyio.fail_after(120):
            await one.start("Write it.")
            question = await question_of(one)
            with pytest.raises(NotFound):
                await two.answer(question.id, consent="always")
            running = await two.start("Write it.")
            other = await question_of(two)
            one.cancel()
            await one.answer(question.id, consent="no")
            assert not running.is_over
            assert [asked.id for asked in two.open_questions if isinstance(asked, QuestionAsked)] == [
                other.id
            ]


@requirement("questions:once")
async def test_a_question_of_an_earlier_turn_is_not_answered_in_a_later_one(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(lambda _: SAME_ID)) as satchel:
        session = await satchel.session(interactive=True)
        with anyio.fail_after(120):
            running = await session.start("Write it.")
            first = await question_of(session)
            session.cancel()
            await running.result()
            with pytest.raises(SatchelError):
                await session.answer(first.id, consent="always")
            running = await session.start("Again.")
            async for record in session.subscribe(session.last_seq):
                if isinstance(record.event, QuestionAsked):
                    break
            with pytest.raises(SatchelError):
                await session.answer(first.id, consent="always")
            session.cancel()
            await running.result()
    assert not (tmp_path / "work" / "made.txt").exists()


@requirement("clients:inbox")
async def test_posts_that_arrive_at_once_are_each_shown_and_delivered_once(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: "Yes.")
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        await session.run_turn("Hello.")
        async with followed(session, None) as seen, anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(_post, satchel, session, f"Entry {number}.")
            group.start_soon(session.run_turn, "Next.")
        await session.run_turn("And now?")
        shown = [record.event.text for record in seen if isinstance(record.event, Posted)]
        assert sorted(shown) == sorted(f"Entry {number}." for number in range(20))
        said = [
            block.text
            for message in model.requests[-1].messages
            for block in message.blocks
            if isinstance(block, TextBlock) and "Entry" in block.text
        ]
        assert len(said) == len(set(said)) == 20


async def _post(satchel: Any, session: Session, text: str) -> None:
    await satchel.post(session.id, text, source="flood")


# What a hook may give for an answer to each of its questions.
class Hook:
    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def _give(self, name: str) -> Any:
        answer = self._answers.get(name)
        return answer() if callable(answer) else answer

    async def on_turn_start(self, start: TurnStart) -> Any:
        return self._give("turn")

    async def on_action(self, action: Action) -> Any:
        return self._give("action")

    async def on_observation(self, action: Action, result: ToolResult) -> Any:
        return self._give("observation")


def _raises(error: BaseException) -> Callable[..., Any]:
    def give(*_: Any) -> Any:
        raise error

    return give


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


HOOKS: dict[str, dict[str, Any]] = {
    "a megabyte": {"turn": "x" * 1_000_000},
    "a megabyte from outside": {"turn": AddContext(text="x" * 1_000_000, untrusted=True)},
    "a megabyte of invisible characters": {"turn": "\u200b" * 1_000_000},
    "a text that is none": {"turn": AddContext(text=None)},  # type: ignore[arg-type]
    "a number as text": {"turn": AddContext(text=7)},  # type: ignore[arg-type]
    "bytes": {"turn": b"x"},
    "a lone surrogate and NUL": {"turn": "a\ud800b\0c"},
    "an error without words": {"turn": _raises(Exception())},
    "an error that can't be printed": {"turn": _raises(Exception("\ud800"))},
    "a stop of an iteration": {"turn": _raises(StopAsyncIteration())},
    "an error of a megabyte": {"turn": _raises(ValueError("x" * 1_000_000))},
    "an error whose text fails": {"turn": _raises(Unprintable())},
    "an observation's error whose text fails": {"observation": _raises(Unprintable())},
    "an input that is no object": {"action": Rewrite(input=7)},  # type: ignore[arg-type]
    "an input that is no JSON": {"action": Rewrite(input={"thought": object()})},
    "an input that holds itself": {"action": "loop"},
    "a reason that is no text": {"action": Refuse(reason=None)},  # type: ignore[arg-type]
    "a reason of a megabyte": {"action": Refuse(reason="x" * 1_000_000)},
    "a result that is no text": {"observation": ToolResult(text=None)},  # type: ignore[arg-type]
    "a result of a megabyte": {"observation": ToolResult(text="y " * 500_000)},
    "a result that holds itself": {"observation": "loop"},
    "a result that is not a result": {"observation": "done"},
}


@requirement("embed:hooks")
async def test_whatever_a_hook_gives_the_turn_ends_and_the_next_one_works(tmp_path: Path) -> None:
    loop: dict[str, Any] = {"thought": "x"}
    loop["again"] = loop
    loops = {"action": Rewrite(input=loop), "observation": ToolResult(text="x", data=loop)}
    thinks = Reply(calls=[Call(name="think", input={"thought": "t"})])
    broken = []
    async with opened(tmp_path) as satchel:
        for what, given in HOOKS.items():
            answers = {name: loops[name] if answer == "loop" else answer for name, answer in given.items()}
            model = ScriptedModel([thinks, "One.", "Two."])
            session = await satchel.session(hooks=[Hook(**answers)])
            session.use_model(model)
            with anyio.fail_after(120):
                results = [await session.run_turn("Hello.", memory=False) for _ in range(2)]
            sizes = [
                sum(
                    len(getattr(block, "text", "") or getattr(block, "content", ""))
                    for block in message.blocks
                )
                for request in model.requests
                for message in request.messages
            ]
            await session.aclose()
            if [result.status for result in results] != ["done"] * 2 or max(sizes) > 60_000:
                broken.append((what, results, max(sizes)))
            again = await satchel.session(session.id)
            again.use_model(ScriptedModel(["Three."]))
            assert (await again.run_turn("Still there?", memory=False)).status == "done"
            await again.aclose()
    assert not broken


COUNTERS: dict[str, Callable[[str], Any]] = {
    "nothing": lambda _: 0,
    "less than nothing": lambda _: -5,
    "far too many": lambda _: 10**12,
    "more digits than can be printed": lambda _: 10**5000,
    "a fraction": lambda text: len(text) / 3.5,
    "no number": lambda _: float("nan"),
    "a text": lambda _: "12",
    "true": lambda _: True,
    "None": lambda _: None,
    "an error": _raises(RuntimeError("\x1b[2J")),
    "an error of arithmetic": lambda text: 1 // (len(text) - len(text)),
}


@requirement("embed:token-counter", "loop:tokens:counter")
async def test_a_counter_that_lies_is_used_no_more_and_ends_no_turn(tmp_path: Path) -> None:
    # A model that tells no counts.
    model = ScriptedModel(lambda _: Reply(text="Yes.", usage=Usage(cost_usd=0.0)), context_window=100_000)
    broken = []
    async with opened(tmp_path, model) as satchel:
        for what, counter in COUNTERS.items():
            session = await satchel.session(token_counter=counter)
            results = [await session.run_turn("word " * 500, memory=False) for _ in range(2)]
            text = logged(session).read_text()
            told = (text.count('"type":"error"'), text.count('"type":"compaction"'))
            if [result.status for result in results] != ["done"] * 2 or told != (1, 0):
                broken.append((what, results, told))
            await session.aclose()
    assert not broken


@requirement("clients:close")
@pytest.mark.parametrize("when", ["asking", "calling", "idle"])
async def test_a_session_that_is_deleted_or_forgotten_while_it_is_open_gives_a_clear_error(
    tmp_path: Path, when: str
) -> None:
    sleeps = Reply(calls=[Call(name="bash", input={"command": "sleep 60"})])
    later = {"asking": WRITES, "calling": sleeps, "idle": Reply(text="Yes.")}[when]
    model = ScriptedModel(lambda request: later if "Go" in request.messages[-1].text else Reply(text="Yes."))
    mode: Any = "ask" if when == "asking" else "bypass"
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(interactive=True, mode=mode)
        with anyio.fail_after(120):
            await session.run_turn("Hello, heron.")
            running = await session.start("Go.")
            if when == "idle":
                await running.result()
            else:
                async for record in session.subscribe(0):
                    if record.event.type == ("question_asked" if when == "asking" else "action"):
                        break
            with pytest.raises(SatchelError, match="open"):
                await satchel.sessions.delete(session.id)
            await satchel.forget(query="heron")
            session.cancel()
            await running.ended()
            assert "heron" not in logged(session).read_text()


@requirement("storage:home-removed")
@pytest.mark.parametrize("when", ["asking", "asking a tool", "calling", "between"])
async def test_a_home_that_disappears_in_the_middle_ends_with_a_clear_error_and_nothing_hangs(
    tmp_path: Path, when: str
) -> None:
    async def wonder(_: Mapping[str, Any], context: ToolContext) -> ToolResult:
        assert context.ask is not None
        return ToolResult(text=str(await context.ask(Question(text="Which?"))))

    tool = function_tool(wonder, name="wonder", description="Wonders.", properties={})
    asks = Call(name="wonder") if when == "asking a tool" else Call(name="bash", input={"command": "echo hi"})
    replies: list[Reply | str] = [Reply(calls=[asks]), "Done."]
    async with opened(tmp_path, ScriptedModel(replies)) as satchel:
        session = await satchel.session(
            interactive=True, tools=[tool], mode="bypass" if when == "calling" else "ask"
        )
        home = tmp_path / "home"
        with anyio.fail_after(120):
            if when == "between":
                shutil.rmtree(home)
                with pytest.raises(SatchelError):
                    await session.run_turn("Hello.")
                return
            running = await session.start("Go.")
            if when == "calling":
                async for record in session.subscribe(0):
                    if record.event.type == "action":
                        break
                shutil.rmtree(home)
            else:
                question = await question_of(session)
                shutil.rmtree(home)
                answers = {"text": "a"} if when == "asking a tool" else {"consent": "once"}
                with pytest.raises(SatchelError, match="removed"):
                    await session.answer(question.id, **answers)  # type: ignore[arg-type]
                session.cancel()
            with pytest.raises(SatchelError, match="removed"):
                await running.result()
