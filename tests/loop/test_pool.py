"""The tools' own threads."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread
import pytest

from satchel.errors import SatchelError
from satchel.loop import ToolPool
from satchel.models.scripted import Call, Reply
from satchel.tools.port import ToolContext, ToolResult
from tests.loop.world import World, tool
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


async def run_all(pool: ToolPool, *functions: Any) -> list[Any]:
    results: list[Any] = [None] * len(functions)

    async def run(position: int, function: Any) -> None:
        results[position] = await pool.run(function)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for position, function in enumerate(functions):
                group.start_soon(run, position, function)
    return results


@requirement("loop:calls:own-pool")
async def test_sixteen_functions_block_at_the_same_time() -> None:
    barrier = threading.Barrier(16, timeout=280)
    pool = ToolPool(workers=16)
    names = await run_all(pool, *[lambda: (barrier.wait(), threading.current_thread().name)[1]] * 16)
    assert names == ["satchel-tool"] * 16
    pool.close()


async def test_one_idle_thread_does_not_make_two_functions_wait_for_each_other() -> None:
    pool = ToolPool(workers=4)
    assert await pool.run(int, "7") == 7
    barrier = threading.Barrier(3, timeout=280)
    assert sorted(await run_all(pool, *[barrier.wait] * 3)) == [0, 1, 2]
    pool.close()


async def test_more_functions_than_threads_wait_their_turn() -> None:
    lock = threading.Lock()
    running = most = 0

    def work() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        event.wait(0.01)
        with lock:
            running -= 1
        return 1

    event = threading.Event()
    pool = ToolPool(workers=3)
    assert await run_all(pool, *[work] * 12) == [1] * 12
    assert most <= 3
    pool.close()


async def test_what_a_function_raises_comes_out_of_the_wait() -> None:
    pool = ToolPool(workers=1)
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.run(next, iter(()))
    with pytest.raises(SystemExit):
        await pool.run(sys.exit, 3)
    assert await pool.run(int, "7") == 7
    pool.close()


async def test_a_function_that_runs_while_the_pool_is_closed_returns_its_result() -> None:
    pool = ToolPool(workers=1)
    begun, hold = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        hold.wait(280)
        return 7

    async def close() -> None:
        await anyio.to_thread.run_sync(begun.wait, 280)
        pool.close()
        hold.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(close)
            assert await pool.run(work) == 7
    with pytest.raises(SatchelError, match="closed"):
        await pool.run(work)


async def test_context_variables_reach_the_thread() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("here")
    pool = ToolPool(workers=1)
    assert await pool.run(variable.get) == "here"
    pool.close()


async def test_a_function_that_hangs_is_abandoned_and_its_thread_replaced() -> None:
    pool = ToolPool(workers=1)
    hold, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        hold.wait(280)

    async with anyio.create_task_group() as group:
        group.start_soon(pool.run, hang)
        await anyio.to_thread.run_sync(begun.wait, 280)
        group.cancel_scope.cancel()
    with anyio.fail_after(60):
        assert await pool.run(int, "7") == 7
    hold.set()
    pool.close()


async def test_a_function_that_was_cancelled_while_it_waited_never_runs() -> None:
    pool = ToolPool(workers=1)
    hold, started = threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        started.set()
        hold.wait(60)

    async with anyio.create_task_group() as group:
        group.start_soon(pool.run, first)
        while not started.is_set():
            await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(0.01):
            await pool.run(ran.append, "second")
        hold.set()
    assert await pool.run(int, "7") == 7
    assert ran == []
    pool.close()


async def test_too_many_functions_that_hang_are_refused_with_what_to_do() -> None:
    pool = ToolPool(workers=64)
    hold = threading.Event()
    # A function that was cancelled before its thread began does not hang, so all of them have begun first.
    begun = threading.Barrier(65)

    def hang() -> None:
        begun.wait(280)
        hold.wait(280)

    async with anyio.create_task_group() as group:
        for _ in range(64):
            group.start_soon(pool.run, hang)
        await anyio.to_thread.run_sync(begun.wait, 280)
        group.cancel_scope.cancel()
    with pytest.raises(SatchelError, match="64 tool functions hang"):
        await pool.run(int, "7")
    hold.set()
    pool.close()


async def test_a_closed_pool_takes_no_more() -> None:
    pool = ToolPool()
    pool.close()
    pool.close()
    with pytest.raises(SatchelError, match="are closed"):
        await pool.run(int)


@requirement("loop:calls:eight")
async def test_eight_blocking_calls_of_a_round_are_all_in_flight_at_once() -> None:
    barrier = threading.Barrier(8, timeout=280)

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await context.blocking(barrier.wait)
        return ToolResult(text="ok")

    world = World([Reply(calls=[Call(name="block")] * 8), "Done."], tool("block", call))
    with anyio.fail_after(120):
        outcome = await world.run()
    assert [step.result for step in outcome.steps] == ["ok"] * 8


async def test_a_call_that_hangs_in_a_blocking_function_is_stopped_at_its_limit() -> None:
    hold = threading.Event()

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await context.blocking(hold.wait, 60)
        raise AssertionError

    world = World([Reply(calls=[Call(name="slow")]), "Done."], tool("slow", call, timeout_s=0.02))
    with anyio.fail_after(60):
        outcome = await world.run()
    assert outcome.steps[0].result == "Tool 'slow' was stopped after 0.02 s."
    hold.set()


def test_a_hung_function_does_not_keep_the_interpreter_from_exiting() -> None:
    program = """
import anyio, threading
from satchel.loop import ToolPool

async def main():
    begun = threading.Event()

    def hang():
        begun.set()
        threading.Event().wait()

    async with anyio.create_task_group() as group:
        group.start_soon(ToolPool().run, hang)
        await anyio.to_thread.run_sync(begun.wait)
        group.cancel_scope.cancel()

anyio.run(main)
print("over")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=280, check=True
    )
    assert ended.stdout == "over\n"
