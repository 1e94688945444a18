"""The Anthropic wire format (messages)."""

from satchel.models.anthropic.client import AnthropicModel as AnthropicModel
