"""The tool `propose_plan`: ends the turn with a plan, and carries on in another mode once the user approves it.

While a plan is open, and until one is approved or the user changes the mode, the session is in mode `plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from satchel.config import Mode
from satchel.tools.builtin.record import BuiltIn
from satchel.tools.builtin.todo import SIGNS, STATE_KEY, show_items, steps_in
from satchel.tools.display import Display
from satchel.tools.port import Annotations, Effect, Modes, Question, Tool, ToolContext, ToolResult, ToolSpec
from satchel.wording import yes_or_no

_NO: Final = "No"
DESCRIPTION = """Propose a plan before anything is changed, and wait until the user approves, changes or refuses it. \
`plan` is Markdown: the approach, and what it leaves out; don't repeat it in your text. `steps` become the to-do list \
once it is approved."""


def _options(modes: Modes) -> dict[str, Mode]:
    """What approves a plan, each with the mode that it leads to, the one from before first."""
    others: tuple[Mode, ...] = ("ask", "auto")
    wanted = dict.fromkeys((modes.before_plan, *others))
    return {f"Yes, in mode {mode}": mode for mode in wanted}


def offered_mode(options: Sequence[str]) -> Mode | None:
    """The mode that a question offered first: what a bare "yes" means, also in another process."""
    first = options[0] if options else ""
    return next((mode for mode in get_args(Mode) if first == f"Yes, in mode {mode}"), None)


def _approved(answer: str, modes: Modes) -> Mode | None:
    """The mode in which the plan is carried out; None where it isn't approved. Only what is surely a yes is one."""
    words = _plain(answer)
    named = {_plain(option): mode for option, mode in _options(modes).items()}
    return named.get(words) or (modes.before_plan if yes_or_no(answer) else None)


def _plain(answer: str) -> str:
    return answer.strip().rstrip(".!").casefold()


@dataclass(frozen=True, slots=True)
class _ProposePlan:
    spec: ToolSpec

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        return ()

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if context.modes is None:
            return ToolResult(text="Only in a conversation can a plan be proposed.", is_error=True)
        context.modes.mode = "plan"
        # Not numbered: the options are.
        steps = "\n".join(f"- {step}" for step in input["steps"])
        text = "\n\n".join(["Approve this plan?", input["plan"].strip(), f"Steps:\n\n{steps}"])
        options = (*_options(context.modes), _NO)
        return ToolResult(text=text, question=Question(text=text, options=options, resumable=True))

    async def resume(self, answer: str, context: ToolContext) -> ToolResult:
        steps, modes = _steps_of(context), context.modes
        if steps is None or modes is None:
            return ToolResult(
                text="The plan is not in the conversation any more. Propose it again.", is_error=True
            )
        mode = _approved(answer, modes)
        if mode is None:
            return ToolResult(
                text="The user does not want this plan. Ask in a sentence what they want instead."
                if _plain(answer) in (_plain(_NO), "n")
                else f'The plan is not approved. The user said: "{answer.strip()}". Answer that; if the plan changes, '
                "propose it again."
            )
        modes.mode = mode
        items = [{"text": step, "status": "pending"} for step in steps]
        context.state[STATE_KEY] = items
        rows = "\n".join(f"{SIGNS['pending']} {step}" for step in steps)
        return ToolResult(
            text=f"The user approved the plan. Mode {mode} from now on: carry it out. Your to-do list:\n\n{rows}",
            data=items,
        )


def _steps_of(context: ToolContext) -> list[str] | None:
    """The steps that the open call proposes; it may have been made with `tool_call`, and by an earlier process."""
    for message in reversed(context.messages()):
        for block in message.tool_uses:
            if block.id == context.call_id and block.input is not None:
                input = block.input if "steps" in block.input else block.input.get("input", {})
                return list(input["steps"]) if "steps" in input else None
    return None


def propose_plan_tool() -> Tool:
    """Make the tool."""
    return _ProposePlan(
        ToolSpec(
            name="propose_plan",
            description=DESCRIPTION,
            input_schema={
                "type": "object",
                "properties": {
                    "plan": {"type": "string", "minLength": 1},
                    "steps": {
                        "type": "array",
                        "items": {"type": "string", "minLength": 1},
                        "minItems": 1,
                        "maxItems": 100,
                    },
                },
                "required": ["plan", "steps"],
                "additionalProperties": False,
            },
            annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
            is_deferred=True,
        )
    )


PROPOSE_PLAN: Final = BuiltIn(
    name="propose_plan",
    make=lambda _: propose_plan_tool(),
    display=Display(
        call=steps_in,
        result=lambda input, text: show_items(input, text.partition("\n\n")[2] or text),
        kind="think",
        is_plan=True,
        is_question=True,
    ),
)
