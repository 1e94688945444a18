"""What a session knows of the builds that it asked for: how far it has heard, and the questions that are open."""

from __future__ import annotations

from satchel.events import BuildPosted

__all__ = ["BuildNews"]


class BuildNews:
    """Follows the `BuildPosted` events of one session, from its log and live.

    Attributes:
        seen: The number of the last message that is in the log.
        questions: The questions that wait for an answer, by the id of their event, oldest first.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.seen = 0
        self.questions: dict[str, BuildPosted] = {}

    def take(self, event: BuildPosted) -> None:
        """Take the next event."""
        self.seen = max(self.seen, event.number)
        match event.kind:
            case "question":
                self.questions[event.id] = event
            case "complete" | "error":
                self._close(event.build_id)
            case _ if event.question_id:
                self._close(event.build_id, event.question_id)
            case _:
                pass

    def _close(self, build_id: str, question_id: str | None = None) -> None:
        self.questions = {
            id: question
            for id, question in self.questions.items()
            if question.build_id != build_id
            or (question_id is not None and question.question_id != question_id)
        }
