"""The system prompt of a session, and the check that requests keep the prefix that providers cache."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from satchel.messages import Message, clean_text, size_of_text
from satchel.models.port import ModelRequest
from satchel.wording import cut_text

_MOST_INSTRUCTIONS = 40_000
"""Characters of one instruction file; a note names the rest, which can be read with a tool. About 10,000 tokens, a
twentieth of a usual window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """Instructions that the user wrote for every conversation, such as the `AGENTS.md` of a trusted project.

    Attributes:
        source: Where they come from, as the model sees it.
    """

    source: str
    text: str


@cache
def _part(name: str) -> str:
    return files("satchel.loop").joinpath(f"prompts/{name}.md").read_text(encoding="utf-8").strip()


def build_system(
    *,
    cwd: str,
    remembers: bool = True,
    capabilities: Sequence[str] = (),
    skills: Sequence[str] = (),
    servers: str = "",
    instructions: Sequence[Instructions] = (),
    most_added: int = sys.maxsize,
) -> str:
    """Build the system prompt. The same arguments give the same bytes.

    Call it once when a session opens and keep the result: if its bytes change while the session is open, the provider
    has to read the whole conversation again.

    Args:
        cwd: The session's working directory.
        remembers: Whether memory is on in this session.
        capabilities: What the agent can do beyond its tools, one line each, in a fixed order.
        skills: Skills that others wrote, one line each: a name and a quoted description.
        servers: What MCP servers say about the use of their tools, quoted and marked as theirs.
        instructions: The most general first.
        most_added: Bytes of what is added to the fixed texts; the instructions have room first.
    """
    own, left = _instructed(instructions, most_added)
    parts = [_part("system")]
    if remembers:
        parts.append(_part("memory"))
    if capabilities:
        lines, left = _fitted("\n".join(f"- {line}" for line in capabilities), left)
        parts.append(f"# Capabilities\n\n{lines}")
    if skills:
        lines, left = _fitted("\n".join(f"- {line}" for line in skills), left)
        parts.append("\n\n".join([_part("skills"), lines]))
    parts.append(f"# Here and now\n\nWorking directory: {cwd}")
    if servers:
        parts.append(_fitted(servers, left)[0])
    return _ended([*parts, *own])


def build_sub_agent_system(
    *, cwd: str, instructions: Sequence[Instructions] = (), most_added: int = sys.maxsize
) -> str:
    """Build the system prompt of a session's sub-agents; the arguments as in `build_system`."""
    own, _ = _instructed(instructions, most_added)
    return _ended([_part("sub_agent"), f"# Here and now\n\nWorking directory: {cwd}", *own])


def _instructed(instructions: Sequence[Instructions], left: int) -> tuple[list[str], int]:
    """The user's instructions as parts of the system text, and the bytes that are left for the others."""
    parts = []
    for item in instructions:
        text, left = _fitted(
            item.text.strip(), left, most=_MOST_INSTRUCTIONS, what=f"more characters in {item.source}"
        )
        if text:
            parts.append(f"# Instructions of the user, from {item.source}\n\n{text}")
    return parts, left


def _fitted(
    text: str, left: int, *, most: int = sys.maxsize, what: str = "more characters"
) -> tuple[str, int]:
    """A text cut to so many bytes, and to `most` characters, and the bytes that are left. A character of other scripts
    has up to four bytes, and takes about as much more of the window.
    """
    if size_of_text(text) > left:
        most = min(most, len(text.encode("utf-8", "surrogatepass")[:left].decode("utf-8", "ignore")))
    text = cut_text(text, most, what=what)
    return text, max(0, left - size_of_text(text))


def _ended(parts: Sequence[str]) -> str:
    return clean_text("\n\n".join(parts) + "\n")


class PrefixWatch:
    """Detects a request that does not begin with the bytes of the one before it, and says why.

    Providers cache a conversation by its prefix: a request that changes what was sent before is read, and paid for, in
    full. Within a session only a compaction should do that.
    """

    def __init__(self) -> None:
        self._last: ModelRequest | None = None

    def restart(self) -> None:
        """Accept any next request, because the history was compacted."""
        self._last = None

    def check(self, request: ModelRequest) -> str:
        """Compare with the previous request; return the cause in a sentence, or "" if the prefix is unchanged.

        The cost of a round does not grow with the history.
        """
        last, self._last = self._last, request
        if last is None:
            return ""
        if request.system != last.system:
            return "The system text changed."
        if request.tools is not last.tools and tuple(request.tools) != tuple(last.tools):
            return _tools_changed([t.name for t in last.tools], [t.name for t in request.tools])
        if len(request.messages) < len(last.messages):
            return f"The history became shorter: {len(last.messages)} messages before, {len(request.messages)} now."
        before, now = last.messages, request.messages
        # A conversation only grows at its end, and a compaction replaces its beginning: where both ends are the same
        # objects, so is all between them.
        if not before or (now[0] is before[0] and now[len(before) - 1] is before[-1]):
            return ""
        for number, (old, new) in enumerate(zip(before, now, strict=False), start=1):
            if old == new:
                continue
            # The user's message may grow at its end until it is answered.
            if number == len(before) and _grew(old, new):
                continue
            return f"Message {number} of {len(before)} changed after it was sent."
        return ""


def _grew(old: Message, new: Message) -> bool:
    return old.role == new.role and new.blocks[: len(old.blocks)] == old.blocks


def _tools_changed(before: Sequence[str], now: Sequence[str]) -> str:
    new = [name for name in now if name not in before]
    gone = [name for name in before if name not in now]
    parts = [f"new: {', '.join(new)}"] if new else []
    parts += [f"removed: {', '.join(gone)}"] if gone else []
    return f"The tools changed ({'; '.join(parts) or 'their order or their definitions'})."
