"""The external tools of one Satchel: found in the background, refreshed on request, approved by the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.errors import NotFound, SatchelError, StorageError, UsageError
from satchel.tools.boxed import Workspaces
from satchel.tools.external.asked import SchemaAnswer, load_asked, save_asked
from satchel.tools.external.discovery import (
    Entry,
    Outside,
    Schemas,
    Start,
    Status,
    ask,
    ask_all,
    is_known,
)
from satchel.tools.external.folders import Candidate, ToolFolder, Unusable, digest_of, scan
from satchel.tools.external.schema import ExternalDefinition, definition_from_json, definition_to_json
from satchel.tools.external.tool import ExternalTool
from satchel.tools.pins import Pin, PinFile, Pins, pin_path
from satchel.tools.port import Tool

__all__ = ["ApprovalRecord", "ExternalTools", "ScanState"]

ScanState: TypeAlias = Literal["not_started", "in_progress", "complete", "failed"]
"""The states of a scan for executables (seed-1)."""

_Approved: TypeAlias = Mapping[str, Pin[ExternalDefinition]]
"""Approvals by file path."""

MOST_ELSEWHERE = 5000
"""The most files of other projects that the cache keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord:
    """The result of an approval.

    Attributes:
        before: The previously approved definition, or None.
        after: The definition that is approved now.
        was_same: This content had already been approved; nothing changed.
    """

    name: str
    path: Path
    before: ExternalDefinition | None
    after: ExternalDefinition
    sha256: str
    was_same: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    """A candidate and its cached answer, if that is still valid."""

    candidate: Candidate
    sha256: str
    asked: SchemaAnswer | None


@dataclass(slots=True)
class _Found:
    """The result of one scan."""

    tools: list[ExternalTool] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class ExternalTools:
    """A toolset of executables.

    Attributes:
        entries: Everything in the folders, offered or not, in the order of the folders.
        notices: What the user should know about them, in sentences.
        state: The state of the scan. "failed": the folders could not be scanned, `notices` says why, and nothing is
            offered. During a refresh it is "in_progress" again; what was found before is still offered.
        is_complete: A scan has ended, successfully or not.
    """

    def __init__(
        self,
        folders: Sequence[ToolFolder],
        *,
        home: Path,
        environ: Mapping[str, str],
        clock: Clock,
        builtin: Sequence[str] = (),
        replaceable: Sequence[str] = (),
        disabled: Sequence[str] = (),
        schema_timeout_s: float = 1.0,
        run_timeout_s: float = 30.0,
        boxes: Workspaces | None = None,
        asks_boxed: bool = False,
    ) -> None:
        """Create the toolset without scanning yet.

        Args:
            folders: Where to look. If two tools have the same name, the first is offered.
            home: SATCHEL_HOME, for the cache of schemas and the approvals.
            environ: The environment of the tools.
            clock: Gives the time of an approval.
            builtin: Names of built-in tools, which external tools can't use.
            replaceable: Those of them that the user's own tools may replace, because Satchel ships them as executables.
            disabled: Names that are not offered.
            schema_timeout_s: What `--schema` may take.
            run_timeout_s: The time limit of a call.
            boxes: Where boxed calls run; None if none do.
            asks_boxed: `--schema` runs in a sandbox too, if there is one.
        """
        self._folders = tuple(folders)
        self._home = home
        self._pins = PinFile(
            pin_path(home, "external"),
            read=definition_from_json,
            write=definition_to_json,
            older=(home / "tool-approvals.json", _pins_of_older_form),
        )
        self._environ = environ
        self._clock = clock
        self._replaceable = frozenset(replaceable)
        self._builtin = frozenset(builtin) - self._replaceable
        self._disabled = frozenset(disabled)
        self._schema_timeout_s = schema_timeout_s
        self._run_timeout_s = run_timeout_s
        self._boxes = boxes
        self._asks_boxed = asks_boxed
        self._found = _Found()
        self._discovering = anyio.Lock()
        self._done = anyio.Event()
        self._state: ScanState = "not_started"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """See the class."""
        return tuple(self._found.entries)

    @property
    def notices(self) -> tuple[str, ...]:
        """See the class."""
        return tuple(self._found.notices)

    @property
    def state(self) -> ScanState:
        """See the class."""
        return self._state

    @property
    def is_complete(self) -> bool:
        """See the class."""
        return self._done.is_set()

    @property
    def is_available(self) -> bool:
        """Whether the last scan did not fail."""
        return self._state != "failed"

    @property
    def replaced(self) -> frozenset[str]:
        """Names of built-in tools that the user's own tools replace."""
        return frozenset(tool.spec.name for tool in self._found.tools) & self._replaceable

    async def tools(self) -> Sequence[Tool]:
        """The offered tools that have been found so far; `wait` waits for all of them."""
        return tuple(self._found.tools)

    def get(self, name: str) -> ExternalTool | None:
        """The offered tool with exactly this name, or None."""
        return next((tool for tool in self._found.tools if tool.spec.name == name), None)

    async def discover(self) -> None:
        """Scan the folders, unless that was done before. Failures become notices."""
        async with self._discovering:
            if not self._done.is_set():
                await self._discover(asks_failed=False)

    async def wait(self, limit_s: float) -> bool:
        """Wait for a scan that another task runs.

        Args:
            limit_s: The longest wait.

        Returns:
            Whether it is complete.
        """
        with anyio.move_on_after(limit_s):
            await self._done.wait()
        return self._done.is_set()

    async def refresh(self) -> None:
        """Scan the folders again, and ask executables that gave no schema again."""
        async with self._discovering:
            await self._discover(asks_failed=True)

    async def approve(self, name: str) -> ApprovalRecord:
        """Approve the current content of a file, so that it may be run.

        Args:
            name: The tool's name, or its file's name or path.

        Raises:
            NotFound: There is no such tool.
            UsageError: It gives no schema; the message says why.
            StorageError: The approval can't be saved.
        """
        async with self._discovering:
            candidate, before = await _in_thread(self._find, name)
            digest, stamp = await _in_thread(_digest, candidate)
            if before is not None and before.sha256 == digest:
                return ApprovalRecord(
                    name=before.shown.name,
                    path=candidate.path,
                    before=before.shown,
                    after=before.shown,
                    sha256=digest,
                    was_same=True,
                )
            answer = await ask(candidate, start=await self._start(), limit_s=self._schema_timeout_s)
            if not isinstance(answer, ExternalDefinition):
                why = answer or f"--schema did not answer within {self._schema_timeout_s:g} s."
                raise UsageError(f"{candidate.path} can't be approved: {why}")
            now = self._clock.now()
            await _in_thread(_check_same, candidate, digest)
            pin = Pin(sha256=digest, shown=answer, approved_at=now.isoformat())
            await _in_thread(self._pin, {str(candidate.path): pin}, False)
            asked = SchemaAnswer(stamp=stamp, sha256=digest, definition=answer, asked_at=now.timestamp())
            await _in_thread(_remember, self._home, {str(candidate.path): asked})
            await self._discover(asks_failed=False)
        return ApprovalRecord(
            name=answer.name,
            path=candidate.path,
            before=before.shown if before is not None else None,
            after=answer,
            sha256=digest,
        )

    # Finding

    async def _discover(self, *, asks_failed: bool) -> None:
        before = self._state
        self._state = "in_progress"
        try:
            self._found = await self._look(asks_failed=asks_failed)
            self._state = "complete"
        except SatchelError as error:
            self._fail(str(error))
        # A boundary: a bug here may cost the external tools, but not the conversation.
        except Exception as error:  # noqa: BLE001
            self._fail(f"{type(error).__name__}: {error}")
        except BaseException:
            self._state = before  # cancelled: the next call starts a new scan
            raise
        self._done.set()

    def _fail(self, reason: str) -> None:
        self._found = _Found(notices=[f"External tools are not available: {reason}"])
        self._state = "failed"

    async def _look(self, *, asks_failed: bool) -> _Found:
        now = self._clock.now()
        found, reads, approvals = await _in_thread(self._read_folders, asks_failed)
        unknown = [
            read.candidate for read in reads if read.asked is None and not _is_withheld(read, approvals)
        ]
        asked = {
            str(read.candidate.path): read.asked
            for read in reads
            if read.asked is not None and not _is_withheld(read, approvals)
        }
        problem = ""
        if unknown:
            answers = await ask_all(unknown, start=await self._start(), limit_s=self._schema_timeout_s)
            digests = {read.candidate.path: read.sha256 for read in reads}
            asked |= await _in_thread(_settle, unknown, answers, digests, now.timestamp())
        if unknown or any(one.definition and path not in approvals for path, one in asked.items()):
            approvals, problem = await _in_thread(self._keep, asked, approvals, now.isoformat())
        chosen = self._choose(found, reads, asked, approvals)
        if problem:
            chosen.notices.append(problem)
        return chosen

    async def _start(self) -> Start:
        """How executables are asked for their schemas: that runs their code, so it is boxed where their calls are."""
        if self._asks_boxed and self._boxes is not None:
            folder = self._boxes.caches / "schemas"
            await _in_thread(partial(folder.mkdir, mode=0o700, parents=True, exist_ok=True))
            apart = self._boxes.workspace(folder)
            if not await apart.lacking("external"):
                return Schemas(apart, self._environ)
        return Outside(self._environ)

    def _read_folders(self, asks_failed: bool) -> tuple[list[Candidate | Unusable], list[_Read], _Approved]:
        """Everything that can be found out without starting a process."""
        found = scan(self._folders)
        known = load_asked(self._home)
        approvals = dict(self._approved()) if found else {}
        now = self._clock.now()
        reads: list[_Read] = []
        for position, candidate in enumerate(found):
            if isinstance(candidate, Unusable):
                continue
            asked = known.get(str(candidate.path))
            if asked is not None and not is_known(asked, candidate, now=now, asks_failed=asks_failed):
                asked = None
            if asked is not None and asked.stamp == candidate.stamp:
                reads.append(_Read(candidate, asked.sha256, asked))
                continue
            try:
                digest, _ = digest_of(candidate.path, candidate.stamp)
            except OSError as error:
                found[position] = Unusable(
                    path=candidate.path,
                    folder=candidate.folder,
                    reason=f"it can't be read, so its content can't be approved: {error.strerror}.",
                )
                continue
            if asked is not None and asked.sha256 != digest:
                asked = None
            if asked is not None:
                asked = SchemaAnswer(
                    stamp=candidate.stamp,
                    sha256=digest,
                    definition=asked.definition,
                    problem=asked.problem,
                    asked_at=asked.asked_at,
                )
            reads.append(_Read(candidate, digest, asked))
        accepted = {}
        for read in reads:
            path, before = str(read.candidate.path), approvals.get(str(read.candidate.path))
            if before is None or before.sha256 == read.sha256:
                continue
            if read.candidate.folder.accepts(read.candidate.path, read.sha256):
                # The user saw the new content when they trusted the project again.
                accepted[path] = replace(before, sha256=read.sha256)
        if accepted:
            self._pin(accepted, False)
        return found, reads, {**approvals, **accepted}

    def _keep(
        self, asked: Mapping[str, SchemaAnswer], approvals: _Approved, at: str
    ) -> tuple[_Approved, str]:
        """Save the answers, and approve the files that are new.

        Returns:
            All approvals; and a notice if they could not be saved, in which case the tools are offered nevertheless.
        """
        first = {
            path: Pin(sha256=one.sha256, shown=one.definition, approved_at=at)
            for path, one in asked.items()
            if one.definition is not None
        }
        try:
            self._save_asked(asked)
            return self._pin(first, True), ""
        except StorageError as error:
            return {**first, **approvals}, f"Approvals of external tools could not be saved: {error}"

    def _approved(self) -> _Approved:
        pins = self._pins.load()
        return pins.approved if pins is not None else {}

    def _pin(self, more: _Approved, only_new: bool) -> _Approved:
        """Add approvals to those on disk, which another process may have changed in the meantime.

        Args:
            more: By path.
            only_new: Keep existing pins: a file that is new to this process must not replace what another one wrote.
        """

        def edit(pins: Pins[ExternalDefinition] | None) -> Pins[ExternalDefinition]:
            known = pins.approved if pins is not None else {}
            return Pins(approved={**more, **known} if only_new else {**known, **more})

        return self._pins.change(edit).approved

    def _save_asked(self, asked: Mapping[str, SchemaAnswer]) -> None:
        here = {str(folder.path) for folder in self._folders}
        elsewhere = {p: one for p, one in load_asked(self._home).items() if str(Path(p).parent) not in here}
        save_asked(self._home, {**dict(list(elsewhere.items())[-MOST_ELSEWHERE:]), **asked})

    def _choose(
        self,
        found: Sequence[Candidate | Unusable],
        reads: Sequence[_Read],
        asked: Mapping[str, SchemaAnswer],
        approvals: _Approved,
    ) -> _Found:
        """Decide which tools are offered, and what to say about the others."""
        chosen = _Found()
        digests = {read.candidate.path: read.sha256 for read in reads}
        by_name: dict[str, Path] = {}
        for one in found:
            if isinstance(one, Unusable):
                chosen.entries.append(
                    Entry(
                        name=one.path.name,
                        status="skipped",
                        path=one.path,
                        reason=f"{one.path}: {one.reason}",
                    )
                )
                continue
            chosen.entries.append(self._entry(one, digests[one.path], asked, approvals, by_name, chosen))
        return chosen

    def _entry(
        self,
        candidate: Candidate,
        digest: str,
        asked: Mapping[str, SchemaAnswer],
        approvals: _Approved,
        by_name: dict[str, Path],
        chosen: _Found,
    ) -> Entry:
        path = candidate.path
        approval = approvals.get(str(path))
        if _is_new_in_project(candidate, digest, approval):
            reason = (
                f"{path} did not exist when you trusted {candidate.folder.path.parent.parent}, so it is not run. "
                f"Review it, then type: satchel tool approve {path.name}"
            )
            chosen.notices.append(f"The tool {path.name} is not offered: {reason}")
            return Entry(name=path.name, status="changed", path=path, reason=reason)
        if approval is not None and approval.sha256 != digest:
            name = approval.shown.name
            reason = (
                f"{path} has changed since it was approved on {approval.approved_at[:10]}, so it is not run. "
                f"Review it, then type: satchel tool approve {name}"
            )
            chosen.notices.append(f"The tool {name} is not offered: {reason}")
            return Entry(
                name=name,
                status="changed",
                path=path,
                description=approval.shown.description,
                reason=reason,
            )
        answer = asked.get(str(path))
        if answer is None or answer.definition is None or approval is None:
            why = answer.problem if answer is not None else "it was not asked."
            return Entry(name=path.name, status="skipped", path=path, reason=f"{path}: {why}")
        definition = answer.definition

        def entry(status: Status, reason: str) -> Entry:
            return Entry(
                name=definition.name,
                status=status,
                path=path,
                description=definition.description,
                reason=reason,
            )

        name = definition.name
        if name in self._builtin:
            return entry("skipped", f"{path}: a built-in tool is called {name}. Give it another name.")
        if name in self._replaceable and candidate.folder.kind == "project":
            return entry(
                "skipped",
                f"{path}: a built-in tool is called {name}, and only tools in your own folder may replace it.",
            )
        if name in by_name:
            return entry("overridden", f"{by_name[name]} is also called {name} and comes first.")
        by_name[name] = path
        if name in self._disabled:
            return entry("disabled", f"{name} is listed in [tools] disabled.")
        reason = ""
        if name in self._replaceable:
            reason = f"{path} replaces the built-in tool {name}."
            chosen.notices.append(reason)
        chosen.tools.append(
            ExternalTool(
                path,
                definition,
                stamp=answer.stamp,
                sha256=answer.sha256,
                timeout_s=self._run_timeout_s,
                boxes=self._boxes,
            )
        )
        return entry("available", reason)

    def _find(self, name: str) -> tuple[Candidate, Pin[ExternalDefinition] | None]:
        """The file that a name means. If several have the name, one that needs approval is preferred."""
        approvals = self._approved()
        known = load_asked(self._home)
        fitting: list[tuple[Candidate, Pin[ExternalDefinition] | None]] = []
        for one in scan(self._folders):
            path = str(one.path)
            approval, asked = approvals.get(path), known.get(path)
            names = {path, one.path.name}
            if approval is not None:
                names.add(approval.shown.name)
            if asked is not None and asked.definition is not None:
                names.add(asked.definition.name)
            if name not in names:
                continue
            if isinstance(one, Unusable):
                raise UsageError(f"{one.path} can't be approved: {one.reason}")
            fitting.append((one, approval))
        if not fitting:
            raise NotFound(
                f"There is no external tool {name!r}. `satchel tool list --source external` lists them."
            )
        for candidate, approval in fitting:
            if approval is None or approval.sha256 != _digest(candidate)[0]:
                return candidate, approval
        return fitting[0]


def _is_withheld(read: _Read, approvals: _Approved) -> bool:
    """Whether it needs approval: it has changed, or is new in a project. Then not even `--schema` may run."""
    approval = approvals.get(str(read.candidate.path))
    is_changed = approval is not None and approval.sha256 != read.sha256
    return is_changed or _is_new_in_project(read.candidate, read.sha256, approval)


def _is_new_in_project(candidate: Candidate, sha256: str, approval: Pin[ExternalDefinition] | None) -> bool:
    """Whether it was added to a trusted project after the user trusted it."""
    folder = candidate.folder
    return folder.accepted is not None and approval is None and not folder.accepts(candidate.path, sha256)


def _digest(candidate: Candidate) -> tuple[str, Any]:
    try:
        return digest_of(candidate.path)
    except OSError as error:
        raise UsageError(f"{candidate.path} can't be read: {error.strerror}.") from error


def _check_same(candidate: Candidate, digest: str) -> None:
    if _digest(candidate)[0] != digest:
        raise UsageError(
            f"{candidate.path} changed while it was being read. Review it, then approve it again."
        )


def _settle(
    candidates: Sequence[Candidate],
    answers: Mapping[Path, ExternalDefinition | str],
    digests: Mapping[Path, str],
    at: float,
) -> dict[str, SchemaAnswer]:
    """The answers, except those of files that changed in the meantime: it is unknown which content gave them."""
    settled: dict[str, SchemaAnswer] = {}
    for candidate in candidates:
        answer = answers[candidate.path]
        try:
            digest, stamp = digest_of(candidate.path)
            if digest != digests[candidate.path]:
                answer = "it changed while it was being read. `satchel tool refresh` tries again."
        except OSError as error:
            digest, stamp = digests[candidate.path], candidate.stamp
            answer = f"it can no longer be read: {error.strerror}."
        settled[str(candidate.path)] = SchemaAnswer(
            stamp=stamp,
            sha256=digest,
            definition=answer if isinstance(answer, ExternalDefinition) else None,
            problem=answer if isinstance(answer, str) else "",
            asked_at=at,
        )
    return settled


def _pins_of_older_form(value: Any) -> Pins[ExternalDefinition]:
    """Approvals that earlier releases kept in `tool-approvals.json`."""
    return Pins(
        approved={
            path: Pin(
                sha256=str(each["sha256"]),
                shown=definition_from_json(each["definition"]),
                approved_at=str(each["approved_at"]),
            )
            for path, each in value["tools"].items()
        }
    )


def _remember(home: Path, more: Mapping[str, SchemaAnswer]) -> None:
    save_asked(home, {**load_asked(home), **more})


_threads = anyio.CapacityLimiter(4)


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    return await anyio.to_thread.run_sync(function, *args, limiter=_threads)
