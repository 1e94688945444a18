"""Where the server listens and who finds it: what it refuses to start with, and real processes that are killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from satchel.config import ServerSettings
from satchel.errors import ConfigError, UsageError
from satchel.runtime.serving import announced, ensure_token, read_token, serving
from satchel.server.binding import check_binding
from tests.requirements import requirement
from tests.server import world
from tests.server.browsers import HTML, open_page, read, said, send, words_of
from tests.server.world import WORDS, chat, events_in, process, text_of


@requirement("http:bind")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_a_public_address_without_tls_is_refused_with_the_reason(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="there is no TLS"):
        check_binding(ServerSettings(host=host), tmp_path)


@requirement("http:bind")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_no_tls(tmp_path: Path, host: str) -> None:
    check_binding(ServerSettings(host=host), tmp_path)


@requirement("http:bind")
def test_a_certificate_that_can_not_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.tls_key is not set"):
        check_binding(ServerSettings(tls_cert="cert.pem"), tmp_path)
    both = ServerSettings(host="0.0.0.0", tls_cert="cert.pem", tls_key="key.pem")
    with pytest.raises(ConfigError, match="There is no file"):
        check_binding(both, tmp_path)
    (tmp_path / "cert.pem").write_text("no certificate")
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(ConfigError, match="can't be used"):
        check_binding(both, tmp_path)


@requirement("http:bind")
def test_with_a_certificate_it_serves_tls(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("TLS WAS NOT TESTED: there is no openssl to make a certificate with")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
        + [
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            tmp_path / "key.pem",
            "-out",
            tmp_path / "cert.pem",
        ],
        check=True,
        capture_output=True,
    )
    files = {"server__tls_cert": str(tmp_path / "cert.pem"), "server__tls_key": str(tmp_path / "key.pem")}
    with world.serving(tmp_path, server__host="localhost", **files) as served:
        assert served.url.startswith("https://localhost:")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        with httpx2.Client(base_url=served.url, verify=trusting, trust_env=False, timeout=120) as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            assert client.get("/healthz", headers={"origin": served.url}).status_code == 200


@requirement("http:token")
def test_the_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    assert read_token(tmp_path) is None
    token = ensure_token(tmp_path)
    assert len(token) >= 40
    assert ensure_token(tmp_path) == read_token(tmp_path) == token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


@requirement("http:token", "http:bind")
@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        ("x" * 43, 0o644, "can be read by others"),
        ("x" * 43, 0o620, "can be read by others"),
        ("short", 0o600, "no token"),
    ]
    + [
        ("", 0o600, "no token"),
        ("two words that are long enough", 0o600, "no token"),
        ("ü" * 40, 0o600, "no token"),
    ],
)
def test_a_token_that_is_known_or_guessed_is_refused(
    tmp_path: Path, content: str, mode: int, reason: str
) -> None:
    (tmp_path / "token").write_text(content, encoding="utf-8")
    (tmp_path / "token").chmod(mode)
    with pytest.raises(ConfigError, match=reason):
        ensure_token(tmp_path)


@requirement("http:discover")
def test_the_home_names_its_servers_address_while_it_runs(tmp_path: Path) -> None:
    assert serving(tmp_path) is None
    with announced(tmp_path, "http://127.0.0.1:7437"):
        found = serving(tmp_path)
        assert found is not None
        assert (found.url, found.pid) == ("http://127.0.0.1:7437", os.getpid())
        assert (tmp_path / "serve.json").stat().st_mode & 0o777 == 0o600
        with (
            pytest.raises(UsageError, match=r"running already at http://127\.0\.0\.1:7437"),
            announced(tmp_path, "x"),
        ):
            pass
    assert serving(tmp_path) is None
    for left in ('{"url": "http://127.0.0.1:7437", "pid": 1}', "", "[]", "{"):
        (tmp_path / "serve.json").write_text(left)
        assert serving(tmp_path) is None


@requirement("http:chat:killed", "http:discover")
def test_after_a_kill_during_a_stream_the_next_server_sends_the_rest(tmp_path: Path) -> None:
    ids: list[str] = []
    with process(tmp_path, "held") as (running, client):

        def read() -> None:
            with client.stream("POST", "/api/chat", json={"message": "hold it"}) as answer:
                for event in events_in(answer.iter_lines()):
                    ids.append(event.id)
                    if event.name == "text_delta":
                        running.kill()

        with pytest.raises(httpx2.HTTPError):
            read()
    assert serving(tmp_path / "home") is None
    with process(tmp_path, "free") as (_, client):
        session = ids[0].partition(".")[0]
        rest = chat(client, "hold it", headers={"last-event-id": ids[0]})
        assert [(event.name, event.data["status"]) for event in rest] == [("response", "interrupted")]
        assert client.post(f"/api/sessions/{session}/resume").json() == {"turn": 1}
        rest = chat(client, "hold it", headers={"last-event-id": ids[-1]})
        assert rest[0].name == "resumed"
        assert (text_of(rest), rest[-1].data["text"], rest[-1].data["status"]) == (WORDS, WORDS, "done")
        shown = client.get(f"/api/sessions/{session}").json()
        assert [event["type"] for event in shown["events"]].count("turn_start") == 1
        assert client.post(f"/api/sessions/{session}/resume").status_code == 400


@requirement("http:stop", "cli:serve")
def test_a_signal_ends_the_server_with_its_turns_written_and_its_streams_ended(tmp_path: Path) -> None:
    with process(tmp_path, "held") as (running, client):
        with client.stream("POST", "/api/chat", json={"message": "hold it"}) as answer:
            events = events_in(answer.iter_lines())
            assert next(events).name == "start"
            assert next(events).name == "text_delta"
            running.send_signal(signal.SIGTERM)
            last: Any = list(events)[-1]
        assert (last.name, last.data["status"]) == ("response", "cancelled")
        assert running.wait(120) == 0
    assert serving(tmp_path / "home") is None
    with process(tmp_path, "free") as (_, client):
        done = chat(client, "Hello", session_id=last.data["sessionId"])[-1].data
        assert (done["turn"], done["status"]) == (2, "done")
        # The same address has the web pages and MCP.
        assert "<h1>Log in</h1>" in client.get("/login", headers={"accept": "text/html"}).text
        begin = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        answer = client.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin},
            headers={"accept": "application/json, text/event-stream"},
        )
        assert '"serverInfo"' in answer.text


@requirement("http:light")
@pytest.mark.parametrize("words", [["ask", "Hello"], ["memory", "stats"]], ids=" ".join)
def test_other_commands_do_not_load_the_server(tmp_path: Path, words: list[str]) -> None:
    program = "import sys; from satchel.cli import main; main(sys.argv[1:]); print(' '.join(sys.modules))"
    environ = {"HOME": str(tmp_path), "SATCHEL_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**environ, "SATCHEL_MODEL": "none", "SATCHEL_MEMORY_EMBEDDER": "none"},
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    loaded = set(ended.stdout.splitlines()[-1].split())
    assert loaded & {"fastapi", "uvicorn", "starlette", "satchel.server", "textual"} == set()


@requirement("http:bind")
def test_the_command_refuses_a_public_address_in_one_line(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "SATCHEL_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(
        [sys.executable, "-m", "satchel", "serve", "--host", "0.0.0.0", "--port", "0"],
        env={**environ, "SATCHEL_MODEL": "none", "SATCHEL_MEMORY_EMBEDDER": "none"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "server.host is '0.0.0.0', which other machines can reach, and there is no TLS" in ended.stderr
    assert json.dumps(sorted(path.name for path in tmp_path.iterdir())).count("token") == 0


@requirement("web-pages:settings:restart")
def test_the_settings_page_starts_the_server_again_at_its_address_with_what_was_changed(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('model = "command:cat"\n[memory]\nembedder = "none"\nworker = "off"\n')
    with subprocess.Popen(
        [sys.executable, "-m", "satchel", "serve", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SATCHEL_HOME": str(home)},
    ) as running:
        try:
            assert running.stderr is not None
            assert "listens at" in running.stderr.readline()
            found = serving(home)
            assert found is not None
            # It follows the page's own `Refresh`, and waits where the next server does not accept yet.
            with httpx2.Client(
                base_url=found.url, headers={"accept": HTML}, timeout=120, trust_env=False
            ) as client:
                place = client.post(
                    "/login", data={"token": ensure_token(home)}, headers={"origin": found.url}
                )
                client.base_url = httpx2.URL(found.url + place.headers["location"].rstrip("/"))
                page = open_page(client, "/settings?q=agent.max_rounds")
                send(client, page, "/settings", {"agent.max_rounds": "23"})
                page = open_page(client, "/settings?q=agent.max_rounds")
                assert "until then: 10" in words_of(page)
                kept = (home / "config.toml").read_text()
                (home / "config.toml").write_text(kept + "[nonsense")
                send(client, page, "/settings/restart")
                assert "would not start again" in said(open_page(client, "/settings"))
                (home / "config.toml").write_text(kept)
                send(client, page, "/settings/restart")
                shown = None
                while shown is None or "refresh" in shown.headers:
                    # A browser, too, sends a GET again whose connection the server closed meanwhile.
                    with contextlib.suppress(httpx2.ReadError, httpx2.RemoteProtocolError):
                        shown = client.get("/settings?q=agent.max_rounds")
                        assert "refresh" not in shown.headers or "Satchel is restarting" in shown.text
                page = read(shown)
                assert page.xpath("//*[@name='agent.max_rounds']/@value") == ["23"]
                assert "until then" not in words_of(page)
            again = serving(home)
            assert again is not None
            assert (again.pid, again.url) == (running.pid, found.url)
            running.send_signal(signal.SIGTERM)
            assert running.stderr.read().count("listens at") == 1
            assert running.wait(120) == 0
        finally:
            running.kill()
