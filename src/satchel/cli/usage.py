"""`satchel usage`: tokens and money, from the session logs."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import click

from satchel.cli.commands import json_option
from satchel.cli.home import opened_home
from satchel.cli.output import say, say_json, tell
from satchel.cli.settings import read_settings
from satchel.messages import Usage, usage_to_json
from satchel.sessions import UsageRow

__all__ = ["usage", "usage_table"]


@click.command()
@click.option(
    "--days", type=click.IntRange(1), default=30, show_default=True, help="Of the newest so many days of use."
)
@json_option
def usage(days: int, as_json: bool) -> None:
    """Show tokens and money by day and model."""

    async def body() -> tuple[UsageRow, ...]:
        async with opened_home(read_settings(), with_notices=False) as satchel:
            return await satchel.usage()

    rows = anyio.run(body)
    newest = sorted({row.day for row in rows}, reverse=True)[:days]
    summed = _sum(row for row in rows if row.day in newest)
    if as_json:
        say_json(
            [
                {"day": day, "model": model, "calls": calls, **usage_to_json(spent)}
                for (day, model), (calls, spent) in summed.items()
            ]
        )
    elif summed:
        say(usage_table(row for row in rows if row.day in newest))
    else:
        tell("No model was asked yet.")


def _sum(rows: Iterable[UsageRow]) -> dict[tuple[str, str], tuple[int, Usage]]:
    summed: dict[tuple[str, str], tuple[int, Usage]] = {}
    for row in rows:
        key = (row.day, f"{row.provider}:{row.model}" if row.model else row.provider)
        calls, spent = summed.get(key, (0, Usage()))
        summed[key] = (calls + row.calls, spent + row.usage)
    return dict(sorted(summed.items(), reverse=True))


def usage_table(rows: Iterable[UsageRow]) -> str:
    """One line for each day and model, and their sum."""
    summed = _sum(rows)
    width = max((len(model) for _, model in summed), default=5)
    lines = [
        f"{'day':10}  {'model':{width}}  {'calls':>6}  {'tokens in':>12}  {'cached':>12}  {'out':>10}  {'cost':>10}"
    ]
    total = Usage()
    all_calls = 0
    for (day, model), (calls, spent) in summed.items():
        total += spent
        all_calls += calls
        lines.append(_line(day, f"{model:{width}}", calls, spent))
    if len(summed) > 1:
        lines.append(_line("together", " " * width, all_calls, total))
    return "\n".join(lines)


def _line(day: str, model: str, calls: int, spent: Usage) -> str:
    cost = "unknown" if spent.cost_usd is None else f"${spent.cost_usd:.4f}"
    return (
        f"{day:10}  {model}  {calls:>6,}  {spent.input_tokens:>12,}  {spent.cache_read_tokens:>12,}  "
        f"{spent.output_tokens:>10,}  {cost:>10}"
    )
