"""Satchel as an MCP server: memory and capabilities as tools, sessions as resources, prompts."""
