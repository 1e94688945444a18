"""`kill -9` to the worker, the server and whoever asked, while builds go on; `make kills` runs thirty."""

from __future__ import annotations

from pathlib import Path

from tests.cli.kills import VICTIMS, kill_all
from tests.requirements import requirement


@requirement("builder:durable", "builder:question", "builder:worker:replaced")
def test_kills_lose_no_answer_misdeliver_none_and_ask_nothing_twice(tmp_path: Path) -> None:
    done = kill_all(tmp_path, len(VICTIMS), print)
    assert {each.victim for each in done} == set(VICTIMS)
    assert any(each.met for each in done), "a kill met a build that was under way"
