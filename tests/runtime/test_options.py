"""A number chooses an option."""

from __future__ import annotations

import pytest

from satchel.runtime.options import chosen_option


@pytest.mark.parametrize(
    ("typed", "options", "answer"),
    [
        ("2", ["red", "blue"], "blue"),
        (" 1. ", ["red", "blue"], "red"),
        ("2)", ["red", "blue"], "blue"),
        ("3", ["red", "blue"], "3"),
        ("0", ["red", "blue"], "0"),
        ("2", ["2", "4"], "2"),
        ("4", ["2", "4"], "4"),
        ("blue", ["red", "blue"], "blue"),
        ("2 of them", ["red", "blue"], "2 of them"),
        ("2", [], "2"),
    ],
)
def test_a_number_selects_an_option_and_other_words_are_the_answer(
    typed: str, options: list[str], answer: str
) -> None:
    assert chosen_option(typed, options) == answer
