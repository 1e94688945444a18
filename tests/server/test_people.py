"""Several people on one server: each reaches their own home, and nobody another's."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from sqlalchemy.engine import make_url

from satchel.errors import StorageError
from satchel.processes import has_ended
from satchel.runtime.people import People
from satchel.runtime.serving import read_token
from satchel.storage.roles import add_role, drop_role
from tests.postgresql import server_of
from tests.requirements import requirement
from tests.server.browsers import HTML, read, words_of
from tests.server.household import IS_ROOT, Household, children_of, household
from tests.server.world import World, chat, events_in, text_of

SECRET = "marzipan-7431"


IMPATIENT = "from satchel.server import gate; gate._PIECE_WAIT_S = 3; gate._LINGER_S = 0.1"
"""How long the front door waits for the rest of a body, so that a test need not."""


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    with household() as house:
        house.add("ann")
        house.add("bob")
        house.start(before=IMPATIENT)
        yield house


def until(what: Any) -> None:
    """Wait until something holds; the test's own limit ends a wait in vain."""
    while not what():
        time.sleep(0.02)  # and takes no processor from whom it waits for


@requirement("people:apart:routes", "people:apart:files")
def test_nothing_but_a_token_says_who_somebody_is_and_no_command_reads_anothers_files(
    house: Household,
) -> None:
    with house.program("ann") as ann, house.program("bob") as bob:
        ann.post("/api/memories", json={"content": f"The code is {SECRET}."}).raise_for_status()
        files = house.home / "users/ann/files"
        (files / "note.txt").write_text(SECRET)
        assert SECRET in ann.get("/api/memories").text
        # No header, query, path or address says who somebody is.
        for headers in (
            {
                "x-forwarded-user": "ann",
                "x-remote-user": "ann",
                "remote-user": "ann",
                "x-satchel-person": "ann",
            },
            {"x-forwarded-for": "127.0.0.1", "forwarded": "for=127.0.0.1", "x-original-url": "/users/ann"},
            {"x-satchel-token": "ann", "x-api-key": "ann", "cookie": "name=ann; satchel_80=ann"},
        ):
            for path in (
                "/api/memories",
                "/api/memories?user=ann&name=ann",
                "/users/ann/api/memories",
                "/ann@/api/memories",
            ):
                assert SECRET not in bob.get(path, headers=headers).text
        with house.client() as nobody:
            home = house.home / "users/ann/.satchel"
            assert read_token(home) is None  # none that anybody could read is used
            (home / "token").write_text("t" * 40)
            for wrong in ("t" * 40, json.loads((house.home / "people.json").read_text())["key"], "ann"):
                headers = {"authorization": f"Bearer {wrong}"}
                assert nobody.get("/api/memories", headers=headers).status_code in (401, 429)

        # Not even what his agent runs outside of any box.
        found = chat(
            bob,
            f"RUN cat {files}/note.txt; ls {home}; cat {house.home}/people.json; ls {house.home}/door; id -u",
        )
        result = next(one.data["result"] for one in found if one.name == "tool_result")
        if IS_ROOT:
            assert SECRET not in result
            assert result.count("Permission denied") == 4
            uids = {name: (house.home / "users" / name).stat().st_uid for name in ("ann", "bob")}
            assert str(uids["bob"]) in result
            assert 0 not in uids.values()
            assert uids["ann"] != uids["bob"]


@requirement("people:login", "people:apart:browsers")
def test_a_browser_reaches_the_home_of_the_name_that_it_logged_in_with(house: Household) -> None:
    with house.client(accept=HTML) as ann, house.client(accept=HTML) as bob:
        assert ann.get("/memories").headers["location"] == "/login?next=/memories"
        assert read(ann.get("/login")).xpath("//input[@type='password']/@name") == ["password"]
        places = {}
        for name, client in (("ann", ann), ("bob", bob)):
            answer = house.log_in(client, name, next="/memories")
            assert answer.status_code == 303
            places[name] = answer.headers["location"].removesuffix("/memories")
            assert "HttpOnly" in answer.headers["set-cookie"]
            assert f"Path={places[name]};" in answer.headers["set-cookie"]
        page = read(ann.get(f"{places['ann']}/memories"))
        token = page.xpath("//input[@name='form_token']/@value")[0]
        form = {"form_token": token, "content": "Only ann has a canary."}
        # A change needs the form token and comes from a page of this server, as in a home with one person.
        assert ann.post(f"{places['ann']}/memories", data=form).status_code == 403
        ok = ann.post(f"{places['ann']}/memories", data=form, headers={"origin": house.url})
        assert ok.status_code == 303, ok.text
        seen = ann.get(f"{places['ann']}/memories")
        assert "canary" in seen.text
        assert words_of(read(seen).cssselect("form[action$='/logout']")[0]) == "Log out ann"
        assert "canary" not in bob.get(f"{places['bob']}/memories").text

        # Another's place, with one's own cookie or with both.
        cookie = "; ".join(f"{one.name}={one.value}" for one in bob.cookies.jar)
        crossed = bob.get(f"{places['ann']}/memories", headers={"cookie": cookie})
        assert crossed.headers["location"].startswith("/login")

        # No header of a client's becomes the token of the process, with which forms need no proof.
        for name in ("x-satchel-token", "authorization", "x-api-key"):
            for value in ("", "Bearer", "(the token of the process)"):
                headers = {name: value, "origin": house.url}
                sent = bob.post(f"{places['bob']}/memories", data={"content": "No proof."}, headers=headers)
                assert sent.status_code == 403, (name, value)

        # Another password logs every browser out at once.
        house.run("user", "password", "bob", stdin="another password")
        house.passwords["bob"] = "another password"
        assert bob.get(f"{places['bob']}/memories").headers["location"].startswith("/login")
        assert ann.get(f"{places['ann']}/memories").status_code == 200
        before = "; ".join(f"{one.name}={one.value}" for one in ann.cookies.jar)
        digest = sha256(before.partition("=")[2].encode()).hexdigest()
        assert digest in (house.home / "people.json").read_text()
        with house.client(accept=HTML) as second:
            place = house.log_in(second, "ann").headers["location"]
            page = read(second.get(place))
            (form,) = page.cssselect("form[action$='/logout/everywhere']")
            assert words_of(form) == "Log out everywhere"
            proof = {"form_token": form.xpath(".//input[@name='form_token']/@value")[0]}
            sent = second.post(f"{place}logout/everywhere", data=proof, headers={"origin": house.url})
            assert sent.status_code == 303
        assert ann.get(f"{places['ann']}/memories").status_code == 303
        answer = ann.get(f"{places['ann']}/api/memories", headers={"cookie": before, "x-satchel-token": ""})
        assert answer.headers["location"].startswith("/login")
        assert digest not in (house.home / "people.json").read_text()  # the door has forgotten it as well


@requirement("people:killed")
def test_what_was_killed_starts_again_and_browsers_stay_logged_in(house: Household) -> None:
    with house.client(accept=HTML) as browser, house.program("ann") as ann:
        place = house.log_in(browser, "ann").headers["location"].rstrip("/")
        ann.post("/api/memories", json={"content": "Tea is in the blue tin."})
        for pid in house.processes():
            os.kill(pid, signal.SIGKILL)
        assert "blue tin" in ann.get("/api/memories").text
        old = house.processes()
        port = house.url.rpartition(":")[2]
        house.end(hard=True)
        house.start(before=IMPATIENT, SATCHEL_SERVER_PORT=port)
        # Nobody goes on without the front door.
        until(lambda: all(has_ended(pid) for pid in old))
        ann.base_url = browser.base_url = httpx2.URL(house.url)
        assert "blue tin" in ann.get("/api/memories").text
        if house.url.endswith(f":{port}"):
            assert "blue tin" in browser.get(f"{place}/memories").text


@requirement("people:copies", "people:killed")
def test_peoples_processes_are_copies_of_one_that_knows_no_secret(house: Household) -> None:
    with house.program("ann") as ann, house.program("bob") as bob:
        for each in (ann, bob):
            assert each.get("/api/memories").status_code == 200
        assert house.door is not None
        (original,) = children_of(house.door.pid)
        copies = house.processes()
        assert len(copies) >= 2
        for pid in copies:
            environ = Path(f"/proc/{pid}/environ")
            assert b"SATCHEL_" not in environ.read_bytes()
            # Not the person's, whose commands therefore can't read what their Satchel knows.
            assert environ.stat().st_uid == os.geteuid()
        owners = {Path(f"/proc/{pid}").stat().st_uid for pid in copies}
        assert len(owners) == (len(copies) if IS_ROOT else 1)

        os.kill(original, signal.SIGKILL)
        # Those that run stay, and one that ends is started from another.
        assert ann.get("/api/memories").status_code == 200
        assert all(not has_ended(pid) for pid in copies)
        house.run("user", "password", "bob", stdin="a fourth password")
        house.passwords["bob"] = "a fourth password"
        assert bob.get("/api/memories").status_code == 200
        assert len(house.processes()) == 1


@requirement("people:quota")
def test_quotas_hold_whatever_the_person_writes_into_the_settings(house: Household) -> None:
    with house.program("ann") as ann:
        settings = house.home / "users/ann/.satchel/config.toml"
        settings.write_text("[budget]\nday_usd = 100.0\n[agent]\nmax_rounds = 7\n")
        settings.chmod(0o644)
        house.run("user", "quota", "ann", "--day-usd", "0.25", "--disk-mb", "0")
        answer = ann.post("/api/memories", json={"content": "One more."})
        assert answer.status_code == 507
        assert "0 MB" in answer.json()["detail"]
        shown = ann.get("/settings?q=day_usd", headers={"accept": HTML}).text
        assert "SATCHEL_BUDGET_DAY_USD" in shown
        assert "0.25" in shown
        assert ann.get("/api/memories").status_code == 200
        house.run("user", "quota", "ann", "--disk-mb", "none", "--day-usd", "none")
        assert ann.post("/api/memories", json={"content": "One more."}).status_code == 201
        settings.unlink()
        listed = json.loads(house.run("user", "list", "--json"))
        assert [one["name"] for one in listed] == ["ann", "bob"]
        assert listed[0]["used_mb"] > 0
        assert listed[0]["usd_today"] is not None


@requirement("people:passkeys")
def test_the_administrator_lists_and_removes_a_persons_passkeys(house: Household) -> None:
    def key(id: str, name: str) -> dict[str, object]:
        return {"id": id, "key": SECRET, "count": 0, "origin": house.url, "name": name, "added": "2026-11-29"}

    added = key("phone-1", "Phone"), key("phone-2", "Old phone")
    People(house.home).change_passkeys("ann", lambda _: added)
    assert "2 passkeys of ann begin with 'phone'" in house.run(
        "user", "passkeys", "ann", "--remove", "phone", code=2
    )
    assert "Old phone" in house.run("user", "passkeys", "ann")
    assert SECRET not in house.run("user", "passkeys", "ann", "--json")
    house.run("user", "passkeys", "ann", "--remove", "phone-2")
    assert [one["name"] for one in json.loads(house.run("user", "passkeys", "ann", "--json"))] == ["Phone"]
    assert [one["id"] for one in People(house.home).get("ann").passkeys] == ["phone-1"]


@requirement("people:metrics")
def test_the_administrator_sees_figures_of_each_person_and_nothing_else(house: Household) -> None:
    token = (house.home / "token").read_text().strip()
    with house.program("ann") as ann, house.program("bob") as bob:
        for person in (ann, bob):
            assert person.post("/api/chat", json={"message": "Hello"}).status_code == 200
        mine = ann.get("/metrics").text
        assert "person=" not in mine
        assert 'satchel_turns_total{status="done"}' in mine
    with house.client(authorization=f"Bearer {token}") as administrator:
        text = administrator.get("/metrics").text
        for name in ("ann", "bob"):
            assert re.search(
                rf'^satchel_turns_total{{person="{name}",status="done"}} [1-9]', text, re.MULTILINE
            )
            assert f'satchel_turns_running{{person="{name}"}} 0' in text
            assert f'satchel_streams{{person="{name}"}} 0' in text
        assert text.count("# TYPE satchel_turns_total ") == text.count("# TYPE satchel_streams ") == 1
        assert "satchel_people 2\n" in text
        assert "satchel_http_requests_total{" in text
        for path in ("/api/memories", "/api/sessions", "/metrics/", "/api/health"):
            assert administrator.get(path).status_code == 401, path
    with house.client() as stranger:
        assert stranger.get("/metrics").status_code == 401


@requirement("people:stream")
def test_streams_uploads_and_downloads_pass_through(house: Household) -> None:
    with house.program("ann") as ann:
        words = b"The lighthouse keeper is called Orla. " * 20_000
        sent = ann.post(
            "/api/memory/documents/sent", params={"filename": "keeper.txt"}, content=iter([words, words])
        )
        assert sent.status_code in (200, 201), sent.text
        with ann.stream("POST", "/api/chat", json={"message": "Hello"}) as answer:
            events = list(events_in(answer.iter_lines()))
        assert text_of(events) == "I see.", events
        assert events[-1].name == "response"


@requirement("people:at-once", "people:removed")
def test_at_most_so_many_run_and_a_person_who_is_removed_is_backed_up_and_gone() -> None:
    with household(SATCHEL_SERVER_PEOPLE_AT_ONCE="1", SATCHEL_SERVER_PEOPLE_IDLE_S="2") as house:
        tokens = {}
        for name in ("p0", "p1"):
            house.add(name)
            tokens[name] = house.run("user", "token", name).strip()
        house.start()
        for name in tokens:
            with house.client(authorization=f"Bearer {tokens[name]}") as client:
                assert client.post("/api/memories", json={"content": f"I am {name}."}).status_code == 201
                assert len(house.processes()) <= 1
        until(lambda: not house.processes())  # they are idle

        folder = house.home / "users/p0"
        (folder / "files/kept.txt").write_text("kept")
        secret = house.folder / "of-root"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        (folder / ".satchel/tools").mkdir(exist_ok=True)
        (folder / ".satchel/tools/link").symlink_to(secret)
        uid = folder.stat().st_uid
        house.run("user", "remove", "p0", code=2)  # it asks
        assert folder.exists()
        archives = json.loads(house.run("user", "remove", "p0", "--yes", "--json"))["backup"]
        assert not folder.exists()
        names_in = {name for path in archives for name in _contents(path)}
        assert {"satchel.db", "files/kept.txt"} <= names_in
        if IS_ROOT:  # a link of the person's leads to nothing that isn't theirs
            assert all(SECRET.encode() not in b"".join(_contents(path).values()) for path in archives)
        assert stat.S_IMODE(Path(archives[0]).stat().st_mode) == 0o600
        with house.client(authorization=f"Bearer {tokens['p0']}") as client:
            assert client.get("/api/memories").status_code == 401
        house.add("p0")
        assert not IS_ROOT or folder.stat().st_uid != uid


def _contents(path: str) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files = {each.name: archive.extractfile(each) for each in archive if each.isreg()}
        return {name: file.read() for name, file in files.items() if file is not None}


@requirement("people:login")
def test_guessing_is_slowed_and_tells_nothing_of_who_is_there(house: Household) -> None:
    with house.client() as client:
        wrong = house.log_in(client, "ann", "not the password")
        unknown = house.log_in(client, "nobody", "not the password")
        assert wrong.status_code == unknown.status_code == 403
        assert wrong.text == unknown.text
        with ThreadPoolExecutor(20) as pool:
            statuses = set(
                pool.map(lambda number: house.log_in(client, "ann", f"guess {number}").status_code, range(20))
            )
        assert statuses == {403, 429}


@requirement("people:stream")
def test_odd_paths_and_bodies_that_stop_are_the_clients_fault(house: Household) -> None:
    with house.program("bob") as bob:
        assert bob.get("/api/memories").status_code == 200
        host = house.url.removeprefix("http://")
        name, port = host.split(":")

        def status(line: str, more: str = "") -> int:
            with socket.create_connection((name, int(port)), timeout=240) as raw:
                head = f"{line} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bob.headers['authorization']}\r\n"
                raw.sendall(f"{head}{more}".encode())
                return int(raw.recv(100).split()[1])

        for path in ("http://evil/api/memories", "*", "/a[b", "/api/%zz", "//evil/api/memories"):
            assert status(f"GET {path}", "\r\n") in (400, 404), path
        assert status("POST /api/memories", "Content-Length: 100\r\n\r\n{") == 408


@requirement("people:login")
def test_another_password_ends_what_goes_on(house: Household) -> None:
    with house.program("bob") as bob:
        assert bob.get("/api/memories").status_code == 200
        before = set(house.processes())  # others' may be among them, which stay
        house.run("user", "password", "bob", stdin="a third password")
        house.passwords["bob"] = "a third password"
        until(lambda: before - set(house.processes()))


@requirement("people:alone")
def test_the_container_is_healthy_as_a_front_door(house: Household) -> None:
    text = (Path(__file__).parents[2] / "Containerfile").read_text()
    command = json.loads(re.findall(r"^ +CMD (\[.*\])$", text, re.MULTILINE)[0])
    environ = {**house.environ, "no_proxy": "*"}
    done = subprocess.run(
        [house.python, *command[1:]], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@requirement("people:apart:files")
def test_no_folder_of_a_persons_is_entered_with_the_rights_of_root(house: Household) -> None:
    files = house.home / "users/bob/files"
    owner = files.stat()
    aside = files.rename(files.with_name("aside"))
    closed = house.folder / "closed"
    (closed / "open").mkdir(parents=True)
    (closed / "open").chmod(0o755)
    closed.chmod(0o700)
    try:
        with house.program("bob") as bob:
            for pid in house.processes():
                os.kill(pid, signal.SIGKILL)
            assert bob.get("/api/memories").status_code == 200  # it is made anew
            made = files.stat()
            assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (owner.st_uid, 0o700)
            if IS_ROOT:
                files.rmdir()
                files.symlink_to(closed / "open")
                for pid in house.processes():
                    os.kill(pid, signal.SIGKILL)
                assert bob.get("/api/memories").status_code == 503
                files.unlink()
    finally:
        if files.is_dir():
            files.rmdir()
        aside.rename(files)


@requirement("people:apart:files")
def test_what_runs_for_a_person_has_no_way_to_the_terminal() -> None:
    program = (
        "import os, sys; from pathlib import Path; from satchel.sandbox.apart import run_apart; "
        "os.open(sys.argv[1], os.O_RDWR); os.close(os.open('/dev/tty', os.O_RDWR)); "
        "sys.exit(run_apart(('timeit', '-n1', '-r1', 'open(\"/dev/tty\")'), cwd=Path('/'), environ={}, uid=None)[0])"
    )
    master, terminal = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, os.ttyname(terminal)],
            start_new_session=True,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        os.close(master)
        os.close(terminal)
    assert done.returncode == 1, done.stderr
    assert not done.stderr


@requirement("people:alone")
def test_the_restart_of_a_server_that_got_people_makes_it_the_front_door() -> None:
    with household() as house:
        command = [house.python, "-m", "satchel", "serve", "--port", "0"]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd="/", env=house.environ
        ) as server:
            assert server.stderr is not None
            found = re.search(r"listens at (http://\S+)\. ", server.stderr.readline())
            assert found
            house.url = found[1]
            house.add("ann")
            try:
                with house.client(
                    authorization=f"Bearer {read_token(house.home)}", origin=house.url
                ) as client:
                    assert client.post("/settings/restart").status_code < 400
                said = next(line for line in server.stderr if not line.startswith("Restarting"))
                assert said.startswith(f"Satchel listens at {house.url}, for 1 person")
            finally:
                server.terminate()


@requirement("people:removed", "storage:backup")
def test_backups_and_removal_cope_with_what_people_do_to_their_folders() -> None:
    with household() as house:
        for name in ("ann", "bob", "eve"):
            house.add(name)
        users, kept = house.home / "users", house.folder / "kept"
        (users / "ann/.satchel/satchel.db").write_bytes(b"no database" * 1000)
        (users / "bob/files").rmdir()
        (users / "bob/files").symlink_to("/etc")
        (users / "bob/.backup.tar.gz/in the way").mkdir(parents=True)
        depth = os.open(users / "eve/files", os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("d", dir_fd=depth)
            depth, above = os.open("d", os.O_RDONLY, dir_fd=depth), depth
            os.close(above)
        os.close(depth)
        if IS_ROOT:
            subprocess.run(
                ["chown", "-R", str((users / "eve").stat().st_uid), users / "eve/files"], check=True
            )
        said = house.run("user", "backup", str(kept), code=4)
        assert "Not backed up: ann." in said
        assert {each.name for each in kept.iterdir()} == {"bob.tar.gz", "eve.tar.gz", "eve-files.tar.gz"}
        assert len(json.loads(house.run("user", "list", "--json"))) == 3
        house.run("user", "remove", "eve", "--yes")
        assert not [each.name for each in users.iterdir() if "eve" in each.name]


@requirement("people:alone", "storage:backup")
def test_a_restore_keeps_the_people_of_now() -> None:
    with household() as house:
        house.add("ann")
        archive = str(house.folder / "b.tar.gz")
        house.run("backup", archive)
        house.add("bob")
        (house.home / "users/bob/files/kept.txt").write_text("kept")
        house.start()
        assert "front door" in house.run("restore", archive, "--yes", code=4)
        house.end()
        house.run("restore", archive, "--yes")
        table = json.loads((house.home / "people.json").read_text())
        assert set(table["people"]) == {"ann", "bob"}
        assert table["next"] == 2
        assert (house.home / "users/bob/files/kept.txt").read_text() == "kept"


@requirement("people:alone")
def test_a_home_of_one_person_has_nothing_of_it(world: World, client: httpx2.Client) -> None:
    assert client.get("/api/memories").status_code == 200
    assert {each.name for each in world.home.iterdir()}.isdisjoint(
        {"people.json", "users", "logins", "door", "removed"}
    )
    with httpx2.Client(base_url=world.url, headers={"accept": HTML}, trust_env=False, timeout=240) as browser:
        assert read(browser.get("/login")).xpath("//input[@type='password']/@name") == ["token"]


@requirement("people:postgres")
def test_the_database_itself_refuses_another_persons_role(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = server_of(tmp_path_factory).url("people")
    ann, bob = (add_role(url, f"satchel_{name}", "p4ss-word/@") for name in ("ann", "bob"))
    try:
        with psycopg.connect(ann, autocommit=True) as mine:
            mine.execute("CREATE TABLE secrets (words TEXT)")
        with psycopg.connect(bob, autocommit=True) as other:
            for statement in (
                "SET ROLE satchel_ann",
                "SET ROLE satchel",
                "CREATE ROLE more",
                "CREATE DATABASE more",
            ):
                with pytest.raises(psycopg.Error):
                    other.execute(statement.encode())
        for place in ("/satchel_ann?", "/postgres?"):
            with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
                psycopg.connect(bob.replace("/satchel_bob?", place))
    finally:
        for name in ("ann", "bob"):
            drop_role(url, f"satchel_{name}")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(ann)


@requirement("people:postgres")
def test_a_role_that_could_enter_the_administrators_database_is_not_left(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    url = make_url(server_of(tmp_path_factory).url("householders"))
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as owner:
        owner.execute("CREATE DATABASE householders")
        url = url.set(database="householders")
        for admin, more in (("may_not_make", ""), ("owns_nothing", "CREATEDB")):
            owner.execute(f"CREATE ROLE {admin} LOGIN CREATEROLE {more} PASSWORD 'x'".encode())
            address = url.set(username=admin, password="x").render_as_string(hide_password=False)
            for _ in range(2):  # what fails leaves nothing that is in the way
                with pytest.raises(StorageError, match="may still enter" if more else "permission denied"):
                    add_role(address, "satchel_zed", "p4ss")
            assert not owner.execute("SELECT 1 FROM pg_roles WHERE rolname = 'satchel_zed'").fetchall()
            assert not owner.execute("SELECT 1 FROM pg_database WHERE datname = 'satchel_zed'").fetchall()
            owner.execute(f"DROP ROLE {admin}".encode())
    assert url.username is not None
    named = url.update_query_dict({"user": url.username, "passfile": "/nowhere", "connect_timeout": "9"})
    try:
        person = make_url(add_role(named.render_as_string(hide_password=False), "satchel_zed", "p4ss"))
        assert person.username == "satchel_zed"
        assert person.query["connect_timeout"] == "9"
        assert not {"user", "passfile"} & set(person.query)
    finally:
        drop_role(plain, "satchel_zed")
        with psycopg.connect(plain, autocommit=True) as owner:
            owner.execute("DROP DATABASE householders WITH (FORCE)")


@requirement("people:passkeys")
def test_what_is_no_answer_of_a_passkey_lets_nobody_in() -> None:
    with household() as house:
        house.add("ann")
        house.start()
        with house.client() as client:
            for odd in (b"{", b"[]", b'{"credential": {"id": []}}', b'{"credential": "\\u0000"}', b"\xff"):
                assert client.post("/login/passkey", content=odd).status_code == 403
