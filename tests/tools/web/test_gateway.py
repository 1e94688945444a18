"""The browser's way out: what it lets through, and what it does with nonsense."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from satchel.tools.web.addresses import AddressRules
from satchel.tools.web.gateway import Gateway
from tests.models.loopback import Answer, loopback
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def gateway_to(*allowed: str) -> AsyncIterator[Gateway]:
    gateway = Gateway(AddressRules(allow_private=allowed))
    async with anyio.create_task_group() as group:

        def spawn(function: object) -> None:
            group.start_soon(function)  # type: ignore[arg-type]

        await gateway.open(spawn)
        try:
            yield gateway
        finally:
            await gateway.aclose()


def known(gateway: Gateway, request: bytes, *, password: str | None = None) -> bytes:
    """The requests as its own browser makes them, with the password in their heads."""
    secret = base64.b64encode(f"satchel:{password or gateway.password}".encode())
    return request.replace(b" HTTP/1.1\r\n", b" HTTP/1.1\r\nProxy-Authorization: Basic " + secret + b"\r\n")


async def say(gateway: Gateway, request: bytes) -> bytes:
    """Everything that is answered until the connection or the body ends."""
    answer = b""
    with anyio.fail_after(120):
        async with await anyio.connect_tcp("127.0.0.1", int(gateway.url.rpartition(":")[2])) as stream:
            await stream.send(request)
            try:
                while not answer.endswith(b"0\r\n\r\n"):  # the end of a body in pieces
                    answer += await stream.receive()
                return answer
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return answer


@requirement("web:browser", "web:fetch:private")
@pytest.mark.parametrize(
    "request_line",
    [
        "CONNECT 169.254.169.254:443",
        "CONNECT localhost:22",
        "CONNECT [::1]:443",
        "CONNECT 2130706433:443",
        "GET http://127.0.0.1:1/",
        "GET http://[::ffff:127.0.0.1]:1/",
        "GET http://169.254.169.254/latest/",
        "GET file:///etc/passwd",
        "GET /no-host",
    ],
)
async def test_what_is_not_public_is_refused_with_the_reason(request_line: str) -> None:
    async with gateway_to() as gateway:
        answer = await say(gateway, known(gateway, f"{request_line} HTTP/1.1\r\n\r\n".encode()))
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert list(gateway.refused) == [request_line.split(" ")[1]]


@requirement("web:browser")
async def test_who_is_not_its_browser_is_refused_whatever_they_ask_for() -> None:
    hello = Answer(kind="text/plain", pieces=(b"hello",))
    async with loopback([hello]) as server:
        allowed = f"127.0.0.1:{server.port}"
        async with gateway_to(allowed) as gateway, gateway_to(allowed) as other:
            asked = [f"GET {server.url}/ HTTP/1.1\r\n\r\n", f"CONNECT {allowed} HTTP/1.1\r\n\r\n"]
            for request in map(str.encode, asked):
                both = known(gateway, known(gateway, request, password="wrong"))
                for said in (request, both, known(gateway, request, password=other.password)):
                    answer = await say(gateway, said)
                    assert answer.startswith(b"HTTP/1.1 407 Proxy Authentication Required\r\n")
                    assert b'\r\nProxy-Authenticate: Basic realm="satchel"\r\n' in answer
            assert gateway.refused == {}
        assert server.asked == []


async def test_a_request_is_passed_on_alone_and_the_connection_ends_with_its_answer() -> None:
    hello = Answer(kind="text/plain", pieces=(b"hello",))
    async with loopback([hello]) as server, gateway_to(f"127.0.0.1:{server.port}") as gateway:
        first = (
            f"POST {server.url}/a?b=1 HTTP/1.1\r\nHost: other.example\r\nContent-Length: 7\r\nX-A: 1\r\n"
            'Proxy-Connection: keep-alive\r\n\r\n{"a":1}'
        )
        second = f"GET {server.url}/second HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await say(gateway, known(gateway, (first + second).encode()))
    assert answer.startswith(b"HTTP/1.1 200 X\r\n")
    assert b"Connection: close" in answer
    assert b"hello" in answer
    asked = server.asked[0]
    assert (asked.path, asked.body) == ("/a?b=1", {"a": 1})
    assert asked.headers["host"] == f"127.0.0.1:{server.port}"
    assert asked.headers["x-a"] == "1"
    assert not {"proxy-connection", "proxy-authorization"} & asked.headers.keys()
    assert len(server.asked) == 1
