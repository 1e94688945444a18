"""The real program in a process of its own, and an endpoint on loopback that it talks to."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from tests.forking import Program, fork
from tests.models.loopback import Answer, Asked, Loopback, as_events, as_json, chat, chunk

PATH = os.environ["PATH"]
SOURCES = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
"""The same sources are tested in other processes as in this one."""
PROGRAM = [sys.executable, "-m", "satchel"]
LIMIT_S = 240
"""For a run of it."""

CONTEXT = re.compile(
    r"(?:\A|\n\n)\[(?:Platform: [^\n]*|[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d [^\n\]]*)\](?=\n\n|\Z)"
)
"""The blocks that every message ends with; see `satchel.runtime.surroundings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environ_for(folder: Path, server: Loopback | None = None, **more: str) -> dict[str, str]:
    """An empty home, no key but the endpoint's, and memory by words alone."""
    environ = {
        **SOURCES,
        "PATH": PATH,
        "HOME": str(folder),
        "SATCHEL_HOME": str(folder / "home"),
        "SATCHEL_MEMORY_EMBEDDER": "none",
        # A worker would outlive the test, and its folder.
        "SATCHEL_MEMORY_WORKER": "off",
        "SATCHEL_BACKGROUND_TITLES": "off",
        # On a busy machine, an executable may need longer than the defaults to print its schema, and a call to end.
        "SATCHEL_TOOLS_SCHEMA_TIMEOUT_S": "30",
        "SATCHEL_AGENT_TOOL_TIMEOUT_S": "280",
        "LANG": "C.UTF-8",
        # The machine's own keyring is nothing to a test.
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        # Nothing runs at this port: no machine's own Ollama takes part in a test.
        "OLLAMA_HOST": "127.0.0.1:9",
        "SATCHEL_PROVIDERS_OLLAMA_BASE_URL": "http://127.0.0.1:9/v1",
    }
    if server is not None:
        environ |= {
            "OPENAI_API_KEY": "key-o",
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "SATCHEL_MODEL": "openai:m-1",
        }
    return environ | more


async def satchel(
    folder: Path,
    *arguments: str | bytes,
    server: Loopback | None = None,
    stdin: str | bytes = b"",
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    python: str = sys.executable,
    mounts_of: int = 0,
) -> Ran:
    """Run `satchel`, without a terminal, in a process that is forked; see `fork` for `mounts_of`."""
    work = cwd or folder / "work"
    work.mkdir(exist_ok=True)
    outputs = [os.pipe(), os.pipe()]
    with tempfile.TemporaryFile() as file:
        file.write(stdin.encode() if isinstance(stdin, str) else stdin)
        file.seek(0)
        process = fork(
            arguments,
            cwd=work,
            environ=environ_for(folder, server, **(environ or {})),
            stdin=file.fileno(),
            stdout=outputs[0][1],
            stderr=outputs[1][1],
            python=python,
            mounts_of=mounts_of,
        )
    read: dict[int, bytes] = {}

    async def read_all(fd: int) -> None:
        with open(fd, "rb") as pipe:
            read[fd] = await anyio.to_thread.run_sync(pipe.read, abandon_on_cancel=True)

    try:
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as group:
                for ours, theirs in outputs:
                    os.close(theirs)
                    group.start_soon(read_all, ours)
            code = await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
    finally:
        process.kill()
    out, err = (read[ours].decode() for ours, _ in outputs)
    return Ran(code=code, out=out, err=err)


def start(folder: Path, *arguments: str, server: Loopback | None = None) -> Program:
    """Start `satchel` without input, in a process that is forked, and leave it to the test."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    started = Program(*arguments, cwd=work, environ=environ_for(folder, server))
    started.stdin.close()
    return started


def calls(*planned: tuple[str, Mapping[str, Any]], text: str = "", start: int = 1) -> Answer:
    """A streamed answer that asks for tools."""
    events: list[Any] = [chunk({"content": text})] if text else []
    for index, (name, input) in enumerate(planned):
        function = {"name": name, "arguments": json.dumps(input)}
        call = {"index": index, "id": f"call_{start + index}", "type": "function", "function": function}
        events.append(chunk({"tool_calls": [call]}))
    return as_events([*events, chunk({}, "tool_calls"), *chat()[1:]])


def speaks(text: str) -> Answer:
    """A streamed answer that says something."""
    return as_events(chat(text))


def scripted(*answers: Answer) -> Callable[[Asked], Answer]:
    """Answers chats in their order, and a question for the models with one."""
    left = list(answers)

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/models"):
            return as_json({"data": [{"id": "m-1"}]})
        return left.pop(0)

    return answer


def sent_to(asked: Asked) -> list[dict[str, Any]]:
    """The messages of a request without what says when and where they were said."""
    messages = []
    for message in asked.body["messages"]:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content)
        content = CONTEXT.sub("", content or "")
        if content or message["role"] != "user":
            messages.append({**message, "content": content})
    return messages


def said_to(asked: Asked) -> str:
    """The text of the newest message of a request."""
    text: str = sent_to(asked)[-1]["content"]
    return text


def chats(server: Loopback) -> Sequence[Asked]:
    """The requests for an answer."""
    return [asked for asked in server.asked if asked.path.endswith("/chat/completions")]
