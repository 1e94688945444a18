"""Containers as a sandbox: with a stand-in for the engine everywhere, with Podman where it works.

The stand-in takes the arguments of `docker run`, keeps them, and does with bubblewrap what they say about mounts, so
that the programs inside, the socket and the mounts are real. It holds no limits; those are the engine's.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import anyio
import pytest

from satchel.addons.containers.backend import Containers
from satchel.config import load
from satchel.errors import NoSandbox
from satchel.sandbox.bubblewrap import Bubblewrap
from satchel.sandbox.bwrap import find, system_mounts
from satchel.sandbox.choice import LADDER, probes
from satchel.sandbox.job import python_program
from satchel.sandbox.landlock import Landlock
from satchel.sandbox.port import (
    CommandEntry,
    Feature,
    Limits,
    Network,
    PythonEntry,
    RunSpec,
    SessionSpec,
    Status,
    WorkspaceBox,
)
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

IMAGE = os.environ.get("SATCHEL_TEST_IMAGE", "")
"""An image with python3 for Podman, such as docker.io/library/python:3.11-slim. Nothing is fetched here."""
LIMITS = Limits(wall_s=20, cpu_s=4, memory_mb=200, processes=20)

STAND_IN = """#!{python}
import csv, json, os, sys
with open({log!r}, "a") as log:
    log.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
words = sys.argv[1:]
if words[0] == "image" and os.path.exists({log!r} + ".absent"):
    sys.exit("Error: No such image")
if words[0] != "run":
    sys.exit(0)
argv = ["bwrap", *{mounts!r}, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-net", "--die-with-parent"]
for at, word in enumerate(words):
    if word == "--mount":
        fields = dict(pair.partition("=")[::2] for pair in next(csv.reader([words[at + 1]])))
        argv += ["--ro-bind" if "readonly" in fields else "--bind", fields["src"], fields["dst"]]
    if word == "--entrypoint":
        os.execvp("bwrap", [*argv, "--", {python!r}, *words[at + 3:]])
"""


class Engine:
    """The stand-in and what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "engine"
        self.log = folder / "log"
        text = STAND_IN.format(python=str(python_program()), log=str(self.log), mounts=system_mounts())
        self.program.write_text(text)
        self.program.chmod(0o755)

    def calls(self) -> list[tuple[list[str], dict[str, str]]]:
        return [(words, environ) for words, environ in map(json.loads, self.log.read_text().splitlines())]

    def sandbox(self, *, pull: bool = False) -> Containers:
        environ = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "API_KEY": "host-secret"}
        return Containers("docker", environ=environ, program=str(self.program), pull=pull)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    if find("bwrap") is None:
        pytest.skip("CONTAINERS WERE NOT TESTED: their stand-in needs bubblewrap")
    return Engine(tmp_path)


@pytest.fixture(params=["stand-in", "podman"])
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Containers]:
    if request.param == "stand-in":
        yield request.getfixturevalue("engine").sandbox()
        return
    if not IMAGE or find("podman") is None:
        pytest.skip("PODMAN WAS NOT TESTED: install it and set SATCHEL_TEST_IMAGE to an image that is there")
    yield Containers("podman", environ=dict(os.environ), image=IMAGE)


def code(folder: Path, text: str, **args: object) -> PythonEntry:
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(text)
    return PythonEntry(code_dir=folder, args=args)


@requirement("sandbox:containers")
async def test_a_function_runs_in_a_container_and_leaves_artifacts(
    sandbox: Containers, tmp_path: Path
) -> None:
    entry = code(
        tmp_path / "a,b",
        "import os\ndef run(args):\n    open('out/a.txt', 'w').write('left')\n"
        "    return f\"{args['word']} {sorted(os.environ)} {os.environ['TOKEN']}\"",
        word="héllo",
    )
    result = await sandbox.run(RunSpec(entry=entry, limits=LIMITS, secrets={"TOKEN": "top-secret"}))
    assert result.status is Status.OK, result
    assert result.result is not None
    assert result.result.startswith("héllo")
    assert result.result.endswith("***")
    assert "API_KEY" not in result.result
    assert [(left.path, left.content) for left in result.artifacts] == [("a.txt", b"left")]


async def test_code_and_layer_cant_be_changed_and_the_layer_is_found(
    sandbox: Containers, tmp_path: Path
) -> None:
    layer = tmp_path / "layer"
    layer.mkdir()
    (layer / "package.py").write_text("x = 'from the layer'")
    entry = code(
        tmp_path / "code",
        "import package\ndef run(args):\n    said = []\n    for path in (__file__, package.__file__):\n"
        "        try:\n            open(path, 'a')\n        except OSError:\n            said.append('refused')\n"
        "    return f'{package.x} {said}'",
    )
    result = await sandbox.run(RunSpec(entry=entry, layer=layer, limits=LIMITS))
    assert result.result == "from the layer ['refused', 'refused']", result


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("raise ValueError('no')", Status.ERROR),
        ("return None", Status.BAD_RETURN),
        ("import os; os._exit(3)", Status.NO_RESULT),
        ("import os; os.kill(os.getpid(), 9)", Status.NO_RESULT),
        ("while True: pass", Status.TIMEOUT),
    ],
)
async def test_what_code_does_wrong_gets_its_status(
    sandbox: Containers, tmp_path: Path, body: str, status: Status
) -> None:
    limits = Limits(wall_s=20, cpu_s=1, memory_mb=200, processes=20)
    entry = code(tmp_path / "code", f"def run(args):\n    {body}")
    assert (await sandbox.run(RunSpec(entry=entry, limits=limits))).status is status


async def test_too_much_memory_ends_the_run_with_that_reason(tmp_path: Path) -> None:
    if not IMAGE or find("podman") is None:
        pytest.skip("PODMAN WAS NOT TESTED: install it and set SATCHEL_TEST_IMAGE to an image that is there")
    sandbox = Containers("podman", environ=dict(os.environ), image=IMAGE)
    body = "x = bytearray(400 << 20)"
    entry = code(tmp_path / "code", f"def run(args):\n    {body}")
    for what in (entry, CommandEntry(argv=("python", "-c", body))):
        assert (await sandbox.run(RunSpec(entry=what, limits=LIMITS))).status is Status.MEMORY


async def test_mode_auto_knows_that_a_container_boxes_no_commands(engine: Engine) -> None:
    assert Feature.WORKSPACE not in engine.sandbox().features
    assert Feature.WORKSPACE in Bubblewrap.features & Landlock.features


async def test_a_command_gets_its_input_and_its_exit_code_comes_back(sandbox: Containers) -> None:
    entry = CommandEntry(argv=("sh", "-c", "cat; exit 7"), stdin=b"typed")
    result = await sandbox.run(RunSpec(entry=entry, limits=LIMITS))
    assert (result.status, result.stdout, result.exit) == (Status.ERROR, "typed", 7), result


async def test_named_hosts_are_reached_through_the_proxy_and_no_other(
    sandbox: Containers, tmp_path: Path
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"served")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{server.server_port}"
    entry = code(
        tmp_path / "code",
        "import urllib.request\ndef run(args):\n    return urllib.request.urlopen(args['url']).read().decode()",
        url=f"http://{host}/",
    )
    allowed = Network(mode="allow", hosts=(host,), private=(host,))
    try:
        assert (await sandbox.run(RunSpec(entry=entry, network=allowed, limits=LIMITS))).result == "served"
        other = Network(mode="allow", hosts=("api.example.org",))
        refused = await sandbox.run(RunSpec(entry=entry, network=other, limits=LIMITS))
        assert [denial.target for denial in refused.denied] == [host]
        assert (await sandbox.run(RunSpec(entry=entry, limits=LIMITS))).status is Status.ERROR
    finally:
        server.shutdown()
        server.server_close()


async def test_a_session_keeps_its_folder_between_commands(sandbox: Containers, tmp_path: Path) -> None:
    async with await sandbox.open(SessionSpec(folder=tmp_path / "build", limits=LIMITS)) as session:
        await session.write("main.py", b"def run(args): return open(__file__[:-7] + 'note').read()")
        assert (await session.exec(["sh", "-c", "printf kept > note"], timeout_s=100)).ok
        assert (await session.call({}, timeout_s=100)).result == "kept"


async def test_the_engine_is_told_every_limit_and_no_secret(engine: Engine, tmp_path: Path) -> None:
    entry = code(tmp_path / "code", "def run(args): return 'x'", word="argument-secret")
    await engine.sandbox().run(RunSpec(entry=entry, limits=LIMITS, secrets={"TOKEN": "top-secret"}))
    (argv, _), (removed, _) = engine.calls()
    line = " ".join(argv)
    for words in (
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--pids-limit 26",
        "--memory 200m --memory-swap 200m",
        "--init",
        "--pull never",
    ):
        assert words in line
    assert int(argv[argv.index("--user") + 1].split(":")[0]) > 0
    assert not {"top-secret", "argument-secret", "host-secret"} & {*line.split()}
    assert "secret" not in line
    assert "--env" not in line
    assert removed == ["rm", "--force", "--volumes", argv[argv.index("--name") + 1]]


async def test_a_cancelled_run_removes_its_container(engine: Engine, tmp_path: Path) -> None:
    began = anyio.Event()

    async def hear(stream: str, piece: bytes) -> None:
        began.set()

    entry = code(tmp_path / "code", "def run(args):\n    print('up', flush=True)\n    while True: pass")
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: engine.sandbox().run(RunSpec(entry=entry, limits=LIMITS), on_output=hear))
        await began.wait()
        group.cancel_scope.cancel()
    assert [words[0] for words, _ in engine.calls()] == ["run", "rm"]


async def test_an_image_that_isnt_there_is_fetched_only_with_leave(engine: Engine) -> None:
    Path(f"{engine.log}.absent").touch()
    probe = await engine.sandbox().probe()
    assert not probe.works
    assert "docker pull docker.io/library/python:" in probe.fix
    assert "pull" not in [words[0] for words, _ in engine.calls()]
    # As root, the stand-in stays root, which the probe notices; what matters is that it got so far.
    assert "isn't here" not in (await engine.sandbox(pull=True).probe()).reason
    assert "pull" in [words[0] for words, _ in engine.calls()]


async def test_commands_in_the_users_folder_have_no_container(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(NoSandbox, match="bubblewrap"):
        async with engine.sandbox().box(WorkspaceBox(workspace=tmp_path, home=tmp_path)):
            pass


async def test_an_engine_that_isnt_installed_says_how_to_get_it(tmp_path: Path) -> None:
    probe = await Containers("docker", environ={}, program=str(tmp_path / "missing")).probe()
    assert not probe.works
    assert "sudo apt install docker.io" in probe.fix


async def test_only_the_settings_choose_a_container(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environ = {"HOME": str(tmp_path), "SATCHEL_HOME": str(home)}
    assert {probe.name for probe in await probes(load(environ, cwd=tmp_path))} <= {*LADDER}
    assert not {"docker", "podman"} & {*LADDER}
    (home / "config.toml").write_text('[sandbox]\nbackend = "podman"\nimage = "localhost/no-such-image:0"\n')
    [probe] = await probes(load(environ, cwd=tmp_path))
    assert (probe.name, probe.works) == ("podman", False)
