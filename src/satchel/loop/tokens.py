"""How many tokens a request will have: estimated from its bytes, calibrated by what providers counted.

No tokenizer: vocabularies come from the network, belong to one model each, and the provider counts anyway.
"""

from __future__ import annotations

__all__ = ["TokenEstimator"]

_START = 3.6
"""Bytes per token before the first answer. English prose has 4 to 4.7 in the vocabularies of the large
providers, code and JSON 2.5 to 3.5; a little low errs on the side of making room too early."""
_LEAST, _MOST = 1.0, 8.0
"""No text is outside of it for long; a count outside is a provider's mistake and is not believed."""


class TokenEstimator:
    """Bytes to tokens and back for one conversation with one model.

    It keeps the ratio of the last request alone: a conversation grows at its end, so the next request is
    nearly all text that has just been counted.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._bytes_per_token = _START

    @property
    def bytes_per_token(self) -> float:
        """What was learned, in [1, 8]."""
        return self._bytes_per_token

    def tokens(self, size: int) -> int:
        """The tokens that so many bytes will have."""
        return round(size / self._bytes_per_token)

    def bytes(self, tokens: int) -> int:
        """The bytes that so many tokens have."""
        return round(tokens * self._bytes_per_token)

    def learn(self, size: int, tokens: int) -> None:
        """A provider counted `tokens` in a request of `size` bytes."""
        if size > 0 and tokens > 0 and _LEAST <= size / tokens <= _MOST:
            self._bytes_per_token = size / tokens
