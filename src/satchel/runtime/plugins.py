"""What enabled plugins bring into a home: tools, search engines, importers, routes; and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from satchel.config.plugins import note_problem, offered, problems
from satchel.errors import UsageError
from satchel.events import Notice
from satchel.memory.transfer.formats import NamedReader
from satchel.tools import StaticToolset, Tool, Toolset, tool_from_function
from satchel.tools.function import FunctionTool
from satchel.tools.web import Usability


def plugin_tools(home: Path) -> Toolset:
    """The tools of plugins. Whoever enabled a plugin vouches for what its tools say of themselves."""
    found: list[Tool] = []
    for plugin, tools in offered(home, "tools"):
        try:
            for one in tools:
                tool = one if isinstance(one, FunctionTool) else tool_from_function(one)
                if not isinstance(tool, FunctionTool):
                    raise UsageError(f"{one!r} is neither a function nor made by function_tool.")
                spec = replace(tool.spec, source="plugin", origin=f"plugin {plugin}", vouched_for=True)
                found.append(replace(tool, spec=spec))
        # A boundary: the plugin is somebody else's code.
        except Exception as error:  # noqa: BLE001
            note_problem(home, plugin, f"Its tools can't be used: {error}")
    return StaticToolset(tuple(found))


def plugin_engines(home: Path) -> tuple[Usability, ...]:
    """The search engines of plugins."""
    return tuple(
        Usability(name=engine.name, engine=engine, text=f"from the plugin {plugin}")
        for plugin, engines in offered(home, "search_engines")
        for engine in engines
    )


def plugin_routers(home: Path) -> tuple[Any, ...]:
    """The routers of the HTTP interface that plugins bring: FastAPI's, which only the server knows."""
    return tuple(router for _, routers in offered(home, "routers") for router in routers)


def plugin_reader(home: Path, source: str) -> NamedReader:
    """The importer of that name.

    Raises:
        UsageError: No enabled plugin has it.
    """
    names: list[str] = []
    for _, importers in offered(home, "importers"):
        if source in importers:
            return NamedReader(source, importers[source])
        names += importers
    more = f" Those of plugins: {', '.join(names)}." if names else ""
    raise UsageError(f"There is no format {source!r}.{more}")


def plugin_notices(home: Path) -> Iterator[Notice]:
    """What the user should know of plugins that are enabled and not there."""
    for name, problem in problems(home).items():
        yield Notice(part="plugins", text=f"The plugin {name}: {problem}")
