"""The line editor, on a terminal of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cli.terminals import terminal
from tests.requirements import requirement

PRINTS_WHILE_YOU_TYPE = """
import anyio
from satchel.cli.editor import Editor

printed = []

async def complete(text):
    if not printed:
        printed.append(text)
        print("Notice", 200_000 * ".")
    return ()

async def nothing():
    return
    yield

print("Sent:", repr(anyio.run(Editor(complete=complete, recent=nothing).read, "> ")))
"""

EDITS = """
import sys
from pathlib import Path
typed = input("edit: ")
Path(sys.argv[1]).write_text(typed)
"""


@requirement("clients:inbox")
def test_a_message_typed_while_something_is_printed_above_the_prompt_is_sent(tmp_path: Path) -> None:
    with terminal(tmp_path, "-c", PRINTS_WHILE_YOU_TYPE, program=[sys.executable]) as screen:
        screen.see(">")
        screen.type("Than")
        # The program is stopped in the middle of what it prints: a terminal holds a few KB that nobody has read.
        screen.answer("Notice", "k you")
        screen.see("Sent: 'Thank you'")


def test_another_program_that_edits_the_message_has_the_terminal_as_it_expects_it(tmp_path: Path) -> None:
    (tmp_path / "edits.py").write_text(EDITS)
    editor = f"{sys.executable} {tmp_path / 'edits.py'}"
    with terminal(tmp_path, "-c", PRINTS_WHILE_YOU_TYPE, program=[sys.executable], EDITOR=editor) as screen:
        screen.see(">")
        screen.type("\x18\x05")
        screen.answer("edit:", "Thank you")
        screen.see("Sent: 'Thank you'")
