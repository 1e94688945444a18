"""Tools that other agents call, outside of any conversation of Satchel's: what is lent to them, and running a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from satchel.capabilities.package import Package
from satchel.capabilities.skills import Skill
from satchel.errors import NotFound, SatchelError
from satchel.loop import Toolbox
from satchel.memory.toolset import MemoryTools
from satchel.messages import FileBlock
from satchel.models import ChatModel
from satchel.runtime.home import Home
from satchel.runtime.parts import Parts
from satchel.runtime.rules import allowances_now, gate_for
from satchel.runtime.tooling import Tooling
from satchel.tools import Approver, Effect, PlannedCall, Tool, ToolContext, ToolResult, ToolSpec
from satchel.tools.kept import kept_path

_MOST_RESULT_CHARS = 200_000
"""Of a result; the middle of a longer one is left out. Other agents have limits of their own, well below this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """What became of a call.

    Attributes:
        unasked: The reason for which the user would have to be asked, where nobody could be; "" otherwise.
        rules: The permission rules that would have allowed the call, as texts.
    """

    text: str
    is_error: bool
    data: Any = None
    unasked: str = ""
    rules: tuple[str, ...] = ()
    files: tuple[tuple[FileBlock, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LentTool:
    """A tool as an agent of the name `agent` calls it.

    What an agent says may come from anything that it has read, so its calls count as made by a model that has read
    something from outside.
    """

    tool: Tool
    agent: str

    @property
    def spec(self) -> ToolSpec:
        """The tool's own."""
        return self.tool.spec

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        """See `Tool.effects`."""
        return self.tool.effects(input, context)

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """See `Tool.call`."""
        # An agent has no folder here: no call of it names files of the user's.
        lent = replace(context, session_id=f"mcp/{self.agent}", turn=0, untrusted=True, roots=())
        return await self.tool.call(input, lent)


class AgentCalls:
    """Runs the calls of other agents, under the user's permission rules."""

    def __init__(self, parts: Parts, home: Home, tooling: Tooling) -> None:
        self._parts = parts
        self._home = home
        self._tooling = tooling

    async def memory_tools(self, agent: str) -> Mapping[str, Tool]:
        """Satchel's own memory tools by name, for an agent; empty if there is no memory."""
        if self._home.memory is None:
            return {}
        if self._home.spaces is not None:
            await self._home.spaces.refresh()
        tools = MemoryTools(
            self._home.memory,
            forget=self._tooling.forget,
            small_model=_no_model,
            speaker=agent,
            granted=self._parts.settings.memory.agent_spheres,
            shared=self._home.spaces,
            forget_shared=self._home.forget_shared,
        )
        return {tool.spec.name: tool for tool in tools.all}

    async def capabilities(self) -> Sequence[Tool]:
        """The active capabilities, oldest first, without those that the settings disable."""
        if self._tooling.capabilities is None:
            return ()
        disabled = self._parts.settings.tools.disabled
        return [tool for tool in await self._tooling.capabilities.own() if tool.spec.name not in disabled]

    async def run(
        self,
        tool: Tool,
        input: Mapping[str, Any],
        *,
        permission: ToolSpec,
        agent: str,
        call_id: str,
        approver: Approver | None,
        progress: Callable[[Mapping[str, Any]], Awaitable[None]],
        allow: Sequence[str] = (),
    ) -> AgentCall:
        """Run a call, if the permission rules and the mode allow it.

        Rules match the name of `permission`; those in `allow` are for this call, and weaker than those that deny or
        ask. The input is unchecked, and `call_id` unique among the calls that run.

        Raises:
            Exception: What `approver` raised; nothing has run.
        """
        settings, parts = self._parts.settings, self._parts
        toolbox = Toolbox([LentTool(tool=tool, agent=agent)])
        problem = toolbox.problem(tool, input)
        if problem is not None:
            return AgentCall(text=problem, is_error=True)
        # The user may have written rules since, also by answering "always" to an earlier call.
        rules = tuple((await allowances_now(parts)).rules)
        gate = gate_for(
            replace(settings, permissions=rules),
            mode=settings.agent.mode,
            allow=allow,
            approver=approver,
            cwd=settings.home,
            agreed=parts.agreed,
        )
        planned = PlannedCall(call_id=call_id, spec=permission, input=input, untrusted=True)
        [decision] = await gate.decide([planned])
        if not decision.allowed:
            unasked = decision.by == "nobody"
            return AgentCall(
                text=f"Refused: {decision.reason}",
                is_error=True,
                unasked=decision.reason if unasked else "",
                rules=gate.suggest(planned) if unasked else (),
            )
        try:
            called = await self._tooling.call(
                toolbox,
                tool.spec.name,
                input,
                call_id=call_id,
                cwd=settings.home,
                progress=progress,
                most_chars=_MOST_RESULT_CHARS,
            )
        except SatchelError as error:
            return AgentCall(text=str(error), is_error=True)
        files = [(file, kept_path(settings.home / "results", file)) for file in called.files]
        return AgentCall(
            text=called.result,
            is_error=called.is_error,
            data=called.data,
            files=tuple([(file, await parts.pool.run(path.read_bytes)) for file, path in files]),
        )

    async def skills(self) -> Sequence[tuple[str, str]]:
        """Name and description of each skill that the user has, those of Satchel's own making first."""
        own = [(name, skill.manifest.description) for name, skill in (await self.own_skills()).items()]
        return [*own, *((skill.name, skill.front.description) for skill in await self.skill_folders())]

    async def own_skills(self) -> Mapping[str, Package]:
        """The skills among the capabilities, by name."""
        tools = self._tooling.capabilities
        return await tools.own_skills() if tools is not None else {}

    async def skill_folders(self) -> Sequence[Skill]:
        """Each skill that the user has, to read its files."""
        await self._tooling.skills.look()
        return self._tooling.skills.skills.all

    async def skill(self, name: str) -> str:
        """The text of a skill.

        Raises:
            NotFound: There is no such skill.
        """
        tools = self._tooling.capabilities
        if tools is not None and (own := await tools.read_skill(name)):
            return own.document
        found = await self._tooling.skills.read(name, "")
        if found is None or name not in {skill.name for skill in await self.skill_folders()}:
            raise NotFound(f"There is no skill {name[:80]!r}.")
        return found.text


async def _no_model() -> ChatModel | None:
    """Other agents have a model of their own; their calls don't spend the user's money on another one."""
    return None
