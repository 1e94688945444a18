"""Everything that a model can call: port, registry, permissions, built-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.tools.builtin import builtin_tools as builtin_tools
    from satchel.tools.function import FunctionOrTool as FunctionOrTool
    from satchel.tools.function import FunctionTool as FunctionTool
    from satchel.tools.function import client_tool as client_tool
    from satchel.tools.function import function_tool as function_tool
    from satchel.tools.function import tool_from_function as tool_from_function
    from satchel.tools.function import toolset_of as toolset_of
    from satchel.tools.permissions import Approval as Approval
    from satchel.tools.permissions import ApprovalRequest as ApprovalRequest
    from satchel.tools.permissions import Approver as Approver
    from satchel.tools.permissions import Consent as Consent
    from satchel.tools.permissions import Decision as Decision
    from satchel.tools.permissions import Gate as Gate
    from satchel.tools.permissions import ModeGate as ModeGate
    from satchel.tools.permissions import PlannedCall as PlannedCall
    from satchel.tools.permissions import Rule as Rule
    from satchel.tools.permissions import parse_rule as parse_rule
    from satchel.tools.port import Annotations as Annotations
    from satchel.tools.port import Ask as Ask
    from satchel.tools.port import Blocking as Blocking
    from satchel.tools.port import Effect as Effect
    from satchel.tools.port import Foreseeing as Foreseeing
    from satchel.tools.port import Question as Question
    from satchel.tools.port import Resumable as Resumable
    from satchel.tools.port import Source as Source
    from satchel.tools.port import Tool as Tool
    from satchel.tools.port import ToolContext as ToolContext
    from satchel.tools.port import ToolResult as ToolResult
    from satchel.tools.port import Toolset as Toolset
    from satchel.tools.port import ToolSpec as ToolSpec
    from satchel.tools.registry import Registry as Registry
    from satchel.tools.registry import StaticToolset as StaticToolset
    from satchel.tools.registry import filtered as filtered

__getattr__ = on_demand(__name__)
