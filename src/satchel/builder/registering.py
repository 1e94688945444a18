"""A build and the catalogue: what the user has allowed, and the version that comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import anyio.to_thread

from satchel.builder.records import Build
from satchel.capabilities.access import sentences
from satchel.capabilities.cases import checks_in_words
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.checking import Registrar, Registration
from satchel.capabilities.given import Given, kept_given
from satchel.capabilities.package import Draft, draft_of
from satchel.capabilities.records import Access, Provenance
from satchel.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredVersion:
    """The version that a build registered.

    Attributes:
        status: "active", or "proposed" if the user has to approve something first.
        text: What the user and the model that asked should know.
    """

    number: int
    status: Literal["active", "proposed"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registering:
    """Registers the versions of builds, once for each build."""

    catalogue: Catalogue
    registrar: Registrar

    async def registered(self, build: Build) -> RegisteredVersion | None:
        """The version that a build has registered, or None."""
        found = await self.registrar.registered(build.capability_id, build.id)
        return None if found is None else _told(build, found)

    async def register(self, build: Build, draft: Draft) -> RegisteredVersion:
        """Run a draft's cases in fresh sandboxes, and register it if they pass.

        Raises:
            UsageError: It was refused; the message says everything that is wrong. Nothing was registered.
            Refused: The build was cancelled. Nothing was registered.
            SandboxError, StorageError: It could not be checked or stored. Nothing was registered.
        """
        provenance = Provenance(build_id=build.id, session_id=build.asked_by, model=build.model)
        return _told(build, await self.registrar.register(build.capability_id, draft, provenance=provenance))

    async def agreed(self, build: Build, proposal: Mapping[str, Any]) -> RegisteredVersion:
        """Register a skill whose text the user has agreed to.

        Args:
            build: Of it.
            proposal: Its `draft` has `description` and `document`; `before` is the document that it changes, or None.

        Raises:
            UsageError: The document is another one by now. Nothing was registered.
        """
        capability = await self.catalogue.get(build.capability_id)
        present = await self.catalogue.read(capability) if capability.version else None
        if (None if present is None else draft_of(present).document) != proposal["before"]:
            raise UsageError(f"{build.name} was edited since this was proposed, so it stays as it is.")
        draft = Draft(code="", input_schema={}, cases="", is_skill=True, **proposal["draft"])
        return await self.register(build, draft)

    async def given(self, build: Build) -> Given | None:
        """The program of the user that becomes the first version; None if there is none."""
        capability = await self.catalogue.find(build.capability_id)
        if capability is None or capability.version:
            return None
        return await anyio.to_thread.run_sync(kept_given, capability.path, capability.name)

    async def present(self, build: Build) -> Draft | None:
        """What the active version is made of, with the user's edits, or else what the user gave; None if there is
        neither, or it can't be read.
        """
        capability = await self.catalogue.find(build.capability_id)
        if capability is None or not capability.version:
            given = await self.given(build)
            return None if given is None else given.draft
        return draft_of(await self.catalogue.as_edited(capability))

    async def missing(self, build: Build, access: Access) -> Access:
        """The part of `access` that the user has not allowed, by an answer or by a permission rule."""
        missing = access.without(await self.catalogue.approved(build.capability_id))
        return await self.registrar.approve_by_rule(build.capability_id, missing)

    async def reads_others(self, build: Build) -> bool:
        """Whether its Builder may have read what others wrote: the code of an import, the input and the error of an
        earlier run, or the answers of hosts.
        """
        capability = await self.catalogue.find(build.capability_id)
        if build.kind == "repair" or capability is None or capability.provenance.made_by == "import":
            return True
        return bool((await self.catalogue.approved(build.capability_id)).hosts)


def _told(build: Build, found: Registration) -> RegisteredVersion:
    capability, name = found.capability, build.name
    if found.is_active or (capability.status in ("active", "disabled") and not found.to_approve):
        what = "a skill" if capability.is_skill else checks_in_words(found.checks)
        text = f"{name} is ready (version {found.number}, {what}): {capability.description}"
        return RegisteredVersion(number=found.number, status="active", text=text)
    wishes = " ".join(sentences(found.to_approve, name=name))
    now = f" Until then, version {capability.version} stays in use." if capability.version else ""
    text = (
        f"{name} is built (version {found.number}) and waits for your approval. {wishes} "
        f"To approve it: /capability approve {name}, or satchel capability approve {name} in a shell.{now}"
    )
    return RegisteredVersion(number=found.number, status="proposed", text=text)
