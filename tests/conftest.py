"""What every test gets: asyncio as the one event loop, hypothesis without deadlines, the real embedder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from satchel.errors import EmbedderError
from satchel.models.embedding import fetch_weights

# A shared machine makes any deadline a coin toss; what is slow is found by benchmarks.
settings.register_profile("satchel", deadline=None, print_blob=True)
settings.load_profile("satchel")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def minilm_home(request: pytest.FixtureRequest) -> Path:
    """A SATCHEL_HOME with the real model, kept in pytest's cache between runs; skips where it can't be had."""
    assert request.config.cache is not None
    home = Path(request.config.cache.mkdir("satchel-home"))
    try:
        fetch_weights(home, environ=dict(os.environ))
    except EmbedderError as error:
        pytest.skip(f"THE DEFAULT EMBEDDER WAS NOT TESTED: {error}")
    return home
