"""Tests with the mark `every_database` run twice: with files, and with databases of a PostgreSQL server in their place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest

from satchel.storage import Database
from tests.postgresql import server_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("every_database") is not None:
        metafunc.parametrize("database_kind", ["file", "server"], indirect=True)


_EMPTY = """
DO $$ DECLARE it regclass; has_rows boolean; BEGIN
    FOR it IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
            AND relname <> 'alembic_version' LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', it) INTO has_rows;
        IF has_rows THEN EXECUTE format('DELETE FROM %s', it); END IF;
    END LOOP;
END $$"""
_FREE: Final[list[str]] = []
"""Databases that stood for `:memory:`, and are empty again."""


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
            if where != ":memory:":
                async with opened(server.copy(where, role="ordinary"), **options) as database:
                    yield database
                return
            url = _FREE.pop() if _FREE else server.copy(uuid4().hex, role="ordinary")
            async with opened(url, **options) as database:
                database.place = ":memory:"
                yield database
            with psycopg.connect(url) as connection:
                connection.execute(_EMPTY)
            _FREE.append(url)

        monkeypatch.setattr(Database, "open", on_server)
    return kind
