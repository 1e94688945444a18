"""What the catalogue knows, beside the folders of the versions: from there a database that has lost it takes it back.

`capabilities/<id>/record.json` has a capability as its rows have it: its state, its versions and what the user allowed
it to reach. `capabilities/.catalogue` has how often the catalogue was changed, and the ids of what was removed. Both
are written in the transaction that makes the change, before it is committed, so that they are never behind it.

No sandbox can write these files. It could write into a version's folder only if it had got out, and a version whose
files are not those in the record comes back as a proposal.

On a server, several homes have the same rows, and others may be able to write them. There a `Seal` proves what a
machine with the home's key has written, and a record is what this machine has seen of it: the rows count if they are
proven and not older than the record; otherwise the record does. What is proven and later replaces the record, and the
folders of the versions follow it (decision 145).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

from sqlalchemy import Connection, Table, delete, insert, select, update

from satchel.capabilities import archive
from satchel.capabilities.folder import discard, read_folder, replace_folder, version_folder
from satchel.capabilities.package import Package, draft_of, is_unchanged, make_package, read_package
from satchel.capabilities.records import Provenance, provenance_to_json
from satchel.capabilities.tables import (
    capabilities,
    capability_approvals,
    capability_changes,
    capability_removals,
    capability_versions,
)
from satchel.config.home import ensure_home, replace_file, sync_folder
from satchel.errors import SatchelError, UsageError

_log = logging.getLogger(__name__)

_RECORD: Final = "record.json"
_STATE: Final = ".catalogue"
_ASIDE: Final = ".unregistered"
"""Folders that no row describes are moved here, never deleted."""
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


_CAPABILITY: Final = _columns(capabilities, (*NO_RUNS, "changed", "proof"))
_VERSION: Final = _columns(capability_versions, ("capability_id", "archive"))
_APPROVAL: Final = _columns(capability_approvals, ("capability_id",))


class Seal(Protocol):
    """Signs what only machines with the home's key may write."""

    def signed(self, text: str, *, of: str) -> str:
        """The text, after a proof and a blank."""

    def proven(self, signed: str, *, of: str) -> str:
        """The text that was signed; "" if it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A capability of which rows and folders said different things.

    Attributes:
        is_changed: The database lacked it, and the files of a version are not those that were registered: it waits for
            the user's approval.
        elsewhere: It was changed at another machine. The user's own files are in `place`, if they are not gone.
    """

    name: str
    is_changed: bool = False
    elsewhere: bool = False
    place: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """Rows as they were after change number `changed` of the user's catalogue, without the archives."""

    changed: int
    capability: Mapping[str, Any]
    versions: Sequence[Mapping[str, Any]]
    approvals: Sequence[Mapping[str, Any]]
    proof: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        return json.dumps({"form": _FORM, **{name: getattr(self, name) for name in _PARTS}}, indent=1) + "\n"

    @property
    def of(self) -> str:
        return f"capability {self.capability['id']}"

    def says_as(self, other: _Record) -> bool:
        """Whether both say the same, whenever that was changed last."""
        return replace(self, changed=other.changed) == other

    def is_proven(self, seal: Seal | None) -> bool:
        """Whether a machine with the key has written it, or only this one can."""
        return seal is None or seal.proven(f"{self.proof} {self.text}", of=self.of) == self.text


_PARTS: Final = ("changed", "capability", "versions", "approvals")


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """How often the catalogue of each user was changed, and which capabilities were removed."""

    changed: Mapping[str, int]
    removed: frozenset[str]


def count(connection: Connection, folder: Path, user: str) -> int:
    """Count a change of the user's catalogue, beyond whatever this machine or the database has counted."""
    number = max(_changed(connection).get(user, 0), _state(folder).changed.get(user, 0)) + 1
    count_up(connection, user, number)
    return number


def may_change(connection: Connection, folder: Path, id: str, seal: Seal | None) -> bool:
    """Whether the rows of a capability are what this home's machines have made of them, and not older than what this
    one has seen; or there is nothing yet that could be used.
    """
    rows = _records(connection, id).get(id)
    if seal is None or rows is None:
        return True
    mine = _read(folder / id / _RECORD)
    if mine is None and not (rows.proof or rows.versions or rows.approvals):
        return True
    return rows.is_proven(seal) and (mine is None or mine.changed <= rows.changed)


def is_same(connection: Connection, folder: Path, id: str) -> bool:
    """Whether the rows of a capability are those of its record."""
    return _records(connection, id).get(id) == _read(folder / id / _RECORD)


def keep(connection: Connection, folder: Path, id: str, seal: Seal | None, *, user: str) -> None:
    """Number and prove a change of a capability, and write its record; see `note`. `connection` is in the transaction
    that makes the change, and has counted it.

    Raises:
        StorageUnwritable: The disk is full, or the folder is read-only.
    """
    if id:
        mine = capabilities.c.id == id
        changed = _changed(connection).get(user, 0)
        is_there = connection.execute(update(capabilities).where(mine).values(changed=changed)).rowcount
        if is_there and seal is not None:
            record = _records(connection, id)[id]
            proof = seal.signed(record.text, of=record.of).partition(" ")[0]
            connection.execute(update(capabilities).where(mine).values(proof=proof))
        elif seal is not None:
            _note_removal(connection, id, seal, user)
    note(connection, folder, id)


def note(connection: Connection, folder: Path, id: str) -> None:
    """Write the record of a capability as the rows are now, or take it away if there is none any more."""
    state = _state(folder)
    removed = state.removed
    if id:
        record = _records(connection, id).get(id)
        removed = removed - {id} if record is not None else removed | {id}
        if record is not None and record.versions:
            _write(folder / id / _RECORD, record.text)
        else:
            (folder / id / _RECORD).unlink(missing_ok=True)
    # If another machine has changed something before, `is_behind` has to go on saying so.
    counted = {
        user: number
        for user, number in _changed(connection).items()
        if state.changed.get(user, 0) >= number - 1
    }
    _write_state(folder, _State(changed={**state.changed, **counted}, removed=removed))


def is_behind(connection: Connection, folder: Path) -> bool:
    """Whether the database is in another state than the records. This costs one query and one small file."""
    return _state(folder).changed != _changed(connection)


def match(
    here: Connection, there: Connection, folder: Path, seal: Seal
) -> tuple[list[str], list[str], list[Path]]:
    """Compare the capabilities in a home's file with those on its server. Both are in transactions.

    Returns:
        The ids of those that the server doesn't have, whose names are free there; of those that it has as they are
        here, or as they have become since; and the folders of those that were changed both here and there.
    """
    mine, theirs = _records(here), _records(there)
    taken = {(one.capability["user_id"], one.capability["name"]) for one in theirs.values()}
    removed = _removals(there, seal)
    new, same, changed = [], [], []
    for id, record in mine.items():
        other = theirs.get(id)
        if other is None:
            is_free = (record.capability["user_id"], record.capability["name"]) not in taken
            new += [id] if is_free and id not in removed else []
        elif record.says_as(other) or (record.is_proven(seal) and record.changed <= other.changed):
            same += [id] if other.is_proven(seal) else []
        else:
            changed.append(folder / id)
    return new, same, changed


def name_in(path: Path) -> str:
    """The name of the capability in a folder."""
    record = _read(path / _RECORD)
    return str(record.capability["name"]) if record is not None else path.name


def drop_record(folder: Path, id: str) -> None:
    """Let the rows count, whatever was known here."""
    (folder / id / _RECORD).unlink(missing_ok=True)


def changes(connection: Connection) -> dict[str, int]:
    """How often the catalogue of each user was changed."""
    return _changed(connection)


def agree(connection: Connection, folder: Path, seal: Seal | None, *, now: datetime) -> tuple[Returned, ...]:
    """Make the rows as the records are where these are newer, or the rows are not proven, and write the other records
    anew, with what follows from them in the folders. `connection` is in a transaction that sees all users.

    Returns:
        What came back, and what the user has to know of, by name. A capability of which no version's files are there
        does not come back.
    """
    state = _state(folder)
    gone = state.removed | _removals(connection, seal)
    there = select(capabilities.c.id, capabilities.c.user_id).where(capabilities.c.id.in_(gone))
    for id, user in connection.execute(there).all():
        connection.execute(delete(capabilities).where(capabilities.c.id == id))
        count(connection, folder, user)
        if seal is not None:
            _note_removal(connection, id, seal, user)
    if seal is not None:
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name in gone:
                discard(path)
    found = {
        path.parent.name: record
        for path in folder.glob(f"*/{_RECORD}")
        if path.parent.name not in gone and (record := _read(path)) is not None
    }
    returned = []
    rows = _records(connection)
    for id, mine in found.items():
        theirs = rows.get(id)
        if theirs is not None and theirs.is_proven(seal) and theirs.changed >= mine.changed:
            returned += _follow(connection, folder / id, mine, theirs) if seal is not None else []
        elif (back := _take_in(connection, folder / id, mine, now)) is not None:
            if back.place is None:
                user = mine.capability["user_id"]
                count_up(connection, user, mine.changed)
                count(connection, folder, user)
                keep(connection, folder, id, seal, user=user)
            # What only lacked its proof, such as what has just come from this home's file, was not lost.
            if back.place or back.is_changed or theirs is None or not theirs.says_as(mine):
                returned.append(back)
    for user, changed in state.changed.items():
        count_up(connection, user, changed)
    for id, record in _records(connection).items():
        if record.versions and record.is_proven(seal) and record != _read(folder / id / _RECORD):
            _write(folder / id / _RECORD, record.text)
    _write_state(folder, _State(changed={**state.changed, **_changed(connection)}, removed=gone))
    return tuple(sorted(returned, key=lambda each: each.name))


def registered(connection: Connection, folder: Path, id: str, number: int) -> dict[str, bytes] | None:
    """The files of a version as the record says that they were registered; None if the database has none."""
    record = _read(folder / id / _RECORD)
    digests = {version["number"]: version["sha256"] for version in record.versions} if record else {}
    return files_of(_archive(connection, id, number), digests[number]) if number in digests else None


def files_of(content: bytes, sha256: str) -> dict[str, bytes] | None:
    """The files of a version's archive; None if they are not those that were registered."""
    try:
        files = archive.unpack(content)
        return files if is_unchanged(files, sha256) else None
    except (UsageError, ValueError):
        return None


def move_aside(folder: Path, path: Path) -> Path:
    """Move a folder that no row describes to where the user finds it."""
    aside = folder / _ASIDE / f"{'-'.join(path.relative_to(folder).parts)}-{uuid4().hex[:8]}"
    aside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.rename(aside)
    _log.warning("%s is not registered; it was moved to %s.", path, aside)
    return aside


def _follow(connection: Connection, path: Path, mine: _Record, theirs: _Record) -> list[Returned]:
    """Let folders be as the rows have become: what was registered anew, because something in it is forgotten, replaces
    what was there. What the user has edited otherwise stays.
    """
    told = []
    name, before = theirs.capability["name"], mine.capability["version"]
    now = {version["number"]: version["sha256"] for version in theirs.versions}
    for version in mine.versions:
        folder, number = version_folder(path, version["number"]), version["number"]
        files = _files(folder) if folder.is_dir() else None
        is_edited = files is not None and not is_unchanged(files, version["sha256"])
        sha256 = now.get(number, version["sha256"])
        if files is not None and sha256 != version["sha256"] and not is_unchanged(files, sha256):
            content = _archive(connection, theirs.capability["id"], number)
            if (registered := files_of(content, sha256)) is not None:
                replace_folder(folder, registered)
                told += [Returned(name=name, elsewhere=True)] if is_edited else []
        elif is_edited and number == before != theirs.capability["version"]:
            told.append(Returned(name=name, elsewhere=True, place=folder))
    return told


def _archive(connection: Connection, id: str, number: int) -> bytes:
    mine = capability_versions.c.capability_id == id, capability_versions.c.number == number
    return bytes(connection.execute(select(capability_versions.c.archive).where(*mine)).scalar_one())


def _note_removal(connection: Connection, id: str, seal: Seal, user: str) -> None:
    known = capability_removals.c.id == id
    connection.execute(delete(capability_removals).where(known))
    proof = seal.signed(id, of="removed capability")
    connection.execute(insert(capability_removals).values(id=id, user_id=user, proof=proof))


def _removals(connection: Connection, seal: Seal | None) -> frozenset[str]:
    if seal is None:
        return frozenset()
    rows = connection.execute(select(capability_removals)).all()
    return frozenset(row.id for row in rows if seal.proven(row.proof, of="removed capability") == row.id)


def _take_in(connection: Connection, path: Path, record: _Record, now: datetime) -> Returned | None:
    capability = record.capability
    same_name = select(capabilities.c.id).where(
        capabilities.c.user_id == capability["user_id"],
        capabilities.c.name == capability["name"],
        capabilities.c.id != capability["id"],
    )
    if connection.execute(same_name).first():
        return Returned(name=capability["name"], elsewhere=True, place=move_aside(path.parent, path))
    before = select(capability_versions).where(capability_versions.c.capability_id == capability["id"])
    archives = {
        row.sha256: row.archive
        for row in connection.execute(before)
        if files_of(row.archive, row.sha256) is not None
    }
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
    values = dict(capability)
    open_build = select(capabilities.c.build_id).where(capabilities.c.id == capability["id"])
    if values["build_id"] != connection.execute(open_build).scalar():
        # The build was lost with the database.
        values["build_id"] = ""
        values["status"] = "failed" if values["status"] == "building" else values["status"]
    if active in changed or (active and active not in {version["number"] for version in versions}):
        values |= {"status": "proposed", "version": 0, "hosts": "[]", "secrets": "[]", "state": 0}
        approvals = ()
    id = capability["id"]
    present = connection.execute(select(capabilities.c.version).where(capabilities.c.id == id)).scalar()
    if present != values["version"]:
        values |= NO_RUNS
    if present is None:
        connection.execute(insert(capabilities).values(values))
    else:
        connection.execute(update(capabilities).where(capabilities.c.id == id).values(values))
    for table in (capability_versions, capability_approvals):
        connection.execute(delete(table).where(table.c.capability_id == id))
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
    """The records of all capabilities, or of one, as the rows are."""

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
    return {
        row.id: _Record(
            changed=row.changed,
            capability=plain(row, _CAPABILITY),
            versions=sorted(versions.get(row.id, ()), key=lambda each: int(each["number"])),
            approvals=sorted(approvals.get(row.id, ()), key=lambda each: (each["kind"], each["value"])),
            proof=row.proof,
        )
        for row in rows(capabilities, (*_CAPABILITY, "changed", "proof"), "id")
    }


def _changed(connection: Connection) -> dict[str, int]:
    return {row.user_id: row.changed for row in connection.execute(select(capability_changes))}


def count_up(connection: Connection, user: str, changed: int) -> None:
    """Let the number of a user's changes be at least this."""
    known = _changed(connection).get(user)
    if known is None:
        connection.execute(insert(capability_changes).values(user_id=user, changed=changed))
    elif known < changed:
        mine = capability_changes.c.user_id == user
        connection.execute(update(capability_changes).where(mine).values(changed=changed))


# ---- Files


def _read(path: Path) -> _Record | None:
    """A record; None if there is none, it is damaged, or belongs elsewhere."""
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_bytes())
        value["changed"] = int(value["changed"])
        record = _Record(**{name: value[name] for name in _PARTS})
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
