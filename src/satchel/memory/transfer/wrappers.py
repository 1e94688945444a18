"""Text that agents put into the mouth of the user: taken out, so that only what a person said is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

__all__ = ["moment_of", "plain_text", "without_wrappers"]

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
# `[^<]` before the closing tag would stop at any "<"; a lazy match up to the tag's own end is linear here, since
# the opening tags are rare.
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


def without_wrappers(text: str) -> str:
    """What the person said of a message in the user's role; "" where an agent wrote all of it."""
    if text.lstrip().startswith("# Context from my IDE setup"):
        parts = _IDE_REQUEST.split(text, maxsplit=1)
        text = parts[1] if len(parts) == 2 else ""
    if "<" in text:
        text = _BLOCK.sub("", text)
    if " hook " in text or "Stop hook" in text:
        text = _HOOK_LINE.sub("", text)
    return "" if _WHOLE.match(text) else text.strip()


def plain_text(content: object, kinds: Sequence[str] = ("text",)) -> str:
    """The words of a message's content: a string, or those of its blocks that are of these kinds."""
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
    """A time as files write it: ISO 8601, or seconds (or milliseconds) since 1970; None where it is none."""
    try:
        if isinstance(value, str) and value.strip():
            text = value.strip()
            if text.replace(".", "", 1).isdecimal():
                return moment_of(float(text))
            # Years before 1000 and the like come from programs that had no date.
            found = datetime.fromisoformat(text)
            found = found.astimezone() if found.tzinfo is None else found
            return found if found.year > 1 else None
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            seconds = value / 1000 if value > 100_000_000_000 else value
            return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None
