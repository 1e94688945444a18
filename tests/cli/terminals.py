"""The real program on a terminal of its own: what a person types, and what they see."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tests.cli.programs import environ_for
from tests.forking import fork
from tests.models.loopback import Loopback

LIMIT_S = 120
ENTER, ALT_ENTER, TAB, UP, CTRL_C, CTRL_D = "\r", "\x1b\r", "\t", "\x1b[A", "\x03", "\x04"

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07")


class Process(Protocol):
    """A process that was started for a terminal."""

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...


class Terminal:
    """A terminal with a program in it."""

    def __init__(self, process: Process, master: int) -> None:
        self.process = process
        self.raw = ""
        self._master = master
        self._seen = 0

    def type(self, *keys: str) -> None:
        os.write(self._master, "".join(keys).encode())

    def see(self, words: str) -> str:
        """Wait until the words appear, after those that were waited for before; gives what came up to them."""
        while (found := self.text.find(words, self._seen)) < 0:
            if not self._read():
                raise AssertionError(f"{words!r} never came. On the screen:\n{self.text[self._seen :]}")
        between = self.text[self._seen : found]
        self._seen = found + len(words)
        return between

    def answer(self, words: str, text: str = "") -> None:
        """Wait until the words appear, and type a line."""
        self.see(words)
        self.type(text, ENTER)

    def say(self, text: str) -> None:
        """Type a message as soon as one can."""
        self.answer("›", text)

    def close(self) -> int:
        """Close the terminal's window under the program; its exit code."""
        os.dup2(os.open(os.devnull, os.O_RDWR), self._master)
        return self.process.wait(LIMIT_S)

    def leave(self) -> int:
        """Wait for the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(LIMIT_S)

    @property
    def text(self) -> str:
        """All that was written, without colours and movements."""
        return _SEQUENCE.sub("", self.raw).replace("\r", "")

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], LIMIT_S)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False  # the program left
        # A terminal that is asked where its cursor stands says so.
        for _ in range(data.count(b"\x1b[6n")):
            os.write(self._master, b"\x1b[1;1R")
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


@contextlib.contextmanager
def terminal(
    folder: Path,
    *arguments: str,
    server: Loopback | None = None,
    lines: int = 40,
    columns: int = 120,
    program: Sequence[str] = (),
    **environ: str,
) -> Iterator[Terminal]:
    """Run `satchel`, or another program, on a terminal; what still runs at the end is ended.

    `satchel` is forked. What a test shows about its start needs `PROGRAM`.
    """
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    work = folder / "work"
    work.mkdir(exist_ok=True)
    environ = environ_for(
        folder, server, **{"TERM": "xterm-256color", "SATCHEL_TERMINAL_SCREEN": "off", **environ}
    )
    process: Process
    if program:
        process = subprocess.Popen(
            [*program, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=work,
            env=environ,
            start_new_session=True,
            # Ctrl-C reaches the programs of the controlling terminal only.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    else:
        process = fork(
            arguments, cwd=work, environ=environ, stdin=slave, stdout=slave, stderr=slave, is_terminal=True
        )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
