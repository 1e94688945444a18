"""Rules, modes and questions: what may run."""

from __future__ import annotations

import string
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from satchel.config import Mode
from satchel.errors import StorageUnwritable, UsageError
from satchel.tools import (
    Annotations,
    Approval,
    ApprovalRequest,
    Decision,
    ModeGate,
    PlannedCall,
    Registry,
    Rule,
    Tool,
    ToolSpec,
    builtin_tools,
    parse_rule,
)
from satchel.tools.box import Box
from satchel.tools.shell import possible_commands, read_commands, words_text
from tests.requirements import requirement
from tests.tools.conftest import Boxing, Session

pytestmark = pytest.mark.anyio
CWD = Path("/home/ann/project")
PROGRAM = Annotations(boxed=True)
HARMLESS = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)


async def tool(name: str) -> Tool:
    found = (await Registry.load([builtin_tools()])).get(name)
    assert found is not None
    return found


async def call(name: str, **input: Any) -> PlannedCall:
    return PlannedCall(call_id="c1", spec=(await tool(name)).spec, input=input)


def bash(command: str, **more: Any) -> PlannedCall:
    spec = ToolSpec(
        name="bash",
        description="",
        input_schema={"type": "object"},
        pattern_key="command",
        annotations=PROGRAM,
    )
    return PlannedCall(call_id="c1", spec=spec, input={"command": command, **more})


def rules(action: Literal["allow", "ask", "deny"], *texts: str) -> list[Rule]:
    return [parse_rule(action, text) for text in texts]


def texts(command: str) -> list[list[str]] | None:
    """The words that the strict reading finds, without quotes."""
    parts = read_commands(command)
    return None if parts is None else [[word.text for word in words] for words in parts]


class Answers:
    """A user who gives these answers, and remembers what they were asked."""

    def __init__(self, *answers: Approval) -> None:
        self.asked: list[list[ApprovalRequest]] = []
        self._answers = list(answers)

    async def approve(self, requests: Sequence[ApprovalRequest]) -> Sequence[Approval]:
        self.asked.append(list(requests))
        await anyio.lowlevel.checkpoint()
        return [self._answers.pop(0) for _ in requests]


def gate(
    mode: Mode, given_rules: Sequence[Rule] = (), approver: Answers | None = None, **options: Any
) -> ModeGate:
    options = {"boxing": Boxing(), **options}
    return ModeGate(mode, given_rules, approver, cwd=CWD, environ={"HOME": "/home/ann"}, **options)


async def allowed(mode: Mode, given_rules: Sequence[Rule], planned: PlannedCall) -> bool:
    [decision] = await gate(mode, given_rules).decide([planned])
    return decision.allowed


# ---- Rules


@pytest.mark.parametrize(
    "text", ["bash", "file_*", "bash(git *)", "mcp__hub__*(x)", "*", "bash(a(b)c)", "bash(a\nb)"]
)
def test_a_rule_is_written_as_it_was_read(text: str) -> None:
    assert parse_rule("allow", text).text == text


@pytest.mark.parametrize(
    "text", ["", "bash(", "bash)", "ba sh", "bash(git *) x", "(git *)", "bash()", "bash( )", "bash[git]"]
)
def test_what_is_no_rule_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(UsageError, match=r"bash\(git \*\)|\(git \*\)"):
        parse_rule("allow", text)


@given(st.text(string.ascii_letters + "*_-", min_size=1), st.text(min_size=1).filter(str.strip))
def test_every_name_and_pattern_can_be_read_back(name: str, pattern: str) -> None:
    rule = parse_rule("deny", f"{name}({pattern})")
    assert (rule.tool, rule.pattern) == (name, pattern)
    assert parse_rule("deny", rule.text) == rule


@requirement("permissions:rule:pattern")
@pytest.mark.parametrize(
    ("command", "is_allowed"),
    [
        ("git status", True),
        ("git", True),
        ("  git   log --oneline ", True),
        ("git log | git shortlog", True),
        ("git add . && git commit -m 'a; b && c'", True),
        ("git log 2>&1", True),
        ("git log >/dev/null", True),
        ("git status &", True),
        ("git status\ngit log\n", True),
        ("git < /etc/passwd", False),
        ("git <<< x", False),
        ("git << E\nrm\nE", False),
        ("git $IFS", False),
        ("git ${x}", False),
        ("git (a)", False),
        ("(git a)", False),
        ("{ git a; }", False),
        ("! git a", False),
        ("gi\\\nt a", False),
        ("git 'a", False),
        ('git "a', False),
        ("git a\\", False),
        ("git a\0b", False),
        ("gitx", False),
        ("/usr/bin/git a", False),
        ("g* a", False),
        ("git a ;; git b", False),
        ("&& git a", False),
        ("git a &&", False),
        ("", False),
        (";", False),
        ("git" + " a" * 40_000, False),
    ],
)
async def test_a_pattern_for_a_command_is_not_fooled(command: str, is_allowed: bool) -> None:
    assert await allowed("ask", rules("allow", "bash(git *)"), bash(command)) is is_allowed


async def test_each_part_may_be_allowed_by_another_rule() -> None:
    two = rules("allow", "bash(git *)", "bash(head)", "bash(wc -l)")
    [decision] = await gate("ask", two).decide([bash("git log | head && git status | wc -l")])
    assert decision == Decision(allowed=True, by="rule", rule="bash(git *)", box=Box())
    # What only prints may stand beside them; nothing else may.
    assert await allowed("ask", two, bash("git log | head -3"))
    assert not await allowed("ask", two, bash("git log | sort"))


@pytest.mark.parametrize(
    ("pattern", "command", "is_allowed"),
    [
        ("npm run *", "npm run", True),
        ("npm run *", "npm runx", False),
        ("npm run*", "npm runx", True),
        ("*", "anything at all", True),
        ("*", "a; b", True),
        ("*", "a $(b)", False),
        ("* --help", "npm --help", True),
        ("git * --stat *", "git log -3 --stat x", True),
        ("git * --stat *", "git log -3", False),
        (r"rm \*", "rm *", True),
        (r"rm \*", "rm '*'", False),
        (r"rm '\*'", "rm '*'", True),
        (r"rm '\*'", "rm *", False),
        (r"rm \*", "rm x", False),
        ("rm 'a b'", r"rm \'a b\'", False),
        ("echo 'a b'", "echo 'a b'", True),
        ("echo 'a b'", "echo a b", False),
        ("echo a b", "echo 'a b'", False),
        ("for f in x; do rm $f; done", "for f in x; do rm $f; done", True),
        ("for f in *; do rm $f; done", "for f in x; do rm $f; done", False),
    ],
)
async def test_stars_and_words(pattern: str, command: str, is_allowed: bool) -> None:
    assert await allowed("ask", rules("allow", f"bash({pattern})"), bash(command)) is is_allowed


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm",
        "ls; rm x",
        "ls && rm x",
        "ls | rm x",
        "ls & rm x",
        "ls\nrm x",
        "$(rm x)",
        "echo `rm x`",
        'echo "$(rm x)"',
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "while rm x; do true; done",
        "! rm x",
        "A=1 rm x",
        "/bin/rm x",
        "sudo rm x",
        "sudo -u ann -- rm x",
        "env A=1 rm x",
        "nohup nice -n 5 rm x",
        "timeout 5 rm x",
        "xargs rm",
        "find . -exec rm {} ;",
        "sh -c 'rm x'",
        'bash -c "rm x"',
        "eval 'rm x'",
        "r''m x",
        'r"m" x',
        "r\\m x",
        "\\rm x",
        "r\\\nm x",
        "rm<x",
        "rm>x",
        "true" + " " * 70_000,
    ],
)
async def test_a_rule_that_denies_finds_the_command_in_every_disguise(command: str) -> None:
    assert not await allowed("bypass", rules("deny", "bash(rm *)"), bash(command))


@requirement("permissions:rule:deny")
@pytest.mark.parametrize(
    "command",
    [
        "git push --force",
        "git push 2>/dev/null --force",
        "git push >'a b' --force",
        "git >a\\ b push --force",
        "git push &>x --force",
        "git push <<<x --force origin",
        "2>x git push --force",
    ],
)
async def test_a_rule_that_denies_reads_on_after_a_redirection(command: str) -> None:
    assert not await allowed("bypass", rules("deny", "bash(git push --force *)"), bash(command))
    assert await allowed("bypass", rules("deny", "bash(git push --tags *)"), bash(command))


@pytest.mark.parametrize("command", ["ls", "git rm x", "rmdir x", "echo farm", "grep -r rm ."])
async def test_a_rule_that_denies_leaves_other_commands_alone(command: str) -> None:
    assert await allowed("bypass", rules("deny", "bash(rm *)"), bash(command))


@given(st.text(alphabet=string.printable + "é\u2028\x00", max_size=60))
def test_reading_a_command_never_fails_and_what_is_understood_is_plain(command: str) -> None:
    parts = read_commands(command)
    generous = [words_text(words) for words in possible_commands(command)]
    if parts is not None:
        assert all(words and words[0].text for words in parts)
        # The generous reading knows all that the strict one does.
        assert {words_text([word.text for word in words]) for words in parts} <= set(generous)


@given(
    st.lists(
        st.lists(
            st.text(alphabet=string.ascii_letters + " ;&|$`'\"\\#*?(){}<>\t", min_size=1, max_size=8),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([" ; ", " && ", " || ", " | ", " & ", "\n", ";"]),
)
def test_quoted_words_are_read_back_whatever_is_in_them(parts: list[list[str]], joint: str) -> None:
    """Words in single quotes mean themselves: the reading gives them back, one list for each command."""

    def quoted(word: str) -> str:
        return "'" + word.replace("'", "'\\''") + "'"

    command = joint.join(" ".join(["run", *map(quoted, words)]) for words in parts)
    assert texts(command) == [["run", *words] for words in parts]


@given(st.text(alphabet="ab *", max_size=12), st.text(alphabet="ab *", max_size=12))
def test_a_pattern_matches_as_its_regular_expression_would(pattern: str, text: str) -> None:
    import re  # noqa: PLC0415

    from satchel.tools.patterns import matcher  # noqa: PLC0415

    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None
    if pattern.endswith(" *"):
        expected = (
            expected or re.fullmatch(".*".join(map(re.escape, pattern[:-2].split("*"))), text) is not None
        )
    assert matcher(pattern)(text) is expected


TOKENS = [
    *"ab12-=!#*?[]{}()<>$`'\"\\;&|", " ", "  ", "\t", "\n", "\r", "&&", "||", "|&", "2>&1", ">/dev/null", "&>/dev/null",
    "< /dev/null", ">a", "<<b", "$(", "$((", "A=", "if", "do", "time", "function", "coproc", "é", "\x07", "\u00a0", ";;", "'a'", '"b"',
    "touch x", "git log", "&>>", ">&", "<>", ">|", "<<E\n", "\nE\n", "<<<", "3>x", "$(touch x)", "`touch x`", "<(touch x)",
    "a[$(touch x)]=1", "PATH=.", "{touch,x}", "\\\n", "for", "case", "esac", "$'\\n'", "\u2028", "[[", "((",
]  # fmt: skip


@requirement("permissions:rule:understood")
@settings(max_examples=600)
@given(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=9).map("".join))
@example("a\n&& b")
@example("a 2>&1b")
@example("a &>/dev/null b")
@example("a 1>&2 & b")
@example("'['")
@example("git log &>/dev/null touch x")
@example("git log\\\n;touch x")
@example("git log 2>&1 >>a")
def test_bash_runs_nothing_that_was_not_read(command: str) -> None:
    """The real shell against the reading: each command that it looks for is one of those that were read."""
    parts = texts(command)
    if parts is None:
        return
    note = 'command_not_found_handle() { printf "%s\\0" "$@" END >&9; }; eval " $1"; wait'
    with tempfile.TemporaryDirectory() as folder:
        # On this PATH no program is found, and bash hands every command with its words to the handler.
        log = Path(folder).parent / f"{Path(folder).name}.log"
        with log.open("wb") as file:
            subprocess.run(
                ["/bin/bash", "-c", f"exec 9>&{file.fileno()}; {note}", "bash", command],
                cwd=folder,
                env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"},
                pass_fds=[file.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=280,
                check=False,
            )
        assert list(Path(folder).iterdir()) == []
        ran = [record.split("\0") for record in log.read_bytes().decode().split("\0END\0")[:-1]]
        log.unlink()
    assert [words for words in ran if words not in parts] == []
    # Something runs first, unless it is a name with a slash, which bash looks for by itself, or `[`, which it has.
    assert ran or "/" in parts[0][0] or parts[0][0] == "[" or len(parts) > 1


# ---- Paths


async def test_a_pattern_for_paths_is_not_fooled_by_dots_or_links(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "src" / "link").symlink_to(tmp_path / "secret")
    one = ModeGate("ask", rules("allow", "file_write(src/*)"), cwd=tmp_path)

    async def may(path: str) -> bool:
        return (await one.decide([await call("file_write", path=path, content="")]))[0].allowed

    assert await may("src/a.py")
    assert await may("./src/sub/a.py")
    assert await may(str(tmp_path / "src" / "a.py"))
    assert await may("other/../src/a.py")
    assert not await may("src/../secret/a.py")
    assert not await may("src/link/a.py")
    assert not await may("src")
    assert not await may("srcs/a.py")
    assert not await may("/etc/src/a.py")


async def test_a_path_that_is_denied_is_found_by_every_way_to_it(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "link").symlink_to("keys")
    one = ModeGate(
        "bypass", rules("deny", "file_*(keys/*)", "file_read(~/.ssh/*)"), cwd=tmp_path, environ={"HOME": "/h"}
    )
    for path in (
        "keys/a",
        "./keys/a",
        "x/../keys/a",
        "link/a",
        str(tmp_path / "keys" / "a"),
        "~/.ssh/id",
        "/h/.ssh/id",
    ):
        [decision] = await one.decide([await call("file_read", path=path)])
        assert (decision.allowed, decision.by) == (False, "rule"), path


# ---- Modes


@requirement("permissions:mode:auto")
@pytest.mark.parametrize(
    ("mode", "name", "input", "is_allowed"),
    [
        ("ask", "think", {"thought": "x"}, True),
        ("ask", "todo", {}, True),
        ("ask", "ask_user", {"question": "x"}, True),
        ("ask", "file_read", {"path": "a.txt"}, True),
        ("ask", "file_read", {"path": "/home/ann/project/sub/a.txt"}, True),
        ("ask", "file_read", {"path": "/var/spill/a.txt"}, True),
        ("ask", "file_read", {"path": "../other/a.txt"}, False),
        ("ask", "file_read", {"path": "/home/ann/projects/a.txt"}, False),
        ("ask", "file_read", {"path": "~/.ssh/id"}, False),
        ("ask", "grep", {"pattern": "x"}, True),
        ("ask", "grep", {"pattern": "x", "path": "/etc"}, False),
        ("ask", "glob", {"pattern": "*"}, True),
        ("ask", "file_write", {"path": "a.txt", "content": ""}, False),
        ("ask", "file_edit", {"path": "a.txt", "old": "a", "new": "b"}, False),
        ("ask", "bash", {"command": "ls"}, False),
        ("auto", "file_read", {"path": "/etc/passwd"}, True),
        ("auto", "grep", {"pattern": "x", "path": "/etc"}, True),
        ("auto", "file_read", {"path": "~/.ssh/id"}, False),
        ("auto", "glob", {"pattern": "*", "path": "/home/ann/.config"}, False),
        ("auto", "file_read", {"path": "/home/ann/project/.env"}, True),
        ("auto", "todo", {}, True),
        ("auto", "file_write", {"path": "a.txt", "content": ""}, False),
        ("auto", "bash", {"command": "ls"}, False),
        ("bypass", "bash", {"command": "rm -rf /"}, True),
        ("bypass", "file_write", {"path": "/etc/passwd", "content": ""}, True),
    ],
)
async def test_what_a_mode_lets_run_without_a_question(
    mode: Mode, name: str, input: dict[str, str], is_allowed: bool
) -> None:
    [decision] = await gate(mode, open_folders=[Path("/var/spill")]).decide([await call(name, **input)])
    assert decision.allowed is is_allowed
    assert decision.by == ("mode" if is_allowed else "nobody")


@requirement("permissions:mode:plan")
@pytest.mark.parametrize(
    ("name", "input", "is_allowed"),
    [
        ("todo", {}, True),
        ("ask_user", {"question": "x"}, True),
        ("file_read", {"path": "/etc/passwd"}, True),
        ("file_read", {"path": "~/.ssh/id"}, False),
        ("file_write", {"path": "a.txt", "content": ""}, False),
        ("bash", {"command": "git push"}, False),
    ],
)
async def test_plan_runs_what_only_reads_and_shows_the_rest_whatever_a_rule_allows(
    name: str, input: dict[str, str], is_allowed: bool
) -> None:
    [decision] = await gate("plan", rules("allow", "bash", "file_write")).decide([await call(name, **input)])
    assert (decision.allowed, decision.by) == (is_allowed, "mode")
    if name == "bash":
        assert decision.reason == (
            "mode plan changes nothing. What would have run: bash(git push). "
            "Go on reading, and propose a plan with propose_plan."
        )


@requirement("permissions:strangers")
@pytest.mark.parametrize("source", ["external", "mcp", "capability"])
@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
async def test_what_a_strangers_tool_says_about_itself_counts_for_nothing(
    mode: Mode, source: Literal["external", "mcp", "capability"]
) -> None:
    spec = ToolSpec(
        name="x", description="", input_schema={"type": "object"}, source=source, annotations=HARMLESS
    )
    assert not await allowed(mode, [], PlannedCall(call_id="c1", spec=spec, input={}))


@requirement("permissions:mode:bypass")
async def test_deny_beats_ask_beats_allow_beats_the_mode() -> None:
    all_three = [*rules("allow", "bash"), *rules("ask", "bash(git *)"), *rules("deny", "bash(git push *)")]
    assert await allowed("ask", all_three, bash("ls"))
    assert not await allowed("auto", all_three, bash("ls && git log"))
    assert not await allowed("bypass", all_three, bash("ls && git push"))
    assert await allowed("bypass", all_three, bash("ls && git log"))
    [decision] = await gate("bypass", all_three).decide([bash("git push")])
    assert (decision.by, decision.rule) == ("rule", "bash(git push *)")
    assert "deny bash(git push *)" in decision.reason


@requirement("permissions:mode:ask-headless")
async def test_without_anyone_to_ask_the_refusal_names_the_rule() -> None:
    [decision] = await gate("ask").decide([bash("git push origin && rm -rf build")])
    assert decision == Decision(
        allowed=False,
        by="nobody",
        wanted=("bash(git push origin && rm -rf build)",),
        reason="bash has to be allowed by the user (mode ask), and nobody is there to be asked. "
        "What would allow it, as permission rules: bash(git push origin && rm -rf build)",
    )


@requirement("tools:files:symlinks")
async def test_an_allowed_call_reaches_what_was_decided_on_and_nothing_else(
    tmp_path: Path, open_session: Callable[..., Session]
) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (other / name).write_text(f"{name}\n")
    (project / "link").symlink_to(other / "a.txt")
    one = ModeGate("ask", [], Answers(Approval(answer="once")), cwd=project)
    session = open_session(project, roots=one.roots)
    assert (await session("file_read", path="link")).is_error
    [decision] = await one.decide([await call("file_read", path="link")])
    assert decision.allowed
    assert (await session("file_read", path="link")).text == "     1\ta.txt"
    assert (await session("file_read", path=str(other / "b.txt"))).is_error
    # The link is changed after the user said yes: what they said yes to is not what it leads to.
    (project / "link").unlink()
    (project / "link").symlink_to(other / "b.txt")
    assert (await session("file_read", path="link")).is_error


async def test_a_new_file_elsewhere_can_be_written_once_allowed(
    tmp_path: Path, open_session: Callable[..., Session]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    one = ModeGate("bypass", [], cwd=project)
    session = open_session(project, roots=one.roots)
    planned = await call("file_write", path="../new/a.txt", content="x")
    assert (await session("file_write", **planned.input)).is_error
    await one.decide([planned])
    assert (
        await session("file_write", **planned.input)
    ).text == f"Created {tmp_path.resolve()}/new/a.txt: 1 line, 1 byte."


# ---- Questions


@requirement("permissions:mode:ask")
async def test_a_rounds_calls_are_asked_in_one_batch() -> None:
    user = Answers(Approval(answer="once"), Approval(answer="no", words="not the build folder"))
    decisions = await gate("ask", rules("allow", "bash(ls)"), user).decide(
        [bash("make"), bash("ls"), bash("rm -r build")]
    )
    assert [decision.allowed for decision in decisions] == [True, True, False]
    assert [decision.by for decision in decisions] == ["user", "rule", "user"]
    assert [[request.call.input["command"] for request in batch] for batch in user.asked] == [
        ["make", "rm -r build"]
    ]
    assert "not the build folder" in decisions[2].reason


async def test_yes_for_once_is_asked_again_and_for_the_session_is_not() -> None:
    user = Answers(Approval(answer="once"), Approval(answer="session"))
    one = gate("ask", [], user)
    for command in ("git log -1", "git log -2", "git log -3"):
        [decision] = await one.decide([bash(command)])
        assert decision.allowed
    assert [batch[0].rules for batch in user.asked] == [("bash(git log *)",), ("bash(git log *)",)]
    assert [rule.text for rule in one.rules] == ["bash(git log *)"]


async def test_yes_for_ever_is_handed_to_who_writes_it_down() -> None:
    written: list[Rule] = []

    async def write(rule: Rule) -> None:
        written.append(rule)

    [decision] = await gate("ask", [], Answers(Approval(answer="always")), on_always=write).decide(
        [bash("make test")]
    )
    assert decision == Decision(allowed=True, by="user", rule="bash(make test)")
    assert written == [parse_rule("allow", "bash(make test)")]


async def test_a_rule_that_can_not_be_written_down_holds_for_the_session() -> None:
    async def write(rule: Rule) -> None:
        raise StorageUnwritable("The disk is full.")

    one = gate("ask", [], Answers(Approval(answer="always")), on_always=write)
    [decision] = await one.decide([bash("make test")])
    assert decision.allowed
    assert decision.reason == "bash(make test) holds for this conversation only: The disk is full."
    assert (await one.decide([bash("make test")]))[0].by == "rule"


async def test_an_answer_settles_what_another_round_waits_to_ask() -> None:
    user = Answers(Approval(answer="session"))
    one = gate("ask", [], user)
    decisions: list[Decision] = []

    async def decide() -> None:
        decisions.extend(await one.decide([bash("make test")]))

    async with anyio.create_task_group() as group:
        group.start_soon(decide)
        group.start_soon(decide)
    assert [decision.allowed for decision in decisions] == [True, True]
    assert len(user.asked) == 1


@pytest.mark.parametrize(
    ("command", "suggested"),
    [
        ("git log -3", ["bash(git log *)"]),
        ("git log", ["bash(git log)"]),
        ("git log -3 | wc -l", ["bash(git log *)", "bash(wc *)"]),
        ("git log -3 | sort", ["bash(git log -3 | sort)"]),
        ("git push origin main", ["bash(git push origin main)"]),
        ("git -C x log", ["bash(git -C x log)"]),
        ("timeout 5 pytest -q", ["bash(timeout 5 pytest -q)"]),
        ("ls -la", ["bash(ls *)"]),
        ("ls", ["bash(ls)"]),
        ("rm -rf build", ["bash(rm -rf build)"]),
        ("rm *.pyc", [r"bash(rm \*.pyc)"]),
        ("python -c 'x = 1'", ["bash(python -c 'x = 1')"]),
        # Not by its parts: `rm -rf x` alone would be right in another folder.
        ("cd a && rm -rf x", ["bash(cd a && rm -rf x)"]),
        ("cat notes.md", ["bash(cat *)"]),
        ("find . -name x", ["bash(find . -name x)"]),
        ("x=$(date); echo $x > *", [r"bash(x=$(date); echo $x > \*)"]),
        ("echo a\\*b > f", [r"bash(echo a\\\*b > f)"]),
    ],
)
async def test_a_suggested_rule_allows_the_call_and_is_narrow(command: str, suggested: list[str]) -> None:
    one = gate("ask")
    assert list(one.suggest(bash(command))) == suggested
    assert await allowed("ask", rules("allow", *suggested), bash(command))


@given(st.text(alphabet="ab \\*';|&$\n(", min_size=1, max_size=20).filter(str.strip))
@example(command="\\;' ' \\;")
async def test_whatever_the_command_the_suggested_rules_allow_it(command: str) -> None:
    one = gate("ask")
    assert await allowed("ask", rules("allow", *one.suggest(bash(command))), bash(command))


async def test_a_suggested_rule_for_a_file_names_its_folder() -> None:
    one = gate("ask")
    assert one.suggest(await call("file_write", path="src/a/b.py", content="")) == ("file_write(src/a/*)",)
    assert one.suggest(await call("file_write", path="notes.md", content="")) == ("file_write(notes.md)",)
    assert one.suggest(await call("file_read", path="/etc/hosts")) == ("file_read(/etc/hosts)",)
    spec = ToolSpec(name="weather", description="", input_schema={"type": "object"}, source="external")
    assert one.suggest(PlannedCall(call_id="c", spec=spec, input={})) == ("weather",)


# ---- What starts another program


@requirement("permissions:always")
async def test_what_is_suggested_outside_of_a_sandbox_is_the_command_itself() -> None:
    assert gate("ask", boxing=None).suggest(bash("git log -3")) == ("bash(git log -3)",)
    assert gate("ask").suggest(bash("git log -3"), outside=True) == ("bash(git log -3)",)
    one = gate("ask", boxing=Boxing("no sandbox"))
    assert (await one.decide([bash("git log -3")]))[0].wanted == ("bash(git log -3)",)


@requirement("permissions:rule:deny")
@pytest.mark.parametrize(
    "command",
    [
        "{rm,-r,x}",
        "{r'm',-r,x}",
        "rm${IFS}-r${IFS}x",
        "rm$IFS-r",
        "busybox rm x",
        "git -c alias.x='!rm y' x",
        "flock lock rm x",
        "ssh host rm x",
    ],
)
async def test_a_rule_that_denies_looks_behind_more_disguises(command: str) -> None:
    assert not await allowed("bypass", rules("deny", "bash(rm *)"), bash(command))


# ---- Where keys are


@pytest.fixture
def ann(tmp_path: Path) -> Path:
    """A home with a key in it, and a project."""
    home = tmp_path.resolve() / "ann"
    for folder in (".ssh", ".config/tool", "project/.github", "project/src"):
        (home / folder).mkdir(parents=True)
    (home / ".ssh/id").write_text("key")
    (home / "project/src/keys").symlink_to(home / ".ssh")
    (home / "project/all").symlink_to("/")
    return home


@requirement("permissions:keys")
@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
@pytest.mark.parametrize("cwd", ["project", ""])
async def test_no_mode_reads_by_itself_where_keys_are(mode: Mode, cwd: str, ann: Path) -> None:
    one = ModeGate(mode, [], None, cwd=ann / cwd, environ={"HOME": str(ann)})
    project = ann / "project"
    paths = [
        "~/.ssh/id",
        str(project / "src/keys/id"),
        f"{project}/all{ann}/.ssh/id",
        f"/proc/self/root{ann}/.ssh/id",
        "/proc/self/environ",
        f"{project}/../.config/tool",
        str(ann.parent / "shadow"),
    ]
    (ann.parent / "shadow").write_text("key")
    (ann.parent / "shadow").chmod(0o640)
    calls = [await call("file_read", path=path) for path in paths]
    # All that is below is searched.
    calls += [await call("grep", pattern="key", path=path) for path in ("~", "/", str(ann.parent))]
    calls += [await call("glob", pattern="**/*", path="~")]
    if not cwd:
        calls += [await call("grep", pattern="key")]
    assert [decision.allowed for decision in await one.decide(calls)] == [False] * len(calls)


@requirement("permissions:keys")
@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
async def test_a_sessions_own_folder_is_read_with_all_that_is_hidden_in_it(mode: Mode, ann: Path) -> None:
    for cwd in ("project", ".config/tool"):
        one = ModeGate(mode, [], None, cwd=ann / cwd, environ={"HOME": str(ann)})
        calls = [await call("grep", pattern="x"), await call("file_read", path=".github/x")]
        assert all(decision.allowed for decision in await one.decide(calls))
    home = ModeGate(mode, [], None, cwd=ann, environ={"HOME": str(ann)})
    calls = [await call("file_read", path="notes.txt"), await call("grep", pattern="x", path="project")]
    # `project` holds a symlink to the key; searches don't follow any.
    assert all(decision.allowed for decision in await home.decide(calls))
    (ann / "project" / "own.txt").write_text("mine")
    (ann / "project" / "own.txt").chmod(0o600)
    for folder in (ann / "project", ann):
        one = ModeGate(mode, [], None, cwd=folder, environ={"HOME": str(ann)})
        [decision] = await one.decide([await call("file_read", path=str(ann / "project" / "own.txt"))])
        assert decision.allowed


@requirement("permissions:rule:deny")
@pytest.mark.parametrize(
    ("rule", "name", "path"),
    [
        ("grep(~/.ssh/*)", "grep", "~"),
        ("grep(~/.ssh/*)", "grep", "~/.ssh"),
        ("grep(~/.ssh/*)", "grep", "/"),
        ("grep(src/*.key)", "grep", "."),
        ("grep(*.key)", "grep", "."),
        ("*(~/.ssh/id)", "glob", "~"),
        ("grep(../.ssh/*)", "grep", "~/project/src/keys"),
    ],
)
async def test_a_rule_that_denies_a_place_denies_searching_the_folders_above_it(
    rule: str, name: str, path: str, ann: Path
) -> None:
    (ann / "project/src").mkdir(exist_ok=True)
    one = ModeGate("bypass", rules("deny", rule), None, cwd=ann / "project", environ={"HOME": str(ann)})
    [decision] = await one.decide([await call(name, pattern="x", path=path)])
    assert not decision.allowed
    [other] = await one.decide([await call(name, pattern="x", path="~/.config")])
    assert other.allowed


@requirement("permissions:rule:deny")
@pytest.mark.parametrize(
    ("rule", "input"),
    [
        ("mcp__files__*(~/.ssh/*)", {"path": "/home/ann/.ssh/id"}),
        ("mcp__files__*(~/.ssh/*)", {"deep": [{"paths": ["x", "/home/ann/project/../.ssh/id"]}]}),
        ("mcp__files__write(rm *)", {"script": "ls; rm x"}),
        ("mcp__files__write(https://example.com/*)", {"to": "HTTPS://EXAMPLE.com/x"}),
    ],
)
async def test_a_rule_that_denies_looks_at_every_text_of_a_tool_that_names_no_field(
    rule: str, input: dict[str, Any]
) -> None:
    spec = ToolSpec(name="mcp__files__write", description="", input_schema={"type": "object"}, source="mcp")
    planned = PlannedCall(call_id="c1", spec=spec, input=input)
    assert not await allowed("bypass", rules("deny", rule), planned)
    assert await allowed(
        "bypass", rules("deny", rule), PlannedCall(call_id="c1", spec=spec, input={"a": "b"})
    )
    # What it would mean for one that allows, nobody can say.
    assert not await allowed("ask", rules("allow", rule), planned)


# ---- Addresses


@requirement("permissions:rule:pattern")
@pytest.mark.parametrize(
    ("pattern", "url", "is_allowed"),
    [
        ("https://docs.python.org/*", "https://docs.python.org/3/", True),
        ("https://docs.python.org/*", "HTTPS://Docs.Python.org", True),
        ("https://docs.python.org/*", "http://docs.python.org/3/", False),
        ("https://docs.python.org/*", "https://docs.python.org.evil.com/", False),
        ("https://docs.python.org/*", "https://docs.python.org:8443/", False),
        ("https://docs.python.org", "https://docs.python.org/", True),
        ("https://docs.python.org", "https://docs.python.org/3/", False),
        ("https://*.python.org/*", "https://docs.python.org/3/", True),
        ("https://*.python.org/*", "https://evil.com/.python.org/", False),
        ("https://*.python.org/*", "https://evil.com?.python.org/", False),
        ("https://*.python.org/*", "https://evil.com#.python.org/", False),
        ("https://*.python.org/*", "https://evil.com\\.python.org/", False),
        ("https://*", "https://anywhere.com/x?y", True),
        ("*", "https://anywhere.com/x?y", True),
        ("*://python.org/Doc/*", "http://PYTHON.org/Doc/x", True),
        ("*://python.org/Doc/*", "http://python.org/doc/x", False),
    ],
)
async def test_a_star_in_a_host_matches_only_a_part_of_the_host(
    pattern: str, url: str, is_allowed: bool
) -> None:
    spec = ToolSpec(name="web_fetch", description="", input_schema={"type": "object"}, pattern_key="url")
    planned = PlannedCall(call_id="c1", spec=spec, input={"url": url})
    assert await allowed("ask", rules("allow", f"web_fetch({pattern})"), planned) is is_allowed


@requirement("permissions:rule:deny")
@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com",
        "https://evil.com/admin/x",
        "HTTPS://EVIL.com/admin",
        "https://evil.com:443/admin",
        "https://evil.com./admin",
        "https://evil%2Ecom/admin",
        "https://evil.com/%61dmin/x",
        "https://evil.com/x/../admin",
        "https://ann@evil.com/admin",
        " https://evil.com/admin",
    ],
)
async def test_a_rule_that_denies_an_address_denies_its_other_spellings(url: str) -> None:
    spec = ToolSpec(name="web_fetch", description="", input_schema={"type": "object"}, pattern_key="url")
    planned = PlannedCall(call_id="c1", spec=spec, input={"url": url})
    assert not await allowed("bypass", rules("deny", "web_fetch(https://evil.com/*)"), planned)
    if "admin" in url:
        assert not await allowed("bypass", rules("deny", "web_fetch(https://evil.com/admin*)"), planned)
    assert await allowed("bypass", rules("deny", "web_fetch(https://evil.com:8443/*)"), planned)
