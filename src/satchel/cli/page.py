"""`satchel memory page`: the page that stands before a model in every session, its versions, and the user's edits."""

from __future__ import annotations

import click

from satchel.cli.commands import json_option, said_json
from satchel.cli.output import say, say_lines, tell
from satchel.cli.settings import read_settings
from satchel.cli.stores import scope_option, with_memory
from satchel.errors import NotFound, UsageError
from satchel.memory import PageVersion, version_to_json
from satchel.memory.show.page.editing import as_text, difference
from satchel.runtime.lines import page_lines, version_words
from satchel.tui.plain_text import plain

_MOST_VERSIONS = 50
_ABOVE = """\
<!-- A heading for each section, and a line for each statement. A line that you change or add is yours: no model
rewrites it. What you delete stays off the page. "(until 2026-05-01)" at the end of a line says how long it stands. -->
"""


@click.command()
@click.option("--edit", "is_edit", is_flag=True, help="Edit the page in $EDITOR.")
@click.option("--accept", is_flag=True, help="Let models see a page that was only proposed.")
@click.option("--versions", is_flag=True, help="List what the page was.")
@click.option("--diff", "is_diff", is_flag=True, help="Show what the last version changed.")
@click.option("--undo", is_flag=True, help="Make the version before the last one the page again.")
@click.option("--restore", type=click.IntRange(1), metavar="NUMBER", help="Make this version the page again.")
@scope_option
@json_option
def page(
    is_edit: bool,
    accept: bool,
    versions: bool,
    is_diff: bool,
    undo: bool,
    restore: int | None,
    scope: str,
) -> None:
    """Show the page about you that a model knows in every session.

    A model writes it from the facts that memory drew from your conversations; each line is compared with them. Your own
    edits stay, and every version can be restored.
    """
    wanted = [is_edit, accept, versions, is_diff, undo, restore is not None]
    if sum(wanted) > 1:
        raise UsageError("Choose one of --edit, --accept, --versions, --diff, --undo and --restore.")
    if versions or is_diff:
        _show_versions(scope, is_diff=is_diff)
        return
    if accept:
        if not with_memory(lambda memory: memory.accept_page(), scope):
            raise NotFound("No page waits to be accepted.")
        tell("From the next conversation on, models see the page.")
    elif undo or restore is not None:
        version = with_memory(lambda memory: memory.restore_page(restore), scope)
        tell(f"The page is what it was: version {version.number}.")
    elif is_edit:
        _edit(scope)
    _show(scope)


def _show(scope: str) -> None:
    budget = read_settings().memory.page_tokens
    found = with_memory(lambda memory: memory.page(budget_tokens=budget, proposed=True), scope)
    if said_json(None if found is None else found.to_json()):
        return
    if found is None:
        tell(
            "The page is off (memory.page_tokens = 0)."
            if not budget
            else "There is no page yet. It holds what a model notes when it reads your conversations."
        )
        return
    say_lines(*page_lines(found, budget_tokens=budget))
    if found.version.state == "proposed":
        tell("`satchel memory page --accept` lets models see it.")


def _newest(scope: str, limit: int) -> tuple[PageVersion, ...]:
    return with_memory(lambda memory: memory.page_versions(limit=limit), scope)


def _show_versions(scope: str, *, is_diff: bool) -> None:
    found = _newest(scope, 2 if is_diff else _MOST_VERSIONS)
    if said_json([version_to_json(version) for version in found]):
        return
    if not found:
        raise NotFound("There is no page yet.")
    if is_diff:
        tell(version_words(found[0]))
        for line in difference(found[1] if len(found) > 1 else None, found[0]):
            say(plain(line))
        return
    for version in found:
        state = ", not accepted yet" if version.state == "proposed" else ""
        say(plain(f"{version_words(version)}: {len(version.shown)} lines{state}"))


def _edit(scope: str) -> None:
    before = _newest(scope, 1)
    base = before[0] if before else None
    text = as_text(base.lines) if base is not None else "# Who the user is\n"
    edited = click.edit(_ABOVE + text, extension=".md", require_save=True)
    if edited is None:
        tell("Nothing was changed.")
        return
    written = edited.split("-->", 1)[-1]
    version = with_memory(
        lambda memory: memory.edit_page(written, base=base.number if base is not None else 0), scope
    )
    tell(f"Written as version {version.number}.")
