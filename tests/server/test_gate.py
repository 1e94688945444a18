"""What comes to the gate and must not pass: the right status, and nothing of the home in the answer."""

from __future__ import annotations

import json
import select
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.server import connection, gate
from satchel.server.rates import Rates
from tests.requirements import requirement
from tests.server.world import World, chat, serving


def port(world: World) -> str:
    return world.url.rpartition(":")[2]


@requirement("http:token", "http:hostile")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"authorization": ""}, 401, id="no token"),
        pytest.param({"authorization": "Bearer"}, 401, id="empty token"),
        pytest.param({"authorization": "Bearer " + "x" * 43}, 401, id="wrong token"),
        pytest.param({"authorization": "Basic dTpw"}, 401, id="another scheme"),
        pytest.param({"authorization": "Bearer T\xe9\xff"}, 401, id="token that is not ASCII"),
        pytest.param({"host": "evil.example"}, 421, id="name of another site (DNS rebinding)"),
        pytest.param({"host": "127.0.0.1.evil.example:{port}"}, 421, id="name that begins like ours"),
        pytest.param({"host": "user@localhost:{port}"}, 421, id="name with a user"),
        pytest.param({"host": "localhost:{port}:80"}, 421, id="name with two ports"),
        pytest.param({"host": ""}, 421, id="empty name"),
        pytest.param({"origin": "https://evil.example"}, 403, id="page of another site"),
        pytest.param({"origin": "http://localhost:1"}, 403, id="page of another port"),
        pytest.param({"origin": "null"}, 403, id="page without an origin"),
        pytest.param({"origin": "file://"}, 403, id="local file"),
        pytest.param({"origin": "http://[::1"}, 403, id="origin that can't be read"),
        pytest.param({f"x-{n}": "y" for n in range(200)}, 431, id="two hundred headers"),
        pytest.param({"x-long": "y" * 17_000}, 431, id="long header"),
    ],
)
def test_unauthorised_requests_are_refused_without_details_of_the_home(
    world: World, headers: dict[str, str], status: int
) -> None:
    sent = {name: value.replace("{port}", port(world)) for name, value in headers.items()}
    with world.client() as client:
        answer = client.post(
            "/api/chat",
            json={"message": "hello"},
            headers=[(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
        )
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert world.token not in answer.text
    assert str(world.home) not in answer.text
    assert ("www-authenticate" in answer.headers) == (status == 401)


@requirement("http:token")
@pytest.mark.parametrize(
    "host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "LOCALHOST.:{port}"]
)
def test_this_machines_own_names_and_pages_pass(world: World, host: str) -> None:
    named = host.replace("{port}", port(world))
    with world.client() as client:
        assert client.get("/api/usage", headers={"host": named}).status_code == 200
        origin = "http://" + named.lower()
        assert client.get("/api/usage", headers={"host": named, "origin": origin}).status_code == 200


@requirement("http:health")
def test_health_and_readiness_need_no_token_and_say_nothing_else(world: World) -> None:
    with httpx2.Client(base_url=world.url, trust_env=False, timeout=120) as stranger:
        assert stranger.get("/healthz").json() == {"status": "ok"}
        assert stranger.get("/readyz").json() == {"ready": True}
        assert stranger.get("/metrics").status_code == 401
        assert stranger.get("/openapi.json").status_code == 401
        assert stranger.get("/nothing").status_code == 401


@requirement("http:limits")
def test_a_hundred_megabytes_that_come_in_pieces_are_refused_while_they_come(world: World) -> None:
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", int(port(world))), timeout=120) as raw:
        raw.sendall(
            f"POST /api/chat HTTP/1.1\r\nHost: localhost:{port(world)}\r\nAuthorization: Bearer {world.token}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        sent = 0
        while sent < 100 and not select.select([raw], [], [], 0)[0]:
            raw.sendall(piece)
            sent += 1
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    assert 15 <= sent < 50  # megabytes: the limit, and what is under way


@requirement("http:limits")
def test_a_body_that_announces_its_size_is_refused_before_it_comes(world: World) -> None:
    with socket.create_connection(("127.0.0.1", int(port(world))), timeout=120) as raw:
        raw.sendall(
            f"POST /api/chat HTTP/1.1\r\nHost: localhost:{port(world)}\r\nAuthorization: Bearer {world.token}\r\n"
            "Content-Length: 100000000\r\n\r\n".encode()
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


@requirement("http:limits")
def test_a_request_that_comes_byte_by_byte_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEADERS_WAIT_S", 0.2)
    for beginning in (b"", b"GET /healthz HTTP/1.1\r\nHost: loc"):
        with socket.create_connection(("127.0.0.1", int(port(world))), timeout=120) as slow:
            slow.sendall(beginning)
            assert slow.recv(100) == b""  # closed


@requirement("http:limits")
def test_a_body_that_stops_coming_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_PIECE_WAIT_S", 0.2)
    monkeypatch.setattr(gate, "_LINGER_S", 0.1)
    with socket.create_connection(("127.0.0.1", int(port(world))), timeout=120) as slow:
        slow.sendall(
            f"POST /api/chat HTTP/1.1\r\nHost: localhost:{port(world)}\r\nAuthorization: Bearer {world.token}\r\n"
            'Content-Length: 100\r\n\r\n{"mess'.encode()
        )
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


DEEP = b'{"message":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@requirement("http:hostile")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 422, id="nothing"),
        pytest.param(b"{", 422, id="cut off"),
        pytest.param(b"[]", 422, id="a list"),
        pytest.param(b'{"message": "\xff\xfe"}', 400, id="not UTF-8"),
        pytest.param(b'{"message": "\\ud800"}', 422, id="half a character"),
        pytest.param(b'{"message": 1}', 422, id="a number for words"),
        pytest.param(b'{"message": "hi", "mesage": "hi"}', 422, id="unknown field"),
        pytest.param(b'{"message": "   "}', 400, id="blank"),
        pytest.param(b'{"message": "hi", "session_id": "nope"}', 404, id="no such session"),
        pytest.param(b'{"message": "hi", "session_id": ""}', 400, id="empty id"),
        pytest.param(b'{"message": "hi", "session_id": "../../etc/passwd"}', 404, id="path for an id"),
        pytest.param(b'{"message": "hi", "model": "no such"}', 400, id="no such model"),
        pytest.param(b'{"message": "hi", "mode": "root"}', 422, id="no such mode"),
        pytest.param(DEEP, 400, id="a hundred thousand brackets"),
        pytest.param(b'{"message": ' + b"9" * 10_000 + b"}", 400, id="a number of ten thousand digits"),
    ],
)
def test_a_malformed_message_gets_a_problem_and_begins_no_turn(
    client: httpx2.Client, world: World, body: bytes, status: int
) -> None:
    before = client.get("/api/sessions").headers["x-total-count"]
    answer = client.post("/api/chat", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["status"]) == (status, status), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "Traceback" not in answer.text
    assert client.get("/api/sessions").headers["x-total-count"] == before


@requirement("http:hostile")
@pytest.mark.parametrize(
    "path",
    [
        "/api/sessions/..%2f..%2ftoken",
        "/api/sessions/%2e%2e",
        "/api/sessions/%00",
        "/api/sessions/" + "a" * 5000,
        "/api/sessions/no-such-session",
        "/api/sessions/no-such-session/events",
        "/api/memories/..%2ftoken",
        "/api/memories/%00",
        "/api/memories/x'%20OR%201=1--",
        "/api/capabilities/..%2f..%2ftoken",
        "/api/capabilities/%00",
        "/api/capabilities/..",
        "/api/tools/%F0%9F%98%80",
        "/api/builder/status?buildId=../../token",
        "//api/usage",
        "/api/usage/",
        "/static/../token",
    ],
)
def test_no_path_leads_out_of_the_routes(client: httpx2.Client, world: World, path: str) -> None:
    # As an address, because "//api/usage" alone would name a host.
    answer = client.get(world.url + path)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["status"] == answer.status_code
    assert world.token not in answer.text


@requirement("http:limits")
def test_a_client_that_asks_too_often_is_told_when_to_retry(tmp_path: Path) -> None:
    with serving(tmp_path, server__requests_per_s=0.1) as world, world.client() as client:
        # Several, because on a busy machine ten seconds may pass between two.
        answers = [client.get("/healthz") for _ in range(5)]
        assert answers[0].status_code == 200
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["code"] == "too_many_requests"
        assert 1 <= int(refused.headers["retry-after"]) <= 10


@requirement("http:limits", "http:token")
def test_many_wrong_tokens_are_slowed_down_and_shut_nobody_out(tmp_path: Path) -> None:
    with serving(tmp_path) as world, world.client() as client:
        wrong = [client.get("/api/usage", headers={"authorization": "Bearer no"}) for _ in range(60)]
        assert {answer.status_code for answer in wrong} == {401, 429}
        assert client.get("/api/usage").status_code == 200


@requirement("http:limits")
@given(st.lists(st.floats(min_value=0, max_value=5, allow_nan=False), max_size=60))
def test_nobody_gets_more_than_the_burst_and_what_the_time_allows(pauses: list[float]) -> None:
    rates, now_s, allowed = Rates(per_s=2, burst=5), 0.0, 0
    for pause in pauses:
        now_s += pause
        wait_s = rates.take("someone", now_s)
        if not wait_s:
            allowed += 1
        else:
            assert rates.take("someone", now_s + wait_s + 1e-6) == 0.0
            now_s += wait_s + 1e-6
            allowed += 1
    assert allowed <= 5 + 2 * now_s + 1e-3


@requirement("http:hostile")
def test_a_defect_is_a_problem_without_its_words_in_the_answer_or_the_log(
    world: World, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = " ".join(["what", "Ann", "said", "in", "private"])

    async def broken() -> Any:
        raise RuntimeError(words)

    monkeypatch.setattr(world.satchel, "usage", broken)
    id = chat(client, words)[0].data["sessionId"]
    answer = client.get("/api/usage")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert words not in answer.text
    log = (world.home / "logs" / "server.log").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in log.splitlines()]
    [failed] = [line for line in lines if "GET /api/usage failed" in line["message"]]
    assert (failed["level"], failed["error"].splitlines()[-1]) == ("error", "RuntimeError")
    [turn] = [line for line in lines if line["logger"] == "satchel.turns"]
    assert (turn["session"], turn["turn"], turn["message"]) == (id, 1, "The turn ended: done.")
    assert words not in log
    assert (world.home / "logs" / "server.log").stat().st_mode & 0o777 == 0o600


@requirement("http:metrics")
def test_the_figures_count_requests_by_route_and_nothing_that_a_client_made_up(client: httpx2.Client) -> None:
    client.get("/api/memories/made-up-by-a-client")
    client.request("BREW", "/made-up-path")
    text = client.get("/metrics").text
    assert 'satchel_http_requests_total{method="GET",route="/api/memories/{id}",status="404"}' in text
    assert 'method="other",route="other",status="404"' in text
    assert "made-up" not in text
    assert "satchel_streams 0" in text


@requirement("http:hostile")
@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: {host}\r\nbad header\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_refused_like_everything_else(world: World, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", int(port(world))), timeout=300) as connection:
        connection.sendall(sent.replace(b"{host}", f"127.0.0.1:{port(world)}".encode()))
        answer = b""
        while b"}" not in answer and (piece := connection.recv(65536)):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["code"] == "bad_request"
