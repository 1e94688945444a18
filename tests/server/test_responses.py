"""The agent behind /v1/responses, for the official client of OpenAI."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import Response

from tests.requirements import requirement
from tests.server.test_attachments import PNG, asked
from tests.server.test_openai import captured
from tests.server.world import WORDS, World, serving

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
def agent(world: World) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{world.url}/v1", api_key=world.token, max_retries=0, timeout=300) as agent:
        yield agent


def place(answer: Any) -> tuple[str, int]:
    about = answer.model_extra["satchel"]
    return about["session_id"], about["turn"]


def streamed(agent: Any, **request: Any) -> list[Any]:
    """The events, each of which is held to the form that OpenAI's package describes."""
    with agent.responses.create(model="satchel", stream=True, **request) as stream:
        events = list(stream)
    for event in events:
        type(event).model_validate(event.model_dump(exclude_unset=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


@requirement("http:openai:responses")
def test_an_answer_has_the_form_that_the_official_client_describes(agent: Any) -> None:
    answer = agent.responses.create(model="satchel", input="Count, please.", instructions="Be brief.")
    Response.model_validate(answer.model_dump(exclude_unset=True))
    assert (answer.status, answer.output_text, answer.instructions) == ("completed", WORDS, "Be brief.")
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0
    echoed = agent.responses.create(model="satchel", input="Your instructions?", instructions="Be brief.")
    assert echoed.output_text == "None None Be brief."


@requirement("http:openai:responses")
def test_a_stream_has_the_same_words_and_items(agent: Any) -> None:
    events = streamed(agent, input="Please echo hello")
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:5] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"
    ]  # fmt: skip
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    # Its own call is Satchel's business; what was said before it is part of the stream.
    assert text == events[-1].response.output_text == "Let me see.\n\nIt is done."
    assert events[-1].response.usage.total_tokens > 0
    assert events[0].response.id == events[-1].response.id


@requirement("http:openai:responses")
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_conversation_goes_on_after_a_response(agent: Any, client: httpx2.Client, is_stream: bool) -> None:
    def respond(**request: Any) -> Any:
        if is_stream:
            return streamed(agent, **request)[-1].response
        return agent.responses.create(model="satchel", **request)

    first = respond(input=f"My bicycle is red ({is_stream}).")
    second = respond(input="It is in the cellar.", previous_response_id=first.id)
    third = respond(input="What was said?", previous_response_id=second.id)
    session, _ = place(first)
    assert [place(one) for one in (first, second, third)] == [(session, 1), (session, 2), (session, 3)]
    assert third.output_text == (
        f"user: My bicycle is red ({is_stream}). | assistant: I see. | user: It is in the cellar. | assistant: I see."
    )
    assert len([line for line in captured(client, session) if line.startswith("user:")]) == 3
    # From an earlier response, the conversation goes on another way, in a session of its own.
    other = respond(input="What was said before?", previous_response_id=first.id)
    assert other.output_text == f"user: My bicycle is red ({is_stream}). | assistant: I see."
    assert place(other)[0] != session
    # It is a branch, so that what is forgotten in the first leaves it too.
    assert client.get(f"/api/sessions/{place(other)[0]}").json()["branch_of"] == session
    assert [line.split(": ")[1] for line in captured(client, place(other)[0])].count("I see.") == 0


@requirement("http:openai:responses")
def test_a_conversation_goes_on_after_a_restart_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    def once(asking: Callable[[Any], Any]) -> Any:
        with (
            serving(tmp_path) as world,
            openai.OpenAI(base_url=f"{world.url}/v1", api_key=world.token, max_retries=0) as agent,
        ):
            return asking(agent)

    first = once(lambda agent: agent.responses.create(model="satchel", input="My bicycle is red."))

    def again(agent: Any) -> Any:
        for more in ({"previous_response_id": "resp_x"}, {"previous_response_id": first.id, "user": "bob"}):
            with pytest.raises(openai.BadRequestError) as missing:
                agent.responses.create(model="satchel", input="Hello", **more)
            assert missing.value.param == "previous_response_id"
            assert missing.value.code == "previous_response_not_found"
        return agent.responses.create(model="satchel", input="And?", previous_response_id=first.id)

    assert place(once(again)) == (place(first)[0], 2)


@requirement("http:openai:responses", "http:openai:tools")
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_whole", [False, True])
def test_the_clients_tools_are_called_by_the_client(agent: Any, is_stream: bool, is_whole: bool) -> None:
    items: list[Any] = [{"role": "user", "content": f"The weather ({is_stream}, {is_whole})?"}]
    request = {"input": items, "tools": [WEATHER, {"type": "web_search"}]}
    if is_stream:
        events = streamed(agent, **request)
        answer = events[-1].response
        done = next(event for event in events if event.type == "response.function_call_arguments.done")
        assert (done.name, done.arguments, done.output_index) == ("get_weather", '{"city": "Bern"}', 1)
    else:
        answer = agent.responses.create(model="satchel", **request)
    said, call = answer.output
    assert (said.content[0].text, call.name, json.loads(call.arguments)) == (
        "One moment.",
        "get_weather",
        {"city": "Bern"},
    )
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    # A client that keeps the history sends the items back; what it reasoned comes with them.
    kept = [{"type": "reasoning", "id": "r", "summary": []}, *(one.model_dump() for one in answer.output)]
    again = (
        {"input": [*items, *kept, result]}
        if is_whole
        else {"input": [result], "previous_response_id": answer.id}
    )
    final = agent.responses.create(model="satchel", tools=[WEATHER], **again)
    assert final.output_text == "It is done."
    assert place(final) == (place(answer)[0], 2)


@requirement("http:openai:responses:stored")
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_response_is_shown_and_referred_to_until_it_is_deleted(
    agent: Any, client: httpx2.Client, is_stream: bool
) -> None:
    def respond(**request: Any) -> Any:
        if is_stream:
            return streamed(agent, **request)[-1].response
        return agent.responses.create(model="satchel", **request)

    asked = {"role": "user", "content": f"Please echo hello{is_stream}"}
    first = respond(input=[asked])
    shown = agent.responses.retrieve(first.id)
    Response.model_validate(shown.model_dump(exclude_unset=True))
    for name in ("id", "created_at", "status", "model", "output", "usage"):
        assert getattr(shown, name) == getattr(first, name)
    assert place(shown) == place(first)

    # A client that only keeps ids sends these instead of the items, and its history is the session's.
    weather = {"role": "user", "content": "The weather?"}
    reference = {"type": "item_reference", "id": first.output[0].id}
    second = respond(input=[asked, reference, weather], tools=[WEATHER])
    assert place(second) == (place(first)[0], 2)
    references = [{"type": "item_reference", "id": one.id} for one in second.output]
    assert [one.type for one in second.output] == ["message", "function_call"]
    result = {"type": "function_call_output", "call_id": second.output[1].call_id, "output": "sunny"}
    third = respond(input=[asked, reference, weather, *references, result], tools=[WEATHER])
    assert (third.output_text, place(third)) == ("It is done.", (place(first)[0], 3))
    assert agent.responses.retrieve(second.id).output == second.output

    for more in ({"user": "bob"}, {}):
        if not more:
            agent.responses.delete(first.id)
        with pytest.raises(openai.BadRequestError) as refused:
            agent.responses.create(model="satchel", input=[asked, reference, weather], **more)
        assert (refused.value.param, refused.value.code) == ("input[1]", "item_not_found")
    for gone in (agent.responses.retrieve, agent.responses.delete):
        with pytest.raises(openai.NotFoundError):
            gone(first.id)
    with pytest.raises(openai.BadRequestError):
        agent.responses.create(model="satchel", input="And?", previous_response_id=first.id)
    # The conversation is the user's, and stays.
    assert client.get(f"/api/sessions/{place(first)[0]}").status_code == 200
    client.delete(f"/api/sessions/{place(first)[0]}")
    with pytest.raises(openai.NotFoundError):
        agent.responses.retrieve(second.id)


@requirement("http:openai:responses")
def test_what_an_agent_adds_in_the_users_role_is_not_what_the_user_says(
    agent: Any, client: httpx2.Client
) -> None:
    added = "<environment_context>\n  <cwd>/home/ann</cwd>\n</environment_context>"
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "input_text", "text": added}]},
        {"role": "user", "content": [{"type": "input_text", "text": "My canoe is green."}]},
    ]
    answer = agent.responses.create(model="satchel", input=items)
    assert captured(client, place(answer)[0]) == ["assistant: I see.", "user: My canoe is green."]


@requirement("http:openai:responses")
def test_a_picture_reaches_the_model(agent: Any, world: World, client: httpx2.Client) -> None:
    address = f"data:image/png;base64,{b64encode(PNG).decode()}"
    parts = [
        # Codex puts a picture between tags, which the user didn't say.
        {"type": "input_text", "text": '<image name=[Image #1] path="../a/canoe.png">'},
        {"type": "input_image", "image_url": address},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "What is it in the harbour?"},
        {"type": "input_text", "text": "</image>"},
    ]
    answer = agent.responses.create(model="satchel", input=[{"role": "user", "content": parts}])
    (file,) = asked(world, "What is it in the harbour?")
    assert (file.name, file.media_type, file.size) == ("canoe.png", "image/png", len(PNG))
    assert "user: What is it in the harbour?\n</image>" in captured(client, place(answer)[0])


@requirement("http:openai:responses")
def test_a_format_a_choice_and_parameters_reach_the_model(agent: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    formed = agent.responses.create(
        model="satchel",
        input="Your instructions?",
        text={"format": {"type": "json_schema", "name": "x", "schema": schema}},
    )
    assert '"properties"' in formed.output_text
    chosen = agent.responses.create(
        model="satchel",
        input="Your options?",
        tools=[WEATHER],
        tool_choice={"type": "function", "name": "get_weather"},
        top_p=0.5,
    )
    assert json.loads(chosen.output_text) == {"tool_choice": "get_weather", "top_p": 0.5}


@requirement("http:openai:responses", "http:openai:errors")
@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}]},
         "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f1"}]}]},
         "input[0].content[0]"),
        ({"input": [{"role": "developer", "content": [{"type": "input_image", "image_url": "data:image/png;base64,eA=="}]}]},
         "input[0].content"),
        ({"input": [{"type": "function_call_output", "call_id": "no", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
    ],
)  # fmt: skip
def test_what_can_not_be_honoured_is_refused_by_name(agent: Any, more: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        agent.responses.create(**{"model": "satchel", "input": "Hello", **more})
    assert refused.value.param == param


@requirement("http:openai:responses", "http:openai:errors")
def test_a_turn_that_fails_is_an_exception_or_the_last_event(agent: Any) -> None:
    with pytest.raises(openai.InternalServerError, match="refused the request"):
        agent.responses.create(model="satchel", input="Please fail")
    last = streamed(agent, input="Please fail")[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert "refused the request" in last.response.error.message


@requirement("http:openai:responses", "http:openai:errands", "http:openai:ephemeral")
def test_errands_and_the_ephemeral_model_leave_nothing(agent: Any, client: httpx2.Client) -> None:
    before = client.get("/api/sessions").headers["x-total-count"]
    for model, words in (("satchel", "Generate a title for this conversation:"), ("satchel-ephemeral", "Hi")):
        answer = agent.responses.create(model=model, input=words)
        assert (answer.output_text, answer.store) == ("I see.", False)
    assert client.get("/api/sessions").headers["x-total-count"] == before
