"""Forgets what was said with some words, and says others, until it is killed."""

from __future__ import annotations

from pathlib import Path

from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from tests.killing import serve, tell
from tests.runtime.world import opened

LONG = {"agent__mode": "bypass", "agent__max_result_chars": 1000}
"""Settings with which what the model looks at is too long for the log, and lies beside it."""


def sentence(word: str) -> str:
    """What is said with a word."""
    return f"Keep in mind that we met at {word}"


def reply(request: ModelRequest) -> Reply | str:
    """Have what was said go through a tool and come back, and then say it once more."""
    said = next(
        text for message in reversed(request.messages) if message.role == "user" and (text := message.text)
    )
    if request.messages[-1].text:
        item = {"text": f"{said} {'and so on ' * 20}", "status": "pending"}
        return Reply(calls=[Call(name="todo", input={"items": [item] * 6}, id=f"c{len(request.messages)}")])
    return f"Noted. {said}"


async def work(folder: str, session: str, forget: list[tuple[str, list[str]]], say: str) -> None:
    """Forget one of the words by its memories' ids, say one in a session, if it is given, and forget the others."""
    async with opened(Path(folder), ScriptedModel(reply), **LONG) as satchel:
        for place, (word, ids) in enumerate(forget):
            if place == 1 and say:
                await (await satchel.session(session)).run_turn(sentence(say))
                tell("said", say)
            tell("forgetting", word)
            await satchel.forget(ids)
            tell("forgot", word)


async def say_and_forget(folder: Path) -> None:
    """Both once."""
    async with opened(folder, ScriptedModel(reply), **LONG) as satchel:
        await (await satchel.session()).run_turn(sentence("quagga"))
        await satchel.forget(query="quagga")


if __name__ == "__main__":
    serve(work, warm_up=say_and_forget)
