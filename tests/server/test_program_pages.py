"""The pages of usage, settings and the doctor."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from satchel.clock import local_day
from satchel.messages import Usage
from satchel.runtime.health import Check, make_home_private
from satchel.server.pages import doctor as doctor_page
from satchel.sessions import UsageRow
from tests.requirements import requirement
from tests.server.browsers import browser, open_page, read, said, send, words_of
from tests.server.world import World, serving

KEY = "sk-live-0123456789abcdef0123"
CONFIG = """\
# mine
[budget]
day_usd = 3.0  # enough

[mcp_servers.mail]
command = "mail-server"
args = ["--token", "hunter2hunter2"]
enabled = false

[[permissions]]
action = "allow"
tool = "bash(git status*)"
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server whose home has a settings file, and whose environment sets something."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "home").mkdir(mode=0o700)
    (folder / "home" / "config.toml").write_text(CONFIG)
    with serving(
        folder,
        environ={"SATCHEL_AGENT_MAX_ROUNDS": "7", "OPENAI_API_KEY": KEY},
        server__requests_per_s=10_000,
    ) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[httpx2.Client]:
    with browser(world) as client:
        yield client


def file_of(world: World) -> dict[str, Any]:
    return tomllib.loads((world.home / "config.toml").read_text())


def field(page: Any, key: str) -> Any:
    [found] = page.xpath(f'//*[@name="{key}"]')
    return found


def section(client: httpx2.Client, name: str, **fields: str) -> httpx2.Response:
    """Save one section, with what stands in it and these fields."""
    page = open_page(client, f"/settings?section={name}")
    [form] = [form for form in page.forms if form.get("action") == "/settings" and form.method == "POST"]
    filled = {key: value for key, value in form.form_values() if key not in fields}
    return client.post(
        "/settings",
        data={**filled, **fields},
        headers={"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"},
    )


# ---- Usage


def row(day: str, model: str, purpose: str, read: int, cached: int, out: int, usd: float | None) -> UsageRow:
    usage = Usage(input_tokens=read, cache_read_tokens=cached, output_tokens=out, cost_usd=usd)
    return UsageRow(
        session_id="s", day=day, purpose=purpose, provider="anthropic", model=model, calls=2, usage=usage
    )


@requirement("web-pages:usage", "web-pages:charts")
def test_a_month_of_usage_is_shown_by_day_as_a_table_and_by_model_and_purpose(
    world: World, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (
        row("2026-09-30", "<big>", "conversation", 500, 100, 50, 1.0),
        row("2026-09-02", "<big>", "conversation", 10_000, 4_000, 500, 3.0),
        row("2026-09-02", "small", "extract", 2_000, 0, 100, 1.0),
        row("2026-08-05", "local", "conversation", 900, 0, 90, None),
        row(local_day(world.satchel.clock.now()), "local", "conversation", 900, 0, 90, None),
    )

    async def usage() -> tuple[UsageRow, ...]:
        return rows

    monkeypatch.setattr(world.satchel, "usage", usage)
    page = open_page(client, "/usage?month=2026-09")
    table = {
        words_of(line[0]): [words_of(cell) for cell in line[1:]]
        for line in page.cssselect("details tbody tr")
    }
    assert len(table) == 30
    assert table["2 Sep"] == ["4,000", "8,000", "600", "4", "$4.00"]
    assert table["3 Sep"] == ["0", "0", "0", "0", "$0.00"]
    [drawing] = page.cssselect(".chart svg[role=img]")
    assert len(drawing.cssselect("rect.cost")) == 2
    assert "The most expensive day is 2 September with $4.00." in drawing.cssselect("desc")[0].text
    [models, purposes] = [
        " ".join(words_of(line) for line in part.cssselect("p")) for part in page.cssselect(".shares")
    ]
    assert models.startswith("anthropic:<big> $4.00 80 %. 11,050 tokens, 4 calls anthropic:small $1.00 20 %.")
    assert "Drawing facts from conversations $1.00" in purposes
    assert words_of(page.cssselect(".figures")[0]).startswith("Todayunknown")
    assert "33 %" in words_of(page.cssselect(".figures")[0])
    assert "In the background today" in words_of(page)
    assert "Drawing facts from conversations00$0.00" in words_of(page)
    assert "No budget is set." in words_of(page)
    august = open_page(client, "/usage?month=2026-08")
    assert "The price of anthropic:local is unknown" in words_of(august)
    assert august.cssselect("rect.cost") == []
    assert "Nothing was used in January 2020" in words_of(open_page(client, "/usage?month=2020-01"))
    for wrong in ("2026-13", "0000-01", "next", "2026-9", "%00"):
        shown = open_page(client, f"/usage?month={wrong}", 200 if wrong == "0000-01" else 422)
        assert shown is not None


@requirement("web-pages:usage")
def test_without_any_usage_the_page_shows_a_notice(client: httpx2.Client) -> None:
    page = open_page(client, "/usage")
    assert "No model has been used yet" in words_of(page)
    assert "of $3.00 a day" in words_of(page)
    assert page.get_element_by_id("m-day").get("max") == "3.0"


# ---- Settings


@requirement("web-pages:settings", "web-pages:settings:search")
def test_every_setting_is_found_with_where_it_was_set_and_no_secret_with_it(
    world: World, client: httpx2.Client
) -> None:
    from satchel.config import SETTINGS  # noqa: PLC0415

    own = [
        each.key
        for each in SETTINGS
        if not each.key.startswith(("providers.", "mcp_servers.", "permissions."))
    ]
    first = open_page(client, "/settings")
    assert len(shown_on(first)) == 10
    found: list[str] = []
    texts = ""
    for link in first.xpath("//nav[@aria-label='Settings by subject']/a"):
        to = link.get("href")
        while to:
            page = open_page(client, to)
            texts += page.text_content()
            found += shown_on(page)
            to = next(iter(page.xpath("//a[@rel='next']/@href")), "")
    assert sorted(found) == sorted(own)
    assert KEY not in texts
    assert "hunter2" not in texts
    page = open_page(client, "/settings?q=budget.day_usd")
    assert "$0.00 of $3.00 today" in words_of(page)
    budget = field(page, "budget.day_usd")
    assert budget.get("value") == "3"
    assert "From your settings file." in words_of(budget.getparent())
    rounds = field(open_page(client, "/settings?q=max+rounds"), "agent.max_rounds")
    assert (rounds.get("value"), "disabled" in rounds.attrib) == ("7", True)
    assert "Set by SATCHEL_AGENT_MAX_ROUNDS in the environment." in words_of(rounds.getparent())
    port = field(open_page(client, "/settings?q=Server+PORT"), "server.port")
    assert "Set on the command line of this server." in words_of(port.getparent())
    tokens = field(open_page(client, "/settings?q=memory.budget_tokens"), "memory.budget_tokens")
    assert "Default: 500." in words_of(tokens.getparent())
    assert "set OPENAI_API_KEY" in words_of(open_page(client, "/settings?section=model"))


def shown_on(page: Any) -> list[str]:
    """The settings on a page that can be filled in."""
    names = page.xpath("//*[@id='found']//*[self::input or self::select][not(@type='hidden')]/@name")
    return [str(name) for name in names]


@requirement("web-pages:settings:search")
def test_a_search_for_settings_finds_pages_too_and_keeps_what_was_searched_when_it_saves(
    client: httpx2.Client,
) -> None:
    page = open_page(client, "/settings?q=mcp")
    assert page.xpath("//*[@id='found']//a[@href='/settings/servers']")
    nothing = open_page(client, "/settings?q=<b>nowhere</b>")
    assert "No setting has all these words." in words_of(nothing)
    assert nothing.cssselect("#found b") == []
    page = open_page(client, "/settings?section=memory&from=12")
    assert shown_on(page)
    assert set(shown_on(page)).isdisjoint(shown_on(open_page(client, "/settings?section=memory")))
    saved = send(client, page, "/settings", {})
    assert saved.headers["location"] == "/settings?section=memory&from=12"
    assert said(open_page(client, "/settings")) == "Nothing was changed."
    for odd in ("from=9999", "from=-1", "from=x", "section=nothing", "q=%00"):
        open_page(client, f"/settings?{odd}")


@requirement("web-pages:settings")
def test_a_setting_is_written_to_the_file_with_the_rest_of_it_untouched_and_waits_for_a_restart(
    world: World, client: httpx2.Client
) -> None:
    before = file_of(world)
    answer = section(
        client,
        "memory",
        **{
            "memory.limit": "5",
            "memory.redact": "false",
            "memory.embedder": "minilm",
            "memory.locale": "da_DK",
        },
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/settings?section=memory")
    after = file_of(world)
    assert after == {**before, "memory": {"limit": 5, "redact": False, "locale": "da_DK"}}
    assert "# mine" in (world.home / "config.toml").read_text()
    page = open_page(client, "/settings")
    assert said(page).startswith(
        "Saved: memory.redact, memory.locale, memory.limit."
    ) or "memory.limit" in said(page)
    assert "3 settings take effect after a restart." in words_of(page)
    limit = field(open_page(client, "/settings?q=memory.limit"), "memory.limit")
    assert "until then: 8" in words_of(limit.getparent())
    assert world.satchel.settings.memory.limit == 8
    section(client, "memory", reset="memory.limit")
    section(client, "memory", reset="memory.redact")
    section(client, "memory", reset="memory.locale")
    assert {key: value for key, value in file_of(world).items() if value} == before
    assert "take effect" not in words_of(open_page(client, "/settings"))


@requirement("web-pages:settings")
def test_a_wrong_value_is_reported_at_its_field_and_nothing_is_written(
    world: World, client: httpx2.Client
) -> None:
    before = (world.home / "config.toml").read_bytes()
    wrong = {"budget.day_usd": "three", "budget.session_usd": "1.5", "budget.turn_tokens": "-4"}
    page = read(section(client, "budget", **wrong), 422)
    for key in ("budget.day_usd", "budget.turn_tokens"):
        typed = field(page, key)
        assert typed.get("aria-invalid") == "true"
        assert typed.get("value") == wrong[key]
        assert key in words_of(page.get_element_by_id(typed.get("aria-describedby").split()[-1]))
    assert field(page, "budget.session_usd").get("value") == "1.5"
    for fields in (
        {"agent.max_rounds": "9"},  # the environment sets it
        {"model": "nobody:nothing"},
        {"no.such": "1"},
        {"permissions": "x"},
        {"__proto__": "1"},
        {"memory.surface_judge": "<script>"},
        {"tools.dirs": "a\x00b"},
    ):
        answer = section(client, "budget", **fields)
        assert answer.status_code in (303, 422), fields
    assert (world.home / "config.toml").read_bytes() == before
    assert section(client, "budget", reset="no.such").status_code == 404


@requirement("web-pages:settings")
def test_a_broken_settings_file_is_reported_and_the_page_still_opens(
    world: World, client: httpx2.Client
) -> None:
    path = world.home / "config.toml"
    before = path.read_text()
    path.write_text("budget = = 3")
    try:
        page = open_page(client, "/settings")
        assert "The settings file can’t be used" in words_of(page)
        assert "line 1" in words_of(page.cssselect('[role="alert"]')[0])
        assert section(client, "budget", **{"budget.day_usd": "4"}).status_code == 303
        assert path.read_text() == "budget = = 3"
    finally:
        path.write_text(before)


# ---- Doctor


@requirement("web-pages:doctor")
def test_the_doctor_page_shows_the_findings_with_fixes_and_buttons(
    world: World, client: httpx2.Client
) -> None:
    world.home.chmod(0o755)
    try:
        begun = open_page(client, "/doctor")
        send(client, begun, "/doctor")
        page = open_page(client, "/doctor")
        [trouble] = [each for each in page.cssselect(".trouble li") if "Other users" in words_of(each)]
        assert words_of(trouble.cssselect("code.command")[0]) == f"chmod 700 {world.home}"
        assert "to look at" in words_of(page.cssselect("h1")[0]) or "to fix" in words_of(
            page.cssselect("h1")[0]
        )
        parts = {words_of(part) for part in page.cssselect(".check b, .trouble h2")}
        assert {"Program", "Home", "Database", "Sessions", "Memory", "Sandbox"} <= parts
        assert "scripted:scripted (given by the program)" in words_of(page)
        [form] = [form for form in page.forms if form.get("action") == "/doctor/fix"][:1]
        button = trouble.cssselect("button")[0]
        fixed = client.post(
            "/doctor/fix",
            data={**dict(form.form_values()), "fix": button.get("value")},
            headers={"origin": world.url, "sec-fetch-site": "same-origin"},
        )
        assert fixed.status_code == 303
        assert world.home.stat().st_mode & 0o777 == 0o700
        after = open_page(client, "/doctor")
        assert said(after) == "Only you can read it now."
        assert "Other users" not in words_of(after)
        strange = client.post(
            "/doctor/fix",
            data={**dict(form.form_values()), "fix": "rm -rf"},
            headers={"origin": world.url, "sec-fetch-site": "same-origin"},
        )
        assert strange.status_code == 404
    finally:
        world.home.chmod(0o700)


@requirement("web-pages:doctor")
def test_a_visit_does_not_check_again_and_hostile_words_of_a_check_are_text(
    world: World, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    async def examine(satchel: object) -> tuple[Check, ...]:
        asked.append(satchel)
        return (
            Check(
                part="MCP server <b>",
                state="failed",
                text="`<script>alert(1)</script>` said `x",
                command="<i>",
            ),
        )

    monkeypatch.setattr(doctor_page, "examine", examine)
    world.app.api.state.kept.examined = None
    open_page(client, "/doctor")
    page = open_page(client, "/doctor")
    assert len(asked) == 1
    assert words_of(page.cssselect("h1")[0]) == "1 thing to fix"
    assert "<script>alert(1)</script>" in page.cssselect(".trouble")[0].text_content()
    assert page.cssselect("main script, main i") == []
    send(client, page, "/doctor")
    assert len(asked) == 2
    world.app.api.state.kept.examined = None


@requirement("web-pages:doctor")
def test_the_memories_are_checked_and_repaired_from_the_page(world: World, client: httpx2.Client) -> None:
    page = open_page(client, "/doctor")
    assert send(client, page, "/doctor/memories").headers["location"] == "/doctor#memories"
    checked = open_page(client, "/doctor")
    assert "Duplicates" in words_of(checked.get_element_by_id("memories"))
    answer = client.post(
        "/doctor/memories/repair",
        data={"form_token": checked.cssselect('input[name="form_token"]')[0].get("value")},
        headers={"origin": world.url, "sec-fetch-site": "same-origin"},
    )
    assert answer.status_code == 303
    assert "epair" in said(open_page(client, "/doctor"))


@requirement("web-pages:doctor")
def test_making_a_home_private_removes_only_the_rights_of_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_home_private(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
