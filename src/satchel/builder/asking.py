"""Questions of a build to the user: asked once, answered from any process, never waited for too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from satchel.builder.queue import BuildQueue
from satchel.builder.records import EARNED, Build
from satchel.clock import Clock

_LOOK_S: Final = 0.3
"""How often the database is asked for an answer: one short read. The user, who has just answered, should not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOutcome:
    """What came of a question.

    Attributes:
        text: The user's words; None if there are none.
        declined: The user does not want to answer.
        waited_s: How long the user had, if there was no answer.
    """

    text: str | None = None
    declined: bool = False
    waited_s: float = 0.0


class LaidAside(Exception):
    """A question has no answer yet, and the build can't go on without it. `question_id` names it."""

    def __init__(self, question_id: str) -> None:
        super().__init__(f"The question {question_id} has no answer yet.")
        self.question_id = question_id


class Asking:
    """Asks the user of one build."""

    def __init__(self, build: Build, *, queue: BuildQueue, clock: Clock, wait_s: float) -> None:
        """Ask through the queue; `wait_s` is how long an answer is waited for."""
        self._build = build
        self._queue = queue
        self._clock = clock
        self._wait_s = wait_s

    async def ask(
        self, id: str, text: str, options: Sequence[str], *, otherwise: str = ""
    ) -> QuestionOutcome:
        """Ask, and wait for the answer until `wait_s` after the question was first asked.

        A question that was asked before, by a process that has died, is not asked again, and its answer is found.

        Args:
            id: Names the question in its build.
            text: The question.
            options: Suggested answers.
            otherwise: What happens without an answer, in a sentence for the user; "" if the build can't go on.

        Raises:
            LaidAside: There is no answer yet, and no `otherwise`. The question stays open.
        """
        payload = {"text": text, "options": list(options)}
        question = await self._queue.tell(self._build.id, id=id, type="question", payload=payload)
        given_up = any(
            message.payload.get("question_id") == id and message.type == "progress"
            for message in await self._queue.messages(self._build.id, after=question.number)
        )
        waited_s = (self._clock.now() - question.created_at).total_seconds()
        left_s = 0.0 if given_up else min(self._wait_s, max(0.0, self._wait_s - waited_s))
        answer = await self._queue.answer_to(self._build.id, id)
        with anyio.move_on_after(left_s):
            while answer is None:
                await anyio.sleep(_LOOK_S)
                answer = await self._queue.answer_to(self._build.id, id)
        if answer is None and not otherwise:
            raise LaidAside(id)
        if answer is None:
            note = f"No answer within {self._wait_s:g} s. {otherwise}"
            answer = await self._queue.give_up(self._build.id, id, note)
        if answer is None:
            return QuestionOutcome(waited_s=self._wait_s)
        await self._queue.mark_read([answer.number])
        given = answer.payload.get("text")
        return QuestionOutcome(text=given, declined=given is None)


def consent_id(named: str) -> str:
    """The id of a question for permission in its build; `named` says for what."""
    return f"allow:{named}"


def is_consent(question_id: str) -> bool:
    """Whether a question asks for permission: only yes or no answers it, and the build waits for one of them."""
    return question_id == EARNED or question_id.startswith(consent_id(""))


def unset_id(call_id: str) -> str:
    """The id of the question that asks the user to set a secret which has no value where the build runs."""
    return f"unset:{call_id}"


def is_unset(question_id: str) -> bool:
    """Whether a question asks to set a secret: only a process that was started with it can go on."""
    return question_id.startswith(unset_id(""))
