"""file_read, file_write, file_edit: pages, encodings, exactness, and hostile files."""

from __future__ import annotations

import difflib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from satchel.tools import Foreseeing, ToolResult
from satchel.tools.builtin.content import detect_encoding
from satchel.tools.builtin.diff import unified_diff
from satchel.tools.builtin.fence import Fence
from satchel.tools.builtin.file_write import file_write_tool
from satchel.tools.builtin.patch import apply_patch
from satchel.wording import shown
from tests.requirements import requirement
from tests.tools.conftest import Session

pytestmark = pytest.mark.anyio
READABLE = 26_000
LINES = st.tuples(
    st.lists(st.sampled_from(["a\n", "b\n", "- c\n", "\n"]), max_size=12),
    st.sampled_from([[], ["a"], ["end"]]),
).map(lambda parts: [*parts[0], *parts[1]])
"""Lines of a file, the last one with or without its ending."""


def rows(result: ToolResult) -> list[str]:
    assert not result.is_error, result.text
    return result.text.split("\n")


def refusal(result: ToolResult) -> str:
    assert result.is_error, result.text
    return result.text


# ---- Reading


@requirement("tools:file-read:pages")
async def test_lines_are_numbered_and_pages_say_how_to_go_on(session: Session) -> None:
    (session.cwd / "a.txt").write_text("one\r\ntwo\nthree\nfour")
    assert rows(await session("file_read", path="a.txt")) == [
        "     1\tone",
        "     2\ttwo",
        "     3\tthree",
        "     4\tfour",
    ]
    assert rows(await session("file_read", path="a.txt", offset=2, limit=2)) == [
        "     2\ttwo",
        "     3\tthree",
        "[lines 2 to 3 of 4; continue with offset=4]",
    ]
    assert rows(await session("file_read", path="a.txt", offset=4)) == ["     4\tfour", "[end of the file]"]
    assert rows(await session("file_read", path="a.txt", offset=-2)) == [
        "     3\tthree",
        "     4\tfour",
        "[end of the file]",
    ]
    assert rows(await session("file_read", path="a.txt", offset=-99, limit=1))[0] == "     1\tone"
    assert rows(await session("file_read", path="a.txt", offset=0, limit=1))[0] == "     1\tone"
    assert refusal(await session("file_read", path="a.txt", offset=5)) == (
        "a.txt has only 4 lines; there is no line 5."
    )


async def test_an_empty_file_is_empty(session: Session) -> None:
    (session.cwd / "a.txt").write_text("")
    assert (await session("file_read", path="a.txt")).text == "a.txt is empty."
    (session.cwd / "b.txt").write_text("\n")
    assert rows(await session("file_read", path="b.txt")) == ["     1\t"]


async def test_a_page_stays_below_what_a_result_may_have(session: Session) -> None:
    (session.cwd / "a.txt").write_text("".join(f"line {number} {'x' * 90}\n" for number in range(1, 5001)))
    read: list[str] = []
    offset = 1
    while True:
        page = (await session("file_read", path="a.txt", offset=offset)).text
        assert len(page) < 30_000
        *lines, last = page.split("\n")
        read += lines
        if "continue with" not in last:
            break
        offset = int(last.rpartition("=")[2].rstrip("]"))
    assert [int(line.split("\t")[0]) for line in read] == list(range(1, 5001))


async def test_a_long_line_is_cut_and_can_be_read_on(session: Session) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(70_000)) + "é" * 1000
    (session.cwd / "a.txt").write_text(f"short\n{text}\nend\n", encoding="utf-8")
    lines = rows(await session("file_read", path="a.txt"))
    assert lines[1] == f"     2\t{text[:2000]} [… line continues: offset=2, column=2001]"
    assert lines[2] == "     3\tend"
    pieces = [text[:2000]]
    column = 2001
    while True:
        line = rows(await session("file_read", path="a.txt", offset=2, column=column))[0].removeprefix(
            "     2\t"
        )
        piece, _, rest = line.partition(" [… line continues: ")
        pieces.append(piece)
        if not rest:
            break
        column = int(rest.rpartition("=")[2].rstrip("]"))
    assert "".join(pieces) == text


@requirement("tools:file-read:huge")
async def test_a_log_of_a_gigabyte_is_paged_from_both_ends(session: Session) -> None:
    path = session.cwd / "big.log"
    with path.open("wb") as file:
        file.writelines(b"head %d %s\n" % (number, b"x" * 100) for number in range(1, 2001))
        file.seek(1 << 30)
        file.write(b"\nlast but one\nlast\n")
    assert rows(await session("file_read", path="big.log", limit=1)) == [
        f"     1\thead 1 {'x' * 100}",
        "[lines 1 to 1; continue with offset=2]",
    ]
    assert rows(await session("file_read", path="big.log", offset=-2)) == [
        "    -2\tlast but one",
        "    -1\tlast",
        "[end of the file]",
    ]
    middle = rows(await session("file_read", path="big.log", offset=2000))
    assert middle[0].startswith("  2000\thead 2000 ")
    assert middle[1].startswith("  2001\t[… ")
    assert middle[2:] == ["  2002\tlast but one", "  2003\tlast", "[end of the file]"]
    assert refusal(await session("file_read", path="big.log", offset=3000)) == (
        "big.log has 2,003 lines; there is no line 3,000."
    )


async def test_pages_of_a_large_file_follow_one_another(session: Session) -> None:
    count = 400_000
    (session.cwd / "big.txt").write_text("".join(f"{number:030}\n" for number in range(1, count + 1)))
    for offset in (1, 701, 399_999, 250_001, 2):
        first = rows(await session("file_read", path="big.txt", offset=offset, limit=700))[0]
        assert first == f"{offset:>6}\t{offset:030}"
    with (session.cwd / "big.txt").open("a") as file:
        file.write("last")
    assert refusal(await session("file_read", path="big.txt", offset=500_000)) == (
        "big.txt has 400,001 lines; there is no line 500,000."
    )


async def test_one_line_of_many_megabytes_is_read_in_pieces(session: Session) -> None:
    path = session.cwd / "one.json"
    path.write_text("x" * 30_000_000 + "END\nnext\n")
    assert rows(await session("file_read", path="one.json"))[1] == "     2\tnext"
    assert rows(await session("file_read", path="one.json", column=30_000_001))[0] == "     1\tEND"
    assert rows(await session("file_read", path="one.json", column=40_000_000))[0] == "     1\t"


@requirement("tools:file-read:binary")
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png, 16 bytes"),
        (b"GIF89a\0\0\0\0\0", "image/gif, 11 bytes"),
        (b"\xff\xd8\xff", "image/jpeg, 3 bytes"),
        (b"RIFF\0\0\0\0WEBPVP8X", "image/webp, 16 bytes"),
        (b"BM" + bytes(16), "image/bmp, 18 bytes"),
        (b"%PDF-1.7\nxyz", "application/pdf, 12 bytes"),
        (b"ID3\3\0\0", "audio/mpeg, 6 bytes"),
        (b"\x1f\x8b\x08abc", "binary, 6 bytes"),
        (b"a\0b", "binary, 3 bytes"),
        (bytes(1000), "binary, 1,000 bytes"),
        (bytes(range(256)), "binary, 256 bytes"),
    ],
)
async def test_what_is_not_text_is_described(session: Session, data: bytes, kind: str) -> None:
    (session.cwd / "a.bin").write_bytes(data)
    result = await session("file_read", path="a.bin")
    is_seen = kind.startswith("image/")
    assert bool(result.files) == is_seen
    assert result.text == f"a.bin{':' if is_seen else ' is not text:'} {kind}."


@requirement("tools:file-read:binary")
@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("é ü\n".encode(), "é ü"),
        (b"\xef\xbb\xbf" + "é".encode(), "é"),
        ("\ufeffé\nü".encode("utf-16-le"), "é"),
        ("\ufeffé\nü".encode("utf-16-be"), "é"),
        ("\ufeffé".encode("utf-32-le"), "é"),
        ("café au lait".encode("latin-1"), "café au lait"),
        ("“quoted”".encode("cp1252"), "“quoted”"),
        (
            ("Съешь же ещё этих мягких французских булок. " * 5).encode("cp1251"),
            ("Съешь же ещё этих мягких французских булок. " * 5),
        ),
        (
            ("いろはにほへと ちりぬるを わかよたれそ つねならむ" * 5).encode("shift_jis"),
            "いろはにほへと ちりぬるを わかよたれそ つねならむ" * 5,
        ),
    ],
)
async def test_encodings_are_recognised(session: Session, data: bytes, text: str) -> None:
    (session.cwd / "a.txt").write_bytes(data)
    assert rows(await session("file_read", path="a.txt"))[0] == f"     1\t{text}"


def test_a_character_on_the_edge_of_the_sample_is_no_error() -> None:
    encoding = detect_encoding(("x" * 65_535 + "é").encode()[:65_536])
    assert encoding is not None
    assert encoding.name == "utf-8"


@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_not_and_text_decodes(data: bytes) -> None:
    encoding = detect_encoding(data)
    if encoding is not None:
        data[len(encoding.bom) :].decode(encoding.name, "replace")


async def test_missing_files_and_folders_get_a_hint(session: Session) -> None:
    (session.cwd / "src").mkdir()
    (session.cwd / "src" / "settings.py").write_text("")
    assert refusal(await session("file_read", path="src/setings.py")) == (
        "There is no src/setings.py. Similar names: settings.py."
    )
    assert refusal(await session("file_read", path="scr/a")).startswith("There is no scr/a. Its folder ")
    assert refusal(await session("file_read", path="src")) == (
        "src is a folder. It contains: settings.py. Use glob to find files in it."
    )
    assert refusal(await session("file_read", path="src/settings.py/x")).startswith(
        "src/settings.py/x can't be reached"
    )
    assert refusal(await session("file_read", path="")) == "The path is empty."


async def test_what_is_no_file_is_refused_and_nothing_hangs(session: Session) -> None:
    os.mkfifo(session.cwd / "pipe")
    assert refusal(await session("file_read", path="pipe")) == "pipe is a named pipe, not a regular file."
    assert refusal(await session("file_write", path="pipe", content="x")) == (
        "pipe is a named pipe, not a regular file."
    )
    assert refusal(await session("file_edit", path="pipe", old="a", new="b")) == (
        "pipe is a named pipe, not a regular file."
    )
    with socket.socket(socket.AF_UNIX) as server:
        old = Path.cwd()
        os.chdir(session.cwd)
        try:
            server.bind("socket")
        finally:
            os.chdir(old)
        assert refusal(await session("file_read", path="socket")) == "socket is not a regular file."


async def test_devices_are_refused(open_session: Callable[..., Session], project: Path) -> None:
    devices = open_session(project, roots=[Path("/dev")])
    for name in ("zero", "null", "tty", "full"):
        assert (await devices("file_read", path=f"/dev/{name}")).is_error


@requirement("tools:files:names")
async def test_odd_names_are_escaped_and_can_be_used(session: Session) -> None:
    for name in ("a\nb.txt", "tab\t.txt", os.fsdecode(b"raw\xff.txt"), "\u202ereversed.txt"):
        assert (await session("file_write", path=name, content="x")).text == (
            f"Created {shown(name)}: 1 line, 1 byte."
        )
        assert rows(await session("file_read", path=name)) == ["     1\tx"]
        assert "\n" not in shown(name)
    assert shown("a\nb\x1b\udcff\u202e") == "a\\nb\\x1b\\udcff\\u202e"
    assert "a\\nb.txt" in refusal(await session("file_read", path="a\nc.txt"))
    for bad in ("a\0b", "a\ud800b"):
        assert "it contains a NUL or a lone surrogate" in refusal(await session("file_read", path=bad))
        assert "it contains a NUL or a lone surrogate" in refusal(
            await session("file_write", path=bad, content="")
        )
    assert "File name too long" in refusal(await session("file_write", path="x" * 300, content=""))


async def test_a_path_may_begin_at_home(session: Session) -> None:
    (session.cwd / "a.txt").write_text("x")
    assert rows(await session("file_read", path="~/project/a.txt")) == ["     1\tx"]


# ---- Where they may go


@requirement("tools:files:symlinks")
async def test_nothing_leads_out(session: Session, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (session.cwd / "folder").symlink_to(outside)
    (session.cwd / "file").symlink_to(outside / "secret")
    (session.cwd / "far").symlink_to("folder/secret")
    (session.cwd / "dangling").symlink_to(outside / "new")
    for path in (
        "../outside/secret",
        str(outside / "secret"),
        "folder/secret",
        "file",
        "far",
        "dangling",
        "folder/../secret",
    ):
        for name, more in (
            ("file_read", {}),
            ("file_write", {"content": "x"}),
            ("file_edit", {"old": "s", "new": "x"}),
        ):
            assert "is outside of what the file tools may access" in refusal(
                await session(name, path=path, **more)
            ), path
    assert "(it links to " in refusal(await session("file_read", path="file"))
    assert "(it links to " not in refusal(await session("file_read", path="../outside/secret"))
    for name in ("glob", "grep"):
        assert "is outside" in refusal(await session(name, pattern="x", path="folder"))
    assert (outside / "secret").read_text() == "secret"
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


async def test_links_inside_are_followed_to_the_file_and_stay_links(session: Session) -> None:
    (session.cwd / "real").write_text("one\n")
    (session.cwd / "link").symlink_to("real")
    assert rows(await session("file_read", path="link")) == ["     1\tone"]
    await session("file_edit", path="link", old="one", new="two")
    assert (session.cwd / "link").is_symlink()
    assert (session.cwd / "real").read_text() == "two\n"


async def test_links_in_a_circle_and_into_nothing(session: Session) -> None:
    (session.cwd / "a").symlink_to("b")
    (session.cwd / "b").symlink_to("a")
    (session.cwd / "nothing").symlink_to("missing")
    assert "symlink" in refusal(await session("file_read", path="a"))
    assert refusal(await session("file_read", path="nothing")).startswith("There is no missing.")
    assert (await session("file_write", path="nothing", content="x")).text == (
        "Created missing: 1 line, 1 byte."
    )


async def test_a_folder_that_becomes_a_link_after_the_check_leads_nowhere(
    session: Session, tmp_path: Path
) -> None:
    """The race that a check before opening loses: the place is found first, the folder exchanged then."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("secret")
    (session.cwd / "folder").mkdir()
    (session.cwd / "folder" / "a").write_text("mine")
    place = Fence().locate("folder/a", session.context, writing=True)
    (session.cwd / "folder").rename(session.cwd / "moved")
    (session.cwd / "folder").symlink_to(outside)
    with pytest.raises(Exception, match="changed just now"):
        place.open()
    with pytest.raises(Exception, match="changed just now"):
        place.replace(b"x", expected=None)
    assert (outside / "a").read_text() == "secret"


async def test_a_file_that_becomes_a_link_after_the_check_is_not_followed(
    session: Session, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (session.cwd / "a").write_text("mine")
    place = Fence().locate("a", session.context, writing=True)
    state = (session.cwd / "a").stat()
    (session.cwd / "a").unlink()
    (session.cwd / "a").symlink_to(secret)
    with pytest.raises(Exception, match="changed just now"):
        place.open()
    with pytest.raises(Exception, match="just changed by another program"):
        place.replace(b"x", expected=state)
    assert secret.read_text() == "secret"
    assert [path.name for path in session.cwd.iterdir()] == ["a"]


async def test_spilled_results_can_be_read_and_not_written(session: Session) -> None:
    spilled = session.spill_dir / "c1.txt"
    spilled.write_text("long\n")
    assert rows(await session("file_read", path=str(spilled))) == ["     1\tlong"]
    assert "is outside" in refusal(await session("file_write", path=str(spilled), content=""))


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".GIT/config", "sub/.git/hooks/x", ".satchel/config.toml"]
)
async def test_what_decides_what_may_run_is_not_written(session: Session, path: str) -> None:
    (session.cwd / ".git" / "hooks").mkdir(parents=True)
    (session.cwd / "hooks").symlink_to(".git/hooks")
    assert "can't be written by tools" in refusal(await session("file_write", path=path, content="x"))
    assert "can't be written by tools" in refusal(await session("file_write", path="hooks/x", content="x"))
    assert "can't be written by tools" in refusal(await session("file_edit", path=path, old="a", new="b"))


async def test_nothing_in_satchels_own_home_is_written_and_its_token_not_read(
    open_session: Callable[..., Session], project: Path
) -> None:
    home = project / "own"
    home.mkdir()
    for name in ("token", "keys.json"):
        (home / name).write_text("s3cret")
    (home / "config.toml").write_text("model = 'x'\n")
    own = open_session(project, home=home)
    assert "can't be written by tools" in refusal(await own("file_write", path="own/tools/x", content="x"))
    for name in ("token", "keys.json"):
        assert "is never shown" in refusal(await own("file_read", path=f"own/{name}"))
    assert rows(await own("file_read", path="own/config.toml")) == ["     1\tmodel = 'x'"]
    assert (await own("grep", pattern="s3cret")).text == "No match for 's3cret' in '.'."
    assert "is never shown" in refusal(await own("grep", pattern="s3cret", path="own/token"))
    found = (await own("glob", pattern="**/*")).text
    assert "token" not in found
    assert "keys" not in found


# ---- Writing


@requirement("tools:file-write")
async def test_a_new_file_is_made_with_its_folders(session: Session) -> None:
    result = await session("file_write", path="a/b/c.txt", content="é\ntwo")
    assert result.text == "Created a/b/c.txt: 2 lines, 6 bytes."
    assert (session.cwd / "a/b/c.txt").read_bytes() == "é\ntwo".encode()
    assert [path.name for path in (session.cwd / "a/b").iterdir()] == ["c.txt"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((session.cwd / "a/b/c.txt").stat().st_mode) == 0o666 & ~umask


@requirement("tools:file-write")
async def test_what_was_not_read_is_not_overwritten(session: Session) -> None:
    path = session.cwd / "a.sh"
    path.write_text("one\n")
    path.chmod(0o750)
    assert "was not read in this session" in refusal(
        await session("file_write", path="a.sh", content="two\n")
    )
    write = file_write_tool(Fence())
    assert isinstance(write, Foreseeing)
    assert "was not read" in write.foresee({"path": "a.sh", "content": "two\n"}, session.context)
    assert write.foresee({"path": "b.sh", "content": "two\n"}, session.context) == ""
    await session("file_read", path="a.sh")
    assert write.foresee({"path": "a.sh", "content": "two\n"}, session.context) == ""
    result = await session("file_write", path="a.sh", content="two\n")
    assert result.text == "Replaced a.sh.\n--- a.sh\n+++ a.sh\n@@ -1 +1 @@\n-one\n+two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert (await session("file_write", path="a.sh", content="two\n")).text == (
        "a.sh already has this content."
    )
    path.write_text("theirs\n")
    assert "has changed since it was read" in refusal(
        await session("file_write", path="a.sh", content="three\n")
    )
    assert path.read_text() == "theirs\n"


async def test_an_empty_file_may_be_filled_and_a_written_one_written_again(session: Session) -> None:
    (session.cwd / "a").touch()
    assert not (await session("file_write", path="a", content="1")).is_error
    assert not (await session("file_write", path="a", content="2")).is_error
    assert refusal(await session("file_write", path=".", content="x")) == ". is a folder."


async def test_content_that_no_encoding_takes_is_refused(session: Session) -> None:
    assert refusal(await session("file_write", path="a", content="ab\ud800")) == (
        "The content can't be written as UTF-8: character 3 is a lone surrogate."
    )
    assert not (session.cwd / "a").exists()


async def test_a_folder_that_may_not_be_written_says_so_and_keeps_what_was_there(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*args: object, **options: object) -> None:
        # The superuser, whom tests may run as, is denied nothing by the mode of a folder.
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", denied)
    assert (
        refusal(await session("file_write", path="a", content="x"))
        == "a: the system denies access to this user."
    )
    assert list(session.cwd.iterdir()) == []


async def test_a_full_disk_keeps_the_old_file_and_leaves_nothing_behind(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session.cwd / "a.txt"
    path.write_text("old\n")
    await session("file_read", path="a.txt")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = await session("file_write", path="a.txt", content="new\n")
    assert (
        refusal(result) == "a.txt could not be written: No space left on device. The old file is unchanged."
    )
    assert [path.name for path in session.cwd.iterdir()] == ["a.txt"]
    assert path.read_text() == "old\n"


# ---- Editing


@requirement("tools:file-edit:exact")
async def test_an_edit_shows_what_it_did(session: Session) -> None:
    (session.cwd / "a.py").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    result = await session("file_edit", path="a.py", old="line 5\n", new="five\nand a half\n")
    assert result.text == (
        "Replaced once in a.py.\n--- a.py\n+++ a.py\n@@ -2,7 +2,8 @@\n line 2\n line 3\n line 4\n"
        "-line 5\n+five\n+and a half\n line 6\n line 7\n line 8"
    )
    assert result.data == {"path": str((session.cwd / "a.py").resolve()), "replaced": 1}


@requirement("tools:file-edit:exact")
async def test_several_matches_are_counted_and_their_lines_named(session: Session) -> None:
    path = session.cwd / "a.py"
    path.write_text("x = 1\ny = 2\nx = 1\n" + "x = 1\n" * 20)
    text = refusal(await session("file_edit", path="a.py", old="x = 1", new="x = 3"))
    assert "occurs 22 times in a.py: lines 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, …" in text
    result = await session("file_edit", path="a.py", old="x = 1", new="x = 3", replace_all=True)
    assert result.text.startswith("Replaced 22 times in a.py.\n")
    assert path.read_text() == "x = 3\ny = 2\nx = 3\n" + "x = 3\n" * 20


async def test_what_is_not_there_gets_the_nearest(session: Session) -> None:
    (session.cwd / "a.py").write_text("def f():\n\treturn 1\n\ndef go(a):\n    pass\n")
    assert refusal(await session("file_edit", path="a.py", old="def f():\n    return 1", new="")) == (
        "`old` is not in a.py. With different white space it is at line 1:\ndef f():\n\treturn 1"
    )
    assert refusal(await session("file_edit", path="a.py", old="def go(b):", new="")) == (
        "`old` is not in a.py. The nearest lines are:\n     4\tdef go(a):\n     1\tdef f():"
    )
    assert "leave them out" in refusal(
        await session("file_edit", path="a.py", old="     1\tdef f():", new="")
    )
    assert "read the file again" in refusal(await session("file_edit", path="a.py", old="qqqqqqqqqq", new=""))
    assert "is empty" in refusal(await session("file_edit", path="a.py", old="", new="x"))
    assert "are identical" in refusal(await session("file_edit", path="a.py", old="def", new="def"))


@requirement("tools:file-edit:changed")
async def test_a_file_that_changed_since_it_was_read_is_not_edited(session: Session) -> None:
    path = session.cwd / "a.txt"
    path.write_text("one\n")
    await session("file_read", path="a.txt")
    before = path.stat()
    path.write_text("ONE\n")
    # The same size and time do not hide it: the content is compared.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "has changed since it was read" in refusal(
        await session("file_edit", path="a.txt", old="ONE", new="two")
    )
    path.write_text("one\n")
    # The same content with another time is the same file.
    os.utime(path, ns=(1, 1))
    assert not (await session("file_edit", path="a.txt", old="one", new="two")).is_error
    assert not (await session("file_edit", path="a.txt", old="two", new="three")).is_error
    path.write_text("four\n")
    await session("file_read", path="a.txt")
    assert not (await session("file_edit", path="a.txt", old="four", new="five")).is_error


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "b\n", "x\ny\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\r\n", "x\r\n", b"a\r\nx\r\nc\r\n"),
        (b"a\nb\nc\r\n", "a\nb\n", "x\n", b"x\nc\r\n"),
        (b"a\nb", "b", "x\r\ny", b"a\nx\r\ny"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        ("\ufeffé\r\n".encode("utf-16-le"), "é", "ü\n", "\ufeffü\r\n\r\n".encode("utf-16-le")),
        ("\ufeffé\n".encode("utf-16-be"), "é", "ü", "\ufeffü\n".encode("utf-16-be")),
        ("café\n".encode("latin-1"), "caf", "Caf", "Café\n".encode("latin-1")),
        (b"\xff broken " + "é".encode() * 100_000 + b" utf-8 \xc3\n", "broken", "whole", b""),
    ],
)
async def test_line_ends_encoding_and_mark_stay(
    session: Session, before: bytes, old: str, new: str, after: bytes
) -> None:
    path = session.cwd / "a.txt"
    path.write_bytes(before)
    await session("file_read", path="a.txt")
    result = await session("file_edit", path="a.txt", old=old, new=new)
    assert not result.is_error, result.text
    if after:
        assert path.read_bytes() == after


async def test_stray_bytes_behind_the_sample_are_written_back_as_they_were(session: Session) -> None:
    path = session.cwd / "a.txt"
    path.write_bytes(b"x\n" * 40_000 + b"stray \xff\xfe end\n")
    await session("file_edit", path="a.txt", old="end", new="END")
    assert path.read_bytes() == b"x\n" * 40_000 + b"stray \xff\xfe END\n"


async def test_what_the_encoding_can_not_hold_is_refused(session: Session) -> None:
    path = session.cwd / "a.txt"
    path.write_bytes("café\n".encode("cp1252"))
    text = refusal(await session("file_edit", path="a.txt", old="caf", new="→"))
    assert text == "`new` contains '→', which cp1252, the encoding of a.txt, can't represent."
    (session.cwd / "b.txt").write_text("a")
    assert "contains '\\ud800'" in refusal(await session("file_edit", path="b.txt", old="a", new="x\ud800"))
    (session.cwd / "c.bin").write_bytes(b"a\0b")
    assert refusal(await session("file_edit", path="c.bin", old="a", new="b")) == (
        "c.bin is not text: binary, 3 bytes."
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    before=st.text(alphabet="ab\n\r é", max_size=30),
    old=st.text(alphabet="ab\n é", min_size=1, max_size=3),
    new=st.text(alphabet="ab\nxé", max_size=4),
)
async def test_an_edit_is_a_replacement_or_changes_nothing(
    session: Session, before: str, old: str, new: str
) -> None:
    path = session.cwd / "p.txt"
    path.write_bytes(before.encode())
    session.context.state.clear()
    result = await session("file_edit", path="p.txt", old=old, new=new, replace_all=True)
    after = path.read_bytes().decode()
    if result.is_error:
        assert after == before
    elif "\r\n" not in before:
        assert after == before.replace(old, new)
    else:
        # Line ends may be made those of the file; nothing else.
        assert after.replace("\r\n", "\n") in {
            before.replace("\r\n", "\n").replace(old, new),
            before.replace(old, new).replace("\r\n", "\n"),
        }


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=15),
    st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=15),
)
def test_a_difference_applied_to_the_old_text_gives_the_new(before: list[str], after: list[str]) -> None:
    old, new = "\n".join(before), "\n".join(after)
    diff = unified_diff(old, new, "f").split("\n")
    if old.splitlines() == new.splitlines():
        assert diff == ["Only line endings changed."]
        return
    lines = old.splitlines()
    offset = 0
    at = 0
    for row in diff[2:]:
        if row.startswith("@@"):
            start, _, length = row.split()[1][1:].partition(",")
            at = int(start) - (length != "0") + offset
        elif row.startswith("-"):
            assert lines.pop(at) == row[1:]
            offset -= 1
        elif row.startswith("+"):
            lines.insert(at, row[1:])
            at += 1
            offset += 1
        else:
            assert lines[at] == row[1:]
            at += 1
    assert lines == new.splitlines()


@requirement("tools:file-edit:several")
async def test_several_changes_are_made_at_once_or_none(session: Session) -> None:
    path = session.cwd / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    edits = [{"old": "one", "new": "1"}, {"old": "1\ntwo", "new": "1\n2"}]
    result = await session("file_edit", path="a.txt", edits=edits)
    assert rows(result)[0] == "Replaced 2 times in a.txt."
    assert path.read_text() == "1\n2\nthree\n"
    text = refusal(await session("file_edit", path="a.txt", edits=[{"old": "1", "new": "x"}, edits[0]]))
    assert text.startswith("Nothing was written. Change 2 of 2: `old` is not in a.txt.")
    assert path.read_text() == "1\n2\nthree\n"
    for input in ({}, {"old": "1"}, {"old": "1", "new": "2", "edits": edits}):
        assert refusal(await session("file_edit", path="a.txt", **input)) == (
            "Give `old` and `new`, or `edits`, or `patch`."
        )


@requirement("tools:file-edit:patch")
async def test_a_patch_is_applied_where_its_lines_are_or_not_at_all(session: Session) -> None:
    path = session.cwd / "a.txt"
    path.write_bytes(b"a\r\nb\r\nc\r\nb\r\nlast")
    # A wrong line number, wrong counts, and a blank line without its space.
    patch = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -9,1 +9,7 @@ f\n a\n-b\n+B\n+\n c\n@@\n-last\n+end\n"
    assert rows(await session("file_edit", path="a.txt", patch=patch))[0] == "Replaced 2 times in a.txt."
    assert path.read_bytes() == b"a\r\nB\r\n\r\nc\r\nb\r\nend"
    path.write_bytes(b"a\nb\na\nb")
    session.context.state.clear()
    for patch, why in (
        ("@@\n-b\n+c\n", "Hunk 1 of 1 fits at lines 2, 4: give more"),
        ("@@\n-b \n+c\n", "Hunk 1 of 1 does not fit: its lines, such as 'b '"),
        ("@@\n+c\n", "Hunk 1 of 1 only adds lines"),
        ("nothing", "The patch has no changes"),
        ("@@\n-b\n*c\n", "Line 3 of the patch begins with '*'"),
        (
            "--- a\n+++ a\n@@ -1 +1 @@\n-a\n+x\n--- b\n+++ b\n@@ -1 +1 @@\n-a\n+x\n",
            "The patch changes several files",
        ),
    ):
        assert refusal(await session("file_edit", path="a.txt", patch=patch)).startswith(why)
    assert path.read_bytes() == b"a\nb\na\nb"
    await session("file_edit", path="a.txt", patch="@@ -4 +4 @@\n-b\n\\ No newline at end of file\n+c\n")
    assert path.read_bytes() == b"a\nb\na\nc\n"


@requirement("tools:file-edit:patch")
@given(before=LINES, after=LINES, context=st.integers(0, 3))
def test_a_patch_made_from_two_texts_makes_the_second_of_the_first(
    before: list[str], after: list[str], context: int
) -> None:
    diff = list(difflib.unified_diff(before, after, n=context))
    if diff:
        patch = "".join(
            row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in diff
        )
        assert apply_patch("".join(before), patch)[0] == "".join(after)
