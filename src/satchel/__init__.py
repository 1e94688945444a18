"""Satchel: an agent that remembers you and makes its own tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.runtime import Satchel

__all__ = ["Satchel", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the runtime when it is first asked for, so that `import satchel.memory` stays small."""
    if name == "Satchel":
        # Imported when used: the runtime knows every room, and most programs want one of them.
        from satchel.runtime import Satchel  # noqa: PLC0415

        return Satchel
    raise AttributeError(f"module 'satchel' has no attribute {name!r}")
