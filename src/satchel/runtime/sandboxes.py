"""The sandbox of an open Satchel, chosen when it is first needed, and the packages for what runs in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from satchel.clock import Clock
from satchel.config import Settings
from satchel.sandbox.layers import LayerLimits, Layers
from satchel.sandbox.port import Sandbox


class Sandboxes:
    """Opens the sandbox once for all sessions of a process."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._sandbox: Sandbox | None = None
        self._layers: Layers | None = None
        self._opening = anyio.Lock(fast_acquire=True)

    @property
    def misnamed(self) -> str:
        """See `satchel.sandbox.choice.misnamed`."""
        if self._settings.sandbox.backend == "auto":
            return ""
        from satchel.sandbox.choice import misnamed  # noqa: PLC0415

        return misnamed(self._settings)

    async def get(self) -> Sandbox:
        """The sandbox.

        Raises:
            NoSandbox: None works here; the message says how to get one.
        """
        async with self._opening:
            if self._sandbox is None:
                from satchel.sandbox.choice import open_sandbox  # noqa: PLC0415

                self._sandbox = await open_sandbox(self._settings)
            return self._sandbox

    async def layer(self, requirements: Sequence[str]) -> Path | None:
        """The folder with these Python packages; see `satchel.sandbox.layers`."""
        if self._layers is None:
            wanted = self._settings.sandbox
            self._layers = Layers(
                self._settings.home / "layers",
                environ=self._settings.environ,
                clock=self._clock,
                min_age_days=wanted.min_package_age_days,
                limits=LayerLimits(total_mb=wanted.packages_mb),
            )
        return await self._layers(requirements)

    async def aclose(self) -> None:
        """End what waits in the sandbox to be used."""
        if self._sandbox is not None:
            await self._sandbox.aclose()
