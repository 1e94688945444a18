"""The commands of a conversation that begin with a slash: they run here, without the model."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from satchel import __version__
from satchel.cli.memory import hit_line, memory_line, receipt_text
from satchel.cli.session import session_line
from satchel.cli.tool import approval_lines
from satchel.cli.usage import usage_table
from satchel.cli.view import one_line, usage_line
from satchel.config import Mode
from satchel.errors import NotFound, UsageError

if TYPE_CHECKING:
    from satchel.cli.talk import Talk

__all__ = ["COMMANDS", "SlashCommand", "completions", "parse"]

_MOST_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """One command.

    Attributes:
        usage: What may follow its name.
        run: Does it, given the conversation and what follows the name.
    """

    name: str
    usage: str
    help: str
    run: Callable[[Talk, str], Awaitable[None]]


def parse(text: str) -> tuple[SlashCommand, str] | None:
    """The command in what the user typed, and what follows its name; None where it is a message.

    A message may begin with a path: only a word of letters after the slash is taken as a command.

    Raises:
        UsageError: There is no such command.
    """
    found = re.match(r"/([A-Za-z]+)(?:\s+|$)", text)
    if found is None:
        return None
    name = found[1].lower()
    command = COMMANDS.get(name)
    if command is None:
        close = [known for known in COMMANDS if known.startswith(name[:3])]
        hint = f" Did you mean /{close[0]}?" if close else " /help lists the commands."
        raise UsageError(f"There is no command /{name}.{hint}")
    return command, text[found.end() :].strip()


def completions(text: str, *, tools: Sequence[str], models: Sequence[str]) -> Iterable[tuple[str, str]]:
    """What the last word of a command line may become, each with a word of help."""
    if not text.startswith("/") or "\n" in text:
        return
    head, _, last = text.rpartition(" ")
    if not head:
        yield from ((f"/{c.name}", c.help) for c in COMMANDS.values() if f"/{c.name}".startswith(last))
        return
    words = {"/tool": tools, "/run": tools, "/model": models, "/mode": get_args(Mode)}.get(head.strip(), ())
    yield from ((word, "") for word in words if word.startswith(last))


async def _help(talk: Talk, rest: str) -> None:
    if rest:
        command = COMMANDS.get(rest.lstrip("/").lower())
        if command is None:
            raise NotFound(f"There is no command /{rest.lstrip('/')}. /help lists the commands.")
        talk.print(f"/{command.name} {command.usage}".rstrip() + f"\n  {command.help}")
        return
    width = max(len(f"/{c.name} {c.usage}") for c in COMMANDS.values())
    lines = [f"{f'/{c.name} {c.usage}':{width}}  {c.help}" for c in COMMANDS.values()]
    talk.print("\n".join(lines))
    talk.note(
        "Alt-Enter or a final \\ begins a new line, Ctrl-C interrupts the answer, Ctrl-D leaves. "
        f"Satchel {__version__}."
    )


async def _tool(talk: Talk, rest: str) -> None:
    await talk.session.settle_tools()
    registry = talk.session.tools
    word, _, name = rest.partition(" ")
    if word == "approve" and name:
        await _approve(talk, name.strip())
        return
    if not rest:
        if not registry.tools:
            talk.print("No tools available.")
        for tool in registry.tools:
            talk.print(f"{tool.spec.name:16} {one_line(tool.spec.description, 90)}")
        for problem in (*registry.problems, *talk.satchel.external.notices):
            talk.note(f"! {problem}")
        return
    found = registry.get(rest)
    if found is None:
        close = registry.close_matches(rest)
        raise NotFound(
            f"There is no tool {rest!r}. "
            + (f"Did you mean {' or '.join(close)}? " if close else "")
            + "/tool lists the tools."
        )
    spec = found.spec
    talk.print(f"{spec.name}  ({spec.source}{f', {spec.origin}' if spec.origin else ''})\n{spec.description}")
    required = spec.input_schema.get("required", ())
    for name, part in spec.input_schema.get("properties", {}).items():
        kind = part.get("type", "any") if isinstance(part, dict) else "any"
        about = one_line(str(part.get("description", ""))) if isinstance(part, dict) else ""
        talk.print(f"  {name} ({kind}{', required' if name in required else ''})  {about}".rstrip())
    talk.print(json.dumps(dict(spec.input_schema), ensure_ascii=False, indent=2))


async def _approve(talk: Talk, name: str) -> None:
    record = await talk.satchel.external.approve(name)
    await talk.session.refresh_tools()
    for line in approval_lines(record):
        talk.print(line)


async def _refresh(talk: Talk, _rest: str) -> None:
    talk.note("Refreshing tools...")
    before = {tool.spec.name for tool in talk.session.tools.tools}
    registry = await talk.session.refresh_tools()
    for notice in talk.satchel.external.notices:
        talk.note(f"! {notice}")
    now = {tool.spec.name for tool in registry.tools}
    for sign, names in (("+", sorted(now - before)), ("-", sorted(before - now))):
        for name in names:
            talk.note(f"{sign} {name}")
    talk.print(f"Tools refreshed. {len(registry.tools)} tools available.")


async def _run(talk: Talk, rest: str) -> None:
    name, _, text = rest.partition(" ")
    if not name:
        raise UsageError('Say which tool and with what: /run file_read {"path": "notes.md"}')
    try:
        input = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"What follows {name} is not JSON: {error}.") from None
    if not isinstance(input, dict):
        raise UsageError('The input is a JSON object, such as {"path": "notes.md"}.')
    result = await talk.run_tool(name, input)
    if result is not None:
        talk.print(result.text or "(nothing)")


async def _memory(talk: Talk, rest: str) -> None:
    memory = talk.satchel.memory
    if memory is None:
        raise UsageError("Memory is off, or could not be opened.")
    if rest:
        hits = await memory.search(rest, limit=_MOST_LISTED)
        for hit in hits:
            talk.print(hit_line(hit))
        if not hits:
            talk.note("Nothing is remembered that fits.")
        return
    records = await memory.list(limit=_MOST_LISTED)
    for record in records:
        talk.print(memory_line(record))
    count = await memory.count()
    talk.note(f"{count:,} memories. /memory QUERY searches them, /forget ID forgets one.")


async def _forget(talk: Talk, rest: str) -> None:
    memory = talk.satchel.memory
    if memory is None:
        raise UsageError("Memory is off, or could not be opened.")
    ids = rest.split()
    if not ids:
        raise UsageError("Say which: /forget ID. /memory QUERY shows the ids.")
    for id in ids:
        talk.print(memory_line(await memory.get(id)))
    if (await talk.reader.ask("Forget this for good? [y/N] ")).strip().lower() in ("y", "yes"):
        talk.print(receipt_text(await talk.satchel.forget(ids)))


async def _model(talk: Talk, rest: str) -> None:
    if rest:
        talk.session.use_model(await talk.satchel.model(rest))
        talk.note(f"{talk.model_name} answers from now on.")
        return
    talk.print(talk.model_name)
    choice = await talk.satchel.choice()
    talk.note(f"{choice.name} serves by default: {choice.why}.")
    for tried in choice.tried:
        talk.note(f"  {tried.name}: {tried.reason}")
    talk.note("/model PROVIDER:MODEL changes it for this conversation.")


async def _mode(talk: Talk, rest: str) -> None:
    gate = talk.session.gate
    if not rest:
        talk.print(gate.mode)
        for rule in gate.rules:
            talk.print(f"  {rule.action} {rule.text}")
        talk.note(f"/mode {' | '.join(get_args(Mode))} changes it for this conversation.")
        return
    for mode in get_args(Mode):
        if mode == rest.lower():
            gate.mode = mode
            talk.note(f"Mode {mode} from now on.")
            return
    raise UsageError(f"There is no mode {rest!r}; there are {', '.join(get_args(Mode))}.")


async def _sessions(talk: Talk, _rest: str) -> None:
    infos = await talk.satchel.sessions.list()
    for info in infos[:_MOST_LISTED]:
        talk.print(session_line(info) + ("  ← this one" if info.id == talk.session.id else ""))
    talk.note(f"{len(infos)} sessions. /resume ID goes on with one.")


async def _resume(talk: Talk, rest: str) -> None:
    if not rest:
        raise UsageError("Say which: /resume ID. /sessions lists them.")
    await talk.change_session(rest)


async def _new(talk: Talk, _rest: str) -> None:
    await talk.change_session(None)


async def _private(talk: Talk, _rest: str) -> None:
    await talk.change_session(None, private=True)


async def _compact(talk: Talk, rest: str) -> None:
    done = await talk.session.compact(rest)
    if done is None:
        talk.note("There is nothing to sum up yet.")
    else:
        talk.view.show(done)


async def _usage(talk: Talk, _rest: str) -> None:
    talk.print(f"this session: {usage_line(talk.session.usage) or 'nothing yet'}")
    today = f"{talk.satchel.clock.now():%Y-%m-%d}"
    rows = [row for row in await talk.satchel.usage() if row.day == today]
    if rows:
        talk.print(usage_table(rows))


async def _quit(_talk: Talk, _rest: str) -> None:
    raise EOFError


COMMANDS = {
    command.name: command
    for command in (
        SlashCommand(name="help", usage="[COMMAND]", help="What can be typed here.", run=_help),
        SlashCommand(
            name="tool",
            usage="[NAME | approve NAME]",
            help="The tools, or one of them; take a changed executable for good.",
            run=_tool,
        ),
        SlashCommand(name="refresh", usage="", help="Look for tools again.", run=_refresh),
        SlashCommand(name="run", usage="NAME JSON", help="Run a tool yourself.", run=_run),
        SlashCommand(name="memory", usage="[QUERY]", help="What is remembered, or what fits.", run=_memory),
        SlashCommand(name="forget", usage="ID…", help="Forget memories for good.", run=_forget),
        SlashCommand(
            name="model", usage="[PROVIDER:MODEL]", help="The model that answers, or another.", run=_model
        ),
        SlashCommand(
            name="mode",
            usage="[ask | auto | plan | bypass]",
            help="Who permits calls, and the rules in force; or another mode.",
            run=_mode,
        ),
        SlashCommand(name="sessions", usage="", help="The conversations.", run=_sessions),
        SlashCommand(name="resume", usage="ID", help="Go on with a conversation.", run=_resume),
        SlashCommand(name="new", usage="", help="Begin a new conversation.", run=_new),
        SlashCommand(name="private", usage="", help="Begin one that is not remembered.", run=_private),
        SlashCommand(
            name="compact", usage="[FOCUS]", help="Sum up older messages, keeping FOCUS.", run=_compact
        ),
        SlashCommand(name="usage", usage="", help="Tokens and money.", run=_usage),
        SlashCommand(name="quit", usage="", help="Leave.", run=_quit),
        SlashCommand(name="exit", usage="", help="Leave.", run=_quit),
    )
}
