"""The forms of secrets, and where a text has them."""

from __future__ import annotations

from satchel.memory.credentials.finding import candidates
from satchel.memory.credentials.secret import Secret

__all__ = ["Secret", "candidates"]
