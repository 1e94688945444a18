"""Language and embedding models behind two ports."""

from satchel.models.abilities import AbilityStore
from satchel.models.choose import Choice, Tried, available_models, choose_model
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
    "choose_model",
    "open_model",
    "split_name",
]
