"""The loop: ask the model, run its tools, repeat. It knows no disk, no SQL, no HTTP and no configuration."""

from __future__ import annotations

from satchel.loop.compaction import compact
from satchel.loop.emitter import Emit
from satchel.loop.history import history_problems
from satchel.loop.hooks import Hook, OnAction, OnFinal, OnObservation, OnTurnStart, Refuse, Rewrite
from satchel.loop.limits import Budget, HardBudget, Limits, Spent, Verdict
from satchel.loop.pool import ToolPool
from satchel.loop.prompt import Instructions, PrefixWatch, build_system
from satchel.loop.rounds import Spill, Step, Workshop
from satchel.loop.tokens import TokenEstimator
from satchel.loop.toolbox import Toolbox
from satchel.loop.turn import Outcome, Surface, Turn, TurnInput, TurnState, run_turn

__all__ = [
    "Budget",
    "Emit",
    "HardBudget",
    "Hook",
    "Instructions",
    "Limits",
    "OnAction",
    "OnFinal",
    "OnObservation",
    "OnTurnStart",
    "Outcome",
    "PrefixWatch",
    "Refuse",
    "Rewrite",
    "Spent",
    "Spill",
    "Step",
    "Surface",
    "TokenEstimator",
    "ToolPool",
    "Toolbox",
    "Turn",
    "TurnInput",
    "TurnState",
    "Verdict",
    "Workshop",
    "build_system",
    "compact",
    "history_problems",
    "run_turn",
]
