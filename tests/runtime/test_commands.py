"""Lines that begin with a slash: the same table for every face."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from satchel.errors import UsageError
from satchel.events import Event, Notice, Posted
from satchel.models.scripted import ScriptedModel
from satchel.runtime import Satchel, Session
from satchel.runtime.commands import (
    CommandContext,
    CommandResult,
    OwnPosts,
    SessionChange,
    completions,
    find_command,
    run_command,
)
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("typed", "name", "rest"),
    [
        ("/help", "help", ""),
        ("/HELP  tool", "help", "tool"),
        ('/run bash {"command": "ls\n-l"}', "run", 'bash {"command": "ls\n-l"}'),
        ("/compact focus on\nthe soup", "compact", "focus on\nthe soup"),
        ("! git status -s", "shell", "git status -s"),
        ("!ls", "shell", "ls"),
        ("!cat a.txt | sort", "shell", "cat a.txt | sort"),
    ],
)
def test_a_command_and_what_follows_it(typed: str, name: str, rest: str) -> None:
    found = find_command(typed)
    assert found is not None
    assert (found[0].name, found[1]) == (name, rest)


@pytest.mark.parametrize(
    "typed",
    ["/etc/hosts is what?", "hello /help", "/", "//help", "/2 of them", "!", "! ", "!important", "Now! ls"]
    + ["!!!", "!ls!", "!important: water the plants", "!ls\nfails. Why?", "!ls, what is that?"],
)
def test_a_message_may_hold_slashes(typed: str) -> None:
    assert find_command(typed) is None


def test_an_unknown_command_gets_suggestions() -> None:
    with pytest.raises(UsageError, match=r"no command /memries\. Did you mean /memory\?"):
        find_command("/memries shellfish")
    with pytest.raises(UsageError, match=r"no command /xyz\. /help lists the commands"):
        find_command("/xyz")


class Face:
    """What a face does with a command, without a screen."""

    def __init__(self, satchel: Satchel, session: Session) -> None:
        self.events: list[Event] = []
        self.told: list[str] = []
        self.context = CommandContext(
            satchel=satchel,
            session=session,
            show=self.events.append,
            tell=self.told.append,
        )

    async def run(self, text: str) -> CommandResult:
        found = find_command(text)
        assert found is not None
        return await run_command(self.context, *found)

    async def lines(self, text: str) -> str:
        return "\n".join(line.text for line in (await self.run(text)).lines)


@requirement("cli:slash:shared")
async def test_commands_return_what_they_found_and_print_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        face = Face(satchel, await satchel.session())
        assert satchel.memory is not None
        id = await satchel.memory.add("Mara is allergic to shellfish.")
        assert "Mara is allergic" in await face.lines("/memory shellfish")
        assert "1 memory. " in await face.lines("/memory")
        assert "1 conversation. " in await face.lines("/sessions")
        assert (await face.run("/resume abc")).change == SessionChange(session_id="abc")
        assert (await face.run("/private")).change == SessionChange(private=True)
        assert (await face.run("/quit")).leaves
        assert "This conversation: nothing yet" in await face.lines("/usage")
        assert "The next request has about 0 tokens of it, 0 of them from memory." in await face.lines(
            "/context"
        )  # as others call it
        assert await face.lines("/plan") == await face.lines("/mode plan")
        assert "nothing to summarise" in await face.lines("/compact")
        with pytest.raises(UsageError, match="nothing to name"):
            await face.run("/rename Dinner")
        assert await face.lines('/run bash {"command": "echo hi"}') == "exit code: 0\nstdout:\nhi"
        assert {event.type for event in face.events} >= {"action", "tool_progress", "observation"}
        asked = await face.run(f"/forget {id}")
        assert asked.confirm is not None
        assert asked.confirm.question == "Forget this memory permanently?"
        assert await satchel.memory.count() == 1
        assert f"Forgotten: {id}" in (await asked.confirm.proceed()).lines[0].text
        assert await satchel.memory.count() == 0
    assert capsys.readouterr().out == ""


@requirement("cli:slash:usage")
async def test_usage_says_how_much_of_the_conversation_comes_from_memory(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(["Noted."])) as satchel:
        assert satchel.memory is not None
        await satchel.memory.add("The user is allergic to shellfish.", importance=5)
        session = await satchel.session()
        face = Face(satchel, session)
        await session.run_turn("What can I cook?")
        found = re.search(
            r"about ([\d,]+) tokens of it, ([\d,]+) of them from memory", await face.lines("/usage")
        )
        assert found is not None
        assert 20 < int(found[2]) < int(found[1])


@requirement("external:command:logged")
async def test_the_log_keeps_commands_about_tools_and_what_they_answered(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        session = await satchel.session()
        face = Face(satchel, session)
        await face.run("/tool bash")
        await face.run("/refresh")
        await face.run("/help")
        log = await satchel.sessions.load(session.id)
    notices = [record.event for record in log.records if isinstance(record.event, Notice)]
    assert [notice.text.splitlines()[0] for notice in notices] == ["/tool bash", "/refresh"]
    assert "Run a bash command" in notices[0].text
    assert "Tools refreshed. " in notices[1].text
    assert face.told == ["Refreshing tools..."]


async def test_completion_offers_commands_tools_models_and_modes(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        session = await satchel.session()

        async def offered(text: str) -> list[str]:
            return [word for word, _ in await completions(text, satchel, session)]

        assert await offered("/mem") == ["/memory"]
        assert await offered("/run file_r") == ["file_read"]
        assert "bash" in await offered("/tool ")
        assert await offered("/model open") == ["openai:", "openrouter:"]
        assert await offered("/mode a") == ["ask", "auto"]
        assert await offered("hello") == await offered("/memory x") == await offered("/he\n") == []


@requirement("commands:shell")
async def test_a_command_of_the_user_is_run_and_the_model_is_told(tmp_path: Path) -> None:
    model = ScriptedModel(["I see."])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        face = Face(satchel, session)
        result = await face.run("! echo $((6 * 7))")
        assert "42" in "".join(line.text for line in result.lines)
        await session.run_turn("What came out?")
    sent = "\n".join(getattr(block, "text", "") for block in model.requests[-1].messages[-1].blocks)
    assert "[Message from the user's command: echo $((6 * 7))" in sent
    assert "42" in sent


@requirement("commands:shell")
def test_a_command_that_another_client_runs_at_the_same_time_is_not_ones_own() -> None:
    mine = find_command("!echo fig")
    assert mine is not None
    own = OwnPosts()
    with own.running(*mine):
        assert not own.has(Posted(id="p1", source="the user's command: echo plum", text="plum"))
        assert own.has(Posted(id="p2", source="the user's command: echo fig", text="fig"))
    assert own.has(Posted(id="p2", source="the user's command: echo fig", text="fig"))
