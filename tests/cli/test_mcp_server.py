"""`satchel mcp-server`: servers added, listed, tried and removed, and logins at one with an authorization server."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from satchel.tools.mcp import guard
from tests.cli.conftest import Run, serving
from tests.cli.programs import PROGRAM, Ran, environ_for, scripted, speaks
from tests.requirements import requirement
from tests.tools.mcp.conftest import STRANGER
from tests.tools.mcp.guarded import Guarded, guarded

NEEDS_LOGIN = "it needs a login: satchel mcp-server login t"


class Browser(webbrowser.BaseBrowser):
    """A user's browser: opens each address, and agrees to everything."""

    def __init__(self) -> None:
        super().__init__("tests")
        self.server: Guarded | None = None
        self.visit: Callable[[str], object] | None = None
        self.addresses: list[str] = []
        self.pages: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.addresses.append(url)
        threading.Thread(target=self._browse, args=(url,)).start()
        return True

    def _browse(self, url: str) -> None:
        assert self.server is not None
        if self.visit is not None:
            self.visit(url)
        self.pages.append(self.server.browse(url).text)


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    found = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda using=None: found)
    monkeypatch.setattr(webbrowser, "open", found.open)
    return found


@pytest.fixture
def server(browser: Browser) -> Iterator[Guarded]:
    with guarded() as found:
        browser.server = found
        yield found


def add(run: Run, server: Guarded, *more: str) -> None:
    added = run("mcp-server", "add", "t", "--url", server.url, *more)
    assert added.code == 0, added.err


def log_in(run: Run, *more: str, **environ: str) -> Ran:
    return run("mcp-server", "login", "t", "--timeout", "280", *more, environ={"DISPLAY": ":1", **environ})


def kept(tmp_path: Path) -> Path:
    return tmp_path / "home" / "keys.json"


@requirement("mcp:oauth")
def test_a_remote_server_is_logged_in_to_called_and_logged_out_of(
    run: Run, tmp_path: Path, server: Guarded, browser: Browser
) -> None:
    add(run, server)
    assert json.loads(run("mcp-server", "list", "--json").out)[0]["logged_in"] is False
    tried = run("mcp-server", "test", "t")
    assert (tried.code, tried.err.splitlines()[0]) == (1, f"t is unavailable: {NEEDS_LOGIN}.")
    (entry,) = json.loads(run("tool", "list", "--source", "mcp", "--json").out)
    assert (entry["status"], NEEDS_LOGIN in entry["reason"]) == ("down", True)
    assert browser.addresses == []

    done = log_in(run, "--json")
    path = kept(tmp_path)
    assert json.loads(done.out) == {
        "name": "t",
        "issuer": f"{server.origin}/",
        "scope": "read",
        "kept_in": str(path),
    }
    assert browser.addresses[0] in done.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    tried = run("mcp-server", "test", "t")
    assert (tried.code, tried.out.splitlines()[1].split()) == (
        0,
        ["mcp__t__whoami", "Who", "is", "logged", "in."],
    )
    assert json.loads(run("tool", "run", "mcp__t__whoami").out)["result"]["text"] == "Ann"
    listed = run("mcp-server", "list")
    assert listed.out.split("http://")[0].split() == ["t", "http", "1", "tool,", "logged", "in"]

    # What was given stands in that file and nowhere else.
    shown = run("config", "show").out + listed.out + tried.out + tried.err + done.out + done.err
    others = [each.read_bytes() for each in (tmp_path / "home").rglob("*") if each.is_file() and each != path]
    assert len(server.given) >= 3
    for secret in server.given:
        assert secret in path.read_text()
        assert secret not in shown
        assert not any(secret.encode() in other for other in others)

    assert run("mcp-server", "logout", "t").err == "t: The login was revoked, and its tokens are deleted.\n"
    assert (kept(tmp_path).read_text(), server.users.access, server.users.refresh) == ("{}\n", {}, {})
    assert NEEDS_LOGIN in run("mcp-server", "test", "t").err
    assert run("mcp-server", "logout", "t").code == 3


@requirement("mcp:oauth")
def test_a_conversation_says_that_a_server_needs_a_login_and_opens_nothing(
    run: Run, server: Guarded, browser: Browser
) -> None:
    add(run, server)
    with serving(scripted(speaks("Hello."))) as model:
        asked = run("ask", "Hi", server=model, environ={"DISPLAY": ":1"})
    assert (asked.code, asked.out) == (0, "Hello.\n")
    assert f"The MCP server t is unavailable: {NEEDS_LOGIN}" in asked.err
    assert browser.addresses == []


@requirement("mcp:oauth")
def test_an_expired_token_is_renewed_and_an_expired_login_is_reported(
    run: Run, tmp_path: Path, server: Guarded
) -> None:
    add(run, server)
    server.users.lives_s = 1
    assert log_in(run).code == 0
    # GitHub, for one, answers a form to those who don't ask for JSON.
    asked = [server.headers.pop("/token")["accept"]]
    server.users.lives_s = 3600
    assert json.loads(run("tool", "run", "mcp__t__whoami").out)["result"]["text"] == "Ann"
    assert server.users.renewals == 1
    assert [*asked, server.headers["/token"]["accept"]] == ["application/json"] * 2
    # The server forgot a token that should still be valid.
    server.users.access.clear()
    assert run("tool", "run", "mcp__t__whoami").code == 0
    assert server.users.renewals == 2
    server.users.access.clear()
    server.users.refresh.clear()
    ran = run("tool", "run", "mcp__t__whoami")
    assert ran.code == 1
    assert (
        "the login was not renewed; it needs a login: satchel mcp-server login t"
        in json.loads(ran.out)["error"]
    )
    assert log_in(run).code == 0
    assert run("tool", "run", "mcp__t__whoami").code == 0


@requirement("mcp:oauth")
def test_where_no_browser_is_the_address_that_it_ended_at_is_pasted(tmp_path: Path, server: Guarded) -> None:
    environ = environ_for(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f'[mcp_servers.t]\nurl = "{server.url}"\n')
    with subprocess.Popen(
        [*PROGRAM, "mcp-server", "login", "t", "--timeout", "280"],
        env=environ,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        address = next(found[0] for line in lines if (found := re.search(r"http://\S+/authorize\S+", line)))
        back = server.redirect(address)
        assert back.startswith("http://127.0.0.1:")
        print("what?", file=process.stdin)
        print(re.sub("state=[^&]*", "state=another", back), file=process.stdin)
        print(back, file=process.stdin)
        said = "".join(lines)
    assert process.returncode == 0
    assert said.count("That address does not belong to this login.") == 2
    assert "You are logged in to t" in said


@requirement("mcp:oauth:hostile")
def test_other_requests_to_the_port_are_rejected(
    run: Run, tmp_path: Path, server: Guarded, browser: Browser
) -> None:
    add(run, server)
    pages: list[int] = []

    def others_first(address: str) -> None:
        callback = server.redirect(address).partition("?")[0]
        pages.extend(
            server.browse(where).status_code
            for where in (
                f"{callback}?code=x&state=guessed",
                f"{callback}?code=x",
                callback.replace("callback", "x"),
            )
        )

    browser.visit = others_first
    assert log_in(run).code == 0
    assert pages == [400, 400, 404]


@requirement("mcp:oauth")
def test_where_nobody_logs_in_the_command_gives_up_and_without_a_display_it_opens_nothing(
    run: Run, tmp_path: Path, server: Guarded, browser: Browser
) -> None:
    add(run, server)
    done = run("mcp-server", "login", "t", "--timeout", "1")
    assert (done.code, done.err.splitlines()[-1]) == (
        1,
        "satchel: Nobody logged in to t within 1 second. Nothing was changed.",
    )
    assert (browser.addresses, kept(tmp_path).exists()) == ([], False)


@requirement("mcp:oauth")
def test_a_user_who_refuses_is_not_logged_in(run: Run, tmp_path: Path, server: Guarded) -> None:
    add(run, server)
    server.users.denies = True
    done = log_in(run)
    assert done.code == 1
    assert done.err.splitlines()[-1] == (
        "satchel: The login at t failed: the authorization server says: Ann said no."
    )
    assert not kept(tmp_path).exists()


@requirement("mcp:oauth")
@pytest.mark.parametrize("secret", ["", "s3cret-of-the-client"])
def test_a_client_that_was_registered_by_hand_is_used(
    run: Run, tmp_path: Path, browser: Browser, secret: str
) -> None:
    with guarded(registers=False) as server:
        browser.server = server
        add(run, server)
        done = log_in(run)
        assert done.code == 1
        assert "Register one there, and set mcp_servers.t.oauth_client_id" in done.err
        assert run("mcp-server", "remove", "t", "--yes").code == 0

        server.users.clients["mine"] = OAuthClientInformationFull(
            client_id="mine",
            client_secret=secret or None,
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{free_port()}/callback")],
            scope="read write",
        )
        port = str(server.users.clients["mine"].redirect_uris[0].port)  # type: ignore[index]
        add(run, server, "--client-id", "mine", *(["--client-secret-env", "MINE"] if secret else []))
        run("config", "set", "mcp_servers.t.oauth_redirect_port", port)
        if secret:
            assert "names MINE, which is not set" in log_in(run).err
        done = log_in(run, "--json", MINE=secret)
        assert (done.code, json.loads(done.out)["scope"]) == (0, "read")
        run("config", "set", "mcp_servers.t.oauth_scopes", "read,write")
        assert json.loads(log_in(run, "--json", MINE=secret).out)["scope"] == "read write"
        assert run("tool", "run", "mcp__t__whoami").code == 0
        server.users.access.clear()
        assert run("tool", "run", "mcp__t__whoami").code == 0
        assert "s3cret" not in run("config", "show").out


def free_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


PROTECTED = "/.well-known/oauth-protected-resource/mcp"
METADATA = "/.well-known/oauth-authorization-server"


def metadata(server: Guarded, **more: str) -> tuple[int, dict[str, str], bytes]:
    found = {
        "issuer": f"{server.origin}/",
        "authorization_endpoint": f"{server.origin}/authorize",
        "token_endpoint": f"{server.origin}/token",
        "registration_endpoint": f"{server.origin}/register",
        **more,
    }
    return as_json(found)


def as_json(value: Any, status: int = 200) -> tuple[int, dict[str, str], bytes]:
    return status, {"content-type": "application/json"}, json.dumps(value).encode()


async def endless(send: Any) -> None:
    for _ in range(100):
        await send({"type": "http.response.body", "body": b" " * 65_536, "more_body": True})


async def slow(send: Any) -> None:
    import anyio  # noqa: PLC0415

    for _ in range(600):
        await send({"type": "http.response.body", "body": b" ", "more_body": True})
        await anyio.sleep(0.05)


def moved(where: str) -> tuple[int, dict[str, str], bytes]:
    return 307, {"location": where}, b""


HOSTILE: dict[str, tuple[Callable[[Guarded], dict[str, Any]], int, str]] = {
    "redirects to itself for ever": (
        lambda s: {path: moved(path) for path in ("/mcp", PROTECTED, METADATA, "/register")},
        1,
        "the server publishes no way to log in (registration: HTTP 307",
    ),
    "sends registrations elsewhere": (
        lambda s: {"/register": moved("http://127.0.0.1:9/register")},
        1,
        "does not register Satchel (HTTP 307 (redirected to http://127.0.0.1:9/register; not followed))",
    ),
    "gives no token": (
        lambda s: {"/token": as_json({"token_type": "Bearer", "refresh_token": "hunter2"})},
        1,
        "the authorization server sent no token",
    ),
    "gives a token that is no header": (
        lambda s: {"/token": as_json({"access_token": "hunter2\r\nX: y", "token_type": "Bearer"})},
        1,
        "sent a token that a header can't hold",
    ),
    "refuses the code": (
        lambda s: {"/token": as_json({"error": "invalid_grant", "error_description": "hunter2"}, 400)},
        1,
        "the authorization server answered HTTP 400 (invalid_grant)",
    ),
    "names a cloud's metadata service": (
        lambda s: {METADATA: metadata(s, token_endpoint="http://169.254.169.254/latest")},
        4,
        "The login leads to http://169.254.169.254/latest at 169.254.169.254, which is not a public address",
    ),
    "sends the browser to one": (
        lambda s: {METADATA: metadata(s, authorization_endpoint="http://169.254.169.254/authorize")},
        4,
        "The login leads to http://169.254.169.254/authorize at 169.254.169.254, which is not a public",
    ),
    "is another server's": (
        lambda s: {
            PROTECTED: as_json({"resource": "https://bank.example/mcp", "authorization_servers": [s.origin]})
        },
        1,
        "Protected resource https://bank.example/mcp does not match expected",
    ),
    "has another issuer": (
        lambda s: {METADATA: metadata(s, issuer="https://other.example")},
        1,
        "Authorization server metadata issuer mismatch",
    ),
    "supports no PKCE": (
        lambda s: {METADATA: metadata(s, code_challenge_methods_supported=["plain"])},  # type: ignore[arg-type]
        1,
        "the authorization server does not support PKCE with S256",
    ),
    "answers without end": (
        lambda s: {METADATA: (200, {"content-type": "application/json"}, endless)},
        1,
        "sent more than 1,000,000 bytes",
    ),
    "answers ever so slowly": (
        lambda s: {METADATA: (200, {"content-type": "application/json"}, slow)},
        1,
        "did not answer within 0.5 s",
    ),
    "answers compressed": (
        lambda s: {METADATA: (200, {"content-encoding": "gzip"}, b"x")},
        1,
        "sent a compressed response, which was not requested",
    ),
    "is broken": (lambda s: {"/mcp": (500, {}, b"")}, 1, "The MCP server t answers with HTTP 500"),
    "registers nonsense": (
        lambda s: {"/register": as_json({"client_id": None, "secret": "hunter2"}, 201)},
        1,
        "does not register Satchel (invalid response)",
    ),
}


@requirement("mcp:oauth:hostile")
@pytest.mark.parametrize("what", HOSTILE)
def test_an_authorization_server_that_breaks_the_rules_costs_a_clear_error(
    run: Run, tmp_path: Path, server: Guarded, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    answers, code, said = HOSTILE[what]
    if what == "answers ever so slowly":
        monkeypatch.setattr(guard, "REQUEST_S", 0.5)
    add(run, server)
    server.answers = answers(server)
    done = log_in(run)
    assert said in done.err
    assert done.code == code
    assert "hunter2" not in done.err
    assert len(server.requests) < 50
    assert not kept(tmp_path).exists()


@requirement("mcp:oauth:hostile")
def test_a_token_for_another_server_is_not_kept(run: Run, tmp_path: Path, server: Guarded) -> None:
    add(run, server)
    server.users.resource = "https://other.example/mcp"
    done = log_in(run)
    assert done.code == 1
    assert "the server refuses the new token (HTTP 401)" in done.err
    assert not kept(tmp_path).exists()


@requirement("mcp:oauth")
@pytest.mark.parametrize(
    ("config", "code", "said"),
    [
        ('command = "x"', 2, "t is a program; only servers with an address have a login."),
        (
            'url = "https://127.0.0.1:9/mcp"\nheaders = { authorization = "Bearer x" }',
            2,
            "[mcp_servers.t] headers has an Authorization, which is used in place of a login. Remove it first.",
        ),
        ('url = "http://127.0.0.1:9/mcp"', 1, "http://127.0.0.1:9/mcp can't be reached: ConnectError"),
        (
            'url = "http://127.0.0.1:9/mcp"\noauth_env_client_secret = "no-name"',
            2,
            "not the name of an environment",
        ),
    ],
)
def test_a_login_that_can_not_be_is_refused(
    run: Run, tmp_path: Path, config: str, code: int, said: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f"[mcp_servers.t]\n{config}\n")
    done = log_in(run)
    assert done.code == code
    assert said in done.err
    assert run("mcp-server", "login", "u").code in (2, 3)


def test_a_header_that_is_refused_is_named(run: Run, server: Guarded) -> None:
    add(run, server, "--header", "Authorization=Bearer ${TOKEN}")
    tried = run("mcp-server", "test", "t", environ={"TOKEN": "hunter2"})
    assert "it refuses the Authorization header in [mcp_servers.t] (HTTP 401)" in tried.err
    assert "hunter2" not in tried.err


@requirement("mcp:commands")
def test_a_program_is_added_listed_tried_and_removed(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "home" / "config.toml"
    config.parent.mkdir()
    config.write_text('# Mine.\nmodel = "none"\n')
    added = run(
        "mcp-server", "add", "x", "--env", "TOKEN=hunter2", "--", sys.executable, str(STRANGER), "good"
    )
    assert added.code == 0
    assert "The value of x.env.TOKEN is in plain text in" in added.err
    assert run("mcp-server", "add", "x", "--", "other").code == 2
    (listed,) = json.loads(run("mcp-server", "list", "--json").out)
    assert listed == {
        "name": "x",
        "transport": "stdio",
        "address": f"{sys.executable} {STRANGER} good",
        "enabled": True,
        "tools": None,
        "waiting": 0,
        "logged_in": False,
        "file": str(config),
        "problem": "",
    }
    tried = json.loads(run("mcp-server", "test", "x", "--json").out)
    assert (tried["state"], tried["transport"], tried["protocol"]) == ("ready", "stdio", "2025-06-18")
    assert [tool["name"] for tool in tried["tools"]] == ["mcp__x__work"]
    assert json.loads(run("mcp-server", "list", "--json").out)[0]["tools"] == 1
    assert run("mcp-server", "remove", "x").code == 2
    removed = json.loads(run("mcp-server", "remove", "x", "--yes", "--json").out)
    assert removed == {"name": "x", "file": str(config), "forgot_approvals": True, "logged_out": False}
    assert config.read_text() == '# Mine.\nmodel = "none"\n'
    assert list((tmp_path / "home" / "pins").iterdir()) == []
    assert run("mcp-server", "remove", "x", "--yes").code == 3


@requirement("mcp:commands")
def test_what_a_server_offers_beside_tools_is_shown(run: Run, tmp_path: Path) -> None:
    offers = {
        "resources": [{"uri": f"demo://{number}", "name": f"r{number}"} for number in range(22)],
        "prompts": [{"name": "greet", "description": "Greets."}],
    }
    (tmp_path / "offers.json").write_text(json.dumps(offers))
    (tmp_path / "instructions.txt").write_text("Ask twice.")
    run("mcp-server", "add", "x", "--", sys.executable, str(STRANGER), "offers", str(tmp_path))
    tried = run("mcp-server", "test", "x")
    lines = [line.split() for line in tried.out.splitlines()]
    assert (tried.code, lines[0][:2]) == (0, ["x:", "ready"])
    assert ["@x:demo://0", "r0"] in lines
    assert lines[-4:] == [
        ["…", "and", "2", "more", "resources"],
        ["/mcp__x__greet", "Greets."],
        ["Its", "instructions", "for", "using", "the", "tools:"],
        [">", "Ask", "twice."],
    ]
    shown = json.loads(run("mcp-server", "test", "x", "--json").out)
    assert (len(shown["resources"]), shown["instructions"]) == (22, "Ask twice.")


@requirement("mcp:commands")
def test_an_address_needs_no_scheme(run: Run, tmp_path: Path) -> None:
    for given, name in (("mcp.example.com/mcp", "far"), ("[::1]:9/mcp", "near")):
        assert run("mcp-server", "add", name, "--url", given).code == 0
    text = (tmp_path / "home" / "config.toml").read_text()
    assert 'url = "https://mcp.example.com/mcp"' in text
    assert 'url = "http://[::1]:9/mcp"' in text


@requirement("mcp:commands")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a__b", "--", "x"), "can't be called 'a__b'"),
        (("a/b", "--", "x"), "consists of letters, digits"),
        (("a",), "needs a command (a program to start) or a url, but has neither"),
        (("a", "--url", "http://h/mcp", "--", "x"), "but has both"),
        (("a", "--url", "ftp://h"), "is not an address"),
        (("a", "--url", "http://h/mcp", "--header", "hunter2"), "--header takes NAME=VALUE"),
        (("a", "--url", "http://h/mcp", "--client-secret-env", "hunter2!"), "not the name of an environment"),
    ],
)
def test_an_entry_that_is_wrong_is_not_added(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    added = run("mcp-server", "add", *arguments)
    assert (added.code, said in added.err) == (2, True)
    assert "hunter2" not in added.err
    assert not (tmp_path / "home" / "config.toml").exists()


@requirement("mcp:commands")
def test_a_server_that_the_environment_sets_is_not_removed(run: Run) -> None:
    environ = {"SATCHEL_MCP_SERVERS_X_COMMAND": "prog"}
    (listed,) = json.loads(run("mcp-server", "list", "--json", environ=environ).out)
    assert listed["file"] == "SATCHEL_MCP_SERVERS_X_COMMAND"
    removed = run("mcp-server", "remove", "x", "--yes", environ=environ)
    assert removed.code == 2
    assert "x is set by SATCHEL_MCP_SERVERS_X_COMMAND in the environment. Unset it there." in removed.err


@requirement("mcp:commands")
def test_a_server_of_a_project_is_added_to_its_settings_which_are_trusted_again(
    run: Run, tmp_path: Path
) -> None:
    added = run("mcp-server", "add", "x", "--project", "--", "prog")
    file = tmp_path / "work" / ".satchel" / "config.toml"
    assert (added.code, file.read_text()) == (0, '[mcp_servers.x]\ncommand = "prog"\n')
    assert "ignored until you type: satchel config trust" in added.err
    assert json.loads(run("mcp-server", "list", "--json").out) == []
    assert run("config", "trust", "--yes").code == 0
    assert json.loads(run("mcp-server", "list", "--json").out)[0]["file"] == str(file)
    removed = run("mcp-server", "remove", "x", "--yes")
    assert removed.code == 0
    assert "ignored until you type: satchel config trust" in removed.err
    assert "mcp_servers" not in file.read_text()
