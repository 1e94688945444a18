"""A home in one file and back again: whole, while others use it, and never half restored."""

from __future__ import annotations

import io
import os
import signal
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.errors import NotFound, Refused, StorageCorrupt, StorageTooNew, StorageUnwritable
from satchel.memory import Memory
from satchel.runtime.backup import back_up, interrupted_restore, restore
from satchel.runtime.browsers import Browsers
from satchel.runtime.serving import ensure_token, read_token
from tests.forking import run_python
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

CLOCK = ManualClock(datetime(2026, 4, 1, 12, tzinfo=UTC))


async def made(home: Path, content: str) -> Path:
    """A home with one memory, a log, settings, a tool, a model, and things that are no part of it."""
    home.mkdir(mode=0o700)
    async with Memory.open(home / "satchel.db", embedder="none") as memory:
        await memory.add(content)
    for name in (
        "config.toml",
        "sessions/here/a.jsonl",
        "models/minilm/weights",
        "logs/crash.txt",
        "x.db-wal",
    ):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content} {name}\n")
    tool = home / "tools" / "weather"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o700)
    (home / "link").symlink_to("/etc/hostname")
    return home


async def remembered(home: Path) -> list[str]:
    async with Memory.open(home / "satchel.db", embedder="none") as memory:
        return [one.content for one in await memory.list()]


@requirement("storage:backup")
async def test_what_was_backed_up_is_restored_and_what_was_there_is_kept(tmp_path: Path) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    file = tmp_path / "b.tar.gz"
    async with Memory.open(home / "satchel.db", embedder="none") as memory:
        await memory.add("in use meanwhile")
        done = back_up(home, home / "satchel.db", file, clock=CLOCK)
    assert (done.files, done.bytes, file.stat().st_mode & 0o777) == (4, file.stat().st_size, 0o600)
    async with Memory.open(home / "satchel.db", embedder="none") as memory:
        await memory.add("later")
    back = restore(file, home, clock=CLOCK)
    assert sorted(await remembered(home)) == ["Ann likes tea", "in use meanwhile"]
    assert (home / "sessions/here/a.jsonl").read_text() == "Ann likes tea sessions/here/a.jsonl\n"
    assert (home / "tools/weather").stat().st_mode & 0o777 == 0o700
    assert (home / "models/minilm/weights").exists()
    assert not (home / "logs").exists()
    assert (home / "link").read_text() == Path("/etc/hostname").read_text()
    assert back.aside == tmp_path / "home.before-restore-20260401-120000"
    assert "later" in await remembered(back.aside)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "home", back.aside.name]


@requirement("storage:backup")
async def test_a_restored_home_is_the_same_and_its_backup_is_restored_too(tmp_path: Path) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    file = tmp_path / "b.tar.gz"
    clock = ManualClock(datetime(2026, 4, 1, 12, tzinfo=UTC))
    for _ in range(3):
        done = back_up(home, home / "satchel.db", file, clock=clock)
        back = restore(file, home, clock=clock)
        clock.advance(60)
        assert (done.files, back.files) == (4, 4)
        assert sorted(path.name for path in home.iterdir()) == [
            "config.toml",
            "link",
            "models",
            "satchel.db",
            "sessions",
            "tools",
        ]
        # As a restored home looked when the program left the backup's own first file in it.
        (home / "satchel-backup.json").write_text("{}")
    assert await remembered(home) == ["Ann likes tea"]


@requirement("storage:backup")
async def test_a_stolen_backup_opens_no_server_and_a_restored_home_keeps_its_token(tmp_path: Path) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    token = ensure_token(home)
    back_up(home, home / "satchel.db", tmp_path / "b.tar.gz", clock=CLOCK)
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        parts = [archive.extractfile(entry) for entry in archive if entry.isfile()]
        assert token.encode() not in b"".join(part.read() for part in parts if part is not None)
    restore(tmp_path / "b.tar.gz", home, clock=CLOCK)
    assert read_token(home) == token


@requirement("storage:backup")
async def test_browsers_that_have_logged_out_since_a_backup_stay_logged_out(tmp_path: Path) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    browsers = Browsers(home, token=ensure_token(home), clock=CLOCK)
    gone, stays = browsers.log_in(), browsers.log_in()
    back_up(home, home / "satchel.db", tmp_path / "b.tar.gz", clock=CLOCK)
    browsers.log_out(gone)
    restore(tmp_path / "b.tar.gz", home, clock=CLOCK)
    browsers = Browsers(home, token=ensure_token(home), clock=CLOCK)
    assert [browsers.knows(each) for each in (gone, stays)] == [False, True]


@requirement("storage:backup")
async def test_a_file_that_takes_the_place_on_the_disk_of_one_that_was_removed_meanwhile_is_no_name_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    (home / "tools/a").write_text("one")
    (home / "tools/b").hardlink_to(home / "tools/a")
    (home / "tools/c").write_text("another")
    number, fstat, stat = (home / "tools/a").stat().st_ino, os.fstat, Path.stat

    def reused(found: os.stat_result) -> os.stat_result:
        is_c = found.st_size == len("another")
        return os.stat_result((found[0], number, found[2], 2, *found[4:10])) if is_c else found

    monkeypatch.setattr(os, "fstat", lambda file: reused(fstat(file)))
    monkeypatch.setattr(Path, "stat", lambda path, **how: reused(stat(path, **how)))
    back_up(home, home / "satchel.db", tmp_path / "b.tar.gz", clock=CLOCK)
    monkeypatch.undo()
    restore(tmp_path / "b.tar.gz", tmp_path / "other", clock=CLOCK)
    assert [(tmp_path / "other/tools" / name).read_text() for name in "abc"] == ["one", "one", "another"]


@requirement("storage:backup")
async def test_a_home_that_is_not_there_is_made(tmp_path: Path) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    back_up(home, home / "satchel.db", tmp_path / "b.tar.gz", clock=CLOCK)
    assert restore(tmp_path / "b.tar.gz", tmp_path / "new" / "home", clock=CLOCK).aside is None
    assert await remembered(tmp_path / "new" / "home") == ["Ann likes tea"]


@requirement("storage:backup")
async def test_a_home_in_use_is_not_replaced(tmp_path: Path) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    back_up(home, home / "satchel.db", tmp_path / "b.tar.gz", clock=CLOCK)
    async with Memory.open(home / "satchel.db", embedder="none") as memory:
        await memory.add("now")
        with pytest.raises(Refused, match="is in use by another process"):
            restore(tmp_path / "b.tar.gz", home, clock=CLOCK)
        await memory.add("and goes on")
    assert sorted(await remembered(home)) == ["Ann likes tea", "and goes on", "now"]


def with_entry(
    name: str, kind: bytes = tarfile.REGTYPE, first: bytes = b'{"satchel-backup": 1, "schema": "0001_memory"}'
) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with tarfile.open(path, "w:gz") as archive:
            for entry_name, raw, entry_kind in (
                ("satchel-backup.json", first, tarfile.REGTYPE),
                (name, b"x", kind),
            ):
                entry = tarfile.TarInfo(entry_name)
                entry.size, entry.type = len(raw) if entry_kind == tarfile.REGTYPE else 0, entry_kind
                entry.linkname = "/etc/passwd"
                archive.addfile(entry, io.BytesIO(raw))

    return write


@requirement("storage:backup")
@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda path: path.write_bytes(b"no archive"), StorageCorrupt),
        (lambda path: path.write_bytes(b""), StorageCorrupt),
        (with_entry("../evil"), StorageCorrupt),
        (with_entry("/tmp/evil"), StorageCorrupt),
        (with_entry("link", tarfile.SYMTYPE), StorageCorrupt),
        (with_entry("link", tarfile.LNKTYPE), StorageCorrupt),
        (with_entry("device", tarfile.CHRTYPE), StorageCorrupt),
        (with_entry("x", first=b"[]"), StorageCorrupt),
        (with_entry("x", first=b"{"), StorageCorrupt),
        (with_entry("x", first=b'{"satchel-backup": 1, "schema": "9999_future"}'), StorageTooNew),
        (with_entry("x", first=b'{"satchel-backup": 3, "schema": "0001_memory"}'), StorageTooNew),
        (with_entry("satchel.db"), StorageCorrupt),
    ],
)
async def test_what_is_no_good_backup_changes_nothing(
    write: Callable[[Path], None], error: type[Exception], tmp_path: Path
) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    write(tmp_path / "b.tar.gz")
    with pytest.raises(error):
        restore(tmp_path / "b.tar.gz", home, clock=CLOCK)
    assert await remembered(home) == ["Ann likes tea"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "home"]


async def test_every_cut_of_a_backup_is_refused(tmp_path: Path) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    file = tmp_path / "b.tar.gz"
    back_up(home, home / "satchel.db", file, clock=CLOCK)
    whole = file.read_bytes()
    for length in range(0, len(whole), len(whole) // 17):
        file.write_bytes(whole[:length])
        with pytest.raises(StorageCorrupt):
            restore(file, home, clock=CLOCK)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    file.write_bytes(damaged)
    with pytest.raises(StorageCorrupt):
        restore(file, home, clock=CLOCK)
    assert await remembered(home) == ["Ann likes tea"]


async def test_places_that_cannot_be_read_or_written_are_reported(tmp_path: Path) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    with pytest.raises(NotFound):
        back_up(tmp_path / "none", home / "satchel.db", tmp_path / "b.tar.gz", clock=CLOCK)
    with pytest.raises(StorageUnwritable, match="is a folder"):
        back_up(home, home / "satchel.db", tmp_path, clock=CLOCK)
    with pytest.raises(NotFound):
        restore(tmp_path / "b.tar.gz", home, clock=CLOCK)


@requirement("storage:backup")
async def test_links_that_the_user_made_are_backed_up_with_what_they_lead_to_and_others_are_named(
    tmp_path: Path,
) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    dotfiles = tmp_path / "dotfiles"
    (dotfiles / "skills" / "tea").mkdir(parents=True)
    (dotfiles / "config.toml").write_text("model = 'none'\n")
    (dotfiles / "skills" / "tea" / "SKILL.md").write_text("Tea.\n")
    (dotfiles / "skills" / "round").symlink_to(dotfiles / "skills")
    (dotfiles / "tool").write_text("#!/bin/sh\n")
    (dotfiles / "tool").chmod(0o700)
    (home / "config.toml").unlink()
    (home / "config.toml").symlink_to(dotfiles / "config.toml")
    (home / "skills").symlink_to(dotfiles / "skills")
    (home / "tools" / "linked").symlink_to(dotfiles / "tool")
    (home / "tools" / "gone").symlink_to(dotfiles / "gone")
    (home / "all").symlink_to(tmp_path)
    (home / "builds").mkdir()
    (home / "builds" / "passwd").symlink_to("/etc/passwd")  # a sandbox may have made it
    (home / "builds" / "notes").touch()
    (home / "builds" / "second name").symlink_to("notes")
    done = back_up(home, home / "satchel.db", tmp_path / "b.tar.gz", clock=CLOCK)
    assert sorted(done.left_out) == ["all", "builds/passwd", "skills/round", "tools/gone"]
    restore(tmp_path / "b.tar.gz", home, clock=CLOCK)
    assert not (home / "config.toml").is_symlink()
    assert (home / "config.toml").read_text() == "model = 'none'\n"
    assert (home / "skills/tea/SKILL.md").read_text() == "Tea.\n"
    assert (home / "tools/linked").stat().st_mode & 0o777 == 0o700
    assert not (home / "builds" / "passwd").exists()


BACKING_UP = """
import os, signal, sys
from pathlib import Path
from satchel.clock import SystemClock
from satchel.runtime import backup

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
backup.note_copy = backup._put = killed
backup.back_up(Path(sys.argv[1]), Path(sys.argv[1], "satchel.db"), Path(sys.argv[2]), clock=SystemClock())
"""


@requirement("storage:backup")
async def test_a_backup_that_is_killed_leaves_the_old_one_and_the_next_removes_its_parts(
    tmp_path: Path,
) -> None:
    home = await made(tmp_path / "home", "Ann likes tea")
    file = tmp_path / "b[1].tar.gz"
    back_up(home, home / "satchel.db", file, clock=CLOCK)
    before = file.read_bytes()
    ran = run_python(BACKING_UP, home, file)
    assert ran.returncode == -signal.SIGKILL
    assert file.read_bytes() == before
    assert len([path for path in tmp_path.iterdir() if path.name.startswith(".b[1].tar.gz.")]) == 2
    back_up(home, home / "satchel.db", file, clock=CLOCK)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    restore(file, home, clock=CLOCK)
    assert await remembered(home) == ["Ann likes tea"]


KILLED = """
import os, signal, sys
from pathlib import Path
from satchel.clock import SystemClock
from satchel.runtime import backup

rename, left = Path.rename, int(sys.argv[3])
def counted(self, target):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return rename(self, target)
Path.rename = counted
if "mount" in sys.argv:
    Path.is_mount = lambda self: True
if "exchange" not in sys.argv:
    backup._exchange = lambda one, other: False
backup.restore(Path(sys.argv[1]), Path(sys.argv[2]), clock=SystemClock())
"""


@requirement("storage:backup")
@pytest.mark.parametrize("way", ["exchange", "rename", "mount"])
async def test_a_restore_that_is_killed_at_any_rename_loses_nothing_and_is_told_of(
    tmp_path: Path, way: str
) -> None:
    file = tmp_path / "b.tar.gz"
    old = await made(tmp_path / "old", "Ann likes tea")
    back_up(old, old / "satchel.db", file, clock=CLOCK)
    for renames in range(30):
        (tmp_path / str(renames)).mkdir()
        home = await made(tmp_path / str(renames) / "home", "Bob likes coffee")
        ran = run_python(KILLED, file, home, renames, way)
        there = [path.parent for path in home.parent.rglob("satchel.db")]
        said = [one for each in there for one in await remembered(each)]
        assert "Bob likes coffee" in said
        if ran.returncode == 0:
            assert interrupted_restore(home) == ""
            assert await remembered(home) == ["Ann likes tea"]
            assert renames
            return
        assert ran.returncode == -signal.SIGKILL
        assert "Ann likes tea" in said or renames == 0
        # Killed before the last rename, only the models were not brought over.
        is_told = "interrupted" in interrupted_restore(home)
        assert is_told or await remembered(home) == ["Ann likes tea"]
        # Restoring once more brings the backup, and what was there is still beside it.
        restore(file, home, clock=CLOCK)
        assert await remembered(home) == ["Ann likes tea"]
    raise AssertionError("it never ended")
