"""One server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.server.world import World, serving


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(tmp_path_factory.mktemp("server"), server__requests_per_s=10_000) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[httpx2.Client]:
    with world.client() as client:
        yield client
