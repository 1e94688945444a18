"""Text from models, tools and files, made safe and short for a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from satchel.builder.asking import is_consent
from satchel.events import AskedCall, BuildPosted, QuestionAnswered
from satchel.runtime import lines
from satchel.runtime.commands import USERS
from satchel.runtime.lines import counted
from satchel.runtime.tool_display import display_of
from satchel.tools.display import Line
from satchel.tools.visible import visible
from satchel.tui.plain_text import plain

_SAID_OF = {
    "no": "refused",
    "once": "allowed once",
    "session": "allowed for this conversation",
    "always": "always allowed",
}
_LINE = 100
_MOST_SHOWN = 20_000
"""The most characters of a text that are shown. Nobody reads a longer one before deciding."""
_MOST_BESIDE = 4_000
"""The same for a field that doesn't tell what the call does, such as the content of a file."""
_MOST_BLANKS = 16
"""The most blanks in a row. More could push what follows off the screen."""


def one_line(text: str, limit: int = _LINE) -> str:
    """The text as one line of at most `limit` characters, without control characters."""
    return lines.one_line(plain(text[: limit * 8]), limit)


def notice_text(part: str, text: str) -> str:
    """What the program tells, on one line. A skill that is proposed stands below it as it is, and whole: the user says
    yes to all of it.
    """
    first, gap, rest = text.partition("\n\n") if part == "capabilities" else (text, "", "")
    return f"{one_line(first, 1000)}{gap}{rest}"


def post_text(source: str, text: str, *, is_own: bool) -> str:
    """A post in a line; of what the user did here, which is on the screen already, only that the model is told."""
    theirs = source.removeprefix(USERS)
    name = one_line(source) if theirs == source else f"your {one_line(theirs)}"
    return f"✉ {name}: {'told with your next message' if is_own else one_line(text, 1000)}"


def outcome_of(event: QuestionAnswered, *, own: str = "") -> str:
    """What was decided, and by which client, unless that is `own`."""
    if event.consents:
        outcome = ", ".join(dict.fromkeys(_SAID_OF[consent.consent] for consent in event.consents))
    else:
        outcome = "answered" if event.text is not None else "declined" if event.by else "withdrawn"
    return f"{outcome} by {one_line(event.by, 40)}" if event.by and event.by != own else outcome


def how_to_answer(question: BuildPosted, *, at_prompt: bool = False) -> str:
    """What the user may type to answer what a build asks: in a conversation, or at a prompt for nothing else."""
    if is_consent(question.question_id):
        return "Answer yes or no. The build waits for it."
    if at_prompt:
        return "Type a number, or an answer of your own." if question.options else ""
    how = (
        "Type a number, or /answer and your own words."
        if question.options
        else "Your next message answers it."
    )
    return f"{how} /skip leaves it to the Builder."


def call_lines(call: AskedCall) -> tuple[list[str], tuple[Line, ...]]:
    """A call for the user who decides about it: its input, without the change of a file, which is a diff beside it."""
    names, proposed = display_of(call.tool).proposes
    change = proposed(call.input)
    rest = {name: value for name, value in call.input.items() if not change or name not in names}
    return input_lines(rest, subject=call.key) or [""], change


def input_lines(input: Mapping[str, Any], *, subject: str = "") -> list[str]:
    """A call's input, for the user who decides about it. Omissions are marked, and what nobody sees is written out.

    A single text is shown unchanged, several fields with their names, other data as JSON.

    Args:
        input: The call's input.
        subject: The field that tells what the call does, or "". Less of the others is shown.
    """
    if len(input) == 1:
        (value,) = input.values()
        if isinstance(value, str):
            return visible(_whole(value, _MOST_SHOWN)).splitlines() or [""]
    found: list[str] = []
    for name, value in input.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        most = _MOST_BESIDE if subject in input and name != subject else _MOST_SHOWN
        first, *rest = visible(_whole(text, most)).splitlines() or [""]
        # A name that the model made up must not look like another line of the question.
        found += [f"{one_line(visible(name))}: {first}", *(f"    {line}" for line in rest)]
    return found


def _whole(text: str, most: int) -> str:
    if len(text) > most:
        text = f"{text[:most]}\n[not shown: {counted(len(text) - most, 'more character')}]"
    text = re.sub(
        rf"\n(?:[ \t]*\n){{{_MOST_BLANKS},}}",
        lambda m: f"\n[{m[0].count(chr(10)) - 1:,} empty lines]\n",
        text,
    )
    return re.sub(rf"[^\S\n]{{{_MOST_BLANKS + 1},}}", lambda m: f" [{len(m[0]):,} blanks] ", text)
