"""What the catalogue knows, beside the folders of the versions: from there a database that has lost it takes it back.

`capabilities/<id>/record.json` has a capability as its rows have it: its state, its versions and what the user allowed
it to reach. `capabilities/.catalogue` has how often the catalogue was changed, and the ids of what was removed. Both
are written in the transaction that makes the change, before it is committed, so that they are never behind it.

No sandbox can write these files. It could write into a version's folder only if it had got out, and a version whose
files are not those in the record comes back as a proposal.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, insert, select, update

from satchel.capabilities import archive
from satchel.capabilities.folder import read_folder, replace_folder, version_folder
from satchel.capabilities.package import Package, draft_of, is_unchanged, make_package, read_package
from satchel.capabilities.records import Provenance, provenance_to_json
from satchel.capabilities.tables import (
    capabilities,
    capability_approvals,
    capability_changes,
    capability_versions,
)
from satchel.config.home import ensure_home, replace_file, sync_folder
from satchel.errors import SatchelError

_log = logging.getLogger(__name__)

_RECORD: Final = "record.json"
_STATE: Final = ".catalogue"
_FORM: Final = 1
NO_RUNS: Final[Mapping[str, Any]] = {
    "runs": 0,
    "failures": 0,
    "failures_in_row": 0,
    "failing_since": None,
    "recent_ms": "[]",
    "peak_mb": 0.0,
    "last_run_at": None,
}
"""How runs went changes with every run, and is not kept."""
_CHANGED: Final = "Its files are not those that were registered before the database was lost."


def _columns(table: Table, without: Collection[str]) -> dict[str, type]:
    return {column.name: column.type.python_type for column in table.c if column.name not in without}


_CAPABILITY: Final = _columns(capabilities, NO_RUNS)
_VERSION: Final = _columns(capability_versions, ("capability_id", "archive"))
_APPROVAL: Final = _columns(capability_approvals, ("capability_id",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A capability that the database lacked, or had as it was before.

    Attributes:
        is_changed: The files of a version are not those that were registered: it waits for the user's approval.
    """

    name: str
    is_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """Rows as they were after change number `changed` of the user's catalogue, without the archives."""

    changed: int
    capability: Mapping[str, Any]
    versions: Sequence[Mapping[str, Any]]
    approvals: Sequence[Mapping[str, Any]]

    @property
    def text(self) -> str:
        return json.dumps({"form": _FORM, **asdict(self)}, indent=1) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """How often the catalogue of each user was changed, and which capabilities were removed."""

    changed: Mapping[str, int]
    removed: frozenset[str]


def keep(connection: Connection, folder: Path, id: str = "") -> None:
    """Write the record of a capability as the rows are now, or take it away if there is none any more. `connection` is
    in the transaction that changes it.

    Raises:
        StorageUnwritable: The disk is full, or the folder is read-only.
    """
    removed = _state(folder).removed
    if id:
        is_there = connection.execute(select(capabilities.c.id).where(capabilities.c.id == id)).first()
        removed = removed - {id} if is_there else removed | {id}
        records = _records(connection, id)
        if id in records:
            _write(folder / id / _RECORD, records[id].text)
        else:
            (folder / id / _RECORD).unlink(missing_ok=True)
    _write_state(folder, _State(changed=_changed(connection), removed=removed))


def is_behind(connection: Connection, folder: Path) -> bool:
    """Whether the database is in another state than the records. This costs one query and one small file."""
    return _state(folder).changed != _changed(connection)


def take_back(connection: Connection, folder: Path, *, now: datetime) -> tuple[Returned, ...]:
    """Make the rows as the records are where these are newer, and write the others anew. `connection` is in a
    transaction.

    Returns:
        What came back, by name. A capability of which no version's files are there does not.
    """
    state, counted = _state(folder), _changed(connection)
    connection.execute(delete(capabilities).where(capabilities.c.id.in_(state.removed)))
    found = {
        path.parent.name: record
        for path in folder.glob(f"*/{_RECORD}")
        if (record := _read(path)) is not None and path.parent.name not in state.removed
    }
    returned = []
    for id, record in found.items():
        user = record.capability["user_id"]
        if record.changed > counted.get(user, 0):
            back = _take_in(connection, folder / id, record, now)
            if back is not None:
                returned.append(back)
    for user, changed in state.changed.items():
        _count(connection, user, changed)
    for id, record in _records(connection).items():
        if record != found.get(id):
            _write(folder / id / _RECORD, record.text)
    _write_state(folder, _State(changed=_changed(connection), removed=state.removed))
    return tuple(sorted(returned, key=lambda each: each.name))


def _take_in(connection: Connection, path: Path, record: _Record, now: datetime) -> Returned | None:
    capability = record.capability
    same_name = select(capabilities.c.id).where(
        capabilities.c.user_id == capability["user_id"],
        capabilities.c.name == capability["name"],
        capabilities.c.id != capability["id"],
    )
    if connection.execute(same_name).first():
        return None
    before = select(capability_versions).where(capability_versions.c.capability_id == capability["id"])
    archives = {row.sha256: row.archive for row in connection.execute(before)}
    versions: list[dict[str, Any]] = []
    changed: dict[int, Package] = {}
    for version in record.versions:
        files = _files(version_folder(path, version["number"]))
        if files is not None and is_unchanged(files, version["sha256"]):
            versions.append({**version, "archive": archive.pack(files)})
        elif version["sha256"] in archives:
            versions.append({**version, "archive": archives[version["sha256"]]})
        elif files is not None and (package := _made_again(capability, version, files, now)) is not None:
            changed[version["number"]] = package
            versions.append({**version, **_proposal(package)})
    if not versions:
        return None
    approvals: Sequence[Mapping[str, Any]] = record.approvals
    active = capability["version"]
    values = {**capability, **NO_RUNS}
    open_build = select(capabilities.c.build_id).where(capabilities.c.id == capability["id"])
    if values["build_id"] != connection.execute(open_build).scalar():
        # The build was lost with the database.
        values["build_id"] = ""
        values["status"] = "failed" if values["status"] == "building" else values["status"]
    if active in changed or (active and active not in {version["number"] for version in versions}):
        values |= {"status": "proposed", "version": 0, "hosts": "[]", "secrets": "[]", "state": 0}
        approvals = ()
    id = capability["id"]
    connection.execute(delete(capabilities).where(capabilities.c.id == id))
    connection.execute(insert(capabilities).values(values))
    connection.execute(insert(capability_versions), [{**each, "capability_id": id} for each in versions])
    if approvals:
        connection.execute(
            insert(capability_approvals), [{**each, "capability_id": id} for each in approvals]
        )
    for number, package in changed.items():
        replace_folder(version_folder(path, number), package.files)
    return Returned(name=capability["name"], is_changed=bool(changed))


def _files(folder: Path) -> dict[str, bytes] | None:
    try:
        return read_folder(folder) or None
    except SatchelError as error:
        _log.warning("%s can't be read: %s", folder, error)
        return None


def _made_again(
    capability: Mapping[str, Any], version: Mapping[str, Any], files: Mapping[str, bytes], now: datetime
) -> Package | None:
    """The version as its files are now; None if they are no capability."""
    try:
        return make_package(
            capability["name"],
            version["number"],
            draft_of(read_package(files, edited=True)),
            provenance=Provenance(made_by="user"),
            created_at=now,
            now=now,
        )
    except SatchelError as error:
        _log.warning("Version %d of %s was not taken back: %s", version["number"], capability["name"], error)
        return None


def _proposal(package: Package) -> dict[str, Any]:
    return {
        "status": "proposed",
        "sha256": package.sha256,
        "archive": archive.pack(package.files),
        "provenance": json.dumps(provenance_to_json(Provenance(made_by="user"))),
        "checks": "[]",
        "reasons": json.dumps([_CHANGED]),
    }


# ---- Rows


def _records(connection: Connection, id: str | None = None) -> dict[str, _Record]:
    """The records of all capabilities that have a version, or of one, as the rows are."""

    def rows(table: Table, columns: Collection[str], key: str) -> Sequence[Any]:
        query = select(table.c[key].label("of"), *(table.c[name] for name in columns)).order_by(table.c[key])
        if id is not None:
            query = query.where(table.c[key] == id)
        return connection.execute(query).all()

    def plain(row: Any, columns: Collection[str]) -> dict[str, Any]:
        return {name: getattr(row, name) for name in columns}

    versions: dict[str, list[dict[str, Any]]] = {}
    for row in rows(capability_versions, _VERSION, "capability_id"):
        versions.setdefault(row.of, []).append(plain(row, _VERSION))
    approvals: dict[str, list[dict[str, Any]]] = {}
    for row in rows(capability_approvals, _APPROVAL, "capability_id"):
        approvals.setdefault(row.of, []).append(plain(row, _APPROVAL))
    changed = _changed(connection)
    return {
        row.id: _Record(
            changed=changed.get(row.user_id, 0),
            capability=plain(row, _CAPABILITY),
            versions=sorted(versions[row.id], key=lambda each: int(each["number"])),
            approvals=sorted(approvals.get(row.id, ()), key=lambda each: (each["kind"], each["value"])),
        )
        for row in rows(capabilities, _CAPABILITY, "id")
        if row.id in versions
    }


def _changed(connection: Connection) -> dict[str, int]:
    return {row.user_id: row.changed for row in connection.execute(select(capability_changes))}


def _count(connection: Connection, user: str, changed: int) -> None:
    """Let the number of a user's changes be at least this."""
    known = _changed(connection).get(user)
    if known is None:
        connection.execute(insert(capability_changes).values(user_id=user, changed=changed))
    elif known < changed:
        mine = capability_changes.c.user_id == user
        connection.execute(update(capability_changes).where(mine).values(changed=changed))


# ---- Files


def _read(path: Path) -> _Record | None:
    """A record; None if it is damaged, or belongs elsewhere."""
    try:
        value = json.loads(path.read_bytes())
        value["changed"] = int(value["changed"])
        record = _Record(**{each.name: value[each.name] for each in fields(_Record)})
        if (
            value["form"] == _FORM
            and _fits(record.capability, _CAPABILITY)
            and all(_fits(each, _VERSION) for each in record.versions)
            and all(_fits(each, _APPROVAL) for each in record.approvals)
            and record.capability["id"] == path.parent.name
            and record.capability["path"] == f"{path.parent.parent.name}/{path.parent.name}"
        ):
            return record
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _log.warning("%s can't be read: %s", path, error)
    else:
        _log.warning("%s is damaged.", path)
    return None


def _fits(value: Mapping[str, Any], columns: Mapping[str, type]) -> bool:
    return value.keys() == columns.keys() and all(
        isinstance(value[name], kind) for name, kind in columns.items()
    )


def _state(folder: Path) -> _State:
    try:
        value = json.loads((folder / _STATE).read_bytes())
        return _State(
            changed={str(user): int(number) for user, number in value["changed"].items()},
            removed=frozenset(map(str, value["removed"])),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return _State(changed={}, removed=frozenset())


def _write_state(folder: Path, state: _State) -> None:
    value = {"changed": dict(state.changed), "removed": sorted(state.removed)}
    _write(folder / _STATE, json.dumps(value) + "\n")


def _write(path: Path, text: str) -> None:
    ensure_home(path.parent)
    replace_file(path, text)
    sync_folder(path.parent)
