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
    r"pass(?:word|wd|phrase|code|wort)|kennwort|contraseña|mot de passe|pwd|secret"
    r"|(?:api|access|secret|private|encryption|signing|auth|account|shared)[_\-. ]?key|key[_\-]data|token"
    r"|client[_\-. ]?secret|credentials?|db[_\-]?pass|_pass|passw|sshpass|psk|_auth"
)
# In capitals, the end of a name is enough: SMTPPASS=…, and not BYPASS=….
_IN_CAPITALS: Final = (
    r"(?-i:(?<=[A-Z0-9])(?<!BY)(?<!COM)(?<!TRES)(?<!SUR)(?<!UNDER)(?<!OVER)PASS(?=[\"']?[=,]))"
)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
# name = value, name: value, "name": "value" (also in JSON inside of JSON), <name>value</name>, define("NAME", "value");
# the value alone is replaced.
_PAIR: Final = re.compile(
    rf"(?P<name>(?:{NAMES}|{_IN_CAPITALS})(?:[_\-.][A-Za-z0-9]{{1,30}}){{0,4}}(?P<camel>(?-i:[A-Z][a-z]{{2,15}}){{0,3}}))\\{{0,7}}[\"'`]?\]?"
    r"(?P<between>\s{0,4}(?::=|=>|==?|:)\s{0,4}|(?<=[\"'])\s?,\s?(?=[\"'])|>)"
    r"(?:(?P<mark>\\{0,7}[\"'`])(?P<quoted>[^\"'`\n]{3,400}?)(?P=mark)|(?P<plain>(?<=>)[^<>\n]{3,400}(?=</)|[^\s\"'`,;(){}\[\]<>]{3,400}))",
    re.IGNORECASE,
)
_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9]{1,30}[_\-.]){0,4}\Z")
# "auth": "dXNlcjpwYXNz" and _auth=…: a name and a password in base64.
_BASIC: Final = re.compile(
    r"(?:\"auth\"\s*:\s*\"|(?<!\w)_auth(?:Token)?\s*=\s*\"?)([A-Za-z0-9+/_-]{8,400}={0,2})"
)
# auth=("ann", "x"), BasicAuth("ann", "x")
_PAIRED: Final = re.compile(
    r"(?:\bauth\s*=\s*|Auth)\(\s*[\"'][^\"'\n]{1,100}[\"']\s*,\s*([\"'])(?P<value>[^\"'\n]{3,200})\1\s*\)"
)
_CONNECTS: Final = re.compile(
    r"\b(?:user(?: ?id|name)?|uid|server|host|data source|dbname|database|jdbc)\s*[=:]", re.IGNORECASE
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
    for hint, pattern in ((":", _PGPASS), ("wifi:", _WIFI)):
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
    basic = (m for m in _BASIC.finditer(text) if is_random(m[1]) and not is_placeholder(m[1]))
    yield from spans("password", basic, 1)
    found = (m for m in _PAIRED.finditer(text) if not is_placeholder(m["value"]))
    yield from spans("password", (m for m in found if not SAID_OF_IT.fullmatch(m["value"])), "value")


def _pairs(text: str) -> Iterator[Secret]:
    connects = _CONNECTS.search(text) is not None
    for match in _PAIR.finditer(text):
        before = text[max(0, match.start() - 100) : match.start()]
        prefix = _PREFIX.search(before)
        name = (prefix[0] if prefix is not None else "") + match["name"]
        between, group = match["between"].strip(), "plain" if match["quoted"] is None else "quoted"
        value = match[group]
        is_camel = before[-1:].islower() and match["name"][0].isupper()
        # A variable like PGPASSWORD.
        is_variable = (
            before[-1:].isupper() and match["name"].isupper() and match["between"] in ("=", ">", ", ", ",")
        )
        is_suffix = match["name"][0] == "_"
        if before[-1:].isalpha() and not (is_camel or is_variable or is_suffix):
            continue  # in the middle of a word
        # NAME=value or NAME: value in capitals is a file of settings: its values are literal.
        is_literal = (name.isupper() or is_variable) and between in ("=", ":", ",")
        is_literal |= between == ">" and text.startswith("</", match.end())
        if is_counted(name) or _NO_VALUE.search(name) or (between in (">", ",") and not is_literal):
            continue
        if group == "plain" and text[match.end() : match.end() + 1] in ("(", "["):
            continue  # a call, or an item of something
        if group == "plain":
            value = _NEXT_PARAMETER.split(value, maxsplit=1)[0].rstrip(PUNCTUATION_END)
            # "login(user=name, password=password)" is no connection.
            is_connection = connects and between == "=" and name.lower() in ("password", "passwd", "pwd")
            is_literal |= is_connection and before.rstrip(" ")[-1:] not in (",", "(")
            is_one = is_random(value) or is_literal
            least = 3 if is_literal and match["between"] == "=" else 4
        else:
            is_phrase = " " in value.strip() and not (is_literal and between in ("=", ","))
            is_one, least = not is_phrase or match["name"].lower().startswith("psk"), 4
            if match["camel"]:  # passwordChanged has a time, passwordStrength a level.
                is_one, least = is_one and is_random(value) and not _DAY.match(value), 8
        if is_one and len(value) >= least and not is_placeholder(value) and not _names_variable(name, value):
            yield Secret(kind=kind_of(name), start=match.start(group), end=match.start(group) + len(value))


def _names_variable(name: str, value: str) -> bool:
    """Whether a value is the name of the variable that holds the secret: `env_api_key = "MINE_API_KEY"`."""
    words = value.split("_")
    last = re.split(r"[_\-. ]", name)[-1]
    return len(words) > 1 and value.isupper() and all(map(str.isalpha, words)) and words[-1] == last.upper()


def is_counted(name: str) -> bool:
    """Whether a name speaks of tokens that are counted, or of a key that is public."""
    return (
        re.search(
            r"tokens|token_?(?:count|s|type|id|limit|budget|url|endpoint|length)|max_?token|num_?token|public|tokeniz",
            name.lower(),
        )
        is not None
    )
