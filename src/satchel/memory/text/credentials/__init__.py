"""The forms of secrets, and where a text has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.memory.text.credentials.finding import candidates
    from satchel.memory.text.credentials.secret import Secret

__all__ = ["Secret", "candidates"]

# The first look at a text (`suspicion`) is needed often, the forms seldom.
__getattr__ = on_demand(__name__, {"finding": ("candidates",), "secret": ("Secret",)})
