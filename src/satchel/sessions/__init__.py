"""Conversations on disk: an append-only log for each, read back, rebuilt and searched."""
