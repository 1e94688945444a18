"""What the tests of the web tools share: a context to call them with, and names that lead where a test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

from satchel.addresses import Resolve
from satchel.tools import Tool, ToolContext, ToolResult
from tests.tools.conftest import Session


def names(answers: Mapping[str, Sequence[str]]) -> Resolve:
    """A resolver that knows these names and no others."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host not in answers:
            raise OSError("Name or service not known")
        return answers[host]

    return resolve


async def use(tool: Tool, context: ToolContext, **input: Any) -> ToolResult:
    jsonschema.validate(input, tool.spec.input_schema)
    with anyio.fail_after(120):
        return await tool.call(input, context)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    folder = tmp_path / "project"
    folder.mkdir()
    return Session(folder)


@pytest.fixture
def context(session: Session) -> ToolContext:
    return session.context


@pytest.fixture
def progress(session: Session) -> list[Mapping[str, Any]]:
    """What the tools reported so far."""
    return session.progress
