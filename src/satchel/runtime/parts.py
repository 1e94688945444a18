"""What all sessions of an open Satchel share."""

from __future__ import annotations

from dataclasses import dataclass

from satchel.clock import Clock
from satchel.config import Settings
from satchel.loop import ToolPool
from satchel.runtime.agreed import Agreed
from satchel.runtime.background import Background
from satchel.runtime.log_redactor import LogRedactor
from satchel.runtime.notices import NoticeBoard
from satchel.runtime.open_models import OpenModels
from satchel.runtime.sandboxes import Sandboxes
from satchel.sessions.attachments import Uploads
from satchel.tools.boxed import Workspaces
from satchel.tools.external import ExternalTools
from satchel.tools.mcp import McpToolset


@dataclass(slots=True, kw_only=True)
class Parts:
    """The shared parts, made once by `Satchel.open`.

    Attributes:
        settings: Those of the start; its MCP servers and permission rules are the present ones, which `Satchel` keeps.
        pool: The threads in which blocking tools run.
        boxes: The sandboxes of the folders in which sessions run.
        sandboxes: Where boxes are opened, and code runs that nobody vouches for.
        agreed: What the user agreed to for good at any machine.
        uploads: Files that wait for the message that they are attached to.
    """

    settings: Settings
    clock: Clock
    pool: ToolPool
    models: OpenModels
    external: ExternalTools
    mcp: McpToolset
    boxes: Workspaces
    sandboxes: Sandboxes
    background: Background
    notices: NoticeBoard
    agreed: Agreed
    uploads: Uploads

    def redactor(self) -> LogRedactor:
        """What takes secrets out of the events of one session, or of texts."""
        return LogRedactor(redacts=self.settings.memory.redact, pool=self.pool)
