"""Forgetting words: a log is rewritten without them, whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import html
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satchel.sessions.journal import sync_folder, unwritable
from satchel.sessions.log import read_lines

__all__ = ["FORGOTTEN", "Redacted", "Redaction", "Words", "half_rewritten", "inbox_redactor", "redact_log"]

FORGOTTEN = "[forgotten]"
_LONG = 12
"""Characters from which on the same words are a quotation and not a coincidence."""
_TELLING = 4
"""Characters from which on words that were cut off where the middle of a long text was left out are taken for those."""
_LEFT_OUT = re.compile(r"\s*\[… [^\]]* …\]\s*")
"""What stands where the middle of a long text was left out."""
_BUFFER = 1 << 20

_STRUCTURE = frozenset(
    ("seq", "at", "type", "role", "origin", "stop_reason", "status", "decision", "by", "trigger", "answers")
    + ("session_id", "call_id", "tool_use_id", "id", "ids", "tool", "name", "session", "spill")
    + ("provider", "model", "version", "signature")
)
"""Fields that hold names and ids, never words that were said; below a tool's `input` they are the tool's
own.
"""
_FREE = frozenset(("input", "data"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Words to be forgotten.

    Attributes:
        text: Exactly these; white space may be of any kind and length, and JSON and HTML escapes count as the
        same.
        session: Only in this session, and where its words were surfaced as memory elsewhere; None:
        everywhere.
        turn: Only in this turn of that session, and where it is carried on: in compactions and surfaced
        memory.
    """

    text: str
    session: str | None = None
    turn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """What was changed in one session.

    Attributes:
        records: The numbers of the records that held the words.
        files: Spilled results that held them.
        open_in: The process that has the session open and may still hold the words in memory, or None.
        error: Why it could not be done, or "".
    """

    session_id: str
    records: tuple[int, ...] = ()
    files: tuple[Path, ...] = ()
    open_in: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What a redaction changed, one entry for each session that held the words."""

    sessions: tuple[Redacted, ...] = ()

    @property
    def errors(self) -> tuple[str, ...]:
        """What could not be done."""
        return tuple(entry.error for entry in self.sessions if entry.error)


class _Wanted:
    """What is looked for: some texts, however they were escaped, and what was cut off of them."""

    def __init__(self, texts: Collection[str]) -> None:
        self._texts = texts
        self._pattern = _pattern(texts)

    def subn(self, text: str) -> tuple[str, int]:
        """The text with FORGOTTEN for each place that holds the words, and how many those were."""
        text, count = self._pattern.subn(FORGOTTEN, text)
        if "[…" in text:
            for found in reversed(list(_LEFT_OUT.finditer(text))):
                before, after = text[: found.start()], text[found.end() :]
                ends = max((_overlap(before, words) for words in self._texts), default=0)
                begins = max((_overlap(after[::-1], words[::-1]) for words in self._texts), default=0)
                if ends:
                    before = before[: len(before) - ends] + FORGOTTEN
                if begins:
                    after = FORGOTTEN + after[begins:]
                text = before + found.group() + after
                count += bool(ends) + bool(begins)
        return text, count


def _overlap(text: str, words: str) -> int:
    """How many characters at the text's end are the words' beginning; 0 where that says nothing."""
    at = text.find(words[:_TELLING], max(0, len(text) - len(words)))
    while at >= 0:
        if words.startswith(text[at:]):
            return len(text) - at
        at = text.find(words[:_TELLING], at + 1)
    return 0


def _pattern(texts: Iterable[str]) -> re.Pattern[str]:
    """Matches each of the texts, however it was escaped."""
    forms: set[str] = set()
    for text in texts:
        for form in (text.strip(), html.escape(text.strip()), html.escape(text.strip(), quote=False)):
            forms.add(form)
            for ascii_only in (True, False):
                once = json.dumps(form, ensure_ascii=ascii_only)[1:-1]
                forms.update((once, json.dumps(once, ensure_ascii=ascii_only)[1:-1]))
    space = r"(?:\s|\\+[nrt])+"
    # The longest first, so that no shorter form leaves the rest of a longer one standing.
    parts = [
        space.join(re.escape(word) for word in re.split(r"(?:\s|\\+[nrt])+", form))
        for form in sorted(forms, key=len, reverse=True)
    ]
    return re.compile("|".join(parts))


def _replace(value: Any, wanted: _Wanted) -> tuple[Any, bool]:
    """The JSON value without the words, and whether it held them. It is changed in place; no recursion, for
    its depth
    is whatever a tool was called with.
    """
    root = [value]
    stack: list[tuple[Any, bool]] = [(root, False)]
    found = False
    while stack:
        holder, is_free = stack.pop()
        items = list(holder.items() if isinstance(holder, dict) else enumerate(holder))
        changed_here = False
        for key, item in items:
            if isinstance(holder, dict) and not is_free and key in _STRUCTURE and not isinstance(item, dict):
                continue
            if isinstance(item, str):
                text, count = wanted.subn(item)
                if count:
                    holder[key] = text
                    changed_here = True
            elif isinstance(item, (dict, list)):
                stack.append((item, is_free or key in _FREE))
        if is_free and isinstance(holder, dict):
            names = {key: wanted.subn(key)[0] for key in holder}
            if any(key != name for key, name in names.items()):
                entries = [(names[key], item) for key, item in holder.items()]
                holder.clear()
                holder.update(entries)
                changed_here = True
        if changed_here and isinstance(holder, dict) and holder.get("type") == "thinking":
            # The proof is over the words that are gone; a provider would refuse the block.
            holder.pop("signature", None)
        found = found or changed_here
    return root[0], found


class _Scope:
    """Which of the words count in the line that is being read."""

    def __init__(self, session_id: str, words: Sequence[Words], memory_ids: Collection[str]) -> None:
        self._session_id = session_id
        self._words = words
        self._ids = re.compile("|".join(re.escape(id) for id in memory_ids)) if memory_ids else None
        self._turn: int | None = None
        # Long words that were said in this session are a quotation wherever they stand in it.
        self._everywhere = {
            w.text
            for w in words
            if w.session is None or (w.session == session_id and (w.turn is None or len(w.text) >= _LONG))
        }
        self._carried = {w.text for w in words if w.session == session_id}
        self._wanted: dict[frozenset[str], _Wanted | None] = {}

    def wanted(self, value: Any, raw: bytes) -> _Wanted | None:
        """What to look for in a line's value; for a line that can't be read: everything that may stand in it."""
        texts = set(self._everywhere)
        kind = value.get("type") if isinstance(value, dict) else None
        if kind is None or kind == "compaction":
            texts |= self._carried
        else:
            if kind == "turn_start":
                self._turn = value.get("turn")
            turn = value.get("turn", self._turn)
            texts.update(w.text for w in self._words if w.session == self._session_id and w.turn == turn)
            texts |= self._brought(value, raw)
        key = frozenset(texts)
        if key not in self._wanted:
            telling = [stripped for text in key if (stripped := text.strip())]
            self._wanted[key] = _Wanted(telling) if telling else None
        return self._wanted[key]

    def _brought(self, value: dict[str, Any], raw: bytes) -> set[str]:
        """The words that this line brings into the session, as surfaced memory or as what a memory tool
        found.
        """
        texts: set[str] = set()
        if self._ids is not None and self._ids.search(raw.decode("utf-8", "replace")):
            texts.update(w.text for w in self._words)
        for memory in value.get("memories") or () if value.get("type") == "memory_surfaced" else ():
            if not isinstance(memory, dict):
                continue
            if self._ids is not None and self._ids.fullmatch(str(memory.get("id"))):
                texts.add(str(memory.get("content", "")))
            texts.update(
                w.text
                for w in self._words
                if w.session is not None
                and w.session == memory.get("session")
                and w.turn in (None, memory.get("source_turn"))
            )
        # From here on the session may carry them: a compaction anything, an answer what is long enough to be
        # a quotation.
        self._carried |= texts
        self._everywhere.update(text for text in texts if len(text) >= _LONG)
        return texts


def inbox_redactor(words: Sequence[Words]) -> Callable[[str, str], str]:
    """A function that takes the words out of the text of an inbox entry; it gets the session's id and the text.

    An entry belongs to no turn, so all words of its session are looked for.
    """

    def redact(session_id: str, text: str) -> str:
        wanted = _Scope(session_id, words, ()).wanted(None, b"")
        return wanted.subn(text)[0] if wanted is not None else text

    return redact


def half_rewritten(path: Path) -> Path:
    """Where a log's new words are until they are whole; what an interrupted call left there, the next one replaces."""
    return path.with_suffix(".rewriting")


def redact_log(
    path: Path,
    session_id: str,
    *,
    words: Sequence[Words],
    memory_ids: Collection[str],
    home: Path,
) -> Redacted | None:
    """Rewrite one log, and the results that were spilled from it, without the words. Blocking.

    The new file replaces the old in one step; a writer of this or another process notices and goes on in the
    new one.

    Args:
        path: The log.
        session_id: Its session.
        words: What to forget.
        memory_ids: What was surfaced under these ids is forgotten too.
        home: Spilled results are rewritten only below this folder, whatever the log says.

    Returns:
        What was changed, or None where nothing was.

    Raises:
        StorageUnwritable, StorageError: It can't be read or rewritten; the log is as it was.
    """
    scope = _Scope(session_id, words, memory_ids)
    temporary = half_rewritten(path)
    changed: list[int] = []
    spilled: dict[Path, _Wanted] = {}
    try:
        with _locked(path) as source_mode, temporary.open("wb", buffering=_BUFFER) as out:
            os.fchmod(out.fileno(), source_mode)
            for line in read_lines(path):
                raw = line.raw if line.raw.endswith(b"\n") else line.raw + b"\n"
                if not line.is_whole:
                    break
                try:
                    value = json.loads(raw)
                except (ValueError, RecursionError):
                    value = None
                wanted = scope.wanted(value, raw)
                if wanted is not None:
                    new = _rewrite_line(raw, value, wanted)
                    if new != raw:
                        changed.append(line.record.seq if line.record is not None else line.number)
                        raw = new
                    spill = value.get("spill") if isinstance(value, dict) else None
                    if isinstance(spill, str) and spill:
                        spilled[Path(spill)] = wanted
                out.write(raw)
            if changed:
                out.flush()
                os.fsync(out.fileno())
                temporary.replace(path)
                sync_folder(path.parent)
        files = [file for file, wanted in spilled.items() if _redact_file(file, wanted, home)]
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    if not changed and not files:
        return None
    return Redacted(session_id=session_id, records=tuple(changed), files=tuple(files))


def _rewrite_line(raw: bytes, value: Any, wanted: _Wanted) -> bytes:
    if not isinstance(value, dict):
        # Broken or foreign: the words may stand in it all the same.
        text = raw.decode("utf-8", "surrogateescape")
        return wanted.subn(text)[0].encode("utf-8", "surrogateescape")
    value, found = _replace(value, wanted)
    if not found:
        return raw
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Keep writers out of a log while it is rewritten; gives its mode bits."""
    while True:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            # A writer holds it for the time of one write.
            fcntl.flock(fd, fcntl.LOCK_EX)
            here, there = os.fstat(fd), path.stat(follow_symlinks=False)
            if (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev):
                yield here.st_mode & 0o777
                return
        finally:
            os.close(fd)


def _redact_file(file: Path, wanted: _Wanted, home: Path) -> bool:
    """Rewrite a spilled result; whether it held the words. What is not a plain file below `home` is left
    alone.
    """
    try:
        real = file.resolve(strict=True)
    except (OSError, ValueError):
        return False
    if not real.is_file() or not real.is_relative_to(home.resolve()):
        return False
    # surrogateescape: whatever bytes a tool gave are written back as they were.
    text = real.read_bytes().decode("utf-8", "surrogateescape")
    new, count = wanted.subn(text)
    if not count:
        return False
    temporary = real.with_name(f".{real.name}.rewriting")
    try:
        with temporary.open("wb") as out:
            os.fchmod(out.fileno(), 0o600)
            out.write(new.encode("utf-8", "surrogateescape"))
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(real)
    finally:
        temporary.unlink(missing_ok=True)
    return True
