"""The program gives up after moments that a busy machine needs for other things: a test that is about something else has
more time. What a test shows about such a limit, it sets itself.
"""

from __future__ import annotations

import importlib
from typing import Final

from satchel.tools.mcp import McpToolset

__all__ = ["be_patient"]

_LONG_S: Final = 240.0
_LIMITS: Final = (
    "memory.show.judging.WITHIN_S",
    "models.choose._LIST_LIMIT_S",
    "models.choose._LOCAL_LIMIT_S",
    "runtime.commands._COMPLETION_S",
    "runtime.home._EMBED_WITHIN_S",
    "runtime.mcp_context.LIMIT_S",
    "runtime.other_agents.hook._POKE_S",
    "runtime.other_agents.hook._SERVER_S",
    "runtime.session_memory._CAPTURE_WAIT_S",
    "server.pages.memory._IMPORT_WAIT_S",
    "server.proxy.remembering._CAPTURE_WAIT_S",
    "server.proxy.remembering._SEARCH_WAIT_S",
    "storage.postgresql._SCRUB_WAIT_S",
    "tools.boxed.workspace._OPEN_S",
    "tools.mcp.connection.OFFERS_S",
    "tools.mcp.connection.SUBSCRIBE_S",
    "tools.mcp.resources.READ_S",
)


def be_patient() -> None:
    """Lengthen them in this process, and in those that are forked from it."""
    for limit in _LIMITS:
        module, name = f"satchel.{limit}".rsplit(".", 1)
        assert hasattr(importlib.import_module(module), name), limit
        setattr(importlib.import_module(module), name, _LONG_S)
    (McpToolset.__init__.__kwdefaults__ or {}).update(first_wait_s=_LONG_S)
