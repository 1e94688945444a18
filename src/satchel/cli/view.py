"""A turn on the screen: the answer as it comes, what the tools do, which memory was shown, what it cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from satchel.cli.markdown import MarkdownStream, PlainStream, TextStream
from satchel.cli.output import is_terminal, plain
from satchel.events import (
    Action,
    AskUser,
    Assistant,
    Compaction,
    Event,
    Failure,
    Final,
    MemorySurfaced,
    Notice,
    Observation,
    Permission,
    TextDelta,
    ToolProgress,
    TurnEnd,
    TurnStart,
)
from satchel.messages import Usage, text_of

__all__ = ["TurnView", "brief_input", "has_colour", "one_line", "usage_line"]

_LINE = 100
_PROGRESS_S = 0.5
"""Between two lines of progress."""
_STYLES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def has_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether colours are welcome there: on a terminal that can show them, unless NO_COLOR is set
    (no-color.org).
    """
    return is_terminal(stream) and not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("dumb", "")


def one_line(text: str, limit: int = _LINE) -> str:
    """The text as one line of at most `limit` characters, nothing in it that steers a terminal."""
    line = " ".join(plain(text[: limit * 8]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def brief_input(input: Mapping[str, Any]) -> str:
    """A call's input in one line: the value alone where there is only one, else JSON."""
    if len(input) == 1:
        (value,) = input.values()
        if isinstance(value, str):
            return one_line(value)
    return one_line(json.dumps(dict(input), ensure_ascii=False, default=str)) if input else ""


def usage_line(usage: Usage) -> str:
    """Tokens and money in a few words; "" where nothing was spent."""
    if not usage.total_tokens:
        return ""
    about = "about " if usage.estimated else ""
    cached = f" ({usage.cache_read_tokens:,} cached)" if usage.cache_read_tokens else ""
    cost = f" · ${usage.cost_usd:.4f}" if usage.cost_usd is not None else ""
    return f"{about}{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out{cost}"


def _progress(data: Mapping[str, Any]) -> str:
    """How far a tool is, in its own form: lines of output, an MCP server's numbers, or whatever else it tells."""
    match data:
        case {"stream": _, "text": str(text)}:
            return text.rstrip().rpartition("\n")[2]
        case {"bytes": int(count)}:
            return f"{count:,} bytes of output"
        case {"progress": done, "total": total, "message": message}:
            far = f"{done:g} of {total:g}" if total is not None else f"{done:g}"
            return f"{far} · {message}" if message else far
        case {"progress": str(text)}:
            return text
        case {"status": str(status), **rest}:
            return f"{status} {brief_input(rest)}"
        case {"progress": other} | other:
            return json.dumps(other, ensure_ascii=False, default=str)


class TurnView:
    """Shows the events of turns, one after the other."""

    def __init__(
        self,
        *,
        text_out: TextIO | None,
        notes_out: TextIO,
        environ: Mapping[str, str],
        monotonic_s: Callable[[], float],
        with_usage: bool = True,
    ) -> None:
        """Make it.

        Args:
            text_out: Where the answer goes while it comes; None shows everything but the answer.
            notes_out: Where everything else goes.
            environ: For NO_COLOR and TERM.
            monotonic_s: A clock.
            with_usage: Whether a line of tokens and money closes a turn.
        """
        self._notes = notes_out
        self._has_colour = has_colour(notes_out, environ)
        self._with_usage = with_usage
        self._monotonic_s = monotonic_s
        self._progressed_s = -_PROGRESS_S
        self._text: TextStream | None = None
        if text_out is not None:
            self._text = (
                MarkdownStream(text_out, monotonic_s=monotonic_s)
                if has_colour(text_out, environ)
                else PlainStream(text_out)
            )
        self._streamed = False
        self._said = ""
        self._question: AskUser | None = None
        self._failure: Failure | None = None
        self._refused: set[str] = set()

    def note(self, text: str, *styles: str) -> None:
        """A line beside the answer; its words are made harmless."""
        if self._text is not None:
            self._text.finish()
        words = plain(text)
        if self._has_colour and styles:
            words = f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{words}\x1b[0m"
        self._notes.write(f"{words}\n")
        self._notes.flush()

    def finish(self) -> None:
        """Leave the screen so that something else can be written."""
        if self._text is not None:
            self._text.finish()

    def show(self, event: Event) -> None:
        """Show what happened."""
        match event:
            case TurnStart():
                self._streamed, self._said, self._question, self._failure = False, "", None, None
            case TextDelta(text=text):
                self._streamed = True
                self._feed(text)
            case Assistant(blocks=blocks):
                self._answered(text_of(blocks))
            case MemorySurfaced(memories=memories):
                for memory in memories:
                    place = (
                        f"session {memory.session}, turn {memory.source_turn}" if memory.session else "stored"
                    )
                    self.note(f"◆ {one_line(memory.content)}  ({place}, {memory.score:.2f})", "dim")
            case Permission(decision="deny", call_id=call_id, tool=tool, reason=reason):
                self._refused.add(call_id)
                self.note(f"✗ {tool}: {one_line(reason, 300)}", "yellow")
            case Action(tool=tool, input=input):
                # What ends in no time needs no progress.
                self._progressed_s = self._monotonic_s()
                self.note(f"● {tool}  {brief_input(input)}", "cyan")
            case ToolProgress(tool=tool, data=data):
                self._progressed(tool, data)
            case Observation(call_id=call_id) if call_id in self._refused:
                self._refused.remove(call_id)  # what its permission said was shown
            case Observation():
                self._observed(event)
            case Compaction(before_tokens=before, after_tokens=after):
                self.note(
                    f"— Older messages were summed up: about {before:,} tokens became {after:,}.", "dim"
                )
            case Notice(text=text):
                self.note(f"! {one_line(text, 1000)}", "yellow")
            case Failure(part="model" | "turn"):
                self._failure = event  # it ends the turn, whose last words tell of it
            case Failure():
                self._failed(event)
            case AskUser():
                self._question = event
            case Final():
                self._failure = None
                self._ended(event)
            case TurnEnd(usage=usage, duration_ms=duration_ms):
                if self._failure is not None:
                    self._failed(self._failure)
                spent = usage_line(usage)
                if self._with_usage and spent:
                    self.note(f"{spent} · {duration_ms / 1000:.1f} s", "dim")
            case _:
                pass

    def _feed(self, text: str) -> None:
        if self._text is not None:
            self._text.feed(text)

    def _answered(self, said: str) -> None:
        # Endpoints that answer in one piece stream nothing.
        if not self._streamed:
            self._feed(said)
        self.finish()
        self._streamed = False
        self._said = said or self._said

    def _progressed(self, tool: str, data: Mapping[str, Any]) -> None:
        # A tool may tell a hundred times in a second; nobody reads that.
        now_s = self._monotonic_s()
        if now_s - self._progressed_s >= _PROGRESS_S and (text := one_line(_progress(data), 80)):
            self._progressed_s = now_s
            self.note(f"  … {tool}: {text}", "dim")

    def _observed(self, event: Observation) -> None:
        seconds = f"{event.duration_ms / 1000:.1f} s"
        text = event.text.strip()
        if event.untrusted:
            seconds += ", from outside"
            # The first line is the frame around it for the model; a call that the user ran by hand, in round 0, has
            # none.
            text = (text.partition("\n")[2].strip() if event.round else text) or text
        if event.is_error:
            self.note(f"  ✗ {event.tool}, {seconds}: {one_line(text, 300)}", "red")
            return
        first, _, rest = text.partition("\n")
        more = f" … {rest.count(chr(10)) + 2} lines" if rest else ""
        self.note(f"  ↳ {event.tool}, {seconds}: {one_line(first, 80) or '(nothing)'}{more}", "dim")

    def _failed(self, failure: Failure) -> None:
        self.note(f"! {failure.part}: {one_line(failure.message, 1000)}", "red")

    def _ended(self, final: Final) -> None:
        self.finish()
        rest = final.text.removeprefix(self._said) if self._said else final.text
        if self._question is not None:
            self.note(f"? {self._question.question}", "bold")
            for number, option in enumerate(self._question.options, 1):
                self.note(f"  {number}. {one_line(option)}")
        elif final.status == "cancelled":
            self.note("(interrupted)", "yellow")
        elif rest.strip():
            # What Satchel itself has to say about how the turn ended.
            self.note(
                rest.strip(),
                *(["red"] if final.status == "failed" else ["yellow"] if final.status == "limit" else []),
            )
