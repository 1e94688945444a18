"""Distilling: extracts facts from conversations, each with the quotes that support it."""
