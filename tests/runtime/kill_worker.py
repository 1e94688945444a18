"""Runs conversations until it is killed: its main program is forked for each round."""

from __future__ import annotations

from pathlib import Path

from satchel.events import Action, Event, Final, MemoryCaptured, Observation, TurnEnd, TurnStart
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from tests.killing import serve, tell
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
                # Not file_write, which refuses the file of an earlier session: a result that is an error is here
                # one of a call that was cut off.
                Call(
                    name="bash",
                    input={"command": f"echo {word} > {word}.txt"},
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


async def converse(folder: str, session: str | None) -> None:
    """Talk for a few turns, telling each event when it is acknowledged."""
    async with opened(Path(folder), ScriptedModel(reply), agent__mode="bypass") as satchel:
        running = await satchel.session(session)
        tell("session", running.id)
        for _ in range(TURNS):
            async for event in running.stream(f"Please work on item{running.turns + 1}"):
                line = told(event)
                if line is not None:
                    tell(*line)


if __name__ == "__main__":
    serve(converse, warm_up=lambda folder: converse(str(folder), None))
