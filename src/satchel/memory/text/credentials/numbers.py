"""Numbers that are secrets: cards, accounts, numbers of persons, codes that unlock.

Where a number has check digits, they are computed; a number without any counts only beside its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from satchel.memory.text.credentials.secret import Secret, spans

# Fewer than six digits near each other are no number of a person, an account or a card.
_DIGITS: Final = re.compile(r"(?:\d[A-Z .\-/]{0,3}){6}")
_RECOVERY: Final = re.compile(
    r"\b(?i:recovery|backup|scratch|rescue|emergency|wiederherstellungs|ersatz)[ -]?(?i:codes?|keys?)\b"
    r"(?:[^\n:=]{0,40}[:=]|\s+(?:is|are|ist|sind)|\s(?=[\w-]*[a-zA-Z][\w-]*\d|[\w-]*\d[\w-]*[a-zA-Z]))\s*"
    r"((?:(?:and\s|und\s|et\s|y\s)?(?:\d{1,2}[.)]\s|[-*•]\s)?(?=[a-z-]*\d|[A-Z-]*\d)[A-Za-z0-9]{4,12}(?:-[A-Za-z0-9]{4,12}){0,7}\b[\s,;]{0,4}){1,24})"
)
_BITLOCKER: Final = re.compile(r"(?<![\d-])\d{6}(?:-\d{6}){7}(?![\d-])")
# The secret of a one-time password generator, in base 32.
_BASE32: Final = re.compile(
    r"(?i:\b(?:set-?up|2fa|mfa|totp|otp|authenticator)[ -](?:key|code|secret|seed)\b)[^\n]{0,20}?[:=]?\s*"
    r"((?:[A-Z2-7]{4}[ -]){3,15}[A-Z2-7]{2,4}|[A-Z2-7]{16,64})\b"
)
# A wallet's words are 12 to 24 of a fixed list of lower-case words of three to eight letters (BIP-39).
_PHRASE: Final = re.compile(
    r"\b(?i:seed|recovery|mnemonic|backup|wallet)\s+(?:phrase|words)\b[^\n]{0,30}?[:=]?\s*"
    r"((?:[a-z]{3,8}[ ,]+){11,23}[a-z]{3,8})\b"
)
_CARD: Final = re.compile(r"(?<![\d.,/-])(?<!\d )\d(?:[ -]?\d){12,18}(?![\d/])(?! ?\d|[.,]\d)")
_HASH_BEFORE: Final = re.compile(r"[0-9a-fA-F]+\Z")
_HASH_AFTER: Final = re.compile(r"[0-9a-fA-F]+")
_IBAN: Final = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")

# The number of a person beside its name, whatever it looks like.
_NAMED_PERSON: Final = re.compile(
    r"\b(?:(?i:ssn|social (?:security|insurance)(?: number| no\.?| nr\.?| #)?|national insurance(?: number| no\.?)?"
    r"|(?:sozial|renten)versicherungs-?(?:nummer|nr\.?)|sv-?(?:nummer|nr\.?)|rv-?(?:nummer|nr\.?)|ahv-?(?:nummer|nr\.?|no\.?)?"
    r"|num[ée]ro (?:de )?(?:s[ée]curit[ée] sociale|avs)|avs|codice fiscale|burgerservicenummer|pesel|personnummer"
    r"|steuer-?id(?:entifikationsnummer|nr\.?)?|tax(?:payer)? id(?:entification)?(?: number| no\.?)?|nino|ni number)"
    r"|SIN|SVNR|VSNR|RVNR|NIR|BSN|DNI|NIE|NIF|TIN)\b[^\d\n]{0,25}?"
    r"(?<![A-Za-z0-9])((?:[A-Z]{1,6}[ .-]?)?\d(?:[ .\-/]?[A-Z0-9]){6,15})\b"
)
_US: Final = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])")
_SWISS: Final = re.compile(r"(?<![\d.])756[. ]?\d{4}[. ]?\d{4}[. ]?\d{2}(?!\d)")
_GERMAN: Final = re.compile(r"(?<!\w)\d{2} ?[0-3]\d[01]\d{3} ?[A-Z] ?\d{2} ?\d(?!\w)")
_AUSTRIAN: Final = re.compile(r"(?<![\w.-])[1-9]\d{3} [0-3]\d[01]\d{3}(?![\w-])(?!\.\d)")
_BRITISH: Final = re.compile(r"\b[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] \d{2} \d{2} \d{2} [A-D]\b")
_FRENCH: Final = re.compile(
    r"(?<!\d)[12] ?\d{2} ?(?:0[1-9]|1[0-2]|[2-9]\d) ?\d{2} ?\d{3} ?\d{3} ?\d{2}(?![\d ]\d)"
)
_ITALIAN: Final = re.compile(r"\b[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]\b")

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


def find_numbers(text: str) -> Iterator[Secret]:
    """The numbers and phrases in a text that are secrets."""
    lowered = text.lower()
    if any(word in lowered for word in ("code", "key", "2fa", "otp", "mfa")):
        for match in _RECOVERY.finditer(text):
            end = match.start(1) + len(match[1].rstrip(" \t\r\n,;"))
            yield Secret(kind="code", start=match.start(1), end=end)
        yield from spans("code", _BASE32.finditer(text), 1)
    if "phrase" in lowered or "words" in lowered:
        yield from spans("seed-phrase", _PHRASE.finditer(text), 1)
    if _DIGITS.search(text) is None:
        return
    yield from spans("code", _BITLOCKER.finditer(text))
    cards = (m for m in _CARD.finditer(text) if _is_card(m[0]) and not _is_in_hash(text, m))
    yield from spans("card-number", cards)
    yield from spans("iban", (m for m in _IBAN.finditer(text) if _is_iban(m[0])))
    yield from spans("social-security-number", _NAMED_PERSON.finditer(text), 1)
    for pattern, is_one in _PERSONS:
        yield from spans("social-security-number", (m for m in pattern.finditer(text) if is_one(m[0])))


def _is_in_hash(text: str, match: re.Match[str]) -> bool:
    """Whether digits stand in a hash: 11 of 60,000 random ones of 256 bits have a run that passes for a card number."""
    before = _HASH_BEFORE.search(text[max(0, match.start() - 128) : match.start()])
    after = _HASH_AFTER.match(text, match.end(), match.end() + 128)
    around = len(before[0] if before else "") + len(after[0] if after else "")
    return around > 0 and around + len(match[0]) >= 32


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


def _is_swiss(text: str) -> bool:
    """By its check digit, as of an EAN-13."""
    digits = [int(char) for char in text if char.isdigit()]
    return sum(digit * (1 + 2 * (at % 2)) for at, digit in enumerate(digits)) % 10 == 0


def _is_german(text: str) -> bool:
    """By its check digit (§ 2 VKVV): the letter counts as its two-digit place in the alphabet."""
    plain = text.replace(" ", "")
    letter = ord(plain[8]) - ord("A") + 1
    digits = f"{plain[:8]}{letter:02d}{plain[9:11]}"
    products = (
        int(digit) * weight
        for digit, weight in zip(digits, (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1), strict=True)
    )
    return sum(product // 10 + product % 10 for product in products) % 10 == int(plain[11])


def _is_austrian(text: str) -> bool:
    """By its check digit, the fourth; the day of birth follows it."""
    digits = [int(char) for char in text if char.isdigit()]
    is_day = 1 <= digits[4] * 10 + digits[5] <= 31 and 1 <= digits[6] * 10 + digits[7] <= 15
    weighted = sum(d * w for d, w in zip(digits, (3, 7, 9, 0, 5, 8, 4, 2, 1, 6), strict=True))
    return is_day and weighted % 11 == digits[3]


def _is_french(text: str) -> bool:
    """By its key, the last two digits."""
    plain = text.replace(" ", "")
    return 97 - int(plain[:13]) % 97 == int(plain[13:])


_PERSONS: Final[tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...]] = (
    (_US, bool),
    (_BRITISH, bool),
    (_ITALIAN, bool),
    (_SWISS, _is_swiss),
    (_GERMAN, _is_german),
    (_AUSTRIAN, _is_austrian),
    (_FRENCH, _is_french),
)
"""Numbers of persons whose form says what they are, each with its check."""
