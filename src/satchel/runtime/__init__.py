"""Wires the rooms together; the only room that knows them all."""

from __future__ import annotations

from satchel.runtime.forgetting import ForgetReceipt
from satchel.runtime.health import Check
from satchel.runtime.satchel import Satchel
from satchel.runtime.session import Session
from satchel.runtime.turns import RunningTurn, Step, Turn

__all__ = ["Check", "ForgetReceipt", "RunningTurn", "Satchel", "Session", "Step", "Turn"]
