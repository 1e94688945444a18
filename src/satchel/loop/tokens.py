"""How many tokens a request will have: estimated from its bytes, calibrated by what providers counted.

Satchel ships no tokenizer: vocabularies come from the network, belong to one model each, and the provider counts
anyway. A program that embeds the loop may bring a counter of its own, which serves where a provider gives no counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from satchel.events import Failure
from satchel.loop.calls import failure_event
from satchel.messages import size_of_text

TokenCounter: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text. Called on the event loop, with texts of up to 20,000 characters."""

START = 3.6
"""Bytes per token before the first count. English prose has 4 to 4.7 in the vocabularies of the large providers, code
and JSON 2.5 to 3.5; a little low errs on the side of making room too early."""
_LEAST, _MOST = 1.0, 8.0
"""No text stays outside of this range for long; a provider's count outside is a mistake and is not believed."""
_PRIOR_TOKENS = 100
"""What the ratio at the beginning weighs against the first texts that a caller's counter counts: a "Yes." alone says
nothing of the ratio of a long conversation."""
_SAMPLE_CHARS = 20_000
"""Of one text that is counted: enough for its ratio, and a bound for slow counters."""
_SURE_CHARS = 64
"""A text that is longer can't have 0 tokens. Shorter ones may be all white space."""
_MOST_PER_BYTE, _SLACK = 4, 16
"""A count of more tokens than this per byte, and these more for marks around a text, is a lie: byte-level vocabularies
have at most one token a byte."""


class TokenEstimator:
    """Bytes to tokens and back, for one conversation with one model.

    It keeps the ratio of the last request alone: a conversation grows at its end, so the next request is nearly all
    text that has just been counted.
    """

    def __init__(self, counter: TokenCounter | None = None, *, name: str = "") -> None:
        """Begin without a count.

        Args:
            counter: Counts where no provider does. One that raises, or gives what can't be a count, is reported once
                and used no more.
            name: Of the counter, for the log.
        """
        self._counter = counter
        self._name = name if counter is not None else ""
        self.bytes_per_token = START
        self._counted_bytes, self._counted_tokens = round(START * _PRIOR_TOKENS), _PRIOR_TOKENS
        self._provider_counts = False

    @property
    def name(self) -> str:
        """What counts where a provider does not: "estimate", or the name of the caller's counter."""
        return self._name or "estimate"

    @property
    def has_counter(self) -> bool:
        """Whether the caller's counter is in use."""
        return self._counter is not None

    def tokens(self, size: int) -> int:
        """The tokens that so many bytes will have."""
        return round(size / self.bytes_per_token)

    def bytes(self, tokens: int) -> int:
        """The bytes that so many tokens have."""
        return round(tokens * self.bytes_per_token)

    def learn(self, size: int, tokens: int) -> None:
        """A provider counted `tokens` in a request of `size` bytes."""
        if size > 0 and tokens > 0 and _LEAST <= size / tokens <= _MOST:
            self.bytes_per_token = size / tokens
            self._provider_counts = True

    def sample(self, texts: Iterable[str]) -> Failure | None:
        """Let the caller's counter, if there is one, count new texts of the conversation.

        A provider's own count is better: once there is one, this does nothing.

        Returns:
            What is wrong with the counter, the first time that something is.
        """
        if self._counter is None or self._provider_counts:
            return None
        for text in texts:
            piece = text[:_SAMPLE_CHARS]
            size = size_of_text(piece)
            # A boundary: the counter is somebody else's code.
            try:
                tokens = _checked(self._counter(piece), piece, size)
            except Exception as error:  # noqa: BLE001
                self._counter = None
                self.bytes_per_token = START
                return failure_event("token counter", error)
            self._counted_bytes += size
            self._counted_tokens += tokens
        self.bytes_per_token = min(_MOST, max(_LEAST, self._counted_bytes / self._counted_tokens))
        return None


def _checked(count: object, text: str, size: int) -> int:
    """The count, if it can be one.

    Raises:
        ValueError: It can't.
    """
    if not isinstance(count, int) or isinstance(count, bool):
        raise ValueError(
            f"The counter gave {repr(count)[:200]}, not a number of tokens. It is not used any more."
        )
    if not (len(text) <= _SURE_CHARS or count) or not 0 <= count <= _MOST_PER_BYTE * size + _SLACK:
        raise ValueError(f"The counter gave {count} tokens for {size} bytes. It is not used any more.")
    return count
