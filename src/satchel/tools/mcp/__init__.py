"""The tools, resources and prompts of MCP servers: programs and addresses that speak the Model Context Protocol."""

from satchel.tools.mcp.definitions import ServerDefinition as McpDefinition
from satchel.tools.mcp.logins import LoginStore
from satchel.tools.mcp.offers import Prompt as McpPrompt
from satchel.tools.mcp.offers import Resource as McpResource
from satchel.tools.mcp.pins import PinStore
from satchel.tools.mcp.places import filled_in
from satchel.tools.mcp.redirects import listening, read_redirect
from satchel.tools.mcp.resources import AttachedText, Mentions
from satchel.tools.mcp.sampling import Sampled, Sampler, SamplingRequest
from satchel.tools.mcp.toolset import McpStatus, McpToolset, WithheldTool

__all__ = [
    "AttachedText",
    "LoginStore",
    "McpDefinition",
    "McpPrompt",
    "McpResource",
    "McpStatus",
    "McpToolset",
    "Mentions",
    "PinStore",
    "Sampled",
    "Sampler",
    "SamplingRequest",
    "WithheldTool",
    "filled_in",
    "listening",
    "read_redirect",
]
