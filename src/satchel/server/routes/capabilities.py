"""`/api/capabilities` and `/api/builder`: the tools that the agent made, and what builds them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Literal

from fastapi import Header, HTTPException, Query
from starlette.responses import Response

from satchel.builder.records import message_to_json
from satchel.capabilities import (
    Wanted,
    capability_to_json,
    outcome_to_json,
    sentences,
    version_to_json,
)
from satchel.capabilities.records import Requested
from satchel.errors import UsageError
from satchel.runtime.builds import Builds
from satchel.runtime.capability_parts import registration_to_json, tested_to_json
from satchel.server import shapes
from satchel.server.json_answers import JsonAnswer
from satchel.server.routes.documented import STREAMS, api_router
from satchel.server.service import Serves
from satchel.server.streams import EventStream, ServerEvent

router = api_router(tags=["capabilities"])

_AT = "/api/capabilities/{name}"


@router.get("/api/capabilities", response_model=list[shapes.CapabilityResponse], summary="List capabilities")
async def list_capabilities(
    service: Serves, status: Literal["building", "proposed", "active", "failed", "disabled"] | None = None
) -> Response:
    """List the capabilities, with the results of their runs."""
    found = await service.capabilities.catalogue.list(*([status] if status else []))
    return JsonAnswer([capability_to_json(each) for each in found])


@router.post(
    "/api/capabilities",
    response_model=shapes.CapabilityResponse,
    status_code=202,
    summary="Build a capability",
)
async def build(service: Serves, request: shapes.BuildWish) -> Response:
    """Have a capability built. `GET /api/builder/status?buildId=…` follows the build that `build_id` names."""
    wanted = Wanted(name=request.name, description=request.description, input_schema=request.input_schema)
    return _requested(await service.capabilities.builds.build(wanted))


def _requested(requested: Requested) -> JsonAnswer:
    return JsonAnswer(
        {**capability_to_json(requested.capability), "build_id": requested.build_id}, status_code=202
    )


@router.get(_AT, response_model=shapes.CapabilityShownResponse, summary="Show a capability")
async def show(
    service: Serves,
    name: str,
    version: Annotated[int, Query(ge=0, le=1_000_000, description="0 is the active one.")] = 0,
) -> Response:
    """Show a capability: what it may reach, its versions and newest runs, its document and source."""
    return JsonAnswer(await service.capabilities.shown(name, version))


@router.delete(_AT, response_model=shapes.CapabilityResponse, summary="Remove a capability")
async def remove(service: Serves, name: str) -> Response:
    """Delete a capability with all its versions, files and records."""
    return JsonAnswer(capability_to_json(await service.capabilities.catalogue.remove(name)))


@router.post(f"{_AT}/run", response_model=shapes.RunOutcomeResponse, summary="Run a capability")
async def run(service: Serves, name: str, request: shapes.RunInput) -> Response:
    """Run the active version in a fresh sandbox. If its code fails, the status is 200 and the outcome tells why."""
    return JsonAnswer(outcome_to_json(await service.capabilities.runner.run(name, request.input)))


@router.post(f"{_AT}/test", response_model=shapes.TestedResponse, summary="Run a capability's cases")
async def run_cases(
    service: Serves, name: str, version: Annotated[int, Query(ge=0, le=1_000_000)] = 0
) -> Response:
    """Run the cases of a version. Edits by hand become a new version if the cases pass."""
    tested = await service.capabilities.registrar.test(name, number=version)
    return JsonAnswer(tested_to_json(tested))


@router.get(f"{_AT}/approval", summary="Show what waits for approval")
async def to_approve(service: Serves, name: str) -> Response:
    """Show which version waits for approval, and in sentences what it wants access to."""
    found = await service.capabilities.catalogue.get(name)
    number, access = await service.capabilities.registrar.to_approve(name)
    return JsonAnswer({"version": number, "may": list(sentences(access, name=found.name))})


@router.post(f"{_AT}/approve", response_model=shapes.RegisteredResponse, summary="Approve a capability")
async def approve(service: Serves, name: str, request: shapes.VersionNumber) -> Response:
    """Allow the access that a version wants. Its cases run, and it becomes active if they pass.

    `version` is the one that was shown, so that a version proposed in the meantime is not approved unseen.
    """
    number, _ = await service.capabilities.registrar.to_approve(name)
    if number != request.version:
        raise HTTPException(
            409,
            f"Version {number} of {name} waits for approval, not version {request.version}. Look at it first.",
        )
    return JsonAnswer(registration_to_json(await service.capabilities.registrar.approve(name)))


@router.get(
    f"{_AT}/versions", response_model=list[shapes.VersionResponse], summary="List a capability's versions"
)
async def versions(service: Serves, name: str) -> Response:
    """List the versions, the oldest first."""
    catalogue = service.capabilities.catalogue
    found = await catalogue.get(name)
    return JsonAnswer(
        [
            {**version_to_json(version), "active": version.number == found.version}
            for version in await catalogue.versions(found.id)
        ]
    )


@router.post(f"{_AT}/activate", response_model=shapes.CapabilityResponse, summary="Use another version")
async def activate(service: Serves, name: str, request: shapes.VersionNumber) -> Response:
    """Use another version from now on."""
    return JsonAnswer(
        capability_to_json(await service.capabilities.catalogue.activate(name, request.version))
    )


@router.post(f"{_AT}/rollback", response_model=shapes.CapabilityResponse, summary="Go back a version")
async def rollback(service: Serves, name: str) -> Response:
    """Go back to the version before the active one."""
    return JsonAnswer(capability_to_json(await service.capabilities.catalogue.rollback(name)))


@router.post(f"{_AT}/disable", response_model=shapes.CapabilityResponse, summary="Disable a capability")
async def disable(service: Serves, name: str) -> Response:
    """Disable a capability without removing it."""
    return JsonAnswer(capability_to_json(await service.capabilities.catalogue.disable(name)))


@router.post(f"{_AT}/enable", response_model=shapes.CapabilityResponse, summary="Enable a capability")
async def enable(service: Serves, name: str) -> Response:
    """Use a disabled capability again."""
    return JsonAnswer(capability_to_json(await service.capabilities.catalogue.enable(name)))


@router.post(
    f"{_AT}/repair", response_model=shapes.CapabilityResponse, status_code=202, summary="Repair a capability"
)
async def repair(service: Serves, name: str, request: shapes.RepairWish) -> Response:
    """Build a new version, from the last failure or a description of the change. The current version stays in use."""
    builds = service.capabilities.builds
    return _requested(await builds.repair(name, wish=request.wish, failing_input=request.input))


@router.post(f"{_AT}/cancel", response_model=shapes.CapabilityResponse, summary="Stop a build")
async def cancel(service: Serves, name: str) -> Response:
    """Stop the build of a capability, given by name or by the build's id. Nothing of it is registered."""
    return JsonAnswer(capability_to_json(await service.capabilities.builds.cancel(name)))


@router.get(
    "/api/builder/status",
    response_class=EventStream,
    status_code=200,
    responses=STREAMS,
    summary="Follow a build",
)
async def status(
    service: Serves,
    build_id: Annotated[str, Query(alias="buildId", max_length=200)],
    last_event_id: Annotated[str | None, Header(description="Only messages after this one.")] = None,
) -> Response:
    """Stream the past and future messages of a build until it has ended: `question`, `answer`,
    `progress`, `complete`, `error`. Questions are answered by `POST /api/builder/answer`.
    """
    after = last_event_id or "0"
    if not (after.isascii() and after.isdigit() and len(after) <= 15):
        raise UsageError("The Last-Event-ID is not the number of a message.")
    builds = service.capabilities.builds
    await builds.queue.get(build_id)
    return service.stream(_messages(builds, build_id, int(after)))


async def _messages(builds: Builds, build_id: str, after: int) -> AsyncGenerator[ServerEvent, None]:
    async for message in builds.follow(build_id, after=after):
        yield ServerEvent(name=message.type, data=message_to_json(message), id=str(message.number))


@router.post(
    "/api/builder/answer", response_model=shapes.BuildMessageResponse, summary="Answer a build's question"
)
async def answer(service: Serves, request: shapes.BuildAnswer) -> Response:
    """Answer a question of a build. The first answer is used."""
    answered = await service.capabilities.builds.answer(
        request.build_id, request.question_id, request.answer, by="a program"
    )
    return JsonAnswer(message_to_json(answered))
