"""The people of several machines that share a database: two front doors, each in a home of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest
from sqlalchemy.engine import make_url

from satchel.config import load
from satchel.errors import Refused, StorageCorrupt, StorageUnreachable
from satchel.runtime.people import People
from satchel.runtime.person_homes import has_people
from tests.postgresql import Server, server_of
from tests.requirements import requirement
from tests.server.browsers import HTML
from tests.server.household import IS_ROOT, Household, household
from tests.server.test_people import until
from tests.server.world import chat, text_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    found = server_of(tmp_path_factory)
    found.folder.chmod(0o711)  # people's programs, which have user ids of their own, reach the socket
    return found


@contextmanager
def elsewhere(house: Household) -> Iterator[Household]:
    """Another machine with the same database and key."""
    folder = house.folder / "elsewhere"
    (folder / "home").mkdir(parents=True)
    shutil.copy(house.home / "forgotten.key", folder / "home")
    environ = {**house.environ, "HOME": str(folder), "SATCHEL_HOME": str(folder / "home")}
    other = Household(folder, house.python, house.model, environ, passwords=house.passwords)
    try:
        yield other
    finally:
        if other.door is not None and other.door.poll() is None:
            other.end()


@requirement("people:machines")
def test_two_front_doors_serve_the_same_people(server: Server) -> None:
    url = server.database("doors")
    with household(SATCHEL_DATABASE=url) as house:
        house.add("mach_ann")
        house.start()
        assert not (house.home / "people.json").exists()
        with elsewhere(house) as other, house.program("mach_ann") as here:
            other.start()
            id = chat(here, "The heron.")[-1].data["sessionId"]
            memory = here.post("/api/memories", json={"content": "The code is marzipan."})
            assert memory.status_code == 201
            headers = {"authorization": here.headers["authorization"]}
            with other.client(**headers) as there:
                # Her folder and process are made there when she comes, with the key of her hashes.
                # The socket of the door for its processes is no person's folder.
                assert not [*(other.home / "users").glob("[!.]*")]
                _away_is_not_nobody(other)
                assert "marzipan" in there.get("/api/memories").text
                found = chat(there, "The owl.", session_id=id)
                assert (text_of(found), found[-1].data["turn"]) == ("I see.", 2)
                keys = [each.home / "users/mach_ann/.satchel/forgotten.key" for each in (house, other)]
                assert keys[0].read_bytes() == keys[1].read_bytes()
                owners = {each.parent.stat().st_uid for each in keys}
                assert len(owners) == 1
                assert IS_ROOT is (0 not in owners)
                _what_one_door_does_holds_at_the_other(house, other, there)
            # Nothing that opens anything is on the server.
            with psycopg.connect(url) as administrator:
                rows = str(administrator.execute("SELECT value FROM satchel_people").fetchall())
            people = People(house.home, url)
            person = people.get("mach_ann")
            for secret in (
                people.role_password(person),
                people.key_of(person).hex(),
                people.door_token(person),
            ):
                assert secret not in rows

            number = person.number
            kept = json.loads(other.run("user", "remove", "mach_ann", "--yes", "--json"))["backup"]
            assert kept
            with house.client(**headers) as gone:
                assert gone.get("/api/memories").status_code == 401
            until(lambda: not house.processes())
            # Somebody else of that name gets nothing of hers, on no machine.
            (house.home / "users/mach_ann/files/note.txt").write_text("marzipan")
            other.add("mach_ann")
            with house.program("mach_ann") as new:
                assert "marzipan" not in new.get("/api/memories").text
            assert not (house.home / "users/mach_ann/files/note.txt").exists()
            assert [each.read_text() for each in (house.home / "removed").glob("*/files/note.txt")] == [
                "marzipan"
            ]
            assert People(house.home, url).get("mach_ann").number == number + 1
            other.run("user", "remove", "mach_ann", "--yes")


@requirement("people:spaces:machines")
def test_a_space_is_the_same_at_every_door_and_no_members_role_enters_its_database(server: Server) -> None:
    url = server.database("spaces")
    with household(SATCHEL_DATABASE=url) as house:
        for name in ("sp_ann", "sp_ben"):
            house.add(name)
        house.start()
        with elsewhere(house) as other, house.program("sp_ann") as ann, house.program("sp_ben") as ben:
            other.start()
            ann.post("/api/spaces", json={"name": "sp_home"}).raise_for_status()
            ann.post("/api/spaces/sp_home/members", json={"name": "sp_ben"}).raise_for_status()
            with other.client(authorization=ben.headers["authorization"]) as there:
                there.post("/api/spaces/sp_home/accept").raise_for_status()
                for client, content in ((ann, "The heron."), (there, "The owl.")):
                    client.post("/api/spaces/sp_home/memories", json={"content": content}).raise_for_status()
                for client in (ann, ben, there):
                    found = client.get("/api/spaces/memories").json()
                    said = {(one["memory"]["speaker"], one["memory"]["content"]) for one in found}
                    assert said == {("sp_ann", "The heron."), ("sp_ben", "The owl.")}
                people = People(house.home, url)
                members_url = make_url(people.get("sp_ann").database).set(database="satchel_sp_home")
                with pytest.raises(psycopg.OperationalError, match="permission denied"):
                    psycopg.connect(members_url.set(drivername="postgresql").render_as_string(False))
                ann.delete("/api/spaces/sp_home").raise_for_status()
                assert there.get("/api/spaces").json() == there.get("/api/spaces/memories").json() == []
            with psycopg.connect(url) as administrator:
                found = administrator.execute("SELECT 1 FROM pg_database WHERE datname = 'satchel_sp_home'")
                assert found.fetchall() == []


@requirement("people:killed")
def test_a_process_that_starts_while_its_database_is_away_waits_for_it(server: Server) -> None:
    url = server.database("away")
    with household(SATCHEL_DATABASE=url) as house:
        house.add("away_ann")
        house.start()
        with (
            house.program("away_ann") as ann,
            psycopg.connect(url, autocommit=True) as administrator,
            ThreadPoolExecutor(1) as pool,
        ):
            id = chat(ann, "The heron.")[-1].data["sessionId"]
            allow = "ALTER DATABASE satchel_away_ann ALLOW_CONNECTIONS {}".format
            administrator.execute(allow("false"))
            for pid in house.processes():
                os.kill(pid, signal.SIGKILL)
            log = house.home / "logs/away_ann.log"
            answer = pool.submit(ann.get, f"/api/sessions/{id}")
            until(lambda: answer.done() or "Waiting for it" in log.read_text())
            administrator.execute(allow("true"))
            assert answer.result().status_code == 200


def _away_is_not_nobody(other: Household) -> None:
    """A door that starts while the server is away must not take its home for that of one person."""
    settings = load(
        {**other.environ, "SATCHEL_DATABASE": "postgresql://nobody@127.0.0.1:1/none"}, cwd=Path("/")
    )
    with pytest.raises(StorageUnreachable):
        has_people(settings)


def _what_one_door_does_holds_at_the_other(house: Household, other: Household, there: httpx2.Client) -> None:
    """Log-ins, tokens and passwords."""
    with house.client(accept=HTML) as browser:
        place = house.log_in(browser, "mach_ann").headers["location"]
        cookie = "; ".join(f"{one.name}={one.value}" for one in browser.cookies.jar)
        # Behind a balancer, the browser names the same host to both.
        sent = {"cookie": cookie, "accept": HTML, "host": house.url.removeprefix("http://")}
        with other.client(**sent) as elsewhere:
            # Whose it is, is known there; whether she is still logged in, her process says.
            assert elsewhere.get(f"{place}passkeys").status_code == 200
            token = other.run("user", "token", "mach_ann").strip()
            with house.client(authorization=f"Bearer {token}") as program:
                assert program.get("/api/memories").status_code == 200
                other.run("user", "token", "mach_ann", "--revoke")
                assert program.get("/api/memories").status_code == 401
            assert there.get("/api/memories").status_code == 401
            other.run("user", "password", "mach_ann", stdin="another password")
            house.passwords["mach_ann"] = "another password"
            for client in (browser, elsewhere):
                assert client.get(f"{place}passkeys").headers["location"].startswith("/login")
            assert house.log_in(browser, "mach_ann", "password of mach_ann").status_code == 403
            assert house.log_in(browser, "mach_ann").status_code == 303


_FORGED = [
    {"uid": 0}, {"uid": 33}, {"uid": -1}, {"uid": "0"}, {"uid": True}, {"uid": 1 << 32}, {"name": "../../etc"}, {"name": "bob"},
]  # fmt: skip


@requirement("people:machines")
@pytest.mark.parametrize("forged", _FORGED, ids=str)
def test_no_row_makes_somebody_root_or_leads_out_of_the_folders_of_people(
    server: Server, tmp_path: Path, forged: dict[str, object]
) -> None:
    url = server.database(f"forged{_FORGED.index(forged)}")
    (tmp_path / "home").mkdir(mode=0o700)
    people = People(tmp_path / "home", url)
    ann = people.add("forged_ann", "password of ann")
    with psycopg.connect(url, autocommit=True) as thief:
        text = "UPDATE satchel_people SET version = version + 7, value = (value::jsonb || %s)::text WHERE name = %s"
        thief.execute(text, (json.dumps(forged), ann.name))
        if "name" in forged and forged["name"] != "bob":
            thief.execute("UPDATE satchel_people SET name = %s WHERE name = %s", (forged["name"], ann.name))
    with pytest.raises(StorageCorrupt):
        people.refresh()


@requirement("people:machines")
def test_people_of_a_file_come_to_the_server_and_back(server: Server, tmp_path: Path) -> None:
    url = server.database("came")
    with household() as house:
        (house.home).mkdir()
        config = house.home / "config.toml"
        config.write_text(f'database = "{url}"\n')
        # As the version before left it: a role with a password of its own, a key of her own, and a table in a file.
        house.add("came_ann")
        people = People(house.home, url)
        token = people.make_token("came_ann")
        with psycopg.connect(url) as administrator:
            old = administrator.execute(
                "SELECT rolpassword FROM pg_authid WHERE rolname = 'satchel_came_ann'"
            ).fetchone()
        people.leave(house.home)
        key = house.home / "users/came_ann/.satchel/forgotten.key"
        key.write_bytes(b"k" * 32)
        (house.home / "users/.came_ann.number").unlink()
        table = json.loads((house.home / "people.json").read_text())
        assert table["people"]["came_ann"]["database"].startswith("postgresql://satchel_came_ann:")

        assert [one["name"] for one in json.loads(house.run("user", "list", "--json"))] == ["came_ann"]
        assert not (house.home / "people.json").exists()
        people = People(house.home, url)
        assert people.with_token(token) == people.get("came_ann")
        assert people.key_of(people.get("came_ann")) == b"k" * 32
        assert key.exists()
        with psycopg.connect(url) as administrator:
            new = administrator.execute(
                "SELECT rolpassword FROM pg_authid WHERE rolname = 'satchel_came_ann'"
            ).fetchone()
        assert old != new

        # Another home's people are not mixed with these, and another key is refused.
        People(tmp_path).add("eve", "a long password")
        shutil.copy(tmp_path / "people.json", house.home)
        assert "others in its database" in house.run("user", "list", code=4)
        (house.home / "people.json").unlink()
        with pytest.raises(Refused, match=r"forgotten\.key"):
            People(tmp_path / "other", url).all()

        house.run("migrate-database", "--to", "sqlite", "--yes")
        assert set(json.loads((house.home / "people.json").read_text())["people"]) == {"came_ann"}
        assert People(house.home).with_token(token) is not None
        config.write_text(f'database = "{url}"\n')
        house.run("user", "remove", "came_ann", "--yes")


@requirement("people:machines")
def test_people_whose_files_are_elsewhere_are_listed(server: Server) -> None:
    with household() as house:
        house.add("kept_ann")
        (house.home / "config.toml").write_text(f'database = "{server.database("kept")}"\n')
        house.run("user", "list")
        with elsewhere(house) as other:
            shutil.copy(house.home / "config.toml", other.home)
            (found,) = json.loads(other.run("user", "list", "--json"))
            assert (found["name"], found["usd_today"]) == ("kept_ann", None)
