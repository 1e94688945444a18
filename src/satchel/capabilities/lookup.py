"""Finds capabilities by what they are for: by words in name and description, and by meaning."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import Connection, delete, insert, select

from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.records import Capability, CapabilityStatus, Wanted
from satchel.capabilities.tables import capability_vectors
from satchel.errors import EmbedderError
from satchel.models.embedding import product
from satchel.models.port import Embedder
from satchel.plain import encodable
from satchel.storage import Database

if TYPE_CHECKING:
    from satchel.models.port import Vectors

_WORD: Final = re.compile(r"[^\W_]+")
_IDENTIFIER: Final = re.compile(r"\w+_\w+")
_LEADS: Final = re.compile(r"([^\W_]+)[\W_]+(?:in)?to[\W_]+([^\W_]+)")
_SAME_WORDS: Final = 0.75
"""The share of common words from which two capabilities do the same, whatever their meaning."""
_LEXICAL: Final = 0.5
_NAME_WEIGHT: Final = 2.0
_MOST_AT_ONCE: Final = 256
_MOST_WORDS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCapability:
    """A capability that fits a query; `score` is from 0 to 1, and 1 for its name."""

    capability: Capability
    score: float


class Lookup:
    """Searches a catalogue. It keeps the entries and their vectors in memory until the catalogue changes."""

    def __init__(
        self, catalogue: Catalogue, database: Database, *, embedder: Embedder | Literal["none"] | str
    ) -> None:
        self._catalogue = catalogue
        self._database = database
        self._embedder = None if isinstance(embedder, str) else embedder
        self._version = -1
        self._entries: tuple[Capability, ...] = ()
        self._words: list[tuple[frozenset[str], frozenset[str]]] = []
        self._vocabulary: list[str] = []
        self._places: dict[str, list[tuple[int, float]]] = {}
        self._vectors: Vectors | None = None
        self._vectors_of = -1

    async def search(
        self, query: str, *, limit: int = 5, statuses: Sequence[CapabilityStatus] = ("active",)
    ) -> tuple[FoundCapability, ...]:
        """The capabilities that fit, best first. A query that is a name, or a tool's name, gives that one first. With
        `statuses`, only capabilities with one of these.
        """
        await self._refresh()
        name = query.strip().casefold()
        wanted = _words(query)
        dense = await self._cosines(query) if wanted else None
        floor = self._embedder.info.threshold if self._embedder is not None else 1.0
        by_words = self._by_words(wanted)
        near = [] if dense is None else [number for number, cosine in enumerate(dense) if cosine >= floor]
        named = [
            n for n, entry in enumerate(self._entries) if name in (entry.name, entry.tool_name, entry.id)
        ]
        found: list[FoundCapability] = []
        for number in {*by_words, *near, *named}:
            capability = self._entries[number]
            if capability.status not in statuses:
                continue
            lexical = by_words.get(number, 0.0)
            cosine = 0.0 if dense is None else max(0.0, float(dense[number]))
            if number in named:
                found.append(FoundCapability(capability=capability, score=1.0))
            else:
                score = lexical if dense is None else _LEXICAL * lexical + (1 - _LEXICAL) * cosine
                found.append(FoundCapability(capability=capability, score=min(score, 0.99)))
        found.sort(key=lambda each: (-each.score, each.capability.name))
        return tuple(found[:limit])

    async def similar(self, wanted: Wanted) -> Capability | None:
        """The capability that may do what is wanted under another name, or None: whoever asks decides.

        It is one that `search` finds by meaning for what is wanted, or that has nearly the same words. Left out are
        failed builds, because asking again is how they are tried again, and what the description names as the catalogue
        or a model writes it (`split_bill`, `cap_morse`): it shall be used, or is told apart.
        """
        await self._refresh()
        text = _document(wanted.name, wanted.description)
        # What is wanted is found by its description alone, too, as `search` finds it.
        both = [await self._cosines(each) for each in (text, wanted.description)]
        dense = [max(pair) for pair in zip(*(each for each in both if each is not None), strict=True)]
        words = _words(text)
        left_out = {wanted.name, *_IDENTIFIER.findall(wanted.description)}
        floor = 1.0 if self._embedder is None else self._embedder.info.threshold
        best: tuple[float, Capability | None] = (0.0, None)
        for number, capability in enumerate(self._entries):
            if capability.status == "failed" or not left_out.isdisjoint(
                {capability.name, capability.tool_name}
            ):
                continue
            name, described = self._words[number]
            together = name | described
            shared = len(words & together) / max(1, len(words | together))
            cosine = dense[number] if dense else 0.0
            score = max(shared, cosine)
            turned = _is_turned_round(text, _document(capability.name, capability.description))
            if (shared >= _SAME_WORDS or cosine >= floor) and score > best[0] and not turned:
                best = score, capability
        return best[1]

    async def _refresh(self) -> None:
        version = await self._catalogue.version()
        if version != self._version:
            self._entries = await self._catalogue.list()
            self._words = [
                (_words(entry.name), _words(" ".join((entry.description, *entry.tags))))
                for entry in self._entries
            ]
            places: dict[str, list[tuple[int, float]]] = {}
            for number, (in_name, described) in enumerate(self._words):
                for word in in_name:
                    places.setdefault(word, []).append((number, _NAME_WEIGHT))
                for word in described - in_name:
                    places.setdefault(word, []).append((number, 1.0))
            self._places, self._vocabulary = places, sorted(places)
            self._version = version

    def _by_words(self, wanted: frozenset[str]) -> dict[int, float]:
        """The share of the wanted words that begin a word of an entry, words of its name counting double."""
        scores: dict[int, float] = {}
        for word in wanted:
            best: dict[int, float] = {}
            start = bisect_left(self._vocabulary, word)
            for known in islice(self._vocabulary, start, None):
                if not known.startswith(word):
                    break
                for number, weight in self._places[known]:
                    best[number] = max(weight, best.get(number, 0.0))
            for number, weight in best.items():
                scores[number] = scores.get(number, 0.0) + weight / (_NAME_WEIGHT * len(wanted))
        return scores

    async def _cosines(self, text: str) -> Sequence[float] | None:
        """The cosine of each entry, in their order; None without an embedder or when it fails."""
        if self._embedder is None or not self._entries:
            return None
        try:
            if self._vectors_of != self._version:
                self._vectors = await self._load(self._embedder)
                self._vectors_of = self._version
            query = await self._embedder.embed([text], "query")
        except EmbedderError:
            return None  # Words still find.
        assert self._vectors is not None
        return product(self._vectors, query[0]).tolist()  # type: ignore[no-any-return]

    async def _load(self, embedder: Embedder) -> Vectors:
        """The vectors of all entries in their order; those that are missing or out of date are made and stored."""
        import numpy as np  # noqa: PLC0415 - 0.1 s that only a search by meaning pays

        model = embedder.info.id
        texts = {entry.id: _document(entry.name, entry.description) for entry in self._entries}
        hashes = {
            id: hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() for id, text in texts.items()
        }
        rows = await self._database.read(
            lambda connection: connection.execute(
                select(capability_vectors).where(capability_vectors.c.model == model)
            ).all()
        )
        known = {
            row.capability_id: np.frombuffer(row.vector, np.float32)
            for row in rows
            if hashes.get(row.capability_id) == row.text_hash
        }
        missing = [id for id in texts if id not in known]
        for start in range(0, len(missing), _MOST_AT_ONCE):
            ids = missing[start : start + _MOST_AT_ONCE]
            made = await embedder.embed([texts[id] for id in ids], "document")
            known.update(zip(ids, made, strict=True))
            await self._store(model, [(id, hashes[id], known[id].tobytes()) for id in ids])
        return np.stack([known[entry.id] for entry in self._entries])

    async def _store(self, model: str, rows: Sequence[tuple[str, str, bytes]]) -> None:
        def write(connection: Connection) -> None:
            table = capability_vectors
            there = set(_existing(connection))
            for id, text_hash, vector in rows:
                connection.execute(delete(table).where(table.c.capability_id == id, table.c.model == model))
                if id in there:  # It may have been removed meanwhile.
                    connection.execute(
                        insert(table).values(
                            capability_id=id, model=model, text_hash=text_hash, vector=vector
                        )
                    )

        await self._database.write(write)


def _existing(connection: Connection) -> Iterable[str]:
    from satchel.capabilities.tables import capabilities  # noqa: PLC0415

    return connection.execute(select(capabilities.c.id)).scalars()


def _is_turned_round(one: str, other: str) -> bool:
    """Whether one leads from a to b and the other from b to a, as "miles to kilometres" and "kilometres to miles"."""
    first, second = ({(a, b) for a, b in _LEADS.findall(text.casefold())} for text in (one, other))
    return any((b, a) in second for a, b in first)


def _document(name: str, description: str) -> str:
    return f"{name.replace('_', ' ')}: {description}"


def _words(text: str) -> frozenset[str]:
    """The stems of the words that say something."""
    words = [word for word in _WORD.findall(text.casefold()) if len(word) > 1 and word not in _STOP]
    return frozenset(_stemmer().stemWords([encodable(word) for word in words[:_MOST_WORDS]]))


@cache
def _stemmer() -> Any:
    import Stemmer  # noqa: PLC0415 - only a search needs it

    return Stemmer.Stemmer("english")


_STOP: Final = frozenset(
    (
        "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "get", "give", "has", "have",
        "how", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or", "please", "show", "tell", "that", "the",
        "their", "this", "to", "tool", "use", "user", "want", "what", "when", "which", "will", "with", "you", "your",
    )
)  # fmt: skip
