"""Language models behind a program: it gets the conversation on stdin and prints the answer.

satchel config set model "command:llm -m local-model"
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Mapping

import anyio

from satchel.errors import ModelUnavailable
from satchel.messages import Block, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from satchel.models import ModelRequest


def conversation(request: ModelRequest) -> str:
    """A request as text: the instructions and the tools, then the messages with their roles."""
    tools = [
        f"tool {tool.name}: {tool.description} Input: {json.dumps(tool.input_schema)}"
        for tool in request.tools
    ]
    said = [": ".join([message.role, *map(_text, message.blocks)]) for message in request.messages]
    return "\n\n".join([request.system, *tools, *said, "assistant:"])


def _text(block: Block) -> str:
    match block:
        case TextBlock() | ThinkingBlock():
            return block.text
        case ToolUseBlock():
            return json.dumps({"action": {"tool": block.name, "input": block.input}})
        case ToolResultBlock():
            return f"result: {block.content}"


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
