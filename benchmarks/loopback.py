"""A scripted endpoint on loopback, in its own process, for both wire formats; its own time is negligible.

The name of the model selects the script: `chain-N` requests one call of the tool `look` in each of N rounds and then
answers; `fan-N` requests N calls in one round and then answers. Texts are sent in twenty pieces, arguments in four.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

WORDS = [f"word{number} " for number in range(20)]
ARGUMENTS = ['{"pla', 'ce": ', '"here', '"}']


def replies(model: str, results: int) -> int:
    """The number of calls in the next answer; 0 for the final text."""
    kind, count = model.rsplit("-", 1)
    if kind == "chain":
        return 1 if results < int(count) else 0
    return int(count) if not results else 0


def openai_events(model: str, calls: int) -> Iterator[dict[str, Any]]:
    """One streamed answer of the Chat Completions API."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for index in range(calls):
        function: dict[str, Any] = {"name": "look", "arguments": ""}
        call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        yield chunk({"tool_calls": [call]})
        for piece in ARGUMENTS:
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if not calls:
        for word in WORDS:
            yield chunk({"content": word})
    yield chunk({}, "tool_calls" if calls else "stop")
    usage = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}
    yield {**head, "choices": [], "usage": usage}


def anthropic_events(model: str, calls: int) -> Iterator[dict[str, Any]]:
    """One streamed answer of the Messages API."""
    usage = {"input_tokens": 50, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": message}
    blocks = [{"type": "tool_use", "id": f"call_{i}", "name": "look", "input": {}} for i in range(calls)]
    for index, block in enumerate(blocks or [{"type": "text", "text": ""}]):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        deltas = (
            [{"type": "input_json_delta", "partial_json": piece} for piece in ARGUMENTS]
            if calls
            else [{"type": "text_delta", "text": word} for word in WORDS]
        )
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 20}}
    yield {"type": "message_stop"}


def openai_whole(model: str, calls: int) -> dict[str, Any]:
    """One answer of the Chat Completions API in one piece."""
    function = {"name": "look", "arguments": "".join(ARGUMENTS)}
    asked = [{"id": f"call_{i}", "type": "function", "function": function} for i in range(calls)]
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else "".join(WORDS)}
    message |= {"tool_calls": asked} if calls else {}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70},
    }


def answer(path: str, body: bytes) -> bytes:
    """The response to one request, as an event stream if the request asks for one."""
    request = json.loads(body)
    model = request["model"]
    # The ids of calls are unique in a conversation, so each names the round that it belongs to.
    if path.endswith("/chat/completions"):
        results = sum(message["role"] == "tool" for message in request["messages"])
        if not request.get("stream"):
            whole = json.dumps(openai_whole(model, replies(model, results)))
            return response("application/json", whole.replace('"call_', f'"call_{results}_'))
        events = list(openai_events(model, replies(model, results)))
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    else:
        blocks = [b for m in request["messages"] if isinstance(m["content"], list) for b in m["content"]]
        results = sum(block["type"] == "tool_result" for block in blocks)
        events = list(anthropic_events(model, replies(model, results)))
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return response("text/event-stream", text.replace('"call_', f'"call_{results}_'))


def response(kind: str, text: str) -> bytes:
    """An HTTP response."""
    content = text.encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ", 2)[1]
            lengths = [line for line in head.lower().split("\r\n") if line.startswith("content-length")]
            if lengths:
                writer.write(answer(path, await reader.readexactly(int(lengths[0].split(":")[1]))))
            else:  # what is known of the model, for example
                writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
    writer.close()


async def main() -> None:
    """Serve on a free port, and print its number."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


@contextlib.contextmanager
def endpoint() -> Iterator[str]:
    """The address of an endpoint that runs until the end of the block."""
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
