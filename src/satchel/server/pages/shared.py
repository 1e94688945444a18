"""A conversation as one HTML file, to be given to somebody else: no script, nothing from the network, no memories."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, assert_never

import anyio.to_thread

from satchel import events as kinds
from satchel.capabilities.files import content_of
from satchel.errors import SatchelError
from satchel.events import AskUser
from satchel.messages import FileBlock
from satchel.server.pages.assets import asset_text
from satchel.server.pages.rendering import standalone
from satchel.sessions import Log, SessionInfo, SessionStore
from satchel.sessions.view import LastWords, Said, SessionTurn, ToolCall, turns_in
from satchel.tools.builtin.fence import Place
from satchel.tools.kept import FOLDER

_MOST_PICTURES: Final = 30_000_000
"""Bytes of all pictures of a file; later ones are named only. Mail servers take about 25 MB."""


@dataclass(slots=True, kw_only=True)
class _Turn:
    """What a turn shows to others.

    Attributes:
        files: What the user attached, each as its name and its picture as a `data:` address, or "".
        parts: Words, as ("said", text); calls that follow each other as ("tools", names); and a result's files as
            ("file", name, address).
    """

    number: int
    at: datetime
    said: str
    files: list[tuple[str, str]] = field(default_factory=list)
    parts: list[tuple[str, ...]] = field(default_factory=list)


async def shared_file(store: SessionStore, session_id: str) -> str:
    """What user and model said in all branches, the names of the tools, and pictures; without memories, reasoning, and
    what tools were given and returned.

    Raises:
        NotFound, UsageError: As in `SessionStore.info`.
    """
    infos = await store.told(session_id)
    told = [(await store.folder_of(info, FOLDER), first, await store.load(info.id)) for info, first in infos]
    return await anyio.to_thread.run_sync(_html, infos[0][0], told)


def _html(info: SessionInfo, told: Sequence[tuple[Path, int, Log]]) -> str:
    left, branches = _MOST_PICTURES, []
    for folder, first, log in told:
        pictures = _Pictures(folder, left)
        turns = [_turn(turn, pictures) for turn in turns_in(log.records) if turn.number >= max(first, 1)]
        branches.append((first, turns))
        left = pictures.left
    return standalone("shared.html", info=info, style=asset_text("satchel.css"), branches=branches)


def _turn(turn: SessionTurn, pictures: _Pictures) -> _Turn:
    shown = _Turn(number=turn.number, at=turn.at, said=turn.said)
    if turn.start is not None:
        shown.files = pictures.of(turn.start.message.files)
    for part in turn.parts:
        match part:
            case Said(answer=answer) if answer is not None and answer.provider == "none":
                # Without a language model, memories are the answers.
                shown.parts.append(("said", "*Memories, which are not shared.*"))
            case Said(text=text) if text.strip():
                shown.parts.append(("said", text))
            case ToolCall():
                names = shown.parts.pop()[1:] if shown.parts and shown.parts[-1][0] == "tools" else ()
                shown.parts.append(("tools", *names, part.tool))
                if part.result is not None:
                    shown.parts += [("file", *file) for file in pictures.of(part.result.files)]
            case AskUser(question=question):
                shown.parts.append(("said", question))
            case LastWords(rest=rest, question=None) if rest.strip():
                shown.parts.append(("said", rest))
            case (
                Said() | LastWords() | kinds.TurnStart() | kinds.TurnResumed() | kinds.MemorySurfaced()
                | kinds.ThinkingDelta() | kinds.QuestionAsked() | kinds.QuestionAnswered() | kinds.BuildPosted()
                | kinds.MessageWaiting() | kinds.MessageTakenBack() | kinds.Posted() | kinds.Compaction()
                | kinds.Notice() | kinds.Failure() | kinds.TurnEnd()
            ):  # fmt: skip
                pass
            case _:
                assert_never(part)
    return shown


class _Pictures:
    """Reads the pictures of a session, as many as fit."""

    def __init__(self, folder: Path, left: int) -> None:
        self._folder = folder
        self.left = left

    def of(self, files: Iterable[FileBlock]) -> list[tuple[str, str]]:
        """Names, each with the picture as a `data:` address; "" for what is no picture, or is gone."""
        return [(file.name, self._address(file)) for file in files]

    def _address(self, file: FileBlock) -> str:
        if not file.is_image or file.size > self.left:
            return ""
        parts = (FOLDER, file.file_name)
        try:
            content = content_of(Place(root=self._folder, parts=parts, name=file.name))
        except SatchelError:
            # It was forgotten, or lost: the name says that there was one.
            return ""
        self.left -= len(content)
        return f"data:{file.media_type};base64,{b64encode(content).decode()}"
