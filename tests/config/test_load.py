"""Reading the settings: where they come from, which one counts, and what is said when one is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.config import (
    SETTINGS,
    AgentSettings,
    MemorySettings,
    PermissionRule,
    ProviderSettings,
    Settings,
    load,
    show_settings,
    trust,
)
from satchel.errors import ConfigError
from tests.requirements import requirement


def read(
    tmp_path: Path, text: str | None = None, environ: Mapping[str, str] | None = None, **overrides: object
) -> Settings:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    if text is not None:
        (home / "config.toml").write_text(text, encoding="utf-8")
    cwd = tmp_path / "work"
    cwd.mkdir(exist_ok=True)
    named = {key.replace("__", "."): value for key, value in overrides.items()}
    return load(environ or {}, cwd=cwd, home=home, overrides=named)


def error_of(tmp_path: Path, text: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, environ)
    return str(caught.value).replace(str(tmp_path / "home"), "HOME")


@requirement("config:defaults")
def test_the_defaults_are_those_of_the_design(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert settings.model == ""
    assert settings.agent == AgentSettings(
        max_rounds=1000, tool_timeout_s=30.0, tool_workers=16, max_result_chars=30_000, mode="ask"
    )
    assert settings.memory == MemorySettings(
        enabled=True,
        capture=True,
        budget_tokens=500,
        limit=8,
        surface_threshold=None,
        surface_judge="none",
        embedder="minilm",
    )
    assert (settings.budget.session_usd, settings.budget.day_usd, settings.budget.turn_tokens) == (
        None,
        None,
        None,
    )
    assert settings.database_location == tmp_path / "home" / "satchel.db"
    assert settings.permissions == ()


@requirement("config:home:default", "config:home:mode")
def test_without_satchel_home_the_home_is_in_the_users_folder_and_reading_makes_nothing(
    tmp_path: Path,
) -> None:
    settings = load({"HOME": str(tmp_path)}, cwd=tmp_path)
    assert settings.home == tmp_path / ".satchel"
    assert list(tmp_path.iterdir()) == []


def test_satchel_home_may_start_with_a_tilde_or_be_relative(tmp_path: Path) -> None:
    tilde = load({"HOME": str(tmp_path), "SATCHEL_HOME": "~/mine"}, cwd=tmp_path)
    relative = load({"HOME": str(tmp_path), "SATCHEL_HOME": "mine"}, cwd=tmp_path)
    assert tilde.home == relative.home == tmp_path / "mine"


@requirement("config:precedence")
def test_what_is_nearer_to_the_command_counts(tmp_path: Path) -> None:
    project = tmp_path / "work"
    (project / ".satchel").mkdir(parents=True)
    (project / ".satchel" / "config.toml").write_text(
        "[agent]\nmax_rounds = 3\ntool_workers = 3\ntool_timeout_s = 3\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    trust(home, project)
    text = "[agent]\nmax_rounds = 2\ntool_workers = 2\ntool_timeout_s = 2\nmax_result_chars = 2000\n"
    environ = {"SATCHEL_AGENT_MAX_ROUNDS": "4", "SATCHEL_AGENT_TOOL_WORKERS": "4"}
    agent = read(tmp_path, text, environ, agent__max_rounds=5, agent__mode=None).agent
    assert agent == AgentSettings(
        max_rounds=5, tool_workers=4, tool_timeout_s=3.0, max_result_chars=2000, mode="ask"
    )


@requirement("config:project:trust")
def test_a_projects_settings_count_only_once_the_folder_is_trusted(tmp_path: Path) -> None:
    project = tmp_path / "work"
    (project / ".satchel").mkdir(parents=True)
    # Not even read: a stranger's broken file is no reason to stop.
    (project / ".satchel" / "config.toml").write_text('[agent]\nmode = "bypass"\nnonsense')
    before = read(tmp_path)
    (project / ".satchel" / "config.toml").write_text('[agent]\nmode = "bypass"\n')
    trust(tmp_path / "home", project)
    after = read(tmp_path)
    assert (before.project, before.project_trusted, before.agent.mode) == (project, False, "ask")
    assert (after.project, after.project_trusted, after.agent.mode) == (project, True, "bypass")


@requirement("config:project:nearest")
def test_the_project_is_the_nearest_folder_upwards_and_never_the_home(tmp_path: Path) -> None:
    home = tmp_path / ".satchel"
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    home.mkdir()
    assert load({}, cwd=inner, home=home).project is None
    (tmp_path / "a" / "AGENTS.md").touch()
    assert load({}, cwd=inner, home=home).project == tmp_path / "a"
    (tmp_path / "a" / "b" / ".satchel").mkdir()
    assert load({}, cwd=inner, home=home).project == tmp_path / "a" / "b"


def sample(key: str) -> tuple[str, object]:
    """A text of the environment for a key, and the value that it stands for; never the default."""
    setting = next(setting for setting in SETTINGS if setting.key == key)
    if setting.choices:
        value = next(choice for choice in setting.choices if choice != setting.default)
        return value, value
    match setting.kind:
        case "bool":
            return ("off", False) if setting.default else ("yes", True)
        case "int":
            return f"{setting.high:.0f}", int(setting.high or 0)
        case "float":
            low = setting.low if setting.low is not None and setting.low > 0.5 else 0.5
            return f"{low:g}", low
        case "words":
            return "bash, grep", ("bash", "grep")
        case "text" if key in ("model", "small_model", "memory.extractor"):
            return "openai:x", "openai:x"
        case "table":
            return '{ ONE = "1" }', {"ONE": "1"}
        case "text" if key.endswith("url"):
            return "https://h/v1", "https://h/v1"
        case "text":
            return "SOMETHING", "SOMETHING"


@requirement("config:environ:every-key")
@pytest.mark.parametrize("key", [s.key for s in SETTINGS if not s.key.startswith("permissions.")])
def test_every_key_can_be_set_in_the_environment(tmp_path: Path, key: str) -> None:
    text, expected = sample(key)
    variable = "SATCHEL_" + key.replace(".NAME.", ".DEEPSEEK.").replace(".", "_").upper()
    # A server is a program or an address, whatever else is set.
    needed = {"SATCHEL_MCP_SERVERS_DEEPSEEK_COMMAND": "x"} if key.startswith("mcp_servers.") else {}
    if key.endswith(".url"):
        needed = {}
    value: object = read(tmp_path, environ={**needed, variable: text})
    for part in key.replace(".NAME.", ".deepseek.").split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    assert value == expected


@requirement("config:permissions:rules")
def test_the_nearer_files_rules_come_first(tmp_path: Path) -> None:
    project = tmp_path / "work"
    (project / ".satchel").mkdir(parents=True)
    (project / ".satchel" / "config.toml").write_text('[[permissions]]\naction = "deny"\ntool = "bash"\n')
    home = tmp_path / "home"
    home.mkdir()
    trust(home, project)
    text = (
        '[[permissions]]\naction = "allow"\ntool = "bash(git *)"\n'
        '[[permissions]]\naction = "ask"\ntool = "*"\n'
    )
    environ = {"SATCHEL_PERMISSIONS": '[{action = "allow", tool = "glob"}]'}
    assert read(tmp_path, text, environ).permissions == (
        PermissionRule(action="allow", tool="glob"),
        PermissionRule(action="deny", tool="bash"),
        PermissionRule(action="allow", tool="bash(git *)"),
        PermissionRule(action="ask", tool="*"),
    )


@requirement("config:error:toml")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'model = "openai:x"\n\n[agent\n',
            "HOME/config.toml, line 3, column 7: this is not TOML: expected ']' at the end of a table "
            "declaration.",
        ),
        (
            'model = "openai:x',
            "HOME/config.toml, line 1: the file ends too early: unterminated string.",
        ),
    ],
)
def test_a_broken_file_is_reported_with_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    assert error_of(tmp_path, text) == message


def test_a_file_that_is_no_text_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_bytes(b'model = "none"\n# caf\xe9\n')
    assert error_of(tmp_path) == "HOME/config.toml, line 2: this is not UTF-8 text. Save the file as UTF-8."


def test_a_folder_or_a_huge_file_in_place_of_the_settings_is_said(tmp_path: Path) -> None:
    path = tmp_path / "home" / "config.toml"
    path.mkdir(parents=True)
    assert error_of(tmp_path) == "HOME/config.toml is not a regular file, and should be one. Move it away."
    path.rmdir()
    path.write_text("#" * 1_000_001)
    assert (
        error_of(tmp_path)
        == "HOME/config.toml is larger than 1,000,000 bytes, too large for a settings file."
    )


@requirement("config:error:unknown-key")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[agent]\n# how often\nmax_round = 3\n",
            'HOME/config.toml, line 3: [agent] has no setting "max_round". Did you mean "max_rounds"? It '
            "has: "
            "max_rounds, model_timeout_s, tool_timeout_s, tool_workers, max_result_chars, sub_agent_rounds, sub_agent_tokens, mode.",
        ),
        (
            'model = "none"\n[agnet]\nmode = "ask"\n',
            'HOME/config.toml, line 2: there is no section "agnet". Did you mean "agent"? There are the '
            "settings "
            "model, small_model, database and the sections agent, budget, background, builder, memory, tools, sandbox, web, sessions, terminal, "
            "server, providers, mcp_servers, permissions.",
        ),
        (
            '[[permissions]]\naction = "allow"\ntool = "bash"\n\n[[permissions]]\naction = "deny"\nname = '
            '"bash"\n',
            'HOME/config.toml, line 7: [[permissions]] has no setting "name". It has: action, tool, network, read, write, boxed, secrets, state.',
        ),
    ],
)
def test_an_unknown_key_is_reported_with_its_line_and_the_closest(
    tmp_path: Path, text: str, message: str
) -> None:
    assert error_of(tmp_path, text) == message


@requirement("config:error:value")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agent]\nmax_rounds = 0", "line 2: agent.max_rounds: 0 is not allowed; use a whole number from 1 to 1,000."),
        ("[agent]\nmax_rounds = 3.0", "line 2: agent.max_rounds: 3.0 is not allowed; use a whole number from 1 to 1,000."),
        ("[agent]\nmax_rounds = true", "line 2: agent.max_rounds: true is not allowed; use a whole number from 1 to 1,000."),
        ("[memory]\nsurface_threshold = nan", "line 2: memory.surface_threshold: nan is not allowed; use a number from 0 to 1."),
        ('database = "mysql://ann:hunter2@h/db"', "line 1: database: the database is a SQLite file or on a PostgreSQL server; use a path, sqlite:/// and a path, or postgresql:// and a server."),
        ('agent = {mode = "bypas"}', 'line 1: agent.mode: "bypas" is not allowed; use "ask", "auto", "plan" or "bypass". Did you mean "bypass"?'),
        ('\ntools.disabled = [\n  "bash",\n  3,\n]\n', "line 2: tools.disabled: ['bash', 3] is not allowed; use a list of names."),
        ('[memory]\nenabled = "yes"', 'line 2: memory.enabled: "yes" is not allowed; use true or false.'),
        ("agent = 3", "line 1: agent is a section. Write [agent], with its settings below."),
        ('model = "gpt"', 'line 1: model: "gpt" is not a model; use "provider:model" such as "anthropic:claude-sonnet-5-5", "gguf:/path/model.gguf", or "none"; or a provider whose entry names a model.'),
        ('[[permissions]]\naction = "deny"', "line 1: [[permissions]] needs tool: A tool's name, or a name and a pattern for its input: bash(git *)."),
        ('[[permissions]]\naction = "deny"\ntool = "bash(git"', 'line 3: permissions.0.tool: "bash(git" is not a rule; use a tool\'s name, or a name and a pattern: bash(git *).'),
        ('\n[providers.mine]\nkind = "openai"', 'line 2: [providers.mine] needs a base_url, such as "https://api.example.com/v1".'),
        ('[providers."a b"]\nkind = "openai"', 'line 1: a provider can\'t be called "a b": a name consists of letters, digits, - and _.'),
    ],
)  # fmt: skip
def test_a_value_that_is_not_allowed_is_reported_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    assert error_of(tmp_path, text) == f"HOME/config.toml, {message}"


@pytest.mark.parametrize("text", ["nas.local, 127.0.0.1:8000", '["nas.local", "127.0.0.1:8000"]'])
def test_a_list_in_a_variable_has_commas_or_is_written_as_in_the_file(text: str, tmp_path: Path) -> None:
    settings = read(tmp_path, environ={"SATCHEL_WEB_ALLOW_PRIVATE": text})
    assert settings.web.allow_private == ("nas.local", "127.0.0.1:8000")


def test_a_list_in_a_variable_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    text = error_of(tmp_path, environ={"SATCHEL_TOOLS_DISABLED": '["bash'})
    assert "SATCHEL_TOOLS_DISABLED" in text
    assert "use a list of names." in text


@requirement("config:environ:unknown")
def test_a_variable_that_looks_like_a_setting_but_is_unknown_is_an_error(tmp_path: Path) -> None:
    message = error_of(tmp_path, environ={"SATCHEL_AGENT_MAXROUNDS": "4"})
    assert message.startswith(
        'The environment variable SATCHEL_AGENT_MAXROUNDS is not a setting. Did you mean "SATCHEL_AGENT_MAX_ROUNDS"?'
    )
    assert error_of(tmp_path, environ={"SATCHEL_AGENT_MAX_ROUNDS": "many"}) == (
        'SATCHEL_AGENT_MAX_ROUNDS: "many" is not allowed; use a whole number from 1 to 1,000.'
    )


def test_variables_of_other_programs_are_ignored(tmp_path: Path) -> None:
    assert read(tmp_path, environ={"SATCHEL_RELEASE": "7", "SATCHELS": "2"}).sources == {}


@requirement("config:providers:builtin")
def test_the_usual_providers_exist_without_being_written_down(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert list(settings.providers)[:3] == ["anthropic", "openai", "deepseek"]
    assert {"ollama", "gguf", "none"} <= set(settings.providers)
    assert settings.provider("anthropic").kind == "anthropic"
    with pytest.raises(ConfigError, match=r"There is no provider 'antropic'\. There are: anthropic, openai"):
        settings.provider("antropic")


@requirement("config:providers:own")
def test_a_provider_of_ones_own(tmp_path: Path) -> None:
    text = (
        '[providers.mine]\nbase_url = "http://localhost:1/v1"\nenv_api_key = "MINE_KEY"\ntool_use = "json"\n'
    )
    provider = read(tmp_path, text).provider("mine")
    assert provider == ProviderSettings(
        name="mine", kind="openai", base_url="http://localhost:1/v1", env_api_key="MINE_KEY", tool_use="json"
    )


@requirement("config:providers:environ")
@pytest.mark.parametrize(
    ("host", "base_url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080/v1"),
        (":9000", "http://127.0.0.1:9000/v1"),
        ("box.local", "http://box.local:11434/v1"),
        ("https://box.local", "https://box.local:443/v1"),
        ("http://box.local/ollama/", "http://box.local:80/ollama/v1"),
        ("[::1]:11434", "http://[::1]:11434/v1"),
    ],
)
def test_ollama_is_where_its_own_variable_says(tmp_path: Path, host: str, base_url: str) -> None:
    assert read(tmp_path, environ={"OLLAMA_HOST": host}).provider("ollama").base_url == base_url


@requirement("config:providers:environ")
def test_the_usual_variables_move_a_provider_and_the_file_beats_them(tmp_path: Path) -> None:
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:2"}
    settings = read(tmp_path, '[providers.openai]\nbase_url = "http://127.0.0.1:3/v1"\n', environ)
    assert settings.provider("openai").base_url == "http://127.0.0.1:3/v1"
    assert settings.provider("anthropic").base_url == "http://127.0.0.1:2"
    assert error_of(tmp_path, "", {"OPENAI_BASE_URL": "nonsense"}) == (
        "OPENAI_BASE_URL: providers.openai.base_url: this is not an address; use one such as "
        '"https://api.example.com/v1".'
    )


SECRET = "sk-very-secret-0123456789"


@requirement("config:secrets:never-shown")
def test_no_key_and_no_password_is_shown(tmp_path: Path) -> None:
    text = (
        '[providers.mine]\nbase_url = "https://ann:sk-very-secret-0123456789@h/v1?key=sk-very-secret-0123456789"\n'
        'env_api_key = "MINE_KEY"\n'
    )
    environ = {
        "MINE_KEY": SECRET,
        "OPENAI_API_KEY": SECRET,
    }
    settings = read(tmp_path, text, environ)
    assert settings.secret("MINE_KEY") == SECRET
    shown = show_settings(settings)
    assert SECRET not in repr(settings) + repr(shown)
    values = {entry.key: entry.value for entry in shown}
    assert values["providers.mine.base_url"] == "https://ann:***@h/v1?***"
    assert values["providers.mine.env_api_key"] == "MINE_KEY (set)"
    assert values["providers.openai.env_api_key"] == "OPENAI_API_KEY (set)"


@requirement("config:secrets:never-shown")
@pytest.mark.parametrize(
    "line",
    [
        f'env_api_key = "{SECRET}"',
        f'api_key = "{SECRET}"',
        f'base_url = "{SECRET}"',
        f'kind = "x"\nbase_url = ["{SECRET}"]',
    ],
)
def test_a_key_that_was_written_down_is_not_repeated(tmp_path: Path, line: str) -> None:
    message = error_of(tmp_path, f"[providers.mine]\n{line}\n")
    assert message.startswith("HOME/config.toml, line 2:")
    assert SECRET not in message
    if line.startswith("api_key"):
        assert (
            "put the key into an environment variable, and the variable's name into env_api_key. It has: kind"
            in message
        )


@requirement("config:secrets:not-inherited")
def test_started_processes_do_not_get_the_keys(tmp_path: Path) -> None:
    text = '[providers.mine]\nbase_url = "https://h/v1"\nenv_api_key = "MINE_KEY"\n'
    environ = {"MINE_KEY": "a", "ANTHROPIC_API_KEY": " b \n", "PATH": "/bin"}
    settings = read(tmp_path, text, environ)
    assert settings.environ == {"PATH": "/bin"}
    assert settings.secret("ANTHROPIC_API_KEY") == "b"
    assert settings.secret("NOT_THERE") is None


def test_an_override_that_names_no_setting_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r'the command line: there is no setting "agent\.mod"\. Did you mean "agent\.mode"'
    ):
        read(tmp_path, agent__mod="ask")


@requirement("config:hostile")
@given(
    content=st.binary(max_size=300)
    | st.text(alphabet="[]{}=\"\n.#amodelgnt 3\\'", max_size=80).map(str.encode)
)
def test_any_bytes_give_settings_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / "config.toml").write_bytes(content)
    outcome = str(home / "config.toml")
    try:
        load({}, cwd=home, home=home)
    except ConfigError as error:
        outcome = str(error)
    assert str(home / "config.toml") in outcome
