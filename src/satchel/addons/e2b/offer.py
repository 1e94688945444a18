"""What `satchel.config.plugins` finds of E2B."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from satchel.config import Settings
from satchel.sandbox.port import Sandbox


def sandboxes() -> Mapping[str, Callable[[Settings], Sandbox]]:
    """The service, by its name."""
    return {"e2b": _open}


def _open(settings: Settings) -> Sandbox:
    # Only a home that chose it pays for the import.
    from satchel.addons.e2b.backend import E2B  # noqa: PLC0415

    wanted = settings.sandbox
    return E2B(
        key=settings.environ.get(wanted.e2b_key_env, ""),
        key_name=wanted.e2b_key_env,
        template=wanted.image,
        domain=wanted.e2b_domain,
    )
