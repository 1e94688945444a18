"""The tools of one session: what stands in its prompt, and what is reached through the bridge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from satchel.loop import Toolbox
from satchel.tools import Registry, Tool
from satchel.tools.deferral import Bridge, ToolFinder, split_by_number

__all__ = ["OfferedTools"]


class OfferedTools:
    """Keeps the bytes of the prompt: from the first message on, the definitions that the model sees stay as they are.

    What appears later is found through the bridge. A tool that disappears stays in the prompt, and its calls are
    answered with what became of it. A tool that changes keeps its old definition in the prompt; calls are validated
    against the new one, and `tool_describe` shows it.

    Attributes:
        registry: The tools that there are now, without the bridge.
        toolbox: The same for the loop, the bridge included.
    """

    def __init__(
        self, load: Callable[[bool], Awaitable[Registry]], *, finder: ToolFinder, defer_above: int
    ) -> None:
        """Offer nothing yet; see `update`.

        Args:
            load: Gives the tools that there are; True waits for those that are still being discovered.
            finder: Searches the deferred tools.
            defer_above: See `split_by_number`.
        """
        self._load = load
        self._bridge = Bridge(finder)
        self._defer_above = defer_above
        self._prompt: tuple[Tool, ...] = ()
        self._is_fixed = False
        self.registry = Registry(())
        self.toolbox = Toolbox()

    async def update(self, *, wait: bool) -> None:
        """Look at what there is now."""
        self._show(await self._load(wait))

    def fix(self) -> None:
        """The first message goes out: from now on the prompt keeps its bytes."""
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
        self._bridge.defer(deferred)
        self.registry = registry
        # Who switched every tool off gets requests without tools, and no bridge to nowhere.
        bridge = self._bridge.tools if self._prompt or deferred else ()
        self.toolbox = Toolbox((*self._prompt, *bridge), deferred=deferred, definitions=definitions)
