"""What a request calls for without mentioning it: booking a table calls for diets and allergies.

`data/associations.json` has topics of a life, each with statements about it, and situations, each with requests and
the topics that matter in it. A home may have its own `associations.json` in the same form, which is added. The texts
are English, or whatever language the embedder reads; they are compared by meaning only.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from satchel.config.home import replacing
from satchel.memory.data_files import read_text_file
from satchel.memory.find.candidates.arrays import Floats, Matrix
from satchel.memory.find.candidates.vectors import Scale
from satchel.memory.spheres import SPHERES
from satchel.models.embedding.rows import product

__all__ = [
    "Associations",
    "Calls",
    "Centres",
    "centres_of",
    "group_key",
    "keep_centres",
    "known_centres",
    "pack_centres",
    "read_associations",
]

FILE_NAME = "associations.json"
_MAX_FILE_CHARS = 1_000_000
_MAX_EXAMPLES = 2_000
"""Texts in a home's own file; each is embedded once."""

_NEAREST = 6
"""Situations that a message may be: it seldom is exactly one of those in the table."""

_MOST_TOPICS = 12


class Calls(NamedTuple):
    """What a message calls for: topics as unit rows, shape (t, d), and how strongly each, shape (t,), 0 to 1."""

    topics: Matrix
    strengths: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Associations:
    """A table of associations.

    Attributes:
        topics: Statements about each topic.
        situations: Requests in each situation.
        weights: For each situation, the topics that matter in it, 0 to 1.
        notice: What is wrong with the home's own file, for the user, or None.
        spheres: To which sphere of a life a topic belongs, for those that belong to one.
    """

    topics: Mapping[str, tuple[str, ...]]
    situations: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, Mapping[str, float]]
    notice: str | None = None
    spheres: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The texts of each topic and then of each situation."""
        return [*self.topics.values(), *self.situations.values()]

    def with_own(self, own: Associations, *, only_own: bool = False) -> Associations:
        """This table and a user's own, whose entries take the place of those with the same name; or, with `only_own`,
        the user's own situations, and of all topics those that one of them names.
        """
        topics, shipped = {**self.topics, **own.topics}, {} if only_own else self.situations
        named = {topic for weights in own.weights.values() for topic in weights}
        return Associations(
            topics={name: texts for name, texts in topics.items() if not only_own or name in named},
            situations={**shipped, **own.situations},
            weights={**self.weights, **own.weights},
            spheres={**self.spheres, **own.spheres},
        )

    def matrix(self) -> Matrix:
        """The weights, shape (situations, topics)."""
        at = {name: place for place, name in enumerate(self.topics)}
        found = np.zeros((len(self.situations), len(self.topics)), dtype=np.float32)
        for row, situation in enumerate(self.situations):
            for topic, weight in self.weights.get(situation, {}).items():
                if topic in at:
                    found[row, at[topic]] = weight
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Centres:
    """A table as one embedder sees it.

    Attributes:
        topics: The mean of each topic's statements, shape (t, d), unit rows; `situations` likewise, (s, d).
        weights: Shape (s, t).
        spheres: Of each topic its sphere, or "".
        scale: From the cosines of `situations` to the scale of those that they are compared with, if it is another.
    """

    topics: Matrix
    situations: Matrix
    weights: Matrix
    scale: Scale | None = None
    spheres: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: Associations, known: Mapping[str, Floats]) -> Centres:
        """Take the centres of all of `Associations.groups`, by `group_key`."""
        rows = np.stack([known[group_key(group)] for group in table.groups])
        split = len(table.topics)
        return cls(
            topics=rows[:split],
            situations=rows[split:],
            weights=table.matrix(),
            spheres=tuple(table.spheres.get(topic, "") for topic in table.topics),
        )

    def calls(self, vectors: Matrix, *, likely: float) -> Calls:
        """What a message calls for.

        `vectors`, shape (q, d), unit rows, are those of the message: alone, and after what was said before it. `likely`
        is the least cosine with a situation that says anything.
        """
        strengths = np.zeros(len(self.topics), dtype=np.float32)
        fits = product(vectors, self.situations.T)
        fits = fits if self.scale is None else self.scale(fits)
        for fit in np.maximum(fits - np.float32(likely), 0):
            nearest = np.argsort(-fit, kind="stable")[:_NEAREST]
            strengths = np.maximum(strengths, (self.weights[nearest] * fit[nearest, None]).max(axis=0))
        best = np.argsort(-strengths, kind="stable")[:_MOST_TOPICS]
        best = best[strengths[best] > 0]
        return Calls(self.topics[best], strengths[best])


def centres_of(groups: Sequence[Sequence[str]], vectors: Matrix) -> Matrix:
    """The mean of each group's vectors, unit rows."""
    starts = np.cumsum([0, *(len(group) for group in groups)])[:-1]
    sums = np.add.reduceat(vectors, starts, axis=0)
    return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9), dtype=np.float32)


def read_associations(home: Path | None, *, only_own: bool = False) -> Associations:
    """The table of the package and the home's own file, which is left out with a notice if it can't be used.

    With `only_own`, only what the user's own situations call for: nothing if there are none.
    """
    shipped = _shipped()
    rest = Associations(topics={}, situations={}, weights={}) if only_own else shipped
    path = None if home is None else home / FILE_NAME
    if path is None or not path.is_file():
        return rest
    try:
        if path.stat().st_size > _MAX_FILE_CHARS:
            raise ValueError(f"it is larger than {_MAX_FILE_CHARS:,} bytes")
        own = _read(json.loads(path.read_text(encoding="utf-8")))
        if sum(len(group) for group in own.groups) > _MAX_EXAMPLES:
            raise ValueError(f"it has more than {_MAX_EXAMPLES:,} examples")
        known = {*shipped.topics, *own.topics}
        for situation, weights in own.weights.items():
            for topic in weights:
                if topic not in known:
                    raise ValueError(
                        f"the situation {situation!r} names the topic {topic!r}, which isn't there"
                    )
    except (OSError, ValueError, RecursionError) as error:
        built_in = "" if only_own else " The built-in associations serve."
        return replace(rest, notice=f"{path} is not used: {error}.{built_in}")
    return shipped.with_own(own, only_own=only_own)


@cache
def _shipped() -> Associations:
    return _read(json.loads(read_text_file(FILE_NAME)))


def _read(found: Any) -> Associations:
    """Check a file's content.

    Raises:
        ValueError: It isn't of the form that it should be; the message says where.
    """
    if not isinstance(found, dict):
        raise ValueError("it isn't an object with topics and situations")
    topics, situations = found.get("topics", {}), found.get("situations", {})
    weights: dict[str, dict[str, float]] = {}
    for name, one in _entries(situations, "situations"):
        calls = one.get("topics")
        if not isinstance(calls, dict) or not all(
            isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
            for value in calls.values()
        ):
            raise ValueError(f"the situation {name!r} has no topics with weights from 0 to 1")
        weights[name] = {topic: float(value) for topic, value in calls.items()}
    return Associations(
        topics={name: _examples(name, one) for name, one in _entries(topics, "topics")},
        situations={name: _examples(name, one) for name, one in _entries(situations, "situations")},
        weights=weights,
        spheres={
            name: str(one["sphere"])
            for name, one in _entries(topics, "topics")
            if one.get("sphere") in SPHERES
        },
    )


def _entries(found: Any, what: str) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise ValueError(f"its {what} aren't objects with a name each")
    return list(found.items())


def _examples(name: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    examples = one.get("examples")
    if (
        not isinstance(examples, list)
        or not examples
        or not all(
            isinstance(text, str) and len(text.strip()) > 0 and len(text) <= 1_000 for text in examples
        )
    ):
        raise ValueError(f"{name!r} has no examples of at most 1,000 characters")
    return tuple(examples)


# Centres for the default embedder come with the package; others are made once for each home.


def known_centres(table: Associations, embedder: str, home: Path | None) -> dict[str, Floats]:
    """The centres of a table's groups that are kept anywhere for an embedder, by `group_key`."""
    wanted = {group_key(group) for group in table.groups}
    found: dict[str, Floats] = {}
    shipped = resources.files("satchel.memory").joinpath("data", "associations.npz")
    for read in (shipped.read_bytes, *(() if home is None else (_kept_in(home, embedder).read_bytes,))):
        try:
            with np.load(io.BytesIO(read()), allow_pickle=False) as kept:
                if str(kept["embedder"]) == embedder:
                    rows = kept["centres"].astype(np.float32)
                    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
                    found |= {
                        key: row
                        for key, row in zip(kept["keys"].tolist(), rows, strict=True)
                        if key in wanted
                    }
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            continue  # Derived: it is made again.
    return found


def pack_centres(embedder: str, centres: Mapping[str, Floats]) -> bytes:
    """Centres by key as a file: one byte for each number, which changes no cosine by more than .01."""
    rows = np.stack(list(centres.values()))
    scale = 127 / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-9)
    packed = io.BytesIO()
    np.savez_compressed(
        packed,
        embedder=np.array(embedder),
        keys=np.array(list(centres)),
        centres=np.rint(rows * scale).astype(np.int8),
    )
    return packed.getvalue()


def keep_centres(embedder: str, home: Path | None, centres: Mapping[str, Floats]) -> None:
    """Keep centres in a home for the next process; without them, it makes them again."""
    if home is None:
        return
    path = _kept_in(home, embedder)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, durable=False) as file:
            file.write(pack_centres(embedder, centres))


def group_key(group: Sequence[str]) -> str:
    """Identifies the examples of one topic or situation."""
    return hashlib.blake2b(json.dumps(group).encode(), digest_size=8).hexdigest()


def _kept_in(home: Path, embedder: str) -> Path:
    """A file for each embedder: two may serve one home."""
    digest = hashlib.blake2b(embedder.encode(), digest_size=4).hexdigest()
    return home / "models" / f"associations-{digest}.npz"
