"""Satchel, open: every lifetime starts and ends here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVarTuple

import anyio
from anyio.abc import TaskGroup

from satchel import __version__
from satchel.clock import Clock
from satchel.config import Mode, Settings
from satchel.conversation import Conversation
from satchel.errors import SatchelError
from satchel.events import Notice, SessionStart
from satchel.loop import CallEnvironment, Hook, Instructions, Limits, Toolbox, ToolPool, build_system
from satchel.memory import Receipt
from satchel.memory.toolset import MemoryTools
from satchel.models import AbilityStore, ChatModel, Choice, choose_model, open_model
from satchel.models.embedding import OwnEmbedding, Progress
from satchel.models.port import Embedder
from satchel.runtime.distilling import Distilling
from satchel.runtime.health import Check, examine
from satchel.runtime.home import Home, untrusted_project
from satchel.runtime.log_redactor import LogRedactor
from satchel.runtime.rules import gate_for
from satchel.runtime.session import Session
from satchel.runtime.spill import spill_into
from satchel.runtime.toolindex import ToolIndex
from satchel.runtime.tooling import external_tools, mcp_tools
from satchel.runtime.web import web_tools
from satchel.sessions import Journal
from satchel.tools import Approver, Ask, Registry, StaticToolset, Toolset, builtin_tools, filtered
from satchel.tools.deferral import Bridge, split_by_number

__all__ = ["Satchel"]

Ts = TypeVarTuple("Ts")

_MOST_DISCOVERY_S = 5.0
"""How long a first message waits for executables that were never asked: two rounds of a second, and some."""


class Satchel(Home):
    """A home with everything: models, tools, sessions. Made by `Satchel.open`; its attributes are those of `Home`."""

    def __init__(self, home: Home, *, group: TaskGroup, model: ChatModel | None) -> None:
        """Use `open`."""
        super().__init__(
            home.settings,
            clock=home.clock,
            memory=home.memory,
            sessions=home.sessions,
            notices=home.notices,
            database=home.database,
            embedder=home.embedder,
        )
        self.pool = ToolPool(self.settings.agent.tool_workers)
        self.external = external_tools(self.settings, self.clock)
        self.mcp = mcp_tools(self.settings, self.clock, spawn=self.run)
        self._is_discovering = False
        self._group = group
        self._given_model = model
        self._abilities = AbilityStore(self.settings.home / "abilities.json", clock=self.clock)
        self._models: dict[str, ChatModel] = {}
        self._choice: Choice | None = None
        self._choosing = anyio.Lock()
        self.distilling = Distilling(self)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings | None = None,
        *,
        model: ChatModel | None = None,
        embedder: Embedder | OwnEmbedding | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
    ) -> AsyncIterator[Satchel]:
        """Open it, and close everything in good order at the end.

        A memory that can't be opened does not keep Satchel from opening: `notices` says what is missing.

        Args:
            settings: None reads them from the environment, `SATCHEL_HOME` and the working directory.
            model: Answers in place of the configured one.
            embedder: In place of the configured one; see `Memory.open`.
            clock: None is the machine's.
            progress: Is told how far the embedding model's weights are fetched; called from another thread.

        Raises:
            ConfigError: The settings are wrong.
            StorageUnwritable: `SATCHEL_HOME` can't be made.
        """
        failure: Exception | None = None
        async with Home.open(settings, embedder=embedder, clock=clock, progress=progress) as home:
            # Turns run in this group: they outlive whoever follows them, and end with it.
            async with anyio.create_task_group() as group:
                satchel = cls(home, group=group, model=model)
                satchel.distilling.start()
                try:
                    yield satchel
                except Exception as error:  # noqa: BLE001 - raised again below, where the group can't wrap it
                    failure = error
                finally:
                    with anyio.CancelScope(shield=True):
                        await satchel._close()
                    group.cancel_scope.cancel()
            if failure is not None:
                raise failure

    def run(self, function: Callable[[*Ts], Coroutine[Any, Any, None]], *args: *Ts) -> None:
        """Run something in the background until this Satchel closes."""
        self._group.start_soon(function, *args)

    # Models

    @property
    def has_given_model(self) -> bool:
        """Whether a model was handed to `open`: it then serves for everything that the settings don't name."""
        return self._given_model is not None

    async def choice(self) -> Choice:
        """Which model serves where none is asked for by name, and why; found out once.

        Raises:
            ConfigError, ModelError: As `choose_model`.
        """
        async with self._choosing:  # a turn and the background may ask at once
            if self._choice is None:
                await self._choose()
        assert self._choice is not None
        return self._choice

    async def _choose(self) -> None:
        self._choice = await choose_model(self.settings)
        for tried in self._choice.failed:
            text = (
                f"{tried.name} is set up and could not be taken: {tried.reason.rstrip('.')}. "
                "Mend that, or choose another: satchel config set model PROVIDER:MODEL"
            )
            self.notices.append(Notice(part="model", text=text))

    async def model(self, name: str | None = None) -> ChatModel:
        """A model by its name "provider:model"; None gives the one that serves. It is closed with this Satchel.

        Raises:
            ConfigError, ModelError: There is no such model, or none could be chosen.
        """
        if name is None:
            if self._given_model is not None:
                return self._given_model
            name = (await self.choice()).name
        if name not in self._models:
            self._models[name] = open_model(name, self.settings, abilities=self._abilities, clock=self.clock)
        return self._models[name]

    # Sessions

    async def session(
        self,
        session_id: str | None = None,
        *,
        last: bool = False,
        cwd: Path | None = None,
        model: str | None = None,
        mode: Mode | None = None,
        allow: Sequence[str] = (),
        approver: Approver | None = None,
        ask: Ask | None = None,
        private: bool = False,
        hooks: Sequence[Hook] = (),
    ) -> Session:
        """Begin a session, or go on with one.

        Args:
            session_id: Go on with this one; the unique beginning of an id will do.
            last: Go on with the newest one of the working directory, if there is one.
            cwd: Its working directory; None is that of the settings, or the one it had.
            model: "provider:model"; None takes what the settings say.
            mode: How to decide calls that no rule covers; None takes the setting.
            allow: Permission rules that hold for this session, such as "bash(git *)".
            approver: Asks the user; None where nobody can be asked.
            ask: Asks the user what a tool wants to know in the middle of its work, as an MCP server may; None
                where nobody can be asked.
            private: Nothing that is said in it is kept as memory.
            hooks: See `satchel.loop.Hook`.

        Raises:
            NotFound: There is no such session.
            StorageLocked: It is open already, here or in another process.
            ConfigError, ModelError: The model is not to be had.
            UsageError: A rule can't be read.
        """
        serving = await self.model(model)
        gate_cwd = (cwd or self.settings.cwd).resolve()
        if session_id is None and last:
            newest = await self.sessions.last(gate_cwd)
            session_id = newest.id if newest is not None else None
        journal = (
            await self.sessions.create(gate_cwd)
            if session_id is None
            else await self.sessions.open(session_id)
        )
        try:
            return await self._begin(
                journal,
                cwd=cwd or (Path(journal.cwd) if journal.cwd else gate_cwd),
                model=serving,
                mode=mode or self.settings.agent.mode,
                allow=allow,
                approver=approver,
                ask=ask,
                private=private,
                hooks=hooks,
            )
        except BaseException:
            with anyio.CancelScope(shield=True):
                await journal.aclose()
            raise

    async def _begin(
        self,
        journal: Journal,
        *,
        cwd: Path,
        model: ChatModel,
        mode: Mode,
        allow: Sequence[str],
        approver: Approver | None,
        ask: Ask | None,
        private: bool,
        hooks: Sequence[Hook],
    ) -> Session:
        settings = self.settings
        # The prompt must not wait for executables that are asked for the first time; the first message does.
        registry = await self.tools(wait=False)
        gate = gate_for(
            settings, mode=mode, allow=allow, approver=approver, cwd=cwd, open_folders=(journal.spill_dir,)
        )
        redactor = LogRedactor(redacts=settings.memory.redact, pool=self.pool)
        environment = CallEnvironment(
            tools=await self.toolbox(registry),
            gate=gate,
            pool=self.pool,
            spill=spill_into(journal.spill_dir, self.pool, clean=redactor.redacted_text),
            session_id=journal.session_id,
            cwd=cwd,
            # What the gate lets through, the file tools reach, and nothing else.
            roots=gate.roots,
            spill_dir=journal.spill_dir,
            environ=settings.environ,
            ask=ask,
        )
        records = journal.take_records()
        conversation = Conversation.from_records(records)
        started_at = records[0].at if records else self.clock.now()
        session = Session(
            self,
            journal=journal,
            conversation=conversation,
            model=model,
            system=build_system(
                cwd=str(cwd),
                day=f"{started_at:%Y-%m-%d}",
                remembers=self.memory is not None,
                instructions=self._instructions(),
            ),
            gate=gate,
            tools=registry,
            environment=environment,
            redactor=redactor,
            limits=Limits(
                max_rounds=settings.agent.max_rounds,
                tool_timeout_s=settings.agent.tool_timeout_s,
                max_result_chars=settings.agent.max_result_chars,
            ),
            private=private,
            hooks=hooks,
        )
        start = SessionStart(
            session_id=session.id,
            cwd=str(cwd),
            provider=model.provider,
            model=model.model,
            version=__version__,
            resumed=bool(records),
            private=private,
        )
        conversation.apply(start)
        await journal.append([start])
        self._open_sessions[session.id] = session
        return session

    def _instructions(self) -> list[Instructions]:
        """The `AGENTS.md` of a project that the user trusts."""
        settings = self.settings
        if settings.project is None:
            return []
        if not settings.project_trusted:
            self._say_once(untrusted_project(settings))
            return []
        text = settings.project_instructions
        return [Instructions(source="AGENTS.md", text=text)] if text else []

    def _say_once(self, notice: Notice | None) -> None:
        if notice is not None and notice not in self.notices:
            self.notices.append(notice)

    def release(self, session: Session) -> None:
        """A session was closed."""
        self._open_sessions.pop(session.id, None)

    # Tools

    async def tools(self, *, wait: bool = True, servers: bool = True) -> Registry:
        """What a model may call, in the order in which it is told.

        Args:
            wait: Wait until the executables in the tools' folders were found, and until MCP servers that were never
                met have listed their tools, ten seconds at most; else those that are known by now.
            servers: Wait for those servers too.
        """
        settings = self.settings
        if not self._is_discovering:
            self._is_discovering = True
            self.run(self.external.discover)
            self.mcp.begin()
        if wait:
            limit_s = max(_MOST_DISCOVERY_S, 3 * settings.tools.schema_timeout_s)
            await self.external.wait(limit_s)
        served = StaticToolset(await self.mcp.tools() if wait and servers else self.mcp.known())
        toolsets: list[Toolset] = [
            builtin_tools(home=settings.home, bash_timeout_s=settings.agent.tool_timeout_s),
            web_tools(settings, spawn=self.run),
        ]
        if self.memory is not None:
            toolsets.append(
                MemoryTools(self.memory, forget=self._forget_in_store, small_model=self._small_model)
            )
        left_out = {*settings.tools.disabled, *self.external.replaced}
        kept = [filtered(toolset, lambda spec: spec.name not in left_out) for toolset in (*toolsets, served)]
        return await Registry.load([*kept[:-1], self.external, kept[-1]])

    async def toolbox(self, registry: Registry) -> Toolbox:
        """The tools of a session: those that stand in the prompt, and a bridge to the rest where they are too many."""
        offered, deferred = split_by_number(registry.tools, defer_above=self.settings.tools.defer_above)
        if not deferred:
            return Toolbox(offered)
        index = ToolIndex(
            self.settings.home / "tool-index.db",
            embedder=self.embedder,
            clock=self.clock,
            home=self.settings.home,
        )
        return Toolbox((*offered, *await Bridge(deferred, index).tools()), deferred=deferred)

    # What it costs and how it is

    async def doctor(self) -> tuple[Check, ...]:
        """Try every part and say how it is."""
        return await examine(self, self.database)

    async def _small_model(self) -> ChatModel | None:
        """The model for small work, or None where there is no language model."""
        try:
            _, small = await self.distilling.models()
        except SatchelError:
            return None  # What asks for it does its work without one too.
        return None if small.provider == "none" else small

    async def _forget_in_store(self, ids: Sequence[str]) -> Receipt:
        return (await self.forget(ids)).store

    async def _close(self) -> None:
        for session in list(self._open_sessions.values()):
            await session.aclose()
        await self.distilling.close()
        await self.mcp.aclose()
        for model in self._models.values():
            await model.aclose()
        self.pool.close()
