"""Pins of MCP servers: the definitions that the user has approved, which are what a model may be told.

The user configured the server, so everything that it says at the first contact is approved. Later changes and new tools
wait until the user has seen and approved them. Until then they are not offered.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from satchel.clock import Clock
from satchel.config import McpServerSettings
from satchel.tools import pins as store
from satchel.tools.mcp.definitions import PROMPTS, RESOURCES, McpDefinition, read_listing

Pins: TypeAlias = store.Pins[McpDefinition]
"""Of one server, by the server's own names."""


class PinStore:
    """The pins of all servers. Several processes may use them."""

    def __init__(self, home: Path, clock: Clock, elsewhere: store.ApprovedElsewhere | None = None) -> None:
        self._home = home
        self._clock = clock
        self._elsewhere = elsewhere or store.ApprovedElsewhere()

    def load(self, entry: McpServerSettings) -> Pins | None:
        """The pins of a server; None if it was never contacted with this command or address.

        Raises:
            UsageError: The file is damaged.
        """
        return self._file(entry).load()

    def merged(self, entry: McpServerSettings, known: Pins | None, listed: Iterable[McpDefinition]) -> Pins:
        """The pins after a server has listed its tools; stores nothing."""
        found = {each.name: store.Pin(sha256=each.sha256, shown=each) for each in listed}
        if known is not None:
            # Hashed again, since a later release may read a definition differently: both sides must be read alike.
            approved = {name: replace(pin, sha256=pin.shown.sha256) for name, pin in known.approved.items()}
            known = replace(known, approved=approved)
        # That there are resources or prompts tells a model nothing that could mislead it.
        accepted = (
            found
            if known is None or entry.accept_changes
            else (RESOURCES, PROMPTS, *self._agreed(entry, found))
        )
        return (known or Pins()).listing(found, accepted=accepted, at=self._clock.now().isoformat())

    def learn(self, entry: McpServerSettings, listed: Iterable[McpDefinition]) -> Pins:
        """Store what a server lists now, and return its pins.

        Raises:
            UsageError: The file is damaged.
            StorageUnwritable: The file can't be written.
        """
        return self._file(entry).change(lambda known: self.merged(entry, known, listed))

    def approve(self, entry: McpServerSettings, names: Collection[str]) -> Pins:
        """Approve what waits under these names (the server's own).

        Raises:
            UsageError: The file is damaged.
            StorageUnwritable: The file can't be written.
        """
        at = self._clock.now().isoformat()
        return self._file(entry).change(lambda known: (known or Pins()).approving(names, at=at))

    def approve_agreed(self, entry: McpServerSettings) -> Pins:
        """Approve what waits and was approved at another machine. Errors as in `approve`."""
        at = self._clock.now().isoformat()

        def edit(known: Pins | None) -> Pins:
            known = known or Pins()
            return known.approving(self._agreed(entry, known.waiting), at=at)

        return self._file(entry).change(edit)

    def _agreed(self, entry: McpServerSettings, found: Mapping[str, store.Pin[McpDefinition]]) -> list[str]:
        return [name for name, pin in found.items() if self._elsewhere.has(self._key(entry, name, pin))]

    async def tell(self, entry: McpServerSettings, approved: Mapping[str, store.Pin[McpDefinition]]) -> None:
        """Let other machines know what is being approved. Errors as in `ApprovedElsewhere.add`."""
        await self._elsewhere.add([self._key(entry, name, pin) for name, pin in approved.items()])

    def forget(self, entry: McpServerSettings) -> bool:
        """Delete the pins of a server, so that the next contact is the first. Returns whether there were any."""
        return self._file(entry).forget()

    def _path(self, entry: McpServerSettings) -> Path:
        # An entry with another program or address is another server.
        identity = json.dumps([entry.command, entry.args, entry.cwd, entry.url, str(entry.base or "")])
        return store.pin_path(self._home, "mcp", entry.name, identity=identity)

    def _key(self, entry: McpServerSettings, name: str, pin: store.Pin[McpDefinition]) -> str:
        return store.pin_key(self._path(entry), name, pin.sha256)

    def _file(self, entry: McpServerSettings) -> store.PinFile[McpDefinition]:
        return store.PinFile(self._path(entry), read=_definition, write=McpDefinition.to_json)


def _definition(value: Any) -> McpDefinition | None:
    """A stored definition, checked like a listed one; None if it would not be offered any more."""
    listing = read_listing("", [value], is_known=True)
    return listing.tools[0] if listing.tools else None
