"""What an open home does with capabilities: the catalogue, what runs and checks them, and what builds them."""

from __future__ import annotations

from dataclasses import dataclass

from satchel.builder.queue import BuildQueue
from satchel.capabilities.allowances import Allowances
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.checking import Registrar
from satchel.capabilities.lookup import Lookup
from satchel.capabilities.moving import Mover
from satchel.capabilities.records import tool_name
from satchel.capabilities.running import OutsideCalls, Runner
from satchel.capabilities.toolset import CapabilityTools, Documents
from satchel.errors import Refused, StorageError
from satchel.events import Notice
from satchel.runtime.builds import Builds
from satchel.runtime.home import Home
from satchel.runtime.lines import returned_line
from satchel.runtime.parts import Parts
from satchel.runtime.rules import allowances_now, withheld_from_searches
from satchel.tools.builtin.fence import Fence

__all__ = ["CapabilityParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityParts:
    """The parts that capabilities need, made once by `Satchel.open`.

    Attributes:
        catalogue: What there is.
        runner: Runs capabilities.
        registrar: Registers, approves and tests versions.
        lookup: Finds capabilities by words and by meaning.
        tools: What models can do with them.
        mover: Exports and imports them.
        builds: Builds that run, wait or have ended.
    """

    catalogue: Catalogue
    runner: Runner
    registrar: Registrar
    lookup: Lookup
    tools: CapabilityTools
    mover: Mover
    builds: Builds

    @classmethod
    async def open(
        cls, parts: Parts, home: Home, *, documents: Documents, outside: OutsideCalls
    ) -> CapabilityParts | None:
        """Open them; None if the database can't be opened, which the home's notices say.

        Args:
            parts: What sessions share.
            home: Where they are kept.
            documents: What `read_docs` reads besides: skills that others wrote.
            outside: What capabilities call besides each other.
        """
        if home.database is None:
            return None
        settings, clock = parts.settings, parts.clock
        if misnamed := parts.sandboxes.misnamed:
            parts.notices.post(Notice(part="sandbox", text=misnamed))
        try:
            catalogue = await Catalogue.open(home.database, home=settings.home, clock=clock)
        except StorageError as error:
            parts.notices.post(Notice(part="capabilities", text=f"Capabilities are unavailable: {error}"))
            return None
        if catalogue.returned:
            parts.notices.post(Notice(part="capabilities", text=returned_line(catalogue.returned)))

        async def allowances() -> Allowances:
            # Rules are written and removed while the program runs.
            return await allowances_now(parts.settings)

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
            queue=BuildQueue(home.database, clock=clock, user_id="default"),
            catalogue=catalogue,
            registrar=registrar,
            allowances=allowances,
            lend=runner.lend,
            sandbox=parts.sandboxes.get,
            layers=parts.sandboxes.layer,
        )
        lookup = Lookup(catalogue, home.database, embedder=home.embedder)
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
