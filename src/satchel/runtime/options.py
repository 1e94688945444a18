"""Questions with numbered options: which option an answer means."""

from __future__ import annotations

import re
from collections.abc import Sequence


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
