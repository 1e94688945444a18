"""A capability that was made at one machine is at all that have the home's database, as it is, until it is removed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from satchel.capabilities import archive
from satchel.capabilities.records import Access
from tests.capabilities.world import BY_BUILDER, GREET, draft
from tests.postgresql import Server, server_of
from tests.requirements import requirement
from tests.server.world import Machines, World, events_in, machines, register, serving


async def id_of(world: World) -> str:
    assert world.satchel.capabilities is not None
    return (await world.satchel.capabilities.catalogue.get("greet")).id


def notices(world: World) -> str:
    return " ".join(notice.text for notice in world.satchel.notices if notice.part == "capabilities")


LOUD = GREET.code.replace('+ "!"', '+ "!!!"')
LOUD_CASES = GREET.cases.replace("Austin!", "Austin!!!")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


@pytest.fixture
def url(server: Server, tmp_path: Path) -> str:
    return server.copy(tmp_path, role="ordinary")


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[Machines]:
    with machines(url, tmp_path) as found:
        yield found


def greets(at: httpx2.Client) -> tuple[str, Any]:
    done = at.post("/api/capabilities/greet/run", json={"input": {"city": "Bern"}})
    return (done.json()["status"], done.json()["result"]) if done.is_success else (done.json()["code"], None)


def shown(at: httpx2.Client, name: str = "greet") -> dict[str, Any]:
    """All that is said of a capability, but where it is, and how long a run took."""
    found: dict[str, Any] = at.get(f"/api/capabilities/{name}").json()
    assert "id" in found, found
    versions = [{**each, "path": ""} for each in found["versions"]]
    return {**found, "versions": versions, "path": "", "reliability": None, "runs": None}


def files(home: Path) -> dict[str, bytes]:
    """What is in the folders of versions."""
    root = home / "capabilities"
    there = [path for path in root.glob("*/v*/**/*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(root)): path.read_bytes() for path in there}


@requirement("storage:postgres:capabilities")
def test_what_becomes_of_a_capability_at_one_machine_becomes_of_it_at_the_others(
    fleet: Machines, tmp_path: Path
) -> None:
    near, client, other, _ = fleet
    there = tmp_path / "there" / "home"
    near.call(register, near, "greet")
    assert shown(other) == shown(client)
    assert files(there) == files(near.home) != {}
    assert greets(other) == ("ok", "Hello, Bern!")
    # A second version waits for the user, who approves it at the other machine.
    parts = near.satchel.capabilities
    assert parts is not None
    wanted = draft(code=LOUD, cases=LOUD_CASES, secrets=["HOME"], state=True)
    near.call(lambda: parts.registrar.register("greet", wanted, provenance=BY_BUILDER))
    waits = other.get("/api/capabilities/greet/approval").json()
    assert (waits["version"], "HOME" in str(waits)) == (2, True)
    other.post("/api/capabilities/greet/approve", json={"version": 2}).raise_for_status()
    assert near.call(parts.catalogue.approved, "greet") == Access(secrets=("HOME",), state=True)
    assert shown(client) == shown(other)
    assert (shown(client)["version"], greets(client)) == (2, ("ok", "Hello, Bern!!!"))
    other.post("/api/capabilities/greet/rollback").raise_for_status()
    assert greets(client) == ("ok", "Hello, Bern!")
    client.post("/api/capabilities/greet/disable").raise_for_status()
    assert greets(other)[0] == "refused"
    other.post("/api/capabilities/greet/enable").raise_for_status()
    assert greets(client) == ("ok", "Hello, Bern!")
    assert files(there) == files(near.home)
    client.delete("/api/capabilities/greet").raise_for_status()
    assert other.get("/api/capabilities").json() == []
    assert not list((there / "capabilities").glob("*/v*"))
    assert not (there / "capabilities" / ".unregistered").exists()


@requirement("storage:postgres:capabilities")
def test_who_only_writes_to_the_database_has_nothing_run_and_nothing_allowed(
    fleet: Machines, url: str
) -> None:
    near, client, other, _ = fleet
    parts = near.satchel.capabilities
    assert parts is not None
    near.call(register, near, "greet")
    assert greets(client) == greets(other) == ("ok", "Hello, Bern!")
    evil = archive.pack({"main.py": b"def run(args): return 'stolen'"})
    with psycopg.connect(url, autocommit=True) as thief:
        [[id, changed]] = thief.execute("SELECT id, changed FROM capabilities").fetchall()
        for change, values in (
            ("UPDATE capability_versions SET archive = %s", [evil]),
            ("UPDATE capability_versions SET sha256 = 'x', archive = %s", [evil]),
            ("UPDATE capabilities SET secrets = '[\"HOME\"]'", []),
            ("INSERT INTO capability_approvals VALUES (%s, 'secret', 'HOME', 0)", [id]),
            ("UPDATE capability_changes SET changed = 0", []),
            ("INSERT INTO capability_removals VALUES (%s, 'default', 'x')", [id]),
        ):
            thief.execute(change.encode(), values)
            for at in (client, other):
                assert greets(at) in (("ok", "Hello, Bern!"), ("refused", None), ("not_found", None)), change
            # Each change of the user's is refused, or made to what the user has.
            other.post("/api/capabilities/greet/disable")
            other.post("/api/capabilities/greet/enable")
            assert near.call(parts.catalogue.approved, "greet") == Access(), change
            assert greets(client) == greets(other) == ("ok", "Hello, Bern!"), change
        old = thief.execute("SELECT status, changed, proof, updated_at FROM capabilities").fetchone()
        assert old is not None
        assert old[1] > changed
        other.post("/api/capabilities/greet/disable").raise_for_status()
        thief.execute("UPDATE capabilities SET status = %s, changed = %s, proof = %s, updated_at = %s", old)
        assert greets(other)[0] == "refused"
        assert shown(client)["status"] == "disabled"


@requirement("storage:postgres:capabilities")
def test_what_only_one_machine_had_is_taken_up_and_what_two_had_is_shown(url: str, tmp_path: Path) -> None:
    for where in ("here", "there"):
        (tmp_path / where).mkdir()
        with serving(tmp_path / where) as alone:
            mine = {} if where == "here" else {"code": LOUD, "cases": LOUD_CASES}
            alone.call(partial(register, alone, "greet", **mine))
            alone.call(register, alone, f"only_{where}")
            (main,) = alone.home.glob(f"capabilities/{alone.call(id_of, alone)}/v1/main.py")
            main.write_text(main.read_text() + f"# {where}\n")
    with serving(tmp_path / "here", database=url) as near, near.client() as client:
        assert notices(near) == ""
        assert shown(client)["edited"] == ["main.py"]
        assert greets(client) == ("ok", "Hello, Bern!")
        shutil.copy(near.home / "forgotten.key", tmp_path / "there" / "home")
    with serving(tmp_path / "there", database=url) as far, far.client() as client:
        assert "greet was changed at another machine, too" in notices(far)
        assert greets(client) == ("ok", "Hello, Bern!")
        names = [each["name"] for each in client.get("/api/capabilities").json()]
        assert names == ["greet", "only_here", "only_there"]
        [aside] = far.home.glob("capabilities/.unregistered/*/v1/main.py")
        assert aside.read_text() == f"{LOUD}# there\n"
    with serving(tmp_path / "here", database=url) as near, near.client() as client:
        assert notices(near) == ""
        assert client.get("/api/capabilities/only_there").json()["version"] == 1
        assert shown(client)["edited"] == ["main.py"]


@requirement("storage:postgres:capabilities")
def test_what_was_edited_at_two_machines_is_shown_and_stays(fleet: Machines, tmp_path: Path) -> None:
    near, client, other, _ = fleet
    near.call(register, near, "greet")
    assert shown(other)["edited"] == []
    [main] = near.home.glob("capabilities/*/v1/main.py")
    [theirs] = (tmp_path / "there" / "home").glob("capabilities/*/v1/main.py")
    main.write_text(LOUD)
    theirs.write_text(theirs.read_text() + "# better\n")
    assert (greets(client), greets(other)) == (("ok", "Hello, Bern!!!"), ("ok", "Hello, Bern!"))
    kept = other.post("/api/capabilities/greet/test").json()
    assert (kept["version"], kept["passed"], kept["adopted"]) == (1, True, 2)
    assert notices(near) == ""
    assert greets(client) == ("ok", "Hello, Bern!")
    assert f"What was changed here is in {main.parent}, and is not used." in notices(near)
    assert main.read_text() == LOUD
    assert shown(client)["version"] == 2


@requirement("storage:postgres:capabilities", "storage:postgres:forget")
def test_what_is_forgotten_of_a_capability_is_in_no_folder_of_another_machine(
    fleet: Machines, tmp_path: Path
) -> None:
    near, client, other, _ = fleet
    word = "Llanfairpwllgwyn"
    case = {"name": "far", "input": {"city": word}, "expect": {"equals": f"Hello, {word}!"}}
    near.call(partial(register, near, "greet", cases=f"{GREET.cases}{json.dumps(case)}\n"))
    assert shown(other)["edited"] == []
    there = tmp_path / "there" / "home"
    [main] = there.glob("capabilities/*/v1/main.py")
    main.write_text(f"{GREET.code}# {word}\n")
    assert shown(other)["edited"] == ["main.py"]
    assert near.satchel.capabilities is not None
    assert near.call(near.satchel.capabilities.catalogue.forget_cases, "greet", [case])
    assert shown(other) == shown(client)
    assert files(there) == files(near.home) != {}
    assert not any(word.encode() in content for content in files(there).values())
    assert greets(other) == ("ok", "Hello, Bern!")


@requirement("storage:postgres:builds")
@pytest.mark.parametrize("dies", [False, True], ids=["goes-on", "dies"])
def test_a_build_is_known_and_answered_at_every_machine_and_goes_on_where_one_is_left(
    fleet: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dies: bool
) -> None:
    near, client, other, running = fleet
    if dies:  # it is left for good at once
        monkeypatch.setattr("satchel.runtime.builds._TAKEN_OVER_AFTER", timedelta(0))
    wish = {"name": "greet", "description": "Greets a city."}
    build = other.post("/api/capabilities", json=wish).json()["build_id"]
    assert client.get("/api/capabilities/greet").json()["status"] == "building"
    with client.stream("GET", "/api/builder/status", params={"buildId": build}) as following:
        told = events_in(following.iter_lines())
        question = next(event.data for event in told if event.name == "question")
        assert question["payload"]["text"] == "In which language?"
        if dies:
            running.kill()
            running.wait()
        answer = {"build_id": build, "question_id": question["id"], "answer": "English"}
        client.post("/api/builder/answer", json=answer).raise_for_status()
        rest = list(told)
    assert (rest[-1].name, rest[-1].data["payload"]["status"]) == ("complete", "active"), rest
    assert any("at another machine" in str(event.data["payload"]) for event in rest) == dies
    assert greets(client) == ("ok", "Hello, Bern!")
    assert dies or greets(other) == ("ok", "Hello, Bern!")
    assert (near.home / "builds" / build).exists() is False
