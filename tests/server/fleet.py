"""Fifty people chat at once at two front doors behind a balancer, while a process is killed every five seconds.

All is real: two machines (process namespaces, where the system allows), each with a home, a front door that its
supervisor starts again, people's processes with user ids of their own and their workers; a command line; a balancer;
and a PostgreSQL server, which is restarted once. Only the model is scripted. Four of five people are kept at one door
as long as it answers; of every fifth one, each request goes to the other door.

In the end, what each person was told is compared with the rows: what was acknowledged is there once, in its place, with
the answer that was sent; what was refused or cut off is there once at most; nobody has a word of somebody else's, nor
did the model see any; and `satchel doctor` finds nothing in any home. It has to run as root.

    python -m tests.server.fleet [--people 50] [--seconds 180] [--every 5] [--seed 22]
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import random
import re
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio
import httpx2
import psycopg
from anyio.from_thread import start_blocking_portal

from satchel.config import Settings, load
from satchel.runtime.people import Person
from satchel.runtime.person_homes import add_person, environ_of, folder_of, people_of, run_for
from tests.cli.conftest import serving
from tests.cli.programs import said_to, speaks
from tests.models.loopback import Answer, Asked, as_json
from tests.postgresql import _programs
from tests.server.household import children_of, reachable_python
from tests.server.world import events_in

WORD: Final = re.compile(r"[a-z]\d\d\dm\d{5}")
"""In each message: whose it is, and which."""
_ASKED: Final = re.compile(rf"^The word ({WORD.pattern}) is", re.MULTILINE)
"""Not in what memory adds, which quotes."""
_WORDS: Final = [
    "heron",
    "owl",
    "kestrel",
    "wren",
    "gate",
    "bridge",
    "garden",
    "lamp",
    "river",
    "stone",
    "bread",
    "clock",
    "train",
    "letter",
    "harbour",
    "hill",
]
_PSS: Final = re.compile(r"^Pss: +(\d+) kB", re.MULTILINE)
_CONVERSATIONS: Final = 2
_THINKS_S: Final = (1.0, 4.0)
_SHARE: Final = 5
"""Of every fifth person, each request goes to another door."""
_LIMIT_S: Final = 150.0
_LOOK_S: Final = 0.2
_AT_ONCE: Final = 4
_CONFIG: Final = """database = "{url}"
model = "scripted:m"
[providers.scripted]
kind = "openai"
base_url = "{model}/v1"
[background]
models = "off"
titles = "off"
[memory]
embedder = "none"
worker_idle_s = 20
[server]
people_at_once = {people}
requests_per_s = 10000
"""


@dataclass(kw_only=True)
class Said:
    """One message.

    Attributes:
        session, turn: Where it was acknowledged; empty, or 0, if it wasn't.
        answer: As it was sent; None if its end didn't come.
    """

    word: str
    text: str
    began_s: float
    session: str = ""
    turn: int = 0
    answer: str | None = None
    waited_s: float = 0.0

    @property
    def is_acknowledged(self) -> bool:
        return bool(self.session) or self.answer is not None


@dataclass(kw_only=True)
class Machine:
    """A home with a front door, which a shell starts again whenever it ends."""

    home: Path
    port: int
    python: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> Settings:
        return load({"SATCHEL_HOME": str(self.home), "PATH": os.environ["PATH"]}, cwd=self.home.parent)

    def start(self, *, apart: bool) -> None:
        door = f'"{self.python}" -m satchel serve --port {self.port} 2>>"{self.home.parent}/door.log"'
        command = ["sh", "-c", f"trap 'exit 0' TERM; while true; do {door} & wait $!; sleep 0.5; done"]
        self.process = subprocess.Popen(
            [*(("unshare", "--pid", "--fork", "--mount-proc", "--kill-child") if apart else ()), *command],
            env={"PATH": os.environ["PATH"], "HOME": str(self.home.parent), "SATCHEL_HOME": str(self.home)},
            cwd="/",
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the door and everything that it started."""
        if self.process is not None:
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def processes(self) -> dict[int, str]:
        """What runs on the machine, by what it is: supervisor, door, original, person or worker."""
        assert self.process is not None
        found: dict[int, str] = {}
        waiting = [(self.process.pid, "")]
        while waiting:
            pid, parent = waiting.pop()
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                kind = "person" if parent == "original" else "supervisor"
                for word, of_it in (
                    (b"worker", "worker"),
                    (b"serve", "door"),
                    (b"satchel.sandbox.original", "original"),
                ):
                    if word in command and kind == "supervisor":
                        kind = of_it
                found[pid] = kind
                waiting += [(child, kind) for child in children_of(pid)]
        return found

    def is_up(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


class Postgres:
    """A server that asks for passwords."""

    def __init__(self, folder: Path) -> None:
        programs = _programs()
        assert programs is not None, "PostgreSQL isn't installed: sudo apt-get install postgresql"
        self._programs, self._folder = programs, folder / "postgresql"
        self._user = pwd.getpwnam("nobody").pw_uid
        self._folder.mkdir()
        os.chown(self._folder, self._user, -1)
        self.port, self.password = free_port(), secrets.token_hex(16)
        (folder / "password").write_text(self.password)
        (folder / "password").chmod(0o644)
        self._run(
            "initdb", "-U", "satchel", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}", "-E", "UTF8"
        )
        self.control("start")
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE satchel")

    def control(self, what: str) -> None:
        # Only processes die here, so nothing has to reach the disk; of 50 databases, that takes a slow one minutes.
        # So it stops as if killed, too, in the midst of everything: an orderly end would wait for the disk as well.
        options = f"-p {self.port} -c unix_socket_directories= -c max_connections=2000 -c fsync=off"
        self._run(
            "pg_ctl", "-w", "-t", "300", "-m", "immediate", "-o", options, "-l", self._folder / "log", what
        )

    def url(self, database: str) -> str:
        return f"postgresql://satchel:{self.password}@127.0.0.1:{self.port}/{database}"

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._programs / program), "-D", str(self._folder / "data"), *map(str, arguments)]
        subprocess.run(command, check=True, user=self._user, cwd="/", stdout=subprocess.DEVNULL)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Balancer:
    """Gives each request to a door that answers: to the same one for a token, or of some tokens to each in turn."""

    def __init__(self, ports: list[int], wandering: set[str]) -> None:
        self._ports, self._wandering = ports, wandering
        self._next = 0
        self.moved = 0
        self.port = free_port()

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self.port, backlog=512)
        task_status.started()
        await listener.serve(self._handle)

    async def _handle(self, client: anyio.abc.SocketStream) -> None:
        async with client:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, OSError, TimeoutError):
                head = b""
                while b"\r\n\r\n" not in head:
                    head += await client.receive()
                async with await self._door(head) as door:
                    await door.send(head)
                    async with anyio.create_task_group() as group:

                        async def pass_on(
                            source: anyio.abc.SocketStream, target: anyio.abc.SocketStream
                        ) -> None:
                            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, OSError):
                                while True:
                                    await target.send(await source.receive())
                            group.cancel_scope.cancel()  # one side has left; requests are one a connection

                        group.start_soon(pass_on, client, door)
                        group.start_soon(pass_on, door, client)

    async def _door(self, head: bytes) -> anyio.abc.SocketStream:
        found = re.search(rb"(?i)authorization: bearer (\S+)", head)
        token = found[1].decode() if found else ""
        self._next += 1
        first = self._next if token in self._wandering else sha256(token.encode()).digest()[0]
        with anyio.fail_after(_LIMIT_S):
            while True:
                for step in range(len(self._ports)):
                    with suppress(OSError):
                        port = self._ports[(first + step) % len(self._ports)]
                        door = await anyio.connect_tcp("127.0.0.1", port)
                        self.moved += step
                        return door
                await anyio.sleep(_LOOK_S)  # until one is up again


@dataclass
class User:
    """Somebody who chats, and what she was told."""

    name: str
    token: str
    chance: random.Random
    said: list[Said] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)

    def next_message(self, prefix: str = "") -> Said:
        word = f"{prefix or self.name}m{len(self.said):05}"
        words = " ".join(self.chance.choices(_WORDS, k=6))
        one = Said(word=word, text=f"The word {word} is for {words}.", began_s=time.monotonic())
        self.said.append(one)
        return one

    def chat(self, url: str, end: threading.Event) -> None:
        headers = {"authorization": f"Bearer {self.token}", "connection": "close"}
        while not end.is_set():
            one = self.next_message()
            full = len(self.sessions) == _CONVERSATIONS
            session = self.chance.choice(self.sessions) if full else ""
            try:
                with httpx2.Client(
                    base_url=url, headers=headers, timeout=_LIMIT_S, trust_env=False
                ) as client:
                    self._send(client, one, session)
            except httpx2.HTTPError as error:
                self.problems[
                    f"{type(error).__name__} {'after' if one.is_acknowledged else 'before'} start"
                ] += 1
            one.waited_s = time.monotonic() - one.began_s
            time.sleep(self.chance.uniform(*_THINKS_S))

    def _send(self, client: httpx2.Client, one: Said, session: str) -> None:
        body = {"message": one.text, "session_id": session} if session else {"message": one.text}
        with client.stream("POST", "/api/chat", json=body) as answer:
            if answer.status_code != 200:
                why = re.sub(r"\d+", "…", answer.read().decode(errors="replace"))[-120:]
                self.problems[f"status {answer.status_code}: {why}"] += 1
                return
            for event in events_in(answer.iter_lines()):
                if event.name == "start":
                    one.session, one.turn = event.data["sessionId"], event.data["turn"]
                    if one.session not in self.sessions:
                        self.sessions.append(one.session)
                elif event.name == "response" and event.data["status"] == "done":
                    one.answer = event.data["text"]
                elif event.name in ("response", "error"):
                    self.problems[f"{event.name} {event.data.get('status')}"] += 1


class Model:
    """Says the word of the message again, and notes who saw whose words."""

    def __init__(self) -> None:
        self.mixed: list[str] = []

    def __call__(self, asked: Asked) -> Answer:
        if asked.body is None:
            return as_json({"data": [{"id": "m"}]})
        words = {word[1:4] for word in WORD.findall(asked.raw.decode(errors="replace"))}
        if len(words) > 1:
            self.mixed.append(" ".join(sorted(words)))
        # A turn that was cut off left its message, which stands before the next one in the same text.
        return speaks(f"Noted: {' '.join(_ASKED.findall(said_to(asked))[-1:])}.")


class CommandLine:
    """One person who asks from a terminal on one machine, again and again."""

    def __init__(self, machine: Machine, person: Person, user: User) -> None:
        self._machine, self._person, self._user = machine, person, user
        self.process: subprocess.Popen[str] | None = None

    def run(self, end: threading.Event) -> None:
        settings, uid = self._machine.settings, self._person.uid
        while not end.is_set():
            one = self._user.next_message(self._user.name.replace("u", "c"))
            self.process = subprocess.Popen(
                [self._machine.python, "-P", "-s", "-m", "satchel", "ask", one.text],
                cwd=folder_of(settings.home, self._person),
                env=environ_of(settings, self._person),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                user=uid,
                group=uid,
                extra_groups=(),
            )
            try:
                out, _ = self.process.communicate(timeout=_LIMIT_S)
            except subprocess.TimeoutExpired:  # where the machine is busy with starting everybody
                self.process.kill()
                out, _ = self.process.communicate()
            if not self.process.returncode:
                one.answer = out.strip()
            else:
                self._user.problems[f"command ended with {self.process.returncode}"] += 1
            time.sleep(1)


@dataclass
class Fleet:
    """All of it."""

    folder: Path
    postgres: Postgres
    machines: list[Machine]
    users: list[User]
    command_line: CommandLine
    model: Model
    killed: Counter[str] = field(default_factory=Counter)
    began: int = 0

    def kill(self, chance: random.Random, number: int) -> None:
        """Kill a process, of each kind in its turn; where there is none, a person's."""
        running = [(pid, kind) for each in self.machines for pid, kind in each.processes().items()]
        asker = self.command_line.process
        if asker is not None and asker.poll() is None:
            running.append((asker.pid, "command line"))
        order = ("person", "worker", "command line") * 5 + ("original", "door")
        for kind in (order[number % len(order)], "person"):
            if pids := [pid for pid, each in running if each == kind]:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(pids), signal.SIGKILL)
                    self.killed[kind] += 1
                return


@contextmanager
def fleet(folder: Path, count: int, seed: int, *, apart: bool) -> Iterator[Fleet]:
    """Everything started, with so many people."""
    with ExitStack() as stack:
        model = Model()
        endpoint = stack.enter_context(serving(model))
        postgres = Postgres(folder)
        stack.callback(postgres.control, "stop")
        machines = []
        for name in ("attic", "cellar"):
            home = folder / name / "home"
            home.mkdir(parents=True)
            config = _CONFIG.format(url=postgres.url("satchel"), model=endpoint.url, people=count)
            (home / "config.toml").write_text(config)
            machines.append(Machine(home=home, port=free_port(), python=sys.executable))
        first, *others = machines
        (first.home / "forgotten.key").write_bytes(secrets.token_bytes(32))
        for other in others:
            shutil.copy(first.home / "forgotten.key", other.home)
        users = []
        for number in range(count):
            name = f"u{number:03}"
            where = machines[number % len(machines)].settings
            add_person(where, name, f"password of {name}", day_usd=None, disk_mb=None, own_keys=False)
            token = people_of(where).make_token(name)
            users.append(User(name, token, random.Random(f"{seed} {name}")))
        for machine in machines:
            machine.start(apart=apart)
            stack.callback(machine.end)
        wait(lambda: all(each.is_up() for each in machines), "a door doesn't start")
        person = people_of(first.settings).get(users[0].name)
        yield Fleet(folder, postgres, machines, users, CommandLine(first, person, users[0]), model)


def wait(what: Any, why: str, limit_s: float = 300) -> None:
    until_s = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < until_s, why
        time.sleep(_LOOK_S)


def run(made: Fleet, *, seconds: float, every_s: float, seed: int) -> str:
    """Let all of it happen. Returns the load of the machine, from the beginning to the end."""
    chance = random.Random(seed)
    wandering = {user.token for user in made.users[::_SHARE]}
    balancer = Balancer([each.port for each in made.machines], wandering)
    loads = []
    with start_blocking_portal() as portal, ThreadPoolExecutor(len(made.users) + 1) as pool:
        serving_it, _ = portal.start_task(balancer.serve)
        end = threading.Event()
        url = f"http://127.0.0.1:{balancer.port}"
        chats = [pool.submit(user.chat, url, end) for user in made.users[1:]]
        chats.append(pool.submit(made.command_line.run, end))
        try:
            # The kills begin when everybody's process has started.
            wait(
                lambda: all(any(one.answer for one in user.said) for user in made.users), "not all chat", 600
            )
            made.began = sum(len(user.said) for user in made.users)
            began_s = time.monotonic()
            until_s = began_s + seconds
            restart = threading.Thread(target=made.postgres.control, args=("restart",))
            number = 0
            while (now_s := time.monotonic()) < until_s:
                if now_s >= began_s + (number + 1) * every_s:
                    made.kill(chance, number)
                    number += 1
                    loads.append(os.getloadavg()[0])
                if now_s >= began_s + seconds / 2 and restart.ident is None:
                    restart.start()
                time.sleep(_LOOK_S)
        finally:
            end.set()
        restart.join()
        for each in chats:
            each.result()
        serving_it.cancel()
    print(f"The balancer gave {balancer.moved} requests to the other door, because one was down.")
    return f"{min(loads):.0f} to {max(loads):.0f}"


def cost(machine: Machine) -> str:
    """What the processes of people took until now that have done nothing but start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([machine.python, "-c", "pass"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    bare_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    took_s, memory_mb = [], 0.0
    for pid, kind in machine.processes().items():
        if kind == "person":
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            took_s.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        if kind != "supervisor" and (found := _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())):
            memory_mb += int(found[1]) / 1024
    return (
        f"The start of a person's process took {median(took_s):.2f} s of CPU, python -c pass {bare_s:.3f} s. "
        f"A door with {len(took_s)} people has {memory_mb:.0f} MB (PSS)."
    )


def settle(made: Fleet, machines: Sequence[Machine]) -> None:
    """Have everybody's process started, which takes in what one before it left behind when it was killed."""
    for machine in machines:
        wait(machine.is_up, "a door doesn't come up again")

        def visit(user: User, machine: Machine) -> None:
            headers = {"authorization": f"Bearer {user.token}"}
            for _ in range(20):
                with suppress(httpx2.HTTPError):
                    if httpx2.get(
                        f"http://127.0.0.1:{machine.port}/api/sessions", headers=headers, timeout=_LIMIT_S
                    ).is_success:
                        return
                time.sleep(1)
            raise AssertionError(f"{user.name} isn't served in {machine.home}")

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(partial(visit, machine=machine), made.users))


def compare(made: Fleet) -> list[str]:
    """What the rows of each person differ in from what the person was told."""
    found = list(made.model.mixed)
    for user in made.users:
        with psycopg.connect(made.postgres.url(f"satchel_{user.name}")) as rows:
            lines = [
                (session, json.loads(line))
                for session, line in rows.execute(
                    "SELECT session_id, line FROM conversation_lines ORDER BY session_id, seq"
                )
            ]
            remembered = Counter(
                word
                for (content,) in rows.execute(
                    "SELECT content FROM memories WHERE speaker = 'user' AND kind = 'episode'"
                )
                for word in WORD.findall(content)
            )
            everything = "".join(json.dumps(line) for _, line in lines) + " ".join(remembered)
        foreign = {word for word in WORD.findall(everything) if word[1:4] != user.name[1:]}
        found += [f"{user.name} has {word}" for word in sorted(foreign)]
        asked: dict[str, list[tuple[str, int]]] = {}
        answers: dict[tuple[str, int], list[str]] = {}
        for session, line in lines:
            if line["type"] == "turn_start":
                for word in WORD.findall(json.dumps(line["message"])):
                    asked.setdefault(word, []).append((session, line["turn"]))
            elif line["type"] == "final" and line["status"] == "done":
                answers.setdefault((session, line["turn"]), []).append(line["text"])
        for one in user.said:
            places = asked.get(one.word, [])
            where = f"{one.word} in {one.session or 'no'} turn {one.turn}"
            if len(places) > 1:
                found.append(f"{where}: doubled in {places}")
            if one.is_acknowledged and not places:
                found.append(f"{where}: lost")
            if one.session and places and places != [(one.session, one.turn)]:
                found.append(f"{where}: is in {places}")
            if one.answer is not None and places and answers.get(places[0]) != [one.answer]:
                found.append(f"{where}: {one.answer!r} was answered, {answers.get(places[0])} is kept")
            if one.answer is not None and one.word not in one.answer:
                found.append(f"{where}: got the answer {one.answer!r}")
            if one.is_acknowledged and remembered[one.word] != 1:
                found.append(f"{where}: remembered {remembered[one.word]} times")
    return found


def doctors(made: Fleet) -> list[str]:
    """What `satchel doctor` finds in the homes of people, on the machine where each was added."""

    def examined(number: int) -> list[str]:
        settings = made.machines[number % len(made.machines)].settings
        person = people_of(settings).get(made.users[number].name)
        _, out, said = run_for(settings, person, "satchel", "doctor", "--json")
        try:
            return [
                f"{person.name}: {each['part']}: {each['detail']}"
                for each in json.loads(out)
                if _is_ill(each)
            ]
        except (ValueError, KeyError):
            return [f"{person.name}: {said[-300:]}{out[:300]}"]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [each for some in pool.map(examined, range(len(made.users))) for each in some]


def _is_ill(check: dict[str, str]) -> bool:
    # An old SQLite and searching without an embedder are so by choice.
    return check["state"] != "ok" and check["part"] != "embedder" and "SQLite" not in check["text"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--every", type=float, default=5)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    assert os.geteuid() == 0, "It has to run as root, which gives each person a user id."
    if given.folder is None:
        folder = Path(tempfile.mkdtemp(prefix="satchel-fleet-"))
        folder.chmod(0o755)
        try:
            with reachable_python(folder) as python:
                again = [python, "-m", "tests.server.fleet", *sys.argv[1:], "--folder", str(folder)]
                sys.exit(subprocess.run(again, check=False).returncode)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    apart = not subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], check=False).returncode
    say = partial(print, flush=True)
    with fleet(given.folder, given.people, given.seed, apart=apart) as made:
        say(f"{given.people} people at two doors, {'in namespaces' if apart else 'in one namespace'}.")
        settle(made, made.machines[:1])
        say(cost(made.machines[0]))
        if not given.seconds:
            return
        load = run(made, seconds=given.seconds, every_s=given.every, seed=given.seed)
        said = [one for user in made.users for one in user.said]
        acknowledged = [one for one in said if one.is_acknowledged]
        answered = [one for one in said if one.answer is not None]
        waits = sorted(one.waited_s for one in answered if one.waited_s)
        say(f"{sum(made.killed.values())} killed: {dict(made.killed)}. Load {load}.")
        say(
            f"{len(said)} sent, {made.began} of them before the first kill; {len(acknowledged)} acknowledged, "
            f"{len(answered)} answered in the same stream."
        )
        if waits:
            say(
                f"Half within {waits[len(waits) // 2]:.1f} s, 95 of 100 within {waits[len(waits) * 95 // 100]:.1f} s."
            )
        for what, times in sorted(sum((user.problems for user in made.users), Counter()).items()):
            say(f"  {times} times: {what}")
        settle(made, made.machines)
        wrong = compare(made)
        for each in wrong:
            say(f"! {each}")
        ill = doctors(made)
        for each in ill:
            say(f"! doctor: {each}")
        say(f"{len(wrong)} differences from the rows; doctor found {len(ill)}.")
    sys.exit(bool(wrong or ill))


if __name__ == "__main__":
    main()
