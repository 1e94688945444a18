"""A server on loopback in a thread of its own, with a model that does what the message says."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal

from satchel.capabilities import Capability, Wanted
from satchel.errors import ModelRejected
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from satchel.runtime.serving import read_token
from satchel.runtime.serving import serving as running_server
from satchel.server.app import App
from satchel.server.listening import served
from tests.builder import world as builder
from tests.capabilities.world import BY_BUILDER, GREET, draft
from tests.forking import Program
from tests.runtime.world import settings_in

NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak plain HTTP: each would read the system's certificates again, a twentieth of a second."""

WORDS = "one two three four five six seven eight nine ten"


BUILDS = (
    Reply(calls=[builder.write("main.py", builder.GREET), builder.write("tests/cases.jsonl", builder.CASES)]),
    Reply(calls=[Call(name="ask_user", input={"question": "In which language?"}, id="q1")]),
    *builder.WHOLE[1:],
)
"""What the Builder's model does."""


@dataclass
class Held:
    """Holds the answers to messages with "hold" in them back, in the middle."""

    reached: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    async def wait(self) -> None:
        self.reached.set()
        while not self.go_on.is_set():  # noqa: ASYNC110 - set by another thread
            await anyio.sleep(0.005)


def scripted(held: Held) -> ScriptedModel:
    """Answers "echo X" with a call of bash, "hold" with ten words of which most wait, "count" with ten at once."""

    def reply(request: ModelRequest) -> Reply | str:
        newest = request.messages[-1].text.lower()
        if any(tool.name == "register_capability" for tool in request.tools):
            return BUILDS[sum(message.role == "assistant" for message in request.messages)]
        if not newest:
            return "It is done."
        echo = re.search(r"echo (\w+)", newest)
        if echo:
            call = Call(name="bash", input={"command": f"echo {echo[1]}"}, id=f"c{len(request.messages)}")
            return Reply(text="Let me see.", calls=[call])
        if newest.startswith("leave a command running"):
            call = Call(name="bash", input={"command": "sleep 600", "background": True}, id="b1")
            return Reply(calls=[call])
        if newest == "view":
            return Reply(calls=[Call(name="file_read", input={"path": "a.png"}, id="v1")])
        if "weather" in newest and any(tool.name == "get_weather" for tool in request.tools):
            return Reply(
                text="One moment.", calls=[Call(name="get_weather", input={"city": "Bern"}, id="w1")]
            )
        if "ask me" in newest:
            return Reply(calls=[Call(name="ask_user", input={"question": "Which city?"}, id="a1")])
        if "fail" in newest:
            raise ModelRejected("The endpoint refused the request.")
        if newest.startswith("say this: "):
            return request.messages[-1].text.partition("\n\n")[2]
        if "what was said" in newest:
            return " | ".join(f"{one.role}: {one.text}" for one in request.messages[:-1])
        if "your options" in newest:
            return json.dumps(dict(request.options), sort_keys=True)
        if "instructions" in newest:
            return f"{request.temperature} {request.max_tokens} {request.system.splitlines()[-1]}"
        if "hold" in newest:
            return Reply(text=WORDS, chunk=7, between=held.wait)
        if "count" in newest:
            return Reply(text=WORDS, chunk=3)
        return "I see."

    return ScriptedModel(reply)


@dataclass
class World:
    """A server that runs.

    Attributes:
        url: Its address.
        token: What its clients send.
        satchel: What it serves; use it through `call`.
    """

    url: str
    token: str
    home: Path
    satchel: Satchel
    held: Held
    portal: BlockingPortal
    app: App

    async def stop(self) -> None:
        """Stop the application, as a signal does; the server goes on."""
        await self.app.stop()

    def client(self, **headers: str) -> httpx2.Client:
        """A client with the token."""
        return httpx2.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {self.token}", **headers},
            timeout=120,
            trust_env=False,
            verify=NO_AUTHORITIES,
        )

    def call(self, function: Any, *args: Any) -> Any:
        """Call an async function in the server's thread."""
        return self.portal.call(function, *args)


@asynccontextmanager
async def _open(
    folder: Path, model: ScriptedModel, overrides: dict[str, Any]
) -> AsyncIterator[tuple[Satchel, str, App]]:
    settings = settings_in(folder, **{"server__port": 0, "agent__mode": "bypass", **overrides})
    embedder = None if "memory__embedder" in overrides else HashingEmbedder()
    async with (
        Satchel.open(settings, model=model, embedder=embedder) as satchel,
        served(satchel) as (url, app),
    ):
        yield satchel, url, app


@contextmanager
def serving(
    folder: Path, script: Callable[[Held], ScriptedModel] = scripted, /, **overrides: Any
) -> Iterator[World]:
    """Serve a home in a folder, with the model that `script` makes."""
    held = Held()
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(_open(folder, script(held), overrides)) as (satchel, url, app),
    ):
        home = satchel.settings.home
        try:
            yield World(url, read_token(home) or "", home, satchel, held, portal, app)
        finally:
            held.go_on.set()


@dataclass(frozen=True)
class Sent:
    """One server-sent event."""

    name: str
    data: Any
    id: str


def events_in(lines: Iterator[str]) -> Iterator[Sent]:
    """Read events, as a browser does."""
    name, data, id = "message", "", ""
    for line in lines:
        if not line:
            if data:
                yield Sent(name, json.loads(data), id)
            name, data = "message", ""
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data += value
        elif field == "id":
            id = value


def chat(
    client: httpx2.Client, message: str, *, headers: dict[str, str] | None = None, **more: Any
) -> list[Sent]:
    """Send a message and read all events of its turn."""
    with client.stream(
        "POST", "/api/chat", json={"message": message, **more}, headers=headers or {}
    ) as answer:
        assert answer.status_code == 200, answer.read()
        return list(events_in(answer.iter_lines()))


async def register(world: World, name: str, **changes: Any) -> Capability:
    """A version of a capability, as the Builder registers it."""
    parts = world.satchel.capabilities
    assert parts is not None
    if await parts.catalogue.find(name) is None:
        description = changes.get("description", GREET.description)
        await parts.catalogue.request(Wanted(name=name, description=description))
    made = await parts.registrar.register(name, draft(**changes), provenance=BY_BUILDER)
    return made.capability


def text_of(events: list[Sent]) -> str:
    """What was streamed."""
    return "".join(event.data["text"] for event in events if event.name == "text_delta")


PROGRAM = """
import sys, threading
from pathlib import Path
import anyio
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from satchel.server.listening import serve
from tests.patience import be_patient
from tests.runtime.world import settings_in
from tests.server.world import Held, scripted

be_patient()

async def main() -> None:
    held = Held()
    if sys.argv[2] == "free":
        held.go_on.set()
    database = sys.argv[3]
    settings = settings_in(
        Path(sys.argv[1]), **{"server__port": 0, "agent__mode": "bypass", "database": database}
    )
    async with Satchel.open(settings, model=scripted(held), embedder=HashingEmbedder()) as satchel:
        await serve(satchel, tell=lambda line: print(line, flush=True))

anyio.run(main)
"""


@contextmanager
def process(folder: Path, how: str, *, database: str = "") -> Iterator[tuple[Program, httpx2.Client]]:
    """A server in a process of its own, and a client."""
    with Program("-c", PROGRAM, folder, how, database) as running:
        try:
            assert "listens at" in running.stdout.readline()
            found = running_server(folder / "home")
            assert found is not None
            assert found.pid == running.pid
            headers = {"authorization": f"Bearer {read_token(folder / 'home')}"}
            with httpx2.Client(base_url=found.url, headers=headers, timeout=120, trust_env=False) as client:
                yield running, client
        finally:
            running.kill()


class Machines(NamedTuple):
    """Two machines of one home: the server in this process with its client, and the client of another one's server,
    which is a process of its own.
    """

    near: World
    client: httpx2.Client
    other: httpx2.Client
    running: Program


@contextmanager
def machines(url: str, tmp_path: Path) -> Iterator[Machines]:
    """Serve a home at two machines, with one database."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(exist_ok=True)
    (there / "home").mkdir(parents=True, mode=0o700, exist_ok=True)
    with serving(here, database=url) as near, near.client() as client:
        for file in ("forgotten.key", "token"):
            shutil.copy(near.home / file, there / "home")
        with process(there, "free", database=url) as (running, other):
            yield Machines(near, client, other, running)
