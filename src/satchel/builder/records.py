"""A build and the messages between it and the user, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from satchel.plain import as_json

BuildStatus: TypeAlias = Literal["queued", "running", "waiting", "active", "proposed", "failed"]
"""A "waiting" one goes on when the user has answered. The last three are final: how a build ended, where "active" and
"proposed" are the state of the version that was registered."""
BuildKind: TypeAlias = Literal["build", "repair"]
Direction: TypeAlias = Literal["to_user", "to_builder"]
MessageType: TypeAlias = Literal["question", "answer", "progress", "complete", "error"]

ENDED: Final = ("active", "proposed", "failed")
CANCELLED: Final = "It was cancelled by the user."
"""The outcome of a build that the user stopped."""
EARNED: Final = "earned"
"""The id of the question whether a tool shall be built that nobody asked for; the build's id begins with it."""
ADDED: Final = "The Builder is told as well: "
"""Before what is added to the task of a build, in the message that says so."""
DECLINED: Final = "It was not wanted, and is not proposed again."
"""The outcome of such a build after a no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build of one version of a capability.

    Attributes:
        capability_id: The entry in the catalogue.
        task: What the Builder's model is told.
        asked_by: The session that asked for it, or "".
        session_id: The session in which it is built; its log is the build's whole story.
        model: "provider:model", or "" if it is built in the process that asked, with a model object.
        outcome: What came of it, in a sentence or more; "" before the end.
        attempts: How often a process began it or continued it.
    """

    id: str
    capability_id: str
    name: str
    kind: BuildKind
    task: str
    asked_by: str
    session_id: str
    model: str
    status: BuildStatus = "queued"
    outcome: str = ""
    attempts: int = 0
    created_at: datetime
    updated_at: datetime

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens in it."""
        return self.status in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildMessage:
    """A message between a build and the user (seed-0, "Builder Progress Queue").

    Attributes:
        number: The order of all messages of a home; numbers are never used twice.
        id: Unique in the build. A message with the id of an earlier one is not stored again, so what a build repeats
            after an interruption is said once.
        payload: A question has `text` and `options`; an answer has `question_id`, `text` (None: the user declined) and
            `by`; the others have `text`.
        read: It reached the other side.
    """

    number: int
    id: str
    build_id: str
    name: str
    direction: Direction
    type: MessageType
    payload: Mapping[str, Any] = field(default_factory=dict)
    read: bool
    created_at: datetime

    @property
    def is_shown(self) -> bool:
        """Whether it is for the user, or says what they have added."""
        return self.direction == "to_user" or bool(self.wish)

    @property
    def wish(self) -> str:
        """What the user has added to the task; "" if this is another message."""
        return (
            self.text.removeprefix(ADDED) if (self.direction, self.type) == ("to_builder", "progress") else ""
        )

    @property
    def text(self) -> str:
        """The words of the payload."""
        return str(self.payload.get("text") or "")

    @property
    def options(self) -> tuple[str, ...]:
        """The suggested answers to a question."""
        return tuple(str(option) for option in self.payload.get("options") or ())


def message_to_json(message: BuildMessage) -> dict[str, Any]:
    """With the names of seed-0."""
    return {name: value for name, value in as_json(message).items() if name != "name"}
