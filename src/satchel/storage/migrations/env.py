"""Alembic's entry point: runs the migrations on the connection and in the transaction of `storage.migrate`."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    # SQLite can't alter most properties of a table; batch mode copies it.
    render_as_batch=True,
)
context.run_migrations()
