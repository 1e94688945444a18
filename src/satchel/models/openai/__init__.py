"""The OpenAI wire format (chat completions), which most endpoints support."""

from satchel.models.openai.client import OpenAIModel as OpenAIModel
