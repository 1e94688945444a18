"""`/capabilities`: the tools that the agent made, found and built; and `/builds/{id}`: a running build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.builder.asking import is_consent
from satchel.builder.records import Build, BuildMessage
from satchel.capabilities import Capability, Wanted
from satchel.errors import ModelError, NotFound, Refused, UserError
from satchel.runtime.lines import asks_user, counted, status_in_a_word
from satchel.runtime.tooling import ToolEntry
from satchel.server.pages.charts import spark
from satchel.server.pages.queries import FieldReader
from satchel.server.pages.rendering import Saying, State, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)

_RUNS: Final = 30
_MOST_FOUND: Final = 50
_SHOWN: Final = ("active", "building", "attention", "off")
_STATES: Final[dict[str, tuple[State, str]]] = {
    "building": ("running", "Building"),
    "proposed": ("asks", "Waits for you"),
    "active": ("on", "Active"),
    "failed": ("failed", "Failed"),
    "disabled": ("off", "Switched off"),
}


@dataclass(frozen=True, slots=True)
class Reliable:
    """The results of the newest runs, as a drawing and in words."""

    drawing: Any
    words: str
    is_failing: bool


def reliable(runs: Sequence[bool], *, is_failing: bool) -> Reliable | None:
    """The newest runs, the oldest first; None without any."""
    if not runs:
        return None
    good = sum(runs)
    words = f"{good:,} of {counted(len(runs), 'run')} good"
    if is_failing:
        words = f"the last {min(3, len(runs))} failed; {words}"
    return Reliable(spark(runs, label=f"The last {counted(len(runs), 'run')}: {words}"), words, is_failing)


def capability_state(capability: Capability, asking: Iterable[BuildMessage]) -> tuple[State, str]:
    """The mark and the state of a capability, in a word or two; `asking` are the open questions of builds."""
    if status_in_a_word(capability, asking) == "waiting":
        return _STATES["proposed"]
    if capability.status == "active" and capability.reliability.failing_since is not None:
        return "warn", "Failing"
    return _STATES[capability.status]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    capability: Capability
    state: State
    state_words: str
    reliable: Reliable | None
    group: str


def _group(capability: Capability, asking: Iterable[BuildMessage]) -> str:
    if (
        asks_user(capability, asking)
        or capability.status in ("failed", "proposed")
        or capability.reliability.failing_since is not None
    ):
        return "attention"
    return {"building": "building", "disabled": "off"}.get(capability.status, "active")


async def _entry(service: Service, capability: Capability, asking: Sequence[BuildMessage]) -> _Entry:
    runs = await service.capabilities.catalogue.runs(capability.id, limit=_RUNS)
    state, words = capability_state(capability, asking)
    return _Entry(
        capability=capability,
        state=state,
        state_words=words,
        reliable=reliable(
            [run.status == "ok" for run in reversed(runs)],
            is_failing=capability.reliability.failing_since is not None,
        ),
        group=_group(capability, asking),
    )


@router.get("/capabilities")
async def capabilities(request: Request, service: Serves) -> Response:
    """All capabilities, those that need the user first."""
    return await _page(request, service, FieldReader.of(request))


async def _page(
    request: Request,
    service: Service,
    asked: FieldReader,
    *,
    name: str = "",
    description: str = "",
    problem: str = "",
) -> Response:
    parts = service.capabilities
    every, asking = await parts.catalogue.list(), await parts.builds.queue.open_questions()
    query, group = asked.text("q"), asked.one_of("show", _SHOWN)
    if query:
        found = await parts.lookup.search(
            query, limit=_MOST_FOUND, statuses=("active", "building", "proposed", "failed", "disabled")
        )
        chosen: Sequence[Capability] = [one.capability for one in found]
    else:
        order = {"attention": 0, "building": 1, "active": 2, "off": 3}
        chosen = sorted(every, key=lambda one: (order[_group(one, asking)], one.name))
    counts = Counter(_group(one, asking) for one in every)
    return await page(
        request,
        "capabilities.html",
        title="Capabilities",
        current="/capabilities",
        status=422 if problem else asked.status,
        asked=asked,
        query=query,
        group=group,
        entries=[
            await _entry(service, one, asking) for one in chosen if not group or _group(one, asking) == group
        ],
        every=len(every),
        counts=counts,
        questions={q.build_id: q.text for q in asking},
        others=await _others(service),
        limits=service.satchel.settings.builder,
        name=name,
        description=description,
        problem=problem,
    )


async def _others(service: Service) -> list[tuple[str, Sequence[ToolEntry]]]:
    """The tools that are not capabilities, by their source."""
    entries = [entry for entry in await service.satchel.tooling.entries() if entry.source != "capability"]
    names = {
        "skill": "Skills of others",
        "external": "Your executables",
        "plugin": "Plugins",
        "mcp": "MCP servers",
        "builtin": "Built in",
    }
    return [
        (words, found)
        for source, words in names.items()
        if (found := [entry for entry in entries if entry.source == source])
    ]


@router.post("/capabilities")
async def build(request: Request, service: Serves) -> Response:
    """Build a capability."""
    form = await form_of(request)
    name, description = form.get("name"), form.get("description")
    if not description:
        problem = "Describe what it should do."
    else:
        try:
            requested = await service.capabilities.builds.build(Wanted(name=name, description=description))
        except (UserError, Refused, ModelError) as error:
            problem = str(error)
        else:
            if requested.build_id:
                return see_other(request, f"/builds/{requested.build_id}")
            there = requested.capability
            say = Saying(
                text=f"{there.name} does that already; it is {there.status}."
                if requested.similar
                else f"{there.name} is there already, and is {there.status}.",
                state="off",
            )
            return see_other(request, f"/capabilities/{there.name}", say=say)
    return await _page(request, service, FieldReader({}), name=name, description=description, problem=problem)


# ---- A build


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """A message of a build, with the answer if it is a question that has one."""

    message: BuildMessage
    options: Sequence[str]
    is_open: bool
    is_consent: bool
    answer: str = ""


@router.get("/builds/{id}")
async def follow(request: Request, service: Serves, id: str) -> Response:
    """A build's messages, and its open questions."""
    builds = service.capabilities.builds
    build = await builds.queue.get(id)
    messages = await builds.queue.messages(id)
    await builds.queue.mark_read([one.number for one in messages if one.direction == "to_user"])
    answers = {str(one.payload.get("question_id")): one for one in messages if one.type == "answer"}
    said = [
        _Said(
            message=one,
            options=one.options,
            is_open=one.type == "question" and one.id not in answers and not build.has_ended,
            is_consent=is_consent(one.id),
            answer=_answer_words(answers.get(one.id)),
        )
        for one in messages
        # That it waits stands above, and the way to answer it below.
        if one.is_shown and one.payload.get("status") != "waiting"
    ]
    capability = await service.capabilities.catalogue.find(build.capability_id)
    return await page(
        request,
        "build.html",
        title=f"Building {build.name}",
        current="/capabilities",
        build=build,
        state=_build_state(build, said),
        said=said,
        asks=any(one.is_open for one in said),
        capability=capability,
        limits=service.satchel.settings.builder,
    )


def _answer_words(answer: BuildMessage | None) -> str:
    if answer is None:
        return ""
    return answer.text or "No answer: the Builder decides."


def _build_state(build: Build, said: Sequence[_Said]) -> tuple[State, str]:
    if any(one.is_open for one in said):
        return "asks", "Waits for your answer"
    found: dict[str, tuple[State, str]] = {
        "queued": ("waits", "Waits for its turn"),
        "running": ("running", "Building"),
        "waiting": ("asks", "Waits for your answer"),
        "active": ("done", "Built"),
        "proposed": ("asks", "Built; waits for your approval"),
        "failed": ("failed", "Failed"),
    }
    return found[build.status]


@router.post("/builds/{id}/answer")
async def answer(request: Request, service: Serves, id: str) -> Response:
    """Answer a question. The first answer is used, from any client."""
    form = await form_of(request)
    build = await service.capabilities.builds.queue.get(id)
    text: str | None = form.get("choice") or form.get("answer")
    if form.has("decline"):
        text = None
    elif not text:
        say = Saying(text="Write an answer, or let the Builder decide.", state="warn")
        return see_other(request, f"/builds/{build.id}", say=say)
    try:
        await service.capabilities.builds.answer(build.id, form.get("question"), text, by="the web page")
    except NotFound:
        raise
    except UserError as error:
        return see_other(request, f"/builds/{build.id}", say=Saying(text=str(error), state="warn"))
    return see_other(request, f"/builds/{build.id}")


@router.post("/builds/{id}/cancel")
async def cancel(request: Request, service: Serves, id: str) -> Response:
    """Stop a build. Nothing of it is registered."""
    build = await service.capabilities.builds.queue.get(id)
    try:
        await service.capabilities.builds.cancel(build.id)
    except NotFound:
        raise
    except UserError as error:
        return see_other(request, f"/builds/{build.id}", say=Saying(text=str(error), state="warn"))
    return see_other(request, f"/builds/{build.id}", say=Saying(text="The build was stopped."))
