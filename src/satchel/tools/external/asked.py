"""Executables that gave no schema, in `SATCHEL_HOME/tool-schemas.json`: for an hour only a refresh asks them again.

What an executable that gave one said is in its pin: see `satchel.tools.pins`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from satchel.config.home import locked_folder, replace_file

_FILE: Final = "tool-schemas.json"
_AGAIN_S: Final = 3600.0
"""What it needs may have been installed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSchema:
    """An executable that gave no schema.

    Attributes:
        asked_at: Seconds since 1970.
    """

    sha256: str
    problem: str
    asked_at: float


def load_failures(home: Path, now: float) -> dict[str, NoSchema]:
    """Those of the last hour, by path. A damaged file, and one of another form, counts as empty."""
    try:
        failed = json.loads((home / _FILE).read_bytes())["failed"]
        found = {path: NoSchema(**one) for path, one in failed.items()}
        return {path: one for path, one in found.items() if now - one.asked_at <= _AGAIN_S}
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}


def save_failures(home: Path, failed: Mapping[str, NoSchema], now: float) -> None:
    """Add to those of the last hour.

    Raises:
        StorageUnwritable: The file can't be written.
    """
    with locked_folder(home):
        kept = {path: asdict(one) for path, one in {**load_failures(home, now), **failed}.items()}
        replace_file(home / _FILE, json.dumps({"failed": kept}, indent=1) + "\n")
