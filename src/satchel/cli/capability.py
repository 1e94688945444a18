"""`satchel capability`: the tools that the agent made."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import click

from satchel.builder.records import BuildMessage
from satchel.capabilities import (
    Access,
    Capability,
    Registration,
    Version,
    Wanted,
    capability_to_json,
    outcome_to_json,
    run_to_json,
    sentences,
    version_to_json,
)
from satchel.capabilities.cases import CaseResult, result_to_json
from satchel.capabilities.files import as_typed
from satchel.capabilities.given import Given
from satchel.capabilities.moving import Review
from satchel.cli.commands import CapabilityName, Text, confirm, json_option
from satchel.cli.opening import opened
from satchel.cli.output import is_terminal, say, say_json, tell
from satchel.cli.settings import read_settings
from satchel.errors import NotFound, Refused, StorageError, UsageError
from satchel.runtime import Satchel
from satchel.runtime.capability_parts import CapabilityParts
from satchel.runtime.lines import saved_in_words
from satchel.runtime.options import chosen_option
from satchel.tui.terminal_text import one_line

__all__ = ["capability"]

T = TypeVar("T")

_STATUSES = ("building", "proposed", "active", "failed", "disabled")
_MOST_STDIN = 16_000_000
_CASE = '{"name": "Austin", "input": {"city": "Austin"}, "expect": {"contains": "Austin"}}'


def _with_capabilities(function: Callable[[CapabilityParts, Satchel], Awaitable[T]]) -> T:
    async def body() -> T:
        async with opened(read_settings(), with_notices=False) as satchel:
            if satchel.capabilities is None:
                notices = " ".join(notice.text for notice in satchel.notices)
                raise StorageError(f"Capabilities are unavailable. {notices}".rstrip())
            return await function(satchel.capabilities, satchel)

    return anyio.run(body)


@click.group()
def capability() -> None:
    """List, show, build, run, test, approve, export and import capabilities.

    A capability is a tool that the agent wrote and tested itself. It runs in a sandbox and reaches only what you
    approved.
    """


# ---- Looking


@capability.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only capabilities with this status.")
@json_option
def list_(status: Any, as_json: bool) -> None:
    """List all capabilities, with how their runs went."""

    async def look(parts: CapabilityParts, _: Satchel) -> tuple[Sequence[Capability], Sequence[BuildMessage]]:
        found = await parts.catalogue.list(*([status] if status else []))
        return found, await parts.builds.queue.open_questions()

    found, questions = _with_capabilities(look)
    if as_json:
        say_json([capability_to_json(each) for each in found])
        return
    for each in found:
        about = one_line(each.description, 80)
        say(f"{each.name:24} {each.status:9} {_version(each):4} {_record(each):24} {about}".rstrip())
        for reason in each.reasons:
            tell(f"  ! {one_line(reason, 200)}")
        _tell_questions(question for question in questions if question.name == each.name)
    if not found:
        tell(
            "There are no capabilities. Ask for one in a conversation, or: satchel capability build NAME DESCRIPTION"
        )


def _tell_questions(questions: Iterable[BuildMessage]) -> None:
    for asked in questions:
        tell(f"  ? It waits for your answer: {one_line(asked.text, 500)}")
        tell(f"    To answer: satchel capability answer {asked.name} TEXT")


def _version(each: Capability) -> str:
    return f"v{each.version}" if each.version else "-"


def _record(each: Capability) -> str:
    reliability = each.reliability
    if not reliability.runs:
        return "not run yet" if each.version else ""
    text = f"{reliability.runs} run{'s' if reliability.runs != 1 else ''}"
    if reliability.failures:
        text += f", {reliability.failures} failed"
    if reliability.median_ms is not None:
        text += f", {reliability.median_ms:,.0f} ms"
    return f"FAILING: {text}" if reliability.failing_since is not None else text


@capability.command()
@click.argument("name", type=CapabilityName)
@click.option("--version", "number", type=int, default=0, help="Another version than the active one.")
@click.option("--source", is_flag=True, help="Print main.py.")
@click.option(
    "--edits", is_flag=True, help="Print what was edited by hand since it was registered, as a diff."
)
@json_option
def show(name: str, number: int, source: bool, edits: bool, as_json: bool) -> None:
    """Show a capability, what it may reach, and its newest runs."""
    questions: list[BuildMessage] = []

    async def look(parts: CapabilityParts, _: Satchel) -> dict[str, Any]:
        catalogue = parts.catalogue
        found = await catalogue.get(name)
        shown: dict[str, Any] = {
            **capability_to_json(found),
            "may": list(sentences(found.access, name=found.name)),
            "saved": await parts.builds.saved(found),
        }
        shown["versions"] = [version_to_json(version) for version in await catalogue.versions(found.id)]
        shown["runs"] = [run_to_json(run) for run in await catalogue.runs(found.id, limit=5)]
        builds = await parts.builds.queue.of_capability(found.id)
        questions.extend(q for q in await parts.builds.queue.open_questions() if q.name == found.name)
        shown["questions"] = [question.text for question in questions]
        shown["builds"] = [build.session_id for build in builds if build.attempts]
        chosen = number or found.version or len(shown["versions"])
        if chosen:
            package = await catalogue.registered(found.id, chosen)
            shown["edited"] = list(await catalogue.edited(found.id, chosen))
            shown["document"] = package.document
            shown["files"] = sorted(package.files)
            shown["source"] = package.files["main.py"].decode("utf-8", "replace")
            shown["edits"] = await catalogue.difference(found.id, chosen, None) if shown["edited"] else ""
        return shown

    shown = _with_capabilities(look)
    if as_json:
        say_json(shown)
        return
    if source or edits:
        say(str(shown.get("source" if source else "edits", "")).rstrip("\n"))
        return
    say(f"{shown['name']}  {shown['status']}, version {shown['version'] or '-'}\n{shown['description']}")
    for sentence in shown["may"] or [f"{shown['name']} reaches nothing but its input."]:
        say(f"  - {sentence}")
    if shown["saved"] and (saved := saved_in_words(**shown["saved"])):
        say(f"Saved so far, about: {saved}")
    for reason in shown["reasons"]:
        tell(f"! {reason}")
    _tell_questions(questions)
    if shown["status"] == "failed" and shown["builds"]:
        _tell_story(shown["builds"][-1])
    if shown.get("edited"):
        tell(
            f"! Edited by hand: {', '.join(shown['edited'])}. To check and keep that: satchel capability test {name}"
        )
    if "document" in shown:
        say(f"\n{shown['document'].rstrip()}")
    for run in shown["runs"]:
        error = one_line(run["error"], 80)
        say(f"{run['started_at'][:19]}  {run['status']:8} {run['wall_ms']:8,.0f} ms  {error}".rstrip())


@capability.command()
@click.argument("name", type=CapabilityName)
@click.option("--diff", type=(int, int), metavar="OLD NEW", help="Print the difference between two versions.")
@json_option
def versions(name: str, diff: tuple[int, int] | None, as_json: bool) -> None:
    """List the versions of a capability, or compare two."""

    async def look(parts: CapabilityParts, _: Satchel) -> tuple[Capability, Sequence[Version], str]:
        found = await parts.catalogue.get(name)
        text = await parts.catalogue.difference(found.id, *diff) if diff else ""
        return found, await parts.catalogue.versions(found.id), text

    found, all_versions, text = _with_capabilities(look)
    if diff:
        say_json({"diff": text}) if as_json else say(text.rstrip("\n"))
        return
    if as_json:
        say_json([{**version_to_json(v), "active": v.number == found.version} for v in all_versions])
        return
    for version in all_versions:
        mark = "*" if version.number == found.version else " "
        passed = sum(check["passed"] is True for check in version.checks)
        say(
            f"{mark} v{version.number:<4} {version.status:9} {version.created_at:%Y-%m-%d %H:%M}  "
            f"{version.provenance.made_by:8} {passed}/{len(version.checks)} cases"
        )
        for reason in version.reasons:
            tell(f"    ! {one_line(reason, 200)}")
    if not all_versions:
        tell(f"{found.name} has no version yet.")


# ---- Running


@capability.command()
@click.argument("name", type=CapabilityName)
@click.argument("input", type=Text, default="{}")
@click.option("--out", type=click.Path(path_type=Path), help="A folder for the files that it makes.")
@json_option
def run(name: str, input: str, out: Path | None, as_json: bool) -> int:
    """Run a capability with JSON, and print its result.

    INPUT is a JSON object; "-" reads it from stdin. The exit code is 0 if there is a result, 1 if it failed, 3 if there
    is no such capability, and 4 if it may not run or there is no sandbox.
    """
    given = _object(sys.stdin.read(_MOST_STDIN) if input == "-" else input)
    outcome = _with_capabilities(lambda parts, _: parts.runner.run(name, given, read_file=as_typed))
    for artifact in outcome.artifacts if out is not None else ():
        path = _below(out or Path(), artifact.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(artifact.content)
        tell(f"Written: {path}")
    if as_json:
        say_json(outcome_to_json(outcome))
        return 0 if outcome.ok else 1
    if outcome.stdout:
        tell(outcome.stdout.rstrip("\n"))
    if outcome.stderr:
        tell(outcome.stderr.rstrip("\n"))
    if outcome.artifacts and out is None:
        made = len(outcome.artifacts)
        tell(
            f"It made {made} file{'s' if made != 1 else ''}; --out FOLDER keeps {'them' if made != 1 else 'it'}."
        )
    if outcome.ok:
        say(outcome.result or "")
        return 0
    if outcome.traceback and outcome.status != "bad_input":
        tell(outcome.traceback.rstrip("\n"))
    tell(f"{outcome.capability}: {outcome.status}: {outcome.error}")
    for denial in outcome.denied:
        tell(f"! The sandbox refused {denial.target}: {denial.reason}")
    if outcome.failing:
        tell(
            f"! It has failed three times in a row. To have it repaired: satchel capability repair {outcome.capability}"
        )
    return 1


def _below(folder: Path, path: str) -> Path:
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return folder.joinpath(*parts)


@capability.command()
@click.argument("name", type=CapabilityName)
@click.option("--version", "number", type=int, default=0, help="Another version than the active one.")
@json_option
def test(name: str, number: int, as_json: bool) -> int:
    """Run a version's cases in the sandbox. What you edited by hand becomes a new version if they pass."""
    tested = _with_capabilities(lambda parts, _: parts.registrar.test(name, number=number))
    if as_json:
        say_json(
            {
                "version": tested.number,
                "passed": tested.passed,
                "adopted": tested.adopted,
                "checks": [result_to_json(check) for check in tested.checks],
            }
        )
        return 0 if tested.passed else 1
    _say_checks(tested.checks)
    if tested.adopted:
        tell(f"Your edits are version {tested.adopted} now.")
        if tested.capability.version != tested.adopted:
            tell(
                f"It wants to reach more. To allow that: satchel capability approve {tested.capability.name}"
            )
    return 0 if tested.passed else 1


def _say_checks(checks: Sequence[CaseResult]) -> None:
    for check in checks:
        mark = {True: "passed", False: "FAILED", None: "left out"}[check.passed]
        say(f"{mark:8} {check.name}  ({check.wall_ms:,.0f} ms)")
        if check.reason:
            say(f"         {one_line(check.reason, 400)}")


# ---- Building


@capability.command()
@click.argument("name", type=CapabilityName)
@click.argument("description", type=Text)
@click.option(
    "--schema", type=Text, default="{}", help="JSON Schema of its input; the Builder decides without it."
)
@click.option("--no-wait", is_flag=True, help="Return while it is being built.")
@json_option
def build(name: str, description: str, schema: str, no_wait: bool, as_json: bool) -> int:
    """Have a capability built, and show the progress.

    NAME is in lowercase with underscores; DESCRIPTION says what it shall do.
    """
    wanted = Wanted(name=name, description=description, input_schema=_object(schema))

    async def ask(parts: CapabilityParts, _: Satchel) -> dict[str, Any]:
        requested = await parts.builds.build(wanted)
        if not requested.build_id:
            tell(f"{requested.capability.name} is there already, and is {requested.capability.status}.")
        elif not no_wait:
            await _follow(parts, requested.build_id)
        now = await parts.catalogue.get(requested.capability.id)
        return {**capability_to_json(now), "build_id": requested.build_id}

    return _say_built(_with_capabilities(ask), as_json=as_json)


@capability.command()
@click.argument("name", type=CapabilityName)
@click.option("--wish", type=Text, default="", help="What shall be different.")
@click.option(
    "--input", "given", type=Text, help="An input with which it fails; default: that of the last failed run."
)
@click.option("--no-wait", is_flag=True, help="Return while it is being built.")
@json_option
def repair(name: str, wish: str, given: str | None, no_wait: bool, as_json: bool) -> int:
    """Have a new version built, from the last failure or from a wish. The present version stays as it is."""

    async def ask(parts: CapabilityParts, _: Satchel) -> dict[str, Any]:
        failing = None if given is None else _object(given)
        requested = await parts.builds.repair(name, wish=wish, failing_input=failing)
        if not no_wait:
            await _follow(parts, requested.build_id)
        now = await parts.catalogue.get(requested.capability.id)
        return {**capability_to_json(now), "build_id": requested.build_id}

    return _say_built(_with_capabilities(ask), as_json=as_json)


@capability.command()
@click.argument("name", type=Text, metavar="NAME|BUILD_ID")
@json_option
def cancel(name: str, as_json: bool) -> None:
    """Stop a build. Nothing of it is registered; a version that is in use stays in use."""
    stopped = _with_capabilities(lambda parts, _: parts.builds.cancel(name))
    if as_json:
        say_json(capability_to_json(stopped))
    else:
        tell(f"The build of {stopped.name} is cancelled.")


@capability.command()
@click.argument("name", type=CapabilityName)
@click.argument("text", type=Text)
def answer(name: str, text: str) -> None:
    """Answer what the build of a capability asks; TEXT may be the number of an option."""

    async def give(parts: CapabilityParts, _: Satchel) -> BuildMessage:
        asked = await parts.builds.question_of(name)
        if asked is None:
            raise NotFound(f"The build of {name} asks nothing now.")
        words = chosen_option(text, asked.options)
        await parts.builds.answer(asked.build_id, asked.id, words, by="satchel capability answer")
        return asked

    asked = _with_capabilities(give)
    tell(f"The Builder of {asked.name} has your answer to: {one_line(asked.text, 500)}")


def _tell_story(session_id: str) -> None:
    tell(f"What the Builder did: satchel session show {session_id}")


def _say_built(shown: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        say_json(shown)
    else:
        say(f"{shown['name']}  {shown['status']}, version {shown['version'] or '-'}")
        if shown["status"] == "proposed":
            tell(f"It waits for your approval: satchel capability approve {shown['name']}")
        elif shown["build_id"] and (shown["status"] == "failed" or shown["reasons"]):
            _tell_story(f"build-{shown['build_id']}")
    return 1 if shown["status"] == "failed" or shown["reasons"] else 0


def _answer(prompt: str) -> str:
    return str(click.prompt(prompt, default="", show_default=False, err=True))


async def _follow(parts: CapabilityParts, build_id: str) -> None:
    """Show what a build says, and answer its questions on a terminal; without one, leave where it waits for that."""
    async for message in parts.builds.follow(build_id):
        if message.direction != "to_user":
            continue
        tell(f"{message.type}: {message.text}")
        can_answer = is_terminal(sys.stdin)
        is_aside = message.payload.get("status") == "waiting"
        if is_aside and not can_answer and (await parts.builds.queue.get(build_id)).status == "waiting":
            return
        if message.type == "question" and can_answer and await parts.builds.queue.is_open(message):
            options = message.options
            prompt = f"Your answer ({', '.join(options)})" if options else "Your answer"
            text = await anyio.to_thread.run_sync(_answer, prompt, abandon_on_cancel=True)
            await parts.builds.answer(
                build_id, message.id, chosen_option(text, options) or None, by="terminal"
            )


# ---- Deciding


@capability.command()
@click.argument("name", type=CapabilityName)
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def approve(name: str, yes: bool, as_json: bool) -> int:
    """Allow what a capability wants to reach, and activate it.

    Its cases run first; it becomes active if they pass.
    """

    async def take(parts: CapabilityParts, _: Satchel) -> Registration:
        number, access = await parts.registrar.to_approve(name)
        found = await parts.catalogue.get(name)
        _show_wishes(found.name, access, f"Version {number} of {found.name} waits for your approval.")
        _confirm(yes, f"satchel capability approve {found.name}")
        return await parts.registrar.approve(name)

    return _say_registered(_with_capabilities(take), as_json=as_json)


def _show_wishes(name: str, access: Access, head: str) -> None:
    tell(head)
    for sentence in sentences(access, name=name) or (f"{name} reaches nothing but its input.",):
        tell(f"  - {sentence}")


def _confirm(yes: bool, command: str) -> None:
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise Refused(
            f"This needs your approval, and there is no terminal to ask on. To approve it: {command} --yes"
        )
    confirm("Do you allow that?")


def _say_registered(registration: Registration, *, as_json: bool) -> int:
    entry = registration.capability
    failed = any(check.passed is False for check in registration.checks)
    if as_json:
        say_json(
            {
                **capability_to_json(entry),
                "registered": registration.number,
                "active": registration.is_active,
                "checks": [result_to_json(check) for check in registration.checks],
            }
        )
        return 1 if failed else 0
    _say_checks(registration.checks)
    if failed:
        tell(f"Version {registration.number} of {entry.name} is not used, because a case failed.")
    elif registration.is_active:
        say(f"{entry.name}  active, version {entry.version}")
    elif registration.to_approve or entry.status == "proposed":
        tell(f"It waits for your approval: satchel capability approve {entry.name}")
    else:
        number = registration.number
        tell(f"Version {number} is ready. To use it: satchel capability activate {entry.name} {number}")
    return 1 if failed else 0


@capability.command()
@click.argument("name", type=CapabilityName)
@click.argument("number", type=int)
@json_option
def activate(name: str, number: int, as_json: bool) -> None:
    """Use another version from now on."""
    _say_entry(_with_capabilities(lambda parts, _: parts.catalogue.activate(name, number)), as_json=as_json)


@capability.command()
@click.argument("name", type=CapabilityName)
@json_option
def rollback(name: str, as_json: bool) -> None:
    """Go back to the version before the active one."""
    _say_entry(_with_capabilities(lambda parts, _: parts.catalogue.rollback(name)), as_json=as_json)


@capability.command()
@click.argument("name", type=CapabilityName)
@json_option
def disable(name: str, as_json: bool) -> None:
    """Keep a capability, and don't use it."""
    _say_entry(_with_capabilities(lambda parts, _: parts.catalogue.disable(name)), as_json=as_json)


@capability.command()
@click.argument("name", type=CapabilityName)
@json_option
def enable(name: str, as_json: bool) -> None:
    """Use a disabled capability again."""
    _say_entry(_with_capabilities(lambda parts, _: parts.catalogue.enable(name)), as_json=as_json)


@capability.command()
@click.argument("name", type=CapabilityName)
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def remove(name: str, yes: bool, as_json: bool) -> None:
    """Delete a capability with all its versions, files and records."""

    async def take(parts: CapabilityParts, _: Satchel) -> Capability:
        found = await parts.catalogue.get(name)
        tell(f"{found.name}: {one_line(found.description, 100)}  {found.path}")
        _confirm(yes, f"satchel capability remove {found.name}")
        return await parts.catalogue.remove(found.id)

    removed = _with_capabilities(take)
    if as_json:
        say_json({"removed": removed.name, "id": removed.id})
    else:
        tell(f"{removed.name} was removed.")


def _say_entry(entry: Capability, *, as_json: bool) -> None:
    if as_json:
        say_json(capability_to_json(entry))
    else:
        say(f"{entry.name}  {entry.status}, version {entry.version}")


# ---- Moving


@capability.command()
@click.argument("name", type=CapabilityName)
@click.argument("target", type=click.Path(path_type=Path), default=Path())
@click.option("--version", "number", type=int, default=0, help="Another version than the active one.")
@json_option
def export(name: str, target: Path, number: int, as_json: bool) -> None:
    """Write a capability as an Agent Skill.

    It becomes a folder in TARGET, or an archive if TARGET ends in .zip.
    """
    place = target.expanduser()
    written = _with_capabilities(lambda parts, _: parts.mover.export(name, place, number=number))
    if as_json:
        say_json({"path": str(written)})
    else:
        say(str(written))


@capability.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Approve what it may reach without asking.")
@click.option("--activate", is_flag=True, help="Use it even if another version is active.")
@json_option
def import_(source: Path, yes: bool, activate: bool, as_json: bool) -> int:
    """Import an exported capability, after a review.

    SOURCE is a folder or a zip archive. What it contains and may reach is shown, and nothing of it runs before you
    approve it; then its cases run in the sandbox and decide whether it is used. Without a
    terminal and without --yes it is stored and waits for your approval.

    A folder that has main.py with run(args) and is no capability yet becomes one: the Builder writes cases, description
    and schema around main.py, which stays as it is, and tests it. That needs a language model and your approval.
    """
    place = source.expanduser()

    async def take(parts: CapabilityParts, _: Satchel) -> Registration | dict[str, Any]:
        given = await parts.mover.given(place)
        if given is not None and given.missing:
            return await _adopt(parts, given, place, yes=yes)
        review = await parts.mover.review(place)
        _show_review(review)
        approved = yes
        if not yes and is_terminal(sys.stdin):
            confirm("Have you read the files, and do you allow that?")
            approved = True
        return await parts.mover.take_in(review, approve=approved, activate=activate)

    taken = _with_capabilities(take)
    if isinstance(taken, dict):
        return _say_built(taken, as_json=as_json)
    return _say_registered(taken, as_json=as_json)


async def _adopt(parts: CapabilityParts, given: Given, place: Path, *, yes: bool) -> dict[str, Any]:
    lacks = f"{place} is no capability yet: it has no {', no '.join(given.missing)}."
    try:
        await parts.builds.require_model()
    except UsageError as error:
        raise UsageError(
            f"{lacks} The Builder can write that. {error} Or write it yourself and import the folder again: "
            f"tests/cases.jsonl has a line for each case, such as {_CASE}."
        ) from None
    _show_files(given.name, given.wanted.description, given.files)
    tell(f"{lacks} The Builder writes that around main.py, and runs it in its sandbox.")
    _confirm(yes, f"satchel capability import {place}")
    requested = await parts.builds.adopt(given, source=str(place))
    await _follow(parts, requested.build_id)
    now = await parts.catalogue.get(requested.capability.id)
    return {**capability_to_json(now), "build_id": requested.build_id}


def _show_files(name: str, description: str, files: Mapping[str, bytes]) -> None:
    tell(f"{name}: {one_line(description, 200)}")
    for path, content in sorted(files.items()):
        tell(f"  {len(content):9,}  {path}")
    for line in files["main.py"].decode("utf-8", "replace").splitlines():
        tell(f"  | {line}")


def _show_review(review: Review) -> None:
    manifest = review.package.manifest
    _show_files(manifest.name, manifest.description, review.package.files)
    if manifest.requirements:
        tell(f"  Packages: {', '.join(manifest.requirements)}")
    for sentence in review.sentences:
        tell(f"  - {sentence}")
    for note in review.notes:
        tell(f"  ! {note}")
    if review.replaces is not None:
        tell(f"  It becomes a new version of {review.replaces.name}, which is {review.replaces.status}.")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError('The input is a JSON object, such as \'{"city": "Austin"}\'.')
    return value
