"""What file_read does not read unasked, no search shows either."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from satchel.config import Mode
from satchel.models import ScriptedModel
from satchel.models.scripted import Call, Reply
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio

SECRET = "hunter2"


def fill(folder: Path) -> None:
    """Files that all hold the secret, in a project beside the session's and in the home."""
    for name in (
        "elsewhere/.env",
        "elsewhere/.ssh/id_rsa",
        "elsewhere/deep/.config/hosts.yml",
        "elsewhere/key.pem",
        "elsewhere/open.txt",
        "elsewhere/denied/notes.txt",
        "work/.env",
        "work/denied.txt",
        "work/open.txt",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"password={SECRET} in {name}\n")
        path.chmod(0o644)
    (folder / "elsewhere/key.pem").chmod(0o600)
    (folder / "elsewhere/alias.txt").symlink_to(folder / "elsewhere/key.pem")
    os.link(folder / "elsewhere/key.pem", folder / "elsewhere/hard.txt")


async def searched(folder: Path, *calls: Call, mode: Mode = "auto", rules: str = "") -> list[str]:
    """What each call gives, in one session with a turn for each."""
    (folder / "home").mkdir(exist_ok=True)
    (folder / "home" / "config.toml").write_text(rules)
    model = ScriptedModel([reply for call in calls for reply in (Reply(calls=[call]), "Done.")])
    async with opened(folder, model, agent__mode=mode) as satchel:
        session = await satchel.session()
        return [(await session.run_turn("Look.")).steps[0].result for _ in calls]


@requirement("tools:search:fence")
@pytest.mark.parametrize("mode", ["auto", "plan"])
async def test_a_search_elsewhere_leaves_out_what_may_hold_keys(mode: Mode, tmp_path: Path) -> None:
    fill(tmp_path)
    place = {"pattern": SECRET, "path": "../elsewhere"}
    inputs = [
        *({**place, "output": output} for output in ("content", "files", "count")),
        # Look-around is beyond ripgrep: Python searches then.
        {**place, "pattern": f"(?<==){SECRET}"},
    ]
    calls = [Call(name="grep", input=input) for input in inputs]
    for input, found in zip(inputs, await searched(tmp_path, *calls, mode=mode), strict=True):
        assert "elsewhere/open.txt" in found, input
        for name in (".env", "id_rsa", "hosts.yml", "key.pem", "alias", "hard.txt"):
            assert name not in found, input


@requirement("tools:search:fence")
@pytest.mark.parametrize("tool", ["grep", "glob", "file_read"])
async def test_a_search_that_names_such_a_place_is_asked_for(tool: str, tmp_path: Path) -> None:
    fill(tmp_path)
    more = {"file_read": {}, "glob": {"pattern": "*"}, "grep": {"pattern": SECRET}}[tool]
    elsewhere = ("../elsewhere/.env", "../elsewhere/.ssh", "../elsewhere/key.pem", "../elsewhere/alias.txt")
    calls = [Call(name=tool, input={"path": path, **more}) for path in (*elsewhere, "..", "~")]
    for call, found in zip(calls, await searched(tmp_path, *calls), strict=True):
        assert SECRET not in found, call
        assert "has to be allowed by the user" in found or "needs" in found, call


@requirement("tools:search:fence")
async def test_no_pattern_lists_what_may_hold_keys(tmp_path: Path) -> None:
    fill(tmp_path)
    patterns = ("**/*", ".*", ".ssh/*", "deep/.config/*", "*.pem", "**/.*", "{.env,.ssh/id_rsa}", ".[e]nv")
    calls = [Call(name="glob", input={"pattern": each, "path": "../elsewhere"}) for each in patterns]
    for call, found in zip(calls, await searched(tmp_path, *calls), strict=True):
        listed = found.split("matches")[0]
        assert not any(name in listed for name in ("/.env", "id_rsa", "hosts.yml", "key.pem")), call


@requirement("tools:search:fence")
async def test_in_the_sessions_own_folder_everything_is_searched(tmp_path: Path) -> None:
    fill(tmp_path)
    [found] = await searched(tmp_path, Call(name="grep", input={"pattern": SECRET}))
    assert [line.split(":")[0] for line in found.splitlines()] == [".env", "denied.txt", "open.txt"]


@requirement("tools:search:fence")
@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("file_read(.env)", ["denied.txt", "open.txt"]),
        ("file_*(*denied*)", [".env", "open.txt"]),
        ("file_read({cwd}/open.txt)", [".env", "denied.txt"]),
        ("file_read(~/{cwd.name}/.env)", ["denied.txt", "open.txt"]),
        ("file_write(.env)", [".env", "denied.txt", "open.txt"]),
    ],
)
async def test_what_a_rule_keeps_from_being_read_no_search_shows(
    action: str, rule: str, left: list[str], tmp_path: Path
) -> None:
    fill(tmp_path)
    rules = f'[[permissions]]\naction = "{action}"\ntool = "{rule.format(cwd=tmp_path / "work")}"\n'
    [found] = await searched(tmp_path, Call(name="grep", input={"pattern": SECRET}), rules=rules)
    assert [line.split(":")[0] for line in found.splitlines()] == left


WAYS = (
    "../elsewhere/./.env",
    "../elsewhere/deep/../.env",
    "../elsewhere//.env",
    "../elsewhere/.env/",
    "link/.env",
    "link/../elsewhere/.env",
    "hidden.txt",
    "~/elsewhere/.env",
    "/proc/self/environ",
    "/proc/1/environ",
    "/etc/shadow",
    "/dev/../etc/shadow",
    "../elsewhere/.env\0.txt",
    "../home/token",
    "../elsewhere/key.pem",
    "../elsewhere/hard.txt",
)


@requirement("tools:search:fence")
@pytest.mark.parametrize("mode", ["auto", "plan"])
async def test_no_way_to_write_a_path_reads_unasked_what_may_hold_keys(mode: Mode, tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "work" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "work" / "hidden.txt").symlink_to(tmp_path / "elsewhere" / ".env")
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "token").write_text(SECRET)
    (tmp_path / "home" / "token").chmod(0o600)
    calls = [Call(name="grep", input={"path": path, "pattern": "."}) for path in WAYS]
    calls += [Call(name="file_read", input={"path": path}) for path in WAYS]
    model = ScriptedModel([reply for call in calls for reply in (Reply(calls=[call]), "Done.")])
    async with opened(tmp_path, model, agent__mode=mode) as satchel:
        session = await satchel.session()
        for call in calls:
            [step] = (await session.run_turn("Look.")).steps
            assert step.is_error, call
            assert SECRET not in step.result, call
