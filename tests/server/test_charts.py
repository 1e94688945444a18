"""Charts and forms as functions of their data."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree, html

from satchel.memory.store.counts import DayCount
from satchel.server.pages.charts import (
    ChartColumn,
    Neighbour,
    column_chart,
    graph,
    nice_step,
    share,
    spark,
)
from satchel.server.pages.memories import over_time
from satchel.server.pages.schema_form import Field, fields_of, place_problems, read_fields
from satchel.tools.input_schema import InputSchema
from tests.requirements import requirement

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=60)
AMOUNTS = st.floats(0, 1e12, allow_nan=False)


def elements(svg: str) -> Any:
    """The drawing as a browser's parser sees it."""
    [drawing] = html.fragments_fromstring(svg)
    assert drawing.tag == "svg"
    return drawing


@requirement("web-pages:charts")
@settings(max_examples=25)
@given(
    st.lists(
        st.builds(ChartColumn, WORDS, st.tuples(AMOUNTS, AMOUNTS, AMOUNTS), AMOUNTS, st.booleans()),
        max_size=15,
    ),
    WORDS,
    WORDS,
)
def test_any_figures_are_drawn_inside_their_frame_and_any_words_are_text(
    columns: list[ChartColumn], title: str, description: str
) -> None:
    drawing = elements(column_chart(columns, title=title, description=description, id="x"))
    assert "viewBox" not in drawing.attrib  # or text would bend with the page
    height = float(drawing.get("height"))
    for bar in drawing.iter("rect"):
        top, tall = float(bar.get("y")), float(bar.get("height"))
        assert -0.1 <= top <= top + tall <= height + 1.1
        left, width = (float(bar.get(name).removesuffix("%")) for name in ("x", "width"))
        assert 0 <= left <= left + width <= 100.1
        assert width <= 12  # a single column is no wall
    assert {element.tag for element in drawing.iter(etree.Element)} <= {
        "svg", "title", "desc", "defs", "pattern", "line", "rect", "text",
    }  # fmt: skip


@requirement("web-pages:charts")
def test_parts_are_told_apart_without_colour_and_sizes_are_true() -> None:
    drawing = elements(
        column_chart(
            [ChartColumn("a", (10.0, 20.0, 30.0), 2.0), ChartColumn("b")], title="t", description="d", id="x"
        )
    )
    bars = {bar.get("class"): bar for bar in drawing.iter("rect")}
    assert list(bars) == ["cached", "fresh", "out", "cost"]
    assert [bar.get("fill") for bar in bars.values()] == [None, "url(#x-hatch)", None, None]
    one, two, three = (float(bars[name].get("height")) for name in ("cached", "fresh", "out"))
    assert two / one == pytest.approx(2, abs=0.02)
    assert three / one == pytest.approx(3, abs=0.02)
    labels = [text.text for text in drawing.iter("text")]
    assert labels == ["20", "40", "60", "$1.00", "$2.00", "a", "b"]


@requirement("web-pages:charts", "web-pages:hostile")
def test_a_graph_draws_each_neighbour_once_and_its_words_are_text() -> None:
    hostile = "</text><script>alert(1)</script> & \" '"
    sources = [
        Neighbour(words=f"turn {n}", href=f"/m/{n}", relation="8 Mar", is_thread=True) for n in range(5)
    ]
    others = [
        Neighbour(words=hostile, href=f"/m/o{n}", relation=hostile, is_past=n == 1, is_thread=n == 2)
        for n in range(11)
    ]
    drawing = elements(graph(hostile, sources=sources, others=others, label=hostile))
    assert len(drawing.findall(".//a")) == 3 + 8
    assert drawing.findall(".//script") == []
    assert len([path for path in drawing.iter("path") if path.get("class") == "thread"]) == 3 + 1
    assert len([node for node in drawing.iter("rect") if node.get("class") == "node past"]) == 1
    bottom = max(float(rect.get("y")) + float(rect.get("height")) for rect in drawing.iter("rect"))
    assert hostile in [words.text for words in drawing.iter("p")]
    assert bottom < float(drawing.get("viewbox").split()[3])
    alone = elements(graph("Alone.", sources=[], others=[], label="x"))
    assert len(list(alone.iter("rect"))) == 1


@requirement("web-pages:charts")
def test_runs_stand_above_and_below_the_line_the_newest_at_the_right() -> None:
    drawing = elements(spark([False, *[True] * 30, False], label="31 good"))
    bars = list(drawing.iter("rect"))
    assert [bar.get("class") for bar in bars] == [*["ok"] * 29, "no"]
    assert [float(bar.get("x")) for bar in bars] == sorted(float(bar.get("x")) for bar in bars)
    assert float(bars[-1].get("y")) > 14.5
    assert elements(share(0.25)).findall("rect")[1].get("width") == "25.0%"
    assert len(elements(share(0)).findall("rect")) == 1


@requirement("web-pages:charts")
@given(st.floats(-1e9, 1e15, allow_subnormal=False) | st.sampled_from([float("nan"), float("inf")]))
def test_rules_stand_at_round_values(most: float) -> None:
    step = nice_step(most)
    assert step > 0
    if 1e-9 < most < float("inf"):
        assert f"{step:.0e}"[0] in "125"
        assert 0.9 < most / step <= 3.01


@requirement("web-pages:charts")
def test_a_long_past_is_drawn_in_longer_spans_and_nothing_of_it_is_lost() -> None:
    today = date(2026, 11, 23)
    for first, unit in (
        (date(2026, 1, 1), "month"),
        (date(2022, 1, 1), "quarter"),
        (date(2005, 1, 1), "year"),
    ):
        found = over_time([DayCount(first, "fact", 2), DayCount(today, "episode", 3)], today)
        assert found is not None
        assert found.unit == unit
        assert sum(span.total for span in found.spans) == 5
        assert found.spans[0].is_now
    assert over_time([], today) is None
    ancient = over_time([DayCount(date(1, 1, 1), "fact", 1), DayCount(date(9999, 12, 31), "fact", 1)], today)
    assert ancient is not None
    assert len(ancient.spans) == 24


# ---- Forms


def names(fields: tuple[Field, ...]) -> list[tuple[str, str, bool]]:
    return [(field.name, field.kind, field.required) for field in fields]


@requirement("web-pages:capability-form")
def test_each_kind_of_schema_has_its_field() -> None:
    schema = {
        "$defs": {
            "size": {"enum": ["S", 1]},
            "loop": {"type": "object", "properties": {"again": {"$ref": "#/$defs/loop"}}},
        },
        "required": ["a", "n"],
        "properties": {
            "a": {"type": "string"},
            "long": {"type": "string", "maxLength": 5000},
            "when": {"type": "string", "format": "date-time"},
            "n": {"type": ["integer", "null"]},
            "size": {"$ref": "#/$defs/size"},
            "fixed": {"const": True},
            "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "all": {"allOf": [{"type": "boolean"}]},
            "list": {"type": "array", "items": {"type": "integer"}},
            "pairs": {"type": "array", "items": {"type": "array"}},
            "free": {"type": "object"},
            "loop": {"$ref": "#/$defs/loop"},
            "away": {"$ref": "https://evil.example/schema"},
            "anything": True,
            "a/b~c": {"type": "string"},
        },
    }
    found = fields_of(schema)
    assert names(found) == [
        ("in/a", "text", True),
        ("in/long", "long", False),
        ("in/when", "text", False),
        ("in/n", "number", False),
        ("in/size", "choice", False),
        ("in/fixed", "choice", False),
        ("in/maybe", "number", False),
        ("in/all", "choice", False),
        ("in/list", "lines", False),
        ("in/pairs", "json", False),
        ("in/free", "json", False),
        ("in/loop", "group", False),
        ("in/away", "json", False),
        ("in/anything", "json", False),
        ("in/a~1b~0c", "text", False),
    ]
    depth, inner = 0, found[11]
    while inner.kind == "group":
        depth, inner = depth + 1, inner.fields[0]
    assert (depth, inner.kind) == (4, "json")
    filled = read_fields(found, {"in/a": ["x"], "in/size": ["1"], "in/a~1b~0c": ["y"], "in/list": ["1\n2"]})
    assert filled.input == {"a": "x", "size": 1, "a/b~c": "y", "list": [1, 2]}
    assert len({field.id for field in found}) == len(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
KEYS = ("type", "properties", "enum", "items", "anyOf", "oneOf", "allOf", "$ref", "default", "required", "title", "const",
        "minimum", "maxLength", "format", "description")  # fmt: skip
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null", "nothing"])
SCHEMAS = st.recursive(
    JSON | st.builds(lambda kind: {"type": kind}, TYPES),
    lambda inner: st.dictionaries(
        st.sampled_from(KEYS),
        inner | TYPES | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_size=5,
    ),
    max_leaves=12,
)


@requirement("web-pages:capability-form", "web-pages:hostile")
@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=8), SCHEMAS, max_size=5), WORDS)
def test_no_schema_and_no_text_breaks_a_form(properties: dict[str, Any], text: str) -> None:
    found = fields_of({"type": "object", "properties": properties, "$defs": properties})

    def every(fields: tuple[Field, ...]) -> list[Field]:
        return [one for field in fields for one in (field, *every(field.fields))]

    filled = read_fields(found, {field.name: [text] for field in every(found)})
    json.dumps(filled.input, allow_nan=False)
    assert len(every(filled.fields)) == len(every(found))


@requirement("web-pages:capability-form")
@pytest.mark.parametrize(
    ("said", "hint"),
    [("How many cups", "How many cups. More than 0."), ("Cups.", "Cups. More than 0."), ("", "More than 0.")],
)
def test_a_description_and_its_limits_are_sentences(said: str, hint: str) -> None:
    schema = {"type": "number", "exclusiveMinimum": 0, "description": said}
    [field] = fields_of({"properties": {"cups": schema}})
    assert field.hint == hint


@requirement("web-pages:capability-form")
@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_as_they_are_written(value: float) -> None:
    fields = fields_of({"properties": {"n": {"type": "number"}}})
    assert read_fields(fields, {"in/n": [f" {value!r} "]}).input == {"n": value}


@requirement("web-pages:capability-form")
def test_required_fields_of_a_group_are_required_only_if_the_group_is_given() -> None:
    properties = {"lat": {"type": "number"}, "name": {"type": "string"}}
    part = {"type": "object", "required": ["lat"], "properties": properties}
    fields = fields_of({"properties": {"place": part}})
    assert read_fields(fields, {"in/place/lat": [""], "in/place/name": [""]}).input == {}
    half = read_fields(fields, {"in/place/name": ["home"]})
    assert not half.is_readable
    assert [field.problem for field in half.fields[0].fields] == ["This is required.", ""]


@requirement("web-pages:capability-form")
@pytest.mark.parametrize(
    "text", ["one", "1,5", "1e999", "NaN", "Infinity", "0x10", "1_000", "--1", "1.5.2", "9" * 999]
)
def test_an_invalid_number_is_reported(text: str) -> None:
    for kind in ("number", "integer"):
        [field] = read_fields(fields_of({"properties": {"n": {"type": kind}}}), {"in/n": [text]}).fields
        assert field.problem
        assert field.value == text


@requirement("web-pages:capability-form")
def test_problems_are_shown_at_their_fields() -> None:
    schema = {
        "type": "object",
        "required": ["place", "a-b"],
        "properties": {
            "place": {"type": "object", "properties": {"lat": {"type": "number", "maximum": 90}}},
            "names": {"type": "array", "items": {"type": "string", "minLength": 2}},
            "a-b": {"type": "string", "pattern": "^x"},
            "a": {"type": "string"},
        },
        "minProperties": 9,
    }
    input = {"place": {"lat": 99}, "names": ["ok", "x"], "a-b": "y"}
    fields, rest = place_problems(fields_of(schema), InputSchema(schema).problems(input))
    by_name = {field.name: field for field in fields}
    assert by_name["in/place"].fields[0].problem == "99 is greater than the maximum of 90."
    assert by_name["in/names"].problem == "'x' is too short."
    assert "does not match '^x'" in by_name["in/a-b"].problem
    assert by_name["in/a"].problem == ""
    assert len(rest) == 1
    missing, _ = place_problems(fields_of(schema), InputSchema({**schema, "minProperties": 0}).problems({}))
    assert {field.name: field.problem for field in missing if field.problem} == {
        "in/place": "This is required.",
        "in/a-b": "This is required.",
    }


@requirement("web-pages:capability-form")
def test_the_default_of_a_choice_is_chosen() -> None:
    [unit] = fields_of({"properties": {"unit": {"enum": ["C", "F"], "default": "F"}}})
    assert unit.value in [sent for sent, words in unit.options if words == "F"]
