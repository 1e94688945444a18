"""Forgets memories everywhere: in the store and in the logs that their words came from (DESIGN 1, promise 3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from satchel.errors import NotFound, StorageError
from satchel.memory import Memory, MemoryRecord, Receipt, receipt_to_json
from satchel.memory.records import PICTURE
from satchel.messages import FileBlock
from satchel.runtime.documents import kept_document, remove_kept
from satchel.runtime.pictures import files_of_picture
from satchel.sessions import FORGOTTEN, Redacted, Redaction, SessionStore, Words, live_redactor
from satchel.sessions.view import LastWords, SessionTurn, ToolCall
from satchel.tools.kept import kept_path

_MOST_PICTURES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReceipt:
    """What was removed from the store, and from which records of which logs.

    Attributes:
        backups: Files that may still contain it. Satchel does not change backups; the user has to delete them.
    """

    store: Receipt
    logs: Redaction = field(default_factory=Redaction)
    backups: tuple[Path, ...] = ()

    def with_more(self, later: ForgetReceipt) -> ForgetReceipt:
        """Both as one, where memories of several scopes were forgotten."""
        one, other = self.store, later.store
        return ForgetReceipt(
            store=replace(
                one,
                forgotten=(*one.forgotten, *other.forgotten),
                missing=(*one.missing, *other.missing),
                log_emptied=one.log_emptied and other.log_emptied,
                echoes=(*one.echoes, *other.echoes),
                still_said=(*one.still_said, *other.still_said),
                requoted=(*one.requoted, *other.requoted),
                reopened=(*one.reopened, *other.reopened),
            ),
            logs=self.logs.with_more(later.logs),
            backups=self.backups or later.backups,
        )

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
    ids: Sequence[str],
    *,
    memory: Memory,
    sessions: SessionStore,
    home: Path,
    others: Sequence[Memory] = (),
    backups: Sequence[Path] = (),
    on_words: Callable[[Sequence[Words], Sequence[str]], None] = lambda *_: None,
    told: Sequence[str] = (),
    also: Callable[[Sequence[Words]], Awaitable[None]] | None = None,
    project: str | None = None,
) -> ForgetReceipt:
    """Forget memories by their ids.

    The logs are redacted first. After a crash in between, the memory is still in the store and can be forgotten again;
    in the other order, words could remain in a log with no memory that leads to them. Words that a memory had before it
    was edited are removed too.

    Args:
        ids: The memories.
        memory: Where they are.
        sessions: Whose logs may hold their words.
        others: The user's memories in other scopes: a model that was shown these may have repeated them there.
        home: Where the documents are that clients sent: one goes with the first of its passages.
        backups: Files that may hold them too.
        on_words: Called with the words and the ids of all that goes, before the logs are redacted, so that nobody
            writes the words again.
        told: The sessions in which what memory knows was told again, such as those of builds.
        also: Removes the words from other places, before the memories go.
        project: The project that is being deleted with them: branches that were moved out of it keep the words.

    Raises:
        StorageError: The store failed.
    """
    ids = [*ids, *await pictures_with(ids, memory)]
    # Memories that were derived from these alone are forgotten too, with their words.
    planned = await memory.forget(ids, dry_run=True)
    found = await memory.words_said([gone.id for gone in planned.forgotten])
    words = [
        Words(text=text, session=place, turn=record.source.turn)
        for record, texts in found
        for said in [[text for text in (*texts, *await _as_logged(record, sessions)) if text.strip()]]
        for place in await _places(record, sessions, project)
        for text in said
    ]
    if words:
        on_words(words, [record.id for record, _ in found])
    gone = [record.id for record, _ in found]
    attached = [path for record, _ in found for path in await _attached_to(record, sessions, project)]
    tags = {tag for record, _ in found for tag in record.tags if tag.startswith(f"{PICTURE}:")}
    for tag in tags:  # also where a search showed it, unless another scope has the picture, too
        stays = any([await other.count(tags=[tag]) for other in others])
        for session in {record.source.session for record, _ in found} - {None} if stays else {""}:
            attached += await files_of_picture(sessions, tag.partition(":")[2], session=session or "")
    logs = await sessions.redact(words, memory_ids=gone, told=told) if words else Redaction()
    # What an imported conversation has in common with the memory's own, its branches have, too.
    named = {one.session for one in words}
    branches = [
        Words(text=text, session=branch, turn=turn)
        for entry in logs.sessions
        for turn in entry.turns
        for branch in await sessions.repeating(entry.session_id, turn, project=project)
        if branch not in named
        for text in {one.text for one in words}
    ]
    if branches:
        logs = logs.with_more(await sessions.redact(branches, memory_ids=gone, told=told))
    messages = {record.id for record, _ in found if _is_message(record)}
    for entry in logs.sessions if messages else ():
        if entry.session_id not in named:
            for turn in await _turns_of(messages, entry, sessions):
                repeating = await sessions.repeating(entry.session_id, turn, project=project)
                attached += await _attached_at(turn, [entry.session_id, *repeating], sessions)
    await sessions.remove_files(attached)
    sent = {record.source.document for record, _ in found if kept_document(home, record.source.document)}
    # Another scope may have the same file.
    elsewhere = {one.path for other in (others if sent else ()) for one in await other.documents()}
    for document in sent - elsewhere:
        await anyio.to_thread.run_sync(remove_kept, home / document)
    if words and also is not None:
        await also(words)
    store = await memory.forget(ids, shown_in=[entry.session_id for entry in logs.sessions])
    if words:
        # Until then, a running session could still find the memories, and log them after its log had been redacted.
        logs = logs.with_more(await sessions.redact(words, memory_ids=gone, told=told, only_open=True))
    receipt = ForgetReceipt(store=store, logs=logs, backups=tuple(backups) if store.forgotten else ())
    for other in others:
        if echoes := await _echoes(other, words, logs):
            receipt = receipt.with_more(ForgetReceipt(store=await other.forget(echoes)))
    return receipt


async def _echoes(memory: Memory, words: Sequence[Words], logs: Redaction) -> list[str]:
    """What agents said in the sessions of these logs that repeats the words: there it goes whole."""
    redacted = live_redactor([Words(text=text) for text in sorted({one.text for one in words})])
    return [
        record.id
        for entry in logs.sessions
        for record in await memory.list(session=entry.session_id, limit=await memory.count() or 1)
        if record.trust == "agent" and redacted(entry.session_id, record.content, True) != record.content
    ]


async def pictures_with(ids: Sequence[str], memory: Memory) -> list[str]:
    """What is remembered of the pictures that came with messages, and of the same pictures elsewhere."""
    found: dict[str, MemoryRecord] = {}
    for record, _ in await memory.words_said(ids):
        source = record.source
        if record.kind == "episode" and source.session is not None and source.position in (0, None):
            there = await memory.list(session=source.session, tags=[PICTURE], limit=_MOST_PICTURES)
            found.update({one.id: one for one in there if one.source.turn == source.turn})
        elif PICTURE in record.tags:
            found[record.id] = record
    hashes = {tag for one in found.values() for tag in one.tags if tag.startswith(f"{PICTURE}:")}
    for tag in hashes:
        found.update({one.id: one for one in await memory.list(tags=[tag], limit=_MOST_PICTURES)})
    return [id for id in found if id not in ids]


async def _places(record: MemoryRecord, sessions: SessionStore, project: str | None) -> list[str | None]:
    """The session in which it was said, and the branches that repeat that, in a project or in all; None if it was said
    in none.
    """
    source = record.source
    if source.session is None:
        return [None]
    return [source.session, *await sessions.repeating(source.session, source.turn, project=project)]


async def _attached_to(record: MemoryRecord, sessions: SessionStore, project: str | None) -> list[Path]:
    """The files that the user attached to the message that an episode is, and those that tools returned for it."""
    if not _is_message(record):
        return []
    return await _attached_at(record.source.turn, await _places(record, sessions, project), sessions)


def _is_message(record: MemoryRecord) -> bool:
    source = record.source
    return record.kind == "episode" and source.session is not None and source.position in (0, None)


async def _turns_of(ids: Set[str], entry: Redacted, sessions: SessionStore) -> list[int]:
    """The turns of a redacted session that were captured as one of these memories, though another is their source."""
    found: list[int] = []

    def visit(turn: SessionTurn) -> None:
        if turn.number in entry.turns and not ids.isdisjoint(turn.captured or ()):
            found.append(turn.number)

    if entry.turns:
        await sessions.read_turns(entry.session_id, visit)
    return found


async def _attached_at(
    number: int | None, places: Sequence[str | None], sessions: SessionStore
) -> list[Path]:
    """The files of a turn, in each of the sessions that have it."""
    found: list[FileBlock] = []

    def visit(turn: SessionTurn) -> None:
        if turn.number == number and turn.start is not None:
            found.extend(turn.start.message.files)
            for call in turn.of(ToolCall):
                found.extend(call.result.files if call.result is not None else ())

    paths: list[Path] = []
    for place in places:
        with suppress(NotFound, StorageError):  # as in `_as_logged`
            found.clear()
            path = (await sessions.info(place or "")).path
            await sessions.read_turns(place or "", visit)
            paths += [kept_path(path.with_suffix(".spill"), each) for file in found for each in file.kept]
    return paths


async def _as_logged(record: MemoryRecord, sessions: SessionStore) -> list[str]:
    """The text that an episode was made from, as it is in the log: it may contain what memory left out, such as a
    secret.
    """
    source = record.source
    if record.kind != "episode" or source.session is None:
        return []
    texts: list[str] = []

    def visit(turn: SessionTurn) -> None:
        if turn.number == source.turn and source.position in (0, None):
            texts.append(turn.said)
        if turn.number == source.turn and source.position in (1, None):
            # Of what was imported, memory has the very words, of each message.
            elsewhere = (source.session or "").partition(":")[0]
            mine = [closing for closing in turn.of(LastWords) if closing.provider != elsewhere]
            texts.extend(closing.final.text for closing in mine)

    with suppress(NotFound, StorageError):  # deleted, or unreadable, which redacting reports
        await sessions.read_turns(source.session, visit)
    return [text for text in texts if text != FORGOTTEN]
