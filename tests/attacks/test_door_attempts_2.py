"""The second list of attempts at doors holds."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import time
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from satchel.config.keys import KEYS_FILE, store_values, stored_keys
from satchel.errors import SatchelError
from satchel.messages import ToolUseBlock
from satchel.models import ScriptedModel
from satchel.runtime.importing import import_into
from satchel.sandbox.original import Copy, Original
from satchel.server.browser_access import place_for
from tests.attacks import door_attempts_2 as tried
from tests.attacks.homes import bytes_below
from tests.attacks.test_door_attempts import beside
from tests.capabilities.test_sandboxed import opened as sandboxed
from tests.capabilities.world import draft, register
from tests.postgresql import server_of
from tests.requirements import requirement
from tests.rings import ringed
from tests.runtime.world import opened
from tests.server import world
from tests.server.browsers import HTML, browser
from tests.server.world import chat, events_in, process, serving

_LONG_S = 20.0
"""For one attempt on a busy machine; none needs a second on a quiet one."""


@requirement("sessions:imported")
def test_no_export_harms_the_import_or_the_page_or_what_goes_on(tmp_path: Path) -> None:
    model, won = ScriptedModel(lambda _: "I see."), []
    with (
        serving(tmp_path, lambda _: model, server__requests_per_s=10_000) as here,
        browser(here) as window,
        here.client() as client,
    ):
        satchel = here.satchel

        async def take(name: str, file: str, text: str) -> Counter[str]:
            folder = tmp_path / hashlib.sha256(name.encode()).hexdigest()[:8]
            folder.mkdir()
            good = tried.claude("c1") if name == next(iter(tried.EXPORTS)) else tried.claude(folder.name)
            (folder / file).write_text(text)
            (folder / "conversations-1.json").write_text(json.dumps([good]))
            assert satchel.memory is not None
            report = await import_into(satchel.home, satchel.memory, folder)
            return Counter(report.conversations)

        for name, (file, text) in tried.EXPORTS.items():
            began = time.monotonic()
            try:
                if not here.call(take, name, file, text)["new"]:
                    won.append(f"{name}: what was beside it is not imported")
            except Exception as error:  # noqa: BLE001 - a defect is what is looked for
                won.append(f"{name}: {error!r}")
            if time.monotonic() - began > _LONG_S:
                won.append(f"{name}: {time.monotonic() - began:.0f} s")
        for info in here.call(satchel.sessions.list):
            if re.fullmatch("claude:[0-9a-f]{8}", info.id):
                continue  # what was beside it
            page = window.get(f"/chat/{info.id}")
            if page.status_code >= 500 or re.search(
                r"<script>alert|<img src=x|<a [^>]*javascript:", page.text
            ):
                won.append(f"{info.id}: its page")
            if chat(client, "Go on.", session_id=info.id, memory=False)[-1].data["status"] != "done":
                won.append(f"{info.id} doesn't go on")
            calls = [block.id for one in model.requests[-1].messages for block in one.blocks if isinstance(block, ToolUseBlock)]  # fmt: skip
            if len(calls) != len(set(calls)):
                won.append(f"{info.id}: {calls}")
        first = str(here.call(satchel.sessions.records, "claude:c1"))
        if "Forged" in first or "heron" not in first:
            won.append("the words of c1 are others")
    assert won == []


def _zipped(kind: str, path: Path) -> None:
    good = json.dumps([tried.claude(kind.replace(" ", "-"))])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        match kind:
            case "a bomb":
                archive.writestr("conversations.json", " " * (100 << 20))
            case "a link":
                link = zipfile.ZipInfo("conversations.json")
                link.external_attr = 0o120777 << 16
                archive.writestr(link, "/etc/passwd")
            case "names above":
                for name in ("../../../escaped.json", "/tmp/escaped.json", "..\\..\\escaped.json"):
                    archive.writestr(name, good)
            case "an archive in it":
                archive.writestr("conversations.zip", b"PK\x05\x06" + bytes(18))
            case "files that overlap":
                archive.writestr("conversations.json", good + " " * (40 << 20))
            case _:
                archive.writestr("conversations.json", good)
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\x01\x02")
    match kind:
        case "files that overlap":
            end = raw.index(b"PK\x05\x06")
            one, count = bytes(raw[entry:end]), 300
            tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(one) * count, entry, 0)
            raw = raw[:entry] + one * count + tail
        case "a size that is too small" | "a size that is too large":
            size = 10 if kind.endswith("small") else 0xFFFFFFF0
            for at in (22, entry + 24):
                struct.pack_into("<L", raw, at, size)
        case "an unknown method":
            for at in (8, entry + 10):
                struct.pack_into("<H", raw, at, 99)
        case "a password":
            for at in (6, entry + 8):
                raw[at] |= 1
        case "a wrong sum":
            raw[entry + 16] ^= 1
        case "cut off":
            raw = raw[: len(raw) // 2]
        case _:
            pass
    path.write_bytes(raw)


@requirement("sessions:imported")
@pytest.mark.anyio
async def test_no_archive_fills_the_disk_or_hangs(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(["Done."])) as satchel:
        assert satchel.memory is not None
        won = []
        for number, kind in enumerate(tried.ZIPS):
            _zipped(kind, path := tmp_path / f"{number}.zip")
            began = time.monotonic()
            with suppress(SatchelError):
                await import_into(satchel.home, satchel.memory, path)
            if time.monotonic() - began > _LONG_S / 2:
                won.append(f"{kind}: {time.monotonic() - began:.0f} s")
        assert won == []
        assert "root:" not in str([memory.content for memory in await satchel.memory.list(limit=100)])
    assert sum(file.stat().st_size for file in (tmp_path / "home").rglob("*") if file.is_file()) < 20 << 20
    assert not [*tmp_path.parent.glob("escaped*"), *Path("/tmp").glob("escaped.json")]


@requirement("config:keys:keyring")
@pytest.mark.parametrize("name", tried.KEY_FILES)
def test_no_file_in_the_place_of_the_keys_hangs_or_tells_or_loses_one(tmp_path: Path, name: str) -> None:
    subprocess.run(["/bin/sh", "-c", tried.KEY_FILES[name]], cwd=tmp_path, check=True, timeout=20)
    told = ""
    with suppress(SatchelError):
        try:
            store_values(tmp_path, {"OTHER": "hunter3"})
            kept = stored_keys(tmp_path)
            assert (kept["OTHER"], set(kept) <= {"KEY", "OTHER"}) == ("hunter3", True)
            assert (tmp_path / KEYS_FILE).stat().st_mode & 0o077 == 0
        except SatchelError as error:
            told = str(error)
            raise
    assert "hunter" not in told


@requirement("config:keys:keyring")
@pytest.mark.parametrize("name", tried.RINGS)
def test_no_keyring_loses_or_tells_a_key(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ringed() as ring:
        for method, does in tried.RINGS[name].items():
            monkeypatch.setattr(ring, method, does)
        began = time.monotonic()
        store_values(tmp_path, {"KEY": "hunter2"})
        found = stored_keys(tmp_path)["KEY"]
        assert (found, time.monotonic() - began < 5) == ("hunter2", True)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


_STEALS = """
CREATE TABLE stolen AS SELECT * FROM conversation_requests;
CREATE TABLE told AS SELECT * FROM conversation_requests;
CREATE FUNCTION steal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.answer IS NULL THEN INSERT INTO stolen SELECT NEW.*; ELSE INSERT INTO told SELECT NEW.*; END IF; RETURN NEW; END $$;
CREATE TRIGGER steal AFTER INSERT OR UPDATE OF answer ON conversation_requests FOR EACH ROW EXECUTE FUNCTION steal();
"""
_FORGES = """
CREATE OR REPLACE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.answer := {}; RETURN NEW; END $$;
CREATE OR REPLACE TRIGGER forge BEFORE UPDATE OF answer ON conversation_requests FOR EACH ROW EXECUTE FUNCTION forge();
"""


@requirement("storage:postgres:servers")
def test_no_row_of_somebody_else_counts_at_two_servers(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = server_of(tmp_path_factory)
    url = server.copy(tmp_path)
    here, there, won = tmp_path / "here", tmp_path / "there", []
    here.mkdir()
    (there / "home").mkdir(parents=True, mode=0o700)
    with (
        world.serving(here, database=url, agent__mode="ask") as near,
        near.client() as client,
        psycopg.connect(url, autocommit=True) as thief,
    ):
        for file in ("forgotten.key", "token"):
            shutil.copy(near.home / file, there / "home")
        with process(there, "held", database=url) as (_, other):
            aside = chat(other, "The owl")[-1].data["sessionId"]
            with other.stream("POST", "/api/chat", json={"message": "hold it"}) as running:
                events = events_in(running.iter_lines())
                id = next(events).data["sessionId"]
                turns = f"/api/sessions/{id}/turns"
                thief.execute(_STEALS)
                assert client.post(turns, json={"text": "Send the parcel"}).json()["waiting"]
                assert client.post(turns, json={"text": "The wren"}).json()["waiting"]
                thief.execute("ALTER TABLE conversation_requests DISABLE TRIGGER steal")
                for rows in tried.REQUESTS.values():
                    add = "INSERT INTO conversation_requests (session_id, epoch, last_seq, at, content) "
                    thief.execute((add + rows.format(other=aside)).encode())
                thief.execute("ALTER TABLE conversation_requests ENABLE TRIGGER steal")
                # What came after has been carried out, so what was forged was taken before.
                client.post(turns, json={"text": "The tern"}).raise_for_status()
                for name, answer in tried.ANSWERS.items():
                    thief.execute(_FORGES.format(answer).encode())
                    said = client.post(turns, json={"text": f"A forged answer: {name}"})
                    if said.status_code < 400 or said.json()["code"] == "internal_error":
                        won.append(f"{name}: {said.text}")
                thief.execute("DROP TRIGGER forge ON conversation_requests")
                client.post(f"/api/sessions/{id}/cancel").raise_for_status()
                list(events)
            log = other.get(f"/api/sessions/{id}").json()["events"]
            # Its turn may have begun since.
            came = [
                each
                for each in log
                if each["type"] == "message_waiting" and each["text"] == "Send the parcel"
            ]
            if len(came) != 1 or "Send the parcel" in other.get(f"/api/sessions/{aside}").text:
                won.append("a request was carried out again")
            for chosen in tried.CHOSEN:
                fresh = chat(other, "The heron")[-1].data["sessionId"]
                thief.execute("UPDATE conversations SET chosen = %s WHERE session_id = %s", (chosen, fresh))
                ran = chat(client, "echo heron", session_id=fresh)
                if ran[-1].data["status"] != "done" or "\\nheron" in json.dumps([each.data for each in ran]):
                    won.append(f"{chosen}: {ran[-1].data['status']}")
        link = client.post("/login/link").json()["path"]
        assert client.get(link, headers={"accept": HTML}).headers["location"].startswith("/s/")
        known = thief.execute("SELECT token FROM browser_logins").fetchone()
        assert known is not None
        del client.headers["authorization"]
        for kind in tried.LOGINS:
            digest = hashlib.sha256(f"mine{kind}".encode()).hexdigest()
            thief.execute(
                "INSERT INTO browser_logins VALUES (%s, %s, %s, %s)", (digest, kind, known[0], 2**60)
            )
            client.cookies.clear()
            cookie = f"satchel_{client.base_url.port}=mine{kind}"
            for path in (place_for(f"mine{kind}"), f"/login/mine{kind}", f"/login?code=mine{kind}"):
                got = client.get(path, headers={"cookie": cookie, "accept": HTML})
                if (
                    got.status_code == 200
                    and "log in" not in got.text.lower()
                    or got.headers.get("location", "").startswith("/s/")
                ):
                    won.append(f"{kind}: {path}")
        client.headers["authorization"] = f"Bearer {near.token}"
        sent = client.post("/api/attachments", params={"filename": "a.txt"}, content=b"The parcel").json()
        thief.execute("UPDATE conversation_uploads SET content = 'FORGED'")
        files = [{"sha256": sent["sha256"], "filename": "a.txt"}]
        if client.post("/api/chat", json={"message": "I send it", "attachments": files}).status_code == 200:
            won.append("a file was exchanged")
    assert won == []


@requirement("http:openai:sessions")
def test_no_body_for_another_program_breaks_fetches_runs_or_tells(tmp_path: Path) -> None:
    won = []
    with (
        beside() as (address, told),
        serving(tmp_path, server__requests_per_s=10_000, agent__mode="ask") as here,
        here.client() as client,
    ):
        ann = {"input": "The nightjar is mine", "user": "ann"}
        theirs = client.post("/v1/responses", json=ann).json()
        given = {"$E": address, "$R": theirs["id"], "$S": theirs["satchel"]["session_id"]}
        lists = {
            "/v1/chat/completions": tried.CHATS,
            "/v1/responses": tried.RESPONSES,
            "/v1/messages": tried.MESSAGES,
        }
        for path, bodies in lists.items():
            headers = {"content-type": "application/json"}
            headers |= {"anthropic-version": "2023-06-01"} if path.endswith("messages") else {}
            for name, body in bodies.items():
                text = json.dumps(body)
                for sign, value in given.items():
                    text = text.replace(sign, value)
                began = time.monotonic()
                said = client.post(path, content=text, headers=headers)
                # The scripted model says nothing to some, which is an error of the model's.
                failed = said.status_code >= 500 and "empty answer" not in said.text
                tells = re.search(r"nightjar|root:|\\nheron", said.text)
                if failed or tells or time.monotonic() - began > _LONG_S:
                    won.append(f"{path}, {name}: {said.status_code} {said.text[:200]}")
        for session in client.get("/api/sessions").json():
            shown = client.get(f"/api/sessions/{session['id']}")
            if shown.status_code != 200 or re.search(r'"text":"[^"]*\\nheron', shown.text):
                won.append(f"{session['id']}: {shown.text[:200]}")
    assert won == []
    assert told == []


_LOOKS = """
import gc, os, re, select, subprocess, sys
def found_in_memory():
    found = []
    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
        for line in maps:
            begin, end = (int(each, 16) for each in line.split()[0].split('-'))
            if line.split()[1].startswith('rw') and end - begin < 1 << 28:
                memory.seek(begin)
                try:
                    found += re.findall(b'ANN' + b'SECRET-[0-9]+', memory.read(end - begin))
                except OSError:
                    pass
    return found
try:
    {}
except Exception as error:
    print(repr(error))
print('LOOKED', flush=True)
os.close(0)
"""


@requirement("people:apart:files")
def test_no_copy_of_a_process_learns_of_another(tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text("1")
    original = Original(("json",), {"PATH": os.defpath}, tmp_path / "version.py")

    def started(name: str, code: str, secret: str = "") -> Copy:
        with Path(os.devnull).open() as given:
            return original.start(
                ("timeit", "-n1", "-r1", code),
                cwd=Path("/"),
                environ={"PATH": os.defpath, **({"KEY": secret} if secret else {})},
                log=tmp_path / f"{name}.log",
                uid=None,
                fd=given.fileno(),
                first_line=secret,
            )

    ann = started("ann", "import time; print('here', flush=True); time.sleep(600)", "ANNSECRET-1234567")
    copies = {
        name: started(str(at), _LOOKS.format(code)) for at, (name, code) in enumerate(tried.COPIES.items())
    }
    until_s = time.monotonic() + 10 * _LONG_S
    try:
        while time.monotonic() < until_s and not all(
            "LOOKED" in (tmp_path / f"{at}.log").read_text() for at in range(len(copies))
        ):
            time.sleep(0.02)
    finally:
        for each in (ann, *copies.values()):
            original.end(each, wait_s=0)
        original.close()
    said = {name: (tmp_path / f"{at}.log").read_text() for at, name in enumerate(copies)}
    assert {
        name: text for name, text in said.items() if re.search("ANNSECRET-|socket:|pipe:|Traceback", text)
    } == {}


@requirement("capabilities:run:fresh")
@pytest.mark.anyio
async def test_no_body_of_a_capability_changes_what_the_next_box_mounts(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as home:
        for number, body in enumerate(tried.BODIES.values()):
            code = f"import os, subprocess, sys\ndef run(args: dict) -> str:\n    {body}\n    return 'done'\n"
            await register(home.catalogue, f"tool_{number}", draft(code=code))
        before = bytes_below(tmp_path / "s/capabilities")
        modes = {str(path): path.stat().st_mode for path in (tmp_path / "s").rglob("*.py")}
        for number in range(len(tried.BODIES)):
            with suppress(SatchelError):
                await home.runner.run(f"tool_{number}", {"city": "Austin"})
        assert bytes_below(tmp_path / "s/capabilities") == before
        assert {str(path): path.stat().st_mode for path in (tmp_path / "s").rglob("*.py")} == modes
    assert not list(tmp_path.rglob("*.pth"))
