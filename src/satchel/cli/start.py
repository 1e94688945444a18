"""Where the program begins: a hook of another agent, or any other command."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `satchel`; see `entry.main`.

    A hook goes its own way: another agent waits for it, and click alone takes longer to load than its answer.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words == ["hook"]:
        from satchel.cli.hook import answer  # noqa: PLC0415

        return answer()
    from satchel.cli.entry import main as run  # noqa: PLC0415

    return run(arguments)
