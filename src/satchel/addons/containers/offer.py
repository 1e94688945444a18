"""What `satchel.config.plugins` finds of containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from satchel.config import Settings
from satchel.sandbox.port import Sandbox


def sandboxes() -> Mapping[str, Callable[[Settings], Sandbox]]:
    """The engines, by the name of their program."""
    return {"docker": partial(_open, "docker"), "podman": partial(_open, "podman")}


def _open(engine: Literal["docker", "podman"], settings: Settings) -> Sandbox:
    # Only a home that chose it pays for the import.
    from satchel.addons.containers.backend import Containers  # noqa: PLC0415

    wanted = settings.sandbox
    return Containers(engine, environ=settings.environ, image=wanted.image, pull=wanted.pull)
