"""The HTTP server: a face of the same sessions, memories and capabilities as the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.server.app import create_app
    from satchel.server.listening import serve

__all__ = ["create_app", "serve"]

# FastAPI and uvicorn take half a second to import; only `satchel serve` needs them.
__getattr__ = on_demand(__name__, {"app": ("create_app",), "listening": ("serve",)})
