"""The files of one version: made from a draft, read back, and checked.

| file | contents |
|---|---|
| `SKILL.md` | the document, with the front matter of an Agent Skill; `RUN.md` is a link to it |
| `main.py` | the code, with `def run(args: dict) -> str` |
| `requirements.txt` | the Python packages that it needs |
| `manifest.json` | everything that a program wants to know, with the SHA-256 of every other file |
| `tests/cases.jsonl` | its cases; see `cases` |

Other files may stand beside them: modules that `main.py` imports, data. A skill, which is read and not run, has only
`SKILL.md` and `manifest.json`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from satchel.capabilities.cases import Case, parse_cases
from satchel.capabilities.front_matter import parse_front_matter
from satchel.capabilities.records import MODEL, Access, Provenance, check_name, skill_name
from satchel.errors import UsageError
from satchel.tools.input_schema import check_schema

SKILL: Final = "SKILL.md"
LINK: Final = "RUN.md"
CODE: Final = "main.py"
REQUIREMENTS: Final = "requirements.txt"
MANIFEST: Final = "manifest.json"
CASES: Final = "tests/cases.jsonl"
_OWN: Final = (SKILL, CODE, REQUIREMENTS, MANIFEST, CASES)
_OF_SKILL: Final = (SKILL, MANIFEST)

_MAX_FILES: Final = 64
_MAX_FILE: Final = 1_000_000
_MAX_TOTAL: Final = 4_000_000
"""Bytes. Every version keeps all its files, in its folder and in the database."""
_MAX_CODE: Final = 256_000
_MAX_SCHEMA: Final = 65_536
"""Bytes of a schema as JSON: a model reads it whole."""
_MAX_DESCRIPTION: Final = 1024
"""Characters; the limit of an Agent Skill's description."""
_MAX_DOCUMENT: Final = 64_000
_MAX_LIST: Final = 32
_PATH_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_HOST: Final = re.compile(
    r"(?:\*\.)?(?=.{1,253}(?::|$))[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
    r"(?::(?P<port>[0-9]{1,5}))?|capability:[a-z][a-z0-9_]{0,59}|mcp:[\w-]{1,64}\.[\w./-]{1,128}"
)
_SECRET: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_TAG: Final = re.compile(r"[\w][\w .+-]{0,39}")
_LIMITS: Final[Mapping[str, tuple[int, int]]] = {"wall_s": (1, 180), "mem_mb": (64, 2048)}
"""The limits that a manifest may set, with the least and the greatest value. A call has three minutes at most."""
_FRONT: Final = re.compile(r"---\n.*?\n---\n", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a version is made of. The strings are unchecked: `make_package` says everything that is wrong.

    Attributes:
        code: `main.py`.
        description: What a model is told: what it does and when to use it, in a line.
        input_schema: JSON Schema of type "object".
        cases: The lines of `tests/cases.jsonl`.
        document: Markdown: what a reader needs besides description and schema; "" if nothing.
        output_schema: Of the result if it is JSON; {} if it is text.
        limits: `wall_s` (1 to 180) and `mem_mb` (64 to 2048), where the defaults don't suffice.
        files: Other files, by their path in the folder.
        is_skill: Its document is all there is of it: code, schema and cases are empty.
    """

    code: str
    description: str
    input_schema: Mapping[str, Any]
    cases: str
    document: str = ""
    output_schema: Mapping[str, Any] = field(default_factory=dict)
    requirements: Sequence[str] = ()
    tags: Sequence[str] = ()
    hosts: Sequence[str] = ()
    secrets: Sequence[str] = ()
    state: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    is_skill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`manifest.json`, checked.

    Attributes:
        sha256: Of every other file, by its path.
    """

    name: str
    description: str
    version: int
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    tags: tuple[str, ...]
    requirements: tuple[str, ...]
    access: Access
    limits: Mapping[str, int]
    created_at: str
    updated_at: str
    provenance: Mapping[str, str]
    sha256: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """The files of one version by their paths, with `manifest` and `cases` parsed. `RUN.md` is not among them."""

    files: Mapping[str, bytes]
    manifest: Manifest
    cases: tuple[Case, ...]

    @property
    def sha256(self) -> str:
        """The digest of `manifest.json`, and therefore of all files."""
        return _digest(self.files[MANIFEST])

    @property
    def document(self) -> str:
        """`SKILL.md`."""
        return self.files[SKILL].decode("utf-8", "replace")


def make_package(
    name: str, version: int, draft: Draft, *, provenance: Provenance, created_at: datetime, now: datetime
) -> Package:
    """Make the files of a version, whose number is from 1.

    Raises:
        UsageError: The draft is not acceptable. The message says everything that is wrong, one sentence each.
    """
    check_name(name)
    problems, cases = _checked(draft)
    if problems:
        raise UsageError("\n".join(f"- {problem}" for problem in problems))
    requirements = [line.strip() for line in draft.requirements if line.strip()]
    files: dict[str, bytes] = {
        **draft.files,
        SKILL: _skill(name, version, draft, cases, requirements).encode(),
    }
    if not draft.is_skill:
        files[CODE] = _text(draft.code).encode()
        files[REQUIREMENTS] = "".join(f"{line}\n" for line in requirements).encode()
        files[CASES] = _text(draft.cases).encode()
    manifest = {
        "name": name,
        "description": " ".join(draft.description.split()),
        "version": version,
        "input_schema": draft.input_schema,
        "output_schema": draft.output_schema,
        "tags": list(draft.tags),
        "requirements": requirements,
        "hosts": sorted({with_port(host) for host in draft.hosts}),
        "secrets": sorted(set(draft.secrets)),
        "state": draft.state,
        "limits": dict(draft.limits),
        "created_at": created_at.isoformat(),
        "updated_at": now.isoformat(),
        # The ids of builds and sessions say nothing outside of this home.
        "provenance": {
            key: value
            for key, value in (("made_by", provenance.made_by), ("model", provenance.model))
            if value
        },
        "sha256": {path: _digest(content) for path, content in sorted(files.items())},
    }
    files[MANIFEST] = (json.dumps(manifest, ensure_ascii=False, indent=2) + "\n").encode()
    return read_package(files)


def read_package(files: Mapping[str, bytes], *, edited: bool = False) -> Package:
    """Check the files of a version.

    Args:
        files: By their paths, without `RUN.md`.
        edited: The digests need not be right: somebody has changed the files by hand.

    Raises:
        UsageError: They are not a capability. The message says everything that is wrong.
    """
    try:
        value = json.loads(files.get(MANIFEST, "{}"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{MANIFEST} is not JSON ({error}).") from None
    if not isinstance(value, dict):
        raise UsageError(f"{MANIFEST} is not a JSON object.")
    is_skill = value.get("input_schema") == {} and CODE not in files
    missing = [path for path in (_OF_SKILL if is_skill else _OWN) if path not in files]
    if missing:
        raise UsageError(
            f"It is not a capability: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing."
        )
    problems = [*_file_problems(files)]
    if is_skill:  # what is edited is its document, whatever the manifest says of it
        front, _ = parse_front_matter(files[SKILL].decode("utf-8", "replace"))
        value["description"] = front.description
    draft = _draft_of(value, files)
    try:
        check_name(str(value.get("name", "")))
    except UsageError as error:
        problems.append(str(error))
    version = value.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= 1_000_000:
        problems.append(f"{MANIFEST}: `version` is a whole number from 1 to 1,000,000.")
    cases: tuple[Case, ...] = ()
    if not problems:
        problems, cases = _checked(draft)
    recorded = value.get("sha256")
    actual = {path: _digest(content) for path, content in files.items() if path != MANIFEST}
    if not isinstance(recorded, dict):
        problems.append(f"{MANIFEST}: `sha256` is an object.")
    elif not edited and recorded != actual:
        changed = sorted({*recorded.items()} ^ {*actual.items()}, key=str) if _flat(recorded) else []
        names = list(dict.fromkeys(str(path) for path, _ in changed))
        problems.append(
            f"The files are not those that {MANIFEST} describes: {', '.join(names[:5]) or 'sha256'}."
        )
    if problems:
        raise UsageError("\n".join(f"- {problem}" for problem in problems))
    return Package(
        files=dict(files),
        manifest=Manifest(
            name=value["name"],
            description=value["description"],
            version=value["version"],
            input_schema=draft.input_schema,
            output_schema=draft.output_schema,
            tags=tuple(draft.tags),
            requirements=tuple(draft.requirements),
            access=Access(
                hosts=tuple(sorted({with_port(host) for host in draft.hosts})),
                secrets=tuple(sorted(set(draft.secrets))),
                state=draft.state,
            ),
            limits=draft.limits,
            created_at=str(value.get("created_at", "")),
            updated_at=str(value.get("updated_at", "")),
            provenance={str(k): str(v) for k, v in value.get("provenance", {}).items()}
            if isinstance(value.get("provenance"), dict)
            else {},
            sha256=actual,
        ),
        cases=cases,
    )


def draft_of(package: Package) -> Draft:
    """The draft that a package was made of, for a new version."""
    manifest = package.manifest
    is_skill = CODE not in package.files
    body = _FRONT.sub("", package.document, count=1)
    return Draft(
        code=_text_in(package.files, CODE),
        description=manifest.description,
        input_schema=manifest.input_schema,
        cases=_text_in(package.files, CASES),
        document=(body if is_skill else body.rpartition(_GENERATED)[0].partition("\n\n")[2]).strip(),
        output_schema=manifest.output_schema,
        requirements=manifest.requirements,
        tags=manifest.tags,
        hosts=manifest.access.hosts,
        secrets=manifest.access.secrets,
        state=manifest.access.state,
        limits=manifest.limits,
        files={path: content for path, content in package.files.items() if path not in _OWN},
        is_skill=is_skill,
    )


def is_unchanged(files: Mapping[str, bytes], sha256: str) -> bool:
    """Whether these are the files whose manifest has this digest."""
    manifest = files.get(MANIFEST, b"")
    if _digest(manifest) != sha256:
        return False
    return bool(json.loads(manifest)["sha256"] == {p: _digest(c) for p, c in files.items() if p != MANIFEST})


def _flat(value: Mapping[Any, Any]) -> bool:
    return all(isinstance(part, str) for part in value.values())


def _draft_of(value: Mapping[str, Any], files: Mapping[str, bytes]) -> Draft:
    def texts(key: str) -> Any:
        return value.get(key, [])

    return Draft(
        code=_text_in(files, CODE),
        description=value.get("description", ""),
        input_schema=value.get("input_schema", {}),
        cases=_text_in(files, CASES),
        output_schema=value.get("output_schema", {}),
        requirements=texts("requirements"),
        tags=texts("tags"),
        hosts=texts("hosts"),
        secrets=texts("secrets"),
        state=value.get("state", False),
        limits=value.get("limits", {}),
        files={path: content for path, content in files.items() if path not in _OWN},
        is_skill=CODE not in files,
    )


# ---- What may be wrong with a draft


def _checked(draft: Any) -> tuple[list[str], tuple[Case, ...]]:
    """Everything that is wrong with a draft, and its cases."""
    problems = _problems(draft)
    try:
        cases = parse_cases(draft.cases if isinstance(draft.cases, str) else "")
    except UsageError as error:
        return [*problems, f"{error}."], ()
    return [*problems, *([] if draft.is_skill else _case_problems(draft, cases))], cases


# The fields may hold anything that JSON or a model can say, whatever their types promise.
def _problems(draft: Any) -> list[str]:
    problems = [*_text_problems(draft), *_file_problems(draft.files)]
    problems += [
        f"`{path}` is one of the capability's own files." for path in draft.files if path in (*_OWN, LINK)
    ]
    if not draft.is_skill:
        problems += _code_problems(draft.code)
        problems += _schema_problems(draft.input_schema, "input_schema", of_object=True)
    if draft.output_schema:
        problems += _schema_problems(draft.output_schema, "output_schema", of_object=False)
    problems += _list_problems(draft.tags, "tags", _TAG, "a word or a few, at most 40 characters")
    problems += _list_problems(
        draft.secrets, "secrets", _SECRET, "the name of an environment variable: WEATHER_KEY"
    )
    problems += _list_problems(
        draft.hosts,
        "hosts",
        _HOST,
        "a host, in lowercase, with its port (api.example.org:443), or capability:NAME, mcp:SERVER.TOOL, model",
    )
    problems += _list_problems(
        draft.requirements, "requirements", re.compile(r"[^\n\r\0]{1,200}"), "one line"
    )
    if not isinstance(draft.state, bool):
        problems.append("`state` is true or false.")
    elif not problems and not all(0 < int(port) < 65536 for port in map(_port, draft.hosts)):
        problems.append("`hosts`: a port is a number from 1 to 65535.")
    return problems + _limit_problems(draft.limits)


def _text_problems(draft: Any) -> list[str]:
    problems = []
    if not isinstance(draft.description, str) or not draft.description.strip():
        problems.append("`description` says in a line what the capability does and when to use it.")
    elif len(draft.description) > _MAX_DESCRIPTION:
        problems.append(f"`description` has at most {_MAX_DESCRIPTION:,} characters.")
    if not isinstance(draft.document, str) or len(draft.document) > _MAX_DOCUMENT:
        problems.append(f"The document is a text of at most {_MAX_DOCUMENT:,} characters.")
    texts = (draft.description, draft.document, draft.code, draft.cases)
    if any(isinstance(text, str) and re.search("[\ud800-\udfff\0]", text) for text in texts):
        problems.append("A text contains a null character or half a character (a lone surrogate).")
    return problems


def _file_problems(files: Mapping[str, bytes]) -> list[str]:
    problems = []
    if len(files) > _MAX_FILES:
        problems.append(f"A capability has at most {_MAX_FILES} files; this one has {len(files)}.")
    for path, content in list(files.items())[: _MAX_FILES + 1]:
        parts = path.split("/")
        if not 1 <= len(parts) <= 4 or not all(_PATH_PART.fullmatch(part) for part in parts):
            problems.append(
                f"{path[:80]!r} can't be the path of a file: up to four names of letters, digits, '_', '-' and '.', "
                "separated by '/'."
            )
        elif len(content) > _MAX_FILE:
            problems.append(f"{path} has {len(content):,} bytes; a file has at most {_MAX_FILE:,}.")
    folded = [path.casefold() for path in files]
    if len(set(folded)) < len(folded):
        problems.append("Two paths differ only in case.")
    if any(f"{path}/" == other[: len(path) + 1] for path in files for other in files if path != other):
        problems.append("A path is both a file and a folder.")
    if sum(map(len, files.values())) > _MAX_TOTAL:
        problems.append(f"The files have more than {_MAX_TOTAL:,} bytes together.")
    return problems


def _code_problems(code: Any) -> list[str]:
    if not isinstance(code, str) or not code.strip():
        return [f"{CODE} is empty."]
    if len(code.encode("utf-8", "replace")) > _MAX_CODE:
        return [f"{CODE} has at most {_MAX_CODE:,} bytes."]
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        return [f"{CODE} is not valid Python: line {error.lineno}: {error.msg}."]
    except (ValueError, RecursionError, MemoryError) as error:
        return [f"{CODE} can't be read as Python: {error}."]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "run":
            if isinstance(node, ast.AsyncFunctionDef):
                return [f"{CODE}: `run` is an ordinary function, not an async one."]
            arguments = node.args
            if len(arguments.posonlyargs) + len(arguments.args) < 1 and arguments.vararg is None:
                return [f"{CODE}: `run` takes one argument, the dictionary of inputs."]
            return []
        # `run` may also be imported or assigned; then the cases tell whether it works.
        if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == "run" for a in node.names):
            return []
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "run" for t in node.targets
        ):
            return []
    return [f"{CODE} has no function `def run(args: dict) -> str`."]


def _schema_problems(schema: Any, what: str, *, of_object: bool) -> list[str]:
    if not isinstance(schema, dict):
        return [f"`{what}` is a JSON Schema, an object."]
    try:
        size = len(json.dumps(schema))
    except (TypeError, ValueError, RecursionError):
        return [f"`{what}` is not JSON."]
    if size > _MAX_SCHEMA:
        return [f"`{what}` has {size:,} bytes as JSON; at most {_MAX_SCHEMA:,} are allowed."]
    if of_object and schema.get("type") != "object":
        return [f'`{what}` is a JSON Schema of type "object".']
    try:
        check_schema(schema, subject=f"`{what}`")
    except UsageError as error:
        return [f"{error}."]
    return []


def _list_problems(values: Any, what: str, pattern: re.Pattern[str], form: str) -> list[str]:
    if not isinstance(values, list | tuple):
        return [f"`{what}` is a list."]
    if len(values) > _MAX_LIST:
        return [f"`{what}` has at most {_MAX_LIST} entries."]
    return [
        f"`{what}`: {str(value)[:80]!r} is not {form}."
        for value in values
        if not isinstance(value, str) or not pattern.fullmatch(value)
    ]


def _limit_problems(limits: Any) -> list[str]:
    if not isinstance(limits, dict):
        return ["`limits` is an object."]
    problems = []
    for key, value in limits.items():
        low, high = _LIMITS.get(key, (0, 0))
        if not high:
            problems.append(f"`limits` knows {' and '.join(_LIMITS)}, and not {str(key)[:40]!r}.")
        elif not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            problems.append(f"`limits`: {key} is a whole number from {low} to {high}.")
    return problems


def _case_problems(draft: Any, cases: Sequence[Case]) -> list[str]:
    problems = []
    if not any(not case.is_refusal for case in cases):
        problems.append(f"{CASES} has no case with a result, so nothing shows that the capability works.")
    properties = draft.input_schema.get("properties") if isinstance(draft.input_schema, Mapping) else None
    if properties and not any(case.is_refusal for case in cases):
        problems.append(
            f'{CASES} has no case with a bad input. Add one whose `expect` is {{"error": …}} with a word of the '
            "complaint."
        )
    if not draft.hosts and (named := [case.name for case in cases if case.network]):
        problems.append(
            f"The cases {', '.join(map(repr, named[:5]))} need the network, and `hosts` is empty."
        )
    return problems


def _port(host: str) -> str:
    match = _HOST.fullmatch(host)
    return (match and match["port"]) or "443"


def with_port(host: str) -> str:
    """A host as manifests have it."""
    return host if ":" in host or host == MODEL else f"{host}:443"


# ---- The document

_GENERATED: Final = "\n## Input\n"
"""The heading from which on the document is generated."""


def _skill(name: str, version: int, draft: Draft, cases: Sequence[Case], requirements: Sequence[str]) -> str:
    description = " ".join(draft.description.split())
    front = {
        "name": skill_name(name),
        "description": description,
        "metadata": {"satchel-name": name, "satchel-version": str(version)},
    }
    if draft.is_skill:
        return "".join(("---\n", *_yaml(front), "---\n", _text(draft.document.strip())))
    example = next((case for case in cases if not case.is_refusal), None)
    given = json.dumps(example.input if example else {}, ensure_ascii=False)
    needs = []
    if requirements:
        needs.append(f"- Python packages: {', '.join(requirements)} (`pip install -r {REQUIREMENTS}`)")
    if draft.hosts:
        needs.append(f"- Hosts on the network: {', '.join(sorted(draft.hosts))}")
    if draft.secrets:
        needs.append(f"- Secrets in environment variables: {', '.join(sorted(draft.secrets))}")
    body = draft.document.strip()
    code = "import json, sys; from main import run; print(run(json.load(sys.stdin)))"
    return "".join(
        (
            "---\n",
            *_yaml(front),
            "---\n",
            f"# {name}\n\n",
            f"{body}\n" if body else f"{description}\n",
            _GENERATED,
            f"\n```json\n{json.dumps(draft.input_schema, ensure_ascii=False, indent=2)}\n```\n",
            "\n## Use\n\n",
            f"In Satchel, call `cap_{name}`. It runs in a sandbox. Elsewhere, run this in the skill's folder:\n\n",
            f"```sh\npython3 -c '{code}' <<'JSON'\n{given}\nJSON\n```\n",
            *(["\n## Needs\n\n", "\n".join(needs), "\n"] if needs else []),
        )
    )


def _yaml(values: Mapping[str, Any]) -> Sequence[str]:
    """YAML with double-quoted strings, whose escapes are those of JSON."""
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines.append(f"{key}:\n")
            lines += [f"  {line}" for line in _yaml(value)]
        else:
            plain = (
                isinstance(value, str)
                and re.fullmatch(r"[a-z][a-z0-9-]*", value)
                and value not in _YAML_WORDS
            )
            lines.append(f"{key}: {value if plain else json.dumps(value, ensure_ascii=False)}\n")
    return lines


_YAML_WORDS: Final = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def _text_in(files: Mapping[str, bytes], path: str) -> str:
    return files.get(path, b"").decode("utf-8", "replace")


def _text(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
