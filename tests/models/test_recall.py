"""Answers without a language model, and the scripted double."""

from __future__ import annotations

import anyio
import pytest

from satchel.errors import ModelAuthError, ModelUnavailable
from satchel.events import TextDelta, ThinkingDelta, ToolInputDelta
from satchel.messages import Message, TextBlock, ThinkingBlock, ToolUseBlock, Usage
from satchel.models import Call, ModelRequest, RecallModel, Reply, Retrying, ScriptedModel
from satchel.models.recall import HOW_TO_ADD_A_MODEL
from tests.models.loopback import ask, request, user
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

LINE = '- 2026-01-02, user, session s-1 turn 3: "My sister Mara is allergic to shellfish."'
OTHER = '- 2026-01-03, user, session s-2 turn 1: "Mara likes figs."'
MEMORY = f"<satchel-memory>\nFrom earlier conversations: facts to weigh.\n{LINE}\n{OTHER}\n</satchel-memory>"


def remembering(text: str, memory: str = MEMORY) -> Message:
    return Message(role="user", blocks=(TextBlock(text=text), TextBlock(text=memory, origin="memory")))


async def answer(*history: Message) -> str:
    events, completion = await ask(RecallModel(), request(*history))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == completion.message.text
    assert (completion.provider, completion.model, completion.stop_reason) == ("none", "recall", "end_turn")
    assert completion.usage == Usage(cost_usd=0.0)
    return completion.message.text


def told(text: str) -> Message:
    return Message(role="assistant", blocks=(TextBlock(text=text),))


@requirement("models:none:answers")
async def test_a_question_is_answered_with_the_memories_that_fit_quoted_with_their_sources() -> None:
    assert await answer(remembering("What should I keep in mind for Mara?")) == (
        f"This is what I remember:\n{LINE}\n{OTHER}\n\n{HOW_TO_ADD_A_MODEL}"
    )


@requirement("models:none:answers")
async def test_when_nothing_fits_it_says_so_and_how_to_add_a_model_once() -> None:
    first = await answer(user("What is the capital of France?"))
    assert first == f"I remember nothing that fits.\n\n{HOW_TO_ADD_A_MODEL}"
    assert "\n" not in HOW_TO_ADD_A_MODEL
    later = await answer(user("What is it?"), told(first), user("Who is Mara?"))
    assert later == "I remember nothing that fits."


async def test_where_nothing_could_be_looked_up_it_says_that() -> None:
    why = TextBlock(text="Memory is not available now.", origin="notice")
    for said in ("Who is Mara?", "Mara is my sister."):
        asked = Message(role="user", blocks=(TextBlock(text=said), why))
        assert await answer(told(HOW_TO_ADD_A_MODEL), asked) == "Memory is not available now."


async def test_a_statement_is_acknowledged_and_not_answered() -> None:
    assert (
        await answer(told(HOW_TO_ADD_A_MODEL), user("My sister Mara is allergic to shellfish.")) == "Noted."
    )
    related = await answer(told(HOW_TO_ADD_A_MODEL), remembering("Mara comes on Sunday."))
    assert related == f"Noted. It brings back:\n{LINE}\n{OTHER}"


@pytest.mark.parametrize(
    "text",
    [
        "who is Mara",
        "Tell me about Mara",
        "And Mara?",
        'What did she say: "no"',
        "Was weißt du über Mara",
        "¿Qué come Mara?",
    ],
)
async def test_questions_are_known_with_and_without_their_mark(text: str) -> None:
    assert (await answer(told(HOW_TO_ADD_A_MODEL), remembering(text))).startswith("This is what I remember:")


async def test_only_the_newest_message_is_read() -> None:
    history = (remembering("Who is Mara?"), told(HOW_TO_ADD_A_MODEL), user("Who is Ann?"))
    assert await answer(*history) == "I remember nothing that fits."


async def test_memory_in_any_other_form_is_quoted_whole() -> None:
    assert LINE not in await answer(remembering("Who is Mara?", "Mara is a sister."))
    assert "Mara is a sister." in await answer(remembering("Who is Mara?", "Mara is a sister."))


@requirement("models:scripted")
async def test_a_scripted_model_says_its_replies_in_pieces_and_records_what_it_was_asked() -> None:
    barrier, waited = anyio.Event(), 0

    async def between() -> None:
        nonlocal waited
        waited += 1

    async def reply(asked: ModelRequest) -> Reply:
        return Reply(
            thinking="Hm.",
            signature="proof",
            text="Hello",
            calls=[Call(name="look", input={"at": "a"}), Call(name="look", input="{oops", id="mine")],
            chunk=3,
            before=barrier.wait,
            between=between,
            retrying=[Retrying(attempt=1, delay_s=0.5, reason="busy")],
            usage=Usage(input_tokens=1, output_tokens=2),
        )

    model = ScriptedModel(reply, provider="p", model="m", context_window=99)
    barrier.set()
    events, completion = await ask(model, request())
    assert events[:4] == [
        Retrying(attempt=1, delay_s=0.5, reason="busy"),
        ThinkingDelta(text="Hm."),
        TextDelta(text="Hel"),
        TextDelta(text="lo"),
    ]
    assert [
        event.text for event in events if isinstance(event, ToolInputDelta) and event.call_id == "mine"
    ] == [
        "{oo",
        "ps",
    ]
    assert completion.blocks == (
        ThinkingBlock(text="Hm.", signature="proof"),
        TextBlock(text="Hello"),
        ToolUseBlock(id="call_1", name="look", input={"at": "a"}),
        ToolUseBlock(id="mine", name="look", input=None, unparsed="{oops"),
    )
    assert (completion.stop_reason, completion.usage) == ("tool_use", Usage(input_tokens=1, output_tokens=2))
    assert (model.provider, model.model, model.context_window) == ("p", "m", 99)
    assert model.requests == [request()]
    assert waited == len(events) - 2
    await model.aclose()
    assert model.is_closed


@requirement("models:scripted")
async def test_a_scripted_model_fails_where_its_script_says() -> None:
    wrong = ModelAuthError("No.")
    model = ScriptedModel([wrong, Reply(text="Half", cut=True), Reply(text="Half", error=wrong), "Whole"])
    with pytest.raises(ModelAuthError):
        await ask(model, request())
    for error in (ModelUnavailable, ModelAuthError):
        shown = []
        with pytest.raises(error):  # noqa: PT012  what came before the error is looked at
            async for event in model.stream(request()):
                shown.append(event)  # noqa: PERF401
        assert shown == [TextDelta(text="Half")]
    _, completion = await ask(model, request())
    assert completion.message.text == "Whole"
    with pytest.raises(ModelUnavailable, match="was asked for one more"):
        await ask(model, request())
