"""The files of one open session: what is attached to its messages, and what its tools give back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from satchel.errors import UsageError
from satchel.events import Notice
from satchel.loop import ToolPool
from satchel.messages import FileBlock, TextBlock
from satchel.runtime.notices import NoticeBoard
from satchel.sandbox.port import Sandbox
from satchel.sessions.attachments import MOST_FILES, Uploads
from satchel.tools.documents.texts import write_texts
from satchel.tools.kept import kept_path, with_text_size
from satchel.tools.pictures.shrinking import make_smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFiles:
    """Keeps them in `folder`, which is deleted and redacted together with the log.

    Attributes:
        sandbox: Where files from outside are read.
    """

    folder: Path
    uploads: Uploads
    pool: ToolPool
    sandbox: Callable[[], Awaitable[Sandbox]]
    notices: NoticeBoard

    async def take(self, files: Sequence[FileBlock]) -> tuple[FileBlock, ...]:
        """Copy what is attached to the session, so that the log names nothing that isn't there.

        Raises:
            UsageError: There are too many.
            NotFound: One was never sent.
        """
        if not files:
            return ()
        if len(files) > MOST_FILES:
            raise UsageError(f"A message may have {MOST_FILES} files at most.")
        taken = await self.pool.run(self.uploads.take, files, self.folder)
        await self.make_readable(taken)
        return await self.pool.run(lambda: tuple(with_text_size(self.folder, file) for file in taken))

    async def make_readable(self, files: Sequence[FileBlock]) -> None:
        """Put smaller pictures beside large ones, and the text of documents beside them, before a model is asked."""
        for part, make in (("pictures", make_smaller), ("documents", write_texts)):
            for trouble in await make(files, self.folder, self.sandbox):
                self.notices.post_once(Notice(part=part, text=trouble))

    async def drop(self, files: Sequence[FileBlock]) -> None:
        """The session has its copies: the files that were sent need not be kept."""
        if files:
            await self.pool.run(self.uploads.drop, files)

    def read(self, file: FileBlock) -> bytes | None:
        """The bytes of a file; None if they are gone."""
        try:
            return kept_path(self.folder, file).read_bytes()
        except OSError:
            return None

    def block(self, file: FileBlock) -> TextBlock:
        """What the model is told of an attached file."""
        return TextBlock(
            text=f"[Attached by the user: {file.name}, {file.media_type}, {file.size:,} bytes. Tools find it at "
            f"{kept_path(self.folder, file)}]",
            origin="context",
        )
