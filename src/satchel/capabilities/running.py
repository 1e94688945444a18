"""Runs capabilities: a fresh sandbox for every call, three minutes at most."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol, TypeAlias

import anyio
import anyio.to_thread

from satchel.capabilities.access import network_of
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.files import FileReader, below, given_files
from satchel.capabilities.records import CALLED, Access, Capability, is_called
from satchel.config.home import ensure_home
from satchel.errors import Refused, SatchelError, StorageError, UsageError
from satchel.messages import Usage
from satchel.plain import as_json, encodable
from satchel.sandbox.port import (
    Broker,
    Denial,
    Feature,
    Limits,
    Network,
    OnOutput,
    PythonEntry,
    RunResult,
    RunSpec,
    Sandbox,
    Status,
)
from satchel.tools.input_schema import InputSchema

MOST_WALL_S: Final = 180.0
BACKGROUND_WALL_S: Final = 900.0
"""The limit of a call in the background, whatever the manifest says."""
_WALL_S: Final = 60.0
_MOST_CALLS: Final = 20
"""Calls in one run, with those that what it calls makes."""
_MOST_DEEP: Final = 4
"""Capabilities that wait for each other."""
_MEMORY_MB: Final = 512
_STATE: Final = "state"
_STATE_VARIABLE: Final = "SATCHEL_STATE"
_MOST_STATE: Final = 64_000_000
"""Bytes that a capability may keep between runs."""
_COMPLAINT: Final = re.compile(r"\n +raise\b[^\n]*\n(?:[ ~^]*\n)?ValueError: ?(?P<words>.*)\Z", re.DOTALL)
"""The end of the traceback of `raise ValueError(…)`, by which code refuses its input. A ValueError that something else
raises, as in `int("x")`, is a defect."""

_SANDBOX_FRAMES: Final = re.compile(
    r'(Traceback \(most recent call last\):\n)(?:  File "/run/satchel/[^\n]*\n(?:    [^\n]*\n)*)+'
)
"""The first frames of a traceback, which are the sandbox's and tell nobody anything."""


LayerMaker: TypeAlias = Callable[[Sequence[str]], Awaitable[Path | None]]
"""Makes the folder with the packages of some requirements, None if there are none; see `satchel.sandbox.layers`."""
Secrets: TypeAlias = Callable[[str], str | None]
"""Gives the value of an environment variable, or None."""
Clean: TypeAlias = Callable[[str], Awaitable[str]]


class OutsideCalls(Protocol):
    """What capabilities call besides each other: tools of MCP servers, and the user's language model."""

    async def __call__(
        self, name: str, input: Mapping[str, Any], *, by: str, session_id: str, is_trial: bool
    ) -> tuple[str, bool]:
        """The text of what came of it, and whether that is a result.

        Args:
            name: "mcp:SERVER.TOOL" or "model".
            input: What the code gives it.
            by: The capability that calls.
            session_id: The session for which it runs; "" for none.
            is_trial: It is tried out: nothing that may change something is called.

        Raises:
            NotTried: It may change something, so it is not called in a trial.
            SatchelError: It is not there, not permitted or too expensive.
        """
        ...


Check: TypeAlias = Callable[[], Awaitable[None]]
"""Raises `BudgetExceeded` if no model may be called any more."""
Count: TypeAlias = Callable[[str, str, Usage], Awaitable[None]]
"""Notes what a call of a model has cost: the provider, the model, and what it used."""
counted_by: Final[ContextVar[tuple[Check, Count] | None]] = ContextVar("counted_by", default=None)
"""Who limits and notes what the models cost that code asks in this task, and those that it begins: a build its own."""


class NotTried(Refused):
    """What may change something is not called while code is tried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call that a capability made.

    Attributes:
        by: The capability that called.
        capability: What it called: a capability, "mcp:SERVER.TOOL" or "model".
        status: As `Outcome.status`; "refused" if it was not made, "cancelled" if the caller ended first.
    """

    by: str
    capability: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """The calls of one run, with those that they make.

    Attributes:
        names: The capabilities that wait for each other, the first one first.
        untried: Those that were not made because they may change something, whoever wanted to.
        until_s: When the first one's time is over.
        trial: Where those that are called keep their files while a version is tried out, instead of the user's; None
            if it is used.
    """

    names: tuple[str, ...]
    made: list[Called]
    until_s: float
    untried: list[Denial] = field(default_factory=list)
    trial: Path | None = None
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(RunResult):
    """What came of a call: how its run ended, and of what it was a run.

    Attributes:
        status: As of a run; "bad_input" if the schema or the code refused the input; "missing_secret" if a secret that
            it needs has no value.
        edited: Its files are not those that were registered: the user has edited them.
        failing: It has failed three times in a row with this run.
        calls: The capabilities that it called, in order, with those that these called.
    """

    status: str  # type: ignore[assignment]  # more than the sandbox's
    capability: str
    version: int
    edited: bool = False
    failing: bool = False
    calls: tuple[Called, ...] = ()


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """For `satchel capability run --json` (DESIGN 3.3) and the HTTP interface."""
    return {
        "capability": outcome.capability,
        "version": outcome.version,
        **as_json(replace(outcome, artifacts=())),
        "wall_ms": round(outcome.wall_ms, 1),
        "artifacts": [{"path": each.path, "bytes": len(each.content)} for each in outcome.artifacts],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One run of the code in a folder."""

    name: str
    version: int
    folder: Path
    input_schema: Mapping[str, Any]
    requirements: Sequence[str]
    access: Access
    limits: Mapping[str, int] = field(default_factory=dict)
    state: Path | None = None
    edited: bool = False
    in_background: bool = False
    is_trial: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Runner:
    """Runs the capabilities of one catalogue.

    Attributes:
        sandbox: Gives the sandbox; raises `NoSandbox` if there is none. Called for each run.
        clean: Removes what looks like a secret from a text that is recorded; None records it as it is.
        may_call: Raises `Refused` if the rules don't let another capability call this one.
        outside: Calls what is no capability; None where that can't be done.
    """

    catalogue: Catalogue
    sandbox: Callable[[], Awaitable[Sandbox]]
    _: KW_ONLY
    layers: LayerMaker
    secret: Secrets
    clean: Clean | None = None
    may_call: Callable[[str], Awaitable[None]] | None = None
    outside: OutsideCalls | None = None

    async def run(
        self,
        name: str,
        input: Mapping[str, Any],
        *,
        timeout_s: float = MOST_WALL_S,
        on_output: OnOutput | None = None,
        read_file: FileReader | None = None,
        in_background: bool = False,
        chain: _Chain | None = None,
        session_id: str = "",
    ) -> Outcome:
        """Run the active version of a capability, and record how it went.

        Args:
            name: Its name, tool name or id.
            input: Its arguments.
            read_file: Reads the files that the arguments name; None where no file can be given.
            timeout_s: A limit below its own, in seconds.
            in_background: It may take `BACKGROUND_WALL_S` instead.
            on_output: Told what the code prints, as it prints it.
            chain: The calls to which this one belongs; None for a call from outside.
            session_id: The session that calls, or "".

        Raises:
            NotFound: There is no such capability.
            Refused: It is not active.
            NoSandbox: There is no sandbox.
            SandboxError: The sandbox failed.
        """
        capability = await self.catalogue.get(name)
        if capability.status != "active":
            raise Refused(not_active(capability))
        checkout = await self.catalogue.checkout(capability)
        trial = chain.trial if chain is not None else None
        folder = capability.path if trial is None else trial / capability.name
        job = _Job(
            name=capability.name,
            version=capability.version,
            folder=checkout.folder,
            input_schema=capability.input_schema,
            requirements=capability.requirements,
            access=capability.access,
            limits=checkout.limits,
            state=folder / _STATE if capability.access.state else None,
            edited=checkout.edited,
            in_background=in_background,
        )
        began_s = anyio.current_time()
        try:
            outcome = await self._run(
                job,
                input,
                timeout_s=timeout_s,
                on_output=on_output,
                read_file=read_file,
                chain=chain,
                session_id=session_id,
            )
        except anyio.get_cancelled_exc_class():
            if chain is not None and trial is None:
                ended = _refused(job, "cancelled", "Whatever called it ended first.")
                wall_ms = (anyio.current_time() - began_s) * 1000
                with anyio.CancelScope(shield=True):
                    await self._record(capability, replace(ended, wall_ms=wall_ms), input)
            raise
        if trial is not None or outcome.status in ("bad_input", "missing_secret"):
            return outcome
        return _with_mark(outcome, await self._record(capability, outcome, input))

    async def _record(self, capability: Capability, outcome: Outcome, input: Mapping[str, Any]) -> Capability:
        error = "\n".join(part for part in (outcome.error, outcome.traceback) if part)
        kept: Any = None if outcome.status in ("ok", "cancelled") else input
        if self.clean is not None and not outcome.ok:
            error = await self.clean(error)
            text = await self.clean(json.dumps(input, ensure_ascii=False))
            try:
                kept = json.loads(text)
            except ValueError:
                kept = None  # Not worth keeping without its form.
        return await self.catalogue.record_run(
            capability.id,
            version=outcome.version,
            status=outcome.status,
            wall_ms=outcome.wall_ms,
            peak_mb=outcome.peak_mb,
            backend=outcome.backend,
            error=error,
            input=kept,
        )

    async def try_out(
        self,
        folder: Path,
        input: Mapping[str, Any],
        *,
        name: str,
        version: int,
        input_schema: Mapping[str, Any],
        requirements: Sequence[str],
        access: Access,
        limits: Mapping[str, int],
        state: Path | None,
        timeout_s: float,
    ) -> Outcome:
        """Run code that is not registered, exactly as `run` would. Nothing is recorded.

        Args:
            folder: Where its files are.
            input: Its arguments.
            name: Of the capability, as `version`, for the outcome.
            version: See `name`.
            input_schema: Which its input must fit.
            requirements: Its packages.
            access: What it may reach; all of it is approved.
            limits: Those of its manifest.
            state: The folder that it keeps its files in, or None.
            timeout_s: A limit below its own.
        """
        job = _Job(
            name=name,
            version=version,
            folder=folder,
            input_schema=input_schema,
            requirements=requirements,
            access=access,
            limits=limits,
            state=state if access.state else None,
            is_trial=True,
        )
        return await self._run(
            job, input, timeout_s=timeout_s, on_output=None, read_file=partial(below, folder)
        )

    async def _run(
        self,
        job: _Job,
        input: Mapping[str, Any],
        *,
        timeout_s: float,
        on_output: OnOutput | None,
        read_file: FileReader | None,
        chain: _Chain | None = None,
        session_id: str = "",
    ) -> Outcome:
        try:
            problems = InputSchema(job.input_schema).problems(input) if job.input_schema else []
        except UsageError as error:
            problems = [str(error)]
        if problems:
            return _refused(
                job, "bad_input", "The input does not fit the schema: " + "; ".join(problems) + "."
            )
        secrets = {name: self.secret(name) for name in job.access.secrets}
        missing = [name for name, value in secrets.items() if not value]
        if missing:
            return _refused(
                job,
                "missing_secret",
                f"{job.name} needs {' and '.join(missing)}, and no value is set. Set it in the environment in which "
                "Satchel starts.",
            )
        sandbox = await self.sandbox()
        layer = await self.layers(job.requirements) if job.requirements else None
        if job.state is not None:
            await anyio.to_thread.run_sync(_ready_state, job.state, job.name)
        limits = _limits(job, timeout_s)
        refused: list[Denial] = []
        can_call = job.access.calls or (job.is_trial and Feature.CALLS in sandbox.features)
        async with AsyncExitStack() as stack:
            if chain is None:
                trial = Path(stack.enter_context(TemporaryDirectory())) if job.is_trial else None
                until_s = anyio.current_time() + limits.wall_s
                chain = _Chain(
                    names=(job.name,), made=[], until_s=until_s, trial=trial, session_id=session_id
                )
            try:
                args, copies = await stack.enter_async_context(
                    given_files(job.input_schema, input, read_file)
                )
            except SatchelError as error:
                return _refused(job, "bad_input", str(error))
            result = await sandbox.run(
                RunSpec(
                    entry=PythonEntry(code_dir=job.folder, args=dict(args)),
                    layer=layer,
                    network=_network(job, sandbox),
                    limits=limits,
                    read_only=() if copies is None else (copies,),
                    writable=() if job.state is None else (job.state,),
                    secrets={name: value for name, value in secrets.items() if value},
                    environ={} if job.state is None else {_STATE_VARIABLE: str(job.state)},
                    broker=partial(self._called, job, chain, refused) if can_call else None,
                ),
                on_output=on_output,
            )
        outcome = _outcome(job, result)
        made, untried = (chain.made, chain.untried) if chain.names[0] == job.name else ((), ())
        return replace(outcome, denied=(*outcome.denied, *refused, *untried), calls=tuple(made))

    async def _called(
        self, job: _Job, chain: _Chain, refused: list[Denial], name: str, input: Mapping[str, Any]
    ) -> tuple[str, bool]:
        """Answer the code of `job`, which calls something: with its result, or with why there is none."""
        number = len(chain.made)
        name = encodable(name)  # code may send a lone surrogate, which no log takes
        # One that is refused for its number is recorded, and not each of the many that code in a loop may ask for.
        if number <= _MOST_CALLS:
            chain.made.append(Called(by=job.name, capability=name[:80], status="refused"))
        if number >= _MOST_CALLS:
            return f"One run makes at most {_MOST_CALLS} calls.", False
        target = name[:200] if is_called(name) else f"{CALLED}{name[:80]}"
        if name not in job.access.calls:
            reason = f"{job.name} may not call {name[:80]!r}: name it in `hosts`, as {target}."
            refused.append(Denial(target=target, reason=reason))
            return reason, False
        try:
            if target == name:
                return await self._outside(job, chain, name, input)
        except NotTried as error:
            chain.untried.append(Denial(target=target, reason=str(error)))
            return str(error), False
        except SatchelError as error:
            return str(error), False
        try:
            called = await self.catalogue.get(name)
            if called.name in chain.names or len(chain.names) >= _MOST_DEEP:
                return f"{' calls '.join((*chain.names, called.name))}: that is not allowed.", False
            # What the user approved for this one, for calls of it, is not to reach further through another one.
            if more := (*called.access.without(job.access).hosts, *called.access.without(job.access).secrets):
                return (
                    f"{called.name} reaches {', '.join(more)}, which {job.name} may not. Name it in `hosts` or "
                    f"`secrets` of {job.name}, so that the user is asked.",
                    False,
                )
            if self.may_call is not None:
                await self.may_call(called.name)
            # What it ends as, if the caller ends before.
            chain.made[number] = Called(by=job.name, capability=called.name, status="cancelled")
            outcome = await self.run(
                called.id,
                input,
                timeout_s=chain.until_s - anyio.current_time(),
                chain=replace(chain, names=(*chain.names, called.name)),
            )
        except SatchelError as error:
            return str(error), False
        chain.made[number] = Called(by=job.name, capability=called.name, status=outcome.status)
        return (outcome.result or "", True) if outcome.ok else (f"{called.name}: {outcome.error}", False)

    async def _outside(
        self, job: _Job, chain: _Chain, name: str, input: Mapping[str, Any]
    ) -> tuple[str, bool]:
        if self.outside is None:
            raise Refused(f"{name} can't be called here.")
        number = len(chain.made) - 1
        called = Called(by=job.name, capability=name[:80], status="cancelled")
        chain.made[number] = called
        try:
            text, ok = await self.outside(
                name, input, by=job.name, session_id=chain.session_id, is_trial=chain.trial is not None
            )
        except SatchelError:
            chain.made[number] = replace(called, status="refused")
            raise
        chain.made[number] = replace(called, status="ok" if ok else "error")
        return text, ok

    @contextmanager
    def lend(self, name: str, hosts: Sequence[str]) -> Iterator[Broker]:
        """The broker for code that is tried out before it is registered. `hosts` is what the user has allowed it; see
        `Access`.
        """
        job = _Job(
            name=name,
            version=0,
            folder=Path(),
            input_schema={},
            requirements=(),
            access=Access(hosts=tuple(hosts)),
            is_trial=True,
        )
        with TemporaryDirectory() as trial:
            chain = _Chain(names=(name,), made=[], until_s=math.inf, trial=Path(trial))
            yield partial(self._called, job, chain, [])


def _network(job: _Job, sandbox: Sandbox) -> Network:
    """What a run may reach. Before a version is used, a proxy that refuses everything stands in for no network, because
    it says what the code tried to reach; the code itself sees only that a name has no address.
    """
    network = network_of(job.access)
    if network.mode == "none" and job.is_trial and Feature.HOSTS in sandbox.features:
        return Network(mode="allow")
    return network


def _limits(job: _Job, timeout_s: float) -> Limits:
    wall_s = min(float(job.limits.get("wall_s", _WALL_S)), MOST_WALL_S, max(timeout_s, 1.0))
    if job.in_background:
        wall_s = BACKGROUND_WALL_S
    return Limits(wall_s=wall_s, cpu_s=round(wall_s) + 1, memory_mb=job.limits.get("mem_mb", _MEMORY_MB))


def _outcome(job: _Job, result: RunResult) -> Outcome:
    status, error = str(result.status), result.error
    if result.status is Status.ERROR and (complaint := _COMPLAINT.search(result.traceback.rstrip())):
        status, error = "bad_input", complaint["words"].strip() or error
    ran = {each.name: getattr(result, each.name) for each in fields(result)}
    ran |= {
        "status": status,
        "error": error,
        "traceback": _SANDBOX_FRAMES.sub(r"\1", result.traceback, count=1),
    }
    return Outcome(capability=job.name, version=job.version, edited=job.edited, **ran)


def _refused(job: _Job, status: str, error: str) -> Outcome:
    return Outcome(capability=job.name, version=job.version, status=status, error=error, edited=job.edited)


def _with_mark(outcome: Outcome, capability: Capability) -> Outcome:
    failing = not outcome.ok and capability.reliability.failing_since is not None
    return replace(outcome, failing=True) if failing else outcome


def _ready_state(folder: Path, name: str) -> None:
    """Make the folder of a capability's own files, or refuse if it has grown too large."""
    ensure_home(folder)
    total = 0
    for path in folder.rglob("*"):
        total += path.lstat().st_size
        if total > _MOST_STATE:
            raise StorageError(
                f"{name} has more than {_MOST_STATE:,} bytes in {folder}, the most that it may keep. Remove some."
            )


def not_active(capability: Capability) -> str:
    """Why a capability that is not active can't be used, and what to do."""
    name = capability.name
    return {
        "building": f"{name} is still being built.",
        "proposed": f"{name} waits for your approval: satchel capability approve {name}",
        "failed": f"{name} could not be built: {' '.join(capability.reasons) or 'no reason is known'}",
        "disabled": f"{name} is disabled. To use it again: satchel capability enable {name}",
    }[capability.status]
