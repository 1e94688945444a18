"""`satchel usage`: tokens and cost, of sessions and of memory's own calls."""

from __future__ import annotations

import click

from satchel.cli.commands import json_option, said_json
from satchel.cli.output import say, tell
from satchel.cli.stores import with_home
from satchel.clock import SystemClock, local_day
from satchel.runtime.background_models import BackgroundDay, background_lines, spent_to_json
from satchel.runtime.home import Home
from satchel.runtime.lines import usage_table
from satchel.sessions import UsageRow


@click.command()
@click.option(
    "--days", type=click.IntRange(1), default=30, show_default=True, help="The most recent days with any use."
)
@json_option
def usage(days: int) -> None:
    """Show tokens and cost by day, model and purpose, and what models did in the background today."""

    async def body(home: Home) -> tuple[tuple[UsageRow, ...], BackgroundDay]:
        return await home.usage(), await home.background_day(local_day(SystemClock().now()))

    rows, today = with_home(body, with_notices=False)
    data = spent_to_json(rows, days=days)
    if said_json(data):
        return
    if data:
        newest = {each["day"] for each in data}
        say(usage_table(row for row in rows if row.day in newest))
        limits = today.settings.day_tokens, today.settings.day_usd
        if today.calls or today.settings.models == "off" or any(limit is not None for limit in limits):
            say("\n".join(["", *background_lines(today)]))
    else:
        tell("No model has been used yet.")
