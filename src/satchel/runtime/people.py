"""The people of a home: their names, what proves who they are, and what each may use (decision 93)."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import sha256
from hmac import new as hmac
from pathlib import Path
from typing import Any, Final

from satchel.clock import Clock
from satchel.config.home import ensure_home, locked_folder, replace_file
from satchel.errors import NotFound, StorageCorrupt, UsageError
from satchel.runtime.browsers import Browsers

__all__ = ["FEWEST_PASSWORD_CHARS", "PEOPLE_FILE", "Logins", "People", "Person", "has_people"]

PEOPLE_FILE: Final = "people.json"
FEWEST_PASSWORD_CHARS: Final = 8
_MOST_PASSWORD_CHARS: Final = 1024
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
"""Names are folders, roles of databases, and typed on phones: nothing that any of them reads in a way of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """One person.

    Attributes:
        name: See `_NAME`.
        number: Given once and never again, so that no file that a removed person left belongs to a new one.
        uid: The user id of the person's processes and files; None where the administrator isn't root.
        password: A hash by argon2.
        tokens: SHA-256 of each token, in hexadecimal. A token is 256 random bits, so that a fast hash is enough.
        day_usd: The limit of the money of a day; None leaves it to the person.
        disk_mb: The limit of the folder in MB; None is no limit.
        own_keys: The person doesn't get the administrator's keys of model providers.
        database: The URL of the person's own database; "" for the file in their home.
        leaving: The person is being removed: nobody gets in any more.
        passkeys: Each with its id, its public key, how often it was used, its name and the day on which it was added.
    """

    name: str
    number: int
    uid: int | None = None
    password: str = field(repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)
    day_usd: float | None = None
    disk_mb: int | None = None
    own_keys: bool = False
    database: str = field(default="", repr=False)
    leaving: bool = False
    passkeys: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def stamp(self) -> str:
        """Changes with the password: who logged in with another one has to log in again."""
        return _digest(self.password)


def has_people(home: Path) -> bool:
    """Whether a home has people, so that its server is their front door."""
    return (home / PEOPLE_FILE).exists() and bool(People(home).all())


class People:
    """The table, a file of the administrator's home. It is read again whenever it has changed."""

    def __init__(self, home: Path) -> None:
        """`home` is the administrator's SATCHEL_HOME; nothing is written before somebody is added."""
        self._home = home
        self._path = home / PEOPLE_FILE
        self._known: tuple[object, Mapping[str, Any], dict[str, Person]] | None = None

    def all(self) -> dict[str, Person]:
        """Everybody, by name.

        Raises:
            StorageCorrupt: The file can't be read, so nobody gets in.
        """
        return self._read()[1]

    def get(self, name: str) -> Person:
        """One person.

        Raises:
            NotFound: There is nobody of this name.
        """
        found = self.all().get(name)
        if found is None:
            raise NotFound(f"There is nobody named {name!r} here. `satchel user list` shows who is.")
        return found

    def add(self, name: str, password: str, **more: Any) -> Person:
        """Add a person. `more` are fields of `Person`.

        Raises:
            UsageError: The name or the password isn't one, or the name is taken.
        """
        check_name(name)
        hashed = _hashed(password)
        ensure_home(self._home)

        def change(content: dict[str, Any]) -> None:
            if name in content["people"]:
                raise UsageError(f"There is a person named {name} already.")
            number = content["next"]
            content["next"] = number + 1
            content["people"][name] = asdict(Person(name=name, number=number, password=hashed, **more))

        self._change(change)
        return self.get(name)

    def set(self, name: str, **fields: Any) -> Person:
        """Change fields of a person. Errors as in `get`."""

        def change(content: dict[str, Any]) -> None:
            content["people"][name] = asdict(replace(self.get(name), **fields))

        self._change(change)
        return self.get(name)

    def change_passkeys(
        self, name: str, change: Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]]
    ) -> None:
        """Change a person's passkeys, whatever was changed since they were read. Errors as in `get`."""

        def write(content: dict[str, Any]) -> None:
            self.get(name)
            fields = content["people"][name]
            fields["passkeys"] = list(change(fields.get("passkeys", [])))

        self._change(write)

    def set_password(self, name: str, password: str) -> None:
        """Set another password: every browser has to log in again, tokens stay. Errors as in `add` and `get`."""
        self.set(name, password=_hashed(password))

    def make_token(self, name: str) -> str:
        """A new token, which is kept nowhere. Errors as in `get`."""
        token = secrets.token_urlsafe(32)

        def change(content: dict[str, Any]) -> None:
            self.get(name)
            content["people"][name]["tokens"].append(_digest(token))

        self._change(change)
        return token

    def drop(self, name: str) -> None:
        """Forget a person."""
        self._change(lambda content: content["people"].pop(name, None))

    def with_password(self, name: str, password: str) -> Person | None:
        """The person who proves to be this one, or None. It takes as long for a name that there isn't."""
        # Imported where it is used: only the front door and `satchel user` need it.
        from argon2.exceptions import Argon2Error, InvalidHashError  # noqa: PLC0415

        found = self.all().get(name.strip().lower())
        try:
            _hasher().verify(found.password if found else _nobody(), password[:_MOST_PASSWORD_CHARS])
        except (Argon2Error, InvalidHashError):
            return None
        return found if found and not found.leaving else None

    def with_token(self, token: str) -> Person | None:
        """Whose token this is. What is compared is a digest, so that the time tells nothing of a token."""
        digest = _digest(token)
        return next((one for one in self.all().values() if digest in one.tokens and not one.leaving), None)

    def door_token(self, person: Person) -> str:
        """What the front door sends to this person's process, which asks for it as for the token of any home.

        It stays the same when the door starts anew, so that browsers stay logged in, until the password changes.
        """
        key = bytes.fromhex(self._read()[0]["key"])
        return hmac(key, f"{person.number} {person.stamp}".encode(), sha256).hexdigest()

    def _read(self) -> tuple[Mapping[str, Any], dict[str, Person]]:
        try:
            state = self._path.stat()
            stamp = (state.st_ino, state.st_mtime_ns, state.st_size)
            if self._known is None or self._known[0] != stamp:
                content = json.loads(self._path.read_bytes())
                people = {
                    name: Person(
                        **fields
                        | {"tokens": tuple(fields["tokens"]), "passkeys": tuple(fields.get("passkeys", ()))}
                    )
                    for name, fields in content["people"].items()
                }
                self._known = (stamp, content, people)
            return self._known[1:]
        except FileNotFoundError:
            return {"key": secrets.token_hex(32), "next": 0, "people": {}}, {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StorageCorrupt(f"{self._path} can't be read ({type(error).__name__}).") from error

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        with locked_folder(self._home):
            content = json.loads(json.dumps(self._read()[0]))
            change(content)
            replace_file(self._path, json.dumps(content, indent=1) + "\n")
            self._known = None


def check_name(name: str) -> None:
    """Raise UsageError if nobody can have this name."""
    if not _NAME.fullmatch(name) or name == "server":  # whose log is the server's
        raise UsageError(
            f"{name!r} can't be a name here. Use at most 32 small letters, digits, - and _, a letter first; not server."
        )


class Logins:
    """The browsers that are logged in at the front door, and whose they are.

    The person's own process knows them as well, and is asked with every request: this says only which one to ask.
    """

    def __init__(self, home: Path, people: People, *, clock: Clock) -> None:
        """`home` is the administrator's."""
        self._folder = home / "logins"
        self._people = people
        self._clock = clock
        self._of: dict[tuple[str, str], Browsers] = {}

    def person(self, value: str) -> Person | None:
        """Whose browser sends this."""
        everybody = self._people.all().values()
        return next((one for one in everybody if not one.leaving and self._browsers(one).knows(value)), None)

    def remember(self, value: str, person: Person) -> None:
        """Remember for thirty days whose browser sends this. Errors as in `Browsers.log_in`."""
        ensure_home(self._folder)
        self._browsers(person).keep(value)

    def forget(self, values: Iterable[str], person: Person) -> None:
        """Forget a browser that logged out. Errors as in `Browsers.log_out`."""
        for value in values:
            self._browsers(person).log_out(value)

    def _browsers(self, person: Person) -> Browsers:
        key = (person.name, person.stamp)
        if key not in self._of:
            self._of[key] = Browsers(
                self._folder, token=f"{person.number} {person.stamp}", clock=self._clock, file=person.name
            )
        return self._of[key]


def _hashed(password: str) -> str:
    if not FEWEST_PASSWORD_CHARS <= len(password) <= _MOST_PASSWORD_CHARS:
        raise UsageError(f"A password needs at least {FEWEST_PASSWORD_CHARS} characters.")
    return str(_hasher().hash(password))


@cache
def _hasher() -> Any:
    from argon2 import PasswordHasher  # noqa: PLC0415 - as above

    return PasswordHasher()


@cache
def _nobody() -> str:
    return str(_hasher().hash(secrets.token_hex(16)))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
