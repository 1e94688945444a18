"""Shows a turn on the terminal: the answer while it arrives, tool calls and results, surfaced memories, the cost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, assert_never

from satchel.cli.markdown import MarkdownStream, PlainStream
from satchel.cli.output import is_terminal, wrapped
from satchel.events import (
    AskUser,
    BuildPosted,
    Compaction,
    Event,
    Failure,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    Notice,
    Observation,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    ThinkingDelta,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from satchel.runtime import lines
from satchel.runtime.commands import OwnPosts
from satchel.runtime.recap import Exchange
from satchel.runtime.tool_display import describe_call, describe_progress, display_of, show_observation
from satchel.sessions.view import LastWords, Said, SessionView, ToolCall
from satchel.tui.plain_text import plain
from satchel.tui.terminal_text import how_to_answer, notice_text, one_line, post_text

_PROGRESS_S = 0.5
"""Seconds between two lines of progress; nobody reads them more often."""
_RECAP_LINES = 4
"""The most lines of an earlier answer that are shown when a conversation is continued."""
_FILE_COLUMNS = 200
"""The width of lines that don't go to a terminal."""
_STYLES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_LINE_STYLES = {"plain": "dim", "added": "green", "removed": "red", "active": "bold"}


def has_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether to use colours: on a terminal that can show them, unless NO_COLOR is set (no-color.org)."""
    return is_terminal(stream) and not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("dumb", "")


class TurnView:
    """Shows the events of turns in their order."""

    def __init__(
        self,
        *,
        text_out: TextIO | None,
        notes_out: TextIO,
        environ: Mapping[str, str],
        monotonic_s: Callable[[], float],
        with_usage: bool = True,
        at_prompt: bool = False,
    ) -> None:
        """Create a view.

        Args:
            text_out: The stream for the answer while it arrives; None shows everything except the answer.
            notes_out: The stream for everything else.
            environ: For NO_COLOR and TERM.
            monotonic_s: A clock.
            with_usage: Whether a line with tokens and cost ends a turn.
            at_prompt: Whether what a build asks is answered at a prompt for nothing else.
        """
        self._notes = notes_out
        self._has_colour = has_colour(notes_out, environ)
        self._with_usage = with_usage
        self._at_prompt = at_prompt
        self._monotonic_s = monotonic_s
        self._progressed_s = -_PROGRESS_S
        self._text: PlainStream | MarkdownStream | None = None
        if text_out is not None:
            self._text = (
                MarkdownStream(text_out, monotonic_s=monotonic_s)
                if has_colour(text_out, environ)
                else PlainStream(text_out)
            )
        self._view = SessionView()
        self.own = OwnPosts()

    def note(self, text: str, *styles: str, wraps: bool = False) -> None:
        """Show a line that is not part of the answer; control characters are replaced.

        Args:
            text: One line or several.
            *styles: Names of `_STYLES`.
            wraps: Break long lines between words on a terminal.
        """
        if self._text is not None:
            self._text.finish()
        words = wrapped(plain(text), self._notes) if wraps else plain(text)
        if self._has_colour and styles:
            words = f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{words}\x1b[0m"
        self._notes.write(f"{words}\n")
        self._notes.flush()

    def finish(self) -> None:
        """Complete the answer's last line, so that something else can be written."""
        if self._text is not None:
            self._text.finish()

    def show(self, event: Event) -> None:
        """Show an event."""
        part = self._view.take(event)
        match part:
            case Said(added=text, answer=answer):
                self._feed(text)
                if answer is not None:
                    self.finish()
            case MemorySurfaced(standing="profile" | "agenda" as standing, memories=memories):
                # The user knows who they are; /profile and /agenda show the lines.
                self.note(f"◆ {standing}: {lines.counted(len(memories), 'line')}", "dim")
            case MemorySurfaced(memories=memories):
                for memory in memories:
                    place = (
                        f"session {one_line(memory.session)}, turn {memory.source_turn}"
                        if memory.session
                        else "stored"
                    )
                    self.note(
                        f"◆ {one_line(memory.content)}  ({place}, {memory.score:.2f})", "dim", wraps=True
                    )
            case ToolCall(state="running") if display_of(part.tool).is_question:
                pass  # the turn ends with the question, which is shown then
            case ToolCall():
                self._called(part)
            case Compaction(before_tokens=before, after_tokens=after):
                self.note(
                    f"— Older messages were summarised: about {before:,} tokens became {after:,}.", "dim"
                )
            case Notice(part=name, text=text):
                self.note(f"! {notice_text(name, text)}", "yellow", wraps=True)
            case BuildPosted():
                self._build_posted(part)
            case MessageWaiting(text=text):
                self.note(f"waits: {one_line(text, 200)}", "dim", wraps=True)
            case MessageTakenBack():
                self.note("A message that waited was taken back.", "dim")
            case Posted(source=source, text=text):
                self.note(post_text(source, text, is_own=self.own.has(part)), "bold", wraps=True)
            case Failure(part=name, message=message):
                self.note(f"! {name}: {one_line(message, 1000)}", "red", wraps=True)
            case LastWords():
                self._closed(part)
            case TurnEnd(usage=usage, duration_ms=duration_ms):
                spent = lines.usage_line(usage)
                if self._with_usage and spent:
                    self.note(f"{spent} · {duration_ms / 1000:.1f} s", "dim")
            case (
                None
                | TurnStart()
                | TurnResumed()
                | ThinkingDelta()
                | QuestionAsked()
                | QuestionAnswered()
                | AskUser()
            ):
                pass
            case _:
                assert_never(part)

    def _build_posted(self, event: BuildPosted) -> None:
        name = event.capability
        match event.kind:
            case "question":
                self.note(f"? {name} asks: {event.text}", "bold", wraps=True)
                self._show_options(event.options)
                if how := how_to_answer(event, at_prompt=self._at_prompt):
                    self.note(f"  {how}", "dim", wraps=True)
            case "answer":
                words = f"“{one_line(event.text, 200)}”" if event.text else "the Builder decides"
                self.note(f"  {name}: {words}", "dim", wraps=True)
            case "progress":
                self.note(f"⚒ {name}: {one_line(event.text, 500)}", "dim", wraps=True)
            case "complete" | "error":
                style = "green" if event.status == "active" else "yellow"
                self.note(
                    f"⚒ {one_line(event.text, 1000)}"
                    if event.kind == "complete"
                    else f"⚒ {name} could not be built: {one_line(event.text, 1000)}",
                    style,
                    wraps=True,
                )
            case _:
                assert_never(event.kind)

    def show_question(self, question: str, options: Sequence[str], *, is_answered_here: bool = True) -> None:
        """Show a question to the user; its options are numbered, and a number chooses one.

        Args:
            question: The question, or "" if it is already on the screen.
            options: Suggestions; any other answer is allowed.
            is_answered_here: Whether the next line that is typed answers it.
        """
        if question:
            # Indented, because a tool or a server may have written it: only Satchel's own lines begin at the edge.
            first, *rest = plain(question).splitlines()
            self.note("\n".join([f"? {first}", *(f"  {line}" for line in rest)]), "bold", wraps=True)
        self._show_options(options)
        if options and is_answered_here:
            self.note("  Type a number, or an answer of your own.", "dim")

    def _show_options(self, options: Sequence[str]) -> None:
        for number, option in enumerate(options, 1):
            self.note(f"  {number}. {one_line(option)}", wraps=True)

    def show_exchange(self, exchange: Exchange, *, is_open: bool) -> None:
        """Show an earlier exchange in a few lines.

        Args:
            exchange: From the session's log.
            is_open: Its question waits for an answer, and is shown apart.
        """
        self.note(f"{exchange.at.astimezone():%a %Y-%m-%d %H:%M}", "dim")
        if exchange.said:
            self.note(self._fitted(f"› {one_line(exchange.said, 400)}"))
        for call in exchange.calls:
            self.note(self._fitted(f"  │ {call}"), "dim")
        if exchange.question is not None:
            if not is_open:
                self.note(self._fitted(f"  ? {exchange.question.question}"), "dim")
            return
        rows = [row for row in exchange.answer.splitlines() if row.strip()]
        for row in rows[:_RECAP_LINES]:
            self.note(self._fitted(f"  {row}"), "dim")
        if len(rows) > _RECAP_LINES:
            self.note(f"  … {lines.counted(len(rows) - _RECAP_LINES, 'more line')}", "dim")
        if exchange.status in (None, "cancelled"):
            self.note("  (interrupted)", "dim")

    def _feed(self, text: str) -> None:
        if self._text is not None and text:
            self._text.feed(text)

    def _called(self, call: ToolCall) -> None:
        tool = one_line(call.tool)
        if call.result is not None:
            if call.refusal is None:  # it was shown with its reason
                self._observed(call, call.result)
        elif call.refusal is not None:
            self.note(f"✗ {tool}: {one_line(call.refusal.reason, 300)}", "yellow", wraps=True)
        elif call.progress is not None:
            self._progressed(call.tool, call.progress)
        else:
            # The first progress is shown after a delay, because most calls end sooner.
            self._progressed_s = self._monotonic_s()
            self.note(self._fitted(f"● {tool}  {describe_call(call.tool, call.input)}".rstrip()), "cyan")

    def _progressed(self, tool: str, data: Mapping[str, Any]) -> None:
        # A tool may report its progress a hundred times a second.
        now_s = self._monotonic_s()
        if now_s - self._progressed_s >= _PROGRESS_S and (text := one_line(describe_progress(data), 80)):
            self._progressed_s = now_s
            self.note(self._fitted(f"  … {tool}: {text}"), "dim")

    def _observed(self, call: ToolCall, event: Observation) -> None:
        shown = show_observation(event, call.input)
        heading = (
            f"{event.tool}, {event.duration_ms / 1000:.1f} s{', from outside' if event.untrusted else ''}"
        )
        if shown.summary:
            heading += f": {shown.summary}"
        mark, style = ("✗", "red") if event.is_error else ("↳", "dim")
        if event.is_error:
            self.note(f"  {mark} {one_line(heading, 300)}", style, wraps=True)  # in full: it says why
        else:
            self.note(self._fitted(f"  {mark} {heading}"), style)
        if event.round == 0:
            return  # `/run` prints the full result itself
        for line in shown.lines:
            self.note(self._fitted(f"    {line.text}"), _LINE_STYLES[line.style])

    def _fitted(self, text: str) -> str:
        """The text as one line that fits the terminal, with its indentation."""
        columns = shutil.get_terminal_size().columns if is_terminal(self._notes) else _FILE_COLUMNS
        line = plain(text.replace("\n", " ")).expandtabs(4)
        if len(line) <= columns and line.isascii():
            return line
        # Imported on demand: only characters that take two columns need it.
        from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

        return line if cell_len(line) <= columns else f"{set_cell_size(line, columns - 1)}…"

    def _closed(self, closing: LastWords) -> None:
        self.finish()
        status = closing.final.status
        if status == "asking" and closing.question is not None:
            # Some models write the question in their text before they ask it.
            self.show_question(
                closing.question.question if closing.rest else "",
                closing.question.options,
                is_answered_here=not self._at_prompt,
            )
        elif status == "cancelled":
            self.note("(interrupted)", "yellow")
        elif closing.rest:
            # Satchel's own words about how the turn ended.
            self.note(
                closing.rest,
                *(["red"] if status == "failed" else ["yellow"] if status == "limit" else []),
                wraps=True,
            )
