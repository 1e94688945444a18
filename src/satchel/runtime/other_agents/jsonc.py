"""Edits JSON as text, which keeps everything else in a file: order, blanks, comments, trailing commas."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from satchel.errors import ConfigError

_SPACE: Final = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_MOST_DEPTH: Final = 100


class Node(NamedTuple):
    """A value and its position in the text.

    Attributes:
        start: Its first character; `end` is after its last one.
        kind: "object", "array" or "plain".
        value: Of a string, number, boolean or null; of others None.
        parts: Of an object, the members: the key, where the key begins, and the value. Of an array, the items, with "".
    """

    start: int
    end: int
    kind: str
    value: Any = None
    parts: tuple[tuple[str, int, Node], ...] = ()

    @property
    def items(self) -> tuple[Node, ...]:
        """The values in an array or object."""
        return tuple(node for _, _, node in self.parts)

    def get(self, key: str) -> Node | None:
        """The member of an object with this key; of several the last, as programs read it."""
        return next((node for name, _, node in reversed(self.parts) if name == key), None)

    def plain(self) -> Any:
        """The value as Python data."""
        if self.kind == "object":
            return {name: node.plain() for name, _, node in self.parts}
        return [node.plain() for node in self.items] if self.kind == "array" else self.value


def parse(text: str, where: str) -> Node:
    """Read JSON with comments and trailing commas. An empty file is read as an empty object.

    Raises:
        ConfigError: It is something else; the message begins with `where` and names the line.
    """
    at = _after_space(text, 0)
    if at == len(text):
        return Node(at, at, "object")
    node = _value(text, at, where, 0)
    if _after_space(text, node.end) != len(text):
        raise _wrong(text, node.end, where, "unexpected text after its end")
    return node


def with_member(text: str, node: Node, key: str, value: Any) -> str:
    """The text with a member added to the end of an object."""
    if node.start == node.end:  # an empty file
        return json.dumps({key: value}, indent=2, ensure_ascii=False) + "\n"
    return _added(text, node, f"{json.dumps(key, ensure_ascii=False)}: ", value)


def with_item(text: str, node: Node, value: Any) -> str:
    """The text with an item added to the end of an array."""
    return _added(text, node, "", value)


def with_value(text: str, node: Node, value: Any) -> str:
    """The text with another value in the place of one."""
    return text[: node.start] + _written(text, value, _indent_at(text, node.start)) + text[node.end :]


def without_member(text: str, node: Node, key: str) -> str:
    """The text without a member of an object."""
    return without_item(text, node, max(at for at, (name, _, _) in enumerate(node.parts) if name == key))


def _added(text: str, node: Node, entry: str, value: Any) -> str:
    starts, nodes = [start for _, start, _ in node.parts], node.items
    is_flat = bool(nodes) and "\n" not in text[node.start : starts[0]]
    outer = _indent_at(text, node.start)
    step = _step_of(text)
    inner = _indent_at(text, starts[0]) if nodes and not is_flat else outer + step
    if is_flat:
        last = nodes[-1].end
        return f"{text[:last]}, {entry}{_written(text, value, outer)}{text[last:]}"
    written = f"{inner}{entry}{_written(text, value, inner)}"
    newline = "\r\n" if "\r\n" in text else "\n"
    if not nodes:
        between = text[node.start + 1 : node.end - 1]
        kept = between.rstrip() if between.strip() else ""  # comments
        return f"{text[: node.start + 1]}{kept}{newline}{written}{newline}{outer}{text[node.end - 1 :]}"
    last = nodes[-1].end
    rest = text[last : node.end - 1]
    comma = _comma_in(text, last, node.end - 1)
    if comma is not None:  # a trailing comma is kept behind the new last one
        return f"{text[: comma + 1]}{newline}{written},{text[comma + 1 :]}"
    # Comments after the last value stay beside it.
    line_end = rest.find("\n")
    comment = rest[: line_end if line_end >= 0 else len(rest)].rstrip("\r")
    return f"{text[:last]},{comment}{newline}{written}{rest[len(comment) :]}{text[node.end - 1 :]}"


def without_item(text: str, node: Node, place: int) -> str:
    """The text without an item of an array, or a member of an object, by its place."""
    spans = [(start, one.end) for _, start, one in node.parts]
    start, end = spans[place]
    if len(spans) == 1:
        before, after = text[: node.start + 1], text[node.end - 1 :]
        left = text[node.start + 1 : start] + text[_past_comma(text, end, node.end - 1) : node.end - 1]
        return before + (left.rstrip() + "\n" + _indent_at(text, node.start) if left.strip() else "") + after
    if place + 1 < len(spans):
        return text[:start] + text[spans[place + 1][0] :]
    # The last one goes with the comma before it, unless a trailing comma follows.
    first, comma = _comma_in(text, spans[place - 1][1], start), _comma_in(text, end, node.end - 1)
    assert first is not None
    if comma is not None:
        return text[: first + 1] + text[comma + 1 :]
    comment = text[first + 1 : start].split("\n", 1)[0].rstrip()
    return text[:first] + comment + text[end:]


def _written(text: str, value: Any, indent: str) -> str:
    step = _step_of(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, indent=step, ensure_ascii=False).split("\n")
    return newline.join([lines[0], *(indent + line for line in lines[1:])])


def _step_of(text: str) -> str:
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _comma_in(text: str, start: int, end: int) -> int | None:
    at = _after_space(text, start)
    return at if at < end and text[at] == "," else None


def _past_comma(text: str, start: int, end: int) -> int:
    comma = _comma_in(text, start, end)
    return start if comma is None else comma + 1


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, where: str, depth: int) -> Node:
    if depth > _MOST_DEPTH:
        raise _wrong(text, at, where, "nested too deeply")
    char = text[at : at + 1]
    if char == '"':
        found = _STRING.match(text, at)
        if found is None:
            raise _wrong(text, at, where, "a string without an end")
        try:
            return Node(at, found.end(), "plain", json.loads(found[0]))
        except ValueError:
            raise _wrong(text, at, where, "an invalid string") from None
    if char in ("{", "["):
        return _container(text, at, where, depth)
    found = _PLAIN.match(text, at)
    if found is None:
        raise _wrong(text, at, where, "expected a value")
    return Node(at, found.end(), "plain", json.loads(found[0]))


def _container(text: str, start: int, where: str, depth: int) -> Node:
    kind, closing = ("object", "}") if text[start] == "{" else ("array", "]")
    parts: list[tuple[str, int, Node]] = []
    at = _after_space(text, start + 1)
    while text[at : at + 1] not in (closing, ""):
        begin, key = at, ""
        if kind == "object":
            found = _STRING.match(text, at)
            if found is None:
                raise _wrong(text, at, where, "expected a key")
            key, at = json.loads(found[0]), _after_space(text, found.end())
            if text[at : at + 1] != ":":
                raise _wrong(text, at, where, "expected a colon after a key")
            at = _after_space(text, at + 1)
        node = _value(text, at, where, depth + 1)
        parts.append((key, begin, node))
        at = _after_space(text, node.end)
        if text[at : at + 1] == ",":
            at = _after_space(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _wrong(text, at, where, f"expected a comma or {closing!r}")
    if text[at : at + 1] != closing:
        raise _wrong(text, start, where, f"no {closing!r} to what begins here")
    return Node(start, at + 1, kind, parts=tuple(parts))


def _wrong(text: str, at: int, where: str, what: str) -> ConfigError:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return ConfigError(
        f"{where}, line {line}, column {column}: this is not JSON ({what}). Nothing was changed."
    )
