"""The specification as data: what the design and its seeds ask for, and what the tests show of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

__all__ = ["requirement"]

T = TypeVar("T", bound=Callable[..., object])


def requirement(*ids: str) -> Callable[[T], T]:
    """Say which requirements a test shows, by their ids."""

    def mark(test: T) -> T:
        for id in ids:
            test = pytest.mark.requirement(id)(test)
        return test

    return mark
