"""A stand-in for the hosted service of E2B, on the loopback interface, which the real SDK talks to.

It speaks what the SDK sends: the interface for making and ending machines, and that of the daemon in a machine (Connect
for processes, HTTP for files). A machine is a folder; its commands run in bubblewrap with that folder as the root of the
file system, as root of it. It holds no limits and no network: those are the service's, and what was asked for is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from e2b.envd.process import process_connect, process_pb
from protobuf import Oneof
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from satchel.sandbox.bwrap import system_mounts

TOKEN = "token-of-one-machine"


@dataclass
class Service(process_connect.Process):
    """The service.

    Attributes:
        asked: The bodies of the requests for machines.
        running: The folders of the machines that exist.
        ended: The ids of machines that were ended.
        answers: What requests for machines are answered with instead, one after another: a status.
        forged: Sent instead of any file.
        on_make: Called, in the thread of the service, before a machine is given.
        lose: Cut the connection of the next command in the middle.
        keys: The keys that were sent.
    """

    url: str
    key: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    running: dict[str, Path] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    lose: bool = False
    forged: bytes | None = None
    end_answers: list[int] = field(default_factory=list)
    on_make: Callable[[], object] | None = None
    keys: set[str] = field(default_factory=set)
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def make(self, request: Request) -> Response:
        self.keys.add(request.headers.get("X-API-Key", ""))
        if request.headers.get("X-API-Key") != self.key:
            return JSONResponse(
                {"code": 401, "message": f"Invalid key {request.headers.get('X-API-Key')}"}, status_code=401
            )
        if self.answers:
            status = self.answers.pop(0)
            return JSONResponse(
                {"code": status, "message": "no"}, status_code=status, headers={"Should-Retry": "false"}
            )
        self.asked.append(await request.json())
        if self.on_make is not None:
            self.on_make()
        id = f"machine{len(self.asked)}"
        root = Path(tempfile.mkdtemp(prefix="satchel-machine-"))
        root.chmod(0o755)
        for name in ("run", "tmp", "root", "home"):
            (root / name).mkdir()
        (root / "tmp").chmod(0o1777)
        self.running[id] = root
        made = {
            "templateID": "base",
            "sandboxID": id,
            "clientID": "c",
            "envdVersion": "0.6.4",
            "envdAccessToken": TOKEN,
        }
        return JSONResponse(made, status_code=201)

    async def end(self, request: Request) -> Response:
        if self.end_answers:
            return JSONResponse({"code": 500, "message": "no"}, status_code=self.end_answers.pop(0))
        id = request.path_params["id"]
        root = self.running.pop(id, None)
        if root is None:
            return JSONResponse({"code": 404, "message": "not found"}, status_code=404)
        await self.stop(id)
        shutil.rmtree(root, ignore_errors=True)
        self.ended.append(id)
        return Response(status_code=204)

    async def stop(self, id: str) -> None:
        if (process := self.processes.pop(id, None)) is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            # Until Python 3.12, `wait` waits for pipes that nobody reads, too.
            transport: Any = process._transport  # type: ignore[attr-defined]
            for fd in (1, 2):
                transport.get_pipe_transport(fd).close()
            await process.wait()

    def root(self, headers: Any) -> Path:
        assert headers["x-access-token"] == TOKEN
        return self.running[headers["e2b-sandbox-id"]]

    async def health(self, request: Request) -> Response:
        return Response(status_code=204 if request.headers["e2b-sandbox-id"] in self.running else 502)

    async def files(self, request: Request) -> Response:
        root = self.root(request.headers)
        assert request.query_params["username"] == "root"
        path = root / request.query_params["path"].lstrip("/")
        if request.method == "GET":
            if self.forged is not None:
                return Response(self.forged)
            if not path.is_file():
                return JSONResponse({"code": 404, "message": "no such file"}, status_code=404)
            return FileResponse(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if request.headers["content-type"].startswith("multipart/"):
            async with request.form() as form:
                upload = form["file"]
                assert isinstance(upload, UploadFile)
                path.write_bytes(await upload.read())
        else:
            with path.open("wb") as file:
                async for piece in request.stream():
                    file.write(piece)
        return JSONResponse([{"name": path.name, "type": "file", "path": str(path)}])

    async def start(
        self, request: process_pb.StartRequest, ctx: Any
    ) -> AsyncIterator[process_pb.StartResponse]:
        headers = ctx.request_headers
        id = headers["e2b-sandbox-id"]
        root = self.root(headers)
        assert request.process is not None
        as_root = () if os.geteuid() == 0 else ("--unshare-user", "--uid", "0", "--gid", "0")
        argv = [
            "bwrap",
            *as_root,
            "--bind",
            str(root),
            "/",
            *system_mounts(),
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ]
        argv += [
            "--unshare-pid",
            "--unshare-net",
            "--die-with-parent",
            "--clearenv",
            "--setenv",
            "PATH",
            "/usr/bin:/bin",
        ]
        argv += ["--chdir", "/", "--", request.process.cmd, *request.process.args]
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.processes[id] = process
        yield self.event("start", process_pb.ProcessEvent.StartEvent(pid=process.pid))
        pieces: asyncio.Queue[tuple[Any, bytes]] = asyncio.Queue(maxsize=16)

        async def read(name: Any, stream: asyncio.StreamReader | None) -> None:
            assert stream is not None
            while piece := await stream.read(65_536):
                await pieces.put((name, piece))
            await pieces.put((name, b""))

        readers = [
            asyncio.create_task(read(n, s))
            for n, s in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        try:
            left = 2
            while left:
                name, piece = await pieces.get()
                if not piece:
                    left -= 1
                    continue
                if self.lose:
                    raise ConnectionResetError("the connection was lost")
                yield self.event("data", process_pb.ProcessEvent.DataEvent(output=Oneof(name, piece)))
            code = await process.wait()
            ended = process_pb.ProcessEvent.EndEvent(
                exit_code=code, exited=True, status=f"exit status {code}"
            )
            yield self.event("end", ended)
        finally:
            for reader in readers:
                reader.cancel()
            await self.stop(id)

    def event(self, name: Any, value: Any) -> process_pb.StartResponse:
        return process_pb.StartResponse(event=process_pb.ProcessEvent(event=Oneof(name, value)))


@contextmanager
def running_service(key: str) -> Iterator[Service]:
    """The service, while the block lasts."""
    listening = socket.create_server(("127.0.0.1", 0))
    service = Service(key=key, url=f"http://127.0.0.1:{listening.getsockname()[1]}")
    processes = process_connect.ProcessASGIApplication(service)

    app = Starlette(
        routes=[
            Route("/v2/sandboxes", service.make, methods=["POST"]),
            Route("/sandboxes/{id}", service.end, methods=["DELETE"]),
            Route("/health", service.health),
            Route("/files", service.files, methods=["GET", "POST"]),
        ]
    )

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        await (processes if scope.get("path", "").startswith("/process.") else app)(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(both, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.should_exit = True
        thread.join(120)
        listening.close()
        for root in service.running.values():
            shutil.rmtree(root, ignore_errors=True)
