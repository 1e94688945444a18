"""Forgetting words: a log is rewritten without them, in one step or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import html
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from satchel.sessions.journal import sync_folder, unwritable
from satchel.sessions.log import read_lines
from satchel.sessions.rewriting import FORGOTTEN
from satchel.spacing import Spaced, single_spaced

__all__ = [
    "Matchers",
    "Redacted",
    "Redaction",
    "Words",
    "inbox_redactor",
    "live_redactor",
    "redact_log",
    "rewriting_path",
]

_QUOTE_CHARS = 12
"""From this many characters on, the same words elsewhere in a session are a quotation and not a coincidence."""
_MIN_OVERLAP = 4
"""Where a long text was cut, this many characters at the cut are enough to recognise the words."""
_LONG_CHARS = 2_000
"""Longer forms are not made into an expression, which takes 1 ms for 100 characters of all forms."""
_GAP = re.compile(r"(?:\s|\\+[nrt])+")
"""White space, also where it is escaped."""
_OMISSION = re.compile(r"\s*\[… [^\]]* …\]\s*")
"""What replaces the middle of a long text."""
_BUFFER = 1 << 20

_STRUCTURE = frozenset(
    ("seq", "at", "type", "role", "origin", "stop_reason", "status", "decision", "by", "trigger", "answers")
    + ("session_id", "call_id", "tool_use_id", "id", "ids", "inbox", "tool", "name", "session", "spill")
    + ("provider", "model", "version", "signature", "tokenizer", "kind", "consent")
    + ("standing", "day")
)
"""Fields that hold names, ids and fixed values, never words that were said. Below the fields in `_FREE`, the names
belong to a tool and mean nothing here."""
_FREE = frozenset(("input", "data"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Words to be forgotten.

    Attributes:
        text: The exact words, except that white space may differ and characters may be escaped for JSON or HTML.
        session: Only in this session, and where its words were surfaced as memory elsewhere. None means everywhere.
        turn: Only in this turn of that session, and where compactions and surfaced memories repeat it.
    """

    text: str
    session: str | None = None
    turn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """What a redaction changed in one session.

    Attributes:
        records: The numbers of the records that contained the words.
        files: The spilled results that contained them.
        open_in: The id of the process that has the session open and may still have the words in memory, or None.
        error: Why the log could not be rewritten, or "".
    """

    session_id: str
    records: tuple[int, ...] = ()
    files: tuple[Path, ...] = ()
    open_in: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What a redaction changed: one entry for each session that contained the words."""

    sessions: tuple[Redacted, ...] = ()

    def with_more(self, later: Redaction) -> Redaction:
        """Both, with one entry for each session."""
        entries = {entry.session_id: entry for entry in self.sessions}
        for entry in later.sessions:
            before = entries.get(entry.session_id, entry)
            records = tuple(sorted({*before.records, *entry.records}))
            files = tuple(dict.fromkeys((*before.files, *entry.files)))
            entries[entry.session_id] = replace(entry, records=records, files=files)
        return Redaction(sessions=tuple(entries.values()))

    @property
    def errors(self) -> tuple[str, ...]:
        """Why some logs could not be rewritten."""
        return tuple(entry.error for entry in self.sessions if entry.error)


class _Matcher:
    """Finds texts, however they are escaped, and also where a part of them was cut off."""

    def __init__(self, texts: Collection[str]) -> None:
        self._texts = texts
        forms = {form for text in texts for form in _forms(text.strip())}
        # The longest first, so that a shorter form does not leave the rest of a longer one.
        self._long = sorted(
            {form.strip() for form in forms if len(form) > _LONG_CHARS}, key=len, reverse=True
        )
        short = sorted((form for form in forms if len(form) <= _LONG_CHARS), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_expression, short))) if short else None

    def subn(self, text: str) -> tuple[str, int]:
        """The text with each occurrence replaced by `FORGOTTEN`, and the number of occurrences."""
        count = 0
        for form in self._long:
            spans = Spaced(text, _GAP).spans(form) if len(text) >= len(form) else []
            for start, end in reversed(spans):
                text = text[:start] + FORGOTTEN + text[end:]
            count += len(spans)
        if self._pattern is not None:
            text, replaced = self._pattern.subn(FORGOTTEN, text)
            count += replaced
        if "[…" in text:
            for found in reversed(list(_OMISSION.finditer(text))):
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
    """How many characters at the end of `text` are the beginning of `words`; 0 where they are too few to tell."""
    at = text.find(words[:_MIN_OVERLAP], max(0, len(text) - len(words)))
    while at >= 0:
        if words.startswith(text[at:]):
            return len(text) - at
        at = text.find(words[:_MIN_OVERLAP], at + 1)
    return 0


def _forms(text: str) -> set[str]:
    """The text, however it is escaped, with one space for each gap between words."""
    forms: set[str] = set()
    for form in (text, html.escape(text), html.escape(text, quote=False)):
        forms.add(form)
        for ascii_only in (True, False):
            once = json.dumps(form, ensure_ascii=ascii_only)[1:-1]
            forms.update((once, json.dumps(once, ensure_ascii=ascii_only)[1:-1]))
    return {single_spaced(form, _GAP) for form in forms}


def _expression(form: str) -> str:
    return _GAP.pattern.join(map(re.escape, form.split(" ")))


def _replace(value: Any, matcher: _Matcher) -> tuple[Any, bool]:
    """The JSON value without the words, and whether it contained them. Changes the value in place.

    Does not recurse, because a tool's input may be nested to any depth.
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
                text, count = matcher.subn(item)
                if count:
                    holder[key] = text
                    changed_here = True
            elif isinstance(item, (dict, list)):
                stack.append((item, is_free or key in _FREE))
        if is_free and isinstance(holder, dict):
            names = {key: matcher.subn(key)[0] for key in holder}
            if any(key != name for key, name in names.items()):
                entries = [(names[key], item) for key, item in holder.items()]
                holder.clear()
                holder.update(entries)
                changed_here = True
        if changed_here and isinstance(holder, dict) and holder.get("type") == "thinking":
            # The signature covers the words that are gone, so a provider would refuse the block.
            holder.pop("signature", None)
        found = found or changed_here
    return root[0], found


class Matchers:
    """What finds each set of texts, made once for all logs: for a text of 300 KB that takes half a second."""

    def __init__(self) -> None:
        """Create it without any."""
        self._made: dict[frozenset[str], _Matcher] = {}

    def of(self, texts: Iterable[str]) -> _Matcher | None:
        """What finds these texts; None if they are blank."""
        telling = frozenset(stripped for text in texts if (stripped := text.strip()))
        if not telling:
            return None
        if telling not in self._made:
            self._made[telling] = _Matcher(telling)
        return self._made[telling]


class _Scope:
    """Decides which of the words to look for in each line of a log, read in order."""

    def __init__(
        self, session_id: str, words: Sequence[Words], memory_ids: Collection[str], matchers: Matchers
    ) -> None:
        self._session_id = session_id
        self._words = words
        self._ids = re.compile("|".join(re.escape(id) for id in memory_ids)) if memory_ids else None
        self._turn: int | None = None
        # Long words that were said in this session are a quotation anywhere in it.
        self._everywhere = {
            w.text
            for w in words
            if w.session is None
            or (w.session == session_id and (w.turn is None or len(w.text) >= _QUOTE_CHARS))
        }
        self._carried = {w.text for w in words if w.session == session_id}
        self._matchers = matchers

    def matcher_for(self, value: Any, raw: bytes) -> _Matcher | None:
        """What to look for in a line. In a line that can't be read, that is everything that the session may contain."""
        texts = set(self._everywhere)
        kind = value.get("type") if isinstance(value, dict) else None
        if kind is None or kind == "compaction":
            texts |= self._carried
        else:
            if kind == "turn_start":
                self._turn = value.get("turn")
            turn = value.get("turn", self._turn)
            texts.update(w.text for w in self._words if w.session == self._session_id and w.turn == turn)
            texts |= self._brought_in_by(value, raw)
        return self._matchers.of(texts)

    def _brought_in_by(self, value: dict[str, Any], raw: bytes) -> set[str]:
        """The words that this line brings into the session, by a surfaced memory or the result of a memory tool."""
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
        # From here on, compactions may repeat any of them, and answers those that are long enough to be a quotation.
        self._carried |= texts
        self._everywhere.update(text for text in texts if len(text) >= _QUOTE_CHARS)
        return texts


def inbox_redactor(words: Sequence[Words], matchers: Matchers) -> Callable[[str, str], str]:
    """A function that removes the words from an inbox entry, given its session's id and its text.

    An entry belongs to no turn, so words of any turn of the session are removed.
    """

    def redact(session_id: str, text: str) -> str:
        matcher = _Scope(session_id, words, (), matchers).matcher_for(None, b"")
        return matcher.subn(text)[0] if matcher is not None else text

    return redact


def live_redactor(
    words: Sequence[Words], matchers: Matchers | None = None
) -> Callable[[str, str, bool], str]:
    """A function that removes the words from what a program has of a session in memory.

    It takes the session's id, the text, and whether one of the memories was surfaced in the session, which may have
    brought all of the words into it.
    """
    made = matchers or Matchers()

    def redact(session_id: str, text: str, is_surfaced: bool) -> str:
        matcher = made.of(
            one.text
            for one in words
            if is_surfaced or one.session in (None, session_id) or len(one.text) >= _QUOTE_CHARS
        )
        return text if matcher is None else matcher.subn(text)[0]

    return redact


def rewriting_path(path: Path) -> Path:
    """The temporary file of a rewrite. The next rewrite replaces what an interrupted one left there."""
    return path.with_suffix(".rewriting")


def redact_log(
    path: Path,
    session_id: str,
    *,
    words: Sequence[Words],
    memory_ids: Collection[str],
    home: Path,
    matchers: Matchers,
) -> Redacted | None:
    """Rewrite one log and its spilled results without the words. Blocks.

    The new file replaces the old one in one step. The session's writer, in this process or another, continues in the
    new file.

    Args:
        path: The log.
        session_id: Its session.
        words: The words to forget.
        memory_ids: Memories that were surfaced with these ids are forgotten too.
        home: Spilled results are rewritten only below this folder, whatever paths the log contains.
        matchers: For all logs of this forgetting.

    Returns:
        What was changed; None if nothing was.

    Raises:
        StorageUnwritable, StorageError: The log can't be read or rewritten, and is unchanged.
    """
    scope = _Scope(session_id, words, memory_ids, matchers)
    temporary = rewriting_path(path)
    changed: list[int] = []
    spilled: dict[Path, _Matcher] = {}
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
                matcher = scope.matcher_for(value, raw)
                if matcher is not None:
                    new = _rewrite_line(raw, value, matcher)
                    if new != raw:
                        changed.append(line.record.seq if line.record is not None else line.number)
                        raw = new
                    spill = value.get("spill") if isinstance(value, dict) else None
                    if isinstance(spill, str) and spill:
                        spilled[Path(spill)] = matcher
                out.write(raw)
            if changed:
                out.flush()
                os.fsync(out.fileno())
                temporary.replace(path)
                sync_folder(path.parent)
        files = [file for file, matcher in spilled.items() if _redact_file(file, matcher, home)]
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    if not changed and not files:
        return None
    return Redacted(session_id=session_id, records=tuple(changed), files=tuple(files))


def _rewrite_line(raw: bytes, value: Any, matcher: _Matcher) -> bytes:
    if not isinstance(value, dict):
        # The line is broken or not ours, but may still contain the words.
        text = raw.decode("utf-8", "surrogateescape")
        return matcher.subn(text)[0].encode("utf-8", "surrogateescape")
    value, found = _replace(value, matcher)
    if not found:
        return raw
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Keep writers out of a log while it is rewritten. Yields its mode bits."""
    while True:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            # A writer holds this lock only while it writes.
            fcntl.flock(fd, fcntl.LOCK_EX)
            here, there = os.fstat(fd), path.stat(follow_symlinks=False)
            if (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev):
                yield here.st_mode & 0o777
                return
        finally:
            os.close(fd)


def _redact_file(file: Path, matcher: _Matcher, home: Path) -> bool:
    """Rewrite a spilled result, if it is a plain file below `home`. Returns whether it contained the words."""
    try:
        real = file.resolve(strict=True)
    except (OSError, ValueError):
        return False
    if not real.is_file() or not real.is_relative_to(home.resolve()):
        return False
    # surrogateescape writes back any bytes as they were.
    text = real.read_bytes().decode("utf-8", "surrogateescape")
    new, count = matcher.subn(text)
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
