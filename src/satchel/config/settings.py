"""The settings as frozen dataclasses, and the table that documents them and defines their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from satchel.config.plugins import plugin_providers, problems
from satchel.config.rule_texts import RuleOptions, rule_text
from satchel.errors import ConfigError

__all__ = [
    "SETTINGS",
    "AgentSettings",
    "BackgroundSettings",
    "BudgetSettings",
    "BuilderSettings",
    "McpServerSettings",
    "McpTransport",
    "MemorySettings",
    "Mode",
    "ProviderKind",
    "ProviderSettings",
    "Rule",
    "RuleAction",
    "SandboxBackend",
    "SandboxSettings",
    "ServerSettings",
    "Setting",
    "Settings",
    "ToolUse",
    "ToolsSettings",
    "WebSettings",
]

Mode: TypeAlias = Literal["ask", "auto", "plan", "bypass"]
"""How to decide calls that no rule covers; see the documentation of `agent.mode`."""

ProviderKind: TypeAlias = Literal["openai", "anthropic", "gguf", "none", "plugin"]
"""The wire format of an endpoint. "gguf" runs in this process, "none" recalls memories without a language model."""

ToolUse: TypeAlias = Literal["auto", "native", "json"]
"""How tools are called: by the endpoint's tool calls until it refuses them; by its tool calls; by JSON in text."""

SandboxBackend: TypeAlias = Literal["auto", "bubblewrap", "landlock", "docker", "podman", "e2b"]

RuleAction: TypeAlias = Literal["allow", "ask", "deny"]

McpTransport: TypeAlias = Literal["http", "sse"]
"""The transport for an MCP server with an address: streamable HTTP with a fallback to SSE, or SSE only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """One endpoint that serves language models.

    Attributes:
        base_url: Its address; "" uses the official SDK's default. Only shown masked: it may contain a password.
        env_api_key: The name of the environment variable that holds the key; "" if none is needed.
        model: Its default model; "" leaves the choice to Satchel.
        context_window: The most tokens of a request and its answer together, or None if unknown.
        max_tokens: The most tokens of an answer, or None for the model's limit.
        stream: Whether answers are streamed or arrive in one piece.
        builtin: It exists without an entry in the settings.
    """

    name: str
    kind: ProviderKind
    base_url: str = field(default="", repr=False)
    env_api_key: str = ""
    model: str = ""
    tool_use: ToolUse = "auto"
    context_window: int | None = None
    max_tokens: int | None = None
    stream: bool = True
    builtin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerSettings:
    """One MCP server: a program that is started, or an address.

    In `command`, `args`, `cwd`, `url` and in the values of `env` and `headers`, `${NAME}` stands for an environment
    variable and `${NAME:-text}` for one with a default. They are filled in when the server is started or connected
    to, so that secrets need not be stored. The values of `env` and `headers` are never shown.

    Attributes:
        command: The program, or "" for a server with an address.
        env: Its variables, in addition to the few that every program needs.
        cwd: Where it starts; "" is the working folder if that is trusted, otherwise SATCHEL_HOME.
        url: The address, or "" for a program.
        timeout_s: The time limit of a call, not counting the user's answers; None uses the limit for all tools.
        trust_annotations: The user confirms that what the server says about its tools (read-only, destructive) is true.
        accept_changes: Its tools may change without a new approval.
        oauth_client_id: The id of a client that was registered manually, for servers that don't register Satchel.
        oauth_env_client_secret: The environment variable that holds the client's secret, or "".
        oauth_scopes: The scopes to request at a login; empty requests those that the server names.
        oauth_redirect_port: The port on 127.0.0.1 to which the browser returns after a login; None uses any free port.
        base: The folder that a relative `cwd` refers to: the project's for an entry in its file, otherwise None.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    transport: McpTransport = "http"
    timeout_s: float | None = None
    enabled: bool = True
    trust_annotations: bool = False
    accept_changes: bool = False
    oauth_client_id: str = ""
    oauth_env_client_secret: str = ""
    oauth_scopes: tuple[str, ...] = ()
    oauth_redirect_port: int | None = None
    base: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The agent loop."""

    max_rounds: int = 10
    model_timeout_s: float = 600.0
    tool_timeout_s: float = 30.0
    tool_workers: int = 16
    max_result_chars: int = 30_000
    mode: Mode = "ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """Hard limits; None means no limit."""

    session_usd: float | None = None
    day_usd: float | None = None
    turn_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundSettings:
    """What models do though nobody asked them: the switch and the budget of a day; None means no limit."""

    models: Literal["auto", "off"] = "auto"
    day_tokens: int | None = None
    day_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderSettings:
    """Builds of capabilities. `usd` None is no limit; `model` "" is the model of the session that asks."""

    model: str = ""
    max_rounds: int = 25
    timeout_s: float = 600.0
    max_tokens: int = 4096
    question_wait_s: float = 60.0
    usd: float | None = None
    workers: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """What is stored and shown. For `surface_threshold`, None is 0.5, where the published figures were measured."""

    enabled: bool = True
    capture: bool = True
    budget_tokens: int = 500
    limit: int = 8
    surface_threshold: float | None = None
    profile_tokens: int = 300
    page_tokens: int = 1200
    agenda_tokens: int = 100
    surface_judge: Literal["none", "small_model"] = "none"
    agent_spheres: tuple[str, ...] = ()
    embedder: str = "minilm"
    second_embedder: str = "use-multilingual"
    redact: bool = True
    decay_cycle: Literal["day", "request"] = "day"
    locale: str = ""
    distill: Literal["auto", "off"] = "auto"
    distill_every: int = 10
    distill_after_s: float = 600.0
    extractor: str = ""
    worker: Literal["auto", "off"] = "auto"
    worker_idle_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsSettings:
    """Which tools a model is offered: `dirs` are more folders of executables, `disabled` names what is left out.

    Attributes:
        environ: Names of environment variables that sandboxed programs get.
    """

    dirs: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    environ: tuple[str, ...] = ()
    schema_timeout_s: float = 1.0
    defer_above: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Where code that the model wrote runs, and commands in mode `auto`.

    Attributes:
        spares: How many sandboxes are started ahead for capabilities that were just used.
        memory_mb: Of one boxed command, with all that it starts; None is three quarters of the machine's.
        min_package_age_days: Versions of packages that were published later are not installed.
        packages_mb: The size of all installed packages together.
    """

    backend: SandboxBackend = "auto"
    image: str = ""
    e2b_key_env: str = "E2B_API_KEY"
    e2b_domain: str = "e2b.app"
    pull: bool = False
    allow_unsafe: bool = False
    spares: int = 1
    network: tuple[str, ...] = ()
    memory_mb: int | None = None
    processes: int = 1024
    file_mb: int = 4096
    disk_mb: int = 8192
    min_package_age_days: float = 3.0
    packages_mb: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The web tools. `allow_private` lists hosts that may be used although their addresses are not public."""

    enabled: bool = True
    allow_private: tuple[str, ...] = ()
    search: Literal["auto", "searxng", "brave", "tavily", "duckduckgo"] = "auto"
    searxng_url: str = field(default="", repr=False)
    chromium: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where `satchel serve` listens, and to whom it answers.

    Attributes:
        host: A name or an address. Other than loopback needs TLS.
        port: 0 is any free one.
        allowed_hosts: By which other names clients may address the server, with or without a port.
        tls_cert: The file with the certificate and its chain, in PEM; "" serves without TLS.
        tls_key: The file with its private key.
        messages_provider: The provider (`[providers.NAME]`, kind "anthropic") to which POST /v1/messages is passed on.
        requests_per_s: How many requests of one address are answered in the long run; ten times as many at once.
        join: Whether conversations in the terminal are held in the server where one runs.
    """

    host: str = "127.0.0.1"
    port: int = 7437
    allowed_hosts: tuple[str, ...] = ()
    tls_cert: str = ""
    tls_key: str = ""
    messages_provider: str = "anthropic"
    requests_per_s: float = 100.0
    join: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalSettings:
    """How `satchel chat` looks.

    Attributes:
        screen: "auto" uses the whole screen where the terminal can show it, "off" prints line by line.
        theme: "auto" asks the terminal for its background.
    """

    screen: str = "auto"
    theme: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsSettings:
    """How long conversations are kept, and how.

    Attributes:
        compress_after_days: Without a new message; 0 is never, as for the other.
    """

    compress_after_days: int = 30
    delete_after_days: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to calls that fit `tool`: a tool's name, or a name and a pattern as in `bash(git *)`.

    Attributes:
        options: What the sandbox of these calls may reach, and whether there is one; only where `action` is "allow".
    """

    action: RuleAction
    tool: str
    options: RuleOptions = RuleOptions()

    @property
    def text(self) -> str:
        """The rule without its action, as `--allow` takes it."""
        return rule_text(self.tool, self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, read once.

    Attributes:
        home: SATCHEL_HOME; it need not exist yet (see `ensure_home`).
        config_path: The user's own file; it need not exist.
        project: The nearest folder, from `cwd` upwards, with a `.satchel` folder or an `AGENTS.md`, or else with
            skills; or None.
        project_trusted: The user trusts `project` in its current state; otherwise its files are ignored.
        project_changes: What has changed in a folder that the user trusted, in words.
        project_instructions: The text of a trusted project's AGENTS.md, or "".
        project_tools: SHA-256 of the files in a trusted project's folders of tools that the user accepted, by path.
        project_skills: SHA-256 of each SKILL.md of a trusted project that the user accepted, by path.
        model: "provider:model", or "" to let Satchel choose.
        small_model: The same, for small background tasks; "" uses the small model of the model's provider.
        database: "" for `home / "satchel.db"`, a path, or a URL. May contain a password.
        permissions: The project's rules, then the user's own, in the order written.
        environ: The environment for started processes: this process's environment without the providers' keys.
        sources: Where each setting that is not the default was set, as a description for users, by dotted key.
        secrets: The values that `secret` returns.
    """

    home: Path
    config_path: Path
    cwd: Path
    project: Path | None = None
    project_trusted: bool = False
    project_changes: tuple[str, ...] = ()
    project_instructions: str = field(default="", repr=False)
    project_tools: Mapping[str, str] = field(default_factory=dict, repr=False)
    project_skills: Mapping[str, str] = field(default_factory=dict, repr=False)
    model: str = ""
    small_model: str = ""
    database: str = field(default="", repr=False)
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict)
    mcp_servers: Mapping[str, McpServerSettings] = field(default_factory=dict)
    agent: AgentSettings = field(default_factory=AgentSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    background: BackgroundSettings = field(default_factory=BackgroundSettings)
    builder: BuilderSettings = field(default_factory=BuilderSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    tools: ToolsSettings = field(default_factory=ToolsSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    web: WebSettings = field(default_factory=WebSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    terminal: TerminalSettings = field(default_factory=TerminalSettings)
    sessions: SessionsSettings = field(default_factory=SessionsSettings)
    permissions: tuple[Rule, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def database_location(self) -> Path | str:
        """Where the memories are stored: the absolute path of a file, or the configured URL."""
        if "://" in self.database:
            return self.database
        return self.home / (Path(self.database).expanduser() if self.database else "satchel.db")

    @property
    def keeps_memory(self) -> bool:
        """Whether conversations become memories."""
        return self.memory.enabled and self.memory.capture

    def secret(self, env_name: str) -> str | None:
        """The value of an environment variable, including those that started processes don't get.

        Args:
            env_name: The variable's name, such as a provider's `env_api_key`; for "", the result is None.

        Returns:
            The value without surrounding white space, or None if it is not set or empty.
        """
        value = self.secrets.get(env_name) or self.environ.get(env_name, "")
        return value.strip() or None

    def provider(self, name: str) -> ProviderSettings:
        """The provider with this name: of the settings, built in, or of an enabled plugin.

        Raises:
            ConfigError: There is none.
        """
        found = self.providers.get(name)
        if found is None and name in plugin_providers(self.home):
            return ProviderSettings(name=name, kind="plugin")
        if found is None:
            raise ConfigError(
                f"There is no provider {name!r}. There are: {', '.join(self.providers)}. To add one, "
                f"write [providers.{name}] with kind, base_url and env_api_key in {self.config_path}."
                + "".join(f" The plugin {plugin}: {why}" for plugin, why in problems(self.home).items())
            )
        return found


Kind: TypeAlias = Literal["bool", "int", "float", "text", "words", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting: its meaning and the values that it accepts.

    Attributes:
        key: Dotted; `providers.NAME.…` stands for every provider, `mcp_servers.NAME.…` for every MCP server.
        default: None for an optional key (`optional`).
        low: The lowest allowed value; `high` is the highest.
        choices: All allowed values, or () if any value is allowed.
        doc: The documentation.
    """

    key: str
    kind: Kind
    default: bool | int | float | str | tuple[str, ...] | Mapping[str, str] | None
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False

    @property
    def env(self) -> str:
        """The environment variable that sets it."""
        return "SATCHEL_" + self.key.replace(".", "_").upper()

    @property
    def allowed(self) -> str:
        """The values that it accepts, in words that complete "use …"."""
        match self.kind:
            case "bool":
                return "true or false"
            case "int" | "float":
                words = "a whole number" if self.kind == "int" else "a number"
                if self.low is not None and self.high is not None:
                    words += f" from {self.low:,.10g} to {self.high:,.10g}"
                return words
            case "words":
                return (
                    "a list of names"
                    if self.key in ("tools.disabled", "tools.environ")
                    else "a list of texts"
                )
            case "table":
                return 'a table of texts by name, such as { NAME = "text" }'
            case "text":
                quoted = [f'"{choice}"' for choice in self.choices]
                return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if quoted else "text"


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        key="model",
        kind="text",
        default="",
        doc='The language model, as "provider:model". "gguf:/path/model.gguf" runs a model file in the '
        'process, "none" only recalls memories, and "PROVIDER" uses that provider\'s default model. '
        "Empty lets Satchel choose.",
    ),
    Setting(
        key="small_model",
        kind="text",
        default="",
        doc="The language model for small tasks, such as deciding whether a conversation contains "
        'anything worth remembering, as "provider:model". Empty uses the small model of the same '
        "provider.",
    ),
    Setting(
        key="database",
        kind="text",
        default="",
        doc="The database file. Empty means satchel.db in SATCHEL_HOME.",
    ),
    Setting(
        key="agent.max_rounds",
        kind="int",
        default=10,
        low=1,
        high=1000,
        doc="The maximum number of requests to the model in one turn. Then the turn ends and says so.",
    ),
    Setting(
        key="agent.model_timeout_s",
        kind="float",
        default=600.0,
        low=1,
        high=86_400,
        doc="The time in seconds after which a model that sends nothing is given up. After ten seconds a notice says "
        "what is waited for.",
    ),
    Setting(
        key="agent.tool_timeout_s",
        kind="float",
        default=30.0,
        low=0.1,
        high=86_400,
        doc="The time limit of a tool call in seconds, for tools without their own limit.",
    ),
    Setting(
        key="agent.tool_workers",
        kind="int",
        default=16,
        low=1,
        high=256,
        doc="The number of threads for blocking tools. Further calls wait.",
    ),
    Setting(
        key="agent.max_result_chars",
        kind="int",
        default=30_000,
        low=200,
        high=10_000_000,
        doc="The maximum number of characters of a tool's result that the model sees. The rest is stored "
        "in a file that it can page through.",
    ),
    Setting(
        key="agent.mode",
        kind="text",
        default="ask",
        choices=("ask", "auto", "plan", "bypass"),
        doc='How to decide calls that no rule covers: "ask" asks the user, "auto" runs calls that only '
        'read and asks for the others, "plan" runs calls that only read and shows the others, '
        '"bypass" runs everything.',
    ),
    Setting(
        key="budget.session_usd",
        kind="float",
        default=None,
        low=0,
        high=1_000_000,
        optional=True,
        doc="The maximum cost of one session in US dollars. If not set, there is no limit.",
    ),
    Setting(
        key="budget.day_usd",
        kind="float",
        default=None,
        low=0,
        high=1_000_000,
        optional=True,
        doc="The maximum cost of all sessions in one day in US dollars. If not set, there is no limit.",
    ),
    Setting(
        key="budget.turn_tokens",
        kind="int",
        default=None,
        low=1,
        high=1_000_000_000,
        optional=True,
        doc="The maximum number of input and output tokens in one turn. If not set, there is no limit.",
    ),
    Setting(
        key="background.models",
        kind="text",
        default="auto",
        choices=("auto", "off"),
        doc="Whether models do anything that you did not ask for: judge what is worth remembering, extract facts, "
        'write the page about you, choose what is shown with a message. "off" turns all of it off, whatever '
        "`memory.distill` and `memory.surface_judge` say.",
    ),
    Setting(
        key="background.day_tokens",
        kind="int",
        default=None,
        low=0,
        high=1_000_000_000_000,
        optional=True,
        doc="The maximum number of tokens, in and out, that models use in the background in one day. What is left is "
        "done the next day. If not set, there is no limit.",
    ),
    Setting(
        key="background.day_usd",
        kind="float",
        default=None,
        low=0,
        high=1_000_000,
        optional=True,
        doc="The maximum cost of that in one day in US dollars, where prices are known. If not set, there is no limit. "
        "It counts towards `budget.day_usd`, too.",
    ),
    Setting(
        key="builder.model",
        kind="text",
        default="",
        doc='The language model that builds capabilities, as "provider:model". Empty uses the model of the '
        "session that asks for the capability.",
    ),
    Setting(
        key="builder.max_rounds",
        kind="int",
        default=25,
        low=1,
        high=1000,
        doc="The maximum number of requests to the model in one build.",
    ),
    Setting(
        key="builder.timeout_s",
        kind="float",
        default=600.0,
        low=1,
        high=86_400,
        doc="The time limit of a build in seconds. The time during which no process works on it does not count.",
    ),
    Setting(
        key="builder.max_tokens",
        kind="int",
        default=4096,
        low=256,
        high=1_000_000,
        doc="The maximum number of tokens of one answer of the model in a build.",
    ),
    Setting(
        key="builder.question_wait_s",
        kind="float",
        default=60.0,
        low=0,
        high=86_400,
        doc="The number of seconds that a build waits for the answer to a question. Then the Builder decides.",
    ),
    Setting(
        key="builder.usd",
        kind="float",
        default=None,
        low=0,
        high=1_000_000,
        optional=True,
        doc="The maximum cost of one build in US dollars. If not set, there is no limit.",
    ),
    Setting(
        key="builder.workers",
        kind="int",
        default=2,
        low=1,
        high=64,
        doc="The number of builds that run at the same time. Others wait.",
    ),
    Setting(
        key="memory.enabled",
        kind="bool",
        default=True,
        doc="Whether memories are shown to the model and new ones are stored.",
    ),
    Setting(
        key="memory.capture",
        kind="bool",
        default=True,
        doc="Whether what is said is stored as memory. If off, only existing memories are used.",
    ),
    Setting(
        key="memory.budget_tokens",
        kind="int",
        default=500,
        low=0,
        high=100_000,
        doc="The maximum number of tokens of the memories that are shown with one message.",
    ),
    Setting(
        key="memory.limit",
        kind="int",
        default=8,
        low=0,
        high=100,
        doc="The maximum number of memories that are shown with one message.",
    ),
    Setting(
        key="memory.surface_threshold",
        kind="float",
        default=None,
        low=0,
        high=1,
        optional=True,
        doc="How sure Satchel must be that a memory is needed before it is shown automatically. If not set, 0.5. "
        "Lower values show more of what is needed, and more that is not.",
    ),
    Setting(
        key="memory.surface_judge",
        kind="text",
        default="none",
        choices=("none", "small_model"),
        doc="Whether the small model chooses which memories are shown with a message. It gets the first twenty "
        "candidates and 0.8 seconds; if it is later, the choice is made without it. Each message then costs one more "
        "call.",
    ),
    Setting(
        key="memory.agent_spheres",
        kind="words",
        default=(),
        doc="The spheres of your life of which connected agents (MCP, the proxy, hooks) are told: health, love, "
        "family, money, work, belief, leisure, home, and person:NAME. Empty grants all. With any, agents get only "
        "memories that have spheres, and only those whose spheres are all granted, and no page.",
    ),
    Setting(
        key="memory.profile_tokens",
        kind="int",
        default=300,
        low=0,
        high=100_000,
        doc="The maximum number of tokens of the profile, which says what holds about you at all times and "
        "is shown to the model when a session begins, where there is no page; 0 turns it off.",
    ),
    Setting(
        key="memory.page_tokens",
        kind="int",
        default=1200,
        low=0,
        high=100_000,
        doc="The maximum number of tokens of the standing page, which a model writes from what you said and which is "
        "shown to the model when a session begins, in place of the profile; 0 turns it off.",
    ),
    Setting(
        key="memory.agenda_tokens",
        kind="int",
        default=100,
        low=0,
        high=100_000,
        doc="The maximum number of tokens of the agenda, which says what happens in the next seven days "
        "and is shown below the profile; 0 turns it off.",
    ),
    Setting(
        key="memory.embedder",
        kind="text",
        default="minilm",
        doc='The model that turns text into vectors: "minilm" runs in the process, "none" searches by '
        'words alone, and "provider:model" uses an OpenAI-compatible endpoint.',
    ),
    Setting(
        key="memory.second_embedder",
        kind="text",
        default="use-multilingual",
        doc="The model for texts in languages that `memory.embedder` doesn't read. It is used only beside a "
        'model that reads English alone, such as "minilm", and is fetched and loaded once there is such a text. '
        '"use-multilingual" reads Arabic, Chinese, Dutch, French, German, Italian, Japanese, Korean, Polish, '
        "Portuguese, Russian, Spanish, Thai and Turkish; the other values are those of `memory.embedder`. With "
        '"none", such texts are found by their words, and in Latin script by `memory.embedder` as well as that can.',
    ),
    Setting(
        key="memory.redact",
        kind="bool",
        default=True,
        doc="Whether passwords, keys, card numbers and other secrets are removed before anything is "
        "written to memory and to the session logs.",
    ),
    Setting(
        key="memory.decay_cycle",
        kind="text",
        default="day",
        choices=("day", "request"),
        doc="The unit of the rate at which memories fade until they are no longer shown automatically: "
        "days, or messages to the model. Search still finds faded memories.",
    ),
    Setting(
        key="memory.locale",
        kind="text",
        default="",
        doc='Where you live, as "en_GB" or "en_US": it decides whether 5/2 is in February or in May, and which '
        "holidays and seasons are meant. Without it, such dates are unknown unless the language decides. "
        "The locale of the system isn't used, because en_US is so often only its default.",
    ),
    Setting(
        key="memory.distill",
        kind="text",
        default="auto",
        choices=("auto", "off"),
        doc='Whether facts are extracted from what was said: "auto" does it in the background, "off" only when '
        "you run `satchel memory distill`.",
    ),
    Setting(
        key="memory.distill_every",
        kind="int",
        default=10,
        low=1,
        high=1_000_000,
        doc="The number of unread messages in a conversation after which facts are extracted from it.",
    ),
    Setting(
        key="memory.distill_after_s",
        kind="float",
        default=600.0,
        low=0,
        high=31_536_000,
        doc="The number of seconds without a new message in a conversation after which facts are extracted even from "
        "fewer messages.",
    ),
    Setting(
        key="memory.extractor",
        kind="text",
        default="",
        doc='The language model that extracts facts, as "provider:model". Empty uses a model of medium size of the '
        "provider of your model, never its largest; the small one if your model is small, or if the provider has only "
        "two. If Satchel doesn't know the provider's models, it is your model.",
    ),
    Setting(
        key="memory.worker",
        kind="text",
        default="auto",
        choices=("auto", "off"),
        doc="Whether Satchel starts processes for memory in the background: `satchel memory work`, which extracts "
        "facts and embeds at low priority after an answer of `satchel ask`, and `satchel memory answer`, which answers "
        'hooks of other agents where no server runs. With "off", `satchel ask` does this work while it runs.',
    ),
    Setting(
        key="memory.worker_idle_s",
        kind="float",
        default=60.0,
        low=0,
        high=86_400,
        doc="The number of seconds without work after which `satchel memory work` ends. Before it ends, it reads "
        "conversations that have been silent for as long.",
    ),
    Setting(
        key="tools.dirs",
        kind="words",
        default=(),
        doc="Folders with executables that are tools, in addition to SATCHEL_HOME/tools and a trusted "
        "project's .satchel/tools. `~` is your home. A relative folder is relative to the folder of "
        "the file that names it.",
    ),
    Setting(
        key="tools.schema_timeout_s",
        kind="float",
        default=1.0,
        low=0.05,
        high=60,
        doc="The time limit in seconds for an executable to answer --schema.",
    ),
    Setting(
        key="tools.disabled",
        kind="words",
        default=(),
        doc="Tools that are not offered to models.",
    ),
    Setting(
        key="tools.environ",
        kind="words",
        default=(),
        doc="Names of environment variables that sandboxed commands, executables and MCP servers get, in addition to "
        "PATH, LANG and other harmless ones.",
    ),
    Setting(
        key="tools.defer_above",
        kind="int",
        default=30,
        low=0,
        high=10_000,
        doc="The maximum number of tools in the prompt that are not built in. If there are more, the "
        "model searches for them.",
    ),
    Setting(
        key="sandbox.backend",
        kind="text",
        default="auto",
        choices=("auto", "bubblewrap", "landlock", "docker", "podman", "e2b"),
        doc="What runs code that the model wrote, and in mode auto commands, executables and MCP servers. auto takes "
        "the first of bubblewrap and landlock that works. docker, podman and e2b run capabilities and builds only, and "
        "only if you choose them. Nothing else takes the place of one that doesn't work.",
    ),
    Setting(
        key="sandbox.image",
        kind="text",
        default="",
        doc="The image of containers, or the template of e2b. It must contain python3 in the minor version that runs "
        "Satchel. If empty: the official image python:VERSION-slim; e2b's own template.",
    ),
    Setting(
        key="sandbox.e2b_key_env",
        kind="text",
        default="E2B_API_KEY",
        doc="The name of the environment variable that holds the key of e2b.",
    ),
    Setting(
        key="sandbox.e2b_domain",
        kind="text",
        default="e2b.app",
        doc="Where e2b is, or another service that speaks its protocol.",
    ),
    Setting(
        key="sandbox.pull",
        kind="bool",
        default=False,
        doc="Whether docker or podman may fetch the image if it isn't there.",
    ),
    Setting(
        key="sandbox.allow_unsafe",
        kind="bool",
        default=False,
        doc="Where no sandbox works, run code that the model wrote without one, with all your rights.",
    ),
    Setting(
        key="sandbox.spares",
        kind="int",
        default=1,
        low=0,
        high=8,
        doc="How many sandboxes are started ahead for the capabilities that were used last. Each takes about 10 MiB "
        "of memory for two minutes, and makes the next call about four times as fast.",
    ),
    Setting(
        key="sandbox.min_package_age_days",
        kind="float",
        default=3.0,
        low=0,
        high=3_650,
        doc="Python packages for capabilities and skills are installed in versions that were published at least this "
        "many days ago, because a package that imitates another is usually noticed within days. 0 is for an index that "
        "doesn't say when versions were published.",
    ),
    Setting(
        key="sandbox.packages_mb",
        kind="int",
        default=4096,
        low=1,
        high=1_000_000,
        doc="The size in MiB of all installed Python packages together, above which those that were not used for the "
        "longest time are removed. They are installed again when they are needed.",
    ),
    Setting(
        key="sandbox.network",
        kind="words",
        default=(),
        doc="Hosts that every boxed command may reach: api.example.org, *.example.org:8443.",
    ),
    Setting(
        key="sandbox.memory_mb",
        kind="int",
        default=None,
        optional=True,
        low=64,
        high=16_777_216,
        doc="Memory of one boxed command and all that it starts, in MiB; three quarters of the machine's if not set.",
    ),
    Setting(
        key="sandbox.processes",
        kind="int",
        default=1024,
        low=16,
        high=65_536,
        doc="Processes and threads that one boxed command may have at a time.",
    ),
    Setting(
        key="sandbox.file_mb",
        kind="int",
        default=4096,
        low=1,
        high=16_777_216,
        doc="The size of one file that a boxed command may write, in MiB.",
    ),
    Setting(
        key="sandbox.disk_mb",
        kind="int",
        default=8192,
        low=64,
        high=16_777_216,
        doc="A boxed command is ended when the free space of a disk shrinks by this much while it runs, in MiB.",
    ),
    Setting(
        key="web.enabled",
        kind="bool",
        default=True,
        doc="Whether models get the tools that use the web: web_search, web_fetch and browser.",
    ),
    Setting(
        key="web.allow_private",
        kind="words",
        default=(),
        doc="Hosts with private addresses that the web tools may use, and boxed commands that a rule lets reach them; "
        'with a port or for all ports: "127.0.0.1:8000", "nas.local".',
    ),
    Setting(
        key="web.search",
        kind="text",
        default="auto",
        choices=("auto", "searxng", "brave", "tavily", "duckduckgo"),
        doc='The search engine. "auto" uses the first one that is available, and the next one if it does '
        "not answer.",
    ),
    Setting(
        key="web.searxng_url",
        kind="text",
        default="",
        doc='The address of your SearXNG, such as "http://127.0.0.1:8080". Its settings.yml must list '
        "json in search.formats.",
    ),
    Setting(
        key="web.chromium",
        kind="text",
        default="",
        doc="The Chromium or Chrome for the browser tool. Empty uses the first of chromium, "
        "chromium-browser and google-chrome on the PATH.",
    ),
    Setting(
        key="sessions.compress_after_days",
        kind="int",
        default=30,
        low=0,
        high=36_500,
        doc="The number of days without a new message after which a conversation's log is compressed, in the "
        "background; 0 means never. It is read, searched and continued as before.",
    ),
    Setting(
        key="sessions.delete_after_days",
        kind="int",
        default=0,
        low=0,
        high=36_500,
        doc="The number of days without a new message after which a conversation is deleted, in the background, with "
        "its log and the results of its tools; 0 means never. Its memories stay until you forget them.",
    ),
    Setting(
        key="terminal.screen",
        kind="text",
        default="auto",
        choices=("auto", "off"),
        doc="Whether `satchel chat` uses the whole screen: `auto` does where the terminal can show it; `off` prints "
        "line by line, as `--plain` does.",
    ),
    Setting(
        key="terminal.theme",
        kind="text",
        default="auto",
        choices=("auto", "dark", "light"),
        doc="The colours of the screen: `auto` asks the terminal for its background.",
    ),
    Setting(
        key="server.host",
        kind="text",
        default="127.0.0.1",
        doc="Where `satchel serve` listens: a name or an address. Any other than the loopback interface needs "
        "server.tls_cert and server.tls_key.",
    ),
    Setting(
        key="server.port",
        kind="int",
        default=7437,
        low=0,
        high=65_535,
        doc="Its port; 0 takes any free one.",
    ),
    Setting(
        key="server.allowed_hosts",
        kind="words",
        default=(),
        doc="Other names by which clients may address the server, as their requests name it: "
        '"satchel.example.org", or with a port "satchel.example.org:8443". Requests for other names are refused.',
    ),
    Setting(
        key="server.tls_cert",
        kind="text",
        default="",
        doc="The file with the server's certificate and its chain, in PEM. Empty serves without TLS.",
    ),
    Setting(
        key="server.tls_key",
        kind="text",
        default="",
        doc="The file with the certificate's private key, in PEM.",
    ),
    Setting(
        key="server.messages_provider",
        kind="text",
        default="anthropic",
        doc='The provider, an entry of kind "anthropic", to which the memory proxy (POST /v1/messages) passes requests '
        "on.",
    ),
    Setting(
        key="server.requests_per_s",
        kind="float",
        default=100.0,
        low=0.1,
        high=1_000_000,
        doc="How many requests a second of one address are answered in the long run; ten seconds' worth at once.",
    ),
    Setting(
        key="server.join",
        kind="bool",
        default=True,
        doc="Whether `satchel chat`, and `satchel ask` in an earlier session, use the server of this home where one "
        "runs. Then several terminals and browsers share a conversation.",
    ),
    Setting(
        key="providers.NAME.kind",
        kind="text",
        default="openai",
        choices=("openai", "anthropic", "gguf", "none"),
        doc="The wire format of the endpoint.",
    ),
    Setting(
        key="providers.NAME.base_url",
        kind="text",
        default="",
        doc="The address of the endpoint, without /chat/completions or /v1/messages.",
    ),
    Setting(
        key="providers.NAME.env_api_key",
        kind="text",
        default="",
        doc="The name of the environment variable that holds the key. The key itself is never stored.",
    ),
    Setting(
        key="providers.NAME.model",
        kind="text",
        default="",
        doc="The provider's default model, for when only the provider is named or only its key is set. "
        "Empty uses Satchel's default for the provider, or the first model that it lists.",
    ),
    Setting(
        key="providers.NAME.tool_use",
        kind="text",
        default="auto",
        choices=("auto", "native", "json"),
        doc='How the model calls tools: "native" uses the endpoint\'s tool calls, "json" uses JSON in the '
        'text, "auto" uses tool calls until the endpoint refuses them.',
    ),
    Setting(
        key="providers.NAME.context_window",
        kind="int",
        default=None,
        low=512,
        high=100_000_000,
        optional=True,
        doc="The maximum number of tokens of a request and its answer together. If not set, the known "
        "value of the model.",
    ),
    Setting(
        key="providers.NAME.max_tokens",
        kind="int",
        default=None,
        low=1,
        high=10_000_000,
        optional=True,
        doc="The maximum number of tokens of one answer. If not set, the model's own limit.",
    ),
    Setting(
        key="providers.NAME.stream",
        kind="bool",
        default=True,
        doc="Whether answers are streamed. Turn it off for endpoints that only answer in one piece.",
    ),
    Setting(
        key="mcp_servers.NAME.command",
        kind="text",
        default="",
        doc="The program of the MCP server, which Satchel starts and talks to over stdin and stdout.",
    ),
    Setting(
        key="mcp_servers.NAME.args",
        kind="words",
        default=(),
        doc="The arguments of the program.",
    ),
    Setting(
        key="mcp_servers.NAME.env",
        kind="table",
        default={},
        doc="Environment variables for the program, in addition to PATH, HOME and the like; it gets no "
        "others. ${NAME} inserts a value from your environment, so that it isn't stored.",
    ),
    Setting(
        key="mcp_servers.NAME.cwd",
        kind="text",
        default="",
        doc="The folder in which the program starts. Empty means the working folder if you trust it, "
        "otherwise SATCHEL_HOME.",
    ),
    Setting(
        key="mcp_servers.NAME.url",
        kind="text",
        default="",
        doc="The address of an MCP server, instead of a program.",
    ),
    Setting(
        key="mcp_servers.NAME.headers",
        kind="table",
        default={},
        doc="Headers of every request to the address. ${NAME} inserts a value from your environment.",
    ),
    Setting(
        key="mcp_servers.NAME.transport",
        kind="text",
        default="http",
        choices=("http", "sse"),
        doc="The transport for the address: streamable HTTP, falling back to SSE; or SSE only.",
    ),
    Setting(
        key="mcp_servers.NAME.timeout_s",
        kind="float",
        default=None,
        low=0.1,
        high=86_400,
        optional=True,
        doc="The time limit of one call in seconds. If not set, agent.tool_timeout_s.",
    ),
    Setting(
        key="mcp_servers.NAME.enabled",
        kind="bool",
        default=True,
        doc="Whether the server is used.",
    ),
    Setting(
        key="mcp_servers.NAME.trust_annotations",
        kind="bool",
        default=False,
        doc="Whether you vouch for what the server says about its tools (they only read, they destroy "
        "nothing). Then modes treat them like built-in tools.",
    ),
    Setting(
        key="mcp_servers.NAME.accept_changes",
        kind="bool",
        default=False,
        doc="Whether the server's tools may change without a new approval.",
    ),
    Setting(
        key="mcp_servers.NAME.oauth_client_id",
        kind="text",
        default="",
        doc="The client id for logins, if the authorization server doesn't register clients automatically.",
    ),
    Setting(
        key="mcp_servers.NAME.oauth_env_client_secret",
        kind="text",
        default="",
        doc="The name of the environment variable that holds the client's secret.",
    ),
    Setting(
        key="mcp_servers.NAME.oauth_scopes",
        kind="words",
        default=(),
        doc="The scopes to request at a login. Empty requests those that the server names.",
    ),
    Setting(
        key="mcp_servers.NAME.oauth_redirect_port",
        kind="int",
        default=None,
        low=1,
        high=65_535,
        optional=True,
        doc="The port on 127.0.0.1 to which the browser returns after a login. If not set, any free port. "
        "The address to register is http://127.0.0.1:PORT/callback.",
    ),
    Setting(
        key="permissions.N.action",
        kind="text",
        default="ask",
        choices=("allow", "ask", "deny"),
        doc="What happens to matching calls.",
    ),
    Setting(
        key="permissions.N.tool",
        kind="text",
        default="",
        doc="A tool's name, or a name and a pattern for its input: bash(git *).",
    ),
    Setting(
        key="permissions.N.network",
        kind="words",
        default=(),
        doc="Hosts that matching calls may reach from the sandbox: api.example.org, *.example.org:443, or * for "
        "every public address.",
    ),
    Setting(
        key="permissions.N.read",
        kind="words",
        default=(),
        doc="Files and folders that matching calls may read from the sandbox, in addition to the workspace and the "
        "system's folders.",
    ),
    Setting(
        key="permissions.N.write",
        kind="words",
        default=(),
        doc="Files and folders that matching calls may write from the sandbox, in addition to the workspace.",
    ),
    Setting(
        key="permissions.N.boxed",
        kind="bool",
        default=None,
        optional=True,
        doc="Whether matching calls run in the sandbox. If not set, they do in mode auto.",
    ),
    Setting(
        key="permissions.N.secrets",
        kind="words",
        default=(),
        doc="Environment variables that matching capabilities (cap_NAME) may get, without a question.",
    ),
    Setting(
        key="permissions.N.state",
        kind="bool",
        default=False,
        doc="Whether matching capabilities may keep files from one run to the next, without a question.",
    ),
)
