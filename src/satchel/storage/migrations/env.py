"""Alembic's entry: runs the migrations on the connection that `storage.migrate` hands over, in its
transaction.
"""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    # SQLite cannot alter most of a table: batch mode copies it.
    render_as_batch=True,
)
context.run_migrations()
