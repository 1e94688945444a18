"""Secrets in sentences: "the password for the router is Marmalade-42", "my PIN is four seven one one", "the key on the
router is 5839-2017".

One rule finds them: a name, perhaps with what it is for, something that links it to a value, and a value. The name says
which forms of a value count. Only where the value stands first, or no name is said, there are forms of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from satchel.memory.text.credentials.secret import (
    NETWORK,
    PUNCTUATION_END,
    SAID_OF_IT,
    Secret,
    is_hash,
    is_placeholder,
    is_random,
    kind_of,
    spans,
)
from satchel.memory.text.languages import function_words

# What is opened with a code; a card's is typed as well.
_OPENED: Final = (
    r"(?:door|gate|alarm|garage|safe|lock(?:er|box)?|padlock|vault|key-?pad"
    r"|\w*tür|tor|tresor|alarmanlage|handys?|\w*schloss|schließfach|spind|\w+karte"
    r"|puerta|portal|portero|alarma|caja fuerte|garaje|candado|móvil|teléfono|tarjeta"
    r"|porte|portail|alarme|coffre(?:-fort)?|immeuble|cadenas|téléphone|carte (?:bleue|bancaire|de crédit)|entrée"
    r"|entrada|porta|allarme)"
)
_PASSWORD: Final = (
    r"pass ?(?:word|phrase|code)|pwd|pw|passwd|passwort|kennwort|zugangscode|api[ -]?(?:key|token|secret)|secret key"
    r"|(?:access|auth|bearer|refresh) (?:key|token)|client secret|(?:wi-?fi|wlan|network) key"
)
# In other languages a value counts only if it is no plain word.
_ELSEWHERE: Final = (
    r"secret answer|contraseña|clave|mot de passe|mdp|senha|parola d'ordine|wachtwoord|hasło|lösenord|adgangskode"
    r"|passord|salasana|jelszó|heslo|parolă|şifre|пароль|кодовое слово"
)
_ACCESS: Final = (
    r"verification|security|log-?in|sign-?in|confirmation|one-time|entry|unlock|2fa|otp|tan|access"
)
_NAME: Final = re.compile(
    rf"\b(?:(?P<password>{_PASSWORD})s?|(?P<elsewhere>{_ELSEWHERE})"
    r"|(?P<pin>(?:pin|cvv2?|cvc|puk|geheimzahl)(?:[ -](?:code|number|nummer))?)"
    rf"|(?P<opens>(?:{_ACCESS}|{_OPENED}(?:['’]s)?)(?: opener)?[ -]?(?:(?:pass)?code|combination|combo)|digicode)"
    r"|(?P<bare>key|token|secret|credential|code|código|codice|\w*kombination|combination|combo|combinación)s?)\b"
    r"|(?P<eastern>密码|密碼|口令|パスワード|暗証番号|비밀번호|암호)",
    re.IGNORECASE,
)
"""The names; the group says which values count."""

_MANY_THINGS: Final = ("key", "token", "secret", "credential", "keys", "tokens", "secrets", "credentials")
"""A bare "key" is many things."""
_LEAST_KEY: Final = 8
"""Digits of the key of a network (WPA)."""
_MOST_CHOICES: Final = 12
_BLANK: Final = re.compile(r"\s*:?\s+")

_FOR: Final = (
    r"for|of|to|on|at|in|by|fürs?|beim?|vom|zu[mr]|an|[md]einer|der|pour|de|del|du|della|para|per|voor|do"
    r"|для|от"
)
_OF: Final = re.compile(rf"(?:\s+(?:{_FOR})\s[^\n.:;=!?]{{1,60}})?", re.IGNORECASE)
_LINK: Final = re.compile(
    r"(?:['’]s\s+|\s*(?::|=|->|=>|→)\s*|,?\s+c['’]est\s+|\?\s+it['’]?s\s+|\s*[是为為はが는은：]\s*"
    r"|\s+(?:is|was|has been|got)\s+(?:changed|set|reset|updated|rotated)\s+to\s+"
    r"|\s+(?:is|was|are|says|reads|(?:has been )?changed to|will be|should be|used to be|has to be|becomes"
    r"|ist|lautet|war|es|est|è|é|to|jest|är|er|on|это|-)(?:\s+(?:now|still|jetzt|maintenant|ahora))?\s*(?::\s*|\s))"
    r"\s*(?:le |el |der )?",
    re.IGNORECASE,
)
# After these, a plain word is mostly what a password is for, or what is said of it: "the password to Netflix", "the
# password's owner"; but "set the password to marmalade".
_LOOSE: Final = ("'s", "’s", "to", "on")
_SETS: Final = re.compile(r"\b(?:set|chang|reset|rotat|updat)\w*\s[^\n.:;!?]{0,40}\Z", re.IGNORECASE)
_MOST_OF: Final = 80
# "with the password X" has no link, nor has "login ann password X".
_GIVEN: Final = re.compile(
    r"\blogin\s+\S{1,200}\s+\Z|\b(?:with|using|use|by|via|enter|type|try|needs|takes|mit|nimm|avec|con|com|met)"
    r"(?:\s+(?:the|this|that|my|our|his|her|their|your|a|root|admin|user|new|old|same|dem|le|la|el|o|a|il|het)){0,3}\s+\Z",
    re.IGNORECASE,
)
# A value on a line of its own, below its name.
_BELOW: Final = re.compile(r"[^\n.!?(){}=]{0,40}[ \t]*\n\s*(?:> ?)?(?=[^\s(){}`;=<>]{6,61}[ \t]*(?:\n|\Z))")
# "of the garage door at home", and not "of the lock file", "from the alarm system".
_OF_OPENED: Final = re.compile(
    rf"\A(?:\s+(?:{_FOR})\s+|\s+(?:de )?l['’])(?:(?:[\w-]+['’]?\s+|[dl]['’]){{0,5}}?)"
    rf"(?:(?P<opened>{_OPENED})|{NETWORK.pattern})\b(?=\s*\Z|\s+(?:{_FOR}|behind|next|automático)\b)",
    re.IGNORECASE,
)

# As numbers are printed to be typed: groups of one length. A date has others.
_GROUPS: Final = r"\d\d(?:[ .-]\d\d){2,7}|\d{3}(?:[ .-]\d{3}){1,5}|\d{4}(?:[ .-]\d{4}){1,5}"
_TYPED: Final = rf"(?:{_GROUPS}|\d{{1,2}}(?:[ -]\d{{1,2}}){{2,4}}|\d{{3,8}})(?!\d)"
_NUMBER: Final = re.compile(rf"{_TYPED}(?!\w)|(?=[A-Z]*\d)[A-Z\d]{{4,8}}(?!\w)", re.IGNORECASE)
_CLAUSE_END: Final = re.compile(r"[#*]?\s*(?:[.,;!?)\n]|\Z|followed by\b)")
_DIGIT: Final = (
    r"(?:zero|oh|one|two|three|four|five|six|seven|eight|nine|null|eins|zwei|zwo|drei|vier|fünf|sechs|sieben|acht|neun"
    r"|zéro|un|deux|trois|quatre|cinq|sept|huit|neuf|cero|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve"
    r"|[一二三四五六七八九零〇])"
)
# Four digits in words, as people say a PIN; or one character after the other: five, because "a b c d" are four choices.
_IN_WORDS: Final = re.compile(rf"{_DIGIT}(?:(?:\s*[,-]\s*|\s+){_DIGIT}){{3,15}}\b", re.IGNORECASE)
_BY_LETTER: Final = re.compile(r"[\w!?#$%@](?:(?:[ \t]|-|, ?)[\w!?#$%@]){4,40}(?![^\s.,;!?])|\d(?: \d){3,11}")
# Four plain words to the end of the clause, none of which only joins others.
_WORDS: Final = (
    r"[\"'“‘]?(?P<value>[^\W\d_]{3,14}(?:[ -][^\W\d_]{3,14}){3,11})(?=[\"'”’]?\s*(?:[.,;!?\n]|\Z))"
)
_PHRASE: Final = re.compile(rf"(?:(?:type|enter|say)\s+)?{_WORDS}", re.IGNORECASE)
_TO_OPEN: Final = re.compile(
    r"\b(?:to|i|we)\s+(?:(?:log|sign)[ -]?(?:in|on)(?:to)?|unlock|decrypt)\b[^\n.!?]{0,40}?"
    rf"\b(?<!in to )(?:type|enter|typing|entering)\b:?\s+(?:the words:?\s+)?{_WORDS}",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"[\"'`“‘«„](?P<value>[^\"'`”’»“\n]{3,100})[\"'`”’»“]")
_TOKEN: Final = re.compile(r"[\"'`“‘«]?(?P<value>[^\s\"'`“”<>]{4,400})")
_LONG: Final = re.compile(r"[\"'`“‘«]?(?P<value>[A-Za-z0-9_+/=.~-]{12,400}|\d{8,11})(?![A-Za-z0-9_])")
_METHOD: Final = re.compile(
    r"(?:sha|md|rfc|pbkdf|oauth|argon|utf|base|bcrypt|scrypt|v|step|part|section|table|chapter)[-_]?\d",
    re.IGNORECASE,
)
_OTHER_KEYS: Final = re.compile(
    r"(?:primary|foreign|sort|cache|partition|public|row|hash|lookup|dict(?:ionary)?"
    r"|object|unique|natural|routing|group|index)[ _-]\Z",
    re.IGNORECASE,
)
_SHORTCUT: Final = re.compile(r"(?:ctrl|alt|shift|cmd|meta|super)\b", re.IGNORECASE)

# The value stands first, or no name of it: "Tulip88 as the password"; "reset the login from Old12 to New34"; "user ann,
# pass qwe789"; "Grafana admin / Graf4na!x". A login page and the password column of a table have no secret.
_NO_NOUN: Final = (
    r"(?=\s*(?:[.,;!?)\n]|\Z)|\s+(?:for|of|on|at|in|to|from|and|or|but|now|again|here|there|today|yesterday"
    r"|everywhere|so|because|since|as|with|für|bei|zum|und|pour|de|et|para|en|y)\b)"
)
_UNNAMED: Final = (
    re.compile(
        r"(?<!\S)(?P<value>[^\s\"'`“”<>]{6,100})\s+(?:as|als|comme|como)\s+"
        rf"(?:(?:the|my|our|its|das|le|la)\s+)?(?:{_PASSWORD}|{_ELSEWHERE})\b{_NO_NOUN}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:chang|reset|rotat|updat)\w*\s[^\n.:;=!?]{{0,40}}?\b(?:log-?in|{_PASSWORD})\b{_NO_NOUN}[^\n.:;=!?]{{0,40}}?"
        r"(?:\sfrom\s+(?P<old>[^\s\"'`“”<>]{6,100}))?\s+to\s+(?P<value>[^\s\"'`“”<>]{6,100})",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:user(?:name)?|login|account)\b[^\n]{1,60}?[\s,;/|]\s*pass\s*:?\s+(?P<value>[^\s\"'`“”<>]{4,100})",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:admin|root|administrator)[`*\"']{0,3}\s*/\s*[`*\"']{0,3}(?P<value>[^\s\"'`*“”<>/]{6,100})"
        r"(?![^\s,;.`*\"'])",
        re.IGNORECASE,
    ),
)
# Sixteen letters in groups of four, as mail providers give them to one program.
_APP: Final = re.compile(
    r"\bapp(?:lication)?[ -](?:specific[ -])?passwords?\b[^\n]{0,60}?"
    r"(?P<value>(?<![a-z])[a-z]{4}(?:[ -][a-z]{4}){3})(?![a-z])"
)
_TYPES: Final = (
    r"enter|(?:type|punch|key)(?: in)?|press|dial|tippe?|gebe|gib|tecle\w+|marc[ao]|tapez?|compose[rz]?"
)
_INTO: Final = rf"\b(?:with|using|wants|takes|needs|expects|mit|con|avec|{_TYPES})(?: (?:ich|man))?\s"
# "unlock my phone with 1234"; "the safe opens with 12-34-07", "punch in 1234 at the gate".
_OPENS_WITH: Final = re.compile(
    r"\b(?:(?:unlock|disarm|entsperr|entriegel|desbloque|déverrouill|désarm)\w*"
    rf"|{_OPENED}s?)\b[^\n.:;=!?\d]{{0,40}}?{_INTO}"
    rf"(?P<value>(?=\d{{4}}|\d+[ -]){_TYPED})(?!, \d)(?:(?={_CLAUSE_END.pattern})|(?=\s(?:auf|ab|ein)\b))"
    rf"|\b(?:{_TYPES})(?: (?:ich|man))?\s(?P<before>(?=\d{{4}}|\d+[ -]){_TYPED})\s(?:at|on|an|am|en|à)\s"
    rf"(?:\w+\s)?{_OPENED}\b",
    re.IGNORECASE,
)


def find_spoken(text: str) -> Iterator[Secret]:
    """The secrets that a text names in words."""
    for match in _NAME.finditer(text):
        found = _value_of(text, match)
        if found is not None:
            yield found
    for pattern in _UNNAMED:
        for match in pattern.finditer(text):
            for group in pattern.groupindex:
                value = (match[group] or "").rstrip(PUNCTUATION_END)
                if _is_mixed(value) and not is_placeholder(value):
                    yield Secret(
                        kind="password", start=match.start(group), end=match.start(group) + len(value)
                    )
    yield from spans("password", _APP.finditer(text), "value")


def find_unnamed(text: str) -> Iterator[Secret]:
    """What is typed to open something, whatever it is called."""
    lowered = text.lower()
    if "type" in lowered or "typing" in lowered or "enter" in lowered:
        found = (
            m for m in _TO_OPEN.finditer(text) if not _joins(m["value"]) and not _is_asked_for(m["value"])
        )
        yield from spans("password", found, "value")
    if re.search(r"\d{4}|\d[ -]\d", text):
        matches = list(_OPENS_WITH.finditer(text))
        for group in ("value", "before"):
            yield from spans("code", (m for m in matches if m[group]), group)


class _Place(NamedTuple):
    """Where a value may begin: what stands between it and its name, which `link` says, by the words in `linked_by`, and
    what the name is of.
    """

    name: re.Match[str]
    link: Literal["linked", "given", "beside", "below"]
    of: str
    at: int
    linked_by: str = ""

    @property
    def said(self) -> str:
        """The name in lower case."""
        return self.name[0].lower()


def _value_of(text: str, name: re.Match[str]) -> Secret | None:
    """The value that belongs to a name; None where there is none, or none of a form that counts."""
    which = name.lastgroup or ""
    for place in _places(text, name):
        for read in _FORMS[which]:
            span = read(text, place)
            if span is not None:
                return Secret(kind=_kind(which, place.said), start=span[0], end=span[1])
    return None


def _kind(which: str, said: str) -> str:
    if which == "pin":
        return "pin"
    return "code" if which == "opens" or said.endswith(("code", "ion", "combo")) else kind_of(said)


def _places(text: str, name: re.Match[str]) -> Iterator[_Place]:
    for link in _LINK.finditer(text, name.end(), name.end() + _MOST_OF):
        of = text[name.end() : link.start()]
        # "The token's x", but "the passwords of people's roles".
        if _OF.fullmatch(of) and not (of and link[0][0] in "'’"):
            yield _Place(name, "linked", of, link.end(), link[0].strip().lower())
    if beside := _BLANK.match(text, name.end()):
        is_given = _GIVEN.search(text, max(0, name.start() - 200), name.start()) is not None
        yield _Place(name, "given" if is_given else "beside", "", beside.end())
    if below := _BELOW.match(text, name.end()):
        yield _Place(name, "below", "", below.end())


def _typed(text: str, place: _Place) -> tuple[int, int] | None:
    """A number as it is typed to open what the name is of."""
    found = _NUMBER.match(text, place.at)
    which, end = place.name.lastgroup, found.end() if found else 0
    if found is None or place.link == "below" or (place.link != "linked" and which != "pin"):
        return None
    if which in ("bare", "elsewhere"):
        # To the end of the clause: "the code of the lock is 300 lines long".
        of = _OF_OPENED.match(place.of) if _CLAUSE_END.match(text, end) else None
        digits = sum(char.isdigit() for char in found[0])
        if of is None or (of["opened"] is None and digits < _LEAST_KEY):
            return None
    return (place.at, end) if which != "pin" or not any(map(str.isalpha, found[0])) else None


def _spelled(text: str, place: _Place) -> tuple[int, int] | None:
    """Digits in words, or one character after the other."""
    if place.link != "linked" or place.said in _MANY_THINGS:
        return None
    if found := _IN_WORDS.match(text, place.at):
        return found.span()
    found = _BY_LETTER.match(text, place.at)
    joined = re.sub("[ ,\t-]", "", found[0]) if found else ""
    # "code: A B C D E" are choices; letters alone are a password where the name says so.
    is_one = (
        is_random(joined)
        or joined.isdigit()
        or place.name.lastgroup == "password"
        or len(joined) > _MOST_CHOICES
    )
    return found.span() if found and is_one else None


def _phrase(text: str, place: _Place) -> tuple[int, int] | None:
    """Plain words of which a passphrase is made."""
    found = _PHRASE.match(text, place.at) if "phrase" in place.said and place.link == "linked" else None
    return None if found is None or _joins(found["value"]) else found.span("value")


def _quoted(text: str, place: _Place) -> tuple[int, int] | None:
    found = _QUOTED.match(text, place.at) if place.link in ("linked", "given") else None
    return None if found is None or is_placeholder(found["value"]) else found.span("value")


def _word(text: str, place: _Place) -> tuple[int, int] | None:
    """One word that is no plain one; after a link also a plain one, if nothing more is said of it."""
    found = _TOKEN.match(text, place.at)
    value = found["value"].rstrip(PUNCTUATION_END) if found else ""
    if place.name.lastgroup == "eastern":
        value = re.sub("[^!-~].*", "", value)
    if found is None or len(value) < 4 or value.startswith("[redacted") or is_placeholder(value):
        return None
    end = found.start("value") + len(value)
    if place.link == "beside" and not (len(value) >= 6 and _is_mixed(value)):
        return None
    if not is_random(value):
        after = text[end : end + 2]
        is_last = not after.strip() or after[0] in ".,;!\n"
        at = place.name.start()
        is_loose = place.linked_by in _LOOSE and not _SETS.search(text, max(0, at - 60), at)
        is_plain_one = (
            place.name.lastgroup == "password" and place.link in ("linked", "given") and value.isascii()
        )
        if not is_plain_one or not is_last or is_loose or SAID_OF_IT.fullmatch(value):
            return None
    return found.start("value"), end


def _strong(text: str, place: _Place) -> tuple[int, int] | None:
    """A long random value beside a name that is used for many things, or a number as routers have it for a key."""
    found = _LONG.match(text, place.at) if place.link != "below" and place.said in _MANY_THINGS else None
    value = found["value"].rstrip(PUNCTUATION_END) if found else ""
    if (
        found is None
        or not text[place.at - 1].isspace()
        or is_placeholder(value)
        or _OTHER_KEYS.search(text, max(0, place.name.start() - 12), place.name.start())
    ):
        return None
    is_for_network = NETWORK.search(text[max(0, place.name.start() - 12) : found.start()]) is not None
    is_key = _is_strong(value) or (is_for_network and value.isdigit() and len(value) >= _LEAST_KEY)
    return (found.start("value"), found.start("value") + len(value)) if is_key else None


_FORMS: Final = {
    "password": (_spelled, _phrase, _quoted, _word),
    "elsewhere": (_typed, _spelled, _quoted, _word),
    "eastern": (_spelled, _quoted, _word),
    "pin": (_typed, _spelled),
    "opens": (_typed, _spelled),
    "bare": (_typed, _spelled, _strong),
}
"""What a value may be, by the name that stands before it."""


def _joins(phrase: str) -> bool:
    """Whether one of some words only joins others."""
    return any(word in function_words() for word in re.split("[ -]", phrase.lower()))


def _is_asked_for(phrase: str) -> bool:
    """To log in, people type what a form asks for, too: "your email address", "valid admin credentials here"."""
    words = re.split("[ -]", phrase.lower())
    return any(map(is_placeholder, words)) or sum(map(bool, map(SAID_OF_IT.fullmatch, words))) > 1


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
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    longest = max(re.split(r"[_./-]", value), key=len)
    is_short_hash = is_hash(value) and len(value) < 16
    return (
        has_digit and has_letter and len(longest) >= 12 and not is_short_hash and not _SHORTCUT.match(value)
    )
