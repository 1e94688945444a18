"""The embedding model that Satchel ships, behind an endpoint of OpenAI's form on loopback, for peers that need one.

python benchmarks/peers/embeddings.py        prints its port, and ends with its input
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from satchel.clock import SystemClock
from satchel.models.embedding import open_embedder
from satchel.models.port import Embedder

HOME = Path(os.environ.get("SATCHEL_HOME") or Path.home() / ".satchel")


class Handler(BaseHTTPRequestHandler):
    """Answers POST /v1/embeddings."""

    protocol_version = "HTTP/1.1"
    embed: Callable[[list[str]], Any]

    def log_message(self, *given: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Embed what is asked for."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [asked["input"]] if isinstance(asked["input"], str) else list(asked["input"])
        rows = type(self).embed(texts)
        if asked.get("encoding_format") == "base64":
            shown = [base64.b64encode(row.tobytes()).decode() for row in rows]
        else:
            shown = [row.tolist() for row in rows]
        body = json.dumps(
            {
                "object": "list",
                "model": asked.get("model", ""),
                "data": [
                    {"object": "embedding", "index": place, "embedding": vector}
                    for place, vector in enumerate(shown)
                ],
                "usage": {"prompt_tokens": 0, "total_tokens": 0},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until the input ends."""
    with start_blocking_portal() as portal:
        embedder = portal.call(opened)
        Handler.embed = staticmethod(lambda texts: portal.call(embedder.embed, texts, "document"))
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()
        server.shutdown()
        portal.call(embedder.aclose)


async def opened() -> Embedder:
    """The embedder, on the event loop that it is used on."""
    return open_embedder("minilm", home=HOME, environ=dict(os.environ), clock=SystemClock())


if __name__ == "__main__":
    main()
