"""Questions with numbered options: which option an answer means."""

from __future__ import annotations

import re
from collections.abc import Sequence

from satchel.wording import yes_or_no


def chosen_option(answer: str, options: Sequence[str]) -> str:
    """The option with the number that was typed; any other answer unchanged.

    Args:
        answer: What the user typed: "2", "2.", or words of their own.
        options: In the order in which they were shown, numbered from 1. An option that is a number itself is chosen by
            its text: if "How many?" offers 2 and 4, the answer "2" means the first option.
    """
    words = answer.strip()
    number = re.fullmatch(r"(\d{1,3})[.)]?", words)
    if number is None or words in options or not 1 <= int(number[1]) <= len(options):
        return answer
    return options[int(number[1]) - 1]


def option_of(answer: str, options: Sequence[str]) -> str:
    """The option that an answer names by its number or its words, or by a plain yes or no; "" if it names none."""
    words, agreed = _plain(chosen_option(answer, options)), yes_or_no(answer)
    named = [option for option in options if _plain(option) == words]
    if agreed is not None:
        named += [option for option in options if yes_or_no(option) is agreed]
    return named[0] if named else ""


def _plain(text: str) -> str:
    return text.strip().rstrip(".!").casefold()
