"""`satchel memory add-file` and `satchel memory documents`: documents as memories."""

from __future__ import annotations

from pathlib import Path

import click

from satchel.cli.commands import json_option
from satchel.cli.output import plain, say, say_json, tell
from satchel.cli.stores import memory_of, scope_option, with_home, with_memory
from satchel.errors import UsageError
from satchel.runtime.documents import DocumentOutcome, add_documents
from satchel.runtime.home import Home
from satchel.runtime.lines import counted
from satchel.runtime.sandboxes import Sandboxes

__all__ = ["add_file", "documents"]


@click.command("add-file")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@scope_option
@json_option
def add_file(paths: tuple[Path, ...], scope: str, as_json: bool) -> None:
    """Remember the documents at PATHS: files, or folders with all that is below them.

    Supported: PDF, DOCX, PPTX, XLSX, EPUB, HTML, Markdown, plain text and CSV. They are read in the sandbox. Adding a
    folder again reads what has changed and removes what is no longer there.
    """

    def show(one: DocumentOutcome) -> None:
        passages = "" if one.outcome in ("removed", "failed") else f", {counted(one.passages, 'passage')}"
        tell(f"! {plain(one.error)}" if one.error else f"{one.outcome}{passages}: {plain(one.path)}")

    async def take_in(home: Home) -> tuple[DocumentOutcome, ...]:
        sandboxes = Sandboxes(home.settings, home.clock)
        try:
            return await add_documents(paths, memory=memory_of(home), sandboxes=sandboxes, done=show)
        finally:
            await sandboxes.aclose()

    outcomes = with_home(take_in, scope)
    if as_json:
        say_json(list(outcomes))
    failed = sum(one.outcome == "failed" for one in outcomes)
    if failed or not outcomes:
        raise UsageError(
            f"{counted(failed, 'document was', 'documents were')} not remembered."
            if failed
            else "There is no document of a supported kind."
        )


@click.command("documents")
@scope_option
@json_option
def documents(scope: str, as_json: bool) -> None:
    """List the documents that are remembered."""
    found = with_memory(lambda memory: memory.documents(), scope)
    if as_json:
        say_json(list(found))
        return
    for one in found:
        say(f"{plain(one.path)}  {plain(one.title)}  {counted(one.passages, 'passage')}")
    if not found:
        tell("No document is remembered.")
