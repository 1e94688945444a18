"""The command line: one module per command group."""

from satchel.cli.start import main

__all__ = ["main"]
