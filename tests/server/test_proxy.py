"""The memory proxy between an agent and its provider: what passes untouched, what memory adds, what is captured."""

from __future__ import annotations

import gzip
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.server.proxy.provider_answer import AnswerCollector
from satchel.server.proxy.raw_messages import RawMessages
from tests.requirements import requirement
from tests.server.upstream import Given, Upstream, providing, streamed, whole
from tests.server.world import World, serving

CLIENT_KEY = "sk-ant-of-the-client"
HOME_KEY = "sk-ant-of-the-home"
AGENT = {"user-agent": "claude-cli/2.1.330 (external, cli)", "anthropic-beta": "a-2026-01-01,b-2026-02-02"}
TOOL: Any = {"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object"}}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with providing() as upstream:
        yield upstream


@contextmanager
def proxying(folder: Path, upstream: Upstream, **overrides: Any) -> Iterator[World]:
    with serving(
        folder,
        providers__anthropic__base_url=upstream.url,
        server__requests_per_s=10_000,
        environ={"ANTHROPIC_API_KEY": HOME_KEY},
        **overrides,
    ) as world:
        yield world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[World]:
    with proxying(tmp_path_factory.mktemp("proxy"), upstream) as world:
        yield world


@pytest.fixture(autouse=True)
def _fresh(upstream: Upstream) -> None:
    upstream.got.clear()
    upstream.broken.clear()
    upstream.answer = lambda got: streamed("Fine.") if got.json.get("stream") else whole("Fine.")


def agent_of(world: World, **headers: str) -> Any:
    """The official client, with a key of its own."""
    return anthropic.Anthropic(
        base_url=world.url,
        api_key=CLIENT_KEY,
        max_retries=0,
        timeout=300,
        default_headers={"x-satchel-token": world.token, **AGENT, **headers},
    )


def user(text: str, **more: Any) -> Any:
    return {"role": "user", "content": [{"type": "text", "text": text, **more}]}


def asking(messages: list[Any], session: str = "s", **more: Any) -> dict[str, Any]:
    return {
        "model": "claude-test",
        "max_tokens": 100,
        "messages": messages,
        "tools": [TOOL],
        "metadata": {"user_id": session},
        **more,
    }


def captured(client: httpx2.Client, words: str = "") -> list[str]:
    found = client.get("/api/memories", params={"kind": "episode", "limit": 1000}).json()
    return sorted(
        f"{one['source']['turn']} {one['speaker']}: {one['content']}"
        for one in found
        if words in str(one["source"]["session"]) or words in one["content"]
    )


ODD = (
    b'{ "model":"claude-test" ,"max_tokens":1.0e2,\n "a_new_field": {"x": [1, 2.50, "\\u00e9"]},  "stream": true,'
    b'"messages": [{"content": "Gr\xc3\xbc\xc3\x9fe \\ud83d\\ude00", "role":"user", "z":null} ],"thinking":{"type":"enabled"},"tools":[{}]}'
)


@requirement("proxy:untouched")
def test_without_memory_request_and_answer_pass_byte_for_byte(tmp_path: Path, upstream: Upstream) -> None:
    plain = streamed("Grüße, wie geht es?").pieces + (b": a comment\n\nevent: unknown\ndata: {\n\n",)
    packed = gzip.compress(b"".join(plain))
    with proxying(tmp_path, upstream) as world, httpx2.Client(trust_env=False, timeout=300) as client:
        for encoding, pieces in (("gzip", (packed[:7], packed[7:])), ("identity", plain)):
            headers = (
                ("content-type", "text/event-stream"),
                ("request-id", "req_1"),
                ("anthropic-ratelimit-requests-remaining", "7"),
                ("content-encoding", encoding),
            )
            given = Given(pieces, headers=headers)
            upstream.answer = lambda _, given=given: given  # type: ignore[misc]
            request = client.build_request(
                "POST",
                f"{world.url}/v1/messages?beta=true&x=%C3%BC",
                content=ODD,
                headers={
                    "content-type": "application/json",
                    "anthropic-version": "2023-06-01",
                    "x-api-key": CLIENT_KEY,
                    "x-satchel-token": world.token,
                    "cookie": "satchel=1",
                    "accept-encoding": encoding,
                    **AGENT,
                },
            )
            answer = client.send(request, stream=True)
            assert b"".join(answer.iter_raw()) == b"".join(pieces)
            answer.close()
            assert {name: answer.headers[name] for name, _ in headers} == dict(headers)
            got = upstream.got[-1]
            assert (got.path, got.body) == ("/v1/messages?beta=true&x=%C3%BC", ODD)
            assert got.headers == {
                name: value
                for name, value in request.headers.items()
                if name not in ("x-satchel-token", "cookie", "connection", "host")
            } | {"host": upstream.url.removeprefix("http://")}
            with world.client() as memory:
                # What was said was read from a copy, and once.
                assert captured(memory) == ["1 assistant: Grüße, wie geht es?", "1 user: Grüße 😀"]


def blocks_of(body: Any) -> list[tuple[Any, bool]]:
    """All blocks before a model, in order, each without its cache mark, and whether it had one."""
    found = []
    for part in [{"role": "system", "content": body.get("system", [])}, *body["messages"]]:
        content = part["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            plain = {name: value for name, value in block.items() if name != "cache_control"}
            found.append(((part["role"], plain), "cache_control" in block))
    return found


def has_memory(block: Any) -> bool:
    return "<satchel-" in str(block)


@requirement("proxy:prefix", "proxy:capture")
def test_over_ten_turns_and_a_restart_what_the_provider_has_cached_stays_as_it_was(
    tmp_path: Path, upstream: Upstream
) -> None:
    things = ["bicycle", "boat", "piano", "cat", "garden", "tent", "lamp", "coat", "clock", "guitar"]
    colours = ["red", "blue", "green", "black", "white", "brown", "grey", "pink", "golden", "purple"]
    mark = {"cache_control": {"type": "ephemeral"}}
    history: list[Any] = []
    lines: list[str] = []
    system = [{"type": "text", "text": "You help.", **mark}]
    for half in (things[:5], things[5:]):
        one_by_one = {"memory__profile_tokens": 0, "memory__limit": 1}
        with proxying(tmp_path, upstream, **one_by_one) as world, agent_of(world) as agent:
            if not history:
                for thing, colour in zip(things, colours, strict=True):
                    world.call(world.app.service.memory.add, f"My {thing} is {colour}.")
                world.call(world.app.service.memory.embed_pending)
            for thing in half:
                # The agent marks its newest message, takes the mark from the one before, and writes that as plain text.
                for message in history:
                    if message["role"] == "user" and isinstance(message["content"], list):
                        message["content"] = message["content"][0]["text"]
                history.append(user(f"What colour is my {thing}?", **mark))
                reminder = {"role": "system", "content": "A hook says: be brief."}
                with agent.messages.stream(
                    **asking([*history, *([reminder] if thing == "cat" else [])], system=system)
                ) as stream:
                    assert stream.get_final_text() == "Fine."
                history.append({"role": "assistant", "content": [{"type": "text", "text": "Fine."}]})
            with world.client() as client:
                lines = captured(client, "proxy-")
    bodies = [blocks_of(got.json) for got in upstream.got]
    assert len(bodies) == 10
    for before, after in zip(bodies, bodies[1:], strict=False):
        last = max(number for number, (_, is_marked) in enumerate(before) if is_marked)
        cached = [block for block, _ in before[: last + 1]]
        assert [block for block, _ in after[: len(cached)]] == cached
    # Each turn got the memory that it needs, after the mark, and each later request repeats it.
    for number, (thing, colour) in enumerate(zip(things, colours, strict=True)):
        own = [block for block, _ in bodies[number]]
        after_mark = own[max(n for n, (_, is_marked) in enumerate(bodies[number]) if is_marked) + 1 :]
        assert any(has_memory(block) and f"{thing} is {colour}" in str(block) for block in after_mark), thing
    shown = [block for block, _ in bodies[-1] if has_memory(block)]
    assert len(shown) == 10
    # Every turn was captured once, with its place, and nothing of what was added.
    questions = sorted(f"{n} user: What colour is my {thing}?" for n, thing in enumerate(things, 1))
    assert [line for line in lines if " user: " in line] == questions
    assert [line for line in lines if " assistant: " in line] == sorted(
        f"{n} assistant: Fine." for n in range(1, 11)
    )


@requirement("proxy:forget")
def test_what_is_forgotten_is_not_repeated(world: World, upstream: Upstream) -> None:
    with agent_of(world) as agent, world.client() as client:
        id = client.post(
            "/api/memories", json={"content": "My sister Mara is allergic to shellfish."}
        ).json()["id"]
        messages = [user("What is my sister Mara allergic to?")]
        agent.messages.create(**asking(messages, "forgetting"))
        assert "allergic to shellfish" in upstream.got[0].body.decode()
        messages += [{"role": "assistant", "content": "Fine."}, user("And what else?")]
        counted = upstream.answer
        upstream.answer = lambda _: Given(
            (b'{"input_tokens": 7}',), headers=(("content-type", "application/json"),)
        )
        count = agent.messages.count_tokens(model="claude-test", messages=messages, tools=[TOOL],
                                            extra_body={"metadata": {"user_id": "forgetting"}})  # fmt: skip
        upstream.answer = counted
        assert count.input_tokens == 7
        # What is counted is what would be sent.
        assert "allergic to shellfish" in upstream.got[1].body.decode()
        client.delete(f"/api/memories/{id}")
        agent.messages.create(**asking(messages, "forgetting"))
        assert "shellfish" not in upstream.got[2].body.decode()
    for file in (world.home / "satchel.db", world.home / "satchel.db-wal"):
        assert not file.exists() or b"allergic to shellfish" not in file.read_bytes()


@requirement("proxy:agents")
def test_only_the_users_words_are_captured_and_searched_for(world: World, upstream: Upstream) -> None:
    session = "loop-session"
    said = {
        "role": "user",
        "content": [
            {"type": "text", "text": "<system-reminder>\nThe date is today.\n</system-reminder>"},
            {"type": "text", "text": "Please look into the harbour report."},
        ],
    }
    task = "Read every page of the harbour report and list the ships."
    upstream.answer = lambda got: (
        streamed("I send somebody.", stop_reason="tool_use", call={"prompt": task})
        if len(got.json["messages"]) == 1 and "harbour report." in str(got.json)
        else streamed("Three ships.")
    )
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Three ships."}
    called = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "Task", "input": {}}],
    }
    with agent_of(world) as agent, world.client() as client:

        def ask(messages: list[Any], **more: Any) -> None:
            with agent.messages.stream(**asking(messages, session, **more)) as stream:
                stream.get_final_message()

        ask([said])
        ask([user(task)])  # the sub-agent
        ask([said, called, {"role": "user", "content": [result]}])
        ask([user("Write a title for: harbour report")], tools=[])
        parts = ["Generate a title for this conversation:\n", "harbour report"]
        titled = {"role": "user", "content": [{"type": "text", "text": part} for part in parts]}
        ask([titled], tools=[], extra_headers={"user-agent": "opencode"})
        ask([user("quota")], max_tokens=1)
        ask([said], system="again")  # sent once more
        lines = [line for line in captured(client, "proxy-") if "harbour" in line or "ships" in line]
    assert lines == ["1 assistant: Three ships.", "1 user: Please look into the harbour report."]
    assert [len(got.json["messages"]) for got in upstream.got] == [1, 1, 3, 1, 1, 1, 1]
    with world.client() as client:
        found = client.get("/api/memories", params={"kind": "episode", "limit": 1000}).json()
    trust = {one["content"]: one["trust"] for one in found}
    assert trust["Three ships."] == "outside"
    assert trust["Please look into the harbour report."] == "user"


@requirement("proxy:agents")
def test_a_request_without_memory_and_other_paths_pass_unchanged(world: World, upstream: Upstream) -> None:
    with world.client() as client:
        client.post("/api/memories", json={"content": "My boat lies in Genoa."})
        body = json.dumps(asking([user("Where does my boat lie?")], "off")).encode()
        headers = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
        client.post("/v1/messages", content=body, headers={**headers, "x-satchel-memory": "off"})
        assert upstream.got[-1].body == body
        for method, path in [
            ("GET", "/v1/models?limit=2"),
            ("GET", "/v1/models/claude-test"),
            ("POST", "/v1/messages/batches"),
            ("DELETE", "/v1/files/f1"),
        ]:
            upstream.answer = lambda _: Given((b"{}",), status=418, headers=(("content-type", "x/y"),))
            answer = client.request(
                method, path, headers=headers, content=b"\x00" if method == "POST" else None
            )
            assert (answer.status_code, answer.content, answer.headers["content-type"]) == (418, b"{}", "x/y")
            assert (upstream.got[-1].method, upstream.got[-1].path) == (method, path)
        before = len(upstream.got)
        assert client.get("/v1/unknown").status_code == 404
        assert client.get("/v1/a/%2e%2e/b", headers=headers).status_code == 404
        assert len(upstream.got) == before


@requirement("proxy:keys")
def test_the_token_stays_here_and_the_clients_key_goes_on(world: World, upstream: Upstream) -> None:
    with agent_of(world) as agent:
        agent.messages.create(**asking([user("One")], "keys"))
    with anthropic.Anthropic(base_url=world.url, api_key=world.token, max_retries=0) as agent:
        agent.messages.create(**asking([user("Two")], "keys"))
    with anthropic.Anthropic(base_url=world.url, auth_token=world.token, max_retries=0) as agent:
        agent.messages.create(**asking([user("Three")], "keys"))
    with anthropic.Anthropic(
        base_url=world.url,
        auth_token="oauth",
        max_retries=0,
        default_headers={"x-satchel-token": world.token, "x-api-key": world.token},
    ) as agent:
        agent.messages.create(**asking([user("Four")], "keys"))
    with httpx2.Client(trust_env=False, timeout=300) as client:
        headers = {"x-api-key": world.token}
        client.post(f"{world.url}/v1/messages", json=asking([user("Five")], "keys"), headers=headers)
    sent = [(got.headers.get("x-api-key"), got.headers.get("authorization")) for got in upstream.got]
    assert sent == [
        (None, f"Bearer {CLIENT_KEY}"),
        (None, f"Bearer {HOME_KEY}"),
        (None, f"Bearer {HOME_KEY}"),
        (None, "Bearer oauth"),
        (HOME_KEY, None),
    ]
    assert world.token not in str([got.headers for got in upstream.got])
    with (
        anthropic.Anthropic(base_url=world.url, api_key=CLIENT_KEY, max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError),
    ):
        stranger.messages.create(**asking([user("Six")]))
    assert len(upstream.got) == 5
    with httpx2.Client(trust_env=False, timeout=300) as client:
        basic = b64encode(f"me:{world.token}".encode()).decode()
        odd = {
            "x-satchel-token": world.token, "x-api-key": CLIENT_KEY, "authorization": f"Basic {basic}",
            "x-goog-api-key": world.token, "api-key": f"Token {world.token}", "referer": f"http://x/?key={world.token}",
            "x-form-token": "f",
        }  # fmt: skip
        url = f"{world.url}/v1/messages?a=%20b&key={world.token}&k={quote(world.token, safe='')[:-1]}%{ord(world.token[-1]):x}&c"
        assert client.post(url, json=asking([user("Six")], "keys"), headers=odd).status_code == 200
        assert client.get(f"{world.url}/v1/{world.token}", headers=odd).status_code == 404
    got = upstream.got.pop()
    assert got.path == "/v1/messages?a=%20b&c"
    assert got.headers["x-api-key"] == CLIENT_KEY
    assert not {"authorization", "api-key", "x-goog-api-key", "referer", "x-form-token"} & got.headers.keys()
    assert not any(secret in str(got) for secret in (world.token, basic))
    log = (world.home / "logs" / "server.log").read_text()
    assert not any(key in log for key in (CLIENT_KEY, HOME_KEY, world.token))


@requirement("proxy:keys")
def test_a_provider_says_nothing_to_a_browser_in_the_name_of_this_server(
    world: World, upstream: Upstream
) -> None:
    headers = (
        ("content-type", "text/html"),
        ("request-id", "r1"),
        ("retry-after", "3"),
        ("set-cookie", "satchel_1=x; Path=/"),
        ("content-security-policy", "default-src *"),
        ("access-control-allow-origin", "*"),
        ("clear-site-data", '"*"'),
        ("refresh", "0; url=http://evil.test"),
        ("location", "http://evil.test"),
    )
    upstream.answer = lambda _: Given((b"<script>1</script>",), headers=headers)
    with world.client() as client:
        answer = client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
    assert (answer.headers["request-id"], answer.headers["retry-after"]) == ("r1", "3")
    assert not ({name for name, _ in headers[3:]} - {"content-security-policy"}) & set(answer.headers)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@requirement("proxy:failures")
@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (429, anthropic.RateLimitError),
        (529, anthropic.InternalServerError),
    ],
)
def test_errors_of_the_provider_arrive_unchanged_and_nothing_is_captured(
    world: World, upstream: Upstream, status: int, raised: type[anthropic.APIStatusError]
) -> None:
    body = b'{"type":"error","error":{"type":"some_error","message":"As the provider says it."}}'
    headers = (("content-type", "application/json"), ("retry-after", "17"), ("request-id", "req_9"))
    upstream.answer = lambda _: Given((body,), status=status, headers=headers)
    with agent_of(world) as agent, pytest.raises(raised) as failed:
        agent.messages.create(**asking([user(f"This fails with {status}.")], "failing"))
    assert failed.value.status_code == status
    assert failed.value.response.content == body
    assert (failed.value.response.headers["retry-after"], failed.value.request_id) == ("17", "req_9")
    with world.client() as client:
        assert captured(client, f"fails with {status}") == []


@requirement("proxy:failures")
def test_a_provider_that_breaks_off_is_seen_to_and_the_words_are_kept(
    world: World, upstream: Upstream
) -> None:
    good = streamed("Here is the beginning of an answer.")
    upstream.answer = lambda _: replace(good, pieces=good.pieces[:4], is_whole=False)
    words = "My anchor weighs nine pounds."
    with agent_of(world) as agent, world.client() as client:
        with (
            pytest.raises(httpx2.RemoteProtocolError),
            agent.messages.stream(**asking([user(words)], "cut")) as stream,
        ):
            assert "".join(stream.text_stream) == "unreachable"
        upstream.answer = lambda _: good
        with agent.messages.stream(**asking([user(words)], "cut")) as stream:
            stream.get_final_message()
        assert captured(client, words) == [f"1 user: {words}"]
        assert captured(client, "beginning of an answer") == [
            "1 assistant: Here is the beginning of an answer."
        ]


@requirement("proxy:keys")
def test_a_provider_that_needs_no_key_is_asked_without_one(tmp_path: Path, upstream: Upstream) -> None:
    with (
        proxying(tmp_path, upstream, providers__anthropic__env_api_key="") as world,
        anthropic.Anthropic(base_url=world.url, api_key=world.token, max_retries=0) as agent,
    ):
        agent.messages.create(**asking([user("Hello")]))
    assert [got.headers["authorization"] for got in upstream.got] == ["Bearer none"]


@requirement("proxy:failures")
def test_without_a_provider_the_client_is_told(tmp_path: Path) -> None:
    gone = Upstream("http://127.0.0.1:9", lambda _: whole(""))
    with proxying(tmp_path, gone) as world, agent_of(world) as agent:
        with pytest.raises(anthropic.InternalServerError) as failed:
            agent.messages.create(**asking([user("Hello")]))
        assert failed.value.status_code == 502
        assert "127.0.0.1" in failed.value.message


@requirement("proxy:stream")
def test_pieces_pass_as_they_come_and_a_client_that_leaves_closes_the_provider(
    world: World, upstream: Upstream
) -> None:
    go_on = threading.Event()

    def wait() -> None:
        go_on.wait(300)

    good = streamed("A long story.")
    endless = good.pieces[:4] + (b": more\n\n" * 1000,) * 100_000
    upstream.answer = lambda _: replace(good, pieces=endless, between=wait)
    with agent_of(world) as agent, agent.messages.stream(**asking([user("Tell me")], "leaving")) as stream:
        # The first piece is here although the provider waits before the second.
        assert next(iter(stream)).type == "message_start"
        go_on.set()
    assert upstream.broken.wait(300)


@requirement("proxy:untouched", "http:hostile")
@pytest.mark.parametrize(
    "body",
    [b"{", b"{\xff\xfe}", b' {"a": \n1}', b'{"messages": 7}', b'{"messages": [7]}', b'{"messages": [{"role": "wizard"}]}',
     b'{"messages": [{"role": "user", "content": "a"}], "messages": []}', b'{"a":' * 50_000,
     b'{"messages": [{"role": "user", "content": [{"type": "image", "source": 1}]}]}',
     b'{"messages": [{"role": "user", "content": {"a": 1}, "content": "Hi"}]} trailing',
     b'{[1]: 2, "messages": [{"role": "user", "content": "Hi"}]}'],
)  # fmt: skip
def test_an_unreadable_body_is_passed_on_for_the_provider_to_judge(
    world: World, upstream: Upstream, body: bytes
) -> None:
    upstream.answer = lambda _: Given((b"no",), status=400)
    with world.client() as client:
        answer = client.post("/v1/messages", content=body, headers={"x-api-key": CLIENT_KEY})
    assert (answer.status_code, answer.content) == (400, b"no")
    assert upstream.got[-1].body == body


@requirement("proxy:untouched", "http:hostile")
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_a_body_that_is_not_an_object_is_refused_and_a_compressed_one_is_passed_on(
    world: World, upstream: Upstream, path: str
) -> None:
    upstream.answer = lambda _: Given((b"no",), status=418)
    with world.client() as client:
        for body in (b"", b"[]", b"null", b"\xff\xfe{}", b"\x00", b"[" * 50_000):
            answer = client.post(path, content=body, headers={"x-api-key": CLIENT_KEY})
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        packed = gzip.compress(b'{"messages": []}')
        answer = client.post(
            path, content=packed, headers={"x-api-key": CLIENT_KEY, "content-encoding": "gzip"}
        )
    assert answer.status_code == 418
    assert upstream.got[-1].body == packed


@requirement("http:limits")
def test_bodies_of_other_agents_may_be_large_and_not_endless(world: World, upstream: Upstream) -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "A" * 20_000_000},
    }
    body = json.dumps(asking([{"role": "user", "content": [picture]}])).encode()
    with world.client() as client:
        assert client.post("/v1/messages", content=body).status_code == 200
        assert upstream.got[-1].body == body
        answer = client.post("/v1/messages", content=b" " * 64_000_001)
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "request_too_large"


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_messages = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system"]),
            "content": st.text()
            | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}), max_size=3),
        },
        optional={"extra": _values},
    ),
    min_size=1,
    max_size=4,
)


@requirement("proxy:untouched")
@settings(max_examples=40)
@given(
    messages=_messages,
    fields=st.dictionaries(st.text().filter(lambda name: name != "messages"), _values, max_size=3),
    indent=st.sampled_from([None, 0, 3]),
    is_ascii=st.booleans(),
    block=st.text(),
    data=st.data(),
)
def test_a_block_is_added_and_every_other_byte_stays(
    messages: list[Any],
    fields: dict[str, Any],
    indent: int | None,
    is_ascii: bool,
    block: str,
    data: st.DataObject,
) -> None:
    request = {**fields, "messages": messages}
    try:
        body = json.dumps(request, indent=indent, ensure_ascii=is_ascii).encode()
        block.encode()
    except UnicodeEncodeError:
        return
    raw = RawMessages.read(body)
    assert raw is not None
    assert raw.messages == messages
    assert raw.with_blocks({}) == body
    number = data.draw(st.integers(0, len(messages) - 1))
    changed = json.loads(raw.with_blocks({number: block}))
    content = messages[number]["content"]
    before = [{"type": "text", "text": content}] if isinstance(content, str) else content
    expected = [dict(message) for message in messages]
    expected[number]["content"] = [*before, {"type": "text", "text": block}]
    assert changed == {**fields, "messages": expected}


@pytest.mark.parametrize(("blanks", "is_read"), [(1_000_000, True), (40_000_000, False)])
def test_an_answer_that_grows_without_end_when_it_is_unpacked_is_passed_on_and_not_read(
    blanks: int, is_read: bool
) -> None:
    collector = AnswerCollector(
        httpx2.Headers({"content-encoding": "gzip", "content-type": "application/json"})
    )
    message = {"content": [{"type": "text", "text": "Fine."}], "stop_reason": "end_turn"}
    packed = gzip.compress(json.dumps(message).encode() + b" " * blanks)
    for start in range(0, len(packed), 4096):
        collector.take(packed[start : start + 4096])
    assert collector.read().text == ("Fine." if is_read else "")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_characters_that_only_python_takes_for_the_end_of_a_line_are_part_of_an_answer(end: str) -> None:
    collector = AnswerCollector(httpx2.Headers({"content-type": "text/event-stream"}))
    texts = ["Take the ", "blue\u2028or the ", "green\x85one."]
    events: list[Any] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
            for text in texts
        ),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    for event in events:
        line = f"event: {event['type']}{end}data: {json.dumps(event, ensure_ascii=False)}{end}{end}"
        collector.take(line.encode())
    answer = collector.read()
    assert (answer.text, answer.is_final) == ("".join(texts), True)
