"""`satchel ask`: one message, one answer, for the shell and for programs."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from satchel.clock import SystemClock
from satchel.errors import UsageError
from satchel.runtime.attaching import attach, dropped_in, mentions_of, named_in, names_completing
from tests.cli.conftest import Run, serving
from tests.cli.programs import calls, chats, said_to, satchel, scripted, sent_to, speaks, start
from tests.models.loopback import as_json, loopback
from tests.requirements import requirement
from tests.runtime.world import settings_in

BASH = ("bash", {"command": "touch made.txt && echo done"})
ASKS = ("ask_user", {"question": "Red or blue?", "options": ["red", "blue"]})


@requirement("cli:streams")
def test_the_answer_goes_to_stdout_and_nothing_else(run: Run, tmp_path: Path) -> None:
    with serving(scripted(speaks("Hello, Ann."))) as server:
        ran = run("ask", "Hello", "there", server=server)
    assert (ran.code, ran.out, ran.err) == (0, "Hello, Ann.\n", "")
    assert said_to(chats(server)[0]) == "Hello there"


@requirement("cli:ask:remembers", "cli:ask:json", "memory:surface:recorded")
@pytest.mark.anyio
async def test_what_was_said_is_remembered_in_the_next_process_and_shown_only_where_it_fits(
    tmp_path: Path,
) -> None:
    answers = scripted(speaks("Noted."), speaks("No shellfish."), speaks("330 m."))
    async with loopback(answers) as server:
        first = await satchel(
            tmp_path, "ask", "My sister Mara is allergic to shellfish.", "--json", server=server
        )
        second = await satchel(
            tmp_path, "ask", "What should I keep in mind when I cook for Mara?", "--json", server=server
        )
        third = await satchel(tmp_path, "ask", "How tall is the Eiffel Tower?", "--json", server=server)
    assert set(first.json) >= {
        "session_id", "turn", "status", "text", "pending_question", "build_id", "usage", "steps", "memory"
    }  # fmt: skip
    assert (first.json["status"], first.json["turn"], first.json["text"], first.json["memory"]) == (
        "done", 1, "Noted.", []
    )  # fmt: skip
    (memory,) = [
        m for m in second.json["memory"] if m["content"] == "My sister Mara is allergic to shellfish."
    ]
    assert memory["source"] == {"session": first.json["session_id"], "turn": 1}
    assert 0 < memory["score"] <= 1
    assert "allergic to shellfish" in said_to(chats(server)[1])
    # The profile, which stands in every session, is no answer to a question.
    assert (third.json["memory"], "<satchel-memory>" in said_to(chats(server)[2])) == ([], False)
    assert second.json["session_id"] != first.json["session_id"]


@requirement("content:attachments:terminal")
def test_files_are_attached_by_an_option_and_stdin_is_one(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "label.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    with serving(scripted(speaks("A label."))) as server:
        ran = run(
            "ask",
            "--attach",
            str(picture),
            "--attach",
            "-",
            "What is it?",
            server=server,
            stdin="line 1\nline 2\n",
        )
        assert (ran.code, ran.out) == (0, "A label.\n")
        missing = run("ask", "--attach", str(tmp_path / "none.png"), "Hm?", server=server)
    assert (missing.code, missing.err) == (2, f"satchel: {tmp_path}/none.png: there is no such file.\n")
    kinds = [part["type"] for part in chats(server)[0].body["messages"][-1]["content"]]
    assert kinds == ["image_url", "text", "text"]
    assert "[stdin]\nline 1\nline 2" in said_to(chats(server)[0])


@requirement("content:attachments:terminal")
def test_a_word_names_a_file_only_if_it_is_there(tmp_path: Path) -> None:
    for name in ("a.png", "my notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".env").write_text("x")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path / ".env")
    for text in ("@.env", f"@{tmp_path}/.env", "@link", "@../a.png", f"@{tmp_path}/a.png"):
        assert named_in(text, tmp_path / "work") == []
    text = '@a.png, @"my notes.txt" @nobody me@a.png mail@a.png @a.png?'
    assert [path.name for path in named_in(text, tmp_path)] == ["a.png", "my notes.txt"]
    picture, notes = tmp_path / "a.png", tmp_path / "my notes.txt"
    for pasted in (
        f"{picture}\n",
        f"'{picture}' '{notes}' ",
        f"{picture.as_uri()} {notes.as_uri()}",
        str(notes),
    ):
        dropped = dropped_in(pasted, draft="See ")
        assert dropped == named_in(f"See {mentions_of(dropped)}.", tmp_path / "work", given=dropped) != []
        for draft in ("See", "! cat ", " /watch "):
            assert dropped_in(pasted, draft=draft) == []
    for pasted in (
        f"{picture} is it",
        f"See {picture}",
        "/none.png",
        "'",
        "/" * 9_000,
        "@a.png",
        f"'{picture}\0'",
        f"{tmp_path}/.env",
        f"'{picture}'\n'{notes}'",
    ):
        assert dropped_in(pasted, draft="") == []
    picture.unlink()
    assert named_in(f"@{picture}", tmp_path, given=[picture]) == []


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_file_that_became_a_link_after_it_was_dragged_is_not_attached(tmp_path: Path, link: str) -> None:
    """A command that still runs in a box may put a link to a key where the user's picture was."""
    keys, shared = tmp_path / ".keys", tmp_path / "shared"
    for folder in (keys, shared):
        folder.mkdir()
        (folder / "a.png").write_text(f"from {folder.name}")
    (given,) = dropped_in(str(shared / "a.png"), draft="")
    (agreed,) = named_in(f"@{given}", tmp_path, given=[given])
    settings = settings_in(tmp_path)
    assert len(attach(settings, [agreed], clock=SystemClock(), follow=False)) == 1
    if link == "file":
        given.unlink()
        given.symlink_to(keys / "a.png")
    else:
        shared.rename(tmp_path / "moved")
        shared.symlink_to(keys)
    assert named_in(f"@{given}", tmp_path / "home", given=[given]) == []
    with pytest.raises(UsageError, match="replaced by a link"):
        attach(settings, [agreed], clock=SystemClock(), follow=False)
    assert (
        len(attach(settings, [agreed], clock=SystemClock())) == 1
    )  # of `--attach`, which names what it means


@requirement("content:attachments:terminal")
def test_only_what_a_word_names_is_completed(tmp_path: Path) -> None:
    for folder in ("etcetera", ".git"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "way").symlink_to(tmp_path.parent)
    (tmp_path / "link").symlink_to(tmp_path / ".git" / "a.txt")
    (tmp_path / "my notes.txt").write_text("x")
    assert names_completing("@", tmp_path) == ["@etcetera/"]
    for mention in ("@./etcetera/", "@etcetera/a", f"@{tmp_path}/etcetera/"):
        [found] = names_completing(mention, tmp_path)
        assert named_in(found, tmp_path) == [tmp_path / "etcetera" / "a.txt"]
    (tmp_path / ".gitignore").write_text("etcetera/built\n")
    for name in ("Harbour.py", "my_harbour.py", "the harbour.py", ".harbour.py", "built/harbour.py"):
        (tmp_path / "etcetera" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "etcetera" / name).write_text("x")
    assert names_completing("@harb", tmp_path) == ["@etcetera/Harbour.py", "@etcetera/my_harbour.py"]
    for mention in ("@/et", "@.git/", "@way/", "@loop/", "@loop/x", "@a\0b/c", f"@{'x' * 5_000}/"):
        assert (names_completing(mention, tmp_path), named_in(mention, tmp_path)) == ([], [])


@requirement("cli:ask:no-memory")
def test_no_memory_shows_the_model_none(run: Run, tmp_path: Path) -> None:
    with serving(scripted(speaks("Noted."), speaks("Hm."))) as server:
        run("ask", "My sister Mara is allergic to shellfish.", server=server)
        ran = run("ask", "--no-memory", "--json", "What about Mara?", server=server)
    assert ran.json["memory"] == []
    assert "shellfish" not in said_to(chats(server)[1])


def test_an_unreachable_endpoint_is_reported_with_what_to_type(run: Run, tmp_path: Path) -> None:
    # Port 9 is "discard": nobody listens there.
    gone = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    told = (
        "openai is set up but unavailable: openai at 127.0.0.1:9 cannot be reached: All connection attempts "
        "failed. Fix that, or choose another: satchel config set model PROVIDER:MODEL"
    )
    ran = run("ask", "My sister Mara is allergic to shellfish.", environ=gone)
    assert (ran.code, ran.err) == (0, f"! {told}\n")
    assert run("ask", "Where is Mara?", "--json", environ=gone).json["notices"] == [told]


@requirement("cli:exit-codes", "permissions:rule:allow-option", "permissions:logged")
def test_a_refused_call_ends_with_4_and_names_the_rule_that_would_allow_it(run: Run, tmp_path: Path) -> None:
    answers = scripted(calls(BASH), speaks("I may not."), calls(BASH), speaks("Made."))
    with serving(answers) as server:
        refused = run("ask", "Make it", server=server)
        allowed = run(
            "ask",
            "Make it",
            "--json",
            "--allow",
            "bash(touch *)",
            "--allow",
            "bash(echo *)",
            server=server,
        )
    assert (refused.code, refused.out) == (4, "I may not.\n")
    assert "--allow 'bash(touch made.txt && echo done)'" in refused.err
    assert not (tmp_path / "work" / "made.txt").exists() or allowed.code == 0
    assert allowed.code == 0
    (step,) = allowed.json["steps"]
    assert (step["tool"], step["input"], step["is_error"]) == ("bash", BASH[1], False)
    assert "done" in step["result"]
    assert (tmp_path / "work" / "made.txt").exists()
    logged = run("session", "show", allowed.json["session_id"], "--json").json["events"]
    (permission,) = [event for event in logged if event["type"] == "permission"]
    assert (permission["decision"], permission["by"]) == ("allow", "rule")
    latest = run("session", "list", "--json").json
    (before,) = [session["id"] for session in latest if session["id"] != allowed.json["session_id"]]
    logged = run("session", "show", before, "--json").json["events"]
    (permission,) = [event for event in logged if event["type"] == "permission"]
    assert (permission["decision"], permission["by"]) == ("deny", "nobody")


def test_bypass_runs_everything(run: Run, tmp_path: Path) -> None:
    with serving(scripted(calls(BASH), speaks("Made."))) as server:
        ran = run("ask", "--mode", "bypass", "Make it", server=server)
    assert (ran.code, ran.out) == (0, "Made.\n")
    assert (tmp_path / "work" / "made.txt").exists()


@requirement("cli:ask:question")
def test_a_question_is_printed_and_the_next_message_answers_it(run: Run, tmp_path: Path) -> None:
    answers = scripted(calls(ASKS, text="Let me see."), speaks("Blue it is."))
    with serving(answers) as server:
        asking = run("ask", "Paint it", "--json", server=server)
        session = asking.json["session_id"]
        answered = run("ask", "--session", session[:6], "blue", "--json", server=server)
    assert (asking.code, asking.json["status"]) == (0, "asking")
    assert asking.json["pending_question"] == "Red or blue?"
    assert asking.json["text"] == "Let me see.\n\nRed or blue?"
    assert (answered.json["status"], answered.json["text"], answered.json["turn"]) == (
        "done",
        "Blue it is.",
        2,
    )
    assert answered.json["session_id"] == session
    last = sent_to(chats(server)[1])[-1]
    assert (last["role"], last["tool_call_id"], last["content"]) == ("tool", "call_1", "blue")


def test_a_question_in_words_says_how_to_answer(run: Run, tmp_path: Path) -> None:
    with serving(scripted(calls(ASKS))) as server:
        ran = run("ask", "Paint it", server=server)
    assert (ran.code, ran.out) == (0, "Red or blue?\n")
    how = "  1. red\n  2. blue\nTo answer, with a number or words: satchel ask --session "
    assert how in ran.err


@requirement("cli:ask:session")
def test_last_continues_this_folders_session(run: Run, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    answers = scripted(speaks("one"), speaks("two"), speaks("three"))
    with serving(answers) as server:
        first = run("ask", "first", "--json", server=server)
        run("ask", "other", "--json", server=server, cwd=elsewhere)
        third = run("ask", "--last", "third", "--json", server=server)
    assert (third.json["session_id"], third.json["turn"]) == (first.json["session_id"], 2)
    assert [m["role"] for m in sent_to(chats(server)[2])] == ["system", "user", "assistant", "user"]


@requirement("cli:ask:session")
def test_last_is_a_conversation_that_was_held_here_and_not_one_that_was_imported(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir(exist_ok=True)
    transcript = tmp_path / "0b6f6c1e.jsonl"
    transcript.write_text(
        "".join(
            json.dumps(
                {
                    "type": role,
                    "uuid": role,
                    "sessionId": "0b6f6c1e-5a55",
                    "cwd": str(tmp_path / "work"),
                    "timestamp": f"2090-03-02T09:00:0{second}Z",
                    "message": {"role": role, "content": "Which database?"},
                }
            )
            + "\n"
            for second, role in enumerate(("user", "assistant"))
        )
    )
    with serving(scripted(*map(speaks, ("one", "two", "three", "four")))) as server:
        first = run("ask", "first", "--json", server=server)
        run("memory", "import", str(transcript))
        second = run("ask", "--last", "second", "--json", server=server)
        gone_on = run("ask", "--session", "claude-code:0b6f6c1e-5a55", "third", "--json", server=server)
        fourth = run("ask", "--last", "fourth", "--json", server=server)
    assert (second.json["session_id"], second.json["turn"]) == (first.json["session_id"], 2)
    assert (gone_on.json["turn"], fourth.json["turn"]) == (2, 3)
    assert fourth.json["session_id"] == gone_on.json["session_id"] == "claude-code:0b6f6c1e-5a55"


@requirement("cli:ask:session")
def test_a_resumed_session_sends_the_same_bytes_before_the_new_message(run: Run, tmp_path: Path) -> None:
    answers = scripted(calls(BASH, text="On it."), speaks("Made."), speaks("Yes."))
    with serving(answers) as server:
        run("ask", "--mode", "bypass", "Make it", server=server)
        run("ask", "--mode", "bypass", "--last", "Is it there?", server=server)
    first, second, third = chats(server)
    before = second.body["messages"]
    assert third.body["messages"][: len(before)] == before
    assert third.body["tools"] == second.body["tools"] == first.body["tools"]


@requirement("cli:ask:stream-json")
def test_events_are_streamed_as_lines_and_the_turn_comes_last(run: Run, tmp_path: Path) -> None:
    with serving(scripted(calls(BASH), speaks("Made."))) as server:
        ran = run("ask", "--stream-json", "--mode", "bypass", "Make it", server=server)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "turn_start"
    assert kinds[-2:] == ["turn_end", "result"]
    assert kinds.index("action") < kinds.index("observation") < kinds.index("final")
    assert {"text": "Made.", "status": "done"}.items() <= lines[-1].items()


@requirement("cli:ask:stdin")
@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        ("from stdin\n", "from stdin\n"),
        (b"broken \xff utf-8", "broken \ufffd utf-8"),
        (b"a\x00b", "a\ufffdb"),
        ("x" * 2_000_000, "x" * 2_000_000),
    ],
    ids=["words", "no utf-8", "NUL", "2 MB"],
)
def test_a_prompt_on_stdin_of_any_kind_is_taken(
    run: Run, tmp_path: Path, stdin: str | bytes, said: str
) -> None:
    with serving(scripted(speaks("Read."))) as server:
        ran = run("ask", "-", server=server, stdin=stdin)
    assert (ran.code, ran.out) == (0, "Read.\n"), ran.err
    assert said_to(chats(server)[0]) == said


@requirement("cli:bare:stdin")
def test_without_a_command_and_a_terminal_the_prompt_is_read_from_stdin(run: Run, tmp_path: Path) -> None:
    with serving(scripted(speaks("Read."))) as server:
        ran = run(server=server, stdin="hello")
    assert (ran.code, ran.out) == (0, "Read.\n")
    with serving(lambda _: as_json({"error": {"message": "invalid key"}}, status=401)) as server:
        assert run(server=server, stdin="hello").code == run("ask", "hello", server=server).code == 1


@pytest.mark.anyio
async def test_an_argument_that_is_no_utf8_is_taken(tmp_path: Path) -> None:
    async with loopback(scripted(speaks("Read."))) as server:
        ran = await satchel(tmp_path, "ask", b"caf\xe9", server=server)
    assert (ran.code, ran.out) == (0, "Read.\n"), ran.err
    assert said_to(chats(server)[0]) == "caf\ufffd"


@requirement("cli:exit-codes", "cli:no-traceback")
def test_a_wrong_key_is_said_once_and_ends_with_1(run: Run, tmp_path: Path) -> None:
    error = {"error": {"message": "Incorrect API key provided", "type": "invalid_request_error"}}
    with serving(lambda _: as_json(error, status=401)) as server:
        ran = run("ask", "hello", server=server)
    assert (ran.code, ran.out, len(chats(server))) == (1, "", 1)
    assert "OPENAI_API_KEY" in ran.err
    assert "Traceback" not in ran.err


def test_an_unreachable_model_fails_in_words_and_the_message_is_kept(run: Run, tmp_path: Path) -> None:
    environ = {
        "OPENAI_API_KEY": "k",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "SATCHEL_MODEL": "openai:m-1",
    }
    ran = run("ask", "remember the milk", "--json", environ=environ)
    assert (ran.code, ran.json["status"]) == (1, "failed")
    assert "openai:m-1" in ran.json["text"]
    found = run("session", "search", "milk", "--json")
    assert [hit["session"] for hit in found.json] == [ran.json["session_id"]]


@requirement("cli:exit-codes")
@pytest.mark.anyio
@pytest.mark.parametrize("times", [1, 10])
async def test_an_interrupt_ends_the_turn_in_good_order_with_130(tmp_path: Path, times: int) -> None:
    pipe = tmp_path / "begun"
    os.mkfifo(pipe)
    async with loopback(scripted(calls(("bash", {"command": f"echo begun > {pipe}; sleep 1000"})))) as server:
        process = start(
            tmp_path,
            "ask",
            "--mode",
            "bypass",
            "--json",
            "Wait",
            server=server,
        )
        with anyio.fail_after(120):
            await anyio.to_thread.run_sync(pipe.read_text)
            for _ in range(times):  # impatiently
                process.send_signal(signal.SIGINT)
                with suppress(TimeoutError):
                    process.wait(0.02)
            out, err = await anyio.to_thread.run_sync(process.communicate)
    assert (process.wait(), err.strip()) == (130, "Interrupted.")
    told = json.loads(out)
    assert (told["status"], [step["tool"] for step in told["steps"]]) == ("cancelled", ["bash"])
    shown = await satchel(tmp_path, "session", "list", "--json")
    (info,) = shown.json
    assert told["session_id"] == info["id"]
    events = (await satchel(tmp_path, "session", "show", info["id"], "--json")).json["events"]
    (end,) = [event for event in events if event["type"] == "turn_end"]
    (observation,) = [event for event in events if event["type"] == "observation"]
    assert (end["status"], observation["is_error"]) == ("cancelled", True)


@requirement("cli:ask:broken-pipe")
@pytest.mark.anyio
async def test_a_reader_that_leaves_is_no_error_to_shout_about(tmp_path: Path) -> None:
    text = "word " * 200_000
    async with loopback(scripted(speaks(text))) as server:
        process = start(tmp_path, "ask", "much", server=server)
        with anyio.fail_after(120):
            await anyio.to_thread.run_sync(process.stdout.readline, 10)
            process.stdout.close()
            assert await anyio.to_thread.run_sync(process.wait) == 1
    assert process.errors() == ""


@requirement("sessions:events", "sessions:observations:each-and-merged")
def test_every_step_of_a_turn_is_in_the_log(run: Run) -> None:
    two = calls(("bash", {"command": "echo one"}), ("bash", {"command": "echo two"}))
    with serving(scripted(two, speaks("Both."))) as server:
        turn = run("ask", "--mode", "bypass", "--no-memory", "Do both", "--json", server=server).json
    events = run("session", "show", turn["session_id"], "--json").json["events"]
    kinds = [event["type"] for event in events if event["type"] != "memory_captured"]
    assert kinds == [
        *("session_start", "turn_start", "assistant", "permission", "permission", "action", "action"),
        *("observation", "observation", "round_observed", "assistant", "final", "turn_end", "session_end"),
    ]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    (merged,) = [event["text"] for event in events if event["type"] == "round_observed"]
    assert merged.startswith("[bash]: ")
    assert merged.index("one") < merged.index("two")
