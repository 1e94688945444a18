"""`satchel session`: list, show, search, rename, pin, archive, export and delete conversations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from satchel.cli.commands import (
    CommandGroup,
    SessionId,
    Text,
    confirm,
    json_option,
    said_json,
    wants_json,
)
from satchel.cli.output import say, say_json, tell
from satchel.cli.stores import with_home
from satchel.errors import StorageUnwritable, UsageError
from satchel.events import SessionFiled
from satchel.runtime.home import Home
from satchel.runtime.lines import FILING, session_line
from satchel.sessions import SessionInfo, SessionStore, hit_to_json, info_to_json, to_json, to_markdown

T = TypeVar("T")


def _with_sessions(function: Callable[[SessionStore], Awaitable[T]]) -> T:
    return with_home(lambda home: function(home.sessions), with_notices=False)


def _say(infos: Sequence[SessionInfo]) -> None:
    if not said_json([info_to_json(info) for info in infos]):
        for info in infos:
            say(session_line(info))


@click.group(cls=CommandGroup)
def session() -> None:
    """List, show, search, rename, pin, archive, export and delete conversations."""


@session.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@click.option("--here", is_flag=True, help="Only sessions of this working directory.")
@click.option("--archived", is_flag=True, help="The archived ones instead.")
@click.option(
    "--all", "all_", is_flag=True, help="Each branch, and also the archived ones and those of builds."
)
@json_option
def list_sessions(limit: int, here: bool, archived: bool, all_: bool) -> None:
    """List the conversations: pinned ones, then the most recent first, each with its branches as one."""
    cwd = str(Path.cwd().resolve()) if here else None
    found = _with_sessions(lambda store: store.list() if all_ else store.listed(archived=archived))
    infos = [info for info in found if cwd in (None, info.cwd)]
    _say(infos[:limit])
    if wants_json():
        return
    if not infos:
        tell("No session is archived." if archived else "There are no sessions yet. `satchel` starts one.")
    elif len(infos) > limit:
        tell(f"… and {len(infos) - limit} more: use --limit to show them.")


@session.command()
@click.argument("id", type=SessionId)
@json_option
def show(id: str) -> None:
    """Show a conversation; ID may be the beginning of an id."""

    async def read(store: SessionStore) -> dict[str, Any] | str:
        info, log = await store.info(id), await store.load(id)
        for skipped in log.skipped:
            tell(f"! Line {skipped.line} of {log.path} can't be read: {skipped.reason}")
        return to_json(info, log.records) if wants_json() else to_markdown(info, log.records)

    shown = _with_sessions(read)
    if isinstance(shown, str):
        say(shown.rstrip("\n"))
    else:
        say_json(shown)


@session.command()
@click.argument("query", nargs=-1, required=True, type=Text)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
@json_option
def search(query: tuple[str, ...], limit: int) -> None:
    """Search everything that was said, and the tools' inputs and outputs.

    All words must occur, each as the beginning of a word. Words in double quotes must be adjacent.
    """
    hits = _with_sessions(lambda store: store.search(" ".join(query), limit=limit))
    if not said_json([hit_to_json(hit) for hit in hits]):
        for hit in hits:
            say(f"{hit.session_id}  turn {hit.turn}, {hit.kind}: {hit.snippet}")
    if not hits:
        tell(f"No conversation contains {' '.join(query)!r}.")


@session.command()
@click.argument("id", type=SessionId)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "json", "html", "zip"]),
    default="markdown",
    show_default=True,
    help="`zip` has Markdown, JSON and the files; `html` is for others: one file with the pictures, without "
    "memories and what tools were given and returned.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The file; an existing one is not overwritten. Default: stdout.",
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
def export(id: str, form: str, output: Path | None, as_json: bool) -> None:
    """Export a conversation with its branches as Markdown, JSON, a zip with its files, or an HTML file to share."""
    if form == "zip" and not as_json:
        if output is None:
            raise UsageError("A zip needs a file to be written to: add -o NAME.zip.")
        with _created(output) as archive:
            _with_sessions(lambda store: store.export_with_files(id, archive))
        tell(f"Written to {output}.")
        return

    async def exported(store: SessionStore) -> str:
        if form == "html" and not as_json:
            # Imported on demand: it loads what draws pages.
            from satchel.server.pages.shared import shared_file  # noqa: PLC0415

            return await shared_file(store, id)
        return await store.export(id, form="json" if as_json or form == "json" else "markdown")

    text = _with_sessions(exported)
    if output is None:
        say(text.rstrip("\n"))
        return
    with _created(output) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
    tell(f"Written to {output}.")


@contextmanager
def _created(output: Path) -> Iterator[BinaryIO]:
    """A new file, which is removed again if it can't be finished."""
    try:
        with output.open("xb") as file:
            try:
                yield file
            except BaseException:
                output.unlink()
                raise
    except FileExistsError:
        raise UsageError(f"{output} already exists. Choose another name, or remove it first.") from None
    except OSError as error:
        raise StorageUnwritable(f"{output} can't be written: {error.strerror}.") from error


@session.command()
@click.argument("id", type=SessionId)
@click.argument("title", nargs=-1, required=True, type=Text)
@json_option
def rename(id: str, title: tuple[str, ...]) -> None:
    """Give a conversation a title, instead of its first message.

    In a conversation that is open, type `/rename TITLE`.
    """

    async def body(home: Home) -> SessionInfo:
        for one in await home.sessions.branches(id):
            await home.note_of(one.id, home.titled(" ".join(title)))
        return await home.sessions.info(id)

    say_session(with_home(body, with_notices=False))


def say_session(info: SessionInfo) -> None:
    """Print a conversation as a line, or as JSON."""
    if not said_json(info_to_json(info)):
        say(session_line(info))


def _filing(verb: str, about: str) -> None:
    """Add the command that files conversations by a verb."""

    @session.command(verb, help=about)
    @click.argument("ids", nargs=-1, required=True, type=SessionId)
    @json_option
    def command(ids: tuple[str, ...]) -> None:
        async def body(home: Home) -> list[SessionInfo]:
            # An id that is wrong stops everything before anything is changed.
            infos = [await home.sessions.info(id) for id in ids]
            change = FILING[verb].change
            event = SessionFiled(pinned=change.get("pinned"), archived=change.get("archived"))
            for info in infos:
                for one in await home.sessions.branches(info):
                    await home.note_of(one.id, event)
            return [await home.sessions.info(info.id) for info in infos]

        _say(with_home(body, with_notices=False))


_filing("pin", "Show conversations first in lists.")
_filing("unpin", "Take pins back.")
_filing("archive", "Leave conversations out of lists, until something is said in them.")
_filing("unarchive", "Take conversations out of the archive.")


@session.command()
@click.argument("id", type=SessionId)
@click.argument("turn", type=click.IntRange(1))
@json_option
def branch(id: str, turn: int) -> None:
    """Make a conversation that repeats this one up to a turn, to go on otherwise.

    `satchel chat --session` with the id that it prints goes on there.
    """

    async def body(store: SessionStore) -> SessionInfo:
        return await store.info(await store.branch(id, turn))

    say_session(_with_sessions(body))


@session.command()
@click.argument("ids", nargs=-1, required=True, type=SessionId)
@click.option("--only", is_flag=True, help="Keep the other branches.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def delete(ids: tuple[str, ...], only: bool, yes: bool) -> None:
    """Delete the logs of conversations and their branches permanently.

    Memories of them stay; `satchel memory forget --session ID` forgets those.
    """

    async def find(store: SessionStore) -> list[SessionInfo]:
        wanted = [await store.info(id) for id in ids]
        found = wanted if only else [one for info in wanted for one in reversed(await store.branches(info))]
        return list({one.id: one for one in found}.values())

    infos = _with_sessions(find)
    if not yes:
        for info in infos:
            tell(session_line(info))
        confirm("Delete permanently?", doing="deleting")

    async def remove(store: SessionStore) -> list[str]:
        return [await store.delete(info.id) for info in infos]

    deleted = _with_sessions(remove)
    if not said_json({"deleted": deleted}):
        for id in deleted:
            tell(f"Deleted {id}.")
