"""What a build's session says about the build: read from its log when it resumes, kept up to date while it runs."""

from __future__ import annotations

import re

from satchel.conversation import Conversation
from satchel.events import Action, Assistant, Event, Observation, Record, TurnEnd, TurnStart

_LATE = re.compile(r"\[Late answer to ([^\]]+)\]")


def late_answer_mark(question_id: str) -> str:
    """The line above an answer that came after the Builder had stopped waiting for it."""
    return f"[Late answer to {question_id}]"


class Story:
    """Visits the records of a build's log in order, and takes the events that follow.

    Attributes:
        conversation: What the Builder's model sees.
        rounds: Answers of the model so far.
        used_s: Seconds in which its tools have worked, without those in which they waited for the user.
        turns_done: Turns that the model ended with an answer instead of a registration.
        waits_for: The questions without whose answers the newest turn could not go on.
        refused: Why the last call of register_capability was refused, or "".
        is_tested: Code has run without an error since `main.py` was last written.
        late_answers: The questions whose late answers are in the log, and the wishes of which it was told.
        heard: Those of them with which the model has gone on.
        files: What it has written with write_file, by the paths.
        installs: The commands with which it has installed packages, or tried to.
    """

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.rounds = 0
        self.used_s = 0.0
        self.turns_done = 0
        self.waits_for: tuple[str, ...] = ()
        self.refused = ""
        self.is_tested = False
        self.late_answers: set[str] = set()
        self.files: dict[str, str] = {}
        self.installs: list[str] = []
        self.heard: frozenset[str] = frozenset()
        # All calls of a round are logged before the first of them runs, so what they do counts when they have ended.
        self._calls: dict[str, Action] = {}

    def __call__(self, record: Record) -> None:
        """Take the next record of the log."""
        self.conversation.take(record)
        self.note(record.event)

    def note(self, event: Event) -> None:
        """Take an event that the conversation has applied."""
        if isinstance(event, Observation):
            self._note_result(event)
            self._note_files(event)
        match event:
            case Assistant():
                self.rounds += 1
                self.heard = frozenset(self.late_answers)
            case Action(tool="write_file" | "run_command"):
                self._calls[event.call_id] = event
            case Observation(tool="run_code" | "run_command", data={"status": "ok"}):
                self.is_tested = True
            case Observation(tool="register_capability", is_error=True):
                self.refused = event.text.removeprefix("Refused").lstrip(": \n")
            case TurnStart(message=message):
                self._note_late(message.text)
                self.waits_for = ()
            case TurnEnd(status="done") if not self.waits_for:
                self.turns_done += 1
            case _:
                pass

    def _note_result(self, event: Observation) -> None:
        self._note_late(event.text)
        data = event.data if isinstance(event.data, dict) else {}
        if event.tool != "ask_user":
            self.used_s += max(0.0, event.duration_ms / 1000 - data.get("waited_s", 0.0))
        if data.get("answered"):
            # It was late, too, if the process died between the default and the result of this call.
            self.late_answers.add(event.call_id)
        if "waits_for" in data:
            self.waits_for = tuple(dict.fromkeys((*self.waits_for, str(data["waits_for"]))))

    def _note_files(self, event: Observation) -> None:
        call = self._calls.pop(event.call_id, None)
        if call is None:
            return
        if event.tool == "write_file":
            path = str(call.input.get("path")).removeprefix("./")
            self.is_tested = self.is_tested and path != "main.py"
            if not event.is_error:
                self.files[path] = str(call.input.get("content"))
        elif not event.is_error and event.data is None:
            self.installs.append(str(call.input.get("command")))

    def _note_late(self, text: str) -> None:
        self.late_answers.update(_LATE.findall(text))
