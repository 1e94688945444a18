"""What a model can do with skills: read them, and run their scripts in a fresh sandbox."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, Literal

import anyio
import anyio.to_thread

from satchel.capabilities.running import LayerMaker
from satchel.capabilities.skills import Skill, Skills
from satchel.errors import NotFound, UsageError
from satchel.messages import FileBlock
from satchel.sandbox.port import Artifact, CommandEntry, Limits, RunResult, RunSpec, Sandbox
from satchel.tools.display import Display
from satchel.tools.function import function_tool
from satchel.tools.kept import keep_seen
from satchel.tools.paths import Places
from satchel.tools.port import Annotations, Tool, ToolContext, ToolResult

_MOST_WALL_S: Final = 180.0
_PREPARATION_S: Final = 120.0
"""What a call may take beyond the run: packages may have to be installed first."""
_LIMITS: Final = Limits(wall_s=_MOST_WALL_S, cpu_s=150, memory_mb=1024, processes=64, file_mb=64, tmp_mb=256)
_INTERPRETERS: Final = {
    ".py": ("python",),
    ".sh": ("bash",),
    ".bash": ("bash",),
    ".js": ("node",),
    ".mjs": ("node",),
    ".cjs": ("node",),
}
"""By the end of the file's name; other scripts must be executable."""
_FOLDER: Final = "{skill}"
_KEPT: Final = """\
import os, sys
os.chdir("out")
os.makedirs("out", exist_ok=True)
"""
"""Scripts write where they start, as the texts of skills expect it. A folder there is for those that write to out/."""
_KEPT_IN_SHELL: Final = 'cd out && mkdir -p out && exec "$@"'
_RUN_CODE: Final = f"""\
{_KEPT}folder, code = sys.argv[1:3]
sys.path[:0] = [folder]
sys.argv = ["code.py", *sys.argv[3:]]
exec(compile(code, "code.py", "exec"), {{"__name__": "__main__"}})
"""
"""Runs code as if it were a script in the skill's folder, so that it can import the skill's modules."""
_RUN_SCRIPT: Final = f"""\
import runpy
{_KEPT}folder, script = sys.argv[1:3]
sys.path[:0] = [os.path.dirname(script), folder]
sys.argv = sys.argv[2:]
runpy.run_path(script, run_name="__main__")
"""
"""Runs a script that may import from its own folder, as `python FILE` does, and from the skill's, as `python -m`."""
_MOST_PATHS: Final = 8
"""Files that are named with their whole paths."""
_MOST_NAMED: Final = 60
_MOST_CODE: Final = 60_000
"""Characters: an argument of a program has at most 128 KiB."""
_INLINE = re.compile(r"(?m)^# /// script[ \t]*$\s(?P<content>(?:^#(?:| .*)$\s)+)^# ///[ \t]*$")
"""Metadata inside of a script (PEP 723)."""
_NO_PROGRAM = re.compile(r"(?m)No such file or directory: '([\w+-]+)'$|([\w+-]+): (?:command )?not found$")
"""Where Python and shells say that there is no such program, with its name."""
_MOST_SCRIPT_BYTES: Final = 1_000_000
_RUNS: Final = Annotations(read_only=True, destructive=False, idempotent=False, open_world=False)
"""It sees copies and changes nothing outside of its sandbox."""
_READS: Final = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)
DISPLAY: Final = Display(kind="execute")
"""Of `run_skill`; `read_docs` is shown as that of capabilities."""


class SkillTools:
    """A toolset: `run_skill`, and `read_docs` unless capabilities bring it. It is empty if there are no skills.

    Attributes:
        skills: What there is.
        reads: Offer `read_docs` too.
    """

    def __init__(
        self,
        skills: Skills,
        *,
        sandbox: Callable[[], Awaitable[Sandbox]],
        layers: LayerMaker,
    ) -> None:
        """Take the skills.

        Args:
            skills: Looked at when the tools are listed.
            sandbox: Opens the sandbox when a script runs.
            layers: Gives a script's packages.
        """
        self.skills = skills
        self._sandbox = sandbox
        self._layers = layers
        self.reads = True
        self._thread = anyio.CapacityLimiter(1)

    async def tools(self) -> Sequence[Tool]:
        """The tools, as above."""
        await self.look()
        if not self.skills.all:
            return ()
        return (*((self._read(),) if self.reads else ()), self._run())

    async def look(self) -> None:
        """Look for skills, as `tools` does."""
        await anyio.to_thread.run_sync(self.skills.look, limiter=self._thread)

    def any(self) -> bool:
        """Whether there are skills."""
        return bool(self.skills.all)

    async def read(self, name: str, file: str) -> ToolResult | None:
        """A document for the `read_docs` of capabilities; None if there is no skill of that name.

        Raises:
            NotFound: The skill has no such file.
            UsageError: The file is not text, or outside of the skill.
        """
        names = {skill.name for skill in self.skills.all}
        if not names or name.strip() not in {"skills", *names}:
            return None
        text = await anyio.to_thread.run_sync(self.skills.read, name, file, limiter=self._thread)
        return ToolResult(text=text, untrusted=True)

    def _read(self) -> Tool:
        async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
            text = await context.blocking(self.skills.read, input["name"], input.get("file", ""))
            return ToolResult(text=text, untrusted=True)

        return function_tool(
            call,
            name="read_docs",
            description="Read the document of a skill, or another of its files. Read it before you follow a skill.",
            properties={
                "name": {"type": "string", "minLength": 1, "description": "Of the skill"},
                "file": {"type": "string", "description": "Another of its files (default SKILL.md)"},
            },
            required=["name"],
            annotations=_READS,
        )

    def _run(self) -> Tool:
        return function_tool(
            self._call,
            name="run_skill",
            description="Run a script of a skill, or Python code that imports its modules, in a sandbox without "
            f"network. It sees the skill's folder (written {_FOLDER} in an argument) and the named files; nothing else "
            "of the user. Its working folder is empty. "
            "What it writes there is kept, and the result says where. Use it instead of bash for the commands that a "
            "skill's text names; bash can read the folder too, for those that need the network or change files.",
            properties={
                "name": {"type": "string", "minLength": 1, "description": "Of the skill"},
                "script": {
                    "type": "string",
                    "minLength": 1,
                    "description": "Path of the script in the skill, such as scripts/convert.py",
                },
                "code": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": _MOST_CODE,
                    "description": "Python code in place of a script",
                },
                "args": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": 100,
                    "description": "Its arguments; files as they are named in `files`",
                },
                "files": {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "maxItems": 100,
                    "description": "Files or folders of the working directory that it may read, or made earlier",
                },
                "stdin": {"type": "string", "description": "Its input"},
                "requirements": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": 50,
                    "description": "Python packages that it needs, such as pypdf>=5",
                },
            },
            required=["name"],
            annotations=_RUNS,
            timeout_s=_MOST_WALL_S + _PREPARATION_S,
        )

    async def _call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        skill = self.skills.get(input["name"])
        if ("script" in input) == ("code" in input):
            raise UsageError("Name a script of the skill, or give code: one of the two.")
        if "code" in input:
            inline: str = input["code"]
            program: tuple[str, ...] = ("python", "-c", _RUN_CODE, str(skill.folder), inline)
        else:
            program, inline = await context.blocking(_program, skill, input["script"])
        files = await context.blocking(_readable, input.get("files", ()), context)
        wanted = [*input.get("requirements", ()), *_inline_requirements(inline)]
        layer = await self._layers(wanted) if wanted else None

        async def show(stream: Literal["stdout", "stderr"], piece: bytes) -> None:
            await context.progress({"stream": stream, "text": piece.decode("utf-8", "replace")})

        args = [_argument(text, skill, files) for text in input.get("args", ())]
        stdin = input.get("stdin")
        result = await (await self._sandbox()).run(
            RunSpec(
                entry=CommandEntry(
                    argv=(*program, *args),
                    stdin=stdin.encode() if stdin is not None else None,
                ),
                layer=layer,
                limits=_LIMITS,
                read_only=(skill.folder, *dict.fromkeys(files.values())),
            ),
            on_output=show,
        )
        return await _told(result, skill, context)


async def _told(result: RunResult, skill: Skill, context: ToolContext) -> ToolResult:
    parts = [result.stdout.rstrip()]
    files: tuple[FileBlock, ...] = ()
    if result.stderr.strip():
        parts.append(f"stderr:\n{result.stderr.rstrip()}")
    if not result.ok:
        parts.append(
            f"The script of the skill {skill.name} failed ({result.status}, exit code {result.exit}): {result.error}"
        )
        parts += [
            f"There is no program {name} on this machine. If the script needs it, tell the user, who can install it."
            for name in _missing(result.stderr, context.environ.get("PATH", ""))
        ]
    if result.artifacts:
        folder = context.spill_dir / f"{context.call_id}-files"
        saved = await context.blocking(_save, folder, result.artifacts)
        shown = [str(path) for path in saved]
        if len(saved) > _MOST_PATHS:
            # An unpacked document has dozens of files: their folder is named once.
            shown = [f"{len(saved)} in {folder}", *(made.path for made in result.artifacts[:_MOST_NAMED])]
        parts.append(f"Files that it made: {', '.join(shown)}")
        files = await context.blocking(
            keep_seen, context.spill_dir, {made.path: made.content for made in result.artifacts}
        )
    parts += [f"Not kept: {reason}" for reason in result.omitted[:_MOST_NAMED]]
    if (more := len(result.omitted) - _MOST_NAMED) > 0:
        parts.append(f"Not kept: {more:,} more")
    parts += [f"The sandbox refused {denial.target}: {denial.reason}" for denial in result.denied]
    return ToolResult(
        text="\n".join(part for part in parts if part) or "(no output)",
        is_error=not result.ok,
        data={"status": str(result.status), "exit": result.exit, "backend": result.backend},
        untrusted=True,
        files=files,
    )


def _missing(stderr: str, path: str) -> Sequence[str]:
    """The programs that a script could not start, because there are none of these names."""
    named = [first or second for first, second in _NO_PROGRAM.findall(stderr)]
    return [name for name in dict.fromkeys(named) if shutil.which(name, path=path) is None]


def _readable(names: Sequence[str], context: ToolContext) -> dict[str, Path]:
    """The real paths of files that a script may be given: below the session's folders, and nothing that may be a key.

    Raises:
        NotFound: There is no such file.
        UsageError: It is somewhere else.
    """
    places = Places.of(context.roots, context.environ)
    # What earlier calls made may be used in the next.
    own = [*map(Path, places.own), Path(os.path.realpath(context.spill_dir))]
    found: dict[str, Path] = {}
    for name in names:
        if "\0" in name:
            raise UsageError(f"{name!r} is not a path.")
        path = Path(os.path.realpath(context.cwd / name))
        if not any(path.is_relative_to(folder) for folder in own) or places.may_be_key(str(path)):
            raise UsageError(
                f"{name!r} is not in the working directory; a skill's script is given files of it only."
            )
        if not path.exists():
            raise NotFound(f"There is no file {name!r} in {context.cwd}.")
        found[name] = path
    return found


def _argument(text: str, skill: Skill, files: Mapping[str, Path]) -> str:
    """An argument with the skill's folder and the given files in it written as absolute paths."""
    option, separator, value = text.partition("=")
    for name, path in files.items():
        for before, given in (("", text), (f"{option}=", value if separator else "")):
            # `unpacked/` and `unpacked/word/document.xml` are given with the folder `unpacked`.
            if not given or not PurePath(given).is_relative_to(name):
                continue
            meant = str(path / PurePath(given).relative_to(name))
            # Any word is a path below `.`.
            if PurePath(name).parts or os.path.lexists(meant):
                return before + meant
    return text.replace(_FOLDER, str(skill.folder))


def _program(skill: Skill, name: str) -> tuple[tuple[str, ...], str]:
    """What runs a script of a skill, and the script's text if it may have metadata.

    Raises:
        NotFound: There is no such script.
        UsageError: It can't be run.
    """
    script = skill.path(_named(skill, name))
    interpreter = _INTERPRETERS.get(script.suffix.lower())
    if interpreter is None and not os.access(script, os.X_OK):
        raise UsageError(
            f"{name!r} is no script that can be run: its name ends in none of {', '.join(_INTERPRETERS)}, and it is "
            "not executable."
        )
    has_metadata = script.suffix.lower() == ".py" and script.stat().st_size <= _MOST_SCRIPT_BYTES
    text = script.read_text(encoding="utf-8", errors="replace") if has_metadata else ""
    if interpreter == ("python",):
        return ("python", "-c", _RUN_SCRIPT, str(skill.folder), str(script)), text
    return ("bash", "-c", _KEPT_IN_SHELL, "bash", *(interpreter or ()), str(script)), text


def _named(skill: Skill, name: str) -> str:
    """The file that a skill's text means by a script without its ending, or by a module (`python -m scripts.check`)."""
    files = skill.files()
    meant = [f"{name}{end}" for end in _INTERPRETERS] + [f"{name.replace('.', '/')}.py"]
    found = {each for each in meant if each in files}
    return found.pop() if name not in files and len(found) == 1 else name


def _inline_requirements(text: str) -> Sequence[str]:
    match = _INLINE.search(text)
    if match is None:
        return ()
    lines = (line.removeprefix("# ").removeprefix("#") for line in match["content"].splitlines())
    try:
        found = tomllib.loads("\n".join(lines)).get("dependencies", [])
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The metadata in the script is not valid TOML: {error}.") from error
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else ()


def _save(folder: Path, artifacts: Sequence[Artifact]) -> list[Path]:
    saved = []
    for artifact in artifacts:
        path = folder / artifact.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(artifact.content)
        saved.append(path)
    return saved
