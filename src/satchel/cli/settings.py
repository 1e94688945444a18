"""The settings of the process that runs a command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satchel.config import Settings, load, process_environ
from satchel.errors import UsageError


def read_settings(overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process.

    Args:
        overrides: By dotted key, from the command's options; None values are left out.

    Raises:
        ConfigError: They are invalid.
        UsageError: The working directory no longer exists.
    """
    try:
        cwd = Path.cwd()
    except FileNotFoundError:
        raise UsageError("The working directory was deleted. Go to another folder and try again.") from None
    return load(process_environ(), cwd=cwd, overrides=overrides or {})
