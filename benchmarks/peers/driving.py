"""Starts peers, each in its own environment, and talks to them in lines of JSON; see `lines.py` for the form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

PEERS = ("mem0", "mcp_memory_service", "basic_memory")
HERE = Path(__file__).parent
HOME = Path(os.environ.get("PEERS_HOME") or Path.home() / ".cache" / "satchel-benchmarks" / "peers")
_LIMIT_S = 300.0
_END_S = 20.0


@dataclass(slots=True)
class PeerProcess:
    """A peer that runs.

    Attributes:
        version: Its package and version.
    """

    process: Any
    lines: BufferedByteReceiveStream
    version: str = ""

    async def call(self, **asked: Any) -> dict[str, Any]:
        """Its answer to one line.

        Raises:
            RuntimeError: It failed, with what it says; or it has ended.
        """
        if asked:
            await self.process.stdin.send(json.dumps(asked).encode() + b"\n")
        try:
            with anyio.fail_after(_LIMIT_S):
                answer: dict[str, Any] = json.loads(await self.lines.receive_until(b"\n", 1_000_000))
        except (anyio.IncompleteRead, anyio.EndOfStream) as error:
            raise RuntimeError("the peer has ended; what it printed stands above") from error
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


async def start(name: str, stack: AsyncExitStack) -> PeerProcess:
    """Start a peer with an empty home of its own; it ends with `stack`.

    Raises:
        RuntimeError: It is not installed, or can't run here, with the reason that it gives.
    """
    python = HOME / name / "bin" / "python"
    if not python.exists():
        raise RuntimeError(f"{name} is not installed; benchmarks/peers/install.sh {name} does it")
    embedding = await _opened([sys.executable, str(HERE / "embeddings.py")], dict(os.environ), stack)
    port = int(await embedding.lines.receive_until(b"\n", 100))
    home = stack.enter_context(
        tempfile.TemporaryDirectory(prefix="satchel-peer-", ignore_cleanup_errors=True)
    )
    environ = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": home,
        "PEER_HOME": home,
        "EMBEDDINGS_URL": f"http://127.0.0.1:{port}/v1",
    }
    peer = await _opened(["nice", str(python), str(HERE / f"use_{name}.py")], environ, stack)
    peer.version = (await peer.call())["ready"]
    return peer


async def _opened(command: list[str], environ: dict[str, str], stack: AsyncExitStack) -> PeerProcess:
    process: Any = await anyio.open_process(command, env=environ, stderr=subprocess.DEVNULL)

    async def end() -> None:
        # At the end of its input it ends what it has started itself.
        await process.stdin.aclose()
        with anyio.move_on_after(_END_S):
            await process.wait()
        if process.returncode is None:
            process.terminate()
        await process.aclose()

    stack.push_async_callback(end)
    return PeerProcess(process, BufferedByteReceiveStream(process.stdout))
