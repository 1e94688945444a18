"""A conversation from its events: live or replayed, and wherever the log was cut off."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from satchel.conversation import Conversation
from satchel.events import (
    AskUser,
    Compaction,
    Event,
    Notice,
    Permission,
    Record,
    RoundObserved,
    TurnEnd,
    TurnStatus,
)
from satchel.messages import Block, Message, TextBlock, ThinkingBlock, ToolResultBlock, Usage, clean_text
from satchel.sessions.log import encode_records, read_log
from tests.loop.rules import history_problems
from tests.requirements import requirement
from tests.sessions.worlds import (
    SPENT,
    answered,
    began,
    call,
    ended,
    exchange,
    observed,
    said,
    started,
    surfaced,
)

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def records(events: Sequence[Event]) -> list[Record]:
    return [Record(seq=seq, at=AT, event=event) for seq, event in enumerate(events, 1)]


def replayed(events: Sequence[Event]) -> Conversation:
    return Conversation.from_records(records(events))


def user(*blocks: Block | str) -> Message:
    return Message(role="user", blocks=tuple(TextBlock(text=b) if isinstance(b, str) else b for b in blocks))


def assistant(*blocks: Block | str) -> Message:
    return Message(
        role="assistant", blocks=tuple(TextBlock(text=b) if isinstance(b, str) else b for b in blocks)
    )


def result(id: str, text: str, *, is_error: bool = False) -> ToolResultBlock:
    return ToolResultBlock(tool_use_id=id, content=text, is_error=is_error)


def test_a_turn_with_memory_and_tools_is_rebuilt_block_by_block() -> None:
    thought = ThinkingBlock(text="hm", signature="proof")
    history = replayed(
        [
            started("s"),
            said("What is here?"),
            surfaced("Ann likes lists"),
            answered(thought, "Looking.", call("c1"), call("c2")),
            began("c1"),
            began("c2"),
            observed("c2", "two", is_error=True),
            observed("c1", "one"),
            RoundObserved(turn=1, round=1, text="[bash]: one\n\n[bash]: two"),
            answered("Two things.", round=2),
            *ended(text="Two things."),
            said("Thanks", turn=2),
        ]
    )
    assert history.messages == (
        user("What is here?", TextBlock(text="<memory>\n- Ann likes lists\n</memory>", origin="memory")),
        assistant(thought, "Looking.", call("c1"), call("c2")),
        user(result("c1", "one"), result("c2", "two", is_error=True)),
        assistant("Two things."),
        user("Thanks"),
    )
    assert (history.turns, history.status, history.question) == (2, None, None)
    assert history.surfaced_ids == {"m1"}
    assert history.usage == SPENT + SPENT
    assert (history.provider, history.model) == ("openai", "gpt-x")


@requirement("sessions:resume:interrupted", "sessions:resume:not-started", "promise:durable:interrupted-tool")
def test_the_next_message_answers_calls_that_the_program_left_open() -> None:
    events: list[Event] = [
        said("go"),
        answered(call("c1"), call("c2"), call("c3")),
        began("c1"),
        began("c2"),
        observed("c2", "ok"),
    ]
    left = replayed(events)
    assert (left.is_unfinished, left.is_sendable) == (True, False)
    assert [(c.id, left.was_started(c.id)) for c in left.open_calls] == [("c1", True), ("c3", False)]
    assert left.messages[-1] == user(result("c2", "ok"))
    assert replayed([*events, said("and now?", turn=2)]).messages[-1] == user(
        result(
            "c1",
            "The program ended while this call was running: interrupted; outcome unknown; check before repeating.",
            is_error=True,
        ),
        result("c2", "ok"),
        result(
            "c3", "Not started: the program ended before this call began. It had no effect.", is_error=True
        ),
        "and now?",
    )


@requirement("sessions:resume:question")
def test_an_open_question_stays_open_and_the_next_message_is_its_result() -> None:
    asks = call("q", "ask_user", {"question": "Red or blue?"})
    events: list[Event] = [
        said("paint"),
        answered(call("c1"), asks),
        began("c1"),
        observed("c1", "mixed"),
        AskUser(turn=1, call_id="q", question="Red or blue?", options=("red", "blue")),
        TurnEnd(turn=1, status="asking", rounds=1, usage=Usage(), duration_ms=1.0),
    ]
    history = replayed(events)
    assert history.question == events[4]
    assert history.status == "asking"
    assert history.messages == (user("paint"), assistant(call("c1"), asks), user(result("c1", "mixed")))
    events += [said("red", turn=2, answers="q"), surfaced("Ann likes red", turn=2)]
    history = replayed(events)
    assert history.question is None
    assert history.messages[-1] == user(
        result("c1", "mixed"),
        result("q", "red"),
        TextBlock(text="<memory>\n- Ann likes red\n</memory>", origin="memory"),
    )


def test_a_failed_turn_and_the_next_message_are_one_message() -> None:
    history = replayed(
        [
            said("one"),
            TurnEnd(turn=1, status="failed", rounds=0, usage=Usage(), duration_ms=1.0),
            said("two", turn=2),
        ]
    )
    assert history.messages == (user("one", "two"),)


def test_a_compaction_replaces_what_was_before_also_in_the_middle_of_a_round() -> None:
    kept = (user("Summary: much was said."), assistant(call("c1")))
    compaction = Compaction(
        turn=2, messages=kept, before_tokens=900, after_tokens=9, trigger="auto", usage=SPENT
    )
    log = [
        *exchange("long", "story"),
        said("go", turn=2),
        surfaced("Ann likes lists", turn=2),
        answered(call("c1"), turn=2),
        began("c1", turn=2),
        compaction,
        observed("c1", "done", turn=2),
    ]
    history = replayed(log)
    assert history.messages == (*kept, user(result("c1", "done")))
    assert history.surfaced_ids == frozenset()
    assert history.usage == SPENT + SPENT + SPENT


def test_memory_whose_block_a_compaction_kept_is_not_surfaced_again() -> None:
    block = TextBlock(text="<memory>\n- Ann likes lists\n</memory>", origin="memory")
    compaction = Compaction(
        turn=1, messages=(user("go", block),), before_tokens=2, after_tokens=1, trigger="manual"
    )
    history = replayed([said("go"), surfaced("Ann likes lists"), surfaced("Other", id="m2"), compaction])
    assert history.surfaced_ids == {"m1"}


def test_lines_lost_in_the_middle_still_give_a_valid_history() -> None:
    whole = records([*exchange("one", "1"), *exchange("two", "2", turn=2)])
    without_second_question = [record for record in whole if record.seq != 5]
    lost = TextBlock(text="(What was said here can't be read any more.)", origin="notice")
    assert Conversation.from_records(without_second_question).messages == (
        user("one"),
        assistant("1"),
        user(lost),
        assistant("2"),
    )
    assert Conversation.from_records(whole[1:]).messages[0] == user(lost)


def test_an_empty_log_is_an_empty_history() -> None:
    history = replayed([])
    assert (history.messages, history.turns, history.question, history.status) == ((), 0, None, None)


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map(clean_text).filter(str.strip)


@st.composite
def conversations(draw: st.DrawFn) -> list[Event]:
    """Turns as the loop emits them: rounds of calls whose results come in any order, refusals, questions,
    stops.
    """
    events: list[Event] = [started("s")]
    question: str | None = None
    number = 0
    for turn in range(1, draw(st.integers(1, 4)) + 1):
        events.append(said(draw(words), turn=turn, answers=question))
        question = None
        if draw(st.booleans()):
            events.append(surfaced(draw(words), id=f"m{turn}", turn=turn))
        stopped = False
        for round_number in range(1, draw(st.integers(0, 3)) + 1):
            calls = [call(f"c{number + i}") for i in range(draw(st.integers(0, 3)))]
            number += len(calls)
            blocks: list[Block | str] = [*([draw(words)] if not calls or draw(st.booleans()) else []), *calls]
            events.append(answered(*blocks, turn=turn, round=round_number))
            fates = [draw(st.sampled_from(["done", "refused", "stopped", "ask"])) for _ in calls]
            if "ask" in fates[1:]:
                fates = ["done" if fate == "ask" else fate for fate in fates]
            events.extend(
                began(c.id, turn=turn) for c, fate in zip(calls, fates, strict=True) if fate != "refused"
            )
            for c, fate in draw(st.permutations(list(zip(calls, fates, strict=True)))):
                if fate == "refused":
                    events.append(
                        Permission(turn=turn, call_id=c.id, tool=c.name, decision="deny", by="nobody")
                    )
                if fate in ("done", "refused"):
                    events.append(observed(c.id, draw(words), turn=turn, is_error=fate == "refused"))
                if fate == "ask":
                    events.append(AskUser(turn=turn, call_id=c.id, question="?"))
                    question = c.id
            stopped = "stopped" in fates or question is not None
            if stopped or not calls:
                break
            events.append(RoundObserved(turn=turn, round=round_number, text="…"))
            if draw(st.booleans()):
                events.append(Notice(part="test", text=draw(words)))
        status: TurnStatus = "asking" if question else "cancelled" if stopped else "done"
        events.append(TurnEnd(turn=turn, status=status, rounds=1, usage=SPENT, duration_ms=1.0))
    return events


@pytest.mark.usefixtures("tmp_path_factory")
@given(events=conversations(), data=st.data())
def test_any_prefix_of_a_log_down_to_the_byte_gives_a_valid_history(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], data: st.DataObject
) -> None:
    whole = records(events)
    encoded = encode_records(whole)
    cut = data.draw(st.integers(0, len(encoded)))
    path: Path = tmp_path_factory.getbasetemp() / "log.jsonl"
    path.write_bytes(encoded[:cut])
    log = read_log(path, "s")
    kept = encoded[:cut].count(b"\n")
    assert list(log.records) in (whole[:kept], whole[: kept + 1])
    left = Conversation.from_records(log.records)
    # Going on after the cut: what was open is closed or answered, and nothing that was there changes.
    answers = left.question.call_id if left.question is not None else None
    on = Conversation.from_records(log.records)
    on.apply(said("go on", turn=99, answers=answers))
    assert on.is_sendable
    assert history_problems(on.messages, sendable=True) == []
    stable = left.messages[: -1 if left.messages and left.messages[-1].role == "user" else None]
    assert on.messages[: len(stable)] == stable
