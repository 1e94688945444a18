"""The people of a home: their names, what proves who they are, and what each may use (decisions 93 and 120)."""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256, shake_256
from hmac import new as hmac
from pathlib import Path
from typing import Any, Final, Literal

from satchel.config.home import ensure_home, locked_folder, replace_file
from satchel.errors import NotFound, Refused, StorageCorrupt, StorageUnreachable, UsageError
from satchel.memory.text.hashing import KEY_FILE, WordHasher

PEOPLE_FILE: Final = "people.json"
USERS: Final = "users"
"""In the administrator's home; each person's folder is below it. Backups of that home leave it out."""
_TABLE: Final = "satchel_people"
_HEAD: Final = ""
"""The record that is about no person."""
_STALE_S: Final = 60.0
"""How long what was known counts while the server can't be reached, on which nobody can change it meanwhile."""
_LOGIN_LASTS: Final = timedelta(days=30)
_MOST_BROWSERS: Final = 100
_LEAST_UID: Final = 1_000
FEWEST_PASSWORD_CHARS: Final = 8
_MOST_PASSWORD_CHARS: Final = 1024
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
"""Names are folders, roles of databases, and typed on phones: nothing that any of them reads in a way of its own."""


Role = Literal["owner", "member", "invited"]


def owner_of(members: Mapping[str, Role]) -> str:
    """Who owns a space; "" for nobody."""
    return next((name for name, role in members.items() if role == "owner"), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """One person, or a space that several share, which has a home like a person's and in which nobody can log in.

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
        browsers: Those that are logged in: SHA-256 of what each sends, and until when. The person's process knows them
            as well, and is asked with every request: this says only whose they are.
        wrapped: Where several machines share the table, the key of the person's hashes if it was made before,
            encrypted; else it follows from the administrator's (`People.key_of`).
        members: Of a space, who is in it or is invited; one is the owner. Of a person, nobody.
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
    browsers: Mapping[str, str] = field(default_factory=dict, repr=False)
    wrapped: str = field(default="", repr=False)
    members: Mapping[str, Role] = field(default_factory=dict)

    @property
    def is_space(self) -> bool:
        """Whether it is a space."""
        return bool(self.members)

    @property
    def stamp(self) -> str:
        """Changes with the password: who logged in with another one has to log in again."""
        return _digest(self.password)


def spaces_token(door_token: str) -> str:
    """See `People.spaces_token`. It doesn't open the process, so it may be in a file that commands of a home read."""
    return hmac(door_token.encode(), b"spaces", sha256).hexdigest()


def role_of(name: str) -> str:
    """The role of a person on a database server, and the database, which has the same name."""
    return f"satchel_{name}"


class _Shared:
    """The table on a server, for several machines.

    What would open anything follows from the key of the home, which each machine has and the server doesn't: the
    passwords of roles, the keys of people's hashes, and what their processes ask for.
    """

    def __init__(self, home: Path, url: str) -> None:
        from satchel.storage.records import Records  # noqa: PLC0415 - the driver takes 0.3 s of CPU

        self.home, self._url = home, url
        self._records = Records(url, _TABLE)
        self._hasher = WordHasher(home / KEY_FILE)

    def secret(self, purpose: str) -> str:
        return self._hasher.key_for(purpose).hex()

    def read(self) -> tuple[object, Callable[[], dict[str, Any]]]:
        version, records = self._records.read()
        self._check(records)
        return version, lambda: self._opened(records)

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        def write(records: dict[str, Any]) -> None:
            self._check(records)
            content = self._opened(records)
            change(content)
            people = content.pop("people")
            records.clear()
            records[_HEAD] = {**content, "mark": self._hasher.mark}
            for name, fields in people.items():
                records[name] = {**fields, "database": role_of(name) if fields["database"] else ""}

        self._records.change(write)

    def drop(self) -> None:
        self._records.drop()

    def _check(self, records: Mapping[str, Any]) -> None:
        if records and records[_HEAD]["mark"] != self._hasher.mark:
            raise Refused(
                "The people of this database belong to a home with another key. Copy the file forgotten.key of that "
                f"home to {self.home}."
            )

    def _opened(self, records: Mapping[str, Any]) -> dict[str, Any]:
        for name, fields in records.items():
            uid = fields.get("uid") if name != _HEAD else None
            # Names are folders, and programs run with these ids: no row makes somebody root, or a service.
            if name != _HEAD and not (_NAME.fullmatch(name) and name == fields.get("name") and _may_be(uid)):
                raise StorageCorrupt(f"The table of people has a record {name[:40]!r} that nobody can have.")
        from satchel.storage.roles import url_for  # noqa: PLC0415 - as above

        people = {
            # Machines may reach the server by different names, so each writes the URL itself.
            name: {
                **fields,
                "database": url_for(self._url, role_of(name), self.secret(f"role {fields['number']}"))
                if fields["database"]
                else "",
            }
            for name, fields in records.items()
            if name != _HEAD
        }
        return {"next": 0, **records.get(_HEAD, {}), "people": people}


class _File:
    """The table in `people.json`, for one machine."""

    def __init__(self, home: Path) -> None:
        self._path = home / PEOPLE_FILE
        self._home = home

    def secret(self, purpose: str) -> str:
        key = bytes.fromhex(self.read()[1]()["key"])
        return hmac(key, purpose.encode(), sha256).hexdigest()

    def read(self) -> tuple[object, Callable[[], dict[str, Any]]]:
        try:
            state = self._path.stat()
        except FileNotFoundError:
            return None, lambda: {"key": secrets.token_hex(32), "next": 0, "people": {}}
        except OSError as error:
            raise self._corrupt(error) from error
        return (state.st_ino, state.st_mtime_ns, state.st_size), self._content

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        ensure_home(self._home)
        with locked_folder(self._home):
            content = self.read()[1]()
            change(content)
            replace_file(self._path, json.dumps(content, indent=1) + "\n")

    def _content(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(self._path.read_bytes())
        except (OSError, ValueError) as error:
            raise self._corrupt(error) from error
        return content

    def _corrupt(self, error: Exception) -> StorageCorrupt:
        return StorageCorrupt(f"{self._path} can't be read ({type(error).__name__}).")


class People:
    """The table: a file of the administrator's home, or rows of the administrator's database where that is on a server.
    It is read again whenever it has changed.
    """

    def __init__(self, home: Path, url: str = "") -> None:
        """`home` is the administrator's SATCHEL_HOME; nothing is written before somebody is added. `url` is the server,
        if there is one. `satchel.runtime.person_homes.people_of` finds out.
        """
        self._table = _Shared(home, url) if url else _File(home)
        self._known: tuple[object, Mapping[str, Any], dict[str, Person]] | None = None
        self._read_s = 0.0
        self._lock = threading.Lock()

    @property
    def is_shared(self) -> bool:
        """Whether several machines may have these people."""
        return isinstance(self._table, _Shared)

    def refresh(self) -> None:
        """Find out what changed elsewhere; may be called in any thread. Without the server, what was known counts for a
        minute.

        Raises:
            StorageError: It can't be read, so nobody gets in.
        """
        with self._lock:
            try:
                stamp, content = self._table.read()
            except StorageUnreachable:
                if self._known is None or time.monotonic() - self._read_s > _STALE_S:
                    raise
                return
            if self._known is None or self._known[0] != stamp:
                found = content()
                self._known = stamp, found, _people_in(found)
            self._read_s = time.monotonic()

    def all(self) -> dict[str, Person]:
        """Everybody and every space, by name.

        Raises:
            StorageCorrupt: The file can't be read, so nobody gets in.
        """
        return self._read()[1]

    def persons(self) -> dict[str, Person]:
        """Everybody, without the spaces. Errors as in `all`."""
        return {name: one for name, one in self.all().items() if not one.is_space}

    def get(self, name: str) -> Person:
        """One person.

        Raises:
            NotFound: There is nobody of this name, or it is a space.
        """
        found = self.persons().get(name)
        if found is None:
            raise _nobody_named(name)
        return found

    def add(self, name: str, password: str, **more: Any) -> Person:
        """Add a person. `more` are fields of `Person`.

        Raises:
            UsageError: The name or the password isn't one, or the name is taken.
        """
        check_name(name)
        hashed = _hashed(password)

        def change(content: dict[str, Any]) -> None:
            if name in content["people"]:
                raise UsageError(f"The name {name} is taken.")
            number = content["next"]
            content["next"] = number + 1
            content["people"][name] = asdict(Person(name=name, number=number, password=hashed, **more))

        self._change(change)
        return self.all()[name]

    def set(self, name: str, **fields: Any) -> Person:
        """Change fields of a person or a space.

        Raises:
            NotFound: There is none of this name.
        """
        self._change(lambda content: _fields(content, name).update(fields))
        return self.all()[name]

    def change_members(self, name: str, change: Callable[[dict[str, Role]], object]) -> None:
        """Let a function change who is in a space, alone among all processes. Errors as in `set`, and its own."""
        self._change(lambda content: change(_fields(content, name)["members"]))

    def change_passkeys(
        self, name: str, change: Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]]
    ) -> None:
        """Change a person's passkeys, whatever was changed since they were read. Errors as in `get`."""

        def write(content: dict[str, Any]) -> None:
            fields = _fields(content, name)
            fields["passkeys"] = list(change(fields.get("passkeys", [])))

        self._change(write)

    def set_password(self, name: str, password: str) -> None:
        """Set another password: every browser has to log in again, tokens stay. Errors as in `add` and `get`."""
        self.get(name)
        self.set(name, password=_hashed(password), browsers={})

    def make_token(self, name: str) -> str:
        """A new token, which is kept nowhere. Errors as in `get`."""
        self.get(name)
        token = secrets.token_urlsafe(32)
        self._change(lambda content: _fields(content, name)["tokens"].append(_digest(token)))
        return token

    def drop(self, name: str) -> None:
        """Forget a person."""
        self._change(lambda content: content["people"].pop(name, None))

    def with_password(self, name: str, password: str) -> Person | None:
        """The person who proves to be this one, or None. It takes as long for a name that there isn't."""
        # Imported where it is used: only the front door and `satchel user` need it.
        from argon2.exceptions import Argon2Error, InvalidHashError  # noqa: PLC0415

        found = self.persons().get(name.strip().lower())
        try:
            _hasher().verify(found.password if found else _nobody(), password[:_MOST_PASSWORD_CHARS])
        except (Argon2Error, InvalidHashError):
            return None
        return found if found and not found.leaving else None

    def with_token(self, token: str) -> Person | None:
        """Whose token this is. What is compared is a digest, so that the time tells nothing of a token."""
        digest = _digest(token)
        return next((one for one in self.all().values() if digest in one.tokens and not one.leaving), None)

    def with_browser(self, value: str, now: datetime) -> Person | None:
        """Whose browser sends this."""
        digest = _digest(value)
        for one in self.all().values():
            until = one.browsers.get(digest)
            if until is not None and not one.leaving and datetime.fromisoformat(until) > now:
                return one
        return None

    def log_in(self, person: Person, value: str, now: datetime) -> None:
        """Remember for thirty days whose browser sends this, unless the password has changed. Errors as in `get`."""

        def change(content: dict[str, Any]) -> None:
            fields = _fields(content, person.name)
            if fields["password"] == person.password:
                known = {**fields.get("browsers", {}), _digest(value): (now + _LOGIN_LASTS).isoformat()}
                ends = {key: datetime.fromisoformat(until) for key, until in known.items()}
                lasting = sorted((key for key in ends if ends[key] > now), key=ends.__getitem__)
                fields["browsers"] = {key: known[key] for key in lasting[-_MOST_BROWSERS:]}

        self._change(change)

    def log_out(self, person: Person, values: Iterable[str] | None) -> None:
        """Forget browsers that logged out; None means all of them. Errors as in `get`."""
        gone = None if values is None else {_digest(value) for value in values}

        def change(content: dict[str, Any]) -> None:
            fields = _fields(content, person.name)
            known = fields.get("browsers", {})
            fields["browsers"] = {
                key: until for key, until in known.items() if gone is not None and key not in gone
            }

        self._change(change)

    def door_token(self, person: Person) -> str:
        """What the front door sends to this person's process, which asks for it as for the token of any home.

        It stays the same when the door starts anew, so that browsers stay logged in, until the password changes; and is
        the same on all machines.
        """
        return self.secret(f"{person.number} {person.stamp}")

    def spaces_token(self, person: Person) -> str:
        """What this person's process sends to the front door to reach the person's spaces; it changes likewise."""
        return spaces_token(self.door_token(person))

    def secret(self, purpose: str) -> str:
        """What only the front doors of these people know, as 64 hexadecimal digits: another one for each purpose."""
        return self._table.secret(purpose)

    def role_password(self, person: Person) -> str:
        """The password of the person's role on the server."""
        return self.secret(f"role {person.number}")

    def key_of(self, person: Person) -> bytes:
        """The key of the person's hashes, which all machines must share."""
        given = bytes.fromhex(person.wrapped or "00" * 32)
        return self._hidden(person, given)

    def wrap(self, person: Person, key: bytes) -> str:
        """What `Person.wrapped` is for a key that was made before."""
        return self._hidden(person, key).hex()

    def take(self, content: Mapping[str, Any]) -> None:
        """Take the people of a home's file, unless they were taken before.

        Raises:
            Refused: There are others.
        """
        origin = _digest(content["key"])

        def change(now: dict[str, Any]) -> None:
            if now["people"] and now.get("origin") != origin:
                raise Refused(
                    f"There are people in {PEOPLE_FILE} of this home, and others in its database. Move the file away, "
                    "or use another database."
                )
            if not now["people"]:
                now.update(next=content["next"], people=content["people"], origin=origin)

        self._change(change)

    def leave(self, home: Path) -> None:
        """Write the table into the home's file, and remove it from the server. Killed, it can be called again."""
        if isinstance(self._table, _Shared) and self.all():
            key = secrets.token_hex(32)
            self._change(lambda content: content.update(origin=_digest(key)))
            content = self._read()[0]
            text = json.dumps({"key": key, "next": content["next"], "people": content["people"]}, indent=1)
            replace_file(home / PEOPLE_FILE, text + "\n")
            self._table.drop()

    def _hidden(self, person: Person, text: bytes) -> bytes:
        """Encrypt or decrypt; a number, and so the pad, is used for one key only."""
        pad = shake_256(bytes.fromhex(self.secret(f"key {person.number}"))).digest(len(text))
        return bytes(one ^ other for one, other in zip(text, pad, strict=True))

    def _read(self) -> tuple[Mapping[str, Any], dict[str, Person]]:
        if self._known is None or not self.is_shared:
            self.refresh()
        assert self._known is not None
        return self._known[1:]

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        self._table.change(change)
        self.refresh()


def _fields(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    if (found := content["people"].get(name)) is None:
        raise _nobody_named(name)
    fields: dict[str, Any] = found
    return fields


def _nobody_named(name: str) -> NotFound:
    return NotFound(f"There is nobody named {name!r} here. `satchel user list` shows who is.")


def _people_in(content: Mapping[str, Any]) -> dict[str, Person]:
    try:
        return {
            name: Person(
                **fields | {"tokens": tuple(fields["tokens"]), "passkeys": tuple(fields.get("passkeys", ()))}
            )
            for name, fields in content["people"].items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise StorageCorrupt(f"The table of people can't be read ({type(error).__name__}).") from error


def _may_be(uid: object) -> bool:
    """Whether a person can have this user id: `server.people_first_uid` is no smaller."""
    return uid is None or (type(uid) is int and _LEAST_UID <= uid < 1 << 32)


def check_name(name: str) -> None:
    """Raise UsageError if nobody can have this name."""
    if not _NAME.fullmatch(name) or name == "server":  # whose log is the server's
        raise UsageError(
            f"{name!r} can't be a name here. Use at most 32 small letters, digits, - and _, a letter first; not server."
        )


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
