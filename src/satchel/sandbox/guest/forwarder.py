"""Inside the sandbox: a server on its loopback interface that passes connections on to the proxy's Unix socket.

Ordinary HTTP clients can speak to a port and not to a Unix socket. This file is run in the sandbox by itself, so it
uses nothing but the standard library and imports little:

    python3 -I -S forwarder.py SOCKET COMMAND [ARG]…

starts the server beside the command and executes the command; its environment must contain `ENVIRON` already. The
server gives the code in the sandbox nothing that it doesn't have without it: the socket is there anyway.
"""

import os
import select
import socket
import sys

HOST = "127.0.0.1"
PORT = 8118
_URL = f"http://{HOST}:{PORT}"
ENVIRON = {
    **dict.fromkeys(
        ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _URL
    ),
    "no_proxy": "",
    "NO_PROXY": "",
    # Without it, `fetch` of Node ignores the others.
    "NODE_USE_ENV_PROXY": "1",
}
"""The variables that lead programs to the server."""
_PIECE_BYTES = 65_536
_MOST_CONNECTIONS = 100


def start(socket_path: str) -> dict[str, str]:
    """Start the server in a process of its own; it listens when this returns.

    Returns:
        The environment variables that lead programs to it.

    Raises:
        OSError: The port is taken, or there can't be another process.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind((HOST, PORT))
        port.listen(128)
        if os.fork() == 0:
            try:
                _detach(port.fileno())
                _serve(port, socket_path)
            finally:
                os._exit(1)
    return dict(ENVIRON)


def _detach(kept_fd: int) -> None:
    """Let go of the command's pipes: nobody may wait for their end because of the server."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.closerange(3, kept_fd)
    os.closerange(kept_fd + 1, 1024)


def _serve(port: socket.socket, socket_path: str) -> None:
    """Pass bytes both ways. What can't be written yet is kept, and no more is read from the other side until it is."""
    poll = select.poll()
    poll.register(port, select.POLLIN)
    sides: dict[int, _Side] = {}
    while True:
        for fd, events in poll.poll():
            if fd == port.fileno():
                _accept(port, socket_path, sides)
            elif fd in sides:
                sides[fd].handle(events)
        for side in [side for side in sides.values() if side.is_over]:
            poll_fd = side.close()
            del sides[poll_fd]
            _forget(poll, poll_fd)
        for fd, side in sides.items():
            poll.register(fd, side.wanted)
        # Registered again only where there is room: unaccepted connections wait in the queue.
        if len(sides) < 2 * _MOST_CONNECTIONS:
            poll.register(port, select.POLLIN)
        else:
            _forget(poll, port.fileno())


def _forget(poll: "select.poll", fd: int) -> None:
    # `contextlib` would double what this file costs to start.
    try:  # noqa: SIM105
        poll.unregister(fd)
    except KeyError:
        pass


def _accept(port: socket.socket, socket_path: str, sides: "dict[int, _Side]") -> None:
    try:
        client, _ = port.accept()
    except OSError:
        return
    proxy = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        proxy.connect(socket_path)
    except OSError:
        client.close()
        proxy.close()
        return
    one, other = _Side(client), _Side(proxy)
    one.peer, other.peer = other, one
    for side in (one, other):
        side.socket.setblocking(False)
        sides[side.socket.fileno()] = side


class _Side:
    """One of the two sockets of a connection, with what is still to be written to it."""

    peer: "_Side"

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.unwritten = b""
        self.said_all = False
        self.told_end = False
        self.failed = False

    @property
    def wanted(self) -> int:
        reads = 0 if self.said_all or self.peer.unwritten else select.POLLIN
        return reads | (select.POLLOUT if self.unwritten else 0)

    @property
    def is_over(self) -> bool:
        return self.failed or self.peer.failed or (self.told_end and self.peer.told_end)

    def handle(self, events: int) -> None:
        try:
            if events & select.POLLOUT:
                self._write()
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR) and not self.peer.unwritten:
                self._read()
        except BlockingIOError:
            pass
        except OSError:
            self.failed = True

    def close(self) -> int:
        fd = self.socket.fileno()
        self.failed = True
        self.socket.close()
        return fd

    def _read(self) -> None:
        piece = self.socket.recv(_PIECE_BYTES)
        if piece:
            self.peer.unwritten = piece
        else:
            self.said_all = True
        self.peer._write()

    def _write(self) -> None:
        if self.unwritten:
            self.unwritten = self.unwritten[self.socket.send(self.unwritten) :]
        if self.peer.said_all and not self.unwritten and not self.told_end:
            self.told_end = True
            self.socket.shutdown(socket.SHUT_WR)


def _main(argv: list[str]) -> None:
    start(argv[0])
    os.execvp(argv[1], argv[1:])


if __name__ == "__main__":
    _main(sys.argv[1:])
