"""What a model is shown: the marked block that carries memories, and how it is recognised when it comes back.

The block is data in a frame: nothing that is stored can close the frame, open another, or pass for a line of
its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from satchel.errors import UsageError
from satchel.memory.records import Context, Hit
from satchel.memory.text.framing import (
    ABOUT_USER,
    AGENDA_ABOVE,
    AGENDA_EMPTY,
    AHEAD,
    AS_OF,
    CLOSE,
    EARLIER,
    HEAD,
    LINE_TOKENS,
    LOWER_HOLDS,
    OPEN,
    OVER,
    PREAMBLE,
    earlier,
    estimate_tokens,
    fitting_words,
    origin_of,
    quoted,
    restates,
)
from satchel.messages import Message

Said: TypeAlias = str | Message | Mapping[str, Any]
"""A message as it comes: words, a `Message`, or {"role", "content"} as model providers write it."""

# The frame is what is recognised: nobody else writes this sentence, and within it a line may say what it likes.
_LINE = rf'- \d{{4}}-\d\d-\d\d(?: [A-Z][a-z]{{2}})?, [^\n"]{{1,400}}: "(?:[^"\\\n]|\\.)*"(?:{EARLIER})?'
_BLOCK = re.compile(
    rf"[ \t]*(?:{re.escape(OPEN)}[ \t]*\r?\n?)?[ \t]*{re.escape(PREAMBLE)}"
    rf"[ \t]*(?:\r?\n|\Z)?"
    rf"(?:[ \t]*{_LINE}[ \t]*(?:\r?\n|\Z)?)*(?:[ \t]*{re.escape(CLOSE)}[ \t]*(?:\r?\n|\Z)?)?"
)

_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_DAY = r"\d{4}-\d\d-\d\d"
_STANDING_LINE = (
    rf'(?:[^\n"]{{8,80}}|-) {_QUOTED}(?:; {_QUOTED})*'
    rf'|[A-Z][a-z, ]{{3,30}}:(?=[ \t]*\r?\n[ \t]*(?:-|[0-9a-z]{{8}})(?: {_DAY})? ")'
)
"""A line of the profile or the agenda, or one of the page or its heading."""
_NO_LINE = f"{re.escape(AGENDA_EMPTY)}|{re.escape(AGENDA_ABOVE)}"
_AS_OF = re.escape(AS_OF).replace(re.escape("{day}"), "[0-9-]{10}")
_STANDING = re.compile(
    r"[ \t]*(?:<satchel-(?:profile|agenda)>[ \t]*\r?\n?)?[ \t]*"
    rf"(?:{re.escape(ABOUT_USER)}(?:{re.escape(LOWER_HOLDS)}|{_AS_OF})?"
    rf"|{re.escape(AHEAD).replace(re.escape('{day}'), '[A-Z][a-z]{2} [0-9-]{10}')})"
    rf"[ \t]*(?:\r?\n|\Z)?(?:[ \t]*(?:{_STANDING_LINE}|{_NO_LINE})[ \t]*(?:\r?\n|\Z)?)*"
    r"(?:[ \t]*</satchel-(?:profile|agenda)>[ \t]*(?:\r?\n|\Z)?)?"
)

TAGS = re.compile(r"^[ \t]*</?satchel-(?:memory|profile|agenda)>[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
"""The tags of a block, each on a line of its own."""

_GIST_CHARS = 20_000
"""Of either end of a text. Reading all of 15 MB would block the event loop for half a second."""


def said_texts(messages: Sequence[Said] | Said) -> list[tuple[str, str]]:
    """Role and words of each message that says something, in order; what Satchel added itself is left out.

    Raises:
        UsageError: It is of no known form.
    """
    if isinstance(messages, str | Message | Mapping):
        messages = [messages]
    if not isinstance(messages, Iterable):
        raise UsageError(f"The conversation is a {type(messages).__name__}; give its messages, oldest first.")
    found: list[tuple[str, str]] = []
    for message in messages:
        match message:
            case str():
                role, text = "user", message
            case Message():
                role, text = message.role, message.text
            case {"content": content}:
                role, text = str(message.get("role", "user")), _content_text(content)
            case _:
                raise UsageError(
                    "A message is a string, a satchel.messages.Message, or a mapping with role and content; "
                    f"this one is a {type(message).__name__}."
                )
        text = strip_injected(text).strip()
        if text and role in ("user", "assistant"):
            found.append((role, text))
    return found


def _content_text(content: object) -> str:
    """The words of a provider's message: a string, or a list of blocks of which those of type text count."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(
            str(block["text"])
            for block in content
            if isinstance(block, Mapping) and isinstance(block.get("text"), str)
        )
    return ""


def strip_injected(text: str) -> str:
    """Take out the blocks that Satchel itself put into a conversation, so that they are never captured as new.

    A block is recognised by its first sentence, also where it lost a tag or its end; the words around it stay. A line
    alone stays: see `echoes`.
    """
    if PREAMBLE in text:
        text = _BLOCK.sub("", text)
    if ABOUT_USER in text or AHEAD[:22] in text:
        text = _STANDING.sub("", text)
    return text


def gist(text: str) -> tuple[str, str]:
    """Identifies a text whatever its white space: its words; of a long text, those at its beginning and its end."""
    return (
        " ".join(text[:_GIST_CHARS].split())[: _GIST_CHARS // 2],
        " ".join(text[-_GIST_CHARS:].split())[-_GIST_CHARS // 2 :],
    )


def block_of(
    hits: Sequence[Hit],
    *,
    stems: Iterable[int],
    budget_tokens: int,
    limit: int,
    best: Mapping[str, int] = MappingProxyType({}),
) -> Context:
    """Put hits into one block, best first, restatements once, within a budget of tokens and `limit` lines; empty where
    nothing fits. Behind each hit stand the values of `Hit.before`. `best` says by id which passage of a long memory is
    shown; of others, it is the one with most of `stems`, those of the message.
    """
    stems = tuple(stems)
    left = budget_tokens - estimate_tokens(HEAD + CLOSE)
    lines: list[str] = []
    shown: list[Hit] = []
    for hit in hits:
        if len(shown) >= limit:
            break
        memory = hit.memory
        if any(restates(memory.content, other.memory.content) for other in shown):
            continue
        head = f"- {origin_of(memory)}{OVER if hit.is_over else ''}"
        most = min(left - estimate_tokens(f"{head}, part 99 of 99: \n"), LINE_TOKENS)
        words, place = fitting_words(memory.content, stems, most, best.get(memory.id, -1))
        if words is None:
            continue
        line = f"{head}{place}: {quoted(words)}{earlier(memory, hit.before)}\n"
        cost = estimate_tokens(line)
        if cost > left:
            continue
        left -= cost
        lines.append(line)
        shown.append(hit)
    text = HEAD + "".join(lines) + CLOSE if shown else ""
    return Context(text=text, memories=tuple(shown), tokens=estimate_tokens(text) if text else 0)
