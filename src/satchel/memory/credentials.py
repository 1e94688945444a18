"""The forms of secrets, and where a text has them. It is loaded for texts that may hold one: its patterns take 9 ms.

The credentials of services are found by detect-secrets, which is maintained and knows their forms. What it does not
look for stands here: newer services, keys with a value, headers, spoken passwords, cards, bank accounts. A long random
text alone is no secret: hashes of commits, checksums and ids stay as they are (docs/guides/privacy.md has what was
measured).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from satchel.memory.suspicion import may_hold_secrets

if TYPE_CHECKING:
    from detect_secrets.plugins.base import RegexBasedDetector

__all__ = ["Secret", "candidates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret in a text: what it is, and where it stands (characters, the end not included)."""

    kind: str
    start: int
    end: int


# The end of a word before, or an escape of a URL or of JSON, such as %3D or \n.
_START: Final = r"(?:(?<![A-Za-z0-9_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))"

# Each by the form that the service documents; the first group, or the whole, is what is replaced.
_TOKENS: Final = tuple(
    (kind, re.compile(rf"{_START}(?:{form})(?![A-Za-z0-9])"))
    for kind, form in (
        ("anthropic-key", r"sk-ant-[A-Za-z0-9_-]{20,}"),
        ("openai-key", r"sk-(?:(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})"),
        ("google-key", r"AIza[0-9A-Za-z_-]{35}|GOCSPX-[0-9A-Za-z_-]{28}|ya29\.[0-9A-Za-z_-]{30,}"),
        ("github-token", r"github_pat_[A-Za-z0-9_]{22,}|gh[pousr]_[A-Za-z0-9]{36,}"),
        ("gitlab-token", r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt)-[A-Za-z0-9_-]{20,}"),
        ("aws-key", r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}"),
        ("huggingface-token", r"hf_[A-Za-z0-9]{30,}"),
        ("pypi-token", r"pypi-AgEI[A-Za-z0-9_-]{50,}"),
        ("npm-token", r"npm_[A-Za-z0-9]{36}"),
        ("docker-token", r"dckr_pat_[A-Za-z0-9_-]{20,}"),
        ("telegram-token", r"\d{8,10}:AA[A-Za-z0-9_-]{33}"),
        ("slack-token", r"xapp-\d-[A-Z0-9]+-\d+-[a-z0-9]+|xox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("stripe-key", r"(?:sk|rk)_(?:live|test)_[0-9A-Za-z]{16,}|whsec_[0-9A-Za-z]{24,}"),
        ("service-token", r"(?:gsk_|xai-|pplx-|r8_|nvapi-|fw_)[A-Za-z0-9_-]{32,}"),
        ("service-token", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|do[opr]_v1_[a-f0-9]{64}|dapi[a-f0-9]{32}"),
        ("service-token", r"ntn_[A-Za-z0-9]{40,}|lin_api_[A-Za-z0-9]{40}|ATATT3[A-Za-z0-9_=-]{50,}"),
        (
            "service-token",
            r"tskey-[a-z]+-[A-Za-z0-9-]{20,}|hv[sb]\.[A-Za-z0-9_-]{24,}|sntrys_[A-Za-z0-9_=+/-]{40,}",
        ),
        ("private-key", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    )
)

# The secret that goes with a key of AWS has no form of its own; it is the next 40 characters of base64 beside it.
_AWS_PAIR: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![A-Za-z0-9])[^\0]{1,120}?"
    r"(?<![A-Za-z0-9+/=])([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])"
)

_KEY_BEGIN: Final = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d:"
)
_KEY_END: Final = re.compile(
    r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----|Private-MAC: ?[0-9a-f]+"
)
_KEY_BODY: Final = re.compile(r"[\sA-Za-z0-9+/=\\:,.-]*")
_MOST_KEY_CHARS: Final = 20_000

# "://name:password@": the password alone.
_URL: Final = re.compile(r"://[^\s/:@'\"<>]{0,200}:([^\s/@'\"<>]{3,200})@[\w\[]")

_HEADER: Final = re.compile(
    r"\bauthorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|apikey)\s+)?([^\s\"',;]{8,})",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"\bbearer\s+([A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE)
_COOKIE: Final = re.compile(
    r"\b(?:session(?:id)?|sid|jsessionid|phpsessid|connect\.sid)=([A-Za-z0-9%._~+/-]{16,})", re.IGNORECASE
)

_NAMES: Final = (
    r"pass(?:word|wd|phrase|code|wort)|contraseña|mot de passe|pwd|secret|api[_\-. ]?key|apikey|access[_\-. ]?key"
    r"|secret[_\-. ]?key|private[_\-. ]?key|encryption[_\-. ]?key|signing[_\-. ]?key|auth[_\-. ]?key|account[_\-. ]?key"
    r"|token|client[_\-. ]?secret|credentials?|db[_\-]?pass|_pass|passw"
)
# name = value, name: value, "name": "value", --name value, also in JSON inside of JSON; the value alone is replaced.
_PAIR: Final = re.compile(
    rf"(?P<name>(?:{_NAMES})(?:[_\-.][A-Za-z0-9]{{1,30}}){{0,4}})\\{{0,7}}[\"'`]?\]?"
    r"(?P<between>\s{0,4}(?::=|=>|==?|:)\s{0,4})"
    r"(?:(?P<mark>\\{0,7}[\"'`])(?P<quoted>[^\"'`\n]{4,400}?)(?P=mark)|(?P<plain>[^\s\"'`,;(){}\[\]<>]{4,400}))",
    re.IGNORECASE,
)
_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9]{1,30}[_\-.]){0,4}\Z")
_OPTION: Final = re.compile(
    rf"(?<!\S)--?(?:[a-z0-9]{{1,30}}-){{0,4}}(?:{_NAMES})[ =]([^\s\"'-][^\s\"']{{5,400}})", re.IGNORECASE
)

# "The password for the router is Marmalade-42", "PIN: 4921". `value` alone is replaced.
_SPOKEN: Final = re.compile(
    r"\b(?P<what>pass(?:word|phrase|code|wort)|contraseña|pwd|api[ -]?key|secret key|access key|access token|auth token"
    r"|security code|login code)s?\b"
    r"(?P<of>(?:\s+(?:for|of|to|on|at|für|vom|zum)\s+[^\n.:;=!?]{1,60}?)?)"
    r"(?P<verb>\s*(?::|=)\s*|\s+(?:is|was|are|will be|ist|lautet|war|es|to)\s*(?:now\s+|still\s+)?:?\s+)"
    r"(?:(?P<mark>[\"'`“‘«])(?P<quoted>[^\"'`”’»\n]{3,100})[\"'`”’»]|(?P<value>[^\s\"'`“”<>]{4,100}))",
    re.IGNORECASE,
)
_PIN: Final = re.compile(
    r"\b(?:pin|cvv2?|cvc|puk)\b(?:\s+(?:code|number|nummer))?(?:\s+(?:for|of|to|on)\s+[^\n.:;=!?\d]{1,40}?)?"
    r"\s*(?:is|was|:|=|ist|lautet)?\s*(\d{3,8})\b",
    re.IGNORECASE,
)
_SSN: Final = re.compile(
    r"\b(?:ssn|social security(?: number| no\.?)?)\b[^\d\n]{0,20}(\d{3}[- ]?\d{2}[- ]?\d{4})\b", re.IGNORECASE
)
# A wallet's words are 12 to 24 of a fixed list of lower-case words of three to eight letters (BIP-39).
_PHRASE: Final = re.compile(
    r"\b(?:seed|recovery|mnemonic|backup|wallet)\s+(?:phrase|words)\b[^\n]{0,30}?[:=]?\s*"
    r"((?:[a-z]{3,8}[ ,]+){11,23}[a-z]{3,8})\b"
)
_CARD: Final = re.compile(r"(?<![\d.,/-])(?<!\d )\d(?:[ -]?\d){12,18}(?![\d/])(?! ?\d|[.,]\d)")
_IBAN: Final = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")

# The ranges that the networks issue, with the lengths of their numbers.
_NETWORKS: Final = (
    (re.compile(r"4"), (13, 16, 19)),
    (re.compile(r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), (16,)),
    (re.compile(r"3[47]"), (15,)),
    (re.compile(r"6011|65|64[4-9]"), (16, 19)),
    (re.compile(r"3(?:0[0-5]|[68])"), (14,)),
    (re.compile(r"35"), (16, 19)),
    (re.compile(r"62"), (16, 17, 18, 19)),
)

_PLACEHOLDER: Final = re.compile(
    r"[<\[{$%&*.#_-]|\(|(?:your|my|the|some|an?|this|new|old|change|replace|insert|enter|example|dummy|fake|test|foo|bar)"
    r"(?:[_\-. ]|$|me|key|pass|pw)|x{3,}|\*{3,}|\.{3}"
    r"|(?:none|null|nil|undefined|true|false|yes|no|empty|unset|todo|n/a|tbd"
    r"|string|str|int|bool|bytes|text|any|optional|required|redacted|hidden|password|secret|token|key|env|process|os|self|args"
    r"|config|settings|request|req|ctx|input|getpass|data|options|opts|params|props|this|user|vault|keyring|secrets)\b",
    re.IGNORECASE,
)
_REFERENCE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z|[A-Za-z_]\w*\(|[A-Za-z_]\w*\[|@\w")
_HEX: Final = re.compile(r"[0-9a-f]{7,128}\Z", re.IGNORECASE)
_PUNCTUATION_END: Final = ".,;:!?)]}”’»*"

# What is said of a password rather than being one.
_SAID_OF_IT: Final = re.compile(
    r"(?:\w+(?:ed|ing|ble|ent|ary|ous|ive|ful|less|est|er|ly|able)|wrong|weak|strong|old|new|long|short|safe|secure|fine|ok|okay"
    r"|good|bad|gone|lost|set|kept|written|known|unknown|hidden|empty|blank|invalid|valid|correct|right|same|public|private"
    r"|case-sensitive|shown|sent|stored|hashed|too|not|never|always|only|also|just|still|now|in|on|at|by|for|from|with|under"
    r"|behind|inside|here|there|what|where|that|this|these|those|it|its|his|her|their|your|mine|ours|the|a|an|my|and|or"
    r"|used|use|using|part|one|two|up|out|off|due|next|about|all|both|hard|easy|simple|random|unique|default|optional"
    r"|mandatory|temporary|permanent|identical|different|be|been|being|have|has|go|get|do|see|ask|change|reset|access|login"
    r"|enter|falsch|richtig|neu|alt|lang|kurz|sicher|abgelaufen|weg|immer|noch|nicht|im|in|auf|der|die|das|ein|eine)\b",
    re.IGNORECASE,
)

_NAMED: Final = ("pass", "pwd", "secret", "key", "token", "credential", "contraseñ", "mot de", "code")


def candidates(text: str) -> Iterator[Secret]:
    """Whatever looks like a secret; they may overlap, and come in no order."""
    lowered = text.lower()
    is_named = any(word in lowered for word in _NAMED)
    yield from _key_blocks(text)
    for kind, pattern in _TOKENS:
        yield from _spans(kind, (m for m in pattern.finditer(text) if _is_random(m[0])), 0)
    pairs = (m for m in _AWS_PAIR.finditer(text) if _is_random(m[1]) and not _HEX.match(m[1]))
    yield from _spans("aws-secret", pairs, 1)
    yield from _spans("password", (m for m in _URL.finditer(text) if not _is_placeholder(m[1])), 1)
    yield from _spans("token", (m for m in _HEADER.finditer(text) if not _is_placeholder(m[1])), 1)
    for pattern in (_BEARER, _COOKIE):
        yield from _spans("token", (m for m in pattern.finditer(text) if _is_random(m[1])), 1)
    if is_named:
        yield from _pairs(text)
        yield from _spoken(text)
    yield from _spans("pin", _PIN.finditer(text), 1)
    yield from _spans("social-security-number", _SSN.finditer(text), 1)
    yield from _spans("seed-phrase", _PHRASE.finditer(text), 1)
    yield from _spans("card-number", (m for m in _CARD.finditer(text) if _is_card(m[0])), 0)
    yield from _spans("iban", (m for m in _IBAN.finditer(text) if _is_iban(m[0])), 0)
    yield from _of_services(text)


def _key_blocks(text: str) -> Iterator[Secret]:
    """Private keys, from their first line to their last, or, where that is missing, as far as a key's text goes."""
    at = 0
    while (begin := _KEY_BEGIN.search(text, at)) is not None:
        end = _KEY_END.search(text, begin.end(), begin.end() + _MOST_KEY_CHARS)
        body = _KEY_BODY.match(text, begin.end(), begin.end() + _MOST_KEY_CHARS)
        at = end.end() if end is not None else body.end() if body is not None else begin.end()
        yield Secret(kind="private-key", start=begin.start(), end=at)


def _spans(kind: str, matches: Iterable[re.Match[str]], group: int) -> Iterator[Secret]:
    for match in matches:
        start, end = match.span(group)
        if start < end:
            yield Secret(kind=kind, start=start, end=end)


def _pairs(text: str) -> Iterator[Secret]:
    for match in _PAIR.finditer(text):
        before = text[max(0, match.start() - 100) : match.start()]
        prefix = _PREFIX.search(before)
        name = (prefix[0] if prefix is not None else "") + match["name"]
        is_camel = before[-1:].islower() and match["name"][0].isupper()
        # A variable like PGPASSWORD.
        is_variable = before[-1:].isupper() and match["name"].isupper() and match["between"] == "="
        if before[-1:].isalpha() and not (is_camel or is_variable):
            continue  # in the middle of a word
        quoted, plain = match["quoted"], match["plain"]
        if _is_counted(name):
            continue
        if quoted is not None:
            if " " not in quoted.strip() and not _is_placeholder(quoted):
                yield Secret(kind=_kind_of(name), start=match.start("quoted"), end=match.end("quoted"))
            continue
        value = plain.rstrip(_PUNCTUATION_END)
        # NAME=value without blanks, in capitals, is a file of settings: its values are literal.
        is_setting = (
            name.isupper() and not match["between"].strip(":=") and match["between"] in ("=", ":", ": ")
        )
        if (
            len(value) >= 4
            and not _is_placeholder(value)
            and (_is_random(value) or (is_setting and len(value) >= 6))
        ):
            yield Secret(
                kind=_kind_of(name), start=match.start("plain"), end=match.start("plain") + len(value)
            )
    for match in _OPTION.finditer(text):
        if not _is_placeholder(match[1]) and _is_random(match[1]) and not _is_counted(match[0]):
            yield Secret(kind=_kind_of(match[0]), start=match.start(1), end=match.end(1))


def _spoken(text: str) -> Iterator[Secret]:
    for match in _SPOKEN.finditer(text):
        kind = _kind_of(match["what"])
        if match["quoted"] is not None:
            if not _is_placeholder(match["quoted"]):
                yield Secret(kind=kind, start=match.start("quoted"), end=match.end("quoted"))
            continue
        value = match["value"].rstrip(_PUNCTUATION_END)
        if len(value) < 4 or value.startswith("[redacted") or _is_placeholder(value):
            continue
        if not _is_random(value):
            # One plain word: it is the password only where nothing more is said of it.
            after = text[match.start("value") + len(value) : match.end("value") + 2]
            is_last = not after.strip() or after[0] in ".,;!\n"
            if not is_last or _SAID_OF_IT.fullmatch(value):
                continue
        yield Secret(kind=kind, start=match.start("value"), end=match.start("value") + len(value))


def _is_placeholder(value: str) -> bool:
    """Whether a value stands for a secret instead of being one, or says where one is."""
    return _PLACEHOLDER.match(value) is not None or _REFERENCE.match(value) is not None or len(set(value)) < 3


def _is_random(value: str) -> bool:
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


def _is_counted(name: str) -> bool:
    """Whether a name speaks of tokens that are counted, or of a key that is public."""
    lowered = name.lower()
    return (
        re.search(
            r"tokens|token_?(?:count|s|type|id|limit|budget|url|endpoint|length)|max_?token|num_?token|public|tokeniz",
            lowered,
        )
        is not None
    )


def _kind_of(name: str) -> str:
    lowered = name.lower()
    if "token" in lowered:
        return "token"
    if "key" in lowered:
        return "key"
    if "secret" in lowered or "credential" in lowered:
        return "secret"
    return "password"


def _is_card(text: str) -> bool:
    digits = re.sub(r"[ -]", "", text)
    if len(set(digits)) < 2 or not any(p.match(digits) and len(digits) in sizes for p, sizes in _NETWORKS):
        return False
    # Numbers are written in groups of four, or as 4-6-5 and 4-6-4, or without any.
    groups = tuple(len(part) for part in re.split(r"[ -]", text))
    if len(groups) > 1 and groups not in ((4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (4, 4, 4, 1)):
        return False
    total = 0
    for position, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + position % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _is_iban(text: str) -> bool:
    """By its check digits (ISO 13616)."""
    plain = text.replace(" ", "")
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


_AZURE: Final = re.compile(r"account_?key|azure", re.IGNORECASE)

_LINE_CHARS: Final = 4_000
_OVERLAP_CHARS: Final = 400
"""The library's expressions are made for lines of code: longer ones are read in pieces that overlap."""


# What the library's expressions cannot do without: only a text that has it is worth loading them for.
_OF_SERVICES: Final = (
    *(
        "akc",
        "artif",
        "jfrog",
        "buildkit",
        "aws",
        "a3t",
        "akia",
        "asia",
        "abia",
        "acca",
        "accountkey",
        "account_key",
    ),
    *(
        "azure",
        "cloudant",
        "ibm",
        "cos_",
        "bluemix",
        "iam",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "eyj",
        "npm",
    ),
    *("_authtoken", "sg.", "xox", "hooks.slack", "softlayer", "sl_", "sl-", "sq0csp", "_live_", "secret_key"),
    *("secret-key", "secretkey", "access_key", "access-key", "accesskey"),
)
_OF_OTHERS: Final = (
    re.compile(r"\.[\w-]{6}\.[\w-]{27}"),
    re.compile(r"-us\d"),
    re.compile(r"AC[a-z0-9]{32}"),
    re.compile(r"SK[a-z0-9]{32}"),
)


def _of_services(text: str) -> Iterator[Secret]:
    lowered = text.lower()
    if not any(word in lowered for word in _OF_SERVICES) and not any(p.search(text) for p in _OF_OTHERS):
        return
    detectors = _detectors()
    at = 0
    for line in text.splitlines(keepends=True):
        for start in range(0, max(1, len(line)), _LINE_CHARS - _OVERLAP_CHARS):
            piece = line[start : start + _LINE_CHARS]
            if may_hold_secrets(piece):
                for kind, detector in detectors:
                    if kind == "azure-key" and not _AZURE.search(piece):
                        continue
                    for value in set(detector.analyze_string(piece)):
                        yield from _places(piece, value, kind, at + start)
        at += len(line)


def _places(piece: str, value: str, kind: str, offset: int) -> Iterator[Secret]:
    """Where a value that the library found stands; hashes and words that fit one of its looser forms do not
    count.
    """
    value = value.strip(" \t\r\n\"'=:")
    if len(value) < 8 or not _is_random(value) or _PLACEHOLDER.match(value) or _HEX.match(value):
        return
    start = piece.find(value)
    while start >= 0:
        yield Secret(kind=kind, start=offset + start, end=offset + start + len(value))
        start = piece.find(value, start + len(value))


@cache
def _detectors() -> tuple[tuple[str, RegexBasedDetector], ...]:
    """The library's detectors for services, by our names. Its guesses by entropy and by keyword are left out:
    they are
    made for code and take hashes and prose for secrets.
    """
    # It loads an HTTP client for checks that are never made here: only a text that may hold a secret needs
    # it.
    from detect_secrets.plugins.artifactory import ArtifactoryDetector  # noqa: PLC0415
    from detect_secrets.plugins.aws import AWSKeyDetector  # noqa: PLC0415
    from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector  # noqa: PLC0415
    from detect_secrets.plugins.cloudant import CloudantDetector  # noqa: PLC0415
    from detect_secrets.plugins.discord import DiscordBotTokenDetector  # noqa: PLC0415
    from detect_secrets.plugins.github_token import GitHubTokenDetector  # noqa: PLC0415
    from detect_secrets.plugins.ibm_cloud_iam import IbmCloudIamDetector  # noqa: PLC0415
    from detect_secrets.plugins.ibm_cos_hmac import IbmCosHmacDetector  # noqa: PLC0415
    from detect_secrets.plugins.jwt import JwtTokenDetector  # noqa: PLC0415
    from detect_secrets.plugins.mailchimp import MailchimpDetector  # noqa: PLC0415
    from detect_secrets.plugins.npm import NpmDetector  # noqa: PLC0415
    from detect_secrets.plugins.sendgrid import SendGridDetector  # noqa: PLC0415
    from detect_secrets.plugins.slack import SlackDetector  # noqa: PLC0415
    from detect_secrets.plugins.softlayer import SoftlayerDetector  # noqa: PLC0415
    from detect_secrets.plugins.square_oauth import SquareOAuthDetector  # noqa: PLC0415
    from detect_secrets.plugins.stripe import StripeDetector  # noqa: PLC0415
    from detect_secrets.plugins.twilio import TwilioKeyDetector  # noqa: PLC0415

    return (
        ("artifactory-token", ArtifactoryDetector()),
        ("aws-key", AWSKeyDetector()),
        # By itself it takes every SHA-512 in base64; the library asks for these words around it too.
        ("azure-key", AzureStorageKeyDetector()),
        ("cloudant-key", CloudantDetector()),
        ("discord-token", DiscordBotTokenDetector()),
        ("github-token", GitHubTokenDetector()),
        ("ibm-key", IbmCloudIamDetector()),
        ("ibm-key", IbmCosHmacDetector()),
        ("json-web-token", JwtTokenDetector()),
        ("mailchimp-key", MailchimpDetector()),
        ("npm-token", NpmDetector()),
        ("sendgrid-key", SendGridDetector()),
        ("slack-token", SlackDetector()),
        ("softlayer-key", SoftlayerDetector()),
        ("square-secret", SquareOAuthDetector()),
        ("stripe-key", StripeDetector()),
        ("twilio-key", TwilioKeyDetector()),
    )
