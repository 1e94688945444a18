"""The entry point: runs a command, and turns any error into one line and an exit code."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

import click

from satchel.cli.output import prepare, tell
from satchel.cli.root import root
from satchel.errors import SatchelError

INTERRUPTED = 130

_OBJECTS_BEFORE_COLLECTING = 100_000
"""The number of new objects between two runs of the cyclic garbage collector. With Python's default of 700, it runs
170 times while SQLAlchemy and numpy are imported, which takes a tenth of the CPU time of a short command and finds
nothing. This many objects take a few megabytes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `satchel`.

    Args:
        arguments: The arguments without the program's name; None uses those of the command line.

    Returns:
        The exit code: 0 done, 1 failed, 2 misused, 3 not found, 4 refused, 130 interrupted.
    """
    prepare()
    thresholds = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING, *thresholds[1:])
    # Frozen objects are not examined when the interpreter exits, which saves 30 ms.
    atexit.register(gc.freeze)
    words = list(sys.argv[1:] if arguments is None else arguments)
    restore = _end_in_good_order()
    has_terminal = _has_terminal()
    try:
        code = root.main(words, prog_name="satchel", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output(sys.stdout)  # Its reader has closed the pipe.
        return 1
    # A boundary: every error becomes one line and an exit code.
    except BaseException as error:  # noqa: BLE001
        if has_terminal and not _has_terminal() and _is_hung_up(error):
            return INTERRUPTED
        return _exit_code(error, words)
    finally:
        if has_terminal and not _has_terminal():
            _discard_output(sys.stdout, sys.stderr)
        restore()
        gc.set_threshold(*thresholds)
    return code if isinstance(code, int) else 0


def _end_in_good_order() -> Callable[[], None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that running tools are stopped and everything said is written.

    Returns:
        Restores the handlers.
    """

    def interrupt(_number: int, _frame: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # A shell ignores it for what a script starts with `&`, so that Ctrl-C doesn't reach that.
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    taken = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        # The parent process may have disabled the signal, as nohup does.
        if signal.getsignal(number) is signal.SIG_DFL:
            with contextlib.suppress(ValueError):  # only the main thread may set it
                signal.signal(number, interrupt)
                taken.append(number)

    def restore() -> None:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)

    return restore


def _exit_code(error: BaseException, words: Sequence[str]) -> int:
    leaves = list(_leaves(error))
    ours = next((leaf for leaf in leaves if isinstance(leaf, SatchelError)), None)
    for leaf in leaves:
        match leaf:
            case SystemExit():
                return leaf.code if isinstance(leaf.code, int) else 1
            case click.exceptions.Exit():
                return leaf.exit_code
            case KeyboardInterrupt() | click.Abort():
                tell("Interrupted.")
                return INTERRUPTED
            case click.ClickException() if ours is None:
                leaf.show(sys.stderr)
                return leaf.exit_code
            case _:
                pass
    if ours is not None:
        tell(f"satchel: {ours}")
        return ours.exit_code
    if any(isinstance(leaf, BrokenPipeError) for leaf in leaves):
        _discard_output(sys.stdout)
        return 1
    _report(error, words)
    return 1


def _discard_output(*streams: TextIO) -> None:
    """Nobody reads them any more. Flushing Python's buffers at exit must not raise again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())


def _has_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def _is_hung_up(error: BaseException) -> bool:
    """Whether a terminal that was closed caused an error; `termios.error` is no `OSError`."""
    return any(leaf.args[:1] == (errno.EIO,) for leaf in _leaves(error))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in nested exception groups; task groups wrap even a single error."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _report(error: BaseException, words: Sequence[str]) -> None:
    """Report an internal error: one line for the user, the traceback in a file."""
    what = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    # Imported only here: it is rarely needed, and every start would pay for it.
    place = importlib.import_module("satchel.cli.crash").write_down(error, words)
    tell(f"satchel: an internal error: {what}\n{place}")
