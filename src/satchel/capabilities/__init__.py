"""Tools that the agent made: the catalogue, their folders and versions, what they may reach, and running them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.capabilities.access import network_of, sentences
    from satchel.capabilities.cases import Case, CaseResult, parse_cases
    from satchel.capabilities.catalogue import Catalogue, Staged
    from satchel.capabilities.checking import Registrar, Registration, Tested
    from satchel.capabilities.lookup import FoundCapability, Lookup
    from satchel.capabilities.moving import Mover, Review
    from satchel.capabilities.package import Draft, Manifest, Package, draft_of
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
        capability_to_json,
        check_name,
        run_to_json,
        version_to_json,
    )
    from satchel.capabilities.running import LayerMaker, Outcome, Runner, not_active, outcome_to_json
    from satchel.capabilities.toolset import CapabilityTools

__all__ = [
    "Access",
    "Capability",
    "CapabilityStatus",
    "CapabilityTools",
    "Case",
    "CaseResult",
    "Catalogue",
    "Draft",
    "FoundCapability",
    "LayerMaker",
    "Lookup",
    "Manifest",
    "Mover",
    "Outcome",
    "Package",
    "Provenance",
    "Registrar",
    "Registration",
    "Reliability",
    "Requested",
    "Review",
    "Run",
    "Runner",
    "Staged",
    "Tested",
    "Version",
    "VersionStatus",
    "Wanted",
    "capability_to_json",
    "check_name",
    "draft_of",
    "network_of",
    "not_active",
    "outcome_to_json",
    "parse_cases",
    "run_to_json",
    "sentences",
    "version_to_json",
]

__getattr__ = on_demand(
    __name__,
    {
        "access": ("network_of", "sentences"),
        "cases": ("Case", "CaseResult", "parse_cases"),
        "catalogue": ("Catalogue", "Staged"),
        "checking": ("Registrar", "Registration", "Tested"),
        "lookup": ("FoundCapability", "Lookup"),
        "moving": ("Mover", "Review"),
        "package": ("Draft", "Manifest", "Package", "draft_of"),
        "records": (
            "Access",
            "Capability",
            "CapabilityStatus",
            "Provenance",
            "Reliability",
            "Requested",
            "Run",
            "Version",
            "VersionStatus",
            "Wanted",
            "capability_to_json",
            "check_name",
            "run_to_json",
            "version_to_json",
        ),
        "running": ("LayerMaker", "Outcome", "Runner", "not_active", "outcome_to_json"),
        "toolset": ("CapabilityTools",),
    },
)
