"""The view of a session: what its events come to for whoever shows them."""

from __future__ import annotations

from datetime import UTC, datetime

from satchel.events import (
    Action,
    AskUser,
    Assistant,
    Event,
    Failure,
    Final,
    MemoryCaptured,
    Notice,
    Observation,
    Permission,
    Posted,
    Record,
    SessionStart,
    TextDelta,
    ToolProgress,
    TurnEnd,
    TurnStart,
)
from satchel.messages import Block, Message, TextBlock, ToolUseBlock, Usage
from satchel.sessions.view import LastWords, Said, SessionTurn, SessionView, ToolCall, turns_in


def start(turn: int, text: str) -> TurnStart:
    return TurnStart(turn=turn, message=Message(role="user", blocks=(TextBlock(text=text),)))


def answer(text: str, *calls: str) -> Assistant:
    blocks: list[Block] = [TextBlock(text=text)] if text else []
    blocks += [ToolUseBlock(id=id, name="bash", input={"command": id}) for id in calls]
    return Assistant(
        turn=1, round=1, blocks=tuple(blocks), stop_reason="end_turn", provider="p", model="m", usage=Usage()
    )


def final(text: str, status: str = "done") -> Final:
    return Final(turn=1, text=text, status=status)  # type: ignore[arg-type]


def observation(id: str, *, is_error: bool = False) -> Observation:
    return Observation(turn=1, round=1, call_id=id, tool="bash", text=f"of {id}", is_error=is_error)


def action(id: str) -> Action:
    return Action(turn=1, round=1, call_id=id, tool="bash", input={"command": id})


def turn_of(*events: Event) -> SessionTurn:
    view = SessionView()
    for event in events:
        view.take(event)
    return view.turn


def words_of(*events: Event) -> str:
    closing = turn_of(start(1, "Hello"), *events).closing
    assert closing is not None
    return closing.rest


def test_what_was_streamed_is_not_added_again_when_the_answer_is_complete() -> None:
    view = SessionView()
    parts = [view.take(event) for event in (start(1, ""), TextDelta(text="Hel"), answer("Hello."))]
    assert [part.added for part in parts if isinstance(part, Said)] == ["Hel", "lo."]
    assert [said.text for said in view.turn.of(Said)] == ["Hello."]


def test_the_last_words_are_only_what_the_model_has_not_said() -> None:
    assert words_of(answer("Hello."), final("Hello.")) == ""
    assert words_of(answer("Hello."), final("Hello.\n\n[It was cut off.]", "limit")) == "[It was cut off.]"
    assert words_of(final("The model is down.", "failed")) == "The model is down."
    asked = AskUser(turn=1, call_id="c", question="Which?")
    assert words_of(answer("Well. Which?", "c"), asked, final("Well. Which?", "asking")) == ""
    assert words_of(answer("Well."), asked, final("Well.\n\nWhich?", "asking")) == "Which?"


def test_calls_stand_in_the_order_in_which_the_model_asked_for_them() -> None:
    turn = turn_of(
        answer("", "a", "b", "c"),
        Permission(turn=1, call_id="b", tool="bash", decision="deny", by="rule", reason="No."),
        action("a"),
        observation("b", is_error=True),
        ToolProgress(call_id="a", tool="bash", data={"progress": 1}),
        observation("a"),
    )
    assert [(call.id, call.state, call.input) for call in turn.of(ToolCall)] == [
        ("a", "done", {"command": "a"}),
        ("b", "refused", {"command": "b"}),
        ("c", "asked", {"command": "c"}),
    ]
    assert [call.id for call in turn.open_calls] == ["c"]


def test_what_another_part_says_is_no_part() -> None:
    failure = Failure(part="model", message="Down.", error="ModelUnavailable")
    turn = turn_of(Posted(id="build-1", source="builder", text="Built."), failure, final("Down.", "failed"))
    (closing,) = turn.parts
    assert isinstance(closing, LastWords)
    assert closing.failure == failure


def test_a_history_is_read_turn_by_turn_and_a_late_capture_marks_no_other_turn() -> None:
    opened = SessionStart(session_id="s", cwd="/", provider="p", model="m", version="1", private=True)
    events: list[Event] = [
        opened,
        Notice(part="tools", text="One is missing."),
        start(1, "One"),
        TurnEnd(turn=1, status="done", rounds=1, usage=Usage(), duration_ms=1.0),
        start(2, "Two"),
        MemoryCaptured(turn=1, ids=("e1",)),
        MemoryCaptured(turn=2, ids=()),
    ]
    at = datetime(2026, 11, 27, tzinfo=UTC)
    turns = [*turns_in(Record(seq=n, at=at, event=event) for n, event in enumerate(events, 1))]
    assert [(turn.number, turn.said, turn.captured, turn.private) for turn in turns] == [
        (0, "", None, False),
        (1, "One", None, True),
        (2, "Two", (), True),
    ]
    assert [turn.end is not None for turn in turns] == [False, True, False]


def test_a_turn_whose_start_cannot_be_read_adds_nothing_to_the_turn_before() -> None:
    view = SessionView()
    for event in (start(1, "One"), answer("Yes."), final("Yes."), Final(turn=2, text="Two.", status="done")):
        view.take(event)
    assert (view.turn.number, view.turn.start) == (2, None)
    turn = turn_of(TextDelta(text="Hel"), answer("Hello."))
    assert (turn.number, [said.added for said in turn.of(Said)]) == (1, ["lo."])
