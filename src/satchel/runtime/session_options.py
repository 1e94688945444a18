"""What a session is opened with, and checks that refuse a program's mistakes at once instead of during a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, get_args

from satchel.config import Mode
from satchel.errors import UsageError
from satchel.loop import Hook
from satchel.loop.tokens import TokenCounter
from satchel.runtime.sinks import HistorySink

SystemText: TypeAlias = str | Callable[[str], str]
"""A session's system prompt, or a function that gets Satchel's own and returns the one to use."""


def read_mode(name: str) -> Mode:
    """The mode of that name, in any case.

    Raises:
        UsageError: There is no such mode.
    """
    for mode in get_args(Mode):
        if mode == str(name).lower():
            return mode  # type: ignore[no-any-return]
    raise UsageError(f"There is no mode {name!r}. The modes are {', '.join(get_args(Mode))}.")


def check_rules(allow: Sequence[str]) -> None:
    """Refuse a string instead of a list of rules, because its letters would be rules.

    Raises:
        UsageError: See above.
    """
    if isinstance(allow, str):
        raise UsageError(f"`allow` takes a list of rules, such as [{allow!r}].")


def check_hooks(hooks: Sequence[Hook]) -> None:
    """Refuse objects that are not hooks.

    Raises:
        UsageError: An object has no method of a hook.
    """
    methods = [name for kind in get_args(Hook) for name in vars(kind) if name.startswith("on_")]
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise UsageError(f"{hook!r} is not a hook: it has none of the methods {', '.join(methods)}.")


def check_sinks(sinks: Sequence[HistorySink]) -> None:
    """Refuse objects that are not history sinks.

    Raises:
        UsageError: An object has no method `append`.
    """
    for sink in sinks:
        if isinstance(sink, type) or not callable(getattr(sink, "append", None)):
            raise UsageError(f"{sink!r} is not a history sink: it has no method append(record).")


def check_token_counter(counter: TokenCounter | None) -> None:
    """Refuse an object that is not a token counter.

    Raises:
        UsageError: It can't be called.
    """
    if counter is not None and not callable(counter):
        raise UsageError(
            f"The token counter is {counter!r}. Give a function that takes a text and returns its tokens."
        )


def system_text(system: SystemText | None, own: str) -> str:
    """The system prompt of a session.

    Raises:
        UsageError: `system` is neither a text nor a function that returns one.
    """
    text = own if system is None else system(own) if callable(system) else system
    if not isinstance(text, str):
        what = "the function for the system prompt returned" if callable(system) else "the system prompt is"
        raise UsageError(f"{what[0].upper()}{what[1:]} {text!r}. It has to be a text.")
    return text
