"""Finds the server of this home, for commands that can run their conversation there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from satchel.cli.output import tell
from satchel.clock import SystemClock
from satchel.config import Settings
from satchel.runtime.serving import Serving, serving
from satchel.version import __version__

if TYPE_CHECKING:
    from satchel.runtime.remote import RemoteHost, RemoteSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWish:
    """The session that the user wants, as `Host.session` takes it. If `model` or `mode` is None, it is kept."""

    session_id: str | None
    last: bool
    model: str | None
    mode: Any
    private: bool
    project: str = ""

    async def opened(self, host: Any, *, interactive: bool) -> Any:
        """The session, in this process (`LocalHost`) or in a server (`RemoteHost`)."""
        return await host.session(
            self.session_id,
            last=self.last,
            model=self.model,
            mode=self.mode,
            private=self.private,
            project=self.project,
            interactive=interactive,
        )


def usable_server(settings: Settings) -> Serving | None:
    """The running server of this home, if the user wants it. One of another version is reported and not used."""
    if not settings.server.join:
        return None
    found = serving(settings.home)
    if found is not None and found.version != __version__:
        # Imported only if a server runs, because it loads the HTTP client.
        from satchel.runtime.remote import other_version  # noqa: PLC0415

        tell(f"! {other_version(found)}")
        return None
    return found


@asynccontextmanager
async def connected(settings: Settings, found: Serving) -> AsyncIterator[RemoteHost]:
    """The sessions of a server."""
    from satchel.runtime.remote import RemoteHost  # noqa: PLC0415 - see `usable_server`

    async with RemoteHost.connected(found, settings=settings, clock=SystemClock()) as host:
        yield host


def tell_missing(settings: Settings, session: RemoteSession) -> None:
    """Warn about settings of the user's folder that the server doesn't use."""
    if settings.project is not None and settings.project_trusted and session.folder != str(settings.project):
        tell(
            f"! The server doesn't use the settings, tools and AGENTS.md of {settings.project}, because it was started "
            "elsewhere. To use them: satchel chat --no-server"
        )
