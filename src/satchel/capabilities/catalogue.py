"""The catalogue: entries, versions, approvals and runs of one user's capabilities.

The database says what there is. Folders are what users and the sandbox read; each is written whole before its row, and
every row keeps its files, so that after a crash or a lost folder both can be made to agree (`Catalogue.open`).
"""

from __future__ import annotations

import json
import logging
import re
import statistics
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio.to_thread
from sqlalchemy import Connection, Delete, Row, Update, bindparam, delete, func, insert, select, update

from satchel.capabilities import archive, kept
from satchel.capabilities.cases import CaseResult, result_to_json
from satchel.capabilities.comparing import difference
from satchel.capabilities.folder import (
    STAGING,
    discard,
    read_folder,
    replace_folder,
    version_folder,
    write_folder,
)
from satchel.capabilities.kept import Returned, Seal
from satchel.capabilities.package import (
    CODE,
    MANIFEST,
    SKILL,
    Draft,
    Manifest,
    Package,
    draft_of,
    is_unchanged,
    make_package,
    read_package,
)
from satchel.capabilities.records import (
    Access,
    Capability,
    CapabilityStatus,
    Provenance,
    Reliability,
    Requested,
    Run,
    Version,
    VersionStatus,
    Wanted,
    check_name,
    provenance_from_json,
    provenance_to_json,
)
from satchel.capabilities.tables import (
    capabilities,
    capability_approvals,
    capability_changes,
    capability_runs,
    capability_versions,
)
from satchel.clock import Clock
from satchel.config.home import ensure_home
from satchel.errors import NotFound, Refused, SatchelError, StorageError, StorageUnwritable, UsageError
from satchel.plain import storable
from satchel.storage import Database, Prepared

T = TypeVar("T")

_log = logging.getLogger(__name__)

FOLDER: Final = "capabilities"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST: Final = 10_000
"""Capabilities of one user. Only a program that requests in a loop reaches it."""
_VERSION: Final = Prepared(
    select(func.max(capability_changes.c.changed)).where(capability_changes.c.user_id == bindparam("user"))
)
_KEPT_RUNS: Final = 200
_RECENT: Final = 50
_NO_FAILURES: Final = ("ok", "cancelled")
_FAILING_AFTER: Final = 3
"""Failures in a row after which a capability counts as failing: one may be the network's, two may be chance."""
_MAX_ERROR: Final = 4_000
"""Characters of an error that a run's record keeps: the end of a traceback."""
_LEAST_WORDS: Final = 8
"""Characters of an input that say something of the user; shorter ones are units, codes and numbers."""
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[abfnrtv])")
_MAX_INPUT: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A version whose files are on the disk, and that is not registered yet.

    Attributes:
        folder: Where the files are; its cases can run there. `commit` moves it, `Catalogue.drop` removes it.
        access_to_approve: What it may reach and nobody has approved.
    """

    capability_id: str
    number: int
    package: Package
    folder: Path
    provenance: Provenance
    access_to_approve: Access


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """The folder of an active version, as it is now.

    Attributes:
        limits: Those of its manifest.
        edited: Its files are not those that were registered.
    """

    folder: Path
    limits: Mapping[str, int]
    edited: bool


class Catalogue:
    """The catalogue of one user. Several processes may have it open, and with a server several machines: then each
    reading takes in first what another machine has changed.

    Wherever a capability is named, its id, its name and its tool's name (`cap_…`) are accepted.

    Attributes:
        returned: What the database had lost when this was opened, and what else the user has to know of.
        on_returned: Called with the same of later changes at other machines.
    """

    def __init__(
        self,
        database: Database,
        *,
        home: Path,
        clock: Clock,
        user: str = "default",
        seal: Seal | None = None,
    ) -> None:
        """Use `open`."""
        self._whole = database
        self._database = database.of(user)
        self._seal = seal
        self._home = home
        self._clock = clock
        self._user = user
        self.folder = home / FOLDER
        self.returned: tuple[Returned, ...] = ()
        self.on_returned: Callable[[Sequence[Returned]], None] = lambda _: None

    @classmethod
    async def open(
        cls,
        database: Database,
        *,
        home: Path,
        clock: Clock,
        user: str = "default",
        seal: Seal | None = None,
    ) -> Catalogue:
        """Open the catalogue, and make rows, records and folders agree.

        What a database has lost comes back from the records (see `kept`). A folder that is missing is restored from its
        row. A folder without a row, such as that of a registration that was cut off, is moved to
        `capabilities/.unregistered`.

        Args:
            database: Of the home.
            home: SATCHEL_HOME.
            clock: For all times.
            user: Whose capabilities.
            seal: With the home's key, where the database is a server.

        Raises:
            StorageError: The database or a folder is unusable.
        """
        catalogue = cls(database, home=home, clock=clock, user=user, seal=seal)
        known = await database.read(catalogue._numbers)
        if known or catalogue.folder.exists():
            await _in_thread(catalogue._discard_staged)
            is_behind = await database.read(lambda connection: kept.is_behind(connection, catalogue.folder))
            if is_behind or await _in_thread(catalogue._found) != known:
                catalogue.returned = await catalogue._agree()
        return catalogue

    async def _agree(self) -> tuple[Returned, ...]:
        try:
            return await self._whole.write(self._repair, durable=True)
        except StorageUnwritable as error:
            # What is there can be read and run.
            _log.warning("Rows, records and folders of capabilities may differ: %s", error)
            return ()

    async def _look(self, *, again: bool = False) -> None:
        """Take in what another machine has changed since this one looked, or whatever differs (`again`)."""
        if self._seal is None:
            return
        if again or await self._whole.read(lambda connection: kept.is_behind(connection, self.folder)):
            self.on_returned(await self._agree())

    # ---- Reading

    async def version(self) -> int:
        """A number that grows with each change that models may notice; runs don't change it."""
        await self._look()
        ((version,),) = await self._database.read(
            lambda connection: _VERSION.run(connection, {"user": self._user})
        )
        return version or 0

    async def list(self, *statuses: CapabilityStatus) -> tuple[Capability, ...]:
        """All capabilities, or those with one of these statuses, in the order of their names."""
        await self._look()
        query = select(capabilities).where(capabilities.c.user_id == self._user).order_by(capabilities.c.name)
        if statuses:
            query = query.where(capabilities.c.status.in_(statuses))
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return tuple(self._capability(row) for row in rows)

    async def find(self, name: str) -> Capability | None:
        """The capability with this name, tool name or id; None if there is none."""
        await self._look()
        row = await self._database.read(lambda connection: self._row(connection, name))
        return None if row is None else self._capability(row)

    async def get(self, name: str) -> Capability:
        """The capability with this name, tool name or id.

        Raises:
            NotFound: There is none.
        """
        found = await self.find(name)
        if found is None:
            raise _unknown(name)
        return found

    async def building(self, build_id: str) -> Capability | None:
        """The capability that an open build makes; None if the build is closed."""
        query = select(capabilities).where(
            capabilities.c.user_id == self._user,
            capabilities.c.build_id == build_id,
            capabilities.c.build_id != "",
        )
        row = await self._database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else self._capability(row)

    async def versions(self, name: str) -> tuple[Version, ...]:
        """All versions of a capability, oldest first.

        Raises:
            NotFound: There is no such capability.
        """
        capability = await self.get(name)
        columns = [column for column in capability_versions.c if column.name != "archive"]
        query = (
            select(*columns)
            .where(capability_versions.c.capability_id == capability.id)
            .order_by(capability_versions.c.number)
        )
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return tuple(self._version(capability, row) for row in rows)

    async def registered(self, name: str, number: int) -> Package:
        """The files of a version as they were registered, whatever is in its folder now.

        Raises:
            NotFound: There is no such version.
            StorageError: The database has other files than those that were registered.
        """
        capability = await self.get(name)
        row = await self._database.read(
            lambda connection: connection.execute(
                select(capability_versions.c.archive, capability_versions.c.sha256).where(
                    capability_versions.c.capability_id == capability.id,
                    capability_versions.c.number == number,
                )
            ).one_or_none()
        )
        if row is None:
            raise NotFound(f"{capability.name} has no version {number}. See `satchel capability versions`.")
        files = await _in_thread(lambda: kept.files_of(row.archive, row.sha256))
        if files is None:
            raise StorageError(
                f"The files of version {number} of {capability.name} in the database are not those that were "
                "registered."
            )
        return await _in_thread(lambda: read_package(files))

    async def on_disk(self, name: str, number: int) -> Package:
        """The files of a version as they are in its folder, which the user may have edited.

        Raises:
            NotFound: There is no such version.
            UsageError: The edited files are no capability any more; the message says what is wrong.
            StorageError: The folder can't be read.
        """
        capability = await self.get(name)
        folder = version_folder(capability.path, number)
        if not folder.is_dir():
            await self.registered(name, number)
        return await _in_thread(lambda: read_package(read_folder(folder), edited=True))

    async def as_edited(self, capability: Capability) -> Package:
        """The files of the active version with the user's edits; as registered if these are no capability any more.

        Raises:
            NotFound, StorageError: As in `registered` and `on_disk`.
        """
        try:
            return await self.on_disk(capability.id, capability.version)
        except UsageError:
            return await self.registered(capability.id, capability.version)

    async def read(self, capability: Capability) -> Package:
        """The files of the active version for who reads them: a skill is followed as the user has edited it.

        Raises:
            NotFound, UsageError, StorageError: As in `registered` and `on_disk`.
        """
        files = self.on_disk if capability.is_skill else self.registered
        return await files(capability.id, capability.version)

    async def edited(self, name: str, number: int) -> tuple[str, ...]:
        """The paths of the files in a version's folder that differ from what was registered, sorted.

        Raises:
            NotFound: There is no such version.
            StorageError: The folder can't be read.
        """
        registered = await self.registered(name, number)
        folder = version_folder((await self.get(name)).path, number)
        try:
            files = await _in_thread(lambda: read_folder(folder))
        except UsageError as error:
            return (str(error),)
        paths = {*files, *registered.files}
        return tuple(sorted(path for path in paths if files.get(path) != registered.files.get(path)))

    async def is_kept(self, capability: Capability, package: Package, *, source: str = "") -> bool:
        """Whether what the user has edited, in the version `source` or in any, has become a version already."""
        for version in await self.versions(capability.id):
            made_by_user = version.provenance.made_by == "user" and source in ("", version.provenance.source)
            if made_by_user and draft_of(await self.registered(capability.id, version.number)) == draft_of(
                package
            ):
                return True
        return False

    async def difference(self, name: str, before: int, after: int | None) -> str:
        """A unified diff of two versions as they were registered. With one version, the difference is that from it to
        its folder, which the user may have edited.

        Raises:
            NotFound: There is no such capability or version.
            UsageError: The folder contains what no capability does.
        """
        old = await self.registered(name, before)
        if after is not None:
            new = (await self.registered(name, after)).files
            return difference(old.files, new, names=(f"v{before}", f"v{after}"))
        folder = version_folder((await self.get(name)).path, before)
        return difference(
            old.files, await _in_thread(lambda: read_folder(folder)), names=(f"v{before}", "edited")
        )

    async def checkout(self, capability: Capability) -> Checkout:
        """The folder of the active version. What the user has edited in it counts for the code; what it may reach and
        which input it takes stay as they were registered, until the edits are registered themselves.

        Raises:
            NotFound: No version is active.
            Refused: On the server, it isn't what a machine of this home has registered and allowed; or it was changed
                since `capability` was read.
            StorageError: The folder can't be read.
            UsageError: It contains what no capability does, or no `main.py`.
        """
        if not await self._is_as_kept(capability):
            await self._look(again=True)
            if not await self._is_as_kept(capability):
                raise Refused(
                    f"{capability.name} is not run: it was changed just now, or what the database has is not what this "
                    "home has registered and allowed. Try again."
                )
        row = await self._database.read(
            lambda connection: self._version_row(connection, capability.id, capability.version)
        )
        if row is None:
            raise NotFound(f"{capability.name} has no active version.")
        folder = version_folder(capability.path, capability.version)
        files = await _in_thread(lambda: read_folder(folder))
        if capability.is_skill:
            raise UsageError(f"{capability.name} is a skill: it is read and followed, and can't be run.")
        if CODE not in files:
            raise UsageError(
                f"{folder / CODE} is missing. To get it back: satchel capability rollback {capability.name}"
            )
        edited = not is_unchanged(files, row.sha256)
        limits = {} if edited else json.loads(files[MANIFEST])["limits"]
        return Checkout(folder=folder, limits=limits, edited=edited)

    async def _is_as_kept(self, capability: Capability) -> bool:
        """Whether what is to run is what this machine knows of it; in a file nobody else writes."""
        if self._seal is None:
            return True

        def look(connection: Connection) -> bool:
            row = self._row(connection, capability.id)
            if row is None or not kept.is_same(connection, self.folder, capability.id):
                return False
            return replace(self._capability(row), reliability=capability.reliability) == capability

        return await self._database.read(look)

    async def approved(self, name: str) -> Access:
        """What the user allowed a capability to reach."""
        capability = await self.get(name)
        return await self._database.read(lambda connection: _approved(connection, capability.id))

    async def runs(self, name: str, *, limit: int = 20, failed: bool = False) -> tuple[Run, ...]:
        """The newest runs of a capability, or those that failed, newest first; the last 200 are kept."""
        capability = await self.get(name)
        query = (
            select(capability_runs)
            .where(capability_runs.c.capability_id == capability.id)
            .order_by(capability_runs.c.number.desc())
            .limit(limit)
        )
        if failed:
            query = query.where(capability_runs.c.status.not_in(_NO_FAILURES))
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return tuple(_run(row) for row in rows)

    # ---- Builds

    async def request(
        self,
        wanted: Wanted,
        *,
        session_id: str = "",
        similar_id: str = "",
        model: str = "",
        build_id: str = "",
    ) -> Requested:
        """Open a build for a new capability, or return the entry that is there.

        In one transaction, so that of two requests at once the second one finds the first. A capability that is being
        built, active, proposed or disabled is returned as it is. One whose build failed is built again.

        Args:
            wanted: What is asked for.
            session_id: Where it is asked for.
            similar_id: A capability that does the same under another name (see `lookup.Lookup.similar`); it is returned
                if it is still there.
            model: The model that asks.
            build_id: The id of the build; "" makes one.

        Raises:
            UsageError: The name or the schema is not acceptable.
        """
        check_name(wanted.name)
        if not wanted.description.strip():
            raise UsageError("Say in a sentence what the capability shall do.")
        now, build_id = self._now(), build_id or str(uuid.uuid4())
        provenance = Provenance(build_id=build_id, session_id=session_id, model=model)

        def write(connection: Connection) -> tuple[str, str, bool, bool]:
            row = self._row(connection, wanted.name)
            if row is None and similar_id:
                similar = self._row(connection, similar_id)
                if similar is not None and similar.status != "failed":
                    return similar.id, similar.build_id, False, True
            if row is not None and row.status != "failed":
                return row.id, row.build_id, False, False
            if row is not None:
                self._require_own(connection, row.id)
                self._set(connection, row.id, status="building", build_id=build_id, reasons="[]")
                kept.keep(connection, self.folder, row.id, self._seal, user=self._user)
                return row.id, build_id, True, False
            return self._create(connection, wanted, provenance, now), build_id, True, False

        id, open_build, is_new, similar = await self._change("", write)
        return Requested(capability=await self.get(id), build_id=open_build, is_new=is_new, similar=similar)

    async def create(
        self, wanted: Wanted, *, provenance: Provenance, reasons: Sequence[str] = ()
    ) -> Capability:
        """Make an entry without a build, for a version that exists already. It is "proposed" until one is registered.
        With `reasons` why it can't become a version as it is, it is "failed", and `request` opens a build of it.

        Raises:
            UsageError: The name is not acceptable, or taken.
        """
        check_name(wanted.name)

        def write(connection: Connection) -> str:
            if self._row(connection, wanted.name) is not None:
                raise UsageError(f"There is a capability {wanted.name} already.")
            id = self._create(connection, wanted, provenance, self._now())
            if reasons:
                self._set(connection, id, status="failed", reasons=_json(list(reasons)))
            return id

        return await self.get(await self._change("", write))

    async def rebuild(self, name: str, *, build_id: str = "") -> Requested:
        """Open a build of a new version. The capability keeps its status and can be used meanwhile.

        Args:
            name: Of the capability.
            build_id: Of the build, where what is to change is known; "" makes one for the Builder.

        Raises:
            NotFound: There is no such capability.
            UsageError: It is a skill, of which the Builder has nothing to make.
        """
        capability = await self.get(name)
        if capability.is_skill and not build_id:
            raise UsageError(
                f"{capability.name} is a skill, a text: edit {capability.folder / SKILL}. To keep that as a version: "
                f"satchel capability test {capability.name}"
            )
        build_id = build_id or str(uuid.uuid4())

        def write(connection: Connection) -> tuple[str, bool]:
            row = self._row(connection, capability.id)
            if row is None:
                raise _unknown(name)
            if row.build_id:
                return row.build_id, False
            status = "building" if row.status == "failed" else row.status
            self._set(connection, row.id, build_id=build_id, status=status)
            return build_id, True

        open_build, is_new = await self._change(capability.id, write)
        return Requested(capability=await self.get(capability.id), build_id=open_build, is_new=is_new)

    async def fail(self, name: str, reasons: Sequence[str], *, build_id: str = "") -> Capability:
        """Close a build without a version. A capability that has versions keeps its status; a new one is "failed".

        A closed build can't register a version any more. With a `build_id`, only this build is closed.

        Raises:
            NotFound: There is no such capability.
        """
        capability = await self.get(name)

        def write(connection: Connection) -> None:
            row = self._row(connection, capability.id)
            if row is None or (build_id and row.build_id != build_id):
                return
            status = "failed" if row.status == "building" else row.status
            self._set(connection, row.id, status=status, build_id="", reasons=_json(list(reasons)))

        await self._change(capability.id, write)
        return await self.get(capability.id)

    # ---- Registering a version

    async def stage(self, name: str, draft: Draft, *, provenance: Provenance) -> Staged:
        """Write the files of a new version, without registering it. `commit` or `drop` must follow.

        Raises:
            NotFound: There is no such capability.
            UsageError: The draft is not acceptable; the message says everything that is wrong.
            StorageUnwritable: The disk is full. Nothing was changed.
        """
        capability = await self.get(name)
        number = await self._next_number(capability)
        package = await _in_thread(
            lambda: make_package(
                capability.name,
                number,
                draft,
                provenance=provenance,
                created_at=capability.created_at,
                now=self._clock.now(),
            )
        )
        return await self.stage_package(capability, package, provenance=provenance)

    async def stage_package(
        self, capability: Capability, package: Package, *, provenance: Provenance
    ) -> Staged:
        """`stage` for files that exist already, such as imported ones. They are written byte by byte."""
        approved = await self.approved(capability.id)
        await _in_thread(lambda: ensure_home(self.folder))
        folder = capability.path / f"{STAGING}{uuid.uuid4().hex[:12]}"
        await _in_thread(lambda: write_folder(folder, package.files))
        return Staged(
            capability_id=capability.id,
            number=package.manifest.version,
            package=package,
            folder=folder,
            provenance=provenance,
            access_to_approve=package.manifest.access.without(approved),
        )

    async def commit(
        self,
        staged: Staged,
        *,
        checks: Sequence[CaseResult],
        status: VersionStatus = "ready",
        reasons: Sequence[str] = (),
        activate: bool = True,
    ) -> Capability:
        """Register a staged version: move its folder into place and write its row, both or neither.

        Args:
            staged: Its cases have passed, or will be run when the user has approved what it may reach ("proposed").
            checks: How its cases went.
            status: Of the version.
            reasons: What it waits for, or why it failed.
            activate: Make it the active version if it is "ready".

        Raises:
            StorageUnwritable: The disk is full.
            UsageError: The version was registered by another process meanwhile.
            Refused: It comes from a build that was closed meanwhile, for example because the user cancelled it.

        After any error, nothing was registered and the staged folder is removed.
        """
        build_id = staged.provenance.build_id

        def write(connection: Connection, content: bytes) -> None:
            row = self._row(connection, staged.capability_id)
            if row is None:
                raise NotFound("The capability was removed while its version was being registered.")
            if build_id and row.build_id != build_id:
                raise Refused(f"The build of {row.name} has ended, so its version was not registered.")
            if self._version_row(connection, row.id, staged.number) is not None:
                raise UsageError(
                    f"Version {staged.number} of {row.name} was registered by another process meanwhile."
                )
            target = version_folder(self._path(row.id), staged.number)
            if target.exists():
                kept.move_aside(self.folder, target)
            connection.execute(
                insert(capability_versions).values(
                    capability_id=row.id,
                    number=staged.number,
                    status=status,
                    sha256=staged.package.sha256,
                    archive=content,
                    provenance=_json(provenance_to_json(staged.provenance)),
                    checks=_json([result_to_json(check) for check in checks]),
                    reasons=_json(list(reasons)),
                    created_at=self._now(),
                )
            )
            if status == "ready" and activate:
                self._activate(connection, row, staged.number, staged.package, close_build=True)
            else:
                self._set(connection, row.id, **self._waiting(row, staged, status, reasons))
            staged.folder.rename(target)

        try:
            content = await _in_thread(lambda: archive.pack(staged.package.files))
            await self._change(staged.capability_id, partial(write, content=content))
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self._undo(staged)
            if isinstance(error, OSError):
                raise StorageUnwritable(
                    f"The version could not be moved to {self._path(staged.capability_id)}: {error.strerror}. Nothing "
                    "was registered."
                ) from error
            raise
        return await self.get(staged.capability_id)

    async def drop(self, staged: Staged) -> None:
        """Remove the folder of a version that is not going to be registered."""
        await _in_thread(lambda: discard(staged.folder))

    async def approve(self, name: str, access: Access) -> None:
        """Record that the user allowed a capability to reach these things, in every version."""
        capability = await self.get(name)

        def write(connection: Connection) -> None:
            known = set(_approved(connection, capability.id).items)
            rows = [
                {"capability_id": capability.id, "kind": kind, "value": value, "approved_at": self._now()}
                for kind, value in access.items
                if (kind, value) not in known
            ]
            if rows:
                connection.execute(insert(capability_approvals), rows)

        await self._change(capability.id, write)

    async def withdraw(self, name: str) -> None:
        """Forget everything that the user allowed a capability to reach."""
        capability = await self.get(name)
        gone = delete(capability_approvals).where(capability_approvals.c.capability_id == capability.id)
        await self._execute(capability.id, gone)

    async def settle(
        self,
        name: str,
        number: int,
        *,
        status: VersionStatus,
        checks: Sequence[CaseResult],
        reasons: Sequence[str] = (),
    ) -> Capability:
        """Record what became of a proposed version: it is "ready" and becomes active, or "failed"."""
        capability = await self.get(name)
        package = await self.registered(capability.id, number)

        def write(connection: Connection) -> None:
            row = self._row(connection, capability.id)
            if row is None or self._version_row(connection, row.id, number) is None:
                raise NotFound(f"{capability.name} has no version {number} any more.")
            connection.execute(
                update(capability_versions)
                .where(capability_versions.c.capability_id == row.id, capability_versions.c.number == number)
                .values(
                    status=status,
                    checks=_json([result_to_json(check) for check in checks]),
                    reasons=_json(list(reasons)),
                )
            )
            if status == "ready":
                self._activate(connection, row, number, package, close_build=False)
            elif row.version == 0:
                now_status = status if status in ("failed", "proposed") else row.status
                self._set(connection, row.id, status=now_status, reasons=_json(list(reasons)))

        await self._change(capability.id, write)
        return await self.get(capability.id)

    # ---- Life

    async def activate(self, name: str, number: int) -> Capability:
        """Make a version the active one. If its folder was edited and the edits are kept as a version of their own, its
        files are put back as they were registered.

        Raises:
            NotFound: There is no such capability or version.
            Refused: The version is not ready, or the user has withdrawn what it may reach.
        """
        capability = await self.get(name)
        package = await self.registered(capability.id, number)
        await self._restore_if_kept(capability, number)

        def write(connection: Connection) -> None:
            row = self._row(connection, capability.id)
            version = None if row is None else self._version_row(connection, row.id, number)
            if row is None or version is None:
                raise NotFound(f"{capability.name} has no version {number} any more.")
            if version.status != "ready":
                hint = (
                    " Approve it first: satchel capability approve." if version.status == "proposed" else ""
                )
                raise Refused(f"Version {number} of {capability.name} is {version.status}.{hint}")
            missing = package.manifest.access.without(_approved(connection, row.id))
            if missing:
                raise Refused(
                    f"Version {number} of {capability.name} may reach what you have not approved "
                    f"({', '.join(value for _, value in missing.items)}). Approve it first: satchel capability approve "
                    f"{capability.name}"
                )
            self._activate(connection, row, number, package, close_build=False)

        await self._change(capability.id, write)
        return await self.get(capability.id)

    async def rollback(self, name: str) -> Capability:
        """Make the newest ready version before the active one the active version.

        Raises:
            NotFound: There is none.
        """
        capability = await self.get(name)
        before = [
            version.number
            for version in await self.versions(capability.id)
            if version.status == "ready" and version.number < capability.version
        ]
        if not before:
            raise NotFound(
                f"{capability.name} has no ready version before {capability.version or 'the first'}."
            )
        return await self.activate(capability.id, before[-1])

    async def disable(self, name: str) -> Capability:
        """Keep a capability from being used and offered. `enable` undoes it.

        Raises:
            UsageError: It has no active version.
        """
        return await self._switch(
            name, "active", "disabled", "has no active version, so there is nothing to disable"
        )

    async def enable(self, name: str) -> Capability:
        """Undo `disable`.

        Raises:
            UsageError: It is not disabled.
        """
        return await self._switch(name, "disabled", "active", "is not disabled")

    async def remove(self, name: str) -> Capability:
        """Delete a capability with all its versions, runs and folders.

        Returns:
            What it was.

        Raises:
            NotFound: There is no such capability.
            StorageError: Its folder can't be removed.
        """
        capability = await self.get(name)
        gone = delete(capabilities).where(capabilities.c.id == capability.id)
        # The rows and the record go first: a folder that is left behind by a crash has neither and is moved aside.
        await self._change(capability.id, lambda connection: connection.execute(gone), removes=True)
        await _in_thread(lambda: discard(capability.path))
        if capability.path.exists():
            raise StorageError(
                f"{capability.name} is removed, and its folder {capability.path} is not. Delete it."
            )
        return capability

    async def forget_cases(
        self, name: str, cases: Sequence[Mapping[str, Any]], *, lines: Collection[str] = ()
    ) -> bool:
        """Take these cases, and others with their inputs, out of all versions: their folders, their archives and how
        they went. What can't be without them, or has an input's words elsewhere, is removed whole.

        Args:
            name: Of the capability.
            cases: As in `cases.jsonl`.
            lines: Of a skill's document, which are taken out of it.

        Returns:
            Whether the capability is still there.

        Raises:
            NotFound: There is no such capability.
            StorageError: Something can't be changed or removed.
        """
        capability = await self.get(name)
        inputs = [case["input"] for case in cases]
        schema = _json(capability.input_schema)
        words = {text for text in _texts_in(inputs) if len(text) >= _LEAST_WORDS and text not in schema}

        def without(package: Package, version: Version) -> Package:
            draft, gone = draft_of(package), {case.name for case in package.cases if case.input in inputs}
            there = [line for line in draft.cases.split("\n") if line.strip()]
            kept = [line for line in there if json.loads(line)["name"] not in gone]
            left = "\n".join(line for line in draft.document.split("\n") if line not in lines)
            if draft.is_skill and not left.strip():
                raise UsageError("Nothing is left of it.")
            made = make_package(
                capability.name,
                version.number,
                replace(draft, cases="".join(f"{line}\n" for line in kept), document=left),
                provenance=version.provenance,
                created_at=capability.created_at,
                now=self._clock.now(),
            )
            written = [_only_words(content.decode("utf-8", "replace")) for content in made.files.values()]
            if any(_only_words(text) in content for text in words for content in written):
                raise UsageError("Its words are not only in its cases.")
            return made

        for version in await self.versions(capability.id):
            folder, id, number = (
                version_folder(capability.path, version.number),
                capability.id,
                version.number,
            )
            try:
                kept = await _in_thread(partial(without, await self.registered(id, number), version))
                own = kept
                if folder.is_dir() and await self.edited(id, number):
                    own = await _in_thread(partial(without, await self.on_disk(id, number), version))
            except UsageError:
                await self.remove(id)
                return False
            await _in_thread(partial(replace_folder, folder, own.files))
            names = {case.name for case in kept.cases}
            values = {
                "sha256": kept.sha256,
                "archive": await _in_thread(partial(archive.pack, kept.files)),
                "checks": _json([check for check in version.checks if check["name"] in names]),
            }
            row = capability_versions.c
            mine = update(capability_versions).where(row.capability_id == id, row.number == number)
            await self._execute(id, mine.values(**values))
        return True

    # ---- Runs

    async def record_run(
        self,
        name: str,
        *,
        version: int,
        status: str,
        wall_ms: float,
        peak_mb: float,
        backend: str,
        error: str = "",
        input: Mapping[str, Any] | None = None,
    ) -> Capability:
        """Record a run. After three failures in a row, the capability counts as failing until a run succeeds.

        Args:
            name: Of the capability.
            version: The version that ran.
            status: The sandbox's word; "ok" means success, "cancelled" that whoever called it ended first.
            wall_ms: How long it took.
            peak_mb: The most memory that it took.
            backend: The sandbox that ran it.
            error: Why it failed, without secrets. The end is kept.
            input: The input of a run that failed.

        Returns:
            The entry after the run.
        """
        capability = await self.get(name)
        at, failed = self._now(), status not in _NO_FAILURES
        given = "" if input is None or not failed else _json(input)
        values = {
            "capability_id": capability.id,
            "version": version,
            "status": status,
            "error": storable(error[-_MAX_ERROR:]),
            "input": given if len(given) <= _MAX_INPUT else "",
            "wall_ms": wall_ms,
            "peak_mb": peak_mb,
            "backend": backend,
            "started_at": at - round(wall_ms * 1000),
        }

        def write(connection: Connection) -> None:
            row = self._row(connection, capability.id)
            if row is None:
                return  # It was removed while it ran.
            number = connection.execute(insert(capability_runs).values(values)).inserted_primary_key
            old = select(capability_runs.c.number).where(capability_runs.c.capability_id == row.id)
            kept = (
                old.order_by(capability_runs.c.number.desc())
                .limit(1)
                .offset(_KEPT_RUNS - 1)
                .scalar_subquery()
            )
            connection.execute(
                delete(capability_runs).where(
                    capability_runs.c.capability_id == row.id, capability_runs.c.number < kept
                )
            )
            if number is None or row.version != version:
                return
            in_row = row.failures_in_row + 1 if failed else 0 if status == "ok" else row.failures_in_row
            failing = (row.failing_since or at) if in_row >= _FAILING_AFTER else None
            recent = [*json.loads(row.recent_ms), round(wall_ms, 1)][-_RECENT:]
            connection.execute(
                update(capabilities)
                .where(capabilities.c.id == row.id)
                .values(
                    runs=row.runs + 1,
                    failures=row.failures + failed,
                    failures_in_row=in_row,
                    failing_since=failing,
                    recent_ms=_json(recent),
                    peak_mb=max(row.peak_mb, peak_mb),
                    last_run_at=at,
                )
            )

        await self._database.write(write)
        return await self.get(capability.id)

    async def note_read(self, name: str) -> None:
        """Count that a model was given the text of a skill, which is its use. Nothing else is counted here."""
        capability = await self.find(name)
        if capability is not None and capability.is_skill:
            counted = {"runs": capabilities.c.runs + 1, "last_run_at": self._now()}
            change = update(capabilities).where(capabilities.c.id == capability.id).values(counted)
            with suppress(StorageError):  # it can be read all the same
                await self._database.write(lambda connection: connection.execute(change))

    # ---- Rows

    async def _change(self, id: str, write: Callable[[Connection], T], *, removes: bool = False) -> T:
        """Change rows, their record and `version`, or nothing. `id` is "" before a capability has a version."""
        has_written = False
        if self._seal is not None and id and not removes:

            def may_change(connection: Connection) -> bool:
                return kept.may_change(connection, self.folder, id, self._seal)

            if not await self._database.read(may_change):
                await self._look(again=True)

        def both(connection: Connection) -> T:
            nonlocal has_written
            if not removes:
                self._require_own(connection, id)
            kept.count(connection, self.folder, self._user)
            result = write(connection)
            has_written = True
            kept.keep(connection, self.folder, id, self._seal, user=self._user)
            return result

        try:
            return await self._database.write(both, durable=True)
        except BaseException:
            if has_written:
                with anyio.CancelScope(shield=True), suppress(SatchelError):
                    await self._database.write(lambda connection: kept.note(connection, self.folder, id))
            raise

    def _require_own(self, connection: Connection, id: str) -> None:
        """Refuse to confirm by a change what others wrote into the rows of a capability."""
        if id and not kept.may_change(connection, self.folder, id, self._seal):
            raise Refused(
                "What the database has of this capability is not what this home has stored, so it can't be changed. "
                "`satchel capability remove` removes it."
            )

    async def _execute(self, id: str, statement: Update | Delete) -> None:
        await self._change(id, lambda connection: connection.execute(statement))

    def _row(self, connection: Connection, name: str) -> Row[Any] | None:
        """The row with this id, name or tool name."""
        name = storable(name)
        mine = select(capabilities).where(capabilities.c.user_id == self._user)
        found = connection.execute(mine.where(capabilities.c.name == name.removeprefix("cap_"))).one_or_none()
        # A capability may be called `cap_…` itself.
        for other in (capabilities.c.name == name, capabilities.c.id == name):
            if found is None:
                found = connection.execute(mine.where(other)).one_or_none()
        return found

    def _create(self, connection: Connection, wanted: Wanted, provenance: Provenance, now: int) -> str:
        mine = select(func.count()).where(capabilities.c.user_id == self._user)
        if connection.execute(mine).scalar_one() >= _MOST:
            raise UsageError(
                f"There are {_MOST:,} capabilities, the most that a catalogue holds. Remove some."
            )
        id = str(uuid.uuid4())
        connection.execute(
            insert(capabilities).values(
                id=id,
                user_id=self._user,
                name=wanted.name,
                description=storable(" ".join(wanted.description.split())),
                status="building" if provenance.build_id else "proposed",
                version=0,
                input_schema=_json(dict(wanted.input_schema)),
                output_schema="{}",
                tags="[]",
                requirements="[]",
                hosts="[]",
                secrets="[]",
                state=0,
                path=f"{FOLDER}/{id}",
                provenance=_json(provenance_to_json(provenance)),
                build_id=provenance.build_id,
                reasons="[]",
                created_at=now,
                updated_at=now,
                **kept.NO_RUNS,
            )
        )
        return id

    def _set(self, connection: Connection, id: str, **values: Any) -> None:
        values["updated_at"] = self._now()
        connection.execute(update(capabilities).where(capabilities.c.id == id).values(values))

    def _activate(
        self, connection: Connection, row: Row[Any], number: int, package: Package, *, close_build: bool
    ) -> None:
        manifest = package.manifest
        version = self._version_row(connection, row.id, number)
        values: dict[str, Any] = {"reasons": "[]", **({"build_id": ""} if close_build else {})}
        if row.version != number:
            values |= kept.NO_RUNS
        self._set(
            connection,
            row.id,
            **values,
            status="disabled" if row.status == "disabled" else "active",
            version=number,
            **_described(manifest),
            hosts=_json(manifest.access.hosts),
            secrets=_json(manifest.access.secrets),
            state=int(manifest.access.state),
            provenance=row.provenance if version is None else version.provenance,
        )

    @staticmethod
    def _waiting(
        row: Row[Any], staged: Staged, status: VersionStatus, reasons: Sequence[str]
    ) -> dict[str, Any]:
        """The columns of an entry with a new version that does not become active."""
        values: dict[str, Any] = {"build_id": "", "reasons": _json(list(reasons))}
        if row.version == 0:
            values |= {
                "status": "failed" if status == "failed" else "proposed",
                **_described(staged.package.manifest),
            }
        return values

    @staticmethod
    def _version_row(connection: Connection, id: str, number: int) -> Row[Any] | None:
        columns = [column for column in capability_versions.c if column.name != "archive"]
        return connection.execute(
            select(*columns).where(
                capability_versions.c.capability_id == id, capability_versions.c.number == number
            )
        ).one_or_none()

    async def _next_number(self, capability: Capability) -> int:
        newest = select(func.max(capability_versions.c.number)).where(
            capability_versions.c.capability_id == capability.id
        )
        found: int | None = await self._database.read(lambda connection: connection.execute(newest).scalar())
        return (found or 0) + 1

    async def _switch(self, name: str, before: str, after: CapabilityStatus, otherwise: str) -> Capability:
        capability = await self.get(name)

        def write(connection: Connection) -> None:
            row = self._row(connection, capability.id)
            if row is None or row.status != before or row.version == 0:
                raise UsageError(f"{capability.name} {otherwise} (it is {capability.status}).")
            # Why it was put away says nothing of one that is used again.
            self._set(connection, row.id, status=after, reasons="[]" if after == "active" else row.reasons)

        await self._change(capability.id, write)
        return await self.get(capability.id)

    # ---- Folders

    def _path(self, id: str) -> Path:
        return self.folder / id

    async def _undo(self, staged: Staged) -> None:
        """After a registration that failed, there is neither its folder nor its row."""
        await _in_thread(lambda: discard(staged.folder))
        target = version_folder(self._path(staged.capability_id), staged.number)

        def look(connection: Connection) -> bool:
            return self._version_row(connection, staged.capability_id, staged.number) is not None

        # A commit can fail after the folder was moved, for example because the disk is full.
        try:
            registered = await self._database.read(look)
        except SatchelError:
            return  # The next opening makes both agree.
        if not registered:
            await _in_thread(lambda: discard(target))

    async def _restore_if_kept(self, capability: Capability, number: int) -> None:
        """Put an edited folder back if its contents are registered as another version."""
        if not await self.edited(capability.id, number):
            return
        try:
            package = await self.on_disk(capability.id, number)
        except UsageError:
            return
        if await self.is_kept(capability, package):
            original = (await self.registered(capability.id, number)).files
            await _in_thread(partial(replace_folder, version_folder(capability.path, number), original))

    def _numbers(self, connection: Connection) -> dict[str, frozenset[int]]:
        """The version numbers of each capability, by its id. Ids of all users: they share the folder."""
        rows = connection.execute(
            select(capability_versions.c.capability_id, capability_versions.c.number)
        ).all()
        found: dict[str, set[int]] = {}
        for id, number in rows:
            found.setdefault(id, set()).add(number)
        return {id: frozenset(numbers) for id, numbers in found.items()}

    def _found(self) -> dict[str, frozenset[int]]:
        """The same according to the folders."""
        return {
            each.name: numbers
            for each in _entries(self.folder)
            if not each.name.startswith(".")
            and each.is_dir()
            and (numbers := frozenset(_number(entry) for entry in _entries(each)) - {0})
        }

    def _repair(self, connection: Connection) -> tuple[Returned, ...]:
        """Make rows, records and folders agree. The transaction keeps registrations of other processes out."""
        returned = kept.agree(connection, self.folder, self._seal, now=self._clock.now())
        known, found = self._numbers(connection), self._found()
        for id, numbers in known.items():
            for number in sorted(numbers - found.get(id, frozenset())):
                if (files := kept.registered(connection, self.folder, id, number)) is not None:
                    replace_folder(version_folder(self._path(id), number), files)
                    _log.info("The folder of version %d of capability %s was made.", number, id)
        for id, numbers in found.items():
            for number in sorted(numbers - known.get(id, frozenset())):
                kept.move_aside(self.folder, version_folder(self._path(id), number))
        return returned

    def _discard_staged(self) -> None:
        """Remove what registrations that were cut off have left. Checking a version takes far less than a day."""
        yesterday = (self._clock.now() - timedelta(days=1)).timestamp()
        for each in _entries(self.folder):
            for entry in () if each.name.startswith(".") else _entries(each):
                if entry.name.startswith(STAGING) and entry.lstat().st_mtime < yesterday:
                    discard(entry)

    # ---- Rows as data

    def _capability(self, row: Row[Any]) -> Capability:
        recent = json.loads(row.recent_ms)
        return Capability(
            id=row.id,
            name=row.name,
            description=row.description,
            status=row.status,
            version=row.version,
            input_schema=json.loads(row.input_schema),
            output_schema=json.loads(row.output_schema),
            tags=tuple(json.loads(row.tags)),
            requirements=tuple(json.loads(row.requirements)),
            access=Access(
                hosts=tuple(json.loads(row.hosts)),
                secrets=tuple(json.loads(row.secrets)),
                state=bool(row.state),
            ),
            path=self._home / row.path,
            provenance=provenance_from_json(json.loads(row.provenance)),
            build_id=row.build_id,
            reasons=tuple(json.loads(row.reasons)),
            created_at=_time(row.created_at),
            updated_at=_time(row.updated_at),
            reliability=Reliability(
                runs=row.runs,
                failures=row.failures,
                median_ms=statistics.median(recent) if recent else None,
                peak_mb=row.peak_mb,
                last_run_at=None if row.last_run_at is None else _time(row.last_run_at),
                failing_since=None if row.failing_since is None else _time(row.failing_since),
            ),
        )

    def _version(self, capability: Capability, row: Row[Any]) -> Version:
        return Version(
            capability_id=capability.id,
            number=row.number,
            status=row.status,
            sha256=row.sha256,
            folder=version_folder(capability.path, row.number),
            provenance=provenance_from_json(json.loads(row.provenance)),
            checks=tuple(json.loads(row.checks)),
            reasons=tuple(json.loads(row.reasons)),
            created_at=_time(row.created_at),
        )

    def _now(self) -> int:
        return (self._clock.now() - _EPOCH) // timedelta(microseconds=1)


def _described(manifest: Manifest) -> dict[str, Any]:
    """The columns of an entry that say what it does."""
    return {
        "description": manifest.description,
        "input_schema": _json(manifest.input_schema),
        "output_schema": _json(manifest.output_schema),
        "tags": _json(manifest.tags),
        "requirements": _json(manifest.requirements),
    }


def _approved(connection: Connection, id: str) -> Access:
    rows = connection.execute(
        select(capability_approvals.c.kind, capability_approvals.c.value)
        .where(capability_approvals.c.capability_id == id)
        .order_by(capability_approvals.c.value)
    ).all()
    return Access(
        hosts=tuple(value for kind, value in rows if kind == "host"),
        secrets=tuple(value for kind, value in rows if kind == "secret"),
        state=any(kind == "state" for kind, _ in rows),
    )


def _run(row: Row[Any]) -> Run:
    return Run(
        number=row.number,
        version=row.version,
        status=row.status,
        error=row.error,
        input=json.loads(row.input) if row.input else None,
        wall_ms=row.wall_ms,
        peak_mb=row.peak_mb,
        backend=row.backend,
        started_at=_time(row.started_at),
    )


def _entries(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise StorageError(f"{folder} can't be read: {error.strerror}.") from error


def _number(folder: Path) -> int:
    """The number of a version's folder; 0 for other entries."""
    digits = folder.name.removeprefix("v")
    return int(digits) if folder.name.startswith("v") and digits.isascii() and digits.isdecimal() else 0


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _only_words(text: str) -> str:
    """A text without its signs and escapes, which JSON, Python and Markdown write differently."""
    plain = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", text)
    return " ".join(re.findall(r"\w+", plain)).casefold()


def _texts_in(value: Any) -> Iterator[str]:
    """The texts of a JSON value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _texts_in(each)
    elif isinstance(value, str):
        yield value


def _unknown(name: str) -> NotFound:
    return NotFound(f"There is no capability {name[:80]!r}. See `satchel capability list`.")


async def _in_thread(function: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(function)
