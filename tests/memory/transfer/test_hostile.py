"""Files that are broken, huge or out to do harm: each is told of, and what is good beside them is taken in."""

from __future__ import annotations

import json
import os
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from satchel.memory import Memory, TransferProgress
from satchel.memory.transfer import json_stream
from satchel.memory.transfer.formats import formats
from tests.memory.transfer.test_formats import FILES

pytestmark = pytest.mark.anyio


async def skipped(where: Path, **options: object) -> dict[str, int]:
    async with Memory.open(":memory:", embedder="none") as memory:
        return dict((await memory.import_from(where, **options)).skipped)  # type: ignore[arg-type]


def claude(text: str, number: int) -> str:
    message = {"role": "user", "content": text}
    line = {"type": "user", "sessionId": "s", "uuid": f"u{number}", "timestamp": "2026-03-01T10:00:00Z"}
    return json.dumps({**line, "message": message}) + "\n"


async def test_an_archive_that_unpacks_to_a_thousand_times_its_size_is_left_where_that_shows(
    tmp_path: Path,
) -> None:
    with (
        zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("conversations.json", "w") as member,
    ):
        member.write(b"[")
        for _ in range(200):
            member.write(b" " * (1 << 20))
        member.write(b"]")
    async with Memory.open(":memory:", embedder="none") as memory:
        report = await memory.import_from(tmp_path / "bomb.zip", source="chatgpt")
    assert report.skipped == {"a file that can't be read": 1}
    assert "it unpacks to far more than is plausible" in report.examples[0].where


@pytest.mark.parametrize("packed", [b"", b"no archive", b"PK\x03\x04 and then nothing"])
async def test_an_archive_that_is_none_is_told(packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(packed)
    assert await skipped(tmp_path) == {"an archive that can't be read": 1}


async def test_a_damaged_archive_is_told_and_gives_what_is_whole(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.md", "# A\n\nwhole\n")
        archive.writestr("b.md", os.urandom(20_000).hex())
    raw = bytearray((tmp_path / "x.zip").read_bytes())
    raw[5000:5100] = bytes(100)
    (tmp_path / "x.zip").write_bytes(raw)
    async with Memory.open(":memory:", embedder="none") as memory:
        report = await memory.import_from(tmp_path)
        assert [one.content for one in await memory.list()] == ["A\nwhole"]
        assert sum(report.skipped.values()) == 1


async def test_json_that_is_nested_too_deep_is_left_out_and_the_rest_taken_in(tmp_path: Path) -> None:
    deep = '{"type":"user","sessionId":"s","message":' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}"
    (tmp_path / "s.jsonl").write_text(claude("one", 1) + deep + "\n" + claude("two", 2))
    elements = "[" + '{"mapping":{"a":' + "[" * 50_000 + "]" * 50_000 + '}},{"mapping":{}}]'
    (tmp_path / "conversations.json").write_text(elements)
    async with Memory.open(":memory:", embedder="none") as memory:
        report = await memory.import_from(tmp_path / "s.jsonl")
        assert (report.new, report.skipped) == (2, {"nested too deeply": 1})
        report = await memory.import_from(tmp_path / "conversations.json", source="chatgpt")
        assert report.skipped == {"nested too deeply": 1}


async def test_links_pipes_and_hidden_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "outside.md").write_text("# Not yours\n\nsecret\n")
    (tmp_path / "in" / "link.md").symlink_to(tmp_path / "outside.md")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    os.mkfifo(tmp_path / "in" / "pipe.md")
    (tmp_path / "in" / ".git").mkdir()
    (tmp_path / "in" / ".git" / "x.md").write_text("no\n")
    (tmp_path / "in" / "good.md").write_text("yes\n")
    async with Memory.open(":memory:", embedder="none") as memory:
        report = await memory.import_from(tmp_path / "in")
        assert [one.content for one in await memory.list()] == ["yes"]
        assert report.ignored == {"a link, which is not followed": 1}


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
async def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("no\n")
    (tmp_path / "a.md").chmod(0)
    (tmp_path / "b.md").write_text("yes\n")
    assert await skipped(tmp_path) == {"a file that can't be read": 1}


async def test_a_long_file_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    line = json.dumps({"type": "user", "sessionId": "s", "toolUseResult": "x" * 20_000, "message": {}}) + "\n"
    with (tmp_path / "s.jsonl").open("w") as file:
        for number in range(3000):
            file.write(line if number % 3 else claude(f"turn {number}", number))
    size = (tmp_path / "s.jsonl").stat().st_size
    assert size > 40_000_000
    async with Memory.open(tmp_path / "m.db", embedder="none") as memory:
        tracemalloc.start()
        report = await memory.import_from(tmp_path / "s.jsonl")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert report.new == 1000
    assert peak < size / 3


async def test_progress_ends_with_all_bytes_done_and_never_goes_back(tmp_path: Path) -> None:
    with (tmp_path / "s.jsonl").open("w") as file:
        for number in range(2500):
            file.write(claude(f"turn {number} of many words that fill a line", number))
    told: list[TransferProgress] = []
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.import_from(tmp_path, progress=told.append)
    assert len(told) == 6
    done = [at.done_bytes for at in told]
    assert done == sorted(done)
    assert done[-1] == told[-1].total_bytes == (tmp_path / "s.jsonl").stat().st_size
    assert told[-1].new == 2500


broken = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(sorted(path for path in FILES.rglob("*") if path.is_file())).flatmap(
        lambda path: st.builds(
            lambda raw, at, junk: raw[: at % (len(raw) + 1)] + junk + raw[at % (len(raw) + 1) :],
            st.just(path.read_bytes()),
            st.integers(0, 100_000),
            st.one_of(
                st.binary(max_size=20),
                st.sampled_from([b"\xff\xfe", b"null", b"[]", b"{", b'"', b"\\", b"\x00"]),
            ),
        )
    ),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    raw=broken,
    source=st.sampled_from(["auto", *formats()]),
    suffix=st.sampled_from([".jsonl", ".json", ".md", ".zip"]),
)
async def test_no_bytes_end_an_import_with_anything_but_a_report_or_a_plain_error(
    raw: bytes, source: str, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    (folder / f"rollout-conversations{suffix}").write_bytes(raw)
    async with Memory.open(":memory:", embedder="none") as memory:
        report = await memory.import_from(folder, source=source)
        assert (await memory.stats()).memories == report.new


objects = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    found=st.lists(st.dictionaries(st.text(max_size=5), objects, max_size=4), max_size=6),
    chunk=st.integers(1, 40),
    key=st.sampled_from(["", "results"]),
    indent=st.sampled_from([None, 1]),
)
def test_the_elements_of_an_array_are_found_wherever_the_stream_is_cut(
    found: list[dict[str, object]], chunk: int, key: str, indent: int | None
) -> None:
    raw = json.dumps({key: found} if key else found, indent=indent).encode()

    class Slow:
        at = 0

        def read(self, size: int) -> bytes:
            size = min(size, chunk)
            part = raw[self.at : self.at + size]
            self.at += size
            return part

    assert [element for _, element in json_stream.elements(Slow(), "x")] == found  # type: ignore[arg-type]
