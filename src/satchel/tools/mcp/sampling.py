"""Sampling: a server has the user's model answer something, where the user allows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from satchel.messages import Message, TextBlock
from satchel.tools.mcp.definitions import sampling_name
from satchel.tools.mcp.questions import quoted
from satchel.tools.port import Question
from satchel.tools.visible import visible

MAX_TOKENS = 4_000
"""Tokens of one answer; a server that asks for more gets this many."""
MAX_CHARS = 20_000
"""Characters of one request: the user is shown all of them."""
MAX_STOPS = 4
"""Stop sequences, the number that OpenAI's wire format takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """What a server wants the model to answer.

    Attributes:
        messages: Text only; the first and the last are the user's.
        max_tokens: Of the answer, from 1 to `MAX_TOKENS`.
        temperature: From 0 to 2, or None for the model's own.
    """

    server: str
    messages: tuple[Message, ...]
    system: str
    max_tokens: int
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()

    @property
    def rule_name(self) -> str:
        """What permission rules call it: `mcp__SERVER__sampling`."""
        return sampling_name(self.server)

    def question(self) -> Question:
        """What the user is asked, with everything that the model would read."""
        parts = [f"[system] {quoted(self.system)}"] if self.system else []
        parts += [f"[{message.role}] {quoted(message.text)}" for message in self.messages]
        text = "\n".join(
            [
                f"The MCP server {self.server!r} asks your model, at your cost, for an answer of at most "
                f"{self.max_tokens:,} tokens to this:",
                *parts,
                "Answer 'allow' or 'decline'. The server gets the answer.",
            ]
        )
        return Question(text=text, options=("allow", "decline"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The model's answer."""

    text: str
    model: str
    stop_reason: Literal["endTurn", "stopSequence", "maxTokens"] = "endTurn"


class Sampler(Protocol):
    """Has a session's model answer; the runtime implements it."""

    async def consent(self, rule_name: str, *, session_id: str) -> Literal["allow", "ask", "deny"]:
        """What the session's permission rules say; "ask" if no rule matches, whatever the mode.

        A rule must name it in full to allow it: `mcp__files__*` is about tools, and an answer costs money.

        Args:
            rule_name: `mcp__SERVER__sampling`.
            session_id: The id of an open session.
        """
        ...

    async def sample(self, request: SamplingRequest, *, session_id: str) -> Sampled:
        """Ask the session's model, without tools, and count what it costs to the session.

        Raises:
            SatchelError: There is no model, the budget is spent, or the model failed.
        """
        ...


def read_sampling(server: str, params: Mapping[str, Any]) -> SamplingRequest | str:
    """Read the protocol's parameters; or say what is wrong with them, as a clause."""
    if params.get("tools"):
        return "it wants tools for the model"
    messages: list[Message] = []
    for entry in params.get("messages") or []:
        content = entry.get("content")
        blocks = content if isinstance(content, list) else [content]
        if not all(isinstance(block, Mapping) and block.get("type") == "text" for block in blocks):
            return "it holds something other than text"
        text = visible("\n".join(str(block.get("text", "")) for block in blocks))
        messages.append(Message(role=entry["role"], blocks=(TextBlock(text=text),)))
    if not messages or messages[0].role != "user" or messages[-1].role != "user":
        return "its first and last message are not the user's"
    system = visible(str(params.get("systemPrompt") or ""))
    size = len(system) + sum(len(message.text) for message in messages)
    if size > MAX_CHARS:
        return f"it has {size:,} characters and may have {MAX_CHARS:,}"
    temperature = params.get("temperature")
    return SamplingRequest(
        server=server,
        messages=tuple(messages),
        system=system,
        max_tokens=min(max(int(params.get("maxTokens") or 1), 1), MAX_TOKENS),
        # What is out of range, or NaN, is the model's own.
        temperature=temperature if isinstance(temperature, int | float) and 0 <= temperature <= 2 else None,
        stop_sequences=tuple(str(each) for each in (params.get("stopSequences") or [])[:MAX_STOPS]),
    )
