"""Logins: where requests may lead, where tokens are kept, and several who renew one at the same time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import httpx2
import pytest

from satchel.clock import ManualClock
from satchel.config import McpServerSettings, Settings, load
from satchel.config.keys import KEYS_FILE, store_values
from satchel.errors import Refused, SatchelError, StorageError
from satchel.runtime.people import Person
from satchel.runtime.person_homes import environ_of
from satchel.runtime.servers import log_out
from satchel.tools.mcp import LoginStore
from satchel.tools.mcp.guard import Reach
from satchel.tools.mcp.logins import Login
from satchel.tools.mcp.oauth import Tokens, log_in
from satchel.tools.mcp.redirects import listening
from tests.requirements import requirement
from tests.rings import ringed
from tests.tools.mcp.conftest import Open
from tests.tools.mcp.guarded import Guarded, guarded

pytestmark = pytest.mark.anyio

PLACES = {
    "public": "203.0.114.9",
    "other": "198.51.101.7",
    "inside": "10.1.2.3",
    "beside": "192.168.0.9",
    "here": "127.0.0.1",
    "here6": "::1",
    "metadata": "169.254.169.254",
}


async def resolve(host: str, port: int) -> Sequence[str]:
    if host == "nowhere":
        raise OSError("no such name")
    return [PLACES.get(host, host)]


@requirement("mcp:oauth:hostile")
@pytest.mark.parametrize(
    ("server", "url", "is_allowed"),
    [
        ("https://public/mcp", "https://other/token", True),
        ("https://public/mcp", "https://here/token", False),
        ("https://inside/mcp", "https://beside/token", True),
        ("https://inside/mcp", "https://public/token", True),
        ("https://inside/mcp", "https://here/token", False),
        ("http://here/mcp", "http://here6/token", True),
        ("http://here/mcp", "https://inside/token", True),
        ("http://here/mcp", "http://metadata/token", False),
    ],
)
async def test_a_login_leads_no_further_inside_than_its_server_is(
    server: str, url: str, is_allowed: bool
) -> None:
    reach = Reach(server, resolve=resolve)
    if is_allowed:
        assert await reach.check(httpx2.URL(url))
    else:
        with pytest.raises(Refused, match="The login leads to"):
            await reach.check(httpx2.URL(url))


async def test_a_host_without_an_address_is_named() -> None:
    with pytest.raises(SatchelError, match="nowhere has no address: no such name"):
        await Reach("https://public/mcp", resolve=resolve).check(httpx2.URL("https://nowhere/token"))


ENTRY = McpServerSettings(name="t", url="https://mcp.example/mcp")
LOGIN = Login(
    url=ENTRY.url,
    issuer="https://id.example",
    token_endpoint="https://id.example/token",
    revocation_endpoint="",
    client_id="c",
    client_auth="none",
    resource="",
    scope="read",
    expires_at=None,
    client_secret="hunter2",
    access_token="hunter2-access",
    refresh_token="hunter2-refresh",
)


@requirement("mcp:oauth")
async def test_a_login_is_kept_where_keys_are_and_only_for_its_address(tmp_path: Path) -> None:
    store = LoginStore(tmp_path)
    assert await store.load(ENTRY) is None
    with ringed() as ring:
        assert await store.save(ENTRY, LOGIN) == "the keyring ring"
        assert "hunter2" not in (tmp_path / KEYS_FILE).read_text() + repr(LOGIN)
        assert await store.load(ENTRY) == LOGIN
        # Another address is another server: it gets nothing of this one's.
        assert await store.load(replace(ENTRY, url="https://evil.example/mcp")) is None
        ring.is_locked = True
        with pytest.raises(StorageError, match=r"^The login at t can't be read from the keyring ring\."):
            await store.load(ENTRY)
        ring.is_locked = False
        await store.delete(ENTRY)
        assert (ring.kept, store.exists(ENTRY)) == ({}, False)


@requirement("mcp:oauth")
async def test_a_login_is_none_of_the_keys_that_settings_and_other_people_get(tmp_path: Path) -> None:
    await LoginStore(tmp_path).save(ENTRY, LOGIN)
    store_values(tmp_path, {"MCP_T_AUTHORIZATION": "Bearer hunter2", "OPENAI_API_KEY": "sk-1"})
    settings = load({}, cwd=tmp_path, home=tmp_path)
    assert dict(settings.secrets) == {"MCP_T_AUTHORIZATION": "Bearer hunter2", "OPENAI_API_KEY": "sk-1"}
    given = environ_of(settings, Person(name="ann", number=1, password="x"))
    assert given["OPENAI_API_KEY"] == "sk-1"
    assert "hunter2" not in str(given)


async def logged_in(server: Guarded, home: Path, clock: ManualClock) -> tuple[McpServerSettings, LoginStore]:
    entry = McpServerSettings(name="t", url=server.url)
    store = LoginStore(home)
    async with listening(None) as redirects:

        async def present(address: str) -> None:
            back = await anyio.to_thread.run_sync(server.redirect, address)
            group.start_soon(anyio.to_thread.run_sync, server.browse, back)

        async with anyio.create_task_group() as group:
            login = await log_in(
                entry,
                redirect_uri=redirects.uri,
                client_secret=None,
                present=present,
                redirected=redirects.wait,
                clock=clock,
            )
    await store.save(entry, login)
    return entry, store


@requirement("mcp:oauth")
async def test_several_that_renew_a_login_at_once_use_its_refresh_token_once(tmp_path: Path) -> None:
    clock = ManualClock()
    with guarded() as server:
        entry, store = await logged_in(server, tmp_path, clock)
        clock.advance(3600)
        found = []

        async def renew() -> None:
            found.append(await Tokens(entry, store, clock=clock).current())

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(renew)
        assert server.users.renewals == 1
        assert len(set(found)) == 1
        assert server.users.renewals == 1


async def test_the_version_before_which_locks_the_folder_renews_no_login_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.tools.mcp.logins._LOCK_S", 0.1)
    clock = ManualClock()
    with guarded() as server:
        entry, store = await logged_in(server, tmp_path, clock)
        clock.advance(3600)
        (tmp_path / "oauth").mkdir()
        before = os.open(tmp_path / "oauth", os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(before, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(StorageError, match="Another process holds the lock"):
            await Tokens(entry, store, clock=clock).current()
        assert server.users.renewals == 0
        # A renewal under way would bring back what is deleted now.
        settings = Settings(home=tmp_path, config_path=tmp_path, cwd=tmp_path, mcp_servers={"t": entry})
        with pytest.raises(StorageError, match="Another process holds the lock"):
            await log_out(settings, "t")
        assert store.exists(entry)
        os.close(before)
        assert await Tokens(entry, store, clock=clock).current()
        assert server.users.renewals == 1


@requirement("mcp:oauth")
async def test_a_login_that_expires_during_a_session_is_reported_and_a_new_one_is_used(
    open_servers: Open, tmp_path: Path
) -> None:
    clock = ManualClock()
    with guarded() as server:
        entry, store = await logged_in(server, tmp_path / "home", clock)
        async with open_servers(entry) as servers:
            assert (await servers.call("mcp__t__whoami")).text == "Ann"
            server.users.access.clear()
            server.users.refresh.clear()
            result = await servers.call("mcp__t__whoami")
            assert result.is_error
            assert (
                "the MCP server t refused: the login was not renewed; "
                "it needs a login: satchel mcp-server login t"
            ) in result.text
            await logged_in(server, tmp_path / "home", clock)
            assert (await servers.call("mcp__t__whoami")).text == "Ann"


@requirement("mcp:oauth")
async def test_a_login_that_is_made_while_a_connection_is_open_is_used(tmp_path: Path) -> None:
    store = LoginStore(tmp_path)
    tokens = Tokens(ENTRY, store, clock=ManualClock())
    assert await tokens.current() is None
    await store.save(ENTRY, LOGIN)
    assert await tokens.current() == LOGIN


@requirement("mcp:oauth")
async def test_a_scope_that_a_call_lacks_is_named_and_other_calls_go_on(
    open_servers: Open, tmp_path: Path
) -> None:
    with guarded() as server:
        entry, _ = await logged_in(server, tmp_path / "home", ManualClock())
        async with open_servers(entry) as servers:
            assert (await servers.call("mcp__t__whoami")).text == "Ann"
            challenge = 'Bearer error="insufficient_scope", scope="write"'
            server.answers["/mcp"] = (403, {"www-authenticate": challenge}, b"")
            result = await servers.call("mcp__t__whoami")
            assert "the login lacks the scope write: set mcp_servers.t.oauth_scopes" in result.text
            server.answers.clear()
            assert (await servers.call("mcp__t__whoami")).text == "Ann"
            assert servers.toolset.status()[0].state == "ready"
