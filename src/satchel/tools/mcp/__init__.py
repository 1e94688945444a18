"""The tools, resources and prompts of MCP servers: programs and addresses that speak the Model Context Protocol."""

from satchel.tools.mcp.definitions import McpDefinition as McpDefinition
from satchel.tools.mcp.logins import LoginStore as LoginStore
from satchel.tools.mcp.offers import McpPrompt as McpPrompt
from satchel.tools.mcp.offers import McpResource as McpResource
from satchel.tools.mcp.pins import PinStore as PinStore
from satchel.tools.mcp.places import filled_in as filled_in
from satchel.tools.mcp.redirects import listening as listening
from satchel.tools.mcp.redirects import read_redirect as read_redirect
from satchel.tools.mcp.resources import AttachedText as AttachedText
from satchel.tools.mcp.resources import Mentions as Mentions
from satchel.tools.mcp.sampling import Sampled as Sampled
from satchel.tools.mcp.sampling import Sampler as Sampler
from satchel.tools.mcp.sampling import SamplingRequest as SamplingRequest
from satchel.tools.mcp.toolset import McpStatus as McpStatus
from satchel.tools.mcp.toolset import McpToolset as McpToolset
from satchel.tools.mcp.toolset import WithheldTool as WithheldTool
