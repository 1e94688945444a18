"""Projects: conversations that share instructions and a memory of their own."""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from satchel.clock import Clock
from satchel.config.home import ensure_home, replace_file
from satchel.errors import NotFound, StorageUnwritable, UsageError
from satchel.events import Notice
from satchel.memory import Memory, StoredDocument
from satchel.sessions import read_title
from satchel.tasks import background_tasks
from satchel.wording import counted

if TYPE_CHECKING:
    from satchel.runtime.spaces import Spaces

_FOLDER: Final = "projects"
"""In SATCHEL_HOME."""
_MOST_INSTRUCTIONS: Final = 20_000
"""Characters of the instructions. A longer text belongs into a document."""
_ID: Final = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project. Its conversations name its id in their logs, and its memories have a scope of their own.

    Attributes:
        id: Eight hexadecimal digits.
        name: One line; no two projects have the same, whatever its case.
        instructions: What every conversation in it is told, in the user's words.
        own_memory_only: Its conversations don't see the user's other memories.
        archived: Lists leave it out.
        created_at: With its offset.
    """

    id: str
    name: str
    instructions: str = ""
    own_memory_only: bool = False
    archived: bool = False
    created_at: datetime


def project_to_json(project: Project, **counts: int) -> dict[str, Any]:
    """A project as plain JSON data."""
    return {**asdict(project), "created_at": project.created_at.isoformat(), **counts}


def what_goes(
    project: Project, *, conversations: int, memories: int, documents: Sequence[StoredDocument]
) -> str:
    """What deleting a project takes away, as a sentence that is shown beforehand. `memories` counts passages, too."""
    memories -= sum(one.passages for one in documents)
    goes = [
        "its instructions",
        counted(conversations, "conversation"),
        counted(memories, "memory", "memories"),
        *([f"{counted(len(documents), 'document')} with the files you sent"] if documents else []),
    ]
    return (
        f"Deleting the project {project.name} deletes for good {', '.join(goes[:-1])} and {goes[-1]}. What you want to "
        "keep of it, move out or download first."
    )


def scope_of(project_id: str) -> str:
    """The scope of a project's memories; that of the user's own for ""."""
    return f"project:{project_id}" if project_id else "default"


def project_of(scope: str) -> str:
    """The id of the project that a scope belongs to; "" for any other scope."""
    kind, _, id = scope.partition(":")
    return id if kind == "project" and _ID.fullmatch(id) else ""


@dataclass(slots=True, kw_only=True)
class SessionScope:
    """What an open conversation remembers with. A move to another project changes it.

    Attributes:
        memory: What it stores in and reads; None if memory is off.
        also: What it reads besides: the user's own memories, for a conversation in a project that may see them.
        spaces: What it reads of others, and may share with them.
    """

    project: Project | None = None
    memory: Memory | None = None
    also: Memory | None = None
    spaces: Spaces | None = None

    @property
    def memories(self) -> Sequence[Memory]:
        """What it reads, the memories that it stores in first."""
        return [memory for memory in (self.memory, self.also) if memory is not None]


class Projects:
    """The projects of a home: a file for each, `projects/ID.toml`. Every call reads them, so processes agree.

    A file that can't be read stops nothing else: `tell` is told of it.
    """

    def __init__(self, home: Path, clock: Clock, *, tell: Callable[[Notice], None]) -> None:
        self._folder = home / _FOLDER
        self._clock = clock
        self._tell = tell

    def ids(self) -> Sequence[str]:
        """The ids of all projects, also of those whose files can't be read."""
        return sorted(path.stem for path in self._folder.glob("*.toml") if _ID.fullmatch(path.stem))

    def all(self) -> Sequence[Project]:
        """All projects that can be read, by name, the archived ones too."""
        found = [project for project in map(self._read, self.ids()) if project is not None]
        return sorted(found, key=lambda project: (project.name.casefold(), project.id))

    def get(self, project_id: str) -> Project | None:
        """The project with this full id, or None. If its file can't be read, one that is named after its id and sees
        nothing else: to change it repairs the file.
        """
        if project_id not in self.ids():
            return None
        broken = Project(id=project_id, name=project_id, own_memory_only=True, created_at=self._clock.now())
        return self._read(project_id) or broken

    def find(self, wanted: str) -> Project:
        """The project with this id or name; the case of a name doesn't matter.

        Raises:
            NotFound: There is none.
        """
        if project := self.get(wanted.strip()):
            return project
        for project in self.all():
            if wanted.strip().casefold() == project.name.casefold():
                return project
        raise NotFound(f"There is no project {wanted!r}. `satchel projects list` shows the existing ones.")

    def create(self, name: str, *, instructions: str = "", own_memory_only: bool = False) -> Project:
        """Make a project.

        Raises:
            UsageError: The name is empty, too long or taken, or the instructions are too long.
            StorageUnwritable: It can't be written.
        """
        return self._write(
            Project(
                id=secrets.token_hex(4),
                name=name,
                instructions=instructions,
                own_memory_only=own_memory_only,
                created_at=self._clock.now(),
            )
        )

    def change(self, project: Project, **fields: Any) -> Project:
        """Change a project's name, instructions or switches. Errors as in `create`."""
        return self._write(replace(project, **fields))

    def remove(self, project: Project) -> None:
        """Delete the file of a project, and nothing else.

        Raises:
            StorageUnwritable: It can't be deleted.
        """
        try:
            (self._folder / f"{project.id}.toml").unlink(missing_ok=True)
        except OSError as error:
            raise StorageUnwritable(f"{self._folder} can't be written: {error.strerror}.") from error

    def _write(self, project: Project) -> Project:
        import tomlkit  # noqa: PLC0415 - only who changes a project writes TOML

        text = project.instructions.strip().encode("utf-8", "replace").decode()
        project = replace(project, name=read_title(project.name), instructions=text)
        if len(project.instructions) > _MOST_INSTRUCTIONS:
            raise UsageError(
                f"Instructions have at most {_MOST_INSTRUCTIONS:,} characters; these have {len(text):,}."
            )
        if any(one.name.casefold() == project.name.casefold() and one.id != project.id for one in self.all()):
            raise UsageError(f"There is a project {project.name!r} already. Choose another name.")
        ensure_home(self._folder)
        fields = project_to_json(project)
        del fields["id"]
        replace_file(self._folder / f"{project.id}.toml", tomlkit.dumps(fields))
        return project

    def _read(self, id: str) -> Project | None:
        path = self._folder / f"{id}.toml"
        try:
            found: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
            return Project(
                id=id,
                name=str(found["name"]),
                instructions=str(found.get("instructions", "")),
                own_memory_only=bool(found.get("own_memory_only")),
                archived=bool(found.get("archived")),
                created_at=datetime.fromisoformat(found["created_at"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            text = (
                f"{path}, which says what a project is, can't be read: {error}. Its memories and conversations are "
                f"there. Correct it, or give it a name again: satchel projects change {id} --name NAME"
            )
            self._tell(Notice(part="projects", text=text))
            return None


@dataclass(frozen=True, slots=True)
class _Kept:
    memory: Memory
    end: anyio.Event
    ended: anyio.Event


class ProjectMemories:
    """The memories of projects that are open. Each is opened when it is first wanted, and closed with the home."""

    def __init__(
        self, opening: Callable[[str], AbstractAsyncContextManager[Memory]], group: TaskGroup
    ) -> None:
        """Use `open`."""
        self._opening = opening
        self._group = group
        self._kept: dict[str, _Kept] = {}
        self._lock = anyio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, opening: Callable[[str], AbstractAsyncContextManager[Memory]]
    ) -> AsyncIterator[ProjectMemories]:
        """Open none yet; `opening` opens the memory of a scope."""
        async with background_tasks() as group:
            memories = cls(opening, group)
            try:
                yield memories
            finally:
                with anyio.CancelScope(shield=True):
                    for project_id in tuple(memories._kept):
                        await memories.close(project_id)

    async def of(self, project_id: str) -> Memory:
        """The memory of a project.

        Raises:
            StorageError: It can't be opened.
        """
        async with self._lock:
            if project_id not in self._kept:
                self._kept[project_id] = await self._group.start(self._keep, project_id)
            return self._kept[project_id].memory

    async def close(self, project_id: str) -> None:
        """Close the memory of a project, if it is open."""
        kept = self._kept.pop(project_id, None)
        if kept is not None:
            kept.end.set()
            await kept.ended.wait()

    async def _keep(self, project_id: str, *, task_status: TaskStatus[_Kept]) -> None:
        """Keep a memory open in a task of its own, because whoever wants it first may end before the others."""
        end, ended = anyio.Event(), anyio.Event()
        try:
            async with self._opening(scope_of(project_id)) as memory:
                task_status.started(_Kept(memory, end, ended))
                await end.wait()
        finally:
            ended.set()
