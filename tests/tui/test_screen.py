"""The full screen: what a person does with keys, and what stands there then."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import anyio
import pytest
from textual.app import App, ComposeResult
from textual.events import Paste
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, TextArea

from satchel.cli import chat as chat_module
from satchel.config import load
from satchel.events import Notice, QuestionAsked
from satchel.messages import ToolResultBlock
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.runtime import clipboard as clipboards
from satchel.runtime.commands import COMMANDS
from satchel.runtime.hosting import LocalHost
from satchel.tools import Question, ToolContext, ToolResult
from satchel.tools.function import function_tool
from satchel.tui import parts
from satchel.tui.composer import Menu
from satchel.tui.dialogs import TextScreen
from satchel.tui.markdown import laid_out as laid_out_as_markdown
from satchel.tui.parts import StreamedAnswer
from tests.requirements import requirement
from tests.runtime.world import opened
from tests.tui.world import screen, screen_of

pytestmark = pytest.mark.anyio

ECHO = Reply(text="Let me **look**.", calls=[Call(name="bash", input={"command": "echo hi"})])
TWO = Reply(
    calls=[Call(name="bash", input={"command": "echo one"}), Call(name="bash", input={"command": "echo two"})]
)


@requirement("tui:screen")
async def test_a_turn_with_a_memory_a_tool_and_markdown_looks_like_this(tmp_path: Path) -> None:
    model = ScriptedModel([ECHO, Reply(text="# Done\n\nIt says `hi`:\n\n- one\n- two\n", chunk=5)])
    async with screen(tmp_path, model, mode="bypass", memory__profile_tokens=0) as hands:
        assert hands.satchel is not None
        assert hands.satchel.memory is not None
        await hands.satchel.memory.add(
            "The red kite hangs on the roof of the barn.", kind="episode", speaker="user"
        )
        await hands.say("Where does the red kite hang?")
        await hands.see("• two")
        await hands.until(lambda: hands.app.session.running is None)
        await hands.gone("Esc interrupts")
        await hands.see("19 out · ")
        assert hands.picture == PICTURE


PICTURE = """\
 Satchel 0.0   conversation <session>
 F1 shows the keys, /help the commands.
 ── hh:mm
 Where does the red kite hang?
  ╏ The red kite hangs on the roof of the barn.  stored · 0.00
 Let me look.
 │ ✓ bash echo hi   0.0 s · from outside
 │   hi
 Done
 It says hi:
  • one
  • two
 9 tokens in, 19 out · 0.0 s
──
 Say something, or / for commands
 Enter sends · F1 keys   scripted:scripted · bypass · 9 tokens in, 19 out"""


@requirement("tui:approvals")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("y", "allowed once"),
        ("s", "allowed for this conversation"),
        ("session", "allowed for this conversation"),
        ("n", "refused"),
        ("yes", "allowed once"),
        ("actually not", "refused"),
        ("yes but quietly", "refused"),
    ],
)
async def test_words_answer_a_permission_question_and_no_letter_of_them_does(
    tmp_path: Path, words: str, said: str
) -> None:
    model = ScriptedModel([ECHO, "Finished."])
    async with screen(tmp_path, model) as hands:
        await hands.say("Run it")
        await hands.see("Satchel wants to run this call:")
        assert "bash  echo hi" in hands.text
        assert "Waits for you" in hands.text
        await hands.say(words)  # before anybody can have seen the question
        await hands.pilot.pause()
        assert hands.app.session.open_questions
        assert hands.app._composer.text == words
        hands.look_for_a_while()
        await hands.pilot.press("enter")
        await hands.see("Finished.")
        assert f"? {said}" in hands.text
        assert "answered already" not in hands.text
        assert "Satchel wants to run" not in hands.text
        assert hands.app.session.open_questions == ()
        assert hands.app._composer.text == ""
    told = _results(model.requests[1])[0].content
    assert " " not in words or words in told


@requirement("tui:approvals")
async def test_what_is_being_written_when_a_question_appears_answers_it_only_when_it_is_sent(
    tmp_path: Path,
) -> None:
    replies: Iterator[Reply | str] = iter([ECHO, "Finished."])

    def script(_: ModelRequest) -> Reply | str:
        hands.app._composer.put("Al")  # the user goes on writing meanwhile
        return next(replies)

    async with screen(tmp_path, ScriptedModel(script)) as hands:
        await hands.say("Run it")
        await hands.see("Satchel wants to run this call:")
        hands.look_for_a_while()
        await hands.pilot.press("s", "o")
        assert hands.app._composer.text == "Also"
        assert hands.app.session.open_questions
        hands.app._composer.clear()
        await hands.say("y")
        await hands.see("? allowed once")


@requirement("tui:approvals")
async def test_a_change_that_waits_is_shown_as_a_diff_with_colours(tmp_path: Path) -> None:
    edit = Call(
        name="file_edit", input={"path": "a.txt", "old": "one\ntwo", "new": "one\nthree", "replace_all": True}
    )
    async with screen(tmp_path, ScriptedModel([Reply(calls=[edit]), "Finished."])) as hands:
        await hands.say("Change it")
        await hands.see("Satchel wants to run this call:")
        for line in ("path: a.txt", "replace_all: true", " one", "-two", "+three"):
            assert f"     {line}\n" in hands.text
        assert "old:" not in hands.text


@requirement("tui:screen")
async def test_the_keys_are_shown_over_the_conversation_and_esc_only_closes_them(tmp_path: Path) -> None:
    async with screen(tmp_path, ScriptedModel([ECHO, "Finished."])) as hands:
        await hands.say("Run it")
        await hands.see("Satchel wants to run this call:")
        await hands.pilot.press("f1")
        assert isinstance(hands.app.screen, TextScreen)
        await hands.pilot.press("escape")
        assert not isinstance(hands.app.screen, TextScreen)
        assert "Ctrl-R" not in hands.text
        assert hands.app.session.open_questions  # the turn was not interrupted


@requirement("sessions:rewind")
async def test_two_escapes_go_back_to_a_message_and_its_files(tmp_path: Path) -> None:
    write = Call(name="file_write", input={"path": "list.txt", "content": "pears"})
    model = ScriptedModel(["Hello.", Reply(calls=[write]), "Written."])
    async with screen(tmp_path, model, mode="bypass") as hands:
        await hands.say("Good day")
        await hands.see("Hello.")
        await hands.say("Make a list")
        await hands.see("Written.")
        file, old = hands.app.session.cwd / "list.txt", hands.app.session.id
        await hands.until(lambda: hands.app.session.running is None and file.exists())
        await hands.pilot.press("escape")
        await hands.pilot.press("escape")
        await hands.see("Go back to before")
        await hands.see("1 Good day")
        await hands.pilot.press("enter")  # the newest
        await hands.see("also the files")
        await hands.pilot.press("down")
        await hands.pilot.press("enter")
        await hands.see("Put 1 file back?")
        assert str(file) in hands.text.replace("\n", "").replace(" ", "")
        await hands.say("y")
        await hands.until(lambda: hands.app.session.id != old and not file.exists())
        await hands.until(lambda: hands.app._composer.text == "Make a list")
        await hands.see("Good day")
        assert "Written." not in hands.text


@requirement("plan:faces")
async def test_a_plan_is_approved_and_the_status_shows_the_mode(tmp_path: Path) -> None:
    plan = Call(name="propose_plan", input={"plan": "A list.", "steps": ["Write the list"]})
    async with screen(tmp_path, ScriptedModel([Reply(calls=[plan]), "Begun."]), mode="plan") as hands:
        await hands.say("Make a list")
        await hands.see("2. Yes, in mode auto")
        assert "    - Write the list" in hands.text
        assert "scripted:scripted · plan" in hands.text
        await hands.say("2")
        await hands.see("Begun.")
        assert "☐ Write the list" in hands.text
        await hands.see("scripted:scripted · auto")


@requirement("delegate:log")
async def test_the_details_of_a_call_show_what_its_sub_agent_did(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Reply:
        if not request.system.startswith("You are a sub-agent"):
            delegate = Call(name="delegate", input={"task": "Look."})
            return Reply(text="Found.") if len(request.messages) > 1 else Reply(calls=[delegate])
        if len(request.messages) == 1:
            return Reply(calls=[Call(name="grep", input={"pattern": "harbour"})])
        return Reply(text="There is none.")

    async with screen(tmp_path, ScriptedModel(script)) as hands:
        await hands.say("Find one")
        await hands.see("Found.")
        assert "grep harbour" not in hands.text
        await hands.pilot.press("ctrl+t")
        await hands.see("grep harbour · done")


@requirement("tui:approvals")
async def test_one_of_two_calls_is_left_out_and_words_refuse_and_reach_the_model(tmp_path: Path) -> None:
    model = ScriptedModel([TWO, TWO, ECHO, "Finished."])
    async with screen(tmp_path, model, size=(80, 50)) as hands:
        await hands.say("Run both")
        await hands.see("these 2 calls")
        hands.look_for_a_while()
        await hands.say("2")
        await hands.see("○ 2. bash")
        await hands.say("y")
        await hands.see("? allowed once, refused")
        await hands.see("● 2. bash")
        hands.look_for_a_while()
        await hands.say("use cat instead")
        await hands.see("this call")
        hands.look_for_a_while()
        await hands.say("a")
        await hands.see("Finished.")
    refused = _results(model.requests[2])
    assert [block.is_error for block in _results(model.requests[3])] == [False]  # always
    assert [block.is_error for block in refused] == [True, True]
    assert all('"use cat instead". ' in block.content for block in refused)
    assert all("do what they said" in block.content for block in refused)
    assert [block.is_error for block in _results(model.requests[1])] == [False, True]


@requirement("tui:approvals")
async def test_numbers_and_commands_are_no_words_for_the_model(tmp_path: Path) -> None:
    touch = [
        Call(name="bash", input={"command": f"touch {tmp_path}/{name}"}) for name in ("one", "two", "six")
    ]
    model = ScriptedModel([Reply(calls=touch[:2]), Reply(calls=touch[2:]), "Finished."])
    async with screen(tmp_path, model, size=(200, 50)) as hands:
        await hands.say("Run both")
        await hands.see("these 2 calls")
        hands.look_for_a_while()
        await hands.say("3")
        await hands.see("The calls are numbered from 1 to 2.")
        assert hands.app._composer.text == "3"
        hands.app._composer.clear()
        await hands.say("! echo hi")
        await hands.see("A turn is running")
        await hands.say("1, 2")
        await hands.see("○ 2. bash")
        assert "○ 1. bash" in hands.text
        await hands.say("2")
        await hands.see("● 2. bash")
        always = next(line for line in hands.text.splitlines() if "always: " in line)
        assert always.count("bash(") == 1
        await hands.say("always")
        await hands.see("? refused, always allowed")
        await hands.see("this call")
        hands.look_for_a_while()
        await hands.say("1")
        await hands.see("There is one call, without a number.")
        assert hands.app.session.open_questions
        hands.app._composer.clear()
        await hands.say("n 1")
        await hands.see("Finished.")


def _results(request: ModelRequest) -> list[ToolResultBlock]:
    return [block for block in request.messages[-1].blocks if isinstance(block, ToolResultBlock)]


@requirement("tui:shared", "shared:permission")
async def test_a_question_that_another_client_answers_is_settled_and_its_messages_appear(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([ECHO, "Finished.", "And that was from elsewhere."])
    async with screen(tmp_path, model) as hands:
        assert hands.satchel is not None
        other = await hands.satchel.session(hands.app.session.id, interactive=True)
        await hands.say("Run it")
        await hands.see("Satchel wants to run this call:")
        (question,) = other.open_questions
        assert isinstance(question, QuestionAsked)
        await other.answer(question.id, consent="once", by="the browser")
        await hands.see("allowed once by the browser")
        await hands.see("Finished.")
        await hands.until(lambda: hands.app.session.running is None)
        await other.run_turn("Said in the browser")
        await hands.see("And that was from elsewhere.")
        assert "Said in the browser" in hands.text
        # What another client's command did is shown; of one's own, that the model is told.
        host = LocalHost(hands.satchel)
        await host.command(
            other, COMMANDS["shell"], "echo plum$((1))", show=lambda _: None, tell=lambda _: None
        )
        await hands.see("your command: echo plum$((1)): exit code: 0 stdout: plum1")
        await hands.say("!echo fig$((2))")
        await hands.see("your command: echo fig$((2)): told with your next message")
        await other.aclose()


class _Held:
    """Holds an answer back in the middle."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()

    async def wait(self) -> None:
        await self.go_on.wait()


@requirement("tui:screen")
async def test_the_status_names_a_tool_only_while_it_runs(tmp_path: Path) -> None:
    held = _Held()
    model = ScriptedModel([ECHO, Reply(text="Finished.", before=held.wait)])
    async with screen(tmp_path, model, mode="bypass") as hands:
        await hands.say("Run it")
        await hands.see("✓ bash")
        await hands.see("▸ thinking")
        held.go_on.set()
        await hands.see("Finished.")


@requirement("tui:interrupt")
@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_a_key_interrupts_the_answer_and_ctrl_c_twice_leaves(tmp_path: Path, key: str) -> None:
    held = _Held()
    answer = Reply(text="One two three four", chunk=8, between=held.wait)
    long_name = "qwen3-coder-480b-a35b-instruct-2026-11-30-q4_K_M-imatrix"
    async with screen(tmp_path, ScriptedModel([answer], model=long_name)) as hands:
        await hands.say("Count")
        await hands.see("One two")
        assert "Esc interrupts" in hands.text
        assert "… · ask" in hands.text  # the name gives way
        await hands.pilot.press(key)
        await hands.see("(interrupted)")
        hands.look_for_a_while()
        await hands.pilot.press("ctrl+c")
        await hands.see("Press Ctrl-C again to leave.")
        assert hands.app.return_value is None
        await hands.pilot.press("ctrl+c")
        await hands.until(lambda: hands.app.return_value is not None)
    assert hands.app.return_value == 130


@requirement("clients:line")
async def test_a_message_that_waits_stands_on_the_screen_until_it_is_taken_back_or_begins(
    tmp_path: Path,
) -> None:
    held = _Held()
    first = Reply(text="One two three four", chunk=8, between=held.wait)
    async with screen(tmp_path, ScriptedModel([first, "After it."])) as hands:
        await hands.say("Count")
        await hands.see("One two")
        await hands.say("Second")
        await hands.see("waits: Second")
        await hands.say("Third")
        await hands.see("waits: Third")
        await hands.say("/back")
        await hands.until(lambda: "waits: Third" not in hands.text)
        held.go_on.set()
        await hands.see("After it.")
        assert "waits: " not in hands.text


@requirement("tui:commands")
async def test_commands_are_those_of_the_table_and_complete_with_tab(tmp_path: Path) -> None:
    async with screen(tmp_path, ScriptedModel([]), size=(100, 60)) as hands:
        await hands.type("/")
        await hands.see(COMMANDS["help"].help)
        await hands.type("mode")
        await hands.until(lambda: hands.app.query_one(Menu).words == ["/mode", "/model"])
        await hands.pilot.press("tab")
        await hands.type("pl")
        await hands.until(lambda: hands.app.query_one(Menu).words == ["plan"])
        await hands.pilot.press("tab", "enter")
        await hands.see("Mode plan from now on.")
        assert hands.app.session.mode == "plan"
        await hands.pilot.press("shift+tab")
        await hands.see("Mode ask from now on.")
        for _ in range(2):  # the second goes on from the first, however fast it comes
            await hands.app.run_action("mode")
        await hands.see("Mode auto from now on.")
        await hands.until(lambda: hands.app.session.mode == "plan")
        await hands.pilot.press("x")  # the field has kept the keys
        await hands.until(lambda: hands.app._composer.text == "x")
        hands.app._composer.clear()
        await hands.say("/help ")
        for command in COMMANDS.values():
            await hands.see(command.help)
        await hands.say("/nonsense")
        await hands.see("There is no command /nonsense.")


@requirement("tui:commands")
async def test_enter_sends_what_was_typed_when_the_menu_is_still_about_an_earlier_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with screen(tmp_path, ScriptedModel([])) as hands:
        await hands.type("/")
        await hands.until(lambda: hands.app.query_one(Menu).display)
        monkeypatch.setattr(type(hands.app._host), "completions", lambda *_: anyio.sleep_forever())
        await hands.type("mode plan")
        await hands.pilot.press("enter")
        await hands.see("Mode plan from now on.")


@requirement("tui:commands")
async def test_typing_on_before_words_were_looked_for_leaves_no_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    async with screen(tmp_path, ScriptedModel([])) as hands:
        await hands.type("/")
        event = TextArea.Changed(hands.app._composer)
        for _ in range(3):  # as keys that arrive at once
            await hands.app.on_text_area_changed(event)
        await hands.until(lambda: hands.app.query_one(Menu).display)
    gc.collect()
    assert [str(warning.message) for warning in recwarn if "never awaited" in str(warning.message)] == []


@requirement("tui:commands")
async def test_forgetting_asks_first(tmp_path: Path) -> None:
    async with screen(tmp_path, ScriptedModel([])) as hands:
        assert hands.satchel is not None
        memory = hands.satchel.memory
        assert memory is not None
        id = await memory.add("Mara is allergic to shellfish.")
        await hands.say(f"/forget {id}")
        await hands.see("Forget this memory permanently?")
        (answer := tmp_path / "work" / "no").write_text("x")
        await hands.type(str(answer))
        assert hands.app._composer.text == str(answer)
        hands.app._composer.put("")
        await hands.say("no")
        await hands.see("permanently? no")
        assert await memory.count() == 1
        await hands.say(f"/forget {id}")
        await hands.gone("permanently? yes")
        await hands.see("anything else cancels it")
        await hands.say("yy")
        await hands.see("Forgotten:")
        assert await memory.count() == 0


@requirement("tui:commands")
async def test_the_output_of_a_command_that_the_user_runs_stands_there_once(tmp_path: Path) -> None:
    async with screen(tmp_path, ScriptedModel([])) as hands:
        await hands.say("! echo $((6 * 7))00")
        await hands.see("4200")
        await hands.see("bash echo")
        assert hands.text.count("4200") == 1
        assert "! echo $((6 * 7))00" in hands.text  # as it was typed
        assert "/shell" not in hands.text


@requirement("tui:writing")
async def test_several_lines_earlier_messages_and_long_pastes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(lambda request: f"I got {len(request.messages[-1].text)} characters.")
    (work := tmp_path / "work").mkdir()
    for path in ((picture := work / "a kite.png"), work / ".env", tmp_path / "elsewhere.png"):
        path.write_bytes(b"\x89PNG\r\n\x1a\n")
    (hollow := work / "hollow").touch()
    os.mkfifo(copied := tmp_path / "copied")
    (clipboard := tmp_path / "xclip").write_text(f"#!/bin/sh\ncat '{copied}'\n")
    clipboard.chmod(0o755)
    monkeypatch.setattr(clipboards, "_LIMIT_S", 60.0)
    pasted = tmp_path / "home" / "uploads" / "clipboard-4c4b6a3b.png"
    async with screen(tmp_path, model, environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}) as hands:
        for before, words in (
            ("! cat ", str(picture)),
            ("/watch ", str(picture)),
            ("see", str(picture)),
            ("", f"'{picture}'\n'{picture}'"),
            ("", f"{work}/.env"),
        ):
            hands.app._composer.put(before)
            await hands.type(words)
            assert hands.app._composer.text == f"{before}{words}"
        hands.app._composer.put("")
        await hands.type(str(afar := tmp_path / "elsewhere.png"))
        assert hands.app._composer.text == f"@{afar} "
        hands.app._composer.put("")
        await hands.type("first")
        for key in ("ctrl+j", "alt+enter", "shift+enter"):
            await hands.pilot.press(key)
        await hands.say("last\\")
        await hands.say("line")
        await hands.see("I got")
        page = "\n".join(f"line {number} of a page" for number in range(400))
        # As terminals send it.
        hands.app.post_message(Paste(page.replace("\n", "\r")))
        await hands.see("[pasted text 1: 400 lines")
        await hands.type(" ")
        await hands.type(f"'{picture}'")
        await hands.pilot.press("ctrl+v")
        # Keys go on while the clipboard is read.
        await hands.type("it")
        await hands.until(lambda: hands.app._composer.text.endswith(" it"))
        copied.write_bytes(picture.read_bytes())
        await hands.until(lambda: "clipboard-" in hands.app._composer.text)
        await hands.say("@hollow")
        await hands.see("The file is empty.")
        hollow.write_text("x")
        await hands.pilot.press("enter")
        await hands.until(lambda: len(model.requests) == 2)
        await hands.see(f"Attached: a kite.png, {pasted.name}, hollow")
        await hands.until(lambda: not list(pasted.parent.iterdir()))
        await hands.see("… 388 more lines")
        await hands.pilot.press("up", "enter")
        # The picture of the clipboard is gone: only its name is said again.
        await hands.see("Attached: a kite.png, hollow")
        await hands.until(lambda: len(model.requests) == 3)
        await hands.pilot.press("up")
        await hands.see("@hollow")
        await hands.pilot.press("ctrl+r")
        await hands.see("Earlier messages")
        await hands.type("first")
        await hands.pilot.press("enter")
        await hands.until(lambda: hands.app._composer.text == "first\n\n\nlast\nline")
    said = [_words(request) for request in model.requests]
    assert said == ["first\n\n\nlast\nline", *[f'{page} @"{picture}" it @{pasted} @hollow'] * 2]
    files = [[file.name for file in request.messages[-1].files] for request in model.requests]
    assert files == [[], ["a kite.png", pasted.name, "hollow"], ["a kite.png", "hollow"]]


def _words(request: ModelRequest) -> str:
    return request.messages[-1].text


@requirement("tui:resume")
async def test_another_conversation_is_chosen_and_its_last_exchanges_are_shown(tmp_path: Path) -> None:
    async with screen(tmp_path, ScriptedModel([ECHO, "Answer one.", "Answer two."]), mode="bypass") as hands:
        await hands.say("The first conversation")
        await hands.see("Answer one.")
        first = hands.app.session.id
        await hands.say("/new ")
        await hands.gone("Answer one.")
        await hands.say("The second one")
        await hands.see("Answer two.")
        assert hands.app.session.id != first
        await hands.pilot.press("ctrl+o")
        await hands.see("Conversations")
        await hands.type("first")
        await hands.pilot.press("enter")
        await hands.see("Answer one.")
        await hands.see("│ bash echo hi · done")
        assert hands.app.session.id == first


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J[bold red]not markup[/] [@click=app.exit]x[/] \u202eesrever \x9b31m\x00 <b>&lt;"
)


@requirement("tui:hostile", "cli:terminal-safe")
async def test_hostile_words_and_results_are_inert_and_cost_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out = 0
    real = laid_out_as_markdown

    def counting(text: str, *, is_dark: bool = True) -> object:
        nonlocal laid_out
        laid_out += len(text)
        return real(text, is_dark=is_dark)

    monkeypatch.setattr(parts, "laid_out", counting)
    work = tmp_path / "work"
    work.mkdir()
    (work / "huge.txt").write_text(HOSTILE + "x" * 10_000_000)
    call = Call(name="bash", input={"command": f"cat huge.txt # {HOSTILE}"})
    model = ScriptedModel(
        [Reply(text=HOSTILE, calls=[call]), f"```\n{HOSTILE}\n```\n\n| {HOSTILE} |\n|---|\n| x |"]
    )
    async with screen(tmp_path, model, mode="bypass") as hands:
        await hands.say("Look at [bold]this[/bold]")
        await hands.see("tokens in")
        await hands.pilot.press("ctrl+t")
        await hands.pilot.pause()
        controls = {char for char in hands.text if char != "\n" and not char.isprintable()}
        assert controls == set()
        await hands.pilot.press("pageup", "pageup", "pageup", "pageup")
        everything = "".join(hands.text)
        assert {char for char in everything if char != "\n" and not char.isprintable()} == set()
        assert "[bold]this[/bold]" in everything
    assert laid_out < 10_000


@requirement("tui:linear")
async def test_a_long_answer_costs_in_proportion_to_its_length() -> None:
    """Every piece is painted, which is the worst case: what is laid out grows with the text, not with its square."""

    def cost(length: int) -> int:
        said = _CountedAnswer(is_dark=lambda: True)
        text = "".join(f"Paragraph {number} " + "says a few words. " * 12 + "\n\n" for number in range(500))[
            :length
        ]
        for start in range(0, length, 7):
            said.feed(text[start : start + 7])
            said.paint()
        said.finish(text)
        return said.characters

    short, long = cost(13_000), cost(26_000)
    assert 13_000 < short < long < 2.1 * short


@requirement("tui:screen")
async def test_an_answer_that_ends_between_its_measure_and_its_first_paint_is_shown() -> None:
    said = StreamedAnswer(is_dark=lambda: True)
    async with _Showing(said).run_test() as pilot:
        await pilot.pause()
        assert said.size == Size(80, 0)
        said.feed("Noted.")
        said.finish("Noted.")
        await pilot.pause()
        assert said.size.height == 1


class _Showing(App[None]):
    """Shows one widget."""

    CSS = "StreamedAnswer { height: auto; }"

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self._widget = widget

    def compose(self) -> ComposeResult:
        yield self._widget


class _CountedAnswer(StreamedAnswer):
    """Counts what is laid out instead of showing it."""

    def __init__(self, *, is_dark: Callable[[], bool]) -> None:
        super().__init__(is_dark=is_dark)
        self.characters = 0
        self._laid_width = 80

    def _strips(self, text: str, width: int, *, is_first: bool) -> list[Strip]:
        self.characters += len(text)
        return [Strip.blank(width)]


@requirement("tui:fallback")
@pytest.mark.parametrize(
    ("environ", "size", "is_terminal", "has_screen"),
    [
        ({"TERM": "xterm-256color"}, (80, 24), True, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, (60, 20), True, True),
        ({"TERM": "dumb"}, (80, 24), True, False),
        ({}, (80, 24), True, False),
        ({"TERM": "xterm"}, (39, 24), True, False),
        ({"TERM": "xterm"}, (80, 11), True, False),
        ({"TERM": "xterm"}, (80, 24), False, False),
        ({"TERM": "xterm", "SATCHEL_TERMINAL_SCREEN": "off"}, (80, 24), True, False),
    ],
)
def test_the_screen_is_used_where_the_terminal_can_show_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environ: Mapping[str, str],
    size: tuple[int, int],
    is_terminal: bool,
    has_screen: bool,
) -> None:
    settings = load({"HOME": str(tmp_path), **environ}, cwd=tmp_path, home=tmp_path / "home")
    monkeypatch.setattr(chat_module, "is_terminal", lambda stream: is_terminal)
    monkeypatch.setenv("COLUMNS", str(size[0]))
    monkeypatch.setenv("LINES", str(size[1]))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert chat_module.has_screen(settings) is has_screen


@requirement("capabilities:earned:skill")
async def test_a_skill_that_is_proposed_stands_on_the_screen_whole_and_line_by_line(tmp_path: Path) -> None:
    steps = [f"- Step {number} of how it is to be done, in a dozen words." for number in range(20)]
    async with screen(tmp_path, None, size=(80, 40)) as hands:
        assert hands.satchel is not None
        text = "\n".join(("Shall I keep it as a skill?", "", *steps))
        hands.satchel.notices.post(Notice(part="capabilities", text=text))
        await hands.say("Hello.")
        for step in steps:
            await hands.see(step)


@requirement("tui:approvals")
async def test_a_question_of_a_tool_has_its_own_field_and_takes_nothing_that_is_being_written(
    tmp_path: Path,
) -> None:
    async def wonder(_: Mapping[str, object], context: ToolContext) -> ToolResult:
        assert context.ask is not None
        return ToolResult(text=str(await context.ask(Question(text="Which of them?"))))

    tool = function_tool(wonder, name="wonder", description="Wonders.", properties={})

    def script(request: ModelRequest) -> Reply | str:
        if len(request.messages) > 1:
            return "Finished."
        hands.app._composer.put("Al")  # the user goes on writing meanwhile
        return Reply(calls=[Call(name="wonder"), Call(name="wonder")])

    async with opened(tmp_path, ScriptedModel(script)) as satchel:
        session = await satchel.session(tools=[tool], interactive=True)
        async with screen_of(LocalHost(satchel), session, satchel=satchel) as hands:
            await hands.say("Go")
            await hands.until(lambda: len(session.open_questions) == 2)
            await hands.until(lambda: len(hands.app.query(parts.QuestionPrompt)) == 2)
            await hands.pilot.press("s", "o")
            assert hands.app._composer.text == "Also"
            await hands.pilot.press("enter")  # a message, which waits
            await hands.until(lambda: isinstance(hands.app.focused, Input))
            await hands.pilot.press("o", "n", "e", "enter")
            await hands.until(lambda: len(session.open_questions) == 1)
            await hands.until(lambda: isinstance(hands.app.focused, Input))
            await hands.pilot.press("t", "w", "o")
            assert hands.app._composer.text == ""
            await hands.pilot.press("enter")
            await hands.until(lambda: session.open_questions == ())
            await hands.see("Finished.")
            results = [
                block.content
                for message in session.messages
                for block in message.blocks
                if isinstance(block, ToolResultBlock)
            ]
            assert sorted(results) == ["one", "two"]
