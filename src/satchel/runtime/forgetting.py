"""Forgetting everywhere: in the store, and in the logs that the words came from (DESIGN 1, promise 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel.errors import NotFound, StorageError
from satchel.events import Final, TurnStart
from satchel.memory import Memory, MemoryRecord, Receipt, receipt_to_json
from satchel.sessions import FORGOTTEN, Redaction, SessionStore, Words

__all__ = ["ForgetReceipt", "forget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReceipt:
    """What was removed where: from the store, and from which records of which logs.

    Attributes:
        backups: Files that may still hold it: Satchel does not change backups; delete them where it matters.
    """

    store: Receipt
    logs: Redaction = field(default_factory=Redaction)
    backups: tuple[Path, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to forget."""
        return not self.store.forgotten

    def to_json(self) -> list[dict[str, Any]]:
        """One object for each memory that is gone, was changed or says the same, for each log, and for each backup."""
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
        stored += [
            {"where": "store", "id": id, "stays": how}
            for how, ids in (
                ("words_replaced", self.store.echoes),
                ("quote_removed", self.store.requoted),
                ("holds_again", self.store.reopened),
                ("still_says_it", self.store.still_said),
            )
            for id in ids
        ]
        backups = [{"where": "backup", "file": str(path), "may_hold": True} for path in self.backups]
        return [*stored, *logs, *backups]


async def forget(
    ids: Sequence[str], *, memory: Memory, sessions: SessionStore, backups: Sequence[Path] = ()
) -> ForgetReceipt:
    """Forget memories by their ids.

    The logs are redacted first: a crash in between leaves the memory in the store, where it can be forgotten again,
    and never words in a log that nothing points to any more. Words that a memory had before it was edited are looked
    for too.

    Raises:
        StorageError: The store did not serve.
    """
    # What rests on these alone goes with them, and its words too.
    planned = await memory.forget(ids, dry_run=True)
    found = await memory.words_said([gone.id for gone in planned.forgotten])
    words = [
        Words(text=text, session=record.source.session, turn=record.source.turn)
        for record, texts in found
        for text in (*texts, *await _as_logged(record, sessions))
        if text.strip()
    ]
    logs = (
        await sessions.redact(words, memory_ids=[record.id for record, _ in found]) if words else Redaction()
    )
    store = await memory.forget(ids)
    return ForgetReceipt(store=store, logs=logs, backups=tuple(backups) if store.forgotten else ())


async def _as_logged(record: MemoryRecord, sessions: SessionStore) -> list[str]:
    """What was said at the place that an episode comes from, as the log has it: with the secrets and private parts that
    memory never kept.
    """
    source = record.source
    if record.kind != "episode" or source.session is None:
        return []
    try:
        log = await sessions.load(source.session)
    except (NotFound, StorageError):
        return []  # deleted, or unreadable: redacting tells of the latter
    texts = []
    for event in (entry.event for entry in log.records):
        match event:
            case TurnStart(turn=turn) if turn == source.turn and source.position in (0, None):
                texts.append(event.message.text)
            case Final(turn=turn, text=text) if turn == source.turn and source.position in (1, None):
                texts.append(text)
            case _:
                pass
    return [text for text in texts if text != FORGOTTEN]
