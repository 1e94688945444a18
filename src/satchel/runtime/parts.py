"""What all homes and sessions of one open Satchel share."""

from __future__ import annotations

from dataclasses import dataclass

from satchel.clock import Clock
from satchel.config import Settings
from satchel.loop import ToolPool
from satchel.runtime.background import Background
from satchel.runtime.notices import NoticeBoard
from satchel.runtime.open_models import OpenModels
from satchel.tools.external import ExternalTools
from satchel.tools.mcp import McpToolset

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Shared parts, wired once by `Satchel.open`.

    Attributes:
        pool: Threads for tools.
        models: The language models.
        external: The executables of the tools' folders.
        mcp: The tools of the MCP servers.
        background: Runs what outlives a call.
        notices: What the user should know.
    """

    settings: Settings
    clock: Clock
    pool: ToolPool
    models: OpenModels
    external: ExternalTools
    mcp: McpToolset
    background: Background
    notices: NoticeBoard
