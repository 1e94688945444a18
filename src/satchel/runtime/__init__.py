"""Connects the rooms; the only room that knows all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.runtime.forgetting import ForgetReceipt
    from satchel.runtime.health import Check
    from satchel.runtime.home import Home
    from satchel.runtime.satchel import Satchel
    from satchel.runtime.session import Sampling, Session
    from satchel.runtime.turns import RunningTurn, Step, TurnResult

__all__ = [
    "Check",
    "ForgetReceipt",
    "Home",
    "RunningTurn",
    "Sampling",
    "Satchel",
    "Session",
    "Step",
    "TurnResult",
]

# Loaded on demand, because a search in memory needs neither the loop nor tools.
__getattr__ = on_demand(
    __name__,
    {
        "forgetting": ("ForgetReceipt",),
        "health": ("Check",),
        "home": ("Home",),
        "satchel": ("Satchel",),
        "session": ("Sampling", "Session"),
        "turns": ("RunningTurn", "Step", "TurnResult"),
    },
)
