"""What `satchel doctor` looks at: each part is tried, and says what is wrong and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from satchel import __version__
from satchel.config import Settings
from satchel.errors import EmbedderError, SatchelError
from satchel.memory import Memory
from satchel.models.embedding import find_weights
from satchel.runtime.endpoints import verify_model
from satchel.runtime.home import untrusted_project
from satchel.runtime.web import engines_of, missing_for_browser
from satchel.storage import Database
from satchel.tools.mcp import McpStatus
from satchel.tools.web import find_chromium

if TYPE_CHECKING:
    from satchel.runtime.satchel import Satchel

__all__ = ["Check", "examine"]

_MOST_MCP_S = 20.0
"""How long doctor waits for the servers, which start side by side."""

State: TypeAlias = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One part and how it is.

    Attributes:
        state: It works; it works and could be better; it does not work.
        text: What was found and, unless all is well, what to do.
    """

    part: str
    state: State
    text: str


async def examine(satchel: Satchel, database: Database | None) -> tuple[Check, ...]:
    """Try every part. What is broken is told, never raised."""
    checks = [
        Check(part="program", state="ok", text=f"Satchel {__version__}, Python {platform.python_version()}"),
        _home(satchel.settings.home),
        *_project(satchel.settings),
    ]
    checks += [Check(part=notice.part, state="failed", text=notice.text) for notice in satchel.notices]
    if database is not None:
        checks += await _database(database)
    checks.append(await _sessions(satchel))
    checks += await _memory(satchel)
    checks.append(await _model(satchel))
    checks.append(_ripgrep(satchel))
    checks += _web(satchel.settings)
    checks.append(await _external(satchel))
    checks += [_mcp_server(status) for status in await satchel.mcp.refresh(_MOST_MCP_S)]
    return tuple(checks)


async def _external(satchel: Satchel) -> Check:
    await satchel.tools(wait=False)
    await satchel.external.discover()
    offered = len(await satchel.external.tools())
    unused = [entry.name for entry in satchel.external.entries if entry.status in ("skipped", "changed")]
    text = "1 executable is a tool" if offered == 1 else f"{offered} executables are tools"
    if unused or not satchel.external.is_available:
        why = "" if satchel.external.is_available else f" {' '.join(satchel.external.notices)}"
        text += f"; not used: {', '.join(unused) or 'all'}.{why} `satchel tool list` says why."
        return Check(part="tools", state="warning", text=text)
    return Check(part="tools", state="ok", text=f"{text}.")


def _mcp_server(status: McpStatus) -> Check:
    part = f"MCP server {status.server}"
    match status.state:
        case "off":
            return Check(part=part, state="warning", text="It is switched off (enabled = false).")
        case "ready":
            text = f"{len(status.tools)} tools, {status.transport}, protocol {status.protocol}"
            count = len(status.withheld)
            if count:
                text += f"; {count} more wait for approval: `satchel tool list --source mcp` shows them"
            text = "; ".join([text, *status.problems])
            return Check(
                part=part, state="warning" if status.withheld or status.problems else "ok", text=text
            )
        case _:
            reason = status.reason or f"it did not start within {_MOST_MCP_S:g} s"
            return Check(
                part=part,
                state="failed",
                text=f"It is unavailable: {reason}. Its output is in {status.log}.",
            )


def _home(home: Path) -> Check:
    try:
        found = home.stat()
    except OSError as error:
        return Check(part="home", state="failed", text=f"{home} can't be reached: {error.strerror}.")
    if not os.access(home, os.W_OK | os.X_OK):
        return Check(part="home", state="failed", text=f"{home} can't be written: nothing said can be kept.")
    free_mb = shutil.disk_usage(home).free // 2**20
    if free_mb < 200:
        return Check(part="home", state="warning", text=f"{home}: only {free_mb} MB are free on its disk.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        text = f"{home} can be entered by other users of this machine. Type: chmod 700 {home}"
        return Check(part="home", state="warning", text=text)
    return Check(part="home", state="ok", text=str(home))


def _project(settings: Settings) -> list[Check]:
    if settings.project is None:
        return []
    if settings.project_trusted:
        return [Check(part="project", state="ok", text=f"{settings.project} is trusted")]
    notice = untrusted_project(settings.project)
    return [] if notice is None else [Check(part="project", state="warning", text=notice.text)]


async def _database(database: Database) -> list[Check]:
    try:
        report = await database.doctor()
    except SatchelError as error:
        return [Check(part="database", state="failed", text=str(error))]
    whole = f"{report.place}, {report.engine}, {report.bytes / 2**20:.1f} MB, schema {report.revision}"
    checks = [Check(part="database", state="failed", text=problem) for problem in report.problems]
    checks += [Check(part="database", state="warning", text=warning) for warning in report.warnings]
    return checks if report.problems else [Check(part="database", state="ok", text=whole), *checks]


async def _sessions(satchel: Satchel) -> Check:
    try:
        sessions = await satchel.sessions.list()
    except SatchelError as error:
        return Check(part="sessions", state="failed", text=str(error))
    return Check(
        part="sessions", state="ok", text=f"{len(sessions)} sessions, {sum(s.turns for s in sessions)} turns"
    )


async def _memory(satchel: Satchel) -> list[Check]:
    settings = satchel.settings
    if satchel.memory is None:
        if settings.memory.enabled:
            return []
        return [Check(part="memory", state="warning", text="Memory is off (memory.enabled = false).")]
    try:
        stats = await satchel.memory.stats()
        pending = stats.memories - stats.embedded
        checks = [
            Check(
                part="memory",
                state="ok",
                text=f"{stats.memories} memories, {pending} of them wait for a vector",
            )
        ]
    except SatchelError as error:
        return [Check(part="memory", state="failed", text=str(error))]
    if not settings.memory.capture:
        text = "What is said is not kept (memory.capture = false)."
        checks.append(Check(part="memory", state="warning", text=text))
    checks.append(await _distilling(satchel, satchel.memory))
    checks.append(_embedder(satchel))
    return checks


async def _distilling(satchel: Satchel, memory: Memory) -> Check:
    """Whether facts are drawn from what was said."""
    try:
        status = await memory.distill_status()
        choice = None if satchel.has_given_model else await satchel.choice()
    except SatchelError as error:
        return Check(part="distilling", state="failed", text=str(error))
    waiting = f"{status.facts} facts from {status.read} messages, {status.pending} wait"
    if status.trouble:
        text = f"{waiting}; {status.failed_since} attempts failed, the last: {status.trouble}"
        return Check(part="distilling", state="failed", text=text)
    if given_up := status.windows.get("given_up", 0):
        text = f"{waiting}; {given_up} windows were given up after three answers that could not be read"
        return Check(part="distilling", state="warning", text=text)
    if choice is not None and choice.name == "none":
        text = f"{waiting}: without a language model no facts are drawn from what is said; it serves word for word."
        return Check(part="distilling", state="warning", text=text)
    if satchel.settings.memory.distill == "off":
        return Check(
            part="distilling",
            state="ok",
            text=f"{waiting}, for `satchel memory distill` (memory.distill = off)",
        )
    return Check(part="distilling", state="ok", text=waiting)


def _embedder(satchel: Satchel) -> Check:
    name = satchel.settings.memory.embedder
    if name == "none":
        text = 'Search goes by words alone (memory.embedder = "none").'
        return Check(part="embedder", state="warning", text=text)
    degraded = satchel.memory.degraded if satchel.memory is not None else None
    if degraded:
        return Check(part="embedder", state="failed", text=degraded)
    if name == "minilm":
        try:
            folder = find_weights(satchel.settings.home)
        except EmbedderError as error:
            return Check(part="embedder", state="failed", text=str(error))
        if folder is None:
            text = "The embedding model is not here yet: the first search fetches it, or type: satchel model fetch"
            return Check(part="embedder", state="warning", text=text)
        return Check(part="embedder", state="ok", text=f"{name}, in {folder}")
    return Check(part="embedder", state="ok", text=name)


async def _model(satchel: Satchel) -> Check:
    try:
        choice = await satchel.choice()
    except SatchelError as error:
        return Check(part="model", state="failed", text=str(error))
    failed = "; ".join(f"{tried.name}: {tried.reason}" for tried in choice.failed)
    if choice.name == "none":
        return Check(
            part="model", state="warning", text=f"none: {choice.why}. Satchel recalls only. {failed}".strip()
        )
    chosen = f"{choice.name} ({choice.why})"
    try:
        await verify_model(choice.name, satchel.settings, clock=satchel.clock)
    except SatchelError as error:
        return Check(part="model", state="failed", text=f"{chosen} can't answer: {error}")
    return Check(part="model", state="ok", text=chosen)


def _web(settings: Settings) -> list[Check]:
    if not settings.web.enabled:
        return [Check(part="web", state="ok", text="The web tools are off (web.enabled = false).")]
    engines = engines_of(settings)
    usable = [f"{entry.name} ({entry.text})" for entry in engines if entry.engine is not None]
    missing = [f"{entry.name} ({entry.text})" for entry in engines if entry.engine is None]
    text = f"by {', then '.join(usable)}" if usable else "by nothing: web_search is not offered"
    if missing:
        text += f"; not set up: {', '.join(missing)}"
    search = Check(part="web search", state="ok" if usable else "warning", text=text)
    lacking = missing_for_browser(settings)
    found = find_chromium(settings.web.chromium, settings.environ)
    browser = " ".join(lacking) if lacking else f"{found}, by playwright"
    return [search, Check(part="browser", state="warning" if lacking else "ok", text=browser)]


def _ripgrep(satchel: Satchel) -> Check:
    found = shutil.which("rg", path=satchel.settings.environ.get("PATH"))
    if found is None:
        text = "ripgrep is not installed: grep and glob work and are slower. Install the package ripgrep."
        return Check(part="ripgrep", state="warning", text=text)
    return Check(part="ripgrep", state="ok", text=found)
