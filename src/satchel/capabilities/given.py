"""A folder with a program that is not a capability yet: `main.py` with `run(args)`, and whatever stands beside it.

Such folders are written by hand, or come from programs whose capabilities have `RUN.md`, `main.py`, `requirements.txt`
and perhaps a `manifest.json`, and no cases. Name, description, input schema and document are taken from there. What
can't be made from that, the Builder writes around `main.py`, which stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from satchel.capabilities import archive
from satchel.capabilities.package import CASES, CODE, LINK, MANIFEST, REQUIREMENTS, SKILL, Draft
from satchel.capabilities.records import Wanted, check_name
from satchel.errors import StorageError, StorageUnwritable, UsageError
from satchel.plain import json_in

_KEPT: Final = "given.zip"
"""In a capability's folder: the files as the user gave them, out of the Builder's reach."""
_MORE: Final = ("output_schema", "tags", "hosts", "secrets", "state", "limits")
"""What a manifest may say besides; `make_package` checks it."""
_HEADING: Final = re.compile(r"^#[ \t]+(.+?)[ \t]*$", re.MULTILINE)
_JSON: Final = re.compile(r"```json\n(.*?)\n```", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is known of a program.

    Attributes:
        draft: What a version is made of; a description, schema or cases that are missing are empty.
        missing: What has to be written before it can be a capability, in words.
        files: All files, by their paths.
    """

    name: str
    draft: Draft
    missing: tuple[str, ...]
    files: Mapping[str, bytes]

    @property
    def wanted(self) -> Wanted:
        """What the Builder is asked for."""
        described = self.draft.description or f"What its {CODE} does."
        return Wanted(name=self.name, description=described, input_schema=self.draft.input_schema)


def given_of(files: Mapping[str, bytes], *, called: str) -> Given | None:
    """Read the files of a folder; None if they are a capability, an Agent Skill, or no program. The name of the folder
    serves where its files give none.

    Raises:
        UsageError: The name can't be that of a capability.
    """
    if SKILL in files or CODE not in files:
        return None
    described = _object(files.get(MANIFEST, b""))
    run_md = files.get(LINK, b"").decode("utf-8", "replace").replace("\r\n", "\n")
    heading = _HEADING.search(run_md)
    body = run_md[heading.end() :] if heading else run_md
    about = body.partition("\n## ")[0].strip()
    schema = described.get("input_schema")
    if not isinstance(schema, dict) or not schema:
        schema = next((found for found in map(_object, _JSON.findall(body)) if "type" in found), {})
    draft = Draft(
        code=files[CODE].decode("utf-8", "replace"),
        description=" ".join(str(described.get("description") or about.partition("\n\n")[0]).split()),
        input_schema=schema,
        cases=files.get(CASES, b"").decode("utf-8", "replace"),
        document=body.partition("\n## Input")[0].strip(),
        requirements=[
            line.strip()
            for line in files.get(REQUIREMENTS, b"").decode("utf-8", "replace").splitlines()
            if line.strip() and not line.lstrip().startswith("#")
        ],
        files={
            path: content
            for path, content in files.items()
            if path not in (CODE, REQUIREMENTS, MANIFEST, CASES, LINK)
        },
        **{key: described[key] for key in _MORE if key in described},
    )
    missing = {
        f"cases ({CASES})": draft.cases.strip(),
        f"a description ({LINK}, or `description` in {MANIFEST})": draft.description,
        f"an input schema (`input_schema` in {MANIFEST})": schema,
    }
    return Given(
        name=_name(str(described.get("name", "")), heading[1] if heading else "", called),
        draft=draft,
        missing=tuple(words for words, there in missing.items() if not there),
        files=dict(files),
    )


def keep_given(folder: Path, given: Given) -> None:
    """Keep the files in the folder of their capability, for its builds.

    Raises:
        StorageUnwritable: They can't be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / _KEPT).write_bytes(archive.pack(given.files))
    except OSError as error:
        raise StorageUnwritable(f"{folder / _KEPT} could not be written: {error.strerror}.") from error


def has_given(folder: Path) -> bool:
    """Whether a capability began as a program that the user gave."""
    return (folder / _KEPT).is_file()


def kept_given(folder: Path, name: str) -> Given | None:
    """What `keep_given` kept for the capability of this name; None if there is nothing.

    Raises:
        StorageError: It can't be read.
        UsageError: It is damaged.
    """
    if not has_given(folder):
        return None
    try:
        content = (folder / _KEPT).read_bytes()
    except OSError as error:
        raise StorageError(f"{folder / _KEPT} can't be read: {error.strerror}.") from error
    return given_of(archive.unpack(content), called=name)


def _name(*candidates: str) -> str:
    """The first that can be a name, with underscores for blanks and hyphens."""
    names = [re.sub(r"[\s-]+", "_", each.strip()).lower() for each in candidates]
    for name in names:
        with suppress(UsageError):
            return check_name(name)
    return check_name(names[-1])


def _object(text: str | bytes) -> dict[str, Any]:
    value = json_in(text)
    return value if isinstance(value, dict) else {}
