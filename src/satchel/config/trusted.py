"""Records which project folders the user trusts, and their content at that time.

A project may bring settings, tools and instructions for the model. Each of them gives power over the user's machine, so
none is used before the user has reviewed it. Trust covers the content that was reviewed: after a change, the user is
shown the change and asked again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from satchel.config.home import ensure_home, locked_folder, open_regular, replace_file
from satchel.config.toml_file import TomlFile, read_toml
from satchel.errors import ConfigError
from satchel.plain import as_json

_TRUSTED: Final = "trusted.json"
_SETTINGS: Final = ".satchel/config.toml"
_TOOLS: Final = ".satchel/tools"
_INSTRUCTIONS: Final = "AGENTS.md"
SKILL_FOLDERS: Final = (".agents/skills", ".claude/skills")
"""Where a project keeps Agent Skills. Of two with the same name, the one in the first folder counts."""
_SKILL: Final = "SKILL.md"
MAX_INSTRUCTIONS_BYTES: Final = 1_000_000
"""The largest AGENTS.md; a longer one is not used."""
_MAX_TOOLS: Final = 2_000
"""The most files that are examined in one folder of tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    """The content of a folder when the user trusted it.

    Attributes:
        settings: SHA-256 of the parsed settings, or "" if there were none.
        instructions: SHA-256 of AGENTS.md, or "" if there was none.
        tools: SHA-256 of each file in the folders of tools, by path.
        skills: SHA-256 of each SKILL.md, by path.
    """

    settings: str = ""
    instructions: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    skills: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectContent:
    """What a project brings, read once.

    Attributes:
        settings: Its parsed settings file, or None.
        instructions: The text of its AGENTS.md, or "" if there is none or it is too long.
    """

    folder: Path
    settings: TomlFile | None
    instructions: str
    record: TrustRecord

    def changes_since(self, before: TrustRecord) -> tuple[str, ...]:
        """The changes that make the folder untrusted again, in words: ".satchel/config.toml has changed".

        Tools are not included: each new or changed tool needs its own approval.
        """
        pairs = (
            (_SETTINGS, before.settings, self.record.settings),
            (_INSTRUCTIONS, before.instructions, self.record.instructions),
        )
        # What was removed grants nothing.
        return tuple(
            f"{name} {'has changed' if old else 'is new'}" for name, old, new in pairs if new and new != old
        )


def project_files(folder: Path) -> tuple[str, ...]:
    """The files of a project that are used only if the user trusts its folder, as relative paths."""
    return tuple(
        name for name in (_SETTINGS, _TOOLS, _INSTRUCTIONS, *SKILL_FOLDERS) if (folder / name).exists()
    )


def read_project(folder: Path) -> ProjectContent:
    """Read what a project brings.

    Raises:
        ConfigError: Its settings file is invalid.
    """
    folder = folder.resolve()
    file = read_toml(folder / _SETTINGS)
    instructions = _read_instructions(folder)
    tools = {path: sha for place in _tool_folders(folder, file) for path, sha in _digests(place).items()}
    skills = {path: sha for place in SKILL_FOLDERS for path, sha in _digests(folder / place, _SKILL).items()}
    return ProjectContent(
        folder=folder,
        settings=file,
        instructions=""
        if instructions is None or len(instructions) > MAX_INSTRUCTIONS_BYTES
        else instructions.decode("utf-8", "replace"),
        record=TrustRecord(
            settings="" if file is None or not file.tables else _digest_of_tables(file.tables),
            instructions="" if not instructions else hashlib.sha256(instructions).hexdigest(),
            tools=tools,
            skills=skills,
        ),
    )


def trust_record(home: Path, folder: Path) -> TrustRecord | None:
    """The content of a folder when the user trusted it, or None if they never did.

    Raises:
        ConfigError: The list can't be read.
    """
    return _load(home).get(folder.resolve())


def trust(home: Path, folder: Path, content: ProjectContent | None = None) -> None:
    """Trust a project folder: its settings, tools and `AGENTS.md` are used from now on. `content` is what the user
    reviewed; None reads what is there now.

    Raises:
        ConfigError: The list, or the project's settings file, can't be read.
        StorageUnwritable: The list can't be written.
    """
    wanted = folder.resolve()
    record = (content or read_project(wanted)).record
    _change(home, lambda known: {**known, wanted: record})


def untrust(home: Path, folder: Path) -> bool:
    """Stop trusting a folder.

    Returns:
        Whether it was trusted.

    Raises:
        ConfigError: The list can't be read.
        StorageUnwritable: It can't be written.
    """
    unwanted = folder.resolve()
    if unwanted not in _load(home):
        return False
    _change(home, lambda known: {path: record for path, record in known.items() if path != unwanted})
    return True


def _load(home: Path) -> dict[Path, TrustRecord]:
    path = home / _TRUSTED
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}.") from error
    try:
        folders = json.loads(text)["folders"]
        if isinstance(folders, list):
            # Written by a version that did not record contents: everything counts as new.
            return {Path(folder): TrustRecord() for folder in folders}
        return {
            Path(folder): TrustRecord(
                settings=str(entry["settings"]),
                instructions=str(entry["instructions"]),
                tools={str(name): str(digest) for name, digest in entry["tools"].items()},
                # Absent in what an earlier version wrote.
                skills={str(name): str(digest) for name, digest in entry.get("skills", {}).items()},
            )
            for folder, entry in folders.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is damaged. Fix or delete it. Without it, no folder is trusted; `satchel config trust` "
            "creates it again."
        ) from error


def _change(home: Path, edit: Callable[[dict[Path, TrustRecord]], Mapping[Path, TrustRecord]]) -> None:
    ensure_home(home)
    with locked_folder(home):
        folders = {str(folder): as_json(record) for folder, record in edit(_load(home)).items()}
        replace_file(home / _TRUSTED, json.dumps({"folders": folders}, indent=2) + "\n")


def _digest_of_tables(tables: Mapping[str, Any]) -> str:
    """A digest of what a settings file says. Comments and the order of lines don't matter."""
    written = json.dumps(tables, sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.sha256(written.encode()).hexdigest()


def _tool_folders(folder: Path, file: TomlFile | None) -> list[Path]:
    places = [folder / _TOOLS]
    section = file.tables.get("tools") if file is not None else None
    dirs = section.get("dirs") if isinstance(section, Mapping) else None
    if isinstance(dirs, list):
        # The same folders as in `satchel.runtime.tooling.tool_folders`, except those in the user's home.
        places += [
            folder / ".satchel" / name for name in dirs if isinstance(name, str) and not name.startswith("~")
        ]
    return places


def _digests(folder: Path, inside: str = "") -> dict[str, str]:
    """The digests of what is in a folder, by path: of its files, or of the file of this name in each of its folders."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not a thousand paths
    except (OSError, ValueError):
        return {}
    paths = [folder / name / inside for name in names if not name.startswith(".")][:_MAX_TOOLS]
    return {str(path): digest for path in paths if (digest := _digest_of_file(path))}


def _digest_of_file(path: Path) -> str:
    try:
        with open_regular(path) or nullcontext() as file:
            return "" if file is None else hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _read_instructions(folder: Path) -> bytes | None:
    """The bytes of AGENTS.md, at most one more than `MAX_INSTRUCTIONS_BYTES`; None if there is no such file.

    A link that leads out of the folder is ignored: it could show a private file of the user to the model.
    """
    path = folder / _INSTRUCTIONS
    if not Path(os.path.realpath(path)).is_relative_to(folder):
        return None
    try:
        with open_regular(path) or nullcontext() as file:
            return None if file is None else file.read(MAX_INSTRUCTIONS_BYTES + 1)
    except OSError:
        return None
