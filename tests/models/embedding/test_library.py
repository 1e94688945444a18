from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from satchel.errors import EmbedderError
from satchel.models.embedding import FastembedEmbedder

pytestmark = pytest.mark.anyio


def install(monkeypatch: pytest.MonkeyPatch, embed: Any) -> list[Any]:
    """Put a module in the place of fastembed that makes models as fastembed 0.7 does."""
    made: list[Any] = []

    class TextEmbedding:
        def __init__(self, model_name: str, cache_dir: str, threads: int) -> None:
            made.append((model_name, cache_dir, threads))

        def embed(self, documents: list[str]) -> Any:
            return embed(documents)

    module = ModuleType("fastembed")
    module.__spec__ = importlib.machinery.ModuleSpec("fastembed", None)
    module.TextEmbedding = TextEmbedding  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fastembed", module)
    return made


async def test_it_is_loaded_once_and_asked_with_the_prefixes_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def embed(documents: list[str]) -> Any:
        asked.extend(documents)
        return iter([[1.0] * 384 for _ in documents])

    made = install(monkeypatch, embed)
    embedder = FastembedEmbedder("BAAI/bge-small-en-v1.5", home=tmp_path)
    assert made == []
    assert (await embedder.embed(["a"] * 40, "document")).shape == (40, 384)
    assert (await embedder.embed(["b"], "query")).shape == (1, 384)
    assert (await embedder.embed([], "query")).shape == (0, 384)
    assert made == [("BAAI/bge-small-en-v1.5", str(tmp_path / "models/fastembed"), 1)]
    assert asked == ["a"] * 40 + ["Represent this sentence for searching relevant passages: b"]
    await embedder.aclose()
    with pytest.raises(EmbedderError, match="closed"):
        await embedder.embed(["b"], "query")


async def test_what_it_raises_becomes_an_error_that_names_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(documents: list[str]) -> Any:
        raise ValueError("no connection")

    install(monkeypatch, embed)
    embedder = FastembedEmbedder("new/model", home=tmp_path)
    with pytest.raises(EmbedderError, match="fastembed could not serve new/model: no connection"):
        await embedder.embed(["a"], "query")
