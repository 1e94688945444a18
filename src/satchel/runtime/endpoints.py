"""Whether a model endpoint works: the address, the key, the list of models, and one short answer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import anyio

from satchel.clock import Clock
from satchel.config import ProviderSettings, Settings, mask_address
from satchel.errors import ModelRejected, ModelUnavailable
from satchel.messages import Message, TextBlock
from satchel.models import (
    AbilityStore,
    ChatModel,
    Completion,
    ModelRequest,
    NoModelList,
    available_models,
    check_model,
    open_model,
    split_name,
)

_MOST_ANSWER_S: Final = 30.0
"""How long a model that is tried may take for one word: a large one on a slow machine loads its weights first."""
_MOST_NAMED: Final = 8
"""Models that an error message names."""

GREETING: Final = "Answer with one word: ready."


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEndpoint:
    """An endpoint that answered.

    Attributes:
        provider: With the address that answered: "/v1" is added where only that works.
        models: The chat models that it lists; None if it has no such list; it may answer all the same.
    """

    provider: ProviderSettings
    models: tuple[str, ...] | None


async def probe_endpoint(provider: ProviderSettings, settings: Settings) -> LiveEndpoint:
    """Check an address: that it can be reached, that its path is right, and that it accepts the key.

    Raises:
        ModelAuthError: It refuses the key, or asks for one.
        ModelUnavailable: It can't be reached.
    """
    try:
        return LiveEndpoint(provider=provider, models=await available_models(provider, settings))
    except ModelUnavailable as error:
        if not provider.base_url.rstrip("/").endswith("/v1"):
            versioned = replace(provider, base_url=f"{provider.base_url.rstrip('/')}/v1")
            with suppress(ModelUnavailable):  # then the address stays as the user gave it
                return LiveEndpoint(provider=versioned, models=await available_models(versioned, settings))
        if isinstance(error, NoModelList):
            return LiveEndpoint(provider=provider, models=None)
        raise


async def verify_model(name: str, settings: Settings, *, clock: Clock) -> None:
    """Make sure that a model can answer. Where its endpoint does not list it, it is sent a message of one line.

    Raises:
        SatchelError: It can't; the message says which address was asked, and what to do.
    """
    provider_name, model_name = split_name(name)
    provider = settings.provider(provider_name)
    no_list: NoModelList | None = None
    listed: tuple[str, ...] | None = ()
    try:
        listed = await check_model(name, settings)
    except NoModelList as error:
        no_list = error
    if listed is None or model_name in listed:
        return
    try:
        await greet(name, settings, clock=clock)
    except ModelRejected as error:
        if no_list is not None:
            raise ModelRejected(
                f"{no_list} A message to {_messages_url(provider)} fails too: {error} If the address is "
                f"wrong (most end in /v1), change it: satchel config set providers.{provider_name}.base_url URL"
            ) from error
        named = ", ".join(listed[:_MOST_NAMED]) + (", …" if len(listed) > _MOST_NAMED else "")
        raise ModelRejected(
            f"{error} The endpoint lists: {named or 'no chat models'}. "
            f"Choose one: satchel config set model {provider_name}:MODEL"
        ) from error


class NoAnswerYet(ModelUnavailable):
    """A model took the message and has sent nothing for as long as it is tried: it may be slow."""


async def greet(name: str, settings: Settings, *, clock: Clock, limit_s: float = _MOST_ANSWER_S) -> None:
    """Make sure that a model answers a message of one line.

    Raises:
        NoAnswerYet: It doesn't within the limit, and a conversation waits longer.
        SatchelError: It doesn't.
    """
    model = open_model(name, settings, abilities=AbilityStore(None, clock=clock), clock=clock)
    try:
        with anyio.fail_after(limit_s):
            await complete(model, ModelRequest(system="You are being tested.", messages=[said(GREETING)]))
    except TimeoutError:
        conversation_s = settings.agent.model_timeout_s
        raise (NoAnswerYet if limit_s < conversation_s else ModelUnavailable)(
            f"{name} has not answered within {limit_s:g} s. A conversation waits {conversation_s:g} s "
            "for it (agent.model_timeout_s)."
        ) from None
    finally:
        await model.aclose()


def _messages_url(provider: ProviderSettings) -> str:
    """Where messages to a model are sent, without user and password."""
    base = mask_address(provider.base_url).rstrip("/")
    if provider.kind == "anthropic":
        return f"{base.removesuffix('/v1')}/v1/messages"
    return f"{base}/chat/completions"


def said(text: str) -> Message:
    """A message of the user."""
    return Message(role="user", blocks=(TextBlock(text=text),))


async def complete(model: ChatModel, request: ModelRequest) -> Completion:
    """The whole answer to one request."""
    answer: Completion | None = None
    async for event in model.stream(request):
        if isinstance(event, Completion):
            answer = event
    assert answer is not None, "a stream ends with its completion"
    return answer
