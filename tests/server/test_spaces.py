"""What some of the people of a server share: who reaches it, what is shown of it, and what becomes of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from satchel.clock import SystemClock
from satchel.config import load
from satchel.runtime import memberships
from satchel.runtime.memberships import owners_without
from satchel.runtime.people import People, Person
from tests.cli.programs import chats, said_to
from tests.requirements import requirement
from tests.server.browsers import HTML, browser, read, words_of
from tests.server.household import Household, household
from tests.server.world import World, chat

BOILER = "The boiler is serviced in May by Hartmann."


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    with household() as house:
        for name in ("ann", "ben", "carl"):
            house.add(name)
        house.start()
        yield house


def post(client: httpx2.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def share(client: httpx2.Client, space: str, content: str) -> str:
    return str(post(client, f"/api/spaces/{space}/memories", content=content)["id"])


def at(id: str) -> str:
    return f"/api/spaces/{id.replace('/', '/memories/')}"


def shared(client: httpx2.Client, **params: Any) -> list[tuple[str, str, str]]:
    """Who shared what in which space."""
    found = client.get("/api/spaces/memories", params=params).raise_for_status().json()
    return [(one["memory"]["speaker"], one["memory"]["content"], one["memory"]["scope"]) for one in found]


def space_with(house: Household, name: str, owner: httpx2.Client, member: httpx2.Client, who: str) -> None:
    post(owner, "/api/spaces", name=name)
    post(owner, f"/api/spaces/{name}/members", name=who)
    post(member, f"/api/spaces/{name}/accept")


def run_as(house: Household, name: str, *arguments: str, code: int = 0) -> str:
    """A command of a person's in their home."""
    person = json.loads((house.home / "people.json").read_text())["people"][name]
    home = house.home / "users" / name
    environ = {**house.environ, "HOME": str(home), "SATCHEL_HOME": str(home / ".satchel")}
    uid = person["uid"]
    ran = subprocess.run(
        [house.python, "-m", "satchel", *arguments],
        cwd="/",
        env=environ,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else (),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    return ran.stdout + ran.stderr


@requirement("people:spaces")
def test_what_a_member_shares_is_found_by_the_others_with_its_space_and_who_said_it_and_by_nobody_else(
    house: Household,
) -> None:
    with house.program("ann") as ann, house.program("ben") as ben, house.program("carl") as carl:
        post(ann, "/api/spaces", name="household")
        post(ann, "/api/spaces/household/members", name="ben")
        assert ben.get("/api/spaces").json() == [
            {"name": "household", "you": "invited", "members": {"ann": "owner", "ben": "invited"}}
        ]
        id = share(ann, "household", BOILER)
        assert id.startswith("household/")
        assert shared(ben) == []  # who hasn't accepted sees nothing of it
        assert ben.post("/api/spaces/household/memories", json={"content": "x"}).status_code == 404
        post(ben, "/api/spaces/household/accept")
        assert shared(ben) == [("ann", BOILER, "shared:household")]
        trust = [client.get("/api/spaces/memories").json()[0]["memory"]["trust"] for client in (ann, ben)]
        assert trust == ["user", "outside"]  # another's words are data
        assert shared(ben, q="When does the boiler get its service?") == shared(ben)
        assert shared(ben, q="a recipe for soup") == []
        # Neither home keeps it, so nothing private is there either.
        assert ann.get("/api/memories").json() == ben.get("/api/memories").json() == []
        ann.post("/api/memories", json={"content": "The boiler was too expensive."}).raise_for_status()
        assert len(shared(ben, q="boiler")) == 1

        line = f"ann: {BOILER}  (shared in household)"
        assert line in run_as(house, "ben", "memory", "search", "boiler")
        assert line in run_as(house, "ben", "memory", "list")
        mine = run_as(
            house, "ben", "memory", "add", "--in", "household", "The bins go out on Monday."
        ).strip()
        assert ("ben", "The bins go out on Monday.", "shared:household") in shared(ann, space="household")

        # Who isn't in it gets the same answer as for one that there isn't.
        for odd in ("a/b", "../den", "a b", "ä", "x" * 200, "\0"):
            for path in ("spaces/{}/accept", "spaces/{}/members", "spaces/{}/memories"):
                answer = carl.post(
                    f"/api/{path}".format(quote(odd, safe="")), json={"name": odd, "content": "x"}
                )
                assert answer.status_code in (400, 404, 405, 422), (odd, answer.text)
        for name in ("household", "nothing"):
            for answer in (
                carl.get("/api/spaces/memories", params={"space": name}),
                carl.post(f"/api/spaces/{name}/memories", json={"content": "x"}),
                carl.post(f"/api/spaces/{name}/accept"),
                carl.post(f"/api/spaces/{name}/members", json={"name": "carl"}),
                carl.delete(f"/api/spaces/{name}/members/carl"),
                carl.delete(f"/api/spaces/{name}"),
                carl.delete(f"/api/spaces/{name}/memories/{id.partition('/')[2]}"),
            ):
                assert answer.json()["detail"] == f"You are in no space named {name!r}."
        assert carl.get("/api/spaces").json() == shared(carl) == []
        run_as(house, "carl", "memory", "add", "--in", "household", "x", code=3)

        # The administrator sees who is in it.
        assert house.run("user", "space", "list") == "household  ann (owner), ben\n"
        assert "household" not in house.run("user", "list")
        house.run("user", "token", "household", code=3)
        house.run("user", "password", "household", stdin="a new password", code=3)

        # An entry goes by the hand that wrote it, or the owner's.
        assert ben.delete(at(id)).status_code == 403
        assert ann.delete(at(mine)).json()["content"] == "The bins go out on Monday."
        assert "Forgotten" in run_as(house, "ann", "memory", "forget", id, "--yes")
        assert shared(ann) == shared(ben) == []


@requirement("people:spaces:members")
def test_members_come_by_invitation_and_go_by_themselves_or_the_owner_and_the_last_owner_deletes_it(
    house: Household,
) -> None:
    with house.program("ann") as ann, house.program("ben") as ben, house.program("carl") as carl:
        post(ann, "/api/spaces", name="team")
        assert ann.post("/api/spaces", json={"name": "team"}).status_code == 400
        assert ann.post("/api/spaces/team/members", json={"name": "dora"}).status_code == 404
        for name in ("ben", "carl"):
            post(ann, "/api/spaces/team/members", name=name)
        post(ben, "/api/spaces/team/accept")
        assert [one["name"] for one in carl.get("/api/spaces").json()] == ["team"]
        assert carl.delete("/api/spaces/team/members/carl").json() == []  # declined
        share(ben, "team", BOILER)
        for answer in (
            ben.post("/api/spaces/team/members", json={"name": "carl"}),
            ben.delete("/api/spaces/team/members/ann"),
            ben.delete("/api/spaces/team"),
        ):
            assert answer.status_code == 403
            assert "ann, who owns team" in answer.json()["detail"]
        ann.delete("/api/spaces/team/members/ben").raise_for_status()
        assert ben.get("/api/spaces/memories", params={"space": "team"}).status_code == 404
        assert shared(ann, space="team") == [("ben", BOILER, "shared:team")]
        post(ann, "/api/spaces/team/members", name="ben")
        post(ben, "/api/spaces/team/accept")
        said = run_as(house, "ann", "user", "space", "leave", "team", "--yes")
        assert "What you shared in team stays there" in said
        assert "ben owns it from then on" in said
        assert ben.get("/api/spaces").json()[-1]["members"] == {"ben": "owner"}
        assert ben.delete("/api/spaces/team/members/ben").status_code == 403  # nobody would be left
        run_as(house, "ben", "user", "space", "delete", "team", code=2)  # not without being asked
        assert "deleted for all of its members" in run_as(
            house, "ben", "user", "space", "delete", "team", "--yes"
        )
        assert shared(ben) == []
        assert not (house.home / "users/team").exists()
        assert [one.name for one in (house.home / "removed").glob("team-*/*")] == ["team.tar.gz"]


@requirement("people:spaces:doors")
def test_the_door_for_spaces_believes_only_what_a_process_was_given(house: Household) -> None:
    with house.program("ann") as ann, house.program("carl") as carl:
        post(ann, "/api/spaces", name="den")
        share(ann, "den", BOILER)
        carl.get("/api/spaces").raise_for_status()  # so that his process has begun
        his = json.loads((house.home / "users/carl/.satchel/spaces.json").read_text())
        hers = json.loads((house.home / "users/ann/.satchel/spaces.json").read_text())
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=his["socket"]), base_url="http://door") as door:
            for wrong in (
                "",
                "Bearer",
                "Bearer ann",
                f"Bearer ann {his['token']}",
                f"Bearer den {hers['token']}",
            ):
                answer = door.get("/memories", headers={"authorization": wrong})
                assert answer.status_code == 403
                assert BOILER not in answer.text
            own = {"authorization": f"Bearer carl {his['token']}"}
            assert door.get("/memories", headers=own).json() == {"hits": [], "away": []}
            assert door.get("/memories", params={"space": "den"}, headers=own).status_code == 404
            as_ann = {"authorization": f"Bearer ann {hers['token']}"}
            assert len(door.get("/memories", headers=as_ann).json()["hits"]) == 1
            # Nothing else of the space's process is there, and no id leads elsewhere in it.
            for path in (
                "/api/sessions",
                "/api/memories",
                "/memories/den/../../sessions",
                "/spaces/den/api/settings",
            ):
                assert door.get(path, headers=as_ann).status_code in (404, 405)
            for id in ("stats", "..", "..%2fsessions", "x?y", "search"):
                assert door.delete(f"/memories/den/{id}", headers=as_ann).status_code in (400, 404, 405)
        # No token of theirs opens the space's own process, and its password is nobody's.
        with house.client() as anybody:
            for token in (his["token"], hers["token"]):
                headers = {"authorization": f"Bearer {token}"}
                assert anybody.get("/api/memories", headers=headers).status_code == 401
            assert house.log_in(anybody, "den", "").status_code == 403
        # Without her, nobody is in it, so it goes.
        assert owners_without(People(house.home), "ann")["den"] == ""
        house.run("user", "remove", "ann", "--yes")
        assert not (house.home / "users/den").exists()
        assert '"ann"' not in (house.home / "people.json").read_text()
        house.add("ann")
    with house.program("ann") as ann:
        assert ann.get("/api/spaces").json() == []


def seen(house: Household) -> str:
    """What the model was last shown."""
    return said_to(chats(house.model)[-1])


async def agents_share(client: httpx2.Client) -> tuple[str, str, str]:
    """Who shared what an agent of a person's finds, in which space, and its id."""
    headers = {"authorization": client.headers["authorization"]}
    async with httpx2.AsyncClient(headers=headers, timeout=240, trust_env=False) as http:
        transport = streamable_http_client(f"{str(client.base_url).rstrip('/')}/mcp", http_client=http)
        async with Client(transport, mode="legacy") as agent:
            assert "memory_share" in {tool.name for tool in (await agent.list_tools()).tools}
            answer = await agent.call_tool("memory_search", {"query": "boiler service"})
    assert answer.structured_content is not None
    [found] = [one["memory"] for one in answer.structured_content["hits"] if "shared_in" in one["memory"]]
    return found["speaker"], found["shared_in"], found["id"]


@requirement("people:spaces:conversations")
def test_a_conversation_shares_what_its_user_asks_for_and_others_are_shown_it_with_its_place(
    house: Household,
) -> None:
    def called(client: httpx2.Client, name: str, mode: str = "bypass", **input: Any) -> dict[str, Any]:
        [call] = chat(client, f"CALL {name} {json.dumps([input])}", mode=mode)[-1].data["toolCalls"]
        return dict(call)

    with house.program("ann") as ann, house.program("ben") as ben, house.program("carl") as carl:
        offered = {tool["name"] for tool in carl.get("/api/tools").json()}
        assert "share_memory" not in offered  # nobody shares anything with him
        space_with(house, "flat", ann, ben, "ben")
        for mode in ("ask", "auto", "plan"):  # it asks first, and nobody is there
            assert called(ann, "share_memory", mode, space="flat", content=BOILER)["isError"]
        assert shared(ben) == []
        result = called(ann, "share_memory", space="flat", content=BOILER)["result"]
        id = result.removeprefix("Shared as ").removesuffix(".")
        assert shared(ben) == [("ann", BOILER, "shared:flat")]

        events = chat(ben, "When is our boiler serviced?")
        [shown] = next(event.data["memories"] for event in events if event.name == "memory")
        assert (shown["id"], shown["content"]) == (id, BOILER)
        assert f'ann, shared in flat: "{BOILER}"' in seen(house)
        assert BOILER not in str(ben.get("/api/memories").json())
        chat(carl, "When is our boiler serviced?")
        assert BOILER not in seen(house)

        name = anyio.run(agents_share, ben)
        assert name == ("ann", "flat", id)

        found = called(ben, "recall_memory", query="boiler service")["result"]
        assert f"- {id} " in found
        assert "ann, shared in flat" in found
        assert BOILER not in called(carl, "recall_memory", query="boiler service")["result"]
        assert called(ben, "forget_memory", ids=[id])["isError"]
        session = str(chat(ann, "When is our boiler serviced?")[-1].data["sessionId"])
        assert id in called(ann, "forget_memory", ids=[id])["result"]
        assert shared(ann) == shared(ben) == []
        assert BOILER not in ann.get(f"/api/sessions/{session}/exchanges").text
        chat(ben, "When is our boiler serviced?")
        assert BOILER not in seen(house)


@requirement("people:spaces:pages")
def test_the_pages_invite_share_and_show_what_is_shared_with_its_author(house: Household) -> None:
    def form(client: httpx2.Client, **fields: str) -> str:
        """Send a form of the page, and the text of the page that follows."""
        [token] = set(
            read(client.get("/spaces")).xpath("//form[@action='/spaces']/input[@name='form_token']/@value")
        )
        answer = client.post("/spaces", data={"form_token": token, **fields}, headers={"origin": house.url})
        assert answer.status_code == 303, answer.text
        return words_of(read(client.get("/spaces")))

    with house.client(accept=HTML) as ann, house.client(accept=HTML) as ben:
        for name, client in (("ann", ann), ("ben", ben)):
            client.base_url = house.url + house.log_in(client, name).headers["location"]
        assert "Made: garden" in form(ann, do="make", space="garden")
        assert "invited: ben" in form(ann, do="invite", space="garden", who="Ben")
        assert read(ben.get("/memories")).xpath("//nav//a[@href='/spaces']//span")
        assert "ann invites you to garden" in words_of(read(ben.get("/spaces")))
        assert "You are in garden" in form(ben, do="accept", space="garden")
        page = read(ann.get("/memories"))
        assert "everybody in garden" in words_of(page)
        fields = {
            "content": BOILER,
            "space": "garden",
            "form_token": page.xpath("//@value[../@name='form_token']")[0],
        }
        added = ann.post("/memories", data=fields, headers={"origin": house.url})
        assert added.headers["location"].endswith("/spaces")
        shown = words_of(read(ben.get("/spaces")))
        assert BOILER in shown
        assert "Forget it for good" not in shown  # it isn't his
        for path in ("/memories", "/memories?q=boiler"):
            shown = words_of(read(ben.get(path)))
            assert BOILER in shown
            assert "ann in garden" in shown
        [entry] = read(ann.get("/spaces")).xpath("//li[starts-with(@id, 'garden/')]/@id")
        assert "ann wrote that" in form(ben, do="forget", id=entry)
        assert "Forgotten for everybody" in form(ann, do="forget", id=entry)
        assert "Shared in garden" in form(
            ben, do="share", space="garden", content="The hedge is cut in June."
        )
        assert "Everything in garden is deleted for all of its members" in words_of(read(ann.get("/spaces")))
        assert "Deleted: garden" in form(ann, do="delete", space="garden")


@requirement("people:spaces:pages")
def test_a_home_of_one_person_has_no_spaces(world: World) -> None:
    with world.client() as client, browser(world) as person:
        answer = client.get("/api/spaces")
        assert answer.status_code == 404
        assert answer.json()["detail"] == "Nobody else uses this server, so nothing is shared."
        assert "share_memory" not in {tool["name"] for tool in client.get("/api/tools").json()}
        assert person.get("/spaces").status_code == 404
        assert not read(person.get("/memories")).xpath("//a[@href='/spaces']")


@requirement("people:spaces:members")
def test_who_is_removed_comes_into_no_space_meanwhile_and_the_next_of_the_name_is_in_none(
    house: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.add("dora")
    people, settings = People(house.home), load(environ=house.environ, cwd=house.folder)
    with house.program("dora") as dora, house.program("ben") as ben, house.program("carl") as carl:
        post(dora, "/api/spaces", name="alone")
        space_with(house, "pair", dora, ben, "ben")
        post(carl, "/api/spaces", name="late")
        statuses: list[int] = []

        def remove(_: object, space: Person, **__: object) -> None:
            made = dora.post("/api/spaces", json={"name": "another"})
            invited = carl.post("/api/spaces/late/members", json={"name": "dora"})
            statuses.extend((made.status_code, invited.status_code))
            # Whoever is left in the other space leaves it now.
            people.change_members("pair", lambda members: members.pop("ben", None))
            people.drop(space.name)

        monkeypatch.setattr(memberships, "remove_person", remove)
        memberships.forget_person(settings, people, "dora", clock=SystemClock())
        assert statuses[:2] == [401, 404]
        assert not {"alone", "pair", "another"} & people.all().keys()
        assert {one.name for one in people.persons().values()} >= {"ben", "carl", "dora"}
        assert all("dora" not in one.members for one in people.all().values())
        house.run("user", "remove", "dora", "--yes")
        carl.delete("/api/spaces/late").raise_for_status()


@requirement("people:spaces:members")
def test_the_administrator_sees_and_finishes_the_deletion_of_a_space_that_was_interrupted(
    house: Household,
) -> None:
    with house.program("ann") as ann:
        post(ann, "/api/spaces", name="half")
        People(house.home).set("half", leaving=True)
        assert "half  ann (owner)  is being deleted: satchel user remove half finishes it" in house.run(
            "user", "space", "list"
        )
        house.run("user", "remove", "half", "--yes")
        post(ann, "/api/spaces", name="half")
        ann.delete("/api/spaces/half").raise_for_status()


@requirement("people:spaces:conversations")
def test_forgetting_what_another_wrote_takes_it_from_where_it_was_shown_and_nothing_else(
    house: Household,
) -> None:
    with house.program("ann") as ann, house.program("ben") as ben:
        space_with(house, "hall", ann, ben, "ben")
        private = str(chat(ann, "My mother is ill this year.")[-1].data["sessionId"])
        id = share(ben, "hall", "e")
        ann.delete(at(id)).raise_for_status()
        assert "My mother is ill this year." in ann.get(f"/api/sessions/{private}/exchanges").text
        well = "The well is 14 metres deep."
        id = share(ben, "hall", well)
        shown = str(chat(ann, "How deep is our well?")[-1].data["sessionId"])
        assert well in seen(house)
        ann.delete(at(id)).raise_for_status()
        logs = [path.read_text() for path in (house.home / "users/ann").rglob("*.jsonl")]
        assert logs
        assert not any(well in log for log in logs)
        chat(ann, "And how wide?", session_id=shown)
        assert well not in str(chats(house.model)[-1].body)


@requirement("people:spaces:conversations")
def test_what_a_model_shared_is_not_taken_for_words_of_the_user(house: Household) -> None:
    with house.program("ann") as ann, house.program("ben") as ben:
        space_with(house, "loft", ann, ben, "ben")
        chat(ann, f"CALL share_memory {json.dumps([{'space': 'loft', 'content': BOILER}])}", mode="bypass")
        [found] = ann.get("/api/spaces/memories", params={"space": "loft"}).json()
        assert found["memory"]["trust"] == "agent"
        share(ann, "loft", "The hedge is cut in June.")
        found = ann.get("/api/spaces/memories", params={"space": "loft"}).json()
        assert found[0]["memory"]["trust"] == "user"


@requirement("people:spaces")
def test_what_only_an_own_memory_has_is_not_dropped_where_something_is_shared(house: Household) -> None:
    with house.program("ann") as ann:
        post(ann, "/api/spaces", name="yard")
        for more in (("--kept-from", "ben"), ("--tag", "x"), ("--discretion", "withheld"), ("--scope", "y")):
            said = run_as(house, "ann", "memory", "add", "--in", "yard", *more, "A surprise.", code=2)
            assert f"leave out {more[0]}" in said
        assert shared(ann, space="yard") == []
        run_as(house, "ann", "memory", "add", "--in", "yard", "--json", "The hedge is cut in June.")


@requirement("people:spaces:members")
def test_no_name_of_dots_leads_to_something_else(house: Household) -> None:
    with house.program("ann") as ann, house.client(accept=HTML) as at_page:
        post(ann, "/api/spaces", name="shed")
        id = share(ann, "shed", BOILER)
        for dots in ("..", "."):
            said = run_as(house, "ann", "user", "space", "remove", "shed", dots, code=3)
            assert "There is no such" in said
            run_as(house, "ann", "user", "space", "invite", "shed", dots, code=3)
            run_as(house, "ann", "memory", "forget", f"shed/{dots}", "--yes", code=3)
            run_as(house, "ann", "user", "space", "add", dots, code=3)
        at_page.base_url = house.url + house.log_in(at_page, "ann").headers["location"]
        token = read(at_page.get("/spaces")).xpath(
            "//form[@action='/spaces']/input[@name='form_token']/@value"
        )[0]
        fields = {"form_token": token, "do": "remove", "space": "shed", "who": ".."}
        at_page.post("/spaces", data=fields, headers={"origin": house.url})
        assert [one["memory"]["id"] for one in ann.get("/api/spaces/memories").json()].count(id) == 1


@requirement("people:spaces:members")
def test_nobody_makes_more_spaces_than_they_may_own_by_asking_at_once(house: Household) -> None:
    house.add("emil")
    with house.program("emil") as emil, ThreadPoolExecutor(12) as at_once:
        asked = [{"name": f"room-{number}"} for number in range(12)]
        made = list(at_once.map(lambda body: emil.post("/api/spaces", json=body).status_code, asked))
        assert sorted(made) == [201] * 10 + [400] * 2
        assert len(emil.get("/api/spaces").json()) == 10
