"""The page of permission rules: sentences, added from what was asked, removed, and kept to at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from satchel.config import PermissionRule, rule_options
from satchel.runtime.rule_sentences import sentence
from tests.requirements import requirement
from tests.runtime.world import run_answered
from tests.server.browsers import at, browser, open_page, read, said, send, words_of
from tests.server.world import World, chat, serving

HERE = "/settings/permissions"


@pytest.fixture
def world(tmp_path: Any) -> Iterator[World]:
    with serving(tmp_path, server__requests_per_s=10_000, agent__mode="ask") as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[httpx2.Client]:
    with browser(world) as client:
        yield client


def rules_of(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((world.home / "config.toml").read_text()).get(
        "permissions", []
    )
    return found


def is_refused(api: httpx2.Client, session: str) -> bool:
    """Whether the call of a message is refused now, where nobody can be asked."""
    [call] = chat(api, "echo hi", session_id=session)[-1].data["toolCalls"]
    return bool(call["isError"])


@requirement("web-pages:rules")
def test_what_was_asked_is_allowed_always_and_a_removed_rule_holds_no_more_in_an_open_session(
    world: World, client: httpx2.Client
) -> None:
    with world.client() as api:
        session = chat(api, "Hello")[0].data["sessionId"]
        assert is_refused(api, session)
        page = open_page(client, HERE)
        assert "No rule yet" in words_of(page)
        [asked] = page.cssselect("#asked li")
        assert "Refused, because nobody could be asked" in words_of(asked)
        [rule] = asked.xpath(".//input[@name='tool']/@value")
        assert rule.startswith("bash(echo ")
        pressed(client, HERE, action="allow", tool=rule)
        page = open_page(client, HERE)
        assert said(page).startswith("Added. Satchel may run echo ")
        assert page.cssselect("#asked") == []
        assert rules_of(world) == [{"action": "allow", "tool": rule}]
        assert world.satchel.has_open(session)
        assert not is_refused(api, session)
        pressed(client, f"{HERE}/remove", action="allow", tool=rule)
        assert rules_of(world) == []
        assert is_refused(api, session)
        assert is_refused(api, chat(api, "Hello")[0].data["sessionId"])


@requirement("web-pages:rules")
def test_rules_are_added_removed_and_taken_back_and_what_is_none_is_refused(
    world: World, client: httpx2.Client
) -> None:
    path = world.home / "config.toml"
    path.write_text('# mine\n[[permissions]]  # safe\naction = "ask"\ntool = "file_write"\n')
    page = open_page(client, HERE)
    send(client, page, HERE, {"action": "deny", "tool": "bash(rm -rf *)"})
    page = open_page(client, HERE)
    assert [words_of(each) for each in page.cssselect(".sentences p:first-child")] == [
        "Satchel always asks before it may write any file.",
        "Satchel may never run rm -rf *.",
    ]
    beyond = open_page(client, f"{HERE}?page=2")
    assert len(beyond.cssselect(".sentences p:first-child")) == 2
    assert beyond.cssselect(".pager") == []
    before = path.read_bytes()
    for action, tool in (("allow", "bash(("), ("everything", "bash"), ("allow", ""), ("deny", "x network=a")):
        refused = read(send(client, page, HERE, {"action": action, "tool": tool}), 422)
        assert words_of(refused.get_element_by_id("rule-e"))
        assert refused.get_element_by_id("rule-t").get("value") == tool
    secret = read(
        send(client, page, HERE, {"action": "allow", "tool": "bash(curl -u ann:hunter2hunter2 *)"}), 422
    )
    assert "secret" in words_of(secret.get_element_by_id("rule-e"))
    assert path.read_bytes() == before
    pressed(client, f"{HERE}/remove", action="ask", tool="file_write")
    assert rules_of(world) == [{"action": "deny", "tool": "bash(rm -rf *)"}]
    assert path.read_text().startswith("# mine\n")
    pressed(client, HERE, action="ask", tool="file_write")  # Undo
    assert len(rules_of(world)) == 2
    with pytest.raises(ValueError, match="not enough"):
        pressed(client, f"{HERE}/remove", action="allow", tool="file_write")


def pressed(client: httpx2.Client, to: str, **hidden: str) -> None:
    """Press the button of the form with these hidden fields on the page as it is."""
    page = open_page(client, HERE)
    forms = [dict(form.form_values()) for form in page.forms if form.get("action") == to]
    [filled] = [fields for fields in forms if hidden.items() <= fields.items()]
    answer = client.post(to, data=filled, headers={"origin": at(client), "sec-fetch-site": "same-origin"})
    assert answer.status_code == 303, answer.text


@requirement("web-pages:rules", "permissions:always")
def test_what_one_conversation_allowed_always_holds_in_another_that_is_open(world: World) -> None:
    async def answered() -> None:
        session = await world.satchel.session(interactive=True)
        await run_answered(session, "echo hi", "always")
        await session.aclose()

    with world.client() as api:
        other = chat(api, "Hello")[0].data["sessionId"]
        assert is_refused(api, other)
        world.call(answered)
        assert world.satchel.has_open(other)
        assert not is_refused(api, other)
        assert not is_refused(api, chat(api, "Hello")[0].data["sessionId"])


SENTENCES = (
    ("allow", "bash", "Satchel may run any command without asking."),
    ("allow", "bash(git *)", "Satchel may run `git *` in the sandbox without asking."),
    ("allow", "bash(git status)", "Satchel may run `git status` without asking."),
    ("allow", "bash(make) boxed=false", "Satchel may run `make` outside the sandbox without asking."),
    ("ask", "file_write(src/*)", "Satchel always asks before it may write `src/*`."),
    ("deny", "web_fetch(https://x.example/*)", "Satchel may never open `https://x.example/*`."),
    ("allow", "mcp__files__*", "Satchel may use every tool of the MCP server `files` without asking."),
    (
        "allow",
        "mcp__files__read",
        "Satchel may use the tool `read` of the MCP server `files` without asking.",
    ),
    (
        "allow",
        "bash network=a.example,b.example",
        "In the sandbox, `bash` may reach `a.example` and `b.example`.",
    ),
    (
        "allow",
        "cap_weather secrets=KEY state=true",
        "Satchel may run the capability `weather` without asking, and may get `KEY` and keep files from one run to the "
        "next then.",
    ),
    (
        "allow",
        f"bash(echo {'x' * 600}; rm -r ~/x)",
        f"Satchel may run `echo {'x' * 600}; rm -r ~/x` without asking.",
    ),
    ("allow", "other(a`b`)", "Satchel may use `other` with `a´b´` without asking."),
)


@requirement("web-pages:rules")
@pytest.mark.parametrize(("action", "text", "words"), SENTENCES)
def test_a_rule_is_a_sentence(action: Any, text: str, words: str) -> None:
    tool, options = rule_options(text)
    assert sentence(PermissionRule(action=action, tool=tool, options=options)) == words
