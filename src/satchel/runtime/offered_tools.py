"""The tools of one session: which are in its prompt, and which are reached through the bridge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from satchel.loop import Toolbox
from satchel.tools import Registry, Tool
from satchel.tools.deferral import Bridge, ToolFinder, split_by_number


class OfferedTools:
    """Keeps the definitions in the prompt the same from the first message on, because providers cache the prompt.

    A tool that appears later is reached through the bridge. A tool that disappears stays in the prompt; a call of it is
    answered with an error. A tool that changes keeps its old definition in the prompt, but calls
    are validated against the new one, which `tool_describe` shows.

    Attributes:
        registry: The current tools, without the bridge.
        toolbox: The current tools for the loop, with the bridge.
    """

    def __init__(
        self, load: Callable[[bool], Awaitable[Registry]], *, finder: ToolFinder, defer_above: int
    ) -> None:
        """Nothing is offered before `update`. `load(True)` waits for the tools that are still being discovered."""
        self._load = load
        self._bridge = Bridge(finder)
        self._defer_above = defer_above
        self._prompt: tuple[Tool, ...] = ()
        self._is_fixed = False
        self.registry = Registry(())
        self.toolbox = Toolbox()

    async def update(self, *, wait: bool) -> None:
        """Load the current tools; `wait` also waits for discovery."""
        self._show(await self._load(wait))

    def fix(self) -> None:
        """Keep the definitions as they are from now on: the first message is about to be sent."""
        self._is_fixed = True

    def _show(self, registry: Registry) -> None:
        by_name = {tool.spec.name: tool for tool in registry.tools}
        if not self._is_fixed:
            self._prompt, deferred = split_by_number(registry.tools, defer_above=self._defer_above)
            definitions = None
        else:
            self._prompt = tuple(by_name.get(tool.spec.name, tool) for tool in self._prompt)
            in_prompt = {tool.spec.name for tool in self._prompt}
            deferred = tuple(tool for tool in registry.tools if tool.spec.name not in in_prompt)
            definitions = self.toolbox.definitions
        self._bridge.defer(deferred, others=self._prompt)
        self.registry = registry
        # Without any tool, there is nothing that the bridge could reach.
        bridge = self._bridge.tools if self._prompt or deferred else ()
        self.toolbox = Toolbox((*self._prompt, *bridge), deferred=deferred, definitions=definitions)
