"""`satchel find`, as a user runs it."""

from __future__ import annotations

from tests.cli.conftest import Run
from tests.requirements import requirement


@requirement("cli:find")
def test_one_command_finds_what_was_said_what_is_remembered_and_settings(run: Run) -> None:
    assert run("ask", "The capybara has a budget.").code == 0
    found = run("find", "capybara")
    assert "Conversations:\n  The capybara has a budget." in found.out
    assert "/chat/" in found.out
    assert "Memories:\n" in found.out
    assert "Settings:" not in found.out
    groups = {group["name"]: group["results"] for group in run("find", "budget", "--json").json}
    assert {"Conversations", "Memories", "Settings"} <= set(groups)
    assert "/settings?q=budget.day_usd" in [one["path"] for one in groups["Settings"]]
    nothing = run("find", "qqqqzz")
    assert (nothing.code, nothing.out) == (0, "")
    assert "Nothing is about 'qqqqzz'." in nothing.err
