"""Plans and sub-agents on the pages, over HTTP, and in a terminal beside the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from satchel.models import Call, Reply, ScriptedModel
from satchel.models.port import ModelRequest
from tests.requirements import requirement
from tests.runtime.test_plans import planner
from tests.runtime.test_sub_agents import delegate, is_sub_agent
from tests.server.browsers import browser, open_page, send, words_of
from tests.server.test_chat_page import asks, begin, parts, wait_until_over
from tests.server.test_remote import host, until_true
from tests.server.world import World, chat, serving


@pytest.fixture
def planning(tmp_path: Path) -> Iterator[World]:
    """A server whose model proposes plans, in mode bypass before."""
    with serving(tmp_path, lambda _: ScriptedModel(planner)) as world:
        yield world


@requirement("plan:faces")
def test_a_plan_is_approved_on_the_page_and_the_page_shows_the_new_mode(planning: World) -> None:
    with browser(planning) as client:
        path = begin(client, "A letter, please.", mode="plan")
        parts(client, path, until=asks)
        page = open_page(client, path)
        [ask] = page.find_class("ask")
        assert words_of(ask.xpath(".//strong")[0]) == "letter"
        assert "from the list.<U+3164>" in words_of(ask)  # a filler, which nobody sees
        options = ask.xpath(".//button[@name='option']/@value")
        assert options == ["Yes, in mode bypass", "Yes, in mode ask", "Yes, in mode auto", "No"]
        assert not page.xpath("//ol[@class='steps']")  # the question is the call
        assert send(client, page, f"{path}/answer", {"option": options[0]}).status_code == 303
        events = parts(
            client, path, until=lambda each: each.name == "state" and each.data["mode"] == "bypass"
        )
        assert events
        page = wait_until_over(client, path)
        assert page.xpath("//select[@name='mode']/option[@selected]/@value") == ["bypass"]
        [answered] = page.find_class("answered")
        assert words_of(answered.xpath(".//summary")[0]) == "Approve this plan? Yes, in mode bypass"
        [plan, write] = page.xpath("//*[@id='turn-2']//ol[@class='steps']/li")
        assert "0 of 2 done" in words_of(plan)
        assert "letter.txt" in words_of(write)


@requirement("plan:faces")
def test_a_program_approves_a_plan_over_http(planning: World) -> None:
    with planning.client() as client:
        response = chat(client, "A letter, please.", mode="plan")[-1].data
        assert response["status"] == "asking"
        assert response["pendingQuestion"].startswith("Approve this plan?\n\nA **letter**")
        session = f"/api/sessions/{response['sessionId']}"
        state = client.get(f"{session}/state").json()
        assert (state["mode"], state["question"]["options"][-1]) == ("plan", "No")
        response = chat(client, "Yes, in mode bypass", session_id=response["sessionId"])[-1].data
        assert (response["status"], response["text"]) == ("done", "Fine.")
        assert client.get(f"{session}/state").json()["mode"] == "bypass"
        assert (planning.home.parent / "work" / "letter.txt").exists()


@requirement("plan:faces")
@pytest.mark.anyio
async def test_a_terminal_beside_the_server_shows_the_mode_that_a_plan_leads_to(planning: World) -> None:
    async with host(planning.home.parent) as remote:
        session = await remote.session(mode="auto")
        await (await session.start("A letter, please.")).result()
        with anyio.fail_after(120):
            await until_true(lambda: session.mode == "plan")
            await (await session.start("Yes, in mode ask")).result()
            await until_true(lambda: session.mode == "ask")


@requirement("delegate:log")
def test_what_a_sub_agent_did_is_folded_beneath_its_call_and_in_the_export(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Reply:
        if not is_sub_agent(request):
            return Reply(text="Found.") if len(request.messages) > 1 else delegate("Look for harbours.")
        if len(request.messages) == 1:
            return Reply(calls=[Call(name="grep", input={"pattern": "harbour"})])
        return Reply(text="There is none.")

    with serving(tmp_path, lambda _: ScriptedModel(script)) as world, browser(world) as client:
        path = begin(client, "Find one.")
        page = wait_until_over(client, path)
        [beneath] = page.xpath("//details[contains(@id, '-beneath')]")
        assert words_of(beneath.find("summary")) == "What the sub-agent did: 1 call"
        assert "harbour" in words_of(beneath.xpath(".//li")[0])
        [call] = page.xpath("//ol[@class='steps' and @aria-label='What was done']/li")
        assert "Look for harbours. 2 rounds, 1 call, " in words_of(call)
        exported = client.get(f"/sessions/{path[6:]}/export?form=markdown").text
        assert '- `grep` {"pattern": "harbour"}: done' in exported
        assert "There is none." in exported
