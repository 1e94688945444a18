"""The cases of a capability: inputs, and what has to come of each. `tests/cases.jsonl` has one on each line.

    {"name": "a city", "input": {"city": "Austin"}, "expect": {"contains": "°C"}}
    {"name": "no city", "input": {}, "expect": {"error": "city"}}

`expect` has at least one of these properties, and all of them must hold for the result, a text:

| property   | value              | holds if |
|------------|--------------------|----------|
| `equals`   | text               | the result is exactly this |
| `contains` | text, or a list    | each of these is in the result |
| `lacks`    | text, or a list    | none of these is in the result |
| `matches`  | regular expression | it matches somewhere in the result (RE2: without look-around) |
| `json`     | JSON Schema        | the result is JSON that fits the schema |
| `error`    | text, or a list    | the input is refused with each of these in the complaint; stands alone |

A complaint is that of the input schema or the message of the exception that `run` raises; upper and lower case are
alike in it. `"network": true` marks a case that needs the hosts of the manifest; it is left out while the user has not
approved them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from satchel.errors import UsageError
from satchel.plain import as_json, encodable
from satchel.tools.input_schema import InputSchema, check_schema, type_in_words
from satchel.wording import counted

_MAX_CASES: Final = 50
_MAX_LINE: Final = 64 * 1024
"""Bytes of one case: an input of a few pages."""
_MAX_PATTERN_MEMORY: Final = 2_097_152
_TEXTS: Final = ("contains", "lacks", "error")
_PROPERTIES: Final = ("equals", "matches", "json", *_TEXTS)
_BEFORE_NUMBER: Final = r"(?:^|[^-\d.,]|(?:^|\D)[.,])"
_AFTER_NUMBER: Final = r"(?:$|[^-\d.,]|[-.,](?:$|\D))"
_SHOWN: Final = 300
"""Characters of a result in a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case.

    Attributes:
        name: For messages; unique.
        network: It needs the hosts of the manifest.
    """

    name: str
    input: Mapping[str, Any]
    expect: Mapping[str, Any]
    network: bool = False

    @property
    def is_refusal(self) -> bool:
        """The input has to be refused."""
        return "error" in self.expect


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """How a case went.

    Attributes:
        passed: None if the case was left out because it needs hosts that are not approved.
        reason: Why it did not pass, or was left out.
    """

    name: str
    passed: bool | None
    reason: str = ""
    wall_ms: float = 0.0


def result_to_json(result: CaseResult) -> dict[str, Any]:
    """For the catalogue and `satchel capability test --json`."""
    return {**as_json(result), "wall_ms": round(result.wall_ms, 1)}


def number_pattern(number: str) -> str:
    """What `matches` a result in which a number stands that is no part of another one, nor of a date."""
    return f"{_BEFORE_NUMBER}{re.escape(number)}{_AFTER_NUMBER}"


def expectations(case: Case) -> tuple[str, ...]:
    """What a case expects, a sentence for each property."""
    expect = case.expect
    said: Mapping[str, Callable[[Any], str]] = {
        "equals": lambda value: f"The result is “{value}”.",
        "contains": lambda value: f"It says {_quoted(value, 'and')}.",
        "lacks": lambda value: f"It does not say {_quoted(value, 'or')}.",
        "matches": _form_in_words,
        "json": lambda value: f"It is data: {type_in_words(value)}.",
        "error": lambda value: f"It is refused, and the complaint says {_quoted(value, 'and')}.",
    }
    return tuple(say(expect[key]) for key, say in said.items() if key in expect)


def _form_in_words(pattern: str) -> str:
    if pattern.startswith(_BEFORE_NUMBER) and pattern.endswith(_AFTER_NUMBER):
        escaped = pattern.removeprefix(_BEFORE_NUMBER).removesuffix(_AFTER_NUMBER)
        number = re.sub(r"\\(.)", r"\1", escaped)
        return f"It gives the number {number}."
    return f"It has a part of the form {pattern}"


def _quoted(value: Any, word: str) -> str:
    *others, last = (f"“{text}”" for text in _texts(value))
    return f"{', '.join(others)} {word} {last}" if others else last


def checks_in_words(checks: Sequence[CaseResult]) -> str:
    """How many cases passed, and how many were left out and why, for the user: a part of a sentence."""
    left_out = [check for check in checks if check.passed is None]
    passed = f"{counted(sum(check.passed is True for check in checks), 'case')} passed"
    reasons = "; ".join(dict.fromkeys(check.reason for check in left_out))
    return f"{passed}, {len(left_out):,} left out: {reasons}" if left_out else passed


def parse_cases(text: str) -> tuple[Case, ...]:
    """Read the lines of `cases.jsonl`; empty lines are allowed.

    Raises:
        UsageError: A line is not a case. The message names each such line.
    """
    cases: list[Case] = []
    problems: list[str] = []
    # Not `splitlines`: in JSON, other line separators are ordinary characters.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if len(cases) + len(problems) >= _MAX_CASES:
            problems.append(f"line {number}: there are more than {_MAX_CASES} cases")
            break
        try:
            cases.append(_case(line, number))
        except UsageError as error:
            problems.append(f"line {number}: {error}")
    names = [case.name for case in cases]
    problems += [f"two cases are named {name!r}" for name in sorted({n for n in names if names.count(n) > 1})]
    if problems:
        raise UsageError("tests/cases.jsonl: " + "; ".join(problems))
    return tuple(cases)


def judge(case: Case, *, result: str | None, complaint: str) -> str:
    """Compare what came of a case with what it expects. `result` is what `run` returned; None if it was refused or
    failed, which `complaint` explains.

    Returns:
        "" if the case passed, otherwise the reason.
    """
    if case.is_refusal:
        if result is not None:
            return f"the input had to be refused, but the result was {_short(result)}"
        missing = [
            words for words in _texts(case.expect["error"]) if words.casefold() not in complaint.casefold()
        ]
        return f"the complaint lacks {_listed(missing)}: {_short(complaint)}" if missing else ""
    if result is None:
        return f"it failed: {_short(complaint)}"
    return next((reason for reason in _unmet(case.expect, result) if reason), "")


def _unmet(expect: Mapping[str, Any], result: str) -> Sequence[str]:
    reasons = []
    if "equals" in expect and result != expect["equals"]:
        reasons.append(f"the result is not {_short(expect['equals'])}: {_short(result)}")
    missing = [words for words in _texts(expect.get("contains", [])) if words not in result]
    if missing:
        reasons.append(f"the result lacks {_listed(missing)}: {_short(result)}")
    unwanted = [words for words in _texts(expect.get("lacks", [])) if words in result]
    if unwanted:
        reasons.append(f"the result contains {_listed(unwanted)}: {_short(result)}")
    if "matches" in expect and _pattern(expect["matches"]).search(encodable(result)) is None:
        reasons.append(f"the result does not match {expect['matches']!r}: {_short(result)}")
    if "json" in expect:
        reasons.append(_json_problem(expect["json"], result))
    return reasons


def _json_problem(schema: Mapping[str, Any], result: str) -> str:
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return f"the result is not JSON: {_short(result)}"
    try:
        # An object around both, because `InputSchema` checks objects.
        problems = InputSchema({"type": "object", "properties": {"result": schema}}).problems(
            {"result": value}
        )
    except UsageError as error:
        return str(error)
    return "; ".join(problems)


def _case(line: str, number: int) -> Case:
    if len(line.encode("utf-8", "replace")) > _MAX_LINE:
        raise UsageError(f"a case has at most {_MAX_LINE:,} bytes")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise UsageError("it is not a JSON object")
    unknown = sorted(value.keys() - {"name", "input", "expect", "network"})
    if unknown:
        raise UsageError(f"a case has name, input, expect and network, and not {_listed(unknown)}")
    name, given, expect = value.get("name", f"case {number}"), value.get("input"), value.get("expect")
    if not isinstance(name, str) or not name.strip() or len(name) > 200:
        raise UsageError("`name` is a text of at most 200 characters")
    if not isinstance(given, dict):
        raise UsageError("`input` is a JSON object, as `run` gets it")
    if not isinstance(value.get("network", False), bool):
        raise UsageError("`network` is true or false")
    return Case(name=name, input=given, expect=_expectation(expect), network=value.get("network", False))


def _expectation(expect: Any) -> Mapping[str, Any]:
    if not isinstance(expect, dict) or not expect:
        raise UsageError(f"`expect` is an object with at least one of {', '.join(_PROPERTIES)}")
    unknown = sorted(expect.keys() - set(_PROPERTIES))
    if unknown:
        raise UsageError(f"`expect` knows {', '.join(_PROPERTIES)}, and not {_listed(unknown)}")
    if "error" in expect and len(expect) > 1:
        raise UsageError("`error` stands alone: an input that is refused has no result")
    for key in _TEXTS:
        if key in expect and not (texts := _texts(expect[key])):
            raise UsageError(f"`{key}` is a text or a list of texts, none of them empty: {texts}")
    for key in ("equals", "matches"):
        if key in expect and not isinstance(expect[key], str):
            raise UsageError(f"`{key}` is a text")
    if "matches" in expect:
        _pattern(expect["matches"])
    if "json" in expect:
        if not isinstance(expect["json"], dict):
            raise UsageError("`json` is a JSON Schema")
        check_schema(expect["json"], subject="the schema in `json`")
    return expect


def _texts(value: Any) -> Sequence[str]:
    """A text or a list of texts; empty if it is neither."""
    texts = [value] if isinstance(value, str) else value
    return texts if isinstance(texts, list) and all(isinstance(text, str) and text for text in texts) else ()


def _pattern(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - 20 ms that only cases with a pattern pay

    options = re2.Options()
    options.max_mem = _MAX_PATTERN_MEMORY
    options.log_errors = False
    try:
        return re2.compile(encodable(pattern), options)
    except re2.error as error:
        raise UsageError(f"`matches` is not a regular expression that RE2 knows: {error}") from None


def _listed(words: Sequence[str]) -> str:
    return ", ".join(repr(word) for word in words)


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
