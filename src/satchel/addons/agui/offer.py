"""What `satchel.config.plugins` finds of AG-UI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import APIRouter


def routers() -> Sequence[APIRouter]:
    """`POST /api/agui`."""
    # FastAPI takes 0.5 s, and only a server asks.
    from satchel.addons.agui.route import router  # noqa: PLC0415

    return [router]
