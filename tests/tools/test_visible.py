"""What nobody can see and a model can read, in the text of strangers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.tools.visible import hidden_in, hidden_in_schema, visible, visible_schema
from tests.requirements import requirement


@requirement("tools:invisible-characters")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb", "a<U+200B>b"),
        ("a\u202eb\u2066", "a<U+202E>b<U+2066>"),
        ("Adds.\U000e0053\U000e0065\U000e006e\U000e0064", "Adds.<4 invisible characters, U+E0053 first>"),
        ("\x1b[2J\x07\x00", "<U+001B>[2J<U+0007><U+0000>"),
        ("\ue000\U000f0000\U0010fffd", "<U+E000><U+F0000><U+10FFFD>"),
        ("\ufeff\xad\u2060\u180e", "<4 invisible characters, U+FEFF first>"),
        ("a\u3164\u115f\u2800", "a<U+3164><U+115F><U+2800>"),
        ("a\ufe0fb\U000e0100", "a<U+FE0F>b<U+E0100>"),
        ("a\u200db", "a<U+200D>b"),
        ("\ud800 \u2028", "<U+D800> <U+2028>"),
        ("over\rwritten", "over<U+000D>written"),
    ],
)
def test_what_nobody_sees_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert hidden_in(text) != ""


@requirement("tools:invisible-characters")
@pytest.mark.parametrize(
    "text",
    [
        "Größe, ağ, Ελλάδα, Привет, 漢字, हिन्दी, עברית, العربية",
        "a\tb\r\nc\u00a0d\u3000e",
        "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627",  # Persian: a joiner inside of a word
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3",
    ],
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_what_was_made_visible_hides_nothing_more(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert all(c.isprintable() or c in "\n\r\t" or c.isspace() or c in "\u200c\u200d" for c in shown)


@requirement("tools:invisible-characters")
def test_a_schema_is_made_visible_where_it_is_prose_and_searched_where_it_is_data() -> None:
    schema = {"properties": {"x": {"description": "a\u200bb", "enum": ["a", "b\nc"]}}}
    assert visible_schema(schema) == {
        "properties": {"x": {"description": "a<U+200B>b", "enum": ["a", "b\nc"]}}
    }
    assert hidden_in_schema(schema) == ""
    assert hidden_in_schema({"properties": {"x\u200b": {}}}) == "U+200B"
    assert hidden_in_schema({"properties": {"x": {"enum": ["a", "a\U000e0041"]}}}) == "U+E0041"
    assert hidden_in_schema({"properties": {"description": {"const": "\u202e"}}}) == "U+202E"
