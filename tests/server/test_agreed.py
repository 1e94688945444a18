"""What the user agrees to at one machine holds at all that have the home's database, until it is withdrawn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import psycopg
import pytest

from satchel.config import PermissionRule, own_rules
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from satchel.runtime.agreed import Agreed
from satchel.runtime.moving import migrate
from satchel.runtime.rules import remove_rule, write_rule
from tests.postgresql import Server, server_of
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in
from tests.server.world import chat, events_in, machines, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


def runs(at: httpx2.Client, session: str) -> bool:
    """Whether a command runs where nobody can be asked."""
    [call] = chat(at, "echo heron", session_id=session)[-1].data["toolCalls"]
    return not call["isError"]


def begun(at: httpx2.Client) -> str:
    return str(chat(at, "Hello", mode="ask")[0].data["sessionId"])


@requirement("storage:postgres:agreed")
def test_always_holds_at_every_machine_and_nowhere_once_it_is_withdrawn(
    server: Server, tmp_path: Path
) -> None:
    url = server.copy(tmp_path)
    with machines(url, tmp_path) as (near, client, other, _):
        there = begun(other)
        assert not runs(other, there)
        asks = {"message": "echo heron", "mode": "ask", "interactive": True}
        with client.stream("POST", "/api/chat", json=asks) as running:
            events = events_in(running.iter_lines())
            here = next(events).data["sessionId"]
            question = next(event.data["id"] for event in events if event.name == "question")
            answer = {"id": question, "consent": "always"}
            client.post(f"/api/sessions/{here}/answer", json=answer).raise_for_status()
            assert list(events)[-1].data["status"] == "done"
        [rule] = near.satchel.parts.agreed.known.rules
        assert runs(other, there)
        assert runs(other, begun(other))
        assert not (near.home / "config.toml").exists()
        near.call(remove_rule, near.satchel.settings, rule, near.satchel.parts.agreed)
        assert not runs(other, there)
        assert not runs(client, here)
        assert not runs(other, begun(other))


@requirement("storage:postgres:agreed")
@pytest.mark.anyio
async def test_a_process_that_starts_while_another_one_writes_a_rule_has_it(
    server: Server, tmp_path: Path
) -> None:
    url = server.copy(tmp_path)
    starting = settings_in(tmp_path, database=url)
    rule = PermissionRule(action="deny", tool="bash(rm *)")
    async with opened(tmp_path, database=url) as other:
        await write_rule(other.settings, rule, other.parts.agreed)
    async with Satchel.open(starting, embedder=HashingEmbedder()) as satchel:
        assert satchel.settings.permissions == (rule,)


@requirement("storage:postgres:agreed")
@pytest.mark.anyio
async def test_a_look_that_is_cancelled_leaves_the_change_to_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    agreed, told = Agreed(settings_in(tmp_path), None), list[int]()

    async def change() -> None:
        told.append(agreed.known.number)
        if len(told) == 1:
            scope.cancel()
        await anyio.lowlevel.checkpoint()

    agreed.on_change = change
    for _ in range(2):
        with anyio.CancelScope() as scope:
            await agreed.change(lambda known: replace(known, tools=frozenset({"a"})))
    assert told == [1, 1]


@requirement("storage:postgres:agreed")
def test_who_only_writes_to_the_database_allows_nothing_and_lifts_no_ban(
    server: Server, tmp_path: Path
) -> None:
    url = server.copy(tmp_path)
    with (
        machines(url, tmp_path) as (near, client, other, _),
        psycopg.connect(url, autocommit=True) as thief,
    ):

        def stored() -> str:
            found = thief.execute("SELECT value FROM satchel_state WHERE name = 'agreed'").fetchone()
            return str(found[0]) if found else ""

        def agreed(edit: Any, action: Any) -> None:
            rule = PermissionRule(action=action, tool="bash(echo heron)")
            near.call(edit, near.satchel.settings, rule, near.satchel.parts.agreed)

        there = begun(other)
        agreed(write_rule, "allow")
        old = stored()
        assert runs(other, there)
        agreed(remove_rule, "allow")
        assert not runs(other, there)
        proof, _, text = stored().partition(" ")
        forged = json.loads(text) | {"permissions": json.loads(old.partition(" ")[2])["permissions"]}
        for value in (old, f"{proof} {json.dumps(forged)}", f"{old.partition(' ')[0]} {text}", "x", ""):
            thief.execute("UPDATE satchel_state SET value = %s WHERE name = 'agreed'", (value,))
            assert not runs(other, there)
        agreed(write_rule, "deny")
        thief.execute("UPDATE satchel_state SET value = %s WHERE name = 'agreed'", (old,))
        chat(other, "Hello", session_id=there)  # a machine that has not heard of it
        begun(client)  # one that has
        assert '"deny"' in stored()
        chat(other, "Hello", session_id=there)
        thief.execute("DELETE FROM satchel_state WHERE name = 'agreed'")
        other.post("/api/sessions", json={"session_id": there, "mode": "bypass"}).raise_for_status()
        assert not runs(other, there)
        # A machine that still knows it has told the server again.
        assert '"deny"' in stored()


@requirement("storage:postgres:agreed")
def test_a_tool_that_was_approved_at_one_machine_is_offered_at_the_others(
    server: Server, tmp_path: Path
) -> None:
    url = server.copy(tmp_path)
    schema = '{"name": "%s", "description": "%s", "input_schema": {"type": "object"}}'

    def install(at: str, says: str) -> None:
        path = tmp_path / at / "home" / "tools" / "greet"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(f"#!/bin/sh\necho '{schema % ('greet', says)}'\n")
        path.chmod(0o700)

    for at in ("here", "there"):
        install(at, "Greets.")
    with machines(url, tmp_path) as (near, client, other, _):
        for each in (client, other):
            assert each.get("/api/tools/greet").json()["status"] == "available"
    for at in ("here", "there"):
        install(at, "Greets warmly.")
    with machines(url, tmp_path) as (near, client, other, _):
        for each in (client, other):
            assert each.get("/api/tools/greet").json()["status"] == "changed"
        near.call(near.satchel.external.approve, "greet")
        assert other.get("/api/tools/greet").json()["description"] == "Greets warmly."


@requirement("storage:postgres:agreed")
def test_a_machine_that_moves_the_home_back_to_files_takes_along_what_was_agreed_to_elsewhere(
    server: Server, tmp_path: Path
) -> None:
    url = server.copy(tmp_path)
    with machines(url, tmp_path) as (near, *_):
        rule = PermissionRule(action="deny", tool="bash(rm *)")
    with serving(tmp_path / "here", database=url) as near:
        near.call(write_rule, near.satchel.settings, rule, near.satchel.parts.agreed)
    home = tmp_path / "there" / "home"
    assert own_rules(home / "config.toml") == ()
    anyio.run(migrate, settings_in(tmp_path / "there", database=url), "sqlite")
    assert own_rules(home / "config.toml") == (rule,)
