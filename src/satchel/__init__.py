"""Satchel: an agent that remembers you and makes its own tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand
from satchel.version import __version__ as __version__

if TYPE_CHECKING:
    from satchel.runtime import Satchel as Satchel

# So that `import satchel.memory` stays small: the runtime knows every room.
__getattr__ = on_demand(__name__)
