"""Questions of a running turn to the user: logged, answered by any client, and answered once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, Final, Protocol

import anyio

from satchel.errors import NotFound, UsageError
from satchel.events import (
    AskedCall,
    CallConsent,
    Consent,
    QuestionAnswered,
    QuestionAsked,
)
from satchel.runtime.session_log import SessionLog
from satchel.tools import Approval, ApprovalRequest, Question

_HIDDEN = "[redacted:answer]"
_MOST_WAIT_S: Final = 24 * 3600.0
"""How long a turn that began by itself waits for whoever comes back: until they have been at their desk once. Until it
ends, the session stays open, and messages wait."""
_NOBODY: Final = "Satchel, after a day without an answer"


class AskedClient(Protocol):
    """A client as far as it answers questions; see `Session`."""

    is_interactive: bool
    answers_later: bool


class Questions:
    """Asks the session's clients. It is the `Approver` of the permission gate and the `ask` of tools.

    Attributes:
        open: The questions that wait for an answer, by id, oldest first. After a restart, these are the permission
            questions of the interrupted turn.
        by_itself: The running turn began by itself, so a client that comes back is asked, too.
    """

    def __init__(
        self, log: SessionLog, *, clients: Collection[AskedClient], sealed: Callable[[str], str]
    ) -> None:
        """There are no questions yet; see `restore`.

        Args:
            log: Where they are recorded.
            clients: Those of the session, at any time.
            sealed: Gives the proof that somebody with the home's key wrote a text. A consent in the log counts only
                with one: where the log is on a server, others can write to it.
        """
        self.open: dict[str, QuestionAsked] = {}
        self.by_itself = False
        self._log = log
        self._clients = clients
        self._sealed = sealed
        # Two calls may ask at once, so the log's length alone does not make an id unique.
        first_seq = log.journal.last_seq
        self._ids = (f"ask_{first_seq}_{number}" for number in count(1))
        self._answers: dict[str, QuestionAnswered] = {}
        self._answering: set[str] = set()
        self._arrived: dict[str, anyio.Event] = {}

    def restore(self, events: Iterable[QuestionAsked | QuestionAnswered]) -> None:
        """Take the questions and answers of an unfinished turn from the log.

        A permission question survives the program that asked it. The question of a running call does not, because the
        call ended with the program.
        """
        for event in events:
            if isinstance(event, QuestionAnswered):
                self.open.pop(event.id, None)
                self._answers[event.id] = event
            elif event.kind == "permission":
                self.open[event.id] = event

    def has_audience(self) -> bool:
        """Whether there is a client that can answer the running turn."""
        return any(
            client.is_interactive or (self.by_itself and client.answers_later) for client in self._clients
        )

    def close(self) -> None:
        """The turn has ended: drop its questions and answers."""
        self.open.clear()
        self._answers.clear()

    async def approve(self, requests: Sequence[ApprovalRequest]) -> Sequence[Approval] | None:
        """Ask whether calls may run; see `satchel.tools.Approver`. Returns None if nobody can be asked."""
        id = _permission_id(requests)
        calls = tuple(
            AskedCall(
                call_id=request.call.call_id,
                tool=request.call.spec.name,
                input=request.call.input,
                key=request.call.spec.pattern_key,
                rules=request.rules,
                reason=request.reason,
            )
            for request in requests
        )
        answer = self._answers.get(id)
        if answer is not None and answer.seal != self._seal(answer, calls):
            answer = None
            del self._answers[id]
        if answer is None:
            if not self.has_audience():
                return None
            turn = self._log.conversation.turns
            answer = await self._ask(QuestionAsked(id=id, turn=turn, kind="permission", calls=calls))
        if answer.by == _NOBODY:
            return None
        given = {consent.call_id: consent for consent in answer.consents}
        refused = CallConsent(call_id="", consent="no")
        consents = [given.get(request.call.call_id, refused) for request in requests]
        return [Approval(answer=consent.consent, words=consent.words) for consent in consents]

    async def ask(self, question: Question) -> str | None:
        """Ask the question of a running call. Returns the answer, or None if it was declined."""
        asked = QuestionAsked(
            id=next(self._ids),
            turn=self._log.conversation.turns,
            kind="tool",
            text=question.text,
            options=question.options,
            is_secret=question.is_secret,
        )
        return (await self._ask(asked)).text

    async def _ask(self, question: QuestionAsked) -> QuestionAnswered:
        arrived = self._arrived[question.id] = anyio.Event()
        known = self.open.get(question.id)  # after a restart, the question is already in the log
        if known is None or _shown(known.calls) != _shown(question.calls):
            await self._log.record(question)
            self.open[question.id] = question
        try:
            with anyio.move_on_after(_MOST_WAIT_S if self.by_itself else None):
                await arrived.wait()
            if not arrived.is_set():
                consent: Consent | None = "no" if question.kind == "permission" else None
                with suppress(UsageError):  # an answer is being written
                    await self.answer(question.id, consent=consent, by=_NOBODY)
                await arrived.wait()
        finally:
            self.open.pop(question.id, None)
            self._arrived.pop(question.id, None)
        return self._answers[question.id]

    def _seal(self, answer: QuestionAnswered, calls: Sequence[AskedCall]) -> str:
        if not answer.consents:
            return ""
        consents = [(consent.call_id, consent.consent) for consent in answer.consents]
        turn = self._log.conversation.turns
        return self._sealed(json.dumps([turn, answer.id, _shown(calls), consents], sort_keys=True))

    async def answer(
        self,
        id: str,
        *,
        text: str | None = None,
        consent: Consent | Mapping[str, Consent] | None = None,
        words: str = "",
        by: str = "",
    ) -> None:
        """Answer an open question. The answer is on disk before it takes effect. `consent` is the answer to a
        permission question, for all of its calls, or by call id; a call without one is refused. See `Session.answer`.

        Raises:
            NotFound: No question with this id is open.
            UsageError: The question has been answered already, or the answer doesn't fit it.
            StorageError: The answer could not be written to disk; the question is still open.
        """
        if not isinstance(id, str):
            raise NotFound("The id of a question is a text.")
        if id in self._answers or id in self._answering:
            other = self._answers[id].by if id in self._answers else ""
            raise UsageError(f"The question {id} has been answered already{f' by {other}' if other else ''}.")
        question = self.open.get(id)
        if question is None:
            raise NotFound(f"No question {id!r} is open in this session.")
        if not all(isinstance(part, str) for part in (words, by, "" if text is None else text)):
            raise UsageError("An answer, its reason and the name of a client are texts.")
        answer = _fitting(question, text=text, consent=consent, words=words, by=by)
        answer = replace(answer, seal=self._seal(answer, question.calls))
        self._answering.add(id)
        try:
            is_hidden = question.is_secret and answer.text is not None
            # The tool gets the words; the question of a running call ends with the program, so the log needs none.
            await self._log.record(replace(answer, text=_HIDDEN) if is_hidden else answer)
            self._answers[id] = answer
        finally:
            self._answering.discard(id)
        self.open.pop(id, None)
        if id in self._arrived:
            self._arrived[id].set()


def _shown(calls: Sequence[AskedCall]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """What the user agrees to."""
    return [(call.call_id, call.tool, call.input) for call in calls]


def _permission_id(requests: Sequence[ApprovalRequest]) -> str:
    """An id that follows from the calls, so that an answer in the log is found after a restart."""
    ids = "\n".join(request.call.call_id for request in requests)
    return f"permit_{hashlib.sha256(ids.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _fitting(
    question: QuestionAsked,
    *,
    text: str | None,
    consent: Consent | Mapping[str, Consent] | None,
    words: str,
    by: str,
) -> QuestionAnswered:
    if question.kind == "tool":
        if consent is not None:
            raise UsageError(f"The question {question.id} doesn't ask for permission. Answer it with a text.")
        return QuestionAnswered(id=question.id, text=text, by=by)
    if not isinstance(consent, str | Mapping):
        raise UsageError(
            f'The question {question.id} asks for permission. Answer "no", "once", "session" or "always".'
        )
    calls = [call.call_id for call in question.calls]
    by_call = dict.fromkeys(calls, consent) if isinstance(consent, str) else dict(consent)
    unknown = by_call.keys() - set(calls)
    if unknown:
        raise UsageError(
            f"The question {question.id} does not ask about the call {min(map(str, unknown))!r}."
        )
    wrong = [value for value in by_call.values() if value not in ("no", "once", "session", "always")]
    if wrong:
        raise UsageError(f'{str(wrong[0])[:80]!r} is not an answer. Use "no", "once", "session" or "always".')
    return QuestionAnswered(
        id=question.id,
        consents=tuple(
            CallConsent(call_id=call, consent=by_call.get(call, "no"), words=words) for call in calls
        ),
        by=by,
    )
