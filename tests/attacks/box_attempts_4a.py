"""More attempts on the workspace box: the kernel, the file system, links, mounts, processes left behind, limits.

As `box_attempts.py` says. `before` may leave a user's program in the background, which ends by itself within seconds.
"""

from __future__ import annotations

import shlex
import textwrap

from tests.attacks.box_attempts import Try

__all__ = ["ATTEMPTS"]

PRELUDE = """
import ctypes, fcntl, os, socket, stat, struct, sys, time
H, O, RAN = (os.environ[name] for name in ("H", "O", "RAN"))
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    done = libc.syscall(number, *[ctypes.c_char_p(a) if isinstance(a, bytes) else a for a in args])
    return done if done >= 0 else -ctypes.get_errno()
"""
EXECUTABLE = '"#!/bin/sh\\ntouch $RAN\\n"'
EVIL = '"[core]\\n\\tfsmonitor = touch $RAN\\n"'
WAITING = ": > go; i=0; while [ $i -lt 30 ]; do i=$((i+1)); {} && break; sleep 0.1; done"
"""Tries something for three seconds."""
SETUID = "find . -perm /6000 | grep -q . && touch $RAN"
DEVICE = "find . -type c | grep -q . && touch $RAN; find . -type c -delete"


def python(code: str) -> str:
    """A command line that runs Python with the names of `PRELUDE`; after an exception it goes on with what follows."""
    return f"export H O RAN; python3 -c {shlex.quote(PRELUDE + textwrap.dedent(code))}"


def hook(path: str) -> str:
    """Writes a program; the copy makes the file executable where modes can't be changed."""
    return f"cp /usr/bin/env {path} && printf {EXECUTABLE} > {path} && chmod +x {path}"


def meanwhile(command: str) -> str:
    """What the user does while the command runs that begins with `WAITING`."""
    return f"(i=0; while [ ! -e go ] && [ $i -lt 300 ]; do i=$((i+1)); sleep 0.1; done; sleep 0.4; {command}) >/dev/null 2>&1 &"


DAEMON = """
def plant():
    end = time.time() + 4
    while time.time() < end:
        os.makedirs("sub/.vscode", exist_ok=True)
        open("sub/.vscode/tasks.json", "w").write("planted")
        open("alive", "a").write("x")
        time.sleep(0.02)
    os._exit(0)
def leave():
    if os.fork(): time.sleep(0.4); os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
    for fd in range(3): os.close(fd)
    os.open("/dev/null", os.O_RDWR); os.dup(0); os.dup(0)
"""
ALIVE = "touch alive; n=$(stat -c %s alive); sleep 0.5; [ $(stat -c %s alive) -gt $n ] && touch $RAN"
SERVER = """
import os, socket, sys
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen(); server.settimeout(6)
try:
    server.accept()[0].recv(9); open(sys.argv[2], "w").write("x")
except OSError: pass
os.unlink(sys.argv[1])
"""


def served(path: str) -> str:
    """A program of the user that does what it is told at a socket."""
    return (
        f'python3 -c {shlex.quote(SERVER)} {path} "$RAN" >/dev/null 2>&1 & '
        f"i=0; while [ ! -e {path} ] && [ $i -lt 50 ]; do i=$((i+1)); sleep 0.1; done"
    )


def told(path: str) -> str:
    """Tells it."""
    return python(
        f"s = socket.socket(socket.AF_UNIX); s.connect(os.path.expandvars({path!r})); s.send(b'run')"
    )


ATTEMPTS: dict[str, Try] = {
    # ---- Mounts that the user takes away by replacing what is below them
    "a setting that the user saves while a command runs": Try(
        before="echo mine > .envrc; " + meanwhile("echo mine too > new; mv new .envrc"),
        commands=(WAITING.format("echo planted >> .envrc"),),
        outside="grep -q planted .envrc && touch $RAN",
    ),
    "git's settings that the user changes while a command runs": Try(
        before="git init -q .; " + meanwhile("git config user.name Ann"),
        commands=(WAITING.format(f"printf {EVIL} >> .git/config"),),
    ),
    "git's hooks that the user replaces while a command runs": Try(
        before="git init -q .; " + meanwhile("mv .git/hooks .git/old; mkdir .git/hooks"),
        commands=(WAITING.format(hook(".git/hooks/pre-commit")),),
    ),
    "a folder of settings that the user moves away and back while a command runs": Try(
        before="mkdir .vscode; echo mine > .vscode/tasks.json; " + meanwhile("mv .vscode v; mv v .vscode"),
        commands=(WAITING.format("echo planted > .vscode/tasks.json"),),
        outside="grep -q planted .vscode/tasks.json && touch $RAN; rm -f .vscode/*.from-sandbox",
    ),
    "settings of a submodule that the user changes while a command runs": Try(
        before="git init -q sub; " + meanwhile("git -C sub config user.name Ann"),
        commands=(WAITING.format(f"printf {EVIL} >> sub/.git/config"),),
    ),
    "a repository that the user makes while a command runs": Try(
        # Until git has ended: it would write what it read of the command's lines after they were set aside.
        before=meanwhile("git init -q . && touch .git/made"),
        commands=(
            WAITING.format("[ -e .git/made ]")
            + f"; [ -e .git/made ] && printf {EVIL} >> .git/config && {hook('.git/hooks/pre-commit')}",
        ),
    ),
    "a setting that the user makes while a command runs": Try(
        before=meanwhile("mkdir .vscode; echo mine > .vscode/tasks.json"),
        commands=(WAITING.format("[ -e .vscode/tasks.json ]") + "; echo planted > .vscode/tasks.json",),
        outside="grep -q planted .vscode/tasks.json && touch $RAN; rm -f .vscode/*.from-sandbox",
    ),
    "a file that git's settings name and that the user saves while a command runs": Try(
        before="git init -q .; : > cfg; git config include.path ../cfg; " + meanwhile(": > c; mv c cfg"),
        commands=(WAITING.format(f"printf {EVIL} >> cfg"),),
    ),
    # ---- Hard links: one file, of which one name is protected
    "a hard link to the settings of a new repository": Try(
        commands=("git init -q new; ln new/.git/config link", f"printf {EVIL} >> link"),
    ),
    "a hard link to the settings of a new bare repository, in itself": Try(
        commands=("git init -q --bare b; ln b/config b/info/x", f"printf {EVIL} >> b/info/x; echo 'gitdir: b' > .git"),
    ),
    "a hard link to a hook that is git's sample": Try(
        commands=(
            "git init -q new; cd new/.git/hooks; cp pre-commit.sample pre-commit; chmod +x pre-commit; ln pre-commit ../../x; "
            "ln pre-commit.sample ../../y",
            f"for each in new/x new/y; do printf {EXECUTABLE} > $each; done",
        ),
    ),
    "a hard link to a file that the settings of a new repository name": Try(
        before="git init -q .; git config include.path ../cfg",
        commands=(": > cfg; ln cfg link", f"printf {EVIL} > link"),
    ),
    "another name of the user's for a setting": Try(
        before="echo mine > .envrc; ln .envrc env",
        commands=("echo planted > env",),
        outside="grep -q planted .envrc && touch $RAN",
    ),
    "another name of the user's for a setting in a folder": Try(
        before="mkdir -p .vscode copy; echo mine > .vscode/tasks.json; ln .vscode/tasks.json copy/tasks.json",
        commands=("echo planted > copy/tasks.json",),
        outside="grep -q planted .vscode/tasks.json && touch $RAN; rm -f .vscode/*.from-sandbox",
    ),
    "another name of the user's for git's settings": Try(
        before="git init -q .; ln .git/config backup", commands=(f"printf {EVIL} >> backup",)
    ),
    "another name for what the user takes back after it was set aside": Try(
        before=meanwhile("sleep 1; mv .envrc.from-sandbox .envrc"),
        commands=("echo mine > .envrc; ln .envrc link", ": > go; sleep 2", "echo planted > link"),
        outside="grep -q planted .envrc && touch $RAN",
    ),
    "hard links to the user's files": Try(
        commands=(
            "ln $H/.ssh/id a; ln $O/file b; ln -L $O/repo/.git/config c; cat a; echo planted >> b; echo planted >> c",
            python("""
                for path in (H + "/.ssh/id", O + "/file"):
                    fd = os.open(path, os.O_PATH)
                    print(call(265, fd, b"", -100, b"x" + path[-2:].encode(), 0x1000), call(265, -100, f"/proc/self/fd/{fd}".encode(), -100, b"y", 0x400))
            """),
        ),
    ),
    "hard links to protected files in the workspace": Try(
        before="git init -q .; mkdir .vscode; echo mine > .vscode/tasks.json; echo mine > .envrc",
        commands=(
            "ln .git/config a; ln .git/hooks/pre-commit.sample b; ln .vscode/tasks.json c; ln .envrc d",
            f"for each in a b c d; do printf {EVIL} >> $each; echo planted >> $each; done",
        ),
        outside="grep -q planted .envrc .vscode/tasks.json && touch $RAN; rm -f .vscode/*.from-sandbox",
    ),
    "hard links to protected files, through their descriptors": Try(
        before="git init -q .; echo mine > .envrc",
        commands=(
            python("""
                for number, path in enumerate((".git/config", ".envrc")):
                    fd = os.open(path, os.O_RDONLY)
                    call(265, fd, b"", -100, b"e%d" % number, 0x1000)
                    call(265, -100, b"/proc/self/fd/%d" % fd, -100, b"f%d" % number, 0x400)
            """),
            f"for each in e0 e1 f0 f1; do [ -e $each ] && printf {EVIL} >> $each; done",
        ),
        outside="grep -q RAN .envrc && touch $RAN",
    ),
    # ---- Symbolic links of the user: what they lead to is what a tool reads
    "a folder of settings that is a link of the user's": Try(
        before="mkdir conf; echo mine > conf/tasks.json; ln -s conf .vscode",
        commands=("echo planted > conf/tasks.json",),
        outside="grep -q planted .vscode/tasks.json && touch $RAN; rm -f .vscode/*.from-sandbox",
    ),
    "a setting that is a link of the user's": Try(
        before="echo mine > env.sh; ln -s env.sh .envrc",
        commands=("echo planted > env.sh",),
        outside="grep -q planted .envrc && touch $RAN",
    ),
    "a link of the user's in a folder of settings": Try(
        before="mkdir -p .claude conf; echo mine > conf/settings.json; ln -s ../conf/settings.json .claude/settings.json",
        commands=("echo planted > conf/settings.json",),
        outside="grep -q planted .claude/settings.json && touch $RAN",
    ),
    "hooks that are a link of the user's": Try(
        before="git init -q .; rm -r .git/hooks; mkdir hk; ln -s ../hk .git/hooks",
        commands=(f"{hook('hk/pre-commit')}",),
    ),
    "one hook that is a link of the user's": Try(
        before="git init -q .; printf '#!/bin/sh\\n' > hook.sh; chmod +x hook.sh; ln -s ../../hook.sh .git/hooks/pre-commit",
        commands=(f"printf {EXECUTABLE} > hook.sh",),
    ),
    "git's settings that are a link of the user's": Try(
        before="git init -q .; mv .git/config cfg; ln -s ../cfg .git/config", commands=(f"printf {EVIL} >> cfg",)
    ),
    "a repository that is a link of the user's": Try(
        before="git init -q store; mv store/.git store/g; ln -s store/g .git", commands=(f"printf {EVIL} >> store/g/config",)
    ),
    "settings of a new repository that are a link": Try(
        commands=("git init -q new; mv new/.git/config cfg; ln -s ../../cfg new/.git/config", f"printf {EVIL} >> cfg"),
    ),
    "hooks of a new repository that are a link": Try(
        commands=(
            "git init -q new; rm -r new/.git/hooks; mkdir hk; ln -s ../../hk new/.git/hooks",
            f"{hook('hk/pre-commit')}",
        ),
    ),
    "a new repository that is a link": Try(
        commands=("git init -q x; mv x/.git x/g; mkdir y; ln -s ../x/g y/.git", f"printf {EVIL} >> x/g/config"),
    ),
    # ---- Setting aside
    "a setting whose new name would be too long": Try(
        commands=(
            python("""
                for length in (255, 250, 243, 242):
                    name = "." + "a" * (length - 1)
                    os.makedirs(name); open(name + "/x", "w").write("planted")
            """),
        ),
        outside="ls -A | grep -qE '^\\.a+$' && touch $RAN",
    ),
    "a setting below a path that is too long": Try(
        commands=(
            python("""
                os.mkdir("deep"); os.chdir("deep")
                for _ in range(18): os.mkdir("d" * 250); os.chdir("d" * 250)
                os.mkdir(".vscode"); open(".vscode/tasks.json", "w").write("planted"); open(".envrc", "w").write("planted")
            """),
            "true",
        ),
        outside="find deep -name .vscode -o -name .envrc | grep -q . && touch $RAN; rm -rf deep",
    ),
    "settings in folders with odd names": Try(
        commands=(
            python("""
                for name in (b"\\xff\\xfe", b"a\\nb", b"\\x1b]0;x\\x07", b" ", b"a.", b"\\xe2\\x80\\xae", b"-rf", b"%n%s", b"{0}", b"...", b"*", b"~", b"$(touch x)", b"a\\\\b", b"a" * 255):
                    os.makedirs(name + b"/.vscode"); open(name + b"/.vscode/tasks.json", "w").write("planted")
                    open(name + b"/.envrc", "w").write("planted"); open(name + b"/CLAUDE.md", "w").write("planted")
            """),
        ),
    ),
    "repositories in folders with odd names": Try(
        commands=(
            python("""
                for name in (b"\\xff\\xfe", b"a\\nb", b"\\x1b]0;x\\x07", b" ", b"a\\r", b"-rf"):
                    os.makedirs(name + b"/.git/objects"); os.makedirs(name + b"/.git/refs")
                    open(name + b"/.git/HEAD", "w").write("ref: refs/heads/main\\n")
                    open(name + b"/.git/config", "w").write("[core]\\n\\tfsmonitor = touch " + RAN + "\\n")
            """),
            "true",
        ),
    ),
    "a setting behind a thousand folders": Try(
        commands=(
            python("""
                for number in range(1000):
                    os.mkdir(f"{number}")
                os.makedirs("500/x/.vscode"); open("500/x/.vscode/tasks.json", "w").write("planted")
            """),
        ),
    ),
    "settings that are pipes": Try(
        commands=("mkfifo .envrc CLAUDE.md git-rebase-todo lefthook.yml; mkdir -p sub/.vscode; mkfifo sub/.vscode/tasks.json", "true"),
        outside="find . -type p -name .envrc -o -type p -name CLAUDE.md | grep -q . && touch $RAN",
    ),
    "pipes where git has its settings": Try(
        commands=(
            "mkdir -p a/.git/objects a/.git/refs a/.git/hooks b/objects b/refs c; mkfifo a/.git/config a/.git/HEAD a/.git/hooks/pre-commit; "
            "mkfifo b/config b/commondir b/gitdir c/.git",
            "true",
        ),
        outside="rm -rf a b c",
    ),
    "sockets where git has its settings": Try(
        commands=(
            python("""
                os.makedirs("a/.git/objects"); os.makedirs("a/.git/refs"); os.makedirs("b")
                for path in ("a/.git/config", "a/.git/commondir", "b/.git", ".envrc", "CLAUDE.md"):
                    socket.socket(socket.AF_UNIX).bind(path)
            """),
            "true",
        ),
        outside="rm -rf a b",
    ),
    "settings of git that are huge": Try(
        commands=("git init -q new; git init -q --bare b; truncate -s 190M new/.git/config b/config; truncate -s 190M b/commondir", "true"),
        outside="rm -rf new b",
    ),
    "a setting in folders that nobody may enter": Try(
        commands=("mkdir -p a/b/.vscode; echo planted > a/b/.vscode/tasks.json; echo planted > a/.envrc; chmod 000 a/b/.vscode a/b a",),
        outside="chmod 700 a; chmod 700 a/b; chmod 700 a/b/.vscode",
    ),
    "settings in folders that can be listed and not entered": Try(
        commands=("for m in 444 600 200; do mkdir -p a$m/.vscode; echo planted > a$m/.vscode/tasks.json; echo planted > a$m/.envrc; chmod $m a$m; done",),
        outside="chmod 700 a*",
    ),
    "a repository in a folder that nobody may enter": Try(
        commands=(f"git init -q a; printf {EVIL} >> a/.git/config; chmod 000 a", "git init -q b; " + f"printf {EVIL} >> b/.git/config; chmod 000 b/.git"),
        outside="chmod 700 a b b/.git",
    ),
    "a setting in a folder that can't be written": Try(
        commands=("mkdir -p a/.vscode b; echo planted > a/.vscode/tasks.json; echo planted > b/.envrc; chmod 500 a/.vscode a; chmod 1555 b",),
    ),
    "settings made immutable": Try(
        commands=(
            "mkdir -p a/.vscode; echo planted > a/.vscode/tasks.json; echo planted > a/.envrc; chattr -R +i a; chattr -R +a a; true",
            python("""
                for path in ("a/.envrc", "a/.vscode", "a"):
                    fd = os.open(path, os.O_RDONLY)
                    for flag in (0x10, 0x20):
                        fcntl.ioctl(fd, 0x40086602, struct.pack("l", flag))
            """),
        ),
    ),
    "a folder of settings moved out of a folder of results": Try(
        commands=(
            "for d in build node_modules .venv .x-cache target; do mkdir -p $d/$d/.vscode; echo planted > $d/$d/.vscode/tasks.json; done",
            "for d in build node_modules .venv .x-cache target; do mv $d/$d moved$d; done",
        ),
    ),
    "a folder of results under another name": Try(
        commands=("mkdir -p build/.vscode; echo planted > build/.vscode/tasks.json", "mv build project"),
    ),
    "a package's settings moved out of the user's packages": Try(
        before="mkdir -p node_modules/p/.vscode; echo planted > node_modules/p/.vscode/tasks.json", commands=("mv node_modules/p p",)
    ),
    "the user's settings exchanged for others": Try(
        before="mkdir -p sub/.vscode; echo mine > sub/.vscode/tasks.json",
        commands=(
            "mkdir d; echo planted > d/tasks.json",
            python("print(call(316, -100, b'd', -100, b'sub/.vscode', 2))"),
        ),
        outside="grep -q planted sub/.vscode/tasks.json && touch $RAN; rm -f sub/.vscode/*.from-sandbox",
    ),
    "protected files exchanged for others": Try(
        before="git init -q .; mkdir .vscode; echo mine > .vscode/tasks.json; echo mine > .envrc",
        commands=(
            f"mkdir d; echo planted > d/tasks.json; printf {EVIL} > e; "
            + python("""
                for one, other in ((b"d", b".vscode"), (b"e", b".envrc"), (b"e", b".git/config"), (b"d", b".git"), (b"d", b".git/hooks")):
                    for flags in (0, 2):
                        call(316, -100, one, -100, other, flags)
            """),
        ),
        outside="grep -q planted .vscode/tasks.json && touch $RAN; grep -q RAN .envrc && touch $RAN; rm -f .vscode/*.from-sandbox",
    ),
    "a setting changed through a mapping, its times set back": Try(
        before="mkdir -p sub/.vscode; echo mine-here > sub/.vscode/tasks.json",
        commands=(
            python("""
                import mmap
                path = "sub/.vscode/tasks.json"; before = os.stat(path)
                with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
                    shared[:7] = b"planted"
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            """),
        ),
        outside="grep -q planted sub/.vscode/tasks.json && touch $RAN; rm -f sub/.vscode/*.from-sandbox",
    ),
    "a deep setting changed in place": Try(
        before="mkdir -p sub/.claude/hooks/a/b; echo mine > sub/.claude/hooks/a/b/run.sh; touch -d 2020-01-01 sub/.claude/hooks/a/b/run.sh",
        commands=("echo planted > sub/.claude/hooks/a/b/run.sh; touch -d 2020-01-01 sub/.claude/hooks/a/b/run.sh",),
        outside="grep -q planted sub/.claude/hooks/a/b/run.sh && touch $RAN; rm -f sub/.claude/hooks/a/b/*.from-sandbox",
    ),
    "a new setting that takes the number of an old one": Try(
        before="mkdir -p sub; echo mine > sub/.envrc",
        commands=("for i in 1 2 3 4 5 6 7 8 9; do rm -f sub/.envrc; echo planted > sub/.envrc; done; touch -d 2020-01-01 sub/.envrc",),
        outside="grep -q planted sub/.envrc && touch $RAN",
    ),
    "settings before a command ends itself by force": Try(
        commands=("mkdir -p sub/.vscode; echo planted > sub/.vscode/tasks.json; exec >&- 2>&-; kill -9 -1; kill -9 $$",),
    ),
    "settings before a command ends the first process of its box": Try(
        commands=("mkdir -p sub/.vscode; echo planted > sub/.vscode/tasks.json; kill -9 $PPID; kill -9 1; kill -TERM 1; kill -9 $$",),
    ),
    "settings beside three hundred repositories": Try(
        commands=(
            python("""
                for number in range(310):
                    os.makedirs(f"r{number}/.git/objects"); os.makedirs(f"r{number}/.git/refs")
                    open(f"r{number}/.git/HEAD", "w").write("ref: refs/heads/main\\n")
                    open(f"r{number}/.git/config", "w").write("[core]\\n\\tfsmonitor = touch " + RAN + "\\n")
                    open(f"r{number}/.envrc", "w").write("planted")
            """),
        ),
        outside="grep -l RAN r*/.git/config; for n in $(seq 4 308); do rm -rf r$n; done",
    ),
    # ---- Git folders in odd forms
    "a repository whose folders of objects are files": Try(
        commands=(
            'mkdir g sub; : > g/objects; : > g/refs; chmod +x g/objects g/refs; echo "ref: refs/heads/main" > g/HEAD; '
            'echo "[core]" > g/config; echo "gitdir: ../g" > sub/.git',
            f"printf {EVIL} >> g/config; mkdir -p g/hooks; {hook('g/hooks/post-index-change')}",
        ),
    ),
    "a repository whose folders of objects are links": Try(
        commands=(
            'mkdir g sub o r; ln -s ../o g/objects; ln -s ../r g/refs; echo "ref: refs/heads/main" > g/HEAD; echo "gitdir: ../g" > sub/.git',
            f"printf {EVIL} >> g/config; cd g; git status",
        ),
    ),
    "a pointer to a repository with a carriage return": Try(
        commands=(
            "git init -q --bare g; git -C g config core.bare false; mkdir sub; printf 'gitdir: ../g\\r\\n' > sub/.git",
            f"mkdir -p g/worktrees; printf {EVIL} >> g/config.worktree; git -C sub config extensions.worktreeConfig true",
        ),
    ),
    "settings named by settings that settings name": Try(
        before="git init -q .; git config include.path ../one; git config -f one include.path two; : > two",
        commands=(f"printf {EVIL} >> two",),
    ),
    "settings named for a branch": Try(
        before="git init -q .; git config 'includeIf.onbranch:**.path' ../one; git config 'includeIf.gitdir:**.path' ../two",
        commands=(f"printf {EVIL} >> one; printf {EVIL} >> two",),
    ),
    "a file that git's settings name": Try(
        before="git init -q .; : > cfg; git config include.path ../cfg", commands=(f"printf {EVIL} >> cfg",)
    ),
    "settings named through a link of the user's": Try(
        before="git init -q .; mkdir d; ln -s d link; : > d/cfg; git config include.path ../link/cfg",
        commands=(f"printf {EVIL} >> d/cfg; ls -l d", f"rm link; mkdir link; printf {EVIL} > link/cfg"),
    ),
    "settings named by a submodule's settings that settings name": Try(
        before="git init -q sub; git -C sub config include.path ../../one; git config -f one includeIf.gitdir:**.path two; : > two",
        commands=(f"printf {EVIL} >> two",),
    ),
    "a filter's program behind an interpreter": Try(
        before="git init -q .; mkdir tools; echo cat > tools/clean.sh; git config filter.x.clean 'sh tools/clean.sh'; "
        "echo '*.txt filter=x' > .gitattributes; echo a > a.txt; git add .; sleep 0.01; echo b > a.txt",
        commands=("echo \"touch $RAN; cat\" > tools/clean.sh; echo c > a.txt",),
    ),
    "a program that git's settings name, named with a shell": Try(
        before="git init -q .; mkdir tools; echo true > tools/mon.sh; git config core.fsmonitor 'exec sh ./tools/mon.sh'",
        commands=("echo touch $RAN > tools/mon.sh",),
    ),
    "a hook that is a link in a folder that git's settings name": Try(
        before="git init -q .; mkdir hk; printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh; ln -s ../run.sh hk/pre-commit; git config core.hooksPath hk",
        commands=(f"printf {EXECUTABLE} > run.sh",),
    ),
    "the folder around the hooks that git's settings name, moved away": Try(
        before="git init -q .; mkdir -p tools/git/hk; git config core.hooksPath tools/git/hk",
        commands=(
            f"mv tools t; mkdir -p tools/git/hk; {hook('tools/git/hk/pre-commit')}",
            f"mv tools/git t; mkdir -p tools/git/hk; {hook('tools/git/hk/pre-commit')}",
        ),
    ),
    "hooks that git's settings name and that the user replaces while a command runs": Try(
        before="git init -q .; mkdir hk; git config core.hooksPath hk; " + meanwhile("mv hk h; mkdir hk"),
        commands=(WAITING.format(hook("hk/pre-commit")),),
    ),
    "hooks in a linked folder that git's settings name": Try(
        before="git init -q .; mkdir real; ln -s real hk; git config core.hooksPath hk",
        commands=(f"{hook('real/pre-commit')}",),
    ),
    "hooks that the settings of a repository around the workspace name": Try(
        before="git init -q ..; git -C .. config core.hooksPath work/hk",
        commands=(f"mkdir hk; {hook('hk/pre-commit')}",),
        outside="git commit -qm x --allow-empty; rm -rf ../.git",
    ),
    "hooks that the user's own settings name by a relative path": Try(
        before="mkdir -p ~/.config/git; git config -f ~/.config/git/config core.hooksPath hk; git init -q .",
        commands=(f"mkdir hk; {hook('hk/pre-commit')}",),
        outside="git commit -qm x --allow-empty; rm -r ~/.config",
    ),
    "hooks that the settings of a linked working tree's repository name": Try(
        before="git init -q ../r; cd ../r; git commit -qm x --allow-empty; git config core.hooksPath hk; git worktree add -qf ../work",
        commands=(f"mkdir hk; {hook('hk/pre-commit')}",),
        outside="git commit -qm x --allow-empty; rm -rf ../r",
    ),
    "what is left to do of a rebase": Try(
        before="git init -q .; git commit -qm a --allow-empty; git commit -qm b --allow-empty",
        commands=(
            "git -c sequence.editor=\"printf 'break\\n\\tx\\ttouch $RAN\\r\\n' >\" rebase -q -i HEAD~1; ls .git/rebase-merge; cat .git/rebase-merge/git-rebase-todo",
        ),
        outside="GIT_EDITOR=true git rebase --continue; git rebase --abort",
    ),
    "what only root may read of the kernel": Try(
        commands=("for f in kpageflags kpagecount slabinfo vmallocinfo timer_list; do head -c 8 /proc/$f > /dev/null && echo $f is PRI''VATE; done",),
    ),
    # ---- The bits of programs that run as their owner, and devices
    "setuid by opening": Try(
        commands=(
            python("""
                for number, flags in enumerate((os.O_CREAT | os.O_WRONLY, os.O_CREAT | os.O_RDWR | os.O_EXCL)):
                    print(call(2, b"a%d" % number, flags, 0o6755), call(257, -100, b"b%d" % number, flags, 0o4755))
                call(85, b"c", 0o4755); call(133, b"d", 0o104755, 0); call(259, -100, b"e", 0o102755, 0)
                call(83, b"f", 0o2755); call(258, -100, b"g", 0o6755)
            """),
        ),
        outside=SETUID,
    ),
    "setuid in a file without a name": Try(
        commands=(
            python("""
                fd = call(257, -100, b".", 0o20200000 | os.O_RDWR, 0o6755)
                print(fd, call(265, fd, b"", -100, b"a", 0x1000), call(265, -100, b"/proc/self/fd/%d" % fd, -100, b"b", 0x400))
            """),
        ),
        outside=SETUID,
    ),
    "setuid by newer calls": Try(
        commands=(
            python("""
                open("a", "w").close(); fd = os.open("a", os.O_RDWR)
                call(452, -100, b"a", 0o4755, 0); call(452, fd, b"", 0o6755, 0x1000); call(91, fd, 0o4755)
                call(437, -100, b"b", struct.pack("QQQ", os.O_CREAT | os.O_RDWR, 0o4755, 0), 24)
                call(268, -100, b"a", 0o2755); call(90, b"a", 0o1006755)
            """),
        ),
        outside=SETUID,
    ),
    "setuid by programs that copy": Try(
        commands=(
            "cp -a /usr/bin/su a; cp -p /usr/bin/passwd b; install -m 6755 /bin/true c; mkdir -m 2755 d; chmod u+s /bin/true; "
            "tar -C / -cf - usr/bin/su | tar -xpf -; ln /usr/bin/su e; true",
        ),
        outside=SETUID,
    ),
    "setuid by an access list": Try(
        commands=(
            python("""
                open("a", "w").close()
                acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in ((1, 0o4007, 2**32 - 1), (4, 0o2005, 2**32 - 1), (32, 5, 2**32 - 1)))
                for name in (b"system.posix_acl_access", b"system.posix_acl_default"):
                    print(call(188, b"a", name, acl, len(acl), 0), call(188, b".", name, acl, len(acl), 0))
            """),
        ),
        outside=SETUID,
    ),
    "a device of overlays": Try(commands=("mknod w c 0 0; mknod b b 0 0; mknod n c 1 3; true",), outside=DEVICE),
    "a device left behind by a rename": Try(
        commands=("touch f; " + python("print(call(316, -100, b'f', -100, b'g', 4))"),), outside=DEVICE
    ),
    # ---- Processes
    "a daemon without an environment": Try(
        commands=(python(DAEMON + "leave(); os.execve('/usr/bin/python3', ['python3', '-c', sys.orig_argv[2].replace('leave(); ', 'plant() #')], {'H': H, 'O': O, 'RAN': RAN})"), "true"),
        outside=ALIVE,
    ),
    "a daemon that wipes its environment": Try(
        commands=(
            python(DAEMON + """
leave()
begin, end = 0, 0
environ = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")
for number in range(200):
    if not environ[number]: break
    text = ctypes.string_at(environ[number]); ctypes.memset(environ[number], 0, len(text))
plant()
"""),
            "true",
        ),
        outside=ALIVE,
    ),
    "a daemon that can't be looked at": Try(
        commands=(python(DAEMON + "libc.prctl(4, 0, 0, 0, 0); leave(); libc.prctl(4, 0, 0, 0, 0); plant()"), "true"),
        outside=ALIVE,
    ),
    "a daemon that ignores signals": Try(
        commands=(python(DAEMON + "import signal; leave(); signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN); plant()"), "true"),
        outside=ALIVE,
    ),
    "forty generations that each leave their parent": Try(
        commands=(
            python(DAEMON + """
leave()
for _ in range(400):
    if os.fork(): os._exit(0)
    os.setsid()
    os.makedirs("sub", exist_ok=True); open("sub/.envrc", "w").write("planted"); time.sleep(0.005)
"""),
            "true",
        ),
    ),
    "the first process of the box made to work for it": Try(
        commands=(
            python("""
                print(open("/proc/1/status").read().count("Seccomp:\\t2"), os.listdir("/proc/1/fd"))
                for path in ("/proc/1/root" + H + "/.ssh/id", "/proc/1/cwd/../.." + H + "/.ssh/id", "/oldroot" + H + "/.ssh/id", "/newroot" + H + "/.ssh/id"):
                    try: print(open(path).read())
                    except OSError as error: print(error)
            """),
        ),
    ),
    "a message to the user's program at a socket in the workspace": Try(before=served("sock"), commands=(told("sock"),)),
    "a message to the user's program at a socket in a protected folder": Try(
        before="mkdir .tools; " + served(".tools/sock"), commands=(told(".tools/sock"),)
    ),
    "a message to the user's program at a socket outside": Try(before=served("../sock"), commands=(told("../sock"), told("$O/../sock"))),
    "a message to the user's program through a pipe in a protected folder": Try(
        but="landlock",
        before="mkdir .tools; mkfifo .tools/pipe; (timeout 5 head -c 3 .tools/pipe | grep -q run && touch $RAN) >/dev/null 2>&1 &",
        commands=("timeout 3 sh -c 'printf run > .tools/pipe'",),
    ),
    "the order of a process of the user at the disk and the processor": Try(
        before="(sleep 8) >/dev/null 2>&1 & echo $! > pid",
        commands=(
            python("""
                pid = int(open("pid").read())
                print(call(251, 1, pid, 3 << 13), call(251, 3, os.getuid(), 3 << 13), call(314, pid, struct.pack("IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0), 0))
                print(call(144, pid, 5, struct.pack("i", 0)), call(141, 0, pid, 19), call(157, 62, 2, pid, 0, 0), call(129, pid, 9, b"\\0" * 128), call(234, pid, pid, 9))
            """),
        ),
        outside="p=$(cat pid); kill -0 $p || touch $RAN; ionice -p $p | grep -q idle && touch $RAN; chrt -p $p | grep -q IDLE && touch $RAN; kill $p",
    ),
    # ---- Files outside by other calls
    "attributes and modes outside by newer calls": Try(
        commands=(
            python("""
                for path in (O + "/file", H + "/.bashrc", H + "/.ssh"):
                    name = path.encode()
                    value = ctypes.create_string_buffer(b"planted")
                    args = struct.pack("QII", ctypes.addressof(value), 7, 0)
                    print(call(463, -100, name, 0, b"user.x", args, 16), call(188, name, b"user.x", b"planted", 7, 0), call(452, -100, name, 0o777, 0))
                    print(call(468, -100, name, struct.pack("QIIIIQ", 0x40, 0, 0, 0, 0, 0)[:24], 24, 0), call(280, -100, name, 0, 0), call(94, name, 12, 12), call(132, name, 0))
            """),
        ),
        outside="getfattr -d $O/file $H/.bashrc 2>/dev/null | grep -q planted && touch $RAN; [ $(stat -c %Y $O/file) -lt 9 ] && touch $RAN",
    ),
    "files outside by relative paths and descriptors of paths": Try(
        commands=(
            python("""
                folder = os.open("/", os.O_PATH)
                for path in (H + "/.ssh/id", O + "/file"):
                    for opened in ("../" * 30 + path[1:], "/proc/self/cwd/" + "../" * 30 + path[1:], "/proc/thread-self/root" + path):
                        try: print(os.read(os.open(opened, os.O_RDONLY, dir_fd=folder), 99))
                        except OSError as error: print(error)
                    try:
                        fd = os.open(path, os.O_PATH)
                        print(open(f"/proc/self/fd/{fd}").read(), call(257, fd, b"", 0o10000), call(76, path.encode(), 0))
                    except OSError as error: print(error)
                print(call(76, (O + "/file").encode(), 0), call(425, 8, 0), call(304, -100, 0, 0))
            """),
        ),
    ),
    "a link in the place of the workspace": Try(
        commands=(
            'w=$PWD; cd /; mv "$w" "$w.old"; rmdir "$w"; ln -s $O "$w"; ln -sfn $O "$w/../work"; '
            + python("w = os.getcwd(); call(82, w.encode(), (w + 'x').encode()); call(316, -100, w.encode(), -100, O.encode(), 2)"),
            "echo planted > file; echo planted > .envrc",
        ),
    ),
    "links in the places of the box's own folders": Try(
        commands=(
            'rm -rf ~/* /tmp/* /var/tmp/* "$TMPDIR"/* "$XDG_CACHE_HOME" "$PIP_CACHE_DIR"; mv "$HOME" "$HOME.x"; mkdir -p "$(dirname "$XDG_CACHE_HOME")"; '
            'for each in "$XDG_CACHE_HOME" "$PIP_CACHE_DIR" "$GOPATH" "$npm_config_cache" "$TMPDIR/cache" "$HOME" /tmp/x /var/tmp/x; do rm -rf "$each"; ln -s $O "$each"; done; true',
            'for each in "$XDG_CACHE_HOME" "$PIP_CACHE_DIR" "$GOPATH" "$npm_config_cache" "$TMPDIR/cache" "$HOME"; do echo planted > "$each/planted"; done',
        ),
    ),
    "pipes in the places of the box's caches": Try(
        commands=('for each in "$XDG_CACHE_HOME" "$PIP_CACHE_DIR" "$GOPATH"; do rm -rf "$each"; mkfifo "$each"; done', "true"),
    ),
    # ---- What is granted
    "hooks of a repository in a folder that a rule grants": Try(
        write=("~/notes",),
        before="git init -q ~/notes",
        commands=(f"{hook('~/notes/.git/hooks/pre-commit')}; printf {EVIL} >> ~/notes/.git/config",),
        outside="git -C ~/notes commit -qm x --allow-empty; git -C ~/notes status",
    ),
    "settings in a folder that a rule grants": Try(
        write=("~/notes",),
        commands=("mkdir -p ~/notes/.vscode; echo planted > ~/notes/.vscode/tasks.json; echo planted > ~/notes/.envrc",),
        outside="[ -e ~/notes/.envrc ] && touch $RAN",
    ),
    "a granted folder as a way around": Try(
        write=("~/notes",),
        commands=("ln -s $H ~/notes/sub2; ln -s $O ~/notes/o; cat ~/notes/sub2/.ssh/id; mv ~/notes/sub x; ln -s $H/.ssh ~/notes/sub", "cat ~/notes/sub/id ~/notes/../.ssh/id; echo planted > ~/notes/o/file"),
    ),
    # ---- Names without a dot that agents act upon
    "settings of agents without a dot": Try(
        commands=("for f in opencode.json opencode.jsonc crush.json CLAUDE.local.md AGENTS.override.md mise.local.toml; do echo planted > $f; mkdir -p s; echo planted > s/$f; done",),
        outside="for f in opencode.json crush.json CLAUDE.local.md AGENTS.override.md mise.local.toml; do [ -e $f ] && touch $RAN && ls $f; done",
    ),
}  # fmt: skip
"""By what is tried."""
