"""Which words a rewritten log lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from satchel.sessions.rewriting import words_taken
from tests.requirements import requirement

GONE = "[forgotten]"
SAID = "My locker code is tangerine seven."


@requirement("memory:forget:running-session")
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param([{"text": SAID}], [{"text": GONE}], {SAID}, id="all of a text"),
        pytest.param([{"text": "44"}], [{"text": GONE}], {"44"}, id="all of a short text"),
        pytest.param([{"text": f"You said: {SAID} Right?"}], [{"text": f"You said: {GONE} Right?"}], {SAID}, id="a part"),
        pytest.param([{"text": f"{SAID} {SAID}"}], [{"text": f"{GONE} {GONE}"}], {f"{SAID} {SAID}"}, id="unclear ends"),
        pytest.param(
            [{"text": f"One: {SAID} Two: My bicycle is green."}],
            [{"text": f"One: {GONE} Two: {GONE}"}],
            {SAID, "My bicycle is green."},
            id="two parts",
        ),
        pytest.param([{"text": "tange[… 9 …]"}], [{"text": f"{GONE}[… 9 …]"}], set(), id="the rest of a cut text"),
        pytest.param([{"text": f"{GONE} {SAID}"}], [{"text": f"{GONE} {GONE}"}], set(), id="forgotten before, unclear"),
        pytest.param([{"input": {SAID: [1]}}], [{"input": {GONE: [1]}}], {SAID}, id="a name"),
        pytest.param([{"n": 1}, {"text": SAID}], [{"n": 1}, {"text": GONE}, {"text": SAID}], {SAID}, id="more lines"),
        pytest.param([{"text": SAID}], [{"text": "Something else."}], set(), id="not a rewrite"),
        pytest.param([f"broken {SAID}"], [f"broken {GONE}"], {SAID}, id="a broken line"),
    ],
)  # fmt: skip
def test_the_words_that_a_rewrite_took_are_known_from_the_lines(
    before: list[Any], after: list[Any], words: set[str]
) -> None:
    assert set(words_taken(_lines(before), _lines(after))) == words


def _lines(values: list[Any]) -> list[bytes]:
    return [(value if isinstance(value, str) else json.dumps(value)).encode() + b"\n" for value in values]
