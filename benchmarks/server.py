"""The HTTP server under load, beside a bare FastAPI application of the same run.

    python benchmarks/server.py [--chats 200] [--subscribers 1000] [--requests 2000] [--memories 2000] [--only chats]

Four things are measured, each server in a process of its own, with a scripted model and a hashing embedder:

- chats: so many new conversations at once, each with an answer of fifty words in as many pieces, over `POST /api/chat`.
  Each stream is checked: fifty words in order, then the end with the whole answer. Every chat surfaces and stores
  memories. The baselines are the same without memory, and a FastAPI route that streams the same words and does nothing
  else. CPU is that of the server's process, all threads included; at most 40 ms a chat is the aim.
- subscribers: so many clients that follow one session in which nothing happens. Reported are the memory of each (the
  growth of the resident set) and the CPU that the server takes for all of them in ten seconds.
- requests: CPU of a request that does nothing, one after the other on one connection: `GET /healthz` through the gate,
  and the same in the bare application.
- memory: a search and a request for context among so many memories, CPU and wall time beside those of `GET /healthz`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import StreamingResponse

from satchel.config import load
from satchel.models import ModelRequest, Reply, ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from satchel.server.listening import served

WORDS = [f"word{number}" for number in range(50)]
IDLE_S = 10.0
AIM_MS = 40.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """A server in a process of its own."""

    pid: int
    url: str
    token: str

    @property
    def cpu_s(self) -> float:
        """The CPU time that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def resident_kb(self) -> int:
        """Its resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def client(self) -> httpx2.AsyncClient:
        """A client with the token and any number of connections."""
        return httpx2.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {self.token}"},
            timeout=300,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=False,
        )


# The servers


async def serve_satchel(home: Path, *, remembers: bool, database: str) -> None:
    """Serve a home, with memory or without, with a database server or with files; each message is answered with fifty
    words that repeat its number.
    """

    def reply(request: ModelRequest) -> Reply:
        number = request.messages[-1].text.rpartition(" ")[2].rstrip(".")
        return Reply(text=" ".join(f"{word}-{number}" for word in WORDS), chunk=9)

    work = home / "work"
    work.mkdir(exist_ok=True)
    overrides = {
        "memory.distill": "off",
        "memory.enabled": remembers,
        "server.port": 0,
        "server.requests_per_s": 1_000_000.0,
    }
    if database:
        overrides["database"] = database
    settings = load(
        {"HOME": str(home), "PATH": os.environ["PATH"]}, cwd=work, home=home / "home", overrides=overrides
    )
    async with (
        Satchel.open(settings, model=ScriptedModel(reply), embedder=HashingEmbedder()) as satchel,
        served(satchel) as (url, _),
    ):
        tell(url, (settings.home / "token").read_text().strip())
        await anyio.sleep_forever()


def serve_bare() -> None:
    """Serve a FastAPI application that does nothing else."""
    app = FastAPI()

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/api/chat")
    async def chat(request: Request) -> StreamingResponse:
        number = (await request.json())["message"].rpartition(" ")[2].rstrip(".")

        async def events() -> AsyncIterator[bytes]:
            for word in WORDS:
                yield event("text_delta", {"text": f"{word}-{number} "})
            yield event("response", {"text": " ".join(f"{word}-{number}" for word in WORDS)})

        return StreamingResponse(events(), media_type="text/event-stream")

    def event(name: str, data: Any) -> bytes:
        return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))

    async def run() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        tell(f"http://127.0.0.1:{port}", "none")
        await serving

    asyncio.run(run())


def tell(url: str, token: str) -> None:
    """Tell the measuring process where the server listens."""
    print(json.dumps({"url": url, "token": token}), flush=True)


@contextlib.contextmanager
def started(
    kind: str, *, python: str = sys.executable, folder: Path | None = None, database: str = ""
) -> Iterator[Server]:
    """Start a server, of the program that this Python has, and end it with the block; its home stays in `folder`."""
    with tempfile.TemporaryDirectory() as empty:
        command = [python, __file__, "--serve", kind, "--home", str(folder or empty)]
        command += ["--database", database]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield Server(process.pid, told["url"], told["token"])
        finally:
            process.terminate()
            process.wait(30)


# What is measured


async def chat(client: httpx2.AsyncClient, number: int) -> None:
    """One conversation; its stream has to be whole and in order."""
    said = ""
    last: Any = None
    async with client.stream("POST", "/api/chat", json={"message": f"Say number {number}."}) as answer:
        assert answer.status_code == 200, answer.status_code
        name = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                last = json.loads(line[6:])
                if name == "text_delta":
                    said += last["text"]
    expected = " ".join(f"{word}-{number}" for word in WORDS)
    assert said.strip() == expected, said[:200]
    assert (name, last["text"]) == ("response", expected)


async def chats(server: Server, count: int) -> dict[str, float]:
    """All conversations at once."""
    async with server.client() as client:
        await chat(client, 0)
        cpu_s, began = server.cpu_s, time.perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(1, count + 1):
                group.start_soon(chat, client, number)
        return {
            "wall_s": round(time.perf_counter() - began, 2),
            "cpu_ms_each": round((server.cpu_s - cpu_s) * 1000 / count, 2),
        }


async def subscribers(server: Server, count: int) -> dict[str, float]:
    """Clients that follow a session in which nothing happens."""
    async with server.client() as client:
        async with client.stream("POST", "/api/chat", json={"message": "Say number 1."}) as answer:
            lines = [line async for line in answer.aiter_lines()]
        session = next(json.loads(line[6:])["sessionId"] for line in lines if "sessionId" in line)
        host, port = server.url.removeprefix("http://").split(":")
        asked = (
            f"GET /api/sessions/{session}/events HTTP/1.1\r\nhost: {host}:{port}\r\n"
            f"authorization: Bearer {server.token}\r\n\r\n"
        ).encode()
        cpu_s = server.cpu_s
        await anyio.sleep(IDLE_S)
        alone = (server.cpu_s - cpu_s) / IDLE_S
        before_kb = server.resident_kb
        streams = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(asked)
            assert b" 200 " in await reader.readline()
            streams.append((reader, writer))
        await anyio.sleep(2)
        after_kb, cpu_s = server.resident_kb, server.cpu_s
        await anyio.sleep(IDLE_S)
        busy = (server.cpu_s - cpu_s) / IDLE_S
        for _, writer in streams:
            writer.close()
        return {
            "kb_each": round((after_kb - before_kb) / count, 1),
            "cpu_share_of_all": round(busy, 4),
            "cpu_share_without_any": round(alone, 4),
        }


async def requests(server: Server, count: int) -> float:
    """CPU of a request that does nothing, in ms: the median of five rounds."""
    async with server.client() as client:
        found = []
        for _ in range(5):
            cpu_s = server.cpu_s
            for _ in range(count // 5):
                assert (await client.get("/healthz")).status_code == 200
            found.append((server.cpu_s - cpu_s) * 1000 / (count // 5))
        return statistics.median(found)


async def memory(server: Server, count: int, empty_ms: float) -> dict[str, Any]:
    """A search and a request for context, one after the other: each of a hundred with other words."""
    async with server.client() as client:
        for number in range(count):
            said = {"content": f"On day {number} the {WORDS[number % 50]} was moved to shelf {number % 97}."}
            assert (await client.post("/api/memories", json=said)).status_code == 201
        found: dict[str, Any] = {"count": count}
        for name in ("search", "context"):
            walls, cpu_s = [], server.cpu_s
            for number in range(100):
                question = f"Where is the {WORDS[number % 50]} of day {number * 7}?"
                began = time.perf_counter()
                if name == "search":
                    answer = await client.get("/api/memories/search", params={"q": question})
                else:
                    message = {"role": "user", "content": question}
                    answer = await client.post("/api/context", json={"messages": [message]})
                walls.append(1000 * (time.perf_counter() - began))
                assert answer.status_code == 200, answer.text
            cpu_ms = (server.cpu_s - cpu_s) * 10
            found[name] = {
                "cpu_ms": round(cpu_ms, 2),
                "cpu_of_empty": round(cpu_ms / empty_ms, 1),
                "wall_ms_p50": round(statistics.median(walls), 1),
                "wall_ms_p95": round(sorted(walls)[94], 1),
                "wall_ms_most": round(max(walls), 1),
            }
        return found


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both servers."""
    with started("bare") as bare:
        bare_chats = await chats(bare, options.chats)
        bare_ms = await requests(bare, options.requests if options.only is None else 5)
    with started("forgetful") as forgetful:
        plain_chats = await chats(forgetful, options.chats)
    with started("satchel") as satchel:
        own_chats = await chats(satchel, options.chats)
        found = {
            "load_1min": round(os.getloadavg()[0], 2),
            "chats": {
                "count": options.chats,
                "complete_and_in_order": True,
                "satchel": own_chats,
                "without_memory": plain_chats,
                "bare": bare_chats,
                "ratio": round(own_chats["cpu_ms_each"] / bare_chats["cpu_ms_each"], 1),
                "aim_ms": AIM_MS,
            },
        }
        if options.only == "chats":
            return found
        own_ms = await requests(satchel, options.requests)
        idle = await subscribers(satchel, options.subscribers)
        searched = await memory(satchel, options.memories, own_ms)
    return found | {
        "subscribers": {"count": options.subscribers, **idle},
        "requests": {
            "satchel_cpu_ms": round(own_ms, 3),
            "bare_cpu_ms": round(bare_ms, 3),
            "ratio": round(own_ms / bare_ms, 2),
        },
        "memory": searched,
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--memories", type=int, default=2000)
    parser.add_argument("--only", choices=("chats",))
    parser.add_argument("--serve", choices=("satchel", "forgetful", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--database", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve == "bare":
        serve_bare()
    elif options.serve:
        remembers = options.serve == "satchel"
        anyio.run(partial(serve_satchel, options.home, remembers=remembers, database=options.database))
    else:
        print(json.dumps(anyio.run(measure, options), indent=2))


if __name__ == "__main__":
    main()
