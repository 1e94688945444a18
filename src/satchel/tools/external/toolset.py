"""The external tools of one Satchel: found in the background, refreshed on request, approved by the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.errors import NotFound, SatchelError, StorageError, UsageError
from satchel.tools.boxed import Workspaces
from satchel.tools.external.asked import NoSchema, load_failures, save_failures
from satchel.tools.external.discovery import Entry, Start, Status, ask, ask_all, in_sandbox, run_when_free
from satchel.tools.external.folders import Candidate, ToolFolder, Unusable, digest_of, scan
from satchel.tools.external.schema import ExternalDefinition, definition_from_json
from satchel.tools.external.tool import ExternalTool
from satchel.tools.pins import ApprovedElsewhere, Pin, PinFile, Pins, pin_key, pin_path
from satchel.tools.port import Tool

ScanState: TypeAlias = Literal["not_started", "in_progress", "complete", "failed"]
"""The states of a scan for executables (seed-1)."""

_Approved: TypeAlias = Mapping[str, Pin[ExternalDefinition]]
"""Approvals by file path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord:
    """The result of an approval.

    Attributes:
        was_same: This content had already been approved; nothing changed.
    """

    name: str
    path: Path
    before: ExternalDefinition | None
    after: ExternalDefinition
    sha256: str
    was_same: bool = False


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
        elsewhere: ApprovedElsewhere | None = None,
    ) -> None:
        """Create the toolset without scanning yet.

        Args:
            folders: Where to look. If two tools have the same name, the first is offered.
            home: SATCHEL_HOME, for the approvals.
            environ: The environment of the tools.
            clock: Gives the time of an approval.
            builtin: Names of built-in tools, which external tools can't use.
            replaceable: Those of them that the user's own tools may replace, because Satchel ships them as executables.
            disabled: Names that are not offered.
            schema_timeout_s: What `--schema` may take.
            run_timeout_s: The time limit of a call.
            boxes: Where boxed calls run; None if none do.
            asks_boxed: `--schema` runs in a sandbox too, if there is one.
            elsewhere: What the user approved at other machines; None if this is the only one.
        """
        self._folders = tuple(folders)
        self._home = home
        self._pins = PinFile(pin_path(home, "external"), read=definition_from_json, write=asdict)
        self._environ = environ
        self._clock = clock
        self._replaceable = frozenset(replaceable)
        self._builtin = frozenset(builtin) - self._replaceable
        self._disabled = frozenset(disabled)
        self._schema_timeout_s = schema_timeout_s
        self._run_timeout_s = run_timeout_s
        self._boxes = boxes
        self._asks_boxed = asks_boxed
        self._elsewhere = elsewhere or ApprovedElsewhere()
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

    async def look_again(self) -> None:
        """Offer what the user has approved at another machine meanwhile."""
        async with self._discovering:
            if self._done.is_set():
                await self._discover(asks_failed=False)

    async def approve(self, name: str) -> ApprovalRecord:
        """Approve the current content of a file, so that it may be run. `name` is the tool's, or its file's name or
        path.

        Raises:
            NotFound: There is no such tool.
            UsageError: It gives no schema; the message says why.
            StorageError, ConfigError: The approval can't be saved.
        """
        async with self._discovering:
            candidate, before = await _in_thread(self._find, name)
            digest = await _in_thread(_digest, candidate)
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
            await _in_thread(_check_same, candidate, digest)
        await self._elsewhere.add([self._key(candidate, digest)])
        async with self._discovering:
            pin = Pin(sha256=digest, shown=answer, approved_at=self._clock.now().isoformat())
            await _in_thread(self._pin, {str(candidate.path): pin}, False)
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
        found, digests, approvals, accepted = await _in_thread(self._read_folders)
        failed = {} if asks_failed else await _in_thread(load_failures, self._home, now.timestamp())
        failed = {path: one for path, one in failed.items() if digests.get(Path(path)) == one.sha256}
        # A refresh asks those that are approved too: what one prints may come from another file.
        known = failed.keys() | (set() if asks_failed else approvals.keys() - accepted.keys())
        unknown = [
            one
            for one in found
            if isinstance(one, Candidate)
            and str(one.path) not in known
            and ((pin := approvals.get(str(one.path))) is None or pin.sha256 == digests[one.path])
            and not _is_new_in_project(one, digests[one.path], pin)
        ]
        problem = ""
        if unknown:
            answers = await ask_all(unknown, start=await self._start(), limit_s=self._schema_timeout_s)
            answers = await _in_thread(_settle, answers, digests)
            approvals, fresh, problem = await _in_thread(self._keep, answers, digests, approvals, now)
            failed |= fresh
        chosen = self._choose(found, digests, failed, approvals)
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
                return in_sandbox(apart, self._environ)
        return Start(partial(run_when_free, environ=self._environ))

    def _read_folders(self) -> tuple[list[Candidate | Unusable], dict[Path, str], _Approved, _Approved]:
        """Everything that can be found out without starting a process: what there is, its digests, the approvals, and
        those of them that are given now, by trusting a project again; their files have to be asked again.
        """
        found = scan(self._folders)
        approvals = dict(self._approved()) if found else {}
        digests: dict[Path, str] = {}
        for position, candidate in enumerate(found):
            if isinstance(candidate, Unusable):
                continue
            try:
                digests[candidate.path], _ = digest_of(candidate.path, candidate.stamp)
            except OSError as error:
                found[position] = Unusable(
                    path=candidate.path,
                    folder=candidate.folder,
                    reason=f"it can't be read, so its content can't be approved: {error.strerror}.",
                )
        accepted = {
            str(one.path): replace(before, sha256=digests[one.path])
            for one in found
            if isinstance(one, Candidate)
            and (before := approvals.get(str(one.path))) is not None
            and before.sha256 != digests[one.path]
            # The user saw the new content when they trusted the project again, or at another machine.
            and (
                one.folder.accepts(one.path, digests[one.path])
                or self._elsewhere.has(self._key(one, digests[one.path]))
            )
        }
        if accepted:
            self._pin(accepted, False)
        return found, digests, {**approvals, **accepted}, accepted

    def _keep(
        self,
        answers: Mapping[Path, ExternalDefinition | str],
        digests: Mapping[Path, str],
        approvals: _Approved,
        now: datetime,
    ) -> tuple[_Approved, Mapping[str, NoSchema], str]:
        """Approve the files that are new, and note those that gave no schema.

        Returns:
            All approvals; the failures; and a notice if they could not be saved, in which case the tools are offered
            nevertheless.
        """
        first = {
            str(path): Pin(sha256=digests[path], shown=answer, approved_at=now.isoformat())
            for path, answer in answers.items()
            if isinstance(answer, ExternalDefinition)
        }
        failed = {
            str(path): NoSchema(sha256=digests[path], problem=answer, asked_at=now.timestamp())
            for path, answer in answers.items()
            if isinstance(answer, str) and str(path) not in approvals
        }
        try:
            if failed:
                save_failures(self._home, failed, now.timestamp())
            return self._pin(first, True), failed, ""
        except StorageError as error:
            return {**first, **approvals}, failed, f"Approvals of external tools could not be saved: {error}"

    def _approved(self) -> _Approved:
        pins = self._pins.load()
        return pins.approved if pins is not None else {}

    def _pin(self, more: _Approved, only_new: bool) -> _Approved:
        """Add approvals to those on disk, which another process may have changed in the meantime. `more` is by path.
        With `only_new`, a pin that another process wrote stays.
        """

        def edit(pins: Pins[ExternalDefinition] | None) -> Pins[ExternalDefinition]:
            known = pins.approved if pins is not None else {}
            kept = {p: pin for p, pin in known.items() if p not in more or pin.sha256 != more[p].sha256}
            return Pins(approved={**more, **kept} if only_new else {**known, **more})

        return self._pins.change(edit).approved

    def _choose(
        self,
        found: Sequence[Candidate | Unusable],
        digests: Mapping[Path, str],
        failed: Mapping[str, NoSchema],
        approvals: _Approved,
    ) -> _Found:
        """Decide which tools are offered, and what to say about the others."""
        chosen = _Found()
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
            chosen.entries.append(self._entry(one, digests[one.path], failed, approvals, by_name, chosen))
        return chosen

    def _entry(
        self,
        candidate: Candidate,
        digest: str,
        failed: Mapping[str, NoSchema],
        approvals: _Approved,
        by_name: dict[str, Path],
        chosen: _Found,
    ) -> Entry:
        path = candidate.path
        approval = approvals.get(str(path))
        definition = approval.shown if approval is not None else None
        name = definition.name if definition is not None else path.name

        def entry(status: Status, reason: str) -> Entry:
            said = definition.description if definition is not None else ""
            return Entry(name=name, status=status, path=path, description=said, reason=reason)

        changed = ""
        if _is_new_in_project(candidate, digest, approval):
            changed = f"did not exist when you trusted {candidate.folder.path.parent.parent}"
        elif approval is not None and approval.sha256 != digest:
            changed = f"has changed since it was approved on {approval.approved_at[:10]}"
        if changed:
            reason = f"{path} {changed}, so it is not run. Review it, then type: satchel tool approve {name}"
            chosen.notices.append(f"The tool {name} is not offered: {reason}")
            return entry("changed", reason)
        if definition is None:
            return entry("skipped", f"{path}: {failed[str(path)].problem}")
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
                stamp=candidate.stamp,
                sha256=digest,
                timeout_s=self._run_timeout_s,
                boxes=self._boxes,
            )
        )
        return entry("available", reason)

    def _key(self, candidate: Candidate, digest: str) -> str:
        return pin_key(self._pins.path, candidate.path.name, digest)

    def _find(self, name: str) -> tuple[Candidate, Pin[ExternalDefinition] | None]:
        """The file that a name means. If several have the name, one that needs approval is preferred."""
        approvals = self._approved()
        fitting: list[tuple[Candidate, Pin[ExternalDefinition] | None]] = []
        for one in scan(self._folders):
            path = str(one.path)
            approval = approvals.get(path)
            names = {path, one.path.name}
            if approval is not None:
                names.add(approval.shown.name)
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
            if approval is None or approval.sha256 != _digest(candidate):
                return candidate, approval
        return fitting[0]


def _is_new_in_project(candidate: Candidate, sha256: str, approval: Pin[ExternalDefinition] | None) -> bool:
    """Whether it was added to a trusted project after the user trusted it."""
    folder = candidate.folder
    return folder.accepted is not None and approval is None and not folder.accepts(candidate.path, sha256)


def _digest(candidate: Candidate) -> str:
    try:
        return digest_of(candidate.path)[0]
    except OSError as error:
        raise UsageError(f"{candidate.path} can't be read: {error.strerror}.") from error


def _check_same(candidate: Candidate, digest: str) -> None:
    if _digest(candidate) != digest:
        raise UsageError(
            f"{candidate.path} changed while it was being read. Review it, then approve it again."
        )


def _settle(
    answers: Mapping[Path, ExternalDefinition | str], digests: Mapping[Path, str]
) -> dict[Path, ExternalDefinition | str]:
    """The answers, except those of files that changed in the meantime: it is unknown which content gave them."""
    settled = dict(answers)
    for path in answers:
        try:
            if digest_of(path)[0] != digests[path]:
                settled[path] = "it changed while it was being read. `satchel tool refresh` tries again."
        except OSError as error:
            settled[path] = f"it can no longer be read: {error.strerror}."
    return settled


_threads = anyio.CapacityLimiter(4)


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    return await anyio.to_thread.run_sync(function, *args, limiter=_threads)
