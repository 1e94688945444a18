"""Reads what the user types: a line editor on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.to_thread

from satchel.runtime.attaching import mentions_of

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.buffer import Buffer

Complete = Callable[[str], Awaitable[Sequence[tuple[str, str]]]]
"""Returns the completions of the last word of a text, each with a short help text."""
DroppedIn = Callable[[str, str], Sequence[Path]]


class PlainLines:
    """Lines from a pipe or a file. A line that ends with a backslash continues on the next."""

    pictures: Collection[Path] = ()
    given: Collection[Path] = ()
    """A pipe has no clipboard, and nothing is dragged into it."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(1)

    async def read(self, prompt: str, *, toolbar: str = "") -> str:
        """See `Editor`; nothing is printed."""
        lines: list[str] = []
        while True:
            raw = await anyio.to_thread.run_sync(
                sys.stdin.buffer.readline, limiter=self._limiter, abandon_on_cancel=True
            )
            if not raw and not lines:
                raise EOFError
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if not line.endswith("\\") or not raw:
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    async def ask(self, prompt: str) -> str:
        """See `Editor`."""
        return await self.read(prompt)

    def keep(self, text: str) -> None:
        """Does nothing: a program sees that the message was not sent."""

    def drop_typed_ahead(self) -> None:
        """Does nothing: the lines of a pipe are always written in advance."""


class Editor:
    """A line editor with history and completion. Alt-Enter, a final backslash or pasting adds lines."""

    def __init__(
        self,
        *,
        complete: Complete,
        recent: Callable[[], AsyncIterator[str]],
        picture: Callable[[], Awaitable[Path | None]],
        dropped_in: DroppedIn = lambda _, __: (),
    ) -> None:
        """Create an editor; it uses the terminal only while it reads.

        Args:
            complete: Returns completions.
            recent: Earlier messages, the newest first, for the arrow keys. They come from the session logs and are not
                stored elsewhere, so that what is forgotten there is forgotten here, too.
            picture: Writes the picture of the clipboard to a file, if there is one.
            dropped_in: Returns the files that a pasted text attaches to a draft.
        """
        self._complete = complete
        self._recent = recent
        self._picture = picture
        self._dropped_in = dropped_in
        self._session: PromptSession[str] | None = None
        self._draft = ""
        self.pictures: set[Path] = set()
        """Those of the clipboard."""
        self._dragged: set[Path] = set()

    @property
    def given(self) -> frozenset[Path]:
        """Files that the user gave: pictures of the clipboard, and what was dragged here."""
        return frozenset(self.pictures | self._dragged)

    @classmethod
    def for_answers(cls) -> Editor:
        """An editor for single questions, without completion and history."""

        async def nothing() -> AsyncIterator[str]:
            return
            yield

        async def none(_: str) -> Sequence[tuple[str, str]]:
            return ()

        async def no_picture() -> None:
            return None

        return cls(complete=none, recent=nothing, picture=no_picture)

    async def read(self, prompt: str, *, toolbar: str = "") -> str:
        """The next message, which may have several lines. What is typed when this is cancelled begins the next one.

        Raises:
            EOFError: The input has ended.
            KeyboardInterrupt: The user pressed Ctrl-C.
        """
        if self._session is None:
            self._session = self._make([text async for text in self._recent()])
        # Imported when used, see `ask`.
        from prompt_toolkit.patch_stdout import patch_stdout  # noqa: PLC0415

        draft, self._draft = self._draft, ""
        # Output from the background appears above the prompt instead of in the middle of it.
        with patch_stdout(raw=True):
            try:
                # While the editor reads, Ctrl-C is a key; the signal handler belongs to the code that runs turns.
                return await self._session.prompt_async(
                    prompt, bottom_toolbar=toolbar or None, handle_sigint=False, default=draft
                )
            except anyio.get_cancelled_exc_class():
                self._draft = self._session.default_buffer.text
                raise

    def keep(self, text: str) -> None:
        """Begin the next message with a text that could not be sent."""
        self._draft = text

    async def ask(self, prompt: str) -> str:
        """The answer to a question: one line, which is not added to the history. Raises like `read`."""
        # Imported when used: it takes a tenth of a second, and only a terminal needs it.
        from prompt_toolkit import PromptSession  # noqa: PLC0415

        once: PromptSession[str] = PromptSession()
        return await once.prompt_async(prompt, handle_sigint=False)

    def drop_typed_ahead(self) -> None:
        """Discard keys that were typed before now. Call it before showing a question, which they can't answer."""
        # Not available on every system, and only useful with a terminal.
        import termios  # noqa: PLC0415

        from prompt_toolkit.input import create_input  # noqa: PLC0415 - see `Editor.ask`
        from prompt_toolkit.input.typeahead import clear_typeahead  # noqa: PLC0415 - see `Editor.ask`

        clear_typeahead(create_input())
        with contextlib.suppress(termios.error, OSError):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    def _make(self, said: Sequence[str]) -> PromptSession[str]:
        # Imported when used, see `ask`.
        from prompt_toolkit import PromptSession  # noqa: PLC0415
        from prompt_toolkit.history import InMemoryHistory  # noqa: PLC0415

        terminal = _terminal()
        return PromptSession(
            history=InMemoryHistory(said[::-1]),
            completer=_completer(self._complete),
            complete_while_typing=True,
            key_bindings=_keys(terminal, self.pictures, self._dragged, self._picture, self._dropped_in),
            multiline=True,
            prompt_continuation="  ",
            reserve_space_for_menu=4,
            input=terminal,
        )


LineReader: TypeAlias = Editor | PlainLines
"""Reads what the user says."""


def keep_typed_ahead() -> None:
    """Keep for the first prompt what was typed while the program was starting.

    Call it when the terminal no longer changes keys. Before that, it made a line feed of Enter, which is another key to
    the editor: the message would wait, with an empty line below it, until Enter is pressed once more.
    """
    fd = sys.stdin.fileno()
    typed = b""
    while select.select([fd], [], [], 0)[0] and (data := os.read(fd, 4096)):
        typed += data
    if not typed:
        return
    from prompt_toolkit.input import create_input  # noqa: PLC0415 - see `Editor.ask`
    from prompt_toolkit.input.typeahead import store_typeahead  # noqa: PLC0415 - see `Editor.ask`
    from prompt_toolkit.input.vt100_parser import Vt100Parser  # noqa: PLC0415 - see `Editor.ask`
    from prompt_toolkit.key_binding.key_processor import KeyPress  # noqa: PLC0415 - see `Editor.ask`

    presses: list[KeyPress] = []
    parser = Vt100Parser(presses.append)
    parser.feed(typed.decode("utf-8", "replace").replace("\n", "\r"))
    parser.flush()
    store_typeahead(create_input(), presses)


def _terminal() -> Any:
    from prompt_toolkit.input.vt100 import Vt100Input  # noqa: PLC0415 - see `Editor.ask`

    class Terminal(Vt100Input):
        """Stays as it is while something is printed above the prompt.

        For that moment, prompt_toolkit would let the terminal change keys again, as other programs expect. An Enter
        that is pressed just then would become a line feed, which begins a new line instead of sending the message.
        """

        is_lent = False
        """Whether another program uses it."""

        def cooked_mode(self) -> contextlib.AbstractContextManager[None]:
            return super().cooked_mode() if self.is_lent else contextlib.nullcontext()

    return Terminal(sys.stdin)


def _completer(complete: Complete) -> Any:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion  # noqa: PLC0415 - see `Editor.ask`
    from prompt_toolkit.document import Document  # noqa: PLC0415 - see `Editor.ask`

    class CommandCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            return ()  # a prompt that runs in an event loop asks for the next one

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion]:
            text = document.text_before_cursor
            last = re.split(r"[ \n]", text)[-1]
            for word, help_text in await complete(text):
                yield Completion(word, start_position=-len(last), display_meta=help_text)

    return CommandCompleter()


def _keys(
    terminal: Any,
    pictures: set[Path],
    dragged: set[Path],
    picture: Callable[[], Awaitable[Path | None]],
    dropped_in: DroppedIn,
) -> Any:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent  # noqa: PLC0415 - see `Editor.ask`

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif buffer.text.strip():
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def mention(buffer: Buffer, paths: Sequence[Path]) -> None:
        space = " " if buffer.document.char_before_cursor.strip() else ""
        buffer.insert_text(f"{space}{mentions_of(paths)} ")

    @keys.add("<bracketed-paste>")
    def _(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        if paths := dropped_in(text, event.current_buffer.text):
            dragged.update(paths)
            mention(event.current_buffer, paths)
        else:
            event.current_buffer.insert_text(text)

    @keys.add("c-v")
    async def _(event: KeyPressEvent) -> None:
        if path := await picture():
            pictures.add(path)
            mention(event.current_buffer, [path])

    @keys.add("c-x", "c-e")
    async def _(event: KeyPressEvent) -> None:
        terminal.is_lent = True
        try:
            await event.current_buffer.open_in_editor(validate_and_handle=True)
        finally:
            terminal.is_lent = False

    return keys
