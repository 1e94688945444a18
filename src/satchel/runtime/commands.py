"""The `/` commands of a conversation: one table for every face.

A command runs here, without the model, and prints nothing: it returns what a face shows and does. What only a face can
do (ask the user to confirm, open another session, leave) is part of that result.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import anyio
import anyio.to_thread

from satchel.capabilities.access import sentences
from satchel.capabilities.cases import checks_in_words
from satchel.clock import local_day
from satchel.config import Mode
from satchel.errors import NotFound, SatchelError, UsageError
from satchel.events import Event, Notice, Posted, fields_from_json, fields_to_json
from satchel.runtime.attaching import names_completing
from satchel.runtime.build_answers import hear_late
from satchel.runtime.lines import (
    FILING,
    agenda_lines,
    approval_lines,
    counted,
    hit_line,
    memory_line,
    one_line,
    page_lines,
    receipt_lines,
    saved_in_words,
    session_line,
    standing_lines,
    status_in_a_word,
    usage_line,
    usage_table,
)
from satchel.runtime.rewinding import (
    check_restored,
    commanded_notes,
    files_since,
    named,
    rewind,
    said_at,
    turns_of,
    uncovered_notes,
)
from satchel.runtime.session_options import read_mode
from satchel.sessions.view import SessionTurn
from satchel.tools.builtin.changes import Restored, redo, uncovered, undo
from satchel.version import __version__
from satchel.wording import cut_text

if TYPE_CHECKING:
    from satchel.builder.records import BuildMessage
    from satchel.capabilities.checking import Registrar
    from satchel.capabilities.records import Capability
    from satchel.memory import Memory
    from satchel.runtime.capability_parts import CapabilityParts
    from satchel.runtime.satchel import Satchel
    from satchel.runtime.session import Session
    from satchel.tools import ToolSpec

_MOST_LISTED = 10
_MOST_TOLD = 16_000
"""Characters of a command's output that the model is told."""
_MOST_OWN = 50
"""Lines of results by which a client knows its own posts."""
USERS: Final = "the user's "
"""What the sources of posts begin with that the user's own commands made."""
_MOST_LOGGED = 4_000
"""Characters of a command's output that the session's log keeps."""
_COMPLETION_S = 2.0

Kind: TypeAlias = Literal["data", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """One line, or several, of a command's output: `data` was asked for, a `note` explains it."""

    text: str
    kind: Kind = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """The user has to agree before the command continues: ask `question`, and after a yes await `proceed`."""

    question: str
    proceed: Callable[[], Awaitable[CommandResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """The face closes this session and opens another one.

    Attributes:
        session_id: It, or the beginning of it; None starts a new session.
        private: Nothing said in the new session is remembered.
        project: The project of the new session, by its id or name; "" is none.
        draft: What the field for the next message begins with.
    """

    session_id: str | None = None
    private: bool = False
    project: str = ""
    draft: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command did, and what is left for the face to do.

    Attributes:
        events: To show as if they had come from a turn, such as a `Compaction`.
        message: To send to the model as the user's next message; "" for most commands.
        resumes: The face resumes the interrupted turn and follows it.
    """

    lines: tuple[CommandLine, ...] = ()
    events: tuple[Event, ...] = ()
    confirm: Confirm | None = None
    change: SessionChange | None = None
    message: str = ""
    resumes: bool = False
    leaves: bool = False


class OwnPosts:
    """Tells what a client's own commands posted, which it shows as their result, from what other clients did."""

    def __init__(self) -> None:
        """Nothing was done yet."""
        self._running: list[str] = []
        self._texts: deque[str] = deque(maxlen=_MOST_OWN)

    @contextmanager
    def running(self, command: SlashCommand, rest: str) -> Iterator[None]:
        """A command of this client runs."""
        source = _shell_source(rest) if command.name == "shell" else f"{USERS}/{command.name}"
        self._running.append(source)
        try:
            yield
        finally:
            self._running.remove(source)

    def show(self, result: CommandResult) -> None:
        """A result of this client's commands is shown."""
        self._texts.extend(line.text for line in result.lines)

    def has(self, post: Posted) -> bool:
        """Whether this client did it. It may arrive before the result, or after it."""
        if post.source in self._running:
            self._texts.append(post.text)
        return post.source.startswith(USERS) and post.text in self._texts


def result_to_json(result: CommandResult) -> dict[str, Any]:
    """What a command did, as plain JSON data. Of a `Confirm`, that is its question."""
    question = result.confirm.question if result.confirm is not None else None
    return {**fields_to_json(replace(result, confirm=None)), "confirm": question}


def result_from_json(
    value: Mapping[str, Any], *, proceed: Callable[[], Awaitable[CommandResult]]
) -> CommandResult:
    """Inverse of `result_to_json`; `proceed` goes on after the user's yes.

    Raises:
        ValueError, KeyError, TypeError: It is no such result.
    """
    result = fields_from_json(CommandResult, {**value, "confirm": None})
    confirm = Confirm(question=value["confirm"], proceed=proceed) if value["confirm"] else None
    return replace(result, confirm=confirm)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """What a command works on.

    Attributes:
        show: Gets the events of a tool that the command runs, while it runs.
        tell: Gets a line before the command has its result, where that takes a while.
    """

    satchel: Satchel
    session: Session
    show: Callable[[Event], None]
    tell: Callable[[str], None]


Run: TypeAlias = Callable[[CommandContext, str], Awaitable[CommandResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """One command.

    Attributes:
        arguments: What may follow its name, for the help.
        is_logged: The session's log keeps the command and its output (seed-1).
        words: What its argument may be, for completion.
    """

    name: str
    arguments: str
    help: str
    run: Run
    is_logged: bool = False
    words: Callable[[Satchel, Session], Iterable[str]] | None = None


def find_command(text: str) -> tuple[SlashCommand, str] | None:
    """The command in what the user typed, and what follows its name; None where it is a message.

    A message may begin with a path: only a word of letters after the slash is taken as a command. `! ls` is
    `/shell ls`, and so is `!ls` on one line, where that is a program of this machine: `!important` is a message.

    Raises:
        UsageError: There is no such command.
    """
    at_once = re.fullmatch(r"!([\w./-]+)( .*)?", text)
    if re.match(r"! +\S", text) or (at_once is not None and shutil.which(at_once[1]) is not None):
        return COMMANDS["shell"], text[1:].strip()
    found = re.match(r"/([A-Za-z]+)(?:\s+|$)", text)
    if found is None:
        return None
    name = found[1].lower()
    known, _, first = _ELSEWHERE.get(name, name).partition(" ")
    command = COMMANDS.get(known)
    if command is None:
        close = [known for known in COMMANDS if known.startswith(name[:3])]
        hint = f" Did you mean /{close[0]}?" if close else " /help lists the commands."
        raise UsageError(f"There is no command /{name}.{hint}")
    return command, f"{first} {text[found.end() :]}".strip()


async def run_command(context: CommandContext, command: SlashCommand, rest: str) -> CommandResult:
    """Run a command, and keep it in the session's log where it belongs there.

    Raises:
        SatchelError: It can't be done; the message is for the user.
    """
    result = await command.run(context, rest)
    if command.is_logged:
        said = "\n".join(line.text for line in result.lines)
        text = f"/{command.name} {rest}".rstrip() + f"\n{said}"
        if len(text) > _MOST_LOGGED:
            text = f"{text[:_MOST_LOGGED]}\n… {counted(len(text) - _MOST_LOGGED, 'more character')}"
        await context.session.note(Notice(part="command", text=text))
    return result


async def completions(text: str, satchel: Satchel, session: Session) -> Sequence[tuple[str, str]]:
    """What the last word of a line may become, each with a word of help: commands, prompts and mentions of MCP servers,
    and as `@path` the files below the session's folder.

    A server that takes longer than 2 s to say what it offers is left out.
    """
    head, _, last = text.rpartition(" ")
    found: list[tuple[str, str]] = []
    names: Sequence[str] = ()
    if "\n" not in text and text.startswith("/"):
        if not head:
            found = [(f"/{c.name}", c.help) for c in COMMANDS.values()]
            # The servers that don't run are not started for a menu; `/prompts` starts them.
            with anyio.move_on_after(_COMPLETION_S):
                prompts = await satchel.mcp.prompts(start=False)
                found += [(f"/{each.command}", one_line(each.description, 60)) for each in prompts]
        elif (
            command := COMMANDS.get(head.strip().removeprefix("/"))
        ) is not None and command.words is not None:
            found = [(word, "") for word in command.words(satchel, session)]
    elif (mention := last.rpartition("\n")[2]).startswith("@"):
        last = mention
        with anyio.move_on_after(_COMPLETION_S):
            found = [(each, "") for each in await satchel.mcp.server_resources.completions(mention)]
        names = await anyio.to_thread.run_sync(names_completing, mention, session.cwd)
    fitting = [(word, help_text) for word, help_text in found if word.startswith(last)]
    return fitting + [(name, "") for name in names]


def _shown(*data: str, notes: Sequence[str] = ()) -> CommandResult:
    return CommandResult(
        lines=(
            *(CommandLine(text=text) for text in data),
            *(CommandLine(text=text, kind="note") for text in notes),
        )
    )


async def _jobs(context: CommandContext, rest: str) -> CommandResult:
    jobs = context.session.jobs
    words = rest.split()
    stops = words[:1] == ["stop"]
    number = words[1:] if stops else words
    if not words:
        notes = ["/jobs ID shows what one printed last, /jobs stop ID ends it."] if jobs.all else []
        return _shown(jobs.listed, notes=notes)
    if len(number) != 1 or not number[0].isdecimal():
        raise UsageError("Name a command by its number: /jobs ID, /jobs stop ID. /jobs lists them.")
    job = jobs.get(int(number[0]))
    if stops:
        if job.outcome:
            raise UsageError(job.state)
        job.stop("was stopped by the user")
        await job.ended.wait()
        return _shown(notes=[job.state])
    printed = job.last_output(_MOST_LOGGED).strip("\n")
    return _shown(*([printed] if printed else []), notes=[job.line])


async def _skip(context: CommandContext, _rest: str) -> CommandResult:
    question = next(iter(context.session.build_questions), None)
    if question is None:
        raise NotFound("No build asks you anything now.")
    await context.session.answer(question.id, None, by="terminal")
    return _shown(notes=[f"The Builder of {question.capability} decides."])


async def _answer(context: CommandContext, rest: str) -> CommandResult:
    builds = context.satchel.builds
    if builds is None:
        raise UsageError("Capabilities are unavailable.")
    every = await builds.queue.open_questions()
    name, _, words = rest.partition(" ")
    named = [asked for asked in every if asked.name == name and words.strip()]
    own = await builds.queue.open_questions(asked_by=context.session.id)
    chosen = named or own or list(every)
    if not chosen:
        return await _late_answer(context, rest)
    if not rest or len({asked.build_id for asked in chosen}) > 1:
        return _shown(
            *(f"{asked.name}: {asked.text}" for asked in chosen), notes=["/answer NAME TEXT answers one."]
        )
    asked = chosen[0]
    await builds.answer(asked.build_id, asked.id, words.strip() if named else rest, by="a message")
    return _shown(notes=[f"The Builder of {asked.name} has your answer."])


async def _late_answer(context: CommandContext, rest: str) -> CommandResult:
    """Answer what was asked last, although it is settled; `rest` may begin with the capability's name."""
    settled = context.session.build_news.settled
    name, _, words = rest.partition(" ")
    named = [pair for pair in settled if pair[0].capability == name and words.strip()]
    if not rest or not settled:
        raise NotFound("No build asks you anything now.")
    question, end = (named or settled)[-1]
    heard = await hear_late(context.session, words.strip() if named else rest, question, end, by="a message")
    return _shown(notes=[heard.note])


async def _cancel(context: CommandContext, rest: str) -> CommandResult:
    builds = context.satchel.builds
    if builds is None:
        raise UsageError("Capabilities are unavailable.")
    name = rest
    if not name:
        own = [b.name for b in await builds.queue.open_builds() if b.asked_by == context.session.id]
        if len(own) != 1:
            which = f"Name one of them: {', '.join(own)}." if own else "/cancel NAME cancels another's."
            raise UsageError(f"This conversation has {counted(len(own), 'build')} under way. {which}")
        name = own[0]
    cancelled = await builds.cancel(name)
    return _shown(notes=[f"The build of {cancelled.name} is cancelled."])


async def _capability(context: CommandContext, rest: str) -> CommandResult:
    parts = context.satchel.capabilities
    if parts is None:
        raise UsageError("Capabilities are unavailable.")
    if not rest:
        asking = await parts.builds.queue.open_questions()
        lines = [
            f"{_state_of(each, asking):30} {one_line(each.description, 80)}"
            for each in await parts.catalogue.list()
        ]
        return _shown(*(lines or ["There are no capabilities."]), notes=await _asking(parts))
    word, _, wish = rest.partition(" ")
    if word not in ("approve", "change", "rollback", "disable", "enable"):
        found = await parts.catalogue.get(rest)
        saved = await parts.builds.saved(found)
        words = saved_in_words(**saved) if saved else ""
        told = [f"Saved so far, about: {words}"] if words else []
        return _shown(
            *_capability_lines(found, await parts.builds.queue.open_questions()),
            *told,
            notes=await _asking(parts, found.name),
        )
    name, _, wish = wish.strip().partition(" ")
    if not name:
        raise UsageError(f"Name a capability: /capability {word} NAME. /capability lists them.")
    found = await parts.catalogue.get(name)
    match word:
        case "approve":
            return await _approving(context.session, parts.registrar, found)
        case "change":
            session = context.session
            if not wish and found.reliability.failing_since is None:
                raise UsageError(f"Say what should be different: /capability change {found.name} WISH.")
            requested = await parts.builds.repair(found.id, wish=wish, asked_by=session.id)
            begun = (
                f"A new version of {found.name} is being built."
                if requested.is_new
                else f"{found.name} is being built right now, and its Builder is told this as well."
            )
            return _shown(notes=[begun])
        case "rollback":
            found = await parts.catalogue.rollback(found.id)
        case "disable":
            found = await parts.catalogue.disable(found.id)
        case _:
            found = await parts.catalogue.enable(found.id)
    await context.session.refresh_tools()
    return _shown(_state_of(found))


async def _approving(session: Session, registrar: Registrar, found: Capability) -> CommandResult:
    number, access = await registrar.to_approve(found.name)

    async def proceed() -> CommandResult:
        if (number, access) != await registrar.to_approve(found.name):
            raise UsageError("Another version waits for approval by now. Look at it first.")
        done = await registrar.approve(found.name)
        await session.refresh_tools()
        if done.is_active:
            return _shown(f"{found.name} is ready (version {done.number}, {checks_in_words(done.checks)}).")
        return _shown(f"A case failed, so version {done.number} of {found.name} is not used.")

    wishes = sentences(access, name=found.name) or (f"{found.name} reaches nothing but its input.",)
    return CommandResult(
        lines=tuple(CommandLine(text=text) for text in wishes),
        confirm=Confirm(question=f"Do you allow that to version {number} of {found.name}?", proceed=proceed),
    )


async def _asking(parts: CapabilityParts, name: str = "") -> list[str]:
    """The questions of all builds, or of one."""
    return [
        f"{asked.name} waits for your answer: {asked.text} To answer: /answer {asked.name} TEXT"
        for asked in await parts.builds.queue.open_questions()
        if name in ("", asked.name)
    ]


def _state_of(capability: Capability, asking: Iterable[BuildMessage] = ()) -> str:
    version = f", v{capability.version}" if capability.version else ""
    return f"{capability.name}  {status_in_a_word(capability, asking)}{version}"


def _capability_lines(capability: Capability, asking: Iterable[BuildMessage]) -> Iterator[str]:
    yield _state_of(capability, asking)
    yield capability.description
    yield from sentences(capability.access, name=capability.name)
    yield from (f"! {reason}" for reason in capability.reasons)
    if capability.version:
        yield f"Its files: {capability.folder}"


async def _help(_context: CommandContext, rest: str) -> CommandResult:
    if rest:
        command = COMMANDS.get(rest.lstrip("/").lower())
        if command is None:
            raise NotFound(f"There is no command /{rest.lstrip('/')}. /help lists the commands.")
        return _shown(f"/{command.name} {command.arguments}".rstrip() + f"\n  {command.help}")
    width = max(len(f"/{c.name} {c.arguments}") for c in COMMANDS.values())
    return _shown(
        *(f"{f'/{c.name} {c.arguments}':{width}}  {c.help}" for c in COMMANDS.values()),
        notes=[
            "Alt-Enter or a final \\ starts a new line, Ctrl-C interrupts the answer, Ctrl-D leaves. "
            f"Satchel {__version__}."
        ],
    )


async def _tool(context: CommandContext, rest: str) -> CommandResult:
    session, satchel = context.session, context.satchel
    await session.ensure_tools_ready()
    registry = session.tools
    word, _, name = rest.partition(" ")
    if word == "approve" and name:
        record = await satchel.external.approve(name.strip())
        await session.refresh_tools()
        return _shown(*approval_lines(record))
    if not rest:
        tools = [f"{tool.spec.name:16} {_first_sentence(tool.spec.description)}" for tool in registry.tools]
        problems = [f"! {problem}" for problem in (*registry.problems, *satchel.external.notices)]
        return _shown(*(tools or ["No tools available."]), notes=problems)
    found = registry.get(rest)
    if found is None:
        close = registry.close_matches(rest)
        raise NotFound(
            f"There is no tool {rest!r}. "
            + (f"Did you mean {' or '.join(close)}? " if close else "")
            + "/tool lists the tools."
        )
    return _shown(*_described(found.spec))


def _first_sentence(description: str) -> str:
    return one_line(re.split(r"(?<=[.!?:;])\s", description.strip(), maxsplit=1)[0].rstrip(":;"), 90)


def _described(spec: ToolSpec) -> Iterator[str]:
    yield f"{spec.name}  ({spec.source}{f', {spec.origin}' if spec.origin else ''})"
    yield spec.description
    required = spec.input_schema.get("required", ())
    properties: Mapping[str, Any] = spec.input_schema.get("properties", {})
    for name, part in properties.items():
        about = part if isinstance(part, dict) else {}
        kind = f"{about.get('type', 'any')}{', required' if name in required else ''}"
        yield f"  {name} ({kind})  {one_line(str(about.get('description', '')), 100)}".rstrip()
    yield json.dumps(dict(spec.input_schema), ensure_ascii=False, indent=2)
    if spec.returns is not None:
        yield f"Returns:\n{json.dumps(dict(spec.returns), ensure_ascii=False, indent=2)}"


async def _refresh(context: CommandContext, _rest: str) -> CommandResult:
    session, external = context.session, context.satchel.external
    context.tell("Refreshing tools...")
    before = {tool.spec.name for tool in session.tools.tools}
    registry = await session.refresh_tools()
    if external.state == "failed":
        raise SatchelError(" ".join(external.notices))
    now = {tool.spec.name for tool in registry.tools}
    notes = [f"! {notice}" for notice in external.notices]
    notes += [f"+ {name}" for name in sorted(now - before)] + [f"- {name}" for name in sorted(before - now)]
    lines = [CommandLine(text=note, kind="note") for note in notes]
    lines.append(CommandLine(text=f"Tools refreshed. {counted(len(registry.tools), 'tool')} available."))
    return CommandResult(lines=tuple(lines))


async def _run(context: CommandContext, rest: str) -> CommandResult:
    name, _, text = rest.partition(" ")
    if not name:
        raise UsageError('Name a tool and its input: /run file_read {"path": "notes.md"}')
    try:
        input = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The input of {name} is not JSON: {error}.") from None
    if not isinstance(input, dict):
        raise UsageError('The input is a JSON object, such as {"path": "notes.md"}.')
    result = await context.session.run_tool(name, input, show=context.show)
    return _shown(result.text or "(no output)")


def _shell_source(rest: str) -> str:
    return f"{USERS}command: {one_line(rest, 100)}"


async def _shell(context: CommandContext, rest: str) -> CommandResult:
    if not rest:
        raise UsageError("Name the command: ! git status")
    session = context.session
    result = await session.run_tool("bash", {"command": rest}, show=context.show)
    text = result.text or "(no output)"
    if session.path is not None:
        shown = cut_text(text, _MOST_TOLD)
        await context.satchel.post(session.id, shown, source=_shell_source(rest), untrusted=True)
    return _shown(text)


def _memory_of(context: CommandContext) -> Memory:
    memory = context.session.memory
    if memory is None:
        raise UsageError("Memory is switched off, or could not be opened.")
    return memory


async def _memory(context: CommandContext, rest: str) -> CommandResult:
    memory, spaces = _memory_of(context), context.satchel.home.spaces
    if rest:
        hits = await memory.search(rest, limit=_MOST_LISTED, folded=True)
        if spaces is not None:
            hits = (*hits, *(await spaces.search(rest, limit=_MOST_LISTED)).hits)
        return _shown(*map(hit_line, hits), notes=[] if hits else ["No memory matches."])
    records = await memory.list(limit=_MOST_LISTED, folded=True)
    if spaces is not None:
        records = (*records, *(hit.memory for hit in (await spaces.list(limit=_MOST_LISTED)).hits))
    count = counted(await memory.count(), "memory", "memories")
    return _shown(*map(memory_line, records), notes=[f"{count}. /memory QUERY searches, /forget ID forgets."])


async def _profile(context: CommandContext, _rest: str) -> CommandResult:
    settings = context.satchel.settings.memory
    found = await _memory_of(context).standing(
        page_tokens=settings.page_tokens, profile_tokens=settings.profile_tokens, confidential=True
    )
    data, notes = standing_lines(found, settings)
    return _shown(*data, notes=notes)


async def _page(context: CommandContext, rest: str) -> CommandResult:
    memory = _memory_of(context)
    match rest.strip():
        case "":
            pass
        case "accept":
            if not await memory.accept_page():
                raise NotFound("No page waits to be accepted.")
        case "undo":
            await memory.restore_page()
        case other:
            raise UsageError(f"/page {other} is unknown: /page, /page accept and /page undo.")
    budget = context.satchel.settings.memory.page_tokens
    found = await memory.page(budget_tokens=budget, proposed=True)
    if found is None:
        return _shown(
            notes=["There is no page yet. It holds what a model notes when it reads your conversations."]
        )
    data, notes = page_lines(found, budget_tokens=budget)
    edit = "/page undo restores the version before; `satchel memory page --edit` changes it."
    accept = ["/page accept lets models see it."] if found.version.state == "proposed" else []
    return _shown(*data, notes=[*notes, *accept, edit])


async def _agenda(context: CommandContext, _rest: str) -> CommandResult:
    budget = context.satchel.settings.memory.agenda_tokens
    agenda = await _memory_of(context).agenda(budget_tokens=budget)
    data, notes = agenda_lines(agenda, budget_tokens=budget)
    return _shown(*data, notes=notes)


async def _pinned(context: CommandContext, rest: str, what: Literal["pin", "unpin"]) -> CommandResult:
    if not rest.split():
        raise UsageError(f"Name a memory: /{what} ID. /memory and /profile list ids.")
    memory = _memory_of(context)
    for id in rest.split():
        await (memory.pin(id) if what == "pin" else memory.unpin(id))
    where = "in the profile from the next conversation on" if what == "pin" else "no longer pinned"
    return _shown(notes=[f"{' '.join(rest.split())}: {where}."])


async def _forget(context: CommandContext, rest: str) -> CommandResult:
    memory = _memory_of(context)
    ids = rest.split()
    if not ids:
        raise UsageError("Name the memories to forget: /forget ID. /memory QUERY shows the ids.")
    own, shared = [id for id in ids if "/" not in id], [id for id in ids if "/" in id]
    lines = [memory_line(await memory.get(id)) for id in own]
    lines += [f"{id}, for everybody in {id.partition('/')[0]}" for id in shared]

    async def proceed() -> CommandResult:
        gone = [memory_line(await context.satchel.home.forget_shared(id)) for id in shared]
        told = receipt_lines(await context.satchel.forget(own)) if own else []
        return _shown(*(f"Forgotten for everybody: {line}" for line in gone), *told)

    what = "this memory" if len(ids) == 1 else f"these {len(ids)} memories"
    return CommandResult(
        lines=tuple(CommandLine(text=line) for line in lines),
        confirm=Confirm(question=f"Forget {what} permanently?", proceed=proceed),
    )


async def _model(context: CommandContext, rest: str) -> CommandResult:
    satchel, session = context.satchel, context.session
    if rest:
        session.use_model(await satchel.model(rest))
        return _shown(notes=[f"{session.model_name} answers from now on."])
    choice = await satchel.parts.models.choice()
    return _shown(
        session.model_name,
        notes=[
            f"Default: {choice.name} ({choice.why}).",
            *(f"  {tried.name}: {tried.reason}" for tried in choice.tried if tried.name != choice.name),
            "/model PROVIDER:MODEL changes it for this conversation.",
        ],
    )


async def _mode(context: CommandContext, rest: str) -> CommandResult:
    gate = context.session.gate
    if not rest:
        return _shown(
            gate.mode,
            *(f"  {rule.action} {rule.text}" for rule in gate.rules),
            notes=[f"/mode {' | '.join(get_args(Mode))} changes it for this conversation."],
        )
    gate.mode = read_mode(rest)
    return _shown(notes=[f"Mode {gate.mode} from now on."])


async def _sessions(context: CommandContext, rest: str) -> CommandResult:
    verb, *ids = rest.split() or [""]
    if verb:
        if verb not in FILING:
            raise UsageError(f"/sessions {verb} is unknown: {', '.join(FILING)}, with ids or for this one.")
        if not ids and not context.session.turns:
            raise UsageError("Nothing was said in this conversation yet, so no list shows it.")
        for id in ids or [context.session.id]:
            await context.satchel.file(id, **FILING[verb].change)
        return _shown(notes=[f"{counted(len(ids) or 1, 'conversation')} {FILING[verb].done}."])
    infos = await context.satchel.sessions.listed()
    return _shown(
        *(
            session_line(info) + ("  ← this one" if context.session.id in (info.id, *info.branches) else "")
            for info in infos[:_MOST_LISTED]
        ),
        notes=[
            f"{counted(len(infos), 'conversation')}. /resume ID continues one; /sessions {' | '.join(FILING)} [ID…]."
        ],
    )


async def _rename(context: CommandContext, rest: str) -> CommandResult:
    if not rest:
        raise UsageError("Name the new title: /rename TITLE.")
    if not context.session.turns:
        raise UsageError("Nothing was said in this conversation yet, so there is nothing to name.")
    await context.satchel.rename(context.session.id, rest)
    return _shown(notes=["Renamed."])


async def _resume(_context: CommandContext, rest: str) -> CommandResult:
    if not rest:
        raise UsageError("Name the conversation: /resume ID. /sessions lists them.")
    return CommandResult(change=SessionChange(session_id=rest))


async def _new(context: CommandContext, _rest: str) -> CommandResult:
    return CommandResult(change=SessionChange(project=context.session.project))


async def _private(context: CommandContext, _rest: str) -> CommandResult:
    return CommandResult(change=SessionChange(private=True, project=context.session.project))


async def _project(context: CommandContext, rest: str) -> CommandResult:
    if rest:
        await context.satchel.move(context.session.id, "" if rest == "none" else rest)
        here = context.session.project
        return _shown(
            notes=[f"In the project {here} now, with all that was said." if here else "In no project now."]
        )
    here = context.session.project
    return _shown(
        *(
            f"{project.id}  {project.name}" + ("  ← this one" if project.name == here else "")
            for project in context.satchel.home.projects.all()
            if not project.archived
        ),
        notes=[
            "/project NAME moves this conversation there, /project none out of it; `satchel projects` makes one."
        ],
    )


async def _compact(context: CommandContext, rest: str) -> CommandResult:
    done = await context.session.compact(rest)
    if done is None:
        return _shown(notes=["There is nothing to summarise yet."])
    return CommandResult(events=(done,))


async def _usage(context: CommandContext, _rest: str) -> CommandResult:
    satchel = context.satchel
    session = context.session
    window = f" of {session.context_window:,}" if session.context_window else ""
    lines = [
        f"This conversation: {usage_line(session.usage) or 'nothing yet'}",
        f"The next request has about {session.context_tokens:,}{window} tokens of it, "
        f"{session.memory_tokens:,} of them from memory. /compact makes them fewer.",
    ]
    today = local_day(satchel.clock.now())
    rows = [row for row in await satchel.usage() if row.day == today]
    return _shown(*lines, *([usage_table(rows, with_day=False)] if rows else []))


async def _continue(context: CommandContext, _rest: str) -> CommandResult:
    if not context.session.is_interrupted:
        raise UsageError("There is nothing to continue: the last turn has ended.")
    return CommandResult(resumes=True)


async def _back(context: CommandContext, rest: str) -> CommandResult:
    waiting = context.session.waiting
    id = rest or (waiting[-1].id if waiting else "")
    taken = await context.session.take_back(id)
    if taken is None:
        raise UsageError("This message doesn't wait any more." if rest else "No message waits.")
    return _shown(taken.text, notes=["Taken back."])


async def _restored(
    context: CommandContext, _rest: str, how: Callable[[Path], Restored | None]
) -> CommandResult:
    session, is_undo = context.session, how is undo
    if session.running is not None:
        raise UsageError("A turn is running. Wait until it ends, or interrupt it.")
    if session.path is None:
        raise UsageError("Nothing of this conversation is kept, so nothing can be undone.")
    run, spill_dir = context.satchel.parts.pool.run, session.path.with_suffix(".spill")
    # Somebody else may have written while a command ran, so what it changed is taken back only after a yes.
    looked = await run(partial(undo, spill_dir, only_looks=True)) if is_undo else None
    check_restored(looked)

    async def proceed() -> CommandResult:
        restored = await run(how, spill_dir)
        if restored is None:
            left = await run(uncovered, spill_dir) if is_undo else ()
            nothing = f"Nothing was changed that could be {'undone' if is_undo else 'redone'}."
            raise UsageError(" ".join((nothing, *uncovered_notes(left))))
        check_restored(restored)
        files = named(restored.names) or "none had to be written"
        what = f"{'Undone' if is_undo else 'Done again'}: the file changes of {turns_of(restored)} ({files})."
        # The model would take the files to be as it left them.
        source = f"{USERS}/{'undo' if is_undo else 'redo'}"
        await context.satchel.post(session.id, what, source=source)
        return _shown(notes=[what, *uncovered_notes(restored.uncovered)])

    if looked is None or not looked.by_commands:
        return await proceed()
    return CommandResult(
        lines=_shown(*looked.names, notes=commanded_notes(looked)).lines,
        confirm=Confirm(question=f"Put {counted(len(looked.names), 'file')} back?", proceed=proceed),
    )


async def _rewind(context: CommandContext, rest: str) -> CommandResult:
    satchel, session = context.satchel, context.session
    match rest.split():
        case []:
            exchanges = deque[SessionTurn](maxlen=_MOST_LISTED)
            if session.turns:
                await satchel.sessions.read_turns(session.id, exchanges.append)
            return _shown(
                *(f"{turn.number:>4}  {one_line(turn.said, 80)}" for turn in exchanges if turn.said),
                notes=[
                    "/rewind N goes back to before message N; /rewind N files also puts files back. "
                    "This conversation stays as it is."
                ]
                if exchanges
                else ["Nothing was said in this conversation yet."],
            )
        case [number] | [number, "files"] if number.isdecimal() and len(number) < 10:
            turn, with_files = int(number), rest.endswith("files")
        case _:
            raise UsageError(
                "Name a message by its number: /rewind N, or /rewind N files. /rewind lists them."
            )

    async def proceed() -> CommandResult:
        done = await rewind(satchel, session, turn, files=with_files)
        notes = [f"Back before message {turn}. What was said is still in /resume {session.id}."]
        if done.changed:
            notes.append(f"{'Put back' if with_files else 'Still changed'}: {named(done.changed)}.")
        if done.files:
            notes.append(f"Attach {counted(done.files, 'file')} of the message again if you want to.")
        return CommandResult(
            lines=_shown(notes=notes).lines,
            change=SessionChange(session_id=done.session_id, draft=done.said),
        )

    said, _ = await said_at(satchel, session.id, turn)
    looked = await files_since(satchel, session, turn, only_looks=True) if with_files else None
    check_restored(looked)
    if looked is None or not looked.names:
        return await proceed()
    return CommandResult(
        lines=_shown(
            *looked.names,
            notes=[
                f"They go back to what they were before {one_line(said, 60)!r}.",
                *commanded_notes(looked),
                *uncovered_notes(looked.uncovered),
            ],
        ).lines,
        confirm=Confirm(question=f"Put {counted(len(looked.names), 'file')} back?", proceed=proceed),
    )


async def _prompts(context: CommandContext, _rest: str) -> CommandResult:
    prompts = await context.satchel.mcp.prompts()
    return _shown(
        *(f"{prompt.usage}  {one_line(prompt.description, 90)}".rstrip() for prompt in prompts),
        notes=[] if prompts else ["No MCP server offers prompts."],
    )


async def _resources(context: CommandContext, _rest: str) -> CommandResult:
    resources = await context.satchel.mcp.resources()
    return _shown(
        *(
            f"{resource.mention}  {one_line(resource.description or resource.name, 90)}"
            for resource in resources
        ),
        notes=["Mention one in a message to attach it."]
        if resources
        else ["No MCP server offers resources."],
    )


async def _quit(_context: CommandContext, _rest: str) -> CommandResult:
    return CommandResult(leaves=True)


def _tool_names(_satchel: Satchel, session: Session) -> Iterable[str]:
    return (tool.spec.name for tool in session.tools.tools)


def _provider_names(satchel: Satchel, _session: Session) -> Iterable[str]:
    return (f"{name}:" for name in satchel.settings.providers)


def _mode_names(_satchel: Satchel, _session: Session) -> Iterable[str]:
    return get_args(Mode)


_ELSEWHERE: Final = {"clear": "new", "context": "usage", "cost": "usage", "plan": "mode plan"}
"""What other agents call them."""
COMMANDS: Mapping[str, SlashCommand] = {
    command.name: command
    for command in (
        SlashCommand(
            name="help", arguments="[COMMAND]", help="Show the commands, or one of them.", run=_help
        ),
        SlashCommand(
            name="tool",
            arguments="[NAME | approve NAME]",
            help="List, describe or approve tools.",
            run=_tool,
            is_logged=True,
            words=_tool_names,
        ),
        SlashCommand(
            name="refresh", arguments="", help="Look for tools again.", run=_refresh, is_logged=True
        ),
        SlashCommand(
            name="run",
            arguments="NAME JSON",
            help="Run a tool without the model.",
            run=_run,
            words=_tool_names,
        ),
        SlashCommand(
            name="shell", arguments="COMMAND", help="Run a command and tell the model: ! ls", run=_shell
        ),
        SlashCommand(
            name="jobs", arguments="[[stop] ID]", help="List, show or stop background commands.", run=_jobs
        ),
        SlashCommand(name="prompts", arguments="", help="List the prompts of MCP servers.", run=_prompts),
        SlashCommand(
            name="resources", arguments="", help="List the resources of MCP servers.", run=_resources
        ),
        SlashCommand(name="memory", arguments="[QUERY]", help="List or search memories.", run=_memory),
        SlashCommand(name="page", arguments="[accept | undo]", help="Show the page about you.", run=_page),
        SlashCommand(name="profile", arguments="", help="Show what the model always knows.", run=_profile),
        SlashCommand(name="agenda", arguments="", help="Show the next seven days.", run=_agenda),
        SlashCommand(
            name="pin", arguments="ID…", help="Put memories in the profile.", run=partial(_pinned, what="pin")
        ),
        SlashCommand(
            name="unpin", arguments="ID…", help="Take pins back.", run=partial(_pinned, what="unpin")
        ),
        SlashCommand(name="forget", arguments="ID…", help="Forget memories permanently.", run=_forget),
        SlashCommand(
            name="model",
            arguments="[PROVIDER:MODEL]",
            help="Show or change the model that answers.",
            run=_model,
            words=_provider_names,
        ),
        SlashCommand(
            name="mode",
            arguments="[ask | auto | plan | bypass]",
            help="Show or change how calls are decided.",
            run=_mode,
            words=_mode_names,
        ),
        SlashCommand(
            name="sessions",
            arguments="[VERB [ID…]]",
            help="List; VERB: pin, unpin, archive or unarchive.",
            run=_sessions,
            words=lambda _satchel, _session: FILING,
        ),
        SlashCommand(
            name="project",
            arguments="[NAME | none]",
            help="List projects, or move this conversation.",
            run=_project,
            words=lambda satchel, _session: (*(one.name for one in satchel.home.projects.all()), "none"),
        ),
        SlashCommand(name="rename", arguments="TITLE", help="Give this conversation a title.", run=_rename),
        SlashCommand(name="resume", arguments="ID", help="Continue a conversation.", run=_resume),
        SlashCommand(
            name="continue",
            arguments="",
            help="Continue the turn that was interrupted when the program ended.",
            run=_continue,
        ),
        SlashCommand(
            name="undo",
            arguments="",
            help="Undo the last turn's changes of files.",
            run=partial(_restored, how=undo),
        ),
        SlashCommand(
            name="redo",
            arguments="",
            help="Make undone changes again.",
            run=partial(_restored, how=redo),
        ),
        SlashCommand(
            name="rewind",
            arguments="[N [files]]",
            help="Go back to before message N; with its file changes.",
            run=_rewind,
        ),
        SlashCommand(name="back", arguments="", help="Take back the newest message that waits.", run=_back),
        SlashCommand(
            name="skip", arguments="", help="Leave the question of a build to the Builder.", run=_skip
        ),
        SlashCommand(name="answer", arguments="[NAME] TEXT", help="Answer what a build asks.", run=_answer),
        SlashCommand(name="cancel", arguments="[NAME]", help="Cancel a build.", run=_cancel),
        SlashCommand(
            name="capability",
            arguments="[[VERB] NAME]",
            help="List, show; VERB: approve, change, rollback, disable, enable.",
            run=_capability,
            is_logged=True,
        ),
        SlashCommand(name="new", arguments="", help="Start a new conversation.", run=_new),
        SlashCommand(name="private", arguments="", help="Start one that is not remembered.", run=_private),
        SlashCommand(
            name="compact", arguments="[FOCUS]", help="Summarise older messages, keeping FOCUS.", run=_compact
        ),
        SlashCommand(name="usage", arguments="", help="Show tokens and cost.", run=_usage),
        SlashCommand(name="quit", arguments="", help="Leave.", run=_quit),
        SlashCommand(name="exit", arguments="", help="Leave.", run=_quit),
    )
}
