"""Reads a request of another agent: the conversation, the user's turns in it, and whether it is one at all.

Agents send more in the user's role than the user says: reminders, results of tools, the output of hooks, prompts of
their own for titles and sub-agents. Only the user's words make a turn.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from satchel.memory.text.block import strip_injected
from satchel.memory.transfer.wrappers import without_wrappers
from satchel.server.errands import is_errand
from satchel.server.proxy.raw_messages import RawMessages

_SUMMARY: Final = "This session is being continued from a previous conversation"
_SURFACED: Final = 3
"""Surfacing looks at the last three messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message in which the user says something.

    Attributes:
        number: Of the message in the request, from 0.
        key: The hash of the conversation and of all that the user said in it, up to here.
        words: What the user says, without the agent's additions.
    """

    number: int
    key: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiedConversation:
    """The conversation in a request.

    Attributes:
        name: The agent's own name for it, hashed; "" if it gives none.
        turns: Oldest first.
        is_new: The newest turn has no answer yet, not even calls.
        is_summarised: It began before what is in the request.
        has_outside: Results of tools are in it since the newest turn.
        recent: The last messages with words, for memory.
    """

    name: str
    turns: tuple[UserMessage, ...]
    is_new: bool
    is_summarised: bool
    has_outside: bool
    recent: tuple[Mapping[str, str], ...]


def read_conversation(request: RawMessages) -> ProxiedConversation | None:
    """Read a request; None if the user says nothing in it."""
    name = _name_of(request.fields)
    key = digest_of("anthropic", name)
    turns: list[UserMessage] = []
    recent: list[Mapping[str, str]] = []
    is_new = is_summarised = has_outside = False
    for number, message in enumerate(request.messages):
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            is_new = False
            text = _texts(content)
            if text.strip():
                recent.append({"role": "assistant", "content": text})
        elif role == "user":
            has_outside = has_outside or _has_results(content)
            text = _texts(content)
            words = _words(content)
            if words:
                key = digest_of(key, words)
                turns.append(UserMessage(number=number, key=key, words=words))
                recent.append({"role": "user", "content": words})
                is_new, has_outside = True, _has_results(content)
            elif text.lstrip().startswith(_SUMMARY):
                key, is_summarised = digest_of(key, text), True
    if not turns:
        return None
    return ProxiedConversation(
        name=name and digest_of(name)[:16],
        turns=tuple(turns),
        is_new=is_new,
        is_summarised=is_summarised,
        has_outside=has_outside,
        recent=tuple(recent[-_SURFACED:]),
    )


def is_auxiliary(
    request: RawMessages, conversation: ProxiedConversation, *, agent: str, prompts: Collection[str]
) -> bool:
    """Whether the request is the agent's own: a probe, a title, a summary, a sub-agent.

    Args:
        request: The request.
        conversation: Its conversation.
        agent: The header `user-agent`.
        prompts: The hashes of texts that models have recently written as arguments of calls (`digest_of`).
    """
    if request.fields.get("max_tokens") == 1:
        return True
    # Claude Code asks for titles and the like without tools, and holds every conversation with them.
    if agent.lower().startswith("claude-cli") and not request.fields.get("tools"):
        return True
    if is_errand(conversation.turns[-1].words, has_tools=bool(request.fields.get("tools"))):
        return True
    # What a model wrote as an argument of a call is a sub-agent's task, not the user's words.
    return digest_of(conversation.turns[0].words) in prompts


def digest_of(*parts: str) -> str:
    """A hash of texts, in hexadecimal."""
    return sha256(json.dumps(parts).encode()).hexdigest()


def _name_of(fields: Mapping[str, Any]) -> str:
    metadata = fields.get("metadata")
    name = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def _blocks(content: Any) -> Sequence[Any]:
    """Content is a text or a list of blocks. A cache mark turns the one into the other."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _block_texts(content: Any) -> list[str]:
    return [
        block["text"]
        for block in _blocks(content)
        if isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)
    ]


def _texts(content: Any) -> str:
    return "\n".join(_block_texts(content))


def _words(content: Any) -> str:
    said = (without_wrappers(strip_injected(text)).strip() for text in _block_texts(content))
    return "\n".join(words for words in said if words)


def _has_results(content: Any) -> bool:
    return any(
        isinstance(block, Mapping) and str(block.get("type", "")).endswith("tool_result")
        for block in _blocks(content)
    )
