"""Which sandbox is used: the first that works, and none in its place if none does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from satchel.config import Settings
from satchel.config.plugins import offered
from satchel.errors import NoSandbox
from satchel.sandbox.bubblewrap import Bubblewrap
from satchel.sandbox.landlock import Landlock
from satchel.sandbox.port import Probe, Sandbox
from satchel.sandbox.unsafe import Unsafe

LADDER: Final[tuple[str, ...]] = ("bubblewrap", "landlock")
"""What "auto" tries, in this order."""


def _made(settings: Settings, name: str) -> Sandbox:
    """The backend of that name: ours, or one of a plugin.

    Raises:
        NoSandbox: There is none.
    """
    ours: Mapping[str, Callable[[], Sandbox]] = {
        "bubblewrap": lambda: Bubblewrap(spares=settings.sandbox.spares),
        "landlock": lambda: Landlock(spares=settings.sandbox.spares),
    }
    if name in ours:
        return ours[name]()
    known = list(ours)
    for plugin, sandboxes in offered(settings.home, "sandboxes"):
        if name in sandboxes:
            try:
                made: Sandbox = sandboxes[name](settings)
                return made
            # A boundary: the plugin may be somebody else's code.
            except Exception as error:
                raise NoSandbox(
                    f"{plugin} can't open the sandbox {name!r}: {type(error).__name__}: {error}"
                ) from error
        known += sandboxes
    raise NoSandbox(
        f"sandbox.backend is {name!r}, and there is no such sandbox. There are: {', '.join(known)}."
    )


def misnamed(settings: Settings) -> str:
    """Why the sandbox that the settings name can't be had, without trying it out; "" if it can, or if none is named."""
    try:
        for name in _wanted(settings):
            _made(settings, name)
    except NoSandbox as error:
        return str(error)
    return ""


async def open_sandbox(settings: Settings) -> Sandbox:
    """The sandbox that the settings name, or the first of the ladder that works. It was tried out.

    Raises:
        NoSandbox: None works. The message says why each doesn't, and how to get one.
    """
    failed: list[Probe] = []
    for name in _wanted(settings):
        sandbox = _made(settings, name)
        probe = await sandbox.probe()
        if probe.works:
            return sandbox
        failed.append(probe)
    if settings.sandbox.allow_unsafe:
        return Unsafe()
    raise NoSandbox(refusal(failed))


async def probes(settings: Settings) -> tuple[Probe, ...]:
    """What each backend that the settings name says about itself; the first that works is used.

    Raises:
        NoSandbox: The settings name one that there isn't.
    """
    found = [await _made(settings, name).probe() for name in _wanted(settings)]
    if settings.sandbox.allow_unsafe and not any(probe.works for probe in found):
        found.append(await Unsafe().probe())
    return tuple(found)


def refusal(failed: list[Probe]) -> str:
    """Why there is no sandbox, and how to get one."""
    reasons = " ".join(f"{probe.name}: {probe.reason.rstrip('.')}." for probe in failed)
    fix = next((probe.fix for probe in failed if probe.fix), "See docs/guides/sandbox.md.")
    return f"No sandbox works here, and nothing runs without one. {reasons} {fix}"


def _wanted(settings: Settings) -> tuple[str, ...]:
    return LADDER if settings.sandbox.backend == "auto" else (settings.sandbox.backend,)
