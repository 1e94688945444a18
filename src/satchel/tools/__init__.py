"""Everything that a model can call: port, registry, permissions, built-ins."""

from satchel.tools.builtin import builtin_tools
from satchel.tools.function import FunctionTool, client_tool, function_tool
from satchel.tools.permissions import (
    Approval,
    ApprovalRequest,
    Approver,
    Consent,
    Decision,
    Gate,
    ModeGate,
    PlannedCall,
    Rule,
    parse_rule,
)
from satchel.tools.port import (
    Annotations,
    Ask,
    Effect,
    Question,
    Resumable,
    Source,
    Tool,
    ToolContext,
    ToolResult,
    Toolset,
    ToolSpec,
)
from satchel.tools.registry import Registry, StaticToolset, filtered

__all__ = [
    "Annotations",
    "Approval",
    "ApprovalRequest",
    "Approver",
    "Ask",
    "Consent",
    "Decision",
    "Effect",
    "FunctionTool",
    "Gate",
    "ModeGate",
    "PlannedCall",
    "Question",
    "Registry",
    "Resumable",
    "Rule",
    "Source",
    "StaticToolset",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolSpec",
    "Toolset",
    "builtin_tools",
    "client_tool",
    "filtered",
    "function_tool",
    "parse_rule",
]
