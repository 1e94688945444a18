"""What every test gets: asyncio as the one event loop, and hypothesis without deadlines."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A shared machine makes any deadline a coin toss; what is slow is found by benchmarks.
settings.register_profile("satchel", deadline=None, print_blob=True)
settings.load_profile("satchel")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
