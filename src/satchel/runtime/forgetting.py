"""Forgetting everywhere: in the store, and in the logs that the words came from (DESIGN 1, promise 3)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from satchel.errors import NotFound
from satchel.memory import Memory, Receipt, receipt_to_json
from satchel.sessions import Redaction, SessionStore, Words

__all__ = ["ForgetReceipt", "forget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReceipt:
    """What was removed where: from the store, and from which records of which logs."""

    store: Receipt
    logs: Redaction = field(default_factory=Redaction)

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to forget."""
        return not self.store.forgotten

    def to_json(self) -> list[dict[str, Any]]:
        """One object for each memory, and one for each log."""
        logs = [
            {
                "where": "session_log",
                "session": entry.session_id,
                "records": list(entry.records),
                "files": [str(path) for path in entry.files],
                "open_in": entry.open_in,
                "error": entry.error,
            }
            for entry in self.logs.sessions
        ]
        stored = [{"where": "store", **entry} for entry in receipt_to_json(self.store)["receipt"]]
        return [*stored, *logs]


async def forget(ids: Sequence[str], *, memory: Memory, sessions: SessionStore) -> ForgetReceipt:
    """Forget memories by their ids.

    The logs are redacted first: a crash in between leaves the memory in the store, where it can be forgotten again,
    and never words in a log that nothing points to any more.

    Raises:
        StorageError: The store did not serve.
    """
    found = []
    for id in ids:
        with suppress(NotFound):
            found.append(await memory.get(id))
    words = [
        Words(text=record.content, session=record.source.session, turn=record.source.turn)
        for record in found
        if record.content.strip()
    ]
    logs = await sessions.redact(words, memory_ids=[record.id for record in found]) if words else Redaction()
    return ForgetReceipt(store=await memory.forget(ids), logs=logs)
