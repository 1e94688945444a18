"""The definitions that the user accepted, for each server: what a model may be told of it.

At the first contact with a server, which the user configured in person, all of its definitions are accepted.
What it says later, in other words or of other tools, waits until the user has seen and approved it; until then
the tool is not offered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel.clock import Clock
from satchel.config import McpServerSettings
from satchel.tools import pins as kept
from satchel.tools.mcp.definitions import PROMPTS, RESOURCES, Definition, read_listing

__all__ = ["Pins", "PinStore"]


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
            if accept_changes or definition.name in (RESOURCES, PROMPTS):
                # That there are resources or prompts tells a model nothing that could mislead it.
                accepted[definition.name] = definition
            elif known is None or known.sha256 != definition.sha256:
                waiting[definition.name] = definition
        return Pins(accepted=accepted, waiting=waiting, listed=frozenset(names))


class PinStore:
    """The pins of all servers; several processes may use them."""

    def __init__(self, home: Path, clock: Clock) -> None:
        """Take the home; nothing is read.

        Args:
            home: SATCHEL_HOME.
            clock: Tells when something was approved.
        """
        self._home = home
        self._clock = clock

    def load(self, entry: McpServerSettings) -> Pins | None:
        """What is known of a server, or None where it was never met as it is configured now.

        Raises:
            UsageError: The file is damaged.
        """
        found = self._file(entry).load()
        return _view(found) if found is not None else None

    def learn(self, entry: McpServerSettings, listed: Iterable[Definition]) -> Pins:
        """Keep what a server listed just now, and return what is known of it then.

        Raises:
            UsageError: The file is damaged.
            StorageUnwritable: It could not be kept.
        """

        def edit(known: Pins | None) -> Pins:
            if known is None:
                accepted = {definition.name: definition for definition in listed}
                return Pins(accepted=accepted, listed=frozenset(accepted))
            return known.merged(listed, accept_changes=entry.accept_changes)

        return self._change(entry, edit)

    def approve(self, entry: McpServerSettings, names: Iterable[str]) -> Pins:
        """Accept what waits under these names (the server's own).

        Raises:
            UsageError: The file is damaged.
            StorageUnwritable: It could not be kept.
        """

        def edit(before: Pins | None) -> Pins:
            known = before or Pins()
            approved = {name: known.waiting[name] for name in names if name in known.waiting}
            return Pins(
                accepted={**known.accepted, **approved},
                waiting={name: d for name, d in known.waiting.items() if name not in approved},
                listed=known.listed,
            )

        return self._change(entry, edit)

    def forget(self, entry: McpServerSettings) -> bool:
        """Forget everything about a server; the next contact is the first. Returns whether there was anything."""
        return self._file(entry).forget()

    def _change(self, entry: McpServerSettings, edit: Callable[[Pins | None], Pins]) -> Pins:
        at = self._clock.now().isoformat()

        def edit_kept(before: kept.Pins[Definition] | None) -> kept.Pins[Definition]:
            after = edit(_view(before) if before is not None else None)
            known = before.approved if before is not None else {}
            return kept.Pins(
                approved={
                    name: known[name]
                    if name in known and known[name].shown == definition
                    else kept.Pin(sha256=definition.sha256, shown=definition, approved_at=at)
                    for name, definition in after.accepted.items()
                },
                waiting={
                    name: kept.Pin(sha256=definition.sha256, shown=definition)
                    for name, definition in after.waiting.items()
                },
                present=after.listed,
            )

        return _view(self._file(entry).change(edit_kept))

    def _file(self, entry: McpServerSettings) -> kept.PinFile[Definition]:
        # An entry that runs another program, or names another address, is another server.
        identity = json.dumps([entry.command, entry.args, entry.cwd, entry.url, str(entry.base or "")])
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        return kept.PinFile(
            kept.pin_path(self._home, "mcp", entry.name, identity=identity),
            read=_definition,
            write=Definition.to_json,
            older=(self._home / "mcp" / f"{entry.name}-{digest}.json", _pins_of_older_form),
        )


def _view(pins: kept.Pins[Definition]) -> Pins:
    return Pins(
        accepted={name: pin.shown for name, pin in pins.approved.items()},
        waiting={name: pin.shown for name, pin in pins.waiting.items()},
        listed=pins.present,
    )


def _definition(value: Any) -> Definition | None:
    """A kept definition, read as carefully as a listed one; None where it would not be offered any more."""
    listing = read_listing("", [value], is_known=True)
    return listing.tools[0] if listing.tools else None


def _pins_of_older_form(value: Any) -> kept.Pins[Definition]:
    """What earlier releases kept in `mcp/NAME-DIGEST.json`."""

    def pins(raw: Any) -> dict[str, kept.Pin[Definition]]:
        tools = read_listing("", raw, is_known=True).tools
        return {tool.name: kept.Pin(sha256=tool.sha256, shown=tool) for tool in tools}

    return kept.Pins(
        approved=pins(value["accepted"]),
        waiting=pins(value["waiting"]),
        present=frozenset(map(str, value["listed"])),
    )
