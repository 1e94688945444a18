"""What the user is told when a turn ends before the model has finished: what happened, and what is left open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from satchel.errors import BudgetExceeded, ContextOverflow, ModelError, SatchelError
from satchel.loop.calls import ToolCallRecord
from satchel.models.port import ChatModel

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
    "Not run: your answer reached the output limit before this call was complete. "
    "Ask again with shorter input, in several calls if necessary."
)


def _done(steps: Sequence[ToolCallRecord]) -> str:
    """Summarise the calls of a turn in a sentence."""
    if not steps:
        return "No tool was run."
    counts = Counter(step.tool for step in steps)
    failed = sum(step.is_error for step in steps)
    names = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts.most_common(8))
    more = f" and {len(counts) - 8} other tools" if len(counts) > 8 else ""
    return f"Done so far: {names}{more}{f'; {failed} of these failed' if failed else ''}."


def rounds_text(max_rounds: int, steps: Sequence[ToolCallRecord], last: Sequence[ToolCallRecord]) -> str:
    """The turn reached its last round; `last` are the calls whose results no model has seen."""
    open_names = ", ".join(dict.fromkeys(step.tool for step in last))
    still = f" The results of the last calls ({open_names}) have not been looked at yet." if last else ""
    times = "1 round" if max_rounds == 1 else f"{max_rounds} rounds"
    return (
        f"I stopped after {times}, the limit for one turn (agent.max_rounds). {_done(steps)}{still} "
        "Say “go on” and I will continue."
    )


def budget_text(exceeded: str, steps: Sequence[ToolCallRecord]) -> str:
    """A budget is used up."""
    return f"I stopped. {exceeded} {_done(steps)} Raise the budget in the settings to continue."


def stuck_text(why: str, steps: Sequence[ToolCallRecord]) -> str:
    """The model makes the same few calls again and again."""
    return f"I stopped because {why}. {_done(steps)} Tell me what to try instead, or say “go on”."


def question_text(said: str, question: str) -> str:
    """A question to the user, with what the model said before it."""
    if said.rstrip().endswith(question.strip()):
        return said
    return f"{said}\n\n{question}" if said.strip() else question


def cut_text(text: str) -> str:
    """The answer reached the model's output limit."""
    note = "[The answer was cut off at the model's output limit. Say “go on” for the rest.]"
    return f"{text}\n\n{note}" if text else note


def endless_text(text: str, max_bytes: int) -> str:
    """The answer did not end."""
    note = f"[The model did not stop writing; its answer was cut off after {max_bytes:,} bytes.]"
    return f"{text}\n\n{note}" if text else note


def refusal_text(text: str, model: ChatModel) -> str:
    """The provider stopped the answer because of its content."""
    note = f"{model.provider} refused to continue this answer. Rephrase the question, or use another model."
    return f"{text}\n\n[{note}]" if text else note


def empty_text(model: ChatModel, steps: Sequence[ToolCallRecord]) -> str:
    """The model said nothing."""
    return f"{model.provider}:{model.model} gave an empty answer. {_done(steps)} Ask again."


def failure_text(error: Exception, model: ChatModel) -> str:
    """An error ended the turn."""
    if isinstance(error, ContextOverflow):
        return (
            f"This conversation no longer fits the context window of {model.provider}:{model.model}, "
            f"even after older messages were summarised ({error}). "
            "Send a shorter message, or put long text into a file and mention its path."
        )
    if isinstance(error, ModelError):
        return f"{model.provider}:{model.model} gave no answer. {error}"
    if isinstance(error, BudgetExceeded):
        return str(error)
    if isinstance(error, SatchelError):
        return f"The turn could not be completed. {error}"
    return (
        f"An internal error occurred in Satchel ({type(error).__name__}: {error}). The log has the details."
    )
