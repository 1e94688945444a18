"""`satchel usage`: tokens and cost, of sessions and of memory's own calls."""

from __future__ import annotations

import anyio
import click

from satchel.cli.commands import json_option
from satchel.cli.home import opened_home
from satchel.cli.output import say, say_json, tell
from satchel.cli.settings import read_settings
from satchel.clock import SystemClock, local_day
from satchel.messages import usage_to_json
from satchel.runtime.background_models import BACKGROUND, BackgroundDay, background_lines
from satchel.runtime.lines import spent_by_purpose, usage_table
from satchel.sessions import UsageRow

__all__ = ["usage"]


@click.command()
@click.option(
    "--days", type=click.IntRange(1), default=30, show_default=True, help="The most recent days with any use."
)
@json_option
def usage(days: int, as_json: bool) -> None:
    """Show tokens and cost by day, model and purpose, and what models did in the background today."""

    async def body() -> tuple[tuple[UsageRow, ...], BackgroundDay]:
        async with opened_home(read_settings(), with_notices=False) as home:
            return await home.usage(), await home.background_day(local_day(SystemClock().now()))

    rows, today = anyio.run(body)
    newest = sorted({row.day for row in rows}, reverse=True)[:days]
    summed = spent_by_purpose(row for row in rows if row.day in newest)
    if as_json:
        say_json(
            [
                {
                    "day": day,
                    "model": model,
                    "purpose": purpose,
                    "background": purpose in BACKGROUND,
                    "calls": calls,
                    **usage_to_json(spent),
                }
                for (day, model, purpose), (calls, spent) in summed.items()
            ]
        )
    elif summed:
        say(usage_table(row for row in rows if row.day in newest))
        limits = today.settings.day_tokens, today.settings.day_usd
        if today.calls or today.settings.models == "off" or any(limit is not None for limit in limits):
            say("\n".join(["", *background_lines(today)]))
    else:
        tell("No model has been used yet.")
