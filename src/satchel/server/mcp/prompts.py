"""The prompts that other agents offer their users: memory, and the user's skills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from satchel.errors import NotFound, UsageError
from satchel.runtime import Satchel
from satchel.runtime.agent_calls import AgentCalls
from satchel.server.mcp.resources import standing_text
from satchel.tools.visible import visible

__all__ = ["OfferedPrompt", "Prompts"]

_RECALL: Final = "recall"
_ABOUT: Final = "about_me"
_PREFIX: Final = "skill_"
_MOST_CHARS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedPrompt:
    """A prompt; `arguments` are names with descriptions, all of them required."""

    name: str
    title: str
    description: str
    arguments: Mapping[str, str]


class Prompts:
    """Lists and fills in prompts."""

    def __init__(self, satchel: Satchel, calls: AgentCalls) -> None:
        """`satchel` is read when a request asks."""
        self._satchel = satchel
        self._calls = calls

    async def all(self) -> Sequence[OfferedPrompt]:
        """The prompts, those about memory first."""
        own = [
            OfferedPrompt(
                name=_RECALL,
                title="Bring what Satchel remembers",
                description="Adds the memories that are relevant to a task or a question.",
                arguments={"about": "The task or the question, in your words"},
            ),
            OfferedPrompt(
                name=_ABOUT,
                title="Tell the agent who I am",
                description="Adds your profile and your appointments of the next days.",
                arguments={},
            ),
        ]
        shown = own if self._satchel.memory is not None else []
        return [
            *shown,
            *(
                OfferedPrompt(
                    name=f"{_PREFIX}{name}", title=name, description=visible(description), arguments={}
                )
                for name, description in await self._calls.skills()
            ),
        ]

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
