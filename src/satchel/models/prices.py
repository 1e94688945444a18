"""The price of a model call and the size of a model's context window, from a maintained offline table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from satchel.messages import Usage

# Providers whose name in the table differs from the one in our configuration.
_NAMES: Final = {"gemini": "google", "xai": "x-ai"}
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "host.docker.internal"})


def _is_local(base_url: str) -> bool:
    return bool(base_url) and (urlsplit(base_url).hostname or "") in _LOCAL


def priced(usage: Usage, *, provider: str, base_url: str, model: str) -> Usage:
    """The usage with its cost, or unchanged if the price of the model is unknown.

    Args:
        usage: The counts.
        provider: The provider's name in the configuration.
        base_url: The endpoint's address; endpoints on this machine have no price.
        model: As the endpoint names it.
    """
    if _is_local(base_url):
        return usage
    # Imported here because it takes 0.13 s and 11 MB, and only hosted models need it.
    from genai_prices import Usage as PricedUsage  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    counts = PricedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=min(usage.cache_read_tokens, usage.input_tokens),
        cache_write_tokens=min(
            usage.cache_write_tokens, max(0, usage.input_tokens - usage.cache_read_tokens)
        ),
    )
    for where in _places(provider, base_url):
        try:
            price = calc_price(counts, model, **where)
        except (LookupError, ValueError):
            continue
        return replace(usage, cost_usd=float(price.total_price))
    return usage


def known_window(*, provider: str, base_url: str, model: str) -> int | None:
    """The context window of a model in tokens; None if it is unknown or the model runs on this machine."""
    if _is_local(base_url):
        return None
    # Imported here for the same reason as above.
    from genai_prices import Usage as PricedUsage  # noqa: PLC0415
    from genai_prices import calc_price  # noqa: PLC0415

    for where in _places(provider, base_url):
        try:
            window = calc_price(PricedUsage(input_tokens=1), model, **where).model.context_window
        except (LookupError, ValueError):
            continue
        return int(window) if window else None
    return None


def _places(provider: str, base_url: str) -> list[dict[str, Any]]:
    """The queries for the table: by address, which is most reliable, then by name."""
    by_name = {"provider_id": _NAMES.get(provider, provider)}
    return [{"provider_api_url": base_url}, by_name] if base_url else [by_name]
