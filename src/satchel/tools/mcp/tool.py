"""One tool of an MCP server, behind the same port as every other tool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from satchel.plain import as_json
from satchel.tools.box import Box
from satchel.tools.kept import write_kept
from satchel.tools.mcp.definitions import McpDefinition
from satchel.tools.mcp.exchange import Caller, Failed, InputNeeded
from satchel.tools.mcp.questions import Elicitation, read_answer
from satchel.tools.mcp.results import tool_result
from satchel.tools.mcp.server import McpServer, Outcome, ServerBox
from satchel.tools.port import Annotations, Effect, Question, ToolContext, ToolResult, ToolSpec

OUTER_LIMIT_S = 3_600.0
"""The outer limit of a call, with the time that the user takes to answer; the server's own limit holds inside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A call that waits for the user, whose next message answers the server's question.

    Attributes:
        state: The server's own state, to be sent back unchanged.
        box: The sandbox in which the call runs; None outside.
    """

    tool: str
    input: Mapping[str, Any]
    key: str
    elicitation: Elicitation
    state: str | None
    box: Box | None = None

    def to_text(self) -> str:
        """As JSON."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        asked = {"server": self.elicitation.server, **self.elicitation.to_json()}
        return json.dumps({**said, "elicitation": asked, "box": as_json(self.box)})

    @classmethod
    def read(cls, text: str) -> PendingCall | None:
        """Read it from JSON; None if it is something else."""
        try:
            said = json.loads(text)
            asked, box = said["elicitation"], said["box"]
            said["elicitation"] = Elicitation.read(asked.pop("server"), asked)
            said["box"] = box and Box(**{name: tuple(allowed) for name, allowed in box.items()})
            return cls(**said)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def caller_of(context: ToolContext) -> Caller:
    """The caller of a request that serves a call."""
    return Caller(session_id=context.session_id, ask=context.ask, progress=context.progress)


def pending_path(spill_dir: Path, call_id: str) -> Path:
    """The file of a waiting call: beside the session's long results, so that it outlives the process."""
    return spill_dir / f"question-{hashlib.sha256(call_id.encode()).hexdigest()[:16]}.json"


class McpTool:
    """See `satchel.tools.Tool`. The server is started by the first call."""

    def __init__(self, server: McpServer, definition: McpDefinition, *, name: str) -> None:
        self._server = server
        self._definition = definition
        trusts = server.entry.trust_annotations
        self._spec = ToolSpec(
            name=name,
            description=definition.description,
            input_schema=definition.input_schema,
            source="mcp",
            origin=f"MCP server {server.name}",
            # A server's claims about itself permit nothing unless the user vouches for them.
            annotations=replace(definition.annotations if trusts else Annotations(), boxed=server.can_box),
            vouched_for=trusts,
            timeout_s=OUTER_LIMIT_S,
        )

    @property
    def spec(self) -> ToolSpec:
        """See `satchel.tools.Tool`."""
        return self._spec

    @property
    def address(self) -> str:
        """Its server's name and its own, as capabilities call it: "files.read"."""
        return f"{self._server.name}.{self._definition.name}"

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        """None are known."""
        return ()

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Call it. Whatever the server does wrong becomes an error result."""
        server = self._in(context.box, context)
        outcome, notes = await server.call(self._definition.name, input, caller_of(context))
        return await self._result(input, outcome, notes, context)

    def _in(self, box: Box | None, context: ToolContext) -> McpServer:
        """The server's process for a call that was permitted in a sandbox, or outside."""
        return self._server if box is None else self._server.in_box(ServerBox(folder=context.cwd, box=box))

    async def resume(self, answer: str, context: ToolContext) -> ToolResult:
        """See `satchel.tools.Resumable`."""
        again = f"Nothing was done; call {self._spec.name} again to ask again."
        pending = await context.blocking(_take_pending, pending_path(context.spill_dir, context.call_id))
        if pending is None or pending.tool != self._spec.name:
            return ToolResult(text=f"This call is no longer waiting for an answer. {again}", is_error=True)
        reply = read_answer(pending.elicitation, answer)
        if reply.problem:
            return ToolResult(
                text=f"The user's answer could not be sent to the MCP server {self._server.name}: {reply.problem}. "
                f"{again}",
                is_error=True,
            )
        told: dict[str, Any] = {"action": reply.action}
        if reply.content is not None:
            told["content"] = dict(reply.content)
        # The decision about the call was about this sandbox.
        outcome, notes = await self._in(pending.box, context).call(
            self._definition.name,
            pending.input,
            caller_of(context),
            answers={pending.key: told},
            state=pending.state,
        )
        return await self._result(pending.input, outcome, notes, context)

    async def _result(
        self, input: Mapping[str, Any], outcome: Outcome, notes: Sequence[str], context: ToolContext
    ) -> ToolResult:
        match outcome:
            case Failed(reason=reason):
                text = "\n".join([f"{self._spec.name} gave no result: {reason}.", *notes])
                # The reason may be in the server's words.
                return ToolResult(text=text, is_error=True, untrusted=True)
            case InputNeeded():
                return await self._asking(input, outcome, context)
            case _:
                result = await tool_result(outcome, context)
                return replace(result, text="\n".join([*notes, result.text])) if notes else result

    async def _asking(
        self, input: Mapping[str, Any], needed: InputNeeded, context: ToolContext
    ) -> ToolResult:
        pending = PendingCall(
            tool=self._spec.name,
            input=input,
            key=needed.key,
            elicitation=needed.elicitation,
            state=needed.state,
            box=context.box,
        )
        path = pending_path(context.spill_dir, context.call_id)
        try:
            await context.blocking(write_kept, path, pending.to_text().encode())
        except OSError as error:
            return ToolResult(
                text=f"{self._spec.name} needs an answer from the user, and the question could not be saved in {path}: "
                f"{error.strerror}.",
                is_error=True,
            )
        question: Question = replace(needed.elicitation.question(), resumable=True)
        return ToolResult(text=question.text, question=question)


def _take_pending(path: Path) -> PendingCall | None:
    """Read a waiting call and empty its file: it goes on once. A copy on a server is emptied with it."""
    try:
        text = path.read_text(encoding="utf-8")
        path.write_text("", encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return PendingCall.read(text)
