"""Language and embedding models behind two ports."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.models.abilities import AbilityStore
    from satchel.models.choose import (
        Choice,
        Tried,
        available_models,
        check_model,
        choose_model,
        default_model,
        small_model_of,
    )
    from satchel.models.json_tools import AdaptiveTools, JsonTools
    from satchel.models.opening import open_model, split_name
    from satchel.models.port import (
        ChatModel,
        Completion,
        ModelEvent,
        ModelRequest,
        Retrying,
        ToolDefinition,
    )
    from satchel.models.recall import RecallModel
    from satchel.models.scripted import Call, Reply, ScriptedModel

__all__ = [
    "AbilityStore",
    "AdaptiveTools",
    "Call",
    "ChatModel",
    "Choice",
    "Completion",
    "JsonTools",
    "ModelEvent",
    "ModelRequest",
    "RecallModel",
    "Reply",
    "Retrying",
    "ScriptedModel",
    "ToolDefinition",
    "Tried",
    "available_models",
    "check_model",
    "choose_model",
    "default_model",
    "open_model",
    "small_model_of",
    "split_name",
]

_MODULES = {
    "abilities": ("AbilityStore",),
    "choose": (
        "Choice",
        "Tried",
        "available_models",
        "check_model",
        "choose_model",
        "default_model",
        "small_model_of",
    ),
    "json_tools": ("AdaptiveTools", "JsonTools"),
    "opening": ("open_model", "split_name"),
    "port": ("ChatModel", "Completion", "ModelEvent", "ModelRequest", "Retrying", "ToolDefinition"),
    "recall": ("RecallModel",),
    "scripted": ("Call", "Reply", "ScriptedModel"),
}


def __getattr__(name: str) -> Any:
    """Load a module when one of its names is first asked for: memory needs the embedding port and nothing else."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"satchel.models.{module}"), name)
    raise AttributeError(f"module 'satchel.models' has no attribute {name!r}")
