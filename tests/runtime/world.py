"""A Satchel in a folder of its own, with doubles for what is not under test."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from satchel.config import Settings, load
from satchel.events import Consent, QuestionAsked
from satchel.models import ChatModel
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel, Session, TurnResult


def settings_in(folder: Path, *, environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings of an empty home, without keys; overrides by key with __ for the dot, and more of the environment."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    values: Mapping[str, Any] = {
        "memory.distill": "off",
        "background.titles": "off",
        # An interpreter takes longer than a second to start on a busy machine, and a call longer than thirty.
        "tools.schema_timeout_s": 30,
        "agent.tool_timeout_s": 280,
        "background.earned": "off",
        **{key.replace("__", "."): value for key, value in overrides.items()},
    }
    return load(
        {"HOME": str(folder), "PATH": "/usr/bin:/bin", "OLLAMA_HOST": "127.0.0.1:9", **(environ or {})},
        cwd=work,
        home=folder / "home",
        overrides=values,
    )


def logged(session: Session) -> Path:
    """The log of a session that has one."""
    assert session.path is not None
    return session.path


async def run_answered(session: Session, text: str, consent: Consent) -> TurnResult:
    """Run a turn in an interactive session, and give every permission question the same answer."""
    running = await session.start(text)
    async for event in running.events():
        if isinstance(event, QuestionAsked):
            await session.answer(event.id, consent=consent, by="test")
    return await running.result()


@asynccontextmanager
async def opened(folder: Path, model: ChatModel | None = None, **overrides: Any) -> AsyncIterator[Satchel]:
    """Open a Satchel that embeds by hashing words."""
    async with Satchel.open(
        settings_in(folder, **overrides), model=model, embedder=HashingEmbedder()
    ) as satchel:
        yield satchel


@contextmanager
def write_locked(database: Path) -> Iterator[None]:
    """Another process's write lock, as far as SQLite can tell."""
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()
