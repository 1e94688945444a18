"""A database of its own on a PostgreSQL server for each person, with a role that can enter no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.sql import SQL, Identifier, Literal
from sqlalchemy.engine import make_url

from satchel.errors import StorageError

__all__ = ["add_role", "drop_role"]


def add_role(url: str, name: str, password: str) -> str:
    """Make a role and a database, both with this name; nobody else may connect to it.

    Args:
        url: Of the administrator's database, whose role may create roles and databases.
        name: Of both.
        password: Of the role.

    Returns:
        The URL for the person.

    Raises:
        StorageError: The server refused.
    """
    role = Identifier(name)
    with _connected(url) as connection:
        connection.execute(SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, Literal(password)))
        # Who isn't a superuser can make a database only for a role that it is a member of.
        connection.execute(SQL("GRANT {} TO CURRENT_USER").format(role))
        connection.execute(SQL("CREATE DATABASE {} OWNER {} TEMPLATE template0").format(role, role))
        connection.execute(SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(role))
        # Every role may enter every database, unless it is said that it may not.
        own = Identifier(connection.info.dbname)
        connection.execute(SQL("REVOKE CONNECT, TEMPORARY ON DATABASE {} FROM PUBLIC").format(own))
    address = make_url(url)
    query = {key: value for key, value in address.query.items() if key != "options"}
    person = address.set(username=name, password=password, database=name, query=query)
    return person.render_as_string(hide_password=False)


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
