"""An open Satchel: connects the rooms, opens sessions, and closes everything in order."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from satchel.clock import Clock
from satchel.config import Mode, PermissionRule, Settings, load, process_environ
from satchel.errors import ConfigError, ModelError, NotFound, StorageError, UsageError
from satchel.events import Notice, SessionFiled, SessionTitled
from satchel.loop import (
    Hook,
    TokenCounter,
    ToolPool,
)
from satchel.memory import Memory
from satchel.models import ChatModel, FunctionModel, ModelFunction
from satchel.models.embedding import OwnEmbedding, Progress
from satchel.models.port import Embedder, options_of
from satchel.runtime.agent_calls import AgentCalls
from satchel.runtime.agreed import Agreed
from satchel.runtime.background import Background
from satchel.runtime.brokered import Brokered
from satchel.runtime.builds import Builds
from satchel.runtime.capability_parts import CapabilityParts
from satchel.runtime.describing import Describing
from satchel.runtime.distilling import Distilling
from satchel.runtime.earning import Earning
from satchel.runtime.forgetting import ForgetReceipt
from satchel.runtime.home import Home, movable
from satchel.runtime.hub import SessionHub
from satchel.runtime.mcp_sampling import SessionSampler
from satchel.runtime.memory_work import can_leave_work, leave_work
from satchel.runtime.notices import NoticeBoard
from satchel.runtime.open_models import OpenModels
from satchel.runtime.opening import SessionOpener
from satchel.runtime.parts import Parts
from satchel.runtime.projects import Project
from satchel.runtime.replay import Replay
from satchel.runtime.retention import keep_retention
from satchel.runtime.rules import read_rule
from satchel.runtime.sandboxes import Sandboxes
from satchel.runtime.session import Session
from satchel.runtime.session_options import SessionOptions, SystemText, read_mode
from satchel.runtime.sinks import HistorySink
from satchel.runtime.spans import spans_for
from satchel.runtime.titling import bare_title
from satchel.runtime.tooling import Tooling, external_tools, fetching, mcp_tools, tool_folders
from satchel.runtime.turns import is_busy
from satchel.runtime.watching import Watching
from satchel.sessions import (
    EphemeralJournal,
    Journal,
    SessionStore,
    UsageRow,
    Words,
    live_redactor,
    source_of,
)
from satchel.sessions.attachments import Uploads
from satchel.tasks import background_tasks
from satchel.tools import FunctionOrTool, Registry, Toolset
from satchel.tools.boxed import Workspaces
from satchel.tools.external import ExternalTools
from satchel.tools.mcp import McpToolset

Upkeep: TypeAlias = Literal["here", "worker", "here_then_worker", "none"]

_INBOX_LOOK_S = 1.0
"""How often a process looks for what other processes posted into its open sessions."""


class Satchel:
    """An open home with its models, tools and sessions. Made by `Satchel.open`.

    Attributes:
        parts: What all sessions share: settings, clock, models, tools.
        capabilities: Tools that the agent makes; None if the database can't be opened.
        earning: Proposes tools for what is done again and again; None where there are no capabilities.
    """

    def __init__(
        self,
        parts: Parts,
        home: Home,
        tooling: Tooling,
        distilling: Distilling,
        hubs: dict[str, SessionHub],
    ) -> None:
        """Use `open`."""
        self.parts = parts
        self.home = home
        self.tooling = tooling
        self.distilling = distilling
        self.watching = Watching(home, parts.sandboxes)
        self.describing = Describing(parts, home, distilling.may_spend_unasked)
        distilling.on_news.append(self.describing.wake)
        distilling.name = self._name
        self.capabilities: CapabilityParts | None = None
        self.earning: Earning | None = None
        self._hubs = hubs
        # What each open session has without being told, and what other servers know of its mode and model.
        self._chosen: dict[str, tuple[ChatModel | None, str]] = {}
        self._opening: dict[str, anyio.Lock] = {}
        self._is_closed = False
        self._began = anyio.Event()
        self._spans = spans_for(parts.settings.environ)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings | None = None,
        *,
        model: str | ChatModel | ModelFunction | None = None,
        embedder: str | Embedder | OwnEmbedding | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
        upkeep: Upkeep = "here",
    ) -> AsyncIterator[Satchel]:
        """Open Satchel, and close everything in order at the end.

        If memory can't be opened, Satchel works without it, and `notices` says why.

        Args:
            settings: None reads them from the environment, `SATCHEL_HOME` and the working directory.
            model: Replaces the configured model: a name such as "ollama:qwen3", a `ChatModel`, or a function (see
                `FunctionModel`).
            embedder: Replaces the configured embedder: a name such as "minilm", an `Embedder`, or a function; see
                `Memory.open`.
            clock: None uses the system's clock.
            progress: Told how much of the embedding model has been downloaded; called from another thread.
            upkeep: Who extracts facts, embeds and compresses old logs: this process in the background ("here"); a
                process that is started at the end if something was said, where that is possible ("worker"); one after
                the other ("here_then_worker"); or nobody ("none").

        Raises:
            ConfigError: The settings are wrong.
            StorageUnwritable: `SATCHEL_HOME` can't be created.
        """
        given = None if model is None or isinstance(model, str) else FunctionModel.of(model)
        settings = load(process_environ(), cwd=Path.cwd()) if settings is None else settings
        if settings.stored:  # a keyring may wait for its password; later, nothing waits for it
            await anyio.to_thread.run_sync(dict, settings.secrets)
        # No other process has a model or an embedder that the program passed.
        can_leave = given is None and isinstance(embedder, str | None) and can_leave_work(settings)
        is_here = upkeep in ("here", "here_then_worker") or (upkeep == "worker" and not can_leave)
        async with Home.open(
            settings, embedder=embedder, clock=clock, progress=progress, back_fill=is_here
        ) as home:
            settings = home.settings if not isinstance(model, str) else replace(home.settings, model=model)
            # Turns run in this group. They continue when their readers leave, and end with the group.
            async with background_tasks() as group:
                satchel = cls._wired(home, settings, group=group, given=given)
                await satchel.parts.agreed.look()
                satchel.capabilities = await CapabilityParts.open(
                    satchel.parts,
                    home,
                    documents=satchel.tooling.skills,
                    outside=Brokered(
                        parts=satchel.parts,
                        home=home,
                        calls=AgentCalls(satchel.parts, home, satchel.tooling),
                        distilling=satchel.distilling,
                        hubs=satchel._hubs,
                    ),
                )
                if satchel.capabilities is not None:
                    satchel.tooling.capabilities = satchel.capabilities.tools
                    satchel.parts.background.start(satchel.capabilities.builds.watch)
                    satchel.earning = Earning(
                        satchel.parts,
                        home,
                        builds=satchel.capabilities.builds,
                        catalogue=satchel.capabilities.catalogue,
                        lookup=satchel.capabilities.lookup,
                        distilling=satchel.distilling,
                    )
                if is_here:
                    # Others have a minute, and somebody who goes on after them.
                    began = satchel._began if upkeep == "worker" else anyio.Event()
                    satchel.distilling.start()
                    if satchel.earning is not None:
                        satchel.earning.start()
                    satchel.parts.background.start(partial(keep_retention, home, began=began))
                    satchel.parts.background.start(satchel.watching.keep_looking)
                    satchel.parts.background.start(satchel.describing.keep_describing)
                satchel.parts.background.start(satchel._watch_inbox)
                try:
                    yield satchel
                finally:
                    with anyio.CancelScope(shield=True):
                        await satchel._close()
                        if (
                            upkeep in ("worker", "here_then_worker")
                            and settings.memory.worker == "auto"
                            and satchel.distilling.has_news
                        ):
                            await anyio.to_thread.run_sync(leave_work, settings)

    @classmethod
    def _wired(cls, home: Home, settings: Settings, *, group: TaskGroup, given: ChatModel | None) -> Satchel:
        """Make the parts and connect them; nothing else does."""
        notices = home.notices
        hubs: dict[str, SessionHub] = {}
        agreed = Agreed(settings, home.server)
        background = Background(group, report=lambda text: notices.post(Notice(part="background", text=text)))
        sandboxes = Sandboxes(settings, home.clock)
        boxes = Workspaces(
            sandboxes.get,
            settings,
            spawn=background.start,
            tell=lambda text: notices.post_once(Notice(part="sandbox", text=text)),
            tools=[folder.path for folder in tool_folders(settings)],
            fetching=fetching(settings),
        )
        parts = Parts(
            settings=settings,
            clock=home.clock,
            pool=ToolPool(settings.agent.tool_workers),
            models=OpenModels(
                settings,
                clock=home.clock,
                given=given,
                notify=notices.post,
            ),
            boxes=boxes,
            sandboxes=sandboxes,
            external=external_tools(settings, home.clock, boxes=boxes, elsewhere=agreed),
            mcp=mcp_tools(
                settings,
                home.clock,
                spawn=background.start,
                tell=lambda text: notices.post(Notice(part="mcp", text=text)),
                sampler=SessionSampler(lambda id: hubs.get(id)),
                boxes=boxes,
                elsewhere=agreed,
            ),
            background=background,
            notices=notices,
            agreed=agreed,
            uploads=_uploads(home),
        )
        satchel = cls(parts, home, Tooling(parts, home), Distilling(parts, home), hubs)
        agreed.on_change = satchel._use_agreed
        home.on_redacted.append(satchel._reload)
        home.on_forgotten.append(satchel._forget_words)
        return satchel

    # Shortcuts to the parts

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.parts.settings

    @property
    def clock(self) -> Clock:
        """The source of the time."""
        return self.parts.clock

    @property
    def memory(self) -> Memory | None:
        """The memory, or None if it is off or can't be opened; `notices` says why."""
        return self.home.memory

    @property
    def builds(self) -> Builds | None:
        """Builds of capabilities, or None if the database can't be opened."""
        return self.capabilities.builds if self.capabilities is not None else None

    @property
    def sessions(self) -> SessionStore:
        """The session logs."""
        return self.home.sessions

    @property
    def notices(self) -> NoticeBoard:
        """What the user should know, such as parts that are unavailable."""
        return self.parts.notices

    @property
    def external(self) -> ExternalTools:
        """The executables in the tool folders."""
        return self.parts.external

    @property
    def mcp(self) -> McpToolset:
        """The tools of the MCP servers."""
        return self.parts.mcp

    async def model(self, name: str | None = None) -> ChatModel:
        """See `OpenModels.model`."""
        return await self.parts.models.model(name)

    async def model_options(self, name: str | None = None) -> frozenset[str]:
        """The names that `Sampling.options` may have for this model; see `ModelRequest`. Errors as in `model`."""
        return options_of(await self.model(name))

    async def use_models(self, settings: Settings) -> None:
        """Use the model, the keys and the providers of other settings from now on, in open sessions too.

        A session whose model was chosen for it keeps that; so does one whose turn runs, until it is opened again.
        """
        before = await self.model()
        self.parts.models.use(settings)
        now = await self.model()
        for hub in self._hubs.values():
            if hub.driver.model is before and hub.running is None:
                hub.use_model(now)

    async def use_servers(self, settings: Settings) -> None:
        """Use the MCP servers of other settings from now on, with their values, in open sessions too."""
        self.parts.settings = replace(
            self.settings, mcp_servers=settings.mcp_servers, secrets=settings.secrets, stored=settings.stored
        )
        self.parts.boxes.fetching = fetching(settings)
        await self.parts.mcp.use(settings.mcp_servers, settings.secret)

    def use_rules(self, rules: Sequence[PermissionRule]) -> None:
        """Use these permission rules of the settings from now on, in open sessions too."""
        before, now = self.settings.permissions, tuple(dict.fromkeys(rules))
        self.parts.settings = replace(self.settings, permissions=now)
        added = [read_rule(rule) for rule in now if rule not in before]
        removed = [read_rule(rule) for rule in before if rule not in now]
        for hub in self._hubs.values():
            hub.driver.tools.gate.change(added=added, removed=removed)

    async def _use_agreed(self) -> None:
        now = self.settings
        read = partial(load, now.environ, cwd=now.cwd, home=now.home)
        self.use_rules((await anyio.to_thread.run_sync(read)).permissions)
        await self.mcp.approve_agreed()
        await self.external.look_again()

    async def tools(self, *, wait: bool = True) -> Registry:
        """See `Tooling.registry`."""
        await self.parts.agreed.look()
        return await self.tooling.registry(wait=wait)

    async def usage(self) -> tuple[UsageRow, ...]:
        """See `Home.usage`."""
        return await self.home.usage()

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
        """See `Home.forget`."""
        return await self.home.forget(
            ids, query=query, session=session, before=before, scope=scope, dry_run=dry_run
        )

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
        interactive: bool = False,
        private: bool = False,
        ephemeral: bool = False,
        project: str = "",
        tools: Sequence[FunctionOrTool | Toolset] = (),
        toolsets: Sequence[Toolset] = (),
        system: SystemText | None = None,
        token_counter: TokenCounter | None = None,
        sinks: Sequence[HistorySink] = (),
        hooks: Sequence[Hook] = (),
    ) -> Session:
        """Begin a session, resume one, or join one that is open in this process.

        Args:
            session_id: The session to resume or join; a unique prefix of its id is enough.
            last: Resume the newest session of the working directory, if there is one; with `project`, of the project.
            cwd: The working directory; None uses the session's own, or that of the settings.
            model: "provider:model"; None uses the model of this Satchel.
            mode: How to decide calls that no rule covers; None uses the setting.
            allow: Permission rules for this session, such as "bash(git *)".
            interactive: The client follows the events and answers questions (`Session.answer`). If no client of a
                session is interactive, calls that need permission are refused at once.
            private: Nothing said in the session is captured as memory.
            ephemeral: The session leaves nothing on disk, neither a log nor memories.
            project: The project of a new session, by its id or name; "" is none. `move` changes that of another one.
            tools: The caller's own tools: functions (see `tool_from_function`), tools and toolsets. They need no
                permission unless a rule denies them.
            toolsets: Further tools, under the permission rules and the mode as any others.
            system: Replaces Satchel's system prompt; or a function that gets Satchel's own and returns the one to use.
            token_counter: Counts tokens where the provider gives no counts; its name is in the log.
            sinks: Receive every record of the session; see `HistorySink`.
            hooks: See `satchel.loop.Hook`.

        Raises:
            NotFound: There is no such session or project.
            StorageLocked: It is open in another process.
            ConfigError, ModelError: The model is unavailable.
            UsageError: An argument can't be used, such as a rule that can't be read; several ids begin with
                `session_id`; the session is open, and an argument is only for opening; or Satchel is closed.
        """
        if self._is_closed:
            raise UsageError("This Satchel is closed. Open another one.")
        options = SessionOptions(
            model=model,
            mode=mode,
            allow=allow,
            private=private,
            ephemeral=ephemeral,
            tools=tools,
            toolsets=toolsets,
            system=system,
            token_counter=token_counter,
            sinks=sinks,
            hooks=hooks,
        )
        wanted = (cwd or self.settings.cwd).resolve()
        belongs = self.home.projects.find(project).id if project else ""
        if session_id is None and last:
            newest = await self.sessions.last(wanted, project=belongs)
            session_id = newest.id if newest is not None else None
        # Two clients that open the same session share it. Opening a large one holds up no other.
        async with self._opening.setdefault(session_id or "", anyio.Lock()) if session_id else nullcontext():
            hub = await self._open_hub(session_id)
            if hub is not None:
                options.refuse(hub.id)
                if project and hub.project_id != belongs:
                    raise UsageError(_IN_ANOTHER.format(id=hub.id))
                return self._hold(hub, interactive)
            serving = await self.model(model)
            replay = Replay()
            journal: Journal | EphemeralJournal
            if ephemeral:
                journal = self.sessions.ephemeral(wanted)
            elif session_id is None:
                journal = await self.sessions.create(wanted)
            else:
                journal = await self.sessions.open(session_id, visit=replay)
                replay.conversation.end(journal.last_seq)
            chosen = self._read_chosen(journal.session_id, journal.chosen)
            try:
                if model is None and chosen.get("model"):
                    with contextlib.suppress(ConfigError, ModelError):  # this machine doesn't have it
                        serving = await self.model(chosen["model"])
                if session_id is None or ephemeral:
                    replay.project = belongs
                elif project and replay.project != belongs:
                    raise UsageError(_IN_ANOTHER.format(id=session_id))
                opening = SessionOpener(
                    parts=self.parts,
                    home=self.home,
                    tooling=self.tooling,
                    distilling=self.distilling,
                    capabilities=self.capabilities,
                    spans=self._spans,
                    use_rules=self.use_rules,
                )
                hub = await opening.open(
                    journal,
                    replay,
                    options,
                    # An imported log may be a stranger's, and tools read unasked in the folder that they work in.
                    cwd=cwd
                    or (Path(journal.cwd) if journal.cwd and not source_of(journal.session_id) else wanted),
                    model=serving,
                    mode=read_mode(mode or chosen.get("mode") or self.settings.agent.mode),
                )
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await journal.aclose()
                raise
            self._hubs[hub.id] = hub
            self._chosen[hub.id] = None if model or chosen.get("model") else serving, journal.chosen
            return self._hold(hub, interactive)

    def has_open(self, session_id: str) -> bool:
        """Whether the session with this full id is open in this process."""
        return session_id in self._hubs

    async def _open_hub(self, session_id: str | None) -> SessionHub | None:
        """The hub of a session that is open in this process, by a unique prefix of its id."""
        if not session_id:
            return None
        found = [hub for id, hub in self._hubs.items() if id.startswith(session_id)]
        if session_id in self._hubs:
            found = [self._hubs[session_id]]
        elif found:
            ids = {hub.id for hub in found} | {
                info.id for info in await self.sessions.list() if info.id.startswith(session_id)
            }
            if session_id in ids:
                return (
                    None  # the whole id of one that isn't open, such as of what the open one is a branch of
                )
            if len(ids) > 1:
                raise UsageError(f"{len(ids)} sessions begin with {session_id!r}. Give more of the id.")
        if not found:
            return None
        if not found[0].is_closing:
            return found[0]
        await found[0].closed.wait()
        return None

    def _hold(self, hub: SessionHub, interactive: bool) -> Session:
        session = Session(hub, is_interactive=interactive, release=self._release)
        hub.clients.add(session)
        self._began.set()
        return session

    async def _release(self, session: Session, reason: str) -> None:
        """Give up a hold. With the last one, the session is closed."""
        hub = self._hubs.get(session.id)
        if hub is None:
            return
        hub.clients.discard(session)
        if not hub.clients:
            await self._close_hub(hub, reason)

    async def _close_hub(self, hub: SessionHub, reason: str) -> None:
        try:
            await hub.close(reason)
        finally:
            if self._hubs.get(hub.id) is hub:
                self._hubs.pop(hub.id)
                self._chosen.pop(hub.id, None)

    async def post(self, session_id: str, text: str, *, source: str, untrusted: bool = False) -> str:
        """Post a text into a session, which may be open here, open in another process, or closed.

        Its clients see the post at once, and the next message delivers it to the model. The text has at most 20,000
        characters, and loses secrets and private parts as the log does. The model sees `source`, one line, as its
        sender.

        Returns:
            The id of the post.

        Raises:
            NotFound: There is no such session.
            StorageError: The post could not be stored.
        """
        hub = self._hubs.get(session_id)
        redactor = hub.log.redactor if hub is not None else self.parts.redactor()
        entry = await self.sessions.post(
            session_id,
            source=await redactor.redacted_text(source),
            text=await redactor.redacted_text(text),
            untrusted=untrusted,
        )
        if hub is not None:
            await hub.deliveries.collect_posts()
        return entry

    async def rename(self, session_id: str, title: str) -> None:
        """Give a conversation a title, in all its branches; see `Home.titled`."""
        await self._note_of(session_id, self.home.titled(title))

    async def file(
        self, session_id: str, *, pinned: bool | None = None, archived: bool | None = None
    ) -> None:
        """Pin a conversation with its branches to the top of lists, archive it, or take that back; None leaves it as it
        is.

        Raises:
            NotFound, UsageError, StorageLocked, StorageError: As `Home.note_of`.
        """
        await self._note_of(session_id, SessionFiled(pinned=pinned, archived=archived))

    # Projects

    async def move(self, session_id: str, project: str) -> None:
        """Put a conversation with its branches into a project, or out of one (""), with all that was said in it and
        learnt from it.

        Raises:
            NotFound: There is no such session or project.
            UsageError: A turn is running in it, it is a build, or several ids begin like this.
            StorageLocked: Another process has it open.
            StorageError: It could not be stored. What was moved already is moved by the next call.
        """
        belongs = self.home.projects.find(project).id if project else ""
        try:
            ids = [info.id for info in await self.sessions.branches(session_id)]
        except NotFound:
            if session_id not in self._hubs:
                raise
            ids = [session_id]  # nothing was said in it yet
        for id in ids:
            await self._move(id, belongs)

    async def _move(self, id: str, belongs: str) -> None:
        async with self._opening.setdefault(id, anyio.Lock()):
            hub = self._hubs.get(id)
            if hub is None:
                await self.home.move(id, belongs)
                return
            if await is_busy(hub.running):
                raise UsageError(f"A turn is running in conversation {id}. Wait until it ends, or cancel it.")
            async with hub.doing("The conversation is being moved"):
                if hub.project_id != belongs:
                    await hub.log.record(movable(id, belongs))
                    hub.project_id = belongs
                    await hub.driver.use_scope(await self.home.scope(belongs))
                await self.home.bring(id, belongs)

    async def change_project(self, project: Project, **fields: Any) -> Project:
        """See `Projects.change`. Conversations that are open follow it from their next turn on."""
        changed = self.home.projects.change(project, **fields)
        for hub in self._hubs.values():
            if hub.project_id == changed.id:
                await hub.driver.use_scope(await self.home.scope(changed.id))
        return changed

    async def delete_project(self, project: Project) -> None:
        """Delete a project with its conversations, its memories and its instructions. Nothing of it is left, but what
        was moved out of it before. A call that was interrupted can be made again.

        Raises:
            UsageError: A turn is running in one of its conversations.
            StorageLocked: Another process has one open.
            StorageError: Something can't be removed; what is left of the project is still there.
        """
        hubs = [hub for hub in self._hubs.values() if hub.project_id == project.id]
        for hub in hubs:
            if await is_busy(hub.running):
                raise UsageError(f"A turn is running in conversation {hub.id}. Cancel it first.")
        for hub in hubs:
            if not hub.log.conversation.turns:
                await self._close_hub(hub, "deleted")  # leaves no log
        for info in await self.home.sessions_in(project.id):
            await self.delete_session(info.id)
        await self.home.remove_project(project)

    async def _note_of(self, session_id: str, event: SessionTitled | SessionFiled) -> None:
        for info in await self.sessions.branches(session_id):
            hub = await self._open_hub(info.id)
            if hub is not None:
                await hub.log.record(event)
            else:
                await self.home.note_of(info.id, event)

    async def _name(self, session_id: str, title: str) -> None:
        """Give a conversation the title that whoever read it found, unless it has one. What another process has open,
        and what has no log here, goes without.
        """
        title = bare_title(title)
        if not title:
            return
        with contextlib.suppress(NotFound, StorageError, UsageError):
            titled = self.home.titled(title, by="model")
            # Whoever opens it meanwhile waits.
            async with self._opening.setdefault(session_id, anyio.Lock()):
                hub = self._hubs.get(session_id)
                if hub is not None and not hub.is_closing:
                    await hub.name(titled)
                else:
                    if hub is not None:
                        await hub.closed.wait()
                    await self.home.name(session_id, titled)

    async def delete_session(self, session_id: str) -> str:
        """Delete the log of a conversation. One that is open here ends for all of its clients. What was learnt stays.

        Returns:
            The id.

        Raises:
            NotFound: There is no such session.
            UsageError: A turn is running in it.
            StorageLocked: Another process has it open.
        """
        # Whoever follows it would open it again at once.
        async with self._opening.setdefault(session_id, anyio.Lock()):
            hub = self._hubs.get(session_id)
            if hub is not None:
                # When a turn ends, the next message in line may begin another.
                while hub.running is not None:
                    if await is_busy(hub.running):
                        raise UsageError(f"A turn is running in conversation {session_id}. Cancel it first.")
                await self._close_hub(hub, "deleted")
            return await self.sessions.delete(session_id)

    async def mode_of(self, session_id: str) -> str:
        """The mode in which a session that isn't open here would go on, by its full id. Errors as in `note_chosen`."""
        noted = await self.sessions.chosen(session_id)
        return self._read_chosen(session_id, noted).get("mode") or self.settings.agent.mode

    def _read_chosen(self, session_id: str, noted: str) -> dict[str, str]:
        text = self.home.hasher.proven(noted, of=f"chosen for {session_id}") if noted else ""
        found: dict[str, str] = json.loads(text or "{}")
        return found

    async def note_chosen(self) -> None:
        """Note the mode and the model of each session that is open here, where another server may go on with it.

        Raises:
            StorageError: They can't be noted.
        """
        for id, hub in tuple(self._hubs.items()):
            usual, noted = self._chosen[id]
            model = (
                "" if hub.driver.model is usual else f"{hub.driver.model.provider}:{hub.driver.model.model}"
            )
            is_usual = not model and hub.driver.tools.gate.mode == self.settings.agent.mode
            text = "" if is_usual else json.dumps({"mode": hub.driver.tools.gate.mode, "model": model})
            # Whoever can write to the database has no conversation go on in another mode.
            text = text and self.home.hasher.signed(text, of=f"chosen for {id}")
            if text != noted and hub.driver.has_begun:
                await self.sessions.note_chosen(id, text)
                self._chosen[id] = usual, text

    async def hand_over(self, session_id: str) -> bool:
        """Close a session that is open here, so that another process can open it; False if something runs or waits in
        it, or if a client needs it.
        """
        async with self._opening.setdefault(session_id, anyio.Lock()):
            hub = self._hubs.get(session_id)
            if hub is None:
                return True
            awaits = await hub.deliveries.awaits_build()
            if hub.is_busy or any(not one.is_spare or (awaits and one.follows) for one in hub.clients):
                return False
            await self._close_hub(hub, "idle")
            return True

    async def _watch_inbox(self) -> None:
        """Look for posts by other processes, and for the news of builds, while a session is open."""
        seen: object = None
        while True:
            await anyio.sleep(_INBOX_LOOK_S)
            if not self._hubs:
                continue
            with contextlib.suppress(StorageError):
                is_read = any(
                    hub.driver.has_begun and client.is_interactive
                    for hub in self._hubs.values()
                    for client in hub.clients
                )
                version = (
                    await self.sessions.inbox.version(),
                    await self.builds.queue.version() if self.builds is not None else 0,
                    is_read,
                )
                if version != seen:
                    seen = version
                    for hub in tuple(self._hubs.values()):
                        await hub.deliveries.collect_posts()
                        await hub.deliveries.collect_builds()
                    if is_read and self.earning is not None:
                        await self.earning.tell()
                for hub in tuple(self._hubs.values()):
                    hub.go_on()

    def _forget_words(self, words: Sequence[Words], ids: Sequence[str]) -> None:
        redact = live_redactor(words)
        for hub in self._hubs.values():
            hub.log.forget(redact, ids)

    async def _reload(self, session_id: str) -> None:
        hub = self._hubs.get(session_id)
        if hub is not None:
            await hub.log.reload()

    async def _close(self) -> None:
        self._is_closed = True
        for database in (self.home.database, self.memory.server if self.memory is not None else None):
            if database is not None:
                database.stop_waiting()
        async with anyio.create_task_group() as group:
            for hub in tuple(self._hubs.values()):
                group.start_soon(self._close_hub, hub, "closed")
        await self.distilling.close()
        await self.parts.mcp.aclose()
        await self.parts.boxes.aclose()
        await self.parts.models.aclose()
        await self.parts.sandboxes.aclose()
        if self._spans is not None:
            await self._spans.aclose()
        self.parts.pool.close()


_IN_ANOTHER = "Session {id} is not in this project. Leave the project out, or use `satchel projects move`."


def _uploads(home: Home) -> Uploads:
    if home.server is None:
        return Uploads(home.settings.home)
    from satchel.sessions.row_uploads import RowUploads  # noqa: PLC0415 - most homes have files

    return RowUploads(home.settings.home, home.server)
