"""A Satchel in a folder of its own, with doubles for what is not under test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from satchel.config import Settings, load
from satchel.models import ChatModel
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel


def settings_in(folder: Path, **overrides: Any) -> Settings:
    """Settings of an empty home, without keys; overrides by key with __ for the dot."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    values: Mapping[str, Any] = {
        "memory.distill": "off",
        **{key.replace("__", "."): value for key, value in overrides.items()},
    }
    return load(
        {"HOME": str(folder), "PATH": "/usr/bin:/bin", "OLLAMA_HOST": "127.0.0.1:9"},
        cwd=work,
        home=folder / "home",
        overrides=values,
    )


@asynccontextmanager
async def opened(folder: Path, model: ChatModel | None = None, **overrides: Any) -> AsyncIterator[Satchel]:
    """Open a Satchel that embeds by hashing words."""
    async with Satchel.open(
        settings_in(folder, **overrides), model=model, embedder=HashingEmbedder()
    ) as satchel:
        yield satchel
