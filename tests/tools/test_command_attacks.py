"""Lines that hold more than plain commands: no star covers them. And whose repositories git trusts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.tools.conftest import Session
from tests.tools.test_permissions import allowed, bash, rules

pytestmark = pytest.mark.anyio

CONSTRUCTS = [
    # The red team's.
    "git log &2>/dev/null touch x",
    "git log &>/dev/null touch x",
    "git log &>x",
    "git log &>>x",
    # Expansions that run code, however they are written.
    "git log $(touch x)",
    'git log "$(touch x)"',
    "git log `touch x`",
    'git log "`touch x`"',
    "git log <(touch x)",
    "git log >(touch x)",
    "git log $((a[$(touch x)]))",
    "git log $[a[$(touch x)]]",
    "git log ${a[$(touch x)]}",
    "git log ${a:-$(touch x)}",
    "git log ${a@P}",
    "git log $'\\x41'",
    'git log $"a"',
    "git log {a,b}",
    "git log {1..3}",
    # Redirections that write, and here-documents.
    "git log >x",
    "git log > x",
    "git log >>x",
    "git log >|x",
    "git log >&x",
    "git log <>x",
    "git log 3>x",
    "git log {fd}>x",
    "git log >/dev/null >x",
    "git log >/dev/nullx",
    "git log >/dev/null/../../tmp/x",
    "git log 2>&1x",
    "git log 2>&1>x",
    ">x git log",
    "git log <<E\n$(touch x)\nE",
    "git log <<'E'\na\nE",
    "git log <<<$(touch x)",
    # Other commands, and constructs that hold them.
    "git log\ntouch x",
    "git log;touch x",
    "git log;;touch x",
    "git log&touch x",
    "git log&&touch x",
    "git log||touch x",
    "git log|touch x",
    "git log|&touch x",
    "git log\r\ntouch x",
    "git log >/dev/null\ntouch x",
    "git log 2>&1|touch x",
    "git log\\\n;touch x",
    "git log #\ntouch x",
    "git log 'a'#b\ntouch x",
    "(git log; touch x)",
    "{ git log; touch x; }",
    "! touch x",
    "time touch x",
    "if git log; then touch x; fi",
    "while git log; do touch x; done",
    "for a in x; do touch $a; done",
    "case a in a) touch x;; esac",
    "select a in x; do touch x; done",
    "[[ -n a ]] && touch x",
    "((a=1)) && touch x",
    "coproc touch x",
    "git() { touch x; }; git log",
    "function git { touch x; }; git log",
    "alias git='touch x'; git log",
    # Assignments that change what the same words do.
    "PATH=. git log",
    "LD_PRELOAD=./x.so git log",
    "GIT_PAGER='touch x' git log",
    "GIT_EXTERNAL_DIFF=./x git diff",
    "GIT_CONFIG_COUNT=1 git log",
    "PATH=.; git log",
    "PATH+=:. git log",
    "a[$(touch x)]=1 git log",
    "export PATH=.; git log",
    "declare -x PATH=.; git log",
    "readonly PATH=.; git log",
    "hash -p ./x git; git log",
    "trap 'touch x' EXIT; git log",
    "cd sub; touch x; git log",
    # Names that are not what they seem.
    "gi\\\nt log; touch x",
    "g\\it log; touch x",
    "git\u00a0log; touch x",
    "git log\u2028touch x; touch x",
    "git log \x1b; touch x",
    "git lo'g' ; 'touch' x",
    "'git log'",
    "./git log",
    "git log; " * 400 + "touch x",
    "~/git log",
    "g?t log",
]


@requirement("permissions:rule:understood")
@pytest.mark.parametrize("command", CONSTRUCTS)
async def test_a_star_covers_only_plain_commands_that_were_read_completely(command: str) -> None:
    harmless = rules("allow", "bash(git *)", "bash(printf *)", "bash(cd *)", "bash(for *)", "bash(time *)")
    assert not await allowed("ask", harmless, bash(command))


@requirement("tools:bash:git")
async def test_git_does_not_take_files_of_a_checkout_for_a_repository(
    open_session: Callable[..., Session], project: Path
) -> None:
    planted = project / "planted"
    marker = project / "marker"
    for folder in ("objects", "refs"):
        (planted / folder).mkdir(parents=True)
    (planted / "HEAD").write_text("ref: refs/heads/main\n")
    (planted / "config").write_text(
        f'[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = "touch {marker}; false"\n'
    )
    session = open_session(project)
    for command in ("cd planted && git status", "git status"):
        result = await session("bash", command=command)
        assert "fatal: cannot use bare repository" in result.text
    assert not marker.exists()
    # The settings that the user's own environment holds stay in force.
    own = open_session(
        project,
        environ={
            **session.context.environ,
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "a.b",
            "GIT_CONFIG_VALUE_0": "c",
        },
    )
    assert (
        "stdout:\nc\n"
        in (await own("bash", command="git config --get a.b && git config core.fsmonitor")).text
    )
