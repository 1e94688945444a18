"""Language and embedding models behind two ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.models.abilities import AbilityStore as AbilityStore
    from satchel.models.choose import Choice as Choice
    from satchel.models.choose import NoModelList as NoModelList
    from satchel.models.choose import Tried as Tried
    from satchel.models.choose import available_models as available_models
    from satchel.models.choose import check_model as check_model
    from satchel.models.choose import choose_model as choose_model
    from satchel.models.choose import default_model as default_model
    from satchel.models.choose import extractor_of as extractor_of
    from satchel.models.choose import small_model_of as small_model_of
    from satchel.models.function import FunctionModel as FunctionModel
    from satchel.models.function import ModelFunction as ModelFunction
    from satchel.models.json_tools import AdaptiveTools as AdaptiveTools
    from satchel.models.json_tools import JsonTools as JsonTools
    from satchel.models.opening import open_model as open_model
    from satchel.models.opening import split_name as split_name
    from satchel.models.port import ChatModel as ChatModel
    from satchel.models.port import Completion as Completion
    from satchel.models.port import ModelEvent as ModelEvent
    from satchel.models.port import ModelRequest as ModelRequest
    from satchel.models.port import Retrying as Retrying
    from satchel.models.port import ToolDefinition as ToolDefinition
    from satchel.models.recall import RecallModel as RecallModel
    from satchel.models.scripted import Call as Call
    from satchel.models.scripted import Reply as Reply
    from satchel.models.scripted import ScriptedModel as ScriptedModel

# Memory needs the embedding port and nothing else.
__getattr__ = on_demand(__name__)
