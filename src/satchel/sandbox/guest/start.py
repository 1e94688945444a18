"""Starts what runs in a sandbox. This program runs inside it, with nothing but the standard library.

Its argument is the number of a descriptor, from which it reads the job (marshal, see `satchel.sandbox.job`). It gives
up what it may still have, sets the limits, and then executes a program, or calls a function and writes one JSON object
to the descriptor for the report. It imports little, because its imports are most of what a short run costs.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

REPORT_FD = "_SATCHEL_REPORT_FD"
STARTED = b"+"
COMMON = ("datetime", "json", "re", "resource", "traceback", "urllib.parse")
"""What most code imports; loaded ahead in a sandbox that waits for its job."""
CHUNK_BYTES = 1 << 16
MOST_TRACE_CHARS = 4000
MOST_MESSAGE_CHARS = 2000


def main() -> None:
    """Do the job."""
    if sys.argv[2:] == ["warm"]:
        for name in COMMON:
            __import__(name)
    job = marshal.loads(read_all(int(sys.argv[1])))
    here = os.path.dirname(os.path.abspath(__file__))
    if job["supervise"]:
        sys.path.insert(0, here)
        import confine  # type: ignore[import-not-found]

        confine.supervise(job["supervise"])
        sys.path.remove(here)
    if job["uid"]:
        os.setgroups([])
        os.setresgid(job["gid"], job["gid"], job["gid"])
        os.setresuid(job["uid"], job["uid"], job["uid"])
    if job["filter"]:
        sys.path.insert(0, here)
        import confine

        confine.restrict_calls(job["filter"])
        sys.path.remove(here)
    if job["socket"]:
        sys.path.insert(0, here)
        import forwarder  # type: ignore[import-not-found]

        os.environ.update(forwarder.start(job["socket"]))
        sys.path.remove(here)
    os.environ.update(job["environ"])
    os.chdir(job["cwd"])
    limit(job["limits"])
    if job["own_report"]:
        execute(job["argv"], job["path"])
    report_fd = int(os.environ.pop(REPORT_FD))
    os.set_inheritable(report_fd, False)
    os.write(report_fd, STARTED)
    if job["argv"]:
        execute(job["argv"], job["path"], job["broker"])
    call(job, report_fd)


def read_all(fd: int) -> bytes:
    """Everything that can be read from a descriptor, which is closed."""
    pieces = []
    while piece := os.read(fd, CHUNK_BYTES):
        pieces.append(piece)
    os.close(fd)
    return b"".join(pieces)


def limit(limits: dict[str, int]) -> None:
    """Set the limits of this process and its children."""
    import resource

    for name, value in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # Past the soft limit of processor time comes a signal; one second later the process is ended.
        resource.setrlimit(number, (most, most + 1 if name == "RLIMIT_CPU" and most != hard else most))


def execute(argv: list[str], path: list[str], broker: int = -1) -> None:
    """Become another program. `broker` is a descriptor, as in `offer_calls`."""
    if argv[0] == "python":
        guest = [os.path.abspath(__file__), str(broker)] if broker >= 0 else []
        argv = [sys.executable, "-I", "-S", "-c", PYTHON, *path, "--", *guest, "--", *argv[1:]]
    try:
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


PYTHON = """
import os, sys
cut = sys.argv.index("--")
end = sys.argv.index("--", cut + 1)
layers, guest, rest = sys.argv[1:cut], sys.argv[cut + 1:end], sys.argv[end + 1:]
sys.dont_write_bytecode = True
if not rest:
    sys.exit("python: give a file, -m MODULE or -c CODE")
folder = os.getcwd() if rest[0] in ("-m", "-c") else os.path.dirname(os.path.abspath(rest[0]))
sys.path[:0] = [folder, *layers]
if guest:
    import runpy
    runpy.run_path(guest[0])["offer_calls"](int(guest[1]))
if rest[0] == "-c" and len(rest) > 1:
    sys.argv = ["-c", *rest[2:]]
    exec(compile(rest[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
elif rest[0] == "-m" and len(rest) > 1:
    import runpy
    sys.argv = rest[1:]
    runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
else:
    import runpy
    sys.argv = rest
    runpy.run_path(rest[0], run_name="__main__")
"""
"""Python as a command, with the packages of the layer and without those of the system."""


def call(job: dict[str, Any], report_fd: int) -> None:
    """Call the function, report, and end the process at once: threads and handlers at exit are not waited for."""
    sys.dont_write_bytecode = True
    sys.path[:] = [job["code_dir"], *job["path"], *sys.path[1:]]
    if job["broker"] >= 0:
        os.set_inheritable(job["broker"], False)
    offer_calls(job["broker"])
    try:
        report = returned(run(job), job["result_bytes"])
    # A boundary: whatever the code raises is its result.
    except BaseException as error:  # noqa: BLE001
        report = raised(error)
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib costs as much to import as all of this
            stream.flush()
        except Exception:  # noqa: BLE001 - the code may have replaced it by anything
            pass
    ok = report["status"] == "ok"
    rest = memoryview(encoded(report))
    while rest:
        rest = rest[os.write(report_fd, rest) :]
    os._exit(0 if ok else 1)


def offer_calls(fd: int) -> None:
    """Make the module `satchel_calls`, whose `call` asks the host's broker for the result of what it names."""
    import _thread

    lock = _thread.allocate_lock()

    def ask(name: str, input: dict[str, Any] | None = None) -> str:
        """What `name` returns for an input; raises RuntimeError where it has no result."""
        import json

        if fd < 0:
            raise RuntimeError("It may call nothing: name each in hosts, such as capability:NAME.")
        rest = memoryview(json.dumps({"name": name, "input": input or {}}).encode() + b"\n")
        with lock:
            while rest:
                rest = rest[os.write(fd, rest) :]
            answer = b""
            while not answer.endswith(b"\n"):
                piece = os.read(fd, CHUNK_BYTES)
                if not piece:
                    raise RuntimeError("The call was not answered.")
                answer += piece
        told = json.loads(answer)
        if "error" in told:
            raise RuntimeError(told["error"])
        return str(told["result"])

    module: Any = type(sys)("satchel_calls")
    module.call = ask
    sys.modules["satchel_calls"] = module


def run(job: dict[str, Any]) -> object:
    """Load main.py and call the function."""
    import _json  # noqa: F401 - for the report: the code may leave no descriptor to import it with

    file = job["code_dir"] + "/main.py"
    with open(file, "rb") as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    module = type(sys)("main")
    module.__file__ = file
    sys.modules["main"] = module
    exec(code, module.__dict__)  # noqa: S102 - it is what the sandbox is for
    return module.run(job["args"])


def returned(value: object, most_bytes: int) -> dict[str, str]:
    """The report of a call that returned. What is no string becomes one by `str`."""
    if value is None or hasattr(value, "__await__"):
        what = "nothing" if value is None else f"{type(value).__name__}, which nobody awaits"
        return {"status": "bad_return", "error": f"The function returned {what}."}
    value = str(value)
    size = len(value.encode("utf-8", "replace"))
    if size > most_bytes:
        return {
            "status": "result_too_large",
            "error": f"The result has {size:,} bytes; {most_bytes:,} are allowed.",
        }
    return {"status": "ok", "result": value}


def raised(error: BaseException) -> dict[str, str]:
    """The report of a call that raised an exception."""
    status = "error"
    number = getattr(error, "errno", None)
    if isinstance(error, MemoryError):
        status = "memory"
    elif isinstance(error, OSError) and number in (27, 28, 122):  # EFBIG, ENOSPC, EDQUOT
        status = "disk"
    elif (isinstance(error, OSError) and number == 11) or "can't start new thread" in str(error)[:99]:
        status = "processes"
    text = str(error)[:MOST_MESSAGE_CHARS]
    try:
        import traceback

        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except (ImportError, OSError, MemoryError):
        # Without free descriptors or memory nothing can be imported.
        trace = ""
    return {
        "status": status,
        "error": f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "traceback": trace[-MOST_TRACE_CHARS:],
    }


def encoded(report: dict[str, str]) -> bytes:
    """The report as JSON. The json package costs more to import than a run may."""
    import resource

    report["peak_kb"] = str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    from _json import encode_basestring_ascii as quoted

    items = ", ".join(f"{quoted(name)}: {quoted(value)}" for name, value in report.items())
    return ("{" + items + "}").encode()


if __name__ == "__main__":
    main()
