"""`satchel memory doctor`: find what is wrong with the memories, and repair it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from satchel.cli.commands import json_option, said_json
from satchel.cli.output import is_terminal, say, tell
from satchel.cli.stores import memory_of, scope_option, with_home
from satchel.memory.checkup import Checkup, Repaired, TakenOut, checkup_to_json
from satchel.runtime.home import Home
from satchel.runtime.lines import counted
from satchel.sessions import Words


@click.command()
@click.option(
    "--fix", is_flag=True, help="Repair the indexes, embed what is missing, remove injected text and secrets."
)
@click.option("--yes", is_flag=True, help="Don't ask before removing secrets.")
@scope_option
@json_option
def doctor(fix: bool, yes: bool, scope: str) -> int:
    """Check the memories; the exit code is 1 while something needs repair.

    It counts duplicates, echoes of what was shown, memories shown after they became invalid, faded and undated ones,
    and secrets, and checks the indexes and the embedder. With --fix it repairs what it can. Secrets are removed
    permanently, from the session logs too, after a confirmation.
    """
    found = with_home(lambda home: memory_of(home).check(), scope)
    repaired: Repaired | None = None
    if fix and (found.problems or found.notes):
        secrets = _may_remove_secrets(found, yes=yes)

        async def repair(home: Home) -> tuple[Repaired, Checkup]:
            done = await memory_of(home).repair(secrets=secrets)
            await _redact_logs(home, done.taken_out)
            return done, await memory_of(home).check()

        repaired, found = with_home(repair, scope)
    shown = checkup_to_json(found)
    if repaired is not None:
        shown["repaired"] = replace(repaired, taken_out=())
    if not said_json(shown):
        _show(found, repaired)
    return 1 if found.problems else 0


def _may_remove_secrets(found: Checkup, *, yes: bool) -> bool:
    count = found.secrets + found.secret_changes
    if not count or yes:
        return bool(count)
    if not is_terminal(sys.stdin):
        tell("! The secrets were not removed. Without a terminal, --yes removes them.")
        return False
    for id in found.secret_ids[:20]:
        tell(f"  {id}")
    return click.confirm(
        f"Remove the secrets from {counted(count, 'entry', 'entries')} permanently?", err=True
    )


async def _redact_logs(home: Home, taken: Sequence[TakenOut]) -> None:
    """Remove the same secrets from the logs of the sessions in which they were said."""
    said = [
        Words(text=one.text, session=one.session, turn=one.turn)
        for one in taken
        if one.session is not None and one.text.strip()
    ]
    if said:
        done = await home.sessions.redact(said)
        for error in done.errors:
            tell(f"! {error}")


def _show(found: Checkup, repaired: Repaired | None) -> None:
    if repaired is not None:
        for count, one, many, what in (
            (repaired.reindexed, "memory", "memories", "indexed again for search by words"),
            (repaired.orphans, "orphaned row", "orphaned rows", "removed"),
            (repaired.stripped, "memory", "memories", "cleaned of injected text"),
            (repaired.emptied, "memory", "memories", "of only injected text forgotten"),
            (repaired.redacted, "memory", "memories", "redacted"),
            (repaired.embedded, "memory", "memories", "embedded"),
        ):
            if count:
                say(f"✓ {counted(count, one, many)} {what}")
    every = found.memories
    for name, count, of, note in (
        ("duplicates", found.duplicates, found.facts, "facts with the same words as an earlier one"),
        ("echoes", found.echoes, every, "contain what was shown"),
        ("stale", found.stale, every, "shown after they had become invalid"),
        (
            "faded",
            found.faded,
            every,
            "not used for long: found only by search; `satchel memory list --faded`",
        ),
        ("undated", found.undated, every, "without a known time"),
        ("secrets", found.secrets, every, "seem to contain a secret"),
    ):
        say(f"{name:11} {count:>8,}  {count / max(1, of):>6.1%}  {note}")
    say(f"{'memories':11} {every:>8,}")
    embedder = found.embedder or "none: search uses words only"
    say(f"{'embedder':11} {embedder}")
    for problem in found.problems:
        say(f"✗ {problem}")
    for note in found.notes:
        say(f"· {note}")
    if found.problems and repaired is None:
        tell("`satchel memory doctor --fix` repairs what it can.")
    if not found.problems:
        say("✓ Nothing needs repair.")
