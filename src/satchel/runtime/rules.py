"""The permission gate of a session, made of the settings, the command line and the user's answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from satchel.config import Mode, Settings, add_permission
from satchel.errors import UsageError
from satchel.memory.redaction import redact
from satchel.tools import Approver, ModeGate, Rule, parse_rule
from satchel.tools.patterns import matcher

__all__ = ["gate_for", "withheld_from_searches"]


def gate_for(
    settings: Settings,
    *,
    mode: Mode,
    allow: Sequence[str],
    approver: Approver | None,
    cwd: Path,
    open_folders: Sequence[Path] = (),
) -> ModeGate:
    """Make the gate.

    Args:
        settings: Their rules count.
        mode: Where no rule decides.
        allow: Rules that hold for this session.
        approver: None where nobody can be asked.
        cwd: The session's working directory.
        open_folders: More folders that may be read freely.

    Raises:
        UsageError: A rule can't be read.
    """
    rules = [parse_rule(rule.action, rule.tool) for rule in settings.permissions]
    rules += [parse_rule("allow", text) for text in allow]

    async def write_down(rule: Rule) -> None:
        if settings.memory.redact and await anyio.to_thread.run_sync(redact, rule.text) != rule.text:
            raise UsageError("It seems to hold a secret, and the settings file holds none.")
        await anyio.to_thread.run_sync(add_permission, settings.config_path, rule.action, rule.text)

    return ModeGate(
        mode,
        rules,
        approver,
        cwd=cwd,
        open_folders=open_folders,
        environ=settings.environ,
        on_always=write_down,
    )


def withheld_from_searches(settings: Settings) -> tuple[str, ...]:
    """The patterns of the rules that deny reading a file, or want to be asked: no search reads it by the way."""
    rules = [parse_rule(rule.action, rule.tool) for rule in settings.permissions if rule.action != "allow"]
    reading = ("file_read", "grep", "glob")
    return tuple(
        rule.pattern
        for rule in rules
        if rule.pattern is not None and any(matcher(rule.tool)(name) for name in reading)
    )
