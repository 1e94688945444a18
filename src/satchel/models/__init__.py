"""Language and embedding models behind two ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.models.abilities import AbilityStore
    from satchel.models.choose import (
        Choice,
        NoModelList,
        Tried,
        available_models,
        check_model,
        choose_model,
        default_model,
        extractor_of,
        small_model_of,
    )
    from satchel.models.function import FunctionModel, ModelFunction
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
    "FunctionModel",
    "JsonTools",
    "ModelEvent",
    "ModelFunction",
    "ModelRequest",
    "NoModelList",
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
    "extractor_of",
    "open_model",
    "small_model_of",
    "split_name",
]

# Memory needs the embedding port and nothing else.
__getattr__ = on_demand(
    __name__,
    {
        "abilities": ("AbilityStore",),
        "choose": (
            "Choice",
            "NoModelList",
            "Tried",
            "available_models",
            "check_model",
            "choose_model",
            "default_model",
            "extractor_of",
            "small_model_of",
        ),
        "function": ("FunctionModel", "ModelFunction"),
        "json_tools": ("AdaptiveTools", "JsonTools"),
        "opening": ("open_model", "split_name"),
        "port": ("ChatModel", "Completion", "ModelEvent", "ModelRequest", "Retrying", "ToolDefinition"),
        "recall": ("RecallModel",),
        "scripted": ("Call", "Reply", "ScriptedModel"),
    },
)
