"""Writes, starts, inspects and removes a systemd user unit that keeps `satchel serve` running."""

from __future__ import annotations

import shutil
import string
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from satchel.config.home import ensure_home, replace_file
from satchel.errors import ConfigError, NotFound, SandboxError, StorageUnwritable, UsageError
from satchel.sandbox.process import run_process

UNIT: Final = "satchel.service"
_MARK: Final = "# Made by `satchel service install`; `satchel service remove` removes it."
_TIMEOUT_S: Final = 60.0
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "/._-+:@,=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a systemctl command: exit code and output."""

    code: int
    text: str


Runs: TypeAlias = Callable[[Sequence[str]], Awaitable[Ran]]
"""Runs `systemctl --user` with these arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """The state of the service.

    Attributes:
        is_installed: Whether it is there, made by Satchel.
        active: As systemd reports it: "active", "failed", "inactive"; "" where there is no systemd.
        enabled: As systemd reports it: "enabled", "disabled"; "".
    """

    unit: Path
    is_installed: bool
    active: str
    enabled: str


def unit_text(program: Sequence[str], *, home: Path, environment_file: Path) -> str:
    """The unit. `environment_file` has the keys of model providers and is readable by the user alone: the unit has
    none.
    """
    command = " ".join(_quoted(word).replace("$", "$$") for word in [*program, "serve"])
    return f"""{_MARK}
[Unit]
Description=Satchel: an agent that remembers you

[Service]
Type=exec
ExecStart={command}
Environment={_quoted(f"SATCHEL_HOME={home}")}
# Keys of model providers, one NAME=value a line.
EnvironmentFile=-{_escaped(str(environment_file))}
WorkingDirectory={_escaped(str(home))}
Restart=on-failure
RestartSec=5
# A stop writes running turns; see docs/guides/server.md.
TimeoutStopSec=30
KillMode=mixed
UMask=0077
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


async def install(
    program: Sequence[str], *, home: Path, environ: Mapping[str, str], systemctl: Runs
) -> tuple[Path, bool]:
    """Write the unit, and start it now and at each login.

    Returns:
        The unit's file, and whether systemd runs it.

    Raises:
        ConfigError: There is a unit of that name that Satchel did not make.
        UsageError: There is no systemd here; nothing is written.
        SandboxError: systemd refused; the unit's file is there.
    """
    _require_systemd(environ)
    path = unit_path(environ)
    known = _read(path)
    if known is not None and not known.startswith(_MARK):
        raise ConfigError(f"{path} was not made by Satchel. Move it away, and try again.")
    environment_file = ensure_home(home) / "service.env"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnwritable(f"The folder {path.parent} can't be made: {error.strerror}.") from error
    if not environment_file.exists():
        replace_file(
            environment_file, "# Keys of model providers for `satchel serve`, such as ANTHROPIC_API_KEY=…\n"
        )
    replace_file(path, unit_text(program, home=home, environment_file=environment_file))
    for words in (("daemon-reload",), ("enable", UNIT), ("restart", UNIT)):
        ran = await systemctl(words)
        if ran.code:
            raise SandboxError(
                f"{path} is written, but `systemctl --user {' '.join(words)}` failed: {ran.text.strip()[:500]}"
            )
    return path, (await systemctl(("is-active", UNIT))).text.strip() == "active"


async def remove(*, environ: Mapping[str, str], systemctl: Runs) -> Path:
    """Stop the service, and remove its unit. Its file with keys stays.

    Raises:
        NotFound: There is no unit that Satchel wrote.
        StorageUnwritable: It can't be removed.
    """
    path = unit_path(environ)
    known = _read(path)
    if known is None or not known.startswith(_MARK):
        raise NotFound(f"There is no {path} that Satchel made.")
    if has_systemd(environ):
        await systemctl(("disable", "--now", UNIT))
    try:
        path.unlink()
    except OSError as error:
        raise StorageUnwritable(f"{path} can't be removed: {error.strerror}.") from error
    if has_systemd(environ):
        await systemctl(("daemon-reload",))
    return path


async def state(*, environ: Mapping[str, str], systemctl: Runs) -> ServiceState:
    """The state of the service."""
    path = unit_path(environ)
    known = _read(path)
    active = enabled = ""
    if has_systemd(environ):
        active = _state_in((await systemctl(("is-active", UNIT))).text)
        enabled = _state_in((await systemctl(("is-enabled", UNIT))).text)
    return ServiceState(
        unit=path, is_installed=known is not None and known.startswith(_MARK), active=active, enabled=enabled
    )


def _state_in(text: str) -> str:
    """The word that systemctl ends with, "" if it ends with anything else: it can't reach systemd."""
    last = "".join(text.strip().splitlines()[-1:])
    return last if last.replace("-", "").isalpha() else ""


def unit_path(environ: Mapping[str, str]) -> Path:
    """Where the user's units are."""
    config = environ.get("XDG_CONFIG_HOME", "").strip() or str(
        Path(environ.get("HOME") or Path.home()) / ".config"
    )
    return Path(config) / "systemd" / "user" / UNIT


def has_systemd(environ: Mapping[str, str]) -> bool:
    """Whether a systemd of the user can be asked."""
    return shutil.which("systemctl", path=environ.get("PATH")) is not None and _runs_for_user(environ)


def _runs_for_user(environ: Mapping[str, str]) -> bool:
    """Whether the user has a systemd: it makes this folder when it starts."""
    runtime = environ.get("XDG_RUNTIME_DIR", "").strip()
    return bool(runtime) and (Path(runtime) / "systemd").is_dir()


def _require_systemd(environ: Mapping[str, str]) -> None:
    if shutil.which("systemctl", path=environ.get("PATH")) is None:
        raise UsageError(
            "There is no systemd on this machine (no systemctl), so nothing was installed. Start `satchel serve` with "
            "what this system has: launchd, a supervisor, or a container."
        )
    if not _runs_for_user(environ):
        raise UsageError(
            "No systemd runs for this user (XDG_RUNTIME_DIR has no folder `systemd`), so nothing was installed. "
            "Log in as the user instead of with su or sudo; on a machine without logins, first run "
            "`loginctl enable-linger USER`. Without systemd, start `satchel serve` with what this system has."
        )


async def run_systemctl(words: Sequence[str], *, environ: Mapping[str, str], cwd: Path) -> Ran:
    """Run `systemctl --user`."""
    program = shutil.which("systemctl", path=environ.get("PATH"))
    if program is None:
        raise UsageError("There is no systemctl on the PATH.")
    wanted = {
        name: environ[name]
        for name in ("PATH", "HOME", "LANG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS")
        if name in environ
    }
    ended = await run_process(
        [program, "--user", "--no-pager", *words], cwd=cwd, environ=wanted, timeout_s=_TIMEOUT_S
    )
    said = (ended.stdout.data + ended.stderr.data).decode("utf-8", "replace")
    return Ran(code=1 if ended.exit_code is None else ended.exit_code, text=said)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}.") from error


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """A word, quoted for systemd (systemd.service(5), "Command lines")."""
    plain = _escaped(word)
    if set(plain) <= _PLAIN:
        return plain
    inner = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{inner}"'
