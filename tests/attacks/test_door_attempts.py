"""The list of attempts at the newest doors holds."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from satchel.errors import SatchelError
from satchel.models import ScriptedModel
from satchel.tools.builtin.changes import redo, undo
from satchel.tools.builtin.snapshot import Snapshot
from satchel.tools.web.chromium import find_chromium, has_playwright
from tests.attacks.door_attempts import COMMANDS, FRAMES, PARTS, PATHS, UNDONE, UPLOADED
from tests.requirements import requirement
from tests.server.browsers import browser, logged_in_window
from tests.server.household import IS_ROOT, children_of, household
from tests.server.world import chat, serving

SECRETS = ("annsecret-4411", "adminsecret-9917")


@contextmanager
def beside() -> Iterator[tuple[str, list[str]]]:
    """A server beside Satchel's, which answers nothing: its address, and what it is told."""
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def read(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(20)
                if data := connection.recv(1000):
                    told.append(data.decode(errors="replace").partition("\r\n")[0])

        def listen() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=read, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", told
        listener.shutdown(socket.SHUT_RDWR)


@requirement("web-pages:artifacts")
def test_no_block_that_is_shown_gets_anything_out(tmp_path: Path) -> None:
    if not has_playwright() or find_chromium("", os.environ) is None:
        pytest.skip("needs Chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with beside() as (address, told), sync_playwright() as playwright:
        blocks = [block.replace("$E", f"{address}/{number}/") for number, block in enumerate(FRAMES.values())]
        replies = [f"```html\n{block}\n```" for block in blocks]
        model = ScriptedModel(replies)
        with serving(tmp_path, lambda _: model, server__requests_per_s=10_000) as world:
            with world.client() as client:
                id = chat(client, "Draw.", memory=False)[-1].data["sessionId"]
                for _ in replies[1:]:
                    chat(client, "And another one.", memory=False, session_id=id)
            # Without Playwright's switches that keep Chromium from connecting by itself.
            chromium = playwright.chromium.launch(
                executable_path=find_chromium("", os.environ),
                args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
                ignore_default_args=["--disable-background-networking"],
            )
            window, won = logged_in_window(chromium, world), []
            page = window.new_page()
            page.goto(f"./chat/{id}")
            here, direct = page.url, window.new_page()
            for number, name in enumerate(FRAMES, start=1):
                shown = page.locator(f"#turn-{number} .code-bar").get_by_role("button", name="Show")
                shown.click()
                page.locator(f"#turn-{number} iframe").wait_for()
                page.wait_for_timeout(200)
                if page.url != here or len(window.pages) > 2:
                    won.append(f"{name}: {[each.url for each in window.pages]}")
                    page.goto(here)
                direct.goto(f"./chat/{id}/turns/{number}/code/0")
                direct.wait_for_timeout(200)
                if not direct.url.endswith(f"/turns/{number}/code/0") or len(window.pages) > 2:
                    won.append(f"{name}, opened by itself: {[each.url for each in window.pages]}")
                for each in window.pages[2:]:
                    each.close()
            page.goto("./sessions")
            assert page.url.endswith("/sessions"), "the browser is logged out"
            chromium.close()
    assert won == []
    assert told == []


def _all(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


@requirement("tools:undo:commands")
@pytest.mark.parametrize("name", UNDONE)
def test_no_command_that_is_undone_changes_what_is_outside(tmp_path: Path, name: str) -> None:
    work, spill, outside = tmp_path / "work", tmp_path / "spill", tmp_path / "outside"
    (work / "d").mkdir(parents=True)
    outside.mkdir()
    for path, text in ((work / "d/f", "one"), (work / "g", "two"), (outside / "f", "three")):
        path.write_text(text)
    (outside / "key").write_text("PRIVATE")
    taken = Snapshot(work, spill)
    environ = {"PATH": os.defpath, "O": str(outside)}
    subprocess.run(["/bin/sh", "-c", UNDONE[name]], cwd=work, env=environ, check=True, timeout=60)
    before = _all(outside)
    taken.keep(1)
    for change in (undo, redo, undo):
        with suppress(SatchelError):
            change(spill)
        assert _all(outside) == before
    assert "PRIVATE" not in str(_all(spill))
    assert not [path for path in (work / "g", work / "d/f") if path.exists() and path.stat().st_mode & 0o7000]


@requirement("people:apart:files")
def test_no_command_of_one_person_gets_at_the_door_or_at_another(tmp_path: Path) -> None:
    if not IS_ROOT:
        pytest.skip("needs root")
    with household(SATCHEL_AGENT_MODE="bypass") as house:
        house.add("ann")
        house.add("bob")
        house.start(ADMIN_SECRET=SECRETS[1])
        with house.program("ann") as ann, house.program("bob") as bob:
            chat(ann, f"My word is {SECRETS[0]}.")
            note = house.home / "users/ann/files/note.txt"
            note.write_text(SECRETS[0])
            os.chown(note, note.parent.stat().st_uid, -1)
            assert house.door is not None
            (original,) = children_of(house.door.pid)
            pids = [house.door.pid, original, *house.processes()]
            people = json.loads((house.home / "people.json").read_text())
            token = (house.home / "token").read_text().strip()
            secrets = (
                *SECRETS,
                people["key"],
                token,
                people["people"]["ann"]["password"],
                "attached",
                "taken",
            )
            won = []
            for name, command in COMMANDS.items():
                line = f"RUN PIDS='{' '.join(map(str, pids))}'; exec 2>/dev/null; {command}"
                said = [str(event.data["result"]) for event in chat(bob, line) if event.name == "tool_result"]
                assert len(said) == 1, name
                won += [f"{name}: {said[0][:300]}" for secret in secrets if secret in said[0]]
            assert won == []
            assert set(house.processes()) >= set(pids[2:])
            assert house.door.poll() is None


@requirement("content:attachments")
def test_no_name_of_a_file_and_no_path_leads_elsewhere_or_runs(tmp_path: Path) -> None:
    page, id = b"<html><script>document.title = 'run'</script></html>", ""
    with (
        serving(tmp_path, server__requests_per_s=10_000) as world,
        world.client() as client,
        browser(world) as window,
    ):
        for names in (UPLOADED[:20], UPLOADED[20:]):
            files = [
                client.post(
                    "/api/attachments", params={"filename": name}, content=page + name.encode()
                ).json()
                for name in names
            ]
            sent = [
                {"sha256": file["sha256"], "filename": name} for file, name in zip(files, names, strict=True)
            ]
            id = chat(client, "Look at these", attachments=sent)[-1].data["sessionId"]
            shown = window.get(f"/chat/{id}").text
            assert not re.search(r"<img src=x|\x1b", shown)
            links = {
                re.sub(r"^/s/\w+", "", link) for link in re.findall(r'href="([^"]*/attached/[^"]*)"', shown)
            }
            assert len(links) == len(names)
            for link in links:
                told = window.get(link).headers
                assert told["content-security-policy"] == "default-src 'none'; sandbox"
                assert told["content-type"].startswith(("application/octet-stream", "image/"))
                framed = window.get(f"{link}?framed=1").headers
                assert framed["content-security-policy"].startswith(
                    ("default-src 'none'; sandbox", "sandbox ")
                )
        for path in PATHS:
            answer = window.get(f"/chat/{id}/attached/{path}")
            assert (answer.status_code, world.token in answer.text) == (404, False), path
        names_kept = [each.name for each in world.home.rglob("attached/*")]
        assert len(names_kept) == len(UPLOADED)
        assert all(re.fullmatch(r"[0-9a-f]{16}-[\w.-]+", name) for name in names_kept), names_kept


@requirement("http:agui")
def test_no_part_that_a_front_end_sends_is_a_path_or_fetched(tmp_path: Path) -> None:
    with serving(tmp_path, server__requests_per_s=10_000) as world, world.client() as client:
        other = chat(client, "The heron nests here", memory=False)[-1].data["sessionId"]
        for number, part in enumerate(PARTS.values()):
            message = {"id": "m", "role": "user", "content": [{"type": "text", "text": "Look"}, part]}
            run: dict[str, Any] = {"threadId": f"t{number}", "runId": "r", "messages": [message]}
            answer = client.post("/api/agui", json=run)
            assert answer.status_code in (200, 400)
            assert "root:" not in answer.text
        kept = [each.name for each in world.home.rglob("attached/*")]
        assert all(re.fullmatch(r"[0-9a-f]{16}-[\w.-]+", name) for name in kept), kept
        # No thread leads to another client's conversation.
        asks = {"id": "m", "role": "user", "content": "What was said?"}
        for thread in (other, f"../{other}", f"agui:{other}", "\0", "%2e%2e", "chat"):
            answer = client.post("/api/agui", json={"threadId": thread, "runId": "r", "messages": [asks]})
            assert "heron" not in answer.text
