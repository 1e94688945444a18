"""The page on which a model is set up: tried, kept, and used from the next message on."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.config import ProviderSettings, Settings, keys, load, set_values, write
from satchel.config.home import replace_file
from satchel.config.keys import store_values
from satchel.errors import ConfigError, StorageUnwritable
from satchel.runtime import model_setup
from satchel.runtime.endpoints import LiveEndpoint
from satchel.runtime.inventory import ProviderModels
from tests.cli.conftest import serving as endpoint
from tests.cli.test_chat import models_at
from tests.models.loopback import Answer, Asked, Loopback, as_json
from tests.models.test_ollama import Ollama, lines
from tests.requirements import requirement
from tests.rings import ringed
from tests.server.browsers import browser, open_page, send, words_of
from tests.server.world import World, chat, serving

KEY = "sk-live-0123456789abcdef0123"


def no_model(_: Any) -> Any:
    """What the home has instead of a model."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server without a model."""
    with serving(tmp_path_factory.mktemp("setup"), no_model, server__requests_per_s=10_000) as world:
        yield world


@pytest.fixture(scope="module")
def model() -> Iterator[Loopback]:
    with endpoint(models_at("/v1/models", key=KEY)) as server:
        yield server


def form_of(model: Loopback, *, key: str = KEY) -> dict[str, str]:
    """What a user fills in for a model of their own."""
    address = model.url.removeprefix("http://")
    return {"base_url": address, "kind": "openai", "name": "", "key": key}


@requirement("web-pages:setup")
def test_a_model_is_tried_kept_and_answers_the_next_message_of_an_open_session(
    world: World, model: Loopback
) -> None:
    name = model.provider
    variable = f"OWN_{name.upper().replace('-', '_')}_API_KEY"
    with world.client() as program, browser(world) as client:
        session = chat(program, "Are you there?")[0].data["sessionId"]
        home = open_page(client, "/")
        assert home.xpath("//a[@href='/setup']")
        page = open_page(client, "/setup")
        refused = send(client, page, "/setup", form_of(model, key="sk-wrong"))
        assert refused.status_code == 422
        assert f"{model.url} refuses this key." in refused.text
        assert "sk-wrong" not in refused.text
        assert not (world.home / "keys.json").exists()
        assert not (world.home / "config.toml").exists()

        taken = send(client, page, "/setup", form_of(model))
        assert taken.status_code == 303
        assert f"{name}:m-1 answers from now on." in words_of(open_page(client, "/"))
        assert chat(program, "And now?", session_id=session)[-1].data["text"] == "ready"
        for path in ("/setup", "/settings", "/doctor"):
            assert KEY not in client.get(path).text
        assert f"{name}:m-1 (set by the settings)" in words_of(open_page(client, "/doctor"))
        assert "can't answer" not in client.get("/doctor").text
    assert tomllib.loads((world.home / "config.toml").read_text()) == {
        "model": f"{name}:m-1",
        "providers": {name: {"kind": "openai", "base_url": f"{model.url}/v1", "env_api_key": variable}},
    }
    holding = [
        path.name for path in world.home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    assert holding == ["keys.json"]
    assert world.satchel.settings.environ.get(variable) is None

    with world.client() as program, browser(world) as client:
        # What was found is offered, and what the settings page chooses is live, too.
        page = open_page(client, "/setup")
        assert [each.get("value") for each in page.xpath("//select[@id='model']//option")] == [
            f"{name}:m-1",
            f"{name}:m-2",
        ]
        assert send(client, page, "/setup", {"found": "1", "model": f"{name}:m-2"}).status_code == 303
        chat(program, "Who are you?")
        assert model.asked[-1].body["model"] == "m-2"
        send(client, open_page(client, "/settings"), "/settings", {"model": f"{name}:m-1"})
        assert "Saved: model. Used from now on." in words_of(open_page(client, "/settings"))
        chat(program, "And you?")
        assert model.asked[-1].body["model"] == "m-1"
        # Where there is a keyring, a key goes there, and the pages say so.
        with ringed() as ring:
            assert "A key is kept in the keyring ring" in words_of(open_page(client, "/setup"))
            assert send(client, page, "/setup", form_of(model)).status_code == 303
            assert list(ring.kept.values()) == [KEY]
            assert KEY not in (world.home / "keys.json").read_text()
            assert "in the keyring ring" in words_of(open_page(client, "/settings?section=model"))
            send(client, open_page(client, "/doctor"), "/doctor")
            assert f"{variable} is in the keyring ring." in words_of(open_page(client, "/doctor"))
            chat(program, "And now?")
            assert send(client, page, "/setup", {"found": "1", "model": f"{name}:m-2"}).status_code == 303
        for bad in ("file:///etc/passwd", "javascript:x", "models.example.org:443", "8.8.8.8"):
            answer = send(client, page, "/setup", {"base_url": bad})
            assert "must begin with http" in answer.text


@requirement("web-pages:setup")
def test_a_provider_is_changed_after_set_up_and_used_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(*_: Any, **__: Any) -> None:
        raise StorageUnwritable("The settings can't be written.")

    native, listed = Ollama(lines({"content": "Small."})), models_at("/v1/models", names=("q",))
    with (
        endpoint(lambda asked: (listed if asked.path == "/v1/models" else native)(asked)) as ollama,
        endpoint(models_at("/v1/models", key=KEY)) as first,
        endpoint(models_at("/v1/models", key="sk-second")) as second,
        serving(tmp_path, no_model, server__requests_per_s=10_000) as world,
        world.client() as program,
        browser(world) as client,
    ):
        send(client, open_page(client, "/setup"), "/setup", form_of(first))
        page = open_page(client, "/setup")
        (path,) = page.xpath(f"//a[@href='/setup/{first.provider}']/@href")
        page = open_page(client, path)
        assert KEY not in client.get(path).text
        for given, words in (
            ({"key": "sk-wrong"}, "sk-wrong"),
            ({"base_url": second.url}, "given for the address before"),
            ({"base_url": second.url, "key": "sk-wrong"}, "key"),
            ({"context_window": "many"}, "context_window"),
            ({"base_url": "ftp://x"}, "must begin with http"),
        ):
            refused = send(client, page, path, given)
            assert refused.status_code == 422
            assert words in refused.text or words == "sk-wrong"
            assert "sk-wrong" not in refused.text
        chat(program, "Still?")
        assert first.asked[-1].path == "/v1/chat/completions"

        given = {"base_url": second.url, "key": "sk-second", "context_window": "9000"}
        with monkeypatch.context() as patch:
            patch.setattr(model_setup, "set_values", unwritable)
            assert send(client, page, path, given | {"context_window": ""}).status_code == 422
        kept = (world.home / "keys.json").read_text()
        assert KEY in kept
        assert "sk-second" not in kept
        assert send(client, page, path, given).status_code == 303
        count = len(first.asked)
        assert chat(program, "And now?")[-1].data["text"] == "ready"
        assert (len(first.asked), second.asked[-1].path) == (count, "/v1/chat/completions")
        entry = tomllib.loads((world.home / "config.toml").read_text())["providers"][first.provider]
        assert (entry["base_url"], entry["context_window"]) == (f"{second.url}/v1", 9000)
        assert (
            send(client, open_page(client, path), path, {"remove_key": "1", "context_window": ""}).status_code
            == 303
        )
        assert "sk-second" not in (world.home / "keys.json").read_text()

        # Of Ollama, the window is what it reads at all.
        windows: list[int] = []
        for window in ("", "32768", "", "8192"):
            page = open_page(client, "/setup/ollama")
            given = {"base_url": f"127.0.0.1:{ollama.port}", "context_window": window}
            assert send(client, page, "/setup/ollama", given).status_code == 303
            if not windows:
                send(client, open_page(client, "/settings"), "/settings", {"model": "ollama:q"})
            assert chat(program, "How far do you read?")[-1].data["text"] == "Small."
            windows.append(ollama.asked[-1].body["options"]["num_ctx"])
        assert windows == [16_384, 32_768, 16_384, 8_192]


@requirement("models:small-window", "models:ollama:window")
def test_a_chat_with_memory_and_all_tools_works_in_a_window_of_4096(tmp_path: Path) -> None:
    found = {"function": {"name": "tool_call", "arguments": {"name": "glob", "input": {"pattern": "*.toml"}}}}

    def answered(asked: Asked) -> Answer:
        if asked.path == "/v1/models":
            return as_json({"data": [{"id": "q"}]})
        said = asked.body.get("messages", [{}])[-1]
        looks = said.get("role") == "user" and "files" in said["content"]
        return Ollama(lines({"tool_calls": [found]} if looks else {"content": "Noted."}))(asked)

    with (
        endpoint(answered) as ollama,
        serving(tmp_path, no_model, server__requests_per_s=10_000) as world,
        world.client() as program,
        browser(world) as client,
    ):
        page = open_page(client, "/setup/ollama")
        given = {"base_url": f"127.0.0.1:{ollama.port}", "context_window": "4096"}
        assert send(client, page, "/setup/ollama", given).status_code == 303
        send(client, open_page(client, "/settings"), "/settings", {"model": "ollama:q"})

        session = chat(program, "My sister Lena is allergic to nuts.")[0].data["sessionId"]
        for number in range(12):
            told = f"Chapter {number}: " + "the boat went on through the fog. " * 30
            assert chat(program, told, session_id=session)[-1].data["text"] == "Noted."
        asked = [each.body for each in ollama.asked if each.path == "/api/chat"]
        assert any("You write the summary" in body["messages"][0]["content"] for body in asked)

        called = chat(program, "What can Lena eat, and which files are here?")
        body = ollama.asked[-1].body
        assert "allergic to nuts" in json.dumps(body["messages"])
        assert [each.data["name"] for each in called if each.name == "tool_start"] == ["glob"]
        offered = [tool["function"]["name"] for tool in body["tools"]]
        assert {"recall_memory", "store_memory", "tool_call"} < {*offered}
        assert "glob" not in offered
        (search,) = (tool for tool in body["tools"] if tool["function"]["name"] == "tool_search")
        assert "glob" in search["function"]["description"]
        for body in [each.body for each in ollama.asked if each.path == "/api/chat"]:
            # English has four bytes a token; an eighth of the window is left for the answer.
            assert len(json.dumps([body["messages"], body.get("tools", [])])) / 4 < 4_096 * 7 / 8
            assert body["options"]["num_ctx"] == 4_096


@requirement("web-pages:setup")
def test_whenever_a_change_of_a_provider_is_killed_no_key_is_at_the_address_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str | None]] = []
    home, variable = tmp_path / "home", "OPENAI_API_KEY"

    def now() -> Settings:
        return load({}, cwd=tmp_path, home=home)

    def watched(path: Path, text: str) -> None:
        """What a process reads that starts after this write, the last one of one that was killed."""
        replace_file(path, text)
        found = map(now().provider, ("openai", "other"))
        seen.extend((one.base_url, now().secret(one.env_api_key)) for one in found)

    async def answers(provider: ProviderSettings, _: Settings) -> LiveEndpoint:
        return LiveEndpoint(provider=provider, models=None)

    first, second, other = "http://first:1/v1", "http://second:1/v1", "http://other:1/v1"
    set_values(
        home / "config.toml",
        {
            "providers.openai.base_url": first,
            "providers.other.base_url": other,
            "providers.other.env_api_key": "OTHER_KEY",
        },
    )
    store_values(home, {variable: KEY, "OTHER_KEY": "sk-other"})
    for module in (keys, write):
        monkeypatch.setattr(module, "replace_file", watched)
    monkeypatch.setattr(model_setup, "probe_endpoint", answers)

    def change(**parts: str) -> Any:
        anyio.run(model_setup.change_provider, now(), "openai", model_setup.ProviderChange(**parts))
        return json.loads((home / "keys.json").read_text())

    assert change(base_url=second, key="sk-2") == {"OWN_OPENAI_API_KEY": "sk-2", "OTHER_KEY": "sk-other"}
    assert change(base_url=first, key=KEY) == {"OWN_OPENAI_API_KEY_2": KEY, "OTHER_KEY": "sk-other"}
    assert change(base_url=second, key="") == {"OTHER_KEY": "sk-other"}
    assert set(seen) == {(first, KEY), (second, "sk-2"), (second, None), (other, "sk-other")}
    # Two providers may have one key; a new one is that of one of them.
    set_values(home / "config.toml", {"providers.openai.env_api_key": "OTHER_KEY"})
    seen.clear()
    assert change(key="sk-2") == {"OWN_OPENAI_API_KEY": "sk-2", "OTHER_KEY": "sk-other"}
    assert set(seen) == {(second, "sk-other"), (second, "sk-2"), (other, "sk-other")}
    # So may a provider and an MCP server.
    with (home / "config.toml").open("a") as file:
        file.write(
            '[mcp_servers.docs]\nurl = "http://docs:1"\nheaders = { X-Key = "${OWN_OPENAI_API_KEY}" }\n'
        )
    shared = {"OWN_OPENAI_API_KEY": "sk-2", "OTHER_KEY": "sk-other"}
    assert change(base_url=first, key="sk-3") == {**shared, "OWN_OPENAI_API_KEY_2": "sk-3"}


@requirement("config:keys")
def test_keys_are_read_from_a_file_of_the_owner_alone_after_the_environment(tmp_path: Path) -> None:
    kept = tmp_path / "keys.json"
    kept.write_text(json.dumps({"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}))
    kept.chmod(0o600)
    settings = load({"OPENAI_API_KEY": "sk-mine"}, cwd=tmp_path, home=tmp_path)
    assert (settings.secret("OPENAI_API_KEY"), settings.secret("ANTHROPIC_API_KEY")) == ("sk-mine", KEY)
    assert KEY not in repr(settings)
    kept.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load({}, cwd=tmp_path, home=tmp_path)
    kept.chmod(0o600)
    kept.write_text('{"A": ["x"]}')
    with pytest.raises(ConfigError, match="damaged"):
        load({}, cwd=tmp_path, home=tmp_path)


@requirement("web-pages:setup")
def test_window_and_price_stand_beside_models_that_are_known(tmp_path: Path) -> None:
    settings = load({}, cwd=tmp_path, home=tmp_path)
    found = ProviderModels(
        name="anthropic",
        kind="anthropic",
        state="ready",
        models=("anthropic:claude-3-5-haiku-latest", "anthropic:new"),
    )
    words = model_setup._words_of(settings, [found])
    assert list(words) == ["anthropic:claude-3-5-haiku-latest"]
    [shown] = words.values()
    assert re.fullmatch(r"[\d,]+ tokens, \$\d+\.\d\d and \$\d+\.\d\d a million tokens in and out", shown)


@requirement("web-pages:setup")
def test_an_address_of_ones_own_takes_no_name_and_no_key_of_another(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "[providers.own]\nbase_url = 'http://box:1/v1'\nenv_api_key = 'OWN_API_KEY'\n"
        "[providers.a-b-8080]\nbase_url = 'http://a.b:8080/v1'\nenv_api_key = 'OWN_A_B_8080_API_KEY'\n"
    )
    settings = load({"MISTRAL_API_KEY": KEY}, cwd=tmp_path, home=tmp_path)

    def made(address: str, key: str = "") -> tuple[str, str]:
        wish = model_setup.ModelWish(provider="", model="", base_url=address, key=key)
        provider = model_setup._provider_of(settings, wish)
        return provider.name, provider.env_api_key

    assert made("http://mistral/v1") == ("mistral-2", "")
    assert made("http://mistral/v1", KEY) == ("mistral-2", "OWN_MISTRAL_2_API_KEY")
    assert made("http://a-b:8080/v1", KEY) == ("a-b-8080-2", "OWN_A_B_8080_2_API_KEY")
    assert made("http://a.b:8080/x/v1")[0] == made("https://a.b:8080/v1")[0] == "a-b-8080-2"
    # The same address again is the same provider.
    assert made("http://a.b:8080") == ("a-b-8080", "OWN_A_B_8080_API_KEY")
    assert made("http://box:1/v1") == ("own", "OWN_API_KEY")
    assert made("http://box:2/v1") == ("box-2", "")
