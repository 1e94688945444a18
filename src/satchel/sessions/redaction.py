"""Forgetting words: a log is rewritten without them, in one step or not at all."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from satchel.conversation import QUESTIONS
from satchel.plain import json_in
from satchel.sessions.journal import unwritable
from satchel.sessions.log import encode_line
from satchel.sessions.logs import Logs
from satchel.spacing import FORGOTTEN, Finder, without_lines

_QUOTE_CHARS = 12
"""From this many characters on, the same words elsewhere in a session are a quotation and not a coincidence."""
_MIN_OVERLAP = 4
"""Where a long text was cut, this many characters at the cut are enough to recognise the words."""
_OMISSION = re.compile(r"\s*\[… [^\]]* …\]\s*")
"""What replaces the middle of a long text."""
_NOT_WHOLE = (rb"\[(?:\xe2\x80\xa6|\\u2026)", rb'"spill": ?"')
"""A text whose middle is left out, and a result that is in a file of its own: what was said may be there in part."""
_JSON_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}" r'|\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])'
)
_PIECE = 1 << 18
_PLAIN_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\", "\\t": "\t"}

_STRUCTURE = frozenset(
    ("seq", "at", "type", "role", "origin", "stop_reason", "status", "decision", "by", "trigger", "answers")
    + ("session_id", "call_id", "tool_use_id", "id", "ids", "inbox", "tool", "name", "session", "spill")
    + ("provider", "model", "version", "signature", "tokenizer", "kind", "consent")
    + ("standing", "day")
)
"""Fields that hold names, ids and fixed values, never words that were said. Below the fields in `_FREE`, the names
belong to a tool and mean nothing here."""
_FREE = frozenset(("input", "data"))
_SHOWING = ("memory_surfaced", "observation")
"""Records with which memories come before a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Words to be forgotten.

    Attributes:
        text: The words, which are found in every spelling that `satchel.spacing.normal_form` makes equal.
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
        turns: Those that were captured as one of the memories.
        open_in: The id of the process that has the session open and may still have the words in memory, or None.
        error: Why the log could not be rewritten, or what may still have the words; or "".
    """

    session_id: str
    records: tuple[int, ...] = ()
    files: tuple[Path, ...] = ()
    turns: frozenset[int] = frozenset()
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
            turns = before.turns | entry.turns
            entries[entry.session_id] = replace(entry, records=records, files=files, turns=turns)
        return Redaction(sessions=tuple(entries.values()))

    @property
    def errors(self) -> tuple[str, ...]:
        """Why some logs could not be rewritten."""
        return tuple(entry.error for entry in self.sessions if entry.error)


class _Matcher:
    """Finds texts, however they are spelt, and also where a part of them was cut off."""

    def __init__(self, texts: Collection[str], *, parts: bool) -> None:
        self._texts = texts
        self._finder = Finder(texts, parts=parts)

    def finds(self, text: str) -> bool:
        """Whether they stand in a text; a part at a cut doesn't count."""
        return self._finder.finds(text)

    def subn(self, text: str) -> tuple[str, int]:
        """The text with each occurrence replaced by `FORGOTTEN`, and the number of occurrences."""
        text, count, _ = self._finder.subn(text, FORGOTTEN)
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
        self._made: dict[tuple[frozenset[str], bool], _Matcher] = {}

    def of(self, texts: Iterable[str], *, parts: bool) -> _Matcher | None:
        """What finds these texts, and their parts where the texts were shown; None if they are blank."""
        telling = frozenset(stripped for text in texts if (stripped := text.strip()))
        if not telling:
            return None
        if (telling, parts) not in self._made:
            self._made[telling, parts] = _Matcher(telling, parts=parts)
        return self._made[telling, parts]


_LOOKING: Final = (b"recall_memory", b"deep_memory", b"forget_memory")
_TELLING: Final = re.compile(r"[^\W_]{4,}|[\u3400-\u9fff]{2}")
_MOST_OF: Final = 0.6


def _unescaped(found: re.Match[str]) -> str:
    escape = found[0]
    return _PLAIN_ESCAPES.get(escape) or str(json.loads(f'"{escape}"'))


class Sieve:
    """Tells quickly of most logs that they contain none of the words. Without it, forgetting parses every record.

    What it looks for stands in every log that `redact_log` would change; a log in which it finds something may still be
    one that stays as it is.
    """

    def __init__(self, words: Sequence[Words], memory_ids: Collection[str], matchers: Matchers) -> None:
        # Where a memory was shown, its session is named, or memory was asked; and a result that is not whole here.
        telling = [*memory_ids, *(w.session for w in words if w.session is not None)]
        self._sessions = {w.session for w in words}
        self._marks = re.compile(
            b"|".join((*(re.escape(one.encode()) for one in telling), *_LOOKING, *_NOT_WHOLE))
        )
        self._matcher = matchers.of((w.text for w in words if w.session is None), parts=False)

    def lets_through(self, session_id: str, lines: Iterable[bytes]) -> bool:
        """Whether a log with these lines may contain the words."""
        return session_id in self._sessions or any(map(self._is_telling, _joined(lines)))

    def _is_telling(self, raw: bytes) -> bool:
        if self._marks.search(raw):
            return True
        if self._matcher is None:
            return False
        text = raw.decode("utf-8", "replace")
        # A line that is no JSON is searched as it is.
        texts = (text, _JSON_ESCAPE.sub(_unescaped, text)) if "\\" in text else (text,)
        return any(map(self._matcher.finds, texts))


def _joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The same in pieces of some hundred KB, those with escapes apart: they are searched in more ways."""
    piles: tuple[list[bytes], list[bytes]] = ([], [])
    size = 0
    for line in lines:
        piles[b"\\" in line or b"&" in line].append(line)
        size += len(line)
        if size > _PIECE:
            yield from map(b"".join, piles)
            piles, size = ([], []), 0
    yield from map(b"".join, piles)


class _Scope:
    """Decides which of the words to look for in each line of a log, read in order."""

    def __init__(
        self, session_id: str, words: Sequence[Words], memory_ids: Collection[str], matchers: Matchers
    ) -> None:
        self._session_id = session_id
        self._words = words
        self._ids = re.compile("|".join(re.escape(id) for id in memory_ids)) if memory_ids else None
        self._turn: int | None = None
        self._is_shown = False
        """Whether one of the memories was shown before this line, or in it: maybe an excerpt of it."""
        # Long words that were said in this session are a quotation anywhere in it.
        self._everywhere = {
            w.text
            for w in words
            if w.session is None
            or (w.session == session_id and (w.turn is None or len(w.text) >= _QUOTE_CHARS))
        }
        self._carried = {w.text for w in words if w.session == session_id}
        self._matchers = matchers
        self.captured: frozenset[int] = frozenset()
        """The turns in which the words were said, though the memory names another session."""

    def matcher_for(self, value: Any, raw: bytes) -> _Matcher | None:
        """What to look for in a line. In a line that can't be read, that is everything that the session may contain."""
        texts = set(self._everywhere)
        kind = value.get("type") if isinstance(value, dict) else None
        # A message in line belongs to a turn that had not begun.
        if kind in (None, "compaction", "message_waiting"):
            texts |= self._carried
        else:
            if kind == "turn_start":
                self._turn = value.get("turn")
            turn = value.get("turn", self._turn)
            texts.update(
                w.text
                for w in self._words
                if turn in self.captured or (w.session == self._session_id and w.turn == turn)
            )
            texts |= self._brought_in_by(value, raw)
        return self._matchers.of(texts, parts=self._is_shown)

    def _brought_in_by(self, value: dict[str, Any], raw: bytes) -> set[str]:
        """The words that this line brings into the session, by a surfaced memory or the result of a memory tool."""
        texts: set[str] = set()
        if self._ids is not None and self._ids.search(raw.decode("utf-8", "replace")):
            texts.update(w.text for w in self._words)
            self._is_shown = self._is_shown or value.get("type") in _SHOWING
        for memory in value.get("memories") or () if value.get("type") == "memory_surfaced" else ():
            if not isinstance(memory, dict):
                continue
            if self._ids is not None and self._ids.fullmatch(str(memory.get("id"))):
                texts.add(str(memory.get("content", "")))
                texts.discard(FORGOTTEN)
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
        telling = (
            one.text
            for one in words
            if is_surfaced or one.session in (None, session_id) or len(one.text) >= _QUOTE_CHARS
        )
        matcher = made.of(telling, parts=is_surfaced)
        return text if matcher is None else matcher.subn(text)[0]

    return redact


def redact_log(
    logs: Logs,
    path: Path,
    session_id: str,
    *,
    words: Sequence[Words],
    memory_ids: Collection[str],
    matchers: Matchers,
    sieve: Sieve | None,
) -> Redacted | None:
    """Rewrite one log and its spilled results without the words. Blocks.

    The new lines replace the old ones in one step. The session's writer, in this process or another, continues after
    them. A log that was compressed is plain afterwards. Memories that were surfaced with `memory_ids` are forgotten,
    too. Without a sieve, the log is read in any case.

    Returns:
        What was changed; None if nothing was.

    Raises:
        StorageUnwritable, StorageError: The log can't be read or rewritten, and is unchanged.
    """
    redacting = _Redacting(session_id, words, memory_ids, matchers, sieve)
    try:
        logs.rewrite(path, redacting)
        hows = {file: partial(_without, matcher) for file, matcher in redacting.spilled.items()}
        files, is_lacking = logs.rewrite_files(path, hows)
    except OSError as error:
        raise unwritable(path, error) from error
    if not redacting.changed and not files:
        return None
    left = ""
    if redacting.changed and is_lacking:
        left = (
            f"Long results of session {session_id} are on another machine and may keep the words. Delete the folder "
            f"sessions/{path.parent.name}/{path.stem}.spill there."
        )
    return Redacted(
        session_id=session_id,
        records=tuple(redacting.changed),
        files=tuple(files),
        turns=redacting.captured,
        error=left,
    )


class _Redacting:
    """Rewrites the lines of one log.

    Attributes:
        changed: The numbers of the records that contained the words.
        spilled: The files of results that are too long for the log, and what may stand in them.
        captured: The turns that were captured as one of the memories.
    """

    def __init__(
        self,
        session_id: str,
        words: Sequence[Words],
        memory_ids: Collection[str],
        matchers: Matchers,
        sieve: Sieve | None,
    ) -> None:
        self._session_id = session_id
        self._words = words
        self._memory_ids = memory_ids
        self._matchers = matchers
        self._sieve = sieve
        self.changed: list[int] = []
        self.spilled: dict[Path, _Matcher] = {}
        self.captured: frozenset[int] = frozenset()

    def __call__(self, lines: Callable[[], Iterable[bytes]]) -> Iterator[bytes] | None:
        """See `Rewriting`."""
        self.changed, self.spilled = [], {}
        if self._sieve is not None and not self._sieve.lets_through(self._session_id, lines()):
            return None
        return self._rewritten(lines)

    def _changes(self, lines: Callable[[], Iterable[bytes]]) -> bool:
        """Whether anything is forgotten in a log that begins with a title."""
        looking = _Redacting(self._session_id, self._words, self._memory_ids, self._matchers, None)
        return any(looking.changed for _ in looking._rewritten(lines, finds_titles=False))

    def _rewritten(
        self, lines: Callable[[], Iterable[bytes]], *, finds_titles: bool = True
    ) -> Iterator[bytes]:
        scope = _Scope(self._session_id, self._words, self._memory_ids, self._matchers)
        repeats = _repeating(self._words)
        calls, self.captured = _calls_and_turns_of(lines(), self._memory_ids)
        scope.captured = self.captured
        for number, raw in enumerate(lines(), 1):
            if not raw.strip():
                continue
            value = json_in(raw)
            if not raw.endswith(b"\n"):
                if value is None:
                    break  # it was never written to its end
                raw += b"\n"
            matcher = scope.matcher_for(value, raw)
            is_shown = _forget_shown(value, self._memory_ids) | _forget_questions(value, raw, calls, repeats)
            # That of an imported conversation stands before what was said.
            if _is_title(value) and (self.changed or (finds_titles and self._changes(lines))):
                self.changed.append(value["seq"])
                value["title"] = ""
                raw = encode_line(value)
            if matcher is not None:
                new = _rewrite_line(raw, value, matcher, is_changed=is_shown)
                if new != raw:
                    self.changed.append(value.get("seq", number) if isinstance(value, dict) else number)
                    raw = new
                spill = value.get("spill") if isinstance(value, dict) else None
                if isinstance(spill, str) and spill:
                    self.spilled[Path(spill)] = matcher
            yield raw


def _forget_shown(value: Any, memory_ids: Collection[str]) -> bool:
    """Take memories out of a record that says which ones were shown, by their ids. Returns whether there was one."""
    if not isinstance(value, dict) or value.get("type") != "memory_surfaced" or not memory_ids:
        return False
    memories = value.get("memories") or ()
    gone = [
        at
        for at, one in enumerate(memories)
        if isinstance(one, dict) and one.get("id") in memory_ids and one.get("content") != FORGOTTEN
    ]
    for at in gone:
        memories[at]["content"] = FORGOTTEN
        memories[at].pop("why", None)
    if gone and isinstance(value.get("text"), str):
        value["text"] = without_lines(value["text"], gone, of=len(memories))
    return bool(gone)


def _is_title(value: Any) -> bool:
    """Whether it is a title that a model made of what was said: it may say the same in other words."""
    is_titled = isinstance(value, dict) and value.get("type") == "session_titled"
    return is_titled and value.get("by") == "model" and bool(value.get("title"))


def _calls_and_turns_of(
    lines: Iterable[bytes], memory_ids: Collection[str]
) -> tuple[frozenset[str], frozenset[int]]:
    """The calls whose results name one of the memories, and the turns that were captured as one of them.

    A memory names one session. Others may have captured it, too: conversations that were imported from an agent that
    goes on with an old one under a new name have messages in common.
    """
    if not memory_ids:
        return frozenset(), frozenset()
    ids = re.compile(b"|".join(re.escape(id.encode()) for id in memory_ids))
    calls, turns = set(), set()
    for raw in lines:
        if ids.search(raw) and (b'"observation"' in raw or b'"memory_captured"' in raw):
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(raw)
                if value.get("type") == "memory_captured":
                    turns.add(value.get("turn"))
                else:
                    calls.add(str(value.get("call_id")))
    return frozenset(calls), frozenset(turns)


def _repeating(words: Sequence[Words]) -> Callable[[str], bool]:
    """Whether a question has most of its telling words from one forgotten text, in whatever order."""
    texts = [set(_TELLING.findall(one.text.casefold())) for one in words]

    def repeats(question: str) -> bool:
        asked = set(_TELLING.findall(question.casefold()))
        return any(len(asked & text) >= max(3, _MOST_OF * len(asked)) for text in texts)

    return repeats


def _forget_questions(value: Any, raw: bytes, calls: frozenset[str], repeats: Callable[[str], bool]) -> bool:
    """Take out of calls what they looked for: words that led to a forgotten memory, and those that repeat it and found
    nothing. Returns whether there were any.
    """
    if not isinstance(value, dict) or not (
        any(call.encode() in raw for call in calls) or any(name in raw for name in _LOOKING)
    ):
        return False
    found = False
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            asked = item.get("input")
            if isinstance(asked, dict):
                has_found = not calls.isdisjoint(str(item.get(name)) for name in ("id", "call_id"))
                is_looking = str(item.get("tool") or item.get("name")).encode() in _LOOKING
                said = str([asked.get(name, "") for name in sorted(QUESTIONS)])
                if has_found or (is_looking and repeats(said)):
                    for name in QUESTIONS & asked.keys():
                        found = found or asked[name] != FORGOTTEN
                        asked[name] = FORGOTTEN
            stack += [one for one in item.values() if isinstance(one, (dict, list))]
        else:
            stack += [one for one in item if isinstance(one, (dict, list))]
    return found


def _rewrite_line(raw: bytes, value: Any, matcher: _Matcher, *, is_changed: bool = False) -> bytes:
    if not isinstance(value, dict):
        # The line is broken or not ours, but may still contain the words.
        text = raw.decode("utf-8", "surrogateescape")
        return matcher.subn(text)[0].encode("utf-8", "surrogateescape")
    value, found = _replace(value, matcher)
    if not (found or is_changed):
        return raw
    return encode_line(value)


def _without(matcher: _Matcher, content: bytes) -> bytes | None:
    """A spilled result without the words; None if it has none of them."""
    # surrogateescape writes back any bytes as they were.
    new, count = matcher.subn(content.decode("utf-8", "surrogateescape"))
    return new.encode("utf-8", "surrogateescape") if count else None
