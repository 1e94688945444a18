"""Holds tests/requirements.py and the tests to each other, both ways."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

from tests.requirements import LATER, OPEN_ISSUES, REQUIREMENTS, requirement

TESTS = Path(__file__).parent
WITHOUT_AN_ISSUE = {"promise:postgres:same-code", "storage:postgres:vectors"}
"""What is promised and no issue brings yet. Nothing else may be marked LATER."""


@cache
def claimed_ids() -> dict[str, list[str]]:
    """Every id that a test carries, with the tests that do; read from the source, not the collection."""
    claimed: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for decorator in node.decorator_list:
                    if (
                        isinstance(decorator, ast.Call)
                        and isinstance(decorator.func, ast.Name)
                        and decorator.func.id == "requirement"
                    ):
                        for argument in decorator.args:
                            assert isinstance(argument, ast.Constant), (
                                f"{path.name}: an id is written out, not computed"
                            )
                            claimed.setdefault(str(argument.value), []).append(f"{path.name}::{node.name}")
    return claimed


def test_every_id_is_used_once_in_the_manifest() -> None:
    counted = Counter(entry.id for entry in REQUIREMENTS)
    assert [id for id, count in counted.items() if count > 1] == []


def test_every_entry_is_a_sentence_with_a_source() -> None:
    incomplete = [
        entry.id
        for entry in REQUIREMENTS
        if not entry.source or ":" not in entry.id or not entry.sentence.rstrip("'").endswith(".")
    ]
    assert incomplete == []


@requirement("house:planned-by-an-issue")
def test_every_planned_entry_names_the_issue_that_brings_it() -> None:
    planned = {entry.id: entry.issue for entry in REQUIREMENTS if entry.status == "planned"}
    assert {id for id, issue in planned.items() if issue not in OPEN_ISSUES} == WITHOUT_AN_ISSUE
    assert {entry.id for entry in REQUIREMENTS if entry.issue == LATER} == WITHOUT_AN_ISSUE


@requirement("house:requirements-both-ways")
def test_every_id_that_a_test_carries_is_an_entry_that_is_built() -> None:
    built = {entry.id for entry in REQUIREMENTS if entry.status == "built"}
    assert {id: tests for id, tests in claimed_ids().items() if id not in built} == {}


@requirement("house:requirements-both-ways")
def test_every_entry_that_is_built_has_a_test() -> None:
    claimed = claimed_ids()
    assert [entry.id for entry in REQUIREMENTS if entry.status == "built" and entry.id not in claimed] == []


def test_every_entry_that_is_measured_has_its_benchmark() -> None:
    missing = [
        entry.id
        for entry in REQUIREMENTS
        if entry.status == "measured"
        and not (TESTS.parent / "benchmarks" / f"{entry.benchmark}.py").is_file()
    ]
    assert missing == []
