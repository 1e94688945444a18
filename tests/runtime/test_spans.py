"""Turns as spans of OpenTelemetry, at a receiver on loopback that reads OTLP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from satchel.errors import ModelRejected
from satchel.models import Call, Reply, ScriptedModel
from satchel.models.port import ChatModel
from satchel.runtime.spans import spans_for
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio
SECRET = "wombat"
"""In the message, the input and the result of a call, the answer, and the name of a tool that doesn't exist."""


class Receiver(ThreadingHTTPServer):
    """Keeps the bodies that it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[bytes] = []

    @property
    def spans(self) -> list[Any]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers["content-length"]))
        zipped = self.headers.get("content-encoding") == "gzip"
        self.server.bodies.append(gzip.decompress(body) if zipped else body)
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def told(server: Receiver) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}"}


def attributes(span: Any) -> dict[str, Any]:
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value"))
        for one in span.attributes
        if one.value.WhichOneof("value") != "array_value"
    }


def look(word: str) -> str:
    """Look a word up."""
    return f"{word} is an animal"


async def turn(folder: Path, model: ChatModel, environ: dict[str, str]) -> str:
    async with opened(folder, model, environ=environ) as satchel:
        session = await satchel.session(tools=[look], allow=["look"])
        await session.run_turn(f"What is a {SECRET}?")
        return session.id


def scripted() -> ScriptedModel:
    calls = [Call(name="look", input={"word": SECRET}), Call(name=f"a {SECRET}", input={})]
    return ScriptedModel([Reply(calls=calls), f"A {SECRET} is an animal."])


@requirement("observed:spans")
async def test_a_turn_its_model_calls_and_its_tool_calls_are_spans_without_a_word(
    tmp_path: Path, receiver: Receiver
) -> None:
    session_id = await turn(tmp_path, scripted(), told(receiver))
    spans = {span.name: span for span in receiver.spans}
    root = spans["invoke_agent satchel"]
    tool, unknown = spans["execute_tool look"], spans["execute_tool other"]
    chats = [span for span in receiver.spans if span.name.startswith("chat ")]
    assert len(receiver.spans) == 5
    assert len(chats) == 2
    for span in receiver.spans:
        assert attributes(span)["gen_ai.conversation.id"] == session_id
        assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano
    assert {span.parent_span_id for span in (tool, unknown, *chats)} == {root.span_id}
    assert {span.trace_id for span in receiver.spans} == {root.trace_id}
    assert root.parent_span_id == b""
    assert attributes(root)["satchel.turn.status"] == "done"
    assert attributes(tool)["gen_ai.operation.name"] == "execute_tool"
    assert "error.type" not in attributes(tool)
    assert attributes(unknown)["error.type"] == "tool_error"
    first = attributes(chats[0])
    assert (first["gen_ai.provider.name"], first["gen_ai.request.model"]) == ("scripted", "scripted")
    assert (
        sum(attributes(chat)["gen_ai.usage.input_tokens"] for chat in chats)
        == (attributes(root)["gen_ai.usage.input_tokens"])
    )
    assert SECRET.encode() not in b"".join(receiver.bodies)


@requirement("observed:spans")
async def test_a_turn_that_fails_is_an_error_and_no_word_of_it_is_told(
    tmp_path: Path, receiver: Receiver
) -> None:
    await turn(tmp_path, ScriptedModel([ModelRejected(SECRET)]), told(receiver))
    (root,) = receiver.spans
    assert attributes(root)["error.type"] == "failed"
    assert root.status.code == 2
    assert SECRET.encode() not in b"".join(receiver.bodies)


@requirement("observed:spans")
async def test_nothing_is_sent_unless_a_variable_names_the_receiver(
    tmp_path: Path, receiver: Receiver
) -> None:
    assert spans_for({}) is None
    await turn(tmp_path, scripted(), {**told(receiver), "OTEL_SDK_DISABLED": "true"})
    await turn(tmp_path, scripted(), {**told(receiver), "OTEL_TRACES_EXPORTER": "none"})
    assert receiver.bodies == []


@requirement("observed:spans")
@pytest.mark.parametrize("name", ["password:hunter2", "one_two"])
async def test_a_name_that_the_model_made_up_is_not_told(
    tmp_path: Path, receiver: Receiver, name: str
) -> None:
    await turn(tmp_path, ScriptedModel([Reply(calls=[Call(name=name, input={})]), "No."]), told(receiver))
    assert name.encode() not in b"".join(receiver.bodies)
    assert "execute_tool other" in [span.name for span in receiver.spans]


@requirement("observed:spans")
async def test_a_variable_that_the_sdk_refuses_stops_nothing(tmp_path: Path, receiver: Receiver) -> None:
    assert await turn(tmp_path, scripted(), {**told(receiver), "OTEL_BSP_MAX_QUEUE_SIZE": "100"})


@requirement("observed:spans")
async def test_a_receiver_that_is_away_stops_no_turn(tmp_path: Path) -> None:
    with Receiver() as closed:
        away = told(closed)
    assert await turn(tmp_path, scripted(), away)
