"""Asks the user through the client (elicitation) whether a call may run, in the way of each protocol revision."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from satchel.events import Consent
from satchel.tools import Approval, ApprovalRequest
from satchel.tools.visible import visible

_KEY: Final = "permission"
_WAIT_S: Final = 600.0
"""How long the user may take before the call is refused."""
_MOST_SHOWN_CHARS: Final = 2_000
_CONSENTS: Final[dict[str, Consent]] = {"once": "once", "always": "always", "no": "no"}
_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "description": "once: this call. always: this call and those like it, from now on. no: refuse.",
            "enum": list(_CONSENTS),
        }
    },
    "required": ["decision"],
}


class InputRequired(Exception):
    """The call waits for the user's answer: `result` asks the client, which repeats the call with it."""

    def __init__(self, result: InputRequiredResult) -> None:
        """`result` is returned to the client."""
        super().__init__()
        self.result = result


def can_ask(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client shows forms to its user."""
    capabilities = context.session.client_capabilities
    asks = capabilities.elicitation if capabilities is not None else None
    # Before 2025-11-25, clients that show forms said so by an empty object.
    return asks is not None and (asks.form is not None or asks.url is None)


@dataclass(frozen=True, slots=True, eq=False)
class ElicitingApprover:
    """Asks about one call. It is an `Approver`.

    Attributes:
        context: Of the request.
        params: The request.
        client: The name of the client.
        details: What the user should know in addition to the call.
    """

    context: ServerRequestContext[Any, Any]
    params: CallToolRequestParams
    _: KW_ONLY
    client: str
    details: Sequence[str] = ()

    async def approve(self, requests: Sequence[ApprovalRequest]) -> Sequence[Approval] | None:
        """See `Approver`.

        Raises:
            InputNeeded: The client must be asked by a result.
        """
        form = ElicitRequestFormParams(message=self._message(requests), requested_schema=_FORM)
        if self.context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            answer = self._answered(form)
        else:
            answer = await self._ask(form)
        if answer is None or answer.action != "accept":
            return [Approval(answer="no") for _ in requests]
        consent = _CONSENTS.get(str((answer.content or {}).get("decision")), "no")
        return [Approval(answer=consent) for _ in requests]

    def _message(self, requests: Sequence[ApprovalRequest]) -> str:
        parts = []
        for request in requests:
            shown = json.dumps(dict(request.call.input), ensure_ascii=False, default=str)
            if len(shown) > _MOST_SHOWN_CHARS:
                shown = f"{shown[:_MOST_SHOWN_CHARS]}…"
            parts.append(f"{self.client} wants to call {self.params.name} of Satchel with {visible(shown)}")
            parts.append(f"It is asked because of {request.reason}.")
        return "\n".join([*parts, *(visible(line) for line in self.details)])

    def _answered(self, form: ElicitRequestFormParams) -> ElicitResult | None:
        """The answer that came with the repeated call. Its state is sealed and bound to the call, so an answer to
        another call is not taken for one to this.
        """
        found = (self.params.input_responses or {}).get(_KEY)
        if isinstance(found, ElicitResult) and self.params.request_state == _KEY:
            return found
        raise InputRequired(
            InputRequiredResult(input_requests={_KEY: ElicitRequest(params=form)}, request_state=_KEY)
        )

    async def _ask(self, form: ElicitRequestFormParams) -> ElicitResult | None:
        with anyio.move_on_after(_WAIT_S):
            try:
                return await self.context.session.elicit_form(
                    form.message, form.requested_schema, self.context.request_id
                )
            except MCPError:
                return None  # The client can't be asked after all, or refused.
        return None
