"""What the user wants held back, and who is speaking: recognised in what is said, without a model, and obeyed at once.

A sentence is compared with the forms in `data/wishes.txt`, in the languages that are served. Every model's extractor
and the user may say more, and the user may lift it. It needs neither numpy nor a database.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from satchel.memory.data_files import read_lines
from satchel.memory.records import OWN_SPEAKERS, Discretion, Kind, Trust
from satchel.memory.text.languages import ENGLISH, function_words, language_of
from satchel.memory.text.lexicon import commonness, plain, stems_of

GUEST: Final = "guest"
"""The speaker of what was said while somebody other than the user wrote."""
HELD_BACK: Final[tuple[Discretion, ...]] = ("confidential", "withheld")

Whose: TypeAlias = Literal["own", "other", "named", ""]
"""A name: the user's, somebody else's, of whom or of whose things a fact only speaks ("named"), or nobody's that is
known.
"""
WishKind: TypeAlias = Literal["back", "guest", "named", "again", "forget", "confidential"]

_ORDER: Final[tuple[WishKind, ...]] = ("back", "guest", "named", "again", "forget", "confidential")
_BY_NAME: Final[tuple[WishKind, ...]] = ("named", "again")
_RANK: Final[dict[Discretion, int]] = {"open": 0, "confidential": 1, "withheld": 2}
_MOST_CHARS: Final = 4_000
"""Of a message: so much at each end. A wish stands before or after what was pasted."""
_MOST_SENTENCE_CHARS: Final = 300
_LEAST_SAID: Final = 4
"""Words before a wish that it may be about; "no, wait" is about what was said before."""
_SHORT_WORDS: Final = 10
"""A message that is one sentence of so many words at most says nothing else: it is about what was said before."""
_TELLING: Final = 0.02
"""A word that stands in more English texts than that says nothing of what is asked; as rare as "doctor"."""
_NAME_WORDS: Final = 3
"""What stands after "User:" is the user's name if it has so many words at most, none of them in lower case."""
_WORD: Final = re.compile(r"\w[\w'-]*?(?='s\b|[^\w'-]|$)")
"""A word, without the "'s" of whoever has something."""
_STRETCHED: Final = re.compile(r"([^\W\d])\1{2,}")
_CLAUSE: Final = re.compile(r"[,;:.(]")
_QUOTES: Final = re.compile('[:："“„«]')
_UNSPACED: Final = "\u2e80"
"""The first character of the scripts without spaces."""
_SENTENCE: Final = re.compile(r"[^.!?…。！？\n]+[.!?…。！？]*")


class DiscretionWish(NamedTuple):
    """What a message asks for, or who writes it.

    Attributes:
        kind: "forget" for what is not to be kept or was taken back, "confidential", "guest" where somebody else
            announces themselves, "back" where the user does, "named" where somebody does by a name alone ("Heike
            here"), which may be the user's, and "again" where only the user's own name says so ("Marek again": with
            another one, it is about somebody).
        words: The sentence that says so.
        points_back: It is about the turn before too.
        name: Of "named" and "again", in lower case without accents.
    """

    kind: WishKind
    words: str
    points_back: bool
    name: str = ""

    def is_guests(self, whose: Whose) -> bool | None:
        """Whether a guest speaks from then on; None where it doesn't say."""
        if self.kind in ("guest", "back"):
            return self.kind == "guest"
        if whose == "own":
            return False
        return True if whose in ("other", "named") and self.kind == "named" else None

    @property
    def discretion(self) -> Discretion:
        """How the turn is held back."""
        if self.kind == "forget":
            return "withheld"
        return "confidential" if self.kind == "confidential" else "open"


def stricter(one: Discretion, other: Discretion) -> Discretion:
    """The one of two that shows less."""
    return max(one, other, key=_RANK.__getitem__)


def is_wishing(kind: Kind, trust: Trust, speaker: str) -> bool:
    """Whether something is the user's own turn, in which a wish counts."""
    return kind == "episode" and trust == "user" and speaker.casefold() in OWN_SPEAKERS


@lru_cache(maxsize=512)
def wish_of(text: str) -> DiscretionWish | None:
    """What a message of the user asks to hold back, or who it says is writing; None for nearly all messages."""
    if len(text) > 2 * _MOST_CHARS:
        text = f"{text[:_MOST_CHARS]}\n{text[-_MOST_CHARS:]}"
    sentences = [part.strip() for part in _SENTENCE.findall(text) if part.strip()]
    found: list[tuple[int, WishKind]] = []
    for place, sentence in enumerate(sentences):
        kind = _kind_of(sentence)
        # Whoever announces themselves does it first.
        if kind and not (kind in _BY_NAME and place):
            found.append((place, kind))
    if not found:
        return None
    place, kind = min(found, key=lambda one: (_ORDER.index(one[1]), one[0]))
    said_before = sum(len(sentence.split()) for sentence in sentences[:place]) >= _LEAST_SAID
    is_alone = len(found) == len(sentences) and len(sentences[place].split()) <= _SHORT_WORDS
    return DiscretionWish(
        kind=kind,
        words=sentences[place],
        points_back=not said_before and (kind == "forget" or (kind == "confidential" and is_alone)),
        name=_name_in(sentences[place], kind) if kind in _BY_NAME else "",
    )


def open_part(text: str) -> str:
    """What a message says after it asked not to keep something, below blanks of the same length: a wish is about what
    stands before it, unless it announces what comes ("don't keep this: …"). Blank if there is nothing.
    """
    last = 0
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        if _kind_of(sentence) == "forget":
            last = len(text) if ":" in sentence or "：" in sentence else match.end()
    return " " * last + text[last:] if last else " " * len(text)


def beside_wish(text: str) -> str:
    """What a message says apart from a wish to keep something between us, below blanks of the same length: the wish
    is about its own sentence and those before and after it. Beyond them, who read the whole says what it is about.
    """
    sentences = list(_SENTENCE.finditer(text))
    found = [_kind_of(each.group()) == "confidential" for each in sentences]
    parts = list(" " * len(text))
    for place, each in enumerate(sentences):
        if not any(found[max(place - 1, 0) : place + 2]):
            parts[each.start() : each.end()] = each.group()
    return "".join(parts) if any(found) else " " * len(text)


def announced(texts: Iterable[str]) -> list[DiscretionWish]:
    """Where the messages of a conversation say who is speaking, the newest first."""
    found = [wish for text in texts if (wish := wish_of(text)) is not None]
    return [wish for wish in reversed(found) if wish.kind in ("guest", "back", *_BY_NAME)]


def named_in(name: str, content: str) -> Whose:
    """Whose name (in lower case, without accents) it is by a fact, which begins with its subject ("Heike (wife):
    seasick") and calls the user "User": "own" if the user is called so ("User: Jörn, 67"), "other" if it is about
    somebody who is, and "named" if it only has the name: "User: runs the stand Chez Béné" is about Béné herself.
    """
    subject, colon, rest = content.replace("\uff1a", ":").partition(":")
    words = [word for word in _WORD.findall(_plain(subject)) if word != "the"]
    if words[:1] == ["user"]:
        if name in _called(rest) or name in _nicknames(rest):
            return "own"
        if not colon:
            return ""
    # "Friterie Chez Béné: closed on Mondays" is about no Béné.
    if (colon and name in _called(subject)[:2]) or is_kin(name, content):
        return "other"
    # "Choir: every Friday" is about nobody, but "June (wife): seasick" is.
    return "named" if name in _names(content) - _calendar() else ""


def _called(text: str) -> list[str]:
    """The name that stands first, alone, in a text ("June (wife)"). "Buys Wenna a boat" has none, nor has "5 May"."""
    words = _WORD.findall(_CLAUSE.split(text, maxsplit=1)[0])
    is_name = len(words) <= _NAME_WORDS and all(one[0].isalpha() and not one[0].islower() for one in words)
    return [_plain(one) for one in words] if is_name else []


def _nicknames(text: str) -> set[str]:
    """What somebody whose name stands first is called as well ("Bridget, called Bee"): no name of theirs' own."""
    name, *others = _CLAUSE.split(text)
    if not _called(name) or not others or len(_WORD.findall(others[0])) > _NAME_WORDS:
        return set()
    return {one for one in _names(others[0]) if not is_kin(one, text)}


def is_kin(name: str, said: str) -> bool:
    """Whether the user speaks of somebody of theirs by this name ("my husband Tobi"). `name` is as in `named_in`."""
    return _says(said, "kin", name)


def is_own(name: str, said: str) -> bool:
    """Whether the user says that they are called so ("my name is Tobi", "Tobi here"), and not whoever they quote or
    write for ("Draft a letter: I am Lena").
    """
    return _says(_QUOTES.split(said, maxsplit=1)[0], "own", name)


def _says(said: str, form: str, name: str) -> bool:
    said = said[:_MOST_CHARS]
    # Chinese has no capitals.
    if name not in plain(said) or not (name > _UNSPACED or name in _names(said)):
        return False
    return any(name in match.groups() for match in _forms()[form].finditer(_plain(said)))


def _names(text: str) -> set[str]:
    """The capitalised words of a text. Chinese has no capitals."""
    return {_plain(word) for word in _WORD.findall(text) if not word[0].islower()}


@cache
def _calendar() -> frozenset[str]:
    return frozenset(map(_plain, read_lines("calendar_names.txt")))


def asks_about(text: str, content: str) -> bool:
    """Whether a message asks about what a memory says: one of its questions shares two telling words with it, or has
    no other. Merely to touch the matter is not to ask about it.
    """
    there = set(stems_of(content))
    return any(len(asked & there) >= 2 or (asked and asked <= there) for asked in _questions(text))


def asks_near(text: str, content: str) -> bool:
    """The same, or, in another language than English, whether a question shares one word: which words are common is
    known of English alone, so a question there seems to be about more than it is.
    """
    is_asked = asks_about(text, content)
    if is_asked or language_of(text) == ENGLISH:
        return is_asked
    there = set(stems_of(content)) - _joining("")
    return any(not asked.isdisjoint(there) for asked in _questions(text))


@cache
def _joining(language: str) -> frozenset[int]:
    """The stems of words that only join others, of a language or of all."""
    return frozenset(stem for word in function_words(language) for stem in stems_of(word))


def _questions(text: str) -> list[set[int]]:
    """The telling words of each question of a message."""
    sentences, language = _SENTENCE.findall(text[-_MOST_CHARS:]), language_of(text)
    return [telling_words(one, language) for one in sentences if one.rstrip()[-1:] in ("?", "？")]


def telling_words(text: str, language: str = "") -> set[int]:
    """The stems of a text in a language, by default its own, that say what it is about."""
    language = language or language_of(text)
    if language == ENGLISH:
        return {one for one in stems_of(text) if commonness(one) <= _TELLING}
    return set(stems_of(text)) - _joining(language)  # which others are common is known of English alone


def _kind_of(sentence: str) -> WishKind | None:
    sentence = sentence.strip()
    text = _plain(sentence) if len(sentence) <= _MOST_SENTENCE_CHARS else ""
    # "This is confidential" is nobody's name.
    order = sorted(_ORDER, key=_BY_NAME.__contains__)
    return next((kind for kind in order if _forms()[kind].search(text)), None)


def _name_in(sentence: str, kind: WishKind) -> str:
    match = _forms()[kind].search(_plain(sentence))
    return next((name for name in match.groups() if name), "") if match else ""


def _plain(text: str) -> str:
    """The text in lower case, without accents, with straight apostrophes, and "holaaa" as "hola"."""
    return plain(_STRETCHED.sub(r"\1", text.lower().replace("’", "'").replace("‘", "'")))


@cache
def _forms() -> dict[str, re.Pattern[str]]:
    names: dict[str, str] = {}
    forms = defaultdict[str, list[str]](list)
    for line in read_lines("wishes.txt"):
        kind, _, form = line.partition(": ")
        for name, value in names.items():
            form = form.replace(f"{{{name}}}", value)
        if kind.startswith("= "):
            names[kind[2:]] = form
        else:
            forms[kind].append(f"(?:{form})")
    return {kind: re.compile("|".join(some)) for kind, some in forms.items()}
