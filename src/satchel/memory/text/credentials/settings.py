"""Names with values: code, files of settings, JSON, connection strings, netrc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from satchel.memory.text.credentials.secret import (
    PUNCTUATION_END,
    SAID_OF_IT,
    Secret,
    is_placeholder,
    is_random,
    kind_of,
    spans,
)

NAMES: Final = (
    r"pass(?:word|wd|phrase|code|wort)|kennwort|contraseña|mot de passe|pwd|secret|api[_\-. ]?key|apikey"
    r"|access[_\-. ]?key"
    r"|secret[_\-. ]?key|private[_\-. ]?key|encryption[_\-. ]?key|signing[_\-. ]?key|auth[_\-. ]?key|account[_\-. ]?key"
    r"|shared[_\-. ]?key|key[_\-]data|token|client[_\-. ]?secret|credentials?|db[_\-]?pass|_pass|passw|psk|_auth"
)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
# name = value, name: value, "name": "value", --name value, also in JSON inside of JSON; the value alone is replaced.
_PAIR: Final = re.compile(
    rf"(?P<name>(?:{NAMES})(?:[_\-.][A-Za-z0-9]{{1,30}}){{0,4}}(?P<camel>(?-i:[A-Z][a-z]{{2,15}}){{0,3}}))\\{{0,7}}[\"'`]?\]?"
    r"(?P<between>\s{0,4}(?::=|=>|==?|:)\s{0,4})"
    r"(?:(?P<mark>\\{0,7}[\"'`])(?P<quoted>[^\"'`\n]{3,400}?)(?P=mark)|(?P<plain>[^\s\"'`,;(){}\[\]<>]{3,400}))",
    re.IGNORECASE,
)
_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9]{1,30}[_\-.]){0,4}\Z")
# In capitals, without blanks around "=", the end of a name is enough: SSHPASS=…, PGPASSWORD='…'.
_VARIABLE: Final = re.compile(
    r"(?<![A-Za-z0-9_$])(?!(?:BY|COM|TRES|SUR|UNDER|OVER|ENCOM)PASS)[A-Z][A-Z0-9_]{0,40}(?:PASS|PASSWORD|PASSWD|PWD|PASSPHRASE|SECRET)="
    r"(?:\"(?P<double>[^\"\n$]{3,200})\"|'(?P<single>[^'\n]{3,200})'|(?P<bare>[^\s\"'`;|&<>()$]{3,200}))"
)
# "auth": "dXNlcjpwYXNz" and _auth=…: a name and a password in base64.
_BASIC: Final = re.compile(
    r"(?:\"auth\"\s*:\s*\"|(?<!\w)_auth(?:Token)?\s*=\s*\"?)([A-Za-z0-9+/_-]{8,400}={0,2})"
)
# define('DB_PASSWORD', 'x'), setenv("X_SECRET", "y")
_ARGUMENT: Final = re.compile(
    r"[\"'](?=[A-Z0-9_]*(?:PASS|SECRET|TOKEN|_KEY|PWD))[A-Z][A-Z0-9_]{2,40}[\"']\s*,\s*([\"'])(?P<value>[^\"'\n]{3,200})\1"
)
# auth=("ann", "x"), BasicAuth("ann", "x")
_PAIRED: Final = re.compile(
    r"(?:\bauth\s*=\s*|Auth)\(\s*[\"'][^\"'\n]{1,100}[\"']\s*,\s*([\"'])(?P<value>[^\"'\n]{3,200})\1\s*\)"
)
_ELEMENT: Final = re.compile(
    r"<(?P<name>[\w:.-]*(?:password|passwd|secret|api[_-]?key|token))>(?P<value>[^<>\n]{3,400})</(?P=name)>",
    re.IGNORECASE,
)
_CONNECTED: Final = re.compile(
    r"(?:;|&|\?|(?<![,(\s])\s+|^)(?:password|passwd|pwd)\s?=\s?[\"']?([^;&\s\"',]{2,200})",
    re.IGNORECASE | re.MULTILINE,
)
_CONNECTS: Final = re.compile(
    r"\b(?:user(?: ?id|name)?|uid|server|host|data source|dbname|database|jdbc)\s*[=:]", re.IGNORECASE
)
_NETRC: Final = re.compile(
    r"\b(?:machine\s+\S{1,200}|default)\s+login\s+\S{1,200}\s+password\s+(\S{1,200})", re.IGNORECASE
)
_PGPASS: Final = re.compile(
    r"^(?:[\w.-]+|\*):(?:\d{4,5}|\*):[^:\s]{1,100}:[^:\s]{1,100}:((?:\\.|[^:\s]){3,200})$", re.MULTILINE
)
_WIFI: Final = re.compile(r"\bWIFI:(?:[A-OQ-Z]:(?:\\.|[^;\\\n])*;)*P:((?:\\.|[^;\\\n]){4,100});")
# Beside an account in a file of settings, "pass" is a password, even a plain word.
_BESIDE_USER: Final = re.compile(
    r"^[ \t-]*(?:user(?:name)?|login|account)[ \t]*:[^\n]*\n[ \t]*pass[ \t]*:[ \t]+(?P<mark>[\"']?)"
    r"(?P<value>[^\n\"'#]{4,100}?)(?P=mark)[ \t]*(?=\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
# Alone, it is one if it looks like one: "pass: 12" counts, and "PASS: " begins the result of a test.
_ALONE: Final = re.compile(
    r"^[ \t-]*(?-i:[Pp]ass)[ \t]*:[ \t]+(?P<mark>[\"']?)(?P<value>[^\s\"'#]{6,100})(?P=mark)[ \t]*(?=\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
# What passed: an address, a test, a moment, a file. A slash alone may be one of Base64.
_PASSED: Final = re.compile(
    r"\w+://|\S*::|\d{4}-\d\d-\d\d|(?:[\w.-]+/)+[\w.-]*\.[a-z]\w{0,4}\Z|[a-z\d_.-]+(?:/[a-z\d_.-]+)+\Z"
)
_NEXT_PARAMETER: Final = re.compile(r"&(?=[\w.-]{1,40}=)")
_NO_VALUE: Final = re.compile(
    r"(?:file|path|policy|length|min|max|field|hint|manager|dir|prompt|type|algorithm|expir\w*|ttl|encoder|column|label|regex"
    r"|placeholder|store|provider|class|id|name|url|uri|endpoint|method|scope|header|parallelism)\Z",
    re.IGNORECASE,
)


def find_in_files(text: str) -> Iterator[Secret]:
    """The secrets in a text whose place in a line says what they are."""
    lowered = text.lower()
    for hint, pattern in (("login", _NETRC), (":", _PGPASS), ("wifi:", _WIFI)):
        if hint in lowered:
            found = (m for m in pattern.finditer(text) if not is_placeholder(m[1]))
            yield from spans("password", (m for m in found if not SAID_OF_IT.fullmatch(m[1])), 1)
    if "pass" in lowered:
        alone = (m for m in _ALONE.finditer(text) if is_random(m["value"]) and not _PASSED.match(m["value"]))
        found = (m for m in (*_BESIDE_USER.finditer(text), *alone) if not is_placeholder(m["value"]))
        yield from spans("password", found, "value")


def find_settings(text: str) -> Iterator[Secret]:
    """The secrets in a text that are the values of names."""
    yield from _pairs(text)
    for match in _VARIABLE.finditer(text):
        group = match.lastgroup or "bare"
        if not is_placeholder(match[group]):
            yield Secret(kind=kind_of(match[0]), start=match.start(group), end=match.end(group))
    yield from spans("password", (m for m in _BASIC.finditer(text) if _is_basic(m[1])), 1)
    yield from spans(
        "password", (m for m in _ARGUMENT.finditer(text) if not is_placeholder(m["value"])), "value"
    )
    for pattern in (_PAIRED, _ELEMENT):
        found = (m for m in pattern.finditer(text) if not is_placeholder(m["value"]))
        yield from spans("password", (m for m in found if not SAID_OF_IT.fullmatch(m["value"])), "value")
    if _CONNECTS.search(text):
        yield from spans(
            "password", (m for m in _CONNECTED.finditer(text) if not is_placeholder(m[1] + "  ")), 1
        )


def _pairs(text: str) -> Iterator[Secret]:
    for match in _PAIR.finditer(text):
        before = text[max(0, match.start() - 100) : match.start()]
        prefix = _PREFIX.search(before)
        name = (prefix[0] if prefix is not None else "") + match["name"]
        is_camel = before[-1:].islower() and match["name"][0].isupper()
        # A variable like PGPASSWORD.
        is_variable = before[-1:].isupper() and match["name"].isupper() and match["between"] == "="
        is_suffix = match["name"][0] == "_"
        if before[-1:].isalpha() and not (is_camel or is_variable or is_suffix):
            continue  # in the middle of a word
        if is_counted(name) or _NO_VALUE.search(name):
            continue
        quoted, plain = match["quoted"], match["plain"]
        if quoted is not None:
            is_phrase = " " in quoted.strip() and not match["name"].lower().startswith("psk")
            # passwordChanged has a time, passwordStrength a level.
            is_one = (
                len(quoted) >= 8 and is_random(quoted) and not _DAY.match(quoted)
                if match["camel"]
                else len(quoted) >= 4
            )
            if not is_phrase and is_one and not is_placeholder(quoted) and not _names_variable(name, quoted):
                yield Secret(kind=kind_of(name), start=match.start("quoted"), end=match.end("quoted"))
            continue
        value = _NEXT_PARAMETER.split(plain, maxsplit=1)[0].rstrip(PUNCTUATION_END)
        # NAME=value or NAME: value in capitals is a file of settings: its values are literal.
        is_setting = (name.isupper() or is_variable) and match["between"] in ("=", ":", ": ", " = ")
        if len(value) < (3 if is_setting and match["between"] == "=" else 4) or is_placeholder(value):
            continue
        if (is_random(value) or is_setting) and not _names_variable(name, value):
            yield Secret(
                kind=kind_of(name), start=match.start("plain"), end=match.start("plain") + len(value)
            )


def _names_variable(name: str, value: str) -> bool:
    """Whether a value is the name of the variable that holds the secret: `env_api_key = "MINE_API_KEY"`."""
    words = value.split("_")
    last = re.split(r"[_\-. ]", name)[-1]
    return len(words) > 1 and value.isupper() and all(map(str.isalpha, words)) and words[-1] == last.upper()


def _is_basic(value: str) -> bool:
    return is_random(value) and not is_placeholder(value)


def is_counted(name: str) -> bool:
    """Whether a name speaks of tokens that are counted, or of a key that is public."""
    return (
        re.search(
            r"tokens|token_?(?:count|s|type|id|limit|budget|url|endpoint|length)|max_?token|num_?token|public|tokeniz",
            name.lower(),
        )
        is not None
    )
