"""Asks language models for memory, and counts what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import anyio
from sqlalchemy import Connection, select
from sqlalchemy.dialects.sqlite import insert

from satchel.errors import ModelUnavailable
from satchel.memory.store.tables import spaces, usage
from satchel.memory.text.framing import estimate_tokens
from satchel.messages import Usage
from satchel.models.port import ChatModel, Completion, ModelRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The cost of requests: calls and tokens of one model for one purpose."""

    purpose: str
    provider: str
    model: str
    calls: int
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentRow(Asked):
    """The same on one local day ("2026-11-21")."""

    day: str


async def complete(
    model: ChatModel, request: ModelRequest, *, purpose: str, asked: list[Asked]
) -> Completion:
    """The whole answer of a model to one request.

    Its cost is appended to `asked`, for the `purpose` in one word. That of a call that is cancelled is estimated,
    because the provider bills what it has read; a call that the provider fails or rejects costs nothing.

    Raises:
        ModelError: The model is unavailable or rejected the request, or ended without an answer.
    """

    def count(provider: str, name: str, spent: Usage) -> None:
        asked.append(Asked(purpose=purpose, provider=provider, model=name, calls=1, usage=spent))

    found: Completion | None = None
    try:
        async for event in model.stream(request):
            if isinstance(event, Completion):
                found = event
    except anyio.get_cancelled_exc_class():
        if found is None:
            read = request.system + "".join(message.text for message in request.messages)
            count(model.provider, model.model, Usage(input_tokens=estimate_tokens(read), estimated=True))
        raise
    finally:
        if found is not None:
            count(found.provider, found.model, found.usage)
    if found is None:
        raise ModelUnavailable(f"{model.provider}:{model.model} ended without an answer.")
    return found


def add_usage(connection: Connection, space: int, spent: Sequence[Asked], day: str) -> None:
    """Add the cost of model calls to the totals of a local day ("2026-11-21")."""
    for asked in spent:
        names = {"purpose": asked.purpose, "provider": asked.provider, "model": asked.model}
        key = {"space_id": space, "day": day, **names}
        row = connection.execute(select(usage).filter_by(**key)).first()
        before = Usage() if row is None else _usage_of(row)
        calls = asked.calls + (0 if row is None else row.calls)
        values = {"calls": calls, **asdict(before + asked.usage)}
        statement = insert(usage).values(**key, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=values))


def _usage_of(row: Any) -> Usage:
    found = Usage(**{field.name: getattr(row, field.name) for field in fields(Usage)})
    return replace(found, estimated=bool(row.estimated))


def read_spent(connection: Connection, space: int, *, everywhere: bool = False) -> list[SpentRow]:
    """The cost of memory's own model calls, newest day first; `everywhere` in all scopes of the user."""
    user = select(spaces.c.user_id).where(spaces.c.id == space).scalar_subquery()
    own = select(spaces.c.id).where(spaces.c.user_id == user)
    here = usage.c.space_id.in_(own) if everywhere else usage.c.space_id == space
    rows = connection.execute(select(usage).where(here).order_by(usage.c.day.desc(), usage.c.id))
    names = ("day", "purpose", "provider", "model", "calls")
    return [SpentRow(**{name: getattr(row, name) for name in names}, usage=_usage_of(row)) for row in rows]
