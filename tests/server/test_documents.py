"""Documents that are sent: remembered, read at a place, kept, and gone byte for byte when they are forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.requirements import requirement
from tests.server.browsers import browser, open_page, said, send, words_of
from tests.server.test_attachments import sent
from tests.server.world import World, chat

MANUAL = "# Boiler\n## Descaling\nUse citric acid every ninety days.\n## Label\nThe type is quagmire-7.\n"


def remember(client: httpx2.Client, content: bytes, filename: str) -> httpx2.Response:
    return client.post("/api/memory/documents/sent", params={"filename": filename}, content=content)


def files_with(home: Path, words: bytes) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file() and words in path.read_bytes()]


@requirement("documents:sent")
def test_a_document_is_sent_read_at_its_place_and_forgotten_without_a_byte_left(
    world: World, client: httpx2.Client
) -> None:
    done = remember(client, MANUAL.encode(), "../../boiler.md")
    assert done.status_code == 200, done.text
    assert (done.json()["outcome"], done.json()["passages"]) == ("added", 2)
    assert done.json()["path"].endswith("/boiler.md")
    assert remember(client, MANUAL.encode(), "copy.md").json()["outcome"] == "unchanged"
    with browser(world) as page:
        listed = open_page(page, "/memories/documents")
        assert "2 passages, kept by Satchel" in words_of(listed)
        memories = words_of(open_page(page, "/memories"))
        assert "from 0 conversations. 2 facts, 0 messages." in memories
        assert "learnt this week" not in memories  # nobody has to review a book
        [found] = client.get("/api/memories/search", params={"q": "quagmire", "mode": "lexical"}).json()
        [place] = open_page(page, f"/memories/{found['memory']['id']}").xpath(
            "//a[text()='Open it there']/@href"
        )
        [section] = open_page(page, place.partition("#")[0]).xpath("//section[@aria-current]")
        assert section.get("id") == place.partition("#")[2] == found["memory"]["id"]
        assert words_of(section) == "Part 2, Boiler › Label (boiler.md) The type is quagmire-7."
        [download] = listed.xpath("//a[@download]/@href")
        file = page.get(download)
        assert file.content == MANUAL.encode()
        assert file.headers["content-disposition"] == "attachment; filename*=UTF-8''boiler.md"

        again = send(page, listed, "/memories/documents/forget")
        assert again.headers["location"] == "/memories/documents"
        assert "Forgotten: “Boiler”, 2 passages." in said(open_page(page, "/memories/documents"))
        assert page.get(download).status_code == 404
    assert files_with(world.home, b"quagmire") == []
    assert list((world.home / "documents").iterdir()) == []


@requirement("documents:sent")
def test_a_file_of_a_conversation_is_remembered_and_outlives_it(world: World, client: httpx2.Client) -> None:
    events = chat(client, "Keep this.", attachments=[sent(client, MANUAL.encode(), "boiler.md")])
    id = events[0].data["sessionId"]
    with browser(world) as page:
        shown = open_page(page, f"/chat/{id}")
        [action] = shown.xpath("//form[button[starts-with(., 'Remember this document')]]/@action")
        assert send(page, shown, action).status_code == 303
        assert "Remembered: 2 passages." in said(open_page(page, f"/chat/{id}"))
        assert client.delete(f"/api/sessions/{id}").status_code < 300
        listed = open_page(page, "/memories/documents")
        assert page.get(listed.xpath("//a[@download]/@href")[0]).content == MANUAL.encode()


@requirement("documents:sent")
@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [
        (b"%PDF-1.7\nnothing", "broken.pdf", "broken.pdf could not be read. It is damaged"),
        (b"\x7fELF\0\0", "lying.txt", "lying.txt could not be read. It is not text."),
        (b"GIF89a/*%PDF-1.7", "both.pdf", "both.pdf is image/gif by its bytes. Read are: avif,"),
        (b"", "empty.md", "The file is empty."),
    ],
)
def test_a_document_that_cannot_be_read_leaves_nothing(
    world: World, client: httpx2.Client, content: bytes, name: str, reason: str
) -> None:
    def kept() -> list[Path]:
        folders = (world.home / folder for folder in ("documents", "uploads"))
        return sorted(path for folder in folders if folder.exists() for path in folder.iterdir())

    before = kept(), client.get("/api/memory/documents").json()
    answer = remember(client, content, name)
    assert answer.status_code == 400
    assert reason in answer.json()["detail"]
    assert str(world.home) not in answer.json()["detail"]
    assert (kept(), client.get("/api/memory/documents").json()) == before


@requirement("documents:sent")
def test_a_document_that_is_stored_though_the_disk_failed_afterwards_keeps_its_copy(
    world: World, client: httpx2.Client
) -> None:
    assert remember(client, b"The first.", "first.txt").status_code == 200
    manual = f"{MANUAL}Of another house.".encode()
    [journal] = (world.home / "journal").glob("memories-*.jsonl")
    journal.unlink()
    journal.mkdir()  # nothing can be written there, as on a full disk
    assert remember(client, manual, "kept.md").status_code == 507
    [path] = [
        one["path"] for one in client.get("/api/memory/documents").json() if one["path"].endswith("/kept.md")
    ]
    assert (world.home / path).read_bytes() == manual
    journal.rmdir()
    assert remember(client, manual, "kept.md").json()["outcome"] == "unchanged"


@requirement("documents:watched:faces")
def test_a_folder_is_watched_over_http_and_on_the_page(
    world: World, client: httpx2.Client, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "boiler.md").write_text(MANUAL)
    (folder / "lying.txt").write_bytes(b"\x7fELF\0\0")

    def taken(documents: int) -> dict[str, Any]:
        while True:  # the files are read in the background
            [one] = client.get("/api/memory/folders").json()
            if one["looked_at"] and not one["left"] and one["documents"] == documents:
                return dict(one)

    with browser(world) as page:
        form = {"folder": str(folder)}
        listed = open_page(page, "/memories/documents")
        assert send(page, listed, "/memories/documents/watch", form).status_code == 303
        assert list(taken(1)["failed"]) == ["lying.txt"]
        # A second request looks again, at once.
        (folder / "attic.md").write_text("The attic holds the sledge.")
        assert client.post("/api/memory/folders", json={"path": str(folder)}).status_code == 200
        taken(2)
        again = open_page(page, "/memories/documents")
        assert "2 documents, 1 could not be read" in words_of(again)
        assert "lying.txt could not be read. It is not text." in words_of(again)
        stop = {"folder": str(folder), "stop": "1", "remove": "1"}
        assert send(page, again, "/memories/documents/watch", stop).status_code == 303
        assert "2 documents were removed." in said(open_page(page, "/memories/documents"))
        relative = send(page, listed, "/memories/documents/watch", {"folder": "notes"})
        assert relative.status_code == 400
    assert client.get("/api/memory/folders").json() == []
    assert client.request("DELETE", "/api/memory/folders", params={"path": str(folder)}).status_code == 404
    assert client.post("/api/memory/folders", json={"path": "notes"}).status_code == 422
    for odd in ("~nosuchuser/x", "/tmp/\0x"):
        assert client.post("/api/memory/folders", json={"path": odd}).status_code in (400, 422)
        assert client.request("DELETE", "/api/memory/folders", params={"path": odd}).status_code == 400
