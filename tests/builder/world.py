"""A small world for builds: a home with a catalogue, a sandbox that confines nothing, a scripted Builder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from satchel.builder.builder import Builder
from satchel.builder.queue import BuildQueue
from satchel.builder.records import Build
from satchel.builder.registering import Registering
from satchel.builder.tasks import build_task
from satchel.builder.workshop import Workshop
from satchel.capabilities.access import network_of
from satchel.capabilities.allowances import Allowances, Rules
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.checking import Registrar
from satchel.capabilities.records import Access, Capability, Wanted
from satchel.capabilities.running import Runner
from satchel.clock import Clock, SystemClock
from satchel.config import BuilderSettings, PermissionRule
from satchel.errors import NotFound, UsageError
from satchel.events import Event
from satchel.loop import ToolPool
from satchel.messages import ToolResultBlock
from satchel.models import ChatModel
from satchel.models.scripted import Call, Reply, Script, ScriptedModel
from satchel.sandbox.port import Artifact, Network, OnOutput, RunResult, RunSpec, SessionSpec, Status
from satchel.sessions import SessionStore
from satchel.storage import Database
from tests.capabilities.sandboxes import OpenSandbox, opened
from tests.capabilities.world import make_database

__all__ = ["CASES", "GREET", "SCHEMA", "FolderSandbox", "World", "open_world", "register", "tries", "write"]

GREET = 'def run(args: dict) -> str:\n    return "Hello, " + args["city"] + "!"\n'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CASES = (
    '{"name": "Austin", "input": {"city": "Austin"}, "expect": {"equals": "Hello, Austin!"}}\n'
    '{"name": "no city", "input": {}, "expect": {"error": "city"}}\n'
)


def write(path: str, content: str) -> Call:
    return Call(name="write_file", input={"path": path, "content": content})


def tries(code: str = 'from main import run; run({"city": "Austin"})', **more: Any) -> Call:
    return Call(name="run_code", input={"code": code, **more})


def register(**more: Any) -> Call:
    return Call(
        name="register_capability",
        input={"description": "Greet a city by its name.", "input_schema": SCHEMA, **more},
    )


WHOLE = (
    Reply(calls=[write("main.py", GREET), write("tests/cases.jsonl", CASES)]),
    Reply(calls=[tries()]),
    Reply(calls=[register()]),
)
"""A build from beginning to end."""


class _Session:
    """Runs commands in the folder, as this user, unconfined."""

    backend = "open"

    def __init__(self, spec: SessionSpec, sandbox: FolderSandbox) -> None:
        self._folder = spec.folder
        self._sandbox = sandbox
        self._network = spec.network
        self._folder.mkdir(parents=True, exist_ok=True)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> RunResult:
        self._sandbox.commands.append((tuple(argv), self._network))
        program = [sys.executable, *argv[1:]] if argv[0] == "python" else list(argv)
        done = subprocess.run(
            program, cwd=self._folder, input=stdin or b"", capture_output=True, timeout=timeout_s
        )
        return RunResult(
            status=Status.OK if done.returncode == 0 else Status.ERROR,
            error="" if done.returncode == 0 else f"It ended with exit code {done.returncode}.",
            stdout=done.stdout.decode(),
            stderr=done.stderr.decode(),
            exit=done.returncode,
            backend=self.backend,
        )

    async def call(self, args: Mapping[str, object], *, timeout_s: float, function: str = "run") -> RunResult:
        raise NotImplementedError

    def _path(self, path: str) -> Path:
        if path.startswith("/") or ".." in path.split("/"):
            raise UsageError(f"{path} leaves the folder.")
        return self._folder / path

    async def write(self, path: str, content: bytes) -> None:
        target = self._path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    async def read(self, path: str, *, max_bytes: int) -> bytes:
        try:
            return self._path(path).read_bytes()[:max_bytes]
        except FileNotFoundError:
            raise NotFound(f"There is no file {path}.") from None

    async def export(self, paths: Sequence[str] | None = None) -> tuple[Artifact, ...]:
        found = []
        for path in paths or ["."]:
            top = self._path(path)
            if not top.exists():
                raise NotFound(f"There is nothing at {path}.")
            files = [top] if top.is_file() else sorted(file for file in top.rglob("*") if file.is_file())
            found += [Artifact(path=str(f.relative_to(self._folder)), content=f.read_bytes()) for f in files]
        return tuple(found)

    def use_layer(self, layer: Path | None) -> None:
        self._sandbox.layers.append(layer)

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> _Session:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass


class FolderSandbox(OpenSandbox):
    """`commands` are those that sessions ran, each with its network; `layers` those that they were given; `before_run`
    is awaited before each run of a capability.
    """

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[tuple[tuple[str, ...], Network]] = []
        self.layers: list[Path | None] = []
        self.before_run: Callable[[], Awaitable[None]] | None = None

    async def run(self, spec: RunSpec, *, on_output: OnOutput | None = None) -> RunResult:
        if self.before_run is not None:
            await self.before_run()
        return await super().run(spec, on_output=on_output)

    async def open(self, spec: SessionSpec) -> Any:
        return _Session(spec, self)


class World:
    """Everything that a build needs. A second one over the same home is another life of the program."""

    def __init__(
        self,
        home: Path,
        database: Database,
        catalogue: Catalogue,
        script: Script,
        *,
        clock: Clock,
        rules: Sequence[PermissionRule] = (),
        **settings: Any,
    ) -> None:
        self.home = home
        self.database = database
        self.clock = clock
        self.catalogue = catalogue
        self.model = ScriptedModel(script)
        self.sandbox = FolderSandbox()
        self.queue = BuildQueue(database, clock=clock, user_id="default")
        self.sessions = SessionStore(home / "sessions", database, clock=clock)
        self.pool = ToolPool(workers=4)
        self.required: list[Sequence[str]] = []
        self.secrets: dict[str, str] = {}
        self.runner = Runner(catalogue, opened(self.sandbox), layers=self._layer, secret=self.secrets.get)
        self.registrar = Registrar(catalogue, self.runner, clock=clock, allowances=_gives(rules))
        self.settings = BuilderSettings(**{"question_wait_s": 0.0, **settings})
        self.before_log: Any = None

    async def _layer(self, requirements: Sequence[str]) -> Path | None:
        self.required.append(tuple(requirements))
        if any(wanted.startswith("no-such") for wanted in requirements):
            raise UsageError("There is no package no-such.")
        return None

    @property
    def builder(self) -> Builder:
        async def clean(events: Sequence[Event]) -> Sequence[Event]:
            if self.before_log is not None:
                await self.before_log(events)
            return events

        async def fail(build: Build, reason: str) -> None:
            with suppress(NotFound):
                await self.catalogue.fail(build.capability_id, [reason], build_id=build.id)

        async def model(build: Build) -> ChatModel:
            return self.model

        async def nothing(build: Build, workshop: Workshop) -> None:
            pass

        async def no_brief(build: Build) -> str:
            return ""

        async def spill(call_id: str, text: str) -> str:
            return ""

        async def spent() -> float:
            return 0.0

        return Builder(
            settings=self.settings,
            clock=self.clock,
            queue=self.queue,
            sessions=self.sessions,
            sandbox=opened(self.sandbox),
            model=model,
            folder=lambda build: self.home / "builds" / build.id,
            prepare=nothing,
            brief=no_brief,
            clean=clean,
            layers=self._layer,
            network=lambda hosts: network_of(Access(hosts=tuple(hosts))),
            lend=self.runner.lend,
            registering=Registering(catalogue=self.catalogue, registrar=self.registrar),
            fail=fail,
            pool=self.pool,
            spill=lambda folder: spill,
            environ={},
            spent_on_day=spent,
        )

    async def request(
        self,
        name: str = "greet",
        description: str = "Greet a city.",
        *,
        question: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Build:
        wanted = Wanted(name=name, description=description)
        requested = await self.catalogue.request(wanted, **more)
        now = self.clock.now()
        return await self.queue.add(
            Build(
                id=requested.build_id,
                capability_id=requested.capability.id,
                name=name,
                kind="build",
                task=build_task(wanted),
                asked_by="s1",
                session_id=f"build-{requested.build_id}",
                model="scripted:scripted",
                created_at=now,
                updated_at=now,
            ),
            question=question,
        )

    async def build(self, **more: Any) -> tuple[Build, Capability]:
        build = await self.builder.build((await self.request(**more)).id)
        return build, await self.catalogue.get(build.name)

    async def said(self, build: Build) -> list[tuple[str, str]]:
        return [(m.type, m.text) for m in await self.queue.messages(build.id)]

    @property
    def results(self) -> list[str]:
        """The results that the model has got, in order."""
        last = self.model.requests[-1].messages
        return [b.content for m in last for b in m.blocks if isinstance(b, ToolResultBlock)]

    def files(self, build: Build) -> dict[str, str]:
        folder = self.home / "builds" / build.id
        # The double of the sandbox runs what is built in this process's Python, which may keep its bytecode.
        found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(folder)): path.read_text() for path in sorted(found)}


def _gives(rules: Sequence[PermissionRule]) -> Rules:
    async def give() -> Allowances:
        return Allowances(rules)

    return give


@asynccontextmanager
async def open_world(
    home: Path, script: Script = WHOLE, *, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[World]:
    clock = clock or SystemClock()
    await make_database(home)
    async with Database.open(home / "satchel.db", clock=clock) as database:
        catalogue = await Catalogue.open(database, home=home, clock=clock)
        world = World(home, database, catalogue, script, clock=clock, **settings)
        try:
            yield world
        finally:
            world.pool.close()


def copy_of(home: Path, target: Path) -> Path:
    shutil.copytree(home, target)
    return target


def as_json(value: Any) -> str:
    return json.dumps(value)
