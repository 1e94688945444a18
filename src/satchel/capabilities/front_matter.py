"""The front matter of an Agent Skill: the YAML between two lines `---` at the beginning of SKILL.md.

Read by the public specification (agentskills.io): `name` and `description`, and optionally `license`,
`compatibility`, `metadata` and `allowed-tools`. Every value is text: nothing is turned into a number, a date or a truth
value. Tags, anchors and aliases, by which YAML makes objects and bombs, are refused. Other fields, which some agents
add, are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from satchel.errors import UsageError

Value: TypeAlias = "str | list[Value] | dict[str, Value]"

MOST_NAME: Final = 64
MOST_DESCRIPTION: Final = 1_024
MOST_COMPATIBILITY: Final = 500
_MOST_CHARS: Final = 16_000
_MOST_DEPTH: Final = 6
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_PLAIN_LINE = re.compile(
    r"(?P<key>name|description|license|compatibility|allowed-tools):[ \t]+(?P<text>[^\s\"'|>\[{&*!].*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """What a skill says of itself.

    Attributes:
        problems: Where it departs from the specification in a way that does no harm, in sentences.
    """

    name: str
    description: str
    license: str = ""
    compatibility: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def parse_front_matter(text: str) -> tuple[FrontMatter, str]:
    """Read the beginning of a SKILL.md.

    Returns:
        The front matter, and the text after it.

    Raises:
        UsageError: There is none, it is not the YAML described above, or name or description are missing or invalid.
    """
    match = _FRONT.match(text)
    if match is None:
        raise UsageError("SKILL.md does not begin with front matter, which stands between two lines '---'.")
    if len(match["yaml"]) > _MOST_CHARS:
        raise UsageError(f"The front matter is longer than {_MOST_CHARS:,} characters.")
    problems: list[str] = []
    fields = _fields(match["yaml"], problems)
    name = _text(fields, "name")
    if len(name) > MOST_NAME or not _NAME.fullmatch(name):
        raise UsageError(
            f"The name {name[:80]!r} is not made of lowercase letters, digits and single hyphens (at most {MOST_NAME})."
        )
    description = " ".join(_text(fields, "description").split())
    if not description:
        raise UsageError("The description is missing: without it, nobody knows when the skill is of use.")
    if len(description) > MOST_DESCRIPTION:
        problems.append(
            f"Its description is longer than {MOST_DESCRIPTION:,} characters; the rest is left out."
        )
        description = description[:MOST_DESCRIPTION]
    compatibility = _text(fields, "compatibility")
    if len(compatibility) > MOST_COMPATIBILITY:
        problems.append(
            f"Its compatibility is longer than {MOST_COMPATIBILITY} characters; the rest is left out."
        )
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict):
        problems.append("Its metadata is not a mapping.")
        metadata = {}
    return (
        FrontMatter(
            name=name,
            description=description,
            license=_text(fields, "license"),
            compatibility=compatibility[:MOST_COMPATIBILITY],
            metadata={key: value for key, value in metadata.items() if isinstance(value, str)},
            problems=tuple(problems),
        ),
        text[match.end() :],
    )


def front_fields(text: str) -> dict[str, Any]:
    """Every field of the front matter as JSON data, for programs that compare it with their own reading of the YAML.

    Numbers and truth values are such, and dates are text. Errors as in `parse_front_matter`.
    """
    import yaml  # noqa: PLC0415

    parse_front_matter(text)  # It refuses what would be dangerous to make objects of.
    match = _FRONT.match(text)
    assert match is not None
    try:
        fields = json.loads(json.dumps(yaml.safe_load(match["yaml"]), default=str))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):  # a key may be a date
        fields = _fields(match["yaml"], [])
    return dict(fields)


def _text(fields: Mapping[str, Value], key: str) -> str:
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"The field {key} is not text.")
    return value.strip()


def _fields(text: str, problems: list[str]) -> dict[str, Value]:
    try:
        value = _read_yaml(text)
    except UsageError:
        # Many skills have a colon in an unquoted description, which other agents read as it is meant.
        quoted = "\n".join(map(_quoted, text.splitlines()))
        if quoted == text:
            raise
        value = _read_yaml(quoted)
        problems.append("Its front matter is not valid YAML: quote the text that contains a colon.")
    if not isinstance(value, dict):
        raise UsageError("The front matter is not made of 'key: value' lines.")
    return value


def _quoted(line: str) -> str:
    match = _PLAIN_LINE.fullmatch(line.rstrip())
    return f"{match['key']}: {json.dumps(match['text'], ensure_ascii=False)}" if match else line


def _read_yaml(text: str) -> Value:
    # Imported when needed: hardly any command reads skills.
    import yaml  # noqa: PLC0415

    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if (
                isinstance(event, yaml.AliasEvent)
                or getattr(event, "anchor", None)
                or getattr(event, "tag", None)
            ):
                raise UsageError("The front matter has tags, anchors or aliases, which are not allowed.")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MOST_DEPTH:
                raise UsageError(f"The front matter is nested deeper than {_MOST_DEPTH} levels.")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UsageError(
            f"The front matter is not valid YAML: {' '.join(str(error).split())[:300]}"
        ) from error
    except RecursionError as error:
        raise UsageError("The front matter is nested too deeply.") from error
    return "" if node is None else _plain(node)


def _plain(node: object) -> Value:
    import yaml  # noqa: PLC0415

    if isinstance(node, yaml.MappingNode):
        found: dict[str, Value] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in found:
                raise UsageError("The front matter has a field twice, or one whose name is not text.")
            found[key.value] = _plain(value)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(value) for value in node.value]
    assert isinstance(node, yaml.ScalarNode)
    return str(node.value)
