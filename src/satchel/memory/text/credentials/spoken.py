"""Secrets in sentences: "the password for the router is Marmalade-42", "deploy with the password swordfish"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from satchel.memory.text.credentials.secret import (
    NETWORK,
    PUNCTUATION_END,
    SAID_OF_IT,
    Secret,
    is_hash,
    is_placeholder,
    is_random,
    spans,
)

_WHAT: Final = (
    r"pass ?(?:word|phrase|code)|pwd|pw|passwd|api[ -]?(?:key|token|secret)|secret key"
    r"|(?:access|auth|bearer|refresh) (?:key|token)"
    r"|client secret|security code|login code|passwort|kennwort|zugangscode"
)
# In other languages a value counts only if it is no plain word.
_ELSEWHERE: Final = (
    r"secret answer|contraseña|clave|mot de passe|mdp|senha|parola d'ordine|wachtwoord|hasło|lösenord|adgangskode"
    r"|passord|salasana|jelszó|heslo|parolă|şifre|пароль|кодовое слово"
)
_VERB: Final = (
    r"(?:\s*(?::|=|->|=>|→)\s*|,?\s+c['’]est\s+"
    r"|\s+(?:is|was|has been|got)\s+(?:changed|set|reset|updated|rotated)\s+to\s+"
    r"|\s+(?:is|was|are|will be|should be|used to be|has to be|becomes"
    r"|ist|lautet|war|es|est|est:|è|é|to|jest|är|er|on|это|-)"
    r"\s*(?:now\s+|still\s+|jetzt\s+)?:?\s+)"
)
_QUOTED_OR_VALUE: Final = (
    r"(?:(?P<mark>[\"'`“‘«„])(?P<quoted>[^\"'`”’»“\n]{3,100})[\"'`”’»“]|(?P<value>[^\s\"'`“”<>]{4,100}))"
)
_OF: Final = (
    r"(?:\s+(?:for|of|to|on|at|für|fürs|beim|vom|zum|pour|de|del|du|para|per|voor|do|для|от)"
    r"\s+[^\n.:;=!?]{1,60}?)?"
)
_SPOKEN: Final = re.compile(
    rf"\b(?:(?P<what>{_WHAT})s?|(?P<elsewhere>{_ELSEWHERE}))\b{_OF}{_VERB}{_QUOTED_OR_VALUE}",
    re.IGNORECASE,
)
_EASTERN: Final = re.compile(
    r"(?:密码|密碼|口令|パスワード|暗証番号|비밀번호|암호)(?:\s*(?:是|为|為|は|が|는|은|：|:|:|=)\s*|\s+)"
    r"(?P<value>[\d一二三四五六七八九零〇](?:[ -][\d一二三四五六七八九零〇]){3,11}|[!-~]{4,100})"
)
# "with the password X", and the verbs that go with it, have none between.
_GIVEN: Final = re.compile(
    r"\b(?:with|using|use|by|via|enter|type|try|needs|takes|mit|nimm|avec|con|com|met)"
    r"(?:\s+(?:the|this|that|my|our|his|her|their|your|a|root|admin|user|new|old|same|dem|le|la|el|o|a|il|het)){0,3}"
    rf"\s+(?P<what>{_WHAT}|{_ELSEWHERE}|key|token)\s*:?\s+{_QUOTED_OR_VALUE}",
    re.IGNORECASE,
)
# "wifi pw tulips123": with nothing between, only what has letters and digits, and is no method of hashing.
_BESIDE: Final = re.compile(
    rf"\b(?P<what>{_WHAT}|{_ELSEWHERE})\s+(?P<mark>)(?P<quoted>(?!))?(?P<value>(?=[^\s\d]*\d)(?=[^\sA-Za-z]*[A-Za-z])[^\s\"'`“”<>]{{6,100}})",
    re.IGNORECASE,
)
# "user ann, pass qwe789": beside an account, "pass" is a password.
_LOGIN: Final = re.compile(
    r"\b(?:user(?:name)?|login|account)\b[^\n]{1,60}?[\s,;/|]\s*(?P<what>pass)\s*:?\s+(?P<mark>)(?P<quoted>(?!))?"
    r"(?P<value>[^\s\"'`“”<>]{4,100})",
    re.IGNORECASE,
)
# A login page, a password policy and the password column of a table have no secret.
_NO_NOUN: Final = (
    r"(?=\s*(?:[.,;!?)\n]|\Z)|\s+(?:for|of|on|at|in|to|from|and|or|but|now|again|here|there|today|yesterday"
    r"|everywhere|so|because|since|as|with|für|bei|zum|und|pour|de|et|para|en|y)\b)"
)
# "Tulip88 as the password"; "reset the login from Old12 to New34".
_AS: Final = re.compile(
    r"(?<!\S)(?P<value>[^\s\"'`“”<>]{6,100})\s+(?:as|als|comme|como)\s+"
    rf"(?:(?:the|my|our|its|das|le|la)\s+)?(?:{_WHAT}|{_ELSEWHERE})\b{_NO_NOUN}",
    re.IGNORECASE,
)
_CHANGED: Final = re.compile(
    rf"\b(?:chang|reset|rotat|updat)\w*\s[^\n.:;=!?]{{0,40}}?\b(?:log-?in|{_WHAT})\b{_NO_NOUN}[^\n.:;=!?]{{0,40}}?"
    r"(?:\sfrom\s+(?P<old>[^\s\"'`“”<>]{6,100}))?\s+to\s+(?P<value>[^\s\"'`“”<>]{6,100})",
    re.IGNORECASE,
)
# "Grafana admin / Graf4na!x"
_ACCOUNT: Final = re.compile(
    r"\b(?:admin|root|administrator)[`*\"']{0,3}\s*/\s*[`*\"']{0,3}(?P<value>(?=\S*\d)(?=\S*[A-Za-z])[^\s\"'`*“”<>/]{6,100})"
    r"(?![^\s,;.`*\"'])",
    re.IGNORECASE,
)
# Sixteen letters in groups of four, as mail providers give them to one program.
_APP: Final = re.compile(
    r"\bapp(?:lication)?[ -](?:specific[ -])?passwords?\b[^\n]{0,60}?"
    r"(?P<value>(?<![a-z])[a-z]{4}(?:[ -][a-z]{4}){3})(?![a-z])"
)
_METHOD: Final = re.compile(
    r"(?:sha|md|rfc|pbkdf|oauth|argon|utf|base|bcrypt|scrypt|v|step|part|section|table|chapter)[-_]?\d",
    re.IGNORECASE,
)
# A bare "key" is many things; a long random value beside it is one.
_BARE: Final = re.compile(
    r"\b(?P<kind>key|token|secret|credential)s?\b(?:\s+(?:for|of|to|on|at|in)\s+[^\n.:;=!?]{1,60}?)?"
    r"\s*(?:['’]s|\s(?:is|was|are|ist|lautet)|:|=)"
    r"\s+[\"'`“‘«]?(?P<value>[A-Za-z0-9_+/=.~-]{12,400}|\d{8,11})(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_OTHER_KEYS: Final = re.compile(
    r"(?:primary|foreign|sort|cache|partition|public|row|hash|lookup|dict(?:ionary)?"
    r"|object|unique|natural|routing|group|index)[ _-]\Z",
    re.IGNORECASE,
)
_SHORTCUT: Final = re.compile(r"(?:ctrl|alt|shift|cmd|meta|super)\b", re.IGNORECASE)
_CLAUSE_END: Final = ".,;!\n"


def find_spoken(text: str) -> Iterator[Secret]:
    """The secrets that a text names in words."""
    for match in _EASTERN.finditer(text):
        value = match["value"].rstrip(PUNCTUATION_END)
        is_spaced = len(value) > 4 and value[1:2] in " -" and not value.isascii()
        is_spaced |= re.fullmatch(r"\d(?:[ -]\d)+", value) is not None
        if is_spaced or (len(value) >= 4 and is_random(value) and not is_placeholder(value)):
            start = match.start("value")
            yield Secret(kind="password", start=start, end=start + len(value))
    for match in _SPOKEN.finditer(text):
        what = match["what"] or match["elsewhere"]
        yield from _value_of(text, match, what, plain_too=match["what"] is not None)
    for match in _GIVEN.finditer(text):
        yield from _value_of(
            text, match, match["what"], plain_too=match["what"].lower() not in ("key", "token")
        )
    for match in _BESIDE.finditer(text):
        if not _METHOD.match(match["value"]):
            yield from _value_of(text, match, match["what"], plain_too=False)
    for match in _LOGIN.finditer(text):
        yield from _value_of(text, match, "password", plain_too=False)
    for pattern, group in ((_AS, "value"), (_CHANGED, "old"), (_CHANGED, "value")):
        for match in pattern.finditer(text):
            value = (match[group] or "").rstrip(PUNCTUATION_END)
            if _is_mixed(value) and not is_placeholder(value):
                yield Secret(kind="password", start=match.start(group), end=match.start(group) + len(value))
    yield from spans("password", _ACCOUNT.finditer(text), "value")
    yield from spans("password", _APP.finditer(text), "value")
    for match in _BARE.finditer(text):
        value = match["value"].rstrip(PUNCTUATION_END)
        before = text[max(0, match.start() - 12) : match.start()]
        if (
            (_is_strong(value) or _is_of_network(text, match, value))
            and not is_placeholder(value)
            and not _OTHER_KEYS.search(before)
        ):
            yield Secret(
                kind=kind_of(match["kind"]), start=match.start("value"), end=match.start("value") + len(value)
            )


def _value_of(text: str, match: re.Match[str], what: str, *, plain_too: bool) -> Iterator[Secret]:
    if match["quoted"] is not None:
        if not is_placeholder(match["quoted"]):
            yield Secret(kind=kind_of(what), start=match.start("quoted"), end=match.end("quoted"))
        return
    value = match["value"].rstrip(PUNCTUATION_END)
    if len(value) < 4 or value.startswith("[redacted") or is_placeholder(value):
        return
    if not is_random(value):
        # One plain word: it is the password only where nothing more is said of it.
        after = text[match.start("value") + len(value) : match.end("value") + 2]
        is_last = not after.strip() or after[0] in _CLAUSE_END
        if not plain_too or not is_last or SAID_OF_IT.fullmatch(value) or not value.isascii():
            return
    yield Secret(kind=kind_of(what), start=match.start("value"), end=match.start("value") + len(value))


def _is_mixed(value: str) -> bool:
    """Whether a value has letters and digits and is neither a method nor a number with its unit."""
    return (
        any(char.isdigit() for char in value)
        and sum(char.isalpha() for char in value) >= 3
        and not _METHOD.match(value)
        and "://" not in value
    )


def _is_strong(value: str) -> bool:
    """Whether a value can hardly be a name, a path, or a number that is counted."""
    has_digit = any(char.isdigit() for char in value)
    has_letter = any(char.isalpha() for char in value)
    words = re.split(r"[_./-]", value)
    longest = max(words, key=len)
    return (
        has_digit
        and has_letter
        and not _SHORTCUT.match(value)
        and len(longest) >= 12
        and not (is_hash(value) and len(value) < 16)
    )


def _is_of_network(text: str, match: re.Match[str], value: str) -> bool:
    """Whether a value is a number as routers have it for a key: at least eight digits (WPA)."""
    around = text[max(0, match.start() - 12) : match.start("value")]
    return len(value) >= 8 and value.isdigit() and NETWORK.search(around) is not None


def kind_of(name: str) -> str:
    """What the value beside a name is: "password", "key", "token" or "secret"."""
    lowered = name.lower()
    if "token" in lowered:
        return "token"
    if "key" in lowered:
        return "key"
    if "secret" in lowered or "credential" in lowered:
        return "secret"
    return "password"
