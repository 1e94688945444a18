"""`satchel chat` on a terminal, and without one."""

from __future__ import annotations

import json
import os
import re
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.config import load
from satchel.runtime import Satchel
from tests.cli.conftest import Run, serving
from tests.cli.programs import PROGRAM, calls, chats, environ_for, said_to, scripted, sent_to, speaks
from tests.cli.terminals import ALT_ENTER, CTRL_C, CTRL_D, ENTER, TAB, UP, terminal
from tests.models.loopback import Answer, Asked, as_json
from tests.requirements import requirement

SHELLFISH = "My sister Mara is allergic to shellfish."
BASH = ("bash", {"command": "touch made.txt && echo done"})


def never_ends(text: str) -> Answer:
    """An answer that says something and then holds the line."""
    whole = speaks(text)
    return replace(whole, pieces=[*whole.pieces[:1], b": \n\n"], hold=anyio.Event())


@requirement("cli:wizard")
def test_the_first_start_asks_two_questions_that_can_be_skipped(tmp_path: Path) -> None:
    with terminal(tmp_path) as screen:
        screen.see("Two questions")
        screen.answer("Model [Enter: choose automatically]: ")
        screen.answer("[Y/n]: ")
        screen.see("Satchel 0.1.0 · none")
        screen.see("No language model is set up")
        screen.see("›")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    assert not (tmp_path / "home" / "config.toml").exists()
    with terminal(tmp_path) as screen:
        assert "questions" not in screen.see("›")


def models_at(*paths: str, names: Sequence[str] = ("m-1", "m-2"), key: str = "") -> Callable[[Asked], Answer]:
    """An endpoint that lists its models at these paths, accepts one key, and answers 404 elsewhere."""

    def answer(asked: Asked) -> Answer:
        if key and asked.headers.get("authorization") != f"Bearer {key}":
            return as_json({"error": {"message": "who are you?"}}, status=401)
        if asked.path in paths:
            return as_json({"data": [{"id": name} for name in names]})
        return speaks("ready") if asked.path == "/v1/chat/completions" else as_json({}, status=404)

    return answer


def written(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "home" / "config.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


@requirement("cli:wizard", "cli:wizard:checks")
@pytest.mark.parametrize(("typed", "name"), [("", "m-1"), ("2", "m-2"), ("m-2", "m-2")])
def test_the_wizard_lists_the_models_at_an_address_to_choose_from(
    tmp_path: Path, typed: str, name: str
) -> None:
    with serving(models_at("/v1/models")) as server:
        with terminal(tmp_path) as screen:
            screen.see("Model [")
            # Without the path, which is found.
            screen.type(server.url, ENTER)
            screen.see(f"The API is at {server.url}/v1.")
            screen.answer("  1. m-1\n  2. m-2\nNumber or name [1]: ", typed)
            screen.answer("[Y/n]: ")
            screen.see(f"Satchel 0.1.0 · {server.provider}:{name}")
            screen.say("Hi")
            screen.see("ready")
        assert said_to(chats(server)[0]) == "Hi"
    assert written(tmp_path)["providers"][server.provider] == {
        "kind": "openai",
        "base_url": f"{server.url}/v1",
    }


@requirement("cli:wizard:checks")
def test_the_wizard_asks_again_after_a_typo_and_writes_nothing_before_it_works(tmp_path: Path) -> None:
    with serving(models_at("/v1/models")) as server, terminal(tmp_path, "config", "init") as screen:
        for typed, told in (
            ("opnai:m", "There is no provider 'opnai'. Did you mean \"openai\"?"),
            ("gguf", "Name the model file: gguf:/path/model.gguf"),
            ("gguf:/no/file.gguf", "There is no file /no/file.gguf."),
        ):
            screen.answer("Model [", typed)
            screen.see(told)
        screen.answer("Model [", "127.0.0.1:9")
        screen.see("127-0-0-1-9 at 127.0.0.1:9 cannot be reached")
        screen.answer("Use it anyway? [y/N]: ", "perhaps")
        screen.see("Please answer y or n.")
        screen.answer("Use it anyway? [y/N]: ", "n")
        screen.answer("Model [", f"{server.url}/v1")
        screen.answer("Number or name [1]: ", "7")
        screen.see("7 is not among its models.")
        screen.answer("Number or name [1]: ", "m-3")
        screen.see("m-3 is not among its models. Did you mean")
        screen.answer("Use it anyway? [y/N]: ", "n")
        screen.see("Number or name [1]: ")
        assert written(tmp_path) == {}
        screen.type("2", ENTER)
        screen.answer("[Y/n]: ", "n")
        screen.see("Written to")
        assert screen.leave() == 0
    assert written(tmp_path)["model"] == f"{server.provider}:m-2"
    assert written(tmp_path)["memory"] == {"capture": False}


@requirement("cli:wizard:checks")
def test_the_wizard_asks_for_the_variable_of_a_key_that_an_address_wants(tmp_path: Path) -> None:
    answers = models_at("/v1/models", key="right")
    with serving(answers) as server, terminal(tmp_path, "config", "init", MY_KEY="right") as screen:
        screen.answer("Model [", f"{server.url}/v1")
        screen.see("requires a key")
        screen.answer("Its key, or the name of the variable", "not right")
        screen.see("This can't be a key")
        screen.answer("Its key, or the name of the variable", "MY_KEY")
        screen.answer("  1. m-1")
        screen.answer("[Y/n]: ")
        screen.see("Written to")
        assert screen.leave() == 0
    assert written(tmp_path)["providers"][server.provider]["env_api_key"] == "MY_KEY"
    assert "right" not in (tmp_path / "home" / "config.toml").read_text()


@requirement("cli:wizard:checks")
def test_an_endpoint_that_lists_no_models_is_asked_for_an_answer(tmp_path: Path) -> None:
    with serving(models_at()) as server, terminal(tmp_path, "config", "init") as screen:
        screen.answer("Model [", f"{server.url}/wrong")
        screen.answer("Name of its model [Enter: default]: ")
        screen.see(f"{server.url}/wrong/models answers 404.")
        screen.answer("Use it anyway? [y/N]: ")
        screen.answer("Model [", f"{server.url}/v1")
        screen.answer("Name of its model [Enter: default]: ", "m-9")
        screen.see(f"Checking {server.provider}:m-9 …")
        screen.answer("[Y/n]: ")
        screen.see("Written to")
        assert screen.leave() == 0
    assert written(tmp_path)["model"] == f"{server.provider}:m-9"


@requirement("cli:wizard:checks")
@pytest.mark.parametrize("keys", [(CTRL_C,), ("127.0.0.1:9", ENTER, CTRL_C)])
def test_ctrl_c_leaves_the_wizard_and_writes_nothing(tmp_path: Path, keys: tuple[str, ...]) -> None:
    with terminal(tmp_path) as screen:
        screen.see("Model [Enter")
        screen.type(*keys[:-1])
        if len(keys) > 1:
            screen.see("Use it anyway?")
        # Python notices a Ctrl-C that arrives just before it reads only when the read returns: Enter makes it return.
        screen.type(keys[-1], ENTER)
        screen.see("Interrupted.")
        assert screen.leave() == 130
    assert not (tmp_path / "home").exists()


@requirement("cli:wizard")
def test_a_hosted_provider_is_taken_before_its_key_is_there_if_the_user_agrees(tmp_path: Path) -> None:
    with terminal(tmp_path, "config", "init") as screen:
        screen.answer("Model [", "anthropic")
        screen.answer("Paste its key, which is not shown [Enter: set ANTHROPIC_API_KEY yourself]: ")
        screen.see("Set ANTHROPIC_API_KEY in your environment before you start Satchel")
        screen.answer("Use anthropic:claude-sonnet-5-5? [Y/n]: ")
        screen.answer("[Y/n]: ")
        screen.see("Written to")
        assert screen.leave() == 0
    assert written(tmp_path) == {"model": "anthropic:claude-sonnet-5-5"}


@requirement("cli:wizard:key")
def test_a_key_can_be_pasted_and_is_neither_shown_nor_in_the_settings(tmp_path: Path) -> None:
    with (
        serving(models_at("/v1/models", key="sk-right")) as server,
        terminal(tmp_path, "config", "init") as screen,
    ):
        screen.answer("Model [", f"{server.url}/v1")
        screen.answer("Its key, or the name of the variable", "sk-right")
        screen.answer("  1. m-1")
        screen.answer("[Y/n]: ")
        screen.see("Written to")
        assert screen.leave() == 0
        assert "sk-right" not in screen.text
    variable = f"OWN_{server.provider.upper().replace('-', '_')}_API_KEY"
    kept = tmp_path / "home" / "keys.json"
    assert (kept.stat().st_mode & 0o777, json.loads(kept.read_text())) == (0o600, {variable: "sk-right"})
    assert written(tmp_path)["providers"][server.provider]["env_api_key"] == variable


@requirement("cli:chat:slash")
def test_a_conversation_remembers_runs_commands_and_ends_with_ctrl_d(tmp_path: Path) -> None:
    with terminal(tmp_path, "chat", "--model", "none") as screen:
        screen.say(SHELLFISH)
        screen.see("Noted.")
        screen.say("/sessions")
        screen.answer(f"{SHELLFISH}  (1 turn)  ← this one", "/nope")
        screen.answer("There is no command /nope.", '/run file_write {"path": "a.md", "content": "x"}')
        screen.answer("● file_write", "!echo $((6 * 7))00")
        screen.see("✉ your command: echo $((6 * 7))00: told with your next message")
        screen.say("/new")
        screen.answer(
            "Satchel 0.1.0 · none · conversation ", "What should I keep in mind when I cook for Mara?"
        )
        screen.answer(f"◆ {SHELLFISH}", "/quit")
        assert screen.leave() == 0
    assert (tmp_path / "work" / "a.md").read_text() == "x"


@requirement("cli:chat:plain")
def test_an_answer_is_laid_out_as_it_comes_and_plain_with_no_color(tmp_path: Path) -> None:
    answer = "# Soup\n\nFirst **boil** water.\n\n- one\n- two\n"
    with serving(scripted(speaks(answer), speaks(answer))) as server:
        with terminal(tmp_path, "chat", server=server) as screen:
            screen.say("How?")
            screen.see("First boil water.")
            screen.see("• two")
            screen.see("tokens in")
        with terminal(tmp_path, "chat", server=server, NO_COLOR="1") as screen:
            screen.say("How?")
            screen.see("# Soup\n\nFirst **boil** water.\n\n- one\n- two\n")


@requirement("cli:chat:plain")
@pytest.mark.parametrize(
    "keys",
    [("one\\", ENTER, "two", ENTER), ("one", ALT_ENTER, "two", ENTER), ("\x1b[200~one\ntwo\x1b[201~", ENTER)],
    ids=["backslash", "Alt-Enter", "paste"],
)
def test_a_message_may_have_several_lines_and_a_file_that_is_dragged_to_it(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    (tmp_path / "work").mkdir()
    (note := tmp_path / "work" / "a note.txt").write_text("Nine years.")
    with serving(scripted(speaks("Read."))) as server, terminal(tmp_path, "chat", server=server) as screen:
        screen.see("›")
        screen.type(f"\x1b[200~'{note}'\x1b[201~", *keys)
        screen.see("Read.")
    [sent, said] = [part["text"] for part in chats(server)[0].body["messages"][-1]["content"]]
    assert sent == "[a note.txt]\nNine years."
    assert said.startswith(f'@"{note}" one\ntwo\n')


@requirement("cli:chat:interrupt")
def test_ctrl_c_interrupts_the_answer_and_not_the_program(tmp_path: Path) -> None:
    answers = scripted(never_ends("Once upon a time"), speaks("Still here."))
    with serving(answers) as server, terminal(tmp_path, "chat", server=server) as screen:
        screen.say("Tell me a story")
        screen.see("Once upon a time")
        screen.type(CTRL_C)
        screen.see("(interrupted)")
        screen.see("›")
        screen.type(CTRL_C)
        screen.answer("Press Ctrl-D to leave.", "Are you there?")
        screen.see("Still here.")
        screen.see("›")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    roles = [message["role"] for message in sent_to(chats(server)[1])]
    assert roles == ["system", "user", "assistant", "user"]


def test_ctrl_c_interrupts_a_command_that_runs(tmp_path: Path) -> None:
    with terminal(tmp_path, "chat", "--model", "none") as screen:
        screen.say('/run bash {"command": "sleep 60"}')
        screen.see("● bash")
        screen.type(CTRL_C)
        screen.see("(interrupted)")
        screen.see("›")
        screen.type(CTRL_D)
        assert screen.leave() == 0


@pytest.mark.parametrize(
    ("typed", "made", "told"),
    [("y", True, "done"), ("n", False, "refused"), ("use trash", False, "use trash")],
)
def test_calls_are_approved_on_the_terminal(tmp_path: Path, typed: str, made: bool, told: str) -> None:
    with (
        serving(scripted(calls(BASH), speaks("Very well."))) as server,
        terminal(tmp_path, "chat", server=server) as screen,
    ):
        screen.say("Make it")
        screen.see("Satchel wants to run this call:")
        screen.see("1. bash  touch made.txt && echo done")
        screen.answer("run?", typed)
        shown = screen.see("Very well.")
    assert shown.count("✗ bash") == (0 if made else 1)
    assert (tmp_path / "work" / "made.txt").exists() is made
    assert told in sent_to(chats(server)[1])[-1]["content"]


def test_ctrl_c_at_the_question_interrupts_the_turn(tmp_path: Path) -> None:
    with (
        serving(scripted(calls(BASH), speaks("Hm."))) as server,
        terminal(tmp_path, "chat", server=server) as screen,
    ):
        screen.say("Make it")
        screen.see("run?")
        screen.type(CTRL_C)
        screen.see("(interrupted)")
        screen.see("›")
        screen.type(CTRL_D)
        assert screen.leave() == 0
    assert not (tmp_path / "work" / "made.txt").exists()


def test_ask_approves_on_the_terminal_too(tmp_path: Path) -> None:
    two = calls(BASH, ("bash", {"command": "touch other.txt"}))
    with (
        serving(scripted(two, speaks("One of two."))) as server,
        terminal(tmp_path, "ask", "Make both", server=server) as screen,
    ):
        screen.see("Satchel wants to run these 2 calls:")
        screen.answer("run?", "y 2")
        screen.see("One of two.")
        assert screen.leave() == 0
    assert [(tmp_path / "work" / name).exists() for name in ("made.txt", "other.txt")] == [False, True]


@requirement("plan:faces")
def test_a_plan_is_approved_by_its_number_and_carried_out_in_that_mode(tmp_path: Path) -> None:
    plan = {"plan": "A list, and nothing else.", "steps": ["Write the list"]}
    proposes = calls(("tool_call", {"name": "propose_plan", "input": plan}))
    writes = calls(("file_write", {"path": "list.txt", "content": "pears"}), start=9)
    with (
        serving(scripted(proposes, writes, speaks("Written."))) as server,
        terminal(tmp_path, "chat", "--mode", "plan", server=server) as screen,
    ):
        screen.say("Make a list")
        screen.see("? Approve this plan?")
        screen.see("A list, and nothing else.")
        screen.see("- Write the list")
        screen.see("1. Yes, in mode ask")
        screen.see("2. Yes, in mode auto")
        screen.say("1")
        screen.see("0 of 1 done")
        screen.see("Satchel wants to run this call:")  # mode ask
        screen.answer("run?", "y")
        screen.see("Written.")
    assert (tmp_path / "work" / "list.txt").read_text() == "pears"


@requirement("sessions:rewind")
def test_a_conversation_goes_back_to_before_a_message_which_is_in_the_field_again(tmp_path: Path) -> None:
    writes = calls(("file_write", {"path": "list.txt", "content": "pears"}))
    with (
        serving(scripted(writes, speaks("Written."), speaks("As you like."))) as server,
        terminal(tmp_path, "chat", "--mode", "bypass", server=server) as screen,
    ):
        screen.say("Make a list")
        screen.see("Written.")
        screen.say("/rewind 1 files")
        screen.see("Put 1 file back?")
        assert (tmp_path / "work" / "list.txt").exists()
        screen.type("y", ENTER)
        screen.see("Back before message 1")
        screen.see("› Make a list")
        assert not (tmp_path / "work" / "list.txt").exists()
        screen.type(" of ships", ENTER)
        screen.see("As you like.")
    said = str(chats(server)[-1].body["messages"])
    assert "Make a list of ships" in said
    assert "Written." not in said


@requirement("cli:chat:plain")
def test_commands_are_completed_and_earlier_messages_come_back(tmp_path: Path) -> None:
    with terminal(tmp_path, "chat", "--model", "none") as screen:
        screen.say("remember the milk")
        screen.see("Noted.")
        screen.see("›")
        screen.type(CTRL_D)
        screen.leave()
    with terminal(tmp_path, "chat", "--model", "none") as screen:
        screen.see("›")
        screen.type("/sess")
        screen.see("List; VERB: pin, unpin, archive or unarchive.")
        screen.type(TAB)
        screen.see("ions")
        screen.type(ENTER, ENTER)
        screen.see("remember the milk  (1 turn)")
        screen.see("›")
        screen.type(UP, UP)
        screen.see("remember the milk")


@requirement("cli:question:once")
def test_a_question_is_on_the_screen_once_and_a_number_chooses_an_option(tmp_path: Path, run: Run) -> None:
    asks = calls(
        ("ask_user", {"question": "Which colour?", "options": ["red", "blue"]}), text="Which colour?"
    )
    asks_again = calls(("ask_user", {"question": "And now?", "options": ["stop", "go"]}), start=9)
    with serving(scripted(asks, asks_again, speaks("Going."))) as server:
        with terminal(tmp_path, "chat", server=server) as screen:
            screen.say("Paint it")
            screen.see("Which colour?\n")
            assert "Which" not in screen.see(
                "  1. red\n  2. blue\n  Type a number, or an answer of your own."
            )
            screen.say("2")
            screen.see("? And now?\n  1. stop\n  2. go\n")
            screen.type(CTRL_D)
            screen.leave()
        assert "ask_user" not in screen.text
        assert sent_to(chats(server)[1])[-1]["content"] == "blue"
        session = run("session", "list", "--json").json[0]["id"]
        assert run("ask", "--session", session, "1", server=server).out == "Going.\n"
        assert sent_to(chats(server)[2])[-1]["content"] == "stop"


@requirement("cli:resume:recap")
def test_a_resumed_conversation_shows_its_last_exchanges_and_their_times(tmp_path: Path, run: Run) -> None:
    long = "\n".join(f"line {number}" for number in range(10))
    asks = calls(("ask_user", {"question": "Tea?"}))
    reads = calls(("file_read", {"path": "none.txt"}))
    with serving(scripted(speaks("One."), reads, speaks("Two."), speaks(long), asks)) as server:
        for number in ("first", "second", "third", "fourth"):
            run("ask", "--last", f"The {number} thing", server=server)
        with terminal(tmp_path, "chat", "--last", server=server, columns=80) as screen:
            screen.see("… 1 earlier turn: satchel session show ")
            screen.see("\n› The second thing\n  │ file_read none.txt · failed\n  Two.\n")
            screen.see("\n› The third thing\n  line 0\n  line 1\n  line 2\n  line 3\n  … 6 more lines\n")
            when = screen.see("\n› The fourth thing\n? Tea?\n").strip()
    assert re.fullmatch(r"\w{3} \d{4}-\d\d-\d\d \d\d:\d\d", when)


@pytest.mark.parametrize("text", ["\x1b[2J\x1b]0;owned\x07 mind the gap"])
def test_what_a_model_says_never_steers_the_terminal(tmp_path: Path, text: str) -> None:
    with serving(scripted(speaks(text))) as server, terminal(tmp_path, "ask", "Hi", server=server) as screen:
        screen.see("mind the gap")
        screen.leave()
        assert "\x1b[2J" not in screen.raw
        assert "\x1b]0" not in screen.raw


def test_a_conversation_without_a_terminal_reads_lines_and_writes_clean_text(run: Run) -> None:
    with serving(scripted(speaks("**One.**"), speaks("Two."))) as server:
        ran = run("chat", server=server, stdin="first\\\nline\n\n/usage\nsecond\n")
    assert ran.code == 0
    assert "**One.**\n" in ran.out
    assert "Two.\n" in ran.out
    assert "\x1b" not in ran.out
    assert [said_to(asked) for asked in chats(server)] == ["first\nline", "second"]


@requirement("permissions:mode:ask-headless")
def test_without_a_terminal_the_worst_turn_of_a_conversation_is_its_exit_code(run: Run) -> None:
    touch = calls(("bash", {"command": "touch made.txt"}))
    with serving(scripted(touch, speaks("I may not."), speaks("Hello."))) as server:
        refused = run("chat", "--plain", server=server, stdin="make it\nhello\n")
        failed = run("chat", "--plain", "--model", "anthropic:m-1", server=server, stdin="hello\n")
    assert (
        refused.code,
        "Hello." in refused.out,
        "would allow it, as permission rules: bash(" in refused.out,
    ) == (
        4,
        True,
        True,
    )
    assert (failed.code, "ANTHROPIC_API_KEY" in failed.out) == (1, True)


def test_a_wrong_command_on_stdin_does_not_end_the_conversation(run: Run) -> None:
    ran = run(
        "chat",
        "--model",
        "none",
        stdin="/nope\n/run bash nonsense\n/forget\n/resume nope\nhello\n/quit\nnever\n",
    )
    assert ran.code == 0
    assert ran.out.count("!") >= 4
    assert "Noted." in ran.out
    assert "never" not in ran.out


@requirement("memory:capture:private")
def test_private_conversations_leave_no_memory(run: Run) -> None:
    run("chat", "--model", "none", stdin="/private\nMy PIN is 4711\n/quit\n")
    run("chat", "--model", "none", "--private", stdin="My PIN is 4711\n/quit\n")
    assert run("memory", "list", "--json").json == []


@requirement("permissions:remembered")
def test_an_answer_holds_once_or_for_the_session_or_is_written_down(tmp_path: Path, run: Run) -> None:
    bash = calls(("bash", {"command": "touch made.txt"}))
    write = calls(("file_write", {"path": "a.txt", "content": "a"}))
    again = calls(("file_write", {"path": "a.txt", "content": "b"}))
    answers = [bash, speaks("One."), bash, speaks("Two."), bash, speaks("Three."), write, speaks("Four.")]
    with serving(scripted(*answers, bash, speaks("Five."), again, speaks("Six."))) as server:
        # Else the model is asked for facts as well.
        quiet = {"SATCHEL_MEMORY_DISTILL": "off"}
        with terminal(tmp_path, "chat", server=server, SATCHEL_MEMORY_DISTILL="off") as screen:
            screen.see("›")
            for answer, said in (("y", "One."), ("s", "Two."), (None, "Three."), ("a", "Four.")):
                screen.type("go", ENTER)
                if answer is not None:
                    screen.answer("run?", answer)
                screen.see(said)
                screen.see("›")
            screen.type("/mode", ENTER)
            screen.see("allow bash(touch made.txt)")
            screen.see("allow file_write(a.txt)")
        # Another process: what held for the session is over, what was written down is not.
        refused = run("ask", "go", server=server, environ=quiet)
        assert (refused.code, "--allow 'bash(touch made.txt)'" in refused.err) == (4, True)
        (tmp_path / "work" / "a.txt").unlink()
        assert run("ask", "go", server=server, environ=quiet).code == 0
    assert (tmp_path / "work" / "a.txt").read_text() == "b"


@requirement("permissions:mode:ask")
def test_the_end_of_a_long_command_is_seen_before_it_is_allowed(tmp_path: Path) -> None:
    command = "echo " + "harmless " * 40 + " " * 4000 + "; touch made.txt"
    with (
        serving(scripted(calls(("bash", {"command": command})), speaks("No then."))) as server,
        terminal(tmp_path, "chat", server=server) as screen,
    ):
        screen.say("go")
        screen.see("[4,001 blanks] ; touch made.txt")
        screen.answer("run?", "n")
        screen.see("No then.")


@requirement("permissions:mode:plan")
def test_a_plan_is_made_and_then_carried_out_in_one_conversation(tmp_path: Path) -> None:
    made = tmp_path / "work" / "made.txt"
    with (
        serving(scripted(calls(BASH), speaks("I would."), calls(BASH), speaks("I did."))) as server,
        terminal(tmp_path, "chat", "--mode", "plan", server=server) as screen,
    ):
        screen.say("go")
        screen.see("What would have run: bash(touch made.txt && echo done)")
        screen.see("I would.")
        assert not made.exists()
        screen.type("/mode bypass", ENTER)
        screen.answer("Mode bypass from now on.", "go on")
        screen.see("I did.")
    assert made.exists()


@requirement("loop:compaction:steered")
def test_what_follows_compact_reaches_the_model_that_writes_the_summary_and_the_log(run: Run) -> None:
    answers = scripted(speaks("Noted. " * 1_000), speaks("Eight it is."), speaks("Mara: no shellfish."))
    typed = "Mara must not eat shellfish.\nWe eat at eight.\n/compact the allergies of Mara\n"
    with serving(answers) as server:
        assert run("chat", stdin=typed, server=server).code == 0
        *_, summary = chats(server)
    assert said_to(summary).endswith("the allergies of Mara")
    (listed,) = run("session", "list", "--json").json
    events = run("session", "show", listed["id"], "--json").json["events"]
    (compaction,) = [event for event in events if event["type"] == "compaction"]
    assert (compaction["trigger"], compaction["focus"]) == ("manual", "the allergies of Mara")
    assert "Mara: no shellfish." in str(compaction["messages"])


@requirement("clients:inbox")
def test_what_another_process_posts_is_on_the_screen_at_once_or_after_the_command_that_runs(
    tmp_path: Path,
) -> None:
    async def post(words: str) -> None:
        settings = load(environ_for(tmp_path), cwd=tmp_path)
        async with Satchel.open(settings, model="none") as satchel:
            await satchel.post(log.stem.rpartition("_")[2], words, source="builder")

    with (
        serving(scripted(speaks("Hello."))) as server,
        terminal(tmp_path, "chat", "--mode", "bypass", server=server) as screen,
    ):
        screen.say("Hello")
        screen.see("Hello.")
        (log,) = (tmp_path / "home").glob("sessions/*/*.jsonl")
        anyio.run(post, "The build begins.")
        screen.see("builder: The build begins.")
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        screen.type(f'/run bash {{"command": "echo Waiting; cat {gate}"}}', ENTER)
        with gate.open("w"):
            # Only the log shows that the program has received it: nothing is printed while a command runs.
            anyio.run(post, "The build is finished.")
            wait_for(lambda: "The build is finished." in log.read_text())
        screen.see("builder: The build is finished.")


def wait_for(is_there: Callable[[], bool]) -> None:
    """Wait for what another process does; pytest's own limit bounds it."""
    while not is_there():
        time.sleep(0.05)


def test_a_message_typed_while_the_program_starts_is_sent(tmp_path: Path) -> None:
    with (
        serving(scripted(speaks("Hello Ann."))) as server,
        terminal(tmp_path, "chat", server=server, program=PROGRAM) as screen,
    ):
        screen.type("I am Ann", ENTER)
        screen.see("Hello Ann.")
        assert said_to(chats(server)[0]).splitlines()[0] == "I am Ann"


@requirement("questions:typed-ahead")
def test_keys_typed_before_a_question_is_on_the_screen_do_not_answer_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[[permissions]]\naction = "allow"\ntool = "bash(cat gate)"\n')
    (tmp_path / "work").mkdir()
    os.mkfifo(gate := tmp_path / "work" / "gate")
    first, second = calls(("bash", {"command": "cat gate"})), calls(("bash", {"command": "touch made"}))
    with (
        serving(scripted(first, second, speaks("Fine."))) as server,
        terminal(tmp_path, "chat", server=server) as screen,
    ):
        screen.say("Go")
        with gate.open("w"):
            screen.type("y", ENTER)
        screen.answer("run?", "n")
        screen.see("Fine.")
    assert not (tmp_path / "work" / "made").exists()


@requirement("tui:approvals")
@pytest.mark.parametrize("face", ["off", "auto"])
def test_a_question_says_why_it_is_asked_where_that_is_more_than_the_mode(tmp_path: Path, face: str) -> None:
    asked = calls(("bash", {"command": "make all"}))
    with (
        serving(scripted(asked, speaks("Fine."))) as server,
        terminal(
            tmp_path,
            "chat",
            "--mode",
            "auto",
            server=server,
            SATCHEL_SANDBOX_BACKEND="e2b",
            SATCHEL_TERMINAL_SCREEN=face,
        ) as screen,
    ):
        screen.answer("/help", "Go")
        screen.see("mode auto, and it can't be boxed")


@pytest.mark.parametrize(("screen", "ready"), [("off", "›"), ("auto", "/help")])
def test_a_window_that_is_closed_ends_the_chat_without_a_report(
    tmp_path: Path, screen: str, ready: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('model = "none"\n')
    with terminal(tmp_path, SATCHEL_TERMINAL_SCREEN=screen) as window:
        window.see(ready)
        assert window.close() == 130
    assert not list((tmp_path / "home").glob("logs/*errors*"))
