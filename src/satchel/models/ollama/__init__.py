"""Ollama's own wire format."""

from satchel.models.ollama.client import OllamaModel as OllamaModel
