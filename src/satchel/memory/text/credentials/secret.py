"""What a secret in a text is, and what every finder of secrets asks of a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret in a text: what it is, and where it stands (characters, the end not included)."""

    kind: str
    start: int
    end: int


NETWORK: Final = re.compile(r"wi-?fi|wlan|router|modem|network|hotspot|wpa", re.IGNORECASE)
PUNCTUATION_END: Final = ".,;:!?)]}”’»*。、"

PLACEHOLDER: Final = re.compile(
    r"[<\[{$%&*.#_-]|\(|(?:your|my|the|some|an?|this|new|old|change|replace|insert|enter|example|dummy|fake|test|foo|bar)"
    r"(?:[_\-. ]|$|me|key|pass|pw)|x{3,}|\*{3,}|\.{3}|!\w+\s*\||/(?:[\w.-]+/)*[\w.-]+\Z|~/"
    r"|(?:none|null|nil|undefined|true|false|yes|no|empty|unset|todo|n/a|tbd"
    r"|string|str|int|bool|bytes|text|any|optional|required|redacted|hidden|password|passwd|secret|token|key|env|process"
    r"|os|self|args|config|settings|request|req|ctx|input|getpass|data|options|opts|params|props|this|user|username|vault"
    r"|keyring|secrets)\b",
    re.IGNORECASE,
)
_REFERENCE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z|[A-Za-z_][\w.]*\(|[A-Za-z_]\w*\[|@\w")
_HASH: Final = re.compile(r"[0-9a-f]{7,128}\Z", re.IGNORECASE)

SAID_OF_IT: Final = re.compile(
    r"(?:\w+(?:ed|ing|ble|ent|ary|ous|ive|ful|less|able)|(?:long|short|strong|weak|saf|old|new|bett|hard|eas|simpl)i?e(?:r|st)"
    r"|wrong|weak|strong|old|new|long|short|safe|secure|fine|ok|okay|good|bad|gone|lost|set|kept|written|known|unknown"
    r"|hidden|empty|blank|invalid|valid|correct|right|same|public|private|case-sensitive|shown|sent|stored|hashed|too|not"
    r"|never|always|only|also|just|still|now|exactly|really|probably|actually|in|on|at|by|for|from|with|under|behind|inside"
    r"|here|there|what|where|which|who|when|how|that|this|these|those|it|its|his|her|their|your|mine|ours|the|a|an|my|and|or"
    r"|of|used|use|using|part|one|two|up|out|off|due|next|about|all|both|hard|easy|simple|random|unique|default|optional"
    r"|mandatory|temporary|permanent|identical|different|be|been|being|have|has|go|get|do|see|ask|change|reset|access|login"
    r"|enter|below|above|twice|first|later|older|please|again|anymore|yesterday|today|tomorrow|geheim|falsch|richtig|neu|alt|lang|kurz|sicher|abgelaufen"
    r"|weg|immer|noch|nicht|im|auf|der|die|das|ein|eine|ist|war|zu|zurücksetzen|ändern|vergessen"
    # What else begins like that: a password manager, a key ring.
    r"|manager|policy|policies|prompt|generator|hash|hashes|file|files|hint|length|page|form|box|dialog|rule|rules|input"
    r"|vault|strength|recovery|reset|resets|field|fields|safe|store|storage|check|checks|column|entry|option|options|flag"
    r"|argument|parameter|switch|variable|variables|environment|authentication|auth|protection|attempt|attempts|expiry"
    r"|rotation|list|lists|database|phrase|less|and|or|to|is|was|are|if|as|than|then|but|so|because|flow|grant)",
    re.IGNORECASE,
)
"""Words that are said of a password, or stand beside the word, rather than being one."""


def spans(kind: str, matches: Iterable[re.Match[str]], group: int | str = 0) -> Iterator[Secret]:
    """A group of each match, where it holds anything."""
    for match in matches:
        start, end = match.span(group)
        if start < end:
            yield Secret(kind=kind, start=start, end=end)


def is_placeholder(value: str) -> bool:
    """Whether a value stands for a secret instead of being one, or says where one is."""
    return PLACEHOLDER.match(value) is not None or _REFERENCE.match(value) is not None or len(set(value)) < 3


def is_random(value: str) -> bool:
    """Whether a value is not made of words alone: it mixes letters with digits or marks, or large with small
    letters.
    """
    has_letter = any(char.isalpha() for char in value)
    has_digit = any(char.isdigit() for char in value)
    if has_letter and has_digit:
        return True
    inner = value[1:-1]
    if any(not char.isalnum() and char not in "_-./:'’" for char in inner):
        return True
    if has_digit:
        return len(value) >= 6 and value.isdigit()
    return len(value) >= 8 and any(
        a.islower() and b.isupper() for a, b in zip(inner, inner[1:], strict=False)
    )


def is_hash(value: str) -> bool:
    """Whether a value is all hexadecimal digits, as commits and checksums are."""
    return _HASH.match(value) is not None


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
