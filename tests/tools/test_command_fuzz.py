"""Random command lines that a star covers, against a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from satchel.tools.patterns import covers
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
