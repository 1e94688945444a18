"""Lists the settings for users: value, default and where each was set, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satchel.config.masking import mask_address, mask_arguments, mask_text
from satchel.config.settings import SETTINGS, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSetting:
    """One setting.

    Attributes:
        value: As JSON data. Passwords in addresses are masked; for keys, it only says whether they are set, or
            where they are kept.
        source: Where it was set, or "default".
    """

    key: str
    value: Any
    source: str
    doc: str


def show_settings(settings: Settings) -> list[ShownSetting]:
    """Every setting in the order of the table, then the providers' settings that are set, then the rules."""
    shown = [
        ShownSetting(
            key=setting.key,
            value=_plain(_value(settings, setting.key)),
            source=settings.sources.get(setting.key, "default"),
            doc=setting.doc,
        )
        for setting in SETTINGS
        if not setting.key.startswith(("providers.", "permissions.", "mcp_servers."))
    ]
    entries = {"providers": settings.providers, "mcp_servers": settings.mcp_servers}
    for section, name, entry in (
        (section, name, entry) for section, named in entries.items() for name, entry in named.items()
    ):
        for setting in SETTINGS:
            kind, _, part = setting.key.partition(".NAME.")
            key = f"{section}.{name}.{part}"
            value: Any = getattr(entry, part, None) if kind == section else None
            is_key = part == "env_api_key" and bool(value)
            place = settings.stored.get(value, "") if is_key else ""
            is_set = is_key and (bool(place) or settings.secret(value) is not None)
            if kind != section or not (is_set or key in settings.sources):
                continue
            if is_key:
                value = f"{value} ({f'in {place}' if place else 'set' if is_set else 'not set'})"
            elif part == "args":
                value = mask_arguments(value)
            source = settings.sources.get(key, "default")
            shown.append(ShownSetting(key=key, value=_plain(value), source=source, doc=setting.doc))
    if settings.permissions:
        shown.append(
            ShownSetting(
                key="permissions",
                value=[mask_text(f"{rule.action} {rule.text}") for rule in settings.permissions],
                source=settings.sources.get("permissions", "default"),
                doc="Rules for tool calls. The first one that matches decides.",
            )
        )
    return shown


def _value(settings: Settings, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        # Of variables and headers, only the names are shown.
        return dict.fromkeys(value, "***")
    if isinstance(value, str) and "://" in value:
        return mask_address(value)
    return value
