"""`satchel memory export` and `satchel memory import`: write memories to a file, and read them from one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from satchel.cli.commands import confirm, json_option, said_json, wants_json
from satchel.cli.output import is_terminal, tell
from satchel.cli.settings import read_settings
from satchel.cli.stores import filter_options, filters_of, memory_of, scope_option, with_home
from satchel.errors import UsageError
from satchel.memory.transfer.formats import formats
from satchel.memory.transfer.report import (
    ExportReport,
    ImportReport,
    TransferProgress,
    import_report_to_json,
)
from satchel.runtime.home import Home
from satchel.runtime.importing import CONVERSATIONS, import_into
from satchel.runtime.lines import counted
from satchel.runtime.plugins import plugin_reader
from satchel.tui.plain_text import plain

_SHOWN_EXAMPLES = 5
_SOURCES = ("auto", *formats())


@click.command()
@click.argument("file", default="-", type=click.Path(dir_okay=False, allow_dash=True))
@filter_options
@scope_option
@json_option
def export(file: str, scope: str, **given: Any) -> None:
    """Write memories to FILE as JSON lines, or to stdout.

    The export contains all fields, links and changes, and hashes of what was forgotten; `import` computes the vectors
    again. With a filter, it contains only the matching memories, and nothing about forgotten ones.
    """
    wanted = filters_of(given)
    if file == "-" and wants_json():
        raise UsageError("The memories go to stdout; give a FILE to get the report as JSON.")

    async def carry(home: Home) -> ExportReport:
        if file == "-":
            return await memory_of(home).export_to(sys.stdout.buffer, **wanted)
        report = await memory_of(home).export_to(Path(file), **wanted)
        home.note_copy(Path(file))
        return report

    sys.stdout.flush()
    report = with_home(carry, scope)
    sys.stdout.buffer.flush()
    if said_json(report):
        return
    tell(
        f"Exported {counted(report.memories, 'memory', 'memories')}, {counted(report.edges, 'link')}, "
        f"{counted(report.changes, 'change')} and {counted(report.tombstones, 'record')} of forgotten memories."
    )


@click.command("import")
@click.argument("path", type=click.Path())
@click.option(
    "--from",
    "source",
    metavar="FORMAT",
    default="auto",
    show_default=True,
    help=f"The format: {', '.join(_SOURCES)}, or one of a plugin; auto detects it for each file.",
)
@scope_option
@click.option("--dry-run", is_flag=True, help="Only count; write nothing.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def import_memories(path: str, source: str, scope: str, dry_run: bool, yes: bool) -> None:
    """Import memories and conversations from PATH: a file, a .zip, or a folder.

    Supported: Satchel's own export, the exports of ChatGPT, Claude and Gemini, transcripts of Claude Code
    (~/.claude/projects) and Codex (~/.codex/sessions), the MCP memory server's file, folders of Markdown, and mem0's
    export. Dates are kept; secrets and tool output are removed. Each conversation is in `satchel session list` and can
    be continued. Importing the same file again adds only what is new; an interrupted import resumes.
    """
    reader = None if source in _SOURCES else plugin_reader(read_settings().home, source)
    if not yes and not dry_run and is_terminal(sys.stdin) and is_terminal(sys.stderr):
        where = "memory" if scope == "default" else f"the scope {scope}"
        confirm(f"Import {plain(os.fspath(path))} into {where}?", default=True)

    async def take_in(home: Home) -> ImportReport:
        with _bar() as show:
            return await import_into(
                home,
                memory_of(home),
                path,
                source=source if reader is None else "auto",
                dry_run=dry_run,
                progress=show,
                reader=reader,
            )

    report = with_home(take_in, scope)
    if not said_json(import_report_to_json(report)):
        _tell(report)
    if not report.files:
        raise UsageError(
            f"{plain(path)} contains no file of a supported format ({', '.join(formats())}). "
            "Nothing was imported."
        )


def _tell(report: ImportReport) -> None:
    for kind, count in report.files.items():
        tell(f"{counted(count, 'file')} of {kind}")
    would = " (dry run: nothing was written)" if report.dry_run else ""
    skipped = sum(report.skipped.values())
    tell(f"{report.new:,} new, {report.known:,} known, {skipped:,} skipped{would}")
    for outcome, count in report.conversations.items():
        tell(f"  {counted(count, 'conversation')} {CONVERSATIONS[outcome]}")
    for count, one, many in (
        (report.edges, "link", "links"),
        (report.changes, "change", "changes"),
        (report.tombstones, "record of a forgotten memory", "records of forgotten memories"),
        (report.redacted, "memory whose secrets were removed", "memories whose secrets were removed"),
        (report.stripped, "memory cleaned of injected text", "memories cleaned of injected text"),
    ):
        if count:
            tell(f"  {counted(count, one, many)}")
    for reason, count in report.skipped.items():
        tell(f"  ! {count:,} skipped: {reason}")
    for example in report.examples[:_SHOWN_EXAMPLES]:
        tell(f"      {example.where}")
    for reason, count in report.ignored.items():
        tell(f"  {count:,} left out: {reason}")


@contextmanager
def _bar() -> Iterator[Callable[[TransferProgress], None]]:
    """A progress bar on a terminal; nothing elsewhere."""
    if not is_terminal(sys.stderr):
        yield _silent
        return
    # Imported only for a terminal: it takes a tenth of a second.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        DownloadColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[counts]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=None, counts="")

        def show(at: TransferProgress) -> None:
            progress.update(
                task,
                description=plain(at.file)[-18:],
                completed=at.done_bytes,
                total=at.total_bytes,
                counts=f"{at.conversations:,} read, {at.new:,} new, {at.known:,} known",
            )

        yield show


def _silent(_: TransferProgress) -> None:
    """Show nothing."""
