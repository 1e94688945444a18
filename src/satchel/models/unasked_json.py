"""Calls that a model writes as JSON although it was given tools to call.

Some models take tool definitions and answer in the JSON that other programs taught them (see `json_answer` for its
forms). That counts only where the answer is nothing else: a little prose, then the JSON to the very end, and every tool
that it names was offered. Everything else is an answer, JSON in it included: the user may have asked for it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from satchel.messages import Block, TextBlock, ToolUseBlock, clean_text
from satchel.models.identifiers import CallIds
from satchel.models.json_answer import PREAMBLE_CHARS, begins_answer, whole_answer

__all__ = ["UnaskedJsonReader"]


class UnaskedJsonReader:
    """Takes the pieces of an answer's text and gives what can be shown; what may be such JSON is held back.

    Prose is shown at once. An answer in whose first 120 characters no object begins with the key "action", "actions" or
    "final" is passed on as it comes.
    """

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._state: Literal["prose", "held", "json", "passing"] = "prose"
        self._prose: list[str] = []
        self._prose_chars = 0
        self._line_is_blank = True
        self._held = ""
        self._pieces: list[str] = []

    def feed(self, piece: str) -> str:
        """Take the next piece; give what of the answer can be shown now."""
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
        """Judge the text that is held; False where more is needed, or nothing is judged any more."""
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
        """The text that was not shown."""
        return self._held or "".join(self._pieces)

    def finish(self, ids: CallIds, *, tools: Collection[str]) -> tuple[str, tuple[Block, ...] | None]:
        """End the text.

        Args:
            ids: Gives the calls their ids.
            tools: The names of the tools that were offered.

        Returns:
            What is still to be shown, and the answer as blocks; None where it stands as the model wrote it.
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
