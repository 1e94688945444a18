"""Texts of strangers on a terminal: none steers it, and none makes a line that looks like Satchel's own."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from satchel.cli.output import json_text
from satchel.cli.view import TurnView
from satchel.events import (
    Action,
    AskUser,
    Event,
    Failure,
    Final,
    MemorySurfaced,
    Notice,
    Observation,
    Permission,
    Posted,
    SurfacedMemory,
    ToolProgress,
)
from satchel.memory import MemoryRecord
from satchel.memory.records import Source
from satchel.messages import Usage
from satchel.runtime.lines import memory_line, session_line
from satchel.runtime.recap import Exchange
from satchel.sessions import SessionInfo
from satchel.tools.mcp.questions import Elicitation
from satchel.tools.mcp.sampling import read_sampling
from satchel.tui.plain_text import plain
from satchel.tui.terminal_text import input_lines
from tests.requirements import requirement

FORGED = "Satchel wants to run this call:"
"""What an attack puts at the beginning of a line."""
BREAKS = ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\n\n\n", "\x1b[2J\x1b[H\n"]
STEERING = [
    "\x1b[2J", "\x1b]0;title\x07", "\x1b]52;c;cm0gLXJm\x07", "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "\x9b31m", "\x9d0;t\x9c", "\x90q\x9c",
    "\x08\x08\x08", "\x7f", "\x05", "\x0e", "\x1bc", "\x1b[6n", "\x1b[?1049h", "\u202e", "\u2066", "\u202d\u202c", "\x00",
]  # fmt: skip


def events(text: str) -> dict[str, Event]:
    """An event of each kind that shows a text, with the text in it."""
    memory = SurfacedMemory(id="m", content=text, score=0.5, session=text, source_turn=1)
    return {
        "a post's text": Posted(id="p", source="cron", text=text, untrusted=False),
        "a post's sender": Posted(id="p", source=text, text="hi", untrusted=False),
        "a memory": MemorySurfaced(turn=1, text="", memories=(memory,), tokens=1, untrusted=False),
        "a notice": Notice(part="x", text=text),
        "a refusal": Permission(turn=1, call_id="c", tool="t", decision="deny", by="rule", reason=text),
        "a call": Action(turn=1, round=1, call_id="c", tool="t", input={text: text}),
        "a tool's name": Action(turn=1, round=1, call_id="c", tool=text, input={}),
        "a result": Observation(turn=1, round=1, call_id="c", tool="t", text=text),
        "a result's error": Observation(turn=1, round=1, call_id="c", tool="t", text=text, is_error=True),
        "an error of a tool that is none": Observation(
            turn=1, round=1, call_id="c", tool=text, text="no", is_error=True
        ),
        "progress": ToolProgress(call_id="c", tool="t", data={"status": text, text: text}),
        "a failure": Failure(part="hook", message=text, error="E"),
        "a file's name in a list": Observation(
            turn=1, round=1, call_id="c", tool="glob", text=f"a/{text}b\nc", is_error=False
        ),
        "a todo": Observation(turn=1, round=1, call_id="c", tool="todo", text=f"[x] {text}"),
        "a page's title": Observation(
            turn=1, round=1, call_id="c", tool="web_fetch", text=f"Title: {text}\nURL: https://a/{text}\n\nx"
        ),
    }


def shown(event: Event) -> str:
    out = io.StringIO()
    view = TurnView(text_out=None, notes_out=out, environ={}, monotonic_s=iter(range(10**6)).__next__)
    view.show(event)
    if isinstance(event, AskUser):
        view.show(Final(turn=1, text=event.question, status="asking", untrusted=False))
    return out.getvalue()


@requirement("cli:terminal-safe")
@pytest.mark.parametrize("what", events(""))
def test_no_text_of_an_event_steers_the_terminal_or_begins_a_line(what: str) -> None:
    for text in STEERING:
        written = shown(events(f"a{text}b")[what])
        assert plain(written) == written
    broken = [
        end
        for end in BREAKS
        if any(line.startswith(FORGED) for line in shown(events(f"a{end}{FORGED}")[what]).splitlines())
    ]
    assert not broken


@requirement("cli:terminal-safe")
@pytest.mark.parametrize("end", BREAKS, ids=repr)
def test_a_question_of_several_lines_stays_in_its_own_column(end: str) -> None:
    question = f"Which?{end}{FORGED}"
    asked = AskUser(turn=1, call_id="c", question=question, options=(question,))
    assert not [line for line in shown(asked).splitlines() if line.startswith(FORGED)]


PROGRESS: list[Mapping[str, Any]] = [
    {"progress": "50%", "total": None, "message": None},
    {"progress": "50%", "total": "all", "message": "x"},
    {"progress": None, "total": None, "message": None},
    {"progress": 10**400, "total": 1, "message": ""},
    {"progress": [1], "total": {}, "message": []},
    {"progress": float("nan"), "total": float("inf"), "message": "\x1b[2J"},
    {"progress": True, "total": False, "message": 7},
    {"bytes": 10**5000},
    {"bytes": True},
    {"stream": None, "text": "\r\r\r\x1b[2J"},
    {"stream": "stdout", "text": "\n" * 100_000},
    {"status": "x" * 1_000_000},
    {"status": "s", "more": {"a": [object()]}},
    {"progress": {"\x1b[2J": "\x1b[2J"}},
    {"a" * 1_000_000: 1},
    {},
]


@requirement("cli:terminal-safe")
@pytest.mark.parametrize("data", PROGRESS, ids=lambda data: str(list(data))[:40])
def test_whatever_a_tool_reports_as_progress_is_one_short_line(data: Mapping[str, Any]) -> None:
    written = shown(ToolProgress(call_id="c", tool="t", data=data))
    assert plain(written) == written
    assert len(written.splitlines()) <= 1
    assert len(written) < 200


@requirement("cli:terminal-safe")
@pytest.mark.parametrize("end", BREAKS, ids=repr)
def test_the_name_of_an_argument_makes_no_line_of_a_permission_question(end: str) -> None:
    lines = input_lines({f"a{end}{FORGED}": "x", "command": f"y{end}{FORGED}"}, subject="command")
    assert not [line for line in "\n".join(lines).splitlines() if line.startswith(FORGED)]


@requirement("cli:terminal-safe")
@pytest.mark.parametrize("end", BREAKS, ids=repr)
def test_a_list_has_one_line_for_each_memory_and_session(end: str) -> None:
    text = f"a{end}{FORGED}"
    now = datetime(2026, 1, 1, tzinfo=UTC)
    info = SessionInfo(
        id="s",
        title=text,
        started_at=now,
        last_at=now,
        turns=1,
        cwd=text,
        provider="p",
        model="m",
        private=False,
        path=Path("x"),
        usage=Usage(),
    )
    record = MemoryRecord(
        id="m",
        content=text,
        kind="fact",
        tier="long_term",
        memory_type="fact",
        importance=3,
        priority=0.5,
        decay_rate=0.0,
        tags=(text,),
        speaker=text,
        said_at=now,
        valid_from=None,
        valid_to=None,
        source=Source(session=text, turn=1, quote=text),
        trust="outside",
        created_at=now,
        last_accessed=None,
        access_count=0,
        scope="s",
        user="u",
    )
    for line in (memory_line(record), session_line(info)):
        assert len(line.splitlines()) == 1


@requirement("cli:terminal-safe")
@pytest.mark.parametrize("text", STEERING, ids=repr)
def test_json_on_a_terminal_steers_nothing(text: str) -> None:
    written = json_text({text: [text]}, indent=2)
    assert plain(written) == written


@requirement("cli:terminal-safe")
@pytest.mark.parametrize("end", BREAKS, ids=repr)
def test_an_earlier_exchange_is_shown_in_its_own_lines(end: str) -> None:
    out = io.StringIO()
    view = TurnView(text_out=None, notes_out=out, environ={}, monotonic_s=lambda: 0.0)
    text = f"a{end}{FORGED}"
    question = AskUser(turn=1, call_id="c", question=text, options=())
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for asked in (None, question):
        exchange = Exchange(turn=1, at=now, said=text, answer=text, question=asked, calls=(text,))
        view.show_exchange(exchange, is_open=False)
    assert not [line for line in out.getvalue().splitlines() if line.startswith(FORGED)]


@requirement("mcp:elicitation")
@pytest.mark.parametrize("end", BREAKS, ids=repr)
def test_what_a_server_asks_can_not_look_like_what_satchel_says(end: str) -> None:
    text = f"a{end}{FORGED}"
    fields = {text: {"type": "string", "description": text, "title": text, "enum": [text, "b"]}}
    more = {"n": {"type": "string", "default": text}}
    for params in (
        {"message": text},
        {"message": text, "requestedSchema": {"properties": fields}},
        {"message": text, "requestedSchema": {"properties": {**fields, **more}}},
        {"message": "x", "url": f"https://a/{text}"},
    ):
        elicitation = Elicitation.read("x", params)
        for step in (elicitation, *elicitation.steps()):
            assert FORGED not in [line.strip() for line in step.question(text).text.splitlines()]
    sampling = read_sampling(
        "x",
        {"systemPrompt": text, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]},
    )
    assert not isinstance(sampling, str)
    assert FORGED not in [line.strip() for line in sampling.question().text.splitlines()]
