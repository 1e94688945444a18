"""Puts a session's questions to the user through the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)

from satchel.acp.updates import asked_call
from satchel.events import AskedCall, BuildPosted, Consent, QuestionAsked
from satchel.runtime.hosting import SharedSession
from satchel.tools.visible import visible

BY: Final = "acp"
_CONSENTS: Final[tuple[Consent, ...]] = ("no", "once", "session", "always")


class Asker:
    """Asks the user of one client."""

    def __init__(self, client: Client, capabilities: Callable[[], ClientCapabilities | None]) -> None:
        """`client` asks the user; its capabilities decide how."""
        self._client = client
        self._capabilities = capabilities

    @property
    def has_forms(self) -> bool:
        """Whether the client shows forms (elicitation)."""
        found = self._capabilities()
        return found is not None and found.elicitation is not None and found.elicitation.form is not None

    async def settle(self, session: SharedSession, question: QuestionAsked) -> None:
        """Ask, and give the session the answer."""
        if question.kind == "permission":
            consents = {call.call_id: await self._consent(session, call) for call in question.calls}
            await session.answer(question.id, consent=consents, by=BY)
        else:
            answer = await self._answer(session, question)
            await session.answer(question.id, answer, by=BY)

    async def settle_build(self, session: SharedSession, asked: BuildPosted) -> None:
        """Ask a build's question. Without forms, the client's next prompt answers it."""
        if not self.has_forms:
            return
        text = f"The Builder of {asked.capability} asks: {asked.text}"
        answer = await self._form(session.id, text, asked.options)
        await session.answer(asked.id, answer, by=BY)

    async def agreed(self, session_id: str, question: str) -> bool:
        """Whether the user agrees to something."""
        chosen = await self._choice(session_id, question, ["Yes", "No"])
        return chosen == "Yes"

    async def _consent(self, session: SharedSession, call: AskedCall) -> Consent:
        rules = visible(", ".join(call.rules))[:200]
        options = [PermissionOption(option_id="once", name="Allow", kind="allow_once")]
        if rules:
            options += [
                PermissionOption(
                    option_id="session", name=f"Allow {rules} in this conversation", kind="allow_always"
                ),
                PermissionOption(option_id="always", name=f"Always allow {rules}", kind="allow_always"),
            ]
        options.append(PermissionOption(option_id="no", name="Refuse", kind="reject_once"))
        answer = await self._client.request_permission(
            session_id=session.id, tool_call=asked_call(call, Path(session.cwd)), options=options
        )
        offered = {option.option_id for option in options}
        chosen = answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else "no"
        return next((each for each in _CONSENTS if each == chosen and each in offered), "no")

    async def _answer(self, session: SharedSession, question: QuestionAsked) -> str | None:
        if self.has_forms:
            return await self._form(session.id, question.text, question.options)
        if question.options:
            return await self._choice(session.id, question.text, question.options)
        # There is no other way to ask for text during a call, so it continues without an answer.
        return None

    async def _form(self, session_id: str, text: str, options: Sequence[str]) -> str | None:
        schema = ElicitationSchema(
            properties={
                "answer": ElicitationStringPropertySchema(
                    type="string", title="Answer", enum=list(options) or None
                )
            },
            required=["answer"],
        )
        response = await self._client.create_elicitation(
            message=visible(text),
            mode=ElicitationFormSessionMode(session_id=session_id, requested_schema=schema),
        )
        if not isinstance(response, AcceptElicitationResponse):
            return None
        answer = (response.content or {}).get("answer")
        return str(answer) if answer is not None else None

    async def _choice(self, session_id: str, text: str, choices: Sequence[str]) -> str | None:
        """Ask with the permission dialog, which every client has."""
        options = [
            PermissionOption(option_id=str(number), name=visible(choice)[:200], kind="allow_once")
            for number, choice in enumerate(choices)
        ]
        options.append(PermissionOption(option_id="none", name="No answer", kind="reject_once"))
        shown: Any = ToolCallUpdate(
            tool_call_id="question", title=visible(text)[:2_000], kind="other", status="pending"
        )
        answer = await self._client.request_permission(
            session_id=session_id, tool_call=shown, options=options
        )
        if not isinstance(answer.outcome, AllowedOutcome):
            return None
        chosen = answer.outcome.option_id
        return choices[int(chosen)] if chosen.isdecimal() and int(chosen) < len(choices) else None
