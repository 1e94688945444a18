"""`/settings`: the settings that people look for, and a search for the rest, each with where it was set.

Those of the settings file can be changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Literal
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.config import (
    SETTINGS,
    Setting,
    Settings,
    ShownSetting,
    load,
    set_value,
    show_settings,
)
from satchel.config.check import MODEL_KEYS, is_secret
from satchel.errors import ConfigError, NotFound, SatchelError, UsageError
from satchel.server.binding import check_binding
from satchel.server.pages.queries import ListPart
from satchel.server.pages.rendering import Saying, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)

_SECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "model": ("Models", "Which model answers, and which one does small work."),
    "budget": ("Budget", "At a limit Satchel stops and says so."),
    "background": (
        "Background",
        "What models do that you did not ask for: one switch and one budget for all of it.",
    ),
    "memory": ("Memory", "What is remembered, how it is found, and how much of it a model is shown."),
    "agent": ("Conversation", "How a turn goes, and how tool calls that no rule covers are decided."),
    "builder": ("Builder", "What a build of a capability may take."),
    "tools": ("Tools", ""),
    "web": ("Web", "Search, pages and the browser."),
    "sandbox": ("Sandbox", "Where untrusted code runs."),
    "sessions": ("Keeping conversations", "How long conversations are kept."),
    "terminal": ("Terminal", "How `satchel chat` looks."),
    "server": ("Server", "Where this server listens."),
}
_LOOKED_FOR: Final[Mapping[str, str]] = {
    "model": "Model",
    "small_model": "Small model",
    "agent.mode": "What tools may do without asking",
    "budget.day_usd": "Most that a day may cost, in dollars",
    "background.models": "Models in the background",
    "memory.enabled": "Memory",
    "memory.locale": "Where you live",
    "web.search": "Search engine",
    "sessions.delete_after_days": "Days until an unused conversation is deleted",
    "server.host": "Address of this server",
}
"""What is shown where nothing is searched for, by names that say it without a subject before them."""
_MOST_SHOWN: Final = 12
"""So that no page is higher than five windows, on a phone neither."""
_PAGES: Final = (
    ("/setup", "Models and keys", "model key provider api token ollama setup"),
    ("/settings/servers", "MCP servers", "mcp server tool login oauth plugin connector"),
    ("/settings/permissions", "Permissions", "permission rule allow deny ask always never approve sandbox"),
    ("/usage", "Usage", "cost price money token spent"),
    ("/doctor", "Doctor", "check problem repair health"),
)
"""Pages that a search finds as well, with words for what they are about."""
_TOP: Final = ("model", "small_model", "database")
_COMMAND_LINE: Final = "the command line"
_LIVE: Final = frozenset(MODEL_KEYS)
"""Used without a restart."""
_NAMED: Final = ("providers.", "mcp_servers.", "permissions")

Origin = Literal["default", "file", "environment", "project", "command line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """One setting as the page shows it.

    Attributes:
        text: Its value as the user types it; "" for a secret one.
        typed: The content of the field: what the user typed, if it could not be saved.
        running: What the server uses until it is restarted, if that differs; "" otherwise.
        fixed_by: Why it can't be changed here; "" if it can.
        problem: What is wrong with what was typed.
    """

    setting: Setting
    label: str
    text: str
    typed: str
    default: str
    origin: Origin
    source: str
    running: str = ""
    fixed_by: str = ""
    is_secret: bool = False
    is_set: bool = False
    problem: str = ""

    @property
    def id(self) -> str:
        """Its id on the page."""
        return f"s-{self.setting.key.replace('.', '-').replace('_', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Which settings are shown: those of a section, those that a search finds, or those that people look for."""

    section: str = ""
    q: str = ""
    start: int = 0

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _Choice:
        """What an address or a form asks for."""
        start, section = given.get("from", ""), given.get("section", "")
        return cls(
            section=section if section in _SECTIONS else "",
            q=given.get("q", "").strip()[:200],
            start=int(start) if start.isascii() and start.isdigit() and len(start) < 4 else 0,
        )

    def at(self, start: int) -> str:
        """The address of the page that begins with another of them."""
        given = {"section": self.section, "q": self.q, "from": start or ""}
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/settings{f'?{query}' if query else ''}"

    @property
    def settings(self) -> Sequence[Setting]:
        """All of them."""
        if self.q:
            return _search(self.q)
        if self.section:
            return [setting for setting in _OWN if _section_of(setting.key) == self.section]
        return [_BY_KEY[key] for key in _LOOKED_FOR]


def _section_of(key: str) -> str:
    return "model" if key in _TOP else key.split(".")[0]


def _subject(setting: Setting) -> str:
    """What a setting is about, for where its section doesn't say it."""
    return "" if setting.key in (*_TOP, *_LOOKED_FOR) else f"{_SECTIONS[_section_of(setting.key)][0]}: "


def _search(words: str) -> list[Setting]:
    """The settings in which every word occurs; those in whose names they do come first."""
    wanted = words.lower().split()
    found = []
    for setting in _OWN:
        name = f"{setting.key} {_label(setting.key)}".lower()
        about = f"{name} {setting.doc} {' '.join(_SECTIONS[_section_of(setting.key)])}".lower()
        if all(word in about for word in wanted):
            found.append((not all(word in name for word in wanted), setting))
    return [setting for _, setting in sorted(found, key=lambda one: one[0])]


def _found_pages(words: str) -> list[tuple[str, str]]:
    """The paths and names of the pages that are about all the words."""
    wanted = words.lower().split()
    return [
        (path, name)
        for path, name, about in _PAGES
        if wanted and all(any(word in each for each in about.split()) for word in wanted)
    ]


def found_settings(words: str) -> list[tuple[str, str, str]]:
    """What is found by words: pages, then settings, each as its path, its name and what it is about."""
    pages = [(path, name, "") for path, name in _found_pages(words)]
    return pages + [
        (f"/settings?q={setting.key}", f"{_subject(setting)}{_label(setting.key)}", setting.doc)
        for setting in _search(words)
    ]


@router.get("/settings")
async def settings(request: Request, service: Serves) -> Response:
    """Those that people look for, or what is asked for."""
    if service.stopping.restart is not None and service.stopping.restart.is_set():
        shown = await page(request, "restarting.html", title="Satchel is restarting")
        # Asked for again after a second, on a new connection, which waits for the next server.
        shown.headers.update({"Refresh": "1", "Connection": "close"})
        return shown
    return await _page(request, service, _Choice.of(request.query_params))


async def _page(
    request: Request,
    service: Service,
    choice: _Choice,
    *,
    typed: Mapping[str, str] = {},
    problems: Mapping[str, str] = {},
) -> Response:
    running = _running(service)
    trouble = ""
    try:
        now = await anyio.to_thread.run_sync(_now, running)
    except ConfigError as error:
        # Somebody edited the file while the server runs.
        now, trouble = running, str(error)
    shown = show_settings(now)
    found = choice.settings
    part = found[choice.start : choice.start + _MOST_SHOWN]
    return await page(
        request,
        "settings.html",
        title="Settings",
        status=422 if problems else 200,
        path_of_file=running.config_path,
        trouble=trouble,
        restarts=service.stopping.restart is not None,
        waiting=sum(_text(now, setting) != _text(running, setting) for setting in _OWN),
        choice=choice,
        sections=_SECTIONS,
        found=[(_subject(setting), _shown(setting, now, running, typed, problems)) for setting in part],
        total=len(found),
        part=ListPart(
            shown=part,
            first=choice.start + 1,
            total=len(found),
            before=choice.at(max(0, choice.start - _MOST_SHOWN)) if choice.start else "",
            after=choice.at(choice.start + _MOST_SHOWN) if choice.start + _MOST_SHOWN < len(found) else "",
        ),
        pages=_found_pages(choice.q),
        keys=[entry for entry in shown if entry.key.endswith(".env_api_key")],
        providers=_named(shown, "providers."),
        project=running.project,
        project_trusted=running.project_trusted,
    )


_OWN: Final = tuple(setting for setting in SETTINGS if not setting.key.startswith(_NAMED))
_BY_KEY: Final = {setting.key: setting for setting in _OWN}


def _now(running: Settings) -> Settings:
    """The settings that the next start would read."""
    given = (name for name in running.secrets if name not in running.stored)
    environ = {**running.environ, **{name: running.secrets[name] for name in given}}
    overrides = {
        key: attrgetter(key)(running)
        for key, source in running.sources.items()
        if source == _COMMAND_LINE and key in _BY_KEY
    }
    return load(environ, cwd=running.cwd, home=running.home, overrides=overrides)


def _running(service: Service) -> Settings:
    """The settings in use: those of the start, with the models that were chosen since."""
    settings, of_models = service.satchel.settings, service.satchel.parts.models.settings
    memory = replace(settings.memory, extractor=of_models.memory.extractor)
    return replace(
        settings,
        model=of_models.model,
        small_model=of_models.small_model,
        providers=of_models.providers,
        memory=memory,
    )


async def settings_now(running: Settings) -> Settings:
    """The settings that the next start would read.

    Raises:
        ConfigError: Somebody edited the file, and it is invalid.
    """

    def read() -> Settings:
        found = _now(running)
        dict(found.secrets)  # a keyring may wait for its password; later, nothing waits for it
        return found

    return await anyio.to_thread.run_sync(read)


def _text(settings: Settings, setting: Setting) -> str:
    """A value in the form in which the user types it and `set_value` reads it."""
    value = attrgetter(setting.key)(settings)
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case tuple() | list():
            plain = all("," not in word and not word.startswith("[") for word in value)
            return ", ".join(value) if plain else json.dumps(list(value), ensure_ascii=False)
        case float():
            return f"{value:g}" if abs(value) < 1e6 else str(value)
        case _:
            return str(value)


def _shown(
    setting: Setting,
    now: Settings,
    running: Settings,
    typed: Mapping[str, str],
    problems: Mapping[str, str],
) -> _Shown:
    key = setting.key
    source = now.sources.get(key, "default")
    origin = _origin(source, now)
    secret = is_secret(setting)
    text = "" if secret else _text(now, setting)
    differs = _text(now, setting) != _text(running, setting)
    was = "another value" if secret else _text(running, setting) or "nothing"
    return _Shown(
        setting=setting,
        label=_label(key),
        text=text,
        typed=typed.get(key, text),
        default=_default(setting),
        origin=origin,
        source=source,
        running=was if differs else "",
        fixed_by=_fixed_by(origin, source),
        is_secret=secret,
        is_set=secret and bool(attrgetter(key)(now)),
        problem=problems.get(key, ""),
    )


_UNITS: Final = {"_usd": " in dollars", "_s": " in seconds", "_mb": " in MB", "_days": " in days"}


def _label(key: str) -> str:
    """A key as a person reads it: "agent.tool_timeout_s" as "Tool timeout in seconds"."""
    if key in _LOOKED_FOR:
        return _LOOKED_FOR[key]
    name = key.rpartition(".")[2]
    for suffix, words in _UNITS.items():
        if name.endswith(suffix):
            name = name.removesuffix(suffix) + words
            break
    return name.replace("_", " ").capitalize().replace(" mb", " MB")


def _default(setting: Setting) -> str:
    match setting.default:
        case None | "" | ():
            return ""
        case bool():
            return "true" if setting.default else "false"
        case tuple():
            return ", ".join(setting.default)
        case _:
            return f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)


def _origin(source: str, settings: Settings) -> Origin:
    if source == "default":
        return "default"
    if source == _COMMAND_LINE:
        return "command line"
    if source == str(settings.config_path) or source.startswith(f"{settings.config_path},"):
        return "file"
    return "project" if "/" in source else "environment"


def _fixed_by(origin: Origin, source: str) -> str:
    match origin:
        case "environment":
            return f"Set by {source} in the environment."
        case "project":
            return f"Set by the project: {source}."
        case "command line":
            return "Set on the command line of this server."
        case "default" | "file":
            return ""


def _named(shown: Sequence[ShownSetting], prefix: str) -> dict[str, list[tuple[str, str, str]]]:
    """Settings that exist once per name: by name, each part with its value in words and its source."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for entry in shown:
        if entry.key.startswith(prefix):
            _, name, part = entry.key.split(".", 2)
            found.setdefault(name, []).append((part, _words(entry.value), entry.source))
    return found


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@router.post("/settings")
async def save(request: Request, service: Serves) -> Response:
    """Write what was changed to the settings file. If one value is invalid, nothing is written."""
    form = await form_of(request)
    running = service.satchel.settings
    try:
        now = await anyio.to_thread.run_sync(_now, running)
    except ConfigError as error:
        return see_other(request, "/settings", say=Saying(text=str(error), state="failed"))
    choice = _Choice.of(dict(form.items))
    reset = form.get("reset")
    if reset:
        return await _reset(request, service, choice, reset, now)
    typed, changed, problems = {}, {}, {}
    for name, text in form.items:
        setting = _BY_KEY.get(name)
        if setting is None:
            if name not in ("section", "q", "from"):
                problems[name] = f"There is no setting {name[:80]!r}."
            continue
        typed[name] = text
        if _fixed_by(_origin(now.sources.get(name, "default"), now), name):
            continue
        is_same = not text.strip() if is_secret(setting) else text.strip() == _text(now, setting)
        if not is_same:
            changed[name] = text
    for key, text in changed.items():
        try:
            await anyio.to_thread.run_sync(_write, running, key, text, True)
        except (ConfigError, UsageError) as error:
            problems[key] = str(error)
    if problems:
        return await _page(request, service, choice, typed=typed, problems=problems)
    for key, text in changed.items():
        await anyio.to_thread.run_sync(_write, running, key, text, False)
    await _use(service, changed)
    return see_other(request, choice.at(choice.start), say=_saved(changed))


@router.post("/settings/restart")
async def restart(request: Request, service: Serves) -> Response:
    """Start the server again, and show the settings once it has."""
    await form_of(request)
    asked = service.stopping.restart
    try:
        await anyio.to_thread.run_sync(_startable, service.satchel.settings)
    except ConfigError as error:
        return see_other(
            request,
            "/settings",
            say=Saying(text=f"The server would not start again: {error}", state="failed"),
        )
    if asked is None:
        raise UsageError("This server was not started by `satchel serve`, so nothing would start it again.")
    asked.set()
    return see_other(request, "/settings")


def _startable(running: Settings) -> None:
    """Check that the next server could start.

    Raises:
        ConfigError: The settings can't be read, or the server may not listen where they say.
    """
    check_binding(_now(running).server, running.home)


async def _use(service: Service, changed: Iterable[str]) -> None:
    """Use models that were chosen at once; everything else waits for a restart."""
    if not _LIVE.isdisjoint(changed):
        # What can't be used, such as a model without a key, says so when it is asked.
        with suppress(SatchelError):
            await service.satchel.use_models(await settings_now(service.satchel.settings))


def _saved(changed: Mapping[str, str]) -> Saying:
    if not changed:
        return Saying(text="Nothing was changed.", state="off")
    if _LIVE.issuperset(changed):
        return Saying(text=f"Saved: {', '.join(changed)}. Used from now on.")
    return Saying(
        text=f"Saved: {', '.join(changed)}. The server uses {'it' if len(changed) == 1 else 'them'} after a restart.",
    )


def _write(settings: Settings, key: str, text: str, dry_run: bool) -> None:
    """Write a value, or only check it.

    Raises:
        ConfigError: It is not allowed.
    """
    # A default needs no line in the file.
    value = None if text.strip() == _default(_BY_KEY[key]) else text
    set_value(settings.config_path, key, value, providers=settings.providers, dry_run=dry_run)


async def _reset(request: Request, service: Service, choice: _Choice, key: str, now: Settings) -> Response:
    if key not in _BY_KEY:
        raise NotFound(f"There is no setting {key[:80]!r}.")
    if _origin(now.sources.get(key, "default"), now) == "file":
        await anyio.to_thread.run_sync(lambda: set_value(now.config_path, key, None, providers=now.providers))
        await _use(service, [key])
    when = "It is used from now on." if key in _LIVE else "The server uses it after a restart."
    text = f"{key} has its default again. {when}"
    return see_other(request, choice.at(choice.start), say=Saying(text=text))
