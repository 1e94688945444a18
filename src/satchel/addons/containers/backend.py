"""Docker and Podman: a container for each run, for those who choose one in the settings.

The container's own limits hold memory and processes. The engine, not Satchel, starts its processes, so ending the
client doesn't end them: the container is removed by its name, and by itself when its socket closes (`courier`).
"""

from __future__ import annotations

import os
import secrets as tokens
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import anyio

from satchel.addons.containers.courier import KILLED, OUT_OF_MEMORY, open_courier
from satchel.errors import NoSandbox
from satchel.sandbox import seccomp
from satchel.sandbox.backend import Audience, BaseBackend, most_report_bytes
from satchel.sandbox.bubblewrap import FIRST_UID, MOST_UIDS, give_to, own_uid, readable_by_all
from satchel.sandbox.bwrap import find
from satchel.sandbox.job import ENVIRON, GUEST, HOST_PROCESSES, JobPlaces, Scene, job_bytes
from satchel.sandbox.local import PreparedBox
from satchel.sandbox.port import (
    Boxed,
    Feature,
    OnOutput,
    Probe,
    RunResult,
    Status,
    Watch,
)
from satchel.sandbox.probing import probe_by_doing
from satchel.sandbox.process import ProcessResult, StartedProcess, run_process

Engine = Literal["docker", "podman"]

DEFAULT_IMAGE: Final = f"docker.io/library/python:{sys.version_info.major}.{sys.version_info.minor}-slim"
"""The official image of the running minor version, so that wheels of a layer fit."""
INSIDE_GUEST = "/run/satchel"
INSIDE_CODE = "/capability"
INSIDE_LAYER = "/layer"
INSIDE_FOLDER = "/build"
INSIDE_LINE = "/run/courier.sock"
INSIDE_PROXY = "/run/proxy.sock"
ENDLESS = 1 << 40
OTHER_TASKS = 1 << 15
"""Where the kernel counts all processes of the user, in whatever container, its limit is of no use."""
COUNTS_APART = (5, 14)
"""The first Linux that counts the processes of a user namespace by themselves."""
MOST_FILES = 20_000
"""In /tmp, as in bubblewrap."""
ANSWER_S = 20.0
"""For questions to the engine that start nothing."""
PULL_S = 600.0


class Containers(BaseBackend):
    """See the module."""

    features = frozenset(Feature) - {Feature.HIDING, Feature.WORKSPACE, Feature.CALLS}

    def __init__(
        self,
        engine: Engine,
        *,
        environ: Mapping[str, str],
        image: str = "",
        pull: bool = False,
        program: str = "",
    ) -> None:
        """Nothing is started yet.

        Args:
            engine: The program.
            environ: For the engine's client (HOME, DOCKER_HOST, …). The container gets nothing of it.
            image: Must contain `python3` of the minor version that runs Satchel; "" is `DEFAULT_IMAGE`.
            pull: Whether `probe` may fetch an image that isn't there. Runs never do.
            program: Its path; "" searches the system's folders.
        """
        self.name = engine
        self._program = find(program or engine) or program or engine
        self._environ = dict(environ)
        self._image = image or DEFAULT_IMAGE
        self._pull = pull
        self._as_root = os.geteuid() == 0

    def _places(self, scene: Scene) -> JobPlaces:
        return JobPlaces(
            code_dir=INSIDE_CODE if scene.spec.code_dir is not None else "",
            path=(INSIDE_LAYER,) if scene.spec.layer is not None else (),
            cwd=INSIDE_FOLDER if scene.folder is not None else "/tmp",
            tmp="/tmp",
            socket=INSIDE_PROXY if scene.socket is not None else "",
            filter=seccomp.program(
                seccomp.CAPABILITY if scene.socket is None else seccomp.CAPABILITY_WITH_PROXY
            ),
            other_tasks=HOST_PROCESSES if self._counts_apart() else OTHER_TASKS,
        )

    def _counts_apart(self) -> bool:
        """Whether the user of a container is one that has no processes elsewhere."""
        if self._as_root:
            return True
        found = tuple(int(part) for part in os.uname().release.split(".")[:2] if part.isdigit())
        return self.name == "podman" and found >= COUNTS_APART

    async def _play(self, scene: Scene, *, on_output: OnOutput | None = None) -> RunResult:
        job = job_bytes(scene, self._places(scene))
        stdin = scene.spec.stdin
        line = scene.scratch / "line.sock"
        name = f"satchel-{tokens.token_hex(8)}"
        audience = Audience(scene.spec.limits, on_output)
        async with open_courier(
            line, ENVIRON, job, most_bytes=most_report_bytes(scene.spec.limits)
        ) as courier:
            argv = self._argv(name, scene, line, has_stdin=stdin is not None)
            started = StartedProcess(
                argv,
                cwd=Path("/"),
                environ=self._environ,
                has_stdin=stdin is not None,
                box=PreparedBox(self._client(argv, scene)),
            )
            try:
                ended = await audience.listen(started, stdin=stdin)
            finally:
                # Also after a cancellation: a container doesn't end with the client that started it.
                with anyio.CancelScope(shield=True):
                    await self._ask("rm", "--force", "--volumes", name)
            ended = replace(ended, report=await courier.report())
        if ended.exit_code == KILLED and ended.report.endswith(OUT_OF_MEMORY):
            ended = replace(ended, stopped=Status.MEMORY)
        return self._result(ended, audience, scene)

    def _client(self, argv: list[str], scene: Scene) -> Boxed:
        """The engine's client. Its own processes are not the container's, and count nothing.

        Podman without root ignores its limits where control groups are of version 1, so they are watched as well.
        """
        limits = scene.spec.limits
        watch = Watch(
            memory_mb=ENDLESS,
            processes=ENDLESS,
            folders=scene.left,
            folders_mb=limits.tmp_mb,
        )
        if self.name == "podman":
            watch = replace(
                watch,
                memory_mb=limits.memory_mb,
                processes=limits.processes + HOST_PROCESSES,
                inside=("/tmp",),
                files=MOST_FILES,
                pid_file=_pid_file(scene),
            )
        return Boxed(argv=argv, cwd=Path("/"), environ=self._environ, descriptors=(), watch=watch)

    def _argv(self, name: str, scene: Scene, line: Path, *, has_stdin: bool) -> list[str]:
        limits = scene.spec.limits
        memory = f"{limits.memory_mb}m"
        argv = [
            self._program,
            "run",
            "--rm",
            "--name",
            name,
            "--pull",
            "never",
            "--init",
            "--network",
            "none",
        ]
        argv += [
            "--read-only",
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
            "--ipc",
            "private",
        ]
        # The client and the first process of the container have a part of the number.
        argv += ["--pids-limit", str(limits.processes + HOST_PROCESSES)]
        # Podman's own default is more than may be set where Satchel itself runs in a container.
        argv += ["--ulimit", f"nproc={OTHER_TASKS}:{OTHER_TASKS}"]
        argv += ["--memory", memory, "--memory-swap", memory, "--log-driver", "none", "--hostname", "sandbox"]
        argv += [
            "--ulimit",
            "core=0:0",
            "--ulimit",
            "nofile=256:256",
            "--workdir",
            "/",
            *self._user(scene, line),
        ]
        tmp = f"/tmp:rw,exec,nosuid,nodev,mode=1777,size={limits.tmp_mb}m"
        # Podman takes no limit for the number of files, but says whom to watch.
        argv += ["--tmpfs", tmp if self.name == "podman" else f"{tmp},nr_inodes={MOST_FILES}"]
        argv += ["--pidfile", str(_pid_file(scene))] if self.name == "podman" else []
        argv += ["--interactive"] if has_stdin else []
        code_dir = scene.spec.code_dir
        if code_dir is not None and self._as_root:
            code_dir = readable_by_all(code_dir, scene.scratch)
        for inside, readable in (
            (INSIDE_GUEST, GUEST),
            (INSIDE_CODE, code_dir),
            (INSIDE_LAYER, scene.spec.layer),
        ):
            argv += _mount(readable, inside, writable=False)
        out = scene.out if scene.folder is None else None
        for inside, place in (
            ("/tmp/out", out),
            (INSIDE_FOLDER, scene.folder),
            (INSIDE_LINE, line),
            (INSIDE_PROXY, scene.socket),
        ):
            argv += _mount(place, inside, writable=True)
        for path in scene.spec.read_only:
            argv += _mount(path, str(path), writable=False)
        for path in scene.spec.writable:
            argv += _mount(path, str(path), writable=True)
        argv += ["--entrypoint", "python3", self._image, "-I", "-S"]
        return [*argv, f"{INSIDE_GUEST}/courier.py", INSIDE_LINE]

    def _user(self, scene: Scene, line: Path) -> list[str]:
        """Never uid 0: one's own number, or for root one that nobody has, who then owns what the run may write to."""
        options = ["--http-proxy=false"] if self.name == "podman" else []
        if not self._as_root:
            options += ["--userns", "keep-id"] if self.name == "podman" else []
            return [*options, "--user", f"{os.getuid()}:{os.getgid()}"]
        if scene.spec.writable:
            raise NoSandbox(
                f"With {self.name}, root can't lend its own folders to a run. Run Satchel as an ordinary user, or set "
                'backend = "bubblewrap" in the section [sandbox] of config.toml.'
            )
        uid = own_uid(scene.folder)
        for ours in (scene.out, line, scene.socket):
            if ours is not None:
                os.chown(ours, uid, uid)
        # The folder of the run is closed to others; the engine mounts what is in it, as root.
        if scene.folder is not None:
            give_to(scene.folder, uid)
        return [*options, "--user", f"{uid}:{uid}"]

    def folder_owner(self, folder: Path) -> int | None:
        """See `BaseBackend`."""
        owner = folder.stat().st_uid
        return owner if FIRST_UID <= owner < FIRST_UID + MOST_UIDS else None

    async def probe(self) -> Probe:
        """See `Sandbox`."""
        reason = fix = ""
        if find(self._program) is None:
            reason = f"{self.name} isn't installed."
            fix = (
                f"Install {self.name}: sudo apt install {'docker.io' if self.name == 'docker' else 'podman'}."
            )
        elif (said := await self._ask("version")).exit_code != 0:
            reason = f"{self.name} doesn't answer: {_last_line(said)}"
            if self.name == "docker":
                fix = "Start it (sudo systemctl start docker), and let yourself use it: sudo usermod -aG docker $USER."
        elif (await self._ask("image", "inspect", self._image)).exit_code != 0:
            said = await self._ask("pull", "--quiet", self._image, limit_s=PULL_S) if self._pull else said
            if not self._pull or said.exit_code != 0:
                reason = f"The image {self._image} isn't here" + (
                    f": {_last_line(said)}" if self._pull else "."
                )
                fix = (
                    f"Fetch it: {self.name} pull {self._image}; or set pull = true in the section [sandbox]."
                )
        if reason:
            return Probe(name=self.name, works=False, reason=reason, fix=fix)
        probe = await probe_by_doing(self)
        # Its own texts are about bubblewrap.
        return (
            probe
            if probe.works
            else replace(probe, fix=f"Try: {self.name} run --rm {self._image} python3 -V.")
        )

    async def _ask(self, *words: str, limit_s: float = ANSWER_S) -> ProcessResult:
        """Ask the engine something. Its exit code says whether it could answer.

        Raises:
            SandboxError: The client can't be started.
        """
        return await run_process(
            [self._program, *words], cwd=Path("/"), environ=self._environ, timeout_s=limit_s
        )


def _pid_file(scene: Scene) -> Path:
    """Where Podman writes the number of the container's first process. Nothing in the container can."""
    return scene.scratch / "container.pid"


def _mount(source: Path | None, inside: str, *, writable: bool) -> list[str]:
    """The arguments for one mount; fields are those of a CSV line."""
    if source is None:
        return []
    fields = ["type=bind", f"src={source}", f"dst={inside}", *(() if writable else ("readonly",))]
    quoted = ['"' + field.replace('"', '""') + '"' if {",", '"'} & {*field} else field for field in fields]
    return ["--mount", ",".join(quoted)]


def _last_line(said: ProcessResult) -> str:
    return (said.stderr.text.strip().splitlines() or [f"exit code {said.exit_code}"])[-1][-300:]
