"""Messages and events as plain data: to JSON and back, whatever they hold; and what they add up to."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel import events
from satchel.clock import ManualClock, SystemClock
from satchel.events import (
    Event,
    Final,
    Record,
    event_from_json,
    event_to_json,
    fields_from_json,
    fields_to_json,
    record_from_json,
    record_to_json,
)
from satchel.messages import (
    Block,
    FileBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    block_from_json,
    block_to_json,
    file_from_json,
    size_of_message,
)
from tests.requirements import requirement

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
TOOL_USE = st.builds(
    ToolUseBlock, id=st.text(), name=st.text(), input=st.dictionaries(st.text(), JSON), unparsed=st.just("")
)
UNPARSED = st.builds(ToolUseBlock, id=st.text(), name=st.text(), input=st.none(), unparsed=st.text())
BLOCKS = st.one_of(
    st.builds(TextBlock), st.builds(ThinkingBlock), TOOL_USE, UNPARSED, st.builds(ToolResultBlock)
)
MESSAGES = st.builds(Message, role=st.sampled_from(["user", "assistant"]), blocks=st.lists(BLOCKS).map(tuple))


def strategy_for(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type; made here because a `Mapping[str, Any]` must hold JSON and a float be a number."""
    origin = get_origin(hint)
    if hint is Any:
        return JSON
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if origin in (typing.Union, types.UnionType):
        if hint == Block:
            return BLOCKS
        if hint == Event:  # one that holds the others would have no end
            return st.one_of(strategy_of(events.Assistant), strategy_of(events.Observation))
        return st.one_of([strategy_for(part) for part in get_args(hint)])
    if origin is Literal:
        return st.sampled_from(get_args(hint))
    if origin is tuple:
        return st.lists(strategy_for(get_args(hint)[0]), max_size=2).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(st.text(), JSON, max_size=3)
    if hint is Message:
        return MESSAGES
    if dataclasses.is_dataclass(hint):
        return strategy_of(typing.cast("type[Any]", hint))
    return st.none() if hint is type(None) else st.from_type(hint)


def strategy_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = {
        name: hint
        for name, hint in get_type_hints(cls).items()
        if get_origin(hint) is not ClassVar and hint is not ClassVar
    }
    return st.builds(cls, **{name: strategy_for(hint) for name, hint in hints.items()})


@requirement("house:vocabulary:json")
@given(message=MESSAGES)
def test_a_message_goes_to_json_and_back(message: Message) -> None:
    assert fields_from_json(Message, json.loads(json.dumps(fields_to_json(message)))) == message


@requirement("house:vocabulary:json")
@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.type)
def test_an_event_goes_to_json_and_back(cls: type[Any]) -> None:
    @given(event=strategy_of(cls))
    def check(event: Event) -> None:
        value = json.loads(json.dumps(event_to_json(event)))
        assert value["type"] == cls.type
        assert event_from_json(value) == event

    check()


def test_a_record_is_one_flat_object_with_its_place_first() -> None:
    at = datetime.fromisoformat("2026-01-01T12:00:00+01:00")
    record = Record(seq=7, at=at, event=Final(turn=1, text="Yes.", status="done"))
    value = record_to_json(record)
    assert list(value) == ["seq", "at", "type", "turn", "text", "status", "untrusted"]
    assert value["at"] == "2026-01-01T12:00:00+01:00"
    assert record_from_json(json.loads(json.dumps(value))) == record


def test_fields_of_a_newer_version_are_left_out_and_unknown_types_refused() -> None:
    value = {"type": "final", "turn": 1, "text": "Yes.", "status": "done", "mood": "sunny"}
    assert event_from_json(value) == Final(turn=1, text="Yes.", status="done")
    with pytest.raises(ValueError, match="No event is of type 'hologram'"):
        event_from_json({"type": "hologram"})
    with pytest.raises(ValueError, match="No block is of type 'hologram'"):
        block_from_json({"type": "hologram"})


def test_only_what_was_said_is_a_messages_text() -> None:
    message = Message(
        role="user",
        blocks=(
            ToolResultBlock(tool_use_id="a", content="result"),
            TextBlock(text="Hello."),
            TextBlock(text="a memory", origin="memory"),
            TextBlock(text="a notice", origin="notice"),
            TextBlock(text="And now?"),
        ),
    )
    assert message.text == "Hello.\nAnd now?"


def test_usage_adds_up_and_an_unknown_cost_stays_unknown() -> None:
    first = Usage(input_tokens=10, output_tokens=1, cache_read_tokens=4, cost_usd=0.5)
    second = Usage(input_tokens=20, output_tokens=2, cache_write_tokens=3, estimated=True)
    assert first + second == Usage(
        input_tokens=30,
        output_tokens=3,
        cache_read_tokens=4,
        cache_write_tokens=3,
        cost_usd=0.5,
        estimated=True,
    )
    assert (second + second).cost_usd is None
    assert (first + second).total_tokens == 33


def test_every_event_is_in_the_union_and_has_its_own_name() -> None:
    defined = {
        cls
        for cls in vars(events).values()
        if isinstance(cls, type) and isinstance(cls.__dict__.get("type"), str)
    }
    assert defined == set(get_args(Event))
    assert len({cls.type for cls in get_args(Event)}) == len(get_args(Event))


def test_a_clock_has_the_offset_and_a_manual_clock_does_not_move() -> None:
    assert SystemClock().now().utcoffset() is not None
    clock = ManualClock()
    before = clock.now()
    assert clock.now() == before
    clock.advance(90)
    assert ((clock.now() - before).total_seconds(), clock.monotonic_s()) == (90, 90)


def test_a_file_counts_as_about_what_is_sent_of_it() -> None:
    for media_type, size, text_size, counted in (
        ("application/zip", 15 << 20, 0, 0),  # only its name
        ("application/octet-stream", 15 << 20, 7_000, 7_000),
        ("application/octet-stream", 50_000, 15 << 20, 200_000),
        ("application/pdf", 80_000, 0, 10_000),
        ("application/pdf", 15 << 20, 7_000, 7_000),
        ("text/plain", 80_000, 0, 80_000),
        ("text/plain", 15 << 20, 0, 200_000),
    ):
        file = FileBlock(sha256="a" * 64, media_type=media_type, name="a", size=size, text_size=text_size)
        assert file_from_json(block_to_json(file)) == file
        empty = size_of_message(Message(role="user", blocks=(TextBlock(text=""),)))
        assert size_of_message(Message(role="user", blocks=(file,))) - empty == counted
