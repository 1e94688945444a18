"""The loop: ask the model, run its tools, repeat. It uses no disk, SQL, HTTP or configuration."""

from __future__ import annotations

from satchel.loop.calls import CallEnvironment, Spill, ToolCallRecord
from satchel.loop.compaction import compact
from satchel.loop.direct import PermittedByUser, compact_now, run_call
from satchel.loop.emitter import Emit
from satchel.loop.hooks import (
    AddContext,
    Hook,
    OnAction,
    OnFinal,
    OnObservation,
    OnRequest,
    OnTurnStart,
    Refuse,
    Rewrite,
)
from satchel.loop.limits import Budget, HardBudget, Patience, Sampling, TurnLimits, Verdict
from satchel.loop.pool import ToolPool
from satchel.loop.prompt import Instructions, PrefixWatch, build_sub_agent_system, build_system
from satchel.loop.tokens import TokenCounter, TokenEstimator
from satchel.loop.toolbox import Toolbox
from satchel.loop.turn import Standing, Surface, TurnInput, TurnOutcome, TurnRunner, run_turn

__all__ = [
    "AddContext",
    "Budget",
    "build_sub_agent_system",
    "build_system",
    "CallEnvironment",
    "compact",
    "compact_now",
    "Emit",
    "HardBudget",
    "Hook",
    "Instructions",
    "TurnLimits",
    "OnAction",
    "OnFinal",
    "OnObservation",
    "OnRequest",
    "OnTurnStart",
    "Patience",
    "PermittedByUser",
    "PrefixWatch",
    "Refuse",
    "Rewrite",
    "run_call",
    "run_turn",
    "Sampling",
    "Spill",
    "Standing",
    "Surface",
    "TokenCounter",
    "TokenEstimator",
    "Toolbox",
    "ToolCallRecord",
    "ToolPool",
    "TurnInput",
    "TurnOutcome",
    "TurnRunner",
    "Verdict",
]
