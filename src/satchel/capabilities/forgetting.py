"""What is forgotten of capabilities together with memories."""

from __future__ import annotations

from sqlalchemy import update

from satchel.capabilities.tables import capability_runs
from satchel.storage import Database


async def forget_inputs(database: Database) -> None:
    """Empty what the records of runs keep of failed runs, their inputs and errors. Called when the user has something
    forgotten: a model may have put any of it into an input, in other words.
    """
    kept = (capability_runs.c.input != "") | (capability_runs.c.error != "")
    emptied = update(capability_runs).where(kept).values(input="", error="")
    await database.write(lambda connection: connection.execute(emptied), durable=True)
