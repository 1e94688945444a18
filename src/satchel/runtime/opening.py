"""Opens a session: makes its parts, connects them, and logs that it has started."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from satchel.clock import local_day
from satchel.config import Mode, PermissionRule
from satchel.events import Notice, SessionStart
from satchel.loop import (
    CallEnvironment,
    HardBudget,
    Instructions,
    Patience,
    Room,
    TokenEstimator,
    TurnLimits,
    build_sub_agent_system,
    build_system,
)
from satchel.models import ChatModel
from satchel.runtime.capability_parts import CapabilityParts
from satchel.runtime.deliveries import Deliveries
from satchel.runtime.distilling import Distilling
from satchel.runtime.driver import Driver, Terms
from satchel.runtime.home import Home, untrusted_project
from satchel.runtime.hub import Client, SessionHub
from satchel.runtime.mcp_context import McpContext
from satchel.runtime.parts import Parts
from satchel.runtime.projects import SessionScope
from satchel.runtime.questions import Questions
from satchel.runtime.replay import Replay
from satchel.runtime.rules import gate_for
from satchel.runtime.session_files import SessionFiles
from satchel.runtime.session_log import SessionLog
from satchel.runtime.session_memory import SessionMemory
from satchel.runtime.session_options import SessionOptions, system_text
from satchel.runtime.session_tools import SessionTools
from satchel.runtime.spans import Spans, SpanSink
from satchel.runtime.spill import spill_into
from satchel.runtime.sub_agents import SubAgents
from satchel.runtime.titling import Titling
from satchel.runtime.tooling import Tooling
from satchel.sessions import EphemeralJournal, Journal
from satchel.tools import Registry, toolset_of
from satchel.tools.builtin.propose_plan import offered_mode
from satchel.tools.builtin.todo import STATE_KEY as TO_DO
from satchel.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpener:
    """Opens the sessions of one Satchel.

    Attributes:
        use_rules: Called with the permission rules of the settings when a session has added one.
    """

    parts: Parts
    home: Home
    tooling: Tooling
    distilling: Distilling
    capabilities: CapabilityParts | None
    spans: Spans | None
    use_rules: Callable[[tuple[PermissionRule, ...]], None]

    async def open(
        self,
        journal: Journal | EphemeralJournal,
        replay: Replay,
        options: SessionOptions,
        *,
        cwd: Path,
        model: ChatModel,
        mode: Mode,
    ) -> SessionHub:
        """Make the hub of a session, and log that the session has started."""
        parts, home, capabilities = self.parts, self.home, self.capabilities
        settings = parts.settings
        builds = capabilities.builds if capabilities is not None else None
        private = options.private or options.ephemeral or replay.is_private
        is_new = journal.last_seq == 0
        scope = await home.scope(replay.project)
        own = [toolset_of(tool) for tool in options.tools]
        files = SessionFiles(
            folder=journal.spill_dir,
            uploads=parts.uploads,
            pool=parts.pool,
            sandbox=parts.sandboxes.get,
            notices=parts.notices,
        )
        log = SessionLog(
            journal,
            replay,
            sessions=home.sessions,
            files=files,
            redactor=parts.redactor(),
            clock=parts.clock,
        )
        clients: set[Client] = set()
        questions = Questions(
            log,
            clients=clients,
            # Whoever can write to the database, and so to a log, gives no call a permission that the user didn't.
            sealed=lambda text: (
                "" if options.ephemeral else home.hasher.key_for(f"consent in {log.id}: {text}").hex()
            ),
        )
        gate = gate_for(
            settings,
            mode=mode,
            # The program wants its own tools used, so they need no permission unless a rule denies them.
            allow=[*options.allow, *(tool.spec.name for tool in (await Registry.load(own)).tools)],
            approver=questions,
            cwd=cwd,
            open_folders=(journal.spill_dir,),
            boxing=parts.boxes.workspace(cwd),
            on_written=lambda rule: self.use_rules((*parts.settings.permissions, rule)),
            agreed=parts.agreed,
        )
        if log.conversation.proposes_plan and log.conversation.question is not None:
            gate.before_plan = offered_mode(log.conversation.question.options) or "ask"
            gate.mode = "plan"
        tools = SessionTools(
            lambda wait: self.tooling.registry(wait=wait, own=[*own, *options.toolsets], scope=scope),
            finder=self.tooling.finder,
            parts=parts,
            gate=gate,
            cwd=cwd,
            builds=builds,
        )
        # Opening doesn't wait for executables whose schemas are not known yet; the first message does.
        await tools.update(wait=False)
        environment = CallEnvironment(
            tools=tools.toolbox,
            gate=gate,
            pool=parts.pool,
            spill=spill_into(journal.spill_dir, parts.pool, clean=log.redactor.redacted_text),
            session_id=log.id,
            cwd=cwd,
            # The file tools reach exactly what the gate allows.
            roots=gate.roots,
            spill_dir=journal.spill_dir,
            state={TO_DO: list(to_do.data)} if (to_do := log.conversation.to_do) is not None else {},
            environ=settings.environ,
            messages=lambda: log.conversation.messages,
            memory=None if private else scope.memory,
            catalogue=capabilities.catalogue if capabilities is not None else None,
            modes=gate,
        )
        estimator = TokenEstimator(
            options.token_counter,
            name=getattr(options.token_counter, "__name__", type(options.token_counter).__name__),
        )
        terms = Terms(
            limits=TurnLimits(
                max_rounds=settings.agent.max_rounds,
                tool_timeout_s=settings.agent.tool_timeout_s,
                patience=Patience(end_s=settings.agent.model_timeout_s),
                max_result_chars=settings.agent.max_result_chars,
            ),
            hooks=options.hooks,
            estimator=estimator,
            budget=lambda: HardBudget(
                session_usd=settings.budget.session_usd,
                day_usd=settings.budget.day_usd,
                turn_tokens=settings.budget.turn_tokens,
                conversation=lambda: log.conversation,
                spent_on_day=lambda: home.spent_on(local_day(parts.clock.now())),
            ),
        )
        driver = Driver(
            log,
            parts=parts,
            memory=SessionMemory(
                log,
                parts=parts,
                home=home,
                scope=scope,
                distilling=self.distilling,
                branch_turn=replay.branch_turn,
            ),
            deliveries=Deliveries(log, replay, inbox=home.sessions.inbox, builds=builds),
            tools=tools,
            questions=questions,
            mentions=McpContext(
                parts.mcp,
                environment=environment,
                clock=parts.clock,
                notify=lambda text: parts.notices.post(Notice(part="mcp", text=text)),
            ),
            terms=terms,
            environment=environment,
            model=model,
            compose=lambda room: system_text(options.system, self._own_system_text(cwd, scope, room)),
        )
        environment.delegate = SubAgents(
            driver,
            system=lambda: build_sub_agent_system(
                cwd=str(cwd), instructions=self._instructions(scope), most_added=driver.room.added_bytes
            ),
        )
        hub = SessionHub(
            driver,
            replay,
            titling=Titling(log, parts=parts, home=home, is_titled=replay.is_titled, budget=terms.budget),
            clients=clients,
            private=private,
            sinks=(*options.sinks, *([SpanSink(self.spans, log.id)] if self.spans else ())),
        )
        start = SessionStart(
            session_id=log.id,
            cwd=str(cwd),
            provider=model.provider,
            model=model.model,
            version=__version__,
            resumed=not is_new,
            private=private,
            tokenizer=estimator.name,
            project=replay.project if is_new else "",
        )
        log.conversation.apply(start)
        await log.record(start)
        # Nobody can have posted into a session that is new.
        if not is_new:
            await hub.deliveries.collect_posts()
            await hub.deliveries.collect_builds()
            await hub.deliveries.tell_lost_jobs()
        if builds is not None:
            # Builds that a process left unfinished when it was killed continue.
            parts.background.start(builds.dispatch)
        return hub

    def _own_system_text(self, cwd: Path, scope: SessionScope, room: Room) -> str:
        """Satchel's own system prompt for a session in this folder, whose tools were just looked at."""
        return build_system(
            cwd=str(cwd),
            remembers=scope.memory is not None,
            capabilities=self.capabilities.tools.lines() if self.capabilities is not None else (),
            skills=self.tooling.skills.skills.lines(),
            servers=self.parts.mcp.instructions(),
            instructions=self._instructions(scope),
            most_added=room.added_bytes,
        )

    def _instructions(self, scope: SessionScope) -> list[Instructions]:
        """The `AGENTS.md` of the folder, if the user trusts it, and what the user wrote for the project."""
        settings, found = self.parts.settings, []
        if settings.project is not None and not settings.project_trusted:
            notice = untrusted_project(settings)
            if notice is not None:
                self.parts.notices.post_once(notice)
        elif settings.project is not None and settings.project_instructions:
            found.append(Instructions(source="AGENTS.md", text=settings.project_instructions))
        if scope.project is not None:
            source = f"the project {json.dumps(scope.project.name, ensure_ascii=False)}"
            found.append(Instructions(source=source, text=scope.project.instructions))
        return found
