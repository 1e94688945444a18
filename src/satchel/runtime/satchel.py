"""Satchel, open: every lifetime starts and ends here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVarTuple

import anyio
from anyio.abc import TaskGroup

from satchel import __version__
from satchel.clock import Clock, SystemClock
from satchel.config import Mode, Settings, ensure_home, load, process_environ
from satchel.errors import SatchelError, StorageError
from satchel.events import Notice, SessionStart
from satchel.loop import Hook, Instructions, Limits, Toolbox, ToolPool, Workshop, build_system
from satchel.memory import Memory, Receipt
from satchel.memory.toolset import MemoryTools
from satchel.models import AbilityStore, ChatModel, Choice, choose_model, open_model
from satchel.models.embedding import Progress, open_embedder
from satchel.models.port import Embedder
from satchel.runtime.capture import catch_up
from satchel.runtime.forgetting import ForgetReceipt, forget
from satchel.runtime.health import Check, examine
from satchel.runtime.rules import gate_for
from satchel.runtime.session import Session
from satchel.runtime.spill import spill_into
from satchel.sessions import Journal, SessionStore, UsageRow, rebuild
from satchel.storage import Database
from satchel.tools import Approver, Registry, Toolset, builtin_tools, filtered

__all__ = ["Satchel"]

Ts = TypeVarTuple("Ts")

_MOST_INSTRUCTIONS_BYTES = 1_000_000
"""Of an `AGENTS.md`: more than any model's window; the loop cuts what it takes of it."""


class Satchel:
    """One home, open in this process. Made by `Satchel.open`; several processes may have the same home open.

    Attributes:
        settings: What was configured.
        memory: The store, or None where it is off or can't be opened; `notices` tells why.
        sessions: The logs.
        notices: What the user should know: parts that are missing, and what that means.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        memory: Memory | None,
        sessions: SessionStore,
        notices: list[Notice],
        group: TaskGroup,
        model: ChatModel | None,
        database: Database | None,
    ) -> None:
        """Use `open`."""
        self._database = database
        self.settings = settings
        self.clock = clock
        self.memory = memory
        self.sessions = sessions
        self.notices = notices
        self.pool = ToolPool(settings.agent.tool_workers)
        self._group = group
        self._given_model = model
        self._abilities = AbilityStore(settings.home / "abilities.json", clock=clock)
        self._models: dict[str, ChatModel] = {}
        self._open_sessions: dict[str, Session] = {}
        self._choice: Choice | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings | None = None,
        *,
        model: ChatModel | None = None,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
    ) -> AsyncIterator[Satchel]:
        """Open it, and close everything in good order at the end.

        A memory that can't be opened does not keep Satchel from opening: `notices` says what is missing.

        Args:
            settings: None reads them from the environment, `SATCHEL_HOME` and the working directory.
            model: Answers in place of the configured one.
            embedder: In place of the configured one.
            clock: None is the machine's.
            progress: Is told how far the embedding model's weights are fetched; called from another thread.

        Raises:
            ConfigError: The settings are wrong.
            StorageUnwritable: `SATCHEL_HOME` can't be made.
        """
        if settings is None:
            settings = load(process_environ(), cwd=Path.cwd())
        clock = clock or SystemClock()
        ensure_home(settings.home)
        notices: list[Notice] = []
        async with AsyncExitStack() as stack:
            database = await _database(settings, clock, stack, notices)
            sessions = SessionStore(settings.home / "sessions", database, clock=clock)
            memory: Memory | None = None
            if database is not None and settings.memory.enabled:
                memory = await stack.enter_async_context(
                    Memory.open(
                        database,
                        embedder=embedder or _embedder(settings, clock, progress),
                        clock=clock,
                        home=settings.home,
                    )
                )
            failure: Exception | None = None
            # Turns run in this group: they outlive whoever follows them, and end with it.
            async with anyio.create_task_group() as group:
                satchel = cls(
                    settings,
                    clock=clock,
                    memory=memory,
                    sessions=sessions,
                    notices=notices,
                    group=group,
                    model=model,
                    database=database,
                )
                try:
                    if memory is not None and settings.keeps_memory:
                        notices += await _caught_up(sessions, memory)
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

    async def choice(self) -> Choice:
        """Which model serves where none is asked for by name, and why; found out once.

        Raises:
            ConfigError, ModelError: As `choose_model`.
        """
        if self._choice is None:
            self._choice = await choose_model(self.settings)
        return self._choice

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
        private: bool = False,
        hooks: Sequence[Hook] = (),
    ) -> Session:
        """Begin a session, or go on with one.

        Args:
            session_id: Go on with this one; the unique beginning of an id will do.
            last: Go on with the newest one of the working directory, if there is one.
            cwd: Its working directory; None is that of the settings, or the one it had.
            model: "provider:model"; None takes what the settings say.
            mode: Who permits calls; None takes what the settings say.
            allow: Permission rules that hold for this session, such as "bash(git *)".
            approver: Asks the user; None where nobody can be asked.
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
        private: bool,
        hooks: Sequence[Hook],
    ) -> Session:
        settings = self.settings
        registry = await self.tools()
        gate = gate_for(
            settings, mode=mode, allow=allow, approver=approver, cwd=cwd, open_folders=(journal.spill_dir,)
        )
        workshop = Workshop(
            tools=Toolbox(registry.tools),
            gate=gate,
            pool=self.pool,
            spill=spill_into(journal.spill_dir, self.pool),
            session_id=journal.session_id,
            cwd=cwd,
            # Where nothing is asked, nothing is fenced off either: the user said so in those words.
            roots=(Path("/"),) if mode == "bypass" else (cwd,),
            spill_dir=journal.spill_dir,
            environ=settings.environ,
        )
        records = journal.log.records
        started_at = records[0].at if records else self.clock.now()
        session = Session(
            self,
            journal=journal,
            history=rebuild(records),
            model=model,
            system=build_system(
                cwd=str(cwd),
                day=f"{started_at:%Y-%m-%d}",
                remembers=self.memory is not None,
                instructions=self._instructions(),
            ),
            gate=gate,
            tools=registry,
            workshop=workshop,
            limits=Limits(
                max_rounds=settings.agent.max_rounds,
                tool_timeout_s=settings.agent.tool_timeout_s,
                max_result_chars=settings.agent.max_result_chars,
            ),
            private=private,
            hooks=hooks,
        )
        await journal.append(
            [
                SessionStart(
                    session_id=session.id,
                    cwd=str(cwd),
                    provider=model.provider,
                    model=model.model,
                    version=__version__,
                    resumed=bool(records),
                    private=private,
                )
            ]
        )
        self._open_sessions[session.id] = session
        return session

    def _instructions(self) -> list[Instructions]:
        """The `AGENTS.md` of a project that the user trusts."""
        settings = self.settings
        if settings.project is None or not settings.project_trusted:
            return []
        path = settings.project / "AGENTS.md"
        try:
            if not path.is_file() or path.stat().st_size > _MOST_INSTRUCTIONS_BYTES:
                return []
            return [Instructions(source="AGENTS.md", text=path.read_text(encoding="utf-8", errors="replace"))]
        except OSError as error:
            self.notices.append(Notice(part="project", text=f"{path} can't be read: {error.strerror}."))
            return []

    def release(self, session: Session) -> None:
        """A session was closed."""
        self._open_sessions.pop(session.id, None)

    # Tools

    async def tools(self) -> Registry:
        """What a model may call, in the order in which it is told."""
        settings = self.settings
        toolsets: list[Toolset] = [
            builtin_tools(home=settings.home, bash_timeout_s=settings.agent.tool_timeout_s)
        ]
        if self.memory is not None:
            toolsets.append(MemoryTools(self.memory, forget=self._forget_in_store))
        disabled = set(settings.tools.disabled)
        return await Registry.load(
            [filtered(toolset, lambda spec: spec.name not in disabled) for toolset in toolsets]
        )

    # What it costs and how it is

    async def usage(self) -> tuple[UsageRow, ...]:
        """What was spent, by session, local day and model, the newest day first.

        Raises:
            StorageError: The logs can't be read.
        """
        rows = [row for info in await self.sessions.list() for row in info.spent]
        return tuple(sorted(rows, key=lambda row: (row.day, row.session_id), reverse=True))

    async def doctor(self) -> tuple[Check, ...]:
        """Try every part and say how it is."""
        return await examine(self, self._database)

    # Forgetting

    async def forget(self, ids: Sequence[str]) -> ForgetReceipt:
        """Remove memories for good: from the store, and their words from the logs of the sessions.

        Returns:
            What was removed where; see `ForgetReceipt`.

        Raises:
            StorageError: The store did not serve; nothing was removed.
        """
        if self.memory is None:
            raise StorageError("Memory is off or could not be opened, so nothing can be forgotten now.")
        receipt = await forget(ids, memory=self.memory, sessions=self.sessions)
        for entry in receipt.logs.sessions:
            session = self._open_sessions.get(entry.session_id)
            if session is not None:
                await session.reload()
        return receipt

    async def _forget_in_store(self, ids: Sequence[str]) -> Receipt:
        return (await self.forget(ids)).store

    async def _close(self) -> None:
        for session in list(self._open_sessions.values()):
            await session.aclose()
        for model in self._models.values():
            await model.aclose()
        self.pool.close()


async def _database(
    settings: Settings, clock: Clock, stack: AsyncExitStack, notices: list[Notice]
) -> Database | None:
    try:
        return await stack.enter_async_context(Database.open(settings.database_location, clock=clock))
    except StorageError as error:
        text = f"Memory is not available: {error} What is said is kept in the session log and captured later."
        notices.append(Notice(part="memory", text=text))
        return None


def _embedder(settings: Settings, clock: Clock, progress: Progress | None) -> Embedder | None:
    if settings.memory.embedder == "none":
        return None
    return open_embedder(
        settings.memory.embedder,
        home=settings.home,
        environ=settings.environ,
        clock=clock,
        providers=settings.providers,
        secret=settings.secret,
        progress=progress,
    )


async def _caught_up(sessions: SessionStore, memory: Memory) -> list[Notice]:
    try:
        return await catch_up(sessions, memory)
    except SatchelError as error:
        return [Notice(part="memory", text=f"What was said before may not be in memory yet: {error}")]
