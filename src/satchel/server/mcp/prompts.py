"""The prompts that other agents offer their users: memory, and the user's skills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp.types import Prompt, PromptArgument

from satchel.errors import NotFound, UsageError
from satchel.runtime import Satchel
from satchel.runtime.agent_calls import AgentCalls
from satchel.server.mcp.resources import standing_text
from satchel.tools.visible import visible

_RECALL: Final = "recall"
_ABOUT: Final = "about_me"
_PREFIX: Final = "skill_"
_MOST_CHARS: Final = 100_000
_TASK: Final = "The task or the question, in your words"
_OWN: Final = (
    Prompt(
        name=_RECALL,
        title="Bring what Satchel remembers",
        description="Adds the memories that are relevant to a task or a question.",
        arguments=[PromptArgument(name="about", description=_TASK, required=True)],
    ),
    Prompt(
        name=_ABOUT,
        title="Tell the agent who I am",
        description="Adds your profile and your appointments of the next days.",
        arguments=[],
    ),
)


class Prompts:
    """Lists and fills in prompts."""

    def __init__(self, satchel: Satchel, calls: AgentCalls) -> None:
        """`satchel` is read when a request asks."""
        self._satchel = satchel
        self._calls = calls

    async def all(self) -> list[Prompt]:
        """The prompts, those about memory first."""
        skills = [
            Prompt(name=f"{_PREFIX}{name}", title=name, description=visible(description), arguments=[])
            for name, description in await self._calls.skills()
        ]
        return [*(_OWN if self._satchel.memory is not None else ()), *skills]

    async def text(self, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt.

        Raises:
            NotFound: There is no such prompt.
            UsageError: An argument is missing.
            StorageError: Memory can't be read.
        """
        if name.startswith(_PREFIX):
            skill = await self._calls.skill(name.removeprefix(_PREFIX))
            return visible(skill[:_MOST_CHARS])
        memory = self._satchel.memory
        if memory is None or name not in (_RECALL, _ABOUT):
            raise NotFound(f"There is no prompt {visible(name[:100])!r}.")
        if name == _ABOUT:
            return visible(await standing_text(self._satchel))
        about = arguments.get("about", "").strip()[:_MOST_CHARS]
        if not about:
            raise UsageError("The prompt recall needs the argument `about`.")
        settings = self._satchel.settings.memory
        found = await memory.surface(
            about, budget_tokens=settings.budget_tokens, limit=settings.limit, granted=settings.agent_spheres
        )
        return f"{about}\n\n{visible(found.text) or 'No memory is relevant to this.'}"
