"""The homes of people: folders that nobody else enters, what their programs are told, and their removal."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import tomlkit

from satchel.clock import Clock
from satchel.config import Settings
from satchel.config.home import linked, locked_folder, replace_file
from satchel.config.loading import SEARCH_KEYS
from satchel.config.providers import BASE_URL_VARIABLES
from satchel.config.toml_file import read_toml
from satchel.errors import ConfigError, Refused, SandboxError, StorageUnreachable, StorageUnwritable
from satchel.memory.text.hashing import KEY_FILE
from satchel.runtime.people import PEOPLE_FILE, USERS, People, Person, Role, check_name, role_of
from satchel.sandbox.apart import end_all_of, remove_tree, run_apart
from satchel.storage import is_server
from satchel.storage.copies import is_in_use

_REMOVED: Final = "removed"
_FILES: Final = "files"
_BACKUP: Final = ".backup.tar.gz"
_CHANGED_MEANWHILE: Final = 1
"""A status of tar: the archive is whole, but for what was being written."""
_WAIT_S: Final = 20.0
_READ_KEY: Final = """cd .satchel
test -s "$0" || (umask 077; head -c 32 /dev/urandom >"$0")
od -An -v -tx1 "$0"
"""
"""With the person's rights: it may be a link."""
PASSED: Final = (
    "PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""Of the environment of the front door; the rest may hold secrets of the administrator's."""
_NOT_SHARED: Final = ("database", "mcp_servers", "permissions", "server")
"""Sections of the administrator's settings that don't count for people."""
_NOT_PASSED: Final = (
    "SATCHEL_HOME",
    "SATCHEL_DATABASE",
    "SATCHEL_DEFAULTS",
    "SATCHEL_SERVER_",
    "SATCHEL_MCP_SERVERS_",
)


def folder_of(home: Path, person: Person) -> Path:
    """The folder of a person: what HOME is for their programs. SATCHEL_HOME is `.satchel` in it, as everywhere."""
    return home / USERS / person.name


def is_apart() -> bool:
    """Whether each person's programs can have a user id of their own, which only root can give."""
    return os.geteuid() == 0


def separation() -> str:
    """What keeps people from each other on this machine, for the administrator."""
    if is_apart():
        return "Each person's programs run with a user id of their own."
    return (
        "Their programs run as one user of this system: only the sandbox and the permissions keep one person's agent "
        "from another's files. Start it as root to give each person a user id."
    )


def people_of(settings: Settings) -> People:
    """The people of a home. Those in its file move to its server, once.

    Raises:
        Refused: There are people in the file, and others on the server.
        StorageError: Something can't be read or written.
        SandboxError: A person's key can't be read.
    """
    where = settings.database_location
    people = People(settings.home, str(where) if is_server(where) else "")
    if people.is_shared and (settings.home / PEOPLE_FILE).exists():
        _take_in(settings, people)
    return people


def has_people(settings: Settings) -> bool:
    """Whether a home has people, so that its server is their front door.

    Raises:
        ConfigError, StorageError: The server that knows can't be asked, and there were people.
    """
    try:
        return bool(people_of(settings).all())
    except (ConfigError, StorageUnreachable):
        if (settings.home / USERS).exists():
            raise
        return False


def add_person(
    settings: Settings,
    name: str,
    password: str,
    *,
    day_usd: float | None,
    disk_mb: int | None,
    own_keys: bool,
    members: Mapping[str, Role] = MappingProxyType({}),
) -> Person:
    """Add a person or a space with a home, and with a database where the administrator's memories are on a server.

    Raises:
        UsageError: The name or the password isn't one, or the name is taken.
        ConfigError: The home can't hold people.
        StorageError: The database can't be made, or a folder can't be written.
    """
    check_name(name)
    people = people_of(settings)
    person = people.add(
        name, password, day_usd=day_usd, disk_mb=disk_mb, own_keys=own_keys, members=dict(members)
    )
    folder = folder_of(settings.home, person)
    if folder.exists():
        people.drop(name)
        raise StorageUnwritable(f"{folder} is there already. Move it away.")
    try:
        if is_server(settings.database_location):
            from satchel.storage.roles import add_role  # noqa: PLC0415 - the driver takes 0.3 s of CPU

            location = str(settings.database_location)
            url = add_role(location, role_of(name), people.role_password(person))
            person = people.set(name, database=url)
        return settle(settings, person, people)
    except BaseException:
        people.drop(name)
        shutil.rmtree(folder, ignore_errors=True)
        if person.database:
            _drop_database(settings, person)
        raise


def settle(settings: Settings, person: Person, people: People) -> Person:
    """Make what a person's programs need on this machine, where it is missing, and give it to the person's user id.

    Raises:
        ConfigError: A user id of its own can't reach the home or the program, or the person's memories are in files of
            another machine.
        StorageUnwritable: A folder can't be written.
    """
    home, folder = settings.home, folder_of(settings.home, person)
    if is_apart() and person.uid is None:
        person = people.set(person.name, uid=settings.server.people_first_uid + person.number)
    elif person.uid is not None and not is_apart():
        raise ConfigError("People were added by root here, so only root can open their homes.")
    try:
        # What is in the administrator's home stays closed where its folder lets people through.
        for entry in home.iterdir() if is_apart() else ():
            if entry.name != USERS and not entry.is_symlink():
                with suppress(FileNotFoundError):  # one that is just being written under another name
                    entry.chmod(entry.stat().st_mode & 0o700)
        for path in (home, home / USERS):
            path.mkdir(exist_ok=True)
            path.chmod(0o711 if is_apart() else 0o700)
        with locked_folder(home / USERS):
            is_fresh = _make(home, folder, person, people)
    except OSError as error:
        raise StorageUnwritable(f"{folder} can't be made: {error.strerror}.") from error
    if person.uid is not None and is_fresh:
        try:
            code, _, said = run_apart(
                ("satchel", "--version"), cwd=Path("/"), environ=environ_of(settings, person), uid=person.uid
            )
        except SandboxError as error:  # such as a Python that others may not read
            code, said = 1, str(error)
        if code:
            raise ConfigError(
                f"Satchel can't be started with another user id: {said[-300:]} Install it where every user can read it."
            )
        closed = [each for each in home.resolve().parents if not each.stat().st_mode & stat.S_IXOTH]
        if closed:
            raise ConfigError(
                f"SATCHEL_HOME is {home}, and only its owner may enter {closed[-1]}. Each person's programs run with "
                "a user id of their own: use a home that they can reach, such as SATCHEL_HOME=/var/lib/satchel."
            )
    return person


def _make(home: Path, folder: Path, person: Person, people: People) -> bool:
    """Make a person's folder, or give it to another user id. Returns whether something was done."""
    if people.is_shared and folder.exists() and not _is_of(folder, person):
        # Of somebody of the same name who was removed on another machine.
        aside = home / _REMOVED / f"{person.name}-{time.time_ns()}"
        aside.parent.mkdir(mode=0o700, exist_ok=True)
        folder.rename(aside)
    part = folder if folder.exists() else folder.with_name(f".{person.name}")
    if part != folder:
        if people.is_shared and not person.database:
            raise ConfigError(f"What {person.name} has is in files of another machine.")
        shutil.rmtree(part, ignore_errors=True)
        for path in (part, part / ".satchel", part / _FILES):
            path.mkdir(mode=0o700)
        if (home / "models").is_dir():
            # Linked and not copied: they are large, and everybody's are the same.
            shutil.copytree(home / "models", part / ".satchel/models", copy_function=linked)
        if people.is_shared:
            (part / ".satchel" / KEY_FILE).write_bytes(people.key_of(person))
            (part / ".satchel" / KEY_FILE).chmod(0o600)
            _mark(folder, person)
    is_fresh = part != folder or person.uid not in (None, folder.stat().st_uid)
    if person.uid is not None and is_fresh:
        before, models = part.stat().st_uid, part / ".satchel/models"
        for path in (*part.rglob("*"), part):
            state = path.lstat()
            # The models are everybody's. Nor may a link give the person what was somebody else's.
            is_own = state.st_uid == before and models not in path.parents
            if path.is_dir() or state.st_nlink == 1 or is_own:
                os.chown(path, person.uid, person.uid, follow_symlinks=False)
    if part != folder:
        part.rename(folder)
    return is_fresh


def _take_in(settings: Settings, people: People) -> None:
    """Move the people of the home's file to its server. Killed, it goes on next time."""
    from satchel.storage.roles import set_role_password  # noqa: PLC0415 - the driver takes 0.3 s of CPU

    file, home = settings.home / PEOPLE_FILE, settings.home
    for person in People(home).all().values():
        settle(settings, person, People(home))
    with locked_folder(home):
        if not file.exists():
            return  # another process did it
        content = json.loads(file.read_bytes())
        if not people.all():
            for person in People(home).all().values():
                fields, folder = content["people"][person.name], folder_of(home, person)
                code, key, said = run_apart(
                    ("sh", "-c", _READ_KEY, KEY_FILE),
                    cwd=folder,
                    environ={"PATH": os.defpath},
                    uid=person.uid,
                    is_module=False,
                )
                if code:
                    raise SandboxError(f"The key of {person.name} can't be read: {said[-300:]}")
                fields["wrapped"] = people.wrap(person, bytes.fromhex(key))
                _mark(folder, person)
                if person.database:
                    password = people.role_password(person)
                    set_role_password(str(settings.database_location), role_of(person.name), password)
        people.take(content)
        file.unlink()


def leave_server(settings: Settings) -> None:
    """Move the people from the server to the file of this home, with a folder for each. Errors as in `settle`."""
    people = people_of(settings)
    for person in people.all().values():
        settle(settings, person, people)
    people.leave(settings.home)


def environ_of(settings: Settings, person: Person) -> dict[str, str]:
    """The whole environment of a person's programs. What a variable sets, no file of the person's can change."""
    folder, given = folder_of(settings.home, person), settings.environ
    passed = {name: given[name] for name in (*PASSED, *BASE_URL_VARIABLES.values()) if name in given}
    passed |= {
        name: value
        for name, value in given.items()
        if name.startswith(("SATCHEL_", "OTEL_"))
        and not name.startswith(_NOT_PASSED)
        and "HEADERS" not in name
    }
    file = read_toml(settings.config_path)
    shared = {key: value for key, value in (file.tables if file else {}).items() if key not in _NOT_SHARED}
    # What the administrator's MCP servers need is among the secrets, too.
    keys = settings.secrets.keys() & {*SEARCH_KEYS, *(one.env_api_key for one in settings.providers.values())}
    limits = {} if person.day_usd is None else {"SATCHEL_BUDGET_DAY_USD": f"{person.day_usd:g}"}
    if person.is_space:  # nobody talks with it, and no model reads what is in it unless it is a member's
        limits |= {"SATCHEL_MODEL": "none", "SATCHEL_BACKGROUND_MODELS": "off"}
    return {
        **passed,
        **({} if person.own_keys else {name: settings.secrets[name] for name in keys}),
        "HOME": str(folder),
        "USER": person.name,
        "LOGNAME": person.name,
        "SATCHEL_HOME": str(folder / ".satchel"),
        "SATCHEL_DEFAULTS": tomlkit.dumps(shared),
        "SATCHEL_DATABASE": person.database,
        "SATCHEL_SERVER_JOIN": "false",
        **limits,
    }


def run_for(
    settings: Settings, person: Person, *command: str, is_module: bool = True, limit_s: float | None = 600
) -> tuple[int, str, str]:
    """Run a command such as ("satchel", "usage") in a person's home, with the person's rights only: its status, output
    and messages. `is_module` and `limit_s` are as in `run_apart`.

    Raises:
        SandboxError: It could not be started.
    """
    folder = folder_of(settings.home, person)
    if not folder.exists():  # on this machine
        settle(settings, person, people_of(settings))
    return run_apart(
        command,
        cwd=folder,
        environ=environ_of(settings, person),
        uid=person.uid,
        is_module=is_module,
        limit_s=limit_s,
    )


def back_up_person(settings: Settings, person: Person, target: Path) -> tuple[Path, ...]:
    """Back up a person's home, as `satchel backup` does, and the person's files, if there are any.

    Args:
        settings: The administrator's.
        person: Whose.
        target: A folder; it is made.

    Returns:
        The archives.

    Raises:
        Refused: The backup failed, or is no file.
        StorageUnwritable: An archive can't be written.
    """
    folder, taken = folder_of(settings.home, person), settings.home / USERS / f".{person.name}.tar.gz"
    kept = []
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, *command in (
            (f"{person.name}.tar.gz", "satchel", "backup", str(folder / _BACKUP)),
            # Not the module tarfile, which calls itself for each level: people can make thousands.
            (f"{person.name}-files.tar.gz", "tar", "-czf", str(folder / _BACKUP), _FILES),
        ):
            files, is_module = folder / _FILES, command[0] == "satchel"
            if not is_module and (files.is_symlink() or not files.is_dir() or not any(files.iterdir())):
                continue
            remove_tree(taken)
            with suppress(FileNotFoundError):  # what is in the way
                (folder / _BACKUP).rename(taken)
                remove_tree(taken)
            # With the person's own rights, so that links lead to nothing that isn't the person's.
            code, _, said = run_for(settings, person, *command, is_module=is_module, limit_s=None)
            if code and (is_module or code != _CHANGED_MEANWHILE):
                raise Refused(f"{person.name} could not be backed up: {said[-500:]}")
            (folder / _BACKUP).rename(taken)  # to where the person can't exchange it
            if not stat.S_ISREG(taken.lstat().st_mode):
                remove_tree(taken)
                raise Refused(f"{person.name} could not be backed up: the archive is no file.")
            os.chown(taken, os.geteuid(), os.getegid())
            taken.chmod(0o600)
            kept.append(Path(shutil.move(taken, target / name)))
    except OSError as error:
        raise StorageUnwritable(f"The backup in {target} can't be written: {error.strerror}.") from error
    return tuple(kept)


def remove_person(settings: Settings, person: Person, *, clock: Clock) -> tuple[Path, ...]:
    """Let a person in no more, end their programs, back everything up, and delete it.

    Returns:
        The backup's archives.

    Raises:
        Refused: A program goes on, or the backup failed. Nothing was deleted, and the person can't log in.
        StorageError: A folder or the database can't be removed.
    """
    people, folder = people_of(settings), folder_of(settings.home, person)
    person = people.set(person.name, leaving=True)
    _end_programs(folder, person)
    target = settings.home / _REMOVED / f"{person.name}-{clock.now():%Y%m%d-%H%M%S}"
    kept = back_up_person(settings, person, target) if folder.exists() or person.database else ()
    _end_programs(folder, person)  # what the backup started for itself
    try:
        gone = folder.with_name(f".{person.name}.gone")
        if folder.exists():
            folder.rename(gone)
        if gone.exists():
            remove_tree(gone)
    except OSError as error:
        raise StorageUnwritable(f"{folder} can't be removed: {error.strerror}. Try again.") from error
    if person.database:
        _drop_database(settings, person)
    _number_of(folder).unlink(missing_ok=True)
    people.drop(person.name)
    return kept


def used_mb(home: Path, person: Person) -> float:
    """The size of a person's folder in MB, without the models, which are everybody's."""
    seen = {each.stat().st_ino for each in (home / "models").rglob("*")}
    return sum(_sizes(folder_of(home, person), seen)) / 1e6


def usd_today(settings: Settings, person: Person, *, day: str) -> float | None:
    """What a person has spent today in dollars, where prices are known; None if it can't be found out."""
    try:
        code, output, _ = run_for(settings, person, "satchel", "usage", "--json", "--days", "1")
        rows = json.loads(output) if not code else None
        return None if rows is None else sum(row.get("cost_usd") or 0 for row in rows if row["day"] == day)
    except (ConfigError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _sizes(folder: Path, seen: set[int]) -> Iterator[int]:
    waiting = [str(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:  # it may be removed meanwhile
            for entry in entries:
                state = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(state.st_mode):
                    waiting.append(entry.path)
                elif state.st_ino not in seen:
                    seen.add(state.st_ino)
                    yield state.st_blocks * 512


def _drop_database(settings: Settings, person: Person) -> None:
    from satchel.storage.roles import drop_role  # noqa: PLC0415 - the driver takes 0.3 s of CPU

    drop_role(str(settings.database_location), role_of(person.name))


def _end_programs(folder: Path, person: Person) -> None:
    if person.uid is not None:
        end_all_of(person.uid)
        return
    # The front door ends the person's process as soon as it sees that the person is leaving.
    give_up_at = time.monotonic() + _WAIT_S
    while is_in_use(folder / ".satchel/satchel.db"):
        if time.monotonic() > give_up_at:
            raise Refused(
                f"A program of {person.name}'s goes on. End it, and try again. Nothing was deleted."
            )
        time.sleep(0.1)


def _number_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.number")


def _is_of(folder: Path, person: Person) -> bool:
    """Whether a folder of this machine is this person's, and not that of an earlier one of the same name."""
    try:
        return _number_of(folder).read_text() == str(person.number)
    except FileNotFoundError:
        return False


def _mark(folder: Path, person: Person) -> None:
    replace_file(_number_of(folder), str(person.number))
