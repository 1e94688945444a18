"""A home with a folder of tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.external.executables import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
