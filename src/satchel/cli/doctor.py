"""`satchel doctor`: checks every part and says what is wrong and how to fix it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import anyio
import click

from satchel.cli.commands import json_option, said_json
from satchel.cli.opening import opened
from satchel.cli.output import say, wrapped
from satchel.cli.settings import read_settings
from satchel.runtime import Check
from satchel.runtime.health import examine

_MARKS = {"ok": "✓", "warning": "!", "failed": "✗"}


@click.command()
@json_option
def doctor() -> int:
    """Check that everything works. The exit code is 1 if something does not."""

    async def body() -> Sequence[Check]:
        async with opened(read_settings(), with_notices=False, upkeep="none") as satchel:
            return await examine(satchel)

    checks = anyio.run(body)
    if not said_json([{"part": check.part, "state": check.state, "text": check.text} for check in checks]):
        for check in checks:
            say(wrapped(f"{_MARKS[check.state]} {check.part}: {check.text}", sys.stdout))
    return 1 if any(check.state == "failed" for check in checks) else 0
