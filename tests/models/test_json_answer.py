"""Answers in which tools are called by JSON in the text."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from satchel.messages import Block, TextBlock, ToolUseBlock
from satchel.models.identifiers import CallIds
from satchel.models.json_answer import PREAMBLE_CHARS, JsonAnswerReader
from tests.requirements import requirement


def ids() -> CallIds:
    return CallIds(lambda: set())


def said(text: str) -> tuple[Block, ...]:
    return (TextBlock(text=text),)


def call(number: int, name: str, input: dict[str, Any] | None, unparsed: str = "") -> ToolUseBlock:
    return ToolUseBlock(id=f"call_{number}", name=name, input=input, unparsed=unparsed)


def read_in_pieces(pieces: list[str]) -> tuple[str, tuple[Block, ...]]:
    """What was shown while it came, and the blocks at the end."""
    reader = JsonAnswerReader()
    shown = "".join([reader.feed(piece) for piece in pieces])
    last, blocks = reader.finish(ids())
    return shown + last, blocks


LONG = "These words are an answer of their own and longer than any preamble would be. " * 2

ANSWERS: list[tuple[str, tuple[Block, ...]]] = [
    ("Just prose.", said("Just prose.")),
    ("", ()),
    ("  \n ", ()),
    ('{"final": "Done."}', said("Done.")),
    ('{"final": ""}', ()),
    ('```json\n{"final": "Done."}\n```', said("Done.")),
    ('```\n{ "final" : "Done." }\n```\nAnything else?', said("Done.")),
    ('Sure, here it is:\n{"final": "Done."}', said("Done.")),
    (f'{LONG}{{"final": "Done."}}', said(f"{LONG.strip()}\n\nDone.")),
    ('{"final": "a {b} [c] \\"d\\" \\n\\u00e9 \\ud83d\\ude00 \\/ \\\\"}', said('a {b} [c] "d" \né \U0001f600 / \\')),
    ('{"final": "two\nlines"}', said("two\nlines")),
    ('{"final": "He said "yes" to me."}', said('He said "yes" to me.')),
    ('{"final": "yes", "confidence": 1}', said("yes")),
    ('{"final": "half an ans', said("half an ans")),
    ('{"final": "lone \\ud83d half"}', said("lone \ufffd half")),
    ('{"final": {"a": 1}}', said('{"a": 1}')),
    ('{"final": 42}', said("42")),
    ('{"final": null}', ()),
    ('{"action": {"tool": "t", "input": {"a": 1}}}', (call(1, "t", {"a": 1}),)),
    ('{"action": {"tool": "t"}}', (call(1, "t", {}),)),
    ('{"action": {"name": "t", "arguments": {"a": 1}}}', (call(1, "t", {"a": 1}),)),
    ('{"action": "t", "action_input": {"a": 1}}', (call(1, "t", {"a": 1}),)),
    ('{"action": {"tool": "t", "input": "{\\"a\\": 1}"}}', (call(1, "t", {"a": 1}),)),
    ('{"action": {"tool": "t", "input": "ls -l"}}', (call(1, "t", None, "ls -l"),)),
    ('{"action": {"tool": "t", "input": [1]}}', (call(1, "t", None, "[1]"),)),
    ('{"action": {"tool": "t", "input": {"a": NaN}}}', (call(1, "t", None, '{"a": NaN}'),)),
    (
        '{"actions": [{"tool": "t", "input": {"a": "}"}}, {"tool": "u", "input": {}}]}',
        (call(1, "t", {"a": "}"}), call(2, "u", {})),
    ),
    (
        'Let me look.\n```json\n{"action": {"tool": "t", "input": {}}}\n```\n```json\n{"action": {"tool": "u"}}\n```',
        (TextBlock(text="Let me look."), call(1, "t", {}), call(2, "u", {})),
    ),
    # What a model says after its calls it made up: the results are not there yet.
    (
        '{"action": {"tool": "t", "input": {}}}\n{"observation": "made up", "tool": "t"}\n{"final": "made up"}',
        (call(1, "t", {}),),
    ),
    ('{"final": "Done."}\n{"action": {"tool": "t", "input": {}}}', said("Done.")),
    ('{"thought": "I should look {here}", "action": {"tool": "t", "input": {}}}', (call(1, "t", {}),)),
    ('{"thought": "I know", "final": "Done."}', said("Done.")),
    # A call that is no JSON keeps its words: the model gets the parse error, never `{}`.
    (
        '{"action": {"tool": "t", "input": {"command": "ls',
        (call(1, "t", None, '{"action": {"tool": "t", "input": {"command": "ls'),),
    ),
    (
        "{\"action\": {\"tool\": \"t\", \"input\": {'a': 1}}}",
        (call(1, "t", None, "{\"action\": {\"tool\": \"t\", \"input\": {'a': 1}}}"),),
    ),
    # JSON that asks for nothing is text.
    ('{"a": 1}', said('{"a": 1}')),
    ('{"action": 5}', said('{"action": 5}')),
    ('{"actions": []}', said('{"actions": []}')),
    ('{"actions": [{"tool": "t"}, 5]}', said('{"actions": [{"tool": "t"}, 5]}')),
    ('Send {"a": {"b": 1}} to it, or {} alone.', said('Send {"a": {"b": 1}} to it, or {} alone.')),
    ('```json\n{"a": 1}\n```', said('```json\n{"a": 1}\n```')),
    ('```python\nprint({"final": 1})\n```', said("1")),
    ("Use `x` and ``y``, `{` and ```", said("Use `x` and ``y``, `{` and ```")),
    ("{{{{[[[", said("{{{{[[[")),
    ('{"fin', said('{"fin')),
]  # fmt: skip


@requirement("models:layers:json", "models:layers:text", "models:arguments:unparsed")
@pytest.mark.parametrize(("text", "blocks"), ANSWERS)
def test_an_answer_is_read_as_what_it_says(text: str, blocks: tuple[Block, ...]) -> None:
    assert read_in_pieces([text])[1] == blocks
    shown, read = read_in_pieces(list(text))
    assert read == blocks
    assert shown.strip() == "".join(block.text for block in blocks if isinstance(block, TextBlock)).strip()


def test_the_words_of_final_are_shown_as_they_come() -> None:
    reader = JsonAnswerReader()
    pieces = ['```json\n{"fi', 'nal": "One', " two", "\\", 'n three."', "}\n```"]
    assert [reader.feed(piece) for piece in pieces] == ["", "One", " two", "", "\n three.", ""]


def test_prose_is_shown_once_it_is_too_long_for_a_preamble() -> None:
    reader = JsonAnswerReader()
    assert reader.feed("x" * PREAMBLE_CHARS) == ""
    assert reader.feed("y") == "x" * PREAMBLE_CHARS + "y"
    assert reader.feed(" z") == " z"


def test_no_part_of_a_call_is_ever_shown() -> None:
    reader = JsonAnswerReader()
    text = 'I will look. {"action": {"tool": "t", "input": {"at": "a"}}}'
    assert "".join(reader.feed(letter) for letter in text) == ""
    assert reader.finish(ids())[0] == "I will look."


def test_a_million_characters_in_small_pieces_cost_no_more_than_a_few_readings_of_them() -> None:
    # Each of them would take minutes if every piece read what came before again; the suite's own limit would end it.
    for opening in ("prose ", '{"final": "', '{"thought": "', '{"final": [', "```json\n", '{"a": {'):
        reader = JsonAnswerReader()
        reader.feed(opening)
        for _ in range(100_000):
            reader.feed('words { "x')
        reader.finish(ids())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
inputs = st.dictionaries(st.text(), json_values, max_size=4)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)
fragments = st.sampled_from(
    [
        '{"action": {"tool": "t", "input": {}}}',
        '{"final": "a',
        '"}',
        '{"final": "done"}',
        "```json\n",
        "```",
        "{",
        "}",
    ]
    + [
        '"',
        "\\",
        "\n",
        " ",
        "prose",
        '{"a": 1}',
        '{"thought": "x", ',
        '"action": ',
        "[",
        ",",
        "\\ud83d",
        "\\u00e9",
        LONG,
    ]
)
texts = st.lists(fragments | st.text(max_size=5), max_size=12).map("".join)


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(edges)]


@given(texts, st.lists(st.integers(min_value=0), max_size=8))
@example('```json\n{"final": "a\\ud83d\\ude00"}', [20, 25])
def test_how_an_answer_is_cut_into_pieces_changes_nothing(text: str, places: list[int]) -> None:
    shown, blocks = read_in_pieces(cut(text, places))
    assert blocks == read_in_pieces([text])[1]
    words = "".join(block.text for block in blocks if isinstance(block, TextBlock))
    assert shown == words or not shown.strip()


@given(
    st.lists(st.tuples(names, inputs), min_size=1, max_size=4),
    st.sampled_from(["", "Let me see.", "```json\n"]),
)
def test_calls_that_are_written_are_the_calls_that_are_read(
    calls: list[tuple[str, dict[str, Any]]], before: str
) -> None:
    actions = [{"tool": name, "input": arguments} for name, arguments in calls]
    for text in (
        before + json.dumps({"actions": actions}),
        before + "\n".join(json.dumps({"action": action}, ensure_ascii=False) for action in actions),
    ):
        blocks = read_in_pieces([text])[1]
        assert [(block.name, block.input) for block in blocks if isinstance(block, ToolUseBlock)] == calls


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.booleans())
def test_a_final_that_is_written_is_the_final_that_is_read(text: str, ascii_only: bool) -> None:
    blocks = read_in_pieces([json.dumps({"final": text}, ensure_ascii=ascii_only)])[1]
    assert blocks == (said(text) if text.strip() else ())
