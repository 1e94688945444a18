"""Parses an answer that calls tools with JSON in its text (seed-3), while it is streamed.

    {"action": {"tool": "name", "input": {…}}}      one call; several such objects may follow each other
    {"actions": [{"tool": "name", "input": {…}}]}   several calls
    {"final": "…"}                                  the answer

with or without code fences and prose around it. The JSON itself is never shown: the text of `final` is passed on as it
arrives, and prose as soon as it can't be the beginning of JSON. Any other text is the answer, unchanged.

The result doesn't depend on how the text is split into pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from satchel.messages import Block, TextBlock, ToolUseBlock, clean_text
from satchel.models.encoding import parse_object
from satchel.models.identifiers import CallIds

# Up to this length, prose before a `final` is a preamble ("Sure, here is the answer:") and dropped, so it is held back
# until then. Longer prose is a part of the answer.
PREAMBLE_CHARS: Final = 120

# Up to this length, classified or held text needs no optimisation.
HELD_CHARS: Final = 4096

_KEYS: Final = ("actions", "action", "final")
_FENCE: Final = re.compile(r"```[A-Za-z0-9_-]{0,20}[ \t]*\r?\n?\s*")
_SPACE: Final = " \t\r\n"
_STRING_PART: Final = re.compile(
    r'[^"\\]+|"|\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)', re.DOTALL
)
_OPEN_ESCAPE: Final = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?)?\Z"
)
"""The beginning of an escape, or of a surrogate pair, whose rest has not arrived."""
_CANDIDATE: Final = re.compile("[{`]")
"""The next possible beginning of JSON: a brace, a fence, or backticks that may become one."""
_PART: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
"""A bracket of an object, or a string in it, whose end may not have arrived."""
_NEXT_KEY: Final = re.compile(r',\s*"[A-Za-z_]{1,30}"\s*:')
_BETWEEN_CALLS: Final = re.compile(r"(?:[\s,;]|```[A-Za-z0-9_-]{0,20})*")
_BETWEEN: Final = " \t\r\n,;."
_TOOL_NAME: Final = re.compile(r'"(?:tool|name)"\s*:\s*"([^"\\]{1,100})"')
_DECODER: Final = json.JSONDecoder(strict=False)

Verdict: TypeAlias = Literal["no", "open", "object", "calls", "final"]


class JsonAnswerReader:
    """Takes the pieces of an answer and returns the text that can be shown."""

    def __init__(self) -> None:
        self._text = ""
        self._pieces: list[str] = []
        self._waiting = 0
        self._is_complete = False
        self._shown: list[str] = []
        self._prose: list[str] = []  # read as prose, not shown yet
        self._prose_length = 0
        self._released = False  # prose has been shown, so it stays in the answer
        self._calls_start: int | None = None
        self._reading = self._read()
        self._is_over = False

    def feed(self, piece: str) -> str:
        """Add the next piece.

        Returns:
            The text that can now be shown and was not returned before.
        """
        before = len(self._shown)
        self._pieces.append(piece)
        self._waiting += len(piece)
        # A long text that is held back is examined again only after it has grown by an eighth, so that the total cost
        # is only a few passes over it.
        is_held = len(self._text) > HELD_CHARS and self._waiting * 8 < len(self._text)
        if not (self._is_over or is_held):
            self._go_on()
        return clean_text("".join(self._shown[before:]))

    def finish(self, ids: CallIds) -> tuple[str, tuple[Block, ...]]:
        """End the text.

        Returns:
            The rest of the text to show, and the complete answer as blocks.
        """
        before = len(self._shown)
        self._is_complete = True
        self._go_on()
        calls: list[Block] = []
        if self._calls_start is not None:
            found, end = _calls_in(self._text, self._calls_start)
            if not self._is_quoted(self._calls_start, end):
                calls = [
                    ToolUseBlock(
                        id=ids.claim(""),
                        name=call.tool,
                        input=call.input,
                        unparsed="" if call.input is not None else call.raw,
                    )
                    for call in found
                ]
            if not calls:
                # It began like a call but isn't one, so it is text.
                self._prose.append(self._text[self._calls_start :])
        self._show_prose()
        said = clean_text("".join(self._shown))
        text = (TextBlock(text=said),) if said.strip() else ()
        return clean_text("".join(self._shown[before:])), (*text, *calls)

    def _is_quoted(self, start: int, end: int) -> bool:
        """Whether words stand before and after the calls there: I won't run {"action": …} for that page."""
        if _line_before(self._text, start):
            after = self._text[end:].strip(_BETWEEN)
            return bool(after) and not after.startswith(("{", "```"))
        return False

    def _go_on(self) -> None:
        """Read what has come since."""
        self._text += "".join(self._pieces)
        self._pieces, self._waiting = [], 0
        self._is_over = next(self._reading, True) is True

    def _read(self) -> Iterator[None]:
        """Read the text until calls or the answer are found; waits at each `yield` for more of it."""
        place = 0
        while True:
            start = next_candidate(self._text, place)
            self._say(self._text[place:start])
            place = start
            if place > HELD_CHARS:
                # Words earlier on the line decide whether an object after them may be held.
                begun = _line_before(self._text, place)[:1]
                self._text, place = begun + self._text[place:], len(begun)
            if place == len(self._text):
                if self._is_complete:
                    return
                yield
                continue
            verdict, body = _judge(self._text, place, self._is_complete)
            if verdict == "open":
                yield
            elif verdict == "no":
                # Skip the whole fence, because its last backtick doesn't begin another one.
                end = place + (3 if self._text.startswith("```", place) else 1)
                self._say(self._text[place:end])
                place = end
            elif verdict == "calls":
                self._calls_start = place
                return
            elif verdict == "final":
                self._drop_preamble()
                yield from self._read_final(body)
                return
            else:
                # Its first key decides nothing, so it is held until it ends.
                while (whole := _object_end(self._text, body)) is None and not self._is_complete:
                    yield
                value, _ = (_decoded(self._text, body) if whole is not None else None) or ({}, 0)
                if _calls_of(value):
                    self._calls_start = place
                    return
                if isinstance(value.get("final"), str):
                    self._drop_preamble()
                    self._shown.append(value["final"])
                    return
                end = len(self._text) if whole is None else whole
                self._say(self._text[place:end])
                place = end

    def _read_final(self, place: int) -> Iterator[None]:
        """Show the value of `final`, which begins at a place; one that isn't a string as JSON once it is complete."""
        while (start := _skip_space(self._text, place)) == len(self._text) and not self._is_complete:
            yield
        if not self._text.startswith('"', start):
            while not self._is_complete:
                yield
            self._shown.append(_shown_value(self._text, start))
            return
        self._text = self._text[start + 1 :]
        while True:
            words, place, is_over = _string_words(self._text, self._is_complete)
            self._text = self._text[place:]
            self._shown.append(words)
            if is_over or self._is_complete:
                return
            yield

    def _drop_preamble(self) -> None:
        if self._released:
            self._show_prose()
            self._shown.append("\n\n")
        self._prose, self._prose_length = [], 0

    def _say(self, prose: str) -> None:
        """Store prose, and show it once it is too long for a preamble."""
        if not prose:
            return
        self._prose.append(prose)
        self._prose_length += len(prose)
        if self._released or self._prose_length > PREAMBLE_CHARS:
            self._released = True
            self._show_prose()

    def _show_prose(self) -> None:
        prose = "".join(self._prose)
        words = prose.rstrip()
        # White space is held until words follow, because it is dropped before a call and at the end.
        self._prose = [prose[len(words) :]]
        if not self._shown:
            words = words.lstrip()
        if words:
            self._shown.append(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCall:
    """A call as the model wrote it: `raw` is the text of the arguments; `input` is None if they are not an object."""

    tool: str
    input: dict[str, Any] | None
    raw: str = ""


def begins_answer(text: str, start: int) -> Verdict:
    """What begins at a brace or a fence with nothing before it on its line; "open" if the text is too short."""
    return "no" if _line_before(text, start) else _judge(text, start, False)[0]


def next_candidate(text: str, start: int) -> int:
    """The next possible beginning of JSON, or the end of the text."""
    return _place_of(_CANDIDATE, text, start)


def whole_answer(text: str) -> str | Sequence[FoundCall] | None:
    """The content of a text that consists only of the JSON of one answer, with or without a fence around it.

    Returns:
        The text of `final`, or the calls, if all their inputs are JSON objects; None for any other text.
    """
    start = text.find("{")
    decoded = _decoded(text, start) if start >= 0 else None
    if decoded is not None and not _BETWEEN_CALLS.sub("", text[decoded[1] :]):
        match decoded[0]:
            case {"final": str(final), **rest} if not rest:
                return final
            case _:
                pass
    calls, end = _calls_in(text, start) if start >= 0 else ([], 0)
    is_whole = not _BETWEEN_CALLS.sub("", text[end:]) and all(call.input is not None for call in calls)
    return calls if calls and is_whole else None


def _judge(text: str, start: int, at_end: bool) -> tuple[Verdict, int]:
    """What begins at `start`, and where its body begins.

    "no": prose. "open": the text is too short to decide. "object": JSON whose first key decides nothing. "calls":
    calls. "final": the answer; its body begins after the colon.
    """
    undecided: tuple[Verdict, int] = ("no", start) if at_end else ("open", start)
    place = start
    fenced = False
    if text[start] == "`":
        if not text.startswith("```", start):
            short = len(text) - start < 3 and text[start:] == "`" * (len(text) - start)
            return undecided if short else ("no", start)
        fence = _FENCE.match(text, start)
        place = fence.end() if fence else start + 3
        fenced = True
        if place == len(text):
            return undecided
        if text[place] != "{":
            return "no", start
    line = _line_before(text, start)
    if line.startswith(">"):
        return "no", start  # quoted, as in Markdown and mails
    at_line_start = fenced or not line
    place = _skip_space(text, place + 1)
    if place == len(text):
        return undecided
    if text[place] != '"':
        return "no", start
    begun = text[place + 1 : place + 12]
    for key in _KEYS:
        quoted = key + '"'
        if begun.startswith(quoted):
            after = _skip_space(text, place + 1 + len(quoted))
            if after == len(text):
                return undecided
            if text[after] != ":":
                return "no", start
            return ("final", after + 1) if key == "final" else ("calls", start)
        if quoted.startswith(begun):
            # `begun` ends with the text, so it may still become the key.
            return undecided
    # Some models write their thoughts first: {"thought": "…", "action": {…}}.
    brace = text.find("{", start)
    return ("object", brace) if at_line_start else ("no", start)


def _line_before(text: str, place: int) -> str:
    """The words on the same line before a place."""
    return text[text.rfind("\n", 0, place) + 1 : place].strip()


def _skip_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place


def _object_end(text: str, start: int) -> int | None:
    """The position after the closing brace of the object that begins at `start`, or None if it hasn't arrived."""
    depth = 0
    for part in _PART.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(part[0], 0)
        if depth <= 0:
            return part.end()
    return None


def _string_words(text: str, at_end: bool) -> tuple[str, int, bool]:
    """What a string says whose quote stands before the text, the position after what was read, and whether it is over.

    Small models forget to escape quotes and line breaks. Therefore a quote ends the text only if a brace, a comma or
    nothing follows.
    """
    words: list[str] = []
    place = 0
    while place < len(text) and not _OPEN_ESCAPE.match(text, place):
        part = _STRING_PART.match(text, place)
        assert part is not None
        said = part[0]
        if said == '"':
            after = _skip_space(text, part.end())
            if (
                (at_end and after == len(text))
                or text[after : after + 1] == "}"
                or _NEXT_KEY.match(text, after)
            ):
                return "".join(words), after, True
            if not at_end and (after == len(text) or (text[after] == "," and len(text) - after < 40)):
                break
        elif said[0] == "\\":
            said = _unescaped(said)
        words.append(said)
        place = part.end()
    return "".join(words), place, False


def _unescaped(escape: str) -> str:
    try:
        # Half of a surrogate pair alone is invalid.
        return clean_text(json.loads(f'"{escape}"', strict=False))
    except ValueError:
        return escape[1:]


def _shown_value(text: str, start: int) -> str:
    try:
        value, _ = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return text[start:]
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _place_of(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.search(text, start)
    return found.start() if found else len(text)


def _decoded(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """The JSON object that begins at `start`, and the position after it."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


def _calls_in(text: str, start: int) -> tuple[list[FoundCall], int]:
    """The calls that begin at `start`, up to the first other text, and where they end."""
    found: list[FoundCall] = []
    end = place = start
    while True:
        skipped = _BETWEEN_CALLS.match(text, place)
        place = skipped.end() if skipped else place
        if not text.startswith("{", place):
            return found, end
        decoded = _decoded(text, place)
        if decoded is None:
            broken = _broken_call(text, place)
            return (found + [broken[0]], broken[1]) if broken else (found, end)
        value, place = decoded
        calls = _calls_of(value)
        if not calls:
            return found, end
        found += calls
        end = place


def _broken_call(text: str, start: int) -> tuple[FoundCall, int] | None:
    """A call that isn't valid JSON, with its text for the model to correct, and its end; None if it names no tool."""
    end = _object_end(text, start) or len(text)
    raw = clean_text(text[start:end])
    verdict, _ = _judge(text, start, True)
    if verdict == "calls" and (name := _TOOL_NAME.search(raw)):
        return FoundCall(tool=name[1], input=None, raw=raw), end
    return None


def _calls_of(value: Mapping[str, Any]) -> list[FoundCall]:
    """The calls in an object; empty if there are none."""
    match value:
        case {"action": str(tool), **rest} if tool:
            # The flat form of older prompts: {"action": "name", "action_input": {…}}.
            return [_call(tool, rest)]
        case {"action": Mapping() as action}:
            return _listed([action])
        case {"action": list(actions)} | {"actions": list(actions)}:
            return _listed(actions)
        case {"actions": Mapping() as action}:
            return _listed([action])
        case _:
            return []


def _listed(actions: list[Any]) -> list[FoundCall]:
    calls: list[FoundCall] = []
    for action in actions:
        inner = action.get("action", action) if isinstance(action, Mapping) else None
        if not isinstance(inner, Mapping):
            return []
        name = inner.get("tool", inner.get("name"))
        if not isinstance(name, str) or not name:
            return []
        calls.append(_call(name, inner))
    return calls


def _call(tool: str, fields: Mapping[str, Any]) -> FoundCall:
    for key in ("input", "arguments", "args", "parameters", "action_input"):
        if key in fields:
            given = fields[key]
            break
    else:
        given = {}
    if given is None:
        given = {}
    if isinstance(given, str):
        parsed = parse_object(given)
        return FoundCall(tool=tool, input=parsed, raw=clean_text(given))
    if isinstance(given, dict):
        # Parse it again, because NaN and the like, which the decoder accepts, are not valid arguments.
        text = json.dumps(given)
        return FoundCall(tool=tool, input=parse_object(text), raw=clean_text(text))
    return FoundCall(tool=tool, input=None, raw=clean_text(json.dumps(given, ensure_ascii=False)))
