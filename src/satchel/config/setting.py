"""A setting as a field of a dataclass: its default, its documentation and the values that it accepts, said once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Kind: TypeAlias = Literal["bool", "int", "float", "text", "words", "table"]
_KINDS: Mapping[Any, Kind] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    tuple: "words",
    Literal: "text",
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting: its meaning and the values that it accepts.

    Attributes:
        key: Dotted; `providers.NAME.…` stands for every provider, `mcp_servers.NAME.…` for every MCP server.
        default: None for an optional key (`optional`).
        low: The lowest allowed value; `high` is the highest.
        choices: All allowed values, or () if any value is allowed.
    """

    key: str
    kind: Kind
    default: bool | int | float | str | tuple[str, ...] | Mapping[str, str] | None
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False

    @property
    def env(self) -> str:
        """The environment variable that sets it."""
        return "SATCHEL_" + self.key.replace(".", "_").upper()

    @property
    def allowed(self) -> str:
        """The values that it accepts, in words that complete "use …"."""
        match self.kind:
            case "bool":
                return "true or false"
            case "int" | "float":
                words = "a whole number" if self.kind == "int" else "a number"
                if self.low is not None and self.high is not None:
                    words += f" from {self.low:,.10g} to {self.high:,.10g}"
                return words
            case "words":
                return (
                    "a list of names"
                    if self.key in ("tools.disabled", "tools.environ")
                    else "a list of texts"
                )
            case "table":
                return 'a table of texts by name, such as { NAME = "text" }'
            case "text":
                quoted = [f'"{choice}"' for choice in self.choices]
                return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if quoted else "text"


def setting(
    default: T,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    repr: bool = True,
) -> T:
    """A field of a dataclass that is a setting; its type says the kind, and a `Literal` the choices.

    Args:
        default: Its value where nothing is set; None where it is optional.
        doc: The documentation, for users.
        low: The lowest allowed value.
        high: The highest.
        choices: Where not all values of the `Literal` can be set.
        repr: False for what may hold a secret.
    """
    metadata = {"doc": doc, "low": low, "high": high, "choices": choices}
    if isinstance(default, dict):
        return cast("T", field(default_factory=dict, repr=repr, metadata=metadata))
    return field(default=default, repr=repr, metadata=metadata)


def settings_of(prefix: str, section: Any) -> Iterator[Setting]:
    """The settings among the fields of a dataclass; their keys begin with `prefix`."""
    types = get_type_hints(section)
    for each in fields(section):
        if not each.metadata:
            continue
        kinds = [one for one in _union(types[each.name]) if one is not type(None)]
        kind = get_origin(kinds[0]) or kinds[0]
        literals = get_args(kinds[0]) if kind is Literal else ()
        said = dict(each.metadata)
        default: Any = {} if callable(each.default_factory) else each.default
        yield Setting(
            key=prefix + each.name,
            kind=_KINDS.get(kind, "table"),
            default=default,
            optional=type(None) in _union(types[each.name]),
            **{**said, "choices": said["choices"] or literals},
        )


def written(record: Any) -> dict[str, Any]:
    """What a record says, as in a file: its settings, without those that have their default."""
    found: dict[str, Any] = {}
    for each in fields(record):
        value = getattr(record, each.name)
        default = each.default_factory() if callable(each.default_factory) else each.default
        if each.metadata and value != default:
            found[each.name] = list(value) if isinstance(value, tuple) else value
    return found


def _union(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
