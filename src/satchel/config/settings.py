"""The settings as frozen dataclasses: each field says what it means and what it accepts; see `setting`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from satchel.config.plugins import plugin_providers, problems
from satchel.config.rule_texts import RuleOptions, rule_text
from satchel.config.setting import Setting as Setting
from satchel.config.setting import setting, settings_of
from satchel.errors import ConfigError

SQLITE_URL: Final = "sqlite:///"

Mode: TypeAlias = Literal["ask", "auto", "plan", "bypass"]
"""How to decide calls that no rule covers; see the documentation of `agent.mode`."""

ProviderKind: TypeAlias = Literal["openai", "anthropic", "ollama", "gguf", "none", "plugin"]
"""The wire format of an endpoint. "gguf" runs in this process, "none" recalls memories without a language model."""

ToolUse: TypeAlias = Literal["auto", "native", "json"]
"""How tools are called: by the endpoint's tool calls until it refuses them; by its tool calls; by JSON in text."""


RuleAction: TypeAlias = Literal["allow", "ask", "deny"]

McpTransport: TypeAlias = Literal["http", "sse"]
"""The transport for an MCP server with an address: streamable HTTP with a fallback to SSE, or SSE only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """One endpoint that serves language models.

    Attributes:
        builtin: It exists without an entry in the settings.
    """

    name: str
    kind: ProviderKind = setting(
        "openai",
        "The wire format of the endpoint.",
        choices=("openai", "anthropic", "ollama", "gguf", "none"),
    )
    base_url: str = setting(
        "", "The address of the endpoint, without /chat/completions or /v1/messages.", repr=False
    )
    env_api_key: str = setting(
        "",
        "The name of the environment variable that holds the key. It also names a key that was pasted at set-up.",
    )
    model: str = setting(
        "",
        "The provider's default model, for when only the provider is named or only its key is set. Empty "
        "uses Satchel's default for the provider, or the first model that it lists.",
    )
    tool_use: ToolUse = setting(
        "auto",
        'How the model calls tools: "native" uses the endpoint\'s tool calls, "json" uses JSON in the '
        'text, "auto" uses tool calls until the endpoint refuses them.',
    )
    context_window: int | None = setting(
        None,
        "The maximum number of tokens of a request and its answer together. If not set, the known value "
        "of the model; with Ollama its num_ctx, or 16,384.",
        low=512,
        high=100_000_000,
    )
    max_tokens: int | None = setting(
        None,
        "The maximum number of tokens of one answer. If not set, the model's own limit.",
        low=1,
        high=10_000_000,
    )
    max_pictures: int | None = setting(
        None,
        "The maximum number of pictures in one request; the newest are sent. If not set, what the provider "
        "documents, and what it names when it refuses more.",
        low=1,
        high=10_000,
    )
    max_pictures_mb: float | None = setting(
        None,
        "The maximum size of the pictures in one request together, in MB before encoding. If not set, "
        "what the provider documents.",
        low=1,
        high=1_000,
    )
    stream: bool = setting(
        True, "Whether answers are streamed. Turn it off for endpoints that only answer in one piece."
    )
    builtin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerSettings:
    """One MCP server: a program that is started, or an address.

    In `command`, `args`, `cwd`, `url` and in the values of `env` and `headers`, `${NAME}` stands for an environment
    variable and `${NAME:-text}` for one with a default. They are filled in when the server is started or connected
    to, so that secrets need not be stored. The values of `env` and `headers` are never shown.

    Attributes:
        base: The folder that a relative `cwd` refers to: the project's for an entry in its file, otherwise None.
    """

    name: str
    command: str = setting(
        "", "The program of the MCP server, which Satchel starts and talks to over stdin and stdout."
    )
    args: tuple[str, ...] = setting((), "The arguments of the program.")
    env: Mapping[str, str] = setting(
        {},
        "Environment variables for the program, in addition to PATH, HOME and the like; it gets no "
        "others. ${NAME} inserts a value from your environment, so that it isn't stored.",
        repr=False,
    )
    cwd: str = setting(
        "",
        "The folder in which the program starts. Empty means the working folder if you trust it, "
        "otherwise SATCHEL_HOME.",
    )
    url: str = setting("", "The address of an MCP server, instead of a program.", repr=False)
    headers: Mapping[str, str] = setting(
        {},
        "Headers of every request to the address. ${NAME} inserts a value from your environment.",
        repr=False,
    )
    transport: McpTransport = setting(
        "http", "The transport for the address: streamable HTTP, falling back to SSE; or SSE only."
    )
    timeout_s: float | None = setting(
        None, "The time limit of one call in seconds. If not set, agent.tool_timeout_s.", low=0.1, high=86_400
    )
    enabled: bool = setting(True, "Whether the server is used.")
    trust_annotations: bool = setting(
        False,
        "Whether you vouch for what the server says about its tools (they only read, they destroy "
        "nothing). Then modes treat them like built-in tools.",
    )
    accept_changes: bool = setting(False, "Whether the server's tools may change without a new approval.")
    oauth_client_id: str = setting(
        "", "The client id for logins, if the authorization server doesn't register clients automatically."
    )
    oauth_env_client_secret: str = setting(
        "", "The name of the environment variable that holds the client's secret."
    )
    oauth_scopes: tuple[str, ...] = setting(
        (), "The scopes to request at a login. Empty requests those that the server names."
    )
    oauth_redirect_port: int | None = setting(
        None,
        "The port on 127.0.0.1 to which the browser returns after a login. If not set, any free port. The "
        "address to register is http://127.0.0.1:PORT/callback.",
        low=1,
        high=65_535,
    )
    base: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The agent loop."""

    max_rounds: int = setting(
        1000,
        "The maximum number of requests to the model in one turn. Then the turn ends and says so. A turn that goes "
        "round in circles ends by itself; what a turn may spend is for `[budget]`.",
        low=1,
        high=1000,
    )
    model_timeout_s: float = setting(
        600.0,
        "The time in seconds after which a model that sends nothing is given up. After ten seconds a "
        "notice says what is waited for.",
        low=1,
        high=86_400,
    )
    tool_timeout_s: float = setting(
        30.0,
        "The time limit of a tool call in seconds, for tools without their own limit. `bash` has at least 120.",
        low=0.1,
        high=86_400,
    )
    tool_workers: int = setting(
        16, "The number of threads for blocking tools. Further calls wait.", low=1, high=256
    )
    max_result_chars: int = setting(
        30_000,
        "The maximum number of characters of a tool's result that the model sees. The rest is stored in a "
        "file that it can page through.",
        low=200,
        high=10_000_000,
    )
    sub_agent_rounds: int = setting(
        20, "The maximum number of requests to the model for one task of a sub-agent.", low=1, high=1000
    )
    sub_agent_tokens: int = setting(
        300_000,
        "The maximum number of tokens for one task of a sub-agent. They count into the budgets, too.",
        low=1_000,
        high=1_000_000_000,
    )
    mode: Mode = setting(
        "ask",
        'How to decide calls that no rule covers: "ask" asks the user, "auto" runs calls that only read '
        'and asks for the others, "plan" runs calls that only read until you approve a plan, "bypass" runs '
        "everything.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """Hard limits; None means no limit."""

    session_usd: float | None = setting(
        None,
        "The maximum cost of one conversation in US dollars. If not set, there is no limit.",
        low=0,
        high=1_000_000,
    )
    day_usd: float | None = setting(
        None,
        "The maximum cost of all conversations in one day in US dollars. If not set, there is no limit.",
        low=0,
        high=1_000_000,
    )
    turn_tokens: int | None = setting(
        None,
        "The maximum number of input and output tokens in one turn. If not set, there is no limit.",
        low=1,
        high=1_000_000_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundSettings:
    """What models do though nobody asked them: the switch and the budget of a day; None means no limit."""

    models: Literal["auto", "off"] = setting(
        "auto",
        "Whether models do anything that you did not ask for: judge what is worth remembering, extract "
        "facts and keep the page about you, choose what is shown with a message, name conversations, describe "
        'pictures, propose tools. "off" turns all of it off, whatever `memory.distill`, `memory.surface_judge`, '
        "`background.titles`, `background.pictures` and `background.earned` say.",
    )
    titles: Literal["auto", "off"] = setting(
        "auto",
        "Whether the small model gives a conversation a title after its first turn. Without it, the first words "
        "are its title, and so they are where only `satchel ask` has asked, which waits for no title.",
    )
    pictures: Literal["auto", "off"] = setting(
        "off",
        "Whether a model that sees describes each picture that you send, so that it is found by what it shows: the "
        "small model, or yours if that one sees nothing. Without it, a picture is found by its name, its day and the "
        "words that it came with.",
    )
    earned: Literal["auto", "off"] = setting(
        "auto",
        "Whether what you have had done three times in much the same way is noticed, and a tool for it proposed "
        "once, or a skill. It is made after your yes. A tool that fails or is not used is put away.",
    )
    day_tokens: int | None = setting(
        None,
        "The maximum number of tokens, in and out, that models use in the background in one day. What is "
        "left is done the next day. If not set, there is no limit.",
        low=0,
        high=1_000_000_000_000,
    )
    day_usd: float | None = setting(
        None,
        "The maximum cost of that in one day in US dollars, where prices are known. If not set, there is "
        "no limit. It counts towards `budget.day_usd`, too.",
        low=0,
        high=1_000_000,
    )

    @property
    def is_limited(self) -> bool:
        """Whether there is a budget."""
        return self.day_tokens is not None or self.day_usd is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderSettings:
    """Builds of capabilities. `usd` None is no limit; `model` "" is the model of the conversation that asks."""

    model: str = setting(
        "",
        'The language model that builds capabilities, as "provider:model". Empty uses the model of the '
        "session that asks for the capability.",
    )
    max_rounds: int = setting(
        25, "The maximum number of requests to the model in one build.", low=1, high=1000
    )
    timeout_s: float = setting(
        600.0,
        "The time limit of a build in seconds. Only the time in which its tools work counts.",
        low=1,
        high=86_400,
    )
    max_tokens: int = setting(
        4096, "The maximum number of tokens of one answer of the model in a build.", low=256, high=1_000_000
    )
    question_wait_s: float = setting(
        60.0,
        "The number of seconds that a build waits for the answer to a question. Then the Builder goes on with its "
        "default, or the build is laid aside until the answer comes.",
        low=0,
        high=86_400,
    )
    usd: float | None = setting(
        None,
        "The maximum cost of one build in US dollars. If not set, there is no limit.",
        low=0,
        high=1_000_000,
    )
    workers: int = setting(2, "The number of builds that run at the same time. Others wait.", low=1, high=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """What is stored and shown. For `surface_threshold`, None is 0.5, where the published figures were measured."""

    enabled: bool = setting(True, "Whether memories are shown to the model and new ones are stored.")
    capture: bool = setting(
        True, "Whether what is said is stored as memory. If off, only existing memories are used."
    )
    budget_tokens: int = setting(
        500,
        "The maximum number of tokens of the memories that are shown with one message.",
        low=0,
        high=100_000,
    )
    limit: int = setting(
        8, "The maximum number of memories that are shown with one message.", low=0, high=100
    )
    surface_threshold: float | None = setting(
        None,
        "How sure Satchel must be that a memory is needed before it is shown automatically. If not set, "
        "0.5. Lower values show more of what is needed, and more that is not.",
        low=0,
        high=1,
    )
    surface_judge: Literal["none", "small_model"] = setting(
        "none",
        "Whether the small model chooses which memories are shown with a message. It gets the first "
        "twenty candidates and 0.8 seconds; if it is later, the choice is made without it. Each message "
        "then costs one more call.",
    )
    agent_spheres: tuple[str, ...] = setting(
        (),
        "The spheres of your life of which connected agents (MCP, the proxy, hooks) are told: health, "
        "love, family, money, work, belief, leisure, home, and person:NAME. Empty grants all. With any, "
        "agents get only memories that have spheres, and only those whose spheres are all granted, and no "
        "page.",
    )
    profile_tokens: int = setting(
        300,
        "The maximum number of tokens of the profile, which says what holds about you at all times and is "
        "shown to the model when a conversation begins, where there is no page. Your last messages follow it, in "
        "up to twice as many; 0 turns both off.",
        low=0,
        high=100_000,
    )
    page_tokens: int = setting(
        1200,
        "The maximum number of tokens of the standing page, which a model keeps from what you said and "
        "which is shown to the model when a conversation begins, in place of the profile; 0 turns it off.",
        low=0,
        high=100_000,
    )
    agenda_tokens: int = setting(
        100,
        "The maximum number of tokens of the agenda, which says what happens in the next seven days and "
        "is shown below the profile; 0 turns it off.",
        low=0,
        high=100_000,
    )
    embedder: str = setting(
        "minilm",
        'The model that turns text into vectors: "minilm" runs in the process, "none" searches by words '
        'alone, and "provider:model" uses an OpenAI-compatible endpoint.',
    )
    second_embedder: str = setting(
        "use-multilingual",
        "The model for texts in languages that `memory.embedder` doesn't read. It is used only beside a "
        'model that reads English alone, such as "minilm", and is fetched and loaded once there is such a '
        'text. "use-multilingual" reads Arabic, Chinese, Dutch, French, German, Italian, Japanese, '
        "Korean, Polish, Portuguese, Russian, Spanish, Thai and Turkish; the other values are those of "
        '`memory.embedder`. With "none", such texts are found by their words, and in Latin script by '
        "`memory.embedder` as well as that can.",
    )
    redact: bool = setting(
        True,
        "Whether passwords, keys, card numbers and other secrets are removed before anything is written "
        "to memory and to the conversation logs.",
    )
    decay_cycle: Literal["day", "request"] = setting(
        "day",
        "The unit of the rate at which memories fade until they are no longer shown automatically: days, "
        "or messages to the model. Search still finds faded memories.",
    )
    locale: str = setting(
        "",
        'Where you live, as "en_GB" or "en_US": it decides whether 5/2 is in February or in May, and '
        "which holidays and seasons are meant. Without it, such dates are unknown unless the language "
        "decides. The locale of the system isn't used, because en_US is so often only its default.",
    )
    distill: Literal["auto", "off"] = setting(
        "auto",
        'Whether facts are extracted from what was said: "auto" does it in the background, "off" only '
        "when you run `satchel memory distill`.",
    )
    distill_every: int = setting(
        10,
        "The number of unread messages in a conversation after which facts are extracted from it.",
        low=1,
        high=1_000_000,
    )
    distill_after_s: float = setting(
        600.0,
        "The number of seconds without a new message in a conversation after which facts are extracted "
        "even from fewer messages.",
        low=0,
        high=31_536_000,
    )
    extractor: str = setting(
        "",
        'The language model that extracts facts, as "provider:model". Empty uses a model of medium size '
        "of the provider of your model, never its largest; the small one if your model is small, or if "
        "the provider has only two. If Satchel doesn't know the provider's models, it is your model.",
    )
    worker: Literal["auto", "off"] = setting(
        "auto",
        "Whether Satchel starts processes for memory in the background: `satchel memory work`, which "
        "extracts facts and embeds at low priority after an answer of `satchel ask`, and `satchel memory "
        'answer`, which answers hooks of other agents where no server runs. With "off", `satchel ask` does this '
        "work while it runs, and hooks recall nothing without a server.",
    )
    worker_idle_s: float = setting(
        60.0,
        "The number of seconds without work after which `satchel memory work` ends. Before it ends, it "
        "reads conversations that have been silent for as long.",
        low=0,
        high=86_400,
    )
    watch_every_s: float = setting(
        60.0,
        "The number of seconds between two looks at the watched folders (`satchel memory watch`) while Satchel runs.",
        low=1,
        high=86_400,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsSettings:
    """Which tools a model is offered: `dirs` are more folders of executables, `disabled` names what is left out."""

    dirs: tuple[str, ...] = setting(
        (),
        "Folders with executables that are tools, in addition to SATCHEL_HOME/tools and a trusted "
        "project's .satchel/tools. `~` is your home. A relative folder is relative to the folder of the "
        "file that names it.",
    )
    schema_timeout_s: float = setting(
        1.0, "The time limit in seconds for an executable to answer --schema.", low=0.05, high=60
    )
    disabled: tuple[str, ...] = setting((), "Tools that are not offered to models.")
    environ: tuple[str, ...] = setting(
        (),
        "Names of environment variables that sandboxed commands, executables and MCP servers get, in "
        "addition to PATH, LANG and other harmless ones. The keys of model providers and search engines are never "
        "passed on.",
    )
    defer_above: int = setting(
        30,
        "The maximum number of tools in the prompt that are not built in. If there are more, the model "
        "searches for them.",
        low=0,
        high=10_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Where code that the model wrote runs, and commands in mode `auto`."""

    backend: str = setting(
        "auto",
        "What runs code that the model wrote, and in mode auto commands, executables and MCP servers. "
        "auto takes the first of bubblewrap and landlock that works. Others, which are docker, podman, e2b "
        "and those of plugins, run capabilities and builds only, and only if you choose them. Nothing else "
        "takes the place of one that doesn't work.",
    )
    image: str = setting(
        "",
        "The image of containers, or the template of e2b. It must contain python3 in the minor version "
        "that runs Satchel. If empty: the official image python:VERSION-slim; e2b's own template.",
    )
    e2b_key_env: str = setting(
        "E2B_API_KEY", "The name of the environment variable that holds the key of e2b."
    )
    e2b_domain: str = setting("e2b.app", "Where e2b is, or another service that speaks its protocol.")
    pull: bool = setting(False, "Whether docker or podman may fetch the image if it isn't there.")
    allow_unsafe: bool = setting(
        False, "Where no sandbox works, run code that the model wrote without one, with all your rights."
    )
    spares: int = setting(
        1,
        "How many sandboxes are started ahead for the capabilities that were used last. Each takes about "
        "10 MiB of memory for two minutes, and makes the next call about four times as fast.",
        low=0,
        high=8,
    )
    min_package_age_days: float = setting(
        3.0,
        "Python packages for capabilities and skills are installed in versions that were published at "
        "least this many days ago, because a package that imitates another is usually noticed within "
        "days. 0 is for an index that doesn't say when versions were published.",
        low=0,
        high=3650,
    )
    packages_mb: int = setting(
        4096,
        "The size in MiB of all installed Python packages together, above which those that were not used "
        "for the longest time are removed. They are installed again when they are needed.",
        low=1,
        high=1_000_000,
    )
    network: tuple[str, ...] = setting(
        (), "Hosts that every boxed command may reach: api.example.org, *.example.org:8443."
    )
    memory_mb: int | None = setting(
        None,
        "Memory of one boxed command and all that it starts, in MiB; three quarters of the machine's if "
        "not set.",
        low=64,
        high=16_777_216,
    )
    processes: int = setting(
        1024, "Processes and threads that one boxed command may have at a time.", low=16, high=65_536
    )
    file_mb: int = setting(
        4096, "The size of one file that a boxed command may write, in MiB.", low=1, high=16_777_216
    )
    disk_mb: int = setting(
        8192,
        "A boxed command is ended when what it wrote takes more than this of a disk, in MiB.",
        low=64,
        high=16_777_216,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The web tools. `allow_private` lists hosts that may be used although their addresses are not public."""

    enabled: bool = setting(
        True, "Whether models get the tools that use the web: web_search, web_fetch and browser."
    )
    allow_private: tuple[str, ...] = setting(
        (),
        "Hosts with private addresses that the web tools may use, and boxed commands that a rule lets "
        'reach them; with a port or for all ports: "127.0.0.1:8000", "nas.local".',
    )
    search: Literal["auto", "searxng", "brave", "tavily", "duckduckgo"] = setting(
        "auto",
        'The search engine. "auto" uses the first one that is available, and the next one if it does not '
        "answer.",
    )
    searxng_url: str = setting(
        "",
        'The address of your SearXNG, such as "http://127.0.0.1:8080". Its settings.yml must list json in '
        "search.formats.",
        repr=False,
    )
    chromium: str = setting(
        "",
        "The Chromium or Chrome for the browser tool. Empty uses the first of chromium, chromium-browser "
        "and google-chrome on the PATH.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where `satchel serve` listens, and to whom it answers."""

    host: str = setting(
        "127.0.0.1",
        "Where `satchel serve` listens: a name or an address. Any other than the loopback interface needs "
        "server.tls_cert and server.tls_key.",
    )
    port: int = setting(7437, "Its port; 0 takes any free one.", low=0, high=65_535)
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Other names by which clients may address the server, as their requests name it: "
        '"satchel.example.org", or with a port "satchel.example.org:8443". Requests for other names are '
        "refused.",
    )
    tls_cert: str = setting(
        "", "The file with the server's certificate and its chain, in PEM. Empty serves without TLS."
    )
    tls_key: str = setting("", "The file with the certificate's private key, in PEM.")
    messages_provider: str = setting(
        "anthropic",
        'The provider, an entry of kind "anthropic", to which the memory proxy (POST /v1/messages) passes '
        "requests on.",
    )
    requests_per_s: float = setting(
        100.0,
        "How many requests a second of one address are answered in the long run; ten seconds' worth at once.",
        low=0.1,
        high=1_000_000,
    )
    people_at_once: int = setting(
        20,
        "With several people (`satchel user`): how many of their processes run at a time. Each takes about "
        "40 MB, without an embedding model. If one more is needed, the one that was idle for the longest time ends.",
        low=1,
        high=10_000,
    )
    people_idle_s: float = setting(
        900.0,
        "With several people: the seconds after which a person's process ends that nobody asks anything and "
        "that does nothing.",
        low=1,
        high=1_000_000,
    )
    people_first_uid: int = setting(
        210_000,
        "With several people, where root runs the server: the first of the user ids that their processes "
        "get, one for each person. No other program may use them.",
        low=1_000,
        high=4_000_000_000,
    )
    join: bool = setting(
        True,
        "Whether `satchel chat`, and `satchel ask` in an earlier conversation, use the server of this home "
        "where one runs. Then several terminals and browsers share a conversation.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalSettings:
    """How `satchel chat` looks."""

    screen: Literal["auto", "off"] = setting(
        "auto",
        "Whether `satchel chat` uses the whole screen: `auto` does where the terminal can show it; `off` "
        "prints line by line, as `--plain` does.",
    )
    theme: Literal["auto", "dark", "light"] = setting(
        "auto", "The colours of the screen: `auto` asks the terminal for its background."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsSettings:
    """How long conversations are kept, and how."""

    compress_after_days: int = setting(
        30,
        "The number of days without a new message after which a conversation's log is compressed, in the "
        "background; 0 means never. It is read, searched and continued as before.",
        low=0,
        high=36_500,
    )
    delete_after_days: int = setting(
        0,
        "The number of days without a new message after which a conversation is deleted, in the "
        "background, with its log and the results of its tools; 0 means never. Its memories stay until "
        "you forget them.",
        low=0,
        high=36_500,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRule:
    """What happens to calls that fit `tool`: a tool's name, or a name and a pattern as in `bash(git *)`.

    Attributes:
        options: What the sandbox of these calls may reach, and whether there is one; only where `action` is "allow".
    """

    action: RuleAction = setting("ask", "What happens to matching calls.")
    tool: str = setting("", "A tool's name, or a name and a pattern for its input: bash(git *).")
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
        permissions: The project's rules, then the user's own, in the order written.
        environ: The environment for started processes: this process's environment without the providers' keys.
        sources: Where each setting that is not the default was set, as a description for users, by dotted key.
        secrets: The values that `secret` returns.
        stored: Where those of them lie that the user gave to Satchel and the environment doesn't set, in words.
        agreed: The number of the `Agreement` whose rules are among the permissions.
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
    model: str = setting(
        "",
        'The language model, as "provider:model". "gguf:/path/model.gguf" runs a model file in the '
        'process, "none" only recalls memories, and "PROVIDER" uses that provider\'s default model. Empty '
        "lets Satchel choose.",
    )
    small_model: str = setting(
        "",
        "The language model for small tasks, such as deciding whether a conversation contains anything "
        'worth remembering, as "provider:model". Empty uses the small model of the same provider.',
    )
    database: str = setting(
        "",
        "Where memories are: a file, or postgresql://USER@HOST/NAME, where conversations are, too. Empty means "
        "satchel.db in SATCHEL_HOME.",
        repr=False,
    )
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
    sessions: SessionsSettings = field(default_factory=SessionsSettings)
    terminal: TerminalSettings = field(default_factory=TerminalSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    permissions: tuple[PermissionRule, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    stored: Mapping[str, str] = field(default_factory=dict)
    agreed: int = 0

    @property
    def database_location(self) -> Path | str:
        """Where the memories are stored: the absolute path of a file, or the URL of a server."""
        if self.database.startswith(SQLITE_URL):
            return Path(self.database.removeprefix(SQLITE_URL)).absolute()
        if "://" in self.database:
            return self.database
        return self.home / (Path(self.database).expanduser() if self.database else "satchel.db")

    @property
    def home_database(self) -> Path:
        """The file of what describes the folders of the home and, unless they are on a server, the memories."""
        location = self.database_location
        return location if isinstance(location, Path) else self.home / "satchel.db"

    @property
    def keeps_memory(self) -> bool:
        """Whether conversations become memories."""
        return self.memory.enabled and self.memory.capture

    def secret(self, env_name: str) -> str | None:
        """The value of an environment variable, including those that started processes don't get. For the name "", it
        is None.

        Returns:
            The value without surrounding white space, or None if it is not set or empty.
        """
        value = self.secrets.get(env_name) or self.environ.get(env_name, "")
        return value.strip() or None

    def why_no_secret(self, env_name: str) -> str:
        """Why `secret` has no value, as a sentence without its end."""
        if place := self.stored.get(env_name):
            do = "unlock it, then start Satchel again, or give the key again"
            return f"{env_name} is in {place}, which doesn't give it: {do}"
        return f"{env_name} is not set"

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


SECTIONS: Final[Mapping[str, Any]] = {
    each.name: each.default_factory
    for each in fields(Settings)
    if hasattr(each.default_factory, "__dataclass_fields__")
}
"""The classes of the sections that exist once, by name."""
_PREFIXES: Final = (
    ("", Settings),
    *((f"{name}.", section) for name, section in SECTIONS.items()),
    ("providers.NAME.", ProviderSettings),
    ("mcp_servers.NAME.", McpServerSettings),
    ("permissions.N.", PermissionRule),
    ("permissions.N.", RuleOptions),
)
SETTINGS: Final = tuple(found for prefix, section in _PREFIXES for found in settings_of(prefix, section))
"""All of them, in the order of the documentation."""
