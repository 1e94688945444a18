"""What an environment without the extras can do, and what it says of the rest.

It is a virtual environment whose packages are links to those that pyproject.toml's `dependencies` bring and to no
others, so that processes that Satchel starts lack the same.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
import venv
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.cli.programs import environ_for
from tests.requirements import requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LIMIT_S = 240
EVERY_MODULE = """
import importlib, pkgutil, satchel
for module in pkgutil.walk_packages(satchel.__path__, "satchel."):
    if not module.name.endswith("__main__") and ".sandbox.guest" not in module.name:
        importlib.import_module(module.name)
"""
A_PAGE = """
from satchel.tools.web.fetching import FetchedPage
from satchel.tools.web.reading import read_page
for kind, body in (("application/json", b"[1]"), ("application/pdf", b"%PDF-"), ("text/html", b"<p>Hello.")):
    page = FetchedPage(url="http://a.example/", status=200, kind=kind, charset="", body=body, is_cut=False)
    try:
        print(read_page(page).text)
    except Exception as error:
        print(error)
"""


def brought_by(names: list[str]) -> set[str]:
    """The distributions that these requirements bring."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        wanted = waiting.pop()
        for extra in ["", *wanted.extras]:
            if (wanted.name, extra) not in found:
                found.add((wanted.name, extra))
                inner = map(Requirement, distribution(wanted.name).requires or ())
                waiting += [
                    each for each in inner if not each.marker or each.marker.evaluate({"extra": extra})
                ]
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the environment."""
    place = tmp_path_factory.mktemp("default")
    venv.create(place, symlinks=True)
    site = next(place.glob("lib/python*/site-packages"))
    for name in {"satchel", *brought_by(PROJECT["dependencies"])}:
        for file in distribution(name).files or ():
            link = site / file.parts[0]
            if file.parts[0] != ".." and not link.exists():
                link.symlink_to(Path(str(distribution(name).locate_file(file.parts[0]))))
    return place / "bin/python"


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Callable[..., str]:
    def run_here(*words: str, code: int | None = 0, **environ: str) -> str:
        ended = subprocess.run(
            [str(python), *words],
            cwd=tmp_path,
            env={**environ_for(tmp_path, PATH="/usr/bin:/bin"), **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert code in (None, ended.returncode), ended.stderr
        said: str = ended.stdout + ended.stderr
        return said

    return run_here


@requirement("house:default-install")
def test_every_module_loads_without_the_extras(run: Callable[..., str]) -> None:
    missing = (
        "import importlib.util as u; print([n for n in ('ddgs', 'uv', 'lxml', 'openai') if u.find_spec(n)])"
    )
    assert run("-c", missing) == "[]\n"
    run("-c", EVERY_MODULE)


@requirement("house:default-install")
def test_the_demo_and_memory_with_vectors_need_no_extra(
    run: Callable[..., str], tmp_path: Path, minilm_home: Path
) -> None:
    made = run("-m", "satchel", "demo").split("5. Make a tool.")[1]
    assert "540 g of rice for 6 guests" in made or "Capabilities can't run here" in made
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home/models").symlink_to(minilm_home / "models")
    minilm = {"SATCHEL_MEMORY_EMBEDDER": "minilm"}
    run("-m", "satchel", "memory", "add", "There is a WiFi problem.", **minilm)
    run("-m", "satchel", "memory", "reindex", **minilm)
    found = json.loads(run("-m", "satchel", "memory", "search", "network configuration", "--json", **minilm))
    assert [hit["memory"]["content"] for hit in found] == ["There is a WiFi problem."]
    assert found[0]["signals"]["dense"] > 0.2


@requirement("house:default-install")
def test_the_pages_need_no_extra(python: Path, tmp_path: Path) -> None:
    server = subprocess.Popen(
        [str(python), "-m", "satchel", "serve", "--port", "0"],
        cwd=tmp_path,
        env=environ_for(tmp_path, PATH="/usr/bin:/bin"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        lines = (re.search(r"http://[\d.]+:\d+", line) for line in server.stderr)
        url = next(found[0] for found in lines if found)
        token = (tmp_path / "home/token").read_text().strip()
        asked = urllib.request.Request(f"{url}/memories", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert "<h1" in answer.read().decode()
    finally:
        server.terminate()
        server.communicate(timeout=60)


@requirement("house:default-install")
def test_what_an_extra_brings_is_missed_with_the_command_that_adds_it(
    run: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "a.pdf").touch()
    (tmp_path / "a.png").touch()
    said = run("-m", "satchel", "memory", "add-file", "a.pdf", "a.png", code=2)
    said += run("-m", "satchel", "doctor", code=None, SATCHEL_SANDBOX_BACKEND="e2b", E2B_API_KEY="k")
    said += run("-m", "satchel", "ask", "Hello", code=1, SATCHEL_MODEL=f"gguf:{sys.executable}")
    page = run("-c", A_PAGE)
    assert page.startswith("[1]\n")
    assert page.count('pip install "satchel[web]"') == 2
    named = set(re.findall(r'-m pip install "satchel\[(\w+)\]"', " ".join((said + page).split())))
    # The page of the log-in says nothing of passkeys that it can't take. Without `keyring`, tokens are in a file that only their owner can read. Who names a receiver of traces may have
    # done so for other programs.
    assert named == set(PROJECT["optional-dependencies"]) - {"keyring", "passkeys", "telemetry"}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in PROJECT["optional-dependencies"] if f"| `{name}` |" not in readme] == []
