"""Lines that begin with a slash."""

from __future__ import annotations

import pytest

from satchel.cli.slash import completions, parse
from satchel.errors import UsageError
from tests.cli.conftest import Run, serving
from tests.cli.programs import chats, said_to, scripted, speaks
from tests.requirements import requirement


@pytest.mark.parametrize(
    ("typed", "name", "rest"),
    [
        ("/help", "help", ""),
        ("/HELP  tool", "help", "tool"),
        ('/run bash {"command": "ls\n-l"}', "run", 'bash {"command": "ls\n-l"}'),
        ("/compact focus on\nthe soup", "compact", "focus on\nthe soup"),
    ],
)
def test_a_command_and_what_follows_it(typed: str, name: str, rest: str) -> None:
    found = parse(typed)
    assert found is not None
    assert (found[0].name, found[1]) == (name, rest)


@pytest.mark.parametrize(
    "typed", ["/etc/hosts is what?", "hello /help", "/", "//help", "/2 of them", "/home"]
)
def test_a_message_may_hold_slashes(typed: str) -> None:
    if typed == "/home":
        with pytest.raises(UsageError, match="no command /home"):
            parse(typed)
    else:
        assert parse(typed) is None


def test_an_unknown_command_is_told_what_it_may_have_meant() -> None:
    with pytest.raises(UsageError, match=r"no command /memries\. Did you mean /memory\?"):
        parse("/memries shellfish")
    with pytest.raises(UsageError, match=r"no command /xyz\. /help lists the commands"):
        parse("/xyz")


def test_completion_offers_commands_tools_and_models() -> None:
    def offered(text: str) -> list[str]:
        return [word for word, _ in completions(text, tools=["bash", "file_read"], models=["openai:"])]

    assert offered("/mem") == ["/memory"]
    assert offered("/run f") == ["file_read"]
    assert offered("/tool ") == ["bash", "file_read"]
    assert offered("/model o") == ["openai:"]
    assert offered("/mode a") == ["ask", "auto"]
    assert offered("hello") == offered("/memory x") == offered("/he\n") == []


@requirement("loop:compaction:steered")
def test_what_follows_compact_reaches_the_model_that_writes_the_summary_and_the_log(run: Run) -> None:
    answers = scripted(speaks("Noted. " * 1_000), speaks("Eight it is."), speaks("Mara: no shellfish."))
    typed = "Mara must not eat shellfish.\nWe eat at eight.\n/compact the allergies of Mara\n"
    with serving(answers) as server:
        assert run("chat", stdin=typed, server=server).code == 0
        *_, summary = chats(server)
    assert said_to(summary).endswith("the allergies of Mara")
    (listed,) = run("session", "list", "--json").json
    events = run("session", "show", listed["id"], "--json").json["events"]
    (compaction,) = [event for event in events if event["type"] == "compaction"]
    assert (compaction["trigger"], compaction["focus"]) == ("manual", "the allergies of Mara")
    assert "Mara: no shellfish." in str(compaction["messages"])
