"""What the parts of a request may take of the model's window, so that a small one has room for a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from satchel.loop.tokens import START

_TOOLS_PART: Final = 0.3
"""As much as the results of a round. Satchel's own tools fit a window of 8,192 tokens."""
_ADDED_PART: Final = 0.15
"""What the system text holds beside its fixed parts: a project's instructions, capabilities, skills, servers. The fixed
parts have 550 tokens, 0.14 of a window of 4,096."""
_WHOLE_MEMORY: Final = 16_384
"""Tokens of the window from which memory may show as much as the settings say; below, it is in proportion. A standing
page of 1,200 tokens is 0.07 of it."""
_AMPLE: Final = 200_000
"""Tokens; assumed where the window is unknown. Of no larger one is any part more, and in none is a usual one less than
without these shares."""


@dataclass(frozen=True, slots=True)
class Room:
    """The shares of a window of so many tokens."""

    window: int = _AMPLE

    @classmethod
    def of(cls, window: int | None) -> Room:
        """The shares of a model's window; None is unknown."""
        return cls(_AMPLE if window is None else min(window, _AMPLE))

    @property
    def tools_bytes(self) -> int:
        """Of the definitions of all tools together."""
        return int(self.window * _TOOLS_PART * START)

    @property
    def added_bytes(self) -> int:
        """Of what is added to the system text together."""
        return int(self.window * _ADDED_PART * START)

    def memory_tokens(self, tokens: int) -> int:
        """Of a part of memory that the settings give so many `tokens`."""
        return min(tokens, tokens * self.window // _WHOLE_MEMORY)
