"""E2B: a virtual machine of a hosted service for each run, for those who choose it in the settings.

The service's own machine is the boundary. `guest/remote.py` limits the run in it and packs what is left. Packages go
there as the layer that was installed here: they are the ones of the lock, with their hashes, and no index has to be
reachable from the machine. Hosts are allowed by the service, because the proxy of this machine can't be reached.

A machine is ended when its run ends, however that happens. If Satchel is killed, the service ends it, shortly after the
run's own time.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from satchel.addons.e2b.hosted import HERE, LEFT, STAGE, Left, Sync, mirror, most_left_bytes, pack, unpack
from satchel.errors import NoSandbox, SandboxError
from satchel.sandbox.backend import Audience, BaseBackend, most_report_bytes
from satchel.sandbox.bubblewrap import own_uid
from satchel.sandbox.job import GUEST, JobPlaces, Scene, job_bytes
from satchel.sandbox.outcome import redacted
from satchel.sandbox.port import (
    Feature,
    Network,
    OnOutput,
    Probe,
    RunResult,
    Status,
)
from satchel.sandbox.probing import probe_by_doing
from satchel.sandbox.process import Captured, ProcessResult
from satchel.wording import install_extra

if TYPE_CHECKING:
    from e2b import AsyncSandbox
    from e2b.connection_config import ApiParams
    from e2b.sandbox.sandbox_api import SandboxNetworkOpts

DEFAULT_DOMAIN: Final = "e2b.app"
INSIDE_CODE = "/capability"
INSIDE_LAYER = "/layer"
INSIDE_FOLDER = "/build"
INSIDE_OUT = "/tmp/out"
EVERYTHING = "0.0.0.0/0"
PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
WEB_PORTS = ("80", "443")
"""Where the service can tell hosts apart, by the name in the request or in the TLS handshake."""
ANSWER_S = 30.0
"""For a request to the service that carries no files."""
CARRY_S = 120.0
"""For all files of a run, in one direction."""
LATE_S = 10.0
"""How long after its own limit a run is waited for: it is ended there, and what it left is packed."""
KILL_S = 20.0
KILL_TRIES = 3
"""A machine that isn't ended is paid for until its time is up, and a connection that was lost under a run can take the
first request after it along."""
MOST_REASON_CHARS = 300

_log = logging.getLogger(__name__)


class E2B(BaseBackend):
    """See the module."""

    name = "e2b"
    features = frozenset(Feature) - {Feature.HIDING, Feature.SYSCALLS, Feature.WORKSPACE, Feature.CALLS}
    proxied = False

    def __init__(
        self,
        *,
        key: str,
        key_name: str,
        template: str = "",
        domain: str = DEFAULT_DOMAIN,
        urls: tuple[str, str] | None = None,
        as_self: bool = False,
    ) -> None:
        """Nothing is started yet.

        Args:
            key: The key of the service; "" if there is none.
            key_name: The environment variable that it comes from, for messages.
            template: What machines are made of; "" is the service's own. It must have `python3` of the minor version
                that runs Satchel.
            domain: Of the service, or of another one that speaks the same.
            urls: Of the service's interface and of its machines, where they are not at `domain`.
            as_self: Don't change the user in the machine: where the machine is one that can't.
        """
        self._key = key
        self._key_name = key_name
        self._template = template or None
        self._domain = domain
        self._urls = urls
        self._as_self = as_self

    def __repr__(self) -> str:
        """Without the key."""
        return f"E2B(template={self._template!r}, domain={self._domain!r})"

    async def probe(self) -> Probe:
        """See `Sandbox`."""
        fix = f"Check {self._key_name}, [sandbox] image (the template) and the network; see docs/guides/sandbox.md."
        try:
            probe = await probe_by_doing(self)
        except NoSandbox as error:
            return Probe(name=self.name, works=False, reason=str(error), fix=fix)
        return replace(probe, fix="" if probe.works else fix)

    def _check(self, network: Network) -> None:
        if network.private:
            raise NoSandbox(
                f"{', '.join(network.private)}: private hosts can't be reached from e2b, whose machines are elsewhere. "
                'Use backend = "bubblewrap".'
            )
        for host in network.hosts if network.mode == "allow" else ():
            name, _, port = host.rpartition(":") if ":" in host else (host, "", "443")
            if port not in WEB_PORTS:
                raise NoSandbox(f"e2b can allow {name} on the ports 80 and 443 only, not on {port}.")

    async def _play(self, scene: Scene, *, on_output: OnOutput | None = None) -> RunResult:
        limits = scene.spec.limits
        uid = 0 if self._as_self else own_uid(None)
        places = JobPlaces(
            code_dir=INSIDE_CODE if scene.spec.code_dir is not None else "",
            path=(INSIDE_LAYER,) if scene.spec.layer is not None else (),
            cwd=INSIDE_FOLDER if scene.folder is not None else "/tmp",
            tmp="/tmp",
            socket="",
            uid=uid,
        )
        folders = [Sync(here=scene.out, there=INSIDE_OUT)]
        folders += [Sync(here=scene.folder, there=INSIDE_FOLDER)] if scene.folder is not None else []
        folders += [Sync(here=path, there=str(path)) for path in scene.spec.writable]
        stage = scene.scratch / "stage.tar"
        packed = partial(
            pack,
            stage,
            scene,
            code_dir=INSIDE_CODE,
            layer=INSIDE_LAYER,
            folders=folders,
            job=job_bytes(scene, places),
            stdin=scene.spec.stdin or b"",
            uid=uid,
            most_report_bytes=most_report_bytes(limits),
        )
        await anyio.to_thread.run_sync(packed)
        began_s = anyio.current_time()
        audience = Audience(limits, on_output)
        async with self._machine(scene) as machine:
            await self._send(machine, stage)
            stdout, stderr = await self._run(machine, audience, limits.wall_s)
            left = None if audience.flooded else await self._take_back(machine, scene, folders)
        ended = ProcessResult(
            exit_code=left.code if left is not None else 137,
            signal=None,
            timed_out=left is not None and left.timed_out,
            stdout=stdout,
            stderr=stderr,
            report=left.report if left is not None else b"",
            left_behind=0,
            duration_s=anyio.current_time() - began_s,
            stopped=left.stopped if left is not None else None,
            peak_mb=left.peak_mb if left is not None else 0,
        )
        result = self._result(ended, audience, scene)
        return result if left is None else replace(result, omitted=(*left.omitted, *result.omitted))

    @asynccontextmanager
    async def _machine(self, scene: Scene) -> AsyncIterator[AsyncSandbox]:
        """A machine, which is ended at the end of the block.

        Raises:
            NoSandbox: There is no key, or it is refused, or the SDK is missing.
            SandboxError: The service doesn't give one.
        """
        sdk = self._sdk()
        allowed, network = _reach(scene.spec.network)
        # A machine whose making was interrupted could not be ended, so that it isn't interrupted.
        with anyio.CancelScope(shield=True), self._said("make a machine"):
            machine = await sdk.create(
                template=self._template,
                timeout=round(scene.spec.limits.wall_s + LATE_S + 2 * CARRY_S),
                metadata={"made-by": "satchel"},
                lifecycle={"on_timeout": "kill"},
                idempotency_key=str(uuid.uuid4()),
                allow_internet_access=allowed,
                network=network,
                **self._options(),
            )
        try:
            yield machine
        finally:
            await self._end(machine)

    async def _end(self, machine: AsyncSandbox) -> None:
        """End the machine. Raises nothing: the run's own result or error matters more."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(KILL_S) as limit:
            for tries_left in reversed(range(KILL_TRIES)):
                try:
                    with self._said("end its machine"):
                        await machine.kill(request_timeout=ANSWER_S)
                    return
                except NoSandbox as error:
                    _log.warning("%s The machine ends by itself.", error)
                    return
                except SandboxError as error:
                    if not tries_left:
                        _log.warning("%s It ends by itself.", error)
        if limit.cancelled_caught:
            _log.warning("e2b didn't end its machine within %g s. It ends by itself.", KILL_S)

    def _options(self) -> ApiParams:
        # Everything is named: what isn't, the SDK reads from the environment.
        api, machines = self._urls or (f"https://api.{self._domain}", "")
        options: ApiParams = {
            "api_key": self._key,
            "domain": self._domain,
            "api_url": api,
            "debug": False,
            "request_timeout": ANSWER_S,
            "http_version": "2",
        }
        if machines:
            options["sandbox_url"] = machines
        return options

    def _sdk(self) -> type[AsyncSandbox]:
        if not self._key:
            raise NoSandbox(
                f"The environment variable {self._key_name} isn't set: it holds the key of e2b. Another name can be "
                "given as [sandbox] e2b_key_env."
            )
        try:
            # It is optional, and takes half a second to import.
            from e2b import AsyncSandbox  # noqa: PLC0415
        except ImportError as error:
            raise NoSandbox(f"e2b needs its SDK. Type: {install_extra('e2b')}") from error
        return AsyncSandbox

    async def _send(self, machine: AsyncSandbox, stage: Path) -> None:
        with self._said("take the files of the run"), anyio.fail_after(CARRY_S):
            program = (GUEST / "remote.py").read_bytes()
            await machine.files.write(f"{HERE}/remote.py", program, user="root")
            with stage.open("rb") as file:
                await machine.files.write(STAGE, file, user="root")

    async def _run(
        self, machine: AsyncSandbox, audience: Audience, wall_s: float
    ) -> tuple[Captured, Captured]:
        """Run it, and return what it printed."""
        from e2b import CommandExitException  # noqa: PLC0415 - see `_sdk`

        tapes = audience.tape(), audience.tape()

        async def hear_out(text: str) -> None:
            tapes[0].keep(piece := text.encode())
            await audience.hear("stdout", piece)

        async def hear_err(text: str) -> None:
            tapes[1].keep(piece := text.encode())
            await audience.hear("stderr", piece)

        argv = ["python3", "-I", "-S", f"{HERE}/remote.py", STAGE]
        command = f"exec {shlex.join(argv)}"
        with self._said("run it"), anyio.CancelScope() as scope:
            audience.attend(scope)
            with anyio.fail_after(wall_s + LATE_S + ANSWER_S):
                handle = await machine.commands.run(
                    command,
                    background=True,
                    user="root",
                    cwd="/",
                    on_stdout=hear_out,
                    on_stderr=hear_err,
                    timeout=wall_s + LATE_S + ANSWER_S,
                    retain_output=False,
                )
                try:
                    await handle.wait()
                except CommandExitException as error:
                    said = tapes[1].captured.text.strip().splitlines() or [f"exit code {error.exit_code}"]
                    raise SandboxError(f"The sandbox (e2b) could not be set up: {said[-1][-500:]}") from None
                finally:
                    # The task that hears is not ours to leave running.
                    with anyio.CancelScope(shield=True), anyio.move_on_after(ANSWER_S):
                        await handle.disconnect()
        return tapes[0].captured, tapes[1].captured

    async def _take_back(self, machine: AsyncSandbox, scene: Scene, folders: Sequence[Sync]) -> Left:
        """Fetch what the run left, and make the folders here like those there."""
        report_bytes = most_report_bytes(scene.spec.limits)
        archive = scene.scratch / "left.tar"
        await self._fetch(machine, archive, most_left_bytes(scene.spec.limits.tmp_mb, report_bytes))
        came = [scene.scratch / f"came{number}" for number in range(len(folders))]
        for new in came:
            new.mkdir()
        unpacked = partial(unpack, archive, came, most_report_bytes=report_bytes)
        left = await anyio.to_thread.run_sync(unpacked)
        # What was too much wasn't sent: what is missing then was not deleted.
        if left.stopped is not Status.DISK:
            for new, folder in zip(came, folders, strict=True):
                await anyio.to_thread.run_sync(mirror, new, folder.here)
        return left

    async def _fetch(self, machine: AsyncSandbox, archive: Path, most_bytes: int) -> None:
        with self._said("give back what the run left"), anyio.fail_after(CARRY_S):
            stream = await machine.files.read(LEFT, format="stream", user="root")
            try:
                with archive.open("xb") as file:
                    async for piece in stream:
                        most_bytes -= len(piece)
                        if most_bytes < 0:
                            raise SandboxError("The hosted machine sends more than a run may leave.")
                        file.write(piece)
            finally:
                await stream.aclose()

    @contextlib.contextmanager
    def _said(self, what: str) -> Iterator[None]:
        """Turn the errors of the service, the SDK and the connection into ours, with the reason and without the key.

        Raises:
            NoSandbox: The key was refused, or the template isn't there.
            SandboxError: Anything else.
        """
        try:
            yield
        except SandboxError:
            raise
        # A boundary: the SDK passes on what five libraries raise, some of it as a plain Exception.
        except Exception as error:  # noqa: BLE001
            from e2b import AuthenticationException  # noqa: PLC0415 - see `_sdk`

            words = " ".join(str(error).split()) or (
                "it took too long" if isinstance(error, TimeoutError) else type(error).__name__
            )
            reason = redacted(words, [self._key])[:MOST_REASON_CHARS].rstrip(".")
            if isinstance(error, AuthenticationException) or getattr(error, "status_code", 0) == 403:
                raise NoSandbox(
                    f"e2b didn't {what}: {reason}. The key comes from {self._key_name}."
                ) from None
            raise SandboxError(f"e2b didn't {what}: {reason}.") from None


def _reach(network: Network) -> tuple[bool | None, SandboxNetworkOpts]:
    """Whether the machine may reach anything, and what. Nobody may reach the machine itself."""
    options: SandboxNetworkOpts = {"allow_public_traffic": False}
    if network.mode == "none":
        return False, options
    if network.mode == "public":
        options["deny_out"] = [*PRIVATE]
    else:
        options["allow_out"] = sorted(
            {host.rpartition(":")[0] if ":" in host else host for host in network.hosts}
        )
        options["deny_out"] = [EVERYTHING]
    return None, options
