"""What the attacks share with the tests of the tools."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tools.conftest import Session


@pytest.fixture
def open_session() -> Callable[..., Session]:
    return Session
