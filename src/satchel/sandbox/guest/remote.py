"""The first program in a hosted machine: unpacks what the run needs, starts it, limits it, and packs what it left.

    python3 -I -S remote.py STAGE

It is root there, and what it starts is a user that nobody else is. STAGE is a tar file of `satchel.sandbox.hosted`; it
and the job in it are deleted before anything of the run starts. What is left behind is a tar file beside it, with the
report, how the run ended, and the folders that go back. Nothing but the standard library is here.
"""

import contextlib
import json
import marshal
import os
import select
import signal
import sys
import tarfile
import time
from io import BytesIO

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

REPORT_FD = "_SATCHEL_REPORT_FD"
HERE = os.path.dirname(os.path.abspath(__file__))
CHUNK_BYTES = 1 << 16
LOOK_S = 0.1
"""The time between two looks at memory; files are looked at every third time."""
RESERVED = ("report", "ended")


def main() -> None:
    """Run it, and leave `left.tar`."""
    plan = unpacked(sys.argv[1])
    here = ".".join(str(number) for number in sys.version_info[:2])
    if here != plan["python"]:
        sys.exit(f"The template has Python {here}, and Satchel runs with {plan['python']}.")
    machine = os.uname().machine
    if plan["machine"] not in ("", machine):
        sys.exit(f"The template is for {machine}, and the packages are for {plan['machine']}.")
    run = GuestRun(plan)
    run.start()
    run.watch()
    run.end()
    run.pack(os.path.join(HERE, "left.tar"))


def unpacked(stage: str) -> "dict[str, Any]":
    """Put the files in their places, and return the plan."""
    trusted = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
    with tarfile.open(stage) as tar:
        tar.extractall("/", numeric_owner=True, **trusted)  # type: ignore[arg-type]
    plan = os.path.join(HERE, "plan")
    with open(plan, "rb") as file:
        read = marshal.load(file)
    os.unlink(stage)
    os.unlink(plan)
    result: dict[str, Any] = read
    return result


class GuestRun:
    """One run."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        self.plan = plan
        self.uid: int = plan["uid"]
        self.report = bytearray()
        self.stopped = ""
        self.peak_kb = 0
        self.code = 0
        for folder in plan["folders"]:
            os.chown(folder, self.uid, self.uid)
        for path in (*plan["folders"], *plan["shown"]):
            make_reachable(os.path.dirname(path))
        self.before = set(pids())
        self.files_before = (1 << 40, 0)
        self.files_before = self.files()
        self.killed_before = killed_for_memory()
        self.deadline_s = time.monotonic() + plan["wall_s"]

    def start(self) -> None:
        """Start the guest. Its first descriptor is its input, its job and its report are inherited."""
        job_fd, stdin_fd = memory_file(self.plan["job"]), memory_file(self.plan["stdin"])
        self.report_fd, theirs = os.pipe()
        for fd in (job_fd, theirs):
            os.set_inheritable(fd, True)
        self.child = os.fork()
        if self.child == 0:
            os.setsid()
            os.dup2(stdin_fd, 0)
            argv = [sys.executable, "-I", "-S", os.path.join(HERE, "start.py"), str(job_fd)]
            os.execve(sys.executable, argv, {**self.plan["environ"], REPORT_FD: str(theirs)})
        for fd in (job_fd, stdin_fd, theirs):
            os.close(fd)

    def watch(self) -> None:
        """Read the report until the guest has ended, or has to be ended."""
        exit_fd = os.pidfd_open(self.child)
        waiting = [exit_fd, self.report_fd]
        looks = 0
        while not self.stopped:
            ready = select.select(waiting, [], [], LOOK_S)[0]
            if self.report_fd in ready and not self.read():
                waiting.remove(self.report_fd)
            if exit_fd in ready:
                break
            if not ready:
                looks += 1
                self.look(files=looks % 3 == 0)
            if time.monotonic() > self.deadline_s:
                self.stopped = "timeout"
        os.close(exit_fd)

    def read(self) -> bool:
        """Read a piece of the report; False at its end. What is too much is dropped, so that nobody waits for ever."""
        piece = os.read(self.report_fd, CHUNK_BYTES)
        self.report += piece[: self.plan["report_bytes"] - len(self.report)]
        return bool(piece)

    def look(self, *, files: bool) -> None:
        """Compare what the run uses with its limits."""
        used_kb = sum(memory_kb(pid) for pid in self.own())
        self.peak_kb = max(self.peak_kb, used_kb)
        if used_kb > self.plan["memory_mb"] << 10:
            self.stopped = "memory"
        elif files:
            count, size = (now - before for now, before in zip(self.files(), self.files_before, strict=True))
            if count > self.plan["files"] or size > self.plan["tmp_mb"] << 20:
                self.stopped = "disk"

    def own(self) -> "list[int]":
        """The processes of the run."""
        mine = {os.getpid(), *self.before}
        return [pid for pid in pids() if pid not in mine and (not self.uid or owner(pid) == self.uid)]

    def files(self) -> "tuple[int, int]":
        """How many files there are where the run may write, and their size."""
        count = size = 0
        most = self.files_before[0] + self.plan["files"]
        for folder in ("/tmp", *self.plan["folders"]):
            for place, folders, names in os.walk(folder):
                count += len(folders) + len(names)
                if count > most:
                    return count, size
                for name in names:
                    with contextlib.suppress(OSError):
                        size += os.lstat(os.path.join(place, name)).st_size
        return count, size

    def end(self) -> None:
        """End all of it, and note how."""
        if self.uid:
            killer = os.fork()
            if killer == 0:
                # "All processes" are those of this user, and a fork can't escape between looking and killing.
                os.setresuid(self.uid, self.uid, self.uid)
                os.kill(-1, signal.SIGKILL)
                os._exit(0)
            os.waitpid(killer, 0)
        else:
            os.killpg(self.child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        self.code = status if status >= 0 else 128 - status
        while select.select([self.report_fd], [], [], 0)[0] and self.read():
            pass
        if (
            self.code == 128 + signal.SIGKILL
            and not self.stopped
            and killed_for_memory() > self.killed_before
        ):
            self.stopped = "memory"
        elif not self.stopped and self.files()[1] - self.files_before[1] > self.plan["tmp_mb"] << 20:
            self.stopped = "disk"

    def pack(self, path: str) -> None:
        """Write what goes back. Only regular files have content in it; the host decides about the rest."""
        ended = {"code": self.code, "stopped": self.stopped, "peak_kb": self.peak_kb}
        with tarfile.open(path, "w") as tar:
            for name, content in zip(RESERVED, (bytes(self.report), json.dumps(ended).encode()), strict=True):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, BytesIO(content))
            # What is too much to take is also too much to send.
            for number, folder in enumerate(self.plan["folders"] if self.stopped != "disk" else ()):
                self.pack_folder(tar, folder, str(number))

    def pack_folder(self, tar: tarfile.TarFile, folder: str, name: str) -> None:
        """Add a folder. Links keep their kind, and are not followed."""
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            inside = f"{name}/{entry.name}"
            info = tar.gettarinfo(entry.path, inside)
            if info is None:
                continue
            if info.isreg() and entry.stat(follow_symlinks=False).st_nlink > 1:
                info.type = tarfile.LNKTYPE
            if info.isreg():
                fd = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with open(fd, "rb") as file:
                    tar.addfile(info, file)
                continue
            if not info.isdir():
                info.size = 0
            tar.addfile(info)
            if info.isdir():
                self.pack_folder(tar, entry.path, inside)


def memory_file(content: bytes) -> int:
    """A file in memory, open at its beginning."""
    fd = os.memfd_create("satchel")
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def make_reachable(folder: str) -> None:
    """Let the run's user pass through a folder and those above it. There is nothing else of interest here."""
    while folder != "/":
        os.chmod(folder, os.stat(folder).st_mode | 0o011)
        folder = os.path.dirname(folder)


def pids() -> "list[int]":
    """All processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def owner(pid: int) -> int:
    """The user of a process; -1 if it has ended."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def memory_kb(pid: int) -> int:
    """What a process uses by itself, in KiB: not the files that it has mapped."""
    used = 0
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith(("RssAnon:", "RssShmem:")):
                    used += int(line.split()[1])
    except (OSError, ValueError):
        return 0
    return used


def killed_for_memory() -> int:
    """How many processes the kernel has ended because memory ran out."""
    try:
        with open("/proc/vmstat") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except (OSError, ValueError):
        return 0


if __name__ == "__main__":
    main()
