"""What the user's permission rules say about capabilities before they are used: what they may reach without asking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from satchel.capabilities.access import is_private
from satchel.capabilities.records import Access, is_called, tool_name
from satchel.config import PermissionRule
from satchel.errors import Refused
from satchel.tools.box import host_covers
from satchel.tools.patterns import matcher

_OWN = "cap_"
"""Only rules for tools that begin with this say what capabilities may reach; hosts of `bash` or `*` are not theirs."""


@dataclass(frozen=True, slots=True)
class Allowances:
    """The permission rules, as far as they are about whole capabilities: `cap_weather_lookup`, `cap_*`."""

    rules: Sequence[PermissionRule] = ()

    def granted(self, name: str, wanted: Access) -> Access:
        """The part of `wanted` that a rule allows the capability `name`; nothing if a rule denies its calls or asks.

        A private address is allowed only by a rule that names it with its port.
        """
        if self._matching(name, "ask") or self.forbids(name):
            return Access()
        options = [rule.options for rule in self._matching(name, "allow") if rule.tool.startswith(_OWN)]
        return Access(
            hosts=tuple(
                host for host in wanted.hosts if any(_covers(own, host) for o in options for own in o.network)
            ),
            secrets=tuple(each for each in wanted.secrets if any(each in o.secrets for o in options)),
            state=wanted.state and any(o.state for o in options),
        )

    def forbids(self, name: str) -> str:
        """The text of a rule that denies every call of the capability `name`, or ""."""
        return next((rule.text for rule in self._matching(name, "deny")), "")

    def check(self, name: str) -> None:
        """Refuse to have a capability built that could never be used.

        Raises:
            Refused: A rule denies every call of it.
        """
        rule = self.forbids(name)
        if rule:
            raise Refused(
                f"{name} is not built, because the rule 'deny {rule}' forbids its use. Only the user can change that, "
                "in the permissions of the configuration."
            )

    def check_call(self, name: str) -> None:
        """Refuse that another capability calls this one where the user is to be asked about each call, or none is made.

        Raises:
            Refused: A rule says so.
        """
        # A pattern in parentheses counts, too: what it says of single calls is decided where the model makes them.
        rules = [
            rule
            for rule in self.rules
            if rule.action in ("deny", "ask") and matcher(rule.tool.partition("(")[0])(tool_name(name))
        ]
        if rules:
            raise Refused(
                f"{name} is not called by another capability: the rule '{rules[0].action} {rules[0].text}'."
            )

    def _matching(self, name: str, action: str) -> list[PermissionRule]:
        # A pattern in parentheses speaks of single calls.
        return [
            rule
            for rule in self.rules
            if rule.action == action and "(" not in rule.tool and matcher(rule.tool)(tool_name(name))
        ]


Rules = Callable[[], Awaitable[Allowances]]
"""Gives the rules that are in force now: the user may write one while a build goes on."""


async def no_rules() -> Allowances:
    """No rules."""
    return Allowances()


def _covers(own: str, host: str) -> bool:
    if is_called(host):  # no address, so that no star covers it
        return own == host
    return own.lower() == host if is_private(host) else host_covers(own, host)
