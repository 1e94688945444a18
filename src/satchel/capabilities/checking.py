"""Checks a version before it is used: its cases run again, in a fresh sandbox each, as every later call will.

A version that passes becomes active. One that wants to reach what the user has not approved is stored as proposed; its
cases run again when it has been approved, with what it may reach. One that fails is not registered, and the reasons go
back to whoever made it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from satchel.capabilities.access import sentences
from satchel.capabilities.allowances import Rules, no_rules
from satchel.capabilities.cases import Case, CaseResult, judge
from satchel.capabilities.catalogue import Catalogue, Staged
from satchel.capabilities.package import Draft, Package, draft_of
from satchel.capabilities.records import Access, Capability, Provenance, is_called
from satchel.capabilities.running import Outcome, Runner
from satchel.clock import Clock
from satchel.errors import NotFound, UsageError
from satchel.tools.box import host_covers

_TOTAL_S: Final = 240.0
"""For all cases of a version: fifty that take as long as a slow web page."""
_MOST_TRACEBACK: Final = 1_500
"""Characters of the end of a traceback in a reason."""
_MOST_REASONS: Final = 5
"""Failed cases after which the others are not run: enough to see what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A version that was registered.

    Attributes:
        number: The version; it is active, or waits for approval.
        is_active: Whether it is.
        to_approve: What it wants to reach and nobody has approved.
    """

    capability: Capability
    number: int
    is_active: bool
    checks: tuple[CaseResult, ...]
    to_approve: Access = Access()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """The result of a test.

    Attributes:
        adopted: The number of the version that the user's edits became, or 0.
    """

    capability: Capability
    number: int
    checks: tuple[CaseResult, ...]
    adopted: int = 0

    @property
    def passed(self) -> bool:
        """No case failed."""
        return all(check.passed is not False for check in self.checks)


class Registrar:
    """Registers, approves and tests versions."""

    def __init__(
        self, catalogue: Catalogue, runner: Runner, *, clock: Clock, allowances: Rules = no_rules
    ) -> None:
        """Take what it works with; `allowances` gives what the user's rules say now."""
        self._catalogue = catalogue
        self._allowances = allowances
        self._runner = runner
        self._clock = clock

    async def register(self, name: str, draft: Draft, *, provenance: Provenance) -> Registration:
        """Check a draft and register it as a new version. What a rule of the user's allows it to reach is approved.

        Raises:
            UsageError: It was refused; nothing was registered. The message lists everything that is wrong.
            Refused: Its build was cancelled.
            NoSandbox, SandboxError, StorageError: It could not be checked or stored; nothing was registered.
        """
        staged = await self._catalogue.stage(name, draft, provenance=provenance)
        try:
            left = await self.approve_by_rule(name, staged.access_to_approve)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._catalogue.drop(staged)
            raise
        return await self.register_staged(replace(staged, access_to_approve=left))

    async def approve_by_rule(self, name: str, missing: Access) -> Access:
        """Approve the part of `missing` that a permission rule allows. Returns what is left to approve."""
        if not missing:
            return missing
        capability = await self._catalogue.get(name)
        granted = (await self._allowances()).granted(capability.name, missing)
        if granted:
            await self._catalogue.approve(capability.id, granted)
        return missing.without(granted)

    def unset(self, secrets: Sequence[str]) -> tuple[str, ...]:
        """Those of these environment variables that have no value in this process."""
        return tuple(name for name in secrets if not self._runner.secret(name))

    async def forbidden(self, name: str) -> str:
        """The text of the permission rule that denies every call of a capability, or ""."""
        return (await self._allowances()).forbids(name)

    async def register_staged(
        self, staged: Staged, *, activate: bool = True, keep_failed: bool = False
    ) -> Registration:
        """Check a staged version and register it.

        Args:
            staged: Its folder is moved into place, or removed.
            activate: Make it the active version if all cases pass.
            keep_failed: Register it as "failed" if a case fails, instead of refusing it.

        Raises:
            UsageError: It was refused.
        """
        try:
            granted = staged.package.manifest.access.without(staged.access_to_approve)
            checks = await self._check(staged.package, staged.folder, access=granted)
            reasons = _reasons(checks)
            if reasons and not keep_failed:
                raise UsageError("\n".join(f"- {reason}" for reason in reasons))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._catalogue.drop(staged)
            raise
        waits = staged.access_to_approve
        capability = await self._catalogue.commit(
            staged,
            checks=checks,
            status="failed" if reasons else "proposed" if waits else "ready",
            reasons=reasons or sentences(waits),
            activate=activate,
        )
        return Registration(
            capability=capability,
            number=staged.number,
            is_active=capability.version == staged.number,
            checks=checks,
            to_approve=waits,
        )

    async def registered(self, name: str, build_id: str) -> Registration | None:
        """The version that a build has registered already, or None."""
        capability = await self._catalogue.find(name)
        if capability is None or not build_id:
            return None
        for version in await self._catalogue.versions(capability.id):
            if version.provenance.build_id == build_id:
                package = await self._catalogue.registered(capability.id, version.number)
                approved = await self._catalogue.approved(capability.id)
                return Registration(
                    capability=capability,
                    number=version.number,
                    is_active=capability.version == version.number,
                    checks=tuple(CaseResult(**check) for check in version.checks),
                    to_approve=package.manifest.access.without(approved),
                )
        return None

    async def to_approve(self, name: str) -> tuple[int, Access]:
        """The newest version that waits, and what it wants to reach that nobody has approved.

        Raises:
            NotFound: No version waits.
        """
        capability = await self._catalogue.get(name)
        for version in reversed(await self._catalogue.versions(capability.id)):
            package = await self._catalogue.registered(capability.id, version.number)
            missing = package.manifest.access.without(await self._catalogue.approved(capability.id))
            if version.status == "proposed" or (missing and version.number == capability.version):
                return version.number, missing
        raise NotFound(f"No version of {capability.name} waits for your approval.")

    async def approve(self, name: str) -> Registration:
        """Allow the newest waiting version to reach what it wants to, run its cases, and make it active if they pass.

        Returns:
            The version. If a case failed, it is not active and its status is "failed".

        Raises:
            NotFound: No version waits.
            NoSandbox, SandboxError: The cases could not run. The approval is kept.
        """
        number, missing = await self.to_approve(name)
        await self._catalogue.approve(name, missing)
        package = await self._catalogue.registered(name, number)
        folder = (await self._catalogue.get(name)).path / f"v{number}"
        checks = await self._check(package, folder, access=package.manifest.access)
        reasons = _reasons(checks)
        capability = await self._catalogue.settle(
            name, number, status="failed" if reasons else "ready", checks=checks, reasons=reasons
        )
        return Registration(capability=capability, number=number, is_active=not reasons, checks=checks)

    async def test(self, name: str, *, number: int = 0) -> Tested:
        """Run the cases of a version as its folder is now. If the user has edited the active version and all cases
        pass, the edits become a version of their own, which is active unless it wants to reach more.

        Args:
            name: Of the capability.
            number: Of the version; 0 means the active one, or the newest if none is active.

        Raises:
            NotFound: There is no such version.
            UsageError: The edited files are no capability any more.
        """
        capability = await self._catalogue.get(name)
        number = number or capability.version or await self._newest(capability)
        edited = await self._catalogue.edited(capability.id, number)
        package = await self._catalogue.on_disk(capability.id, number)
        approved = await self._catalogue.approved(capability.id)
        granted = package.manifest.access.without(package.manifest.access.without(approved))
        checks = await self._check(package, capability.path / f"v{number}", access=granted)
        adopted = 0
        if (
            edited
            and not _reasons(checks)
            and not await self._catalogue.is_kept(capability, package, source=f"v{number}")
        ):
            registration = await self.register(
                capability.id, draft_of(package), provenance=Provenance(made_by="user", source=f"v{number}")
            )
            adopted, capability = registration.number, registration.capability
        return Tested(capability=capability, number=number, checks=checks, adopted=adopted)

    async def _newest(self, capability: Capability) -> int:
        versions = await self._catalogue.versions(capability.id)
        if not versions:
            raise NotFound(f"{capability.name} has no version yet.")
        return versions[-1].number

    async def _check(self, package: Package, folder: Path, *, access: Access) -> tuple[CaseResult, ...]:
        """Run the cases one after the other, each in a sandbox of its own."""
        deadline = self._clock.monotonic_s() + _TOTAL_S
        results: list[CaseResult] = []
        unapproved = package.manifest.access.without(access)
        for case in package.cases:
            failed = sum(result.passed is False for result in results)
            if failed >= _MOST_REASONS:
                break
            left_s = deadline - self._clock.monotonic_s()
            if case.network and unapproved.hosts:
                results.append(
                    CaseResult(name=case.name, passed=None, reason="its hosts are not approved yet")
                )
            elif unapproved.secrets:
                results.append(
                    CaseResult(name=case.name, passed=None, reason="its secrets are not approved yet")
                )
            elif left_s <= 0:
                reason = f"the cases take more than {_TOTAL_S:g} s together"
                results.append(CaseResult(name=case.name, passed=False, reason=reason))
            else:
                results.append(await self._check_case(package, folder, case, access=access, left_s=left_s))
        return tuple(results)

    async def _check_case(
        self, package: Package, folder: Path, case: Case, *, access: Access, left_s: float
    ) -> CaseResult:
        manifest = package.manifest
        unapproved = manifest.access.without(access)
        # A case never sees or changes the files that the capability keeps for the user, so it needs no approval to have
        # some of its own.
        access = replace(access, state=manifest.access.state)
        state = Path(await anyio.to_thread.run_sync(lambda: tempfile.mkdtemp(prefix="satchel-state-")))
        try:
            outcome = await self._runner.try_out(
                folder,
                case.input,
                name=manifest.name,
                version=manifest.version,
                input_schema=manifest.input_schema,
                requirements=manifest.requirements,
                access=access,
                limits=manifest.limits,
                state=state,
                timeout_s=left_s,
            )
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(state, ignore_errors=True))
        reason = _verdict(case, outcome)
        # What may change something is not called by a case, though the user has approved it.
        acts = [d.target for d in outcome.denied if d.target in access.hosts and is_called(d.target)]
        if acts and not outcome.ok:
            left_out = f"it calls {', '.join(acts)}, which may change something, so no case does"
            return CaseResult(name=case.name, passed=None, reason=left_out, wall_ms=outcome.wall_ms)
        refused = tuple(dict.fromkeys(denial.target for denial in outcome.denied))
        waits = [host for host in refused if _is_among(host, unapproved.hosts)]
        unnamed = [host for host in refused if not _is_among(host, manifest.access.hosts)]
        if not reason or not waits + unnamed:
            return CaseResult(name=case.name, passed=not reason, reason=reason, wall_ms=outcome.wall_ms)
        # The code can't help what it was refused, so its own complaint and its traceback would only mislead.
        if not unnamed:
            waiting = f"it needs {', '.join(waits)}, which is not approved yet"
            return CaseResult(name=case.name, passed=None, reason=waiting, wall_ms=outcome.wall_ms)
        reason = (
            f"it wants to reach {', '.join(unnamed)}, which nobody has approved: no host is reached that the "
            "capability does not name in `hosts`. Name it there, so that the user is asked, or do without it"
        )
        return CaseResult(name=case.name, passed=False, reason=reason, wall_ms=outcome.wall_ms)


def _is_among(host: str, entries: Sequence[str]) -> bool:
    return any(host_covers(entry, host) for entry in entries)


def _verdict(case: Case, outcome: Outcome) -> str:
    if case.is_refusal and not outcome.ok and outcome.status not in ("error", "bad_input"):
        # A crash or a timeout refuses nothing.
        return f"the input had to be refused, but the run ended with {outcome.status}: {outcome.error}"
    reason = judge(case, result=outcome.result, complaint=outcome.error)
    if outcome.traceback and not case.is_refusal:
        reason += f"\n{outcome.traceback[-_MOST_TRACEBACK:].rstrip()}"
    denied = "".join(f" The sandbox refused {d.target}: {d.reason}" for d in outcome.denied)
    return f"{reason}{denied}" if reason else ""


def _reasons(checks: Sequence[CaseResult]) -> tuple[str, ...]:
    return tuple(f"Case {check.name!r}: {check.reason}" for check in checks if check.passed is False)
