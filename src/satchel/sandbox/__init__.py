"""Runs programs that are not part of Satchel, each in its own process group, and ends them completely."""
