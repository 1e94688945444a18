"""Servers that have the user's model answer something: asked of the user, bounded, refused where it must be."""

from __future__ import annotations

import json
from typing import Literal

import anyio
import pytest

from satchel.errors import BudgetExceeded
from satchel.tools import Question
from satchel.tools.mcp import Sampled, SamplingRequest
from satchel.tools.mcp.sampling import read_sampling
from tests.requirements import requirement
from tests.tools.mcp.conftest import Open, Servers, stranger

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("behaviour", ["samples", "modern-samples"])


class Answering:
    """A sampler that says what it was asked; its rule is fixed."""

    def __init__(self, consent: Literal["allow", "ask", "deny"] = "ask") -> None:
        self.requests: list[SamplingRequest] = []
        self.rules: list[tuple[str, str]] = []
        self._consent = consent

    async def consent(self, rule_name: str, *, session_id: str) -> Literal["allow", "ask", "deny"]:
        self.rules.append((rule_name, session_id))
        return self._consent

    async def sample(self, request: SamplingRequest, *, session_id: str) -> Sampled:
        self.requests.append(request)
        return Sampled(text=f"Bonn, says {session_id}", model="scripted")


class Broke(Answering):
    async def sample(self, request: SamplingRequest, *, session_id: str) -> Sampled:
        raise BudgetExceeded("The budget of the session is spent.")


async def asked_for_an_answer(servers: Servers, words: str | None = "allow") -> tuple[str, list[Question]]:
    questions: list[Question] = []

    async def ask(question: Question) -> str | None:
        questions.append(question)
        return words

    return (await servers.call("mcp__x__work", ask=ask)).text, questions


@requirement("mcp:sampling")
@BOTH
async def test_a_server_gets_an_answer_of_the_model_where_the_user_allows_it(
    open_servers: Open, behaviour: str
) -> None:
    sampler = Answering()
    async with open_servers(stranger(behaviour), sampler=sampler) as servers:
        text, questions = await asked_for_an_answer(servers)
    answer = json.loads(text)
    assert (answer["content"]["text"], answer["model"], answer["stopReason"]) == (
        "Bonn, says s1",
        "scripted",
        "endTurn",
    )
    assert questions == [
        Question(
            text="The MCP server 'x' asks your model, at your cost, for an answer of at most 4,000 tokens to this:\n"
            "[system] Be short.\n[user] Which<U+200B> city?\nAnswer 'allow' or 'decline'. The server gets the answer.",
            options=("allow", "decline"),
        )
    ]
    (request,) = sampler.requests
    assert (request.max_tokens, request.temperature, request.messages[0].text) == (
        4_000,
        0.5,
        "Which<U+200B> city?",
    )
    assert sampler.rules == [("mcp__x__sampling", "s1")]


@requirement("mcp:sampling")
@BOTH
@pytest.mark.parametrize("words", ["no", "", None, "allow me to think"])
async def test_a_server_gets_nothing_where_the_user_declines(
    open_servers: Open, behaviour: str, words: str | None
) -> None:
    sampler = Answering()
    async with open_servers(stranger(behaviour), sampler=sampler) as servers:
        text, _ = await asked_for_an_answer(servers, words)
    assert "the user declined" in text
    assert sampler.requests == []


@requirement("mcp:sampling")
async def test_a_rule_decides_without_asking(open_servers: Open) -> None:
    async with open_servers(stranger("samples"), sampler=Answering("allow")) as servers:
        text, questions = await asked_for_an_answer(servers)
        assert (json.loads(text)["model"], questions) == ("scripted", [])
    async with open_servers(stranger("samples"), sampler=Answering("deny")) as servers:
        text, questions = await asked_for_an_answer(servers)
        assert ("a rule denies it: mcp__x__sampling" in text, questions) == (True, [])


@requirement("mcp:sampling")
async def test_it_is_refused_where_nobody_can_be_asked_where_there_is_no_model_and_where_it_fails(
    open_servers: Open,
) -> None:
    async with open_servers(stranger("samples"), sampler=Answering()) as servers:
        text = (await servers.call("mcp__x__work")).text
        assert text.startswith(
            "[The MCP server x asked for an answer of the model: nobody can be asked whether it may (a rule that "
            "allows mcp__x__sampling would).]"
        )
    async with open_servers(stranger("samples")) as servers:
        text, _ = await asked_for_an_answer(servers)
        assert "there is no conversation whose model could answer" in text
    async with open_servers(stranger("samples"), sampler=Broke("allow")) as servers:
        text, _ = await asked_for_an_answer(servers)
        assert "the model did not answer: The budget of the session is spent" in text


@requirement("mcp:sampling")
async def test_one_call_gets_five_answers_at_most(open_servers: Open) -> None:
    sampler = Answering("allow")
    async with open_servers(stranger("samples-much"), sampler=sampler) as servers:
        text, _ = await asked_for_an_answer(servers)
    assert len(sampler.requests) == 5
    assert "it has had 5 answers in this call" in text


@requirement("mcp:sampling")
async def test_one_session_gets_fifty_answers_at_most(open_servers: Open) -> None:
    sampler = Answering("allow")
    async with open_servers(stranger("samples-much"), sampler=sampler) as servers:
        tool = await servers.tool("mcp__x__work")
        for _ in range(10):
            await tool.call({}, servers.context(session_id="s1"))
        refused = await tool.call({}, servers.context(session_id="s1"))
        assert "it has had 0 answers in this call and 50 in this session" in refused.text
        assert len(sampler.requests) == 50
        await tool.call({}, servers.context(session_id="s2"))
        assert len(sampler.requests) == 55


@requirement("mcp:sampling", "mcp:elicitation")
@pytest.mark.parametrize("behaviour", ["samples-when-two", "asks-when-two"])
async def test_a_server_that_does_not_say_for_which_of_two_sessions_it_asks_is_refused(
    open_servers: Open, behaviour: str
) -> None:
    sampler = Answering("allow")
    asked: list[Question] = []

    async def ask(question: Question) -> str:
        asked.append(question)
        return "Bonn"

    async with open_servers(stranger(behaviour), sampler=sampler) as servers:
        tool = await servers.tool("mcp__x__work")
        texts: list[str] = []

        async def call(session_id: str) -> None:
            result = await tool.call({}, servers.context(session_id=session_id, ask=ask))
            texts.append(result.text)

        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                group.start_soon(call, "s1")
                group.start_soon(call, "s2")
    assert len(texts) == 2
    assert all("Calls of several sessions were running, so it was declined." in text for text in texts)
    assert (sampler.requests, asked) == ([], [])


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"messages": []}, "its first and last message are not the user's"),
        (
            {"messages": [{"role": "assistant", "content": {"type": "text", "text": "x"}}]},
            "its first and last message are not the user's",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": {"type": "image", "data": "", "mimeType": "image/png"}}
                ]
            },
            "it holds something other than text",
        ),
        (
            {"messages": [{"role": "user", "content": {"type": "text", "text": "x" * 20_001}}]},
            "it has 20,001 characters and may have 20,000",
        ),
        ({"messages": [], "tools": [{"name": "t"}]}, "it wants tools for the model"),
    ],
)
def test_requests_that_a_person_could_not_judge_are_refused(params: dict[str, object], reason: str) -> None:
    assert read_sampling("s", params) == reason
