"""The streams of this process for a protocol of lines. Nothing but messages reaches stdout."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anyio
import anyio.to_thread

_PIECE_BYTES: Final = 65_536
_MOST_LINE_BYTES: Final = 16_000_000
"""As much as a request over HTTP may have."""
_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15}|"[\w.-]{1,100}")\s*[,}]')
_CONTENT: Final = re.compile(rb'"(?:params|result|error)"')
_HEAD_BYTES: Final = 1000


class Lines:
    """The two streams of a client.

    Reading can be cancelled at any time, so that a signal ends the program while the client says nothing.
    """

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Take the descriptors, which stay open."""
        self._incoming = incoming
        self._outgoing = outgoing
        # No event loop waits for a file or a device such as /dev/null: they can always be read.
        kind = os.fstat(incoming).st_mode
        self._is_ready = stat.S_ISREG(kind) or (stat.S_ISCHR(kind) and not os.isatty(incoming))
        self._sending = anyio.Lock()
        self._writer = anyio.CapacityLimiter(1)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The lines until the client closes the stream, without those that are blank or too long."""
        rest = bytearray()
        is_skipping = False
        while True:
            if not self._is_ready:
                await anyio.wait_readable(self._incoming)
            piece = os.read(self._incoming, _PIECE_BYTES)
            if not piece:
                break
            *ended, last = piece.split(b"\n")
            for part in ended:
                line = bytes(rest + part)
                rest.clear()
                if is_skipping:
                    is_skipping = False
                elif line.strip():
                    yield line
            rest += last
            if is_skipping:
                rest.clear()
            elif len(rest) > _MOST_LINE_BYTES:
                is_skipping = True
                head = bytes(rest[:_HEAD_BYTES])
                rest.clear()
                await self.send(_too_long(head))
        if rest.strip() and not is_skipping:
            yield bytes(rest)

    async def send(self, line: str) -> None:
        """Send a message.

        Raises:
            BrokenPipeError: The client has closed its end.
        """
        data = line.encode("utf-8", "replace") + b"\n"
        async with self._sending:
            # A client that doesn't read blocks a thread, and not the program.
            await anyio.to_thread.run_sync(self._write, data, abandon_on_cancel=True, limiter=self._writer)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._outgoing, view) :]


def has_plain_id(message: Mapping[str, Any]) -> bool:
    """Whether a JSON-RPC message has no id, or one that it may have: a text or a whole number."""
    if "id" not in message:
        return True
    return isinstance(message["id"], str | int) and not isinstance(message["id"], bool)


@contextmanager
def claimed_streams() -> Iterator[Lines]:
    """The streams of this process. While the block runs, whatever else is printed goes to stderr."""
    sys.stdout.flush()
    incoming, outgoing = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        yield Lines(incoming, outgoing)
    finally:
        os.dup2(outgoing, 1)
        os.dup2(incoming, 0)
        os.close(outgoing)
        os.close(incoming)


def _too_long(head: bytes) -> str:
    """The answer to a message of which only the beginning was kept. Without its id, whoever asked would wait for ever;
    in its content, an id is another thing's, and an answer has the id of a request of ours.
    """
    head = _CONTENT.split(head, maxsplit=1)[0]
    found = _ID.search(head) if b'"method"' in head else None
    id = json.loads(found[1]) if found else None
    return refusal(id, -32600, "The message is longer than 16 MB, so it was not read. Send less at once.")


def refusal(id: Any, code: int, words: str) -> str:
    """The answer to a message that can't be taken, with the message's id if it is one."""
    known = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    return json.dumps({"jsonrpc": "2.0", "id": known, "error": {"code": code, "message": words}})
