"""The command line: one module per command group."""

from satchel.cli.entry import main

__all__ = ["main"]
