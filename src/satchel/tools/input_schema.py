"""Checks inputs against a tool's JSON Schema, in bounded time: the schema may be a stranger's.

A schema can be made to take forever: by a regular expression that backtracks, by references that double at every
level, by lists that are compared with every element of an input. Here patterns are matched in linear time, and every
other piece of work is paid for out of a budget. What stays within the budget is checked exactly.

Two things are left to the tool: patterns that can't be matched in linear time (those with look-around or
back-references), and `unevaluatedProperties` and `unevaluatedItems`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from satchel.errors import UsageError

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_INPUT_STEPS: Final = 60_000
"""For the check of one input. A step takes 2 to 15 µs, so the worst schema takes about a second. 1,500 objects of ten
fields each, more than a model can write in one call, take two thirds of it.
"""
_SCHEMA_STEPS: Final = 100_000
"""For the check of a schema itself: each part of it takes about 40."""
_MAX_PROBLEMS: Final = 5
"""Told to a model at once: enough to fix a call in one go, few enough to be read."""
_MAX_CHARS: Final = 300
"""Of one problem: the checker quotes the value, which may be a whole file."""
_MOST_LISTED: Final = 12
"""Names that a schema has, listed beside one that it has not."""
_PATTERN_MEMORY: Final = 2_097_152
"""Bytes that RE2 may use for one pattern; more than enough for any that a person wrote."""
_INVALID_PATTERN: Final = ("missing", "unexpected", "trailing", "no argument")
"""How RE2's errors about patterns begin that are invalid everywhere; others may only be beyond RE2."""
_TOO_DEEP: Final = "is nested too deeply"
_MOST_LEVELS: Final = 64
"""Levels of objects and lists in a schema. The validator takes 8 of Python's 1,000 stack frames for each; real schemas
have fewer than 20."""

_steps_left: ContextVar[list[int]] = ContextVar("steps_left")


class _OutOfStepsError(Exception):
    """The budget is spent."""


class InputSchema:
    """The schema of one tool's input, compiled when it is first used."""

    def __init__(self, schema: Mapping[str, Any], *, formats: bool = False) -> None:
        """Take the schema; `check_schema` has found nothing wrong with it, or `problems` raises. With `formats`, an
        e-mail address and a date have to look like one.
        """
        self._schema = schema
        self._formats = formats
        self._validator: Any = None

    def problems(self, input: Mapping[str, Any]) -> list[str]:
        """What is wrong with an input, a line for each place that has to change, with its JSON path.

        Raises:
            UsageError: The schema is not acceptable, or the input can't be checked in bounded time.
        """
        if self._validator is None:
            check_schema(self._schema)
            kind = _validator_class()
            checker = kind.FORMAT_CHECKER if self._formats else None
            self._validator = kind(self._schema, registry=_no_documents(), format_checker=checker)
        found = _bounded(
            lambda: sorted(self._validator.iter_errors(input), key=lambda error: error.json_path),
            steps=_INPUT_STEPS,
            subject="the input, or its schema,",
            too_long="the input is too large, or its schema too complex, to be checked. Send less at once",
        )
        lines = [line for error in found[:_MAX_PROBLEMS] for line in _lines(error)]
        return [*lines, f"and {len(found) - _MAX_PROBLEMS} more"] if len(found) > _MAX_PROBLEMS else lines


def fields_in_words(schema: Mapping[str, Any]) -> str:
    """The fields of an object with their types: "city: string, at?: {day: date}", where `at` may be left out."""
    required = schema.get("required", ())
    fields = schema.get("properties", {}).items()
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {type_in_words(field)}" for name, field in fields
    )


def type_in_words(schema: Any) -> str:
    """The type of a value: "date", "[string]", "{city: string}", the values of an enumeration, or "any"."""
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(map(type_in_words, choices))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"[{type_in_words(schema.get('items'))}]"
    if kind == "object" and schema.get("properties"):
        return f"{{{fields_in_words(schema)}}}"
    return str(schema.get("format") or (kind if isinstance(kind, str) else " | ".join(kind)))


def check_schema(schema: Mapping[str, Any], *, subject: str = "its input schema") -> None:
    """Check that a schema is one, and that checking an input against it reads nothing outside of it. Errors call it
    `subject`.

    Raises:
        UsageError: It is not acceptable; the message is a clause that says why, without a full stop.
    """
    if _is_deeper(schema, _MOST_LEVELS):
        raise UsageError(f"{subject} {_TOO_DEEP}")
    parts = list(_parts(schema))
    named = (part.get(key) for part in parts for key in ("$anchor", "$dynamicAnchor"))
    anchors = {name for name in named if isinstance(name, str)}
    # References in a part with an address of its own begin there.
    is_plain = not any("$id" in part for part in parts if part is not schema)
    for part in parts:
        for key in ("$ref", "$dynamicRef"):
            target = part.get(key)
            if isinstance(target, str) and not target.startswith("#"):
                raise UsageError(f"{subject} refers to {_short(repr(target))}, outside of itself")
            # A provider refuses every request in which one tool has such a schema.
            if (
                isinstance(target, str)
                and is_plain
                and target[1:] not in anchors
                and not isinstance(target_of(schema, target), Mapping | bool)
            ):
                raise UsageError(f"{subject} refers to {_short(repr(target))}, which is not in it")
        patterns = [part.get("pattern")]
        if isinstance(part.get("patternProperties"), Mapping):
            patterns += part["patternProperties"]
        for pattern in patterns:
            if isinstance(pattern, str) and (fault := _compiled(pattern)[1]):
                raise UsageError(
                    f"{subject} has the pattern {_short(repr(pattern))}, which is invalid: {fault}"
                )
    checker = _validator_class()
    first = _bounded(
        lambda: next(checker(checker.META_SCHEMA, registry=_no_documents()).iter_errors(schema), None),
        steps=_SCHEMA_STEPS,
        too_long=f"{subject} is too large or too complex to be checked",
        subject=subject,
    )
    if first is not None:
        raise UsageError(f"{subject} is invalid: at {first.json_path}, {_short(first.message)}")


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether data has more levels of objects and lists than this."""
    level = [value]
    for _ in range(levels):
        inner = [part for part in level if isinstance(part, Mapping | list | tuple)]
        level = [item for part in inner for item in (part.values() if isinstance(part, Mapping) else part)]
        if not level:
            return False
    return any(isinstance(part, Mapping | list | tuple) for part in level)


def target_of(schema: object, reference: str) -> object:
    """What a reference leads to inside a schema, as JSON pointers say it; None if there is nothing."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    place = schema
    for step in unquote(reference[2:]).split("/") if reference != "#" else ():
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping):
            place = place.get(step)
        elif isinstance(place, list | tuple) and re.fullmatch(r"\d{1,6}", step) and int(step) < len(place):
            place = place[int(step)]
        else:
            return None
    return place


def _bounded(work: Callable[[], Any], *, steps: int, subject: str, too_long: str) -> Any:
    """Do work with a budget of its own."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - see `_validator_class`

    token = _steps_left.set([steps])
    try:
        return work()
    except _OutOfStepsError:
        raise UsageError(too_long) from None
    except RecursionError:
        raise UsageError(f"{subject} {_TOO_DEEP}") from None
    except Unresolvable as error:
        raise UsageError(f"{subject} refers to {_short(repr(error.ref))}, which is not in it") from None
    except BaseException as error:
        # The validator's registry is written in Rust. A RecursionError in the middle of one of its comparisons becomes
        # a panic there, which is no `Exception` and would end the program.
        if type(error).__name__ != "PanicException":
            raise
        raise UsageError(f"{subject} {_TOO_DEEP}") from None
    finally:
        _steps_left.reset(token)


def _spend(steps: int) -> None:
    left = _steps_left.get()
    left[0] -= steps
    if left[0] < 0:
        raise _OutOfStepsError


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in a schema, at any depth."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)


# ---- The validator: jsonschema's, with its patterns and its costs changed


@cache
def _validator_class() -> Any:
    # Imported when a tool is first called, or a stranger's is read: 60 ms that other conversations never pay.
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.validators import extend  # noqa: PLC0415

    changed = {
        "additionalProperties": _additional_properties,
        "const": _priced(Draft202012Validator.VALIDATORS["const"], _weigh),
        "enum": _priced(Draft202012Validator.VALIDATORS["enum"], _weigh),
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "unevaluatedItems": _unchecked,
        "unevaluatedProperties": _unchecked,
        "uniqueItems": _unique_items,
    }
    keywords = {**Draft202012Validator.VALIDATORS, **changed}
    bounded = extend(Draft202012Validator, {name: _priced(function) for name, function in keywords.items()})
    fields = [(field.name, field.alias) for field in bounded.__attrs_attrs__ if field.init]

    def evolve(self: Any, **changes: Any) -> Any:
        # Every step down into a part of the schema comes through here, those that lead in circles too. jsonschema's own
        # function would hand a part with another `$schema` to another validator, which is not bounded.
        _spend(1)
        for name, argument in fields:
            if argument not in changes:
                changes[argument] = getattr(self, name)
        return type(self)(**changes)

    bounded.evolve = evolve
    return bounded


@cache
def _no_documents() -> Any:
    """A registry that fetches nothing: without one, jsonschema opens the addresses that a schema names."""
    from referencing import Registry  # noqa: PLC0415

    return Registry()


def _priced(function: Callable[..., Any], weigh: Callable[[Any], None] | None = None) -> Callable[..., Any]:
    """A keyword that pays for what it looks through and for what it says."""

    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        # One step for each eight entries: walking over them is that much cheaper than a step.
        _spend(1 + (_length(value) + _length(instance)) // 8)
        if weigh is not None:
            weigh(value)
        for error in function(validator, value, instance, schema) or ():
            # It quotes the value.
            _spend(len(error.message) // 100)
            yield error

    return keyword


def _length(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _weigh(value: Any) -> None:
    """Pay for every value in JSON data."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict | list):
            _spend(1 + len(part) // 8)
            waiting.extend(part.values() if isinstance(part, dict) else part)


def _unchecked(*_: Any) -> None:
    """Say nothing."""


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - see `_validator_class`

    if validator.is_type(instance, "string") and not _matches(pattern, instance, unknown=True):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, part in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name, unknown=False):
                    yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - see `_validator_class`

    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    # A name that an unknown pattern may fit is not held to be one too many.
    more = [
        name
        for name in instance
        if name not in known and not any(_matches(pattern, name, unknown=True) for pattern in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in more:
            yield from validator.descend(instance[name], allowed, path=name)
    elif allowed is False and more:
        names = ", ".join(repr(name) for name in sorted(more))
        if patterns:
            verb = "does" if len(more) == 1 else "do"
            regexes = ", ".join(repr(pattern) for pattern in sorted(patterns))
            yield ValidationError(f"{names} {verb} not match any of the regexes: {regexes}")
        else:
            verb = "was" if len(more) == 1 else "were"
            expected = f"; there are {', '.join(known)}" if 0 < len(known) <= _MOST_LISTED else ""
            yield ValidationError(
                f"Additional properties are not allowed ({names} {verb} unexpected{expected})"
            )


def _unique_items(validator: Any, is_wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - see `_validator_class`

    if is_wanted and validator.is_type(instance, "array"):
        _weigh(instance)
        # As JSON, 1 and 1.0 are the same number and 1 and true are not.
        seen = {json.dumps(_plain(item), sort_keys=True) for item in instance}
        if len(seen) < len(instance):
            yield ValidationError(f"{instance!r} has non-unique elements")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _matches(pattern: str, text: str, *, unknown: bool) -> bool:
    """Whether a text fits a pattern; `unknown` where nobody can tell in linear time."""
    compiled, _ = _compiled(pattern)
    if compiled is None:
        return unknown
    # RE2 takes at most 1 ns for each character and each state of the pattern.
    _spend(len(text) * compiled.programsize // 5_000)
    # A lone surrogate, which JSON allows, has no form in UTF-8.
    return compiled.search(text.encode("utf-8", "replace").decode()) is not None


@cache
def _re2() -> Any:
    # Imported when a schema has a pattern: 20 ms.
    import re2  # noqa: PLC0415

    return re2


def _compiled(pattern: str) -> tuple[Any, str]:
    """The pattern for RE2, or None; and what is wrong with it, where it is wrong everywhere."""
    re2 = _re2()
    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY
    options.never_capture = True
    options.log_errors = False
    # ECMAScript's way to write a character.
    written = re.sub(r"(?<!\\)((?:\\\\)*)\\u(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{4}))", r"\1\\x{\2\3}", pattern)
    try:
        return re2.compile(written, options), ""
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0] if error.args else ""
        fault = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(error)
        return None, fault if fault.startswith(_INVALID_PATTERN) else ""


# ---- Problems in words


def _lines(error: ValidationError) -> Sequence[str]:
    """One error in words, a line for each place that has to change."""
    path = error.json_path
    match error.validator:
        case "required":
            missing = error.message.split("' is a required")[0].removeprefix("'")
            return [f"{path}.{missing}: is missing"]
        case "anyOf" | "oneOf" if error.context:
            # The branch that came furthest says more than "fits none of them".
            from jsonschema.exceptions import best_match  # noqa: PLC0415 - see `_validator_class`

            best = best_match(error.context)
            return [f"{best.json_path}: {_short(best.message)} (or another of the allowed forms)"]
        case _:
            return [f"{path}: {_short(error.message)}"]


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS // 2]} … {text[-_MAX_CHARS // 2 :]}"
