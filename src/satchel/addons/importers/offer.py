"""What `satchel.config.plugins` finds of the importers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satchel.memory.transfer.formats import Format


def importers() -> Mapping[str, Format]:
    """The formats by their names. Of several that recognise a line, the first one counts."""
    # Only an import asks.
    from satchel.addons.importers import (  # noqa: PLC0415
        chatgpt,
        claude,
        claude_code,
        codex,
        gemini,
        markdown,
        mcp_graph,
        mem0,
    )
    from satchel.memory.transfer.formats import Format  # noqa: PLC0415

    return {
        "mcp": Format(mcp_graph.read, (".jsonl", ".json"), is_line=mcp_graph.is_own_line),
        "claude-code": Format(
            claude_code.read, (".jsonl",), is_line=claude_code.is_own_line, other_files=("history.jsonl",)
        ),
        "codex": Format(
            codex.read,
            (".jsonl",),
            prefix="rollout-",
            is_line=codex.is_own_line,
            other_files=("history.jsonl", "session_index.jsonl"),
        ),
        "chatgpt": Format(
            chatgpt.read,
            (".json",),
            prefix="conversations",
            is_line=chatgpt.is_conversation,
            is_element=chatgpt.is_conversation,
            is_whole=lambda stream: chatgpt.single_conversation(stream) is not None,
            other_files=(
                "user.json",
                "message_feedback.json",
                "model_comparisons.json",
                "shared_conversations.json",
            ),
        ),
        "claude": Format(
            claude.read,
            (".json",),
            prefix="conversations",
            is_element=claude.is_conversation,
            other_files=("users.json", "projects.json", "memories.json"),
        ),
        "gemini": Format(gemini.read, (".json",), is_element=gemini.is_activity),
        "markdown": Format(markdown.read, (".md", ".markdown")),
        "mem0": Format(
            mem0.read, (".json", ".jsonl", ".ndjson"), is_line=mem0.is_own_line, is_element=mem0.is_memory
        ),
    }
