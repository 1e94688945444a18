"""Turns a server's request for input (elicitation) into questions, and the user's words into the server's answer.

A server asks for a form of a few plain fields, or sends the user to an address. A user who is present is asked field
by field. Otherwise one question holds the whole form, and is answered with `field: value` lines or with JSON. Every
question names the server, and can be declined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from satchel.errors import UsageError
from satchel.plain import json_in
from satchel.tools.input_schema import InputSchema
from satchel.tools.port import Question
from satchel.tools.visible import hidden_in, visible

Value: TypeAlias = str | int | float | bool | list[str] | None

_DECLINING = frozenset({"decline", "/decline", "no thanks", "cancel"})
_YES = frozenset({"yes", "y", "true", "on", "1", "ok", "okay", "accept", "done"})
_NO = frozenset({"no", "n", "false", "off", "0"})
_MAX_CHARS = 2_000
"""Characters of a server's text that a question shows."""
_MAX_OPTIONS = 20
_MAX_FIELDS = 50
"""Fields of one form: the user is asked for each."""
_MAX_URL = 2_000
_SECRET = frozenset(
    [
        "password",
        "passwords",
        "passwort",
        "kennwort",
        "passphrase",
        "passcode",
        "secret",
        "secrets",
        "token",
        "pin",
        "cvv",
        "cvc",
        "otp",
        "2fa",
        "mfa",
        "ssn",
        "credentials",
    ]
) | {"api key", "private key", "access key", "credit card", "card number", "security code", "recovery phrase"}
"""Words, and pairs of words, of a form that asks for a secret, which the protocol forbids."""
_WARNING = (
    "(A server should never ask for passwords, keys or card numbers like this: it can read and keep them. "
    "Decline unless you are sure.)"
)
_FORMATS = {
    "date": "a date like 2026-01-31",
    "date-time": "a time like 2026-01-31T12:00:00+01:00",
    "email": "an e-mail address",
    "uri": "an address like https://example.com",
}
"""The protocol's formats in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitation:
    """What a server wants to know.

    Attributes:
        fields: The form's JSON Schema properties by name; none for a yes-or-no question.
        required: The names of the fields that must be answered.
        url: The address that the user is sent to, instead of a form.
        step: The number of this field, from 1, and of all fields, where a form is asked field by field; an empty
            answer then skips the field.
    """

    server: str
    message: str
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    url: str = ""
    step: tuple[int, int] | None = None

    @classmethod
    def read(cls, server: str, params: Mapping[str, Any]) -> Elicitation:
        """Read the protocol's parameters (`message` with `requestedSchema`, or with `url`)."""
        schema = params.get("requestedSchema")
        schema = schema if isinstance(schema, Mapping) else {}
        properties, required = schema.get("properties"), schema.get("required")
        return cls(
            server=server,
            message=str(params.get("message", "")),
            fields={
                str(name): _field(part)
                for name, part in (properties.items() if isinstance(properties, Mapping) else ())
            },
            required=frozenset(str(name) for name in required) if isinstance(required, list) else frozenset(),
            url=str(params.get("url") or ""),
        )

    @property
    def problem(self) -> str:
        """Why the user is not asked this at all, as a sentence without its full stop; "" where they are."""
        if len(self.fields) > _MAX_FIELDS:
            return f"A form has at most {_MAX_FIELDS} fields, and this one has {len(self.fields):,}"
        if self.url and not _host(self.url):
            return "It names something other than the address of a web page"
        return ""

    @property
    def wants_secret(self) -> bool:
        """Whether it seems to ask for a password, a key or the like."""
        about = [self.message]
        for name, part in self.fields.items():
            about += [name, *(str(part.get(key, ""))[:_MAX_CHARS] for key in ("title", "description"))]
        return not self.url and any(_names_secret(text[:_MAX_CHARS]) for text in about)

    def steps(self) -> tuple[Elicitation, ...]:
        """One elicitation a field; itself where it has one field or none."""
        if len(self.fields) < 2:
            return (self,)
        return tuple(
            replace(self, fields={name: part}, step=(number, len(self.fields)))
            for number, (name, part) in enumerate(self.fields.items(), start=1)
        )

    def to_json(self) -> dict[str, Any]:
        """As the protocol's parameters; `read` takes them."""
        if self.url:
            return {"message": self.message, "url": self.url}
        schema = {"properties": {name: dict(part) for name, part in self.fields.items()}}
        return {"message": self.message, "requestedSchema": {**schema, "required": sorted(self.required)}}

    def question(self, problem: str = "") -> Question:
        """What the user is asked. `problem` says why their last answer was not accepted."""
        lines = [f"The MCP server {self.server!r} asks: {_quoted(self.message)}"]
        options: tuple[str, ...] = ()
        if self.step is not None:
            number, count = self.step
            name, part = next(iter(self.fields.items()))
            lines.append(
                "Press Enter to skip a field or take its default. 'decline' ends this, and the server is told nothing."
            )
            lines = lines if number == 1 else []
            lines.append(f"{number} of {count}: {_described(name, part, is_required=name in self.required)}")
        elif self.url:
            host = _host(self.url)
            # Letters of other scripts look like those of a host that the user trusts.
            told = "" if self.url.isascii() else f" (its host is {host})"
            lines.append(f"Open this address if you trust it: {_plain(self.url)}{told}")
            lines.append("Answer 'done' when you have, or 'decline'.")
            options = ("done", "decline")
        elif not self.fields:
            options = ("yes", "decline")
        elif len(self.fields) == 1:
            name, part = next(iter(self.fields.items()))
            options = (*(_plain(title) for title in list(_choices(part))[:_MAX_OPTIONS]), "decline")
            lines.append(f"Answer with {_described(name, part, is_required=True)}, or 'decline'.")
        else:
            lines.append("Answer with a line for each field, 'name: value', or 'decline':")
            lines += [
                f"- {_described(name, part, is_required=name in self.required)}"
                for name, part in self.fields.items()
            ]
            options = ("decline",)
        if self.wants_secret:
            lines.append(_WARNING)
        if problem:
            lines.append(f"(Your last answer was not accepted: {_plain(problem)})")
        return Question(text="\n".join(lines), options=options, is_secret=self.wants_secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationAnswer:
    """The answer to the server.

    Attributes:
        problem: Why the user's words can't be read as an answer; then nothing is sent yet.
    """

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Value] | None = None
    problem: str = ""


def read_answer(elicitation: Elicitation, text: str) -> ElicitationAnswer:
    """Read the user's words.

    Args:
        elicitation: What was asked.
        text: As typed. An empty text declines; for one field of several, it skips the field.
    """
    said = text.strip()
    answer = _read(elicitation, said)
    if answer.problem and said and elicitation.wants_secret:
        # The problem quotes the answer, and goes into the log and to the model.
        return replace(answer, problem="it is not what the form asks for")
    return answer


def _read(elicitation: Elicitation, said: str) -> ElicitationAnswer:
    if not said and elicitation.step is not None:
        name, part = next(iter(elicitation.fields.items()))
        if part.get("default") is not None:
            return ElicitationAnswer(action="accept", content={name: part["default"]})
        if name in elicitation.required:
            return ElicitationAnswer(action="cancel", problem="this field is required; 'decline' ends this")
        return ElicitationAnswer(action="accept", content={})
    if not said or said.lower().rstrip(".!") in _DECLINING:
        return ElicitationAnswer(action="decline")
    if elicitation.url or not elicitation.fields:
        if said.lower().rstrip(".!") in _NO:
            return ElicitationAnswer(action="decline")
        # Anything other than a plain yes may mean the opposite.
        if said.lower().rstrip(".!") not in _YES:
            return ElicitationAnswer(action="cancel", problem="answer yes or decline")
        return ElicitationAnswer(action="accept", content=None if elicitation.url else {})
    given = _fields_in(elicitation, said)
    if isinstance(given, str):
        return ElicitationAnswer(action="cancel", problem=given)
    content: dict[str, Value] = {}
    answered: dict[str, Value] = {}
    for name, part in elicitation.fields.items():
        if name not in given:
            if name in elicitation.required and part.get("default") is None:
                return ElicitationAnswer(action="cancel", problem=f"{name} is missing")
            if part.get("default") is not None:
                content[name] = part["default"]
            continue
        try:
            answered[name] = _value(part, given[name])
        except ValueError as error:
            return ElicitationAnswer(action="cancel", problem=f"{name}: {error}")
    # Where the form is no JSON Schema, the server judges the answer.
    with suppress(UsageError):
        for problem in InputSchema({"properties": dict(elicitation.fields)}, formats=True).problems(answered):
            return ElicitationAnswer(action="cancel", problem=problem.removeprefix("$."))
    return ElicitationAnswer(action="accept", content={**content, **answered})


def _fields_in(elicitation: Elicitation, said: str) -> dict[str, Any] | str:
    """The words for each field, not yet converted; or why they can't be read."""
    names = list(elicitation.fields)
    if said.startswith("{"):
        value = json_in(said)
        if isinstance(value, dict) and (len(names) > 1 or set(value) <= set(names)):
            unknown = [name for name in value if name not in elicitation.fields]
            return f"there is no field {unknown[0]!r}" if unknown else value
    if len(names) == 1:
        prefix = re.match(rf"{re.escape(names[0])}\s*[:=]\s*", said)
        return {names[0]: said[prefix.end() :] if prefix else said}
    folded = {name.casefold(): name for name in names}
    given: dict[str, Any] = {}
    # A comma separates too, where a field's name follows it.
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    parts = re.split(rf"\n|[,;]\s*(?=(?:{pattern})\s*[:=])", said, flags=re.IGNORECASE)
    for part in parts:
        if not part.strip():
            continue
        name, separator, value = re.sub(r"^\s*-\s*", "", part).partition(":" if ":" in part else "=")
        known = folded.get(name.strip().casefold())
        if not separator or known is None:
            return f"{part.strip()[:80]!r} is not a line 'name: value' for one of: {', '.join(names)}"
        given[known] = value.strip()
    return given


def _value(part: Mapping[str, Any], said: Any) -> Value:
    """The answer converted to the field's type. What else the field demands is checked later.

    Raises:
        ValueError: It can't be converted; says why.
    """
    kind = part.get("type")
    choices = _choices(part)
    if kind == "array":
        items = part.get("items")
        allowed = _choices(items if isinstance(items, Mapping) else {})
        words = said if isinstance(said, list) else [word.strip() for word in str(said).split(",")]
        return [_choice(allowed, str(word)) for word in words if str(word)]
    if choices:
        return _choice(choices, str(said))
    if kind == "boolean":
        if isinstance(said, bool):
            return said
        word = str(said).strip().lower().rstrip(".!")
        if word in _YES | _NO:
            return word in _YES
        raise ValueError("answer yes or no")
    if kind in ("integer", "number"):
        try:
            return int(str(said).strip()) if kind == "integer" else float(str(said).strip())
        except ValueError:
            what = "whole number" if kind == "integer" else "number"
            raise ValueError(f"{str(said)[:80]!r} is not a {what}") from None
    return said if isinstance(said, str) else json.dumps(said)


def _field(part: object) -> Mapping[str, Any]:
    """A field of a form. One that may be null is what it is otherwise: whoever leaves it out says that."""
    kinds = part.get("anyOf") if isinstance(part, Mapping) else None
    match [kind for kind in kinds if kind != {"type": "null"}] if isinstance(kinds, list) else []:
        case [Mapping() as only] if isinstance(part, Mapping):
            return {**only, **{key: value for key, value in part.items() if key != "anyOf"}}
    return part if isinstance(part, Mapping) else {}


def _choices(part: Mapping[str, Any]) -> dict[str, str]:
    """The values that a field allows, by title: an `enum`, or titled values (`oneOf`, `anyOf`)."""
    listed, names = part.get("enum"), part.get("enumNames")
    if isinstance(listed, list):
        titles = names if isinstance(names, list) and len(names) == len(listed) else listed
        return {str(title): str(value) for title, value in zip(titles, listed, strict=True)}
    for key in ("oneOf", "anyOf"):
        titled = part.get(key)
        if isinstance(titled, list):
            return {
                str(each.get("title", each["const"])): str(each["const"])
                for each in titled
                if isinstance(each, Mapping) and "const" in each
            }
    return {}


def _choice(allowed: Mapping[str, str], said: str) -> str:
    """The value that the user means, given by title or as it is."""
    if not allowed or said in allowed.values():
        return said
    folded = {value.casefold(): value for value in allowed.values()}
    folded |= {title.casefold(): value for title, value in allowed.items()}
    found = folded.get(said.strip().casefold())
    if found is None:
        raise ValueError(f"{said[:80]!r} is not one of {', '.join(list(allowed)[:_MAX_OPTIONS])}")
    return found


def _described(name: str, part: Mapping[str, Any], *, is_required: bool) -> str:
    items = part.get("items")
    choices = _choices(part) or _choices(items if isinstance(items, Mapping) else {})
    kind = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "yes or no",
        "array": "some of",
    }.get(str(part.get("type")), "text")
    what = (
        f"{'some' if part.get('type') == 'array' else 'one'} of {_plain(', '.join(list(choices)[:_MAX_OPTIONS]))}"
        if choices
        else kind
    )
    if part.get("type") == "string":
        what = _FORMATS.get(str(part.get("format")), what)
    title = part.get("description") or part.get("title")
    default = part.get("default")
    if default is not None:
        what += f", {_plain(_as_typed(choices, default))} by default"
    elif not is_required:
        what += ", optional"
    words = f"{_plain(name)} ({what})"
    return f"{words}: {_plain(str(title))}" if title else words


def _as_typed(choices: Mapping[str, str], value: Any) -> str:
    """A default value as the user would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_as_typed(choices, each) for each in value[:_MAX_OPTIONS] if isinstance(each, str))
    if not isinstance(value, str | int | float):
        return "a value of the server's"  # the protocol allows no other kind of default
    return next((title for title, known in choices.items() if known == value), str(value))


def _names_secret(text: str) -> bool:
    """Whether a text has a word for a secret in it, also as `apiKey` or `api_key`."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    words = re.findall(r"[^\W_]+", apart.casefold())
    return not _SECRET.isdisjoint(words) or not _SECRET.isdisjoint(map(" ".join, pairwise(words)))


def _host(url: str) -> str:
    """The host of a web page's address, in ASCII; "" where it is no such address, or one that hides its host."""
    if len(url) > _MAX_URL or hidden_in(url) or re.search(r"[\s\\]", url):
        return ""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode()
    except (ValueError, UnicodeError):
        return ""
    is_page = parts.scheme in ("https", "http") and url.lower().startswith(f"{parts.scheme}://")
    return host if is_page and "@" not in parts.netloc else ""


def _plain(text: str) -> str:
    """A stranger's text on one line of a person's screen: bounded, with its invisible characters written out."""
    return " ".join(_bounded(text).splitlines())


def _quoted(text: str) -> str:
    """The same, where it may have several lines: each is quoted, so that none looks like what Satchel says."""
    return quoted(_bounded(text))


def _bounded(text: str) -> str:
    shown = visible(text[:_MAX_CHARS]).replace("\t", " ")
    return f"{shown} …" if len(text) > _MAX_CHARS else shown


def quoted(text: str) -> str:
    """A text of one line as it is, and one of several with a mark before each."""
    lines = text.splitlines()
    return text if len(lines) < 2 else "".join(f"\n> {line}".rstrip() for line in lines)
