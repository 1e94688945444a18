"""The input field: several lines, earlier messages, completion, and pasted text that doesn't fill the screen."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

from rich.text import Text
from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from satchel.runtime.attaching import mentions_of
from satchel.runtime.lines import counted
from satchel.tui.plain_text import plain

_LONG_PASTE: Final = 2_000
"""A longer pasted text is shown as one word until the message is sent."""


class _MoreKeys(StrEnum):
    ALT_ENTER = "alt+enter"


# Most terminals send Escape and Enter for Alt-Enter, which Textual takes for Enter alone.
cast(dict[str, Any], ANSI_SEQUENCES_KEYS)["\x1b\r"] = (_MoreKeys.ALT_ENTER,)
_NEW_LINE: Final = ("shift+enter", "alt+enter", "ctrl+enter", "ctrl+j")


class Menu(OptionList, can_focus=False):
    """The completions of the last word. The composer keeps the focus."""

    def __init__(self) -> None:
        super().__init__(id="menu", markup=False, compact=True)
        self.words: list[str] = []
        self.offered_for = ""

    def offer(self, found: Sequence[tuple[str, str]], before: str = "") -> None:
        """Show words, each with its help, that may end the text before the cursor; none hides the menu."""
        self.offered_for = before
        self.words = [word for word, _ in found]
        width = max((len(word) for word in self.words), default=0)
        self.clear_options()
        self.add_options(
            Option(Text.assemble(f"{plain(word):{width}}  ", (plain(about), "dim"))) for word, about in found
        )
        self.display = bool(found)
        self.highlighted = 0 if found else None


class Composer(TextArea):
    """The field below the conversation."""

    class Sent(Message):
        """The user sends the text of the field."""

        def __init__(self, text: str) -> None:
            """`text` has what was pasted in its place."""
            super().__init__()
            self.text = text

    class Leave(Message):
        """The user pressed Ctrl-D in the empty field."""

    class Pasting(Message):
        """The user pressed Ctrl-V, which terminals leave to programs."""

    def __init__(self, menu: Menu, dropped_in: Callable[[str, str], Sequence[Path]]) -> None:
        """An empty field.

        Args:
            menu: Shows its completions.
            dropped_in: Returns the files that a pasted text attaches to a draft.
        """
        super().__init__(
            id="composer",
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            compact=True,
            placeholder="Say something, or / for commands",
        )
        self.cursor_blink = False  # each blink would be sent to the terminal
        self._menu = menu
        self._said: list[str] = []
        self._at = 0
        self._draft = ""
        self._pasted: list[tuple[str, str]] = []
        self._dropped_in = dropped_in
        self.pictures: set[Path] = set()
        self._dragged: set[Path] = set()
        """Those of the clipboard."""

    def remember(self, said: Sequence[str]) -> None:
        """Earlier messages, the newest first."""
        self._said = [*said]

    @property
    def said(self) -> Sequence[str]:
        """Earlier messages, the newest first."""
        return self._said

    @property
    def last_word(self) -> str:
        """The text before the cursor, back to the last blank."""
        return re.split(r"[ \n]", self.before)[-1]

    @property
    def before(self) -> str:
        """The text before the cursor."""
        return self.get_text_range((0, 0), self.cursor_location)

    @property
    def _is_offered(self) -> bool:
        """Whether the menu is about what stands before the cursor, and not about an earlier text."""
        return self._menu.display and self._menu.offered_for == self.before

    def put(self, text: str) -> None:
        """Replace the text of the field."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def complete(self) -> None:
        """Accept the highlighted word of the menu."""
        if self._menu.highlighted is None or not self._is_offered:
            return
        word = self._menu.words[self._menu.highlighted]
        row, column = self.cursor_location
        space = "" if word.endswith("/") else " "  # a folder's name goes on
        self.replace(word + space, (row, column - len(self.last_word)), (row, column))
        self._menu.offer(())

    def send(self) -> None:
        """Send the text of the field, and clear it."""
        text = self.text
        for shown, whole in self._pasted:
            text = text.replace(shown, whole)
        if not text.strip():
            return
        if not self._said or self._said[0] != text:
            self._said.insert(0, text)
        self._at, self._draft, self._pasted = 0, "", []
        self._menu.offer(())
        self.clear()
        self.post_message(self.Sent(text))

    async def _on_key(self, event: events.Key) -> None:
        if event.key in _NEW_LINE or (event.key == "enter" and self.before.endswith("\\")):
            event.stop()
            event.prevent_default()
            if event.key == "enter":
                self.action_delete_left()
            self.insert("\n")
        elif event.key == "enter":
            event.stop()
            event.prevent_default()
            if self._is_offered and self.last_word not in self._menu.words:
                self.complete()
            else:
                self.send()
        elif event.key == "tab":
            event.stop()
            event.prevent_default()
            self.complete()
        elif event.key == "escape" and self._menu.display:
            event.stop()
            self._menu.offer(())
        # Otherwise Textual asks the base class, too.

    @property
    def given(self) -> frozenset[Path]:
        """Files that the user gave: pictures of the clipboard, and what was dragged here."""
        return frozenset(self.pictures | self._dragged)

    def mention(self, paths: Sequence[Path]) -> None:
        """Name files to be attached to the message."""
        self.insert(f"{' ' if self.before and self.last_word else ''}{mentions_of(paths)} ")

    def action_paste(self) -> None:
        """Ask for what is in the clipboard: the screen looks for a picture first."""
        self.post_message(self.Pasting())

    def paste_words(self) -> None:
        """Paste the words that were copied here."""
        super().action_paste()

    async def _on_paste(self, event: events.Paste) -> None:
        if paths := self._dropped_in(event.text, self.text):
            event.prevent_default()
            self._dragged.update(paths)
            self.mention(paths)
        elif len(event.text) > _LONG_PASTE:
            event.stop()
            event.prevent_default()
            # Terminals send the end of a pasted line as Enter would: as a carriage return.
            text = event.text.replace("\r\n", "\n").replace("\r", "\n")
            number = len(self._pasted) + 1
            lines = counted(text.rstrip("\n").count("\n") + 1, "line")
            shown = f"[pasted text {number}: {lines}, {counted(len(text), 'character')}]"
            self._pasted.append((shown, text))
            self.insert(shown)

    def action_cursor_up(self, select: bool = False) -> None:
        """Go up in the menu or the text, or to the message before."""
        if self._menu.display:
            self._menu.action_cursor_up()
        elif self.cursor_location[0] == 0 and not select:
            self._show_said(self._at + 1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Go down in the menu or the text, or to the message after."""
        if self._menu.display:
            self._menu.action_cursor_down()
        elif self.cursor_location[0] == self.document.line_count - 1 and not select and self._at:
            self._show_said(self._at - 1)
        else:
            super().action_cursor_down(select)

    def action_delete_right(self) -> None:
        """Delete a character; in the empty field, leave."""
        if self.text:
            super().action_delete_right()
        else:
            self.post_message(self.Leave())

    def _show_said(self, at: int) -> None:
        if not 0 <= at <= len(self._said):
            return
        if self._at == 0:
            self._draft = self.text
        self._at = at
        self.put(self._said[at - 1] if at else self._draft)
