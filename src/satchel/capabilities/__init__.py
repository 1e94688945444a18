"""Tools that the agent made: the catalogue, their folders and versions, what they may reach, and running them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.capabilities.access import network_of as network_of
    from satchel.capabilities.access import sentences as sentences
    from satchel.capabilities.cases import Case as Case
    from satchel.capabilities.cases import CaseResult as CaseResult
    from satchel.capabilities.cases import parse_cases as parse_cases
    from satchel.capabilities.catalogue import Catalogue as Catalogue
    from satchel.capabilities.catalogue import Staged as Staged
    from satchel.capabilities.checking import Registrar as Registrar
    from satchel.capabilities.checking import Registration as Registration
    from satchel.capabilities.checking import Tested as Tested
    from satchel.capabilities.lookup import FoundCapability as FoundCapability
    from satchel.capabilities.lookup import Lookup as Lookup
    from satchel.capabilities.moving import Mover as Mover
    from satchel.capabilities.moving import Review as Review
    from satchel.capabilities.package import Draft as Draft
    from satchel.capabilities.package import Manifest as Manifest
    from satchel.capabilities.package import Package as Package
    from satchel.capabilities.package import draft_of as draft_of
    from satchel.capabilities.records import Access as Access
    from satchel.capabilities.records import Capability as Capability
    from satchel.capabilities.records import CapabilityStatus as CapabilityStatus
    from satchel.capabilities.records import Provenance as Provenance
    from satchel.capabilities.records import Reliability as Reliability
    from satchel.capabilities.records import Requested as Requested
    from satchel.capabilities.records import Run as Run
    from satchel.capabilities.records import Version as Version
    from satchel.capabilities.records import VersionStatus as VersionStatus
    from satchel.capabilities.records import Wanted as Wanted
    from satchel.capabilities.records import capability_to_json as capability_to_json
    from satchel.capabilities.records import check_name as check_name
    from satchel.capabilities.records import run_to_json as run_to_json
    from satchel.capabilities.records import version_to_json as version_to_json
    from satchel.capabilities.running import LayerMaker as LayerMaker
    from satchel.capabilities.running import Outcome as Outcome
    from satchel.capabilities.running import Runner as Runner
    from satchel.capabilities.running import not_active as not_active
    from satchel.capabilities.running import outcome_to_json as outcome_to_json
    from satchel.capabilities.toolset import CapabilityTools as CapabilityTools


__getattr__ = on_demand(__name__)
