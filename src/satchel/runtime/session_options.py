"""What a session is opened with, checked at once so that a program's mistakes don't show during a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias, get_args

from satchel.config import Mode
from satchel.errors import UsageError
from satchel.loop import Hook
from satchel.loop.tokens import TokenCounter
from satchel.runtime.sinks import HistorySink
from satchel.tools import FunctionOrTool, Toolset

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What only the client that opens a session decides; see `Satchel.session`.

    Raises:
        UsageError: A string instead of a list of rules, whose letters would be rules; or an object that is no hook, no
            history sink or no token counter.
    """

    model: str | None
    mode: Mode | None
    allow: Sequence[str]
    private: bool
    ephemeral: bool
    tools: Sequence[FunctionOrTool | Toolset]
    toolsets: Sequence[Toolset]
    system: SystemText | None
    token_counter: TokenCounter | None
    sinks: Sequence[HistorySink]
    hooks: Sequence[Hook]

    def __post_init__(self) -> None:
        """Check them."""
        if isinstance(self.allow, str):
            raise UsageError(f"`allow` takes a list of rules, such as [{self.allow!r}].")
        methods = [name for kind in get_args(Hook) for name in vars(kind) if name.startswith("on_")]
        for hook in self.hooks:
            if not isinstance(hook, Hook):
                raise UsageError(f"{hook!r} is not a hook: it has none of the methods {', '.join(methods)}.")
        for sink in self.sinks:
            if isinstance(sink, type) or not callable(getattr(sink, "append", None)):
                raise UsageError(f"{sink!r} is not a history sink: it has no method append(record).")
        if self.token_counter is not None and not callable(self.token_counter):
            raise UsageError(
                f"The token counter is {self.token_counter!r}. Give a function that takes a text and returns its "
                "tokens."
            )

    def refuse(self, session_id: str) -> None:
        """A client that joins a session takes it as it is.

        Raises:
            UsageError: Something is given.
        """
        names = [field.name for field in fields(self)]
        if any(getattr(self, name) for name in names):
            raise UsageError(
                f"Session {session_id} is open in this process already. A client that joins it takes it as it is: "
                f"leave out {', '.join(names)}."
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
