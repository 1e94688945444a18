"""The tool with which other agents look at the user's capabilities, and have them changed, approved or rolled back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from satchel.capabilities.access import approval_text, sentences
from satchel.capabilities.cases import checks_in_words
from satchel.capabilities.records import Capability
from satchel.errors import NotFound, UsageError
from satchel.runtime.capability_parts import CapabilityParts
from satchel.server.mcp.tools import OfferedTool
from satchel.tools import Annotations, Tool, ToolContext, ToolResult, ToolSpec, function_tool

MANAGER: Final = "capability"
_ACTIONS: Final = ("show", "change", "approve", "rollback")
_READS: Final = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)
_CHANGES: Final = Annotations(read_only=False, destructive=True, idempotent=False, open_world=False)
"""Each call is asked about: an agent may act on what it has read elsewhere."""


def capability_manager(parts: CapabilityParts) -> OfferedTool:
    """The tool. Permission rules match each of its actions by a name of its own, such as `capability_change`."""
    tool = _tool(parts)
    return OfferedTool(
        tool=tool,
        title="Look after capabilities",
        output_schema={
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "status": {"type": "string"},
                "version": {"type": "integer", "description": "The active one; 0 for none."},
                "message": {"type": "string"},
            },
            "required": ["name", "status", "version", "message"],
        },
        permission=lambda input: _permission(tool, str(input.get("action", ""))),
    )


async def approval_details(parts: CapabilityParts, input: Mapping[str, Any]) -> Sequence[str]:
    """What the user should read before they permit a call with this input: what an approval allows."""
    if input.get("action") != "approve":
        return ()
    try:
        number, missing = await parts.registrar.to_approve(str(input.get("name")))
    except NotFound:
        return ()
    return (f"Version {number}:", *approval_text(missing, name=str(input.get("name"))))


def _permission(tool: Tool, action: str) -> ToolSpec:
    annotations = _READS if action == "show" else _CHANGES
    return ToolSpec(
        name=f"{MANAGER}_{action}",
        description=tool.spec.description,
        input_schema=tool.spec.input_schema,
        annotations=annotations,
    )


def _tool(parts: CapabilityParts) -> Tool:
    async def call(input: Mapping[str, Any], _: ToolContext) -> ToolResult:
        found = await parts.catalogue.get(input["name"])
        match input["action"]:
            case "change":
                found, message = await _change(parts, found, str(input.get("wish", "")).strip())
            case "approve":
                found, message = await _approve(parts, found, input.get("version"))
            case "rollback":
                found = await parts.catalogue.rollback(found.id)
                message = f"{found.name} uses version {found.version} again."
            case _:
                message = "\n".join(await _shown(parts, found))
        data = {
            "name": found.name,
            "status": found.status,
            "version": found.version,
            "message": message,
        }
        return ToolResult(text=message, data=data)

    return function_tool(
        call,
        name=MANAGER,
        description="Look after one of the user's capabilities (the tools that begin with cap_): `show` its state, "
        "versions and what waits for the user; `change` has a new version built from a wish, or from its last failure; "
        "`approve` lets a version reach what it wants to, and `rollback` goes back by one version. All but `show` ask "
        "the user.",
        properties={
            "name": {"type": "string", "minLength": 1},
            "action": {"type": "string", "enum": list(_ACTIONS)},
            "wish": {
                "type": "string",
                "maxLength": 4000,
                "description": "For change: what shall be different, in the user's words",
            },
            "version": {"type": "integer", "description": "For approve: the version that show names"},
        },
        required=["name", "action"],
        annotations=_CHANGES,
    )


async def _change(parts: CapabilityParts, found: Capability, wish: str) -> tuple[Capability, str]:
    if not wish and found.reliability.failing_since is None:
        raise UsageError("Say in `wish` what shall be different.")
    requested = await parts.builds.repair(found.id, wish=wish)
    begun = (
        f"A new version of {found.name} is being built. Until it is ready, version {found.version} is used."
        if requested.is_new
        else f"{found.name} is being built right now, and its Builder is told this as well."
    )
    asks = "What it asks is shown in every conversation and on the pages of Satchel."
    return requested.capability, f"{begun} {asks}"


async def _approve(parts: CapabilityParts, found: Capability, version: object) -> tuple[Capability, str]:
    number, _ = await parts.registrar.to_approve(found.id)
    if version != number:
        raise UsageError(
            f"Version {number} waits. Name it in `version`, so that the user is asked about that one."
        )
    done = await parts.registrar.approve(found.id)
    if done.is_active:
        return done.capability, f"{found.name} is ready (version {number}, {checks_in_words(done.checks)})."
    return done.capability, f"A case failed, so version {number} of {found.name} is not used."


async def _shown(parts: CapabilityParts, found: Capability) -> list[str]:
    active = f", version {found.version}" if found.version else ""
    lines = [f"{found.name}: {found.status}{active}. {found.description}"]
    lines += sentences(found.access, name=found.name)
    lines += [f"! {reason}" for reason in found.reasons]
    lines += [
        f"Version {version.number}: {version.status}, {version.created_at:%Y-%m-%d}"
        for version in await parts.catalogue.versions(found.id)
    ]
    try:
        number, missing = await parts.registrar.to_approve(found.id)
        lines += [f"Version {number} waits for approval. It wants:", *approval_text(missing, name=found.name)]
    except NotFound:
        pass
    lines += [
        f"Its build asks the user: {asked.text}"
        for asked in await parts.builds.queue.open_questions()
        if asked.name == found.name
    ]
    return lines
