"""`satchel memory distill`: facts from what was said, and how that stands."""

from __future__ import annotations

import json

from tests.cli.conftest import Run, serving
from tests.cli.programs import chats, scripted, speaks
from tests.requirements import requirement

FACT = {"content": "The user's cat is called Mimi.", "quote": "My cat is called Mimi"}


def test_without_a_model_it_says_so_and_everything_waits(run: Run) -> None:
    run("ask", "My cat is called Mimi.")
    ran = run("memory", "distill")
    assert (ran.code, ran.out) == (2, "")
    assert "Facts are drawn by a language model, and there is none." in ran.err
    status = run("memory", "distill", "--status", "--json").json
    assert (status["pending"], status["facts"], status["trouble"], status["mode"]) == (1, 0, "", "auto")


@requirement("memory:distill:gate", "memory:distill:extract", "memory:list:folded")
def test_facts_are_printed_listed_and_their_cost_is_counted(run: Run) -> None:
    answers = scripted(speaks("Noted."), speaks(json.dumps({"facts": [FACT]})))
    with serving(answers) as server:
        session = run("ask", "My cat is called Mimi.", "--json", server=server).json["session_id"]
        ran = run("memory", "distill", server=server)
        again = run("memory", "distill", server=server)
        assert len(chats(server)) == 2
    assert ran.code == 0
    assert ran.out.endswith("  The user's cat is called Mimi.\n")
    assert ran.err.startswith("1 window read, 1 fact stored; ")
    assert (again.code, again.out, again.err) == (0, "", "Nothing is pending: all messages have been read.\n")
    (fact,) = run("memory", "list", "--kind", "fact", "--json").json
    assert (fact["content"], fact["source"]) == (
        "The user's cat is called Mimi.",
        {"session": session, "turn": 1, "position": None, "quote": "My cat is called Mimi"},
    )
    (line,) = run("memory", "list").out.splitlines()
    turns = [one["id"] for one in run("memory", "list", "--kind", "episode", "--json").json]
    assert f"  rests on {turns[-1]}, {turns[0]}" in line
    assert len(turns) == 2
    assert len(run("memory", "list", "--unfolded").out.splitlines()) == 3
    assert [one["id"] for one in run("memory", "list", "--folded", "--json").json] == [fact["id"]]
    (found,) = run("memory", "search", "cat", "Mimi").out.splitlines()
    assert "rests on" in found
    assert sum(row["calls"] for row in run("usage", "--json").json) == 2
    shown = run("memory", "distill", "--status").out
    assert "pending   0 messages\nread      2 messages" in shown
    assert "windows   1 with facts" in shown


def test_a_model_that_is_down_is_reported_and_shown_by_doctor(run: Run) -> None:
    with serving(scripted(speaks("Noted."))) as server:
        run("ask", "My cat is called Mimi.", server=server)
    ran = run("memory", "distill", server=server)
    assert ran.code == 1
    assert "cannot be reached" in ran.err
    status = run("memory", "distill", "--status", server=server)
    assert "error     " in status.out
    assert run("memory", "distill", "--status", "--json", server=server).json["failed_since"] == 1


@requirement("memory:capture:private")
def test_a_private_question_is_answered_and_kept_nowhere(run: Run) -> None:
    with serving(scripted(speaks("Poor cat."))) as server:
        ran = run("ask", "--private", "My cat Mimi is ill.", server=server)
    assert (ran.code, ran.out) == (0, "Poor cat.\n")
    assert run("memory", "list", "--json").json == []
