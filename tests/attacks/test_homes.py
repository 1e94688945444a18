"""Logs, databases and projects that somebody else wrote: they are read as far as they can be, and nothing hangs."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.config import grants_of, load, read_project, trust
from satchel.errors import ConfigError
from satchel.models import ScriptedModel
from tests.requirements import requirement
from tests.runtime.world import logged, opened

pytestmark = pytest.mark.anyio

AT = '"at": "2026-01-01T00:00:00+00:00"'
LINES = [
    b'{"seq": ' + b"9" * 5_000 + b', "type": "notice"}',
    b'{"seq": -1, %s, "type": "notice", "part": "x", "text": "y"}' % AT.encode(),
    b'{"seq": true, %s, "type": "notice", "part": "x", "text": "y"}' % AT.encode(),
    b'{"seq": 1.5, %s, "type": "notice", "part": "x", "text": "y"}' % AT.encode(),
    b'{"seq": "7", %s, "type": "notice", "part": "x", "text": "y"}' % AT.encode(),
    b'{"seq": 1e999, %s, "type": "notice", "part": "x", "text": "y"}' % AT.encode(),
    b'{"seq": 3, "at": "yesterday", "type": "notice", "part": "x", "text": "y"}',
    b'{"seq": 3, "at": 7, "type": "notice", "part": "x", "text": "y"}',
    b'{"seq": 3, %s, "type": "notice", "part": ["x"], "text": {"a": 1}}' % AT.encode(),
    b'{"seq": 3, %s, "type": "turn_end", "turn": "one"}' % AT.encode(),
    b'{"seq": 3, %s, "type": "turn_start", "turn": 1, "message": 7}' % AT.encode(),
    b'{"seq": 3, %s, "type": "turn_start", "turn": 99, "message": {"role": "system", "blocks": []}}'
    % AT.encode(),
    b'{"seq": 3, %s, "type": "assistant", "turn": 1, "round": 1, "blocks": [{"type": "evil"}]}' % AT.encode(),
    b'{"seq": 3, %s, "type": ["notice"]}' % AT.encode(),
    b'{"seq": 3, %s, "type": "__init__"}' % AT.encode(),
    b'{"seq": 3, %s, "type": "session_start", "session_id": "../../x", "cwd": "/"}' % AT.encode(),
    b"[" * 100_000,
    b"\xff\xfe\x00{",
    b"\x00" * 4_096,
    b'{"seq": 3}\r{"seq": 4}',
    b"\xef\xbb\xbf{}",
    b'{"seq": 999999999999999999, %s, "type": "notice", "part": "x", "text": "y"}' % AT.encode(),
]


@requirement("sessions:damaged:calls")
async def test_a_log_with_foreign_lines_is_read_and_continued(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(["One."])) as satchel:
        session = await satchel.session()
        await session.run_turn("The heron nests here.")
        path = logged(session)
        await session.aclose()
    whole = path.read_bytes().splitlines(keepends=True)
    broken: list[tuple[int, str]] = []
    async with opened(tmp_path, ScriptedModel(lambda _: "Yes.")) as satchel:
        for number, line in enumerate(LINES):
            id = f"attack{number:04}"
            other = path.with_name(f"{path.name.rpartition('_')[0]}_{id}.jsonl")
            other.write_bytes(b"".join([*whole[:2], line + b"\n", *whole[2:]]))
            try:
                with anyio.fail_after(60):
                    session = await satchel.session(id)
                    result = await session.run_turn("And now?", memory=False)
                    async for record in session.subscribe(0):
                        if record.seq >= session.last_seq:
                            break
                    await session.aclose()
                    await satchel.sessions.export(id, form="json")
                    await satchel.sessions.search("heron")
                if result.status != "done":
                    broken.append((number, result.status))
            except Exception as error:  # noqa: BLE001 - each line is tried
                broken.append((number, repr(error)[:200]))
    assert not broken


ROWS: list[dict[str, Any]] = [
    {"posted_at": 2**62}, {"posted_at": -(2**62)}, {"posted_at": "soon"}, {"posted_at": 1.5e300}, {"text": b"\xff\x00"}, {"text": 7}, {"source": b"\xff"},
    {"kind": 1.5}, {"untrusted": "no"}, {"source": "a\nb" * 10_000}, {"id": b"x"},
]  # fmt: skip


@requirement("clients:inbox:bounded")
async def test_an_inbox_that_somebody_else_wrote_keeps_no_session_from_opening(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(lambda _: "Yes.")) as satchel:
        session = await satchel.session()
        await session.run_turn("Hello.")
        await session.aclose()
        with sqlite3.connect(tmp_path / "home" / "satchel.db") as database:
            database.execute("PRAGMA ignore_check_constraints = ON")
            for number, row in enumerate(ROWS):
                plain = {"id": f"e{number}", "session_id": session.id, "source": "s", "kind": "notice", "text": "t", "untrusted": 0, "posted_at": 0}  # fmt: skip
                values = {**plain, **row}
                database.execute(
                    f"INSERT INTO session_inbox ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
                    list(values.values()),
                )
        database.close()
        session = await satchel.session(session.id)
        assert (await session.run_turn("And now?")).status == "done"


def _settings(folder: Path) -> Any:
    return load({"HOME": str(folder), "PATH": "/bin"}, cwd=folder / "work", home=folder / "home")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / ".satchel").mkdir(parents=True)
    return folder


SPECIAL = ["fifo", "device", "folder", "socket", "loop", "endless"]


@requirement("config:project:content")
@pytest.mark.parametrize("name", [".satchel/config.toml", "AGENTS.md"])
@pytest.mark.parametrize("kind", SPECIAL)
def test_a_checkout_with_odd_files_hangs_nothing(tmp_path: Path, work: Path, name: str, kind: str) -> None:
    path = work / name
    match kind:
        case "fifo" | "socket":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "endless":
            path.symlink_to("/dev/tty")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(path)
    _settings(tmp_path)  # not trusted: it is not even read
    try:
        content = read_project(work)
    except ConfigError:
        return
    assert not [grant for grant in grants_of(content) if grant.kind != "instructions"]
    assert content.instructions == ""


CHANGES = [
    "another setting", "another rule", "another server", "another instruction", "a link to another file", "settings where there were none",
]  # fmt: skip


@requirement("config:project:content")
@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_after_trust_is_not_used(tmp_path: Path, work: Path, what: str) -> None:
    config, agents = work / ".satchel" / "config.toml", work / "AGENTS.md"
    if what != "settings where there were none":
        config.write_text("[agent]\nmax_rounds = 7\n")
    agents.write_text("Be kind.\n")
    trust(tmp_path / "home", work)
    assert _settings(tmp_path).project_trusted
    match what:
        case "another rule":
            config.write_text(config.read_text() + '[[permissions]]\naction = "allow"\ntool = "bash"\n')
        case "another server":
            config.write_text(config.read_text() + '[mcp_servers.x]\ncommand = "./evil"\n')
        case "another instruction":
            agents.write_text("Be kind.\u200b\n")
        case "a link to another file":
            other = tmp_path / "secret"
            other.write_text("PIN 4921")
            agents.unlink()
            agents.symlink_to(other)
        case _:
            config.write_text("[agent]\nmax_rounds = 8\n")
    settings = _settings(tmp_path)
    assert settings.agent.max_rounds != 8
    assert not settings.permissions
    assert "x" not in settings.mcp_servers
    assert "4921" not in settings.project_instructions
    assert what == "a link to another file" or not settings.project_trusted


@requirement("config:project:content")
@pytest.mark.parametrize("where", ["sub", ".git/modules/sub", "sub/deeper"])
def test_a_submodule_is_another_project(tmp_path: Path, work: Path, where: str) -> None:
    inner = work / where
    (inner / ".satchel").mkdir(parents=True)
    (inner / ".satchel" / "config.toml").write_text('[agent]\nmode = "bypass"\n')
    trust(tmp_path / "home", work)
    settings = load({"HOME": str(tmp_path), "PATH": "/bin"}, cwd=inner, home=tmp_path / "home")
    assert settings.project == inner
    assert not settings.project_trusted
    assert settings.agent.mode == "ask"


@requirement("config:project:content")
def test_trust_in_a_link_is_trust_in_what_it_leads_to_now(tmp_path: Path, work: Path) -> None:
    other = tmp_path / "other"
    (other / ".satchel").mkdir(parents=True)
    (other / ".satchel" / "config.toml").write_text('[agent]\nmode = "bypass"\n')
    link = tmp_path / "link"
    link.symlink_to(work)
    trust(tmp_path / "home", link)
    link.unlink()
    link.symlink_to(other)
    settings = load({"HOME": str(tmp_path), "PATH": "/bin"}, cwd=link, home=tmp_path / "home")
    assert not settings.project_trusted
