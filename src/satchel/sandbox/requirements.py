"""What a capability may ask for as a requirement: the name of a package, with extras, versions and a marker.

Nothing that names a place (a URL, a repository, a path, `-e`), no options and no other files: everything comes from
the index that the user chose, as a wheel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from satchel.errors import UsageError

MOST_REQUIREMENTS = 50
_MOST_CHARS = 200
_PLACE = re.compile(r"[.~/\\]|[a-z+]+://|(git|hg|svn|bzr)\+", re.IGNORECASE)
_COMMENT = re.compile(r"(^|\s)#.*")


def parse_requirements(lines: Iterable[str]) -> tuple[str, ...]:
    """Requirements in their plain spelling, sorted by name; empty lines and comments are left out.

    Raises:
        UsageError: A line is something else than a package with its versions; the message says which and why.
    """
    found: dict[str, str] = {}
    for line in lines:
        if len(line) > _MOST_CHARS or "\n" in line or "\r" in line:
            raise UsageError(
                f"The requirement {line[:80]!r} is not one line of at most {_MOST_CHARS} characters."
            )
        text = _COMMENT.sub("", line).strip()
        if not text:
            continue
        requirement = _parsed(text)
        name = canonicalize_name(requirement.name)
        plain = str(requirement)
        if found.setdefault(name, plain) != plain:
            raise UsageError(f"{requirement.name!r} is required twice, as {found[name]!r} and as {plain!r}.")
    if len(found) > MOST_REQUIREMENTS:
        raise UsageError(f"There are {len(found)} requirements; {MOST_REQUIREMENTS} are the most.")
    return tuple(found[name] for name in sorted(found))


def _parsed(text: str) -> Requirement:
    only = "Write only a package's name and versions, such as 'requests>=2.31'."
    if text.startswith("-"):
        raise UsageError(f"{text!r} is an option of an installer, which is not allowed. {only}")
    if not text.isascii() or not text.isprintable() or "$" in text:
        raise UsageError(f"{text!r} holds characters that no requirement has. {only}")
    if re.match(r"[.~/\\]|[a-z+]+://|(git|hg|svn|bzr)\+", text, re.IGNORECASE) or text.endswith(
        (".whl", ".gz", ".zip")
    ):
        raise UsageError(f"{text!r} is a file or an address, which is not allowed. {only}")
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{text!r} is no requirement: {str(error).splitlines()[0]}. {only}") from error
    if requirement.url is not None:
        raise UsageError(f"{text!r} names an address, which is not allowed. {only}")
    if any(specifier.operator == "===" for specifier in requirement.specifier):
        raise UsageError(f"{text!r} compares versions as text (===), which is not allowed. Use ==.")
    return requirement
