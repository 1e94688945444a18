"""An open home: memory and session logs, without models and tools. Commands that need only these start faster."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import anyio.to_thread

from satchel.builder.forgetting import Earned, earned_from, forget_proposals, forget_words, sessions_of_builds
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.folder import discard
from satchel.capabilities.forgetting import forget_inputs
from satchel.clock import Clock, SystemClock, local_day
from satchel.config import Settings, ensure_home, load, process_environ, project_files
from satchel.errors import ConfigError, NotFound, SatchelError, StorageError, UsageError
from satchel.events import Notice, SessionFiled, SessionTitled
from satchel.memory import Memory, MemoryRecord, Rebuilt
from satchel.memory.journal import FOLDER
from satchel.memory.store.redaction import hide_private, redact
from satchel.memory.store.spending import SpentRow
from satchel.memory.text.hashing import KEY_FILE, WordHasher
from satchel.models.embedding import OwnEmbedding, Progress, as_embedder, open_embedder
from satchel.models.port import Embedder
from satchel.runtime.background_models import TITLE, BackgroundDay, background_day
from satchel.runtime.backup import interrupted_restore
from satchel.runtime.capture import catch_up
from satchel.runtime.copies import copies_of, note_copy
from satchel.runtime.forgetting import ForgetReceipt, forget, pictures_with
from satchel.runtime.lines import counted, returned_line
from satchel.runtime.moving import rows_left
from satchel.runtime.notices import NoticeBoard
from satchel.runtime.projects import Project, ProjectMemories, Projects, SessionScope, project_of, scope_of
from satchel.runtime.serving import SPACES_FILE
from satchel.sessions import SessionInfo, SessionStore, UsageRow, Words, live_redactor, read_title
from satchel.storage import Database, is_server
from satchel.storage.copies import copy_database, why_unwritable

if TYPE_CHECKING:
    from satchel.runtime.spaces import Spaces

_LOSS_FILE = "database-was-missing"
_SHARED_MEMORY = "/dev/shm"
_EMBED_WITHIN_S = 0.1
"""Nobody notices that. It is enough for the turns of a conversation; after an import, words alone find the rest until
the background has embedded it."""
_LOCK_TIMEOUT_S = 10.0
"""How long to wait for another process that holds the database: far longer than a transaction takes, and shorter than a
turn waits for its log (`TurnLimits.emit_timeout_s`), so that the turn ends and memory catches up later."""


class Home:
    """One home, open for one user and scope. Made by `Home.open`; several processes may have the same home open.

    Attributes:
        memory: The memory, or None if it is off or can't be opened; `notices` says why.
        projects: What projects there are; `memory_in` is the memory of one.
        notices: What the user should know, such as parts that are unavailable.
        database: The home's file; None if it can't be opened.
        server: The database on a server, where other machines find conversations; None if there is none, or if it can't
            be used.
        made: Where capabilities and builds are; None if it can't be used.
        hasher: Has the home's key; it signs what the database keeps and nobody else may write.
        embedder: Memory's embedder, or "none". It loads nothing before it is used.
        on_forgotten: Called with the words that are being forgotten and the ids of their memories.
        on_redacted: Called with the id of each session from whose log `forget` removed words.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        memory: Memory | None,
        project_memories: ProjectMemories | None,
        sessions: SessionStore,
        notices: NoticeBoard,
        database: Database | None,
        server: Database | None,
        embedder: Embedder | str,
    ) -> None:
        """Use `open`."""
        self.settings = settings
        self.clock = clock
        self.memory = memory
        self._project_memories = project_memories
        self.projects = Projects(settings.home, clock, tell=notices.post_once)
        self.sessions = sessions
        self.notices = notices
        self.database = database
        self.server = server
        self.made = server if is_server(settings.database_location) else database
        self.embedder = embedder
        self.hasher = WordHasher(settings.home / KEY_FILE)
        self.on_redacted: list[Callable[[str], Awaitable[None]]] = []
        self.on_forgotten: list[Callable[[Sequence[Words], Sequence[str]], None]] = []

    @cached_property
    def spaces(self) -> Spaces | None:
        """What the user shares with others of a server; None in a home that is the only one."""
        if not (self.settings.home / SPACES_FILE).exists():
            return None
        from satchel.runtime.spaces import Spaces  # noqa: PLC0415 - its HTTP client would slow every command down

        return Spaces.of(self.settings.home)

    async def catalogue(self) -> Catalogue:
        """Open the catalogue of capabilities.

        Raises:
            StorageError: Its database can't be used.
        """
        if self.made is None:
            raise StorageError("The database can't be used. `satchel doctor` shows why.")
        return await Catalogue.open(self.made, home=self.settings.home, clock=self.clock, seal=self.seal)

    @property
    def seal(self) -> WordHasher | None:
        """What proves who wrote about capabilities and builds; None for the home's file, which nobody else writes."""
        return self.hasher if self.made is self.server else None

    def shared_key(self, purpose: str) -> bytes:
        """A key of 32 bytes that all homes with this one's `forgotten.key` have.

        Raises:
            StorageUnwritable: That can't be read.
        """
        return self.hasher.key_for(purpose)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings | None = None,
        *,
        scope: str = "default",
        embedder: Embedder | OwnEmbedding | str | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
        back_fill: bool = True,
    ) -> AsyncIterator[Home]:
        """Open a home, and close its parts in order at the end.

        Args:
            settings: None reads them from the environment, `SATCHEL_HOME` and the working directory.
            scope: The scope of the memories. Turns that are in a log and not in memory are captured only if this is
                "default", because conversations belong to that scope.
            embedder: Replaces the configured embedder: a name, an `Embedder`, or a function; see `Memory.open`.
            clock: None uses the system's clock.
            progress: Told how much of the embedding model has been downloaded; called from another thread.
            back_fill: See `Memory.open`.

        Raises:
            ConfigError: The settings are wrong.
            StorageUnwritable: `SATCHEL_HOME` can't be created.
        """
        if settings is None:
            settings = load(process_environ(), cwd=Path.cwd())
        clock = clock or SystemClock()
        ensure_home(settings.home)
        notices = NoticeBoard()
        if interrupted := interrupted_restore(settings.home):
            notices.post(Notice(part="storage", text=interrupted))
        async with AsyncExitStack() as stack:
            embedding, second = _embedders(embedder, settings, clock, progress)
            if isinstance(embedder, str | None) and not isinstance(embedding, str):
                stack.push_async_callback(embedding.aclose)
            if not isinstance(second, str):
                stack.push_async_callback(second.aclose)
            if _has_lost_its_database(settings):
                _mark_loss(settings.home, clock)
            loss = _loss(settings.home)
            if loss is not None:
                notices.post(loss)
            unwritable = _unwritable(settings)
            database = await _database(settings, clock, stack, notices, is_copied=unwritable is not None)
            memory: Memory | None = None
            project_memories: ProjectMemories | None = None
            remembering = database
            if database is not None and is_server(settings.database_location):
                remembering = await _on_server(settings, clock, stack, notices)
                if remembering is not None and (count := await rows_left(database)):
                    notices.post(_left_behind(count, settings))
            if remembering is not None and settings.memory.enabled:
                opening = partial(
                    Memory.open,
                    remembering,
                    embedder=embedding,
                    second_embedder=second,
                    clock=clock,
                    home=settings.home if unwritable is None else None,
                    redact=settings.memory.redact,
                    decay_cycle=settings.memory.decay_cycle,
                    locale=settings.memory.locale,
                    back_fill=back_fill and unwritable is None,
                    embed_within_s=_EMBED_WITHIN_S,
                )
                try:
                    memory = await stack.enter_async_context(opening(scope=scope))
                    project_memories = await stack.enter_async_context(
                        ProjectMemories.open(lambda name: opening(scope=name))
                    )
                except StorageError as error:
                    # A database in a folder that can't be written may open and then fail when it is read.
                    notices.post(_without_memory(error))
                    if remembering is database:
                        database = None
            if database is not None and unwritable is not None:
                if memory is not None:
                    with suppress(SatchelError):
                        await memory.stats()  # takes note of the embedder, which searches ask for
                database.refuse_writes(unwritable.text)
                notices.post(unwritable)
            if memory is not None and loss is None and memory.rebuilt != Rebuilt():
                notices.post(_read_back(memory.rebuilt))
            shared = database
            if is_server(settings.database_location):
                shared = await _shared(
                    settings, database, remembering, notices, is_copied=unwritable is not None
                )
            sessions = SessionStore(settings.home / "sessions", shared, clock=clock)
            home = Home(
                settings,
                clock=clock,
                memory=memory,
                project_memories=project_memories,
                sessions=sessions,
                notices=notices,
                database=database,
                server=shared if shared is not None and shared.is_on_server else None,
                embedder=embedding,
            )
            if memory is not None and unwritable is None and settings.keeps_memory and scope == "default":
                for notice in await home._caught_up():
                    notices.post(notice)
            home.projects.all()  # tells of those that are damaged
            yield home

    async def _caught_up(self) -> list[Notice]:
        try:
            return await catch_up(self.sessions, self.memory_in)
        except SatchelError as error:
            return [Notice(part="memory", text=f"What was said before may not be in memory yet: {error}")]

    async def memory_in(self, project_id: str) -> Memory | None:
        """The memory of a project, or the user's own for ""; None if memory is off or can't be opened. A project that
        is not there any more still has a scope, so that nothing of it gets into another one.

        Raises:
            StorageError: It can't be opened.
        """
        if self.memory is None or self._project_memories is None or not project_id:
            return self.memory
        if self.memory.scope == scope_of(project_id):
            return self.memory
        return await self._project_memories.of(project_id)

    async def memories(self) -> Sequence[Memory]:
        """The user's own memory and those of all projects, also where the file of one is damaged or lost; none if
        memory is off.

        Raises:
            StorageError: One can't be opened.
        """
        stored = [] if self.memory is None else map(project_of, await self.memory.scopes())
        wanted = {*self.projects.ids(), *stored} - {""}
        found = [await self.memory_in(project_id) for project_id in ("", *sorted(wanted))]
        return list(dict.fromkeys(memory for memory in found if memory is not None))

    async def scope(self, project_id: str) -> SessionScope:
        """What a conversation in this project, or in none (""), remembers with."""
        project = self.projects.get(project_id)
        sees_all = bool(project_id) and project is not None and not project.own_memory_only
        return SessionScope(
            project=project,
            memory=await self.memory_in(project_id),
            also=self.memory if sees_all else None,
            spaces=self.spaces if sees_all or not project_id else None,
        )

    async def usage(self) -> tuple[UsageRow, ...]:
        """What was spent, by session, local day, model and purpose, newest day first. Calls by memory itself have no
        session.

        Raises:
            StorageError: The logs can't be read.
        """
        rows = [_with_purpose(row) for info in await self.sessions.list() for row in info.spent]
        rows += [
            UsageRow(
                session_id="",
                day=spent.day,
                purpose=spent.purpose,
                provider=spent.provider,
                model=spent.model,
                calls=spent.calls,
                usage=spent.usage,
            )
            for spent in await self._spent()
        ]
        return tuple(sorted(rows, key=lambda row: (row.day, row.session_id), reverse=True))

    async def spent_on(self, day: str) -> float:
        """What all sessions and memory spent on one local day, in US dollars. A call of unknown price counts as zero.
        The day is in ISO 8601.

        Raises:
            StorageError: The logs can't be read.
        """
        total = await self.sessions.spent_on(day)
        return total + sum(row.usage.cost_usd or 0.0 for row in await self._spent() if row.day == day)

    async def _spent(self) -> list[SpentRow]:
        return [] if self.memory is None else list(await self.memory.spent(everywhere=True))

    async def background_day(self, day: str) -> BackgroundDay:
        """What models did in the background on a local day: for memory, and for the titles of sessions.

        Raises:
            StorageError: The store failed.
        """
        spent = await self._spent()
        titles = [row for row in await self.sessions.spent(day) if row.purpose == TITLE]
        return background_day([*spent, *titles], day, self.settings.background)

    def titled(self, title: str, *, by: Literal["user", "model"] = "user") -> SessionTitled:
        """The event that gives a session a title, without secrets and private parts.

        Raises:
            UsageError: The title is empty, or has more than 60 characters.
        """
        shown = hide_private(title)
        return SessionTitled(title=read_title(redact(shown) if self.settings.memory.redact else shown), by=by)

    async def note_of(self, session_id: str, event: SessionTitled | SessionFiled) -> None:
        """Write in the log of a session that nobody has open what lists show of it. Its place in them stays.

        Raises:
            NotFound: There is no such session.
            UsageError: Several ids begin like this.
            StorageLocked: The session is open; the message names the process.
            StorageError: It could not be stored.
        """
        async with await self.sessions.open(session_id) as journal:
            await journal.append([event], durable=True)

    async def sessions_in(self, project_id: str) -> Sequence[SessionInfo]:
        """The sessions of a project, those that were active last first, archived ones too."""
        return [info for info in await self.sessions.list() if info.project == project_id]

    async def move(self, session_id: str, project_id: str) -> None:
        """Put a session that nobody has open into a project, or out of one (""), with all that was learnt from it.
        Errors as in `note_of`.
        """
        async with await self.sessions.open(session_id) as journal:
            before = (await self.sessions.info(session_id)).project
            if before != project_id:
                await journal.append([movable(session_id, project_id)], durable=True)
            await self.bring(session_id, project_id)

    async def bring(self, session_id: str, project_id: str) -> None:
        """Move what was learnt from a session to the memory of the project that its log names now. Whoever opens the
        home after a crash does that.

        Raises:
            StorageError: It could not be stored. What was not moved is where it was; a second call moves it.
        """
        target = await self.memory_in(project_id)
        for memory in await self.memories():
            if target is not None and memory is not target and await memory.count(session=session_id):
                await memory.carry(session_id, target)
                await memory.release(session_id)

    async def remove_project(self, project: Project) -> None:
        """Delete a project that has no conversations any more: its memories, wherever their words stand, then its
        instructions.

        Raises:
            UsageError: It has conversations.
            StorageError: Something can't be removed.
        """
        if await self.sessions_in(project.id):
            raise UsageError(f"The project {project.name!r} still has conversations.")
        memory = await self.memory_in(project.id)
        if memory is not None and self.memory is not None and self._project_memories is not None:
            records = await memory.list(limit=await memory.count() or 1)
            await self._forget_in(memory, [record.id for record in records], deleted=project.id)
            await self._project_memories.close(project.id)
            await self.memory.remove_scope(memory.scope)
        self.projects.remove(project)

    async def forget(
        self,
        ids: Sequence[str] = (),
        *,
        query: str | None = None,
        session: str | None = None,
        before: datetime | None = None,
        scope: str | None = None,
        dry_run: bool = False,
    ) -> ForgetReceipt:
        """Remove memories permanently from the store, and their words from the conversation logs.

        Args:
            ids: The memories, which may be those of projects.
            query: Instead of ids: memories that contain every significant word of this; see `Memory.forget`, also for
                what follows.
            session: Memories from this conversation, whatever project it is or was in.
            before: Memories of what was said before this time.
            scope: Everything in this scope.
            dry_run: Remove nothing, and return what would be removed.

        Returns:
            What was removed, and which backups may still contain it.

        Raises:
            StorageError: The store failed; nothing was removed.
            UsageError: Nothing says which memories to remove.
        """
        if self.memory is None:
            raise StorageError("Memory is off or could not be opened, so nothing can be forgotten now.")
        if session is None or query is not None or before is not None or scope is not None:
            wanted = await self._holding(ids)
        else:
            wanted = [(memory, []) for memory in await self.memories() if await memory.count(session=session)]
        done: list[ForgetReceipt] = []
        for memory, own in wanted or [(self.memory, [])]:
            if query is not None or session is not None or before is not None or scope is not None or dry_run:
                planned = await memory.forget(
                    own, query=query, session=session, before=before, scope=scope, dry_run=True
                )
                if more := await pictures_with([gone.id for gone in planned.forgotten], memory):
                    asked = [gone.id for gone in planned.forgotten if gone.because_of is None]
                    planned = await memory.forget([*asked, *more], dry_run=True)
                if dry_run:
                    done.append(ForgetReceipt(store=planned))
                    continue
                own = [gone.id for gone in planned.forgotten]
            done.append(await self._forget_in(memory, own))
        return reduce(ForgetReceipt.with_more, done)

    async def forget_shared(self, id: str) -> MemoryRecord:
        """Forget what is shared in a space, for everybody in it, and remove its words from the conversations of this
        home. Those of other members keep what they were shown.

        Returns:
            What it was.

        Raises:
            NotFound: There is no such entry.
            Refused: Somebody else wrote it, and the user doesn't own the space.
            ServerUnavailable: The front door doesn't answer.
        """
        if self.spaces is None:
            raise NotFound(f"There is no memory {id!r}.")
        gone = await self.spaces.forget(id)
        # What somebody else wrote goes from where it was shown: they may not say which of this home's words go.
        where = None if gone.speaker == self.spaces.me else gone.id
        await self.sessions.redact([Words(text=gone.content, session=where)], memory_ids=[gone.id])
        return gone

    async def _holding(self, ids: Sequence[str]) -> list[tuple[Memory, list[str]]]:
        """The memories that have some of these ids, each with those; ids that none has belong to the first."""
        memories = await self.memories()
        found: dict[Memory, list[str]] = {memories[0]: []}
        for id in ids:
            holders = [memory for memory in memories if await memory.known([await memory.full_id(id)])]
            for holder in (
                holders or memories[:1]
            ):  # two while a move isn't finished, or of a fact from two places
                found.setdefault(holder, []).append(id)
        return [(memory, own) for memory, own in found.items() if own] or [(memories[0], [])]

    async def _forget_in(
        self, memory: Memory, ids: Sequence[str], *, deleted: str | None = None
    ) -> ForgetReceipt:
        """Forget memories of one scope, with all that they left in logs, builds and other scopes."""
        database = self.made

        async def in_builds(words: Sequence[Words]) -> None:
            if database is not None:
                # Whatever session they are from, the Builder may have been told of them.
                redacted = live_redactor([Words(text=text) for text in sorted({one.text for one in words})])
                folder = self.settings.home / "builds"
                places = {(one.session, one.turn) for one in words}
                # Before their rows: they lead to the tools if this is cut off.
                await self._forget_earned(await earned_from(database, places))
                await forget_proposals(database, places)
                await forget_words(database, folder, lambda session, text: redacted(session, text, False))

        if database is not None and await memory.known([await memory.full_id(id) for id in ids]):
            # Before the memories go: with them, a server writes anew what the deleted rows leave.
            await forget_inputs(database)
        receipt = await forget(
            ids,
            memory=memory,
            others=[other for other in await self.memories() if other is not memory],
            sessions=self.sessions,
            home=self.settings.home,
            backups=self._backups(),
            on_words=self._words_forgotten,
            told=await sessions_of_builds(database) if database is not None else (),
            also=in_builds,
            project=deleted,
        )
        for entry in receipt.logs.sessions:
            for reload in self.on_redacted:
                await reload(entry.session_id)
        return receipt

    async def _forget_earned(self, found: Mapping[str, Earned]) -> None:
        """Take out of earned tools what they came of, and delete the logs and folders of their builds."""
        if not found:
            return
        catalogue = await self.catalogue()
        for id, earned in found.items():
            with suppress(NotFound):
                tool = await catalogue.get(id)
                if tool.build_id:  # what is being built can't be registered any more
                    await catalogue.fail(id, tool.reasons, build_id=tool.build_id)
                if not tool.version:
                    await catalogue.remove(id)
                elif not await catalogue.forget_cases(id, earned.cases, lines=earned.lines):
                    text = (
                        f"{tool.name} is removed: it can't be without what it came of, and that is forgotten."
                    )
                    self.notices.post(Notice(part="capabilities", text=text))
            for build, session in earned.builds:
                with suppress(NotFound):
                    await self.sessions.delete(session)
                await anyio.to_thread.run_sync(discard, self.settings.home / "builds" / build)

    def _words_forgotten(self, words: Sequence[Words], ids: Sequence[str]) -> None:
        for tell in self.on_forgotten:
            tell(words, ids)

    def _backups(self) -> list[Path]:
        return copies_of(self.settings.home, self.settings.home_database.parent)

    def note_copy(self, copy: Path) -> None:
        """Record that a backup or export was written, so that the receipts of `forget` can name it."""
        note_copy(self.settings.home, copy, clock=self.clock)


def movable(session_id: str, project_id: str) -> SessionFiled:
    """The event that puts a session into a project.

    Raises:
        UsageError: It is a build.
    """
    if session_id.startswith("build-"):
        raise UsageError("The session of a build can't be moved.")
    return SessionFiled(project=project_id)


def _with_purpose(row: UsageRow) -> UsageRow:
    """In the session of a build, the conversation is the building."""
    is_build = row.session_id.startswith("build-") and row.purpose == "conversation"
    return replace(row, purpose="build") if is_build else row


def untrusted_project(settings: Settings) -> Notice | None:
    """Which files of an untrusted project are ignored, and how to trust them; None if there are none."""
    project = settings.project
    files = project_files(project) if project is not None and not settings.project_trusted else ()
    if not files:
        return None
    if settings.project_changes:
        text = (
            f"{project} has changed since you trusted it ({', '.join(settings.project_changes)}), so its settings, "
            "tools and instructions are ignored. Look at them, then type: satchel config trust"
        )
    else:
        text = (
            f"{' and '.join(files)} in {project} {'is' if len(files) == 1 else 'are'} ignored until you trust this "
            "folder. Look at it, then type: satchel config trust"
        )
    return Notice(part="project", text=text)


async def _database(
    settings: Settings, clock: Clock, stack: AsyncExitStack, notices: NoticeBoard, *, is_copied: bool
) -> Database | None:
    place = settings.home_database
    try:
        if is_copied:
            inside = _folder_in_memory(place)
            folder = stack.enter_context(TemporaryDirectory(prefix="satchel-", dir=inside))
            copy = Path(folder) / "satchel.db"
            await anyio.to_thread.run_sync(copy_database, place, copy)
            place = copy
        return await stack.enter_async_context(
            Database.open(place, clock=clock, lock_timeout_s=_LOCK_TIMEOUT_S)
        )
    except StorageError as error:
        notices.post(_without_memory(error))
        return None


async def _on_server(
    settings: Settings, clock: Clock, stack: AsyncExitStack, notices: NoticeBoard
) -> Database | None:
    opening = Database.open(str(settings.database_location), clock=clock, lock_timeout_s=_LOCK_TIMEOUT_S)
    try:
        server = await stack.enter_async_context(opening)
    except (StorageError, ConfigError) as error:
        notices.post(_without_memory(error))
        return None
    server.on_waiting = lambda text: notices.show(Notice(part="storage", text=text))
    return server


async def _shared(
    settings: Settings,
    local: Database | None,
    server: Database | None,
    notices: NoticeBoard,
    *,
    is_copied: bool,
) -> Database | None:
    """Where conversations, capabilities and builds are: on the server; those that are in the home are moved there."""
    why = "The server can't be used."
    try:
        if server is not None:
            await server.bind(WordHasher(settings.home / KEY_FILE).mark)
    except StorageError as error:
        server, why = None, str(error)
    if server is None:
        text = (
            "Conversations on the server are not shown, and new ones are files of this home for now. There are no "
            f"capabilities until it can be used. {why}"
        )
        notices.post(Notice(part="sessions", text=text))
        return local
    if not is_copied:
        from satchel.sessions.moving import take_in  # noqa: PLC0415 - only a server needs it

        try:
            left = await take_in(settings.home / "sessions", local, server, clock=server.clock)
        except StorageError as error:
            notices.post(
                Notice(part="sessions", text=f"Some conversations are not on the server yet: {error}")
            )
        else:
            if left:
                text = (
                    "Another process has them open, they can't be read or removed, or there are others with their "
                    f"ids: {', '.join(left)}."
                )
                notices.post(
                    Notice(part="sessions", text=f"Some conversations stay files, out of lists. {text}")
                )
        if local is not None:
            await _take_in_made(settings, local, server, notices)
    return server


async def _take_in_made(settings: Settings, local: Database, server: Database, notices: NoticeBoard) -> None:
    from satchel.runtime.made import take_in_made  # noqa: PLC0415 - as above

    try:
        returned = await take_in_made(settings, local, server)
    except StorageError as error:
        text = f"Capabilities of this machine are not on the server yet: {error}"
        notices.post(Notice(part="capabilities", text=text))
    else:
        if returned:
            notices.post(Notice(part="capabilities", text=returned_line(returned)))


def _left_behind(count: int, settings: Settings) -> Notice:
    return Notice(
        part="memory",
        text=f"{settings.home_database} still has {counted(count, 'memory', 'memories')}, which are not used and which "
        "forgetting doesn't reach: the memories are on a server now. To move them, let `database` be empty again, and "
        "use `satchel migrate-database`.",
    )


def _folder_in_memory(database: Path) -> str | None:
    """Where nothing of a copy is left on a disk, whatever ends this process; None if there is too little room: the copy
    is made twice, and may have to be upgraded.
    """
    has_room = os.access(_SHARED_MEMORY, os.W_OK) and (
        shutil.disk_usage(_SHARED_MEMORY).free > 4 * database.stat().st_size
    )
    return _SHARED_MEMORY if has_room else None


def _unwritable(settings: Settings) -> Notice | None:
    """What to say of a database that can be read and not written; None if it can be written, or is not there."""
    place = settings.home_database
    if not os.access(place, os.R_OK) or not place.stat().st_size:
        return None
    why = why_unwritable(place)
    if not why:
        return None
    text = (
        f"{place} can't be written: {why}. What is stored is read from a copy of it; nothing can be stored, changed or "
        f"forgotten{' until you free some space and start again' if 'full' in why else ''}."
    )
    return Notice(part="memory", text=text)


def _has_lost_its_database(settings: Settings) -> bool:
    """Whether there are conversations, and no database that could have them."""
    place = settings.database_location
    if not isinstance(place, Path):
        return False
    try:
        is_there = place.stat().st_size > 0
    except OSError as error:
        is_there = not isinstance(error, FileNotFoundError)
    return not is_there and any((settings.home / "sessions").glob("*/*.jsonl"))


def _mark_loss(home: Path, clock: Clock) -> None:
    """Keep the day in a file, because whoever opens the home first may be a hook that nobody reads."""
    has_journal = any((home / FOLDER).glob("*.jsonl"))
    with suppress(OSError):
        (home / _LOSS_FILE).write_text(
            f"{local_day(clock.now())}\n{'journal' if has_journal else ''}\n", encoding="utf-8"
        )


def clear_loss(home: Path) -> None:
    """End the notice that the database was missing."""
    with suppress(OSError):
        (home / _LOSS_FILE).unlink(missing_ok=True)


def _loss(home: Path) -> Notice | None:
    path = home / _LOSS_FILE
    try:
        day, _, has_journal = path.read_text(encoding="utf-8", errors="replace").strip().partition("\n")
    except OSError:
        return None
    text = f"The database was missing or empty on {day[:10]}, and a new one was made. "
    if has_journal:
        text += (
            "What was stored, corrected and pinned was read back from the journal, and what was said from the session "
            "logs. `satchel memory rebuild` compares all of it, and ends this notice."
        )
    else:
        text += (
            "What was said in conversations is read again from their logs. What was added, edited or pinned by hand, "
            "or came from other agents, is not in the logs: `satchel restore FILE` brings back what a backup has. "
            "`satchel memory rebuild` ends this notice."
        )
    return Notice(part="memory", text=text)


def _read_back(rebuilt: Rebuilt) -> Notice:
    counts = [
        (rebuilt.memories, "memory", "memories"),
        (rebuilt.changes, "correction", "corrections"),
        (rebuilt.forgotten, "deletion", "deletions"),
    ]
    lacked = [counted(count, one, many) for count, one, many in counts if count]
    text = f"The database lacked {' and '.join(lacked)}, which the journal has. All was read back."
    return Notice(part="memory", text=text)


def _without_memory(error: SatchelError) -> Notice:
    text = (
        f"Memory is unavailable: {error} Conversations are kept in the conversation logs and captured later."
    )
    return Notice(part="memory", text=text)


def _embedders(
    chosen: Embedder | OwnEmbedding | str | None, settings: Settings, clock: Clock, progress: Progress | None
) -> tuple[Embedder | str, Embedder | str]:
    """Memory's embedder, and that for other languages: there is none beside one that a program brings."""

    def named(name: str, setting: str) -> Embedder | str:
        if name == "none":
            return "none"
        return open_embedder(
            name,
            home=settings.home,
            environ=settings.environ,
            clock=clock,
            providers=settings.providers,
            secret=settings.secret,
            progress=progress,
            setting=setting,
        )

    if not isinstance(chosen, str | None):
        return as_embedder(chosen), "none"
    first = settings.memory.embedder if chosen is None else chosen
    second = settings.memory.second_embedder
    return named(first, "memory.embedder"), named(second, "memory.second_embedder")
