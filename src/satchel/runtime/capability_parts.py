"""What an open home does with capabilities: the catalogue, what runs and checks them, and what builds them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from satchel.builder.queue import BuildQueue
from satchel.capabilities.access import sentences
from satchel.capabilities.allowances import Allowances
from satchel.capabilities.cases import result_to_json
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.checking import Registrar, Registration, Tested
from satchel.capabilities.kept import Returned
from satchel.capabilities.lookup import Lookup
from satchel.capabilities.moving import Mover
from satchel.capabilities.package import draft_of
from satchel.capabilities.records import capability_to_json, run_to_json, tool_name, version_to_json
from satchel.capabilities.running import OutsideCalls, Runner
from satchel.capabilities.toolset import CapabilityTools, Documents
from satchel.errors import Refused, StorageError, UsageError
from satchel.events import Notice
from satchel.runtime.builds import Builds
from satchel.runtime.home import Home
from satchel.runtime.lines import returned_line
from satchel.runtime.parts import Parts
from satchel.runtime.rules import allowances_now, withheld_from_searches
from satchel.tools.builtin.fence import Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityParts:
    """The parts that capabilities need, made once by `Satchel.open`."""

    catalogue: Catalogue
    runner: Runner
    registrar: Registrar
    lookup: Lookup
    tools: CapabilityTools
    mover: Mover
    builds: Builds

    async def shown(self, name: str, number: int = 0) -> dict[str, Any]:
        """A capability as plain JSON data: its access, its versions and newest runs, and the files of one version.

        Raises:
            NotFound: There is no such capability, or no such version; 0 is the active one, or the newest.
            StorageError: The files can't be read.
        """
        found = await self.catalogue.get(name)
        versions = await self.catalogue.versions(found.id)
        shown: dict[str, Any] = {
            **capability_to_json(found),
            "may": list(sentences(found.access, name=found.name)),
            "saved": await self.builds.saved(found),
            "versions": [version_to_json(each) for each in versions],
            "runs": [run_to_json(run) for run in await self.catalogue.runs(found.id, limit=5)],
        }
        if number := number or found.version or len(versions):
            package = await self.catalogue.registered(found.id, number)
            shown["document"] = package.document
            if found.is_skill and number == found.version:
                with suppress(UsageError):  # what was edited is none any more
                    shown["document"] = (await self.catalogue.read(found)).document
            shown["files"] = sorted(package.files)
            shown["source"] = draft_of(package).code
            shown["edited"] = list(await self.catalogue.edited(found.id, number))
        return shown

    @classmethod
    async def open(
        cls, parts: Parts, home: Home, *, documents: Documents, outside: OutsideCalls
    ) -> CapabilityParts | None:
        """Open them; None if the database can't be opened, which the home's notices say."""
        if home.made is None:
            return None
        settings, clock = parts.settings, parts.clock
        if misnamed := parts.sandboxes.misnamed:
            parts.notices.post(Notice(part="sandbox", text=misnamed))
        try:
            catalogue = await home.catalogue()
        except StorageError as error:
            parts.notices.post(Notice(part="capabilities", text=f"Capabilities are unavailable: {error}"))
            return None

        def tell(returned: Sequence[Returned]) -> None:
            if returned:
                parts.notices.post(Notice(part="capabilities", text=returned_line(returned)))

        tell(catalogue.returned)
        catalogue.on_returned = tell

        async def allowances() -> Allowances:
            # Rules are written and removed while the program runs.
            return await allowances_now(parts)

        async def may_call(name: str) -> None:
            if tool_name(name) in parts.settings.tools.disabled:
                raise Refused(f"{name} is not called: {tool_name(name)} is in tools.disabled.")
            (await allowances()).check_call(name)

        runner = Runner(
            catalogue,
            parts.sandboxes.get,
            layers=parts.sandboxes.layer,
            secret=settings.secret,
            clean=parts.redactor().redacted_text,
            may_call=may_call,
            outside=outside,
        )
        registrar = Registrar(catalogue, runner, clock=clock, allowances=allowances)
        builds = Builds(
            parts,
            home,
            queue=BuildQueue(home.made, clock=clock, user_id="default", seal=home.seal),
            catalogue=catalogue,
            registrar=registrar,
            allowances=allowances,
            lend=runner.lend,
            sandbox=parts.sandboxes.get,
            layers=parts.sandboxes.layer,
        )
        lookup = Lookup(catalogue, home.made.of("default"), embedder=home.embedder)
        return cls(
            catalogue=catalogue,
            runner=runner,
            registrar=registrar,
            lookup=lookup,
            tools=CapabilityTools(
                catalogue,
                runner=runner,
                lookup=lookup,
                fence=lambda: Fence(home=settings.home, withheld=withheld_from_searches(parts.settings)),
                documents=documents,
                allowances=allowances,
                disabled=settings.tools.disabled,
            ),
            mover=Mover(catalogue, registrar),
            builds=builds,
        )


def tested_to_json(tested: Tested) -> dict[str, Any]:
    """For `satchel capability test --json` and the HTTP interface."""
    checks = [result_to_json(check) for check in tested.checks]
    return {"version": tested.number, "passed": tested.passed, "adopted": tested.adopted, "checks": checks}


def registration_to_json(registration: Registration) -> dict[str, Any]:
    """For `satchel capability approve --json` and the HTTP interface."""
    return {
        **capability_to_json(registration.capability),
        "registered": registration.number,
        "active": registration.is_active,
        "checks": [result_to_json(check) for check in registration.checks],
    }
