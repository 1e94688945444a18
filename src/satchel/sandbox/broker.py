"""Answers what code in a sandbox asks of the host, one question after the other, on a descriptor of its own.

Both sides write one JSON object in a line. What the code writes is untrusted: a line that is no question ends it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from satchel.sandbox.port import Broker
from satchel.tasks import background_tasks

MOST_QUESTION_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16


@asynccontextmanager
async def brokered(broker: Broker | None) -> AsyncIterator[int]:
    """Answer for as long as the block lasts. Yields the guest's descriptor, or -1 without a broker.

    Whoever starts the guest closes that descriptor, so that the broker sees the guest's end.
    """
    if broker is None:
        yield -1
        return
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        async with background_tasks() as group:
            group.start_soon(_answer, ours, broker)
            yield theirs.detach()
            group.cancel_scope.cancel()


async def _answer(ours: socket.socket, broker: Broker) -> None:
    held = b""
    while True:
        while b"\n" not in held:
            await anyio.wait_readable(ours)
            try:
                piece = os.read(ours.fileno(), CHUNK_BYTES)
            except (BlockingIOError, ConnectionResetError):
                piece = b""
            held += piece
            if not piece or len(held) > MOST_QUESTION_BYTES:
                return _end(ours)
        line, _, held = held.partition(b"\n")
        try:
            asked = json.loads(line)
            name, input = asked["name"], asked["input"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return _end(ours)
        if not isinstance(name, str) or not isinstance(input, dict):
            return _end(ours)
        text, is_result = await broker(name, input)
        rest = memoryview(json.dumps({"result" if is_result else "error": text}).encode() + b"\n")
        try:
            while rest:
                await anyio.wait_writable(ours)
                rest = rest[os.write(ours.fileno(), rest[:CHUNK_BYTES]) :]
        except (BrokenPipeError, ConnectionResetError):
            return None


def _end(ours: socket.socket) -> None:
    """Let whoever waits for an answer see that none comes."""
    ours.shutdown(socket.SHUT_RDWR)
