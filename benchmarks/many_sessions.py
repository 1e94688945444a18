"""The duration of a turn without its model's time: sixty open sessions, together one turn a second, while a 77 MB log
is read. Before that, what the list of conversations costs a page with few and with many of them.

    python benchmarks/many_sessions.py [--turns 60] [--sessions 60] [--megabytes 77]

Each turn is one scripted answer after 50 ms and one exchange that is stored in memory, with a hashing embedder instead
of an embedding model. The reported time is from the message to the end of the turn, less those 50 ms. The baseline is
one session alone in the same run, before and after. While the sixty sessions run turns, a session with a large log is
resumed repeatedly, and its log is indexed once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from satchel.clock import SystemClock
from satchel.config import load
from satchel.events import Action, Assistant, Final, Observation, SessionStart, TurnEnd, TurnStart
from satchel.messages import Message, TextBlock, ToolUseBlock, Usage
from satchel.models import Reply, ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from satchel.runtime.session import Session
from satchel.sessions import SessionStore
from satchel.storage import Database

MODEL_S = 0.05
RESULT_CHARS = 30_000
BIG = "77aa"
FEW, MANY = 100, 2_000
VIEWS = 40


async def write_log(home: Path, megabytes: int) -> int:
    """Write the log of a session that read many files, and return its size in bytes."""
    line = "def handle(request): return router.dispatch(request, timeout=30)  # see the notes of 2024-03-08\n"
    text = (line * (RESULT_CHARS // len(line) + 1))[:RESULT_CHARS]
    usage = Usage(input_tokens=9000, output_tokens=90, cost_usd=0.01)
    store = SessionStore(home / "sessions", None, clock=SystemClock())
    async with await store.create("/w", session_id=BIG) as journal:
        await journal.append(
            [SessionStart(session_id=BIG, cwd="/w", provider="scripted", model="scripted", version="0")]
        )
        turn = 0
        while not journal.path.exists() or journal.path.stat().st_size < megabytes * 1_000_000:
            turn += 1
            call = ToolUseBlock(id=f"call_{turn}", name="file_read", input={"path": f"/w/module_{turn}.py"})
            said = Message(role="user", blocks=(TextBlock(text=f"What is in module {turn}?"),))
            answer = TextBlock(text=f"Module {turn} dispatches requests. " * 20)

            def reply(block: TextBlock | ToolUseBlock, *, round: int) -> Assistant:
                return Assistant(
                    turn=turn,  # noqa: B023 - called in this turn of the loop
                    round=round,
                    blocks=(block,),
                    stop_reason="tool_use" if round == 1 else "end_turn",
                    provider="scripted",
                    model="scripted",
                    usage=usage,
                )

            await journal.append(
                [
                    TurnStart(turn=turn, message=said),
                    reply(call, round=1),
                    Action(turn=turn, round=1, call_id=call.id, tool=call.name, input=call.input or {}),
                    Observation(turn=turn, round=1, call_id=call.id, tool=call.name, text=text),
                    reply(answer, round=2),
                    Final(turn=turn, text=answer.text, status="done"),
                    TurnEnd(turn=turn, status="done", rounds=2, usage=usage, duration_ms=1.0),
                ]
            )
        return journal.path.stat().st_size


async def listed(home: Path, sessions: int) -> dict[str, float]:
    """The CPU time, in ms, of what a page asks of the list of conversations: where nobody has looked yet, at first in a
    new process, afterwards, and when one conversation has grown.
    """
    began = SessionStore(home / "sessions", None, clock=SystemClock())
    for number in range(sessions):
        id = f"s{number:05}"
        async with await began.create(f"/w{number % 10}", session_id=id) as journal:
            said = Message(role="user", blocks=(TextBlock(text=f"What of {number}?"),))
            await journal.append(
                [
                    SessionStart(session_id=id, cwd="/w", provider="scripted", model="scripted", version="0"),
                    TurnStart(turn=1, message=said),
                    Final(turn=1, text="That.", status="done"),
                ]
            )

    async def view(store: SessionStore) -> float:
        before = time.process_time()
        part = await store.part(most=30)
        await store.spent_on("2026-01-01")
        assert part.total == sessions
        return (time.process_time() - before) * 1000

    async with Database.open(home / "satchel.db") as database:
        before = time.process_time()
        await SessionStore(home / "sessions", database, clock=SystemClock()).first_look()
        ever = (time.process_time() - before) * 1000
    firsts, again, grown = [], [], []
    for _ in range(VIEWS // 4):
        async with Database.open(home / "satchel.db") as database:
            store = SessionStore(home / "sessions", database, clock=SystemClock())
            firsts.append(await view(store))
            again += [await view(store) for _ in range(VIEWS)]
            async with await began.open("s00007") as journal:
                await journal.append([TurnStart(turn=2, message=Message(role="user", blocks=()))])
            grown.append(await view(store))
    return {
        "ever": round(ever, 1),
        "first": round(statistics.median(firsts), 2),
        "again": round(statistics.median(again), 2),
        "grown": round(statistics.median(grown), 2),
    }


async def measure_list(folder: Path) -> dict[str, object]:
    """Compare the list of few conversations with that of many."""
    few, many = [await listed(folder / str(count), count) for count in (FEW, MANY)]
    return {
        "what": f"CPU of the list on a page with {FEW} and with {MANY} conversations, in ms",
        "few": few,
        "many": many,
        "ratio": {name: round(many[name] / few[name], 2) for name in ("first", "again", "grown")},
        "aim": "1, within the noise of the machine",
    }


async def timed(session: Session, number: int) -> float:
    """The duration of one turn in ms, less the model's time."""
    began = time.perf_counter()
    turn = await session.run_turn(f"The number of today is {number}, and the word is {number * 7919 % 1000}.")
    assert turn.status == "done", turn
    return (time.perf_counter() - began - MODEL_S) * 1000


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)]


async def measure(home: Path, *, turns: int, sessions: int, megabytes: int) -> dict[str, object]:
    """Measure one session alone and all sessions, and compare them."""
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    work = home / "work"
    work.mkdir()
    settings = load(environ, cwd=work, home=home / "home", overrides={"memory.distill": "off"})
    size = await write_log(settings.home, megabytes)
    model = ScriptedModel(lambda _: Reply(text="Noted.", before=lambda: anyio.sleep(MODEL_S)))
    reads: dict[str, list[float]] = {}

    async def noted(what: str, job: Callable[[], Awaitable[object]]) -> None:
        began = time.perf_counter()
        await job()
        reads.setdefault(what, []).append(time.perf_counter() - began)

    async with Satchel.open(settings, model=model, embedder=HashingEmbedder()) as satchel:

        async def alone() -> list[float]:
            session = await satchel.session()
            for number in range(5):
                await timed(session, number)
            found = []
            for number in range(turns // 2):
                found.append(await timed(session, number))
                await anyio.sleep(0.1)
            await session.aclose()
            return found

        async def read_forever() -> None:
            async def resume() -> None:
                session = await satchel.session(BIG)
                await session.aclose()

            async def index() -> None:
                await satchel.sessions.list()

            await noted("list", index)
            while True:
                await noted("resume", resume)

        baseline = await alone()
        many = [await satchel.session() for _ in range(sessions)]
        for number, session in enumerate(many):
            await timed(session, number)
        loaded: list[float] = []

        async def turn(session: Session, number: int) -> None:
            loaded.append(await timed(session, number))

        async with anyio.create_task_group() as reading:
            reading.start_soon(read_forever)
            async with anyio.create_task_group() as group:
                for number in range(turns):
                    group.start_soon(turn, many[number % sessions], number)
                    await anyio.sleep(1)
            reading.cancel_scope.cancel()
        async with anyio.create_task_group() as group:
            for session in many:
                group.start_soon(session.aclose)
        baseline += await alone()
    ratio = p95(loaded) / p95(baseline)
    return {
        "what": "time from a message to the end of its turn, less the model's, in ms",
        "log_bytes": size,
        "sessions": sessions,
        "turns": len(loaded),
        "alone": {"p50": round(statistics.median(baseline), 1), "p95": round(p95(baseline), 1)},
        "together": {"p50": round(statistics.median(loaded), 1), "p95": round(p95(loaded), 1)},
        "reading_s": {what: [round(s, 2) for s in values] for what, values in reads.items()},
        "ratio_p95": round(ratio, 2),
        "aim": "at most 3 times one session alone",
    }


def main() -> None:
    """Run the benchmark and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--megabytes", type=int, default=77)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(anyio.run(measure_list, Path(folder) / "listed"), indent=2))

        async def run() -> dict[str, object]:
            return await measure(
                Path(folder),
                turns=arguments.turns,
                sessions=arguments.sessions,
                megabytes=arguments.megabytes,
            )

        print(json.dumps(anyio.run(run), indent=2))


if __name__ == "__main__":
    main()
