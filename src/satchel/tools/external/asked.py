"""A cache of the answers of executables to `--schema`, in `SATCHEL_HOME/tool-schemas.json`.

If it is deleted, every executable is asked again. Approvals are kept elsewhere: see `satchel.tools.pins`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satchel.config.home import locked_folder, replace_file
from satchel.tools.external.folders import Stamp
from satchel.tools.external.schema import ExternalDefinition, definition_from_json, definition_to_json

__all__ = ["SchemaAnswer", "load_asked", "save_asked"]

_SCHEMAS = "tool-schemas.json"
_FORM = 2  # 2: definitions with `returns`


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaAnswer:
    """What an executable answered to `--schema`.

    Attributes:
        definition: None if it gave none; `problem` says why.
        asked_at: Seconds since 1970.
    """

    stamp: Stamp
    sha256: str
    definition: ExternalDefinition | None
    problem: str = ""
    asked_at: float = 0.0


def load_asked(home: Path) -> dict[str, SchemaAnswer]:
    """Read the cache, by path. Damaged entries and those of another format are ignored, and asked again."""
    found: dict[str, SchemaAnswer] = {}
    for path, value in _read(home / _SCHEMAS).items():
        try:
            size, mtime_ns, inode, ctime_ns = map(int, value["stamp"])
            found[path] = SchemaAnswer(
                stamp=Stamp(size=size, mtime_ns=mtime_ns, inode=inode, ctime_ns=ctime_ns),
                sha256=str(value["sha256"]),
                definition=definition_from_json(value["definition"]) if value["definition"] else None,
                problem=str(value["problem"]),
                asked_at=float(value["asked_at"]),
            )
        except (KeyError, TypeError, ValueError):
            continue
    return found


def save_asked(home: Path, asked: Mapping[str, SchemaAnswer]) -> None:
    """Write the cache.

    Raises:
        StorageUnwritable: It can't be written.
    """
    tools = {
        path: {
            "stamp": [one.stamp.size, one.stamp.mtime_ns, one.stamp.inode, one.stamp.ctime_ns],
            "sha256": one.sha256,
            "definition": definition_to_json(one.definition) if one.definition else None,
            "problem": one.problem,
            "asked_at": one.asked_at,
        }
        for path, one in asked.items()
    }
    with locked_folder(home):
        replace_file(home / _SCHEMAS, json.dumps({"form": _FORM, "tools": tools}, indent=1) + "\n")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return dict(value["tools"]) if value["form"] == _FORM else {}
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return {}
