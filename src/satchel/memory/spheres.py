"""The spheres of a life: which of them a memory belongs to, which a message opens, and what stays closed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from satchel.errors import UsageError

SPHERES: Final = ("health", "love", "family", "money", "work", "belief", "leisure", "home")
"""Parts of a life that many keep apart."""
FOR_GUESTS: Final = ("family", "home", "leisure", "work")
"""What somebody else who writes in the user's place may be answered from, where nothing is confidential: the rest is
nobody's business."""
PERSON: Final = "person:"
"""Begins the sphere of one other person, as "person:mara"."""
MOST_SPHERES: Final = 6
_MOST_CHARS: Final = 60


def clean_spheres(given: Iterable[str]) -> str:
    """Check spheres, and write them as the store has them: lower case, each once, with blanks between them.

    Raises:
        UsageError: There is no such sphere, or there are too many.
    """
    found = dict.fromkeys("-".join(str(one).casefold().split()) for one in given if str(one).strip())
    for one in found:
        if one not in SPHERES and not (one.startswith(PERSON) and one != PERSON and len(one) <= _MOST_CHARS):
            raise UsageError(
                f"There is no sphere {one[:80]!r}; the spheres are {', '.join(SPHERES)}, and {PERSON}NAME for one "
                "person."
            )
    if len(found) > MOST_SPHERES:
        raise UsageError(f"A memory has at most {MOST_SPHERES} spheres.")
    return " ".join(found)


def person_sphere(name: str) -> str:
    """The sphere of a person: "Anna Lund" is "person:anna-lund"."""
    return PERSON + "-".join(name.casefold().split())


def moved_spheres(spheres: Iterable[str], to: str) -> list[str]:
    """The spheres of what is moved to another one, or with "" to none; the persons that it is about stay."""
    persons = [one for one in spheres if one.startswith(PERSON) and one != to]
    return [*([to] if to else []), *persons][:MOST_SPHERES]


def is_granted(spheres: Collection[str], granted: Collection[str]) -> bool:
    """Whether somebody who was granted some spheres may be told of a memory; nobody is told what has none. An empty
    grant grants all.
    """
    return not granted or (bool(spheres) and all(one in granted for one in spheres))


def fitting_spheres(given: object) -> tuple[str, ...]:
    """Those of a model's spheres that there are."""
    found = []
    for one in given if isinstance(given, list) else ():
        with suppress(UsageError):
            found.append(clean_spheres([one]))
    return tuple(dict.fromkeys(filter(None, found)))[:MOST_SPHERES]
