from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.memory import Episode, Memory
from satchel.memory.store.redaction import find_secrets, hide_private, private_parts, redact, strip_private
from satchel.memory.text.credentials import candidates
from tests.memory.labelled_secrets import INNOCENT, JWT, OPENAI, PEM, SECRETS
from tests.memory.leaks import (
    HARMLESS,
    LATER_HARMLESS,
    LATER_LEAKS,
    LEAKS,
    LINKED,
    MORE_HARMLESS,
    MORE_LEAKS,
    SPELLED,
    TYPED,
    UNLINKED,
    UNSPELLED,
    UNTYPED,
)
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

EVERY_SECRET = (*SECRETS, *LEAKS, *MORE_LEAKS, *LATER_LEAKS, *SPELLED, *TYPED, *LINKED)


@requirement("memory:capture:redacted")
@pytest.mark.parametrize(
    ("text", "secret"),
    EVERY_SECRET,
    ids=[text[:30] for text, _ in EVERY_SECRET],
)
def test_every_secret_of_the_labelled_sets_is_taken_out(text: str, secret: str) -> None:
    shown = redact(text)
    assert [line for line in secret.split("\n") if line in shown] == []
    assert "[redacted:" in shown
    assert redact(shown) == shown


@requirement("memory:capture:redacted")
def test_of_two_keys_that_are_joined_nothing_is_left() -> None:
    secret = "a1b2c3d4" * 6
    assert "3d4" not in redact(f"tskey-auth-{secret}--sk_{secret}")


@requirement("memory:capture:redacted")
def test_no_innocent_text_is_taken_for_a_secret() -> None:
    innocent = (*INNOCENT, *HARMLESS, *MORE_HARMLESS, *LATER_HARMLESS, *UNSPELLED, *UNTYPED, *UNLINKED)
    assert [text for text in innocent if any(True for _ in candidates(text))] == []


@pytest.mark.parametrize("number", ["6249176411909233", "4425730452351", "38440783041522"])
def test_digits_of_a_hash_are_no_card(number: str) -> None:
    digest = f"a7{number}{'0c1d' * 16}"[:64]
    assert redact(f'{{"content_hmac": "{digest}"}}') == f'{{"content_hmac": "{digest}"}}'
    assert redact(f"My card is {number}.") == "My card is [redacted:card-number]."


def test_what_was_taken_out_is_named_and_the_words_around_it_stay() -> None:
    assert redact(f"Use {OPENAI} and my PIN is 4921.") == (
        "Use [redacted:openai-key] and my PIN is [redacted:pin]."
    )
    assert redact(f"Look:\n{PEM}\nIs it readable?") == "Look:\n[redacted:private-key]\nIs it readable?"
    assert redact("postgresql://satchel:marmalade9@db/prod") == (
        "postgresql://satchel:[redacted:password]@db/prod"
    )
    assert redact(f"Authorization: Bearer {JWT}") == "Authorization: Bearer [redacted:token]"


@given(st.text(alphabet=st.sampled_from("aA1 :=-./@\"'\n<>[]_") | st.characters(), max_size=300))
def test_any_text_is_redacted_once_and_for_all(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    ends = 0
    for secret in find_secrets(text):
        assert ends <= secret.start < secret.end <= len(text)
        ends = secret.end


@requirement("memory:capture:private-turn")
def test_private_parts_are_taken_out_also_where_they_are_never_closed() -> None:
    assert strip_private("Book it. <private>I am ill.</private> Thanks") == "Book it.  Thanks"
    assert strip_private("a <PRIVATE>b</Private> c <private>d") == "a  c "
    assert strip_private("a < b and <privates> are kept") == "a < b and <privates> are kept"
    assert private_parts("a <private> b </private> <private>c") == ("b", "c")


@requirement("memory:capture:private-turn")
@pytest.mark.parametrize(
    ("text", "kept", "parts"),
    [
        ("a <private >b</private > c", "a  c", ("b",)),
        ("a < private\n>b</ private> c", "a  c", ("b",)),
        ('a <private reason="health">b</private> c', "a  c", ("b",)),
        ("a <private>b <private>c</private> d</private> e", "a  e", ("b", "c", "d")),
        ("a <private>b <private>c</private> d", "a ", ("b", "c", "d")),
        ("a <private>b</private> c</private> d", "a  c</private> d", ("b",)),
        ("a <private/>b", "a ", ("b",)),
        ("a &lt;private&gt;b&lt;/private&gt; c", "a  c", ("b",)),
        ('a &LT;Private x="1"&GT;b</private> c', "a  c", ("b",)),
        ("a &lt;b&gt; c", "a &lt;b&gt; c", ()),
        ("a <private-key> b <privateer>", "a <private-key> b <privateer>", ()),
    ],
)
def test_private_parts_may_be_nested_and_written_with_blanks(
    text: str, kept: str, parts: tuple[str, ...]
) -> None:
    assert strip_private(text) == kept
    assert private_parts(text) == parts
    assert all(part not in hide_private(text).replace("[private]", "") for part in parts)


@requirement("memory:capture:redacted", "memory:capture:private-turn")
async def test_memory_keeps_neither_secrets_nor_private_parts() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        id = await memory.add(f"Deploy with {OPENAI}", tags=[f"key={OPENAI}", "work"], quote=f"with {OPENAI}")
        record = await memory.get(id)
        assert (record.content, record.tags, record.source.quote) == (
            "Deploy with [redacted:openai-key]",
            ("key=[redacted:openai-key]", "work"),
            "with [redacted:openai-key]",
        )
        (kept,) = await memory.add_episodes(
            [
                Episode(
                    session="s", turn=1, speaker="Ann", text="My PIN is 4921. <private>I am ill.</private>"
                ),
                Episode(session="s", turn=2, speaker="Ann", text="<private>Only for you.</private>"),
            ]
        )
        assert (await memory.get(kept)).content == "My PIN is [redacted:pin]. "
        assert await memory.count() == 2


async def test_redaction_can_be_switched_off() -> None:
    async with Memory.open(":memory:", embedder="none", redact=False) as memory:
        assert (await memory.get(await memory.add("My PIN is 4921."))).content == "My PIN is 4921."
