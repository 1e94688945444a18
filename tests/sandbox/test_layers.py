"""Requirement layers: what may be required, what becomes of it, and that a run without new requirements starts nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.clock import ManualClock
from satchel.config import SETTINGS
from satchel.config.locks import FileLock
from satchel.errors import SandboxError, UsageError
from satchel.sandbox.layers import LayerLimits, Layers, Lock, find_uv
from satchel.sandbox.requirements import parse_requirements
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

HASH = "0" * 64


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    files: Mapping[str, bytes] | None = None,
    needs: Sequence[str] = (),
) -> Path:
    """A wheel with one module that says its version."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(
        f"Requires-Dist: {need}\n" for need in needs
    )
    content = {
        f"{name}.py": f"VERSION = {version!r}\n".encode(),
        **(files or {}),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        at: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        for at, data in content.items()
    }
    record = "".join(f"{at},sha256={digest},{len(content[at])}\n" for at, digest in digests.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for at, data in content.items():
            archive.writestr(at, data)
    return path


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    make_wheel(folder, "alpha", needs=["beta>=1"])
    make_wheel(folder, "beta")
    return folder


class Place:
    """A folder of layers with the wheels of a test."""

    def __init__(self, tmp_path: Path, wheels: Path) -> None:
        self.folder = tmp_path / "home" / "layers"
        self.clock = ManualClock(at=datetime.now(UTC))
        # A cache of its own, so that nothing comes from another test.
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "UV_CACHE_DIR": str(tmp_path / "cache"),
            "OPENAI_API_KEY": "sk-secret",
        }
        self.options: tuple[str, ...] = ("--no-index", "--find-links", str(wheels))
        self.uv: str | None = None
        self.min_age_days = 0.0
        self.limits = LayerLimits()

    def layers(self) -> Layers:
        return Layers(
            self.folder,
            environ=self.environ,
            clock=self.clock,
            min_age_days=self.min_age_days,
            limits=self.limits,
            options=self.options,
            uv=self.uv,
        )

    def installed(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name != "locks")


@pytest.fixture
def place(tmp_path: Path, wheels: Path) -> Place:
    return Place(tmp_path, wheels)


def version_in(layer: Path, module: str) -> str:
    code = f"import sys; sys.path.insert(0, {str(layer)!r}); import {module}; print({module}.VERSION)"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


# ---- What may be required


@requirement("sandbox:layers:names-only")
@pytest.mark.parametrize(
    "line",
    ["https://example.org/a.whl", "a @ https://example.org/a.whl", "a@file:///etc/passwd", "git+https://example.org/a.git", "git+ssh://x/a", "-e .",
     "--editable .", "-r other.txt", "--index-url https://example.org", "-c constraints.txt", "--extra-index-url=x", ".", "./a", "../a", "/a", "~/a",
     "a.whl", "a-1.0-py3-none-any.whl", "a.tar.gz", "C:\\a", "\\\\host\\a", "a b", "a==1 --hash=sha256:0", "a; python_version", "a>=", "a==1.0 \\",
     "${HOME}", "a==$X", "a\nb", "a\r--index-url x", "requests\u200b", "rеquests", "a===anything", "", "x" * 300],
)  # fmt: skip
def test_what_is_not_a_package_with_versions_is_refused_by_name(line: str) -> None:
    if not line:
        assert parse_requirements(["", "# nothing", "  "]) == ()
        return
    with pytest.raises(UsageError, match=r"requirement|allowed|characters"):
        parse_requirements(["fine", line])


def test_requirements_are_written_plainly_so_that_the_same_ones_are_one() -> None:
    lines = [
        "Requests[socks] >= 2.31 , <3  # for the web",
        "",
        "# more",
        "attrs",
        'tomli; python_version < "3.11"',
        "attrs",
    ]
    assert parse_requirements(lines) == (
        "attrs",
        "Requests[socks]<3,>=2.31",
        'tomli; python_version < "3.11"',
    )
    assert parse_requirements(reversed(lines)) == parse_requirements(lines)
    with pytest.raises(UsageError, match="required twice"):
        parse_requirements(["a_b==1", "A-b==2"])
    with pytest.raises(UsageError, match="50 are the most"):
        parse_requirements([f"p{number}" for number in range(51)])


@given(st.lists(st.text(max_size=40), max_size=4))
def test_any_text_is_requirements_or_a_usage_error(lines: list[str]) -> None:
    try:
        parsed = parse_requirements(lines)
    except UsageError:
        return
    assert parse_requirements(parsed) == parsed


@pytest.mark.parametrize(
    "text",
    ["a @ https://example.org/a.whl \\\n    --hash=sha256:" + HASH, "-e .", "a==1", f"    --hash=sha256:{HASH}", "a==1 \\\n    --hash=md5:0", "--index-url x",
     f"a==1 \\\n    --hash=sha256:{HASH}\n--find-links /x"],
)  # fmt: skip
def test_a_lock_holds_nothing_but_versions_with_hashes(text: str) -> None:
    with pytest.raises(UsageError, match="no package by version and hash"):
        Lock.parse(text)
    assert Lock.parse(f"a==1 \\\n    --hash=sha256:{HASH} \\\n    --hash=sha256:{HASH}\n").packages == (
        "a==1",
    )


# ---- What becomes of it


@requirement("capabilities:run:requirements", "sandbox:layers:read-only")
async def test_requirements_become_a_read_only_folder_of_packages_with_bytecode(
    place: Place, wheels: Path
) -> None:
    make_wheel(
        wheels,
        "gamma",
        files={"gamma.pth": b"import os; os.environ['GAMMA'] = '1'\n", "bin/x": b"#!/bin/sh\n"},
    )
    layers = place.layers()
    layer = await layers(["alpha", "gamma"])
    assert layer is not None
    lock = await layers.lock(["gamma", "alpha"])
    assert lock.packages == ("alpha==1.0", "beta==1.0", "gamma==1.0")
    assert version_in(layer, "alpha") == version_in(layer, "beta") == "1.0"
    assert list(layer.rglob("alpha.*.pyc"))
    for path in [layer, *layer.rglob("*")]:
        assert not path.lstat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH), path
        assert path.lstat().st_mode & stat.S_IROTH, path
    assert await layers([]) is None


@requirement("capabilities:run:requirements", "sandbox:layers:offline")
async def test_what_was_installed_once_is_used_without_starting_anything(place: Place, wheels: Path) -> None:
    first = await place.layers()(["alpha"])
    make_wheel(wheels, "alpha", "2.0")
    place.uv = "/nowhere/uv"
    # The same requirements mean the same versions, also in another process and when newer ones are out.
    assert await place.layers()(["alpha"]) == first
    with pytest.raises(SandboxError, match="could not be started"):
        await place.layers()(["alpha>1"])


async def test_two_who_need_the_same_packages_install_them_once(place: Place, tmp_path: Path) -> None:
    log = tmp_path / "uv.log"
    counting = tmp_path / "uv"
    counting.write_text(f'#!/bin/sh\necho "$2" >> {log}\nexec {find_uv(os.environ)} "$@"\n')
    counting.chmod(0o755)
    place.uv = str(counting)
    found: list[Path | None] = []

    async def use() -> None:
        found.append(await place.layers()(["alpha"]))

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(use)
    assert len(set(found)) == 1
    assert log.read_text().split() == ["compile", "install"]


@pytest.mark.parametrize(
    ("required", "reason"),
    [
        (["nowhere"], "nowhere was not found"),
        (["alpha>5"], "alpha>5"),
        (["alpha", "beta<1"], "unsatisfiable"),
        (["source"], "no wheels|no usable wheels"),
    ],
)
async def test_what_can_not_be_met_is_refused_with_the_reason_and_leaves_nothing(
    place: Place, wheels: Path, tmp_path: Path, required: list[str], reason: str
) -> None:
    evidence = tmp_path / "ran"
    with tarfile.open(wheels / "source-1.0.tar.gz", "w:gz") as archive:
        setup = f"open({str(evidence)!r}, 'w')\nfrom setuptools import setup\nsetup(name='source', version='1.0')\n".encode()
        for at, data in (
            ("source-1.0/setup.py", setup),
            ("source-1.0/PKG-INFO", b"Metadata-Version: 1.0\nName: source\nVersion: 1.0\n"),
        ):
            member = tarfile.TarInfo(at)
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
    with pytest.raises(UsageError, match=reason):
        await place.layers()(required)
    assert place.installed() == []
    assert not evidence.exists()


async def test_a_package_that_is_not_what_its_hash_says_is_not_installed(place: Place, wheels: Path) -> None:
    layers = place.layers()
    lock = await layers.lock(["beta"])
    make_wheel(wheels, "beta", files={"beta.py": b"VERSION = 'evil'\n"})
    # Without its cache, from which uv would install what it locked.
    place.environ["UV_CACHE_DIR"] += "-new"
    layers = place.layers()
    with pytest.raises(UsageError, match=r"(?s)can't be installed.*[Hh]ash"):
        await layers.layer(lock)
    assert place.installed() == []


async def test_packages_that_are_too_large_are_refused(place: Place, wheels: Path) -> None:
    make_wheel(wheels, "huge", files={"huge.bin": bytes(3 << 20)})
    place.limits = LayerLimits(layer_mb=2)
    with pytest.raises(UsageError, match="more than 2 MiB"):
        await place.layers()(["huge"])
    assert place.installed() == []


async def test_an_installer_that_hangs_is_ended(place: Place, tmp_path: Path) -> None:
    hanging = tmp_path / "uv"
    hanging.write_text("#!/bin/sh\nsleep 600\n")
    hanging.chmod(0o755)
    place.uv = str(hanging)
    place.limits = LayerLimits(lock_s=0.2)
    with pytest.raises(SandboxError, match=r"longer than 0\.2 s"):
        await place.layers()(["alpha"])


async def test_the_installer_gets_the_users_index_and_none_of_the_users_keys(
    place: Place, tmp_path: Path
) -> None:
    recording = tmp_path / "uv"
    recording.write_text(f"#!/bin/sh\nenv > {tmp_path}/env\nexit 1\n")
    recording.chmod(0o755)
    place.uv = str(recording)
    place.environ |= {
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "HTTPS_PROXY": "http://proxy:1",
        "UV_NO_BINARY": "1",
    }
    with pytest.raises(UsageError):
        await place.layers()(["alpha"])
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert {"UV_DEFAULT_INDEX", "HTTPS_PROXY", "HOME"} <= names
    assert not names & {"OPENAI_API_KEY", "UV_NO_BINARY"}


@requirement("sandbox:layers:bounded")
async def test_the_least_recently_used_layers_go_and_come_back_from_their_locks(
    place: Place, wheels: Path
) -> None:
    for name in ("one", "two", "three"):
        make_wheel(wheels, name, files={f"{name}.bin": os.urandom(600_000)})
    place.limits = LayerLimits(total_mb=1)
    layers = place.layers()
    used: dict[str, Path | None] = {}
    for name in ("one", "two"):
        used[name] = await layers([name])
        place.clock.at += timedelta(minutes=30)
    # Both are too much already, and either may be in use.
    assert len(place.installed()) == 2
    place.clock.at += timedelta(minutes=45)
    await layers(["one"])
    used["three"] = await layers(["three"])
    assert place.installed() == sorted(path.parent.name for name in ("one", "three") if (path := used[name]))
    make_wheel(wheels, "two", "2.0")
    again = await layers(["two"])
    assert again == used["two"]
    assert again is not None
    assert version_in(again, "two") == "1.0"


async def test_what_a_killed_process_left_half_made_is_removed_later(place: Place) -> None:
    layers = place.layers()
    await layers(["beta"])
    left = place.folder / ".making-x"
    (left / "packages").mkdir(parents=True)
    (left / "packages").chmod(0o555)
    place.clock.at += timedelta(hours=3)
    await layers(["alpha"])
    assert not left.exists()


async def test_a_folder_that_can_not_be_written_is_named(place: Place, tmp_path: Path) -> None:
    place.folder.parent.mkdir()
    place.folder.write_text("a file")
    with pytest.raises(SandboxError, match="layers can't be written to"):
        await place.layers()(["alpha"])


# ---- An index


class Index:
    """An index on loopback that says when each file was uploaded (PEP 691, PEP 700)."""

    def __init__(self, wheels: Path, uploaded: Mapping[str, datetime]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, _, rest = self.path.partition("/simple/")
                name, _, file = rest.partition("/")
                if file.endswith(".whl"):
                    self._send((wheels / file).read_bytes(), "application/octet-stream")
                    return
                found = list(wheels.glob(f"{name}-*.whl"))
                if not found:
                    self.send_error(404)
                    return
                files = [
                    {
                        "filename": path.name,
                        "url": f"/simple/{name}/{path.name}",
                        "hashes": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
                        "upload-time": uploaded[path.name.split("-py3")[0]].strftime("%Y-%m-%dT%H:%M:%SZ"),
                        "size": path.stat().st_size,
                    }
                    for path in found
                ]
                page = {"meta": {"api-version": "1.1"}, "name": name, "files": files, "versions": []}
                self._send(json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json")

            def _send(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/simple"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def index(wheels: Path, place: Place) -> Iterator[Index]:
    make_wheel(wheels, "beta", "2.0")
    now = place.clock.now()
    index = Index(
        wheels, {"alpha-1.0": now, "beta-1.0": now - timedelta(days=30), "beta-2.0": now - timedelta(days=1)}
    )
    yield index
    index.close()


@requirement("sandbox:layers:brake")
async def test_versions_that_have_just_been_published_are_not_used_unless_the_user_says_so(
    place: Place, index: Index
) -> None:
    place.options = ("--default-index", index.url)
    place.min_age_days = 3
    assert (await place.layers().lock(["beta"])).packages == ("beta==1.0",)
    with pytest.raises(UsageError, match="Versions younger than 3 days are not used"):
        await place.layers().lock(["alpha"])
    place.min_age_days = 0
    assert (await place.layers().lock(["beta>=1"])).packages == ("beta==2.0",)
    layer = await place.layers()(["beta>=1"])
    assert layer is not None
    assert version_in(layer, "beta") == "2.0"


async def test_an_index_that_is_down_is_not_the_capabilitys_fault(place: Place) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place.options = ("--default-index", f"http://127.0.0.1:{unused.getsockname()[1]}/simple")
        place.environ["UV_HTTP_RETRIES"] = "0"
        with pytest.raises(SandboxError, match="index can't be reached"):
            await place.layers()(["beta"])


def test_the_setting_that_a_message_names_exists() -> None:
    assert "sandbox.min_package_age_days" in {setting.key for setting in SETTINGS}


# ---- Lock files


async def test_no_lock_file_is_left_not_even_a_killed_ones(place: Place) -> None:
    locks = place.folder / "locks"
    locks.mkdir(parents=True)
    (locks / "killed.lock").touch()
    held = FileLock.take(locks / "held.lock", removes=True)
    assert held is not None
    await place.layers()(["beta"])
    assert [path.name for path in locks.glob("*.lock")] == ["held.lock"]
    held.release()


EXCLUSIVELY = """
import os, sys
from pathlib import Path
from satchel.config.locks import FileLock
folder = Path(sys.argv[1])
done = 0
while done < 150:
    if (lock := FileLock.take(folder / "x.lock", removes=True)) is None:
        continue
    inside = os.open(folder / "inside", os.O_CREAT | os.O_EXCL)  # fails if somebody else is here
    os.close(inside)
    os.unlink(folder / "inside")
    lock.release()
    done += 1
"""


def test_a_lock_that_is_removed_when_it_is_free_still_lets_in_one_at_a_time(tmp_path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", EXCLUSIVELY, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in running:
        _, said = process.communicate(timeout=280)
        assert process.returncode == 0, said.decode()
    assert [*tmp_path.iterdir()] == []
