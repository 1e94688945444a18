"""Opens the memory store for a command, in the scope of its `--scope` option."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from satchel.cli.commands import Text, json_option
from satchel.cli.home import opened_home
from satchel.cli.output import tell
from satchel.cli.settings import read_settings
from satchel.cli.signals import run_in_good_order
from satchel.errors import StorageError, UsageError
from satchel.memory import Discretion, Kind, Memory, MemoryType, Tier
from satchel.runtime.home import Home
from satchel.runtime.serving import SPACES_FILE

if TYPE_CHECKING:
    from satchel.runtime.spaces import Spaces

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def scope_option(function: F) -> F:
    """Adds `--scope`."""
    return click.option(
        "--scope",
        type=Text,
        metavar="NAME",
        default="default",
        help='Which memories: "default" (your own), "project" (those of this folder), "project:ID" (those of a '
        "project, by its id), or any other name. Each scope is separate.",
    )(function)


_FILTERS = (
    click.option(
        "--kind", type=click.Choice(get_args(Kind)), help="Episodes (verbatim), facts, or summaries."
    ),
    click.option(
        "--type", "memory_type", type=click.Choice(get_args(MemoryType)), help="Only memories of this type."
    ),
    click.option("--tier", type=click.Choice(get_args(Tier)), help="Only memories of this tier."),
    click.option(
        "--tag",
        "tags",
        multiple=True,
        type=Text,
        help="Only memories with this tag; may be repeated.",
    ),
    click.option("--speaker", type=Text, metavar="NAME", help="Only what this person said."),
    click.option("--session", type=Text, metavar="ID", help="Only memories from this conversation."),
    click.option("--since", type=Text, metavar="TIME", help="Only what was said at that time or later."),
    click.option("--until", type=Text, metavar="TIME", help="Only what was said before that time."),
    click.option("--as-of", type=Text, metavar="TIME", help="Only what was believed at that time."),
    click.option(
        "--discretion",
        type=click.Choice(get_args(Discretion)),
        help="Only what is shown unasked (open), or is held back so.",
    ),
    click.option(
        "--faded/--not-faded",
        default=None,
        help="Only what has faded, so that search alone finds it, or only the rest.",
    ),
)


def filter_options(function: F) -> F:
    """Adds the options that filter memories; the command passes its keyword arguments to `filters_of`."""
    for option in reversed(_FILTERS):
        function = option(function)
    return function


def filters_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the filters of `Memory.search` and `Memory.list`."""
    times = {name: parse_time(given[name]) for name in ("since", "until", "as_of")}
    return {**given, **times}


def with_home(
    function: Callable[[Home], Awaitable[T]], scope: str = "default", *, with_notices: bool = True
) -> T:
    """Run a function with the home open and its memory in a scope; see `opened_home`.

    Raises:
        UsageError: The scope is "project", and there is no project here.
    """

    async def body() -> T:
        settings = read_settings()
        name = scope
        if scope in ("user", ""):
            name = "default"
        elif scope == "project":
            if settings.project is None:
                raise UsageError(
                    "There is no project here: no folder above this one has .satchel or AGENTS.md."
                )
            name = f"project:{settings.project}"
        async with opened_home(settings, scope=name, with_notices=with_notices) as home:
            return await function(home)

    return run_in_good_order(body)


def with_memory(function: Callable[[Memory], Awaitable[T]], scope: str = "default") -> T:
    """Run a function with the memories of a scope; stderr reports parts of memory that don't work."""

    async def body(home: Home) -> T:
        found = await function(memory_of(home))
        if home.memory is not None and home.memory.degraded:
            tell(f"! {home.memory.degraded}")
        return found

    return with_home(body, scope)


def memory_command(command: Callable[..., Awaitable[T]]) -> Callable[..., T]:
    """Adds `--scope` and `--json`, and gives the command the memory of the scope as its first argument."""

    @wraps(command)
    def run(scope: str, **given: Any) -> T:
        return with_memory(lambda memory: command(memory, **given), scope)

    return scope_option(json_option(run))


def memory_of(home: Home) -> Memory:
    """The memory of a home.

    Raises:
        StorageError: It is off or could not be opened.
    """
    if home.memory is None:
        raise StorageError(
            "Memory is off (memory.enabled) or could not be opened. `satchel doctor` shows why."
        )
    return home.memory


def spaces_here() -> Spaces | None:
    """The spaces of the home's user; None in a home that is the only one."""
    home = read_settings().home
    if not (home / SPACES_FILE).exists():
        return None
    from satchel.runtime.spaces import Spaces  # noqa: PLC0415 - its HTTP client would slow every command down

    return Spaces.of(home)


def parse_time(text: str | None) -> datetime | None:
    """Parse a time that the user typed; None stays None.

    Raises:
        UsageError: The text is not a time.
    """
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a time. Write it as 2026-03-01 or 2026-03-01T18:30.") from None
