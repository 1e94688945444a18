"""Keys that were pasted: in the system's keyring where there is one, else in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from satchel.config import Settings, keys, load, show_settings
from satchel.config.keys import KEYS_FILE, store_key, store_values, stored_keys
from satchel.errors import ConfigError
from satchel.runtime import health
from satchel.server.pages.settings import settings_now
from tests.requirements import requirement
from tests.rings import Ring, ringed

NAME = "ANTHROPIC_API_KEY"
KEY = "sk-ant-0123456789"


@pytest.fixture
def ring() -> Iterator[Ring]:
    with ringed() as ring:
        yield ring


def settings_of(home: Path, **environ: str) -> Settings:
    return load(environ, cwd=home, home=home)


@requirement("config:keys:keyring")
def test_a_pasted_key_is_in_the_keyring_and_the_file_says_only_that(tmp_path: Path, ring: Ring) -> None:
    store_key(tmp_path, NAME, KEY)
    assert json.loads((tmp_path / KEYS_FILE).read_text()) == {NAME: {"keyring": "ring"}}
    assert ring.kept == {("satchel", f"{tmp_path}/{NAME}"): KEY}
    settings = settings_of(tmp_path)
    assert settings.secret(NAME) == KEY
    assert settings.stored == {NAME: "the keyring ring"}
    assert NAME not in settings.environ
    [shown] = [
        entry.value for entry in show_settings(settings) if entry.key == "providers.anthropic.env_api_key"
    ]
    assert shown == f"{NAME} (in the keyring ring)"
    assert settings_of(tmp_path, **{NAME: "another"}).secret(NAME) == "another"
    store_key(tmp_path, NAME, None)
    assert (ring.kept, dict(stored_keys(tmp_path))) == ({}, {})


@requirement("config:keys:keyring")
def test_a_keyring_that_is_locked_loses_no_key_and_one_that_gives_none_is_named(
    tmp_path: Path, ring: Ring
) -> None:
    store_values(tmp_path, {NAME: KEY})
    ring.is_locked = True
    store_key(tmp_path, "OPENAI_API_KEY", KEY)
    assert json.loads((tmp_path / KEYS_FILE).read_text())["OPENAI_API_KEY"] == KEY
    settings = settings_of(tmp_path)
    assert (settings.secret(NAME), settings.secret("OPENAI_API_KEY")) == (None, KEY)
    assert [(check.state, check.text) for check in health._keys(settings)] == [
        (
            "warning",
            f"{NAME} is in the keyring ring, which doesn't give it: unlock it, then start Satchel again, or give "
            "the key again.",
        ),
        ("ok", f"OPENAI_API_KEY is in {tmp_path / KEYS_FILE}."),
    ]


@requirement("config:keys:keyring")
def test_a_keyring_that_asks_for_its_password_where_nobody_is_holds_up_nothing(
    tmp_path: Path, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_key(tmp_path, NAME, KEY)
    asks = Event()
    monkeypatch.setattr(ring, "_check", lambda: asks.wait(60))
    monkeypatch.setattr(keys, "_READ_S", 0.0)
    settings = settings_of(tmp_path)
    assert NAME in settings.secrets  # asks nothing
    assert settings.secret(NAME) is None
    asks.set()
    assert isinstance(settings.secrets, keys.StoredKeys)
    settings.secrets._found.result(60)
    assert settings.secret(NAME) == KEY  # it was unlocked later


def test_a_file_of_an_earlier_version_and_one_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / KEYS_FILE
    path.write_text(json.dumps({NAME: KEY}))
    path.chmod(0o600)
    assert dict(stored_keys(tmp_path)) == {NAME: KEY}
    for text in ("[]", '{"A": 1}', '{"A": {}}', "{"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"is damaged\. Remove it"):
            stored_keys(tmp_path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="Others can read"):
        stored_keys(tmp_path)


@requirement("config:keys:keyring")
@pytest.mark.anyio
async def test_pages_wait_for_the_keyring_where_nothing_waits_for_them(tmp_path: Path, ring: Ring) -> None:
    store_key(tmp_path, NAME, KEY)
    found = await settings_now(settings_of(tmp_path))
    ring.is_locked = True  # nothing is read any more
    assert found.secret(NAME) == KEY
