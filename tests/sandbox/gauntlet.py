"""Runs every attack against one backend, as whoever starts it, and prints what happened as JSON.

    python -m tests.sandbox.gauntlet bubblewrap|landlock|podman|unsafe run|bash FOLDER [OWNER]

OWNER is the user that workspaces belong to. The folder is empty; the victims are made in it. The host's findings (a server that was reached, a file that changed, a
process that was left) count as "THROUGH", whatever the attack says.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from satchel.addons.containers.backend import Containers
from satchel.sandbox.backend import BaseBackend
from satchel.sandbox.bubblewrap import Bubblewrap
from satchel.sandbox.landlock import Landlock
from satchel.sandbox.port import Limits, PythonEntry, RunSpec, WorkspaceBox
from satchel.sandbox.process import run_process
from satchel.sandbox.unsafe import Unsafe
from tests.sandbox.attacks import ATTACKS, CANARY, Attack

IMAGE = "SATCHEL_TEST_IMAGE"
ENGINE_HOME = "SATCHEL_TEST_ENGINE_HOME"
"""Where Podman has the image: HOME is that of the victims."""


def podman() -> Containers:
    environ = {**os.environ, "HOME": os.environ.get(ENGINE_HOME, os.environ["HOME"])}
    return Containers("podman", environ=environ, image=os.environ[IMAGE])


BACKENDS: Mapping[str, Callable[[], BaseBackend]] = {
    "bubblewrap": Bubblewrap,
    "landlock": Landlock,
    "podman": podman,
    "unsafe": Unsafe,
}
LIMITS = Limits(
    wall_s=20, cpu_s=15, memory_mb=192, processes=32, file_mb=16, tmp_mb=48, output_kb=64, result_kb=256
)
SIDE_BY_SIDE = 4
_MESSAGE = ctypes.create_string_buffer(struct.pack("q8s", 1, b"message!"))
_libc = ctypes.CDLL(None)


class Victims:
    """What attacks aim at."""

    def __init__(self, folder: Path, *, harmless: bool) -> None:
        self.folder = folder
        self.home = folder / "home"
        for name in (".ssh/id_ed25519", ".aws/credentials", ".satchel/token", ".bashrc", ".ssh/open"):
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(CANARY)
        self.neighbour = folder / "capabilities" / "other" / "main.py"
        self.neighbour.parent.mkdir(parents=True)
        self.neighbour.write_text(CANARY)
        self.layer = folder / "layers" / "abc"
        self.layer.mkdir(parents=True)
        (self.layer / "package.py").write_text("x = 1")
        self.layer.chmod(0o555)
        self.outside = folder / "outside.txt"
        self.outside.write_text("untouched")
        self.in_tmp = Path(f"/tmp/satchel-victim-{os.getpid()}")
        self.in_tmp.write_text(CANARY)
        self.tmp_target = Path(f"/tmp/satchel-target-{os.getpid()}")
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        os.chdir(self.home)
        self.unix.bind("sock")
        self.unix.listen()
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract_name = f"satchel-victim-{os.getpid()}"
        self.abstract.bind("\0" + self.abstract_name)
        self.abstract.listen()
        for server in (self.tcp, self.udp, self.unix, self.abstract):
            server.setblocking(False)
        self.process = subprocess.Popen(["sleep", "1000"], env={"SECRET": CANARY})
        self.open_file = os.open(self.home / ".ssh" / "open", os.O_RDONLY)
        os.set_inheritable(self.open_file, True)
        self.queue = 0x5A7C0000 | os.getpid() & 0xFFFF
        self._queue_id = _libc.msgget(self.queue, 0o1600)
        _libc.msgsnd(self._queue_id, _MESSAGE, 8, 0o4000)
        self.marker = f"satchel-daemon-{os.getpid()}"
        self.harmless = harmless

    def args(self) -> dict[str, Any]:
        return {
            "home": str(self.home),
            "neighbour": str(self.neighbour),
            "layer": str(self.layer),
            "outside": str(self.outside),
            "in_tmp": str(self.in_tmp),
            "tmp_target": str(self.tmp_target),
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "unix": str(self.home / "sock"),
            "abstract": self.abstract_name,
            "victim": self.process.pid,
            "marker": self.marker,
            "queue": self.queue,
            "private": f"private-word-{os.getpid()}",
            # Without limits, a little more than the limits allow is enough to show that nothing stops it.
            "many": 200 if self.harmless else 10_000,
            "megabytes": 240 if self.harmless else 10_240,
            "megabytes_each": 40 if self.harmless else 120,
        }

    def damage(self) -> str:
        """What an attack did to the host; it is repaired."""
        found = []
        for server in (self.tcp, self.unix, self.abstract):
            try:
                server.accept()[0].close()
                found.append("a server was reached")
            except BlockingIOError:
                pass
        try:
            self.udp.recv(10)
            found.append("a datagram arrived")
        except BlockingIOError:
            pass
        _libc.msgsnd(self._queue_id, _MESSAGE, 8, 0o4000)
        if self.process.poll() is not None:
            found.append("the victim was killed")
            self.process = subprocess.Popen(["sleep", "1000"], env={"SECRET": CANARY})
        if (self.home / ".aws").stat().st_mode & 0o700 != 0o700:
            found.append("modes outside were changed")
            (self.home / ".aws").chmod(0o755)
        if not self.outside.exists() or self.outside.read_text() != "untouched":
            found.append("the file outside was changed")
            self.outside.write_text("untouched")
        if (self.home / ".bashrc").read_text() != CANARY:
            found.append("the start file was changed")
            (self.home / ".bashrc").write_text(CANARY)
        if self.tmp_target.exists():
            found.append("the host's /tmp was written")
            self.tmp_target.unlink()
        if (self.layer / "evil.py").exists():
            found.append("the packages were changed")
            (self.layer / "evil.py").unlink()
        return "; ".join(found)

    def left_running(self) -> bool:
        """Whether a process of the attacks is left, now that all are over; it is ended."""
        left = [pid for pid in _pids() if self.marker in _command_line(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return bool(left)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        _libc.msgctl(self._queue_id, 0, None)
        self.in_tmp.unlink()
        self.tmp_target.unlink(missing_ok=True)
        for server in (self.tcp, self.udp, self.unix, self.abstract):
            server.close()
        os.close(self.open_file)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


async def as_capability(sandbox: BaseBackend, attack: Attack, victims: Victims) -> dict[str, Any]:
    code_dir = victims.folder / "capabilities" / "own" / "-".join(attack.name.split("/"))
    code_dir.mkdir(parents=True, exist_ok=True)
    (code_dir / "main.py").write_text(attack.code)
    limits = replace(LIMITS, wall_s=1) if attack.status == "timeout" else LIMITS
    result = await sandbox.run(
        RunSpec(entry=PythonEntry(code_dir=code_dir, args=victims.args()), layer=victims.layer, limits=limits)
    )
    said = result.result or f"{result.status}: {result.error}"
    changed = not (code_dir / "main.py").exists() or (code_dir / "main.py").read_text() != attack.code
    stolen = any(CANARY.encode() in artifact.content for artifact in result.artifacts)
    return {
        "said": said[:200],
        "status": str(result.status),
        "through": "THROUGH" in (result.result or "") or changed or stolen or result.wall_ms > 25_000,
        "artifacts": sorted(artifact.path for artifact in result.artifacts),
        "stderr": result.stderr[-300:],
    }


async def as_command(sandbox: BaseBackend, attack: Attack, victims: Victims) -> dict[str, Any]:
    workspace = victims.folder / "workspace" / "-".join(attack.name.split("/"))
    workspace.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 4:
        os.chown(workspace, int(sys.argv[4]), int(sys.argv[4]))
    program = attack.code + f"\nprint('said:', run({victims.args()!r}))\n"
    spec = WorkspaceBox(
        workspace=workspace,
        home=victims.home,
        hidden=(victims.folder / "capabilities", victims.folder / "layers", victims.outside),
        memory_mb=192,
        processes=64,
        file_mb=16,
        disk_mb=100_000,
    )
    # The word may not stand in the command itself, which a command finds in its own environment and memory.
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(victims.home)}
    async with sandbox.box(spec) as box:
        result = await run_process(
            ["bash", "-c", 'exec /usr/bin/python3 -I -c "$(cat)"'],
            cwd=workspace,
            environ=environ,
            stdin=program.encode(),
            timeout_s=1 if attack.status == "timeout" else 20,
            box=box,
        )
    said = result.stdout.text.rpartition("said:")[2].strip()
    return {
        "said": said[:200] or f"exit {result.exit_code}, {result.stopped}, {result.stderr.text[-200:]}",
        "status": "timeout" if result.timed_out else str(result.stopped or ""),
        "through": "THROUGH" in said or result.duration_s > 25,
    }


async def run_all(backend: str, way: str, folder: Path) -> dict[str, dict[str, Any]]:
    sandbox: BaseBackend = BACKENDS[backend]()
    victims = Victims(folder, harmless=backend == "unsafe")
    found: dict[str, dict[str, Any]] = {}
    one = as_capability if way == "run" else as_command
    turns = anyio.CapacityLimiter(1 if backend == "unsafe" else SIDE_BY_SIDE)

    async def run(attack: Attack) -> None:
        async with turns:
            report = await one(sandbox, attack, victims)
            # With several side by side, it may be another's.
            damage = victims.damage()
            found[attack.name] = {**report, "damage": damage, "through": report["through"] or bool(damage)}

    try:
        async with anyio.create_task_group() as group:
            for attack in ATTACKS:
                if (attack.bash or way == "run") and (backend != "unsafe" or attack.plain != "skip"):
                    group.start_soon(run, attack)
        if victims.left_running():
            found["leaves a daemon"] |= {"through": True, "damage": "a process was left"}
    finally:
        await sandbox.aclose()
        victims.close()
    return found


if __name__ == "__main__":
    os.environ["SATCHEL_TEST_SECRET"] = CANARY
    print(json.dumps(anyio.run(run_all, sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
