"""Ends the worker, the server and whoever asked for a build with `kill -9`, at seeded moments of builds whose question
is answered while it is open, before the Builder looks again, and after the build was laid aside.

Every process is the real program. What a user sees of each build is checked when it has ended: it is active, asked
once, and its answer reached its own Builder, once, and no model besides.

    python -m tests.cli.kills 30
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from satchel.builder.queue import BuildQueue
from satchel.builder.worker import WORKER
from satchel.capabilities.catalogue import Catalogue
from satchel.sandbox.detached import is_working
from satchel.sessions import SessionStore
from tests.builder.test_killed import check, opened
from tests.builder.world import CASES, GREET, SCHEMA
from tests.cli.conftest import serving
from tests.cli.programs import calls, satchel, speaks, start
from tests.forking import Program
from tests.models.loopback import Answer, Asked, Loopback, as_json

SEED = 20261128
VICTIMS: Final = ("worker", "server", "asker")
TIMES: Final = ("open", "early", "late")
MOMENTS: Final = ("asked", "question", "answered")
"""What has happened when the kill is due; up to a second later it comes."""
_LIMIT_S: Final = 300
_LOOK_S: Final = 0.05
_CONFIG: Final = (
    '[background]\nmodels = "off"\n[builder]\nquestion_wait_s = 2\n[sandbox]\nallow_unsafe = true\n'
)


@dataclass(kw_only=True)
class Round:
    """One build and one kill.

    Attributes:
        answered: When the question is answered: "open" while it is asked and after the kill if that is sooner, "early"
            as soon as it is there, "late" when the build was laid aside.
        moment: After what the kill comes, and `after_s` seconds later.
        met: What the victim was doing: the build's state when it was killed.
    """

    number: int
    victim: str
    answered: str
    moment: str
    after_s: float
    met: str = ""
    outcome: str = ""
    starts: int = 0

    @property
    def name(self) -> str:
        return f"greet_{self.number}"

    @property
    def word(self) -> str:
        return f"Servus{self.number}x"


def rounds(kills: int, seed: int = SEED) -> Iterator[Round]:
    """Each victim with each time of the answer in turn; what comes when is drawn."""
    chance = random.Random(seed)
    for number in range(kills):
        yield Round(
            number=number,
            victim=VICTIMS[number % 3],
            answered=TIMES[(number + number // 3) % 3],
            moment=chance.choice(MOMENTS),
            after_s=chance.uniform(0.0, 1.0),
        )


def kill_all(folder: Path, kills: int, tell: Callable[[str], None]) -> Sequence[Round]:
    """Run the rounds one after the other in one home, and check each build at its end."""
    home = folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(_CONFIG)
    done = []
    with serving(_answer) as endpoint, closing(_Server(folder, endpoint)) as server:
        try:
            for each in rounds(kills):
                _Play(folder, endpoint, server, each).run()
                anyio.run(_check, home, each)
                words = [a for a in endpoint.asked if each.word in json.dumps(a.body)]
                assert words, f"{each}: the answer never came"
                assert all(_builder_of(a) == each.name for a in words), f"{each}: the answer went astray"
                tell(
                    f"{each.number:2}  {each.victim:6}  answered {each.answered:5}  killed after {each.moment:8} + "
                    f"{each.after_s:.2f} s ({each.met or 'it was over'})  {each.outcome}"
                )
                done.append(each)
        finally:
            _end_worker(home)
    return done


class _Server:
    """`satchel serve`, started again whenever it was killed."""

    def __init__(self, folder: Path, endpoint: Loopback) -> None:
        self._folder, self._endpoint = folder, endpoint
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        self._process = start(
            self._folder,
            "serve",
            "--port",
            str(self.port),
            server=self._endpoint,
        )
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self._process.poll() is None, "the server has ended"
            time.sleep(_LOOK_S)

    def close(self) -> None:
        self._process.kill()
        self._process.__exit__()

    def ask(self, text: str) -> None:
        """Have it said in a new conversation, and read what comes until the connection ends."""
        token = (self._folder / "home" / "token").read_text().strip()
        head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = json.dumps({"message": text, "interactive": True}).encode()
        url = f"http://127.0.0.1:{self.port}/api/chat"
        with (
            suppress(OSError, ValueError),
            urllib.request.urlopen(urllib.request.Request(url, body, head), timeout=_LIMIT_S) as answer,
        ):
            for _ in answer:
                pass


@dataclass(kw_only=True)
class _State:
    """What the database says of a build."""

    status: str = ""
    kinds: Sequence[str] = ()
    attempts: int = 0
    is_laid_aside: bool = False

    def has(self, moment: str) -> bool:
        return bool(self.status) if moment == "asked" else moment.removesuffix("ed") in self.kinds


class _Play:
    def __init__(self, folder: Path, endpoint: Loopback, server: _Server, each: Round) -> None:
        self._folder, self._endpoint, self._server, self._round = folder, endpoint, server, each
        self._home = folder / "home"
        self._asker: Program | None = None
        self._threads: list[threading.Thread] = []
        self._is_killed = False

    def run(self) -> None:
        each = self._round
        self._ask()
        asked_s = due_s = 0.0
        until_s = time.monotonic() + _LIMIT_S
        is_answered = False
        while True:
            now, state = time.monotonic(), self._look()
            assert now < until_s, f"{each} does not end: {state}"
            if not due_s and state.has(each.moment):
                due_s = now + each.after_s
            if due_s and now >= due_s and not self._is_killed:
                self._kill(state)
            # Whoever asked was killed before the request was stored: the user asks again.
            asked_s = asked_s or now
            if self._is_killed and not state.status and now - asked_s > 10:
                asked_s = now
                self._ask()
            if not is_answered and self._is_due(state):
                is_answered = True
                self._in_thread(self._reply)
            if state.status in ("active", "proposed", "failed"):
                break
            time.sleep(_LOOK_S)
        each.outcome, each.starts = state.status, state.attempts
        if self._asker is not None:
            with self._asker:
                code = self._asker.wait(_LIMIT_S)
            # A server that was killed ends the conversations in it, not this one.
            assert code in (0, -signal.SIGKILL), f"{each}: whoever asked ended with {code}"
        for thread in self._threads:
            thread.join(_LIMIT_S)

    def _ask(self) -> None:
        text = f"Make {self._round.name}."
        if self._round.victim == "server":
            self._in_thread(partial(self._server.ask, text))
        else:
            if self._asker is not None:  # it was killed
                self._asker.__exit__()
            self._asker = start(
                self._folder,
                "ask",
                text,
                server=self._endpoint,
            )

    def _is_due(self, state: _State) -> bool:
        match self._round.answered:
            case "early":
                return "question" in state.kinds
            case "late":
                return state.is_laid_aside
            case _:
                waits = self._round.moment != "answered" and not self._is_killed
                return "question" in state.kinds and not waits

    def _reply(self) -> None:
        """From another process, as somebody at another terminal."""
        run = partial(satchel, self._folder, server=self._endpoint)
        ran = anyio.run(run, "capability", "answer", self._round.name, self._round.word)
        assert ran.code == 0, ran.err

    def _kill(self, state: _State) -> None:
        each = self._round
        if each.victim == "worker":
            # One that is just starting has no lock yet; it is killed when it has.
            if not state.status or state.status in ("active", "failed"):
                self._is_killed = True
            elif is_working(self._home, WORKER):
                with suppress(ProcessLookupError, ValueError):
                    os.kill(int((self._home / "locks" / WORKER).read_text()), signal.SIGKILL)
                    each.met, self._is_killed = _met(state), True
            return
        self._is_killed, each.met = True, _met(state)
        if each.victim == "server":
            self._server.close()
            self._server.start()
        else:
            assert self._asker is not None
            self._asker.kill()

    def _look(self) -> _State:
        path = self._home / "satchel.db"
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
        ):
            row = db.execute(
                "SELECT id, status, attempts FROM builds WHERE name = ?", (self._round.name,)
            ).fetchone()
            if row is not None:
                told = db.execute(
                    "SELECT type, id FROM build_messages WHERE build_id = ? ORDER BY number", (row[0],)
                ).fetchall()
                return _State(
                    status=row[1],
                    attempts=row[2],
                    kinds=[kind for kind, _ in told],
                    is_laid_aside=any(id.startswith("waits:") for _, id in told),
                )
        return _State()

    def _in_thread(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)


def _met(state: _State) -> str:
    told = state.kinds[-1] if state.kinds else "nothing"
    return f"{state.status}, last: {told}" if state.status not in ("active", "failed") else ""


def _end_worker(home: Path) -> None:
    while is_working(home, WORKER):
        with suppress(ProcessLookupError, ValueError):
            os.kill(int((home / "locks" / WORKER).read_text()), signal.SIGTERM)
        time.sleep(_LOOK_S)


def _builder_of(asked: Asked) -> str:
    """The capability that the model of a request builds; "" if it is no Builder's."""
    system, *_ = asked.body["messages"]
    found = re.search(r"Build the capability `(\w+)`", json.dumps(asked.body))
    return found[1] if found and "You are the Builder" in str(system["content"]) else ""


def _answer(asked: Asked) -> Answer:
    """The model of the conversation, and that of the Builder, which goes on from what its conversation says."""
    if asked.path.endswith("/models"):
        return as_json({"data": [{"id": "m-1"}]})
    messages = asked.body["messages"]
    last, number = messages[-1], 100 * len(messages)
    if not _builder_of(asked):
        wanted = re.match(r"Make (\w+)\.", _text(last)) if last["role"] == "user" else None
        if wanted is None:
            return speaks("I'm having it built." if last["role"] == "tool" else "It is there.")
        about = {"name": wanted[1], "description": "Greet a city.", "distinct": True}
        return calls(("request_capability", about), start=number)
    results = [_text(message) for message in messages if message["role"] == "tool"]
    run_it = ("run_code", {"code": 'from main import run; run({"city": "Austin"})'})
    progress = ("report_progress", {"text": "I begin."})
    match sum(message["role"] == "assistant" for message in messages):
        case 0:
            return calls(progress, ("write_file", {"path": "main.py", "content": GREET}), start=number)
        case 1:
            return calls(("ask_user", {"question": "Which greeting?"}), start=number)
        case 2:
            return calls(
                ("write_file", {"path": "tests/cases.jsonl", "content": CASES}), run_it, start=number
            )
        case rounds if rounds > 20:
            return speaks("Cannot build: this goes on for ever.")
        case _ if results and results[-1].startswith("Refused"):
            return calls(run_it, start=number)
        case _:
            about = {"description": "Greet a city by its name.", "input_schema": SCHEMA}
            return calls(("register_capability", about), start=number)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


async def _check(home: Path, each: Round) -> None:
    async def use(queue: BuildQueue, catalogue: Catalogue, sessions: SessionStore) -> None:
        (build,) = await queue.of_capability((await catalogue.get(each.name)).id)
        assert build.status == "active", f"{each}: {build.outcome}"
        await check(queue, catalogue, sessions, build, answer=each.word)

    await opened(home, use)


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with tempfile.TemporaryDirectory() as folder:
        done = kill_all(Path(folder), kills, partial(print, flush=True))
    print(f"{sum(bool(each.met) for each in done)} of {len(done)} met a build that was under way.")


if __name__ == "__main__":
    main()
