"""Lists the settings for users: value, default and where each was set, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satchel.config.masking import mask_address, mask_arguments, mask_text
from satchel.config.settings import SETTINGS, Settings

__all__ = ["ShownSetting", "show_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSetting:
    """One setting.

    Attributes:
        value: As JSON data. Passwords in addresses are masked; for keys, it only says whether they are set.
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
    parts = {s.key.split(".")[2]: s.doc for s in SETTINGS if s.key.startswith("providers.")}
    for name, provider in settings.providers.items():
        written = [part for part in parts if f"providers.{name}.{part}" in settings.sources]
        if provider.env_api_key and settings.secret(provider.env_api_key):
            written = list(dict.fromkeys([*written, "env_api_key"]))
        for part in written:
            value = getattr(provider, part)
            if part == "env_api_key" and value:
                value = f"{value} ({'set' if settings.secret(value) else 'not set'})"
            source = settings.sources.get(f"providers.{name}.{part}", "default")
            shown.append(
                ShownSetting(
                    key=f"providers.{name}.{part}", value=_plain(value), source=source, doc=parts[part]
                )
            )
    parts = {s.key.split(".")[2]: s.doc for s in SETTINGS if s.key.startswith("mcp_servers.")}
    for name, server in settings.mcp_servers.items():
        for part, doc in parts.items():
            key = f"mcp_servers.{name}.{part}"
            if key in settings.sources:
                value = _plain(getattr(server, part))
                if part == "args":
                    value = mask_arguments(value)
                shown.append(ShownSetting(key=key, value=value, source=settings.sources[key], doc=doc))
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
