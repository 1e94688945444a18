"""Holds the lines of a page to the facts that they stand on.

A line may only leave things out. It consists of statements, separated by semicolons, perhaps after a head ("Linh:
Vietnamese; can't stand dairy"). Each statement is a fact from its beginning on, word for word and in its order. What
may be left out of it is closed: articles and the present copula, the words for the user where nobody else could be
meant, an insertion in brackets or after a name, and words for a day beside the date that was computed for them. No word
is added, none is exchanged, and no two words change places: a denial, an owner, a doubt, a number or a name that the
fact doesn't have can't come in, and those that it has can't get lost.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from satchel.memory.data_files import read_text_file
from satchel.memory.languages import language_of
from satchel.memory.page.records import PageLine
from satchel.memory.records import MemoryRecord

__all__ = ["MOST_CHARS", "content_hash_of", "is_whole", "stands", "unsupported"]

MOST_CHARS: Final = 400
"""Of a line: some 110 tokens, a tenth of the page."""

_HAN: Final = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0eff"
_TOKEN: Final = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+(?:['.,:/-][^\W_{_HAN}]+)*")
"""A word, with what holds its parts together ("can't", "7:30", "H-448"); a character of a script without spaces."""
_SENTENCE: Final = re.compile(r"[.!?…](?:\s|$)|(?<=[\u3040-\u9fff])[!?]|。|\n")
_BREAK: Final = re.compile(r"[;|•·\n]|[.!?…](?=\s|$)|。")
"""Between the statements of a line."""
_HEAD: Final = re.compile(rf":(?=\s)|(?<=[{_HAN}]):|\s[–—]\s")
_OPENS: Final = re.compile(r"[,、(\[;:–—]")
"""Before a subordinate part."""
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_MOST_SWAPPED: Final = 2
"""Of a head, the words that may change places: "Jochen (brother)" for "the user's brother Jochen"."""


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a text.

    Attributes:
        before: What stands between it and the word before.
        may_go: It may be left out.
    """

    form: str
    before: str
    may_go: bool = False


def content_hash_of(facts: Sequence[MemoryRecord]) -> str:
    """A hash of what facts say."""
    words = "\n".join(fact.content for fact in facts)
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()


def stands(line: PageLine, held: Mapping[str, MemoryRecord]) -> bool:
    """Whether the facts of a line hold and say what they said when it was written."""
    facts = [held[id] for id in line.facts if id in held]
    return len(facts) == len(line.facts) > 0 and content_hash_of(facts) == line.checked


def unsupported(text: str, facts: Sequence[MemoryRecord], dated: Mapping[str, Sequence[str]]) -> str | None:
    """Why a line can't stand on facts.

    Args:
        text: The line.
        facts: What it names.
        dated: By the facts' ids, their words for days that a program computed ("next Friday").

    Returns:
        The reason, in words for the model that wrote it; None where every statement of it is in one of the facts, and
        each fact has a statement.
    """
    if len(text) > MOST_CHARS:
        return f"it is longer than {MOST_CHARS} characters"
    statements = _statements_of(_plain(text))
    if not statements:
        return "it says nothing"
    sentences = {fact.id: _sentences_of(fact, dated.get(fact.id, ())) for fact in facts}
    used: set[str] = set()
    has_other = False
    for top, words in statements:
        has_other = has_other or bool(top)
        found = {id for id, parts in sentences.items() if any(_says(words, part, top) for part in parts)}
        if not found:
            return _reason(words, top, sentences.values())
        there = [part for id in found for part in sentences[id]]
        about_user = any(part.is_about_user for part in there)
        names_user = any(word.form in part.user for word in words for part in there)
        if about_user and has_other and not names_user:
            return "after somebody else, what is said of the user has to say so, or it seems to be theirs"
        has_other = has_other or not about_user
        used |= found
    missing = len(facts) - len(used)
    return None if not missing else f"it says nothing of {missing} of its facts"


def _statements_of(text: str) -> list[tuple[list[_Word], list[_Word]]]:
    """The statements of a line, each after the head that holds for it."""
    found = []
    top: list[_Word] = []
    for part in _BREAK.split(text):
        body = part
        if (mark := _HEAD.search(part)) is not None:
            top, body = _words(part[: mark.start()]), part[mark.end() :]
        if words := _words(body):
            found.append((top, words))
    return found


def is_whole(text: str, fact: MemoryRecord) -> bool:
    """Whether a line has every telling word of a fact, so that the fact need not be shown again."""
    there = {word.form for word in _words(_plain(text))}
    return all(
        word.may_go or word.form in there for sentence in _sentences_of(fact, ()) for word in sentence.words
    )


def _reason(words: Sequence[_Word], top: Sequence[_Word], facts: Iterable[Sequence[_Sentence]]) -> str:
    there = {word.form for sentences in facts for sentence in sentences for word in sentence.words}
    strange = [word.form for word in (*top, *words) if word.form not in there]
    if strange:
        return f'"{strange[0]}" is in none of its facts'
    return (
        f'"{" ".join(word.form for word in words)[:80]}" is no fact from its beginning, word for word: keep the order, '
        "leave nothing else out, and put ; between what is from several facts"
    )


def _says(words: Sequence[_Word], sentence: _Sentence, top: Sequence[_Word]) -> bool:
    """Whether a statement, with the head of its line, is a sentence of a fact with nothing but omissions."""
    if not top:
        return sentence.has(words)
    if sentence.has((*top, *words)):
        return True
    if not sentence.is_about_user and sentence.has(words):
        # The head says once more whom the fact is about.
        forms = [word.form for word in sentence.words]
        wanted = [word.form for word in top]
        return any(forms[at : at + len(wanted)] == wanted for at in range(len(forms)))
    telling = [at for at, word in enumerate(sentence.words) if not word.may_go][: len(top)]
    return (
        len(top) == len(telling) <= _MOST_SWAPPED
        and {word.form for word in top} == {sentence.words[at].form for at in telling}
        and not any(_OPENS.search(sentence.words[at].before) for at in telling[1:])
        and sentence.has(words, start=telling[-1] + 1)
    )


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of a fact.

    Attributes:
        user: The words for the user in its language.
        is_about_user: It begins with the user, who may be left out.
    """

    words: tuple[_Word, ...]
    free: frozenset[str]
    user: frozenset[str]
    guards: frozenset[str] | None
    is_about_user: bool

    def has(self, words: Sequence[_Word], *, start: int = 0) -> bool:
        """Whether some words are this sentence from a place on, but for what may be left out."""
        if all(word.form in self.free for word in words):
            return False
        waiting, seen = [(0, start)], {(0, start)}
        while waiting:
            at, place = waiting.pop()
            if at == len(words):
                if all(word.may_go for word in self.words[place:]):
                    return True
                continue
            after = []
            if place < len(self.words):
                there = self.words[place]
                if there.form == words[at].form:
                    after.append((at + 1, place + 1))
                if there.may_go:
                    after.append((at, place + 1))
                if (end := self._after_insertion(place)) > place:
                    after.append((at, end))
            waiting += [state for state in after if state not in seen]
            seen.update(after)
        return False

    def _after_insertion(self, place: int) -> int:
        """Where it goes on after an insertion that may be left out: in brackets, or between commas right after the name
        that it begins with. 0 where there is none.
        """
        before = self.words[place].before
        is_bracket = "(" in before
        named = sum(not word.may_go for word in self.words[:place])
        if not is_bracket and not ("," in before and named == 1):
            return 0
        for end in range(place + 1, len(self.words)):
            if (")" if is_bracket else ",") in self.words[end].before:
                return 0 if self._is_guarded(self.words[place:end]) else end
        return 0

    def _is_guarded(self, words: Sequence[_Word]) -> bool:
        return self.guards is None or any(
            word.form in self.guards
            or word.form.endswith("n't")
            or word.form.startswith("n'")
            or any(char.isdigit() for char in word.form)
            for word in words
        )


def _sentences_of(fact: MemoryRecord, dated: Sequence[str]) -> tuple[_Sentence, ...]:
    text = _plain(fact.content)
    known = _lists().get(language_of(text), {})
    articles, copula, user, of = (known.get(name, frozenset()) for name in ("articles", "is", "user", "of"))
    free = articles | copula
    found = []
    for part in _SENTENCE.split(text):
        words = _words(part)
        about = _of_user(words, free, user, of)
        gone = _beside_dates(words, dated) | {
            at for at in about if _is_plain(words, at, about, articles=articles, copula=copula)
        }
        first = next((at for at, word in enumerate(words) if word.form not in free), None)
        marked = tuple(
            _Word(word.form, word.before, may_go=word.form in free or at in gone)
            for at, word in enumerate(words)
        )
        found.append(
            _Sentence(
                words=marked,
                free=free,
                user=frozenset(form for one in user for word in _words(one) for form in [word.form]),
                guards=known.get("guards"),
                is_about_user=first is not None and about.get(first, False),
            )
        )
    return tuple(found)


def _is_plain(
    words: Sequence[_Word],
    at: int,
    about: Collection[int],
    *,
    articles: Collection[str],
    copula: Collection[str],
) -> bool:
    """Whether words for the user may be left out: after one telling word at most ("la esposa del usuario"), or right
    after the copula ("Linh is the user's wife"). In "Jochen hates the user's wife" she would seem to be Jochen's.
    """
    telling = sum(
        place not in about and words[place].form not in articles and words[place].form not in copula
        for place in range(at)
    )
    before = at - 1
    while before >= 0 and (before in about or words[before].form in articles):
        before -= 1
    return telling <= 1 or (before >= 0 and words[before].form in copula)


def _of_user(
    words: Sequence[_Word], free: Collection[str], user: Collection[str], of: Collection[str]
) -> dict[int, bool]:
    """The places of the words for the user ("the user's", "del usuario", "用户的"), and whether they are the user's own
    doing or state, and not of something that is the user's.
    """
    found: dict[int, bool] = {}
    forms = [word.form for word in words]
    for form in user:
        parts = [part.form for part in _words(form)]
        for at in range(len(words) - len(parts) + 1):
            if forms[at : at + len(parts)] != parts:
                continue
            first, after = at - 1, at + len(parts)
            while first >= 0 and forms[first] in free:
                first -= 1
            owns = form.endswith("'s")
            if first >= 0 and forms[first] in of:
                found[first] = False
                owns = True
            if after < len(words) and forms[after] in of and not words[after].before:
                found[after] = False
                owns = True
            for place in range(at, at + len(parts)):
                found[place] = not owns
    return found


def _beside_dates(words: Sequence[_Word], dated: Sequence[str]) -> set[int]:
    """The places of the words for a day that stand before the date which was computed for them."""
    found: set[int] = set()
    forms = [word.form for word in words]
    for phrase in dated:
        parts = [part.form for part in _words(_plain(phrase))]
        for at in range(len(forms) - len(parts)):
            end = at + len(parts)
            if forms[at:end] == parts and "(" in words[end].before and _DAY.fullmatch(forms[end]):
                found.update(range(at, end))
    return found


def _words(text: str) -> list[_Word]:
    found: list[_Word] = []
    end = 0
    for match in _TOKEN.finditer(text):
        found.append(_Word(match[0], text[end : match.start()]))
        end = match.end()
    return found


def _plain(text: str) -> str:
    """The text in one spelling: composed, in lower case, with plain apostrophes and hyphens."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return re.sub("[\u2018\u2019\u02bc]", "'", re.sub("[\u2010\u2011]", "-", text))


@cache
def _lists() -> Mapping[str, Mapping[str, frozenset[str]]]:
    found: dict[str, Any] = json.loads(read_text_file("page_words.json"))
    return {
        language: {name: frozenset(words) for name, words in lists.items()}
        for language, lists in found.items()
        if isinstance(lists, dict)
    }
