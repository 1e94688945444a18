"""glob and grep: what they find, what they leave out, with ripgrep and without."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from satchel.tools import ToolResult
from satchel.tools.builtin.ripgrep import find_ripgrep
from satchel.tools.builtin.tree import GlobPattern, walk
from tests.requirements import requirement
from tests.tools.conftest import Session

pytestmark = pytest.mark.anyio
RIPGREP = find_ripgrep({"PATH": os.environ["PATH"]})
ENGINES = [
    "python",
    pytest.param("ripgrep", marks=pytest.mark.skipif(RIPGREP is None, reason="rg is not installed")),
]


@pytest.fixture(params=ENGINES)
def engine(
    request: pytest.FixtureRequest, open_session: Callable[..., Session], project: Path, tmp_path: Path
) -> Session:
    """A session that has ripgrep, and one that has not."""
    programs = tmp_path / "programs"
    programs.mkdir()
    if request.param == "ripgrep":
        (programs / "rg").symlink_to(shutil.which("rg") or "")
    return open_session(project, environ={"PATH": str(programs), "HOME": str(project.parent)})


def fill(folder: Path, files: dict[str, str]) -> None:
    for number, (name, text) in enumerate(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(0, 1_000_000_000 * (1000 - number)))


TREE = {
    "src/app.py": "import os\n\ndef main():\n    return os.name\n",
    "src/deep/er/util.py": "def util():\n    return 1\n",
    "src/app.ts": "return 2;\n",
    "README.md": "Nothing to return here.\n",
    ".github/ci.yml": "return: 3\n",
    ".gitignore": "*.log\n/build/\nnode_modules\n!keep.log\n",
    "debug.log": "return\n",
    "keep.log": "return 4\n",
    "build/out.py": "return 5\n",
    "src/build/kept.py": "return 6\n",
    "src/.gitignore": "secret*\n",
    "src/secret.py": "return 7\n",
    "secret.txt": "return 8\n",
    "node_modules/x/index.js": "return 9;\n",
    ".git/HEAD": "return 10\n",
}
KEPT = [
    ".github/ci.yml",
    "README.md",
    "keep.log",
    "secret.txt",
    "src/app.py",
    "src/app.ts",
    "src/build/kept.py",
    "src/deep/er/util.py",
]


# ---- glob


@requirement("tools:glob")
async def test_glob_gives_the_newest_first_and_leaves_out_what_git_ignores(session: Session) -> None:
    fill(session.cwd, TREE)
    expected = [name for name in TREE if name in KEPT or name.endswith(".gitignore")]
    assert (await session("glob", pattern="**/*")).data == expected
    assert (await session("glob", pattern="**/*.py")).text.split("\n") == [
        "src/app.py",
        "src/deep/er/util.py",
        "src/build/kept.py",
    ]


async def test_glob_patterns_mean_what_shells_mean_by_them(session: Session) -> None:
    fill(session.cwd, TREE)

    async def found(pattern: str, **more: str) -> list[str]:
        names: list[str] = (await session("glob", pattern=pattern, **more)).data
        return sorted(names)

    assert await found("*") == [".gitignore", "README.md", "keep.log", "secret.txt"]
    assert await found("*.md") == ["README.md"]
    assert await found("src/*.py") == ["src/app.py"]
    assert await found("src/*.{py,ts}") == ["src/app.py", "src/app.ts"]
    assert await found("src/**") == sorted(
        name for name in [*KEPT, "src/.gitignore"] if name.startswith("src/")
    )
    assert await found("**/app.*") == ["src/app.py", "src/app.ts"]
    assert await found("src/**/kept.p?") == ["src/build/kept.py"]
    assert await found("src/[a-b]pp.py") == ["src/app.py"]
    assert await found("src/app.py") == ["src/app.py"]
    assert await found("./src/./app.py") == ["src/app.py"]
    assert await found("*.py", path="src") == ["src/app.py"]
    assert await found(f"{session.cwd}/src/*.py") == ["src/app.py"]
    assert await found("*/") == [".github/", "src/"]
    assert await found("**/er/") == ["src/deep/er/"]
    # Who asks for an ignored folder by name wants to see into it.
    assert await found("build/*.py") == ["build/out.py"]
    assert await found("**/*.js", path="node_modules") == ["node_modules/x/index.js"]


async def test_glob_says_what_may_have_been_meant(session: Session) -> None:
    fill(session.cwd, TREE)
    assert (await session("glob", pattern="*.py")).text == (
        "Nothing in . matches *.py. Only this folder was searched; **/*.py also searches the folders below it."
    )
    assert (await session("glob", pattern="**/*.rs")).text == "Nothing in . matches **/*.rs."
    for pattern, text in {
        "": "The pattern is empty. For example, **/*.py finds all Python files.",
        "/": "The pattern is empty. For example, **/*.py finds all Python files.",
        "**/../x": "`..` can't follow `*`, `?`, `[` or `{`. Give the folder as `path`.",
        "../*": "../* leads outside of .. Give the folder as `path`.",
        "/etc/*": "",
        "nowhere/*.py": "There is no nowhere.",
        "README.md/*.py": "README.md is not a folder.",
        "{a,b}" * 10: "The pattern expands to more than 64 patterns. Use fewer braces.",
    }.items():
        result = await session("glob", pattern=pattern)
        assert result.is_error, pattern
        assert text in result.text or "is outside" in result.text


async def test_a_glob_leads_out_of_no_folder_that_was_asked_for(
    open_session: Callable[..., Session], project: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.py").touch()
    wide = open_session(project, roots=[tmp_path])
    for pattern in ("../other/*.py", f"{tmp_path}/other/*.py"):
        assert "leads outside of ." in (await wide("glob", pattern=pattern)).text
    assert (await wide("glob", pattern="*.py", path="../other")).data == [
        str((tmp_path / "other" / "a.py").resolve())
    ]


async def test_many_files_are_cut_with_a_word(session: Session) -> None:
    for number in range(250):
        (session.cwd / f"f{number}").touch()
    result = await session("glob", pattern="**/f*")
    assert len(result.text.split("\n")) == 201
    assert result.text.endswith("[200 of 250; use a narrower pattern or path to see the others]")


async def test_links_are_not_followed_and_odd_names_are_escaped(engine: Session, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("secret\n")
    (engine.cwd / "link").symlink_to(outside)
    (engine.cwd / "file.py").symlink_to(outside / "secret.py")
    (engine.cwd / "loop").symlink_to(".")
    (engine.cwd / "a\nb.py").write_text("secret 1\n")
    (engine.cwd / os.fsdecode(b"\xff.py")).write_text("secret 2\n")
    os.mkfifo(engine.cwd / "pipe.py")
    assert sorted((await engine("glob", pattern="**/*.py")).data) == ["\\udcff.py", "a\\nb.py"]
    assert (await engine("grep", pattern="secret")).text == "a\\nb.py:1:secret 1\n\\udcff.py:1:secret 2"


@given(
    st.lists(st.text(alphabet="ab", min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b", "*", "?", "**", "a*", "*b", "[ab]"]), min_size=1, max_size=4),
)
@example(path=["a"], pattern=["a", "**", "**"])
def test_a_glob_matches_as_its_regular_expression_would(path: list[str], pattern: list[str]) -> None:
    import re  # noqa: PLC0415

    expression = ""
    # Several `**` in a row are one.
    parts = [
        part for part, before in zip(pattern, ["", *pattern], strict=False) if not part == before == "**"
    ]
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            expression += ".*" if last else "(?:.*/)?"
        else:
            expression += part.replace("?", "[^/]").replace("*", "[^/]*") + ("" if last else "/")
    # `**` at the end also matches the folder itself, with nothing below it.
    expression = re.sub(r"/\.\*$", "(?:/.*)?", expression)
    text = "/".join(path)
    assert GlobPattern("/".join(pattern)).matches(text) is (re.fullmatch(expression, text) is not None)


def test_a_hostile_glob_takes_no_time() -> None:
    pattern = GlobPattern("/".join(["**", *["*a*a*a*a*a*a*a*b"] * 3, "**"] * 5))
    assert not pattern.matches("/".join(["a" * 200] * 40))


def test_a_walk_ends_when_its_caller_stops_it(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).touch()
    answers = iter([True, True, True])
    assert [found.path for found in walk(tmp_path, pattern=None, goes_on=lambda: next(answers, False))] == [
        "0",
        "1",
        "2",
    ]


# ---- grep


@requirement("tools:grep")
async def test_grep_gives_file_line_and_text_sorted_by_path(engine: Session) -> None:
    fill(engine.cwd, TREE)
    assert (await engine("grep", pattern=r"\breturn\b")).text.split("\n") == [
        ".github/ci.yml:1:return: 3",
        "README.md:1:Nothing to return here.",
        "keep.log:1:return 4",
        "secret.txt:1:return 8",
        "src/app.py:4:    return os.name",
        "src/app.ts:1:return 2;",
        "src/build/kept.py:1:return 6",
        "src/deep/er/util.py:2:    return 1",
    ]
    assert (await engine("grep", pattern="return", output="files")).text.split("\n") == KEPT
    assert (await engine("grep", pattern="return|def", output="count", path="src")).text.split("\n") == [
        "src/app.py:2",
        "src/app.ts:1",
        "src/build/kept.py:1",
        "src/deep/er/util.py:2",
    ]


async def test_grep_takes_files_folders_globs_case_and_context(engine: Session) -> None:
    fill(engine.cwd, TREE)

    async def found(**input: object) -> list[str]:
        return (await engine("grep", **input)).text.split("\n")

    assert await found(pattern="RETURN 1", ignore_case=True) == ["src/deep/er/util.py:2:    return 1"]
    assert await found(pattern="RETURN 1") == ["No match for 'RETURN 1' in '.'."]
    assert await found(pattern="return", glob="*.ts") == ["src/app.ts:1:return 2;"]
    assert await found(pattern="return", glob="src/**/*.py", output="files") == [
        "src/app.py",
        "src/build/kept.py",
        "src/deep/er/util.py",
    ]
    assert await found(pattern="return", glob="*.log", output="files") == ["keep.log"]
    assert await found(pattern="return", path="src/app.ts") == ["src/app.ts:1:return 2;"]
    assert await found(pattern="return", path="debug.log") == ["debug.log:1:return"]
    assert await found(pattern="return", path="build") == ["build/out.py:1:return 5"]
    assert await found(pattern="main|util", context=1) == [
        "src/app.py-2-",
        "src/app.py:3:def main():",
        "src/app.py-4-    return os.name",
        "--",
        "src/deep/er/util.py:1:def util():",
        "src/deep/er/util.py-2-    return 1",
    ]
    assert await found(pattern="-- x") == ["No match for '-- x' in '.'."]
    assert await found(pattern="--version") == ["No match for '--version' in '.'."]


async def test_context_of_near_matches_is_shown_once(engine: Session) -> None:
    fill(engine.cwd, {"a": "".join(f"{number}\n" for number in range(1, 21))})
    assert (await engine("grep", pattern="^(5|7|15)$", context=1)).text.split("\n") == [
        "a-4-4",
        "a:5:5",
        "a-6-6",
        "a:7:7",
        "a-8-8",
        "--",
        "a-14-14",
        "a:15:15",
        "a-16-16",
    ]


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "*a", "[z-a]", "(?P<n>"])
async def test_what_is_no_regular_expression_is_said(engine: Session, pattern: str) -> None:
    result = await engine("grep", pattern=pattern)
    if not result.is_error:
        # Some dialects take what others do not.
        assert result.text.startswith("No match")
        return
    assert result.text.startswith(f"The pattern {pattern!r} is not a regular expression: ")


async def test_look_around_works_everywhere(engine: Session) -> None:
    fill(engine.cwd, {"a": "foobar\nfoobaz\n"})
    assert (await engine("grep", pattern="foo(?=baz)")).text == "a:2:foobaz"


@pytest.mark.parametrize("pattern", ["a\nb", "a\0b"])
async def test_a_pattern_is_for_one_line(engine: Session, pattern: str) -> None:
    assert (await engine("grep", pattern=pattern)).is_error


async def test_matches_are_limited_and_it_says_so(engine: Session) -> None:
    fill(engine.cwd, {"a": "x\n" * 500, "b": "y" * 10_000 + "\n", "c": f"{'z' * 400}\n" * 500})
    result = await engine("grep", pattern="x", limit=3)
    assert result.text.split("\n") == [
        "a:1:x",
        "a:2:x",
        "a:3:x",
        "[the first 3; there are more: narrow the pattern, the path or the glob]",
    ]
    assert len((await engine("grep", pattern="x")).text.split("\n")) == 201
    assert (await engine("grep", pattern="y+")).text == f"b:1:{'y' * 500} […]"
    long = await engine("grep", pattern="z", limit=1000)
    assert len(long.text) < 27_000
    assert "the rest is too long" in long.text


async def test_binary_files_are_left_out_and_said_when_asked_for(engine: Session) -> None:
    (engine.cwd / "a.bin").write_bytes(b"match\0\n")
    (engine.cwd / "b.txt").write_bytes(b"match \xff\n")
    (engine.cwd / "c.txt").write_bytes("match é\n".encode("utf-16"))
    assert (await engine("grep", pattern="match")).text == "b.txt:1:match \ufffd\nc.txt:1:match é"
    assert "a.bin is not text: binary, 7 bytes" in (await engine("grep", pattern="match", path="a.bin")).text
    (engine.cwd / "d.log").write_bytes(b"match 1\n" * 20_000 + bytes(5000) + b"\nmatch 2\n")
    (engine.cwd / "e.txt").write_bytes(b"match 3\n")
    assert (await engine("grep", pattern="match [23]", output="files", path="e.txt")).text == "e.txt"
    assert (await engine("grep", pattern="match 3")).text == "e.txt:1:match 3"
    os.mkfifo(engine.cwd / "pipe")
    assert (await engine("grep", pattern="x", path="pipe")).text == "pipe is neither a file nor a folder."


async def test_a_regular_expression_that_takes_for_ever_is_stopped(
    open_session: Callable[..., Session], project: Path
) -> None:
    (project / "a").write_text("a" * 60 + "\n")
    slow = open_session(project, environ={"PATH": ""}, timeout_s=4)
    result = await slow("grep", pattern="(a|a)+$|(a+)+b")
    if "No match" not in result.text:
        assert result.text.startswith("a:1:")
    hostile = await slow("grep", pattern="(a+)+b")
    assert hostile == ToolResult(
        text="No match for '(a+)+b' in '.'. stopped after 1 s; narrow the path, the glob or the pattern",
        data={"matches": 0},
    )


async def test_a_search_that_is_cancelled_ends(open_session: Callable[..., Session], project: Path) -> None:
    (project / "a").write_text("a" * 60 + "\n")
    slow = open_session(project, environ={"PATH": ""}, timeout_s=600)
    with anyio.move_on_after(0.5) as scope:
        await slow("grep", pattern="(a+)+b")
    assert scope.cancelled_caught


@pytest.fixture
def here() -> Path:
    return Path(__file__).resolve().parents[2]


@requirement("tools:grep")
@pytest.mark.skipif(RIPGREP is None, reason="rg is not installed")
async def test_both_engines_say_the_same_of_a_real_tree(
    open_session: Callable[..., Session], tmp_path: Path, here: Path
) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(here / "src", tree, ignore=shutil.ignore_patterns("__pycache__"))
    fast, slow = open_session(tree), open_session(tree, environ={"PATH": ""})
    for input in (
        {"pattern": r"def \w+\("},
        {"pattern": "import", "output": "count"},
        {"pattern": "Tool[A-Z]", "context": 2, "glob": "*.py", "limit": 40},
        {"pattern": "the", "ignore_case": True, "output": "files", "limit": 1000},
    ):
        assert await fast("grep", **input) == await slow("grep", **input)
