"""Which models there are and whether one can answer; and fetching the embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread

from satchel.config import ProviderSettings, Settings
from satchel.errors import ModelError, SatchelError
from satchel.memory.store.spending import Asked
from satchel.messages import ToolUseBlock, Usage, text_of
from satchel.models import (
    Choice,
    Completion,
    ModelRequest,
    ToolDefinition,
    available_models,
    choose_model,
    default_model,
)
from satchel.models.embedding import MINILM_WEIGHTS, USE_WEIGHTS, Progress, fetch_weights, weights_source
from satchel.runtime.endpoints import GREETING, complete, said
from satchel.runtime.satchel import Satchel

BundledEmbedder: TypeAlias = Literal["minilm", "use-multilingual"]

State: TypeAlias = Literal["ready", "not set up", "failed"]

_ECHO = ToolDefinition(
    name="echo",
    description="Gives back the word that it is called with.",
    input_schema={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderModels:
    """One provider and its models.

    Attributes:
        models: Full names, as the setting `model` takes them.
    """

    name: str
    kind: str
    state: State
    models: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTest:
    """How a model answered.

    Attributes:
        text: Its answer to a greeting.
        calls_tools: Whether it called a tool when it was told to.
        first_ms: Until the first event of the greeting's answer.
        total_ms: Until the end of that answer.
    """

    name: str
    text: str
    calls_tools: bool
    first_ms: float
    total_ms: float
    usage: Usage


async def list_models(
    settings: Settings, *, only: str | None = None
) -> tuple[Choice | None, Sequence[ProviderModels]]:
    """The model that answers by default, and each provider's models; the endpoints are asked concurrently. With `only`,
    that of one provider alone.

    Returns:
        The choice, None where none could be made; and the providers, in the order in which they are tried.

    Raises:
        ConfigError: There is no such provider.
    """
    providers = [settings.provider(only)] if only else list(settings.providers.values())
    found: dict[str, ProviderModels] = {}
    choice: Choice | None = None

    async def ask(provider: ProviderSettings) -> None:
        found[provider.name] = await _models_of(provider, settings)

    async def choose() -> None:
        nonlocal choice
        try:
            choice = await choose_model(settings)
        except ModelError:
            choice = None  # the provider's own line says why

    async with anyio.create_task_group() as group:
        group.start_soon(choose)
        for provider in providers:
            group.start_soon(ask, provider)
    return choice, [found[provider.name] for provider in providers]


async def _models_of(provider: ProviderSettings, settings: Settings) -> ProviderModels:
    tell = partial(ProviderModels, name=provider.name, kind=provider.kind)
    if provider.kind == "none":
        return tell(state="ready", models=("none",))
    if provider.kind == "gguf":
        return tell(state="ready", reason="gguf:/path/to/model.gguf runs a model file in the process")
    if provider.env_api_key and settings.secret(provider.env_api_key) is None and provider.builtin:
        moved = f"providers.{provider.name}.base_url" in settings.sources
        if not moved:
            return tell(state="not set up", reason=settings.why_no_secret(provider.env_api_key))
    try:
        names = await available_models(provider, settings)
    except SatchelError as error:
        return tell(state="failed", reason=str(error))
    return tell(state="ready", models=tuple(f"{provider.name}:{name}" for name in names))


async def model_of(provider: ProviderSettings, settings: Settings) -> str:
    """The full name of the default model of a provider.

    Raises:
        ModelError: The provider has no default model and lists none to choose from.
    """
    return f"{provider.name}:{await default_model(provider, settings)}"


async def try_model(satchel: Satchel) -> ModelTest:
    """Ask the model that answers by default for a greeting, and to call a tool.

    Raises:
        ConfigError, ModelError: It can't answer; the message says why and who must act.
    """
    model = await satchel.model()
    clock = satchel.clock
    began_s = clock.monotonic_s()
    first_s: float | None = None
    greeting = ModelRequest(system="You are being tested.", messages=[said(GREETING)])
    answer: Completion | None = None
    async for event in model.stream(greeting):
        first_s = clock.monotonic_s() if first_s is None else first_s
        if isinstance(event, Completion):
            answer = event
    ended_s = clock.monotonic_s()
    assert answer is not None, "a stream ends with its completion"
    calls_tools, usage = False, answer.usage
    if model.provider != "none":
        request = ModelRequest(
            system="You are being tested. Use the tools that you are given.",
            messages=[said('Call the tool "echo" with the word "ready".')],
            tools=[_ECHO],
        )
        called = await complete(model, request)
        calls_tools = any(isinstance(block, ToolUseBlock) and block.name == "echo" for block in called.blocks)
        usage += called.usage
        if satchel.memory is not None:
            cost = Asked(purpose="test", provider=model.provider, model=model.model, calls=2, usage=usage)
            await satchel.memory.note_cost([cost])
    return ModelTest(
        name=f"{model.provider}:{model.model}",
        text=text_of(answer.blocks).strip(),
        calls_tools=calls_tools,
        first_ms=((first_s or ended_s) - began_s) * 1000,
        total_ms=(ended_s - began_s) * 1000,
        usage=usage,
    )


async def fetch_embedding_model(
    settings: Settings, name: BundledEmbedder = "minilm", *, progress: Progress | None = None
) -> tuple[Path, str]:
    """Fetch the files of a bundled embedding model into `SATCHEL_HOME`, unless they are there. `name` is "minilm", the
    default, or "use-multilingual". `progress` gets the bytes fetched so far, from another thread.

    Returns:
        Their folder, and where they came from.

    Raises:
        EmbedderError: They could not be fetched; the message says what was tried.
    """
    weights = MINILM_WEIGHTS if name == "minilm" else USE_WEIGHTS
    folder = await anyio.to_thread.run_sync(
        partial(
            fetch_weights,
            settings.home,
            weights=weights,
            environ=settings.environ,
            progress=progress,
            check_cancelled=anyio.from_thread.check_cancelled,
        ),
        limiter=anyio.CapacityLimiter(1),
    )
    return folder, weights_source(settings.home, weights=weights) or "an unknown source"
