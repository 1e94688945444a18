"""The forms of secrets, and where a text has them."""

from satchel.memory.text.credentials.finding import candidates
from satchel.memory.text.credentials.secret import Secret

__all__ = ["Secret", "candidates"]
