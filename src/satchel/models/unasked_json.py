"""Recognises calls that a model writes as JSON although it has native tools.

Some models accept tool definitions and still answer in JSON that they learnt from other programs (see `json_answer` for
the forms). Such JSON is used only if the answer contains nothing else: at most a little prose, then JSON to the end,
with only tools that were offered. Any other text is the answer, including JSON, which the user may have asked for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from satchel.messages import Block, TextBlock, ToolUseBlock, clean_text
from satchel.models.identifiers import CallIds
from satchel.models.json_answer import PREAMBLE_CHARS, begins_answer, whole_answer

__all__ = ["UnaskedJsonReader"]


class UnaskedJsonReader:
    """Takes the pieces of an answer and returns the text that can be shown. Possible JSON calls are held back.

    Prose is shown immediately. If no object in the first 120 characters begins with the key "action", "actions" or
    "final", the answer is passed on as it arrives.
    """

    def __init__(self) -> None:
        """Nothing has been read yet."""
        self._state: Literal["prose", "held", "json", "passing"] = "prose"
        self._prose: list[str] = []
        self._prose_chars = 0
        self._line_is_blank = True
        self._held = ""
        self._pieces: list[str] = []

    def feed(self, piece: str) -> str:
        """Add the next piece and return the text that can be shown now."""
        match self._state:
            case "passing":
                return piece
            case "json":
                self._pieces.append(piece)
                return ""
            case _:
                return self._judge(piece)

    def _judge(self, piece: str) -> str:
        before = len(self._prose)
        self._held += piece
        while self._held and self._read_on():
            pass
        shown = "".join(self._prose[before:])
        if self._state == "passing":
            shown, self._held = shown + self._held, ""
        return shown

    def _read_on(self) -> bool:
        """Classify the held text. False if more text is needed or no more text is classified."""
        if self._state == "prose":
            starts = [place for mark in "{`" if (place := self._held.find(mark)) >= 0]
            start = min(starts, default=len(self._held))
            self._show(start)
            if self._prose_chars > PREAMBLE_CHARS:
                self._state = "passing"
                return False
            self._state = "held" if self._held else "prose"
            return bool(self._held)
        verdict = begins_answer(self._held) if self._line_is_blank else "no"
        match verdict:
            case "open":
                return False
            case "calls" | "final":
                self._state, self._pieces, self._held = "json", [self._held], ""
                return False
            case "object":
                self._state = "passing"
                return False
            case _:
                self._state = "prose"
                self._show(3 if self._held.startswith("```") else 1)
                return True

    def _show(self, end: int) -> None:
        words, self._held = self._held[:end], self._held[end:]
        if words:
            self._prose.append(words)
            self._prose_chars += len(words)
            line = words.rpartition("\n")
            self._line_is_blank = not line[2].strip() and (bool(line[1]) or self._line_is_blank)

    @property
    def held(self) -> str:
        """The text that has not been shown."""
        return self._held or "".join(self._pieces)

    def finish(self, ids: CallIds, *, tools: Collection[str]) -> tuple[str, tuple[Block, ...] | None]:
        """End the text.

        Args:
            ids: Generates the ids of the calls.
            tools: The names of the tools that were offered.

        Returns:
            The rest of the text to show, and the answer as blocks; None if the answer stays as the model wrote it.
        """
        if self._state != "json":
            return self._held, None
        text = "".join(self._pieces)
        found = whole_answer(text)
        prose = clean_text("".join(self._prose)).strip()
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
