"""The agent as a model for the official client of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from satchel.errors import ModelRejected
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from tests.requirements import requirement
from tests.server.world import WORDS, World, serving

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture
def agent(world: World) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{world.url}/v1", api_key=world.token, max_retries=0, timeout=300) as agent:
        yield agent


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def ask(agent: Any, messages: list[Any], **more: Any) -> Any:
    """Ask in one piece; `messages` grows by the answer, as a client keeps it."""
    answer = agent.chat.completions.create(model="satchel", messages=messages, **more)
    messages.append(answer.choices[0].message.model_dump(exclude_none=True))
    return answer


def captured(client: httpx2.Client, session: str) -> list[str]:
    found = client.get("/api/memories", params={"session": session, "limit": 100}).json()
    return sorted(f"{one['speaker']}: {one['content']}" for one in found)


TASKS = [
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n### Guidelines:\n- The "
    'title should be short.\n### Output:\nJSON format: { "title": "…" }\n### Chat History:\n<chat_history>\nUSER: I keep '
    "bees.\n</chat_history>",
    "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history.\n\n### Guidelines:\n- Start "
    "with high-level domains\n",
    "Provide a concise, 5-word-or-less title for the conversation, using title case conventions. Only return the title "
    "itself.\n\nConversation:\nUser: I keep bees.",
]


@requirement("sessions:programs")
def test_what_a_program_asks_for_itself_is_no_conversation(agent: Any, world: World) -> None:
    with world.client() as client:

        def known() -> set[str]:
            return {one["id"] for one in client.get("/api/sessions", params={"limit": 1000}).json()}

        before, memories = known(), client.get("/api/memories", params={"limit": 1000}).json()
        for task in TASKS:
            assert ask(agent, [user(task)]).choices[0].message.content
        assert known() == before
        assert client.get("/api/memories", params={"limit": 1000}).json() == memories
        # Words of the user that only look like it are a conversation.
        ask(agent, [user("### Task:\nRead my notes and say what the title could be.")])
        assert len(known() - before) == 1


@requirement("sessions:programs", "cli:ask:session")
def test_the_last_conversation_is_not_one_that_a_program_holds(agent: Any, client: httpx2.Client) -> None:
    own = client.post("/api/sessions", json={}).json()["id"]
    client.post("/api/chat", json={"session_id": own, "message": "Count, please."}).raise_for_status()
    ask(agent, [user("I am said by a program.")])
    assert client.post("/api/sessions", json={"last": True}).json()["id"] == own


@requirement("http:openai:client")
def test_the_official_client_gets_an_answer_and_the_models(agent: Any, world: World) -> None:
    answer = agent.chat.completions.create(model="satchel", messages=[user("Count, please.")])
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", WORDS, "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    names = [model.id for model in agent.models.list()]
    assert names == ["satchel", "satchel-ephemeral", "scripted:scripted"]
    assert agent.models.retrieve("satchel").id == "satchel"
    with pytest.raises(openai.NotFoundError):
        agent.models.retrieve("gpt-4o")


@requirement("http:openai:client")
def test_a_stream_has_the_same_words_and_the_usage_if_it_is_wanted(agent: Any) -> None:
    with agent.chat.completions.stream(
        model="satchel", messages=[user("Please echo hello")], stream_options={"include_usage": True}
    ) as stream:
        texts = [event.delta for event in stream if event.type == "content.delta"]
        answer = stream.get_final_completion()
    # Its own call is Satchel's business; what was said before it is part of the stream.
    assert "".join(texts) == answer.choices[0].message.content == "Let me see.\n\nIt is done."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.tool_calls is None
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0
    plain = list(agent.chat.completions.create(model="satchel", messages=[user("Count")], stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in plain) == WORDS
    assert [chunk.usage for chunk in plain] == [None] * len(plain)
    assert plain[-1].choices[0].finish_reason == "stop"


@requirement("http:openai:sessions")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_history_that_is_sent_again_goes_on_in_its_session_and_is_captured_once(
    agent: Any, client: httpx2.Client, streamed: bool
) -> None:
    said = "streamed" if streamed else "whole"
    messages = [user(f"My bicycle is red ({said}).")]
    sessions = []
    for words in (f"It stands in the cellar ({said}).", f"What was said before ({said})?"):
        if streamed:
            chunks = list(agent.chat.completions.create(model="satchel", messages=messages, stream=True))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            extra = chunks[-1].model_extra or {}
            # Clients trim what they keep.
            messages.append({"role": "assistant", "content": f"{text} \n"})
        else:
            extra = ask(agent, messages).model_extra or {}
        sessions.append((extra["satchel"]["session_id"], extra["satchel"]["turn"]))
        messages.append(user(words))
    answer = ask(agent, messages)
    sessions.append((answer.model_extra["satchel"]["session_id"], answer.model_extra["satchel"]["turn"]))
    session = sessions[0][0]
    assert sessions == [(session, 1), (session, 2), (session, 3)]
    assert answer.choices[0].message.content == (
        f"user: My bicycle is red ({said}). | assistant: I see. | user: It stands in the cellar ({said}). | "
        "assistant: I see."
    )
    assert captured(client, session) == sorted(
        [
            f"user: My bicycle is red ({said}).",
            f"user: It stands in the cellar ({said}).",
            f"user: What was said before ({said})?",
            "assistant: I see.",
            "assistant: I see.",
            f"assistant: {answer.choices[0].message.content}",
        ]
    )


@requirement("http:openai:sessions")
def test_an_edited_history_begins_a_session_that_has_all_of_it_and_captures_only_what_is_new(
    agent: Any, client: httpx2.Client
) -> None:
    messages = [
        user("My boat is blue."),
        {"role": "assistant", "content": "A fine colour."},
        user("And my sail is white."),
        {"role": "assistant", "content": "Like a cloud."},
        user("What was said so far?"),
    ]
    answer = ask(agent, messages)
    assert answer.choices[0].message.content == (
        "user: My boat is blue. | assistant: A fine colour. | user: And my sail is white. | "
        "assistant: Like a cloud."
    )
    session = answer.model_extra["satchel"]["session_id"]
    assert [line.split(":")[0] for line in captured(client, session)] == ["assistant", "user"]
    shown = client.get(f"/api/sessions/{session}").json()
    assert [event["turn"] for event in shown["events"] if event["type"] == "turn_start"] == [1, 2, 3]
    # The same conversation of another user of the client is another session.
    other = agent.chat.completions.create(model="satchel", messages=[*messages, user("Yes")], user="bob")
    assert other.model_extra["satchel"]["session_id"] != session


@requirement("http:openai:sessions")
def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    messages = [user("My bicycle is red.")]

    def once(words: str | None) -> str:
        if words is not None:
            messages.append(user(words))
        with (
            serving(tmp_path) as world,
            openai.OpenAI(base_url=f"{world.url}/v1", api_key=world.token) as agent,
        ):
            return str(ask(agent, messages).model_extra["satchel"]["session_id"])

    assert once(None) == once("And my car is green.")


@requirement("http:openai:sessions")
def test_an_answer_that_did_not_arrive_is_fetched_by_the_retry(client: httpx2.Client) -> None:
    body = {"messages": [user("Count for the retry")]}
    first = client.post("/v1/chat/completions", json=body).json()
    again = client.post("/v1/chat/completions", json=body, headers={"x-stainless-retry-count": "1"}).json()
    assert again["satchel"]["session_id"] == first["satchel"]["session_id"]
    assert again["choices"] == first["choices"]
    # Without that header it is a wish for another answer: another session, and the words are captured once.
    other = client.post("/v1/chat/completions", json=body).json()["satchel"]["session_id"]
    assert other != first["satchel"]["session_id"]
    assert captured(client, other) == []


@requirement("http:openai:ephemeral")
def test_the_ephemeral_model_leaves_nothing(agent: Any, client: httpx2.Client) -> None:
    before = client.get("/api/memories/stats").json(), client.get("/api/sessions").headers["x-total-count"]
    answer = agent.chat.completions.create(
        model="satchel-ephemeral", messages=[user("A secret plan about the harbour.")]
    )
    assert answer.choices[0].message.content == "I see."
    after = client.get("/api/memories/stats").json(), client.get("/api/sessions").headers["x-total-count"]
    assert after == before


@requirement("http:openai:tools")
@pytest.mark.parametrize("streamed", [False, True])
def test_the_clients_own_tools_are_called_by_the_client_and_the_turn_goes_on(
    agent: Any, streamed: bool
) -> None:
    messages = [user(f"What is the weather? ({streamed})")]
    if streamed:
        with agent.chat.completions.stream(model="satchel", messages=messages, tools=[WEATHER]) as stream:
            answer: Any = stream.get_final_completion()
        messages.append(answer.choices[0].message.model_dump(exclude_none=True))
    else:
        answer = ask(agent, messages, tools=[WEATHER])
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "One moment.")
    call = choice.message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Bern"}')
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
    final = ask(agent, messages, tools=[WEATHER])
    assert final.choices[0].message.content == "It is done."
    assert final.choices[0].finish_reason == "stop"
    assert final.model_extra["satchel"]["turn"] == 2
    # Satchel's own tools are there beside it.
    messages.append(user("Please echo hello"))
    assert ask(agent, messages, tools=[WEATHER]).choices[0].message.content == "It is done."
    ignored = agent.chat.completions.create(
        model="satchel", messages=[user("What is the weather?")], tools=[WEATHER], tool_choice="none"
    )
    assert ignored.choices[0].message.content == "I see."


@requirement("http:openai:tools")
def test_a_tool_of_the_client_replaces_satchels_own_of_the_same_name(agent: Any) -> None:
    bash = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    many = [{**bash, "function": {"name": f"tool_{n}"}} for n in range(60)]
    answer = ask(agent, [user("Please echo hello")], tools=[*many, bash])
    assert answer.choices[0].finish_reason == "tool_calls"
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["bash"]


@requirement("http:openai:tools")
def test_results_for_a_history_that_is_not_known_are_taken_too(agent: Any) -> None:
    call = {
        "id": "x9",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'},
    }
    messages = [
        user("How is it in Rome?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x9", "content": "rain"},
    ]
    assert ask(agent, messages, tools=[WEATHER]).choices[0].message.content == "It is done."


@requirement("http:openai:parameters")
def test_instructions_and_sampling_reach_the_model(agent: Any) -> None:
    messages = [
        {"role": "system", "content": "Answer like a pirate."},
        user("Repeat your instructions"),
    ]
    answer = ask(agent, messages, temperature=0.5, max_tokens=77)
    assert answer.choices[0].message.content == "0.5 77 Answer like a pirate."
    # Other instructions hold from the next request on, in the same session.
    messages[0] = {"role": "developer", "content": "Answer like a monk."}
    messages.append(user("Repeat your instructions again"))
    second = ask(agent, messages)
    assert second.choices[0].message.content == "None None Answer like a monk."
    assert second.model_extra["satchel"]["session_id"] == answer.model_extra["satchel"]["session_id"]
    schema = {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    formed = agent.chat.completions.create(
        model="satchel",
        messages=[user("Repeat your instructions")],
        response_format={"type": "json_schema", "json_schema": schema},
    )
    assert '"properties"' in (formed.choices[0].message.content or "")


@requirement("http:openai:parameters")
@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"7": 1}}, "logit_bias"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "bash"}}}, "tool_choice"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"tools": [{"type": "function", "function": {"parameters": {}}}]}, "tools[0]"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "tool", "tool_call_id": "no", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
         "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ],
)  # fmt: skip
def test_unsupported_parameters_are_refused_by_name(agent: Any, more: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        agent.chat.completions.create(**{"model": "satchel", "messages": [user("Hello")], **more})
    assert refused.value.param == param
    assert refused.value.type == "invalid_request_error"
    assert refused.value.code


@requirement("http:openai:parameters")
@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        ({"top_p": 0.3, "seed": 0}, {"top_p": 0.3, "seed": 0}),
        ({"stop": "END"}, {"stop": ["END"]}),
        ({"stop": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"presence_penalty": 1, "frequency_penalty": -1}, {"presence_penalty": 1, "frequency_penalty": -1}),
        ({"tools": [WEATHER], "tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
          "parallel_tool_calls": False}, {"tool_choice": "get_weather", "parallel_tool_calls": False}),
        ({"n": 1, "top_p": 1, "presence_penalty": 0, "stop": [], "parallel_tool_calls": True}, {}),
    ],
)  # fmt: skip
def test_parameters_reach_a_model_that_knows_them(
    agent: Any, sent: dict[str, Any], passed: dict[str, Any]
) -> None:
    answer = agent.chat.completions.create(model="satchel", messages=[user("Your options?")], **sent)
    options = json.loads(answer.choices[0].message.content)
    assert options == passed


@requirement("http:openai:parameters")
def test_parameters_that_the_model_does_not_know_or_its_endpoint_refuses_are_refused_by_name(
    tmp_path: Path,
) -> None:
    class Plain(ScriptedModel):
        options = frozenset({"top_p"})

    def refusing(_: ModelRequest) -> str:
        raise ModelRejected("Unsupported parameter: 'top_p'.")

    with (
        serving(tmp_path, lambda _: Plain(refusing)) as world,
        openai.OpenAI(base_url=f"{world.url}/v1", api_key=world.token, max_retries=0) as agent,
    ):
        for name, value in (("seed", 7), ("stop", ["x"]), ("top_p", 0.5)):
            with pytest.raises(openai.BadRequestError) as refused:
                ask(agent, [user("Hello")], **{name: value})
            assert refused.value.param == name


@requirement("http:openai:parameters", "http:openai:tools")
def test_a_forced_choice_holds_until_a_tool_of_the_client_is_called(tmp_path: Path) -> None:
    own, clients = (
        Call(name="bash", input={"command": "echo hi"}),
        Call(name="get_weather", input={"city": "Bern"}),
    )
    model = ScriptedModel([Reply(calls=[own]), Reply(calls=[clients])])
    with (
        serving(tmp_path, lambda _: model) as world,
        openai.OpenAI(base_url=f"{world.url}/v1", api_key=world.token, max_retries=0) as agent,
    ):
        answer = ask(agent, [user("The weather?")], tools=[WEATHER], tool_choice="required")
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["get_weather"]
    assert [request.options for request in model.requests] == [{"tool_choice": "required"}] * 2


@requirement("http:openai:parameters")
def test_a_stream_with_a_format_has_nothing_but_the_last_words(agent: Any) -> None:
    with agent.chat.completions.stream(
        model="satchel",
        messages=[user("Please echo hello")],
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    ) as stream:
        texts = [event.delta for event in stream if event.type == "content.delta"]
    assert "".join(texts) == "It is done."


ERRANDS = {
    "open-webui:title": "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n### G",
    "open-webui:tags": "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history, along with 1-3",
    "open-webui:follow-ups": "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might naturally "
    "ask next in this conversation as a **user**, based on the chat history, to help continue the discussion.\n###",
    "open-webui:queries": "### Task:\nAnalyze the chat history to determine the necessity of generating search queries, in",
    "opencode": "Generate a title for this conversation:\n",
    "librechat": "Provide a concise, 5-word-or-less title for the conversation, using title case conventions. Only",
    "librechat-structured": "Analyze this conversation and provide:\n1. The detected language of the conversation\n"
    "2. A concise title in the detected language (5 words or less, no punctuation or quotation)\n\nUser: Hello",
    "zed": "Generate a concise 3-7 word title for this conversation, omitting punctuation. Go straight to the title,",
    "chatbox": "Based on the chat history, give this conversation a name. Keep it short - 10 characters max, no quotes.",
}
"""How the prompts of these programs begin."""


@requirement("http:openai:errands")
@pytest.mark.parametrize("program", ERRANDS)
def test_what_a_program_asks_on_its_own_is_answered_and_not_kept(
    agent: Any, client: httpx2.Client, program: str
) -> None:
    def kept() -> tuple[Any, Any]:
        stats = client.get("/api/memories/stats").json()
        return stats["memories"], client.get("/api/sessions").headers["x-total-count"]

    messages = [user(f"My kettle whistles ({program}).")]
    session = ask(agent, messages).model_extra["satchel"]["session_id"]
    before = kept()
    quoted = f"<chat_history>\nUSER: My kettle whistles ({program}).\n</chat_history>"
    for asked in (
        [user(ERRANDS[program]), user(quoted)],
        [user(f"{ERRANDS[program]}\n{quoted}")],
        [*messages, user(ERRANDS[program])],
    ):
        answer = agent.chat.completions.with_raw_response.create(model="satchel", messages=asked)
        assert answer.parse().choices[0].message.content == "I see."
        assert "x-satchel-session" not in answer.headers
    assert kept() == before
    # The conversation goes on where it was.
    messages.append(user("It is made of steel."))
    assert ask(agent, messages).model_extra["satchel"]["session_id"] == session


@requirement("http:openai:errands")
@pytest.mark.parametrize(
    ("words", "tools"),
    [
        ("Write the title of my book on the cover.", []),
        ("I gave the chat with Bob a title.", []),
        ("What is the title of this conversation?", []),
        ("Suggest follow-up questions for my interview. We had a chat.", []),
        ("Generate a title for this conversation.", [WEATHER]),
    ],
)
def test_what_a_user_says_of_titles_is_kept(agent: Any, words: str, tools: list[Any]) -> None:
    more = {"tools": tools} if tools else {}
    answer = agent.chat.completions.with_raw_response.create(model="satchel", messages=[user(words)], **more)
    assert answer.headers["x-satchel-session"]


@requirement("http:openai:embeddings")
def test_texts_are_embedded_by_the_embedder_of_memory(agent: Any, world: World) -> None:
    texts = ["The boat is blue.", "The boat is blue.", "A recipe for soup."]
    # The official client asks for base64 by itself.
    packed = agent.embeddings.create(model="satchel", input=texts)
    plain = agent.embeddings.create(model=packed.model, input=texts, encoding_format="float")
    vectors = [one.embedding for one in packed.data]
    assert vectors == [one.embedding for one in plain.data]
    assert vectors[0] == vectors[1] != vectors[2]
    embedder: Any = world.satchel.home.embedder
    assert vectors == world.call(embedder.embed, texts, "document").tolist()
    assert packed.usage.total_tokens > 0
    one = agent.embeddings.create(model="satchel", input=texts[0], dimensions=len(vectors[0]))
    assert [found.embedding for found in one.data] == vectors[:1]


@requirement("http:openai:embeddings", "http:openai:errors")
@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": [[1, 2]]}, "input"),
        ({"input": []}, "input"),
        ({"input": [""]}, "input"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": "x" * 1_200_001}, "input"),
        ({"dimensions": 7}, "dimensions"),
        ({"model": "text-embedding-3-small"}, "model"),
    ],
)
def test_what_an_embedder_can_not_do_is_refused_by_name(agent: Any, more: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        agent.embeddings.create(**{"model": "satchel", "input": "x", **more})
    assert refused.value.status_code == (404 if param == "model" else 400)
    assert refused.value.param == param


@requirement("http:openai:embeddings", "http:openai:errors")
def test_without_an_embedder_and_for_sound_the_refusal_says_so(tmp_path: Path) -> None:
    with (
        serving(tmp_path, memory__embedder="none") as world,
        openai.OpenAI(base_url=f"{world.url}/v1", api_key=world.token, max_retries=0) as agent,
    ):
        with pytest.raises(openai.BadRequestError, match="memory.embedder"):
            agent.embeddings.create(model="satchel", input="x")
        with pytest.raises(openai.NotFoundError, match="audio/speech"):
            agent.audio.speech.create(model="satchel", voice="alloy", input="x")
        with pytest.raises(openai.NotFoundError, match="audio/transcriptions"):
            agent.audio.transcriptions.create(model="satchel", file=("a.wav", b"RIFF"))


@requirement("http:openai:parameters")
def test_unknown_fields_and_neutral_values_are_taken(agent: Any) -> None:
    answer = agent.chat.completions.create(
        model="satchel",
        messages=[{"role": "user", "content": [{"type": "text", "text": "Count"}], "name": "ann"}],
        n=1,
        top_p=1,
        presence_penalty=0,
        logprobs=False,
        extra_body={"a_new_field": {"x": 1}},
    )
    assert answer.choices[0].message.content == WORDS


@requirement("http:openai:errors")
def test_errors_are_the_exceptions_of_the_official_client(agent: Any, world: World) -> None:
    def asking(client: Any, text: str = "Hello", **more: Any) -> None:
        client.chat.completions.create(**{"model": "satchel", "messages": [user(text)], **more})

    with (
        openai.OpenAI(base_url=f"{world.url}/v1", api_key="sk-wrong", max_retries=0, timeout=300) as stranger,
        pytest.raises(openai.AuthenticationError) as unknown,
    ):
        asking(stranger)
    assert unknown.value.code == "invalid_api_key"
    assert world.token not in str(unknown.value)
    for name in ("gpt-4o", "nosuch:model"):
        with pytest.raises(openai.NotFoundError) as missing:
            asking(agent, model=name)
        assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        asking(agent, temperature=9)
    with pytest.raises(openai.BadRequestError):
        asking(agent, " ")
    with pytest.raises(openai.InternalServerError) as failed:
        asking(agent, "Please fail")
    assert "refused the request" in str(failed.value)
    with pytest.raises(openai.APIError, match="refused the request"):
        list(agent.chat.completions.create(model="satchel", messages=[user("Please fail")], stream=True))


@requirement("http:openai:errors", "http:hostile")
@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"\xff\xfe", 400), (b"[]", 400), (b'{"messages": []}', 400), (b"null", 400),
     (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 200), (b"[" * 100_000, 400)],
)  # fmt: skip
def test_hostile_bodies_get_an_error_in_the_clients_form(
    client: httpx2.Client, body: bytes, status: int
) -> None:
    answer = client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    if status != 200:
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert client.get("/v1/nothing").json()["error"]["type"] == "not_found_error"
    wrong = client.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "invalid_request_error")
