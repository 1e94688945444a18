"""Exports that somebody else made: they fill no disk, hang nothing, and lead no conversation to where keys are."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.models import Call, Reply, ScriptedModel
from satchel.runtime.importing import import_into
from tests.requirements import requirement
from tests.runtime.test_importing import PNG, chatgpt, node
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio

AT = "2025-06-01T10:00:00Z"
ID = "67c1aaaa-0000-4000-8000-000000000001"


def rollout(where: Path, cwd: object) -> Path:
    """A transcript of Codex that was held in a folder."""
    said: list[dict[str, Any]] = [
        {"type": "session_meta", "payload": {"id": ID, "timestamp": AT, "cwd": cwd}},
        *(
            {
                "type": "response_item",
                "payload": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]},
            }
            for role, kind, text in (
                ("user", "input_text", "Go on with the deployment."),
                ("assistant", "output_text", "I shall read id next."),
            )
        ),
    ]
    path = where / f"rollout-2025-06-01T10-00-00-{ID}.jsonl"
    path.write_text("\n".join(json.dumps({"timestamp": AT, **line}) for line in said))
    return path


PLACES = [
    "{home}/.ssh", "{home}/.ssh/", "{home}/home/../.ssh", "{home}/link", "{home}/link/.", "{home}/home", "{home}/home/sessions",
    "/proc/self", "/proc/self/cwd/x", "/etc", "/etc/ssl/..", "//etc", "", ".", "../.ssh", "~/.ssh", "{home}/.ssh\0", "{home}\n/.ssh",
    "{home}/work\x1b[2J", 7, ["{home}/.ssh"],
]  # fmt: skip


@requirement("sessions:imported")
@pytest.mark.parametrize("place", PLACES, ids=repr)
async def test_an_imported_conversation_goes_on_nowhere_that_keys_are(tmp_path: Path, place: object) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id").write_text("PRIVATE")
    (tmp_path / ".ssh/id").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / ".ssh")
    reads = Reply(calls=[Call(name="file_read", input={"path": "id"}, id="c1")])
    model = ScriptedModel([reads, "Done."])
    async with opened(tmp_path, model, agent__mode="auto") as satchel:
        assert satchel.memory is not None
        cwd = place.format(home=tmp_path) if isinstance(place, str) else place
        await import_into(satchel.home, satchel.memory, rollout(tmp_path, cwd))
        (info,) = await satchel.sessions.list()
        assert info.cwd == str(tmp_path)
        session = await satchel.session(info.id)
        assert (await session.run_turn("Go on.")).status == "done"
        assert "PRIVATE" not in str(model.requests[-1].messages)


@requirement("sessions:imported")
async def test_an_imported_conversation_reads_nothing_where_its_file_says_that_it_was_held(
    tmp_path: Path,
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/id").write_text("PRIVATE")
    model = ScriptedModel([Reply(calls=[Call(name="file_read", input={"path": "id"}, id="c1")]), "Done."])
    async with opened(tmp_path, model, agent__mode="auto") as satchel:
        assert satchel.memory is not None
        await import_into(satchel.home, satchel.memory, rollout(tmp_path, str(tmp_path / "letters")))
        (info,) = await satchel.sessions.list()
        assert info.cwd == str(tmp_path / "letters")
        session = await satchel.session(info.id)
        assert (await session.run_turn("Go on.")).status == "done"
        assert "PRIVATE" not in str(model.requests[-1].messages)


@requirement("sessions:imported")
async def test_pictures_that_are_a_bomb_together_fill_no_disk(tmp_path: Path) -> None:
    asked = [
        node(f"q{at}", f"q{at - 1}" if at else None, "user", [{"asset_pointer": f"file-service://file-A{at}"}, f"Loaf {at}?"], 1.75e9 + at)
        for at in range(9)
    ]  # fmt: skip
    path = chatgpt(tmp_path / "bomb.zip", asked, current="q8")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for at in range(9):
            archive.writestr(f"file-A{at}-loaf.png", PNG + b"%d" % at + bytes(14 << 20))
    assert path.stat().st_size < 200_000
    async with opened(tmp_path, ScriptedModel(["Done."])) as satchel:
        assert satchel.memory is not None
        report = await import_into(satchel.home, satchel.memory, path)
        assert (report.new, dict(report.conversations)) == (9, {"new": 1})
        kept = [file.stat().st_size for file in (tmp_path / "home").rglob("*.png")]
        assert (len(kept), sum(kept) < 64 << 20) == (4, True)


ODD = ["a pipe", "a link", "a link to a folder", "a device", "a file of a terabyte", "a folder"]


@requirement("sessions:imported")
@pytest.mark.parametrize("kind", ODD)
async def test_an_unpacked_export_with_odd_files_hangs_nothing_and_shows_nothing(
    tmp_path: Path, kind: str
) -> None:
    folder, secret = tmp_path / "export", tmp_path / "secret"
    with zipfile.ZipFile(chatgpt(tmp_path / "export.zip")) as archive:
        archive.extractall(folder)
    secret.mkdir()
    (secret / "file-Abc1-loaf.png").write_bytes(b"PRIVATE")
    odd = folder / "file-Abc1-loaf.png"
    odd.unlink()
    match kind:
        case "a pipe":
            os.mkfifo(odd)
        case "a link":
            odd.symlink_to(secret / odd.name)
        case "a link to a folder":
            (folder / "dalle/more").symlink_to(secret)
        case "a device":
            odd.symlink_to("/dev/zero")
        case "a folder":
            odd.mkdir()
        case _:
            with odd.open("wb") as file:
                file.truncate(1 << 40)
    async with opened(tmp_path, ScriptedModel(["Done."])) as satchel:
        assert satchel.memory is not None
        with anyio.fail_after(60):
            report = await import_into(satchel.home, satchel.memory, folder)
        assert dict(report.conversations) == {"new": 1}
        kept = [file.read_bytes() for file in (tmp_path / "home").rglob("*.png")]
        assert len(kept) == 1
        assert b"PRIVATE" not in b"".join(kept)


MEMBERS = [
    "../../../escaped.png", "/tmp/escaped.png", "..\\..\\escaped.png", "file-Abc1-../../escaped.png", "file-Abc1-\n\x1b[2J.png",
    "file-Abc1-" + "x" * 300 + ".png", "file-Abc1-<img src=x onerror=alert(1)>.png", "C:/file-Abc1-x.png", "file-Abc1-.", "dalle/../file-Abc1-x.png",
]  # fmt: skip


@requirement("sessions:imported")
@pytest.mark.parametrize("name", MEMBERS)
async def test_a_name_in_an_archive_is_no_path(tmp_path: Path, name: str) -> None:
    path = chatgpt(tmp_path / "export.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other, zipfile.ZipFile(path) as archive:
        other.writestr("conversations.json", archive.read("conversations.json"))
        other.writestr(name, PNG)
    outside = set(tmp_path.iterdir())
    async with opened(tmp_path, ScriptedModel(["Done."])) as satchel:
        assert satchel.memory is not None
        await import_into(satchel.home, satchel.memory, tmp_path / "other.zip")
        found = list((tmp_path / "home").rglob("*.png"))
        assert all(each.parent.name == "attached" and each.name.isprintable() for each in found)
    assert set(tmp_path.iterdir()) - outside <= {tmp_path / "home", tmp_path / "work"}
    assert not Path("/tmp/escaped.png").exists()
