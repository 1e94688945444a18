"""A server's form as a question in words, and the user's words as its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.tools.mcp.questions import Elicitation, ElicitationAnswer, read_answer
from tests.requirements import requirement

FORM = {
    "name": {"type": "string", "minLength": 2},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "size": {"type": "number"},
    "sure": {"type": "boolean"},
    "color": {"type": "string", "enum": ["Red", "Green"]},
    "pets": {"type": "array", "items": {"type": "string", "enum": ["cat", "dog"]}},
    "pace": {"type": "string", "oneOf": [{"const": "slow", "title": "Slow"}], "default": "slow"},
}


def asked(fields: Mapping[str, Any], *, required: tuple[str, ...] = ()) -> Elicitation:
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return Elicitation.read("s", {"message": "Tell.", "requestedSchema": schema})


def one(**part: Any) -> Elicitation:
    return asked({"x": part}, required=("x",))


@requirement("mcp:elicitation")
@pytest.mark.parametrize(
    ("elicitation", "said", "expected"),
    [
        (one(type="string"), "some words, as they are", {"x": "some words, as they are"}),
        (one(type="string"), "x: 7", {"x": "7"}),
        (one(type="string"), '{"x": "seven"}', {"x": "seven"}),
        (one(type="string"), '{"y": 1}', {"x": '{"y": 1}'}),
        (one(type="integer"), " 7 ", {"x": 7}),
        (one(type="number"), "7.5", {"x": 7.5}),
        (one(anyOf=[{"type": "integer"}, {"type": "null"}], default=None), "7", {"x": 7}),
        (one(type="boolean"), "Yes.", {"x": True}),
        (one(type="boolean"), "no", {"x": False}),
        (one(type="string", enum=["Red", "Green"]), "green", {"x": "Green"}),
        (one(type="array", items={"anyOf": [{"const": "a"}, {"const": "b"}]}), "a, B", {"x": ["a", "b"]}),
        (
            asked(FORM, required=("name",)),
            "name: Ann\n- age: 7\nSize = 1.5\nsure: y\ncolor: red\npets: cat, dog",
            {
                "name": "Ann",
                "age": 7,
                "size": 1.5,
                "sure": True,
                "color": "Red",
                "pets": ["cat", "dog"],
                "pace": "slow",
            },
        ),
        (
            asked(FORM),
            "name: Ann, age: 7; sure: no",
            {"name": "Ann", "age": 7, "sure": False, "pace": "slow"},
        ),
        (asked(FORM), '{"age": 7, "pets": ["cat"]}', {"age": 7, "pets": ["cat"], "pace": "slow"}),
        (asked({}), "yes", {}),
    ],
)
def test_words_are_read_as_the_fields_ask(elicitation: Elicitation, said: str, expected: object) -> None:
    assert read_answer(elicitation, said) == ElicitationAnswer(action="accept", content=expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("elicitation", "said", "problem"),
    [
        (one(type="integer"), "seven", "x: 'seven' is not a whole number"),
        (one(type="integer", minimum=5), "4", "x: 4 is less than the minimum of 5"),
        (one(type="number", maximum=5), "6", "x: 6.0 is greater than the maximum of 5"),
        (one(type="boolean"), "perhaps", "x: answer yes or no"),
        (one(type="string", enum=["Red"]), "blue", "x: 'blue' is not one of Red"),
        (one(type="string", minLength=3), "ab", "x: 'ab' is too short"),
        (one(type="string", maxLength=1), "ab", "x: 'ab' is too long"),
        (one(type="array", items={"enum": ["a"]}, minItems=1), ", ", "x: [] should be non-empty"),
        (asked(FORM, required=("name",)), "age: 7", "name is missing"),
        (asked({"a": {}, "b": {}}), "hello", "'hello' is not a line 'name: value' for one of: a, b"),
        (asked({"a": {}, "b": {}}), '{"c": 1}', "there is no field 'c'"),
        (asked({}), "perhaps", "answer yes or decline"),
    ],
)
def test_an_invalid_answer_is_refused_with_the_reason(
    elicitation: Elicitation, said: str, problem: str
) -> None:
    assert read_answer(elicitation, said) == ElicitationAnswer(action="cancel", problem=problem)


@pytest.mark.parametrize("said", ["", "  ", "decline", "Decline.", "/decline", "cancel"])
def test_anyone_can_decline_anything(said: str) -> None:
    for elicitation in (one(type="string"), asked(FORM), asked({})):
        assert read_answer(elicitation, said) == ElicitationAnswer(action="decline")


@requirement("mcp:elicitation")
def test_a_longer_form_is_asked_for_one_field_after_the_other() -> None:
    steps = asked(
        {
            "name": {"type": "string", "description": "Your name"},
            "day": {"type": "string", "format": "date"},
            "pet": {"type": "string", "enum": ["p1", "p2"], "enumNames": ["Cat", "Dog"], "default": "p2"},
            "sure": {"type": "boolean", "default": False},
        },
        required=("name", "sure"),
    ).steps()
    assert [step.question().text for step in steps] == [
        "The MCP server 's' asks: Tell.\n"
        "Press Enter to skip a field or take its default. 'decline' ends this, and the server is told nothing.\n"
        "1 of 4: name (text): Your name",
        "2 of 4: day (a date like 2026-01-31, optional)",
        "3 of 4: pet (one of Cat, Dog, Dog by default)",
        "4 of 4: sure (yes or no, no by default)",
    ]
    name, day, pet, sure = steps
    assert read_answer(name, " ").problem == "this field is required; 'decline' ends this"
    assert read_answer(day, "") == ElicitationAnswer(action="accept", content={})
    assert read_answer(pet, "") == ElicitationAnswer(action="accept", content={"pet": "p2"})
    assert (
        read_answer(pet, "cat")
        == read_answer(pet, "p1")
        == ElicitationAnswer(action="accept", content={"pet": "p1"})
    )
    assert read_answer(sure, "") == ElicitationAnswer(action="accept", content={"sure": False})
    assert {read_answer(step, "Decline").action for step in steps} == {"decline"}
    single = one(type="string")
    assert single.steps() == (single,)


def test_why_a_secret_is_not_accepted_does_not_quote_it() -> None:
    for part in ({"type": "string", "minLength": 12}, {"type": "integer"}, {"type": "string", "enum": ["x"]}):
        problem = read_answer(asked({"password": part}, required=("password",)), "hunter2").problem
        assert problem == "it is not what the form asks for"


def test_an_address_is_shown_and_confirmed() -> None:
    elicitation = Elicitation.read("s", {"message": "Sign in.", "url": "https://h/x\x1b[2J"})
    assert elicitation.question().text == (
        "The MCP server 's' asks: Sign in.\nOpen this address if you trust it: https://h/x<U+001B>[2J\n"
        "Answer 'done' when you have, or 'decline'."
    )
    assert read_answer(elicitation, "done") == ElicitationAnswer(action="accept")
    assert read_answer(elicitation, "no") == ElicitationAnswer(action="decline")
    assert Elicitation.read("s", elicitation.to_json()) == elicitation


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "enum", "properties", "required", "oneOf", "items", "x"]), inner
        )
    ),
    max_leaves=12,
)


@given(schema=json_values, said=st.text(max_size=40))
def test_no_form_and_no_words_break_it(schema: Any, said: str) -> None:
    elicitation = Elicitation.read("s", {"message": "m", "requestedSchema": schema})
    elicitation.question()
    for step in elicitation.steps():
        step.question()
        assert read_answer(step, said).action in ("accept", "decline", "cancel")
    answer = read_answer(elicitation, said)
    assert answer.action in ("accept", "decline", "cancel")
    assert Elicitation.read("s", elicitation.to_json()) == elicitation
