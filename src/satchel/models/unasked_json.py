"""Recognises calls that a model writes as JSON although it has native tools.

Some models accept tool definitions and still answer in JSON that they learnt from other programs (see `json_answer` for
the forms). Such JSON is used only if the answer contains nothing else: at most a little prose, then JSON to the end,
with only tools that were offered. Any other text is the answer, including JSON, which the user may have asked for.
"""

from __future__ import annotations

from collections.abc import Collection

from satchel.messages import Block, TextBlock, ToolUseBlock, clean_text
from satchel.models.identifiers import CallIds
from satchel.models.json_answer import PREAMBLE_CHARS, begins_answer, next_candidate, whole_answer


class UnaskedJsonReader:
    """Takes the pieces of an answer and returns the text that can be shown. Possible JSON calls are held back.

    Prose is shown immediately. If no object in the first 120 characters begins with the key "action", "actions" or
    "final", the answer is passed on as it arrives.
    """

    def __init__(self) -> None:
        self._text = ""
        self._shown = 0  # the text up to here has been shown
        self._json: list[str] | None = None  # the text after that, once it is possible JSON to its end
        self._is_passing = False

    def feed(self, piece: str) -> str:
        """Add the next piece and return the text that can be shown now."""
        if self._is_passing:
            return piece
        if self._json is not None:
            self._json.append(piece)
            return ""
        self._text += piece
        before, self._shown = self._shown, self._read_on(self._shown)
        return self._text[before : self._shown]

    def _read_on(self, place: int) -> int:
        """Classify the text from a place on, and return where what has to be held begins."""
        text = self._text
        while (start := next_candidate(text, place)) < len(text) and start <= PREAMBLE_CHARS:
            match begins_answer(text, start):
                case "open":
                    return start
                case "calls" | "final":
                    self._json = [text[start:]]
                    return start
                case "object":
                    break
                case _:
                    place = start + (3 if text.startswith("```", start) else 1)
        self._is_passing = start < len(text) or start > PREAMBLE_CHARS
        return len(text)

    @property
    def held(self) -> str:
        """The text that has not been shown."""
        return self._text[self._shown :] if self._json is None else "".join(self._json)

    def finish(self, ids: CallIds, *, tools: Collection[str]) -> tuple[str, tuple[Block, ...] | None]:
        """End the text.

        Args:
            ids: Generates the ids of the calls.
            tools: The names of the tools that were offered.

        Returns:
            The rest of the text to show, and the answer as blocks; None if the answer stays as the model wrote it.
        """
        text = self.held
        if self._json is None:
            return text, None
        found = whole_answer(text)
        prose = clean_text(self._text[: self._shown]).strip()
        if isinstance(found, str) and found.strip():
            final = clean_text(found)
            return (f"\n\n{final}" if prose else final), (
                TextBlock(text=f"{prose}\n\n{final}" if prose else final),
            )
        if isinstance(found, str) or not found or not all(call.tool in tools for call in found):
            return text, None
        said: tuple[Block, ...] = (TextBlock(text=prose),) if prose else ()
        return "", (
            *said,
            *(ToolUseBlock(id=ids.claim(""), name=call.tool, input=call.input) for call in found),
        )
