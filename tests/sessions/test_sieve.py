"""A log that is not read record by record contains none of the words, however they are spelt there."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from satchel.sessions.redaction import Matchers, Sieve, Words
from satchel.spacing import Finder
from tests.requirements import requirement

ODD = st.characters(codec="utf-8") | st.sampled_from(
    "\\&/\"'<>\n\t\b\f nrtbux0041;\u00ad\u200b\u202e\ufb01ßÄ\u0301"
)
TEXTS = st.text(ODD | st.sampled_from("abcn "), max_size=24)
SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    str.upper,
    str.title,
    html.escape,
    json.dumps,
    lambda text: json.dumps(json.dumps(text)),
    "\u00ad".join,
    lambda text: text.replace(" ", "\n"),
    lambda text: text.replace("n", "\\n"),
)


@requirement("memory:forget:odd-texts")
@given(TEXTS, st.lists(TEXTS, max_size=3), st.sampled_from(SPELLINGS), st.booleans(), TEXTS, TEXTS)
def test_what_would_be_found_in_a_record_is_let_through(
    words: str, others: list[str], spelling: Callable[[str], str], ascii_only: bool, before: str, after: str
) -> None:
    record: dict[str, Any] = {
        "type": "assistant",
        "text": before + spelling(words) + after,
        "input": {spelling(words): others},
    }
    line = json.dumps(record, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") + b"\n"
    found = any(Finder([words]).subn(text, "")[1] for text in (record["text"], spelling(words), *others))
    sieve = Sieve([Words(text=words)], memory_ids=["m1"], matchers=Matchers())
    assert sieve.lets_through("s1", [line]) or not found


@requirement("memory:forget:odd-texts")
def test_a_log_without_the_words_is_not_read_further() -> None:
    words = [Words(text="The locker code is tangerine."), Words(text="Blue.", session="s9", turn=2)]
    sieve = Sieve(words, memory_ids=["m77"], matchers=Matchers())

    def is_let(text: str, session: str = "s1") -> bool:
        return sieve.lets_through(session, [json.dumps({"text": text}).encode()])

    assert not is_let("The locker code is blue.")
    assert all(
        map(
            is_let,
            ("THE LOCKER\u00ad code is tangerine.", "see m77", "as said in s9", "The [… 9 characters …] end"),
        )
    )
    assert is_let("anything", session="s9")
