"""Which executables become tools, who is asked again, and what has to be approved."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from satchel.errors import NotFound, SandboxError, StorageUnwritable, UsageError
from satchel.sandbox.process import run_process
from satchel.tools.external import ToolFolder
from tests.requirements import requirement
from tests.tools.external.executables import Bench, put, script

pytestmark = pytest.mark.anyio


def counting(bench: Bench, name: str, note: str = "") -> str:
    """A script that writes a line each time that it is asked for its schema."""
    body = script(name)
    return body.replace(
        "= --schema ]; then\n", f"= --schema ]; then\necho {note or name} >> {bench.work}/asked\n"
    )


def asked(bench: Bench) -> list[str]:
    log = bench.work / "asked"
    return log.read_text().split() if log.exists() else []


@requirement("external:discovery:folders")
async def test_tools_of_all_folders_are_offered_in_their_order_and_by_name(
    bench: Bench, tmp_path: Path
) -> None:
    bench.put("zeta", script("zeta"))
    bench.put("alpha", script("alpha", parameters={"x": {"type": "string", "required": True}}))
    put(tmp_path / "more", "m", script("more"))
    put(tmp_path / "project", "p", script("ours"))
    external = await bench.found(
        [
            ToolFolder(path=bench.tools, kind="user"),
            ToolFolder(path=tmp_path / "more", kind="dirs"),
            ToolFolder(path=tmp_path / "nowhere", kind="dirs"),
            ToolFolder(path=tmp_path / "project", kind="project"),
        ]
    )
    tools = await external.tools()
    assert [tool.spec.name for tool in tools] == ["alpha", "zeta", "more", "ours"]
    assert tools[0].spec.source == "external"
    assert tools[0].spec.origin == str(bench.tools / "alpha")
    assert tools[0].spec.input_schema["required"] == ["x"]


@requirement("external:discovery:parallel")
async def test_all_are_asked_at_the_same_time(bench: Bench) -> None:
    """Each answers only while eight are running, and whoever is stopped is not running any more: asked one after the
    other, or four at a time, none would answer.
    """
    here = bench.work / "here"
    here.mkdir()
    wait = (
        f"touch {here}/$$; trap 'rm -f {here}/$$; exit 1' TERM\n"
        f"until [ -e {here}/all ]; do set -- {here}/*; [ $# -lt 8 ] || touch {here}/all; sleep 0.02; done\n"
    )
    names = [f"t{number}" for number in range(8)]
    for name in names:
        bench.put(name, script(name).replace("then\n", f"then\n{wait}", 1))
    external = await bench.found()
    assert [tool.spec.name for tool in await external.tools()] == names


@requirement("external:discovery:parallel")
async def test_who_was_too_slow_is_asked_once_more(bench: Bench) -> None:
    """As on a busy machine: the first start takes too long, the second doesn't."""
    again = bench.work / "again"
    bench.put(
        "one",
        script("one").replace("then\n", f"then\n[ -e {again} ] || {{ touch {again}; exec sleep 100; }}\n", 1),
    )
    external = await bench.found(schema_timeout_s=5.0)
    assert [tool.spec.name for tool in await external.tools()] == ["one"]


@requirement("external:discovery:states")
async def test_a_scan_is_not_started_then_in_progress_then_complete(bench: Bench) -> None:
    go = bench.work / "go"
    bench.put("one", script("one").replace("then\n", f"then\nuntil [ -e {go} ]; do sleep 0.02; done\n", 1))
    external = bench.toolset(schema_timeout_s=30)
    assert (external.state, external.is_complete) == ("not_started", False)
    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(external.discover)
            while external.state == "not_started":
                await anyio.lowlevel.checkpoint()
            assert (external.state, external.is_complete) == ("in_progress", False)
            go.touch()
    assert (external.state, external.is_complete) == ("complete", True)


@requirement("external:discovery:cached")
async def test_an_unchanged_file_is_not_asked_again(bench: Bench) -> None:
    path = bench.put("one", counting(bench, "one"))
    await bench.found()
    again = await bench.found()
    assert asked(bench) == ["one"]
    assert [tool.spec.name for tool in await again.tools()] == ["one"]
    # Its mode and its links are no part of its content.
    path.chmod(0o700)
    os.link(path, bench.work / "link")
    await bench.found()
    assert asked(bench) == ["one"]


async def test_a_failed_executable_is_queried_again_by_a_refresh_or_after_an_hour(bench: Bench) -> None:
    bench.put("bad", f"#!/bin/sh\necho bad >> {bench.work}/asked\nexit 3\n")
    external = await bench.found()
    await bench.found()
    assert asked(bench) == ["bad"]
    await external.refresh()
    assert asked(bench) == ["bad", "bad"]
    bench.clock.advance(3601)
    await bench.found()
    assert asked(bench) == ["bad", "bad", "bad"]
    (bench.home / "tool-schemas.json").write_text('{"failed": {"x": 7}}')
    (entry,) = (await bench.found()).entries
    assert entry.status == "skipped"
    assert asked(bench) == ["bad"] * 4


@requirement("external:pinned")
async def test_a_changed_executable_is_neither_offered_nor_run_until_it_is_approved(bench: Bench) -> None:
    path = bench.put("one", counting(bench, "one", "first"))
    tool = await bench.tool("one")
    path.write_text(counting(bench, "one", "second").replace("Does one.", "Does another thing."))
    # The session that knows it already does not run it either.
    envelope = await tool.run({}, bench.context())
    assert (envelope["tool_success"], envelope["error_code"]) == (False, "NOT_APPROVED")

    external = await bench.found()
    (entry,) = external.entries
    assert (entry.name, entry.status) == ("one", "changed")
    assert "satchel tool approve one" in entry.reason
    assert external.notices == (f"The tool one is not offered: {entry.reason}",)
    assert await external.tools() == ()
    # Not even its schema was asked for: that is its code already.
    assert asked(bench) == ["first"]

    record = await external.approve("one")
    assert record.before is not None
    assert (record.before.description, record.after.description) == ("Does one.", "Does another thing.")
    assert asked(bench) == ["first", "second"]
    assert [tool.spec.name for tool in await external.tools()] == ["one"]
    assert [tool.spec.name for tool in await (await bench.found()).tools()] == ["one"]
    assert (await external.approve("one")).was_same


async def test_a_file_that_became_what_it_was_before_needs_no_approval(bench: Bench) -> None:
    text = counting(bench, "one")
    path = bench.put("one", text)
    await bench.found()
    path.write_text("#!/bin/sh\n")
    assert (await bench.entries())["one"].status == "changed"
    path.write_text(text)
    assert (await bench.entries())["one"].status == "available"


async def test_approving_what_gives_no_schema_fails_with_the_reason(bench: Bench) -> None:
    path = bench.put("one", script("one"))
    external = await bench.found()
    path.write_text("#!/bin/sh\necho no\n")
    with pytest.raises(UsageError, match="JSON"):
        await external.approve("one")
    with pytest.raises(NotFound, match="'two'"):
        await external.approve("two")
    assert (await bench.entries())["one"].status == "changed"


async def test_damaged_approvals_offer_nothing_and_are_not_written_over(bench: Bench) -> None:
    bench.put("one", script("one"))
    await bench.found()
    pins = bench.home / "pins" / "external.json"
    pins.write_text("{")
    external = await bench.found()
    assert await external.tools() == ()
    assert "external.json is damaged" in external.notices[0]
    assert pins.read_text() == "{"


async def test_what_is_kept_is_readable_by_its_owner_alone(bench: Bench) -> None:
    bench.put("one", script("one"))
    bench.put("bad", "#!/bin/sh\nexit 3\n")
    await bench.found()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in bench.home.rglob("*.json")}
    assert modes == {"tool-schemas.json": 0o600, "external.json": 0o600}
    assert stat.S_IMODE((bench.home / "pins").stat().st_mode) == 0o700


@requirement("external:ownership")
@pytest.mark.parametrize(("mode", "who"), [(0o775, "its group"), (0o757, "everyone"), (0o777, "everyone")])
async def test_files_and_folders_that_others_can_write_to_are_refused(
    bench: Bench, mode: int, who: str
) -> None:
    bench.put("open", counting(bench, "open"), mode=mode)
    bench.put("good", counting(bench, "good"))
    entries = await bench.entries()
    assert entries["open"].status == "skipped"
    assert who in entries["open"].reason
    assert entries["good"].status == "available"
    bench.tools.chmod(mode)
    (entry,) = (await bench.found()).entries
    assert entry.path == bench.tools
    assert who in entry.reason
    assert asked(bench) == ["good"]


@requirement("external:ownership")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_files_and_folders_of_others_are_refused(bench: Bench) -> None:
    path = bench.put("theirs", script("theirs"))
    os.chown(path, 12345, 12345)
    assert "another user (uid 12345)" in (await bench.entries())["theirs"].reason
    os.chown(bench.tools, 12345, 12345)
    (entry,) = (await bench.found()).entries
    assert "another user (uid 12345)" in entry.reason


async def test_a_link_counts_as_what_it_leads_to(bench: Bench, tmp_path: Path) -> None:
    real = put(tmp_path / "elsewhere", "real", script("linked", "pwd; echo '{}'"))
    (bench.tools / "link").symlink_to(real)
    assert (await bench.entries())["linked"].status == "available"
    real.parent.chmod(0o777)
    assert "not safe" in (await bench.entries())["link"].reason


@requirement("external:discovery:override")
async def test_a_tool_of_ones_own_takes_the_place_of_a_shipped_one_with_a_notice(
    bench: Bench, tmp_path: Path
) -> None:
    mine = bench.put("bash", script("bash"))
    put(tmp_path / "project", "grep", script("grep"))
    put(tmp_path / "project", "think", script("think"))
    external = await bench.found(
        [ToolFolder(path=bench.tools, kind="user"), ToolFolder(path=tmp_path / "project", kind="project")],
        builtin=["bash", "grep", "think"],
        replaceable=["bash", "grep"],
    )
    assert [tool.spec.name for tool in await external.tools()] == ["bash"]
    assert external.replaced == {"bash"}
    assert external.notices == (f"{mine} replaces the built-in tool bash.",)
    reasons = {entry.name: entry.reason for entry in external.entries}
    assert "only tools in your own folder" in reasons["grep"]
    assert "a built-in tool is called think" in reasons["think"]


async def test_of_two_with_one_name_the_first_is_offered(bench: Bench) -> None:
    first, second = bench.put("a", script("same")), bench.put("b", script("same"))
    external = await bench.found()
    assert [(entry.path, entry.status) for entry in external.entries] == [
        (first, "available"),
        (second, "overridden"),
    ]
    assert str(first) in external.entries[1].reason


async def test_a_disabled_tool_is_listed_and_not_offered(bench: Bench) -> None:
    bench.put("one", script("one"))
    external = await bench.found(disabled=["one"])
    assert [entry.status for entry in external.entries] == ["disabled"]
    assert await external.tools() == ()


async def test_tests_beside_tools_and_hidden_files_are_passed_over(bench: Bench) -> None:
    bench.put("one", script("one"))
    put(bench.tools / "tests", "test_one", script("test"))
    bench.put(".hidden", script("hidden"))
    bench.put("one~", script("backup"))
    assert list(await bench.entries()) == ["one"]


async def test_what_other_projects_learnt_stays_known(bench: Bench, tmp_path: Path) -> None:
    put(tmp_path / "project", "p", counting(bench, "p"))
    project = [ToolFolder(path=tmp_path / "project", kind="project")]
    await bench.found(project)
    bench.put("one", script("one"))
    await bench.found()
    await bench.found(project)
    assert asked(bench) == ["p"]


async def test_a_file_that_changes_while_it_is_asked_is_not_believed(bench: Bench) -> None:
    path = bench.put("one", "")
    path.write_text(script("one").replace("then\n", f"then\necho '# more' >> {path}\n", 1))
    entries = await bench.entries()
    assert entries["one"].status == "skipped"
    assert "changed while it was being read" in entries["one"].reason


async def test_two_that_discover_at_the_same_time_agree(bench: Bench) -> None:
    for number in range(8):
        bench.put(f"t{number}", script(f"t{number}"))
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(bench.found)
    kept = json.loads((bench.home / "pins" / "external.json").read_text())
    assert sorted(Path(path).name for path in kept["approved"]) == [f"t{number}" for number in range(8)]


async def test_if_nothing_can_be_saved_the_tools_work_and_the_user_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise StorageUnwritable(f"{path} could not be written: No space left on device.")

    monkeypatch.setattr("satchel.tools.pins.replace_file", full)
    bench.put("one", script("one"))
    external = await bench.found()
    assert [tool.spec.name for tool in await external.tools()] == ["one"]
    assert "could not be saved" in external.notices[0]
    assert "No space left on device" in external.notices[0]


async def test_a_file_that_is_held_for_an_instant_is_asked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = bench.put("one", script("one")).open("ab")
    failures = []

    async def let_go_after_the_first(*arguments: Any, **options: Any) -> Any:
        try:
            return await run_process(*arguments, **options)
        except SandboxError as error:
            failures.append(str(error))
            held.close()
            raise

    monkeypatch.setattr("satchel.tools.external.discovery.run_process", let_go_after_the_first)
    external = await bench.found()
    assert [tool.spec.name for tool in await external.tools()] == ["one"]
    assert len(failures) == 1
    assert "Text file busy" in failures[0]
