"""A server with several people, as an administrator starts it: real processes, with user ids of their own as root."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.cli.conftest import serving
from tests.cli.programs import calls, environ_for, said_to, satchel, speaks
from tests.models.loopback import Answer, Asked, Loopback, as_json
from tests.server.browsers import HTML

SOURCES = Path(__file__).parents[2] / "src"
IS_ROOT = os.geteuid() == 0
_HOUSEHOLDS = itertools.count()
_UIDS_OF_ONE = 20
_UIDS_OF_WORKER = 500


def answers(asked: Asked) -> Answer:
    """What "RUN x" says is run, and what "CALL name [{...}]" says is called; everything else is seen."""
    if asked.body is None:
        return as_json({"data": []})  # the list of models
    said = said_to(asked)
    if said.startswith("RUN "):
        return calls(("bash", {"command": said.removeprefix("RUN ")}))
    if said.startswith("CALL "):
        _, name, inputs = said.partition("\n")[0].split(" ", 2)
        return calls(*((name, input) for input in json.loads(inputs)))
    return speaks("I see.")


@contextmanager
def reachable_python(folder: Path) -> Iterator[str]:
    """A Python that other users can start: this one may be in root's own home."""
    found = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/local/bin:/usr/bin:/bin")
    if found is None:
        pytest.skip("no Python that other users can start")
    subprocess.run([found, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = (folder / "venv/lib").glob("python3*/site-packages")
    (site / "here.pth").write_text(
        "\n".join([str(SOURCES), *(each for each in sys.path if each.endswith("site-packages"))])
    )
    yield str(folder / "venv/bin/python")


@dataclass
class Household:
    """People and their front door.

    Attributes:
        home: The administrator's SATCHEL_HOME.
        passwords: By name.
    """

    folder: Path
    python: str
    model: Loopback
    environ: Mapping[str, str]
    url: str = ""
    door: subprocess.Popen[str] | None = None
    passwords: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def run(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run `satchel` as the administrator."""
        command = partial(satchel, self.folder, *arguments, python=self.python)
        ran = anyio.run(partial(command, stdin=stdin, cwd=Path("/"), environ=self.environ))
        assert ran.code == code, ran.err
        return ran.out if not code else ran.err

    def add(self, name: str, *options: str) -> None:
        self.passwords[name] = f"password of {name}"
        self.run("user", "add", name, *options, stdin=self.passwords[name])

    def start(self, *, before: str = "", **more: str) -> None:
        """Start the front door; `before` is Python that its process runs first."""
        program = f"{before}\nimport runpy; runpy.run_module('satchel', run_name='__main__', alter_sys=True)"
        self.door = subprocess.Popen(
            [self.python, *(("-c", program) if before else ("-m", "satchel")), "serve", "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**self.environ, **more},
        )
        assert self.door.stderr is not None
        found = re.search(r"listens at (http://[^,]+), for", line := self.door.stderr.readline())
        assert found, line
        self.url = found[1]

    def end(self, *, hard: bool = False) -> None:
        """End the front door."""
        assert self.door is not None
        assert self.door.stderr is not None
        if hard:
            self.door.kill()
        else:
            self.door.terminate()
        self.door.wait(120)
        self.door.stderr.close()

    @contextmanager
    def program(self, name: str, **headers: str) -> Iterator[httpx2.Client]:
        """A program with a new token of a person."""
        token = self.run("user", "token", name).strip()
        with self.client(authorization=f"Bearer {token}", **headers) as client:
            yield client

    @contextmanager
    def client(self, **headers: str) -> Iterator[httpx2.Client]:
        with httpx2.Client(
            base_url=self.url, headers=headers, timeout=240, trust_env=False, follow_redirects=False
        ) as client:
            yield client

    def log_in(self, client: httpx2.Client, name: str, password: str = "", **more: str) -> httpx2.Response:
        """Send the form of the log-in page, as a browser does."""
        fields = {"name": name, "password": password or self.passwords.get(name, ""), **more}
        return client.post("/login", data=fields, headers={"origin": self.url, "accept": HTML})

    def processes(self) -> list[int]:
        """The processes of people of this front door."""
        assert self.door is not None
        return [pid for original in children_of(self.door.pid) for pid in children_of(original)]


def children_of(pid: int) -> list[int]:
    """The processes that a process started, of those that run or haven't been asked for how they ended."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in children for child in each.read_text().split()]


@contextmanager
def household(script: Callable[[Asked], Answer] = answers, /, **more: Any) -> Iterator[Household]:
    """A home in a folder that other users may enter, with a scripted model; nobody is in it yet."""
    folder = Path(tempfile.mkdtemp(prefix="satchel-people-"))
    folder.chmod(0o755)
    try:
        with reachable_python(folder) as python, serving(script) as model:
            # User ids are the machine's: to remove a person ends whatever runs under theirs.
            first = (
                1_000_000 + os.getpid() * _UIDS_OF_WORKER + next(_HOUSEHOLDS) * _UIDS_OF_ONE % _UIDS_OF_WORKER
            )
            environ = {
                **environ_for(folder, model),
                "SATCHEL_AGENT_MODE": "bypass",
                "SATCHEL_SERVER_PEOPLE_FIRST_UID": str(first),
                **more,
            }
            environ.pop("PYTHONPATH", None)
            made = Household(folder, python, model, environ)
            try:
                yield made
            finally:
                if made.door is not None and made.door.poll() is None:
                    made.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
