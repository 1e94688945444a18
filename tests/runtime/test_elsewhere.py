"""What a server knows of a conversation that another one has open."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from satchel.events import AskUser, Event, QuestionAnswered, QuestionAsked, Record, TurnEnd, TurnResumed
from satchel.messages import Usage
from satchel.runtime.elsewhere import OpenElsewhere
from tests.requirements import requirement
from tests.sessions.worlds import said, started


def seen(*events: Event) -> OpenElsewhere:
    found = OpenElsewhere(1)
    for seq, event in enumerate(events, start=1):
        found.take(Record(seq=seq, at=datetime(2026, 1, 1, tzinfo=UTC), event=event))
    return found


def asked(id: str, kind: Literal["permission", "tool"]) -> QuestionAsked:
    return QuestionAsked(id=id, turn=1, kind=kind)


@requirement("storage:postgres:servers")
def test_questions_that_outlive_the_server_that_asked_are_still_known() -> None:
    began = started("s1"), said("Send the parcel.")
    mine, tools = asked("q1", "permission"), asked("q2", "tool")
    running = seen(*began, mine, tools)
    assert (running.is_running, running.questions) == (True, (mine, tools))
    # The call whose tool asked has ended with the server; a permission is still needed.
    opened = seen(*began, mine, tools, started("s1"))
    assert (opened.is_running, opened.questions) == (False, (mine,))
    resumed = seen(*began, mine, tools, started("s1"), TurnResumed(turn=1))
    assert (resumed.is_running, resumed.questions) == (True, (mine,))
    answered = QuestionAnswered(id="q1")
    assert seen(*began, mine, started("s1"), answered).questions == ()
    # The turn asks the user, and its server ends before the turn does: the question is not written again.
    own = AskUser(turn=1, call_id="c1", question="Which city?")
    ended = TurnEnd(turn=1, status="asking", rounds=1, usage=Usage(), duration_ms=1.0)
    assert seen(*began, own).questions == ()
    assert seen(*began, own, started("s1"), TurnResumed(turn=1), ended).questions == (own,)
    assert seen(*began, own, ended, said("Bern", turn=2)).questions == ()
