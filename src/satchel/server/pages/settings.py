"""`/settings`: every setting with where it was set; those of the settings file can be changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from satchel.config import (
    SETTINGS,
    PermissionRule,
    RuleAction,
    Setting,
    Settings,
    ShownSetting,
    add_permission,
    load,
    rule_options,
    set_value,
    show_settings,
)
from satchel.config.check import MODEL_KEYS, is_secret
from satchel.errors import ConfigError, NotFound, SatchelError, UsageError
from satchel.server.pages.rendering import Saying, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service
from satchel.tools.permissions import parse_rule

__all__ = ["router", "settings_now"]

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
    "server": ("Server", "Where this server listens."),
}
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


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    title: str
    words: str
    settings: Sequence[_Shown]


@router.get("/settings")
async def settings(request: Request, service: Serves) -> Response:
    """All of them."""
    return await _page(request, service)


async def _page(
    request: Request,
    service: Service,
    *,
    typed: Mapping[str, str] | None = None,
    problems: Mapping[str, str] | None = None,
    rule: Mapping[str, str] | None = None,
    rule_problem: str = "",
) -> Response:
    running = _running(service)
    trouble = ""
    try:
        now = await anyio.to_thread.run_sync(_now, running)
    except ConfigError as error:
        # Somebody edited the file while the server runs.
        now, trouble = running, str(error)
    shown = show_settings(now)
    waiting = sum(_text(now, setting) != _text(running, setting) for setting in _OWN)
    return await page(
        request,
        "settings.html",
        title="Settings",
        status=422 if problems or rule_problem else 200,
        path_of_file=running.config_path,
        trouble=trouble,
        waiting=waiting,
        sections=_sections(now, running, typed or {}, problems or {}),
        keys=[entry for entry in show_settings(running) if entry.key.endswith(".env_api_key")],
        providers=_named(shown, "providers."),
        servers=_named(shown, "mcp_servers."),
        rules=now.permissions,
        running_rules=set(running.permissions),
        rule=rule or {"action": "allow", "tool": ""},
        rule_problem=rule_problem,
        project=running.project,
        project_trusted=running.project_trusted,
    )


_ACTIONS: Final[Mapping[str, RuleAction]] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_OWN: Final = tuple(setting for setting in SETTINGS if not setting.key.startswith(_NAMED))
_BY_KEY: Final = {setting.key: setting for setting in _OWN}


def _now(running: Settings) -> Settings:
    """The settings that the next start would read."""
    environ = {**running.environ, **running.secrets}
    given = {
        key: _value(running, key)
        for key, source in running.sources.items()
        if source == _COMMAND_LINE and key in _BY_KEY
    }
    return load(environ, cwd=running.cwd, home=running.home, overrides=given)


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
    return await anyio.to_thread.run_sync(_now, running)


def _value(settings: Settings, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _text(settings: Settings, setting: Setting) -> str:
    """A value in the form in which the user types it and `set_value` reads it."""
    value = _value(settings, setting.key)
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


def _sections(
    now: Settings, running: Settings, typed: Mapping[str, str], problems: Mapping[str, str]
) -> list[_Section]:
    found: dict[str, list[_Shown]] = {name: [] for name in _SECTIONS}
    for setting in _OWN:
        name = "model" if setting.key in _TOP else setting.key.split(".")[0]
        found.setdefault(name, []).append(_shown(setting, now, running, typed, problems))
    return [
        _Section(name, *_SECTIONS.get(name, (name.capitalize(), "")), entries)
        for name, entries in found.items()
        if entries
    ]


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
        is_set=secret and bool(_value(now, key)),
        problem=problems.get(key, ""),
    )


_UNITS: Final = {"_usd": " in dollars", "_s": " in seconds", "_mb": " in MB", "_days": " in days"}


def _label(key: str) -> str:
    """A key as a person reads it: "agent.tool_timeout_s" as "Tool timeout in seconds"."""
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
        case _:
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
    reset = form.get("reset")
    if reset:
        return await _reset(request, service, reset, now)
    typed, changed, problems = {}, {}, {}
    for name, text in form.items:
        setting = _BY_KEY.get(name)
        if setting is None:
            if name != "section":
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
        return await _page(request, service, typed=typed, problems=problems)
    for key, text in changed.items():
        await anyio.to_thread.run_sync(_write, running, key, text, False)
    await _use(service, changed)
    section = form.get("section")
    return see_other(
        request, f"/settings{f'#{section}' if section in _SECTIONS else ''}", say=_saved(changed)
    )


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
        meta="Ctrl-C and satchel serve; as a service: systemctl --user restart satchel",
    )


def _write(settings: Settings, key: str, text: str, dry_run: bool) -> None:
    """Write a value, or only check it.

    Raises:
        ConfigError: It is not allowed.
    """
    # A default needs no line in the file.
    value = None if text.strip() == _default(_BY_KEY[key]) else text
    set_value(settings.config_path, key, value, providers=settings.providers, dry_run=dry_run)


async def _reset(request: Request, service: Service, key: str, now: Settings) -> Response:
    if key not in _BY_KEY:
        raise NotFound(f"There is no setting {key[:80]!r}.")
    if _origin(now.sources.get(key, "default"), now) == "file":
        await anyio.to_thread.run_sync(lambda: set_value(now.config_path, key, None, providers=now.providers))
        await _use(service, [key])
    section = "model" if key in _TOP else key.split(".")[0]
    when = "It is used from now on." if key in _LIVE else "The server uses it after a restart."
    text = f"{key} has its default again. {when}"
    return see_other(request, f"/settings#{section}", say=Saying(text=text))


@router.get("/settings/permissions")
async def rules() -> Response:
    """Redirects a browser that opens the address of a form again."""
    return RedirectResponse("/settings#permissions", 303)


@router.post("/settings/permissions")
async def add_rule(request: Request, service: Serves) -> Response:
    """Add a permission rule to the settings file."""
    form = await form_of(request)
    action, tool = form.get("action"), form.get("tool")
    try:
        known = _ACTIONS.get(action)
        if known is None:
            raise UsageError("Choose what the rule does.")
        parse_rule(known, tool)
        subject, options = rule_options(tool)
        written = PermissionRule(action=known, tool=subject, options=options)
        path = service.satchel.settings.config_path
        await anyio.to_thread.run_sync(add_permission, path, written)
    except (ConfigError, UsageError) as error:
        return await _page(request, service, rule={"action": action, "tool": tool}, rule_problem=str(error))
    text = f"Added: {action} {tool}. Conversations use it after a restart of the server."
    return see_other(request, "/settings#permissions", say=Saying(text=text))
