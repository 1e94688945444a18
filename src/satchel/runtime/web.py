"""The web tools as the settings have them, and how they are."""

from __future__ import annotations

from satchel.config import Settings
from satchel.tools import StaticToolset, Toolset
from satchel.tools.web import AddressRules, Fetcher, Usability, fetch_tool, search_tool, usable_engines

__all__ = ["engines_of", "web_tools"]


def web_tools(settings: Settings) -> Toolset:
    """What a model may use of the web; nothing where it is off."""
    if not settings.web.enabled:
        return StaticToolset(())
    tools = [fetch_tool(Fetcher(AddressRules(allow_private=settings.web.allow_private)))]
    engines = [entry.engine for entry in engines_of(settings) if entry.engine is not None]
    if engines:
        tools.insert(0, search_tool(engines))
    return StaticToolset(tools)


def engines_of(settings: Settings) -> tuple[Usability, ...]:
    """The engines that may be used, in the order in which they are tried, with why one can't be."""
    return usable_engines(
        searxng_url=settings.web.searxng_url, secret=settings.secret, wanted=settings.web.search
    )
