"""Language models behind a program: it gets the conversation on stdin and prints the answer.

satchel config set model "command:llm -m local-model"
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Awaitable, Callable, Mapping

import anyio

from satchel.errors import ModelUnavailable
from satchel.models import ModelRequest


def conversation(request: ModelRequest) -> str:
    """A request as text: the instructions, then the messages with their roles."""
    said = [f"{message.role}: {message.text}" for message in request.messages if message.text]
    return "\n\n".join([request.system, *said, "assistant:"])


def open_command(line: str) -> Callable[[ModelRequest], Awaitable[str]]:
    """The model that is named behind "command:"."""
    argv = shlex.split(line)

    async def command(request: ModelRequest) -> str:
        try:
            done = await anyio.run_process(
                argv, input=conversation(request).encode(), stderr=subprocess.DEVNULL
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise ModelUnavailable(f"{argv[0]} gave no answer: {error}") from error
        return done.stdout.decode("utf-8", "replace").strip()

    return command


def providers() -> Mapping[str, Callable[[str], Callable[[ModelRequest], Awaitable[str]]]]:
    """See the guide on plugins."""
    return {"command": open_command}
