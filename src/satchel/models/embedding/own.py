"""Embedders that a program provides: any object with `embed(texts, role)`, or such a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from satchel.errors import EmbedderError, UsageError
from satchel.models.embedding.embedder import BaseEmbedder
from satchel.models.embedding.records import record_of
from satchel.models.port import Embedder, EmbedderInfo, EmbedRole

if TYPE_CHECKING:
    from satchel.models.port import Vectors


class HasEmbed(Protocol):
    """Returns rows of numbers for texts, directly or as an awaitable."""

    def embed(self, texts: Sequence[str], role: EmbedRole, /) -> Any:
        """One row for each text; `role` says whether they are queries or stored documents."""
        ...


OwnEmbedding: TypeAlias = HasEmbed | Callable[[Sequence[str], EmbedRole], Any]


def as_embedder(given: Embedder | OwnEmbedding) -> Embedder:
    """The given object as an `Embedder`; an `Embedder` is returned unchanged.

    Raises:
        UsageError: The object can't embed.
    """
    function = getattr(given, "embed", given)
    if isinstance(given, type) or not callable(function):
        kind = f"the class {given.__name__}" if isinstance(given, type) else repr(given)[:200]
        raise UsageError(
            f'The embedder is {kind}. Pass a name such as "minilm", an object with a method embed(texts, role), or '
            "such a function."
        )
    info = getattr(given, "info", None)
    if isinstance(info, EmbedderInfo) and inspect.iscoroutinefunction(function):
        whole: Any = given
        return whole  # type: ignore[no-any-return]
    return OwnEmbedder(function, info if isinstance(info, EmbedderInfo) else record_of("", id=_id_of(given)))


def _id_of(given: object) -> str:
    """The id under which its vectors are stored: its own name, or that of its class or function."""
    for attribute in ("name", "model", "model_name"):
        name = getattr(given, attribute, None)
        if isinstance(name, str) and name:
            return f"own:{name}"
    own_name = getattr(given, "__qualname__", None)
    return f"own:{own_name if isinstance(own_name, str) else type(given).__qualname__}"


class OwnEmbedder(BaseEmbedder):
    """Calls a program's embedder, awaiting it or running it on a worker thread, and checks its output."""

    def __init__(self, function: Callable[..., Any], info: EmbedderInfo) -> None:
        """Store the function; it is first called for a question or a memory."""
        super().__init__(info)
        self._function = function
        self._call = _caller_of(function)

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`. Rows are normalised to unit length."""
        try:
            if inspect.iscoroutinefunction(self._function):
                rows = await self._call(list(texts), role)
            else:
                rows = await self._blocking(partial(self._call, list(texts), role))
                if inspect.isawaitable(rows):
                    rows = await rows
            if not hasattr(rows, "__len__"):
                rows = list(rows)
        except Exception as error:  # a boundary: this is the program's own code, and search works without it
            raise EmbedderError(f"{self._info.id} failed: {type(error).__name__}: {error}") from error
        return self._checked(rows, count=len(texts))

    async def aclose(self) -> None:
        """Does nothing, because the program owns its embedder."""


def _caller_of(function: Callable[..., Any]) -> Callable[[list[str], EmbedRole], Any]:
    """How to call the function: with the role by name or position, or with the texts alone if it takes no role."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # functions in C may have no signature
        return function
    role = parameters.get("role")
    if role is not None and role.kind is not inspect.Parameter.POSITIONAL_ONLY:
        return lambda texts, role: function(texts, role=role)
    needed = [
        part
        for part in parameters.values()
        if part.kind is inspect.Parameter.VAR_POSITIONAL
        or (part.default is part.empty and part.kind in (part.POSITIONAL_ONLY, part.POSITIONAL_OR_KEYWORD))
    ]
    return function if len(needed) > 1 else lambda texts, _role: function(texts)
