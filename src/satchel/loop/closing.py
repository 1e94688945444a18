"""What the user is told when a turn ends before the model came to its own end: what happened, what is
open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from satchel.errors import BudgetExceeded, ContextOverflow, ModelError, SatchelError
from satchel.loop.calls import ToolCallRecord
from satchel.models.port import ChatModel

__all__ = [
    "CANCELLED_RUNNING",
    "CANCELLED_WAITING",
    "CUT_OFF",
    "FAILED_RUNNING",
    "FAILED_WAITING",
    "budget_text",
    "cut_text",
    "empty_text",
    "endless_text",
    "failure_text",
    "question_text",
    "refusal_text",
    "repeat_text",
    "rounds_text",
]

CANCELLED_RUNNING = (
    "Cancelled by the user while it was running: what it had done by then is unknown. "
    "Check before you repeat it."
)
CANCELLED_WAITING = "Cancelled by the user before it was started: it had no effect."
FAILED_RUNNING = (
    "Stopped while it was running, because the turn failed: what it had done by then is unknown. "
    "Check before you repeat it."
)
FAILED_WAITING = "Not started, because the turn failed: it had no effect."
CUT_OFF = (
    "Not run: your answer reached its greatest length before this call was complete. "
    "Ask again with a shorter input, in several calls if need be."
)


def _done(steps: Sequence[ToolCallRecord]) -> str:
    """The calls of a turn in a sentence."""
    if not steps:
        return "No tool was run."
    counts = Counter(step.tool for step in steps)
    failed = sum(step.is_error for step in steps)
    names = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts.most_common(8))
    more = f" and {len(counts) - 8} other tools" if len(counts) > 8 else ""
    return f"Done so far: {names}{more}{f'; {failed} of these failed' if failed else ''}."


def rounds_text(max_rounds: int, steps: Sequence[ToolCallRecord], last: Sequence[ToolCallRecord]) -> str:
    """After the last round that a turn may have; `last` are its calls, whose results nobody has looked at."""
    open_names = ", ".join(dict.fromkeys(step.tool for step in last))
    still = f" Open: the results of the last calls ({open_names}) were not looked at yet." if last else ""
    times = "1 round" if max_rounds == 1 else f"{max_rounds} rounds"
    return (
        f"I stopped after {times}, the most that one turn may have (agent.max_rounds). {_done(steps)}{still} "
        "Say “go on”, and I carry on from here."
    )


def budget_text(exceeded: str, steps: Sequence[ToolCallRecord]) -> str:
    """When a budget is used up."""
    return f"I stopped. {exceeded} {_done(steps)} Raise the budget in the settings to go on."


def repeat_text(times: int, steps: Sequence[ToolCallRecord]) -> str:
    """When the model makes the same call for ever."""
    tool = steps[-1].tool if steps else "a tool"
    return (
        f"I stopped: I had made the same call ({tool}) {times} times in a row with the same result, "
        f"and was getting nowhere. {_done(steps)} Tell me what to try instead."
    )


def question_text(said: str, question: str) -> str:
    """When the user is asked: what the model said beside its question belongs to it."""
    if said.rstrip().endswith(question.strip()):
        return said
    return f"{said}\n\n{question}" if said.strip() else question


def cut_text(text: str) -> str:
    """When the answer reached the most tokens that the model may write."""
    note = (
        "[The answer was cut off at the greatest length that the model may write. Say “go on” for the rest.]"
    )
    return f"{text}\n\n{note}" if text else note


def endless_text(text: str, max_bytes: int) -> str:
    """When the answer did not end."""
    note = f"[The model did not come to an end; its answer was stopped after {max_bytes:,} bytes.]"
    return f"{text}\n\n{note}" if text else note


def refusal_text(text: str, model: ChatModel) -> str:
    """When the provider broke the answer off for what it says."""
    note = (
        f"{model.provider} refused to go on with this answer. "
        "Put the question differently, or use another model."
    )
    return f"{text}\n\n[{note}]" if text else note


def empty_text(model: ChatModel, steps: Sequence[ToolCallRecord]) -> str:
    """When the model said nothing at all."""
    return (
        f"{model.provider}:{model.model} ended its answer without saying anything. {_done(steps)} Ask again."
    )


def failure_text(error: Exception, model: ChatModel) -> str:
    """When an error ended the turn."""
    if isinstance(error, ContextOverflow):
        return (
            f"This conversation does not fit the window of {model.provider}:{model.model} any more, "
            f"even after older messages were summarised ({error}). "
            "Send a shorter message, or put long text into a file and name it."
        )
    if isinstance(error, ModelError):
        return f"I have no answer from {model.provider}:{model.model}. {error}"
    if isinstance(error, BudgetExceeded):
        return str(error)
    if isinstance(error, SatchelError):
        return f"The turn could not be finished. {error}"
    return f"Something in Satchel itself failed ({type(error).__name__}: {error}). The log has the details."
