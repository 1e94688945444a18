from __future__ import annotations

import os
from pathlib import Path

import pytest

from satchel.errors import EmbedderError
from satchel.models.embedding import fetch_weights


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
