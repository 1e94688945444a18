"""Looks for doors out of the workspace box: draws trees, has a real box write each, and a second one write through it.

Each seed is a tree: files, links, git structures, settings, moves; with some seeds folders are moved and replaced by
links while the second box starts. Afterwards everything outside of the workspace is compared with before (contents,
modes, inodes), no file that an editor, a shell or an agent acts upon may hold what a box wrote, and git, started
outside in every folder, may not run a program of the box.

    python -m tests.sandbox.doors 0:20000 [bubblewrap|landlock]
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from satchel.config import Settings
from satchel.errors import SandboxError
from satchel.sandbox.bubblewrap import Bubblewrap
from satchel.sandbox.landlock import Landlock
from satchel.sandbox.local import LocalSandbox
from satchel.sandbox.selfrun import ASIDE
from satchel.sandbox.workspace import SYSTEM_TOPS, private_in
from satchel.tools.box import Box, granted_paths
from satchel.tools.boxed import Workspace, Workspaces

__all__ = ["BACKENDS", "Attempt", "Scene", "find_doors", "repository", "user"]

BACKENDS: dict[str, type[LocalSandbox]] = {"bubblewrap": Bubblewrap, "landlock": Landlock}
EVERY = 100
"""Trees between two lines of progress."""
PATH = "/usr/local/bin:/usr/bin:/bin"
MARK = "planted"
"""In everything that a box writes and that something outside might act upon."""
PLACES = (
    ".", "a", "a/b", "a/b/c", "sub", "sub/x", ".hidden", "gd", "bare", "bare/.store", "node_modules/x", "build/y",
    ".git", ".git/modules/m", ".git/worktrees/t", "sub/.git", "a/b/.git", ".vscode", "a/.claude", "work tree",
)  # fmt: skip
OUTSIDE = (
    "$H",
    "$H/.ssh",
    "$H/notes",
    "$O",
    "$O/repo/.git",
    "..",
    "../..",
    "../../other",
    "/",
    "/nowhere",
    "/oldroot$H",
    "/oldroot$O",
    "~",
)
ACTED_UPON = (
    ".vscode/tasks.json", ".idea/workspace.xml", ".zed/tasks.json", ".devcontainer/devcontainer.json", ".exrc", ".nvim.lua",
    ".dir-locals.el", ".envrc", ".bashrc", ".zshrc", "mise.toml", "mise.local.toml", ".mise.toml", ".claude/settings.json",
    ".mcp.json", ".cursor/mcp.json", ".codex/config.toml", ".gemini/settings.json", ".satchel/config.toml", "CLAUDE.md",
    "AGENTS.md", "agents.md", "lefthook.yml", "lefthook-local.yml", ".lefthook.yml", ".husky/pre-commit", ".pre-commit-config.yaml",
    ".npmrc", ".yarnrc.yml", ".pnpmfile.cjs", ".cargo/config.toml", ".config/mise/config.toml", ".new-tool.json",
)  # fmt: skip
"""As the tools look for them; a list of its own, since the rule under test is none."""
GRANTS = (
    (),
    (),
    (".vscode",),
    ("sub",),
    ("a/b",),
    ("~/notes",),
    ("~/notes/sub",),
    (".vscode", "~/notes"),
    ("gd", "a"),
)
CLOSED = ("000", "111", "200", "444", "500", "600")
WRITTEN = ("COMMIT_EDITMSG", "FETCH_HEAD", "index", "logs", "refs/heads", "objects", "packed-refs", "info")
"""What git writes to in its folder."""
HOOKS = (
    "pre-commit",
    "post-commit",
    "commit-msg",
    "post-index-change",
    "reference-transaction",
    "prepare-commit-msg",
)


@dataclass
class Scene:
    """A user's folders, which many trees share: what is outside of the workspace must never change."""

    top: Path
    workspaces: Workspaces
    before: dict[str, object] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def ran(self) -> Path:
        """Exists if git ran a program of a box."""
        return self.top / "ran"

    def build(self) -> None:
        """Make everything that is outside."""
        for name in ("home", "other"):
            shutil.rmtree(self.top / name, ignore_errors=True)
        self.ran.unlink(missing_ok=True)
        for name, text in {
            "home/.bashrc": "# mine\n", "home/.ssh/id": "PRIVATE", "home/notes/todo": "milk\n", "home/notes/sub/x": "x\n",
            "home/.vscode/tasks.json": "{}", "home/config": "[core]\n", "other/file": "theirs\n", "other/.envrc": "mine\n",
        }.items():  # fmt: skip
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        repository(self.top / "other/repo/.git")
        repository(self.home / "notes/.git")
        (self.home / ".ssh").chmod(0o700)
        (self.home / ".gitconfig").write_text(
            "[safe]\n\tdirectory = *\n[user]\n\tname = Ann\n\temail = a@example.org\n"
        )
        self.before = self.now()

    def now(self, but: tuple[str, ...] = ()) -> dict[str, object]:
        """Everything outside, apart from these paths."""
        found: dict[str, object] = {}
        waiting = [self.top]
        while waiting:
            folder = waiting.pop()
            for entry in os.scandir(folder):
                name = os.path.relpath(entry.path, self.top)
                if name in ("work", "satchel", "caches") or name.startswith("trees") or name in but:
                    continue
                state = entry.stat(follow_symlinks=False)
                text: object = None
                if entry.is_symlink():
                    text = str(Path(entry.path).readlink())
                elif entry.is_file():
                    text = Path(entry.path).read_bytes()
                else:
                    waiting.append(Path(entry.path))
                found[name] = (state.st_mode, state.st_ino, state.st_uid, text)
        return found

    def work(self, name: str) -> Path:
        """A new empty workspace."""
        work = self.top / f"trees{name}" / "work"
        work.mkdir(parents=True)
        return work

    def begin(self, work: Path, granted: tuple[str, ...] = ()) -> Attempt:
        """Begin with what is in the workspace now."""
        mine = {str(path) for path in work.rglob("*")}
        return Attempt(self, self.workspaces.workspace(work), granted, mine)

    def expanded(self, text: str) -> str:
        """A path of `OUTSIDE`."""
        return text.replace("$H", str(self.home)).replace("$O", str(self.top / "other"))

    def differences(self, but: tuple[str, ...]) -> list[str]:
        """What is outside and not as it was, apart from these paths."""
        below = tuple(f"{each}/" for each in but)
        now = self.now(but)
        before = {
            name: state
            for name, state in self.before.items()
            if name not in but and not name.startswith(below)
        }
        return [f"outside: {name}" for name in sorted({*now, *before}) if now.get(name) != before.get(name)]

    def started(self, work: Path) -> list[str]:
        """The folders in which git, started by the user, runs a program of a box."""
        found = []
        environ = {"PATH": PATH, "HOME": str(self.home), "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}
        for folder, folders, files in os.walk(work):
            here = {*folders, *files}
            if ASIDE in folder or not (".git" in here or {"objects", "refs"} <= here):
                continue
            for command in (["status"], ["commit", "-q", "--allow-empty", "-m", "x"]):
                subprocess.run(["git", *command], cwd=folder, env=environ, capture_output=True, timeout=60)
                if self.ran.exists():
                    found.append(f"git {command[0]} in {os.path.relpath(folder, work)}")
                    self.ran.unlink()
        return found


def repository(git: Path) -> None:
    """A git folder, as `git init` makes it."""
    for name in ("objects/info", "refs/heads", "hooks"):
        (git / name).mkdir(parents=True, exist_ok=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n")


def steps(draw: random.Random, ran: Path, *, count: int) -> Iterator[str]:
    """Commands that make a tree. A step that fails is one that was refused, or has nothing to work on."""
    evil = f"[core]\\n\\tfsmonitor = touch {ran}; echo {MARK}\\n\\thooksPath = sub\\n[include]\\n\\tpath = ../cfg\\n"
    more = f"[core]\\n\\tsshCommand = touch {ran} # {MARK}\\n\\tfsmonitor = touch {ran}\\n"
    odd = f"[core] fsmonitor = touch {ran}\\n[Core]\\n\\tbare = false\\n\\tfsmonitor = \\\\\\ntouch {ran}\\n"
    program = f"#!/bin/sh\\n# {MARK}\\ntouch {ran}\\n"
    for _ in range(count):
        place, other = draw.choice(PLACES), draw.choice(PLACES)
        target = draw.choice(OUTSIDE)
        hook = draw.choice(HOOKS)
        where = draw.choice((place, f"{place}/.git"))
        acted = draw.choice(ACTED_UPON)
        around, name = str(Path(acted).parent), Path(acted).name
        yield draw.choice((
            f"mkdir -p '{place}'",
            f"mkdir -p '{place}'; echo {MARK} > '{place}/file'",
            f"ln -sfn {target} '{place}'",
            f"rm -rf '{place}'; mkdir -p \"$(dirname '{place}')\"; ln -s {target} '{place}'",
            f"ln -sfn '{other}' '{place}'",
            f"mkdir -p '{place}/{around}'; echo {MARK} > '{place}/{acted}'",
            f"mkdir -p '{place}/{around}'; echo {MARK} > '{place}/{acted}'; chmod {draw.choice(CLOSED)} '{place}/{around}' '{place}'",
            f"git init -q '{place}'; printf '{evil}' >> '{place}/.git/config'; chmod {draw.choice(CLOSED)} '{where}'",
            f"for f in one cf/two; do printf '{more}' >> $f; done; echo {MARK} > conf/x; echo {MARK} > env.sh; printf '{program}' > run.sh",
            f"mv cf c2; mkdir -p cf hk; printf '{more}' > cf/two; printf '{program}' > hk/{hook}; chmod +x hk/{hook} run.sh",
            f"ln -sfn '{target}' '{place}/.git/{draw.choice(WRITTEN)}'",
            f"mkdir -p ~/notes/{around}; echo {MARK} > ~/notes/{acted}; printf '{evil}' >> ~/notes/.git/config",
            f"printf '{program}' > ~/notes/.git/hooks/{hook}; chmod +x ~/notes/.git/hooks/{hook}; ln -sfn {target} ~/notes/.git/{draw.choice(WRITTEN)}",
            f"mkdir -p ~/notes/sub/.vscode; echo {MARK} > ~/notes/sub/.vscode/tasks.json; git init -q ~/notes/sub/r; printf '{evil}' >> ~/notes/sub/r/.git/config",
            f"mkdir -p x/{around}; echo {MARK} > x/{acted}; mkdir -p '{place}'; mv x '{place}/moved'",
            f"mkdir -p '{place}'; echo {MARK} > y; mv y '{place}/{name}'",
            f"mkdir -p '{place}'; ln -s {target} '{place}/{acted.split('/')[0]}'",
            f"git init -q '{place}'",
            f"git init -q --bare '{place}'",
            f"mkdir -p '{place}'; echo 'gitdir: {other}' > '{place}/.git'",
            f"mkdir -p '{place}'; echo \"gitdir: {target}\" > '{place}/.git'",
            f"mkdir -p gd; echo $PWD/.git > gd/gitdir; echo \"{target}\" > gd/commondir; cp .git/HEAD gd; rm -rf .git; echo 'gitdir: gd' > .git",
            f"mkdir -p '{where}/objects' '{where}/refs'; echo 'ref: refs/heads/main' > '{where}/HEAD'; printf '{evil}' > '{where}/config'",
            f"mkdir -p '{where}/objects' '{where}/refs'; printf '{odd}' > '{where}/config'",
            f"mkdir -p gd bare/objects bare/refs '{place}'; echo 'ref: refs/heads/main' > gd/HEAD; echo ../bare > gd/commondir; "
            f"printf '{more}' > bare/config; echo \"gitdir: $PWD/gd\" > '{place}/.git'",
            f"printf '{evil}' >> '{where}/config'",
            f"printf '{more}' > '{where}/config.worktree'; git -C '{place}' config extensions.worktreeConfig true",
            f"git -C '{place}' config include.path ../cfg; printf '{more}' > cfg; cp cfg '{place}/cfg'",
            f"git -C '{place}' config core.hooksPath '{other}'; mkdir -p '{place}/{other}'; printf '{program}' > '{place}/{other}/{hook}'; chmod +x '{place}/{other}/{hook}'",
            f"mkdir -p '{where}/hooks'; printf '{program}' > '{where}/hooks/{hook}'; chmod +x '{where}/hooks/{hook}'",
            f"rm -rf '{where}/hooks'; ln -s $PWD/sub '{where}/hooks'; mkdir -p sub; printf '{program}' > sub/{hook}; chmod +x sub/{hook}",
            f"mv '{place}' '{other}'",
            f"mv '{where}/HEAD' '{where}/other'",
            f"rm -rf '{place}'",
            f"cp -a '{place}' '{other}'",
            f"ln '{place}/file' '{other}/file'",
            f"chmod 500 '{place}'",
            f"rm -rf \"$XDG_CACHE_HOME\"; ln -s {target} \"$XDG_CACHE_HOME\"",
            f"rm -rf ~/notes; ln -s {target} ~/notes; ln -s {target} ~/notes/sub",
            f"echo ../../bare > '{where}/commondir'",
        ))  # fmt: skip


THROUGH = """
find . -type l -o -type d 2>/dev/null | head -60 | while read -r p; do
  echo planted > "$p/pwned"; chmod 777 "$p"; ln -s /tmp "$p/pwned-link"
done
find . -type l 2>/dev/null | head -40 | while read -r p; do echo planted >> "$p"; done
for p in "$H" "$O" "$H/.ssh" "$H/notes" ../.. "$O/repo/.git" "$H/.vscode"; do
  echo planted > "$p/pwned"; rm -rf "$p/file" "$p/.bashrc" "$p/id"; chmod 777 "$p"; mv "$p" "$p-moved"
done
true"""
"""What the second box does."""
RACE = """n=0; while [ $n -lt 40 ]; do n=$((n+1))
for p in a sub .vscode gd bare .git; do mv "$p" "$p.m"; ln -s {target} "$p"; rm -f "$p"; mv "$p.m" "$p"; done; done"""
"""What a third box does while the second one starts."""


async def _tree(scene: Scene, seed: int) -> list[str]:
    """Draw one tree and try it; returns what got out."""
    draw = random.Random(seed)
    work = scene.work(str(seed))
    if draw.random() < 0.6:
        repository(work / ".git")
    if draw.random() < 0.3:
        repository(work / draw.choice(("sub/.git", "a/b/.git", "bare", "bare/.store", ".hidden/.git")))
    granted = draw.choice(GRANTS)
    if draw.random() < 0.3:
        # As an archive or a clone brings them: links, and no write through one.
        for place in draw.sample(PLACES, 3):
            target = os.path.normpath(scene.expanded(draw.choice(OUTSIDE)))
            with contextlib.suppress(OSError):
                if (work / place).parent.resolve() == (work / place).parent:
                    (work / place).parent.mkdir(parents=True, exist_ok=True)
                    (work / place).symlink_to(target)
    if draw.random() < 0.3:
        _lead(work, draw)
    attempt = scene.begin(work, granted)
    first = "\n".join(f"({step}) 2>/dev/null" for step in steps(draw, scene.ran, count=draw.randint(1, 9)))
    before = attempt.rules()
    await attempt.run(first, before if draw.random() < 0.5 else Box())
    attempt.box = draw.choice((before, attempt.rules()))
    if draw.random() < 0.15:
        race = RACE.format(target=draw.choice(OUTSIDE))
        async with anyio.create_task_group() as group:
            group.start_soon(attempt.run, f"({race}) 2>/dev/null", Box())
            group.start_soon(attempt.run, f"({THROUGH}) 2>/dev/null")
    else:
        await attempt.run(f"({THROUGH}) 2>/dev/null")
    return await attempt.end()


def _lead(work: Path, draw: random.Random) -> None:
    """Settings of the user that lead to files of the workspace, by links or by name."""
    for name, text in {
        "one": "[include]\n\tpath = cf/two\n", "cf/two": "", "conf/x": "mine", "env.sh": "mine", "run.sh": "#!/bin/sh\n",
    }.items():  # fmt: skip
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)
    (work / "run.sh").chmod(0o755)
    for name, target in (
        (".claude/x", "../conf/x"),
        (".envrc", "env.sh"),
        (".idea", "conf"),
        ("hk/pre-commit", "../run.sh"),
    ):
        with contextlib.suppress(OSError):
            if draw.random() < 0.7:
                (work / name).parent.mkdir(exist_ok=True)
                (work / name).symlink_to(target)
    if (work / ".git/config").is_file() and not (work / ".git").is_symlink():
        with (work / ".git/config").open("a") as file:
            file.write(
                draw.choice(
                    (
                        "[include]\n\tpath = ../one\n",
                        "[core]\n\thooksPath = hk\n",
                        "[core]\n\tfsmonitor = exec sh ./run.sh\n",
                    )
                )
            )


@dataclass
class Attempt:
    """What is tried in one workspace.

    Attributes:
        granted: What rules let its boxes write.
        mine: What was there before.
        box: What a command may do if nothing else is said.
        agreed: What any of its boxes was allowed.
    """

    scene: Scene
    workspace: Workspace
    granted: tuple[str, ...]
    mine: set[str]
    box: Box = Box()
    agreed: Box = Box()

    def rules(self) -> Box:
        """What rules allow, as a session that begins now understands them."""
        paths = granted_paths(
            self.granted,
            cwd=self.workspace.folder,
            user_home=str(self.scene.home),
            areas=self.workspace.areas,
        )
        box = Box(write=tuple(path for path in paths.values() if not self.workspace.problem(path)))
        self.agreed |= box
        return box

    async def run(self, command: str, box: Box | None = None) -> str:
        """Run a command line in a box; returns what it printed."""
        # Root's first box looks through the whole system, which a busy machine can take longer for than a call waits.
        await anyio.to_thread.run_sync(private_in, SYSTEM_TOPS if os.geteuid() == 0 else ("etc",))
        exports = f"export H='{self.scene.home}' O='{self.scene.top}/other' RAN='{self.scene.ran}'\n"
        try:
            ended = await self.workspace.run(
                ["/bin/sh", "-c", exports + command],
                box=self.box if box is None else box,
                cwd=self.workspace.folder,
                environ=self.scene.workspaces.environ,
                timeout_s=60,
            )
        except SandboxError as error:
            if "did not open within" in str(error):
                raise RuntimeError("The machine is too busy: nothing was tried.") from error
            return str(error)
        return ended.result.stdout.text + ended.result.stderr.text

    async def end(self) -> list[str]:
        """What got out. The workspace is removed."""
        await self.workspace.aclose()
        work = self.workspace.folder
        but = tuple(f"home/{text[2:]}" for text in self.granted if text.startswith("~"))
        found = self.scene.differences(but)
        for folder in (work, *(self.scene.top / name for name in but)):
            _open_again(folder)
            found += _left(folder, self.agreed.write, self.mine) + self.scene.started(folder)
        _remove(work.parent)
        if found or but or self.scene.now() != self.scene.before:
            self.scene.build()
        return found


def _open_again(work: Path) -> None:
    """As a user does who wonders why a folder can't be entered."""
    for folder, folders, _ in os.walk(work):
        for name in folders:
            with contextlib.suppress(OSError):
                if not Path(folder, name).is_symlink():
                    Path(folder, name).chmod(0o755)


def _left(work: Path, granted: tuple[str, ...], mine: set[str]) -> list[str]:
    """What a box wrote and editors, shells and agents act upon."""
    found = []
    tops = {name.split("/")[0].lower() for name in ACTED_UPON}
    for folder, folders, files in os.walk(work):
        folders[:] = [
            name
            for name in folders
            if ".from-sandbox" not in name and name not in (".git", "node_modules", "build")
        ]
        for name in files:
            path = Path(folder, name)
            inner = {part.lower() for part in path.relative_to(work).parts}
            if (
                not inner & tops
                or ASIDE in name
                or any(path.is_relative_to(each) and "/." in str(each)[len(str(work)) :] for each in granted)
            ):
                continue
            with contextlib.suppress(OSError):
                is_new = str(path) not in mine
                if (is_new and path.is_symlink()) or MARK in path.read_text(errors="replace"):
                    found.append(f"left: {path.relative_to(work)}")
    return found


def _remove(folder: Path) -> None:
    def again(_: object, name: str, __: object) -> None:
        path = Path(name)
        with contextlib.suppress(OSError):
            path.parent.chmod(stat.S_IRWXU)
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                path.chmod(stat.S_IRWXU)

    for _ in range(9):
        shutil.rmtree(folder, onerror=again)
        if not folder.exists():
            return


@asynccontextmanager
async def user(backend: str) -> AsyncIterator[Scene]:
    """A user with a home, and nothing in it that a box may reach."""
    top = Path(tempfile.mkdtemp(prefix="satchel-doors-"))
    sandbox = BACKENDS[backend]()

    async def open_sandbox() -> LocalSandbox:
        return sandbox

    try:
        async with anyio.create_task_group() as group:

            def spawn(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
                group.start_soon(run)

            workspaces = Workspaces(
                open_sandbox,
                Settings(
                    home=top / "satchel",
                    config_path=top / "satchel" / "config.toml",
                    cwd=top,
                    environ={"PATH": PATH, "HOME": str(top / "home"), "XDG_CACHE_HOME": str(top / "caches")},
                ),
                spawn=spawn,
                tell=lambda _: None,
            )
            for name in ("satchel", "caches"):
                (top / name).mkdir()
            scene = Scene(top, workspaces)
            scene.build()
            yield scene
    finally:
        await sandbox.aclose()
        _remove(top)


async def find_doors(seeds: range, backend: str, *, say: bool = False) -> list[str]:
    """Try the trees of these seeds; returns what got out, with its seed."""
    found: list[str] = []
    began = time.monotonic()
    async with user(backend) as scene:
        for number, seed in enumerate(seeds, start=1):
            for each in await _tree(scene, seed):
                found.append(f"seed {seed}: {each}")
                if say:
                    print(found[-1], flush=True)
            if say and (number % EVERY == 0 or number == len(seeds)):
                spent = f"{time.monotonic() - began:.0f} s"
                print(
                    f"{backend}: {number} trees ({seeds.start} to {seed}), {len(found)} got out, {spent}",
                    flush=True,
                )
    return found


def main() -> int:
    """Returns 1 if something got out."""
    start, _, stop = (sys.argv[1] if len(sys.argv) > 1 else "0:20000").partition(":")
    backend = sys.argv[2] if len(sys.argv) > 2 else "bubblewrap"
    return bool(
        anyio.run(lambda: find_doors(range(int(start), int(stop or int(start) + 1)), backend, say=True))
    )


if __name__ == "__main__":
    sys.exit(main())
