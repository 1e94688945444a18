"""Removes the text that agents insert into the user's messages, so that only the user's own words are remembered."""

from __future__ import annotations

import re

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
