"""What is kept of executables on disk: what they said of themselves, and which content of them was approved.

Two files in SATCHEL_HOME. `tool-schemas.json` is a cache: deleting it costs one round of questions.
`tool-approvals.json` holds the SHA-256 of every executable that was ever offered; a file whose content differs from
that is not run until the user approved it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satchel.config.home import locked_folder, replace_file
from satchel.errors import StorageError, UsageError
from satchel.tools.external.folders import Stamp
from satchel.tools.external.schema import Definition, definition_from_json, definition_to_json

__all__ = ["Approval", "Asked", "load_approvals", "load_asked", "save_approvals", "save_asked"]

SCHEMAS = "tool-schemas.json"
APPROVALS = "tool-approvals.json"
FORM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What came of asking a file for its schema.

    Attributes:
        definition: None where it gave none; `problem` says why.
        asked_at: Seconds since 1970.
    """

    stamp: Stamp
    sha256: str
    definition: Definition | None
    problem: str = ""
    asked_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The content of a file that may be run, and what it said of itself then."""

    sha256: str
    definition: Definition
    approved_at: str


def load_asked(home: Path) -> dict[str, Asked]:
    """By path. What is damaged or of another form is left out: it will be asked again."""
    found: dict[str, Asked] = {}
    for path, value in _read(home / SCHEMAS).items():
        try:
            size, mtime_ns, inode, ctime_ns = map(int, value["stamp"])
            found[path] = Asked(
                stamp=Stamp(size=size, mtime_ns=mtime_ns, inode=inode, ctime_ns=ctime_ns),
                sha256=str(value["sha256"]),
                definition=definition_from_json(value["definition"]) if value["definition"] else None,
                problem=str(value["problem"]),
                asked_at=float(value["asked_at"]),
            )
        except (KeyError, TypeError, ValueError):
            continue
    return found


def save_asked(home: Path, asked: Mapping[str, Asked]) -> None:
    """Write the cache.

    Raises:
        StorageError: It can't be written.
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
        _write(home / SCHEMAS, tools)


def load_approvals(home: Path) -> dict[str, Approval]:
    """By path.

    Raises:
        UsageError: The file is damaged. Nothing is taken for approved then, and nothing is written over it.
    """
    try:
        return {
            path: Approval(
                sha256=str(value["sha256"]),
                definition=definition_from_json(value["definition"]),
                approved_at=str(value["approved_at"]),
            )
            for path, value in _read(home / APPROVALS, strict=True).items()
        }
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{home / APPROVALS} is damaged ({type(error).__name__}), so no external tool is used. "
            "Mend it; or delete it, and everything in the tools' folders counts as new."
        ) from error


def save_approvals(home: Path, more: Mapping[str, Approval], *, only_new: bool) -> dict[str, Approval]:
    """Add to the approvals, over what another process added meanwhile.

    Args:
        home: SATCHEL_HOME.
        more: By path.
        only_new: Leave an approval that exists as it is: what is seen for the first time must not replace one that
            another process wrote just now.

    Returns:
        All of them.

    Raises:
        UsageError: The file is damaged.
        StorageError: It can't be written.
    """
    with locked_folder(home):
        known = load_approvals(home)
        after = {**more, **known} if only_new else {**known, **more}
        if after != known:
            tools = {
                path: {
                    "sha256": one.sha256,
                    "definition": definition_to_json(one.definition),
                    "approved_at": one.approved_at,
                }
                for path, one in after.items()
            }
            _write(home / APPROVALS, tools)
    return after


def _read(path: Path, *, strict: bool = False) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["form"] != FORM:
            raise ValueError("another form")
        tools: Mapping[str, Any] = value["tools"]
        return tools if isinstance(tools, dict) else {}
    except FileNotFoundError:
        return {}
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        if strict:
            raise
        return {}


def _write(path: Path, tools: Mapping[str, Any]) -> None:
    try:
        replace_file(path, json.dumps({"form": FORM, "tools": tools}, indent=1) + "\n")
    except UnicodeEncodeError as error:
        raise StorageError(f"{path} could not be written: {error}") from error
