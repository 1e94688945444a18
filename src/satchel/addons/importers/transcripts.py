"""What the formats of conversations have in common: numbering turns, plain text, and times."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime
from functools import partial
from typing import Any

from satchel.memory.transfer.parts import (
    UNDATED,
    ImportedConversation,
    ImportedFile,
    ImportedMemory,
    ImportedMessage,
    LeftOut,
    Part,
    said,
    stable_id,
)

NO_TEXT = "no text of a person or a model in it"
WRITTEN_BY_PROGRAM = "written by the agent's own program"
"""Reasons why messages are left out."""
_IN_DIGITS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""Times in digits alone, as notes have them, by their length; seconds and milliseconds have 10 and 13."""
_LEAST_S = 100_000_000
"""A smaller number is a year or a day ("2026", 20260302), not the seconds since 1970: that would be before 1973."""


@dataclass(slots=True)
class TurnNumbering:
    """Numbers the messages of one conversation. Each message of the user begins a turn, at position 0."""

    session: str
    turn: int = 0
    position: int = 0
    messages: list[ImportedMessage] = field(default_factory=list)
    _pasted: list[ImportedFile] = field(default_factory=list)

    def pictures(self, content: object, text: str) -> list[ImportedFile]:
        """The pictures of the user's message, after those of earlier ones without words: a turn of their own would
        change the numbers of later messages, which came without pictures from earlier versions.
        """
        self._pasted += _pictures_in(content)
        if not text.strip():
            return []
        found, self._pasted = self._pasted, []
        return found

    def conversation(
        self, title: object = "", *, cwd: object = "", branches: Sequence[Sequence[ImportedMessage]] = ()
    ) -> Iterator[ImportedConversation]:
        """The conversation of all messages so far; nothing if there are none."""
        if self.messages:
            yield ImportedConversation(
                session=self.session,
                title=title if isinstance(title, str) else "",
                cwd=cwd if isinstance(cwd, str) else "",
                messages=tuple(self.messages),
                branches=tuple(map(tuple, branches)),
            )

    def episode(
        self,
        text: str,
        *,
        role: str,
        at: datetime | None,
        modified_at: datetime,
        where: str,
        names: Sequence[object] = (),
        files: Sequence[ImportedFile] = (),
        model: object = "",
    ) -> ImportedMemory | LeftOut:
        """The next message as an episode; one without text is left out.

        Args:
            text: What was said.
            role: "user" or "assistant".
            at: When it was said; None if the file doesn't say it.
            modified_at: The date of the file, which is used in that case.
            where: See `LeftOut`.
            names: What the id is derived from; without names, the session, the turn and the position.
            files: What belongs to it.
            model: Which model said it.
        """
        if not text.strip() and not files:
            return LeftOut(reason=NO_TEXT, where=where, expected=True)
        if role == "user":
            self.turn, self.position = self.turn + 1, 0
        else:
            self.turn, self.position = max(self.turn, 1), self.position + bool(text.strip())
        id = stable_id(*(names or (self.session, self.turn, self.position)))
        self.messages.append(
            ImportedMessage(
                id=id,
                role="user" if role == "user" else "assistant",
                text=text,
                at=at or modified_at,
                turn=self.turn,
                model=model if isinstance(model, str) else "",
                files=tuple(files),
            )
        )
        if not text.strip():
            return LeftOut(reason=NO_TEXT, where=where, expected=True)
        return said(
            id,
            text,
            speaker=role,
            at=at or modified_at,
            session=self.session,
            turn=self.turn,
            position=self.position,
            trust="user" if role == "user" else "agent",
            tags=() if at else (UNDATED,),
        )


def whole(parts: Iterator[Part], where: str) -> Iterator[Part]:
    """The parts of a conversation; where something in it has another form than in any export, it is left out whole."""
    try:
        yield from list(parts)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        yield LeftOut(reason=f"a conversation that can't be read ({type(error).__name__})", where=where)


def place_of(source: str, name: object) -> str:
    """The session of a conversation: its own id after the format's name, or a hash of an id that isn't plain."""
    plain = re.fullmatch(r"[A-Za-z0-9:-]{1,45}", str(name))
    return f"{source}:{name if plain else stable_id(name)}"


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


def _pictures_in(content: object) -> list[ImportedFile]:
    """The pictures of a message's content, which hold their bytes: blocks of Anthropic's form, or of OpenAI's."""
    found: list[ImportedFile] = []
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "image", "source": {"type": "base64", "data": str(data)}}:
                pass
            case {"type": "input_image", "image_url": str(url)} if url.startswith("data:"):
                data = url.partition(";base64,")[2]
            case _:
                continue
        found.append(ImportedFile(name=f"picture-{len(found) + 1}", read=partial(_decoded, data)))
    return found


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError as error:
        raise OSError("The picture is damaged.") from error


def moment_of(value: Any) -> datetime | None:
    """Parse a time: ISO 8601, or seconds or milliseconds since 1970, as a number or a string; None if it isn't one. It
    is in the system's zone unless it has another offset than that of UTC.
    """
    try:
        if isinstance(value, str) and value.strip():
            text = value.strip()
            form = _IN_DIGITS.get(len(text)) if text.isdecimal() else None
            if form is None and text.replace(".", "", 1).isdecimal():
                return moment_of(float(text))
            # Programs without a date write the year 1.
            found = datetime.strptime(text, form).astimezone() if form else datetime.fromisoformat(text)
            # Programs write times in UTC, whatever the zone is in which "tomorrow" is said.
            found = found if found.utcoffset() else found.astimezone()
        elif isinstance(value, int | float) and not isinstance(value, bool) and value > _LEAST_S:
            seconds = value / 1000 if value > 100_000_000_000 else value
            found = datetime.fromtimestamp(seconds, UTC).astimezone()
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    # The last year is none that every zone can tell.
    return found if 1 < found.year < MAXYEAR else None
