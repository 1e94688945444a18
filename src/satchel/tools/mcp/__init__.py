"""The tools of MCP servers: programs and addresses that speak the Model Context Protocol."""

from satchel.tools.mcp.definitions import Definition as McpDefinition
from satchel.tools.mcp.toolset import McpStatus, McpToolset, WithheldTool

__all__ = ["McpDefinition", "McpStatus", "McpToolset", "WithheldTool"]
