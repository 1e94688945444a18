"""A form made of a JSON Schema, and its fields read back into JSON.

The schema may be a stranger's: its texts are only shown, and its references are followed only inside it and only so
deep. Values without a field of their own (unions, objects without properties, lists of lists) are written as JSON, and
the whole input can be.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from satchel.tools.input_schema import target_of

FieldKind: TypeAlias = Literal[
    "text", "long", "number", "choice", "choices", "check", "lines", "json", "group"
]
"""An input; a text area; an input for a number; one of several; some of several; yes or no; one value a line; JSON; and
other fields under a heading."""

_MOST_DEPTH: Final = 4
_MOST_FIELDS: Final = 100
_MOST_OPTIONS: Final = 200
_LONG: Final = 200
"""A text that may be longer than this gets a text area."""
_INPUT_TYPES: Final[Mapping[str, str]] = {
    "date": "date",
    "date-time": "datetime-local",
    "time": "time",
    "email": "email",
    "uri": "url",
}
_NEEDED: Final = "This is required."


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field.

    Attributes:
        path: The names that lead to its value.
        label: How a person reads its name.
        hint: What the schema says of it, and its limits.
        input_type: Of an input, such as "date".
        options: Of a choice: what is sent, and what is shown.
        element: Of the values in lines: their JSON type.
        value: Its content: a text; for a check box "on" or ""; for several choices their tuple.
        fields: Of a group.
        problem: What is wrong with it.
    """

    path: tuple[str, ...]
    label: str
    kind: FieldKind
    required: bool
    hint: str = ""
    input_type: str = "text"
    options: tuple[tuple[str, str], ...] = ()
    element: str = "string"
    value: str | tuple[str, ...] = ""
    fields: tuple[Field, ...] = ()
    problem: str = ""

    @property
    def name(self) -> str:
        """Its name in the form. No other field of a page begins like this."""
        return "in/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in self.path)

    @property
    def id(self) -> str:
        """Its id on the page: letters, digits and hyphens only."""
        return "in-" + "-".join(part.encode().hex() for part in self.path)

    @property
    def rows(self) -> int:
        """Lines of a text area."""
        return 3 if self.kind in ("lines", "long") else 4


@dataclass(frozen=True, slots=True)
class Filled:
    """A submitted form: the input that it describes, and its fields as filled in, with their problems."""

    input: dict[str, Any]
    fields: tuple[Field, ...]
    is_readable: bool


def fields_of(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields for an object's properties, in the schema's order; none where it has none."""
    return tuple(_Reader(schema).properties(schema, (), 0))


class _Reader:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST_FIELDS

    def properties(self, schema: Mapping[str, Any], path: tuple[str, ...], depth: int) -> Iterator[Field]:
        properties = schema.get("properties")
        required = schema.get("required")
        needed = set(map(str, required)) if isinstance(required, list | tuple) else set()
        for name, part in (properties if isinstance(properties, Mapping) else {}).items():
            if self._left <= 0:
                return
            self._left -= 1
            yield self._field(part, (*path, str(name)), required=str(name) in needed, depth=depth)

    def _field(self, part: object, path: tuple[str, ...], *, required: bool, depth: int) -> Field:
        schema, nullable = self._plain(part)
        required = required and not nullable
        label = _text(schema.get("title")) or path[-1].replace("_", " ").strip().capitalize() or path[-1]
        said, limits = _text(schema.get("description")), _limits(schema)
        if said and limits and said[-1].isalnum():
            said += "."
        hint = " ".join(filter(None, (said, limits)))
        default = schema.get("default")
        kind = schema.get("type")

        def made(kind: FieldKind, **more: Any) -> Field:
            field = Field(path=path, label=label, kind=kind, required=required, hint=hint, **more)
            return field if default is None or kind == "group" else _with_value(field, default)

        options = _options(schema)
        if options is not None:
            return made("choice", options=options)
        match kind:
            case "boolean" if required or isinstance(default, bool):
                return made("check")
            case "boolean":
                return made("choice", options=(("true", "yes"), ("false", "no")))
            case "integer" | "number":
                return made("number", element=kind)
            case "string":
                most = schema.get("maxLength")
                if (isinstance(most, int) and most > _LONG) or "\n" in str(default):
                    return made("long")
                return made("text", input_type=_INPUT_TYPES.get(_text(schema.get("format")), "text"))
            case "array":
                return self._list(schema, made)
            case "object" if isinstance(schema.get("properties"), Mapping) and depth < _MOST_DEPTH:
                return made("group", fields=tuple(self.properties(schema, path, depth + 1)))
            case _:
                return made("json")

    def _list(self, schema: Mapping[str, Any], made: Callable[..., Field]) -> Field:
        items, _ = self._plain(schema.get("items"))
        options = _options(items)
        if options is not None:
            return made("choices", options=options)
        element = items.get("type")
        return made("lines", element=element) if element in ("string", "integer", "number") else made("json")

    def _plain(self, part: object) -> tuple[Mapping[str, Any], bool]:
        """A schema without references and without "or null", and whether it may be null."""
        nullable = False
        for _ in range(8):
            if not isinstance(part, Mapping):
                return {}, nullable
            reference = part.get("$ref")
            if isinstance(reference, str):
                rest = {key: value for key, value in part.items() if key != "$ref"}
                found = target_of(self._root, reference)
                part = {**found, **rest} if isinstance(found, Mapping) else {}
                continue
            kinds = part.get("type")
            if isinstance(kinds, list | tuple) and "null" in kinds and len(kinds) == 2:
                part = {**part, "type": next(kind for kind in kinds if kind != "null")}
                nullable = True
            for key in ("anyOf", "oneOf"):
                branches = part.get(key)
                if not isinstance(branches, list | tuple):
                    continue
                others = [
                    one for one in branches if not (isinstance(one, Mapping) and one.get("type") == "null")
                ]
                if len(others) == 1 and isinstance(others[0], Mapping):
                    nullable = nullable or len(others) < len(branches)
                    part = {**others[0], **{k: v for k, v in part.items() if k != key}}
                    break
            else:
                merged = part.get("allOf")
                if isinstance(merged, list | tuple) and len(merged) == 1 and isinstance(merged[0], Mapping):
                    part = {**merged[0], **{k: v for k, v in part.items() if k != "allOf"}}
                    continue
                if "type" not in part and "properties" in part:
                    part = {**part, "type": "object"}
                return part, nullable
        return {}, nullable


def filled(fields: Sequence[Field], input: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields with the values of an input that was sent before, instead of defaults."""
    return tuple(_with_value(field, input.get(field.path[-1])) for field in fields)


def _with_value(field: Field, value: object) -> Field:
    if field.kind == "group":
        return replace(field, fields=filled(field.fields, value if isinstance(value, Mapping) else {}))
    match field.kind:
        case "check":
            return replace(field, value="on" if value is True else "")
        case "choices":
            return replace(field, value=tuple(map(_json, value)) if isinstance(value, list | tuple) else ())
        case _ if value is None:
            return replace(field, value="")
        case "choice" | "json":
            return replace(field, value=_json(value))
        case "lines" if isinstance(value, list | tuple):
            return replace(field, value="\n".join(map(_shown, value)))
        case _:
            # A browser's own fields show nothing that isn't in their format.
            return replace(field, value=_shown(value), input_type="text")


def _options(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...] | None:
    """What may be chosen; None where a schema has no list of values. JSON is sent, because 1 is not "1"."""
    values = schema.get("enum")
    if "const" in schema:
        values = [schema["const"]]
    if not isinstance(values, list | tuple) or not values or len(values) > _MOST_OPTIONS:
        return None
    return tuple(
        (_json(value), value if isinstance(value, str) else _json(value))
        for value in values
        if value is not None
    )


def _limits(schema: Mapping[str, Any]) -> str:
    """The limits that a person can keep, in words."""

    def number(key: str) -> float | None:
        value = schema.get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    said: list[str] = []
    low, high = number("minimum"), number("maximum")
    above, under = number("exclusiveMinimum"), number("exclusiveMaximum")
    if low is not None and high is not None:
        said.append(f"{low:,} to {high:,}.")
    else:
        said += [f"At least {low:,}."] if low is not None else []
        said += [f"At most {high:,}."] if high is not None else []
    said += [f"More than {above:,}."] if above is not None else []
    said += [f"Less than {under:,}."] if under is not None else []
    for key, words in (
        ("minLength", "At least {:,} characters."),
        ("maxLength", "At most {:,} characters."),
        ("minItems", "At least {:,}."),
        ("maxItems", "At most {:,}."),
    ):
        value = number(key)
        if value is not None and not (key == "minLength" and value <= 1):
            said.append(words.format(value))
    return " ".join(said)


# ---- Reading


def read_fields(fields: Sequence[Field], form: Mapping[str, Sequence[str]]) -> Filled:
    """Read a submitted form. Empty fields are left out, unless they are required.

    Args:
        fields: As `fields_of` made them.
        form: The values that were sent, by name.
    """
    values: dict[str, Any] = {}
    filled: list[Field] = []
    readable = True
    for field in fields:
        given = form.get(field.name, ())
        if field.kind == "group" and not field.required and not _is_touched(field, form):
            # A group's required fields are required only if the group is given.
            filled.append(field)
            continue
        if field.kind == "group":
            inner = read_fields(field.fields, form)
            readable = readable and inner.is_readable
            if inner.input or field.required:
                values[field.path[-1]] = inner.input
            filled.append(replace(field, fields=inner.fields))
            continue
        value, typed, problem = _read(field, [text.replace("\r\n", "\n") for text in given])
        if value is not _NOTHING:
            values[field.path[-1]] = value
        elif not problem and field.required:
            problem = _NEEDED
        readable = readable and not problem
        filled.append(replace(field, value=typed, problem=problem))
    return Filled(values, tuple(filled), readable)


def _is_touched(group: Field, form: Mapping[str, Sequence[str]]) -> bool:
    """Whether anything in a group was filled in."""
    return any(
        _is_touched(field, form) if field.kind == "group" else any(form.get(field.name, ()))
        for field in group.fields
    )


_NOTHING: Final = object()


def _read(field: Field, given: list[str]) -> tuple[Any, str | tuple[str, ...], str]:
    """A field's value or `_NOTHING`, the text to show in it again, and its problem."""
    text = given[0] if given else ""
    match field.kind:
        case "check":
            return bool(given), "on" if given else "", ""
        case "choices":
            known = {sent for sent, _ in field.options}
            chosen = tuple(sent for sent in given if sent in known)
            return [json.loads(sent) for sent in chosen] if chosen or field.required else _NOTHING, chosen, ""
        case "choice":
            if not text:
                return _NOTHING, "", ""
            if text not in {sent for sent, _ in field.options}:
                return _NOTHING, "", "Choose one of the values."
            return json.loads(text), text, ""
        case "lines":
            lines = [line for line in text.split("\n") if line.strip()]
            if not lines:
                return [] if field.required else _NOTHING, text, ""
            if field.element == "string":
                return lines, text, ""
            numbers = [_number(line, field.element) for line in lines]
            wrong = next((line for line, number in zip(lines, numbers, strict=True) if number is None), None)
            if wrong is not None:
                return _NOTHING, text, f"{wrong.strip()[:40]!r} is not {_a_number(field.element)}."
            return numbers, text, ""
        case "number":
            if not text.strip():
                return _NOTHING, text, ""
            number = _number(text, field.element)
            return (
                (_NOTHING, text, f"Write {_a_number(field.element)}.")
                if number is None
                else (number, text, "")
            )
        case "json":
            if not text.strip():
                return _NOTHING, text, ""
            try:
                return parse_json(text), text, ""
            except ValueError as error:
                return _NOTHING, text, f"This is not JSON: {error}."
        case _:
            return text if text else _NOTHING, text, ""


def parse_json(text: str) -> Any:
    """Read JSON that a person wrote.

    Raises:
        ValueError: It is none; the message says where.
    """

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not a JSON number")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        raise ValueError(f"{what}, line {error.lineno}, column {error.colno}") from None


def _number(text: str, kind: str) -> int | float | None:
    text = text.strip()
    if re.fullmatch(r"[+-]?\d{1,300}", text):
        return int(text)
    if kind == "integer" or not re.fullmatch(
        r"[+-]?(\d{1,300}\.?\d{0,300}|\.\d{1,300})([eE][+-]?\d{1,4})?", text
    ):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _a_number(kind: str) -> str:
    return "a whole number, such as 3" if kind == "integer" else "a number, such as 3 or 0.5"


# ---- Problems at their fields


def place_problems(
    fields: Sequence[Field], problems: Sequence[str]
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """Put each problem to the field that it is about.

    Args:
        fields: As they were filled in.
        problems: As `InputSchema.problems` gives them: a JSON path, a colon, and words.

    Returns:
        The fields, and the problems that belong to none.
    """
    rest = list(problems)

    def placed(field: Field) -> Field:
        if field.fields:
            field = replace(field, fields=tuple(placed(inner) for inner in field.fields))
        for problem in tuple(rest):
            place, _, words = problem.partition(": ")
            if any(_begins(place, path) for path in _json_paths(field.path)):
                rest.remove(problem)
                if not field.problem:
                    field = replace(field, problem=_sentence(words))
        return field

    return tuple(placed(field) for field in fields), tuple(rest)


def _begins(place: str, path: str) -> bool:
    return place == path or (place.startswith(path) and place[len(path)] in ".[")


def _json_paths(path: Sequence[str]) -> set[str]:
    """The ways in which a path may be written."""
    dotted = "$" + "".join(f".{part}" for part in path)
    mixed = "$" + "".join(
        f".{part}" if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", part) else f"['{part}']" for part in path
    )
    return {dotted, mixed}


def _sentence(words: str) -> str:
    words = words.strip()
    if words == "is missing":
        return _NEEDED
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}" if words else _NEEDED


def _text(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else _json(value)
