"""Pictures that the user sent, as memories: found, shown again, described by a model, forgotten."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from PIL import Image

from satchel.errors import BudgetExceeded
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.tools.kept import FOLDER
from tests.requirements import requirement
from tests.server.browsers import browser, open_page, words_of
from tests.server.test_attachments import PNG, files_of, sent
from tests.server.world import Held, World, chat, serving

SAYS = "A type plate. It reads: QUAGMIRE 7, built 2019."


class Sees(ScriptedModel):
    """Says what pictures show, and searches memory when it is asked for one."""

    def __init__(self, *, sees: bool = True) -> None:
        super().__init__(self._reply)
        self.sees = sees

    def _reply(self, request: ModelRequest) -> Reply | str:
        message = request.messages[-1]
        if request.system.startswith("You describe a picture"):
            [file] = message.files
            assert request.read_file is not None
            # As the endpoints do: a model that doesn't see gets the text that may be beside the picture.
            if not self.sees:
                return request.read_file(file.text_twin) or "It is a lovely cat."  # type: ignore[return-value]
            content = request.read_file(file) or b""
            return SAYS if content.startswith((PNG[:4], b"\xff\xd8\xff")) else "-"
        if message.text.startswith("Show me"):
            return Reply(calls=[Call(name="recall_memory", input={"query": message.text}, id="r1")])
        return "I see."


@contextmanager
def world_that(folder: Path, *, sees: bool = True, **settings: Any) -> Iterator[tuple[World, httpx2.Client]]:
    def script(_: Held) -> ScriptedModel:
        return Sees(sees=sees)

    with serving(folder, script, memory__distill="off", **settings) as world, world.client() as client:
        yield world, client


def found(client: httpx2.Client, words: str) -> list[dict[str, Any]]:
    hits = client.get("/api/memories/search", params={"q": words, "mode": "lexical"}).json()
    return [hit["memory"] for hit in hits if "picture" in hit["memory"]["tags"]]


def described(client: httpx2.Client) -> dict[str, Any]:
    while not (hits := found(client, "quagmire")):
        pass  # the description is made in the background
    return hits[0]


@requirement("content:remembered")
def test_a_picture_is_found_by_its_name_and_words_and_comes_back(tmp_path: Path) -> None:
    with world_that(tmp_path) as (world, client):
        photo = sent(client, PNG, "IMG_2034.png")
        first = chat(client, "This is on the side of our boiler.", attachments=[photo])[0].data["sessionId"]
        chat(client, "", attachments=[sent(client, PNG + b"2", "harbour at dusk.png")])
        [one] = found(client, "boiler side")
        assert one["content"] == "Picture IMG_2034.png, sent with: “This is on the side of our boiler.”"
        assert (one["trust"], one["source"]["session"]) == ("outside", first)
        assert [each["content"] for each in found(client, "harbour")] == ["Picture harbour at dusk.png"]

        events = chat(client, "Show me the boiler picture")
        model: Any = world.satchel.parts.models.given
        [result] = model.requests[-1].messages[-1].blocks
        assert [file.sha256 for file in result.files] == [hashlib.sha256(PNG).hexdigest()]
        assert f"The picture of {one['id']}, which the user is shown: " in result.content
        again = events[0].data["sessionId"]
        with browser(world) as page:
            [place] = open_page(page, f"/chat/{again}").xpath("//p[@class='made']//img/@src")
            assert page.get(place).content == PNG
            [place] = open_page(page, f"/memories/{one['id']}").xpath("//p[@class='made']//img/@src")
            assert page.get(place).content == PNG

        # Forgetting the words takes the picture along, and the copy that a search made.
        [said] = [
            each
            for each in client.get("/api/memories", params={"session": first}).json()
            if each["kind"] == "episode" and each["speaker"] == "user"
        ]
        gone = client.delete(f"/api/memories/{said['id']}").json()["receipt"]
        assert {entry.get("id") for entry in gone if entry["where"] == "store"} >= {said["id"], one["id"]}
        assert found(client, "boiler side") == []
        assert [path for path in files_of(world) if path.read_bytes() == PNG] == []
        assert len(found(client, "harbour")) == 1


@requirement("content:described")
def test_a_model_that_sees_describes_a_picture_where_the_user_wants_that(tmp_path: Path) -> None:
    with world_that(tmp_path, background__pictures="auto") as (world, client):
        chat(client, "Look.", attachments=[sent(client, PNG, "a.png")])
        one = described(client)
        assert one["content"] == f"Picture a.png, sent with: “Look.”\nDescribed by a model: {SAYS}"
        assert one["trust"] == "outside"
        calls = [row for row in client.get("/api/usage").json() if row["purpose"] == "picture"]
        assert [row["calls"] for row in calls] == [1]
        with browser(world) as page:
            assert "QUAGMIRE 7" in words_of(open_page(page, f"/memories/{one['id']}"))
        assert client.delete(f"/api/memories/{one['id']}").status_code == 200
        assert found(client, "quagmire") == []
        assert [path for path in files_of(world) if b"QUAGMIRE" in path.read_bytes()] == []
        assert [path for path in files_of(world) if path.read_bytes() == PNG] == []


@requirement("content:described")
def test_the_picture_itself_is_described_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.frombytes("RGB", (1100, 1100), random.Random(3).randbytes(1100 * 1100 * 3)).save(out, "PNG")
    name = "zoo visit 2026, " + "b" * 60 + ".png"  # the name of the smaller copy, which is cut, is before it
    with world_that(tmp_path, background__pictures="auto") as (world, client):
        chat(client, "Look.", attachments=[sent(client, out.getvalue(), name)])
        one = described(client)
        model: Any = world.satchel.parts.models.given
        [asked] = [each for each in model.requests if each.system.startswith("You describe a picture")]
        assert asked.messages[-1].files[0].sha256 == hashlib.sha256(out.getvalue()).hexdigest()
        assert [path for path in files_of(world) if path.name.endswith(".small.jpg")]
        assert client.delete(f"/api/memories/{one['id']}").status_code == 200
        assert [path for path in files_of(world) if path.parent.name == FOLDER] == []


@requirement("content:described")
@pytest.mark.parametrize("name", ["a.png", "photo"])
def test_what_the_user_says_of_a_picture_is_not_undone(tmp_path: Path, name: str) -> None:
    def twins() -> list[str]:
        return [path.read_text() for path in files_of(world) if path.suffix == ".txt"]

    with world_that(tmp_path, background__pictures="auto") as (world, client):
        chat(client, "Look.", attachments=[sent(client, PNG, name)])
        one = described(client)
        model: Any = world.satchel.parts.models.given
        request = next(each for each in model.requests if each.messages[-1].files and "Look." in str(each))
        [file] = request.messages[-1].files
        assert request.read_file(file.text_twin) == SAYS.encode()
        place = f"/api/memories/{one['id']}"
        for content, said in (
            (one["content"].replace("QUAGMIRE 7", "MARSH 9"), SAYS.replace("QUAGMIRE 7", "MARSH 9")),
            ("Grandma's type plate.", ""),
        ):
            client.patch(place, json={"content": content})
            assert world.call(world.satchel.describing.describe_next) is False
            assert (client.get(place).json()["content"], twins()) == (content, [said])
        last = client.get(f"{place}/history").json()[-1]
        client.post(f"/api/memories/changes/{last['id']}/undo")
        world.call(world.satchel.describing.describe_next)
        assert client.get(place).json()["content"].count("Described by a model") == 1


@requirement("content:remembered")
def test_forgetting_a_picture_leaves_that_of_a_project(tmp_path: Path) -> None:
    with world_that(tmp_path) as (world, client):
        project = client.post("/api/projects", json={"name": "Boat"}).json()["id"]
        chat(client, "A crocus.", attachments=[sent(client, PNG, "a.png")])
        chat(client, "A tulip.", attachments=[sent(client, PNG, "b.png")], project=project)
        [one] = found(client, "crocus")
        assert client.delete(f"/api/memories/{one['id']}").status_code == 200
        assert [path.name[17:] for path in files_of(world) if path.read_bytes() == PNG] == ["b.png"]


@requirement("content:described")
@pytest.mark.parametrize(
    "settings",
    [
        {"sees": False, "background__pictures": "auto"},
        {},  # off is the default
        {"background__pictures": "auto", "background__models": "off"},
        {"background__pictures": "auto", "background__day_tokens": 0},
    ],
)
def test_a_picture_is_not_described_otherwise(tmp_path: Path, settings: dict[str, Any]) -> None:
    with world_that(tmp_path, **settings) as (world, client):
        chat(client, "Look at my crocus.", attachments=[sent(client, PNG, "a.png")])
        assert len(found(client, "crocus")) == 1

        async def try_now() -> None:
            with suppress(BudgetExceeded):
                await world.satchel.describing.describe_next()

        world.call(try_now)
        [one] = found(client, "crocus")
        assert "\n" not in one["content"]
