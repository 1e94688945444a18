"""`satchel memory doctor`: what is wrong with what is remembered, and mending it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from satchel.cli.commands import json_option
from satchel.cli.output import is_terminal, say, say_json, tell
from satchel.cli.stores import memory_of, scope_option, with_home
from satchel.memory.checkup import Checkup, Repaired, TakenOut, checkup_to_json
from satchel.runtime.home import Home
from satchel.sessions import Words

__all__ = ["doctor"]


@click.command()
@click.option(
    "--fix", is_flag=True, help="Mend indexes, embed what is missing, take out injected text and secrets."
)
@click.option("--yes", is_flag=True, help="Don't ask before secrets are taken out.")
@scope_option
@json_option
def doctor(fix: bool, yes: bool, scope: str, as_json: bool) -> int:
    """Check what is remembered; the exit code is 1 while something should be mended.

    It counts duplicates, echoes of what was shown, memories shown after they ceased to hold, faded and undated ones,
    and secrets; and looks at the indexes and the embedder. With --fix it mends what can be mended. Taking secrets out
    is for good, from the logs of conversations too, and asked for first.
    """
    found = with_home(lambda home: memory_of(home).check(), scope)
    repaired: Repaired | None = None
    if fix and (found.problems or found.notes):
        secrets = _may_take_out(found, yes=yes)

        async def mend(home: Home) -> tuple[Repaired, Checkup]:
            done = await memory_of(home).repair(secrets=secrets)
            await _mend_logs(home, done.taken_out)
            return done, await memory_of(home).check()

        repaired, found = with_home(mend, scope)
    if as_json:
        shown = checkup_to_json(found)
        if repaired is not None:
            shown["repaired"] = {
                "reindexed": repaired.reindexed,
                "orphans": repaired.orphans,
                "stripped": repaired.stripped,
                "emptied": repaired.emptied,
                "redacted": repaired.redacted,
                "embedded": repaired.embedded,
            }
        say_json(shown)
    else:
        _show(found, repaired)
    return 1 if found.problems else 0


def _may_take_out(found: Checkup, *, yes: bool) -> bool:
    count = found.secrets + found.secret_changes
    if not count or yes:
        return bool(count)
    if not is_terminal(sys.stdin):
        tell("! Secrets stay where they are: --yes takes them out where nobody can be asked.")
        return False
    for id in found.secret_ids[:20]:
        tell(f"  {id}")
    return click.confirm(f"Take the secrets out of {count:,} of them for good?", err=True)


async def _mend_logs(home: Home, taken: Sequence[TakenOut]) -> None:
    """Take the same secrets out of the logs of the sessions that they were said in."""
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
        for count, what in (
            (repaired.reindexed, "memories read again for the lexical index"),
            (repaired.orphans, "rows that belonged to nothing removed"),
            (repaired.stripped, "memories freed from injected text"),
            (repaired.emptied, "memories of nothing but injected text forgotten"),
            (repaired.redacted, "memories without their secrets now"),
            (repaired.embedded, "memories embedded"),
        ):
            if count:
                say(f"✓ {count:,} {what}")
    every = found.memories
    for name, count, of, note in (
        ("duplicates", found.duplicates, found.facts, "facts in the same words as an earlier one"),
        ("echoes", found.echoes + found.restated, every, "hold or restate what was shown"),
        ("stale", found.stale, every, "shown after they had ceased to hold"),
        ("faded", found.faded, every, "found by search alone"),
        ("undated", found.undated, every, "nobody knows when they were said"),
        ("secrets", found.secrets, every, "look like holding one"),
    ):
        say(f"{name:11} {count:>8,}  {count / max(1, of):>6.1%}  {note}")
    say(f"{'memories':11} {every:>8,}")
    embedder = found.embedder or "none: memories are found by their words alone"
    say(f"{'embedder':11} {embedder}")
    for problem in found.problems:
        say(f"✗ {problem}")
    for note in found.notes:
        say(f"· {note}")
    if found.problems and repaired is None:
        tell("`satchel memory doctor --fix` mends what can be mended.")
    if not found.problems:
        say("✓ Nothing to mend.")
