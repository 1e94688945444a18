"""`satchel service`: keeps `satchel serve` running as a systemd user unit."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import click

from satchel.cli.commands import CommandGroup, json_option, said_json
from satchel.cli.output import say, tell
from satchel.cli.settings import read_settings
from satchel.config import process_environ
from satchel.runtime import systemd
from satchel.runtime.serving import serving


@click.group(cls=CommandGroup)
def service() -> None:
    """Keep `satchel serve` running in the background, with systemd."""


def _systemctl() -> systemd.Runs:
    async def run(words: object) -> systemd.Ran:
        assert isinstance(words, tuple)
        return await systemd.run_systemctl(words, environ=process_environ(), cwd=Path("/"))

    return run


def _program() -> list[str]:
    here = Path(sys.executable).with_name("satchel")
    return [str(here)] if here.exists() else [sys.executable, "-m", "satchel"]


@service.command()
def install() -> None:
    """Write a user unit for `satchel serve`, start it, and start it again at each login.

    Keys of model providers go into SATCHEL_HOME/service.env, which only you can read; the unit has none.
    """
    settings = read_settings()

    async def body() -> tuple[Path, bool]:
        return await systemd.install(
            _program(), home=settings.home, environ=process_environ(), systemctl=_systemctl()
        )

    path, is_active = anyio.run(body)
    tell(f"{path} is installed{' and running' if is_active else ', and systemd starts it'}.")
    tell(
        f"Keys of model providers: {settings.home}/service.env, then `systemctl --user restart {systemd.UNIT}`."
    )
    tell("To keep it running while you are logged out: loginctl enable-linger")


@service.command()
@json_option
def status() -> int:
    """Show whether the service is installed, and whether a server of this home is running."""
    settings = read_settings()

    async def body() -> systemd.ServiceState:
        return await systemd.state(environ=process_environ(), systemctl=_systemctl())

    found = anyio.run(body)
    server = serving(settings.home)
    data = {
        "unit": str(found.unit),
        "installed": found.is_installed,
        "active": found.active or None,
        "enabled": found.enabled or None,
        "url": None if server is None else server.url,
    }
    if not said_json(data):
        what = "installed" if found.is_installed else "not installed"
        said = f", {found.enabled}, {found.active}" if found.is_installed and found.active else ""
        say(f"service: {what}{said}  ({found.unit})")
        say(
            f"server:  {'not running' if server is None else f'running at {server.url} (process {server.pid})'}"
        )
    return 0


@service.command()
def remove() -> None:
    """Stop the service and remove its unit; memories, settings and service.env stay."""
    read_settings()

    async def body() -> Path:
        return await systemd.remove(environ=process_environ(), systemctl=_systemctl())

    tell(f"{anyio.run(body)} is removed.")
