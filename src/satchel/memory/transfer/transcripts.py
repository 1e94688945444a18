"""What the formats of conversations have in common: numbering turns, and removing text that agents insert into the
user's messages, so that only the user's own words are imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from satchel.memory.transfer.parts import UNDATED, ImportedMemory, LeftOut, said, stable_id

__all__ = ["NO_TEXT", "WRITTEN_BY_PROGRAM", "TurnNumbering", "moment_of", "plain_text", "without_wrappers"]

NO_TEXT = "no text of a person or a model in it"
WRITTEN_BY_PROGRAM = "written by the agent's own program"
"""Reasons why messages are left out."""

_TAGS = (
    # Claude Code
    "system-reminder|user-prompt-submit-hook|session-start-hook|local-command-caveat|local-command-stdout"
    "|local-command-stderr|bash-input|bash-stdout|bash-stderr|command-name|command-message|command-args"
    "|task-notification|ide_opened_file|ide_selection|ide_diagnostics|new-diagnostics|available-deferred-tools"
    "|teammate-message|tick|persisted-output|tool_use_error"
    # Codex
    "|environment_context|user_instructions|permissions instructions|apps_instructions|skills_instructions"
    "|plugins_instructions|recommended_plugins|collaboration_mode|personality_spec|token_budget|model_switch"
    "|realtime_conversation|user_shell_command|turn_aborted|subagent_notification|codex_internal_context"
    "|goal_context|hook_prompt|skill|INSTRUCTIONS"
)
# A lazy match up to the closing tag, which may contain "<". It is linear because opening tags are rare.
_BLOCK = re.compile(rf"[ \t]*<({_TAGS})(?:\s[^<>]{{0,500}})?>.*?(?:</\1>|\Z)[ \t]*\n?", re.DOTALL)
_HOOK_LINE = re.compile(
    r"^[ \t]*(?:UserPromptSubmit|SessionStart|Stop|PreToolUse|PostToolUse|Notification|SubagentStop|PreCompact)"
    r"(?::\w+)? hook (?:additional context|success|feedback|error|blocking error)\b.*\Z",
    re.DOTALL | re.MULTILINE,
)
_WHOLE = re.compile(
    r"\s*(?:\[Request interrupted|This session is being continued from a previous conversation"
    r"|Caveat: The messages below|Base directory for this skill:"
    r"|# AGENTS\.md instructions|# CLAUDE\.md instructions|Stop hook feedback:"
    r"|Another language model started to solve this problem|Warning: The maximum number of unified exec"
    r"|The following is the Codex agent history|Another Claude session sent a message)",
)
_IDE_REQUEST = re.compile(r"^## My request for Codex:[ \t]*\n", re.MULTILINE)


@dataclass(slots=True)
class TurnNumbering:
    """Numbers the messages of one conversation. Each message of the user begins a turn, at position 0."""

    session: str
    turn: int = 0
    position: int = 0

    def episode(
        self,
        text: str,
        *,
        role: str,
        at: datetime | None,
        modified_at: datetime,
        where: str,
        names: Sequence[object] = (),
    ) -> ImportedMemory | LeftOut:
        """The next message as an episode; one without text is left out.

        Args:
            text: What was said.
            role: "user" or "assistant".
            at: When it was said; None if the file doesn't say it.
            modified_at: The date of the file, which is used in that case.
            where: See `LeftOut`.
            names: What the id is derived from; without names, the session, the turn and the position.
        """
        if not text.strip():
            return LeftOut(reason=NO_TEXT, where=where, expected=True)
        if role == "user":
            self.turn, self.position = self.turn + 1, 0
        else:
            self.turn, self.position = max(self.turn, 1), self.position + 1
        return said(
            stable_id(*(names or (self.session, self.turn, self.position))),
            text,
            speaker=role,
            at=at or modified_at,
            session=self.session,
            turn=self.turn,
            position=self.position,
            trust="user" if role == "user" else "agent",
            tags=() if at else (UNDATED,),
        )


def without_wrappers(text: str) -> str:
    """The user's own words in a message with the role "user"; "" if an agent wrote all of it."""
    if text.lstrip().startswith("# Context from my IDE setup"):
        parts = _IDE_REQUEST.split(text, maxsplit=1)
        text = parts[1] if len(parts) == 2 else ""
    if "<" in text:
        text = _BLOCK.sub("", text)
    if " hook " in text or "Stop hook" in text:
        text = _HOOK_LINE.sub("", text)
    return "" if _WHOLE.match(text) else text.strip()


def plain_text(content: object, kinds: Sequence[str] = ("text",)) -> str:
    """The text of a message's content, which is a string or a list of blocks; `kinds` are the types of text blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        block["text"]
        for block in content
        if isinstance(block, Mapping) and block.get("type") in kinds and isinstance(block.get("text"), str)
    )


def moment_of(value: Any) -> datetime | None:
    """Parse a time: ISO 8601, or seconds or milliseconds since 1970, as a number or a string; None if it isn't one."""
    try:
        if isinstance(value, str) and value.strip():
            text = value.strip()
            if text.replace(".", "", 1).isdecimal():
                return moment_of(float(text))
            # Programs without a date write the year 1.
            found = datetime.fromisoformat(text)
            found = found.astimezone() if found.tzinfo is None else found
            return found if found.year > 1 else None
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            seconds = value / 1000 if value > 100_000_000_000 else value
            return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None
