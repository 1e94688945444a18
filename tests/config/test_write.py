"""Writing settings: one value at a time, with everything else left as it is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.config import PermissionRule, add_permission, load, set_value, write_initial
from satchel.errors import ConfigError, StorageUnwritable
from tests.requirements import requirement

TEXT = """\
# mine
model = "openai:x"  # the cheap one

[agent]   # the loop
max_rounds = 3
"""


@requirement("config:set:keeps-comments")
def test_a_value_changes_and_everything_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TEXT)
    path.chmod(0o644)
    assert set_value(path, "agent.max_rounds", "7") == 7
    assert path.read_text() == TEXT.replace("max_rounds = 3", "max_rounds = 7")
    assert path.stat().st_mode & 0o777 == 0o644


def test_new_keys_sections_and_providers_are_added(tmp_path: Path) -> None:
    path = tmp_path / "home" / "config.toml"
    set_value(path, "providers.deepseek.tool_use", "json")
    set_value(path, "memory.enabled", "off")
    set_value(path, "tools.disabled", "bash, grep")
    set_value(path, "model", "deepseek:deepseek-chat")
    set_value(path, "budget.day_usd", 2)
    assert tomllib.loads(path.read_text()) == {
        "model": "deepseek:deepseek-chat",
        "providers": {"deepseek": {"tool_use": "json"}},
        "memory": {"enabled": False},
        "tools": {"disabled": ["bash", "grep"]},
        "budget": {"day_usd": 2.0},
    }
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_optional_setting_is_taken_out_by_empty_text(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[budget]\nday_usd = 2\n")
    assert set_value(path, "budget.day_usd", "") is None
    assert path.read_text() == "[budget]\n"
    assert set_value(path, "providers.deepseek.max_tokens", "") is None
    assert path.read_text() == "[budget]\n"


@requirement("config:set:whole-or-not")
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("agent.mod", "ask", r'config set: there is no setting "agent\.mod"\. Did you mean "agent\.mode"'),
        ("agent.max_rounds", "many", r'agent\.max_rounds: "many" is not allowed'),
        ("model", None, r"config\.toml, line 2: \[agent\] has no setting"),
    ],
)
def test_what_is_wrong_is_said_and_the_file_is_untouched(
    tmp_path: Path, key: str, value: str | None, message: str
) -> None:
    path = tmp_path / "config.toml"
    text = "[agent]\nnonsense = 1\n"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        set_value(path, key, value)
    assert path.read_text() == text


@requirement("config:set:whole-or-not")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TEXT)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("satchel.config.home.os.fsync", full)
    with pytest.raises(
        StorageUnwritable, match=r"could not be written: No space left on device\. It is unchanged"
    ):
        set_value(path, "agent.max_rounds", "7")
    assert path.read_text() == TEXT
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.toml"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text(TEXT)
    (tmp_path / "config.toml").symlink_to("real.toml")
    set_value(tmp_path / "config.toml", "agent.max_rounds", 9)
    assert (tmp_path / "config.toml").is_symlink()
    assert "max_rounds = 9" in (tmp_path / "real.toml").read_text()


@requirement("config:initial")
def test_the_first_file_loads_and_is_never_written_over(tmp_path: Path) -> None:
    path = write_initial(
        tmp_path / "home" / "config.toml", {"model": "openai:gpt-5", "memory.capture": False}
    )
    settings = load({}, cwd=tmp_path, home=tmp_path / "home")
    assert (settings.model, settings.memory.capture) == ("openai:gpt-5", False)
    with pytest.raises(ConfigError, match="already exists"):
        write_initial(path, {"model": "none"})


@given(text=st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), max_size=50))
def test_any_text_that_is_set_is_read_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    home = tmp_path_factory.mktemp("home")
    set_value(home / "config.toml", "memory.embedder", text)
    assert load({}, cwd=home, home=home).memory.embedder == text.strip()


@requirement("config:set:provider")
@pytest.mark.parametrize("key", ["model", "small_model"])
def test_a_model_of_an_unknown_provider_is_refused_when_it_is_set(tmp_path: Path, key: str) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(
        ConfigError, match=r'no provider "antropic"\. Did you mean "anthropic"\?.* To add one: satchel'
    ):
        set_value(path, key, "antropic:m")
    assert not path.exists()
    assert set_value(path, key, "none") == "none"
    assert set_value(path, key, "mine:m", providers=["mine"]) == "mine:m"
    set_value(path, "providers.other.base_url", "https://api.example.com/v1")
    assert set_value(path, key, "other:m") == "other:m"
    with pytest.raises(ConfigError, match='no provider "foo"'):
        write_initial(tmp_path / "new.toml", {key: "foo:m"})
    write_initial(
        tmp_path / "new.toml", {key: "foo:m", "providers.foo.base_url": "https://api.example.com/v1"}
    )


@requirement("permissions:remembered")
@given(st.text(max_size=40) | st.just("cat > a.py <<'EOF'\nprint(1)\n\tprint(2)\nEOF"))
def test_a_rule_is_read_back_as_it_was_written_or_not_written(
    tmp_path_factory: pytest.TempPathFactory, command: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    rule = PermissionRule(action="allow", tool=f"bash({command})")
    try:
        add_permission(home / "config.toml", rule)
    except ConfigError:
        assert not (home / "config.toml").exists()
        assert re.search(r"[\x00-\x08\x0b-\x1f\x7f]", command), "only control characters are refused"
    else:
        assert load({}, cwd=home, home=home).permissions == (rule,)
