"""Makes a session's permission gate from the settings, the caller's rules and the user's answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from satchel.capabilities.allowances import Allowances
from satchel.config import Mode, RuleOptions, Settings, add_permission, own_rules, remove_permission
from satchel.config import PermissionRule as WrittenRule
from satchel.errors import ConfigError, NotFound, UsageError
from satchel.memory.store.redaction import redact
from satchel.runtime.agreed import Agreed
from satchel.runtime.parts import Parts
from satchel.tools import Approver, ModeGate, Rule, parse_rule
from satchel.tools.box import Boxing
from satchel.tools.patterns import matcher

_log = logging.getLogger(__name__)


def gate_for(
    settings: Settings,
    *,
    mode: Mode,
    allow: Sequence[str],
    approver: Approver | None,
    cwd: Path,
    open_folders: Sequence[Path] = (),
    boxing: Boxing | None = None,
    on_written: Callable[[WrittenRule], None] = lambda _: None,
    agreed: Agreed,
) -> ModeGate:
    """Make the gate. The rules in `allow` are for this session only. `on_written` is told of a rule that an answer
    wrote down in the settings file; `agreed` tells everybody itself.

    Raises:
        UsageError: A rule can't be read.
    """
    rules = [read_rule(rule) for rule in settings.permissions]
    rules += [parse_rule("allow", text) for text in allow]
    if settings.sandbox.network:
        # A rule with hosts and without a pattern lets no call run that would not run without it.
        rules.append(parse_rule("allow", "*", RuleOptions(network=settings.sandbox.network)))

    async def write_down(rule: Rule) -> None:
        written = WrittenRule(action=rule.action, tool=rule.subject, options=rule.options)
        await write_rule(settings, written, agreed)
        on_written(written)

    return ModeGate(
        mode,
        rules,
        approver,
        cwd=cwd,
        open_folders=open_folders,
        environ=settings.environ,
        on_always=write_down,
        look=agreed.look,
        boxing=boxing,
        before_plan=settings.agent.mode if settings.agent.mode != "plan" else "ask",
    )


def read_rule(rule: WrittenRule) -> Rule:
    """A rule of the settings as a gate takes it."""
    return parse_rule(rule.action, rule.tool, rule.options)


async def write_rule(settings: Settings, rule: WrittenRule, agreed: Agreed) -> None:
    """Add a rule to the settings file, or to what all machines of the home agree to.

    Raises:
        UsageError: It seems to contain a secret.
        ConfigError: The file is invalid, or the rule would make it so; it is unchanged.
        StorageError: It can't be written; nothing changed.
    """
    if settings.memory.redact and await anyio.to_thread.run_sync(redact, rule.text) != rule.text:
        raise UsageError("The rule seems to contain a secret, which must not be in the settings file.")
    if agreed.is_shared:
        await agreed.change(lambda known: replace(known, rules=(*_without(known.rules, rule), rule)))
    else:
        await anyio.to_thread.run_sync(add_permission, settings.config_path, rule)


async def remove_rule(settings: Settings, rule: WrittenRule, agreed: Agreed) -> None:
    """Remove a rule from the settings file and from what all machines of the home agree to.

    Raises:
        NotFound: It is in neither.
        ConfigError: The file is invalid; it is unchanged.
        StorageError: It can't be written.
    """
    is_agreed = rule in agreed.known.rules
    if is_agreed:
        await agreed.change(lambda known: replace(known, rules=_without(known.rules, rule)))
    try:
        await anyio.to_thread.run_sync(remove_permission, settings.config_path, rule)
    except NotFound:
        if not is_agreed:
            raise


def _without(rules: Sequence[WrittenRule], one: WrittenRule) -> tuple[WrittenRule, ...]:
    return tuple(rule for rule in rules if rule != one)


async def allowances_now(parts: Parts) -> Allowances:
    """What the rules say about capabilities: those of the settings, and those that the user has written since.

    A worker lives on while the user edits the file. If that has become unreadable, the settings' rules hold.
    """
    await parts.agreed.look()
    settings = parts.settings
    try:
        written = await anyio.to_thread.run_sync(own_rules, settings.config_path)
    except ConfigError as error:
        _log.warning("The permission rules are those that the program started with: %s", error)
        written = ()
    return Allowances(tuple(dict.fromkeys((*settings.permissions, *written))))


def withheld_from_searches(settings: Settings) -> tuple[str, ...]:
    """The patterns of rules that deny reading a file or ask for it: searches leave out what they match."""
    rules = [parse_rule(rule.action, rule.tool) for rule in settings.permissions if rule.action != "allow"]
    reading = ("file_read", "grep", "glob")
    return tuple(
        rule.pattern
        for rule in rules
        if rule.pattern is not None and any(matcher(rule.tool)(name) for name in reading)
    )
