"""The limits of a turn: rounds, seconds, characters, tokens, dollars."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from satchel.conversation import Conversation
from satchel.errors import BudgetExceeded
from satchel.messages import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a model that sends nothing is waited for.

    Attributes:
        tell_s: After this many seconds of an answer's first silence, the user is told what is waited for (issue 19).
        end_s: After this many seconds of silence, the request is given up. A local model may need minutes to read a
            long prompt; the SDKs of the providers wait for 600 s as well.
    """

    tell_s: float = 10.0
    end_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """The limits of a turn. The first four are settings of `[agent]`; their defaults come from seed-0 and the design.

    Attributes:
        max_rounds: Model calls in a turn; at least 1. It bounds a turn that has gone astray (decision 123).
        tool_timeout_s: Seconds for a call whose tool sets no limit of its own.
        patience: With a model that sends nothing; its end is a setting.
        max_result_chars: Characters of a result that the model gets; the whole is stored in a file.
        max_calls: Calls that run in one round. The largest sensible round in the transcripts of other agents has a
            dozen; a model that asks for more than 64 has gone astray.
        max_answer_bytes: Text, thinking and arguments of one answer, as UTF-8. The longest output that a provider
            offers, 128,000 tokens, is about half of it.
        max_repeats: After this many rounds in a row with the same call and the same result, the model is told; one more
            ends the turn.
        max_stale: So many rounds in a row that brought nothing new, neither a call nor a result, end the turn: a model
            that goes round in circles (seed-0: ten rounds, whatever they brought).
        max_repeated: The same of rounds that brought no new call, though results that were new, if only by a time.
        compact_at: The part of the model's window, in (0, 1], above which older messages are summarised.
        keep_part: The part of the window that the newest messages may keep when that happens.
        max_tokens: Output tokens of one answer; None uses the model's own limit.
        hook_timeout_s: Seconds that a hook may take before it is reported and skipped.
        emit_timeout_s: Seconds that one write to the session log may take.
        closing_timeout_s: The same while a cancelled turn is being closed.
    """

    max_rounds: int = 1000
    tool_timeout_s: float = 30.0
    patience: Patience = Patience()
    max_result_chars: int = 30_000
    max_calls: int = 64
    max_answer_bytes: int = 1_000_000
    max_repeats: int = 3
    max_stale: int = 10
    max_repeated: int = 50
    compact_at: float = 0.8
    keep_part: float = 0.3
    max_tokens: int | None = None
    hook_timeout_s: float = 10.0
    emit_timeout_s: float = 30.0
    closing_timeout_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the model answers in one turn; None leaves a choice to the model's adapter.

    Attributes:
        temperature: 0 to 2.
        max_tokens: Of each answer; the smaller of this and `TurnLimits.max_tokens` counts.
        response_schema: A JSON Schema that the text of the answer must match, if the endpoint supports it.
        options: Further parameters; see `ModelRequest.options`. A forced choice of a tool holds in each round, so the
            turn goes on until the model calls a tool that the caller runs.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    response_schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a budget check.

    Attributes:
        exceeded: A sentence that names the budget and its amounts; "" while the budget holds.
        notice: Something that the user should know about the budget, or "".
    """

    exceeded: str = ""
    notice: str = ""


class Budget(Protocol):
    """Decides whether one more model call may be made."""

    async def check(self, spent: Usage, *, unpriced: int, ahead_tokens: int) -> Verdict:
        """Check the budget before or after a model call.

        Args:
            spent: What this turn has used so far.
            unpriced: The number of this turn's model calls of unknown cost, which `spent.cost_usd` does not include.
            ahead_tokens: Estimated input of the next call; 0 after a call.
        """
        ...


@dataclass(slots=True, kw_only=True)
class HardBudget:
    """The three limits of `[budget]`; None means no limit.

    Attributes:
        conversation: That of the session, whose usage includes the running turn's.
        spent_on_day: What all sessions have spent today in US dollars, the running turn included. It is called at each
            check, because other sessions keep running.
    """

    conversation: Callable[[], Conversation]
    spent_on_day: Callable[[], Awaitable[float]]
    session_usd: float | None = None
    day_usd: float | None = None
    turn_tokens: int | None = None
    _told: bool = False

    async def check(self, spent: Usage, *, unpriced: int, ahead_tokens: int) -> Verdict:
        """See `Budget`. An unknown cost counts as zero, and the user is told so once."""
        ahead = f", and the next call would add about {ahead_tokens:,}" if ahead_tokens else ""
        if self.turn_tokens is not None and spent.total_tokens + ahead_tokens > self.turn_tokens:
            return Verdict(
                exceeded=f"The budget of a turn, {self.turn_tokens:,} tokens (budget.turn_tokens), "
                f"is used up: {spent.total_tokens:,} are spent{ahead}."
            )
        usd: dict[tuple[str, float], float] = {}
        if self.session_usd is not None:
            usd["session", self.session_usd] = self.conversation().usage.cost_usd or 0.0
        if self.day_usd is not None:
            usd["day", self.day_usd] = await self.spent_on_day()
        for (name, limit), so_far in usd.items():
            if so_far >= limit:
                return Verdict(
                    exceeded=f"The budget of a {name}, {limit:.2f} US dollars (budget.{name}_usd), "
                    f"is used up: {so_far:.2f} are spent."
                )
        if usd and unpriced and not self._told:
            self._told = True
            return Verdict(
                notice="No price is known for this model, so a budget in dollars can't be enforced. "
                "Set budget.turn_tokens to limit it."
            )
        return Verdict()

    async def check_call(self) -> None:
        """Check whether a model may be called outside of the turn's rounds.

        Raises:
            BudgetExceeded: It may not.
        """
        verdict = await self.check(self.conversation().turn_usage, unpriced=0, ahead_tokens=0)
        if verdict.exceeded:
            raise BudgetExceeded(verdict.exceeded)
