"""E2B as a sandbox: the real SDK against a stand-in for the service. The service itself was never used."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from satchel.addons.e2b import hosted
from satchel.addons.e2b.backend import E2B
from satchel.addons.e2b.hosted import unpack
from satchel.config import load
from satchel.errors import NoSandbox, SandboxError
from satchel.sandbox.bwrap import find
from satchel.sandbox.choice import probes
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
from tests.requirements import requirement

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find("bwrap") is None, reason="E2B WAS NOT TESTED: its stand-in needs bubblewrap"),
]
if TYPE_CHECKING:
    from tests.sandbox.service import Service
else:
    pytest.importorskip("e2b", reason="E2B WAS NOT TESTED: its SDK isn't installed")

KEY = "e2b_" + "0123456789abcdef" * 2
LIMITS = Limits(wall_s=20, cpu_s=4, memory_mb=150, processes=20, tmp_mb=8, file_mb=16, output_kb=4)


@pytest.fixture
def service() -> Iterator[Service]:
    # With the SDK, which takes a while to import.
    from tests.sandbox.service import running_service  # noqa: PLC0415

    with running_service(KEY) as service:
        yield service
        assert service.running == {}, "a machine was left running"


def sandbox_of(service: Service, *, key: str = KEY) -> E2B:
    urls = (service.url, service.url)
    return E2B(key=key, key_name="E2B_API_KEY", urls=urls, as_self=os.geteuid() != 0)


@pytest.fixture
def sandbox(service: Service) -> E2B:
    return sandbox_of(service)


def code(folder: Path, text: str, **args: object) -> PythonEntry:
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(text)
    return PythonEntry(code_dir=folder, args=args)


@requirement("sandbox:e2b")
async def test_a_function_runs_in_a_machine_of_its_own_which_is_ended(
    sandbox: E2B, service: Service, tmp_path: Path
) -> None:
    entry = code(
        tmp_path / "code",
        "import os\ndef run(args):\n    print('said ' + os.environ['TOKEN'])\n"
        "    os.makedirs('out/sub'); open('out/sub/a.txt', 'w').write('left')\n"
        "    os.symlink('/etc/passwd', 'out/link'); os.mkfifo('out/fifo'); os.link('out/sub/a.txt', 'out/twin')\n"
        "    try:\n        open(__file__, 'a')\n    except OSError:\n        args['word'] += ' refused'\n"
        "    return f\"{args['word']} {os.environ['TOKEN']} {sorted(os.listdir('/run/satchel'))}\"",
        word="héllo",
    )
    result = await sandbox.run(RunSpec(entry=entry, limits=LIMITS, secrets={"TOKEN": "top-secret"}))
    assert result.status is Status.OK, result
    assert result.result is not None
    if os.geteuid() == 0:
        assert result.result.startswith("héllo refused ***")
    assert "plan" not in result.result
    assert "stage.tar" not in result.result
    assert (result.stdout, result.backend) == ("said ***\n", "e2b")
    assert sorted(result.omitted) == [
        "fifo: not a regular file",
        "link: not a regular file",
        "sub/a.txt: a file with several names",
        "twin: a file with several names",
    ]
    assert service.ended == ["machine1"]
    assert service.keys == {KEY}
    [asked] = service.asked
    assert KEY not in json.dumps(asked) + repr(sandbox) + repr(result)
    assert "top-secret" not in json.dumps(asked)
    # After kill -9 of Satchel the service ends the machine: the longest that it may cost.
    assert LIMITS.wall_s < asked["timeout"] <= LIMITS.wall_s + 250
    assert asked["autoPause"] is False


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("raise ValueError('no')", Status.ERROR),
        ("raise SystemExit(0)", Status.ERROR),
        ("return None", Status.BAD_RETURN),
        ("return 'x' * 2_000_000", Status.RESULT_TOO_LARGE),
        ("import os; os._exit(3)", Status.NO_RESULT),
        ("import os; os.closerange(0, 100); os._exit(0)", Status.NO_RESULT),
        ("import os; os.kill(os.getpid(), 9)", Status.NO_RESULT),
        ("while True: pass", Status.TIMEOUT),
        ("import time; time.sleep(60)", Status.TIMEOUT),
        (
            "x = bytearray(100 << 20); y = bytearray(100 << 20)\n    import time; time.sleep(60)",
            Status.MEMORY,
        ),
        ("for n in range(30_000): open(f'/tmp/{n}', 'w')\n    import time; time.sleep(60)", Status.DISK),
        ("open('out/big', 'wb').write(bytes(12 << 20))\n    return 'x'", Status.DISK),
        ("import sys\n    while True: sys.stdout.write('x' * 10_000)", Status.OUTPUT),
    ],
)
async def test_what_code_does_wrong_gets_its_status(
    sandbox: E2B, service: Service, tmp_path: Path, body: str, status: Status
) -> None:
    limits = Limits(
        wall_s=2 if "sleep(60)" in body and status is Status.TIMEOUT else 20,
        cpu_s=1 if "pass" in body else 10, memory_mb=150, processes=20, tmp_mb=8, output_kb=4,
    )  # fmt: skip
    result = await sandbox.run(
        RunSpec(entry=code(tmp_path / "code", f"def run(args):\n    {body}"), limits=limits)
    )
    assert result.status is status, result
    assert result.error
    assert len(service.ended) == 1


async def test_a_daemon_ends_with_its_run_and_does_not_hold_it_up(sandbox: E2B, tmp_path: Path) -> None:
    body = "import os, time\ndef run(args):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(1000)\n    return 'x'"
    result = await sandbox.run(RunSpec(entry=code(tmp_path / "code", body), limits=LIMITS))
    assert (result.result, result.wall_ms < 15_000) == ("x", True)


async def test_a_command_gets_its_input_and_its_exit_code_comes_back(sandbox: E2B) -> None:
    heard: list[bytes] = []

    async def hear(stream: str, piece: bytes) -> None:
        heard.append(piece)

    entry = CommandEntry(argv=("sh", "-c", "cat; echo no >&2; exit 7"), stdin=b"typed")
    result = await sandbox.run(RunSpec(entry=entry, limits=LIMITS), on_output=hear)
    assert (result.status, result.stdout, result.stderr, result.exit) == (Status.ERROR, "typed", "no\n", 7)
    assert b"".join(sorted(heard)) == b"no\ntyped"


async def test_packages_and_state_go_along_and_only_state_comes_back(sandbox: E2B, tmp_path: Path) -> None:
    layer, state = tmp_path / "layer", tmp_path / "state"
    layer.mkdir(0o755)
    (layer / "package.py").write_text("x = 'from the layer'")
    (state / "sub").mkdir(parents=True)
    (state / "old").write_text("old")
    (state / "sub/kept").write_text("kept")
    entry = code(
        tmp_path / "code",
        "import os, package\ndef run(args):\n    s = os.environ['STATE']\n    os.unlink(s + '/old')\n"
        "    open(s + '/new', 'w').write(open(s + '/sub/kept').read()); os.symlink('/etc', s + '/link')\n"
        "    open('/capability/evil', 'w') if os.access('/capability', os.W_OK) and os.getuid() else None\n"
        "    return package.x",
    )
    spec = RunSpec(entry=entry, layer=layer, writable=(state,), environ={"STATE": str(state)}, limits=LIMITS)
    assert (await sandbox.run(spec)).result == "from the layer"
    assert {str(p.relative_to(state)): p.is_file() for p in state.rglob("*")} == {
        "new": True,
        "sub": False,
        "sub/kept": True,
    }
    assert (state / "new").read_text() == "kept"
    assert sorted(p.name for p in layer.iterdir()) == ["package.py"]
    assert sorted(p.name for p in (tmp_path / "code").iterdir()) == ["main.py"]


async def test_a_session_keeps_its_folder_between_commands(
    sandbox: E2B, service: Service, tmp_path: Path
) -> None:
    async with await sandbox.open(SessionSpec(folder=tmp_path / "build", limits=LIMITS)) as session:
        await session.write("main.py", b"def run(args): return open(__file__[:-7] + 'note').read()")
        said = await session.exec(
            ["sh", "-c", "printf kept > note; printf '#!/bin/sh\necho ran' > x; chmod +x x"], timeout_s=100
        )
        assert said.ok, said
        assert (await session.exec(["./x"], timeout_s=100)).stdout == "ran\n"
        assert (await session.call({}, timeout_s=100)).result == "kept"
        await session.exec(["rm", "x"], timeout_s=100)
        assert [file.path for file in await session.export()] == ["main.py", "note"]
    assert len(service.ended) == 4


@pytest.mark.parametrize(
    ("network", "asked"),
    [
        (Network(), {"allow_internet_access": False, "network": {"allowPublicTraffic": False}}),
        (
            Network(mode="allow", hosts=("api.example.org", "*.example.com:443")),
            {
                "network": {
                    "allowPublicTraffic": False,
                    "allowOut": ["*.example.com", "api.example.org"],
                    "denyOut": ["0.0.0.0/0"],
                }
            },
        ),
    ],
)
async def test_the_service_is_asked_for_the_hosts_of_the_manifest_and_no_other(
    sandbox: E2B, service: Service, network: Network, asked: dict[str, object]
) -> None:
    await sandbox.run(RunSpec(entry=CommandEntry(argv=("true",)), network=network, limits=LIMITS))
    found = {name: service.asked[0].get(name) for name in asked}
    assert found == asked
    assert ("allow_internet_access" in service.asked[0]) == ("allow_internet_access" in asked)


async def test_every_public_host_means_no_private_one(sandbox: E2B, service: Service) -> None:
    await sandbox.run(
        RunSpec(entry=CommandEntry(argv=("true",)), network=Network(mode="public"), limits=LIMITS)
    )
    assert {"10.0.0.0/8", "169.254.0.0/16"} <= {*service.asked[0]["network"]["denyOut"]}


@pytest.mark.parametrize(
    "network",
    [
        Network(mode="allow", hosts=("api.example.org:8443",)),
        Network(mode="allow", hosts=("localhost:80",), private=("localhost:80",)),
    ],
)
async def test_a_network_that_the_service_cant_limit_is_refused(
    sandbox: E2B, service: Service, network: Network
) -> None:
    with pytest.raises(NoSandbox):
        await sandbox.run(RunSpec(entry=CommandEntry(argv=("true",)), network=network, limits=LIMITS))
    assert service.asked == []


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
async def test_what_the_service_refuses_is_an_error_with_the_reason(
    sandbox: E2B, service: Service, status: int
) -> None:
    service.answers.append(status)
    with pytest.raises(SandboxError, match=f"e2b didn't make a machine: .*{status}") as refused:
        await sandbox.run(RunSpec(entry=CommandEntry(argv=("true",)), limits=LIMITS))
    assert not isinstance(refused.value, NoSandbox)
    probe = await sandbox.probe()
    assert probe.works


async def test_a_key_that_is_refused_says_where_it_came_from_and_not_what_it_is(service: Service) -> None:
    wrong = sandbox_of(service, key="e2b_" + "f" * 32)
    probe = await wrong.probe()
    assert not probe.works
    assert "401" in probe.reason
    assert "E2B_API_KEY" in probe.reason
    assert "f" * 32 not in repr(probe) + repr(wrong)
    with pytest.raises(NoSandbox):
        await wrong.run(RunSpec(entry=CommandEntry(argv=("true",)), limits=LIMITS))


async def test_without_a_key_nothing_is_asked(service: Service) -> None:
    probe = await sandbox_of(service, key="").probe()
    assert "E2B_API_KEY isn't set" in probe.reason
    assert service.keys == set()


async def test_a_connection_that_is_lost_ends_the_run_and_the_machine(
    sandbox: E2B, service: Service, tmp_path: Path
) -> None:
    service.lose = True
    entry = code(
        tmp_path / "code", "import time\ndef run(args):\n    print('up', flush=True); time.sleep(60)"
    )
    with pytest.raises(SandboxError, match="e2b didn't run it"):
        await sandbox.run(RunSpec(entry=entry, limits=LIMITS))
    assert service.ended == ["machine1"]


async def test_a_machine_that_could_not_be_ended_is_ended_at_the_next_try(
    sandbox: E2B, service: Service, tmp_path: Path
) -> None:
    service.end_answers = [500, 502]
    result = await sandbox.run(
        RunSpec(entry=code(tmp_path / "code", "def run(args):\n    return 'done'"), limits=LIMITS)
    )
    assert result.status is Status.OK
    assert service.ended == ["machine1"]


async def test_a_service_that_isnt_there_is_an_error(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    sandbox = E2B(key=KEY, key_name="E2B_API_KEY", urls=(nowhere, nowhere))
    with pytest.raises(SandboxError, match="e2b didn't make a machine"):
        await sandbox.run(RunSpec(entry=CommandEntry(argv=("true",)), limits=LIMITS))


async def test_a_cancelled_run_ends_its_machine(sandbox: E2B, service: Service, tmp_path: Path) -> None:
    began = anyio.Event()

    async def hear(stream: str, piece: bytes) -> None:
        began.set()

    entry = code(tmp_path / "code", "def run(args):\n    print('up', flush=True)\n    while True: pass")
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: sandbox.run(RunSpec(entry=entry, limits=LIMITS), on_output=hear))
        await began.wait()
        group.cancel_scope.cancel()
    assert service.ended == ["machine1"]


async def test_a_run_that_is_cancelled_while_its_machine_is_made_ends_it(
    sandbox: E2B, service: Service
) -> None:
    async with anyio.create_task_group() as group:
        loop = asyncio.get_running_loop()
        service.on_make = partial(loop.call_soon_threadsafe, group.cancel_scope.cancel)
        group.start_soon(sandbox.run, RunSpec(entry=CommandEntry(argv=("true",)), limits=LIMITS))
    assert service.ended == ["machine1"]


async def test_a_template_with_another_python_is_refused(
    sandbox: E2B, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "PYTHON", "3.2")
    with pytest.raises(SandboxError, match=r"The template has Python 3\.\d+, and Satchel runs with 3\.2"):
        await sandbox.run(RunSpec(entry=CommandEntry(argv=("true",)), limits=LIMITS))


async def test_commands_in_the_users_folder_are_not_boxed(sandbox: E2B, tmp_path: Path) -> None:
    with pytest.raises(NoSandbox, match="bubblewrap"):
        async with sandbox.box(WorkspaceBox(workspace=tmp_path, home=tmp_path)):
            pass


async def test_only_the_settings_choose_it_and_the_key_comes_from_where_they_say(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environ = {"HOME": str(tmp_path), "SATCHEL_HOME": str(home), "E2B_API_KEY": KEY}
    assert "e2b" not in {probe.name for probe in await probes(load(environ, cwd=tmp_path))}
    (home / "config.toml").write_text('[sandbox]\nbackend = "e2b"\ne2b_key_env = "OTHER_NAME"\n')
    [probe] = await probes(load(environ, cwd=tmp_path))
    assert (probe.name, probe.works) == ("e2b", False)
    assert "OTHER_NAME isn't set" in probe.reason


def member(name: str, content: bytes = b"", **more: object) -> Callable[[tarfile.TarFile], None]:
    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        for key, value in more.items():
            setattr(info, key, value)
        tar.addfile(info, io.BytesIO(content))

    return add


ENDED = member("ended", b'{"code": 0, "stopped": "", "peak_kb": 1}')


@pytest.mark.parametrize(
    "members",
    [
        [],
        [member("report", b"+")],
        [member("ended", b"[]")],
        [member("ended", b'{"code": "0", "stopped": "", "peak_kb": 1}')],
        [member("ended", b'{"code": 0, "stopped": "ok", "peak_kb": 1}')],
        [member("ended", b'{"code": 0, "stopped": [], "peak_kb": 1}')],
        [member("ended", b"[" * 2000)],
        [member("report", b"x" * 20_000), ENDED],
        [member("report", type=tarfile.SYMTYPE, linkname="/etc/passwd"), ENDED],
        [member("1/x", b"x"), ENDED],
        [member("/etc/x", b"x"), ENDED],
        [member("\u0662/x", b"x"), ENDED],
    ],
)
def test_what_a_hosted_machine_may_not_send_is_refused(
    tmp_path: Path, members: list[Callable[[tarfile.TarFile], None]]
) -> None:
    with tarfile.open(tmp_path / "left.tar", "w") as tar:
        for add in members:
            add(tar)
    (tmp_path / "into").mkdir()
    with pytest.raises(SandboxError, match="can't be read"):
        unpack(tmp_path / "left.tar", [tmp_path / "into"], most_report_bytes=10_000)
    assert [*(tmp_path / "into").iterdir()] == []


@pytest.mark.parametrize("garbage", [b"", b"x" * 5000, b"\0" * 10_240])
def test_what_is_no_archive_is_refused(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "left.tar").write_bytes(garbage)
    with pytest.raises(SandboxError, match="can't be read"):
        unpack(tmp_path / "left.tar", [tmp_path], most_report_bytes=100)


def test_names_and_links_in_what_comes_back_lead_nowhere_else(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    with tarfile.open(tmp_path / "left.tar", "w") as tar:
        for add in (
            member("0/../victim/a", b"x"),
            member(f"0/{victim}/b", b"x"),
            member("0/link", type=tarfile.SYMTYPE, linkname=str(victim)),
            member("0/link/c", b"x"),
            member("0/hard", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
            member("0/device", type=tarfile.CHRTYPE),
            member("0/good", b"good"),
            member("0/good", b"again"),
            member("0/" + "n" * 300, b"x"),
            ENDED,
        ):
            add(tar)
    into = tmp_path / "into"
    into.mkdir()
    left = unpack(tmp_path / "left.tar", [into], most_report_bytes=100)
    assert [path.name for path in into.iterdir()] == ["good"]
    assert (into / "good").read_bytes() == b"good"
    assert [*victim.iterdir()] == []
    assert len(left.omitted) == 8


async def test_more_than_a_run_may_leave_is_not_fetched(sandbox: E2B, service: Service) -> None:
    service.forged = bytes(80 << 20)
    with pytest.raises(SandboxError, match="sends more than a run may leave"):
        await sandbox.run(RunSpec(entry=CommandEntry(argv=("true",)), limits=LIMITS))
