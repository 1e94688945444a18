"""`/capabilities/{name}`: one capability and its access; run it, test it, approve it, change its version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Request
from starlette.responses import RedirectResponse, Response

from satchel.capabilities import Access, Capability, Outcome, Tested, Version, sentences
from satchel.capabilities.cases import Case, CaseResult, checks_in_words, expectations, result_to_json
from satchel.capabilities.package import Package
from satchel.errors import ModelError, NotFound, Refused, SandboxError, StorageError, UsageError, UserError
from satchel.runtime.lines import asks_user, counted, saved_in_words
from satchel.server.pages.capabilities import capability_state, reliable
from satchel.server.pages.kept import RunShown, kept_of
from satchel.server.pages.queries import FieldReader
from satchel.server.pages.rendering import Form, Saying, form_of
from satchel.server.pages.schema_form import Field, fields_of, filled, parse_json, place_problems, read_fields
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service
from satchel.tools.input_schema import InputSchema

router = APIRouter(include_in_schema=False)

Name = Annotated[str, Path(max_length=200)]

_RUNS: Final = 30
_RUNS_LISTED: Final = 10
_MOST_TEXT: Final = 60_000
"""Characters of a file, a difference or a result that a page shows."""
_MOST_CASES: Final = 100


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    text: str
    lines: int
    is_text: bool
    is_cut: bool
    is_edited: bool


@dataclass(frozen=True, slots=True)
class _Case:
    """A case: its input, and its result when the version was checked."""

    name: str
    given: Sequence[tuple[str, str]]
    expected: Sequence[str]
    passed: bool | None
    reason: str
    has_run: bool


@dataclass(frozen=True, slots=True)
class ShownOutcome:
    """The result of a run: JSON in its own layout, or text."""

    outcome: Outcome
    text: str
    is_json: bool
    is_cut: bool


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a difference; "place" gives the position of the next lines in the file."""

    kind: Literal["added", "removed", "place", ""]
    mark: str
    text: str


@router.get("/capabilities/{name}")
async def show(request: Request, service: Serves, name: Name) -> Response:
    """One capability."""
    asked = FieldReader.of(request)
    capability = await service.capabilities.catalogue.get(name)
    kept = kept_of(request)
    ran = kept.runs.get(asked.text("run"))
    if ran is not None and ran.capability_id != capability.id:
        ran = None
    tested = kept.tests.get(asked.text("test"))
    if tested is not None and tested.capability.id != capability.id:
        tested = None
    fields = fields_of(capability.input_schema)
    return await _page(
        request,
        service,
        capability,
        asked=asked,
        fields=filled(fields, ran.input) if ran is not None else fields,
        raw=json.dumps(ran.input, ensure_ascii=False, indent=2) if ran is not None else "",
        ran=ran,
        tested=tested,
    )


async def _page(
    request: Request,
    service: Service,
    capability: Capability,
    *,
    asked: FieldReader,
    fields: Sequence[Field],
    raw: str = "",
    raw_problem: str = "",
    problems: Sequence[str] = (),
    ran: RunShown | None = None,
    tested: Tested | None = None,
) -> Response:
    catalogue = service.capabilities.catalogue
    versions = await catalogue.versions(capability.id)
    newest = versions[-1].number if versions else 0
    number = asked.number("version", capability.version or newest, low=0, high=1_000_000)
    chosen = next((one for one in versions if one.number == number), None)
    if number and chosen is None:
        raise NotFound(f"{capability.name} has no version {number}.")
    package = await catalogue.registered(capability.id, number) if number else None
    edited = await _edited(service, capability, number)
    runs = await catalogue.runs(capability.id, limit=_RUNS)
    waiting = await _waiting(service, capability)
    compared = await _compared(service, capability, asked)
    builds = await service.capabilities.builds.queue.of_capability(capability.id)
    saved = await service.capabilities.builds.saved(capability)
    asking = await service.capabilities.builds.queue.open_questions()
    state, state_words = capability_state(capability, asking)
    invalid = bool(problems or raw_problem or any(_has_problem(field) for field in fields))
    return await page(
        request,
        "capability.html",
        title=capability.name,
        current="/capabilities",
        status=422 if invalid else asked.status,
        capability=capability,
        state=state,
        state_words=state_words,
        asks=asks_user(capability, asking),
        asked=asked,
        fields=fields,
        raw=raw,
        raw_problem=raw_problem,
        problems=problems,
        ran=ran,
        result=_result(ran.outcome) if ran is not None else None,
        number=number,
        chosen=chosen,
        versions=versions[::-1],
        files=_files(package, edited) if package is not None else (),
        edited=edited,
        cases=_cases(package, chosen, tested) if package is not None and chosen is not None else (),
        tested=tested,
        reliable=reliable(
            [run.status in ("ok", "cancelled") for run in reversed(runs)],
            is_failing=capability.reliability.failing_since is not None,
        ),
        runs=runs[:_RUNS_LISTED],
        as_json=lambda value: json.dumps(value, ensure_ascii=False, indent=2)[:_MOST_TEXT],
        may=sentences(capability.access),
        saved=saved_in_words(**saved) if saved else "",
        waiting=waiting,
        compared=compared,
        builds=builds[::-1],
    )


def _has_problem(field: Field) -> bool:
    return bool(field.problem) or any(map(_has_problem, field.fields))


async def _edited(service: Service, capability: Capability, number: int) -> tuple[str, ...]:
    if not number:
        return ()
    try:
        return await service.capabilities.catalogue.edited(capability.id, number)
    except (
        StorageError
    ) as error:  # the folder is missing or can't be read; the rest of the page doesn't need it
        return (str(error),)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The version that waits for approval, and the access that it wants, in sentences."""

    number: int
    may: Sequence[str]


async def _waiting(service: Service, capability: Capability) -> _Waiting | None:
    try:
        number, access = await service.capabilities.registrar.to_approve(capability.name)
    except NotFound:
        return None
    return _Waiting(number, sentences(access) or _nothing(access))


def _nothing(access: Access) -> tuple[str, ...]:
    return () if access else ("It has access to nothing but its input.",)


def _files(package: Package, edited: Sequence[str]) -> list[_File]:
    first = ("SKILL.md", "main.py")
    found = []
    for path in sorted(package.files, key=lambda path: (path not in first, path)):
        content = package.files[path]
        is_text = b"\0" not in content
        text = content.decode("utf-8", "replace") if is_text else ""
        found.append(
            _File(
                path, text[:_MOST_TEXT], text.count("\n") + 1, is_text, len(text) > _MOST_TEXT, path in edited
            )
        )
    return found


def _cases(package: Package, version: Version, tested: Tested | None) -> list[_Case]:
    checks = version.checks
    if tested is not None and version.number in (tested.number, tested.adopted):
        checks = tuple(result_to_json(check) for check in tested.checks)
    by_name = {str(check.get("name")): check for check in checks}
    return [_case(case, by_name.get(case.name)) for case in package.cases[:_MOST_CASES]]


def _case(case: Case, check: Mapping[str, Any] | None) -> _Case:
    return _Case(
        name=case.name,
        given=[(name.replace("_", " "), _in_words(value)) for name, value in case.input.items()],
        expected=expectations(case),
        passed=None if check is None else check.get("passed"),
        reason="" if check is None else str(check.get("reason") or ""),
        has_run=check is not None,
    )


def _in_words(value: Any) -> str:
    """A value of an input as a person writes it."""
    match value:
        case str():
            return value or "empty"
        case bool():
            return "yes" if value else "no"
        case list():
            is_flat = not any(isinstance(one, list | dict) for one in value)
            return (", " if is_flat else "; ").join(map(_in_words, value)) or "empty"
        case dict():
            return ", ".join(f"{name.replace('_', ' ')}: {_in_words(one)}" for name, one in value.items())
        case _:
            return "nothing" if value is None else json.dumps(value)


async def _compared(
    service: Service, capability: Capability, asked: FieldReader
) -> tuple[str, list[_Line]] | None:
    """The requested difference, with its heading."""
    if not asked.text("from"):
        return None
    before = asked.number("from", 0, low=1, high=1_000_000)
    to = asked.text("to")
    after = None if to == "edited" else asked.number("to", capability.version, low=1, high=1_000_000)
    if asked.problems:
        return None
    text = await service.capabilities.catalogue.difference(capability.id, before, after)
    title = f"From v{before} to {'your edits' if after is None else f'v{after}'}"
    return title, [_line(line) for line in text[:_MOST_TEXT].splitlines()]


def _line(line: str) -> _Line:
    if line.startswith(("---", "+++", "@@")):
        return _Line("place", "", line)
    if line[:1] in ("+", "-"):
        return _Line("added" if line[0] == "+" else "removed", line[0], line[1:])
    return _Line("", " ", line[1:] if line[:1] == " " else line)


# ---- Running it


@router.post("/capabilities/{name}/run")
async def run(request: Request, service: Serves, name: Name) -> Response:
    """Run it with the fields of the form, or with JSON. Problems are shown at their fields, and nothing runs."""
    form = await form_of(request)
    capability = await service.capabilities.catalogue.get(name)
    input, fields, raw, raw_problem = _input(form, fields_of(capability.input_schema))
    problems: tuple[str, ...] = ()
    if input is not None:
        fields, problems = place_problems(fields, InputSchema(capability.input_schema).problems(input))
        if form.get("as") == "json" and any(map(_has_problem, fields)):
            # With JSON as the input, the fields are not shown.
            raw_problem = " ".join(InputSchema(capability.input_schema).problems(input))
            problems = ()
    if input is None or problems or raw_problem or any(map(_has_problem, fields)):
        return await _page(
            request,
            service,
            capability,
            asked=FieldReader({}),
            fields=fields,
            raw=raw,
            raw_problem=raw_problem,
            problems=problems,
        )
    try:
        outcome = await service.capabilities.runner.run(capability.id, input)
    except (Refused, UsageError, SandboxError) as error:
        return see_other(request, _at(capability), say=Saying(text=str(error), state="failed"))
    kept = kept_of(request).runs.keep(
        RunShown(capability_id=capability.id, input=input, outcome=outcome, at=service.satchel.clock.now())
    )
    return see_other(request, f"{_at(capability)}?run={kept}#result")


@router.get("/capabilities/{name}/run")
async def run_page(service: Serves, name: Name) -> Response:
    """Redirects a browser that opens the address of a form again."""
    return RedirectResponse(_at(await service.capabilities.catalogue.get(name)), 303)


def _input(form: Form, fields: Sequence[Field]) -> tuple[dict[str, Any] | None, Sequence[Field], str, str]:
    """The input, or None if it can't be read; the fields as filled in; the JSON that was typed, and its problem."""
    if form.get("as") == "json":
        raw = form.get("json")
        try:
            value = parse_json(raw or "{}")
        except ValueError as error:
            return None, fields, raw, f"This is not JSON: {error}."
        if not isinstance(value, dict):
            return None, fields, raw, 'The input is a JSON object, such as {"city": "Austin"}.'
        return value, filled(fields, value), raw, ""
    values: dict[str, list[str]] = {}
    for name, text in form.items:
        values.setdefault(name, []).append(text)
    read = read_fields(fields, values)
    return (read.input if read.is_readable else None), read.fields, "", ""


def _result(outcome: Outcome) -> ShownOutcome:
    """A result in a readable layout. It is untrusted, so it is only ever shown as text."""
    text = outcome.result or ""
    is_json = False
    if text[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            text, is_json = json.dumps(json.loads(text), ensure_ascii=False, indent=2), True
    return ShownOutcome(outcome, text[:_MOST_TEXT], is_json, len(text) > _MOST_TEXT)


def _at(capability: Capability) -> str:
    return f"/capabilities/{capability.name}"


@router.get("/capabilities/{name}/runs/{kept}/{number}")
async def made_file(request: Request, service: Serves, name: Name, kept: str, number: int) -> Response:
    """A file that a run made, as a download: its content is untrusted, so the browser must not display it."""
    capability = await service.capabilities.catalogue.get(name)
    ran = kept_of(request).runs.get(kept)
    if ran is None or ran.capability_id != capability.id or not 0 <= number < len(ran.outcome.artifacts):
        raise NotFound("This file is no longer kept. Run the capability again.")
    made = ran.outcome.artifacts[number]
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(made.path.rpartition('/')[2], safe='')}",
        "content-security-policy": "sandbox",
    }
    return Response(made.content, media_type="application/octet-stream", headers=headers)


# ---- Changing it


@router.post("/capabilities/{name}/test")
async def test(request: Request, service: Serves, name: Name) -> Response:
    """Run the cases of a version, with the current files of its folder."""
    form = await form_of(request)
    capability = await service.capabilities.catalogue.get(name)
    number = FieldReader({"version": form.get("version")}).number("version", 0, low=0, high=1_000_000)
    try:
        tested = await service.capabilities.registrar.test(capability.name, number=number)
    except (UsageError, Refused, SandboxError) as error:
        return see_other(request, _at(capability), say=Saying(text=str(error), state="failed"))
    kept = kept_of(request).tests.keep(tested)
    number = tested.adopted or tested.number
    return see_other(
        request, f"{_at(capability)}?test={kept}&version={number}#cases", say=_tested_words(tested)
    )


def _tested_words(tested: Tested) -> Saying:
    failed = _failed(tested.checks)
    if failed:
        text = f"{counted(failed, 'case')} of {len(tested.checks):,} failed with v{tested.number}."
        return Saying(text=text, state="failed")
    text = f"{checks_in_words(tested.checks)}."
    if tested.adopted:
        text += f" Your edits are v{tested.adopted} now."
    return Saying(text=text)


def _failed(checks: Sequence[CaseResult]) -> int:
    return sum(check.passed is False for check in checks)


@router.post("/capabilities/{name}/approve")
async def approve(request: Request, service: Serves, name: Name) -> Response:
    """Allow the access that the shown version wants."""
    form = await form_of(request)
    capability = await service.capabilities.catalogue.get(name)
    registrar = service.capabilities.registrar
    number, _ = await registrar.to_approve(capability.name)
    if form.get("version") != str(number):
        text = f"Version {number} is waiting for approval now, not the one that was shown. Look at it first."
        return see_other(request, _at(capability), say=Saying(text=text, state="warn"))
    try:
        done = await registrar.approve(capability.name)
    except SandboxError as error:
        return see_other(request, _at(capability), say=Saying(text=str(error), state="failed"))
    if done.is_active:
        say = Saying(text=f"Approved. v{done.number} is in use: {checks_in_words(done.checks)}.")
    else:
        say = Saying(
            text=f"Approved, and {counted(_failed(done.checks), 'case')} failed: v{done.number} is not used.",
            state="failed",
        )
    return see_other(request, _at(capability), say=say)


@router.post("/capabilities/{name}/repair")
async def repair(request: Request, service: Serves, name: Name) -> Response:
    """Build a new version; the current one stays in use meanwhile."""
    form = await form_of(request)
    capability = await service.capabilities.catalogue.get(name)
    try:
        requested = await service.capabilities.builds.repair(capability.id, wish=form.get("wish"))
    except (UserError, Refused, ModelError) as error:
        return see_other(request, _at(capability), say=Saying(text=str(error), state="warn"))
    return see_other(request, f"/builds/{requested.build_id}")


@router.get("/capabilities/{name}/remove")
async def before_removing(request: Request, service: Serves, name: Name) -> Response:
    """A preview of what would be removed."""
    capability = await service.capabilities.catalogue.get(name)
    versions = await service.capabilities.catalogue.versions(capability.id)
    return await page(
        request,
        "capability-remove.html",
        title=f"Remove {capability.name}",
        current="/capabilities",
        capability=capability,
        versions=versions,
    )


@router.post("/capabilities/{name}/remove")
async def remove(request: Request, service: Serves, name: Name) -> Response:
    """Delete it with all its versions, files and records."""
    capability = await service.capabilities.catalogue.get(name)
    try:
        await service.capabilities.catalogue.remove(capability.id)
    except (UsageError, Refused) as error:
        return see_other(request, _at(capability), say=Saying(text=str(error), state="warn"))
    return see_other(request, "/capabilities", say=Saying(text=f"{capability.name} is removed for good."))


_Change = Literal["disable", "enable", "rollback", "activate"]


@router.post("/capabilities/{name}/{change}")
async def change(request: Request, service: Serves, name: Name, change: _Change) -> Response:
    """Disable or enable it, or use another version."""
    form = await form_of(request)
    catalogue = service.capabilities.catalogue
    capability = await catalogue.get(name)
    try:
        match change:
            case "disable":
                await catalogue.disable(capability.id)
                say = Saying(text="Switched off.", action=f"{_at(capability)}/enable")
            case "enable":
                await catalogue.enable(capability.id)
                say = Saying(text="Switched on.", action=f"{_at(capability)}/disable")
            case "rollback":
                after = await catalogue.rollback(capability.id)
                say = _in_use(capability, after)
            case _:
                number = FieldReader({"version": form.get("version")}).number(
                    "version", 0, low=0, high=1_000_000
                )
                after = await catalogue.activate(capability.id, number)
                say = _in_use(capability, after)
    except (UserError, Refused) as error:
        say = Saying(text=str(error), state="warn")
    return see_other(request, _at(capability), say=say)


def _in_use(before: Capability, after: Capability) -> Saying:
    text = f"v{after.version} is in use."
    if not before.version or before.version == after.version:
        return Saying(text=text)
    return Saying(
        text=text, action=f"{_at(after)}/activate", fields={"version": str(before.version)}, label="Undo"
    )
