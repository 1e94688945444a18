"""Attempts to read keys by other names, and to get around rules about paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from satchel.config import Mode
from satchel.tools import ModeGate, PlannedCall, parse_rule
from tests.requirements import requirement
from tests.tools.conftest import Session
from tests.tools.test_permissions import tool

pytestmark = pytest.mark.anyio

ROOT = "/proc/self/root"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A project with links, beside a folder with keys and a closed one, all in a home that only its owner may enter."""
    work, out = tmp_path / "mine", tmp_path / "out"
    for folder, mode in (
        (tmp_path, 0o700),
        (work, 0o755),
        (out, 0o755),
        (out / "closed", 0o700),
        (work / "dir", 0o755),
    ):
        folder.mkdir(exist_ok=True)
        folder.chmod(mode)
    for file, mode in (
        ("key", 0o600),
        (".env", 0o644),
        ("open", 0o644),
        ("closed/notes", 0o644),
        ("closed/sub/notes", 0o644),
    ):
        (out / file).parent.mkdir(exist_ok=True)
        (out / file).write_text("Rumpelstiltskin\n")
        (out / file).chmod(mode)
    for name in (".env", "dir/a", "café"):
        (work / name).write_text("mine\n")
    (work / "link").symlink_to(out)
    (work / "keylink").symlink_to(out / "key")
    (work / "self").symlink_to("/proc/self")
    return work


async def is_allowed(work: Path, mode: Mode, name: str, *rules: tuple[Any, str], **input: Any) -> bool:
    spec = (await tool(name)).spec
    gate = ModeGate(mode, [parse_rule(*rule) for rule in rules], cwd=work, environ={"HOME": str(work.parent)})
    [decision] = await gate.decide([PlannedCall(call_id="c1", spec=spec, input=input)])
    return decision.allowed


BROKE = [
    "../out/closed/notes",
    "link/closed/notes",
    "../out/closed/sub/notes",
    "../out/closed/missing/../notes",
]
KEYS = [
    *BROKE,
    "../out/key", "link/key", "keylink", "link/.env", "../out/./.env", "..//out//.env", "link/../out/.env", "~/out/key", "~", "/proc/self/environ",
    "self/environ", "/proc/1/environ", "/proc/thread-self/environ", "/proc/self/task/1/environ", "/proc/kcore", "{root}/proc/1/environ",
    "{root}/{out}/key", "//{out}/key", "/../{out}/.env", "/etc/shadow", "/etc/./shadow", "{out}/closed",
]  # fmt: skip


@requirement("permissions:keys")
@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
@pytest.mark.parametrize("path", KEYS)
async def test_no_mode_reads_keys_by_another_name(work: Path, mode: Mode, path: str) -> None:
    assert not await is_allowed(work, mode, "file_read", path=path.format(out=work.parent / "out", root=ROOT))


async def test_what_everybody_may_read_is_read_in_auto_also_in_a_closed_home(work: Path) -> None:
    assert await is_allowed(work, "auto", "file_read", path="../out/open")
    assert await is_allowed(work, "auto", "file_read", path="link/open")


DENIED = [
    ".env", "./.env", "dir/../.env", "{work}/.env", "{root}{work}/.env", "../mine/.env", "link/../mine/.env", ".//.env", ".env/", ".env/.",
    "dir//a", "dir/./a", "dir/a/.", "dir", "./dir", "café", "{root}{work}/café",
]  # fmt: skip


@requirement("permissions:rule:deny")
@pytest.mark.parametrize("path", DENIED)
async def test_a_rule_that_denies_a_path_holds_for_its_other_names(work: Path, path: str) -> None:
    rules = [("deny", "file_read(.env)"), ("deny", "file_read(dir/*)"), ("deny", "file_read(café)")]
    assert not await is_allowed(work, "bypass", "file_read", *rules, path=path.format(work=work, root=ROOT))


OUTSIDE_OF_DIR = [
    "dir/../x",
    "dir/../../out/key",
    "dir",
    "dir/",
    "link/key",
    "keylink",
    "../dir/a",
    "/dir/a",
    "dir/../.git/config",
    "link/../dir/a",
]


@pytest.mark.parametrize("path", OUTSIDE_OF_DIR)
async def test_a_rule_that_allows_a_folder_covers_nothing_beside_it(work: Path, path: str) -> None:
    assert not await is_allowed(
        work, "ask", "file_write", ("allow", "file_write(dir/*)"), path=path, content="x"
    )


@requirement("mcp:oauth")
@pytest.mark.parametrize(
    "path",
    ["home/token", "home/oauth/a.json", "home/oauth/../oauth/a.json", "homelink/oauth/a.json", "home/oauth"],
)
async def test_satchels_own_keys_are_not_shown_even_where_its_home_is_in_the_project(
    work: Path, path: str, open_session: Callable[..., Session]
) -> None:
    home = work / "home"
    (home / "oauth").mkdir(parents=True)
    (work / "homelink").symlink_to(home)
    for file in ("token", "oauth/a.json"):
        (home / file).write_text("Rumpelstiltskin")
    session = open_session(work, home=home)
    texts = [(await session("file_read", path=path)).text, (await session("grep", pattern="Rumpel")).text]
    assert not [text for text in texts if "Rumpelstiltskin" in text]
