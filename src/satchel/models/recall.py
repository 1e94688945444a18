"""The stand-in for a language model: it answers with quotes from surfaced memories and says that it does only this."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeGuard

from satchel.events import TextDelta
from satchel.messages import Block, Message, TextBlock, Usage, text_of
from satchel.models.port import Completion, ModelEvent, ModelRequest

HOW_TO_ADD_A_MODEL: Final = (
    "I only recall: there is no language model here. To add one, set ANTHROPIC_API_KEY or OPENAI_API_KEY, "
    'start Ollama, or run `satchel config set model "gguf:/path/to/model.gguf"`.'
)

_NOTHING: Final = "I remember nothing that fits."
_NOTED: Final = "Noted."

# Words that begin a question or a request to look something up, in the most common languages.
_ASKS: Final = re.compile(
    r"^\W*(?:who|whom|whose|what|when|where|which|why|how|do|does|did|is|are|was|were|am|can|could|will|would|shall|should"
    r"|have|has|had|may|tell|show|list|find|search|recall|remind|remember when|give|look up"
    r"|wer|wen|wem|wessen|was|wann|wo|wohin|woher|welche[rsmn]?|warum|wieso|wie|hat|habe|hast|ist|sind|kann|kannst|weißt|zeig"
    r"|qui|que|quoi|quand|où|quel(?:le)?s?|pourquoi|comment|est-ce|combien"
    r"|quién|qué|cuándo|dónde|cuál(?:es)?|por qué|cómo|cuánto)\b",
    re.IGNORECASE,
)


class RecallModel:
    """A `ChatModel` that answers only from the memories in the newest message.

    It calls no tools and keeps no state; the same request always gets the same answer.
    """

    def __init__(self, *, provider: str = "none") -> None:
        self.provider = provider

    @property
    def model(self) -> str:
        """A fixed name."""
        return "recall"

    @property
    def context_window(self) -> int | None:
        """None: it reads only the newest message, so no window can fill up."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `ChatModel.stream`."""
        text = _answer(request.messages)
        for line in text.splitlines(keepends=True):
            yield TextDelta(text=line)
        yield Completion(
            blocks=(TextBlock(text=text),),
            stop_reason="end_turn",
            usage=Usage(cost_usd=0.0),
            provider=self.provider,
            model=self.model,
        )

    async def aclose(self) -> None:
        """There is nothing to close."""


def _answer(messages: Sequence[Message]) -> str:
    newest = messages[-1] if messages else Message(role="user", blocks=())
    memories = _memories(newest)
    is_question = _is_question(newest.text)
    if memories:
        opening = "This is what I remember:" if is_question else f"{_NOTED} It brings back:"
        parts = [f"{opening}\n" + "\n".join(memories)]
    elif notices := [block.text for block in newest.blocks if _is_notice(block)]:
        # The notices say why nothing was searched, which is not the same as finding nothing.
        parts = notices
    else:
        parts = [_NOTHING if is_question else _NOTED]
    if not any(
        HOW_TO_ADD_A_MODEL in text_of(message.blocks) for message in messages if message.role == "assistant"
    ):
        parts.append(HOW_TO_ADD_A_MODEL)
    return "\n\n".join(parts)


def _is_notice(block: Block) -> TypeGuard[TextBlock]:
    return isinstance(block, TextBlock) and block.origin == "notice"


def _is_question(text: str) -> bool:
    said = text.strip()
    return said.rstrip("\"')»”’ ").endswith(("?", "？", "؟")) or bool(_ASKS.match(said))


def _memories(message: Message) -> list[str]:
    """The lines of the memory block with their sources, word for word, without tags and heading."""
    lines: list[str] = []
    for block in message.blocks:
        if isinstance(block, TextBlock) and block.origin == "memory":
            lines += [line for line in block.text.splitlines() if line.strip() and not _is_mark(line)]
    items = [position for position, line in enumerate(lines) if _is_item(line)]
    # The text before the first item is addressed to a language model.
    return lines[items[0] :] if items else lines


def _is_mark(line: str) -> bool:
    return bool(re.fullmatch(r"\s*</?[\w-]+(?:\s[^>]*)?>\s*", line))


def _is_item(line: str) -> bool:
    return bool(re.match(r"\s*(?:[-*•]|\d+[.)]|\[)\s*", line))
