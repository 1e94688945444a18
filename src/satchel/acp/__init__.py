"""Satchel as an agent of editors and other programs, over the Agent Client Protocol (ACP)."""
