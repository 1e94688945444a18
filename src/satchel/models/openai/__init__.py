"""The OpenAI wire format (chat completions), which most endpoints support."""

from satchel.models.openai.client import OpenAIModel

__all__ = ["OpenAIModel"]
