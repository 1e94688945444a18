"""What models do in the background: one switch and one budget for all of it, and what it has cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from satchel.errors import BudgetExceeded
from satchel.memory.records import PICTURE
from satchel.messages import Usage
from satchel.plain import as_json
from satchel.runtime.lines import spent_by_purpose

if TYPE_CHECKING:
    from satchel.config import BackgroundSettings
    from satchel.memory.store.spending import SpentRow
    from satchel.sessions import UsageRow

TITLE: Final = "title"
EARN: Final = "earn"
CALLED_BY_CODE: Final = "capability"
BACKGROUND: Final = ("gate", "extract", "judge", TITLE, PICTURE, EARN, CALLED_BY_CODE)
"""What models are asked for though the user asked for nothing: what is worth remembering, the facts in it, the choice
of what is shown with a message, the titles of conversations, what pictures show, what is worth a tool, and the calls of
capabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundDay:
    """What models did in the background on one local day.

    Attributes:
        kinds: Calls and usage by purpose, in the order of `BACKGROUND`; those that did nothing are in it, too.
    """

    kinds: dict[str, tuple[int, Usage]]
    settings: BackgroundSettings

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(calls for calls, _ in self.kinds.values())

    @property
    def usage(self) -> Usage:
        """All usage."""
        return sum((usage for _, usage in self.kinds.values()), Usage())

    @property
    def spent(self) -> str:
        """Why nothing more may be done today, or ""."""
        tokens, usd = self.settings.day_tokens, self.settings.day_usd
        if tokens is not None and self.usage.total_tokens >= tokens:
            return f"{self.usage.total_tokens:,} of {tokens:,} tokens a day (background.day_tokens)"
        if usd is not None and (self.usage.cost_usd or 0.0) >= usd:
            return f"${self.usage.cost_usd:.4f} of ${usd:g} a day (background.day_usd)"
        return ""

    def check(self) -> None:
        """Refuse more work.

        Raises:
            BudgetExceeded: The budget of the day is used up.
        """
        if self.spent:
            raise BudgetExceeded(
                f"Models have used {self.spent} in the background. The rest is done tomorrow, or by "
                "`satchel memory distill` now."
            )


def background_day(
    rows: Iterable[SpentRow | UsageRow], day: str, settings: BackgroundSettings
) -> BackgroundDay:
    """Add up what models did in the background on a local day ("2026-11-26")."""
    kinds = dict.fromkeys(BACKGROUND, (0, Usage()))
    for row in rows:
        if row.day == day and row.purpose in kinds:
            calls, usage = kinds[row.purpose]
            kinds[row.purpose] = (calls + row.calls, usage + row.usage)
    return BackgroundDay(kinds=kinds, settings=settings)


def background_lines(found: BackgroundDay) -> list[str]:
    """A line for each kind of work and one for all of it, against the budget."""
    budget = found.settings
    limits = [f"{budget.day_tokens:,} tokens"] if budget.day_tokens is not None else []
    limits += [f"${budget.day_usd:g}"] if budget.day_usd is not None else []
    head = f"In the background today, of {' and '.join(limits)}:" if limits else "In the background today:"
    if budget.models == "off":
        head = "Models do nothing in the background (background.models = off). Today:"
    rows = [*found.kinds.items(), ("total", (found.calls, found.usage))]
    return [head, *(_row(name, calls, usage) for name, (calls, usage) in rows)]


def _row(name: str, calls: int, usage: Usage) -> str:
    cost = "" if usage.cost_usd is None else f"  ${usage.cost_usd:.4f}"
    return f"  {name:10}  {calls:>5,} calls  {usage.total_tokens:>10,} tokens{cost}"


def spent_to_json(rows: Iterable[UsageRow], *, days: int) -> list[dict[str, Any]]:
    """For `satchel usage --json` and `GET /api/usage`: the most recent days with any use."""
    rows = tuple(rows)
    newest = sorted({row.day for row in rows}, reverse=True)[:days]
    summed = spent_by_purpose(row for row in rows if row.day in newest)
    return [
        {
            "day": day,
            "model": model,
            "purpose": purpose,
            "background": purpose in BACKGROUND,
            "calls": calls,
            **as_json(spent),
        }
        for (day, model, purpose), (calls, spent) in summed.items()
    ]
