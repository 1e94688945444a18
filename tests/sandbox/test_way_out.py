"""Programs in the sandbox reach the hosts that were allowed, and no others."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from satchel.sandbox.bubblewrap import Bubblewrap
from satchel.sandbox.bwrap import find
from satchel.sandbox.port import Network, PythonEntry, RunSpec, SessionSpec, Status, WorkspaceBox
from satchel.sandbox.process import run_process
from tests.requirements import requirement
from tests.sandbox.ordinary import USER

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        find("bwrap") is None,
        reason="THE SANDBOX WAS NOT TESTED: bubblewrap isn't installed (sudo apt-get install bubblewrap)",
    ),
]

FETCH = """
import socket, urllib.error, urllib.request
def fetch(address):
    try:
        return urllib.request.urlopen(address, timeout=280).read().decode()
    except urllib.error.HTTPError as error:
        return str(error.code)
def past_the_proxy(port):
    try:
        socket.create_connection(("127.0.0.1", port), 2)
    except OSError as error:
        return type(error).__name__
    return "reached"
def run(args):
    allowed, other = args["allowed"], args["other"]
    return f"{fetch(f'http://localhost:{allowed}/')} {fetch(f'http://localhost:{other}/')} {past_the_proxy(allowed)}"
"""


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """Two servers on the host's loopback interface."""
    servers = [HTTPServer(("127.0.0.1", 0), Hello) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in servers]
    for thread in threads:
        thread.start()
    yield servers[0].server_port, servers[1].server_port
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        server.server_close()
        thread.join()


def only(port: int) -> Network:
    return Network(mode="allow", hosts=(f"localhost:{port}",), private=(f"localhost:{port}",))


@requirement("sandbox:network")
async def test_a_capability_reaches_the_allowed_host_and_nothing_past_the_proxy(
    tmp_path: Path, ports: tuple[int, int]
) -> None:
    allowed, other = ports
    (tmp_path / "main.py").write_text(FETCH)
    entry = PythonEntry(code_dir=tmp_path, args={"allowed": allowed, "other": other})
    result = await Bubblewrap().run(RunSpec(entry=entry, network=only(allowed)))
    assert (result.status, result.result) == (Status.OK, "hello 403 ConnectionRefusedError"), result
    assert [denial.target for denial in result.denied] == [f"localhost:{other}"]


async def test_a_session_has_the_same_way_out(tmp_path: Path, ports: tuple[int, int]) -> None:
    allowed, other = ports
    spec = SessionSpec(folder=tmp_path / "build", network=only(allowed))
    async with await Bubblewrap().open(spec) as session:
        await session.write("main.py", FETCH.encode())
        script = f"import main; print(main.run({{'allowed': {allowed}, 'other': {other}}}))"
        result = await session.exec(["python", "-c", script], timeout_s=30)
    assert result.stdout == "hello 403 ConnectionRefusedError\n", result.stderr


@pytest.mark.parametrize("owner", ["self", "another"])
async def test_a_command_reaches_the_allowed_host_and_its_own_servers(
    tmp_path: Path, ports: tuple[int, int], owner: str
) -> None:
    """Root in a folder of another user becomes that user."""
    if owner == "another" and os.geteuid() != 0:
        pytest.skip("this case is for root")
    allowed, other = ports
    home, workspace = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    workspace.mkdir()
    (workspace / "main.py").write_text(FETCH)
    own = (
        "import http.server, threading, main\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "print('main.py' in main.fetch(f'http://127.0.0.1:{server.server_port}/'))\n"
    )
    (workspace / "own.py").write_text(own)
    if owner == "another":
        os.chown(workspace, USER, USER)
    asked = f"import main; print(main.run({{'allowed': {allowed}, 'other': {other}}}))"
    command = f'python3 -c "{asked}"; python3 own.py; id -u; touch made'
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home)}
    async with Bubblewrap().box(WorkspaceBox(workspace=workspace, home=home, network=only(allowed))) as box:
        result = await run_process(
            ["bash", "-c", command], cwd=workspace, environ=environ, box=box, timeout_s=60
        )
        inside = USER if owner == "another" else os.geteuid() or 1000
        said = ["hello 403 ConnectionRefusedError", "True", str(inside)]
        assert result.stdout.text.splitlines() == said, result.stderr.text
        assert (workspace / "made").stat().st_uid == (USER if owner == "another" else os.geteuid())
        assert [denial.target for denial in box.denied] == [f"localhost:{other}"]


async def test_a_folder_that_becomes_a_link_while_the_box_starts_leads_nowhere(tmp_path: Path) -> None:
    work, other = tmp_path / "home/work", tmp_path / "home/other"
    for folder in (work / "sub/.git", other / ".git/hooks"):
        folder.mkdir(parents=True)
    async with Bubblewrap().box(WorkspaceBox(workspace=work, home=tmp_path / "home")) as box:
        command = ["/bin/sh", "-c", "echo x > sub/.git/planted"]
        boxed = box.enter(command, cwd=work, environ={"PATH": "/usr/bin:/bin"})
        (work / "sub").rename(work / "old")
        (work / "sub").symlink_to("../other")
        subprocess.run(boxed.argv, pass_fds=boxed.descriptors, cwd=boxed.cwd, env=dict(boxed.environ))
        for descriptor in boxed.descriptors:
            os.close(descriptor)
    assert not (other / ".git/planted").exists()
