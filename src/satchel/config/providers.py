"""The built-in providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from satchel.config.settings import ProviderKind, ProviderSettings

BASE_URL_VARIABLES: Final = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "ollama": "OLLAMA_HOST",
}
"""Variables with a provider's address that its own programs read, by provider."""

# Ollama's default port (see its documentation of OLLAMA_HOST).
OLLAMA_PORT: Final = 11434


def _provider(
    name: str, kind: ProviderKind, base_url: str = "", env_api_key: str = "", **limits: Any
) -> ProviderSettings:
    return ProviderSettings(
        name=name, kind=kind, base_url=base_url, env_api_key=env_api_key, builtin=True, **limits
    )


# The order in which their keys are searched if no model is configured: three large providers, then endpoints with
# models of many makers, then those of one maker, then servers on this machine, then those that need no server. Each
# address is from the provider's documentation of OpenAI compatibility. So are the limits for pictures (November 2026),
# of which only those are here that pictures of 1 MB can reach. Requests of 32 MB at Anthropic, 20 at Gemini and 4 at
# Groq hold three quarters of it in base64, less the words. Where the number depends on the model, as at Groq and at
# those with models of many makers, the refusal names it.
_BUILTIN: Final = (
    _provider(
        "anthropic",
        "anthropic",
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        max_pictures=100,
        max_pictures_mb=22,
    ),
    _provider(
        "openai",
        "openai",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        max_pictures=1_500,
        max_pictures_mb=350,
    ),
    _provider("deepseek", "openai", "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    _provider("openrouter", "openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    _provider("groq", "openai", "https://api.groq.com/openai/v1", "GROQ_API_KEY", max_pictures_mb=2.5),
    _provider("together", "openai", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    _provider("mistral", "openai", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", max_pictures=8),
    _provider(
        "gemini",
        "openai",
        "https://generativelanguage.googleapis.com/v1beta/openai/",
        "GEMINI_API_KEY",
        max_pictures_mb=13,
    ),
    _provider("xai", "openai", "https://api.x.ai/v1", "XAI_API_KEY"),
    _provider("ollama", "ollama", f"http://127.0.0.1:{OLLAMA_PORT}/v1"),
    _provider("lmstudio", "openai", "http://127.0.0.1:1234/v1"),
    _provider("llamacpp", "openai", "http://127.0.0.1:8080/v1"),
    _provider("vllm", "openai", "http://127.0.0.1:8000/v1"),
    _provider("gguf", "gguf"),
    _provider("none", "none"),
)


def builtin_providers(environ: Mapping[str, str]) -> dict[str, ProviderSettings]:
    """The built-in providers by name, with addresses from the usual environment variables where those are set. Read are
    ANTHROPIC_BASE_URL, OPENAI_BASE_URL and OLLAMA_HOST.
    """
    providers = {provider.name: provider for provider in _BUILTIN}
    for name, variable in BASE_URL_VARIABLES.items():
        if place := environ.get(variable, "").strip():
            base_url = ollama_base_url(place) if name == "ollama" else place
            providers[name] = replace(providers[name], base_url=base_url)
    return providers


def ollama_base_url(host: str) -> str:
    """The OpenAI-compatible address of an Ollama server.

    Args:
        host: In the format of OLLAMA_HOST: "127.0.0.1", ":11434", "host:port" or an address with a scheme. The
            default scheme is http; the default port is 11434, or the scheme's port if a scheme is given. For 0.0.0.0,
            on which a server listens, the address is 127.0.0.1.
    """
    scheme, separator, rest = host.partition("://")
    if not separator:
        scheme, rest = "http", host
    place, _, path = rest.partition("/")
    try:
        parts = urlsplit(f"//{place}")
        name, port = parts.hostname or "", parts.port
    except ValueError:
        # Not an address: the check of the settings reports that, with the variable's name.
        return host
    if port is None:
        port = {"http": 80, "https": 443}.get(scheme, OLLAMA_PORT) if separator else OLLAMA_PORT
    if name in ("", "0.0.0.0", "::"):
        name = "127.0.0.1"
    if ":" in name:
        name = f"[{name}]"
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    path = path.strip("/")
    return f"{scheme}://{user}{name}:{port}/{path + '/' if path else ''}v1"
