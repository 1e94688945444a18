"""The parts of the conversation on the screen: messages, tool calls, and what waits for the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from satchel.events import AskedCall, Consent, QuestionAsked, SurfacedMemory
from satchel.runtime.lines import counted
from satchel.runtime.options import chosen_option
from satchel.runtime.tool_display import describe_call, describe_progress, show_observation
from satchel.sessions.view import ToolCall
from satchel.tools.builtin.jobs import is_users
from satchel.tools.visible import visible
from satchel.tui.consenting import numbers_in, read_answer
from satchel.tui.markdown import first_settled, laid_out
from satchel.tui.plain_text import plain
from satchel.tui.terminal_text import call_lines, input_lines, one_line

_MOST_WORDS, _MOST_ROWS = 2_000, 12
"""The most characters and lines of the user's own message that are shown."""
_MOST_DETAIL: Final = 20_000
_MOST_DETAIL_LINES: Final = 200
_TYPED_AHEAD_S: Final = 0.5
"""What is sent sooner after a question appeared was written before it was seen."""


def line_of(text: str, kind: str = "") -> Static:
    """A line from the program, without markup. `kind` is a class of the style sheet."""
    return Static(Text(plain(text)), classes=f"line {kind}".rstrip(), markup=False)


class TurnWidget(Vertical):
    """A turn: the user's message, then everything that followed."""

    def __init__(self, words: str, *, time: str, is_dark: Callable[[], bool]) -> None:
        """`time` is shown above the message; `is_dark` chooses the colours of code."""
        super().__init__(classes="turn")
        self._words = words
        self._time = time
        self._is_dark = is_dark
        self.said: StreamedAnswer | None = None
        self.steps: dict[str, CallLine] = {}
        self.is_open = True

    def compose(self) -> ComposeResult:
        """See `Widget.compose`."""
        yield Static(Rule(Text(self._time), align="right", characters="─", style="dim"), classes="rule")
        if self._words:
            rows = plain(self._words).split("\n")
            head = "\n".join(rows[:_MOST_ROWS])
            text = Text(head[:_MOST_WORDS], style="bold")
            if len(head) > _MOST_WORDS:
                text.append(f"\n… {counted(len(self._words) - _MOST_WORDS, 'more character')}", style="dim")
            elif len(rows) > _MOST_ROWS:
                text.append(f"\n… {counted(len(rows) - _MOST_ROWS, 'more line')}", style="dim")
            yield Static(text, classes="you", markup=False)

    def say(self) -> StreamedAnswer:
        """The answer that is being written."""
        if self.said is None:
            self.said = StreamedAnswer(is_dark=self._is_dark)
            self.mount(self.said)
        return self.said

    def close(self) -> None:
        """The turn is over: calls that were still running are shown as interrupted."""
        self.is_open = False
        if self.said is not None:
            self.said.finish()
            self.said = None
        for step in self.steps.values():
            step.interrupt()


class StreamedAnswer(Widget):
    """An answer while it is written, in one widget: what is finished is laid out once, only the last block again.

    With a widget for each block, Textual would measure all of them again for every piece.
    """

    def __init__(self, *, is_dark: Callable[[], bool]) -> None:
        super().__init__(classes="said")
        self._is_dark = is_dark
        self._tail = ""
        self._fed: list[str] = []
        self._pending: list[str] = []
        self._blocks: list[str] = []
        self._settled: list[Strip] = []
        self._last: list[Strip] = []
        self._laid_width = 0
        self._laid_height = -1

    def feed(self, text: str) -> None:
        """Take the next piece; `paint` shows it."""
        self._pending.append(text)

    def paint(self) -> None:
        """Show the pieces that have come."""
        if self._take():
            self._settle(is_complete=False)
            self._draw()

    def finish(self, whole: str | None = None) -> None:
        """Show the rest. `whole` is the answer from the log, which replaces the pieces."""
        self._take()
        if whole is not None and whole != "".join(self._fed):
            self._tail, self._fed, self._blocks, self._settled = plain(whole), [whole], [], []
        self._settle(is_complete=True)
        if self._tail.strip():
            self._add(self._tail)
        self._tail = ""
        self._draw()

    def _take(self) -> bool:
        if not self._pending:
            return False
        text = "".join(self._pending)
        self._pending.clear()
        self._fed.append(text)
        self._tail += plain(text)
        return True

    def _settle(self, *, is_complete: bool) -> None:
        while cut := first_settled(self._tail, is_complete=is_complete):
            head, self._tail = self._tail[:cut], self._tail[cut:]
            self._add(head)

    def _add(self, text: str) -> None:
        """Keep a block that is final."""
        self._blocks.append(text)
        if self._laid_width:
            self._settled += self._strips(text, self._laid_width, is_first=not self._settled)

    def _draw(self) -> None:
        self._last = self._strips(self._tail, self._laid_width, is_first=not self._settled)
        # Until it is measured, and when its height has changed since, everything below moves.
        self.refresh(layout=self._laid_height != len(self._settled) + len(self._last))

    def _strips(self, text: str, width: int, *, is_first: bool) -> list[Strip]:
        if not text.strip() or not width:
            return []
        console = self.app.console
        lines = console.render_lines(
            laid_out(text, is_dark=self._is_dark()),
            console.options.update(width=width, height=None),
            pad=False,
        )
        strips = [Strip(line) for line in lines]
        while strips and not strips[0].text.strip():
            del strips[0]
        while strips and not strips[-1].text.strip():
            del strips[-1]
        return strips if is_first or not strips else [Strip.blank(0), *strips]

    # What Textual asks

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """See `Widget.get_content_height`."""
        if width != self._laid_width:
            self._laid_width = width
            self._settled = []
            for block in self._blocks:
                self._settled += self._strips(block, width, is_first=not self._settled)
            self._last = self._strips(self._tail, width, is_first=not self._settled)
        self._laid_height = len(self._settled) + len(self._last)
        return self._laid_height

    def render_line(self, y: int) -> Strip:
        """See `Widget.render_line`."""
        width = self.size.width
        rows = len(self._settled)
        if y < rows:
            strip = self._settled[y]
        elif y - rows < len(self._last):
            strip = self._last[y - rows]
        else:
            strip = Strip.blank(0)
        style = self.rich_style
        strip = Strip(Segment.apply_style(strip, style)).adjust_cell_length(width, style)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            start, end = span
            end = width if end == -1 else end
            marked = self.screen.get_component_rich_style("screen--selection")
            parts = strip.crop(0, start), strip.crop(start, end).apply_style(marked), strip.crop(end)
            strip = Strip.join(parts)
        return strip.apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """See `Widget.get_selection`."""
        text = "\n".join(strip.text.rstrip() for strip in (*self._settled, *self._last))
        return selection.extract(text), "\n"


class MemoryNote(Static):
    """A memory that the model was shown, and where it comes from."""

    def __init__(self, memory: SurfacedMemory) -> None:
        place = (
            f"session {one_line(memory.session, 20)}, turn {memory.source_turn}"
            if memory.session
            else "stored"
        )
        text = Text(one_line(memory.content, 400))
        text.append(f"  {place} · {memory.score:.2f}", style="dim")
        super().__init__(text, classes="note", markup=False)


class CallLine(Static):
    """One call as a line: the tool, its input, and the outcome. A click opens it."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__(classes="step", markup=False)
        self._call = call
        self._is_interrupted = False
        self.is_expanded = False

    def on_mount(self) -> None:
        """See `Widget.on_mount`."""
        self._draw()

    def on_click(self, event: events.Click) -> None:
        """Show more or less of the result. Selecting text is not a click."""
        if self.screen.get_selected_text() is None:
            event.stop()
            self.open_up(not self.is_expanded)

    def open_up(self, is_expanded: bool) -> None:
        """Show all of the result that can be shown, or a few lines."""
        self.is_expanded = is_expanded
        self._draw()

    def show_call(self, call: ToolCall) -> None:
        """The call stands otherwise now."""
        self._call = call
        self._draw()

    @property
    def runs(self) -> str:
        """The tool's name while the call runs, otherwise ""."""
        return one_line(self._call.tool, 40) if self._call.state == "running" else ""

    def interrupt(self) -> None:
        """The turn has ended without the call's end."""
        self._is_interrupted = True
        self._draw()

    def _outcome(self) -> tuple[str, str, str, str]:
        """A mark, how the call ended, their style, and why or with what."""
        call, result = self._call, self._call.result
        if call.refusal is not None:
            return "⊘", "refused", "yellow", one_line(call.refusal.reason, 300)
        if result is None:
            return ("✕", "interrupted", "yellow", "") if self._is_interrupted else ("▸", "runs", "bold", "")
        summary = one_line(show_observation(result, call.input).summary, 300)
        time = f"{result.duration_ms / 1000:.1f} s"
        if result.is_error:
            return "✕", f"failed · {time}", "red", summary
        return "✓", f"{time}{' · from outside' if result.untrusted else ''}", "", summary

    def _draw(self) -> None:
        call = self._call
        mark, end, style, summary = self._outcome()
        head = Table.grid(expand=True, padding=(0, 1))
        head.add_column(width=1, no_wrap=True)
        head.add_column(no_wrap=True, max_width=24, overflow="ellipsis")
        head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        head.add_column(no_wrap=True, justify="right", style="dim")
        head.add_row(
            Text(mark, style=style),
            Text(one_line(call.tool, 60), style="bold"),
            Text(plain(describe_call(call.tool, call.input))),
            Text(end),
        )
        below: list[RenderableType] = []
        if call.progress and end == "runs":
            below.append(Text(f"… {one_line(describe_progress(call.progress), 80)}", style="dim"))
        if summary:
            below.append(Text(summary, style=style or "dim"))
        below += self._details() if self.is_expanded else self._lines()
        self.update(Group(head, *(Padding(line, (0, 0, 0, 2)) for line in below)))

    def _lines(self) -> list[RenderableType]:
        call = self._call
        if call.result is None or call.refusal is not None or is_users(call.result.call_id):
            return []  # what the user runs by its name, the command prints itself
        return [
            Text(plain(line.text[:400]), style=_LINE_STYLES[line.style], no_wrap=True, overflow="ellipsis")
            for line in show_observation(call.result, call.input).lines
        ]

    def _details(self) -> list[RenderableType]:
        asked = [Text(plain(line), style="dim") for line in input_lines(self._call.input)]
        whole = self._call.result.text if self._call.result is not None else ""
        rows = plain(whole[:_MOST_DETAIL]).split("\n")
        shown = [Text(row) for row in rows[:_MOST_DETAIL_LINES]]
        if len(rows) > _MOST_DETAIL_LINES or len(whole) > _MOST_DETAIL:
            shown.append(Text(f"… of {counted(len(whole), 'character')}", style="dim"))
        beneath = [
            Text(
                one_line(f"{each.tool} {describe_call(each.tool, each.input)} · {each.state}", 300),
                style="dim",
            )
            for each in self._call.beneath
        ]
        return [*asked, *beneath, *shown]


_CHANGES: Final = {"added": "green", "removed": "red"}
_LINE_STYLES: Final = {"plain": "dim", "added": "green", "removed": "red", "active": "bold"}


class Waiting(Vertical):
    """Something that waits for the user, shown tinted."""

    def __init__(self, *lines: Text) -> None:
        """`lines` say what it is."""
        super().__init__(classes="waits")
        self._lines = lines

    def compose(self) -> ComposeResult:
        """See `Widget.compose`."""
        for line in self._lines:
            yield Static(line, markup=False)

    def settle(self, outcome: str) -> None:
        """Mark it as settled."""
        self.remove_class("waits")
        self.add_class("settled")
        self.remove_children()
        self.mount(line_of(outcome, "dim"))


class AnswerGiven(Message):
    """The user has answered a question.

    Attributes:
        consents: To a permission question, by call id; None for words.
        text: The answer to a tool's question; None declines.
    """

    def __init__(
        self,
        ask: QuestionPrompt,
        *,
        consents: Mapping[str, Consent] | None = None,
        text: str | None = None,
        words: str = "",
    ) -> None:
        """See the attributes; `words` are why not, for the model."""
        super().__init__()
        self.ask = ask
        self.consents = consents
        self.text = text
        self.words = words


class QuestionPrompt(Waiting):
    """A question of a running turn. It is answered once the user can have seen it."""

    def __init__(self, question: QuestionAsked, *, monotonic_s: Callable[[], float]) -> None:
        """`monotonic_s` tells how long it has been on the screen."""
        super().__init__()
        self.question = question
        self.is_answered = False
        self._monotonic_s = monotonic_s
        self._shown_s = monotonic_s()
        self._left_out: set[int] = set()
        self._hint = ""

    def compose(self) -> ComposeResult:
        """See `Widget.compose`."""
        yield Static(self._text(), id="question", markup=False)
        if self.question.kind == "tool":
            yield Input(
                password=self.question.is_secret, placeholder="your answer; Ctrl-D declines", compact=True
            )

    def on_mount(self) -> None:
        """See `Widget.on_mount`."""
        self._shown_s = self._monotonic_s()

    def hear(self, words: str) -> bool:
        """Take words from the field: numbers leave calls out or take them in again, anything else is an answer.

        False if they were sent before anybody can have seen the question, or name a call that isn't there.
        """
        if self._monotonic_s() - self._shown_s < _TYPED_AHEAD_S:
            return False
        count = len(self.question.calls)
        numbers = numbers_in(words) or ()
        approvals = None if numbers else read_answer(words, count, self._left_out)
        if approvals is not None:
            asked = zip(self.question.calls, approvals, strict=True)
            consents = {call.call_id: approval.answer for call, approval in asked}
            self.post_message(AnswerGiven(self, consents=consents, words=approvals[0].words))
            return True
        is_known = count > 1 and bool(numbers) and all(1 <= number <= count for number in numbers)
        if is_known:
            self._left_out ^= {*numbers}
        self._hint = "" if is_known else _no_such_call(count)
        self.query_one("#question", Static).update(self._text())
        return is_known

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """A tool's question is answered."""
        event.stop()
        self.post_message(AnswerGiven(self, text=chosen_option(event.value, self.question.options)))

    def on_key(self, event: events.Key) -> None:
        """Ctrl-D declines a tool's question."""
        if self.question.kind == "tool" and event.key == "ctrl+d":
            event.stop()
            self.post_message(AnswerGiven(self, text=None))

    def _text(self) -> Text:
        if self.question.kind == "tool":
            return self._tool_question()
        calls = self.question.calls
        these = "this call" if len(calls) == 1 else f"these {len(calls)} calls"
        text = Text(f"Satchel wants to run {these}:", style="bold")
        for number, call in enumerate(calls, 1):
            self._append_call(text, number, call)
        rules = ", ".join(dict.fromkeys(visible(rule) for call in self._chosen for rule in call.rules))
        text.append("\n")
        for key, label in (
            ("y", "yes"),
            ("s", "for this conversation"),
            ("a", f"always: {rules}"),
            ("n", "no"),
        ):
            text.append(f"\n {key} ", style="reverse bold")
            text.append(f" {label}")
        if len(calls) > 1:
            text.append("\n 1… ", style="reverse bold")
            text.append(" leave a call out, or take it in again")
        text.append("\nType one and press Enter, or write what to do instead.", style="dim")
        text.append(self._hint, style="yellow")
        return text

    @property
    def _chosen(self) -> Sequence[AskedCall]:
        return [call for number, call in enumerate(self.question.calls, 1) if number not in self._left_out]

    def _append_call(self, text: Text, number: int, call: AskedCall) -> None:
        mark = (
            "" if len(self.question.calls) == 1 else f"{'○' if number in self._left_out else '●'} {number}. "
        )
        asked, change = call_lines(call)
        text.append(f"\n  {mark}")
        text.append(one_line(call.tool), style="bold")
        text.append(f"  {plain(asked[0])}" if len(asked) == 1 else "")
        for each in asked if len(asked) > 1 else []:
            text.append(f"\n     {plain(each)}")
        for line in change:
            text.append(f"\n     {plain(line.text)}", style=_CHANGES.get(line.style, ""))
        if call.told_reason:
            text.append(f"\n     {visible(call.told_reason)}", style="yellow")

    def _tool_question(self) -> Text:
        text = Text("A tool asks:", style="bold")
        for line in visible(self.question.text).splitlines():
            text.append(f"\n  {line}")
        for number, option in enumerate(self.question.options, 1):
            text.append(f"\n  {number}. {one_line(visible(option))}")
        return text


def _no_such_call(count: int) -> str:
    return (
        f"\nThe calls are numbered from 1 to {count}."
        if count > 1
        else "\nThere is one call, without a number."
    )


def question_text(question: str, options: Sequence[str], *, who: str = "", how: str = "") -> Text:
    """A question, and how it is answered; "" is by the next message."""
    text = Text(f"{who} asks:" if who else "?", style="bold")
    for line in plain(question[:_MOST_DETAIL]).splitlines():
        text.append(f"\n  {line}", style="" if who else "bold")
    for number, option in enumerate(options, 1):
        text.append(f"\n  {number}. {one_line(option)}")
    rest = "Type a number, or an answer of your own." if options else "Your next message answers it."
    text.append(f"\n{how or rest}", style="dim")
    return text
