"""Pins: what the user approved of each tool that others wrote, so that a later change waits for a new approval.

A pin is the digest of what was approved, what the user could read at that time, and when that was. External tools,
MCP servers and capabilities keep their pins here, each source in a file of its own under `SATCHEL_HOME/pins`. What is
approved at first sight, and what a digest covers, is the source's own decision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from satchel.config.home import ensure_home, locked_folder, replace_file
from satchel.errors import UsageError

T = TypeVar("T")
SourceKind: TypeAlias = Literal["external", "mcp", "capability"]

_MAX_BYTES = 80_000_000
"""The largest file that is read: a thousand tools with the largest schemas that MCP servers may have."""
_FORM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin(Generic[T]):
    """One version of a tool.

    Attributes:
        sha256: Of everything that a change must not alter unnoticed, in hexadecimal.
        shown: What the user could read of it.
        approved_at: ISO 8601; "" where it is not approved.
    """

    sha256: str
    shown: T
    approved_at: str = ""


# Without slots: calling an alias such as Pins[Definition] fails for a frozen class with slots in Python 3.11.
@dataclass(frozen=True, kw_only=True)
class Pins(Generic[T]):
    """The pins of one source, by the source's own names.

    Attributes:
        approved: The version of each tool that may be used.
        waiting: What the source offers now and nobody has approved.
        present: The names that the source listed last; empty for sources that are looked at anew each time.
    """

    approved: Mapping[str, Pin[T]] = field(default_factory=dict)
    waiting: Mapping[str, Pin[T]] = field(default_factory=dict)
    present: frozenset[str] = frozenset()

    @property
    def offered(self) -> tuple[T, ...]:
        """The tools that may be used, by name: approved, listed, and unchanged since."""
        return tuple(
            self.approved[name].shown
            for name in sorted(self.approved)
            if name in self.present and name not in self.waiting
        )

    def listing(self, listed: Mapping[str, Pin[T]], *, accepted: Collection[str], at: str) -> Pins[T]:
        """The pins after the source has listed its tools.

        An approved tool that is not listed stays approved, since it may come back unchanged. Those in `accepted` need
        no approval; `at` is the time of the approvals, ISO 8601.
        """
        changed = {
            name: pin
            for name, pin in listed.items()
            if name not in self.approved or self.approved[name].sha256 != pin.sha256
        }
        fresh = {name: replace(pin, approved_at=at) for name, pin in changed.items() if name in accepted}
        return Pins(
            approved={**self.approved, **fresh},
            waiting={name: pin for name, pin in changed.items() if name not in accepted},
            present=frozenset(listed),
        )

    def approving(self, names: Collection[str], *, at: str) -> Pins[T]:
        """The pins after the user has approved the tools of these names, as far as they are waiting."""
        fresh = {name: replace(pin, approved_at=at) for name, pin in self.waiting.items() if name in names}
        return Pins(
            approved={**self.approved, **fresh},
            waiting={name: pin for name, pin in self.waiting.items() if name not in fresh},
            present=self.present,
        )


class ApprovedElsewhere:
    """What the user approved at other machines of theirs: nothing, where this is the only one."""

    def has(self, tool: str) -> bool:
        """Whether the content that a key stands for was approved anywhere. `pin_key` makes such keys."""
        del tool
        return False

    async def add(self, tools: Collection[str]) -> None:
        """Let the other machines know of an approval.

        Raises:
            StorageError, ConfigError: They can't be told.
        """


def pin_key(path: Path, name: str, sha256: str) -> str:
    """What stands for one version of a tool of the source with this file, at every machine."""
    return f"{path.stem}/{name}/{sha256}"


def pin_path(home: Path, kind: SourceKind, name: str = "", *, identity: str = "") -> Path:
    """The file of one source.

    Args:
        home: SATCHEL_HOME.
        kind: What kind of source it is.
        name: Its name where there are several of a kind; only characters that a file name may have.
        identity: What makes it another source although it has the same name, such as its command or its address.
    """
    parts = [kind, *([name] if name else [])]
    if identity:
        parts.append(hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12])
    return home / "pins" / f"{'-'.join(parts)}.json"


@dataclass(frozen=True, slots=True, eq=False)
class PinFile(Generic[T]):
    """The pins of one source on disk. Several processes may use it: each change is made under a lock, atomically.

    Attributes:
        read: Turns JSON data into what was shown; None leaves the tool out. It may raise KeyError, TypeError or
            ValueError.
        write: The opposite.
    """

    path: Path
    _: KW_ONLY
    read: Callable[[Any], T | None]
    write: Callable[[T], Mapping[str, Any]]

    def load(self) -> Pins[T] | None:
        """All pins; None where the source was never seen.

        Raises:
            UsageError: The file is damaged. Nothing in it is approved then, and nothing is written over it.
        """
        try:
            if self.path.stat().st_size > _MAX_BYTES:
                raise ValueError(f"it is larger than {_MAX_BYTES:,} bytes")
            return self._from_json(json.loads(self.path.read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"{self.path} is damaged ({type(error).__name__}), so nothing in it is approved. Restore it, or "
                "delete it: then everything is new."
            ) from error

    def change(self, edit: Callable[[Pins[T] | None], Pins[T]]) -> Pins[T]:
        """Replace the pins, over what another process wrote meanwhile. `edit` gets what `load` gives, and returns what
        shall be kept.

        Returns:
            What is kept now.

        Raises:
            UsageError: The file is damaged.
            StorageUnwritable: It can't be written; the old one is untouched.
        """
        ensure_home(self.path.parent)
        with locked_folder(self.path.parent):
            before = self.load()
            after = edit(before)
            if after != before:
                replace_file(self.path, json.dumps(self._to_json(after), indent=1) + "\n")
        return after

    def forget(self) -> bool:
        """Remove all pins of the source, which is new then. Returns whether there were any."""
        existed = self.path.exists()
        self.path.unlink(missing_ok=True)
        return existed

    def _to_json(self, pins: Pins[T]) -> dict[str, Any]:
        def written(pin: Pin[T]) -> dict[str, Any]:
            return {"sha256": pin.sha256, "approved_at": pin.approved_at, "shown": self.write(pin.shown)}

        return {
            "form": _FORM,
            "approved": {name: written(pins.approved[name]) for name in sorted(pins.approved)},
            "waiting": {name: written(pins.waiting[name]) for name in sorted(pins.waiting)},
            "present": sorted(pins.present),
        }

    def _from_json(self, value: Any) -> Pins[T]:
        if value["form"] != _FORM:
            raise ValueError("another form")

        def pins(raw: Mapping[str, Any]) -> dict[str, Pin[T]]:
            return {
                name: Pin(sha256=str(each["sha256"]), shown=shown, approved_at=str(each["approved_at"]))
                for name, each in raw.items()
                if (shown := self.read(each["shown"])) is not None
            }

        return Pins(
            approved=pins(value["approved"]),
            waiting=pins(value["waiting"]),
            present=frozenset(map(str, value["present"])),
        )
