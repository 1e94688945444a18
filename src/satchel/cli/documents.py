"""`satchel memory add-file`, `documents` and `watch`: documents as memories."""

from __future__ import annotations

from pathlib import Path

import click
from anyio.to_thread import run_sync

from satchel.cli.commands import Text, json_option, said_json
from satchel.cli.output import say, tell
from satchel.cli.settings import read_settings
from satchel.cli.stores import memory_command, memory_of, scope_option, with_home
from satchel.errors import UsageError
from satchel.memory import Memory
from satchel.runtime.documents import DocumentOutcome, add_documents
from satchel.runtime.home import Home
from satchel.runtime.lines import counted
from satchel.runtime.memory_work import can_leave_work, leave_work
from satchel.runtime.sandboxes import Sandboxes
from satchel.runtime.serving import serving
from satchel.runtime.watching import WatchedFolder, folder_line, unwatch, watch, watched
from satchel.tui.plain_text import plain

_MOST_FAILED = 20


@click.command("add-file")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@scope_option
@json_option
def add_file(paths: tuple[Path, ...], scope: str) -> None:
    """Remember the documents at PATHS: files, or folders with all that is below them.

    Supported: PDF, DOCX, PPTX, XLSX, ODT, ODS, ODP, EPUB, HTML, Markdown, plain text and CSV; with the extra ocr also
    scans, and photos that are named themselves. They are read in the sandbox. Adding a folder again reads what has
    changed and removes what is no longer there.
    """

    def show(one: DocumentOutcome) -> None:
        passages = "" if one.outcome in ("removed", "failed") else f", {counted(one.passages, 'passage')}"
        note = f". {one.note}" if one.note else ""
        tell(f"! {plain(one.error)}" if one.error else f"{one.outcome}{passages}: {plain(one.path)}{note}")

    async def take_in(home: Home) -> tuple[DocumentOutcome, ...]:
        sandboxes = Sandboxes(home.settings, home.clock)
        try:
            return await add_documents(paths, memory=memory_of(home), sandboxes=sandboxes, done=show)
        finally:
            await sandboxes.aclose()

    outcomes = with_home(take_in, scope)
    settings = read_settings()
    if any(one.outcome in ("added", "replaced") for one in outcomes) and can_leave_work(settings):
        leave_work(settings)  # embeds the passages, so that no search waits for it
    said_json(list(outcomes))
    failed = sum(one.outcome == "failed" for one in outcomes)
    if failed or not outcomes:
        raise UsageError(
            f"{counted(failed, 'document was', 'documents were')} not remembered."
            if failed
            else "There is no document of a supported kind."
        )


@click.command("documents")
@memory_command
async def documents(memory: Memory) -> None:
    """List the documents that are remembered."""
    found = await memory.documents()
    if said_json(list(found)):
        return
    for one in found:
        say(f"{plain(one.path)}  {plain(one.title)}  {counted(one.passages, 'passage')}")
    if not found:
        tell("No document is remembered.")


@click.command("watch")
@click.argument("folder", required=False, type=Text)
@click.option("--list", "shows", is_flag=True, help="List the watched folders. The default without FOLDER.")
@click.option("--stop", is_flag=True, help="Stop watching FOLDER. Its documents stay remembered.")
@click.option("--remove", is_flag=True, help="With --stop: remove its documents from memory. The files stay.")
@json_option
def watch_folder(folder: str | None, shows: bool, stop: bool, remove: bool) -> None:
    """Remember the documents below FOLDER, now and whenever they change.

    A changed file replaces its passages, and a deleted one takes them along. The files are read in the background, by
    the server or the process that does memory's work; --list shows how far it is.
    """
    if (stop and not folder) or (shows and folder) or (remove and not stop):
        raise UsageError("Give a FOLDER to watch, or --stop FOLDER, or --list.")

    async def run(home: Home) -> tuple[WatchedFolder, ...]:
        memory = memory_of(home)
        if folder is not None and stop:
            count = await unwatch(home, memory, folder, remove=remove)
            tell(f"Not watched any more. {counted(count, 'document was', 'documents were')} removed.")
        elif folder is not None:
            tell(f"Watched: {plain(str(await run_sync(watch, home, Path(folder))))}")
            if serving(home.settings.home) is None and not (
                can_leave_work(home.settings) and leave_work(home.settings)
            ):
                tell("It is read when a server or a chat runs, or now by: satchel memory work")
        return await watched(home, memory)

    found = with_home(run)
    if not said_json(list(found)) and folder is None:
        for one in found:
            say(plain(f"{one.path}  {folder_line(one)}"))
            for error in list(one.failed.values())[:_MOST_FAILED]:
                tell(f"! {plain(error)}")
        if not found:
            tell("No folder is watched.")
