"""Browsers log in, stay logged in, and change nothing that their user didn't."""

from __future__ import annotations

import fcntl
import json
import re
import threading

import httpx2
import pytest
from lxml import html

from satchel.clock import ManualClock
from satchel.errors import UsageError
from satchel.runtime.browsers import BROWSERS_FILE, CODE_LASTS_S, Browsers
from satchel.runtime.serving import login_link, serving
from satchel.server.browser_access import place_for
from satchel.server.rates import Rates
from tests.requirements import requirement
from tests.server.browsers import at, browser, open_page, read, said, send, ticked, words_of
from tests.server.world import World, chat
from tests.server.world import serving as server_in


@pytest.fixture(autouse=True)
def many_tries(world: World) -> None:
    """The tests of a module share a server, and one address."""
    world.app.api.state.pages.login_tries = Rates(per_s=1000, burst=1000)


def cookies(client: httpx2.Client) -> dict[str, str]:
    return {cookie.name: cookie.value or "" for cookie in client.cookies.jar}


def go_to_place(client: httpx2.Client) -> None:
    """Ask for pages below the place that the cookie is for, as a browser does that followed the login."""
    [place] = {cookie.path for cookie in client.cookies.jar}
    client.base_url = client.base_url.copy_with(path=place)


@requirement("web-pages:login")
def test_a_browser_logs_in_with_the_token_and_gets_a_value_of_its_own(world: World) -> None:
    with browser(world, logged_in=False) as client:
        sent_away = client.get("/sessions?q=a b")
        assert sent_away.status_code == 303
        assert sent_away.headers["location"] == "/login?next=/sessions%3Fq%3Da%2520b"
        page = open_page(client, sent_away.headers["location"])
        [form] = page.forms
        answer = client.post("/login", data={**dict(form.form_values()), "token": world.token})
        assert (answer.status_code, answer.headers["location"]) == (303, "/sessions?q=a%20b")
        [attributes] = answer.headers.get_list("set-cookie")
        assert "HttpOnly" in attributes
        assert "SameSite=strict" in attributes
        port = world.url.rpartition(":")[2]
        [(name, value)] = cookies(client).items()
        assert name == f"satchel_{port}"
        assert len(value) > 40
        [place] = {cookie.path for cookie in client.cookies.jar}
        assert re.fullmatch(r"/s/[0-9a-f]{32}", place)
        assert value not in place
        assert "ended" not in sent_away.headers["location"]
        assert value not in (world.home / BROWSERS_FILE).read_text()
        assert world.token not in answer.text + str(answer.headers)
        assert (world.home / BROWSERS_FILE).stat().st_mode & 0o777 == 0o600
        assert client.get("/sessions").status_code == 303
        go_to_place(client)
        open_page(client, "/sessions")


@requirement("web-pages:login")
@pytest.mark.parametrize("token", ["", "wrong-token-of-some-length", "ÿ\ud800", "x" * 100_000])
def test_a_wrong_token_logs_nobody_in(world: World, token: str) -> None:
    with browser(world, logged_in=False) as client:
        body = b"token=" + token.encode("utf-8", "surrogatepass")
        answer = client.post(
            "/login", content=body, headers={"content-type": "application/x-www-form-urlencoded"}
        )
        assert "not the token" in words_of(read(answer, 403))
        assert cookies(client) == {}


@requirement("web-pages:login")
def test_tokens_can_be_tried_only_so_often(world: World) -> None:
    world.app.api.state.pages.login_tries = Rates(per_s=0.0001, burst=3)  # however long the requests take
    with browser(world, logged_in=False) as client:
        statuses = [client.post("/login", data={"token": f"guess {n}"}).status_code for n in range(4)]
        assert statuses == [403, 403, 403, 429]
        assert client.post("/login", data={"token": world.token}).status_code == 429


@requirement("web-pages:login")
def test_a_login_link_works_once_and_not_for_long(world: World) -> None:
    [code, late] = [world.app.browsers.make_code() for _ in range(2)]
    with browser(world, logged_in=False) as client:
        answer = client.get(f"/login?code={code}&next=/sessions")
        assert (answer.status_code, answer.headers["location"]) == (303, "/sessions")
        go_to_place(client)
        open_page(client, "/sessions")
    with browser(world, logged_in=False) as client:
        page = open_page(client, f"/login?code={code}", 403)
        assert "This link has been used" in words_of(page)
        assert cookies(client) == {}
    clock = ManualClock()
    browsers = Browsers(world.home, token=world.token, clock=clock)
    code = browsers.make_code()
    clock.advance(CODE_LASTS_S)
    assert not browsers.use_code(code)
    assert not browsers.use_code(late)  # of another process


@requirement("web-pages:login")
def test_a_program_with_the_token_gets_a_login_link(world: World) -> None:
    there = serving(world.home)
    assert there is not None
    link = world.call(login_link, world.home, there)
    with browser(world, logged_in=False) as client:
        assert client.get(link).headers["location"] == "/"
    with world.client() as client:
        client.headers["authorization"] = "Bearer wrong-token-of-some-length"
        assert client.post("/login/link").status_code == 401
    (world.home / "token").rename(world.home / "token.away")
    try:
        with pytest.raises(UsageError, match="did not give a login link"):
            world.call(login_link, world.home, there)
    finally:
        (world.home / "token.away").rename(world.home / "token")


@requirement("web-pages:login")
@pytest.mark.parametrize(
    "next",
    ["//evil.example/", "https://evil.example/", "/\\evil.example", "\\\\evil", "/a\r\nset-cookie: x=1", ""],
)
def test_logging_in_leads_to_no_other_site(world: World, next: str) -> None:
    with browser(world, logged_in=False) as client:
        answer = client.post("/login", data={"token": world.token, "next": next})
        assert answer.headers["location"] == "/"


@requirement("web-pages:login")
def test_browsers_stay_logged_in_over_a_restart_until_they_log_out_or_the_token_changes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("restarted")
    with server_in(folder) as first, browser(first) as client:
        [value] = cookies(client).values()
    with server_in(folder) as second:
        name = f"satchel_{second.url.rpartition(':')[2]}"
        with browser(second, logged_in=False) as client:
            client.cookies.set(name, value, domain="127.0.0.1", path=place_for(value))
            go_to_place(client)
            page = open_page(client, "/sessions")
            send(client, page, "/logout")
            assert cookies(client) == {}
        with browser(second, logged_in=False) as client:
            client.cookies.set(name, value, domain="127.0.0.1", path=place_for(value))
            go_to_place(client)
            assert client.get("/sessions").headers["location"] == "/login?ended=1&next=/sessions"
        with browser(second) as client:
            [value] = cookies(client).values()
    (folder / "home" / "token").write_text("another-token-of-some-length\n")
    with server_in(folder) as third, browser(third, logged_in=False) as client:
        name = f"satchel_{third.url.rpartition(':')[2]}"
        client.cookies.set(name, value, domain="127.0.0.1", path=place_for(value))
        go_to_place(client)
        assert client.get("/sessions").status_code == 303


@requirement("web-pages:login")
def test_a_login_lasts_thirty_days_and_a_broken_file_holds_none(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home, clock = tmp_path_factory.mktemp("home"), ManualClock()
    browsers = Browsers(home, token="t" * 30, clock=clock)
    value = browsers.log_in()
    clock.advance(30 * 24 * 3600 - 1)
    assert browsers.knows(value)
    assert Browsers(home, token="t" * 30, clock=clock).knows(value)
    clock.advance(1)
    assert not browsers.knows(value)
    for broken in ("", "{", "[]", json.dumps({"token": browsers._token, "browsers": {"a": 1}})):
        (home / BROWSERS_FILE).write_text(broken)
        assert not Browsers(home, token="t" * 30, clock=clock).knows(value)
    values = [browsers.log_in() for _ in range(110)]
    assert [browsers.knows(value) for value in values] == [False] * 10 + [True] * 100
    browsers.log_out_all()
    assert not browsers.knows(values[-1])


@requirement("web-pages:login:place")
@pytest.mark.parametrize("place", ["", "/s/" + "0" * 32, "other"])
def test_a_cookie_opens_nothing_outside_of_its_place(world: World, place: str) -> None:
    value = world.app.browsers.log_in()
    sent = {"cookie": f"satchel_{world.url.rpartition(':')[2]}={value}"}
    if place == "other":
        place = place_for(world.app.browsers.log_in())
    for path in ("/sessions", "/api/memories"):
        answer = httpx2.get(world.url + place + path, headers=sent, trust_env=False, timeout=120)
        assert answer.status_code == 401, path
        answer = httpx2.get(world.url + place_for(value) + path, trust_env=False, timeout=120)
        assert answer.status_code == 401, path
    assert (
        httpx2.get(
            f"{world.url}{place_for(value)}/sessions", headers=sent, trust_env=False, timeout=120
        ).status_code
        == 200
    )


@requirement("web-pages:login:place")
def test_a_cookie_of_the_same_name_that_another_service_set_locks_nobody_out(world: World) -> None:
    name, value = f"satchel_{world.url.rpartition(':')[2]}", world.app.browsers.log_in()
    for sent in (f"{name}={value}; {name}=theirs", f"{name}=theirs; {name}={value}"):
        answer = httpx2.get(
            f"{world.url}{place_for(value)}/sessions", headers={"cookie": sent}, trust_env=False, timeout=120
        )
        assert answer.status_code == 200


@requirement("web-pages:login:place")
def test_every_link_and_form_of_a_page_stays_in_the_place(world: World) -> None:
    with browser(world) as client:
        place = client.base_url.path.rstrip("/")
        for path in (
            "/",
            "/sessions",
            "/memories",
            "/capabilities",
            "/projects",
            "/usage",
            "/settings",
            "/doctor",
            "/nothing",
        ):
            page = html.document_fromstring(client.get(path).text)
            there = page.xpath("//@href | //form/@action | //@formaction")
            wrong = [
                each for each in there if not each.startswith((f"{place}/", "/static/", "#", "https://"))
            ]
            assert (path, wrong) == (path, [])
            assert f"{place}/" in there


@requirement("web-pages:forgery")
@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ({"origin": "{url}"}, {"form_token": "{token}"}, 303),
        ({"origin": "{url}", "x-form-token": "{token}"}, {}, 303),
        ({"origin": "{url}"}, {}, 403),
        ({"origin": "{url}"}, {"form_token": ""}, 403),
        ({"origin": "{url}"}, {"form_token": "{cookie}"}, 403),
        ({}, {"form_token": "{token}"}, 403),
        ({"origin": "null"}, {"form_token": "{token}"}, 403),
        ({"origin": "http://evil.example"}, {"form_token": "{token}"}, 403),
        ({"origin": "http://localhost:1"}, {"form_token": "{token}"}, 403),  # the same site, another port
        ({"origin": "{url}", "sec-fetch-site": "cross-site"}, {"form_token": "{token}"}, 401),
        ({"origin": "{url}", "sec-fetch-site": "same-site"}, {"form_token": "{token}"}, 401),
        ({"origin": "{url}", "content-type": "text/plain"}, {"form_token": "{token}"}, 403),
        (
            {"origin": "{url}", "content-type": "multipart/form-data; boundary=x"},
            {"form_token": "{token}"},
            403,
        ),
    ],
)
def test_a_change_needs_our_origin_and_the_form_token(
    world: World, headers: dict[str, str], fields: dict[str, str], status: int
) -> None:
    with browser(world) as client:
        [cookie] = cookies(client).values()
        [token] = open_page(client, "/sessions").xpath("//meta[@name='form-token']/@content")
        assert token != cookie
        known = {"{url}": world.url, "{token}": token, "{cookie}": cookie}
        answer = client.post(
            "/theme",
            data={"theme": "dark", **{key: known.get(value, value) for key, value in fields.items()}},
            headers={key: known.get(value, value) for key, value in headers.items()},
        )
        assert answer.status_code == status
        assert ("satchel_theme" in cookies(client)) == (status == 303)


@requirement("web-pages:forgery")
def test_the_api_with_a_cookie_is_guarded_like_the_pages_and_with_the_token_needs_neither(
    world: World,
) -> None:
    with browser(world) as client:
        [token] = open_page(client, "/sessions").xpath("//meta[@name='form-token']/@content")
        memory = {"content": "Written by a page."}
        assert client.post("/api/memories", json=memory).status_code == 403
        assert client.post("/api/memories", json=memory, headers={"origin": world.url}).status_code == 403
        headers = {"origin": world.url, "x-form-token": token}
        assert client.post("/api/memories", json=memory, headers=headers).status_code == 201
        # Another page on this machine embeds or fetches: the cookie doesn't count.
        assert client.get("/api/memories", headers={"sec-fetch-site": "same-site"}).status_code == 303
        assert (
            client.get("/api/memories", headers={"accept": "*/*", "sec-fetch-site": "same-site"}).status_code
            == 401
        )
        visit = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert client.get("/sessions", headers=visit).status_code == 200
    with world.client() as program:
        assert program.post("/api/memories", json=memory).status_code == 201


@requirement("web-pages:headers")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/sessions", 200),
        ("/login", 303),
        ("/nothing", 404),
        ("/chat/unknown", 404),
        ("/api/memories/unknown", 404),
        ("/sessions?page=x", 422),
        ("/memories/recalled?page=x", 400),
        ("/settings/permissions?page=0", 400),
    ],
)
def test_every_page_forbids_what_is_not_ours(world: World, path: str, status: int) -> None:
    with browser(world) as client:
        answer = client.get(path)
        assert answer.status_code == status
        headers = answer.headers
        policy = headers["content-security-policy"].split("; ")
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert all(each.endswith(("'self'", "'none'")) for each in policy)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] in ("no-referrer", "same-origin")
        assert headers["cache-control"] == "no-store"
        if status >= 400:
            page = read(answer, status)
            assert page.get_element_by_id("problem") is not None
            assert str(world.home) not in answer.text


@requirement("web-pages:headers")
def test_programs_get_problems_and_people_get_pages(world: World) -> None:
    with browser(world) as client:
        assert client.get("/nothing").headers["content-type"].startswith("text/html")
        problem = client.get("/nothing", headers={"accept": "*/*"})
        assert problem.headers["content-type"] == "application/problem+json"
        assert "/openapi.json" in problem.text
        assert "/openapi.json" not in client.get("/nothing").text
    with browser(world, logged_in=False) as client:
        assert client.get("/sessions", headers={"accept": "*/*"}).status_code == 401
        assert (
            "not the name" in words_of(read(client.get("/", headers={"host": "evil.example"}), 421)).lower()
        )


@requirement("web-pages:assets")
def test_scripts_and_styles_are_kept_by_browsers_and_change_their_address_with_their_content(
    world: World,
) -> None:
    with browser(world, logged_in=False) as client:
        page = open_page(client, "/login")
        [style] = page.xpath("//link[@rel='stylesheet']/@href")
        answer = client.get(style)
        assert answer.headers["content-type"] == "text/css; charset=utf-8"
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        again = client.get(style, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        old = client.get("/static/0123456789ab/satchel.css")
        assert old.headers["cache-control"] == "no-cache"
        for path in (
            "/static/x/../login.py",
            "/static/x/..%2flogin.py",
            "/static/x/layout.html",
            "/static/x/",
            "/static",
        ):
            assert client.get(path).status_code in (303, 404)
        assert (
            client.get(client.get("/favicon.ico").headers["location"]).headers["content-type"]
            == "image/svg+xml"
        )


def test_the_theme_is_kept_in_the_browser(world: World) -> None:
    with browser(world) as client:
        page = open_page(client, "/sessions")
        assert page.get("data-theme") is None
        answer = send(client, page, "/theme", {"theme": "dark"})
        assert answer.headers["location"] == "/sessions"
        page = open_page(client, "/sessions")
        assert page.get("data-theme") == "dark"
        send(client, page, "/theme", {"theme": ""})
        assert open_page(client, "/sessions").get("data-theme") is None


@requirement("web-pages:sessions")
def test_sessions_are_listed_searched_saved_and_deleted(world: World) -> None:
    with world.client() as program:
        [first, *_] = chat(program, "The <b>tandem</b> needs a chain, echo chain")
        id = first.data["sessionId"]
    with browser(world) as client:
        page = open_page(client, "/sessions")
        [title] = page.xpath(f"//main//h3/a[@href='/chat/{id}']")
        assert words_of(title) == "The <b>tandem</b> needs a chain, echo chain"
        found = open_page(client, "/sessions?q=tand")
        assert found.xpath(f"//*[@id='found']//a[@href='/chat/{id}#turn-1']")
        assert "Nothing about" in words_of(open_page(client, "/sessions?q=zeppelin"))
        markdown = client.get(f"/sessions/{id}/export?form=markdown")
        assert markdown.headers["content-disposition"].endswith(".md")
        assert "tandem" in markdown.text
        assert json.loads(client.get(f"/sessions/{id}/export?form=json").text)
        answer = ticked(client, page, [id], "delete", confirmed="1")
        assert answer.headers["location"] == "/sessions"
        page = open_page(client, "/sessions")
        assert "Deleted: “The <b>tandem</b> needs a chain, echo chain”." in said(page)
        assert not page.xpath(f"//a[@href='/chat/{id}']")
        assert said(open_page(client, "/sessions")) == ""  # once
        assert client.get(f"/sessions/{id}/export").status_code == 404


@requirement("web-pages:sessions", "sessions:filing")
def test_several_sessions_are_pinned_archived_and_deleted_at_once(world: World) -> None:
    with world.client() as program:
        ids = [chat(program, f"Fruit number {n}")[0].data["sessionId"] for n in range(3)]
    with browser(world) as client:

        def listed(path: str = "/sessions") -> list[str]:
            found = open_page(client, path).xpath("//main//h3/a/@href")
            return [href[6:] for href in found if href[6:] in ids]

        page = open_page(client, "/sessions")
        assert listed() == ids[::-1]
        assert ticked(client, page, ids[:2], "pin").status_code == 303
        page = open_page(client, "/sessions")
        assert said(page) == "Pinned: 2 conversations. Undo"
        assert words_of(page.xpath("//main//section/h2")[0]) == "Pinned"
        assert listed() == [ids[1], ids[0], ids[2]]
        ticked(client, page, ids[1:], "archive")
        assert listed() == ids[:1]
        page = open_page(client, "/sessions")
        assert page.xpath("//main//a[@href='/sessions?archived=true']")
        archive = open_page(client, "/sessions?archived=true&chosen=true")
        assert len(archive.xpath("//input[@form='many'][@checked]")) >= 2
        assert listed("/sessions?archived=true") == [ids[1], ids[2]]
        assert open_page(client, "/sessions?q=Fruit").xpath(f"//a[starts-with(@href, '/chat/{ids[2]}')]")
        # Deleting several asks first.
        answer = ticked(client, archive, ids[1:], "delete")
        page = open_page(client, answer.headers["location"])
        assert "Delete 2 conversations for good?" in said(page)
        assert listed("/sessions?archived=true") == [ids[1], ids[2]]
        [form] = page.get_element_by_id("sayings").iter("form")
        headers = {"origin": at(client), "sec-fetch-site": "same-origin"}
        client.post("/sessions", data=dict(form.form_values()), headers=headers)
        assert listed("/sessions?archived=true") == []
        # One that can't be changed is told, and the others are.
        with world.client() as program:
            other = chat(program, "A vegetable")[0].data["sessionId"]
        page = open_page(client, "/sessions")
        lock = world.home / "sessions" / ".locks" / ids[0]
        world.call(world.app.service.sessions.close, ids[0])
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            ticked(client, page, [ids[0], other], "archive")
        assert "1 conversation of 2 done." in said(open_page(client, "/sessions"))
        assert listed() == ids[:1]
        assert "Tick the boxes" in said(
            open_page(client, ticked(client, page, [], "pin").headers["location"])
        )
        assert ticked(client, page, ids[:1], "burn").status_code == 400


@requirement("web-pages:sessions")
def test_a_session_at_work_is_not_deleted(world: World) -> None:
    ids: list[str] = []

    def talk() -> None:
        with world.client() as program:
            ids.extend(event.data["sessionId"] for event in chat(program, "hold") if event.name == "start")

    talking = threading.Thread(target=talk)
    world.held.reached.clear()
    world.held.go_on.clear()
    talking.start()
    assert world.held.reached.wait(120)
    try:
        with browser(world) as client:
            page = open_page(client, "/sessions")
            [row] = page.xpath("//main//li[.//*[@data-state='running']]")
            assert "at work" in words_of(row)
            [id] = row.xpath("./input[@name='id']/@value")
            answer = ticked(client, page, [id], "delete", confirmed="1")
            assert "A turn is running" in words_of(read(answer, 409))
    finally:
        world.held.go_on.set()
        talking.join(120)
    assert ids
