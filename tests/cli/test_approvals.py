"""One line answers for all calls of a round."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from satchel.cli.approvals import TerminalAnswers
from satchel.events import AskedCall, CallConsent, QuestionAnswered, QuestionAsked
from satchel.tui.consenting import read_answer
from satchel.tui.terminal_text import call_lines, input_lines


class Waits:
    """A reader at whose question nobody types anything, and the view above it."""

    def __init__(self) -> None:
        self.is_asked = anyio.Event()
        self.notes: list[str] = []

    async def ask(self, _prompt: str) -> str:
        self.is_asked.set()
        await anyio.sleep_forever()
        return ""

    def drop_typed_ahead(self) -> None:
        pass

    def note(self, text: str, *_styles: str, **_more: bool) -> None:
        self.notes.append(text)


@pytest.mark.anyio
async def test_who_is_asked_reads_what_another_client_decided() -> None:
    waits: Any = Waits()
    answers = TerminalAnswers(waits, waits, interrupt=lambda: None)
    calls = (AskedCall(call_id="c1", tool="bash", input={"command": "ls"}, key="ls", rules=("bash(ls)",)),)
    async with anyio.create_task_group() as group:
        group.start_soon(answers.ask, waits, QuestionAsked(id="q", turn=1, kind="permission", calls=calls))
        await waits.is_asked.wait()
        consents = (CallConsent(call_id="c1", consent="session"),)
        answers.withdraw(QuestionAnswered(id="q", consents=consents, by="the web page"))
    assert waits.notes[-1] == "(allowed for this conversation by the web page)"


@pytest.mark.parametrize(
    ("typed", "answers"),
    [
        ("y", ["once", "once", "once"]),
        (" YES ", ["once", "once", "once"]),
        ("yy", ["once", "once", "once"]),
        ("ok", ["once", "once", "once"]),
        ("nn", ["no", "no", "no"]),
        ("s", ["session", "session", "session"]),
        ("always", ["always", "always", "always"]),
        ("n", ["no", "no", "no"]),
        ("", ["no", "no", "no"]),
        ("1 3", ["once", "no", "once"]),
        ("y 2", ["no", "once", "no"]),
        ("s 1,2", ["session", "session", "no"]),
        ("n 2", ["once", "no", "once"]),
    ],
)
def test_letters_answer_all_and_numbers_choose(typed: str, answers: list[str]) -> None:
    found = read_answer(typed, 3)
    assert found is not None
    assert [approval.answer for approval in found] == answers
    assert {approval.words for approval in found} == {""}


@pytest.mark.parametrize(
    ("typed", "answers"),
    [
        ("y", ["once", "no", "once"]),
        ("always", ["always", "no", "always"]),
        ("n", ["no", "no", "no"]),
        ("y 2", ["no", "once", "no"]),
        ("n 3", ["once", "no", "no"]),
    ],
)
def test_letters_answer_the_calls_that_are_not_left_out(typed: str, answers: list[str]) -> None:
    found = read_answer(typed, 3, {2})
    assert found is not None
    assert [approval.answer for approval in found] == answers


@pytest.mark.parametrize("typed", ["4", "y 0", "1 99999999"])
def test_a_number_that_no_call_has_is_asked_again(typed: str) -> None:
    assert read_answer(typed, 3) is None


@pytest.mark.parametrize("typed", ["use trash instead", "y please", "no, wait", "yes 1 2 three", "1" * 5000])
def test_other_words_mean_no_and_reach_the_model(typed: str) -> None:
    found = read_answer(typed, 2)
    assert found is not None
    assert [(approval.answer, approval.words) for approval in found] == [("no", typed.strip())] * 2


@pytest.mark.parametrize(
    ("input", "lines"),
    [
        ({"command": "git status"}, ["git status"]),
        ({"command": "a\n\n  b"}, ["a", "", "  b"]),
        ({"command": "git log" + " " * 500 + "; rm -r ."}, ["git log [500 blanks] ; rm -r ."]),
        ({"command": "git log\u00a0" * 2 + "\t" * 40 + "; rm"}, ["git log\u00a0git log [41 blanks] ; rm"]),
        ({"command": "git log" + "\n" * 90 + "rm -r ."}, ["git log", "[89 empty lines]", "rm -r ."]),
        ({"command": "echo " + "x" * 500 + "; rm -r ."}, ["echo " + "x" * 500 + "; rm -r ."]),
        (
            {"path": "a.txt", "content": "1\n2", "deep": {"a": [1]}},
            ["path: a.txt", "content: 1", "    2", 'deep: {"a": [1]}'],
        ),
        ({"command": "y" * 20_001}, ["y" * 20_000, "[not shown: 1 more character]"]),
        ({}, []),
        ({"text": ""}, [""]),
        ({"command": "ls \u200b\U000e0072\x1b"}, ["ls <U+200B><U+E0072><U+001B>"]),
        ({"pa\u202eth": "a\u2066b", "x": ""}, ["pa<U+202E>th: a<U+2066>b", "x: "]),
    ],
)
def test_no_part_of_a_call_is_hidden_from_the_user_who_decides(
    input: dict[str, object], lines: list[str]
) -> None:
    assert input_lines(input) == lines


@pytest.mark.parametrize(
    ("tool", "change", "lines"),
    [
        ("file_write", {"content": "x" * 5_000}, ["+" + "x" * 3_999 + " [not shown: 1,001 more characters]"]),
        ("file_write", {"content": "a\n" * 300}, [*["+a"] * 200, "[not shown: 100 more lines]"]),
        ("file_write", {"content": "a" + " " * 3_900 + "b"}, ["+a [3,900 blanks] b"]),
        ("file_write", {"content": "a" + "\n" * 250 + "b"}, ["+a", "+[249 empty lines]", "+b"]),
        ("file_edit", {"old": "a", "new": "a" + "\n \n" * 75 + "b"}, [" a", "+[149 empty lines]", "+b"]),
        ("file_edit", {"old": "a\r\nb", "new": "a\nb"}, ["Only line endings changed."]),
        ("file_edit", {"patch": "@@ -1 +1 @@\n-a\n+b"}, ["@@ -1 +1 @@", "-a", "+b"]),
    ],
)
def test_a_change_is_shown_whole_or_what_is_left_out_is_counted(
    tool: str, change: dict[str, object], lines: list[str]
) -> None:
    call = AskedCall(call_id="1", tool=tool, input={"path": "a.txt", **change}, key="path")
    asked, shown = call_lines(call)
    assert (asked, [line.text for line in shown]) == (["a.txt"], lines)


@pytest.mark.parametrize("change", [{"old": "a", "edits": []}, {"edits": ["a"]}, {"content": 1}, {}])
def test_what_is_no_change_is_shown_as_it_is(change: dict[str, object]) -> None:
    call = AskedCall(call_id="1", tool="file_edit", input={"path": "a.txt", **change}, key="path")
    assert call_lines(call) == (input_lines(call.input, subject="path"), ())
