"""Tests with the mark `every_database` run twice: with files, and with schemas of a PostgreSQL server in their place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from satchel.storage import Database
from tests.postgresql import server_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("every_database") is not None:
        metafunc.parametrize("database_kind", ["file", "server"], indirect=True)


@pytest.fixture(autouse=True)
def database_kind(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    kind = getattr(request, "param", "file")
    if kind == "server":
        server = server_of(tmp_path_factory)
        opened: Callable[..., AbstractAsyncContextManager[Database]] = Database.open

        @asynccontextmanager
        async def on_server(where: str | Path, **options: Any) -> AsyncIterator[Database]:
            is_in_memory = where == ":memory:"
            schema = f"t_{uuid4().hex}" if is_in_memory else server.schema_for(where)
            async with opened(server.url(schema, role="ordinary"), **options) as database:
                if is_in_memory:
                    database.place = ":memory:"
                yield database

        monkeypatch.setattr(Database, "open", on_server)
    return kind
