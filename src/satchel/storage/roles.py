"""A database of its own on a PostgreSQL server for each person, with a role that can enter no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, LiteralString

import psycopg
from psycopg.sql import SQL, Identifier, Literal
from sqlalchemy.engine import make_url

from satchel.errors import StorageError

_OF_ADMINISTRATOR: Final = frozenset(
    {"options", "dbname", "user", "password", "passfile", "sslkey", "sslcert", "sslpassword", "service"}
)
"""Parameters of a URL that say who connects, or with which settings; the person's say nothing of that."""


def add_role(url: str, name: str, password: str) -> str:
    """Make a role and a database, both with this name; nobody else may connect to it. `url` is that of the
    administrator's database, whose role may create roles and databases.

    Returns:
        The URL for the person.

    Raises:
        StorageError: The server refused, or lets every role into the administrator's database. Nothing is left there.
    """
    role = Identifier(name)
    with _connected(url) as connection:
        connection.execute(SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, Literal(password)))
        undo: list[LiteralString] = ["DROP ROLE {}"]
        try:
            # Who isn't a superuser can make a database only for a role that it is a member of.
            connection.execute(SQL("GRANT {} TO CURRENT_USER").format(role))
            connection.execute(SQL("CREATE DATABASE {} OWNER {} TEMPLATE template0").format(role, role))
            undo.insert(0, "DROP DATABASE {}")
            connection.execute(SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(role))
            # Every role may enter every database, unless it is said that it may not.
            own = connection.info.dbname
            connection.execute(
                SQL("REVOKE CONNECT, TEMPORARY ON DATABASE {} FROM PUBLIC").format(Identifier(own))
            )
            # Where another role owns the database or granted it, the server only warns that nothing was revoked.
            asked = connection.execute("SELECT has_database_privilege(%s, %s, 'CONNECT')", (name, own))
            if asked.fetchone() != (False,):
                raise StorageError(
                    f"Every role may still enter the database {own}: connect as the role that owns it, or have it say "
                    f'REVOKE CONNECT ON DATABASE "{own}" FROM PUBLIC.'
                )
        except BaseException:
            with suppress(psycopg.Error):
                for statement in undo:
                    connection.execute(SQL(statement).format(role))
            raise
    return url_for(url, name, password)


def url_for(url: str, name: str, password: str) -> str:
    """The URL of a role's database; the parameters are as in `add_role`."""
    address = make_url(url)
    query = {key: value for key, value in address.query.items() if key not in _OF_ADMINISTRATOR}
    person = address.set(username=name, password=password, database=name, query=query)
    return person.render_as_string(hide_password=False)


def set_role_password(url: str, name: str, password: str) -> None:
    """Give a role that `add_role` made another password. The parameters are as there.

    Raises:
        StorageError: The server refused.
    """
    with _connected(url) as connection:
        connection.execute(SQL("ALTER ROLE {} PASSWORD {}").format(Identifier(name), Literal(password)))


def drop_role(url: str, name: str) -> None:
    """Drop what `add_role` made, whoever is connected; what isn't there is no error.

    Raises:
        StorageError: The server refused.
    """
    role = Identifier(name)
    with _connected(url) as connection:
        connection.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(role))
        connection.execute(SQL("DROP ROLE IF EXISTS {}").format(role))


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection]:
    address = make_url(url).set(drivername="postgresql")
    try:
        with psycopg.connect(
            address.render_as_string(hide_password=False), autocommit=True, connect_timeout=10
        ) as connection:
            yield connection
    except psycopg.Error as error:
        words = error.diag.message_primary or str(error).strip().partition("\n")[0]
        raise StorageError(f"The database server refused: {words.rstrip('.')}.") from error
