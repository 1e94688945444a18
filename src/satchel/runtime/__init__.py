"""Connects the rooms; the only room that knows all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.runtime.forgetting import ForgetReceipt as ForgetReceipt
    from satchel.runtime.health import Check as Check
    from satchel.runtime.home import Home as Home
    from satchel.runtime.satchel import Satchel as Satchel
    from satchel.runtime.session import Sampling as Sampling
    from satchel.runtime.session import Session as Session
    from satchel.runtime.turns import RunningTurn as RunningTurn
    from satchel.runtime.turns import Step as Step
    from satchel.runtime.turns import TurnResult as TurnResult

# Loaded on demand, because a search in memory needs neither the loop nor tools.
__getattr__ = on_demand(__name__)
