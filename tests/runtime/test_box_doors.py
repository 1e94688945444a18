"""What a box leaves behind decides nothing outside: not what is mounted, not where Satchel writes, not who runs it."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from satchel.config import Mode
from satchel.models.scripted import Call, Reply, ScriptedModel
from satchel.sandbox.landlock import Landlock
from satchel.sandbox.port import WorkspaceBox
from satchel.sandbox.process import run_process
from satchel.sandbox.workspace import private_in
from tests.requirements import requirement
from tests.runtime.test_boxes import PEEK, World, again, world
from tests.runtime.world import opened
from tests.sandbox.ordinary import ROOT, python_of_root
from tests.sandbox.test_warden import exited, warden_of
from tests.tools.mcp.conftest import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap"),
]

SET_ID = {
    "chmod u+s": "cp /bin/true a; chmod u+s a",
    "chmod g+s": "cp /bin/true b; chmod g+s b",
    "a mode of four digits": "cp /bin/true c; chmod 6755 c",
    "install": "install -m 4755 /bin/true d",
    "open with a mode": "python3 -c 'import os; os.umask(0); os.open(\"e\", os.O_CREAT | os.O_WRONLY, 0o4755)'",
    "creat": "python3 -c 'import ctypes; ctypes.CDLL(None).syscall(85, b\"f\", 0o4755)'",
    "a nameless file that gets a name": (
        'python3 -c \'import os; os.umask(0); f = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4755); '
        'os.link(f"/proc/self/fd/{f}", "g", src_dir_fd=f)\''
    ),
    "mknod": "python3 -c 'import os; os.umask(0); os.mknod(\"h\", 0o104755)'",
    "fchmodat2": "cp /bin/true i; python3 -c 'import ctypes; ctypes.CDLL(None).syscall(452, -100, b\"i\", 0o4755, 0)'",
    "openat2": (
        "python3 -c 'import ctypes, os, struct; os.umask(0); "
        'ctypes.CDLL(None).syscall(437, -100, b"j", struct.pack("QQQ", 0o101, 0o4755, 0), 24)\''
    ),
}


def _programs_of_their_owner(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]


@requirement("bash:boxed:hostile")
@pytest.mark.parametrize(("mode", "left"), [("auto", 0), ("bypass", len(SET_ID))])
async def test_no_command_leaves_a_program_that_runs_as_its_owner(
    tmp_path: Path, mode: Mode, left: int
) -> None:
    """In `bypass` each of them does, which shows that they can."""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of the calls are those of x86_64")
    async with world(tmp_path, mode=mode) as one:
        for command in SET_ID.values():
            await one.bash(command)
        assert len(_programs_of_their_owner(one.work)) == left
        ordinary = (
            "touch k && chmod 751 k && chmod +t . && cp -p k l && tar cf t k l && mkdir m && tar xf t -C m"
        )
        assert "exit code: 0" in await one.bash(ordinary)
        assert stat.S_IMODE((one.work / "m/k").stat().st_mode) == 0o751


@requirement("bash:boxed:hostile")
def test_as_an_ordinary_user_the_same_holds_and_what_only_landlock_does() -> None:
    again(
        "program_that_runs_as_its_owner and auto or through_a_link_that_a_box_left or landlock_opens_neither"
        " or landlock_shows",
        4,
        __file__,
    )


# ---- What Satchel itself writes


async def test_satchel_does_not_write_through_a_link_that_a_box_left_in_its_caches(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("Landlock is for ordinary users; see the test of an ordinary user")
    tool = tmp_path / "home/tools/peek"
    tool.parent.mkdir(parents=True)
    tool.write_text(PEEK)
    tool.chmod(0o755)
    async with world(tmp_path, sandbox__backend="landlock") as one:
        await one.call("peek", path="x")
        for boxes in (tmp_path / ".cache/satchel/boxes").iterdir():
            (boxes / "gitconfig").unlink(missing_ok=True)
            (boxes / "gitconfig").symlink_to(tmp_path / "other/new")
        await one.call("peek", path="x")
        assert not (tmp_path / "other/new").exists()


async def test_a_link_in_the_place_of_the_caches_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        await one.bash("true")
        (boxes,) = (tmp_path / ".cache/satchel/boxes").iterdir()
        shutil.rmtree(boxes)
        boxes.symlink_to(tmp_path / "other")
        said = await one.bash("touch $XDG_CACHE_HOME/../won")
        assert "symbolic link" in said
        assert not (tmp_path / "other/won").exists()


# ---- What is shown

PRIVATE = (
    "notes/todo.md", ".cabal/config", ".nvm/versions/node/v1/etc/npmrc", ".npm-global/etc/npmrc", ".pyenv/versions/3/pip.conf",
    "project/.env", ".local/share/keyrings/login", ".cargo/registry.toml", "Documents/letter", ".local/bin/note",
)  # fmt: skip


@requirement("bash:boxed:hostile")
@pytest.mark.parametrize(("mode", "told"), [("auto", 0), ("bypass", len(PRIVATE))])
async def test_the_home_is_closed_to_commands_that_nobody_was_asked_about(
    tmp_path: Path, mode: Mode, told: int
) -> None:
    for name in PRIVATE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("PRIVATE")
    async with world(tmp_path, mode=mode) as one:
        (tmp_path / "notes/todo.md").write_text("PRIVATE")
        said = await one.bash("cd; cat " + " ".join(PRIVATE) + " 2>/dev/null; ls -A | wc -l; pwd")
        assert said.count("PRIVATE") == told
        assert one.asked == []
        if mode == "auto":
            assert "exit code: 0" in await one.bash("cd; touch new && ls -A new ..")
            assert not (tmp_path / "new").exists()


@requirement("bash:boxed:explained")
async def test_a_path_is_read_after_a_question_and_by_a_rule_and_is_not_written(tmp_path: Path) -> None:
    async with world(tmp_path, allow=("bash(head *) read=~/other",)) as one:
        one.answer = "once"
        said = await one.bash(
            "cat ~/notes/todo.md; echo x >> ~/notes/todo.md", read=["~/notes"], reason="the list"
        )
        assert "milk" in said
        assert one.asked == [f"it wants to read {tmp_path}/notes: the list"]
        assert (tmp_path / "notes/todo.md").read_text() == "milk\n"
        assert "milk" not in await one.bash("cat ~/notes/todo.md")
        assert "theirs" in await one.bash("head ~/other/file")
        assert "theirs" not in await one.bash("cat ~/other/file")
        assert "Satchel's own files are there, or below it" in await one.bash("true", read=["~"])
        assert "Satchel's own files" in await one.bash("true", read=["~/home"])
        assert "sockets and devices there" in await one.bash("true", read=["/run/docker.sock"])
        assert len(one.asked) == 1


@requirement("bash:boxed:hostile")
@pytest.mark.parametrize("wish", ["read", "write"])
async def test_a_granted_folder_that_is_another_one_later_is_refused(tmp_path: Path, wish: str) -> None:
    async with world(tmp_path, allow=(f"bash {wish}=~/notes",)) as one:
        assert "milk" in await one.bash("cat ~/notes/todo.md")
        (tmp_path / "notes").rename(tmp_path / "elsewhere")
        (tmp_path / "notes").mkdir()
        assert "is another folder now" in await one.bash("true")
        (tmp_path / "notes").rmdir()
        (tmp_path / "notes").symlink_to(tmp_path / ".ssh")
        said = await one.bash("cat ~/notes/id_ed25519")
        assert "symbolic link on the way" in said
        assert "PRIVATE" not in said


LINKS = {
    "in the workspace": ("bash read=.vscode", "ln -s $HOME/.ssh .vscode", "cat .vscode/id_ed25519 $HOME/.ssh/id_ed25519"),
    "in a folder on the way": ("bash read=a/b", "ln -s $HOME a", "cat a/.ssh/id_ed25519 $HOME/.ssh/id_ed25519"),
    "in a folder that may be written": (
        "bash write=~/notes,~/notes/key", "ln -s $HOME/.ssh $HOME/notes/key", "cat $HOME/.ssh/id_ed25519"
    ),
}  # fmt: skip


@requirement("bash:boxed:hostile")
@pytest.mark.parametrize(("rule", "plant", "read"), LINKS.values(), ids=LINKS)
async def test_no_link_that_a_box_made_is_followed_for_the_next(
    tmp_path: Path, rule: str, plant: str, read: str
) -> None:
    async with world(tmp_path, allow=(rule,)) as one:
        await one.bash(plant)
        assert "PRIVATE" not in await one.bash(read)
    async with world_again(tmp_path, rule) as one:
        assert "PRIVATE" not in await one.bash(read)


@asynccontextmanager
async def world_again(folder: Path, rule: str) -> AsyncIterator[World]:
    """The next session in the same folder: what the box left was there before it."""
    script: list[Any] = []
    async with opened(folder, ScriptedModel(script), agent__mode="auto") as satchel:
        session = await satchel.session(interactive=True, allow=(rule,))
        yield World(satchel=satchel, session=session, script=script, work=folder / "work", home=folder)


@requirement("bash:boxed:hostile")
async def test_no_command_talks_to_a_program_that_came_to_a_folder_that_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('sub/socket')\""
    command = f"cd ~/other; head file; {connect} && echo spoke; [ -p sub/pipe ] && echo a pipe"
    async with world(tmp_path, allow=("bash read=~/other",)) as one:
        (tmp_path / "other/sub").mkdir()
        assert "theirs" in await one.bash(command)
        os.mkfifo(tmp_path / "other/sub/pipe")
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("other/sub/socket")
            server.listen()
            said = await one.bash(command)
        assert "theirs" in said
        assert "spoke" not in said
        assert "a pipe" not in said


@requirement("bash:boxed:hostile")
async def test_no_command_runs_while_it_is_not_known_what_the_users_git_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that is too busy for git to answer."""
    os.mkfifo(tmp_path / "slow")
    async with world(tmp_path) as one:
        settings = tmp_path / ".gitconfig"
        settings.write_text("[core]\n\thooksPath = my\n[include]\n\tpath = slow\n")
        with monkeypatch.context() as busy:
            busy.setattr("satchel.tools.boxed.workspace._GIT_S", 0.5)
            said = await one.bash("mkdir my; echo planted > my/pre-commit")
        assert not (one.work / "my").exists()
        assert "git did not list your settings" in said
        settings.write_text("[core]\n\thooksPath = my\n")
        assert "my/pre-commit.from-sandbox" in await one.bash("mkdir my; echo planted > my/pre-commit")


@requirement("bash:boxed:hostile")
async def test_a_git_that_was_killed_is_asked_again(tmp_path: Path) -> None:
    git = tmp_path / "bin/git"
    git.parent.mkdir()
    git.write_text(
        f'#!/bin/sh\n[ "$1" = config ] && rm {tmp_path}/once && kill -9 $$\nexec /usr/bin/git "$@"\n'
    )
    git.chmod(0o755)
    async with world(tmp_path, environ={"PATH": f"{git.parent}:/usr/bin:/bin"}) as one:
        (tmp_path / ".gitconfig").write_text("[core]\n\thooksPath = my\n")
        one.answer = "once"  # whether the folder of this git may be read
        (tmp_path / "once").touch()
        plant = "mkdir my; echo planted > my/pre-commit"
        assert "git did not list your settings (ended by signal 9)" in await one.bash(plant)
        assert not (tmp_path / "once").exists()
        assert "my/pre-commit.from-sandbox" in await one.bash(plant)


# ---- Programs on PATH


def installed(home: Path) -> str:
    """Programs in a home, as installers and version managers leave them; returns PATH."""
    for name, text in {
        ".local/bin/alone": "echo I am alone",
        "opt/tool/bin/tool": "cat $(dirname $(realpath $0))/../lib/words",
        "opt/tool/lib/words": "I have a library",
        "opt/tool/etc/login": "PRIVATE",
        ".version/shims/python9": "exec $(dirname $0)/../versions/9/run",
        ".version/versions/9/run": "echo I was looked for",
        "Documents/letter": "PRIVATE",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(
            f"#!/bin/sh\n{text}\n" if "bin/" in name or name.endswith(("9", "run")) else text
        )
        (home / name).chmod(0o755)
    (home / ".local/bin/tool").symlink_to(home / "opt/tool/bin/tool")
    (home / ".local/bin/letter").symlink_to(home / "Documents")
    return f"{home}/.local/bin:{home}/.version/shims:{home}:/usr/bin:/bin"


@requirement("bash:boxed:works")
async def test_programs_on_path_are_offered_once_and_work_with_what_they_need(tmp_path: Path) -> None:
    path = installed(tmp_path)
    async with world(tmp_path, environ={"PATH": path}) as one:
        one.answer = "session"
        said = await one.bash("alone; tool; python9; cat ~/Documents/letter ~/opt/tool/etc/login")
        for words in ("I am alone", "I have a library", "I was looked for"):
            assert words in said
        assert "PRIVATE" not in said
        await one.bash("alone")
        assert not one.session.untrusted, "programs on PATH are no more from outside than those of the system"
        shown = (
            f"{tmp_path}/.local/bin, {tmp_path}/.version, {tmp_path}/opt/tool/bin, {tmp_path}/opt/tool/lib"
        )
        assert one.asked == [
            f"sandboxed commands want to read {shown}: programs on your PATH are there. After a no, they run without these"
        ]


@pytest.mark.parametrize("answer", ["no", None])
async def test_without_the_users_yes_commands_run_without_the_programs_of_the_home(
    tmp_path: Path, answer: Any
) -> None:
    path = installed(tmp_path)
    async with world(tmp_path, environ={"PATH": path}) as one:
        one.answer = answer
        if answer is None:
            one.session = await one.satchel.session(interactive=False)
        assert "exit code: 0" in await one.bash("echo works")
        said = await one.bash("alone")
        assert "I am alone" not in said
        assert f"The sandbox hides {tmp_path}/.local/bin" in said
        assert len(one.asked) == (answer is not None)


# ---- As root


@requirement("bash:boxed:hostile")
async def test_what_only_root_may_read_of_the_system_is_not_read_by_roots_commands(tmp_path: Path) -> None:
    python_of_root()
    folder = Path(tempfile.mkdtemp(prefix="satchel-test-", dir="/usr/local/share"))
    try:
        folder.chmod(0o755)
        (folder / "key").write_text("PRIVATE")
        (folder / "key").chmod(0o600)
        (folder / "closed").mkdir(mode=0o700)
        (folder / "closed/key").write_text("PRIVATE")
        (folder / "open").write_text("public")
        private_in.cache_clear()
        async with world(tmp_path) as one:
            said = await one.bash(f"cd {folder}; cat open key closed/key")
            assert "public" in said
            assert "PRIVATE" not in said
    finally:
        shutil.rmtree(folder)
        private_in.cache_clear()


# ---- On Landlock


async def test_landlock_opens_neither_the_home_nor_what_a_link_leads_to(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("Landlock is for ordinary users; see the test of an ordinary user")
    tool = tmp_path / "home/tools/peek"
    tool.parent.mkdir(parents=True)
    tool.write_text(PEEK)
    tool.chmod(0o755)
    rules = ("peek read=~/other", "peek read=link", "peek read=~/notes/later")
    async with world(tmp_path, allow=rules, sandbox__backend="landlock") as one:
        assert "theirs" in await one.call("peek", path=f"{tmp_path}/other/file")
        pipe = tmp_path / "other/pipe"
        os.mkfifo(pipe)
        program = subprocess.Popen(["sh", "-c", 'echo milk >"$0"', pipe])
        for name in ("notes/todo.md", ".ssh/id_ed25519", "other/pipe"):
            assert "Permission denied" in await one.call("peek", path=f"{tmp_path}/{name}")
        program.kill()
        program.wait()
        (one.work / "link").symlink_to(tmp_path / "notes")
        assert "milk" not in await one.call("peek", path=str(tmp_path / "work" / "link" / "todo.md"))


async def test_landlock_shows_all_of_a_folder_but_what_is_hidden_in_it(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("Landlock is for ordinary users; see the test of an ordinary user")
    home, work, shown = (tmp_path / name for name in ("home", "work", "shown"))
    for folder in (home, work, shown / "sub/deep", shown / "own/secret", shown / "own/plain"):
        folder.mkdir(parents=True)
    for number in range(300):
        (shown / f"sub/{number}").touch()
    os.mkfifo(shown / "sub/deep/pipe")
    spec = WorkspaceBox(
        workspace=work, home=home, read_only=(shown / "sub", shown / "own"), hidden=(shown / "own/secret",)
    )
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        async with Landlock().box(spec) as box:
            command = "ls sub | wc -l; cat sub/299 && ls sub/deep own/plain; ls own; ls own/secret"
            ended = await run_process(
                ["sh", "-c", f"cd {shown}; {command}"],
                cwd=work,
                environ={"PATH": "/usr/bin:/bin"},
                box=box,
            )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert ended.stdout.text == "301\nown/plain:\n\nsub/deep:\npipe\n", ended.stderr.text
    assert ended.stderr.text.count("Permission denied") == 2


# ---- Where mounts are put


@requirement("bash:boxed:hostile")
async def test_no_link_in_the_boxs_own_folders_leads_a_mount_of_the_next_command_outside(
    tmp_path: Path,
) -> None:
    """While bwrap builds a box, the whole system is at /oldroot, and it makes the folders that it mounts to."""
    async with world(tmp_path) as one:
        moves = f"mv ~/.cache ~/moved && ln -s /oldroot{tmp_path}/other ~/.cache; "
        top = Path(*tmp_path.parts[:3])
        moves += f"mv {top} /tmp/moved && ln -s /oldroot{tmp_path}/other {top}"
        await one.bash(moves)
        assert "exit code: 0" in await one.bash(
            "touch $XDG_CACHE_HOME/../kept; ls /tmp/moved ~/moved || true"
        )
        assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["file"]


# ---- Commands at the same time, and a Satchel that is killed


@requirement("bash:boxed:hostile")
async def test_what_a_command_leaves_in_a_granted_folder_is_set_aside_beside_an_older_command(
    tmp_path: Path,
) -> None:
    """Which has no grant, so that nobody looked at that folder when it began."""
    async with world(tmp_path, allow=("bash write=~/notes",)) as one:
        older = await one.satchel.session(interactive=True)
        one.script += [
            Reply(calls=[Call(name="bash", input={"command": "touch begun; until [ -e ended ]; do sleep 0.02; done"})]),
        ]  # fmt: skip
        running = await older.start("go")
        await until((one.work / "begun").exists)
        said = await one.bash("echo evil > ~/notes/.envrc; echo eggs > ~/notes/list", write=["~/notes"])
        assert "may start programs outside" in said
        left = {path.name for path in (tmp_path / "notes").iterdir()}
        assert left == {".envrc.from-sandbox", "list", "todo.md"}
        (one.work / "ended").touch()
        one.script += ["done"]
        await running.result()


KILLED = """
import sys
from pathlib import Path
import anyio
from tests.runtime.test_boxes import world

async def main():
    async with world(Path(sys.argv[1])) as one:
        await one.bash("mkdir .vscode && echo evil > .vscode/tasks.json && touch made && sleep 1000")

anyio.run(main)
"""


@requirement("bash:boxed:hostile")
@pytest.mark.parametrize("both", [False, True], ids=["Satchel", "and its warden"])
async def test_what_a_command_left_is_set_aside_if_satchel_is_killed_meanwhile(
    tmp_path: Path, both: bool
) -> None:
    """By the warden; by the next Satchel if the warden was killed, too. What the user makes then stays."""
    work = tmp_path / "work"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT) as program:
        try:
            await until((work / "made").exists)
            warden = warden_of(program.pid)
            ended = os.pidfd_open(warden)
            if both:
                os.kill(warden, signal.SIGKILL)
        finally:
            program.kill()
    await exited(ended)
    assert (work / ".vscode").exists() == both
    if not both:
        assert (work / ".vscode.from-sandbox/tasks.json").exists()
        (work / ".idea").mkdir()
    async with world_again(tmp_path, "bash") as one:
        said = await one.bash("true")
        assert f"{work}/.vscode may start programs outside" in said
        assert sorted(path.name for path in work.glob("*from-sandbox")) == [".vscode.from-sandbox"]
        assert (work / ".idea").exists() != both
        assert ".vscode" not in await one.bash("true")
    assert not list((tmp_path / "home/boxes").glob("*.json"))
