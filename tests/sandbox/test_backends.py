"""What every backend on this machine does alike: results, secrets, artifacts, sessions, spares, refusal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from satchel.config import load
from satchel.config.settings import SandboxSettings
from satchel.errors import NoSandbox, NotFound, SandboxError, UsageError
from satchel.sandbox import probing, watchdog
from satchel.sandbox.artifacts import collect
from satchel.sandbox.aside import Before
from satchel.sandbox.bubblewrap import Bubblewrap
from satchel.sandbox.bwrap import find
from satchel.sandbox.choice import open_sandbox, probes
from satchel.sandbox.job import _sweep, scratch_folder
from satchel.sandbox.landlock import Landlock
from satchel.sandbox.local import LocalSandbox
from satchel.sandbox.port import (
    CommandEntry,
    Limits,
    Network,
    PythonEntry,
    RunSpec,
    SessionSpec,
    Status,
    WorkspaceBox,
)
from satchel.sandbox.process import run_process
from satchel.sandbox.workspace import MOST_REPOSITORIES, watched
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

PATHS = {"PATH": "/usr/bin:/bin"}


def skip_without_bubblewrap() -> None:
    if find("bwrap") is None:
        pytest.skip(
            "THE SANDBOX WAS NOT TESTED: bubblewrap isn't installed (sudo apt-get install bubblewrap)"
        )


@pytest.fixture(params=["bubblewrap", "landlock"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[LocalSandbox]:
    backend: LocalSandbox = Bubblewrap() if request.param == "bubblewrap" else Landlock()
    if request.param == "bubblewrap":
        skip_without_bubblewrap()
    if request.param == "landlock" and os.geteuid() == 0:
        pytest.skip("Landlock is for ordinary users; test_attacks.py runs it as one")
    yield backend
    await backend.aclose()


def code(folder: Path, text: str) -> PythonEntry:
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(text)
    return PythonEntry(code_dir=folder)


async def test_a_function_gets_its_arguments_and_its_text_comes_back(
    sandbox: LocalSandbox, tmp_path: Path
) -> None:
    entry = replace(
        code(tmp_path / "c", "def run(args):\n    print('said')\n    return args['a'] + ' ü'"),
        args={"a": "x"},
    )
    result = await sandbox.run(RunSpec(entry=entry))
    assert (result.status, result.result, result.stdout, result.error) == (Status.OK, "x ü", "said\n", "")
    assert result.backend == sandbox.name
    assert result.peak_mb > 0


async def test_an_exception_comes_back_with_its_traceback(sandbox: LocalSandbox, tmp_path: Path) -> None:
    result = await sandbox.run(
        RunSpec(entry=code(tmp_path / "c", "def run(args):\n    raise ValueError('no city')"))
    )
    assert (result.status, result.error) == (Status.ERROR, "ValueError: no city")
    assert "line 2, in run" in result.traceback


async def test_code_that_python_cannot_read_is_an_error_of_the_code(
    sandbox: LocalSandbox, tmp_path: Path
) -> None:
    result = await sandbox.run(RunSpec(entry=code(tmp_path / "c", "def run(args:\n")))
    assert result.status is Status.ERROR
    assert result.error.startswith("SyntaxError: ")


async def test_code_that_only_its_owner_may_read_runs_too(sandbox: LocalSandbox, tmp_path: Path) -> None:
    entry = code(tmp_path / "c", "def run(args):\n    return 'read'")
    (tmp_path / "c" / "main.py").chmod(0o600)
    (tmp_path / "c").chmod(0o700)
    assert (await sandbox.run(RunSpec(entry=entry))).result == "read"


@requirement("sandbox:secrets")
async def test_a_secret_reaches_the_code_and_is_taken_out_of_everything_that_comes_back(
    sandbox: LocalSandbox, tmp_path: Path
) -> None:
    text = (
        "import os, sys\ndef run(args):\n    key = os.environ['KEY']\n    print(key); print(key, file=sys.stderr)\n"
        "    if args: raise ValueError(key)\n    return f'{len(key)} {key}'"
    )
    entry = code(tmp_path / "c", text)
    spec = RunSpec(entry=entry, secrets={"KEY": "hunter22-key"})
    result = await sandbox.run(spec)
    assert (result.result, result.stdout, result.stderr) == ("12 ***", "***\n", "***\n")
    failed = await sandbox.run(replace(spec, entry=replace(entry, args={"fail": True})))
    assert failed.error == "ValueError: ***"
    assert "hunter22" not in repr(failed) + repr(result) + repr(spec)


async def test_packages_of_a_layer_are_found_and_those_of_the_program_are_not(
    sandbox: LocalSandbox, tmp_path: Path
) -> None:
    layer = tmp_path / "layer"
    layer.mkdir()
    (layer / "greeting.py").write_text("word = 'hello'")
    text = "import greeting\ndef run(args):\n    try:\n        import anyio\n    except ImportError:\n        return greeting.word"
    result = await sandbox.run(RunSpec(entry=code(tmp_path / "c", text), layer=layer))
    assert result.result == "hello"


@requirement("sandbox:artifacts")
async def test_files_in_out_are_collected(sandbox: LocalSandbox, tmp_path: Path) -> None:
    text = (
        "import os\ndef run(args):\n    os.makedirs('out/sub', exist_ok=True)\n    open('out/sub/a.csv', 'w').write('1,2')\n"
        "    open('out/big', 'wb').write(bytes(2 << 20))\n    return ''"
    )
    limits = Limits(artifacts_mb=1)
    result = await sandbox.run(RunSpec(entry=code(tmp_path / "c", text), limits=limits))
    assert [(file.path, file.content) for file in result.artifacts] == [("sub/a.csv", b"1,2")]
    assert result.omitted == ("big: more than 1,048,576 bytes together",)


async def test_a_command_has_an_exit_code_and_gets_its_input(sandbox: LocalSandbox) -> None:
    result = await sandbox.run(RunSpec(entry=CommandEntry(argv=("sh", "-c", "cat; exit 3"), stdin=b"in")))
    assert (result.status, result.exit, result.stdout) == (Status.ERROR, 3, "in")
    missing = await sandbox.run(RunSpec(entry=CommandEntry(argv=("no-such-program",))))
    assert (missing.exit, missing.stderr) == (127, "no-such-program: No such file or directory\n")


async def test_a_program_that_uses_too_much_time_is_ended(sandbox: LocalSandbox) -> None:
    limits = Limits(wall_s=30, cpu_s=1)
    result = await sandbox.run(
        RunSpec(entry=CommandEntry(argv=("sh", "-c", "while :; do :; done")), limits=limits)
    )
    assert result.status is Status.TIMEOUT


@requirement("sandbox:session")
async def test_a_session_keeps_its_folder_and_nothing_else(sandbox: LocalSandbox, tmp_path: Path) -> None:
    spec = SessionSpec(folder=tmp_path / "build")
    async with await sandbox.open(spec) as session:
        await session.write("main.py", b"def run(args):\n    return open('data').read() + args['x']\n")
        await session.write("sub/deep.txt", b"deep")
        first = await session.exec(["sh", "-c", "echo -n kept >data; sleep 100 & pwd"], timeout_s=100)
        assert first.ok
        second = await session.exec(
            ["python", "-c", "import main; print(main.run({'x': '!'}))"], timeout_s=100
        )
        assert (second.stdout, second.stderr) == ("kept!\n", "")
        assert await session.read("data", max_bytes=100) == b"kept"
        called = await session.call({"x": "!"}, timeout_s=100)
        assert called.error == "FileNotFoundError: [Errno 2] No such file or directory: 'data'"
        assert [file.path for file in await session.export(["main.py", "sub"])] == ["main.py", "sub/deep.txt"]
    with pytest.raises(SandboxError, match="session is closed"):
        await session.exec(["true"], timeout_s=1)
    async with await sandbox.open(spec) as again:
        await again.write("data", b"changed")
        result = await again.exec(["sh", "-c", "cat data; rm data; echo x >new"], timeout_s=100)
        assert (result.stdout, result.status) == ("changed", Status.OK)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", "link/x", "a\0b"])
async def test_a_session_writes_and_reads_nowhere_else(
    sandbox: LocalSandbox, tmp_path: Path, path: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    async with await sandbox.open(SessionSpec(folder=tmp_path / "build")) as session:
        (tmp_path / "build" / "link").symlink_to(outside)
        with pytest.raises(UsageError):
            await session.write(path, b"x")
        with pytest.raises((UsageError, NotFound)):
            await session.read(path, max_bytes=10)
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "x").exists()


async def test_the_time_of_a_session_is_limited_as_a_whole(sandbox: LocalSandbox, tmp_path: Path) -> None:
    async with await sandbox.open(SessionSpec(folder=tmp_path / "build", total_s=0.5)) as session:
        first = await session.exec(["sleep", "100"], timeout_s=60)
        second = await session.exec(["true"], timeout_s=60)
    assert (first.status, second.status) == (Status.TIMEOUT, Status.TIMEOUT)
    assert second.error == "The 0.5 s of all commands together are used up."


@requirement("sandbox:spares")
async def test_a_run_from_a_spare_is_as_fresh_as_any(tmp_path: Path) -> None:
    skip_without_bubblewrap()
    text = (
        "import os\ndef run(args):\n    seen = os.path.exists('/tmp/left')\n    open('/tmp/left', 'w')\n"
        "    return f\"{args['n']} {seen} {os.environ.get('KEY', '')} {os.getpid()}\""
    )
    entry = code(tmp_path / "c", text)
    sandbox = Bubblewrap(spares=1)
    try:
        said = []
        for n in range(3):
            spec = RunSpec(entry=replace(entry, args={"n": n}), secrets={"KEY": f"secret-{n}"} if n else {})
            said.append((await sandbox.run(spec)).result)
            # The next one is started after the result was returned.
            await anyio.wait_all_tasks_blocked()
            assert len(sandbox._spares) == 1
        assert [(text or "").rpartition(" ")[0] for text in said] == [
            "0 False ",
            "1 False ***",
            "2 False ***",
        ]
        # A folder that was made anew isn't the one that the spare has mounted.
        (tmp_path / "c").rename(tmp_path / "old")
        code(tmp_path / "c", "def run(args):\n    return 'new'")
        assert (await sandbox.run(RunSpec(entry=entry))).result == "new"
        # Of files that their owner alone may read, root shows a copy.
        (tmp_path / "c" / "main.py").chmod(0o600)
        for text in ("one", "two"):
            (tmp_path / "c" / "main.py").write_text(f"def run(args):\n    return '{text}'")
            assert (await sandbox.run(RunSpec(entry=entry))).result == text
            await anyio.wait_all_tasks_blocked()
    finally:
        await sandbox.aclose()
    assert sandbox._spares == []


async def test_what_a_killed_program_left_in_tmp_is_removed_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _sweep.cache_clear()
    left, foreign = tmp_path / "satchel-box-left", tmp_path / "other"
    for folder in (left / "out", foreign):
        folder.mkdir(parents=True)
    (left / "link").symlink_to(foreign)
    with scratch_folder() as used:
        for folder in (left, used):
            os.utime(folder, (1, 1))
        _sweep.cache_clear()
        with scratch_folder() as own:
            assert sorted(tmp_path.iterdir()) == sorted([foreign, used, own])
    assert list(tmp_path.iterdir()) == [foreign]


async def test_who_is_cancelled_leaves_nothing_running(sandbox: LocalSandbox, tmp_path: Path) -> None:
    marker = f"sleep {987_000_000 + os.getpid()}"
    with anyio.move_on_after(0.5):
        await sandbox.run(RunSpec(entry=CommandEntry(argv=("sh", "-c", f"{marker}; :"))))
    lines = [
        path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        for path in Path("/proc").glob("[0-9]*/cmdline")
    ]
    assert [line for line in lines if marker in line and "pytest" not in line] == []


@requirement("promise:sandbox:no-silent-fallback", "promise:sandbox:model-code")
async def test_without_a_sandbox_nothing_runs_and_the_message_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load({"HOME": str(tmp_path), "SATCHEL_HOME": str(tmp_path / "home")}, cwd=tmp_path)
    monkeypatch.setattr(
        "satchel.sandbox.choice.Bubblewrap", lambda spares: Bubblewrap(program="no-such-bwrap")
    )
    monkeypatch.setattr("satchel.sandbox.choice.Landlock", lambda spares: Landlock(as_root=True))
    with pytest.raises(NoSandbox) as caught:
        await open_sandbox(settings)
    assert caught.value.exit_code == 4
    assert "sudo apt install bubblewrap" in str(caught.value)
    assert [probe.works for probe in await probes(settings)] == [False, False]
    unsafe = await open_sandbox(replace(settings, sandbox=SandboxSettings(allow_unsafe=True)))
    assert unsafe.name == "unsafe"


@pytest.mark.parametrize(
    ("reason", "restricted", "fix"),
    [
        (
            "'bwrap' could not be started in '/': No such file or directory.",
            False,
            "sudo apt install bubblewrap",
        ),
        ("bwrap: setting up uid map: Permission denied", True, "apparmor_parser"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", True, "apparmor_parser"),
        ("bwrap: No permissions to create new namespace", False, "seccomp profile"),
        ("bwrap: setting up uid map: Operation not permitted", False, "seccomp profile"),
    ],
)
def test_a_failure_of_the_probe_says_what_to_do(
    reason: str, restricted: bool, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "switch"
    switch.write_text("1\n" if restricted else "0\n")
    monkeypatch.setattr(probing, "APPARMOR_SWITCH", switch)
    assert fix in probing.fix_for(reason)


async def test_landlock_refuses_to_promise_hosts(tmp_path: Path) -> None:
    spec = RunSpec(entry=CommandEntry(argv=("true",)), network=Network(mode="allow", hosts=("example.org",)))
    with pytest.raises(NoSandbox, match="can't limit the network to hosts"):
        await Landlock(as_root=False).run(spec)


@requirement("sandbox:workspace:protected")
async def test_git_folders_are_found_by_what_they_are_at_any_depth_and_what_their_settings_name(
    tmp_path: Path,
) -> None:
    skip_without_bubblewrap()
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    home, workspace = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    for name in ("a/b/c/d/deep", ".hidden/one", "node_modules/x", "build/out", "named", "tree"):
        (workspace / name).mkdir(parents=True)
        await run_process(["git", "init", "-q", str(workspace / name)], cwd=tmp_path, environ=environ)
    await run_process(
        ["git", "init", "-q", "--bare", str(workspace / "bare" / ".store")], cwd=tmp_path, environ=environ
    )
    (workspace / "bare" / ".git").write_text("gitdir: ./.store\n")
    (workspace / "named" / "hooks-of-us").mkdir()
    (workspace / "named" / "more.cfg").write_text("[core]\n")
    settings = "git config core.hooksPath hooks-of-us && git config include.path ../more.cfg"
    await run_process(["sh", "-c", settings], cwd=workspace / "named", environ=environ)
    attempts = [
        "echo x >a/b/c/d/deep/.git/hooks/pre-commit", "mv a/b a/z", "echo x >>.hidden/one/.git/config",
        "git -C node_modules/x config core.fsmonitor evil", "echo x >build/out/.git/hooks/post-checkout",
        "git -C bare config core.pager evil", "echo gitdir: /tmp >bare/.git", "mv bare/.git bare/.was",
        "echo x >named/hooks-of-us/pre-commit", "echo x >>named/more.cfg", "mv named/more.cfg named/less.cfg",
    ]  # fmt: skip
    async with Bubblewrap().box(WorkspaceBox(workspace=workspace, home=home)) as box:
        for attempt in attempts:
            result = await run_process(["bash", "-c", attempt], cwd=workspace, environ=environ, box=box)
            assert result.exit_code != 0, attempt
        commit = "cd a/b/c/d/deep && echo a >a && git add a && git -c user.name=A -c user.email=a@b commit -qm first"
        result = await run_process(["bash", "-c", commit], cwd=workspace, environ=environ, box=box)
        assert result.exit_code == 0, result.stderr.text
        # What a command made is protected from the next one, wherever it is.
        made = await run_process(
            ["git", "init", "-q", "new/x/y/z/w"], cwd=workspace, environ=environ, box=box
        )
        assert made.exit_code == 0
        planted = "echo x >new/x/y/z/w/.git/hooks/pre-commit"
        result = await run_process(["bash", "-c", planted], cwd=workspace, environ=environ, box=box)
        assert result.exit_code != 0
        for number in range(MOST_REPOSITORIES):
            (workspace / "many" / str(number) / ".git").mkdir(parents=True)
        with pytest.raises(NoSandbox, match="git repositories in it, which are too many"):
            await run_process(["true"], cwd=workspace, environ=environ, box=box)


@requirement("sandbox:artifacts")
def test_what_was_made_on_the_way_pushes_no_result_out(tmp_path: Path) -> None:
    """Scripts of skills start in the folder whose files are kept, and write results there or to `out` in it."""
    (tmp_path / "out").mkdir()
    for name in ("frame1.png", "frame2.png", "out/result.pdf"):
        (tmp_path / name).write_text("x")
    kept = collect(tmp_path, most=2, most_bytes=100)
    assert [file.path for file in kept.artifacts] == ["out/result.pdf", "frame1.png"]
    assert kept.omitted == ("frame2.png: more than 2 files",)


@requirement("sandbox:office")
async def test_the_user_inside_has_a_name_and_office_programs_their_settings(tmp_path: Path) -> None:
    """Without, LibreOffice doesn't start."""
    skip_without_bubblewrap()
    text = (
        "import os, pwd\n"
        "def run(args):\n"
        "    settings = [name for name in ('fonts', 'libreoffice') if os.path.exists('/etc/' + name)]\n"
        "    return [[user.pw_uid - os.getuid() for user in pwd.getpwall()], pwd.getpwuid(os.getuid()).pw_dir, settings]\n"
    )
    result = await Bubblewrap().run(RunSpec(entry=code(tmp_path / "c", text)))
    known = [name for name in ("fonts", "libreoffice") if Path("/etc", name).exists()]
    assert result.result == str([[0], "/tmp", known])
    workspace = tmp_path / "work"
    workspace.mkdir()
    if os.geteuid() == 0:
        # In a container, files are often those of a user whom only the host knows.
        os.chown(workspace, 65_432, 65_432)
    async with Bubblewrap().box(WorkspaceBox(workspace=workspace, home=tmp_path / "home")) as box:
        asked = ["bash", "-c", "getent passwd $(id -u) && getent passwd root"]
        found = await run_process(asked, cwd=workspace, environ=PATHS, box=box)
    assert found.exit_code == 0


async def test_a_linked_working_tree_commits_and_one_that_lies_writes_nothing(tmp_path: Path) -> None:
    skip_without_bubblewrap()
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()
    user = "-c user.name=A -c user.email=a@b"
    made = await run_process(
        ["bash", "-c", f"git init -q main && cd main && git {user} commit -q --allow-empty -m first && git worktree add -q ../tree"],
        cwd=tmp_path, environ=environ,
    )  # fmt: skip
    assert made.exit_code == 0, made.stderr.text
    liar = tmp_path / "liar"
    liar.mkdir()
    (liar / ".git").write_text(f"gitdir: {tmp_path}/main/.git/worktrees/tree\n")
    sandbox = Bubblewrap()
    for workspace, code in ((tmp_path / "tree", 0), (liar, 1)):
        async with sandbox.box(WorkspaceBox(workspace=workspace, home=tmp_path / "home")) as box:
            command = f"git {user} commit -q --allow-empty -m second || exit 1"
            result = await run_process(["bash", "-c", command], cwd=workspace, environ=environ, box=box)
            assert result.exit_code == code, result.stderr.text


async def test_sockets_and_pipes_of_the_user_are_hidden_and_those_of_a_box_stay(tmp_path: Path) -> None:
    skip_without_bubblewrap()
    home, workspace, shown = tmp_path / "home", tmp_path / "work", tmp_path / "shown"
    for folder in (home, workspace, shown / "sub"):
        folder.mkdir(parents=True)
    os.mkfifo(shown / "sub/pipe")
    os.mkfifo(workspace / "pipe")
    spec = WorkspaceBox(workspace=workspace, home=home, read_only=(shown,))
    said = []
    before = Before.look((workspace,))
    async with Bubblewrap().box(spec) as box:
        for command in (
            "mkfifo own; true",
            f"for p in own pipe {shown}/sub/pipe; do [ -p $p ] && echo $p; done",
        ):
            ended = await run_process(
                ["sh", "-c", command], cwd=workspace, environ={"PATH": "/usr/bin:/bin"}, box=box
            )
            before.set_aside(agreed=())
            said.append(ended.stdout.text)
    assert said == ["", "own\n"]


async def test_the_home_folder_is_no_workspace(tmp_path: Path) -> None:
    for workspace in (tmp_path, tmp_path.parent):
        with pytest.raises(NoSandbox, match="your home folder is in it"):
            async with Bubblewrap().box(WorkspaceBox(workspace=workspace, home=tmp_path)):
                pass


KEEP = """
import ctypes, os, socket, sys, time
mmap = ctypes.CDLL(None).mmap
mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
pair = socket.socketpair()
for _ in range(100):
    file = os.open("f", os.O_RDWR | os.O_CREAT)
    os.unlink("f")
    os.write(file, bytes(16 << 20))
    mmap(None, 4096, 1, 1, file, 0) if sys.argv[1] == "mapped" else socket.send_fds(pair[0], [b"x"], [file])
    os.close(file)
    time.sleep(0.02)
"""
FILL = {
    "files": "head -c 16M /dev/zero >f$i",
    "a folder that was granted": "head -c 16M /dev/zero >../granted/f$i",
    "a file that was granted": "head -c 16M /dev/zero >>../file",
    "deleted files that stay open": "exec {at}>f; rm f; head -c 16M /dev/zero >&$at",
}


@pytest.fixture
def small_disk(tmp_path: Path) -> WorkspaceBox:
    skip_without_bubblewrap()
    home, workspace, granted = (tmp_path / name for name in ("home", "work", "granted"))
    for folder in (home, workspace, granted):
        folder.mkdir()
    file = tmp_path / "file"
    file.touch()
    return WorkspaceBox(workspace=workspace, home=home, writable=(granted, file), disk_mb=64)


@pytest.mark.parametrize("fill", FILL)
async def test_a_command_that_fills_the_disk_is_ended(small_disk: WorkspaceBox, fill: str) -> None:
    command = f"i=0; while [ $i -lt 100 ]; do {FILL[fill]}; i=$((i+1)); sleep 0.02; done"
    async with Bubblewrap().box(small_disk) as box:
        result = await run_process(
            ["bash", "-c", command], cwd=small_disk.workspace, environ=PATHS, box=box, timeout_s=60
        )
    assert result.stopped is Status.DISK
    assert not result.timed_out


@pytest.mark.parametrize("where", ["mapped", "sent"])
async def test_a_command_that_hides_what_it_writes_is_ended(
    small_disk: WorkspaceBox, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "sent" or os.geteuid() != 0:
        # Nobody finds the files, so they count once the disk is nearly full, as if it had 192 MiB left now.
        spare_mb = watchdog._space_mb(small_disk.workspace)[0] - 192
        real = watchdog._space_mb
        monkeypatch.setattr(watchdog, "_space_mb", lambda path: (real(path)[0] - spare_mb, real(path)[1]))
    async with Bubblewrap().box(small_disk) as box:
        result = await run_process(
            ["python3", "-c", KEEP, where], cwd=small_disk.workspace, environ=PATHS, box=box, timeout_s=60
        )
    assert result.stopped is Status.DISK, result.stderr.text


async def test_other_limits_hold_while_it_is_measured_what_a_command_wrote(
    small_disk: WorkspaceBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring, done = threading.Event(), threading.Event()

    def measure(*_: object) -> int:
        measuring.set()
        done.wait(60)
        return 0

    monkeypatch.setattr(watchdog.Watchdog, "_written_mb", measure)
    hold = "import time; kept = b'x' * (400 << 20); time.sleep(60)"
    command = f'head -c 128M /dev/zero >own; until [ -e go ]; do sleep 0.02; done; exec python3 -c "{hold}"'
    async with (
        Bubblewrap().box(replace(small_disk, memory_mb=200)) as box,
        anyio.create_task_group() as group,
    ):

        async def go() -> None:
            await anyio.to_thread.run_sync(measuring.wait, 60)
            (small_disk.workspace / "go").touch()

        group.start_soon(go)
        result = await run_process(
            ["bash", "-c", command], cwd=small_disk.workspace, environ=PATHS, box=box, timeout_s=60
        )
    done.set()
    assert result.stopped is Status.MEMORY


async def test_what_was_there_and_what_vanishes_does_not_change_what_a_command_wrote(
    small_disk: WorkspaceBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.sandbox.watchdog.EARLIER_NS", 0)
    (small_disk.workspace.parent / "file").write_bytes(bytes(128 << 20))
    dog = watchdog.Watchdog(os.getpid(), watched(small_disk, small_disk.workspace))
    device = small_disk.workspace.stat().st_dev
    assert dog._written_mb(device) == 0
    for name in "abc":
        (small_disk.workspace / name).write_bytes(bytes(1 << 20))
    real = os.scandir

    @contextmanager
    def one_vanishes(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with real(folder) as listing:
            entries = list(listing)
        if entries:
            Path(entries[0].path).unlink()
        yield iter(entries)

    monkeypatch.setattr("os.scandir", one_vanishes)
    assert dog._written_mb(device) == 2


async def test_what_others_write_to_the_disk_ends_no_command(
    small_disk: WorkspaceBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.sandbox.watchdog.EARLIER_NS", 0)
    go = small_disk.workspace / "go"
    command = "head -c 32M /dev/zero >own; echo up; until [ -e go ]; do sleep 0.05; done; sleep 1; echo done"

    async def others_write(*_: object) -> None:
        (small_disk.home / "others").write_bytes(bytes(128 << 20))
        go.touch()

    (small_disk.workspace / "earlier").write_bytes(bytes(128 << 20))
    async with Bubblewrap().box(small_disk) as box:
        result = await run_process(
            ["bash", "-c", command],
            cwd=small_disk.workspace,
            environ=PATHS,
            box=box,
            timeout_s=60,
            on_output=others_write,
        )
    assert result.stopped is None
    assert result.stdout.head == b"up\ndone\n"


async def test_this_python_is_the_one_in_the_sandbox(sandbox: LocalSandbox, tmp_path: Path) -> None:
    entry = code(tmp_path / "c", "import sys\ndef run(args):\n    return sys.version")
    assert (await sandbox.run(RunSpec(entry=entry))).result == sys.version
