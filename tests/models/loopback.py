"""An endpoint on loopback that answers what a test tells it to, and records what it was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from satchel.clock import ManualClock
from satchel.config import Settings, load
from satchel.messages import Message, TextBlock, ToolResultBlock
from satchel.models import ChatModel, Completion, ModelEvent, ModelRequest, ToolDefinition

Wire: TypeAlias = Literal["openai", "anthropic"]

LOOK = ToolDefinition(
    name="look",
    description="Looks.",
    input_schema={"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: Any
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. `cut` closes the connection in the middle of the body; `hold` is awaited before the last
    piece.
    """

    status: int = 200
    kind: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] = ()
    cut: bool = False
    hold: anyio.Event | None = None


class Loopback:
    """The endpoint's address and what it was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[Asked] = []
        self.hung_up = anyio.Event()

    @property
    def provider(self) -> str:
        """What the provider at its address is called."""
        return self.url.removeprefix("http://").replace(".", "-").replace(":", "-")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def loopback(answers: Sequence[Answer] | Callable[[Asked], Answer]) -> AsyncIterator[Loopback]:
    """Serve the answers in their order, one a request, or what the function makes of each request."""
    left = list(answers) if not callable(answers) else []

    async def handle(stream: SocketStream) -> None:
        async with stream:
            buffered = BufferedByteReceiveStream(stream)
            try:
                while True:
                    asked = await _read(buffered)
                    server.asked.append(asked)
                    answer = answers(asked) if callable(answers) else left.pop(0)
                    await _write(stream, answer)
                    if answer.cut:
                        return
            except (
                anyio.IncompleteRead,
                anyio.EndOfStream,
                anyio.BrokenResourceError,
                anyio.ClosedResourceError,
            ):
                server.hung_up.set()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        server = Loopback(listener.extra(SocketAttribute.local_port))
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, handle)
            yield server
            group.cancel_scope.cancel()


async def _read(stream: BufferedByteReceiveStream) -> Asked:
    head = (await stream.receive_until(b"\r\n\r\n", 100_000)).decode("latin-1")
    line, *rest = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
    raw = await stream.receive_exactly(int(headers.get("content-length", "0")))
    return Asked(path=line.split(" ")[1], headers=headers, body=json.loads(raw) if raw else None, raw=raw)


async def _write(stream: SocketStream, answer: Answer) -> None:
    headers = {"content-type": answer.kind, "transfer-encoding": "chunked", **answer.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    await stream.send(f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode())
    for number, piece in enumerate(answer.pieces):
        if answer.hold is not None and number == len(answer.pieces) - 1:
            await answer.hold.wait()
        await stream.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    if not answer.cut:
        await stream.send(b"0\r\n\r\n")


def as_json(value: Any, *, status: int = 200, **headers: str) -> Answer:
    return Answer(
        status=status, kind="application/json", headers=headers, pieces=(json.dumps(value).encode(),)
    )


def as_events(events: Iterable[Any], *, cut: bool = False) -> Answer:
    """A stream of server-sent events, each in a piece of its own; a text is sent as it is."""
    pieces = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        data = event if isinstance(event, str) else json.dumps(event)
        pieces.append(f"{name}data: {data}\n\n".encode())
    return Answer(pieces=pieces, cut=cut)


def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    """A chunk of OpenAI's chat completions."""
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def chat(*texts: str) -> list[Any]:
    """A whole stream of OpenAI's that says the texts."""
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    counted = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m-1",
        "choices": [],
        "usage": usage,
    }
    return [*(chunk({"content": text}) for text in texts), chunk({}, "stop"), counted, "[DONE]"]


def begun(**usage: int) -> dict[str, Any]:
    """The first event of Anthropic's messages."""
    return {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m-1",
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 7, "output_tokens": 1, **usage},
        },
    }


def block(index: int, start: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One block of Anthropic's messages."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def ended(stop: str = "end_turn", output_tokens: int = 3) -> list[dict[str, Any]]:
    """The last two events of Anthropic's messages."""
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output_tokens}},
        {"type": "message_stop"},
    ]


def messages(*texts: str) -> list[Any]:
    """A whole stream of Anthropic's that says the texts."""
    deltas = [{"type": "text_delta", "text": text} for text in texts]
    return [begun(), *block(0, {"type": "text", "text": ""}, *deltas), *ended()]


def says(wire: Wire, *texts: str) -> list[Any]:
    return chat(*texts) if wire == "openai" else messages(*texts)


def settings_for(server: Loopback, folder: Path, *, stream: bool = True, **environ: str) -> Settings:
    """Settings whose "openai" and "anthropic" are the server."""
    variables = {
        "ANTHROPIC_API_KEY": "key-a",
        "ANTHROPIC_BASE_URL": server.url,
        "OPENAI_API_KEY": "key-o",
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "SATCHEL_TOOLS_SCHEMA_TIMEOUT_S": "30",  # as in tests.runtime.world
        **environ,
    }
    settings = load(variables, cwd=folder, home=folder / "home")
    providers = {name: replace(provider, stream=stream) for name, provider in settings.providers.items()}
    return replace(settings, providers=providers)


def user(text: str) -> Message:
    return Message(role="user", blocks=(TextBlock(text=text),))


def results(*pairs: tuple[str, str]) -> Message:
    return Message(
        role="user", blocks=tuple(ToolResultBlock(tool_use_id=id, content=text) for id, text in pairs)
    )


def request(*history: Message, tools: Sequence[ToolDefinition] = (LOOK,), **options: Any) -> ModelRequest:
    return ModelRequest(system="Be brief.", messages=history or (user("Hello"),), tools=tools, **options)


async def ask(model: ChatModel, asked: ModelRequest) -> tuple[list[ModelEvent], Completion]:
    """All events but the last, and the last."""
    with anyio.fail_after(120):
        events = [event async for event in model.stream(asked)]
    completion = events.pop()
    assert isinstance(completion, Completion)
    return events, completion


CLOCK = ManualClock()
