"""One server for the tests of a module, and one browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx2
import pytest

from satchel.errors import NoSandbox
from satchel.tools.web import find_chromium
from tests.server.world import World, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(tmp_path_factory.mktemp("server"), server__requests_per_s=10_000) as world:
        yield world


@pytest.fixture(scope="module")
def sandboxed(world: World) -> World:
    """The same server, where capabilities run; skips where the machine has no sandbox."""
    try:
        world.call(world.satchel.parts.sandboxes.get)
    except NoSandbox as error:
        pytest.skip(f"CAPABILITIES WERE NOT RUN BY THE SERVER: {error}")
    return world


@pytest.fixture
def client(world: World) -> Iterator[httpx2.Client]:
    with world.client() as client:
        yield client


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A real browser. Tests that use it are skipped where there is none.

    Not for longer than a module: an event loop runs in this thread as long as Playwright does, and tests of other
    modules start their own.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium("", os.environ),
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-dev-shm-usage",
            ],
        )
        yield browser
        browser.close()
