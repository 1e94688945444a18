"""Lists over the conversation: earlier messages, and earlier conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from satchel.tui.terminal_text import one_line

_MOST_LISTED: Final = 100


class Choose(ModalScreen[int | None]):
    """Lets the user choose a line by typing a part of it. Returns its number, or None."""

    BINDINGS = [
        Binding("escape", "leave", show=False),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("ctrl+r", "move(1)", show=False, priority=True),
    ]

    def __init__(self, title: str, lines: Sequence[str], *, empty: str) -> None:
        """`empty` is shown if there are no lines."""
        super().__init__()
        self._title = title
        self._lines = lines
        self._empty = empty
        self._found: list[int] = []

    def compose(self) -> ComposeResult:
        """See `Widget.compose`."""
        with Vertical(id="dialog"):
            yield Static(Text(f"{self._title}  ", style="bold"), markup=False)
            yield Input(placeholder="type to search; Enter selects, Esc closes", compact=True)
            yield OptionList(id="choices", markup=False, compact=True)

    def on_mount(self) -> None:
        """See `Widget.on_mount`."""
        self.query_one("#choices").can_focus = False
        self.query_one(Input).focus()
        self._search("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search as the user types."""
        self._search(event.value)

    def on_input_submitted(self) -> None:
        """Choose the highlighted line."""
        choices = self.query_one(OptionList)
        self.dismiss(self._found[choices.highlighted] if choices.highlighted is not None else None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Choose the clicked line."""
        self.dismiss(self._found[event.option_index])

    def action_move(self, step: int) -> None:
        """Highlight another line."""
        choices = self.query_one(OptionList)
        (choices.action_cursor_down if step > 0 else choices.action_cursor_up)()

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)

    def _search(self, text: str) -> None:
        words = text.lower().split()
        self._found = [
            number for number, line in enumerate(self._lines) if all(word in line.lower() for word in words)
        ][:_MOST_LISTED]
        choices = self.query_one(OptionList)
        choices.clear_options()
        if not self._lines:
            choices.add_option(Option(Text(self._empty, style="dim"), disabled=True))
            return
        choices.add_options(
            Option(Text(one_line(self._lines[number], 200), no_wrap=True)) for number in self._found
        )
        choices.highlighted = 0 if self._found else None


class TextScreen(ModalScreen[None]):
    """Shows words beside what they do, and nothing of it stays in the conversation."""

    BINDINGS = [Binding("escape,f1,enter,q,ctrl+c", "dismiss", show=False, priority=True)]

    def __init__(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._rows = rows

    def compose(self) -> ComposeResult:
        """See `Widget.compose`."""
        with VerticalScroll(id="dialog"):
            yield Static(Text.assemble((self._title, "bold"), ("  Esc closes", "dim")), markup=False)
            table = Table.grid(padding=(0, 2, 0, 0))
            for words, what in self._rows:
                table.add_row(Text(words), Text(what))
            yield Static()
            yield Static(table)
