"""A provider for the memory proxy: it keeps what it gets, byte for byte, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Got:
    """A request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Given:
    """An answer: its pieces are sent one by one. It is cut off after them unless it is whole."""

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream; charset=utf-8"),)
    is_whole: bool = True
    between: Callable[[], None] = lambda: None


@dataclass
class Upstream:
    """The provider.

    Attributes:
        answer: Answers a request.
        got: What arrived, oldest first.
        broken: Set when a client was gone before the end of its answer.
    """

    url: str
    answer: Callable[[Got], Given]
    got: list[Got] = field(default_factory=list)
    broken: threading.Event = field(default_factory=threading.Event)


def streamed(text: str, *, stop_reason: str = "end_turn", call: dict[str, Any] | None = None) -> Given:
    """An answer of a model as Anthropic streams it; with a call of a tool, if there is one."""
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-test",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 9, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
    ]
    events += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in (text[:3], text[3:])
    ]
    events.append({"type": "content_block_stop", "index": 0})
    if call is not None:
        block = {"type": "tool_use", "id": "toolu_1", "name": "Task", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call)}
        events += [
            {"type": "content_block_start", "index": 1, "content_block": block},
            {"type": "content_block_delta", "index": 1, "delta": delta},
            {"type": "content_block_stop", "index": 1},
        ]
    events += [
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
    return Given(tuple(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events))


def whole(text: str) -> Given:
    """The same in one piece."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 5},
    }
    return Given((json.dumps(message).encode(),), headers=(("content-type", "application/json"),))


@contextmanager
def providing() -> Iterator[Upstream]:
    """Serve on loopback in threads."""
    upstream = Upstream(
        "", lambda got: streamed("Fine.") if b'"stream": true' in got.body else whole("Fine.")
    )

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            got = Got(self.command, self.path, headers, self.rfile.read(length))
            upstream.got.append(got)
            given = upstream.answer(got)
            self.send_response_only(given.status)
            for name, value in given.headers:
                self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                for piece in given.pieces:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
                    given.between()
            except OSError:
                upstream.broken.set()
                given = Given((), is_whole=False)
            if given.is_whole:
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names of the standard library

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    upstream.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()
