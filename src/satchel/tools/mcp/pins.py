"""The definitions that the user accepted, kept in one file for each server: what a model may be told of it.

At the first contact with a server, which the user configured in person, all of its definitions are accepted.
What it says later, in other words or of other tools, waits until the user has seen and approved it; until then
the tool is not offered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel.config import McpServerSettings, ensure_home
from satchel.config.home import locked_folder, replace_file
from satchel.tools.mcp.definitions import Definition, read_listing

__all__ = ["Pins", "PinStore"]

_MAX_BYTES = 80_000_000
"""Of one file: a thousand tools with the largest schemas; what is larger is not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What is known of one server's tools, by the server's own names.

    Attributes:
        accepted: Offered to a model as they stand here.
        waiting: What the server says now and nobody has approved.
        listed: The names that the server listed last.
    """

    accepted: Mapping[str, Definition] = field(default_factory=dict)
    waiting: Mapping[str, Definition] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()

    @property
    def offered(self) -> tuple[Definition, ...]:
        """What a model may be told of, in the order of the names."""
        return tuple(
            self.accepted[name]
            for name in sorted(self.accepted)
            if name in self.listed and name not in self.waiting
        )

    def merged(self, listed: Iterable[Definition], *, accept_changes: bool) -> Pins:
        """What is known after the server has listed its tools.

        What is accepted and no longer listed stays accepted: it may come back as it was.
        """
        accepted, waiting, names = dict(self.accepted), {}, set()
        for definition in listed:
            names.add(definition.name)
            known = self.accepted.get(definition.name)
            if accept_changes:
                accepted[definition.name] = definition
            elif known is None or known.sha256 != definition.sha256:
                waiting[definition.name] = definition
        return Pins(accepted=accepted, waiting=waiting, listed=frozenset(names))


class PinStore:
    """The files, in one folder; several processes may use it."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; nothing is read."""
        self._folder = folder

    def load(self, entry: McpServerSettings) -> Pins | None:
        """What is known of a server, or None where it was never met as it is configured now, or the file is broken."""
        try:
            path = self._path(entry)
            if path.stat().st_size > _MAX_BYTES:
                return None
            value = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or not isinstance(value.get("accepted"), list):
            return None
        listed = value.get("listed")
        return Pins(
            accepted=_named(entry, value["accepted"]),
            waiting=_named(entry, value.get("waiting")),
            listed=frozenset(map(str, listed)) if isinstance(listed, list) else frozenset(),
        )

    def learn(self, entry: McpServerSettings, listed: Iterable[Definition]) -> Pins:
        """Keep what a server listed just now, and give what is known of it then.

        Raises:
            StorageUnwritable: It could not be kept.
        """
        ensure_home(self._folder)
        with locked_folder(self._folder):
            known = self.load(entry)
            if known is None:
                accepted = {definition.name: definition for definition in listed}
                pins = Pins(accepted=accepted, listed=frozenset(accepted))
            else:
                pins = known.merged(listed, accept_changes=entry.accept_changes)
            if pins != known:
                self._write(entry, pins)
        return pins

    def approve(self, entry: McpServerSettings, names: Iterable[str]) -> Pins:
        """Accept what waits under these names (the server's own).

        Raises:
            StorageUnwritable: It could not be kept.
        """
        ensure_home(self._folder)
        with locked_folder(self._folder):
            known = self.load(entry) or Pins()
            approved = {name: known.waiting[name] for name in names if name in known.waiting}
            pins = Pins(
                accepted={**known.accepted, **approved},
                waiting={name: d for name, d in known.waiting.items() if name not in approved},
                listed=known.listed,
            )
            self._write(entry, pins)
        return pins

    def _write(self, entry: McpServerSettings, pins: Pins) -> None:
        value = {
            "version": 1,
            "server": entry.name,
            "accepted": [pins.accepted[name].to_json() for name in sorted(pins.accepted)],
            "listed": sorted(pins.listed),
            "waiting": [pins.waiting[name].to_json() for name in sorted(pins.waiting)],
        }
        replace_file(self._path(entry), json.dumps(value, indent=1) + "\n")

    def _path(self, entry: McpServerSettings) -> Path:
        # An entry that runs another program, or names another address, is another server.
        what = json.dumps([entry.command, entry.args, entry.cwd, entry.url, str(entry.base or "")])
        return self._folder / f"{entry.name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.json"


def _named(entry: McpServerSettings, raw: Any) -> dict[str, Definition]:
    entries = [each for each in raw if isinstance(each, dict)] if isinstance(raw, list) else []
    listing = read_listing(entry.name, entries, is_known=True)
    return {definition.name: definition for definition in listing.tools}
