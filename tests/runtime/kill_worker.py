"""Runs conversations in child processes until they are killed: one line in starts one, its pid and its events come out.

Forked from a process that has imported everything, so that a round costs milliseconds and not a start of Python.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import anyio

from satchel.events import Action, Event, Final, MemoryCaptured, Observation, TurnEnd, TurnStart
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from tests.runtime.world import opened

TURNS = 6


def reply(request: ModelRequest) -> Reply | str:
    """Two calls side by side for what is said, then an answer that names it."""
    newest = request.messages[-1]
    if newest.text:
        word = newest.text.split()[-1]
        return Reply(
            text="Looking.",
            calls=[
                Call(name="bash", input={"command": f"echo {word}"}, id=f"a_{len(request.messages)}"),
                Call(
                    name="file_write",
                    input={"path": f"{word}.txt", "content": word},
                    id=f"b_{len(request.messages)}",
                ),
            ],
        )
    said = [message.text for message in request.messages if message.role == "user" and message.text]
    return f"Done with {said[-1].split()[-1]}"


def told(event: Event) -> list[object] | None:
    """What the parent takes as acknowledged."""
    match event:
        case TurnStart(turn=turn, message=message):
            return ["said", turn, message.text]
        case Action(call_id=call_id):
            return ["action", call_id]
        case Observation(call_id=call_id):
            return ["observation", call_id]
        case Final(turn=turn, text=text):
            return ["final", turn, text]
        case MemoryCaptured(turn=turn):
            return ["captured", turn]
        case TurnEnd(turn=turn):
            return ["end", turn]
        case _:
            return None


async def converse(folder: Path, session_id: str | None) -> None:
    """Talk for a few turns, telling each event when it is acknowledged."""
    async with opened(folder, ScriptedModel(reply), agent__mode="bypass") as satchel:
        session = await satchel.session(session_id)
        tell(["session", session.id])
        for _ in range(TURNS):
            async for event in session.stream(f"Please work on item{session.turns + 1}"):
                line = told(event)
                if line is not None:
                    tell(line)


def tell(line: list[object]) -> None:
    """One line to the parent, in one write."""
    os.write(1, json.dumps(line).encode() + b"\n")


def main() -> None:
    """Serve the parent's lines: {"folder", "session"}."""
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            anyio.run(partial(converse, Path(order["folder"]), order["session"]))
            tell(["over"])
            os._exit(0)
        tell(["pid", child])
        os.waitpid(child, 0)
        tell(["reaped"])


if __name__ == "__main__":
    main()
