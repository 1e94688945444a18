"""Takes capabilities out of a home as Agent Skills, and in again after a review.

An exported capability is a folder, or a zip archive with one, named as the skill. It contains the files of a version as
they were registered, byte for byte, so that a capability that is exported and imported is the same again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from satchel.capabilities import archive
from satchel.capabilities.access import approval_text
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.checking import Registrar, Registration
from satchel.capabilities.folder import read_folder, write_folder
from satchel.capabilities.given import Given, given_of
from satchel.capabilities.package import (
    MANIFEST,
    SKILL,
    Package,
    draft_of,
    make_package,
    read_package,
)
from satchel.capabilities.records import Access, Capability, Provenance, Wanted, skill_name
from satchel.errors import NotFound, StorageError, StorageUnwritable, UsageError

_WAITS: Final = "It was imported and waits for your review."
_MAX_ARCHIVE: Final = 8_000_000
"""Bytes of a zip archive that is read: twice what a capability may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What an import would bring. Nothing has been changed or run.

    Attributes:
        access: What it wants to reach that is not approved, and one sentence for each.
        sentences: See `access`.
        replaces: The capability of this name, which gets a new version; None if there is none.
        same_as: The version of it that has the same files; 0 if there is none.
        notes: What else to know, such as files that differ from what the manifest says.
    """

    package: Package
    source: str
    access: Access
    sentences: tuple[str, ...]
    replaces: Capability | None
    same_as: int
    notes: tuple[str, ...]


class Mover:
    """Exports and imports the capabilities of one catalogue."""

    def __init__(self, catalogue: Catalogue, registrar: Registrar) -> None:
        self._catalogue = catalogue
        self._registrar = registrar

    async def export(self, name: str, target: Path, *, number: int = 0) -> Path:
        """Write a version as an Agent Skill.

        Args:
            name: Of the capability.
            target: A path that ends in ".zip" gets an archive, always the same bytes for the same version. Another path
                is a folder in which the skill's folder is made.
            number: The version; 0 is the active one.

        Returns:
            The archive, or the skill's folder.

        Raises:
            NotFound: There is no such capability or version.
            UsageError: The folder or the file exists already.
            StorageError: It can't be written.
        """
        capability = await self._catalogue.get(name)
        number = number or capability.version
        if not number:
            raise NotFound(f"{capability.name} has no active version. Name one with --version.")
        package = await self._catalogue.registered(capability.id, number)
        folder_name = skill_name(capability.name)
        if target.suffix.casefold() == ".zip":
            content = archive.pack(package.files, folder=folder_name)
            await anyio.to_thread.run_sync(_write_file, target, content)
            return target
        folder = target / folder_name
        if folder.exists() or folder.is_symlink():
            raise UsageError(f"{folder} exists already. Name another folder, or remove it.")
        await anyio.to_thread.run_sync(lambda: write_folder(folder, package.files, private=False))
        return folder

    async def given(self, source: Path) -> Given | None:
        """A program that is no capability yet; None if `review` reads the source as it is. Errors as in `review`."""

        def read() -> Given | None:
            found = _found(source)
            return given_of(_read(found), called=found.resolve().name.removesuffix(".zip"))

        return await anyio.to_thread.run_sync(read)

    async def review(self, source: Path) -> Review:
        """Read a folder or a zip archive, without changing or running anything.

        `SKILL.md` and `manifest.json` may be missing where they can be made from the rest; see `given`.

        Raises:
            NotFound: There is no such file or folder.
            UsageError: It is not a capability, or contains what none does; the message says what.
            StorageError: It can't be read.
        """
        files = await anyio.to_thread.run_sync(_read, source)
        if SKILL in files and MANIFEST not in files:
            raise UsageError(
                f"{source} is an Agent Skill and not a capability: it has no {MANIFEST}. To use it, put its folder in "
                "SATCHEL_HOME/skills."
            )
        notes: list[str] = []
        given = await self.given(source)
        try:
            package = read_package(files) if given is None else _made(given, source)
            if given is not None:
                notes.append(f"{SKILL} and {MANIFEST} are made from its other files.")
        except UsageError as error:
            if given is not None:
                raise
            # Somebody has edited it since it was exported. That is fine, and said.
            package = read_package(files, edited=True)
            notes.append(f"It was changed after its manifest was written. {error}")
        manifest = package.manifest
        existing = await self._catalogue.find(manifest.name)
        if existing is not None and existing.name != manifest.name:
            existing = None  # Found under its tool's name.
        approved = Access() if existing is None else await self._catalogue.approved(existing.id)
        missing = manifest.access.without(approved)
        return Review(
            package=package,
            source=str(source),
            access=missing,
            sentences=tuple(approval_text(missing, name=manifest.name)),
            replaces=existing,
            same_as=0 if existing is None else await self._same(existing, package),
            notes=tuple(notes),
        )

    async def take_in(self, review: Review, *, approve: bool, activate: bool = False) -> Registration:
        """Import what was reviewed. If it is approved, its cases run in the sandbox and decide.

        Args:
            review: What is imported.
            approve: The user has read it and approves what it may reach. Otherwise it is stored as proposed, and
                nothing of it runs.
            activate: Make it the active version even if the capability has an active one.

        Returns:
            The version, "ready" if all cases passed, "failed" if one did not. A new capability becomes "active" or
            "failed" with it.

        Raises:
            UsageError: The capability of this name is being built; or the same version is there already.
            NoSandbox, SandboxError: The cases could not run; nothing was registered.
            StorageError: It could not be stored.
        """
        if review.same_as:
            name, replaced = review.package.manifest.name, review.replaces
            waits = replaced is not None and replaced.status == "proposed"
            raise UsageError(
                f"{name} has these files already, as version {review.same_as}."
                + (f" It waits for your approval: satchel capability approve {name}" if waits else "")
            )
        if review.replaces is not None and review.replaces.build_id:
            raise UsageError(f"{review.replaces.name} is being built. Import it when that has ended.")
        name, is_new = review.package.manifest.name, review.replaces is None
        capability = review.replaces or await self._catalogue.create(
            Wanted(
                name=name,
                description=review.package.manifest.description,
                input_schema=review.package.manifest.input_schema,
            ),
            provenance=Provenance(made_by="import", source=review.source),
        )
        try:
            return await self._stage_and_register(review, capability, approve=approve, activate=activate)
        except BaseException:
            with anyio.CancelScope(shield=True):
                # An entry without a version would be half an import.
                if is_new:
                    await self._catalogue.remove(capability.id)
            raise

    async def _stage_and_register(
        self, review: Review, capability: Capability, *, approve: bool, activate: bool
    ) -> Registration:
        package = review.package
        provenance = Provenance(made_by="import", source=review.source)
        if approve:
            await self._catalogue.approve(capability.id, package.manifest.access)
        newest = max((version.number for version in await self._catalogue.versions(capability.id)), default=0)
        if review.notes or package.manifest.version <= newest:
            # The manifest names a version that is taken, or is out of date: it is written anew, nothing else is.
            staged = await self._catalogue.stage(capability.id, draft_of(package), provenance=provenance)
        else:
            staged = await self._catalogue.stage_package(capability, package, provenance=provenance)
        if approve:
            return await self._registrar.register_staged(
                staged, activate=activate or not capability.version, keep_failed=True
            )
        entry = await self._catalogue.commit(staged, checks=(), status="proposed", reasons=(_WAITS,))
        return Registration(
            capability=entry,
            number=staged.number,
            is_active=False,
            checks=(),
            to_approve=staged.access_to_approve,
        )

    async def _same(self, capability: Capability, package: Package) -> int:
        for version in await self._catalogue.versions(capability.id):
            if version.sha256 == package.sha256:
                return version.number
        return 0


def _made(given: Given, source: Path) -> Package:
    if given.missing:
        raise UsageError(f"{source} is not a capability: it has no {', no '.join(given.missing)}.")
    written = datetime.fromtimestamp(source.stat().st_mtime, UTC)
    origin = Provenance(made_by="import")
    return make_package(given.name, 1, given.draft, provenance=origin, created_at=written, now=written)


def _found(source: Path) -> Path:
    """The folder of the capability, if `source` is the folder that one was exported to."""
    with suppress(OSError):
        inside = list(source.iterdir()) if source.is_dir() else []
        if len(inside) == 1 and (inside[0] / MANIFEST).is_file() and not inside[0].is_symlink():
            return inside[0]
    return source


def _read(source: Path) -> dict[str, bytes]:
    source = _found(source)
    try:
        if source.is_dir():
            return read_folder(source)
        if not source.exists():
            raise NotFound(f"There is no file or folder {source}.")
        with source.open("rb") as file:
            content = file.read(_MAX_ARCHIVE + 1)
    except OSError as error:
        raise StorageError(f"{source} can't be read: {error.strerror}.") from error
    if len(content) > _MAX_ARCHIVE:
        raise UsageError(f"{source} has more than {_MAX_ARCHIVE:,} bytes, which no capability has.")
    return archive.unpack(content)


def _write_file(target: Path, content: bytes) -> None:
    """Write a new file. If that fails, there is none."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise UsageError(f"{target} exists already. Name another file, or remove it.") from None
    except OSError as error:
        raise StorageUnwritable(f"{target} could not be written: {error.strerror}.") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            target.unlink()
        raise StorageUnwritable(f"{target} could not be written: {error.strerror}.") from error
