"""Makes the web tools that the settings ask for, and says what is missing for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from satchel.config import Settings
from satchel.runtime.plugins import plugin_engines
from satchel.tools import StaticToolset, Toolset, parse_rule
from satchel.tools.patterns import matcher, url_may_match
from satchel.tools.web import (
    WEB_FETCH,
    AddressRules,
    Fetcher,
    Spawn,
    Usability,
    browser_tool,
    fetch_tool,
    find_chromium,
    has_playwright,
    search_tool,
    usable_engines,
)
from satchel.wording import install_extra


def web_tools(settings: Settings, *, spawn: Spawn) -> Toolset:
    """The web tools: none if the web is off, and the browser only if one can be started."""
    if not settings.web.enabled:
        return StaticToolset(())
    rules = AddressRules(allow_private=settings.web.allow_private)
    tools = [fetch_tool(Fetcher(rules, kept_from=_rule_on_addresses(settings)))]
    engines = [entry.engine for entry in engines_of(settings) if entry.engine is not None]
    if engines:
        tools.insert(0, search_tool(engines))
    executable = find_chromium(settings.web.chromium, settings.environ)
    if has_playwright() and executable is not None:
        tools.append(browser_tool(rules, executable=executable, spawn=spawn))
    return StaticToolset(tools)


def _rule_on_addresses(settings: Settings) -> Callable[[str], str | None]:
    """A function that finds the rule that denies `web_fetch` an address, or asks for it.

    The gate sees only the first address of a call, and not those that it is redirected to.
    """
    rules = [
        rule
        for rule in (parse_rule(rule.action, rule.tool) for rule in settings.permissions)
        if rule.action != "allow" and rule.pattern is not None and matcher(rule.tool)(WEB_FETCH)
    ]

    def rule_on(url: str) -> str | None:
        found = (rule for rule in rules if rule.pattern is not None and url_may_match(rule.pattern, url))
        return next((f"{rule.action} {rule.text}" for rule in found), None)

    return rule_on


def missing_for_browser(settings: Settings) -> tuple[str, ...]:
    """What the browser tool needs and is missing, in sentences; empty if it is offered."""
    missing = []
    if not has_playwright():
        missing.append(f"The package playwright is not installed. Type: {install_extra('browser')}")
    if find_chromium(settings.web.chromium, settings.environ) is None:
        missing.append(
            f"web.chromium is {settings.web.chromium}, and there is no such program."
            if settings.web.chromium
            else "No chromium, chromium-browser or google-chrome is on the PATH. Install one, or set web.chromium."
        )
    return tuple(missing)


async def close_state(state: Mapping[str, object]) -> None:
    """Close what tools keep open in a session's state, such as a browser."""
    for value in list(state.values()):
        if isinstance(value, _Closing):
            await value.aclose()


@runtime_checkable
class _Closing(Protocol):
    async def aclose(self) -> None: ...


def engines_of(settings: Settings) -> tuple[Usability, ...]:
    """The search engines in the order in which they are tried; for one that can't be used, the reason."""
    return usable_engines(
        searxng_url=settings.web.searxng_url,
        secret=settings.secret,
        wanted=settings.web.search,
        others=plugin_engines(settings.home),
    )
