"""Builds of capabilities: asked for, dispatched to the worker or run here, followed and answered.

Builds belong to the worker, a process of its own, because whoever asks may leave while a build goes on. A program that
passed a model object to `Satchel.open` builds in its own process, because no other one has that model.
"""

from __future__ import annotations

import json
import logging
import shutil
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from satchel.builder.asking import is_consent, is_unset
from satchel.builder.builder import Builder
from satchel.builder.queue import BuildQueue
from satchel.builder.records import CANCELLED, DECLINED, EARNED, Build, BuildMessage
from satchel.builder.registering import Registering
from satchel.builder.tasks import adopt_task, build_task, repair_task
from satchel.builder.worker import WORKER
from satchel.builder.workshop import Workshop
from satchel.capabilities.access import network_of
from satchel.capabilities.allowances import Rules
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.checking import Registrar
from satchel.capabilities.given import Given, has_given, keep_given
from satchel.capabilities.package import draft_of
from satchel.capabilities.records import Access, Capability, Provenance, Requested, Wanted
from satchel.capabilities.running import LayerMaker
from satchel.capabilities.toolset import CALL
from satchel.clock import local_day
from satchel.errors import NotFound, SandboxError, StorageError, StorageLocked, UsageError
from satchel.events import BuildPosted, Event, Posted
from satchel.models import ChatModel
from satchel.runtime.build_brief import brief_of
from satchel.runtime.build_news import post_id
from satchel.runtime.home import Home
from satchel.runtime.options import option_of
from satchel.runtime.parts import Parts
from satchel.runtime.spill import spill_into
from satchel.sandbox.detached import ask_to_end, is_working, start_working
from satchel.sandbox.port import Broker, Sandbox

_log = logging.getLogger(__name__)

_ADOPTED_AFTER: Final = timedelta(seconds=5)
"""A request without a build is older than this only if the program died in between."""
_TAKEN_OVER_AFTER: Final = timedelta(seconds=30)
"""A build that could go on for so long has been left by the machine where it was: there, one looks every ten."""
_FOLLOW_S: Final = 0.3
_WATCH_S: Final = 10.0
_MOST_WATCH_S: Final = 600.0
"""How often a process checks that waiting builds have a worker. A worker takes a few seconds to start."""
_ENDS_S: Final = 15.0
"""A worker needs this long at most to end: it waits five seconds for its jobs."""
_KEPT_RUNS: Final = 200
_RETRY_S: Final = 2.0
_RETRIES: Final = 3
_MOST_SCHEMA: Final = 1_500
"""The most characters of an input schema that the model is told with the end of a build."""


class Builds:
    """The builds of a home.

    Attributes:
        queue: The builds and their messages.
        catalogue: The capabilities.
    """

    def __init__(
        self,
        parts: Parts,
        home: Home,
        *,
        queue: BuildQueue,
        catalogue: Catalogue,
        registrar: Registrar,
        allowances: Rules,
        lend: Callable[[str, Sequence[str]], AbstractContextManager[Broker]],
        sandbox: Callable[[], Awaitable[Sandbox]],
        layers: LayerMaker,
    ) -> None:
        """Use `Satchel.builds`."""
        self.queue = queue
        self.catalogue = catalogue
        self._parts = parts
        self._home = home
        self._allowances = allowances
        self._registering = Registering(catalogue=catalogue, registrar=registrar)
        self._lend = lend
        self._sandbox = sandbox
        self._layers = layers
        self._here: set[str] = set()

    # Asking for builds

    async def build(self, wanted: Wanted, *, asked_by: str = "", model: ChatModel | None = None) -> Requested:
        """Have a capability built. One that is there already, or is being built, is returned as it is.

        Args:
            wanted: What is asked for.
            asked_by: The session that asks and is told, or "".
            model: The session's model; None is the default one.

        Raises:
            UsageError: The name or the schema is not acceptable, or there is no language model.
            Refused: A permission rule denies the calls of this capability.
            ConfigError, ModelError: The model is unavailable.
            StorageError: The database failed.
        """
        (await self._allowances()).check(wanted.name)
        name = await self._model_name(model)
        requested = await self.catalogue.request(wanted, session_id=asked_by, model=name)
        if requested.is_new:
            await self._open(requested.capability, requested.build_id, build_task(wanted), asked_by, name)
        elif requested.build_id:
            # Who asked before may have been kept from storing the build: by a full disk, or the program was killed.
            task = await self._task_of(requested.capability)
            await self._open(requested.capability, requested.build_id, task, asked_by, name)
        return requested

    async def propose(self, wanted: Wanted, *, id: str, task: str, question: Mapping[str, Any]) -> None:
        """Ask the user whether something shall be built that nobody asked for. What has its name stays as it is.

        Args:
            wanted: What it would be.
            id: Of the build; what was proposed with it, or declined by its name, is not proposed again.
            task: What the Builder would be told.
            question: The payload of the question; its `cases` are added to those of the Builder. One with a `draft`
                proposes a skill, or, if `before` is the document of one that there is, a change of it.

        Raises:
            UsageError, Refused, ConfigError, ModelError, StorageError: As in `build`.
        """
        (await self._allowances()).check(wanted.name)
        model = await self._model_name(None)
        with suppress(NotFound):
            await self.queue.get(id)
            return
        there = await self.catalogue.find(wanted.name)
        if await self.queue.was_declined(wanted.name) or (there and question.get("before") is None):
            return
        requested = (
            await self.catalogue.rebuild(there.id, build_id=id)
            if there
            else await self.catalogue.request(wanted, model=model, build_id=id)
        )
        if requested.is_new:
            await self._add(requested.capability, id, task, "", model, question=question)

    async def earned(self, capability: Capability) -> Build | None:
        """The build that was proposed because of what the user had done; None if the capability came another way."""
        builds = await self.queue.of_capability(capability.id)
        return next((build for build in builds if build.id.startswith(EARNED)), None)

    async def saved(self, capability: Capability) -> dict[str, float]:
        """About what the runs of an earned capability saved: `calls`, `tokens`, `seconds`; {} for others.

        It is what the rounds before it needed beyond one call each time, less the time of its own runs: the newest 200
        of all versions, and more if the present one has more.
        """
        build, reliability = await self.earned(capability), capability.reliability
        if build is None or not capability.version or capability.is_skill:
            return {}
        calls, tokens, seconds = (await self.queue.proposal(build.id))["saves"]
        kept = await self.catalogue.runs(capability.id, limit=_KEPT_RUNS)
        took_ms = [run.wall_ms for run in kept if run.status == "ok"]
        times = max(len(took_ms), reliability.runs - reliability.failures)
        less = max(0.0, seconds - statistics.median(took_ms or [0.0]) / 1000)
        return {"calls": calls * times, "tokens": tokens * times, "seconds": round(less * times, 1)}

    async def require_model(self) -> None:
        """Make sure that there is a model that builds.

        Raises:
            UsageError: There is no language model.
            ConfigError, ModelError: It is unavailable.
        """
        await self._model_name(None)

    async def adopt(self, given: Given, *, source: str) -> Requested:
        """Have a capability made of a program: the Builder writes what is missing around it and tests it.

        Args:
            given: The program. Its files are kept with the capability.
            source: Where they come from.

        Raises:
            UsageError: The name is taken, or there is no language model.
            Refused, ConfigError, ModelError, StorageError: As in `build`.
        """
        (await self._allowances()).check(given.name)
        name = await self._model_name(None)
        there = await self.catalogue.find(given.name)
        if there is not None and (there.status != "failed" or there.version):
            raise UsageError(
                f"{there.name} is there already, and is {there.status}. Remove it, or give the "
                "folder's program another name in manifest.json."
            )
        # Until the files are kept, nothing may be built of the description alone.
        entry = there or await self.catalogue.create(
            given.wanted,
            provenance=Provenance(made_by="import", source=source, model=name),
            reasons=("Its import was cut off. Import it again.",),
        )
        await anyio.to_thread.run_sync(keep_given, entry.path, given)
        requested = await self.catalogue.request(given.wanted, model=name)
        if requested.build_id:
            await self._open(requested.capability, requested.build_id, adopt_task(given.wanted), "", name)
        return requested

    async def repair(
        self,
        name: str,
        *,
        wish: str = "",
        failing_input: Mapping[str, Any] | None = None,
        asked_by: str = "",
        model: ChatModel | None = None,
    ) -> Requested:
        """Have a new version of a capability built. The present one can be used meanwhile and stays as it is. While one
        is being built, its Builder is told the wish.

        Args:
            name: Of the capability.
            wish: What shall be different, in the user's words; "" if it just fails.
            failing_input: An input with which it fails; None takes the newest run that failed.
            asked_by: As in `build`.
            model: As in `build`.

        Raises:
            NotFound: There is no such capability.
            UsageError: There is no language model.
            ConfigError, ModelError, StorageError: As in `build`.
        """
        capability = await self.catalogue.get(name)
        model_name = await self._model_name(model)
        requested = await self.catalogue.rebuild(capability.id)
        task = await self._task_of(capability, wish=wish, failing_input=failing_input)
        await self._open(capability, requested.build_id, task, asked_by, model_name)
        if not requested.is_new:
            await self.queue.add_wish(requested.build_id, wish)
        return requested

    async def cancel(self, name: str) -> Capability:
        """Stop a build for good. Whoever runs it stops within a second or two, and nothing of it is registered.

        The catalogue is told first: from then on the build can't register anything, whoever is killed.

        Args:
            name: The build's id, or the name of a capability that is being built.

        Returns:
            The capability after that: "failed", or as it was before if it has a version.

        Raises:
            NotFound: There is no such build or capability.
            UsageError: It is not being built (any more).
        """
        capability = await self._being_built(name)
        build_id = capability.build_id
        reasons = [] if capability.version else [CANCELLED]
        after = await self.catalogue.fail(capability.id, reasons, build_id=build_id)
        if any(
            version.provenance.build_id == build_id for version in await self.catalogue.versions(after.id)
        ):
            raise UsageError(
                f"{after.name} was registered before it could be cancelled; it is {after.status}."
            )
        with suppress(NotFound):  # the program died before the build was stored
            await self.queue.end(build_id, "failed", CANCELLED)
        return after

    async def _being_built(self, name: str) -> Capability:
        capability = await self.catalogue.building(name) or await self.catalogue.find(name)
        if capability is None:
            build = await self.queue.get(name)
            raise UsageError(f"The build {build.id} of {build.name} has ended ({build.status}).")
        if not capability.build_id:
            raise UsageError(f"{capability.name} is not being built; it is {capability.status}.")
        return capability

    async def began(self, build_id: str, *, asked_by: str, model: ChatModel, wish: str = "") -> None:
        """A tool has opened a build in the catalogue, or found one: have it built. May be called again for the same.

        A tool that was proposed, and that the user asks for now, needs no other yes. A skill does: its text is shown.

        Args:
            build_id: Of the build.
            asked_by: As in `build`.
            model: As in `build`.
            wish: As in `repair`, where it makes a new version.
        """
        capability = await self.catalogue.building(build_id)
        if capability is None:
            return
        task = await self._task_of(capability, wish=wish)
        await self._add(capability, build_id, task, asked_by, await self._model_name(model))
        await self.queue.adopt(build_id, asked_by)
        if build_id.startswith(EARNED) and "draft" not in await self.queue.proposal(build_id):
            with suppress(UsageError):  # it has an answer
                await self.queue.answer(build_id, EARNED, "yes", by=asked_by)
        await self.dispatch()

    async def _task_of(
        self, capability: Capability, *, wish: str = "", failing_input: Mapping[str, Any] | None = None
    ) -> str:
        """What the Builder is told: to make a first version, or a new one."""
        if capability.version == 0:
            wanted = Wanted(
                name=capability.name,
                description="\n\n".join(part for part in (capability.description, wish.strip()) if part),
                input_schema=capability.input_schema,
            )
            return adopt_task(wanted) if has_given(capability.path) else build_task(wanted)
        error = ""
        failed = await self.catalogue.runs(capability.id, limit=1, failed=True)
        # Beside a wish, a failure that was overcome since would only mislead.
        if wish and failed != await self.catalogue.runs(capability.id, limit=1):
            failed = ()
        if failed and failed[0].version == capability.version and failing_input is None:
            failing_input, error = failed[0].input, failed[0].error
        return repair_task(
            capability,
            document=await self._document(capability),
            wish=wish,
            failing_input=failing_input,
            error=error,
        )

    async def _open(
        self, capability: Capability, build_id: str, task: str, asked_by: str, model: str
    ) -> None:
        await self._add(capability, build_id, task, asked_by, model)
        await self.dispatch()

    async def _add(
        self,
        capability: Capability,
        build_id: str,
        task: str,
        asked_by: str,
        model: str,
        *,
        question: Mapping[str, Any] | None = None,
    ) -> None:
        now = self._parts.clock.now()
        await self.queue.add(
            Build(
                id=build_id,
                capability_id=capability.id,
                name=capability.name,
                kind="repair" if capability.version else "build",
                task=task,
                asked_by=asked_by,
                session_id=f"build-{build_id}",
                model=model,
                created_at=now,
                updated_at=now,
            ),
            question=question,
        )

    async def _model_name(self, model: ChatModel | None) -> str:
        """The model that builds, by name; "" for the object that the program passed.

        Raises:
            UsageError: There is no language model.
        """
        wanted = self._parts.settings.builder.model
        if wanted:
            return wanted
        given = self._parts.models.given
        found = model if model is not None else await self._parts.models.model()
        if found.provider == "none":
            raise UsageError(
                "Building a capability needs a language model, and none is set up. "
                "`satchel model list` shows how to add one."
            )
        return "" if found is given else f"{found.provider}:{found.model}"

    # Having them built

    async def waiting(self) -> Sequence[Build]:
        """The builds that a worker has to run. Adopts requests whose program died before their build was stored."""
        await self._adopt()
        await self.sweep()
        return [build for build in await self._due() if build.model]

    async def _due(self) -> Sequence[Build]:
        """The builds that can go on here: they have not ended, don't wait for the user, and no other machine is at
        them.
        """
        due = [build for build in await self.queue.open_builds() if build.status != "waiting"]
        if not due or self._home.server is None:
            return due
        elsewhere = await self._home.sessions.open_elsewhere()
        return [build for build in due if build.session_id not in elsewhere and await self._may_take(build)]

    async def _may_take(self, build: Build) -> bool:
        """Whether a build that nobody is at may go on here. Where its folder is goes first."""
        if self._folder(build).exists():
            return True
        if not build.attempts:
            capability = await self.catalogue.find(build.capability_id)
            imported = capability is not None and capability.provenance.made_by == "import"
            # The program of which it is made is where it was imported.
            return capability is None or not imported or has_given(capability.path) or capability.version > 0
        messages = await self.queue.messages(build.id)
        newest = max([build.updated_at, *(message.created_at for message in messages)])
        return self._parts.clock.now() - newest > _TAKEN_OVER_AFTER

    async def sweep(self) -> None:
        """Remove the working folders of builds that have ended: what they registered is elsewhere, and their story is a
        session.
        """
        folder = self._parts.settings.home / "builds"
        there = await anyio.to_thread.run_sync(lambda: list(folder.iterdir()) if folder.is_dir() else [])
        if there:
            open_here = {build.id for build in await self.queue.open_builds()}
            for path in there:
                if path.name not in open_here:
                    await anyio.to_thread.run_sync(partial(shutil.rmtree, path, ignore_errors=True))

    async def _adopt(self) -> None:
        known = {build.id for build in await self.queue.open_builds()}
        now = self._parts.clock.now()
        for capability in await self.catalogue.list():
            id = capability.build_id
            if not id or id in known or now - capability.updated_at < _ADOPTED_AFTER:
                continue
            try:
                build = await self.queue.get(id)
            except NotFound:
                if id.startswith(EARNED) and not capability.version:  # nobody was asked
                    await self.catalogue.remove(capability.id)
                    continue
                if capability.version:
                    # What was to change is not known any more.
                    reason = "Satchel ended before it had noted the change. Ask for it again."
                    await self.catalogue.fail(capability.id, [reason], build_id=id)
                    continue
                asked = capability.provenance if capability.provenance.build_id == id else None
                model = (asked.model if asked else "") or await self._model_name(None)
                await self._add(
                    capability, id, await self._task_of(capability), asked.session_id if asked else "", model
                )
            else:
                # The build has ended, and the catalogue was not told.
                await self.catalogue.fail(capability.id, [build.outcome], build_id=id)

    async def dispatch(self) -> None:
        """Make sure that whatever can go on is being built: here, or by a worker, which is started if there is none."""
        for_worker = False
        for build in await self._due():
            if build.model:
                for_worker = True
            elif self._parts.models.given is not None and build.id not in self._here:
                self._here.add(build.id)
                self._parts.background.start(self._build_here, build.id)
        if for_worker:
            self._start_worker()

    async def watch(self) -> None:
        """Start a worker whenever builds can go on and none is alive, for as long as this process runs.

        A build of a model object of this process goes on here, also after an answer that another process has stored.
        """
        pause_s = _WATCH_S
        while True:
            await anyio.sleep(pause_s)
            with suppress(StorageError):
                due = await self._due()
                is_alone = any(b.model for b in due) and not is_working(self._parts.settings.home, WORKER)
                # A worker that dies at each start is started less and less often.
                pause_s = min(2 * pause_s, _MOST_WATCH_S) if is_alone else _WATCH_S
                if is_alone or any(not b.model for b in due):
                    await self.dispatch()

    def _start_worker(self) -> None:
        settings = self._parts.settings
        try:
            # It gets the keys of model providers in its environment.
            start_working(
                settings.home,
                WORKER,
                {**settings.environ, **settings.secrets},
                ("worker", "--once"),
                log="worker.log",
            )
        except SandboxError as error:
            raise StorageError(
                f"The build is stored and waits. {error} To build it: satchel worker --once"
            ) from error

    async def _end_worker(self) -> None:
        home = self._parts.settings.home
        with anyio.move_on_after(_ENDS_S if ask_to_end(home, WORKER) else 0):
            while is_working(home, WORKER):  # noqa: ASYNC110 - another process
                await anyio.sleep(_FOLLOW_S)

    async def _build_here(self, build_id: str) -> None:
        builder = self.builder()
        try:
            for _ in range(_RETRIES):
                try:
                    built = await builder.build(build_id)
                    self._here.discard(build_id)
                    if not built.has_ended:
                        # An answer that came while it was laid aside has found it still at work.
                        await self.dispatch()
                    return
                except StorageLocked:
                    return  # another program with the same model is at it
                except StorageError as error:
                    _log.warning("The build %s is continued in %g s: %s", build_id, _RETRY_S, error)
                await anyio.sleep(_RETRY_S)
        finally:
            self._here.discard(build_id)
            with suppress(StorageError):
                await self.sweep()

    def builder(self) -> Builder:
        """A builder for this process."""
        parts, home = self._parts, self._home
        settings = parts.settings

        async def model(build: Build) -> ChatModel:
            return await parts.models.model(build.model or None)

        async def brief(build: Build) -> str:
            files = await self._files(build)
            return await brief_of(build, home=home, catalogue=self.catalogue, mcp=parts.mcp, files=files)

        async def clean(events: Sequence[Event]) -> Sequence[Event]:
            return await parts.redactor().redacted(events)

        async def spent_on_day() -> float:
            return await home.spent_on(local_day(parts.clock.now()))

        async def fail(build: Build, reason: str) -> None:
            try:
                if reason == DECLINED and build.kind == "build":
                    await self.catalogue.remove(build.capability_id)
                    return
                reasons = [] if reason == DECLINED else [reason]
                await self.catalogue.fail(build.capability_id, reasons, build_id=build.id)
            except NotFound:
                _log.info("The capability of the build %s was removed meanwhile.", build.id)

        return Builder(
            settings=settings.builder,
            clock=parts.clock,
            queue=self.queue,
            sessions=home.sessions,
            sandbox=self._sandbox,
            model=model,
            folder=self._folder,
            prepare=self._prepare,
            brief=brief,
            clean=clean,
            layers=self._layers,
            network=lambda hosts: network_of(Access(hosts=tuple(hosts))),
            lend=self._lend,
            registering=self._registering,
            fail=fail,
            pool=parts.pool,
            spill=lambda folder: spill_into(folder, parts.pool, clean=parts.redactor().redacted_text),
            environ=settings.environ,
            spent_on_day=spent_on_day,
            day_usd=settings.budget.day_usd,
        )

    def _folder(self, build: Build) -> Path:
        return self._parts.settings.home / "builds" / build.id

    async def _document(self, capability: Capability) -> str:
        return draft_of(await self.catalogue.registered(capability.id, capability.version)).document

    async def _prepare(self, build: Build, workshop: Workshop) -> None:
        for path, content in (await self._files(build)).items():
            await workshop.write(path, content)

    async def _files(self, build: Build) -> Mapping[str, bytes]:
        """What a build begins with: the files of the active version, as the user has edited them, or what they gave."""
        given = await self._registering.given(build)
        if given is not None:
            return given.files
        capability = await self.catalogue.get(build.capability_id)
        if build.kind != "repair" or not capability.version:
            return {}
        package = await self.catalogue.as_edited(capability)
        return {
            path: content
            for path, content in package.files.items()
            if path not in ("SKILL.md", "RUN.md", "manifest.json")
        }

    # Following and answering them

    async def follow(self, build_id: str, *, after: int = 0) -> AsyncIterator[BuildMessage]:
        """Yield the messages of a build with numbers above `after`, those to come as well, until it has ended.

        Raises:
            NotFound: There is no such build.
        """
        while True:
            build = await self.queue.get(build_id)
            messages = await self.queue.messages(build_id, after=after)
            for message in messages:
                after = message.number
                yield message
            if messages:
                await self.queue.mark_read([m.number for m in messages if m.direction == "to_user"])
            elif build.has_ended:
                return
            await anyio.sleep(_FOLLOW_S)

    async def question_of(self, name: str) -> BuildMessage | None:
        """The oldest open question of a capability's build, or the last one of its newest build that nobody has
        answered; None if there is none.
        """
        for question in await self.queue.open_questions():
            if question.name == name:
                return question
        capability = await self.catalogue.find(name)
        builds = await self.queue.of_capability(capability.id) if capability is not None else ()
        messages = await self.queue.messages(builds[-1].id) if builds else ()
        answered = {message.payload.get("question_id") for message in messages if message.type == "answer"}
        asked = [message for message in messages if message.type == "question" and message.id not in answered]
        return asked[-1] if asked else None

    async def answer(
        self, build_id: str, question_id: str, text: str | None, *, by: str = ""
    ) -> BuildMessage:
        """Answer a question of a build, and have it go on if it waits or its worker died; see `BuildQueue.answer`.

        An option may be named by its number. Permission is given or refused by yes or no alone: anything else is no
        answer (`UsageError`), and the question stays open. That a secret is set is for a worker with the environment of
        this process, so the one that works ends before; what else it builds goes on with the next one.
        """
        asked = await self.queue.message(build_id, question_id)
        named = option_of(text or "", asked.options if asked is not None else ())
        if asked is not None and is_consent(question_id) and not named and await self.queue.is_open(asked):
            raise UsageError(f"Nothing was decided. Answer yes or no to: {asked.text}")
        if (
            asked is not None
            and is_unset(question_id)
            and text is not None
            and await self.queue.is_open(asked)
        ):
            await self._end_worker()
        answered = await self.queue.answer(build_id, question_id, named or text, by=by)
        try:
            await self.dispatch()
        except StorageError as error:
            _log.warning("The answer is stored, and nothing takes it yet: %s", error)
        return answered

    async def news(self, session_id: str, *, after: int) -> list[Event]:
        """What the builds that a session asked for have said, and for each that ended the post that tells the model."""
        events: list[Event] = []
        for message in await self.queue.messages_for(session_id, after=after):
            posted = posted_of(message)
            if (
                posted.question_id == EARNED and "draft" not in message.payload
            ):  # the user was asked elsewhere
                continue
            events.append(posted)
            if posted.kind in ("complete", "error"):
                ready = await self.catalogue.find(posted.capability) if posted.status == "active" else None
                events.append(_for_model(posted, ready, is_own=bool(message.payload.get("is_own"))))
        return events

    async def under_way(self, session_id: str) -> set[str]:
        """The ids of the builds that a session asked for, by its model or by its user, and that have not ended."""
        return {build.id for build in await self.queue.open_builds() if build.asked_by == session_id}

    async def heard(self, events: Sequence[BuildPosted]) -> None:
        """Note that messages to the user reached a session."""
        await self.queue.mark_read([event.number for event in events if event.kind != "answer"])


def posted_of(message: BuildMessage) -> BuildPosted:
    """A message as an event of the session that asked for the build."""
    payload = message.payload
    return BuildPosted(
        id=f"build_{message.number}",
        build_id=message.build_id,
        number=message.number,
        capability=message.name,
        kind=message.type,
        text=message.text,
        question_id=message.id if message.type == "question" else str(payload.get("question_id") or ""),
        options=message.options,
        status=str(payload.get("status") or ""),
    )


def _for_model(posted: BuildPosted, ready: Capability | None, *, is_own: bool) -> Posted:
    """What the session's model is told at the end of a build."""
    text = posted.text or f"The build of {posted.capability} ended: {posted.status}."
    if posted.kind == "error":
        text = f"{posted.capability} could not be built: {text}"
    if ready is not None and ready.is_skill:
        text += " Read it with read_docs when it fits."
    elif posted.status == "active":
        text += f" To use it, {CALL.format(posted.capability)}."
    if ready is not None and not ready.is_skill:
        # Otherwise its first call is a guess, or a request more for tool_describe.
        schema = json.dumps(ready.input_schema, ensure_ascii=False)
        text += f" Its input: {schema}" if len(schema) <= _MOST_SCHEMA else ""
    return Posted(
        id=post_id(posted),
        source=f"the Builder of {posted.capability}",
        text=text,
        # The reason of a failure may quote what the Builder read elsewhere.
        untrusted=posted.kind == "error" and posted.text != CANCELLED and not is_own,
    )
