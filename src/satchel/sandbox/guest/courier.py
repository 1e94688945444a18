"""The first program in a container: fetches the job over a Unix socket, and ends the container when the host is gone.

    python3 -I -S courier.py SOCKET

A container's engine passes on stdin, stdout and stderr only. The job comes over the socket, and the report goes back
over it. The socket is also the lifeline: when Satchel ends, however it ends, it closes, and the container ends with it.
Nothing but the standard library is here.
"""

import _thread
import marshal
import os
import socket
import sys

LENGTH_BYTES = 8
REPORT_FD = "_SATCHEL_REPORT_FD"
KILLED = 137
OUT_OF_MEMORY = b"\0memory"
"""The end of the report of a run that the kernel ended; no JSON contains a NUL character."""


def main() -> None:
    """Start the guest beside a thread that watches the socket, and pass on how it ended."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(sys.argv[1])
    environ, job = marshal.loads(_exactly(line, int.from_bytes(_exactly(line, LENGTH_BYTES), "big")))
    job_fd = os.memfd_create("satchel")
    with open(job_fd, "wb", closefd=False) as file:
        file.write(job)
    os.lseek(job_fd, 0, os.SEEK_SET)
    report_fd = os.dup(line.fileno())
    for fd in (job_fd, report_fd):
        os.set_inheritable(fd, True)
    child = os.fork()
    if child == 0:
        start = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start.py")
        argv = [sys.executable, "-I", "-S", start, str(job_fd)]
        # Of the image's environment nothing is passed on.
        os.execve(sys.executable, argv, {**environ, REPORT_FD: str(report_fd)})
    os.close(report_fd)
    _thread.start_new_thread(_watch, (line,))
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == KILLED - 128 and _ran_out_of_memory():
        line.sendall(OUT_OF_MEMORY)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _ran_out_of_memory() -> bool:
    """Whether the kernel ended a process of this container for its memory; the engines don't always notice."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        # One of them exists.
        try:
            with open(path) as file:
                counts = dict(row.split() for row in file)
        except (OSError, ValueError):
            continue
        if counts.get("oom_kill", "0") != "0":
            return True
    return False


def _exactly(line: socket.socket, size: int) -> bytes:
    pieces = []
    while size > 0:
        piece = line.recv(min(size, 1 << 16))
        if not piece:
            sys.exit("the host closed the connection")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _watch(line: socket.socket) -> None:
    """End the container when the host closes its end."""
    # A failed read means the same as the end.
    try:
        while line.recv(1):
            pass
    except OSError:
        pass
    os._exit(KILLED)


if __name__ == "__main__":
    main()
