"""Random command lines, allowed by rules that look harmless, against real shells and real programs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from satchel.tools.builtin.bash import GIT_SETTINGS, QUIET
from satchel.tools.patterns import covers
from satchel.tools.programs import PROGRAMS, ProgramUsage
from satchel.tools.shell import read_commands
from tests.requirements import requirement

CANARY = '#!/bin/sh\necho "$0 $*" >>canary\n'
"""Stands for every program that must not start: it leaves a trace."""
NOT_FOUND = 'command_not_found_handle() { printf "%s\\0" "$@" END >&9; }; eval " $1"; wait'


def is_allowed(command: str, *patterns: str) -> bool:
    commands = read_commands(command)
    return commands is not None and all(any(covers(each, words) for each in patterns) for words in commands)


def snapshot(folder: Path) -> dict[str, bytes]:
    # Git refreshes its index and its locks; what is in there runs nothing.
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "index")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


# ---- The grammar of commands

PLAIN = [
    "git log",
    "git log -3",
    "echo a",
    "echo 'b; c'",
    'echo "d"',
    " ",
    " ",
    " -n",
    " a",
    " ~",
    " *",
    ";",
    "|",
    "&",
    "\n",
    " 2>&1",
    " >/dev/null",
]
HOSTILE_PIECES = [
    "touch x", "./x", "x", "&&", "||", "|&", "&>", "&>>", ">&", ">", ">>", "<", "<>", ">|", "<<E\n", "\nE\n", "<<<", "2>&1",
    "2>/dev/null", "&2>/dev/null", "</dev/null", "1>&2", "3>x", "$(touch x)", "`touch x`", "<(touch x)", "$((a[$(touch x)]))",
    "${a[$(touch x)]}", "a[$(touch x)]=1", "PATH=.", "{", "}", "{touch,x}", "(", ")", "'", '"', "\\", "\\\n", "#", "!", "time", "if",
    "then", "fi", "do", "done", "for", "case", "in", "esac", "function", "coproc", "exec", "eval", "command", "--", "?", "[a]", "$", "$a",
    "$'\\n'", "=", "%", "\t", "\r", "\u00a0", "\u2028", "\x01", "é", "1", "2", "printf -v a 1", ";;", "[[", "]]", "((", "))",
]  # fmt: skip


@st.composite
def command_lines(draw: st.DrawFn) -> str:
    """Plain commands, with up to two hostile pieces at any place."""
    line = "".join(draw(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=7)))
    for piece in draw(st.lists(st.sampled_from(HOSTILE_PIECES), max_size=2)):
        at = draw(st.integers(0, len(line)))
        line = line[:at] + piece + line[at:]
    return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where nothing may appear; it holds an executable and files whose names are options."""
    path = tmp_path_factory.mktemp("fuzz")
    (path / "x").write_text(CANARY)
    (path / "x").chmod(0o755)
    for name in ("a", "b", "-n", "--output=out"):
        (path / name).write_text("a\n")
    return path


@requirement("permissions:rule:understood")
@settings(max_examples=max(300, settings().max_examples))
@given(command=command_lines())
@example(command="git log &2>/dev/null touch x")
@example(command="git log &>/dev/null touch x")
@example(command="git log\\\n;touch x")
@example(command="git log >/dev/null touch x")
@example(command="git log 2>&1\n./x")
@example(command="echo 'b; c'&git log -3")
@example(command="git log|echo a||git log")
@example(command="git log \\; touch x")
@example(command="git log >x")
@example(command="git log 2>&1 >>a")
def test_what_a_rule_allows_starts_nothing_else_in_bash(command: str, folder: Path) -> None:
    if not is_allowed(command, "git log *", "echo *"):
        return
    before = sorted(path.name for path in folder.iterdir())
    log = folder.parent / f"{folder.name}.log"
    with log.open("wb") as file:
        # On this PATH no program is found, and bash hands every command to the handler.
        subprocess.run(
            ["/bin/bash", "-c", f"exec 9>&{file.fileno()}; {NOT_FOUND}", "bash", command],
            cwd=folder,
            env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"},
            pass_fds=[file.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=280,
            check=False,
        )
    started = [record.split("\0")[:2] for record in log.read_bytes().decode().split("\0END\0")[:-1]]
    assert all(words == ["git", "log"] for words in started)
    assert sorted(path.name for path in folder.iterdir()) == before


# ---- The table of programs

HOSTILE = [
    "./x", "out", "--output=out", "-oout", "-o", "-exec", "--exec=./x", "-e", "-f", "--pre=./x", "-x", "e", "w out", "1e ./x",
    "s/a/.\\/x/e", "s/a/b/w out", "s/[/]a/g;s/w out/y/", "BEGIN{system(\"./x\")}", "BEGIN{print>\"out\"}", "{print|\"./x\"}",
    "--compress-program=./x", "--checkpoint-action=exec=./x", "--to-command=./x", "-I./x", "-c", "core.pager=./x", "-C", "--git-dir=.",
    "%G?", "ext::./x", "SHELL=./x", "A!=./x", "+%F", "+!./x", "@a", "*", "-*", "?", "./*", "{}", ";", "+", "(", ")", "!", "-delete",
    "-fprint", "-fprintf", "--files0-from=a", "a[$(./x)]", "~", "--", "-", "-1", "5", "HEAD", "HEAD:a", "a", "b", "sub", "a/../b",
]  # fmt: skip
NOT_RUN = frozenset(
    ["curl", "git", "gtar", "less", "make", "man", "rsync", "scp", "split", "ssh", "tar", "wget", "zip"]
)
"""What needs a network or a terminal, or writes by its plain use."""
CHECKED = sorted(
    name
    for name, usage in PROGRAMS.items()
    if not usage.free and usage.runs is None and name not in NOT_RUN and shutil.which(name)
)
FREE = sorted(
    name
    for name, usage in PROGRAMS.items()
    if usage.free and name not in ("cd", "pgrep", "pr", "ps", "sleep", "tail", "type") and shutil.which(name)
)
GIT = sorted(name for name, usage in PROGRAMS["git"].subcommands.items() if usage.proposed)


def options_of(usage: ProgramUsage) -> list[str]:
    """The options as they would be written, where they take a value with the equals sign that waits for it."""
    listed = f"{usage.options} {usage.words}".split()
    found: list[str] = []
    for entry in listed:
        if entry.startswith("--") or usage.words:
            found.append(entry.replace("[=]", "="))
        else:
            found += [f"-{letter}" for letter in entry.removesuffix("[=]").removesuffix("=")[1:]]
    return found


@st.composite
def commands(draw: st.DrawFn) -> tuple[str, str]:
    """A rule and a command: one program with listed options, hostile words, and hostile words as values."""
    kind = draw(st.integers(0, 9))
    name = "git" if kind < 3 else draw(st.sampled_from(FREE if kind == 9 else CHECKED))
    usage, head = PROGRAMS[name], name
    if name == "git":
        subcommand = draw(st.sampled_from(GIT))
        usage, head = PROGRAMS["git"].subcommands[subcommand], f"git {subcommand}"
    words: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        option = draw(st.sampled_from([*options_of(usage), ""]))
        value = draw(st.sampled_from(HOSTILE))
        quoted = value if draw(st.booleans()) and not set(value) & set("();{}!$\"'|> ") else f"'{value}'"
        if option.endswith("=") and not usage.words:
            words.append(f"{option}{quoted}")
        else:
            words += [option.removesuffix("=")] if option else []
            words += [quoted] if not option or draw(st.booleans()) else []
    return f"{head} *", " ".join([head, *words])


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A repository with hostile files, and an environment in which the helpers that programs may start are canaries."""
    path = tmp_path_factory.mktemp("workplace")
    helpers = tmp_path_factory.mktemp("helpers")
    for name in (
        "gpg",
        "gpgsm",
        "ssh-keygen",
        "ssh",
        "rsh",
        "gzip",
        "xz",
        "pr",
        "less",
        "more",
        "pager",
        "touch",
        "vi",
        "diff3",
    ):
        (helpers / name).write_text(CANARY)
        (helpers / name).chmod(0o755)
    count = len(GIT_SETTINGS)
    pairs = [pair for at, (key, value) in enumerate(GIT_SETTINGS.items()) for pair in ((f"GIT_CONFIG_KEY_{at}", key), (f"GIT_CONFIG_VALUE_{at}", value))]  # fmt: skip
    environ = {
        "PATH": f"{helpers}:{os.environ['PATH']}", "HOME": str(path), "LC_ALL": "C.UTF-8", **QUIET,
        **dict(pairs), "GIT_CONFIG_COUNT": str(count), "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_NOSYSTEM": "1",
    }  # fmt: skip
    for name in ("a", "b", "sub/a", "-n", "--output=out", "-o", "--pre=x"):
        file = path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("a\nb\n./x\n")
    (path / "x").write_text(CANARY)
    (path / "x").chmod(0o755)

    def git(*words: str, stdin: str = "") -> str:
        return subprocess.run(
            ["git", *words],
            cwd=path,
            env=environ,
            input=stdin,
            check=True,
            capture_output=True,
            text=True,
            timeout=280,
        ).stdout.strip()

    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "a")
    # Whoever looks at the signature starts the program that is configured.
    head, _, message = git("cat-file", "commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n AAAA\n -----END PGP SIGNATURE-----"
    git(
        "reset",
        "-q",
        git("hash-object", "-w", "-t", "commit", "--stdin", stdin=f"{head}\n{signature}\n\n{message}\n"),
    )
    for key in ("gpg.program", "core.pager", "core.editor", "core.sshCommand"):
        git("config", key, "./x")
    return path, environ


def is_unchanged_by(lines: Sequence[str], workplace: tuple[Path, dict[str, str]]) -> bool:
    """Whether command lines, run by one shell, leave no trace in the folder; if they do, it is removed."""
    path, environ = workplace
    before = snapshot(path)
    subprocess.run(
        ["/bin/bash", "-c", 'for line; do eval " $line"; done', "bash", *lines],
        cwd=path,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=280,
        check=False,
    )
    after = snapshot(path)
    for name in {*before, *after}:
        if name not in before:
            (path / name).unlink()
        elif after.get(name) != before[name]:
            (path / name).write_bytes(before[name])
    return after == before


@requirement("permissions:rule:programs")
@pytest.mark.parametrize("name", [*CHECKED, *(f"git {subcommand}" for subcommand in GIT)])
def test_no_listed_option_runs_or_writes_what_it_is_given(
    name: str, workplace: tuple[Path, dict[str, str]]
) -> None:
    """Each option with a value that would be started if it were a program, and changed if it were an output."""
    program, _, subcommand = name.partition(" ")
    usage = PROGRAMS[program].subcommands[subcommand] if subcommand else PROGRAMS[program]
    # Most of git's readers share the options of `git log`.
    known = (
        set(options_of(PROGRAMS["git"].subcommands["log"])) if subcommand and subcommand != "log" else set()
    )
    lines: list[str] = []
    for option in sorted(set(options_of(usage)) - known):
        value = option if option.endswith("=") and not usage.words else f"{option.removesuffix('=')} "
        lines += (
            [f"{name} {value}./x a", f"{name} a {value}./x"] if program != "git" else [f"{name} {value}./x"]
        )
    lines = [line for line in lines if is_allowed(line, f"{name} *")]
    if not is_unchanged_by(lines, workplace):
        pytest.fail(str([line for line in lines if not is_unchanged_by([line], workplace)]))


@requirement("permissions:rule:programs", "permissions:always")
@settings(max_examples=max(120, settings().max_examples))
@given(rule_and_command=commands())
@example(rule_and_command=("uniq *", "uniq a out"))
@example(rule_and_command=("sort *", "sort -u a -oout"))
@example(rule_and_command=("git log *", "git log --format=%GS"))
@example(rule_and_command=("find *", "find . -fprint out"))
def test_what_a_star_covers_runs_and_writes_nothing_else(
    rule_and_command: tuple[str, str], workplace: tuple[Path, dict[str, str]]
) -> None:
    rule, command = rule_and_command
    assert not is_allowed(command, rule) or is_unchanged_by([command], workplace)


# ---- Scripts

SED = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "1", "$", "/a/", "/[/]/", r"\,a,", "1,2", "/a/,/b/", "1~2", "0,/[^/]a/", "/a\\/", "/[a"]),
        st.sampled_from(["", "", "!", " "]),
        st.sampled_from([
            "p", "d", "=", "q", "l", "s/a/b/", "s/a/b/g", "s/a/./p", "y/a/b/", "s/[/]/a/", "s/[^]/]a/b/g", r"s/a\/b/c/",
            "e ./x", "e", "w out", "W out", "r a", "R a", "a w out", "i\\\nx", "c x", "{p", "}", "b", "t", "s/a/b/w out",
            "s/.*/.\\/x/e", "s/.*/.\\/x/pe", "s,a,b,w out", "s|a|b|e", "s/a/b/I;w out", r"s/a\/w out/b/", "s/w out/a/", "/w out",
        ]),
    ),
)  # fmt: skip
AWK = st.sampled_from([
    "print", "print $1", "n++", "x=1", "next", "print length($0)", 'printf "%s", $1', 'print "a;b"', "if (NR<2) print", 'sub(/a/, "b")',
    'system("./x")', 'print > "out"', 'print >> "out"', 'printf("a") > "out"', 'print | "./x"', '"./x" | getline', '"./x" |& getline y',
    'getline < "a"', 'f="system"; @f("./x")', 'close("./x")', 'sys\\\ntem("./x")', 'print("a") > ("o" "ut")', 'system ("./x")', "f(1)",
])  # fmt: skip


@requirement("permissions:rule:programs")
@settings(max_examples=max(100, settings().max_examples))
@given(
    program=st.sampled_from(["sed", "sed -n", "sed -E"]),
    commands=st.lists(SED, min_size=1, max_size=4),
    joint=st.sampled_from([";", "\n", "; ", ""]),
)
@example(program="sed", commands=["s/[/]a/g", "s/w out/y/"], joint=";")
@example(program="sed -n", commands=["s/a/b/w out"], joint="")
@example(program="sed", commands=["1e ./x"], joint="")
def test_scripts_of_sed_that_a_star_covers_only_print(
    program: str, commands: list[str], joint: str, workplace: tuple[Path, dict[str, str]]
) -> None:
    line = f"{program} {shlex.quote(joint.join(commands))} a"
    assert not is_allowed(line, "sed *") or is_unchanged_by([line], workplace)


@requirement("permissions:rule:programs")
@settings(max_examples=max(100, settings().max_examples))
@given(
    program=st.sampled_from(sorted({"awk", "gawk", "mawk"} & set(CHECKED)) or ["awk"]),
    when=st.sampled_from(["", "BEGIN", "END", "/a/", "NR==1"]),
    statements=st.lists(AWK, min_size=1, max_size=3),
    joint=st.sampled_from([";", "\n", " "]),
)
@example(program="awk", when="BEGIN", statements=['sys\\\ntem("./x")'], joint=";")
@example(program="awk", when="BEGIN", statements=['system("./x")'], joint=";")
@example(program="awk", when="", statements=['print > "out"'], joint=";")
def test_programs_of_awk_that_a_star_covers_only_print(
    program: str, when: str, statements: list[str], joint: str, workplace: tuple[Path, dict[str, str]]
) -> None:
    line = f"{program} {shlex.quote(f'{when}{{{joint.join(statements)}}}')} a"
    assert not is_allowed(line, "*awk *") or is_unchanged_by([line], workplace)
