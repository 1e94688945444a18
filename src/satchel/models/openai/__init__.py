"""The OpenAI wire format (chat completions), which most endpoints speak."""

from satchel.models.openai.client import OpenAIModel

__all__ = ["OpenAIModel"]
