"""What a session knows of the builds that it asked for: how far it has heard, and the questions that are open."""

from __future__ import annotations

from typing import assert_never

from satchel.builder.records import CANCELLED
from satchel.events import BuildPosted


class BuildNews:
    """Follows the `BuildPosted` events of one session, from its log and live.

    Attributes:
        seen: The number of the last message that is in the log.
        questions: The questions that wait for an answer, by the id of their event, oldest first.
        asked: The builds that the model asked for and that have not ended.
        under_way: The builds that have not ended, whoever asked for them in this conversation. The queue knows them.
        fresh: The ids of the open ones that came after the user's last message, and whose builds still stand by.
        to_repeat: The ids of those that came after it: shown once more if it answers none.
        settled: Those that were settled since the user's last message, each with what settled it, oldest first.
        went_on: The model has said something of its own accord since that message, so that a "yes" may be meant for it.
        due: The ids of the posts that tell the model of the end of a build that it asked for itself, if it can go on.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.questions: dict[str, BuildPosted] = {}
        self.fresh: set[str] = set()
        self.to_repeat: set[str] = set()
        self.settled: list[tuple[BuildPosted, BuildPosted]] = []
        self.went_on = False
        self.due: set[str] = set()
        self.asked: set[str] = set()
        self.under_way: set[str] = set()

    def ask(self, build_id: str) -> None:
        """A call of the model has asked for a build."""
        self.asked.add(build_id)

    def begin_turn(self, said: str) -> None:
        """A turn begins with a message of the user's, or by itself ("")."""
        self.went_on = not said.strip()
        if said.strip():
            self.settled.clear()
            self.fresh.clear()
            self.to_repeat.clear()

    def take(self, event: BuildPosted) -> None:
        """Take the next event."""
        self.seen = max(self.seen, event.number)
        match event.kind:
            case "question":
                self.questions[event.id] = event
                self.fresh.add(event.id)
                self.to_repeat.add(event.id)
            case "complete" | "error":
                self._close(event)
                if event.build_id in self.asked and lets_go_on(event):
                    self.due.add(post_id(event))
                self.asked.discard(event.build_id)
            case "progress" if event.status == "waiting":
                # Laid aside: what the user says now is seldom the answer, unless it names an option.
                self.fresh.difference_update(
                    id for id, question in self.questions.items() if question.build_id == event.build_id
                )
            case "answer" | "progress":
                if event.question_id:
                    self._close(event)
            case _:
                assert_never(event.kind)

    @property
    def given_up(self) -> tuple[BuildPosted, ...]:
        """Those of the settled questions without whose answers the Builder went on, and which nobody answered since."""
        return tuple(question for question, end in self.settled if end.kind == "progress")

    def _close(self, end: BuildPosted) -> None:
        for id, question in list(self.questions.items()):
            if question.build_id == end.build_id and end.question_id in ("", question.question_id):
                del self.questions[id]
                self.fresh.discard(id)
                self.settled.append((question, end))
        if end.kind == "answer":
            self.settled = [
                (question, end if _is_about(end, question) else before) for question, before in self.settled
            ]


def _is_about(answer: BuildPosted, question: BuildPosted) -> bool:
    return (answer.build_id, answer.question_id) == (question.build_id, question.question_id)


def lets_go_on(event: BuildPosted) -> bool:
    """Whether the model that asked for a build can go on now: it has ended, and was not cancelled by the user, nor
    waits for an approval.
    """
    ended = event.kind in ("complete", "error")
    return ended and event.status != "proposed" and event.text != CANCELLED


def post_id(event: BuildPosted) -> str:
    """The id of the post that tells the model of the end of a build."""
    return f"build-{event.number}"
