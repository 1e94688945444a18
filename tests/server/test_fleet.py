"""Two servers with one database: one is a process of its own that is killed in the end."""

from __future__ import annotations

import shutil
import threading
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from satchel.clock import ManualClock
from satchel.runtime import Satchel
from satchel.sessions import SessionStore
from satchel.storage import Database
from tests.postgresql import Server, server_of
from tests.requirements import requirement
from tests.server import world
from tests.server.world import chat, events_in, process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


@requirement("storage:postgres:servers")
def test_a_conversation_goes_on_at_whichever_server_is_asked(server: Server, tmp_path: Path) -> None:
    url = server.url(server.schema_for(tmp_path))
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (there / "home").mkdir(parents=True, mode=0o700)
    with world.serving(here, database=url) as near, near.client() as client:
        shutil.copy(near.home / "forgotten.key", there / "home")
        with process(there, "held", database=url) as (running, other):
            id = chat(client, "The heron")[-1].data["sessionId"]
            with client.stream("GET", f"/api/sessions/{id}/events") as following:
                followed = events_in(following.iter_lines())
                assert chat(other, "The owl", session_id=id)[-1].data["turn"] == 2
                assert chat(client, "The kestrel", session_id=id)[-1].data["turn"] == 3
                seen = [next(followed) for _ in range(2)]
                while seen[-1].name != "turn_end" or seen[-1].data["turn"] != 3:
                    seen.append(next(followed))
            assert [event.data["turn"] for event in seen if event.name == "turn_start"] == [2, 3]
            gone = chat(client, "The wren")[-1].data["sessionId"]
            with client.stream("GET", f"/api/sessions/{gone}/events") as following:
                assert other.delete(f"/api/sessions/{gone}").status_code == 200
                assert list(events_in(following.iter_lines()))[-1].name == "session_end"
            assert other.patch(f"/api/sessions/{id}", json={"title": "Birds"}).json()["title"] == "Birds"
            with other.stream("POST", "/api/chat", json={"message": "hold it", "session_id": id}) as held:
                assert next(events_in(held.iter_lines())).name == "start"
                refused = client.post("/api/chat", json={"message": "And I?", "session_id": id})
                assert refused.status_code == 409
                assert f"busy in process {running.pid}: a turn" in refused.json()["detail"]
                assert [info["turns"] for info in client.get("/api/sessions").json()] == [4]
                assert client.get("/api/sessions/search", params={"q": "kestrel"}).json()
                assert "hold it" in client.get(f"/api/sessions/{id}").text
                running.kill()
        done = chat(client, "What was said?", session_id=id)[-1].data
        events = client.get(f"/api/sessions/{id}").json()["events"]
    assert (done["turn"], done["status"]) == (5, "done")
    starts = [str(event) for event in events if event["type"] == "turn_start"]
    for start, words in zip(starts, ("heron", "owl", "kestrel", "hold", "What was"), strict=True):
        assert words in start


@pytest.mark.anyio
@requirement("storage:postgres:servers")
async def test_a_conversation_that_is_long_in_closing_keeps_no_other_from_being_handed_over(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url(server.schema_for(tmp_path))
    reached, hand_over = threading.Event(), Satchel.hand_over
    with world.serving(tmp_path, database=url) as near, near.client() as client:
        slow, other = (chat(client, "The heron")[-1].data["sessionId"] for _ in range(2))

        async def closing(satchel: Satchel, session_id: str) -> bool:
            if session_id == slow:
                reached.set()
                await anyio.sleep_forever()
            return await hand_over(satchel, session_id)

        monkeypatch.setattr(Satchel, "hand_over", closing)
        async with Database.open(url) as database, anyio.create_task_group() as group:
            store = SessionStore(tmp_path / "there", database, clock=ManualClock())
            group.start_soon(store.open, slow)
            assert await anyio.to_thread.run_sync(partial(reached.wait, 60))
            async with await store.open(other) as journal:
                assert journal.session_id == other
            group.cancel_scope.cancel()
