"""The checks of `satchel doctor`: each part is tried; a failed check says what is wrong and what to do."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from satchel.clock import local_day
from satchel.config import Settings
from satchel.errors import EmbedderError, NoSandbox, SandboxError, SatchelError, StorageUnwritable
from satchel.memory import Memory
from satchel.models.embedding import (
    DEFAULT_EMBEDDER,
    DEFAULT_SECOND_EMBEDDER,
    MINILM_WEIGHTS,
    USE_MULTILINGUAL,
    USE_WEIGHTS,
    ModelFiles,
    find_weights,
)
from satchel.runtime.capture import compare
from satchel.runtime.endpoints import NoAnswerYet, verify_model
from satchel.runtime.home import untrusted_project
from satchel.runtime.lines import counted
from satchel.runtime.memory_work import why_not_left, work_state
from satchel.runtime.satchel import Satchel
from satchel.runtime.watching import folder_line, has_watched, watched
from satchel.runtime.web import engines_of, missing_for_browser
from satchel.sandbox.choice import probes, refusal
from satchel.sandbox.layers import find_uv
from satchel.sandbox.port import Feature
from satchel.storage import Database
from satchel.tools.mcp import McpStatus
from satchel.tools.web import find_chromium
from satchel.version import __version__

_MOST_MCP_S = 20.0
"""Seconds that doctor waits for the servers, which start concurrently."""

State: TypeAlias = Literal["ok", "warning", "failed"]
Fix: TypeAlias = Literal["", "private_home", "embed"]
"""What a face can do about a check with a button: `make_home_private`, or `Memory.embed_pending`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The state of one part.

    Attributes:
        state: "ok", "warning" for a part that works with limits, or "failed".
        text: What was found and, unless the state is ok, what to do.
        command: What to type about it, where one command does it or says more; "" otherwise.
        fix: What does the same as the command.
    """

    part: str
    state: State
    text: str
    command: str = ""
    fix: Fix = ""


def make_home_private(home: Path) -> None:
    """Take other users' permissions for the home away.

    Raises:
        StorageUnwritable: The home belongs to somebody else.
    """
    try:
        home.chmod(stat.S_IMODE(home.stat().st_mode) & 0o700)
    except OSError as error:
        raise StorageUnwritable(f"The mode of {home} can't be changed: {error.strerror}.") from error


async def examine(satchel: Satchel) -> tuple[Check, ...]:
    """Check every part. Failures are reported, never raised."""
    checks = [
        Check(part="program", state="ok", text=f"Satchel {__version__}, Python {platform.python_version()}"),
        _home(satchel.settings.home),
        *_project(satchel.settings),
        *_keys(satchel.parts.models.settings),
    ]
    checks += [
        # What was held back was asked for.
        Check(part=notice.part, state="ok" if notice.part == "discretion" else "failed", text=notice.text)
        for notice in satchel.notices
    ]
    if satchel.home.database is not None:
        checks += await _database(satchel.home.database)
    if satchel.memory is not None and (server := satchel.memory.server) is not None:
        checks += await _database(server)
    checks.append(await _sessions(satchel))
    checks += await _memory(satchel)
    checks += await _files(satchel)
    checks += await _logs(satchel)
    checks.append(await _model(satchel))
    checks.append(await _sandbox(satchel.settings))
    checks.append(_ripgrep(satchel))
    checks += _packages(satchel.settings)
    checks += _web(satchel.settings)
    checks.append(await _external(satchel))
    checks += _skills(satchel)
    checks += [_mcp_server(status) for status in await satchel.mcp.refresh(_MOST_MCP_S)]
    return tuple(checks)


def _keys(settings: Settings) -> list[Check]:
    """Where the keys lie, and whether they can be had."""
    return [
        Check(
            part="keys",
            state="warning" if settings.secret(name) is None else "ok",
            text=f"{name} is in {settings.stored.get(name, 'the environment')}."
            if settings.secret(name) is not None
            else f"{settings.why_no_secret(name)}.",
        )
        for name in sorted(settings.secrets)
    ]


async def _external(satchel: Satchel) -> Check:
    await satchel.tools(wait=False)
    await satchel.external.discover()
    offered = len(await satchel.external.tools())
    unused = [entry.name for entry in satchel.external.entries if entry.status in ("skipped", "changed")]
    text = f"{counted(offered, 'executable')} can be used as {'a tool' if offered == 1 else 'tools'}"
    if unused or not satchel.external.is_available:
        why = "" if satchel.external.is_available else f" {' '.join(satchel.external.notices)}"
        text += f"; not used: {', '.join(unused) or 'all'}.{why} `satchel tool list` shows the reason."
        return Check(part="tools", state="warning", text=text, command="satchel tool list")
    return Check(part="tools", state="ok", text=f"{text}.")


def _skills(satchel: Satchel) -> list[Check]:
    skills = satchel.tooling.skills.skills
    found, unusable = skills.all, [problem.path.name for problem in skills.problems]
    if not found and not unusable:
        return []
    text = f"{counted(len(found), 'skill')} of others can be used"
    if not unusable:
        return [Check(part="skills", state="ok", text=f"{text}.")]
    command = "satchel tool list --source skill"
    text += f"; not used: {', '.join(unusable)}. `{command}` shows the reason."
    return [Check(part="skills", state="warning", text=text, command=command)]


def _mcp_server(status: McpStatus) -> Check:
    part = f"MCP server {status.server}"
    match status.state:
        case "off":
            return Check(part=part, state="warning", text="Switched off (enabled = false).")
        case "ready":
            text = f"{counted(len(status.tools), 'tool')}, {status.transport}, protocol {status.protocol}"
            count = len(status.withheld)
            if count:
                waiting = f"{count} more {'waits' if count == 1 else 'wait'} for approval"
                text += (
                    f"; {waiting}: `satchel tool list --source mcp` shows {'it' if count == 1 else 'them'}"
                )
            text = "; ".join([text, *status.problems])
            return Check(
                part=part,
                state="warning" if status.withheld or status.problems else "ok",
                text=text,
                command="satchel tool list --source mcp" if count else "",
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
        return Check(part="home", state="failed", text=f"{home} is not writable: nothing can be saved.")
    free_mb = shutil.disk_usage(home).free // 2**20
    if free_mb < 200:
        return Check(part="home", state="warning", text=f"{home}: only {free_mb} MB of disk space are free.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        command = f"chmod 700 {shlex.quote(str(home))}"
        text = f"Other users of this machine can read {home}. Fix: {command}"
        return Check(part="home", state="warning", text=text, command=command, fix="private_home")
    return Check(part="home", state="ok", text=str(home))


def _project(settings: Settings) -> list[Check]:
    if settings.project is None:
        return []
    if settings.project_trusted:
        return [Check(part="project", state="ok", text=f"{settings.project} is trusted")]
    notice = untrusted_project(settings)
    if notice is None:
        return []
    command = f"satchel config trust {shlex.quote(str(settings.project))}"
    return [Check(part="project", state="warning", text=notice.text, command=command)]


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
        part="sessions",
        state="ok",
        text=f"{counted(len(sessions), 'conversation')}, {counted(sum(s.turns for s in sessions), 'turn')}",
    )


async def _files(satchel: Satchel) -> list[Check]:
    """Whether what is beside the conversations is on the server as it was stored."""
    try:
        damaged = await satchel.sessions.damaged_files()
    except SatchelError as error:
        return [Check(part="files", state="failed", text=str(error))]
    if damaged is None:
        return []
    text = "Long results, attached files and what /undo needs are on the server as they were stored."
    return [
        Check(part="files", state="failed", text=f"A file on the server is damaged: {one}. Restore a backup.")
        for one in damaged
    ] or [Check(part="files", state="ok", text=text)]


async def _logs(satchel: Satchel) -> list[Check]:
    """Whether all logs can be read, and memory has what was said in them."""
    settings = satchel.settings
    if satchel.memory is None or not settings.keeps_memory:
        return []
    try:
        found = await compare(satchel.sessions, satchel.home.memory_in)
    except SatchelError as error:
        return [Check(part="logs", state="failed", text=str(error))]
    checks = [Check(part="logs", state="warning", text=text) for text in found.damaged]
    if found.lacking:
        text = (
            f"{counted(found.lacking, 'message')} of the conversation logs {'is' if found.lacking == 1 else 'are'} not "
            "in memory: satchel memory rebuild"
        )
        checks.append(Check(part="logs", state="warning", text=text, command="satchel memory rebuild"))
    return checks or [
        Check(part="logs", state="ok", text="Memory has what was said in the conversation logs.")
    ]


async def _memory(satchel: Satchel) -> list[Check]:
    settings = satchel.settings
    if satchel.memory is None:
        if settings.memory.enabled:
            return []
        return [
            Check(part="memory", state="warning", text="Memory is switched off (memory.enabled = false).")
        ]
    try:
        stats = await satchel.memory.stats()
        pending = stats.memories - stats.embedded
        checks = [
            Check(
                part="memory",
                state="ok",
                text=f"{counted(stats.memories, 'memory', 'memories')}, {pending:,} of them without a vector yet",
                command="satchel memory reindex"
                if pending and satchel.settings.memory.embedder != "none"
                else "",
                fix="embed" if pending and satchel.settings.memory.embedder != "none" else "",
            )
        ]
    except SatchelError as error:
        return [Check(part="memory", state="failed", text=str(error))]
    if not settings.memory.capture:
        text = "Conversations are not remembered (memory.capture = false)."
        checks.append(Check(part="memory", state="warning", text=text))
    checks.append(await _distilling(satchel, satchel.memory))
    checks.append(_memory_work(settings))
    if has_watched(settings.home):
        checks += [
            Check(
                part="watched folder",
                state="warning" if one.note or one.failed else "ok",
                text=f"{one.path}: {folder_line(one)}",
                command="satchel memory watch" if one.failed else "",
            )
            for one in await watched(satchel.home, satchel.memory)
        ]
    checks.extend(_embedders(satchel))
    return checks


def _memory_work(settings: Settings) -> Check:
    """Whether a process of its own extracts and embeds after `satchel ask`."""
    log = settings.home / "logs" / "memory-work.log"
    match work_state(settings):
        case "off":
            text = "off (memory.worker = off): each command does the work while it runs"
            return Check(part="memory work", state="ok", text=text)
        case "failed":
            text = f"{why_not_left(settings.home)} The work waits for the next conversation, which does it itself."
            return Check(part="memory work", state="warning", text=text)
        case "running":
            return Check(part="memory work", state="ok", text=f"running in the background; its log is {log}")
        case "starting":
            text = f"starting in the background; another one is started if it takes two minutes. Its log is {log}"
            return Check(part="memory work", state="ok", text=text)
        case "idle":
            text = "starts after `satchel ask` and ends when nothing is left to do"
            return Check(part="memory work", state="ok", text=text)


async def _distilling(satchel: Satchel, memory: Memory) -> Check:
    """Whether facts are extracted from conversations."""
    try:
        status = await memory.distill_status()
        choice = await satchel.parts.models.choice()
    except SatchelError as error:
        return Check(part="distilling", state="failed", text=str(error))
    read = counted(status.read, "message")
    progress = f"{counted(status.facts, 'fact')} from {read}"
    if status.conversations:
        wait = "waits" if status.conversations == 1 else "wait"
        progress += f"; {counted(status.conversations, 'conversation')} {wait} to be read"
    if status.trouble:
        attempts = counted(status.failed_since, "attempt")
        text = f"{progress}; {attempts} failed, the last with: {status.trouble}"
        return Check(part="distilling", state="failed", text=text)
    if given_up := status.windows.get("given_up", 0):
        text = f"{progress}; gave up {counted(given_up, 'window')} after three unreadable answers"
        return Check(part="distilling", state="warning", text=text)
    if choice.name == "none":
        text = f"{progress}. Without a language model, no facts are extracted; conversations are recalled verbatim."
        return Check(part="distilling", state="warning", text=text)
    for key, value in (
        ("background.models", satchel.settings.background.models),
        ("memory.distill", satchel.settings.memory.distill),
    ):
        if value == "off":
            text = f"{progress}; runs only by `satchel memory distill` ({key} = off)"
            return Check(part="distilling", state="ok", text=text)
    today = await satchel.home.background_day(local_day(satchel.clock.now()))
    if today.spent:
        text = f"{progress}; today's budget is used up: {today.spent}"
        return Check(part="distilling", state="warning", text=text)
    return Check(part="distilling", state="ok", text=progress)


def _embedders(satchel: Satchel) -> list[Check]:
    """Whether the embedder serves, and the one for other languages, if it has a part."""
    settings = satchel.settings.memory
    if settings.embedder == "none":
        text = 'Search uses words only (memory.embedder = "none").'
        return [Check(part="embedder", state="warning", text=text)]
    degraded = satchel.memory.degraded if satchel.memory is not None else None
    if degraded:
        return [Check(part="embedder", state="failed", text=degraded)]
    home = satchel.settings.home
    if settings.embedder != DEFAULT_EMBEDDER:
        return [Check(part="embedder", state="ok", text=settings.embedder)]
    checks = [_installed(home, MINILM_WEIGHTS, reads="English", when="The first search fetches it")]
    if settings.second_embedder == "none":
        text = 'None for other languages than English (memory.second_embedder = "none").'
        checks.append(Check(part="embedder", state="ok", text=text))
    elif settings.second_embedder == DEFAULT_SECOND_EMBEDDER:
        when = "It is fetched in the background once there is a text for it"
        checks.append(
            _installed(
                home, USE_WEIGHTS, reads=", ".join(USE_MULTILINGUAL.languages), when=when, is_needed=False
            )
        )
    else:
        text = f"{settings.second_embedder}, for other languages than English"
        checks.append(Check(part="embedder", state="ok", text=text))
    return checks


def _installed(home: Path, weights: ModelFiles, *, reads: str, when: str, is_needed: bool = True) -> Check:
    """Whether a bundled model is on this machine; if it isn't needed, that is no reason to worry."""
    try:
        folder = find_weights(home, weights=weights)
    except EmbedderError as error:
        return Check(part="embedder", state="failed", text=str(error))
    if folder is not None:
        return Check(part="embedder", state="ok", text=f"{folder.name}, in {folder}; reads {reads}")
    text = f"{weights.what} is not installed yet (reads {reads}). {when}, or type: {weights.fetch_command}"
    return Check(
        part="embedder", state="warning" if is_needed else "ok", text=text, command=weights.fetch_command
    )


async def _model(satchel: Satchel) -> Check:
    try:
        choice = await satchel.parts.models.choice()
    except SatchelError as error:
        return Check(part="model", state="failed", text=str(error))
    failed = "; ".join(f"{tried.name}: {tried.reason}" for tried in choice.failed)
    if choice.name == "none":
        return Check(
            part="model",
            state="warning",
            text=f"none: {choice.why}. Satchel only recalls memories. {failed}".strip(),
        )
    chosen = f"{choice.name} ({choice.why})"
    if satchel.parts.models.given is not None:  # only the program knows how to reach it
        return Check(part="model", state="ok", text=chosen)
    try:
        await verify_model(choice.name, satchel.parts.models.settings, clock=satchel.clock)
    except NoAnswerYet as error:
        return Check(part="model", state="warning", text=f"{chosen}: {error}")
    except SatchelError as error:
        return Check(part="model", state="failed", text=f"{chosen} can't answer: {error}")
    return Check(part="model", state="ok", text=chosen)


def _web(settings: Settings) -> list[Check]:
    if not settings.web.enabled:
        return [Check(part="web", state="ok", text="The web tools are switched off (web.enabled = false).")]
    engines = engines_of(settings)
    usable = [f"{entry.name} ({entry.text})" for entry in engines if entry.engine is not None]
    missing = [f"{entry.name} ({entry.text})" for entry in engines if entry.engine is None]
    text = f"with {', then '.join(usable)}" if usable else "no engine is set up, so there is no web_search"
    if missing:
        text += f"; not set up: {', '.join(missing)}"
    search = Check(part="web search", state="ok" if usable else "warning", text=text)
    lacking = missing_for_browser(settings)
    found = find_chromium(settings.web.chromium, settings.environ)
    browser = " ".join(lacking) if lacking else f"{found}, with playwright"
    return [search, Check(part="browser", state="warning" if lacking else "ok", text=browser)]


async def _sandbox(settings: Settings) -> Check:
    """The sandbox that is used: the first that works when it is tried out."""
    try:
        found = await probes(settings)
    except NoSandbox as error:
        return Check(part="sandbox", state="failed", text=str(error))
    used = next((probe for probe in found if probe.works), None)
    failed = [probe for probe in found if not probe.works]
    if used is None:
        return Check(part="sandbox", state="failed", text=refusal(failed))
    if used.name == "unsafe":
        return Check(part="sandbox", state="warning", text=f"{used.reason} {used.fix}")
    if Feature.HIDING not in used.features and failed:
        better = failed[0]
        text = (
            f"{used.name} works, but not {better.name}, which is tighter and asks less: "
            f"{better.reason.rstrip('.')}. {better.fix}"
        )
        return Check(part="sandbox", state="warning", text=text.strip())
    return Check(part="sandbox", state="ok", text=f"{used.name} works.")


def _packages(settings: Settings) -> list[Check]:
    try:
        find_uv(settings.environ)
    except SandboxError as error:
        text = f"Capabilities that need packages can't be built or run. {error}"
        return [Check(part="packages", state="warning", text=text)]
    return []


def _ripgrep(satchel: Satchel) -> Check:
    found = shutil.which("rg", path=satchel.settings.environ.get("PATH"))
    if found is None:
        text = "ripgrep is not installed. grep and glob work without it, but are slower. Install the package ripgrep."
        return Check(part="ripgrep", state="warning", text=text)
    return Check(part="ripgrep", state="ok", text=found)
