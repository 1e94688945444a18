"""Recognises requests that chat programs send on their own: for a title, tags, queries or follow-up questions."""

from __future__ import annotations

import re
from typing import Final

_ORDER: Final = re.compile(
    r"""
    (?:\W*task\W+)?                                             # The heading of Open WebUI.
    (?:please\W+|(?:based\ on|given)\b[^,.?!\n]{0,200},\s*)*
    (?:analy[sz]e|create|generate|give|provide|reply|respond|suggest|summari[sz]e|write)\b
    (?=[^.?!\n]*(?::(?:\s*\n\s*\d+\.[^\n]*?)+)?                 # What it lists, as LibreChat does.
       \b(?:title|name|tags|search\ queries|follow-?ups?\ (?:questions|prompts))\b)
    (?=[^.?!\n]*\b(?:the|this|our)\s(?:\w+\s)?(?:conversation|chat|thread|session)\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_errand(words: str, *, has_tools: bool) -> bool:
    """Whether a program asks about a conversation, instead of the user in one.

    The rule: the message begins with an order, and its first sentence, with a numbered list that follows, names both
    what is to be written (a title, tags, search queries, follow-up questions) and the conversation that it is written
    about. Only requests without tools count: programs with tools send them with every message of their user.

    A user who types such an order gets an answer, too. It is not kept, and nothing is lost that is worth remembering.

    Args:
        words: What is new in the user's role. A system text decides nothing: it holds for the user's own messages, too.
        has_tools: Whether the request brings tools of the client.
    """
    return not has_tools and _ORDER.match(words.lstrip()) is not None
