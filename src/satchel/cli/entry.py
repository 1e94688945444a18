"""The way in: runs a command and turns whatever ends it into an exit code and one honest line (DESIGN
3.3).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence

import click

from satchel.cli.output import prepare, tell
from satchel.cli.root import root
from satchel.errors import SatchelError

__all__ = ["main"]

INTERRUPTED = 130

_OBJECTS_BEFORE_COLLECTING = 100_000
"""Python looks for cyclic garbage after every 700 new objects: 170 times while SQLAlchemy and numpy are loaded, where
there is none, for a tenth of the CPU of a short command. So many objects are some megabytes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `satchel`.

    Args:
        arguments: What follows the program's name; None takes it from the command line.

    Returns:
        The exit code: 0 done, 1 failed, 2 misused, 3 not found, 4 refused, 130 interrupted.
    """
    prepare()
    thresholds = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING, *thresholds[1:])
    # What is frozen is not gone through when the interpreter ends, which takes it all down anyway (30 ms).
    atexit.register(gc.freeze)
    words = list(sys.argv[1:] if arguments is None else arguments)
    restore = _end_in_good_order()
    try:
        code = root.main(words, prog_name="satchel", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has seen enough. What Python still holds of it must not raise again at
        # exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    # The top of the command line: whatever happened is said in one line.
    except BaseException as error:  # noqa: BLE001
        return _exit_code(error, words)
    finally:
        restore()
        gc.set_threshold(*thresholds)
    return code if isinstance(code, int) else 0


def _end_in_good_order() -> Callable[[], None]:
    """Take SIGTERM and SIGHUP for Ctrl-C: whatever a tool started is ended before we go, and what was said is written.

    Returns:
        Puts back what was before.
    """

    def interrupt(_number: int, _frame: object) -> None:
        signal.raise_signal(signal.SIGINT)

    taken = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Who started us may have said that we shall not hear it, as nohup does.
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    _report(error, words)
    return 1


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group of errors; task groups wrap even a single one."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _report(error: BaseException, words: Sequence[str]) -> None:
    """A defect of ours: one line for the user, the traceback into a file."""
    what = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    # Imported now: it is needed once in a blue moon, and every start would pay for it.
    place = importlib.import_module("satchel.cli.crash").write_down(error, words)
    tell(f"satchel: an internal error: {what}\n{place}")
