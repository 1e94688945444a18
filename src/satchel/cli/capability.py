"""`satchel capability`: the tools that the agent made."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import click

from satchel.builder.records import BuildMessage
from satchel.capabilities import (
    Capability,
    Registration,
    Wanted,
    capability_to_json,
    outcome_to_json,
    sentences,
    version_to_json,
)
from satchel.capabilities.cases import CaseResult
from satchel.capabilities.files import as_typed
from satchel.capabilities.given import Given
from satchel.capabilities.moving import Review
from satchel.capabilities.records import Requested
from satchel.cli.commands import CapabilityName, Text, confirm, json_object, json_option, said_json
from satchel.cli.opening import opened
from satchel.cli.output import is_terminal, say, tell
from satchel.cli.settings import read_settings
from satchel.cli.signals import run_in_good_order
from satchel.errors import NotFound, Refused, StorageError, UsageError
from satchel.runtime.capability_parts import CapabilityParts, registration_to_json, tested_to_json
from satchel.runtime.lines import saved_in_words, status_in_a_word
from satchel.tui.terminal_text import one_line
from satchel.wording import counted

T = TypeVar("T")

_STATUSES = ("building", "waiting", "proposed", "active", "failed", "disabled")
_INPUT = '{"city": "Austin"}'
_MOST_STDIN = 16_000_000
_LOOK_S: Final = 0.3
"""How often it is looked whether a question that is shown was answered elsewhere: one short read."""
_CASE = '{"name": "Austin", "input": {"city": "Austin"}, "expect": {"contains": "Austin"}}'


def _with_capabilities(command: Callable[..., Awaitable[T]]) -> Callable[..., T]:
    """Gives a command what is done with capabilities, as its first argument."""

    @wraps(command)
    def run(**given: Any) -> T:
        async def body() -> T:
            async with opened(read_settings(), with_notices=False) as satchel:
                if satchel.capabilities is None:
                    notices = " ".join(notice.text for notice in satchel.notices)
                    raise StorageError(f"Capabilities are unavailable. {notices}".rstrip())
                return await command(satchel.capabilities, **given)

        return run_in_good_order(body)

    return run


@click.group()
def capability() -> None:
    """List, show, build, run, test, approve, export and import capabilities.

    A capability is a tool that the agent wrote and tested itself. It runs in a sandbox and reaches only what you
    approved.
    """


# ---- Looking


@capability.command("list")
@click.option(
    "--status",
    type=click.Choice(_STATUSES),
    help="Only capabilities with this status; waiting: for your answer.",
)
@json_option
@_with_capabilities
async def list_(parts: CapabilityParts, status: Any) -> None:
    """List all capabilities, with how their runs went."""
    questions = await parts.builds.queue.open_questions()
    found = [
        each
        for each in await parts.catalogue.list()
        if status in (None, each.status, status_in_a_word(each, questions))
    ]
    if said_json([capability_to_json(each) for each in found]):
        return
    for each in found:
        about = one_line(each.description, 80)
        word = status_in_a_word(each, questions)
        say(f"{each.name:24} {word:9} {_version(each):4} {_record(each):24} {about}".rstrip())
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
    if each.is_skill:
        return f"a skill, read {counted(reliability.runs, 'time')}" if each.version else "a skill"
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
@_with_capabilities
async def show(parts: CapabilityParts, name: str, number: int, source: bool, edits: bool) -> None:
    """Show a capability, what it may reach, and its newest runs."""
    found = await parts.catalogue.get(name)
    shown = await parts.shown(name, number)
    questions = [q for q in await parts.builds.queue.open_questions() if q.name == found.name]
    shown["questions"] = [question.text for question in questions]
    builds = await parts.builds.queue.of_capability(found.id)
    shown["builds"] = [build.session_id for build in builds if build.attempts]
    if "edited" in shown:
        chosen = number or found.version or len(shown["versions"])
        edited = shown["edited"]
        shown["edits"] = await parts.catalogue.difference(found.id, chosen, None) if edited else ""
    if said_json(shown):
        return
    if source or edits:
        say(str(shown.get("source" if source else "edits", "")).rstrip("\n"))
        return
    status = status_in_a_word(found, questions)
    say(f"{shown['name']}  {status}, version {shown['version'] or '-'}\n{shown['description']}")
    for sentence in shown["may"] or [f"{shown['name']} reaches nothing but its input."]:
        say(f"  - {sentence}")
    if shown["saved"] and (saved := saved_in_words(**shown["saved"])):
        say(f"Saved so far, about: {saved}")
    for reason in shown["reasons"]:
        tell(f"! {reason}")
    for question in questions:
        tell(
            f"? It waits for your answer: {question.text}\nTo answer: satchel capability answer {found.name} TEXT"
        )
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
@_with_capabilities
async def versions(parts: CapabilityParts, name: str, diff: tuple[int, int] | None) -> None:
    """List the versions of a capability, or compare two."""
    found = await parts.catalogue.get(name)
    if diff:
        text = await parts.catalogue.difference(found.id, *diff)
        if not said_json({"diff": text}):
            say(text.rstrip("\n"))
        return
    all_versions = await parts.catalogue.versions(found.id)
    if said_json([{**version_to_json(v), "active": v.number == found.version} for v in all_versions]):
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


def _read_stdin(_: click.Context, __: click.Parameter, given: str) -> str:
    """What stands for "-". Read before the event loop runs, so that Ctrl-C ends it."""
    return sys.stdin.read(_MOST_STDIN) if given == "-" else given


@capability.command()
@click.argument("name", type=CapabilityName)
@click.argument("input", type=Text, default="{}", callback=_read_stdin)
@click.option("--out", type=click.Path(path_type=Path), help="A folder for the files that it makes.")
@json_option
@_with_capabilities
async def run(parts: CapabilityParts, name: str, input: str, out: Path | None) -> int:
    """Run a capability with JSON, and print its result.

    INPUT is a JSON object; "-" reads it from stdin. The exit code is 0 if there is a result, 1 if it failed, 3 if there
    is no such capability, and 4 if it may not run or there is no sandbox.
    """
    given = json_object(input, _INPUT)
    outcome = await parts.runner.run(name, given, read_file=as_typed)
    for artifact in outcome.artifacts if out is not None else ():
        path = _below(out or Path(), artifact.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(artifact.content)
        tell(f"Written: {path}")
    if said_json(outcome_to_json(outcome)):
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
@_with_capabilities
async def test(parts: CapabilityParts, name: str, number: int) -> int:
    """Run a version's cases in the sandbox. What you edited by hand becomes a new version if they pass."""
    tested = await parts.registrar.test(name, number=number)
    if said_json(tested_to_json(tested)):
        return 0 if tested.passed else 1
    _say_checks(tested.checks)
    if not tested.checks and not tested.adopted:
        tell("It has no cases, and its text is as it was.")
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
@_with_capabilities
async def build(parts: CapabilityParts, name: str, description: str, schema: str, no_wait: bool) -> int:
    """Have a capability built, and show the progress.

    NAME is in lowercase with underscores; DESCRIPTION says what it shall do.
    """
    wanted = Wanted(name=name, description=description, input_schema=json_object(schema, _INPUT))
    requested = await parts.builds.build(wanted)
    if not requested.build_id:
        tell(f"{requested.capability.name} is there already, and is {requested.capability.status}.")
    return await _say_built(parts, requested, no_wait=no_wait or not requested.build_id)


@capability.command()
@click.argument("name", type=CapabilityName)
@click.option("--wish", type=Text, default="", help="What shall be different.")
@click.option(
    "--input", "given", type=Text, help="An input with which it fails; default: that of the last failed run."
)
@click.option("--no-wait", is_flag=True, help="Return while it is being built.")
@json_option
@_with_capabilities
async def repair(parts: CapabilityParts, name: str, wish: str, given: str | None, no_wait: bool) -> int:
    """Have a new version built, from the last failure or from a wish. The present version stays as it is."""
    failing = None if given is None else json_object(given, _INPUT)
    requested = await parts.builds.repair(name, wish=wish, failing_input=failing)
    return await _say_built(parts, requested, no_wait=no_wait)


@capability.command()
@click.argument("name", type=Text, metavar="NAME|BUILD_ID")
@json_option
@_with_capabilities
async def cancel(parts: CapabilityParts, name: str) -> None:
    """Stop a build. Nothing of it is registered; a version that is in use stays in use."""
    stopped = await parts.builds.cancel(name)
    if not said_json(capability_to_json(stopped)):
        tell(f"The build of {stopped.name} is cancelled.")


@capability.command()
@click.argument("name", type=CapabilityName)
@click.argument("text", type=Text)
@_with_capabilities
async def answer(parts: CapabilityParts, name: str, text: str) -> None:
    """Answer what the build of a capability asks; TEXT may be the number of an option."""
    asked = await parts.builds.question_of(name)
    if asked is None:
        raise NotFound(f"The build of {name} asks nothing now.")
    await parts.builds.answer(asked.build_id, asked.id, text, by="satchel capability answer")
    tell(f"The Builder of {asked.name} has your answer to: {one_line(asked.text, 500)}")


def _tell_story(session_id: str) -> None:
    tell(f"What the Builder did: satchel session show {session_id}")


async def _say_built(parts: CapabilityParts, requested: Requested, *, no_wait: bool = False) -> int:
    """Follow a build, and print what came of it. Returns the exit code."""
    if not no_wait:
        await _follow(parts, requested.build_id)
    now = await parts.catalogue.get(requested.capability.id)
    has_failed = now.status == "failed" or bool(now.reasons)
    if not said_json({**capability_to_json(now), "build_id": requested.build_id}):
        say(f"{now.name}  {now.status}, version {now.version or '-'}")
        if now.status == "proposed":
            tell(f"It waits for your approval: satchel capability approve {now.name}")
        elif requested.build_id and has_failed:
            _tell_story(f"build-{requested.build_id}")
    return 1 if has_failed else 0


async def _line(prompt: str, *, until: Callable[[], Awaitable[None]]) -> str | None:
    """What the user types at a prompt; None if `until` returned before: then what they had begun is dropped."""
    # Not available on every system, and only useful with a terminal.
    import termios  # noqa: PLC0415

    click.echo(f"{prompt}: ", nl=False, err=True)
    line: str | None = None
    async with anyio.create_task_group() as group:

        async def give_up() -> None:
            await until()
            group.cancel_scope.cancel()

        group.start_soon(give_up)
        # A terminal hands over whole lines, so reading one doesn't block.
        await anyio.wait_readable(sys.stdin)
        line = sys.stdin.readline()
        group.cancel_scope.cancel()
    if line == "":
        raise click.Abort
    if line is None:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        tell("")
    return line and line.rstrip("\n")


async def _follow(parts: CapabilityParts, build_id: str) -> None:
    """Show what a build says, and answer its questions on a terminal; without one, leave where it waits for that."""
    async for message in parts.builds.follow(build_id):
        if not message.is_shown:
            continue
        tell(f"{message.type}: {message.text}")
        can_answer = is_terminal(sys.stdin)
        is_aside = message.payload.get("status") == "waiting"
        if is_aside and not can_answer and (await parts.builds.queue.get(build_id)).status == "waiting":
            return
        while message.type == "question" and can_answer and await parts.builds.queue.is_open(message):
            options = message.options
            prompt = f"Your answer ({', '.join(options)})" if options else "Your answer"
            text = await _line(prompt, until=partial(_settled, parts, message))
            if text is None:
                break
            try:
                await parts.builds.answer(build_id, message.id, text or None, by="terminal")
            except UsageError as error:  # neither yes nor no, or another client was faster
                tell(str(error))


async def _settled(parts: CapabilityParts, question: BuildMessage) -> None:
    """Return when a question waits for no answer any more."""
    while True:
        with suppress(StorageError):
            if not await parts.builds.queue.is_open(question):
                return
        await anyio.sleep(_LOOK_S)


# ---- Deciding


@capability.command()
@click.argument("name", type=CapabilityName)
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@_with_capabilities
async def approve(parts: CapabilityParts, name: str, yes: bool) -> int:
    """Allow what a capability wants to reach, and activate it.

    Its cases run first; it becomes active if they pass.
    """
    number, access = await parts.registrar.to_approve(name)
    found = await parts.catalogue.get(name)
    tell(f"Version {number} of {found.name} waits for your approval.")
    for sentence in sentences(access, name=found.name) or (f"{found.name} reaches nothing but its input.",):
        tell(f"  - {sentence}")
    _confirm(yes, f"satchel capability approve {found.name}")
    return _say_registered(await parts.registrar.approve(name))


def _confirm(yes: bool, command: str) -> None:
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise Refused(
            f"This needs your approval, and there is no terminal to ask on. To approve it: {command} --yes"
        )
    confirm("Do you allow that?")


def _say_registered(registration: Registration) -> int:
    entry = registration.capability
    failed = any(check.passed is False for check in registration.checks)
    if said_json(registration_to_json(registration)):
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
@_with_capabilities
async def activate(parts: CapabilityParts, name: str, number: int) -> None:
    """Use another version from now on."""
    _say_entry(await parts.catalogue.activate(name, number))


@capability.command()
@click.argument("name", type=CapabilityName)
@json_option
@_with_capabilities
async def rollback(parts: CapabilityParts, name: str) -> None:
    """Go back to the version before the active one."""
    _say_entry(await parts.catalogue.rollback(name))


@capability.command()
@click.argument("name", type=CapabilityName)
@json_option
@_with_capabilities
async def disable(parts: CapabilityParts, name: str) -> None:
    """Keep a capability, and don't use it."""
    _say_entry(await parts.catalogue.disable(name))


@capability.command()
@click.argument("name", type=CapabilityName)
@json_option
@_with_capabilities
async def enable(parts: CapabilityParts, name: str) -> None:
    """Use a disabled capability again."""
    _say_entry(await parts.catalogue.enable(name))


@capability.command()
@click.argument("name", type=CapabilityName)
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@_with_capabilities
async def remove(parts: CapabilityParts, name: str, yes: bool) -> None:
    """Delete a capability with all its versions, files and records."""
    found = await parts.catalogue.get(name)
    tell(f"{found.name}: {one_line(found.description, 100)}  {found.path}")
    _confirm(yes, f"satchel capability remove {found.name}")
    removed = await parts.catalogue.remove(found.id)
    if not said_json({"removed": removed.name, "id": removed.id}):
        tell(f"{removed.name} was removed.")


def _say_entry(entry: Capability) -> None:
    if not said_json(capability_to_json(entry)):
        say(f"{entry.name}  {entry.status}, version {entry.version or '-'}")


# ---- Moving


@capability.command()
@click.argument("name", type=CapabilityName)
@click.argument("target", type=click.Path(path_type=Path), default=Path())
@click.option("--version", "number", type=int, default=0, help="Another version than the active one.")
@json_option
@_with_capabilities
async def export(parts: CapabilityParts, name: str, target: Path, number: int) -> None:
    """Write a capability as an Agent Skill.

    It becomes a folder in TARGET, or an archive if TARGET ends in .zip.
    """
    written = await parts.mover.export(name, target.expanduser(), number=number)  # noqa: ASYNC240 - alone here
    if not said_json({"path": str(written)}):
        say(str(written))


@capability.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Approve what it may reach without asking.")
@click.option("--activate", is_flag=True, help="Use it even if another version is active.")
@json_option
@_with_capabilities
async def import_(parts: CapabilityParts, source: Path, yes: bool, activate: bool) -> int:
    """Import an exported capability, after a review.

    SOURCE is a folder or a zip archive. What it contains and may reach is shown, and nothing of it runs before you
    approve it; then its cases run in the sandbox and decide whether it is used. Without a
    terminal and without --yes it is stored and waits for your approval.

    A folder that has main.py with run(args) and is no capability yet becomes one: the Builder writes cases, description
    and schema around main.py, which stays as it is, and tests it. That needs a language model and your approval.
    """
    place = source.expanduser()  # noqa: ASYNC240 - alone here
    given = await parts.mover.given(place)
    if given is not None and given.missing:
        return await _say_built(parts, await _adopt(parts, given, place, yes=yes))
    review = await parts.mover.review(place)
    _show_review(review)
    if not yes and is_terminal(sys.stdin):
        confirm("Have you read the files, and do you allow that?")
        yes = True
    return _say_registered(await parts.mover.take_in(review, approve=yes, activate=activate))


async def _adopt(parts: CapabilityParts, given: Given, place: Path, *, yes: bool) -> Requested:
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
    return await parts.builds.adopt(given, source=str(place))


def _show_files(name: str, description: str, files: Mapping[str, bytes]) -> None:
    tell(f"{name}: {one_line(description, 200)}")
    for path, content in sorted(files.items()):
        tell(f"  {len(content):9,}  {path}")
    text = files.get("main.py", files.get("SKILL.md", b""))
    for line in text.decode("utf-8", "replace").splitlines():
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
