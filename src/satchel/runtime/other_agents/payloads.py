"""Reads the payloads of other agents' hooks, in their dialects, as one kind of event.

The field that names the event identifies the dialect: `hook_event_name` (Claude Code, Codex, Hermes), `event` (goose
and other Open Plugins), `event_type` (Letta Code).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from satchel.errors import UsageError

Dialect: TypeAlias = Literal["claude-code", "codex", "goose", "hermes", "letta"]
EventName: TypeAlias = Literal["start", "prompt", "stop", "end", "compact", ""]
"""What happens: a session begins, the user says something, the agent has answered, the session ends, the conversation
is about to be compacted; "" is anything else."""

MOST_BYTES: Final = 8 << 20
"""The most bytes of a payload. A prompt with a pasted log has some hundred kilobytes."""
_MOST_TEXT_CHARS: Final = 200_000
_MOST_NAME_CHARS: Final = 200
_MOST_PATH_CHARS: Final = 4_096

_NAMES: Final[Mapping[str, EventName]] = {
    "sessionstart": "start",
    "userpromptsubmit": "prompt",
    "stop": "stop",
    "sessionend": "end",
    "precompact": "compact",
    # Hermes
    "on_session_start": "start",
    "pre_llm_call": "prompt",
    "post_llm_call": "stop",
    "on_session_finalize": "end",
}


class HookEvent(NamedTuple):
    """One event of another agent.

    Attributes:
        dialect: Whose it is.
        raw_name: The agent's name for the event, which the answer repeats.
        session: The agent's own id of the conversation, "" if it gave none.
        answer: What the agent said last, where the payload has it.
        transcript: The file with the conversation, or "".
        source: Why a session begins ("startup", "resume", "clear", "compact", "fork"), or the origin of a prompt.
        is_subagents: Whether it comes from a sub-agent.
    """

    dialect: Dialect
    name: EventName
    raw_name: str
    session: str
    prompt: str = ""
    answer: str = ""
    transcript: str = ""
    cwd: str = ""
    source: str = ""
    is_subagents: bool = False

    @property
    def key(self) -> str:
        """The name of the conversation in memory, as importing the agent's transcripts names it."""
        return f"{self.dialect}:{self.session}"

    @property
    def is_users(self) -> bool:
        """Whether a prompt is the user's own, and not made by the agent's program."""
        return self.source in ("", "user", "sdk")


def read_event(raw: bytes) -> HookEvent:
    """Read a payload.

    Raises:
        UsageError: It is too large, no JSON object, or names no event.
    """
    if len(raw) > MOST_BYTES:
        raise UsageError(f"the payload has more than {MOST_BYTES:,} bytes")
    try:
        found = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise UsageError("the payload is not JSON") from None
    if not isinstance(found, dict):
        raise UsageError("the payload is not a JSON object")
    return _event(found)


def _event(found: Mapping[str, Any]) -> HookEvent:
    field = next((name for name in ("hook_event_name", "event", "event_type") if _name(found, name)), "")
    if not field:
        raise UsageError("the payload names no event (hook_event_name, event or event_type)")
    raw_name = _name(found, field)
    dialect = _dialect(found, field, raw_name)
    more = found.get("extra")
    extra: Mapping[str, Any] = more if isinstance(more, dict) else {}
    return HookEvent(
        dialect=dialect,
        name=_NAMES.get(raw_name.lower().replace("-", "").replace(" ", ""), ""),
        raw_name=raw_name,
        session=_name(found, "session_id") or _name(found, "conversation_id") or _name(extra, "session_id"),
        prompt=_text(found, "prompt") or _text(found, "message") or _text(extra, "user_message"),
        answer=_text(found, "last_assistant_message") or _text(extra, "assistant_response"),
        transcript=_path(found, "transcript_path"),
        cwd=_path(found, "cwd") or _path(found, "working_directory") or _path(found, "working_dir"),
        source=_name(found, "source"),
        is_subagents=bool(_name(found, "agent_id")) and dialect in ("claude-code", "codex"),
    )


def _dialect(found: Mapping[str, Any], field: str, raw_name: str) -> Dialect:
    if field == "event":
        return "goose"
    if field == "event_type":
        return "letta"
    if raw_name.lower() == raw_name and "_" in raw_name:
        return "hermes"
    transcript = _path(found, "transcript_path")
    return "codex" if "turn_id" in found or "/rollout-" in transcript else "claude-code"


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    # Lone surrogates can't be stored.
    return value[:_MOST_TEXT_CHARS].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _name(found: Mapping[str, Any], name: str) -> str:
    return "".join(char for char in _text(found, name)[:_MOST_NAME_CHARS] if char.isprintable())


def _path(found: Mapping[str, Any], name: str) -> str:
    value = _text(found, name)
    return value if len(value) <= _MOST_PATH_CHARS and "\0" not in value else ""
