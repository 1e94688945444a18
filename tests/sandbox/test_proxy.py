"""The way out of a sandbox: what it lets through, what it refuses and says, and what hostile programs can't do to it."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import example, given
from hypothesis import strategies as st

from satchel.addresses import Resolve
from satchel.errors import SandboxError, UsageError
from satchel.sandbox.guest import forwarder
from satchel.sandbox.hello import server_name
from satchel.sandbox.port import Network
from satchel.sandbox.proxy import EgressProxy, HostPattern, HostRules, ProxyLimits, open_egress
from tests.models.loopback import Answer, loopback
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
END = b"0\r\n\r\n"
"""The end of a body in pieces."""


def names(answers: Mapping[str, Sequence[str]], asked: list[str] | None = None) -> Resolve:
    """A resolver that knows these names and no others, and records what it was asked."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        if asked is not None:
            asked.append(host)
        if host not in answers:
            raise OSError("Name or service not known")
        return answers[host]

    return resolve


@asynccontextmanager
async def egress(
    folder: Path,
    *hosts: str,
    private: Sequence[str] = (),
    public: bool = False,
    resolve: Resolve | None = None,
    limits: ProxyLimits | None = None,
) -> AsyncIterator[EgressProxy]:
    network = Network(mode="public" if public else "allow", hosts=hosts, private=tuple(private))
    resolve = resolve or names({"127.0.0.1": ["127.0.0.1"], "localhost": ["127.0.0.1"]})
    async with open_egress(network, folder=folder, limits=limits, resolve=resolve) as proxy:
        yield proxy


async def say(proxy: EgressProxy, request: bytes, *, end: bytes = b"") -> bytes:
    """Everything that is answered until the connection ends, or until `end`."""
    answer = b""
    with anyio.fail_after(120):
        async with await anyio.connect_unix(proxy.socket) as stream:
            await stream.send(request)
            try:
                while not (end and answer.endswith(end)):
                    answer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    return answer


@asynccontextmanager
async def listening(serve: Callable[[SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    """A server on loopback; its port."""

    async def closing(stream: SocketStream) -> None:
        async with stream:
            await serve(stream)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, closing)
        yield listener.extra(SocketAttribute.local_port)
        group.cancel_scope.cancel()


async def echo(stream: SocketStream) -> None:
    async for piece in stream:
        await stream.send(piece.upper())


def greeting(name: bytes | None, *, records: int = 1) -> bytes:
    """A TLS ClientHello, in as many records as asked for."""
    extensions = struct.pack("!HH", 43, 3) + b"\x02\x03\x04"
    if name is not None:
        names = struct.pack("!BH", 0, len(name)) + name
        extensions += struct.pack("!HHH", 0, len(names) + 2, len(names)) + names
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += struct.pack("!H", len(extensions)) + extensions
    hello = b"\x01" + len(body).to_bytes(3, "big") + body
    size = -(-len(hello) // records)
    pieces = [hello[at : at + size] for at in range(0, len(hello), size)]
    return b"".join(b"\x16\x03\x01" + struct.pack("!H", len(piece)) + piece for piece in pieces)


# ---- Patterns


@pytest.mark.parametrize(
    ("pattern", "reached", "refused"),
    [
        ("api.example.org", ["api.example.org:443", "api.example.org:80"], ["api.example.org:22", "example.org:443", "x.api.example.org:443"]),
        ("API.Example.ORG.", ["api.example.org:443"], ["api.example.org.evil.com:443"]),
        ("api.example.org:8443", ["api.example.org:8443"], ["api.example.org:443"]),
        ("*.example.org", ["a.example.org:443", "a.b.example.org:80"], ["example.org:443", "evilexample.org:443", "a.example.org:22"]),
        ("*.example.org:22", ["a.example.org:22"], ["a.example.org:443"]),
        ("127.0.0.1:8000", ["127.0.0.1:8000"], ["127.0.0.1:80", "127.0.0.2:8000"]),
        ("0x7f.1:8000", ["127.0.0.1:8000"], []),
        ("[::1]:8000", ["[::1]:8000"], ["[::1]:80"]),
        ("bücher.example", ["xn--bcher-kva.example:443"], ["bucher.example:443"]),
    ],
)  # fmt: skip
def test_a_pattern_fits_what_it_names_and_nothing_beside_it(
    pattern: str, reached: list[str], refused: list[str]
) -> None:
    parsed = HostPattern.parse(pattern)
    for places, fits in ((reached, True), (refused, False)):
        for place in places:
            host, _, port = place.rpartition(":")
            assert parsed.fits(host.strip("[]"), int(port)) is fits, place
    assert HostPattern.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "pattern",
    ["", "*", "*.", "*.com", "*.1.2.3.4", "a.*.example.org", "*example.org", "http://example.org", "example.org/path", "example.org:0",
     "example.org:65536", "example.org:x", "user@example.org", "exa mple.org", "example.org\n", "example.org:443:443", "::1", "[::1", ".example.org",
     "a..b", "x" * 300, "\u202eexample.org"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused_with_its_text(pattern: str) -> None:
    with pytest.raises(UsageError, match="names no host"):
        HostPattern.parse(pattern)


@given(st.text(max_size=60))
@example("*.example.org:443")
def test_any_text_is_a_pattern_or_a_usage_error(text: str) -> None:
    try:
        pattern = HostPattern.parse(text)
    except UsageError:
        return
    assert HostPattern.parse(str(pattern)) == pattern


# ---- What is let through


@requirement("sandbox:proxy")
async def test_an_allowed_host_is_reached_and_every_other_is_refused_recorded_and_explained(
    tmp_path: Path,
) -> None:
    hello = Answer(kind="text/plain", pieces=(b"hello",))
    asked: list[str] = []
    async with loopback([hello]) as server:
        place = f"local.example:{server.port}"
        resolve = names({"local.example": ["127.0.0.1"]}, asked)
        async with egress(tmp_path, place, private=[place], resolve=resolve) as proxy:
            answer = await say(
                proxy, f"GET http://{place}/a?b=1 HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode(), end=END
            )
            assert b" 200 " in answer.split(b"\r\n")[0]
            assert server.asked[0].path == "/a?b=1"
            assert server.asked[0].headers["host"] == place
            assert asked == ["local.example"]
            refused = await say(proxy, b"CONNECT api.example.org:443 HTTP/1.1\r\n\r\n")
            assert proxy.denied[0].target == "api.example.org:443"
    status = refused.split(b"\r\n")[0].decode()
    assert status.startswith(
        "HTTP/1.1 403 Refused by the sandbox: api.example.org:443 is not among the hosts"
    )
    text = refused.partition(b"\r\n\r\n")[2].decode()
    assert f"Allowed hosts: {place}." in text
    assert "trust_env=True" in text
    # A name that isn't allowed is not even looked up: a lookup can carry data out.
    assert asked == ["local.example"]


@requirement("sandbox:proxy")
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "168.63.129.16", "0.0.0.0", "::1", "::", "fe80::1",
     "fd00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "224.0.0.1", "255.255.255.255"],
)  # fmt: skip
async def test_an_allowed_name_that_leads_to_a_private_address_is_refused(
    tmp_path: Path, address: str
) -> None:
    # One public address among private ones changes nothing: a name that answers with both is an attack.
    for answers in ([address], ["93.184.215.14", address]):
        resolve = names({"a.example": answers})
        async with egress(tmp_path, "a.example", public=len(answers) > 1, resolve=resolve) as proxy:
            answer = await say(proxy, b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert f"{address}, which is not a public address" in proxy.denied[0].reason


@pytest.mark.parametrize(
    "place",
    ["127.0.0.1:1", "2130706433:1", "0x7f.0.0.1:1", "0177.1:1", "localhost:1", "LOCALHOST.:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "127%2e0.0.1:1",
     "１２７.0.0.1:1"],
)  # fmt: skip
async def test_open_network_means_public_addresses_however_an_address_is_written(
    tmp_path: Path, place: str
) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"] if host == "localhost" else [host]

    async with egress(tmp_path, public=True, resolve=resolve) as proxy:
        answer = await say(proxy, f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
    # Bytes that aren't ASCII are no host at all in a request.
    assert answer.split(b" ")[1] in (b"403", b"400"), answer


async def test_an_allowance_for_a_private_port_is_for_this_port_alone_and_needs_a_pattern_too(
    tmp_path: Path,
) -> None:
    async with listening(echo) as port, listening(echo) as other:
        place = f"127.0.0.1:{port}"
        async with egress(tmp_path, place, private=[place]) as proxy:
            request = f"CONNECT {place} HTTP/1.1\r\n\r\nping".encode()
            assert (
                await say(proxy, request, end=b"PING") == b"HTTP/1.1 200 Connection established\r\n\r\nPING"
            )
            assert (await say(proxy, f"CONNECT 127.0.0.1:{other} HTTP/1.1\r\n\r\n".encode())).startswith(
                b"HTTP/1.1 403 "
            )
        async with egress(tmp_path, "example.org", private=[place]) as proxy:
            assert (await say(proxy, request)).startswith(b"HTTP/1.1 403 ")


async def test_a_name_is_resolved_once_and_the_checked_address_is_dialled(tmp_path: Path) -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["192.0.2.1"] if len(asked) > 1 else ["127.0.0.1"]

    async with listening(echo) as port:
        place = f"a.example:{port}"
        async with egress(tmp_path, place, private=[place], resolve=rebinding) as proxy:
            assert (await say(proxy, f"CONNECT {place} HTTP/1.1\r\n\r\nx".encode(), end=b"X")).endswith(b"X")
    assert asked == ["a.example"]


async def test_names_of_headers_keep_their_case_for_servers_that_know_no_other(tmp_path: Path) -> None:
    heard = b""

    async def serve(stream: SocketStream) -> None:
        nonlocal heard
        while not heard.endswith(b"\r\n\r\n"):
            heard += await stream.receive()
        await stream.send(b"HTTP/1.1 200 OK\r\nX-Next: B\r\nContent-Length: 2\r\n\r\nok")

    async with listening(serve) as port:
        place = f"127.0.0.1:{port}"
        async with egress(tmp_path, place, private=[place]) as proxy:
            answer = await say(
                proxy, f"GET http://{place}/ HTTP/1.1\r\nhost: x\r\nX-Auth: A\r\n\r\n".encode()
            )
    assert b"\r\nX-Auth: A\r\n" in heard
    assert heard.lower().count(b"\r\nhost: ") == 1
    assert b"\r\nX-Next: B\r\n" in answer


async def test_of_two_requests_on_one_connection_only_the_first_is_passed_on(tmp_path: Path) -> None:
    async with loopback([Answer(kind="text/plain", pieces=(b"hello",))]) as server:
        place = f"127.0.0.1:{server.port}"
        async with egress(tmp_path, place, private=[place]) as proxy:
            first = f"POST {server.url}/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: x-a\r\nX-A: 1\r\nX-B: 2\r\n\r\n{{}}"
            second = f"GET {server.url}/b HTTP/1.1\r\nHost: x\r\n\r\n"
            answer = await say(proxy, (first + second).encode(), end=END)
    assert b"hello" in answer
    assert [request.path for request in server.asked] == ["/a"]
    assert "x-a" not in server.asked[0].headers
    assert server.asked[0].headers["x-b"] == "2"


# ---- TLS greetings


@pytest.mark.parametrize("records", [1, 3])
async def test_a_tunnel_greets_only_servers_that_are_allowed(tmp_path: Path, records: int) -> None:
    reached: list[bytes] = []

    async def record(stream: SocketStream) -> None:
        async for piece in stream:
            reached.append(piece)
            await stream.send(b"ok")

    async with listening(record) as port:
        place = f"a.example:{port}"
        resolve = names({"a.example": ["127.0.0.1"]})
        async with egress(tmp_path, place, f"*.b.example:{port}", private=[place], resolve=resolve) as proxy:
            head = f"CONNECT {place} HTTP/1.1\r\n\r\n".encode()
            for name in (b"a.example", b"A.example", b"x.b.example", None):
                assert (await say(proxy, head + greeting(name, records=records), end=b"ok")).endswith(b"ok")
            passed = len(reached)
            for name in (b"evil.example", b"b.example", b"\xff", b""):
                answer = await say(proxy, head + greeting(name, records=records))
                assert answer.endswith(b"\x15\x03\x03\x00\x02\x02\x70"), name
            assert len(reached) == passed
            assert f"evil.example:{port}" in [denied.target for denied in proxy.denied]


async def test_a_server_that_speaks_first_is_heard_before_anything_is_said(tmp_path: Path) -> None:
    async def banner(stream: SocketStream) -> None:
        await stream.send(b"SSH-2.0-x\r\n")
        with suppress(anyio.EndOfStream):
            await stream.receive()

    async with listening(banner) as port:
        place = f"127.0.0.1:{port}"
        async with egress(tmp_path, place, private=[place]) as proxy:
            answer = await say(proxy, f"CONNECT {place} HTTP/1.1\r\n\r\n".encode(), end=b"x\r\n")
    assert answer.endswith(b"SSH-2.0-x\r\n")


def test_a_greeting_is_read_whatever_pieces_it_comes_in() -> None:
    whole = greeting(b"Api.Example.org", records=4)
    assert server_name(whole) == "api.example.org"
    assert {server_name(whole[:size]) for size in range(len(whole))} == {None}
    assert server_name(b"GET / HTTP/1.1") == ""


@given(st.binary(max_size=400) | st.binary(max_size=200).map(lambda rest: b"\x16\x03\x01" + rest))
def test_a_greeting_of_any_bytes_is_a_name_or_an_error(said: bytes) -> None:
    try:
        name = server_name(said)
    except ValueError:
        return
    assert name is None or isinstance(name, str)


# ---- Hostile programs


@pytest.mark.parametrize(
    "request_head",
    ["GET / HTTP/1.1", "GET https://a.example/ HTTP/1.1", "GET file:///etc/passwd HTTP/1.1", "GET http://u:p@a.example/ HTTP/1.1",
     "CONNECT a.example HTTP/1.1", "CONNECT a.example:99999 HTTP/1.1", "CONNECT a.example:443/x HTTP/1.1", "CONNECT u@a.example:443 HTTP/1.1",
     "GET http://a.example\\@b.example/ HTTP/1.1", "CONNECT a.exam\x00ple:443 HTTP/1.1", "CONNECT " + "a" * 300 + ":443 HTTP/1.1"],
)  # fmt: skip
async def test_what_is_no_destination_is_refused(tmp_path: Path, request_head: str) -> None:
    async with egress(tmp_path, "a.example", "*.a.example") as proxy:
        answer = await say(proxy, f"{request_head}\r\n\r\n".encode("latin-1"))
    assert answer.startswith(b"HTTP/1.1 400 "), answer


@pytest.mark.parametrize(
    "said",
    [b"\r\n\r\n", b"GET\r\n\r\n", b"\0\xff\r\n\r\n", b"A B C\r\n\r\n", b"x" * 100_000, b"\x16\x03\x01\x00"],
)
async def test_nonsense_ends_its_own_connection_only(tmp_path: Path, said: bytes) -> None:
    async with egress(tmp_path, "a.example", limits=ProxyLimits(head_s=0.2)) as proxy:
        assert await say(proxy, said) == b""
        assert (await say(proxy, b"CONNECT b.example:443 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403 ")


async def test_a_header_that_would_end_the_answer_is_passed_to_nobody(tmp_path: Path) -> None:
    async with egress(tmp_path, "a.example") as proxy:
        answer = await say(proxy, b"CONNECT b.example\r:443 HTTP/1.1\r\n\r\n")
    assert b"\r\n\r\n" in answer
    assert answer.split(b"\r\n")[0].startswith(b"HTTP/1.1 400 ")


async def test_of_thousands_of_refusals_a_hundred_are_kept(tmp_path: Path) -> None:
    async with egress(tmp_path, "a.example") as proxy:
        for number in range(130):
            await say(proxy, f"CONNECT h{number}.example:443 HTTP/1.1\r\n\r\n".encode())
        await say(proxy, b"CONNECT h0.example:443 HTTP/1.1\r\n\r\n")
        assert len(proxy.denied) == 100


async def test_connections_beyond_the_limit_wait_until_another_ends(tmp_path: Path) -> None:
    async with listening(echo) as port:
        place = f"127.0.0.1:{port}"
        limits = ProxyLimits(connections=2)
        async with egress(tmp_path, place, private=[place], limits=limits) as proxy:
            request = f"CONNECT {place} HTTP/1.1\r\n\r\nx".encode()
            first, second, third = clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
            try:
                for client in clients:
                    client.connect(str(proxy.socket))
                    client.send(request)
                with anyio.fail_after(60):
                    await anyio.wait_readable(first)
                    await anyio.wait_readable(second)
                with anyio.move_on_after(0.1) as waiting:
                    await anyio.wait_readable(third)
                assert waiting.cancelled_caught
                second.close()
                with anyio.fail_after(60):
                    await anyio.wait_readable(third)
            finally:
                for client in clients:
                    client.close()


async def test_a_run_passes_on_no_more_bytes_than_its_limit(tmp_path: Path) -> None:
    async def flood(stream: SocketStream) -> None:
        await stream.receive()
        with suppress(anyio.BrokenResourceError):
            while True:
                await stream.send(bytes(65_536))

    async with listening(flood) as port:
        place = f"127.0.0.1:{port}"
        limits = ProxyLimits(total_bytes=1_000_000)
        async with egress(tmp_path, place, private=[place], limits=limits) as proxy:
            answer = await say(proxy, f"CONNECT {place} HTTP/1.1\r\n\r\nx".encode())
            assert len(answer) < 1_100_000
            refused = await say(proxy, f"CONNECT {place} HTTP/1.1\r\n\r\nx".encode())
    assert b"403 Refused by the sandbox: This run has passed on 1,000,000 bytes" in refused


async def test_a_connection_on_which_nothing_passes_is_closed(tmp_path: Path) -> None:
    async def silent(stream: SocketStream) -> None:
        await anyio.sleep_forever()

    async with listening(silent) as port:
        place = f"127.0.0.1:{port}"
        limits = ProxyLimits(idle_s=0.1)
        async with egress(tmp_path, place, private=[place], limits=limits) as proxy:
            answer = await say(proxy, f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"


# ---- Lifetimes


async def test_the_socket_is_gone_with_the_block_and_errors_come_out_as_they_are(tmp_path: Path) -> None:
    async def fail() -> None:
        async with egress(tmp_path, "a.example") as proxy:
            assert proxy.socket.exists()
            raise SandboxError("the caller's own")

    with pytest.raises(SandboxError, match="the caller's own"):
        await fail()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SandboxError, match=r"No socket could be made .*No such file"):
        async with egress(tmp_path / "missing"):
            pass


async def test_a_deep_folder_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("deeper" * 20)
    folder.mkdir(parents=True)
    async with egress(folder, "a.example") as proxy:
        assert proxy.socket.is_socket()


def test_rules_allow_nothing_by_themselves() -> None:
    assert not HostRules().allows("example.org", 443)
    assert HostRules(public=True).allows("example.org", 22)


# ---- The forwarder


GUEST = """
import os, sys, urllib.request, urllib.error, socket
allowed, refused = sys.argv[1:]
print(urllib.request.urlopen(allowed).read().decode())
try:
    urllib.request.urlopen(refused)
except (urllib.error.URLError, OSError) as error:
    print(error)
for _ in range(30):
    assert urllib.request.urlopen(urllib.request.Request(allowed, data=b"[" + b"1," * 500_000 + b"1]")).read()
try:
    socket.create_connection(("127.0.0.1", int(allowed.rsplit(":")[2].strip("/"))), timeout=2)
except OSError as error:
    print("direct:", error.strerror)
"""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
@requirement("sandbox:proxy")
async def test_ordinary_clients_in_an_empty_network_reach_allowed_hosts_and_read_why_others_are_refused(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "egress"
    folder.mkdir()
    file = Path(forwarder.__file__)
    hello = Answer(kind="text/plain", pieces=(b"hello",))
    async with loopback([hello] * 31) as server:
        place = f"127.0.0.1:{server.port}"
        async with egress(folder, place, private=[place]) as proxy:
            setenv = [word for pair in forwarder.ENVIRON.items() for word in ("--setenv", *pair)]
            argv = [
                # The forwarder ends with the process namespace.
                "bwrap", "--unshare-net", "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/", *setenv, "--",
                sys.executable, "-I", "-S", str(file), str(proxy.socket),
                sys.executable, "-I", "-c", GUEST, server.url, "https://api.example.org/",
            ]  # fmt: skip
            with anyio.fail_after(120):
                done = await anyio.run_process(argv, check=False, stderr=subprocess.STDOUT)
            printed = done.stdout.decode()
            assert [denied.target for denied in proxy.denied] == ["api.example.org:443"]
    lines = printed.splitlines()
    assert lines[0] == "hello"
    assert "403 Refused by the sandbox: api.example.org:443 is not among the hosts" in lines[1]
    assert lines[2] == "direct: Connection refused"
    assert done.returncode == 0, printed
    assert len(server.asked) == 31


def test_the_forwarder_imports_little() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(forwarder.__file__).parent)!r}); import forwarder; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"asyncio", "threading", "contextlib", "typing", "subprocess", "logging"}
