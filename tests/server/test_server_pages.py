"""The pages on which MCP servers are added, tried, logged in to, switched and removed while conversations go on."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from satchel.config import McpServerSettings, Settings, keys, load, write
from satchel.config.home import replace_file
from satchel.errors import ConfigError
from satchel.messages import ToolResultBlock
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.runtime.servers import add_server, change_server, kept_apart
from satchel.tools.mcp import LoginStore, filled_in
from tests.cli.conftest import serving as endpoint
from tests.models.loopback import as_json
from tests.requirements import requirement
from tests.server.browsers import browser, open_page, read, said, send, words_of
from tests.server.world import Held, World, chat, serving
from tests.tools.mcp.conftest import STRANGER
from tests.tools.mcp.guarded import guarded

HERE = "/settings/servers"
SECRET = "s3cret-0123456789 with blanks"


def caller(held: Held) -> ScriptedModel:
    """Calls the tool that a message names, in the way in which it is offered."""
    del held

    def reply(request: ModelRequest) -> Reply | str:
        newest = request.messages[-1].text
        if not newest.startswith("call "):
            [*_, last] = request.messages[-1].blocks
            return last.content if isinstance(last, ToolResultBlock) else "I see."
        name = newest.removeprefix("call ")
        if any(tool.name == name for tool in request.tools):
            return Reply(calls=[Call(name=name, input={}, id="c1")])
        return Reply(calls=[Call(name="tool_call", input={"name": name, "input": {}}, id="c1")])

    return ScriptedModel(reply)


@pytest.fixture
def world(tmp_path: Any) -> Iterator[World]:
    with serving(tmp_path, caller, server__requests_per_s=10_000) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[httpx2.Client]:
    with browser(world) as client:
        yield client


def program(behaviour: str) -> str:
    return f"'{sys.executable}' '{STRANGER}' {behaviour}"


def planned(client: httpx2.Client, **fields: str) -> Any:
    """The page that shows what a server would do."""
    page = open_page(client, HERE)
    kind = "program" if "command" in fields else "address"
    [form] = [form for form in page.forms if form.fields.get("kind") == kind]
    filled = {**dict(form.form_values()), **fields}
    return client.post(
        HERE, data=filled, headers={"origin": str(client.base_url.copy_with(path="/")).rstrip("/")}
    )


def add(client: httpx2.Client, **fields: str) -> str:
    """Add a server and start it. Returns what is said then."""
    send(client, read(planned(client, **fields)), f"{HERE}/save", {"start": "1"})
    return said(open_page(client, f"{HERE}/{fields['name']}"))


def called(program: httpx2.Client, session: str, tool: str) -> str:
    """The result of a call in a session that is open."""
    return str(chat(program, f"call {tool}", session_id=session)[-1].data["text"])


@requirement("web-pages:servers")
def test_a_program_is_shown_saved_used_switched_off_and_removed_while_a_session_goes_on(
    world: World, client: httpx2.Client
) -> None:
    with world.client() as api:
        session = chat(api, "Hello")[0].data["sessionId"]
        assert "mcp__good__work" in called(api, session, "mcp__good__work")  # there is no such tool

        shown = read(
            planned(client, name="good", command=program("good"), env=f"API_KEY={SECRET}\nL=${{L:-1}}")
        )
        assert words_of(shown.cssselect("code.command")[0]) == f"{sys.executable} {STRANGER} good"
        assert f"The program is {sys.executable}" in words_of(shown)
        assert "API_KEY, L" in words_of(shown)
        assert not (world.home / "config.toml").exists()
        assert not (world.home / "keys.json").exists()
        assert world.satchel.mcp.status() == ()

        send(client, shown, f"{HERE}/save", {"start": "1"})
        page = open_page(client, f"{HERE}/good")
        assert said(page) == "good works: 1 tool, protocol 2025-06-18."
        assert world.satchel.has_open(session)
        assert called(api, session, "mcp__good__work").endswith("done")
        entry = tomllib.loads((world.home / "config.toml").read_text())["mcp_servers"]["good"]
        assert entry["env"] == {"API_KEY": "${MCP_GOOD_API_KEY}", "L": "${L:-1}"}
        assert json.loads((world.home / "keys.json").read_text()) == {"MCP_GOOD_API_KEY": SECRET}
        assert (world.home / "keys.json").stat().st_mode & 0o077 == 0

        page = open_page(client, f"{HERE}/good")
        assert "1 call lately" in words_of(page.get_element_by_id("tools"))
        [use] = page.cssselect("#uses li")
        assert words_of(use.cssselect("p")[1]) == "done"
        assert use.cssselect("a")[0].get("href").startswith(f"/chat/{session}#turn-")
        for path in (HERE, f"{HERE}/good", "/settings?q=mcp", "/doctor"):
            assert SECRET not in client.get(path).text

        send(client, page, f"{HERE}/good/switch", {"to": "off"})
        assert "done" not in called(api, session, "mcp__good__work")
        page = open_page(client, f"{HERE}/good")
        assert "off" in words_of(page.cssselect(".head .state")[0])
        send(client, page, f"{HERE}/good/test")
        assert "good works: 1 tool" in said(open_page(client, f"{HERE}/good"))
        send(client, open_page(client, f"{HERE}/good"), f"{HERE}/good/switch", {"to": "on"})
        assert called(api, session, "mcp__good__work").endswith("done")

        send(client, open_page(client, f"{HERE}/good"), f"{HERE}/good/remove")
        assert f"good was removed from {world.home / 'config.toml'}." in said(open_page(client, HERE))
        assert "done" not in called(api, session, "mcp__good__work")
        assert "mcp_servers" not in tomllib.loads((world.home / "config.toml").read_text())
        assert json.loads((world.home / "keys.json").read_text()) == {}
        assert client.get(f"{HERE}/good").status_code == 404
        assert client.post(f"{HERE}/good/test").status_code == 403

        # Saved and not started: the next message starts it.
        send(client, read(planned(client, name="good", command=program("good"))), f"{HERE}/save", {})
        [status] = world.satchel.mcp.status()
        assert status.state == "idle"
        chat(api, "Hello", session_id=session)
        assert called(api, session, "mcp__good__work").endswith("done")


@requirement("web-pages:servers")
def test_what_cannot_be_a_server_is_refused_with_its_reason_and_no_secret(
    world: World, client: httpx2.Client
) -> None:
    add(client, name="good", command=program("good"))
    before = (world.home / "config.toml").read_bytes()
    for fields, reason in (
        ({"name": "good", "command": "x"}, "already"),
        ({"name": "a__b", "command": "x"}, "underscore"),
        ({"name": "a/b", "command": "x"}, "a/b"),
        ({"name": "a", "command": "x 'y"}, "quote"),
        ({"name": "a", "command": " "}, "Say which command"),
        ({"name": "a", "command": "x", "env": f"A=1\n{SECRET}"}, "Line 2"),
        ({"name": "a", "url": f"ftp://x/{SECRET.split()[0]}"}, "not an address"),
    ):
        answer = planned(client, **fields)
        page = read(answer, 422)
        assert reason in words_of(page.cssselect('[role="alert"]')[0]), fields
        assert SECRET not in answer.text
    gone = send(client, read(planned(client, name="b", command="x")), f"{HERE}/save", {"planned": "0" * 16})
    assert gone.headers["location"] == HERE
    assert "nothing was saved" in said(open_page(client, HERE))
    assert (world.home / "config.toml").read_bytes() == before
    for given, read_as in (
        ("localhost:9/mcp", "http://localhost:9/mcp"),
        ("b.example/mcp?to=http://c", "https://b.example/mcp?to=http://c"),
        ("${B_URL}/mcp", " ${B_URL}/mcp"),
    ):
        assert read_as in words_of(read(planned(client, name="b", url=given)))
    missing = read(planned(client, name="b", command="no-such-program-here"))
    assert "There is no program no-such-program-here" in words_of(missing)
    fetched = read(planned(client, name="b", command="npx -y some-server"))
    assert "fetches code from registry.npmjs.org" in words_of(fetched)
    hostile = read(planned(client, name="b", command="echo '<script>alert(1)</script>\u202e'"))
    assert hostile.cssselect("main script") == []
    assert "<U+202E>" in words_of(hostile.cssselect("code.command")[0])


@requirement("web-pages:servers")
def test_a_server_that_does_not_start_says_why_and_tools_that_change_wait_for_approval(
    world: World, client: httpx2.Client
) -> None:
    # It exits, or closes its input first.
    assert add(client, name="bad", command=program("dies")).startswith("bad is unavailable: it ")
    page = open_page(client, f"{HERE}/bad")
    log = world.home / "logs" / "mcp-bad.log"
    assert str(log) in words_of(page.cssselect('.notice[data-state="failed"]')[-1])
    assert "no license key" in log.read_text()
    assert "unavailable" in words_of(open_page(client, HERE))

    add(client, name="good", command=program("good"))
    [pins] = (world.home / "pins").glob("mcp-good*")
    pins.write_text(pins.read_text().replace("A tool.", "It was another tool."))
    # As an upgrade would: the next process meets other words than were accepted.
    page = open_page(client, f"{HERE}/good")
    send(client, page, f"{HERE}/good/switch", {"to": "off"})
    send(client, open_page(client, f"{HERE}/good"), f"{HERE}/good/switch", {"to": "on"})
    send(client, open_page(client, f"{HERE}/good"), f"{HERE}/good/test")
    page = open_page(client, f"{HERE}/good")
    [waiting] = page.cssselect("#approve li")
    assert [words_of(each) for each in waiting.cssselect("p")] == [
        "mcp__good__work changed",
        "A tool.",
        "Before: It was another tool.",
    ]
    wrong = send(client, page, f"{HERE}/good/approve", {"tool": "mcp__bad__work"})
    assert wrong.status_code == 404
    older = send(
        client, page, f"{HERE}/good/approve", {"tool": "mcp__good__work", "sha256": "of other words"}
    )
    assert older.status_code == 400
    assert open_page(client, f"{HERE}/good").cssselect("#approve")
    send(client, page, f"{HERE}/good/approve", {"tool": "mcp__good__work"})
    page = open_page(client, f"{HERE}/good")
    assert page.cssselect("#approve") == []
    assert "work" in words_of(page.get_element_by_id("tools"))


@requirement("web-pages:servers:login")
def test_the_browser_logs_in_by_itself_or_with_a_pasted_address_and_out(
    world: World, client: httpx2.Client
) -> None:
    with guarded() as server:
        assert "it needs a login (“Log in”)." in add(client, name="t", url=server.url)
        page = open_page(client, f"{HERE}/t")
        send(client, page, f"{HERE}/t/login")
        page = open_page(client, f"{HERE}/t")
        [there] = page.xpath("//a[@target='_blank']/@href")
        assert there.startswith(server.origin)
        wrong = send(
            client, page, f"{HERE}/t/login/address", {"address": "http://127.0.0.1:1/callback?code=x&state=y"}
        )
        assert wrong.status_code == 303
        assert "does not belong to this login" in said(open_page(client, f"{HERE}/t"))
        # The browser on another machine is sent to an address that it can't open.
        back = httpx2.get(there, follow_redirects=False, trust_env=False, timeout=120).headers["location"]
        assert back.startswith("http://127.0.0.1:")
        send(client, open_page(client, f"{HERE}/t"), f"{HERE}/t/login/address", {"address": back})
        page = open_page(client, f"{HERE}/t")
        assert "You are logged in to t." in words_of(page)
        send(client, page, f"{HERE}/t/test")
        assert said(open_page(client, f"{HERE}/t")).startswith("t works: 1 tool")
        assert all(secret not in client.get(f"{HERE}/t").text for secret in server.given)

        send(client, open_page(client, f"{HERE}/t"), f"{HERE}/t/logout")
        assert "The login was revoked" in said(open_page(client, f"{HERE}/t"))
        entry = world.satchel.settings.mcp_servers["t"]
        assert not LoginStore(world.home).exists(entry)

        server.users.denies = True
        send(client, open_page(client, f"{HERE}/t"), f"{HERE}/t/login")
        page = open_page(client, f"{HERE}/t")
        [there] = page.xpath("//a[@target='_blank']/@href")
        assert "go back to Satchel" not in server.browse(there).text
        send(client, open_page(client, f"{HERE}/t"), f"{HERE}/t/test")
        assert "Ann said no" in words_of(open_page(client, f"{HERE}/t"))


@requirement("web-pages:servers")
def test_a_token_is_kept_apart_and_sent_after_a_restart_too(tmp_path: Any) -> None:
    with guarded() as server:
        token = "tok-0123456789"
        with serving(tmp_path, caller) as world, browser(world) as client:
            shown = read(planned(client, name="t", url=server.url, token=token, headers="X-Extra: yes"))
            assert "Authorization" in words_of(shown)
            assert token not in shown.text_content()
            send(client, shown, f"{HERE}/save", {})
            headers = tomllib.loads((world.home / "config.toml").read_text())["mcp_servers"]["t"]["headers"]
            assert headers == {
                "X-Extra": "${MCP_T_X_EXTRA}",
                "Authorization": "${MCP_T_AUTHORIZATION}",
            }
            assert token not in client.get(f"{HERE}/t").text
            assert not open_page(client, f"{HERE}/t").xpath("//form[@action='/settings/servers/t/login']")
        with serving(tmp_path, caller) as world, browser(world) as client:
            settings = world.satchel.settings
            assert settings.secret("MCP_T_AUTHORIZATION") == f"Bearer {token}"
            assert "MCP_T_AUTHORIZATION" not in settings.environ
            send(client, open_page(client, f"{HERE}/t"), f"{HERE}/t/remove")
            assert json.loads((world.home / "keys.json").read_text()) == {}
            # The name is free again, and a new value counts at once, not the one of the start.
            send(client, read(planned(client, name="t", url=server.url, token="other")), f"{HERE}/save", {})
            assert world.satchel.settings.secret("MCP_T_AUTHORIZATION_2") is None
            assert json.loads((world.home / "keys.json").read_text()) == {
                "MCP_T_AUTHORIZATION": "Bearer other"
            }
            assert world.satchel.settings.secret("MCP_T_AUTHORIZATION") == "Bearer other"


@requirement("web-pages:servers")
def test_a_server_is_changed_without_its_values_being_shown(tmp_path: Any) -> None:
    with guarded() as server, serving(tmp_path, caller) as world, browser(world) as client:
        config = world.home / "config.toml"
        fields = {"name": "t", "url": "http://127.0.0.1:9/mcp", "token": "tok-0123456789"}
        send(client, read(planned(client, **fields, headers="X-Extra: yes\nX-Old: gone")), f"{HERE}/save", {})
        [path] = open_page(client, f"{HERE}/t").xpath("//a[text()='Change']/@href")
        page = open_page(client, path)
        assert "tok-0123456789" not in client.get(path).text
        assert page.get_element_by_id("place").get("value") == fields["url"]

        def change(**given: str) -> httpx2.Response:
            return send(client, open_page(client, path), path, given)

        assert "Line 1 is not a name" in change(more="nonsense").text
        before = config.read_text()
        given = {"place": server.url, "value.X-Extra": "no", "gone.X-Old": "1", "more": "X-New: it"}
        assert "Authorization was given for the address before" in change(**given).text
        shown = read(change(**given, **{"value.Authorization": "Bearer tok-1111111111"}))
        assert config.read_text() == before
        send(client, shown, f"{HERE}/save", {})
        assert tomllib.loads(config.read_text())["mcp_servers"]["t"] == {
            "url": server.url,
            "headers": {
                "X-Extra": "${MCP_T_X_EXTRA_2}",
                "Authorization": "${MCP_T_AUTHORIZATION_2}",
                "X-New": "${MCP_T_X_NEW}",
            },
        }
        assert json.loads((world.home / "keys.json").read_text()) == {
            "MCP_T_AUTHORIZATION_2": "Bearer tok-1111111111",
            "MCP_T_X_EXTRA_2": "no",
            "MCP_T_X_NEW": "it",
        }
        # Of a program, what may be secret in its command is neither shown nor lost.
        secret = f"{program('good')} --token tok-9876543210"
        send(client, read(planned(client, name="p", command=secret, env="A=1")), f"{HERE}/save", {})
        path = f"{HERE}/p/edit"
        assert "tok-9876543210" not in client.get(path).text
        send(client, read(change(more="B=2")), f"{HERE}/save", {})
        entry = tomllib.loads(config.read_text())["mcp_servers"]["p"]
        assert entry["args"][-1] == "tok-9876543210"
        assert entry["env"] == {"A": "${MCP_P_A}", "B": "${MCP_P_B}"}
        send(client, read(change(place=program("good"))), f"{HERE}/save", {"start": "1"})
        assert said(open_page(client, f"{HERE}/p")).startswith("p works")


@requirement("web-pages:servers")
def test_whenever_a_change_of_a_server_is_killed_its_entry_has_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[str, str]] = set()

    def now() -> Settings:
        return load({}, cwd=tmp_path, home=tmp_path)

    def watched(path: Path, text: str) -> None:
        """What a process reads that starts after this write, the last one of one that was killed."""
        replace_file(path, text)
        found = [filled_in(entry, now().secret) for entry in now().mcp_servers.values()]
        seen.update((entry.url, entry.headers["Authorization"]) for entry in found)

    for module in (keys, write):
        monkeypatch.setattr(module, "replace_file", watched)
    one = McpServerSettings(name="t", url="http://one:1/mcp", headers={"Authorization": "Bearer one"})
    entry, values = kept_apart(now(), one)
    add_server(now(), entry, values=values)
    two = replace(one, url="http://two:1/mcp", headers={"Authorization": "Bearer two"})
    entry, values = kept_apart(now(), two)
    with pytest.raises(ConfigError, match="already has"):
        add_server(now(), entry, values=values)
    anyio.run(partial(change_server, now(), entry, values=values))
    assert json.loads((tmp_path / "keys.json").read_text()) == {"MCP_T_AUTHORIZATION_2": "Bearer two"}
    assert seen == {(one.url, "Bearer one"), (two.url, "Bearer two")}


@requirement("web-pages:servers")
def test_a_client_secret_goes_to_no_other_address(tmp_path: Path) -> None:
    with serving(tmp_path, caller) as world, browser(world) as client:
        entry = McpServerSettings(name="t", url="http://127.0.0.1:9/mcp", oauth_client_id="me")
        entry, values = kept_apart(world.satchel.settings, entry, client_secret="cs-0123456789")
        add_server(world.satchel.settings, entry, values=values)
        path = f"{HERE}/t/edit"
        answer = send(client, open_page(client, path), path, {"place": "http://127.0.0.1:8/mcp"})
        assert "The client secret was given for the address before" in answer.text
        assert send(client, open_page(client, path), path, {"place": "http://127.0.0.1:9/x"}).is_success


@requirement("web-pages:servers")
def test_what_is_saved_a_second_time_takes_no_value_from_what_was_saved_first(
    world: World, client: httpx2.Client
) -> None:
    """As with the browser's Back, or with two tabs."""
    other = read(planned(client, name="t-1", url="http://127.0.0.1:9/b", headers="X-Key: two"))
    shown = read(planned(client, name="t_1", url="http://127.0.0.1:9/a", headers="X-Key: one"))
    send(client, shown, f"{HERE}/save", {})
    for page in (shown, other):
        again = send(client, page, f"{HERE}/save", {})
        assert "already" in again.text
        assert json.loads((world.home / "keys.json").read_text()) == {"MCP_T_1_X_KEY": "one"}


@requirement("web-pages:servers:login")
def test_only_a_server_that_offers_a_login_has_the_button(world: World, client: httpx2.Client) -> None:
    def buttons(name: str) -> list[str]:
        return [
            each.text
            for each in open_page(client, f"{HERE}/{name}").xpath("//main//button[starts-with(., 'Log')]")
        ]

    with guarded() as server, endpoint(lambda _: as_json({}, status=401)) as locked:
        assert "offers no login" in add(client, name="locked", url=f"{locked.url}/mcp")
        assert buttons("locked") == []
        assert "it needs a login" in add(client, name="t", url=server.url)
        assert buttons("t") == ["Log in"]
    add(client, name="good", command=program("good"))
    assert buttons("good") == []
