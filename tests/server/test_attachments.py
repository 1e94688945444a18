"""Files that the user attaches: sent, kept with the session, shown to the model, shown on the page, forgotten."""

from __future__ import annotations

import base64
import io
import json
import random
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docx
import httpx2
import pytest
from PIL import Image
from pillow_heif import register_heif_opener

from satchel.errors import NotFound, UsageError
from satchel.messages import FileBlock
from satchel.models.files import MOST_PICTURE, SMALL_BYTES, part_of
from satchel.sandbox.port import RunSpec, Status
from satchel.sessions.attachments import MOST_BYTES, Uploads
from satchel.tools.documents.texts import write_texts
from satchel.tools.kept import keep, kept_path, media_type_of, with_text_size
from satchel.tools.pictures.shrinking import make_smaller
from tests.cli.test_documents import pdf
from tests.requirements import requirement
from tests.server.browsers import browser, open_page
from tests.server.world import World, chat, events_in

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def sent(client: httpx2.Client, content: bytes, filename: str) -> dict[str, Any]:
    answer = client.post("/api/attachments", params={"filename": filename}, content=content)
    assert answer.status_code == 201, answer.text
    file: dict[str, Any] = answer.json()
    return file


def asked(world: World, words: str) -> tuple[FileBlock, ...]:
    """The files in the newest request that has these words."""
    model: Any = world.satchel.parts.models.given
    request = next(r for r in reversed(model.requests) if words in r.messages[-1].text)
    files: tuple[FileBlock, ...] = request.messages[-1].files
    return files


def files_of(world: World) -> list[Path]:
    return [path for path in world.home.rglob("*") if path.is_file()]


@requirement("content:attachments")
def test_a_file_is_sent_then_named_by_a_message_and_is_gone_when_that_is_forgotten(
    world: World, client: httpx2.Client
) -> None:
    picture = sent(client, PNG, "../../etc/boiler label.png")
    assert (picture["filename"], picture["media_type"]) == ("boiler label.png", "image/png")
    table = sent(client, b"a,b\n1,2\n", "t.csv")
    events = chat(client, "The label of the boiler.", attachments=[picture, table])
    id = events[0].data["sessionId"]

    assert [file.name for file in asked(world, "label of the boiler")] == ["boiler label.png", "t.csv"]
    [log] = [path for path in files_of(world) if path.name.endswith(f"_{id}.jsonl")]
    assert base64.b64encode(PNG)[:40] not in log.read_bytes()
    assert not list((world.home / "uploads").iterdir())
    with browser(world) as page:
        shown = open_page(page, f"/chat/{id}")
        [place] = shown.xpath("//div[@class='sent-files']//p[@class='made']//img/@src")
        answer = page.get(place)
        assert answer.content == PNG
        assert answer.headers["content-type"] == "image/png"
        [link] = shown.xpath("//p[@class='made']/a[@download]")
        assert link.text_content() == "t.csv"
        assert "attachment" in page.get(link.get("href")).headers["content-disposition"]

    memory = world.satchel.memory
    assert memory is not None
    [said] = [each for each in world.call(memory.list) if each.content == "The label of the boiler."]
    world.call(world.satchel.forget, [said.id])
    assert not [
        path for path in files_of(world) if PNG in path.read_bytes() or path.read_bytes() == b"a,b\n1,2\n"
    ]


@requirement("content:attachments:documents")
def test_a_model_that_takes_no_documents_gets_what_an_attached_one_says(
    world: World, client: httpx2.Client
) -> None:
    letter = docx.Document()
    letter.add_heading("Warranty")
    letter.add_paragraph("The compressor is covered for nine years.")
    letter.save(out := io.BytesIO())
    files = [sent(client, out.getvalue(), "w.docx"), sent(client, pdf(["Close the valve."]), "a paper")]
    files.append(sent(client, b"PK\3\4", "x.docx"))
    files.append(sent(client, pdf(["Hidden."], password="secret"), "locked.pdf"))
    chat(client, "How long is it covered?", attachments=files)
    model: Any = world.satchel.parts.models.given
    request = next(r for r in reversed(model.requests) if "How long" in r.messages[-1].text)
    assert [file.text_size for file in request.messages[-1].files] == [53, 37, 0, 0]
    word, paper, _, locked = (
        part_of(file, request.read_file, takes="pictures") for file in request.messages[-1].files
    )
    assert word.content == "[w.docx]\n[Warranty]\nThe compressor is covered for nine years.\n"
    assert paper.content == "[a paper]\n[page 1: Chapter 1]\nClose the valve.\n"
    # No model is sent what none can read: its refusal would count as one of all documents.
    assert locked.content == "[locked.pdf: application/pdf. It can't be read: it is locked or damaged.]"
    assert part_of(request.messages[-1].files[-1], request.read_file, takes="all") == locked
    told = [one.text for one in world.satchel.notices if one.part == "documents"]
    assert told[0].startswith(
        "The model can't be sent what x.docx says. x.docx could not be read. It is damaged"
    )
    assert told[1:] == [
        "The model can't be sent what locked.pdf says. locked.pdf could not be read. It is encrypted and needs a "
        "password."
    ]


@requirement("content:attachments:documents")
@pytest.mark.anyio
async def test_a_document_that_is_slow_gone_or_garbled_does_not_end_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Garbling:
        async def run(self, spec: RunSpec) -> Any:
            pages = [[1, "", "x \ud835 y" + "z" * 300_000]]
            answer = json.dumps([{"title": "t", "sections": pages, "unread": 0}])
            return SimpleNamespace(status=Status.OK, result=answer)

    async def sandbox() -> Any:
        return Garbling()

    book, book2 = (keep(tmp_path, name, f"{name}\0".encode()) for name in ("PK.epub", "PK2.epub"))
    gone = replace(book, sha256="0" * 64)
    screenshot = replace(gone, media_type="image/png")
    assert await make_smaller([screenshot], tmp_path, sandbox) == []
    assert await write_texts([gone, book], tmp_path, sandbox) == []
    text = part_of(
        with_text_size(tmp_path, book), lambda file: kept_path(tmp_path, file).read_bytes(), takes="all"
    )
    assert text.content.startswith("[PK.epub]\n[page 1]\nx \ufffd y")
    assert text.content.endswith(" more characters; a tool can read them …]")
    assert text.content.count("…") == 2
    assert kept_path(tmp_path, book.text_twin).stat().st_size < 201_000
    monkeypatch.setattr("satchel.tools.documents.texts._PATIENCE_S", 0)
    [trouble] = await write_texts([book2, gone], tmp_path, sandbox)
    assert trouble.startswith("PK2.epub was not read within 0 s")


@requirement("content:attachments")
def test_a_message_may_be_a_file_alone_and_names_none_that_was_never_sent(client: httpx2.Client) -> None:
    id = chat(client, "", attachments=[sent(client, PNG, "a.png")])[0].data["sessionId"]
    assert client.get(f"/api/sessions/{id}").json()["title"] == "a.png"
    unknown = {"sha256": "0" * 64, "filename": "x"}
    answer = client.post("/api/chat", json={"message": "Hm", "attachments": [unknown]})
    assert answer.status_code == 404
    assert "Send it again" in answer.text
    for bad in ({"sha256": "../token"}, {"sha256": "0" * 64, "path": "/etc/passwd"}):
        assert client.post("/api/chat", json={"message": "Hm", "attachments": [bad]}).status_code == 422


@requirement("content:attachments:v1")
def test_pictures_in_chat_completions_reach_the_model_and_addresses_are_not_fetched(
    world: World, client: httpx2.Client
) -> None:
    def ask(url: str) -> httpx2.Response:
        parts = [
            {"type": "text", "text": "Which colour is it?"},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        body = {"model": "satchel", "messages": [{"role": "user", "content": parts}]}
        return client.post("/v1/chat/completions", json=body)

    assert ask(f"data:image/png;base64,{base64.b64encode(PNG).decode()}").status_code == 200
    [file] = asked(world, "Which colour is it?")
    assert (file.media_type, file.size) == ("image/png", len(PNG))
    for bad in ("http://127.0.0.1:1/x.png", "data:image/png;base64,%%%", "file:///etc/passwd"):
        assert ask(bad).status_code == 400


@requirement("content:attachments:bounds")
def test_what_is_too_long_empty_or_not_what_it_says_is_kept_as_what_it_is_or_not_at_all(
    tmp_path: Path,
) -> None:
    uploads = Uploads(tmp_path)
    with pytest.raises(UsageError, match="15 MB"):
        uploads.add((b"x" * (1 << 20) for _ in range(2048)), name="big", now=NOW)
    with pytest.raises(UsageError, match="empty"):
        uploads.add([], name="none", now=NOW)
    assert not list((tmp_path / "uploads").iterdir())
    lie = uploads.add([b"<html><script>1</script>"], name="C:\\x\\pretty\n.png", now=NOW)
    assert (lie.media_type, lie.name) == ("text/plain", "pretty.png")
    assert media_type_of(b"GIF89a" + b"\0") == "image/gif"
    assert media_type_of(b"PK\x03\x04\0") == "application/octet-stream"
    assert MOST_BYTES < 16_000_000  # the longest body that the server takes
    # What no message came for is swept with the next file.
    uploads.add([b"later"], name="b", now=NOW + timedelta(days=20_000))
    assert [path.read_bytes() for path in (tmp_path / "uploads").iterdir()] == [b"later"]


@requirement("content:attachments")
def test_a_file_that_waits_for_a_message_is_taken_away_by_no_other_message_with_the_same_bytes(
    world: World, client: httpx2.Client
) -> None:
    here, there = sent(client, PNG, "a.png"), sent(client, PNG, "a.png")
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    pictures = [{"type": "image_url", "image_url": {"url": url}}] * 21
    body = {"model": "satchel", "messages": [{"role": "user", "content": pictures}]}
    assert "20 files at most" in client.post("/v1/chat/completions", json=body).text
    for waiting in (here, there):
        chat(client, "Look at this twice.", attachments=[waiting])
        assert [file.name for file in asked(world, "Look at this twice")] == ["a.png"]
    assert not list((world.home / "uploads").iterdir())


@requirement("content:attachments")
def test_what_is_no_hash_takes_and_drops_nothing(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    sent = uploads.add([PNG], name="a.png", now=NOW)
    (tmp_path / "config.toml").touch()
    bad = [replace(sent, sha256=odd) for odd in ("", "*", "../config", "../" * 20 + "?" * 4)]
    for file in bad:
        with pytest.raises(NotFound):
            uploads.take([file], tmp_path / "kept")
    uploads.drop(bad)
    assert (tmp_path / "config.toml").exists()
    assert uploads.take([sent], tmp_path / "kept") == [sent]


@requirement("content:attachments")
def test_of_two_messages_that_take_the_same_bytes_at_once_each_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads, read = Uploads(tmp_path), Path.read_bytes
    here, _ = (uploads.add([PNG], name="a.png", now=NOW) for _ in "ab")
    taken: list[Path] = []

    def late(path: Path) -> bytes:
        if not taken:
            taken.append(path)
            path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", late)
    assert uploads.take([here], tmp_path / "kept") == [here]
    uploads.drop([here])
    with pytest.raises(NotFound):
        uploads.take([here], tmp_path / "kept")


@requirement("content:attachments")
def test_the_log_is_read_again_with_its_files(world: World, client: httpx2.Client) -> None:
    id = chat(client, "Once more.", attachments=[sent(client, PNG, "again.png")])[0].data["sessionId"]
    shown = world.call(lambda: world.satchel.sessions.export(id, form="markdown"))
    assert "*Attached: again.png (image/png)*" in shown


@requirement("content:attachments", "sessions:export")
def test_a_zip_holds_the_conversation_with_its_files_and_nothing_else_in_their_place(
    world: World, client: httpx2.Client
) -> None:
    files = [
        sent(client, PNG, "my [boiler].png"),
        sent(client, b"a,b\n", "t.csv"),
        sent(client, b"c", "gone.txt"),
    ]
    id = chat(client, "All of it.", attachments=files)[0].data["sessionId"]
    picture, table, gone = asked(world, "All of it.")
    info = world.call(world.satchel.sessions.info, id)
    lost = kept_path(info.path.with_suffix(".spill"), gone)
    lost.unlink()
    lost.symlink_to(world.home / "token")
    with browser(world) as page:
        [link] = open_page(page, f"/chat/{id}").xpath("//a[text()='export']/@href")
        answer = page.get(link)
    assert answer.headers["content-disposition"].endswith(".zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == sorted(
            [
                "conversation.json",
                "conversation.md",
                f"files/{picture.file_name}",
                f"files/{table.file_name}",
            ]
        )
        assert archive.read(f"files/{picture.file_name}") == PNG
        words = archive.read("conversation.md").decode()
        assert json.loads(archive.read("conversation.json"))["id"] == id
    assert f"*Attached: ![my \\[boiler\\].png](files/{picture.file_name}) (image/png)*" in words
    assert f"*Attached: [t.csv](files/{table.file_name}) (text/plain)*" in words
    assert "*Attached: gone.txt (text/plain)*" in words
    assert not [path for path in world.home.iterdir() if path.name.startswith("tmp")]


@requirement("content:attachments")
def test_a_file_waits_in_line_with_its_message(world: World, client: httpx2.Client) -> None:
    world.held.reached.clear()
    world.held.go_on.clear()
    file = sent(client, PNG, "late.png")
    with client.stream("POST", "/api/chat", json={"message": "hold"}) as first:
        begun = next(events_in(first.iter_lines()))
        world.held.reached.wait()
        session = {"session_id": begun.data["sessionId"]}
        with client.stream(
            "POST", "/api/chat", json={"message": "Look here.", "attachments": [file], **session}
        ) as later:
            events = events_in(later.iter_lines())
            assert next(events).name == "waiting"
            world.held.go_on.set()
            assert [event.name for event in events][-1] == "response"
    assert [each.name for each in asked(world, "Look here.")] == ["late.png"]


@requirement("content:smaller")
def test_photos_of_phones_and_scans_reach_the_model_and_the_page_as_jpegs(
    world: World, client: httpx2.Client
) -> None:
    register_heif_opener()
    files = []
    for kind in ("HEIF", "AVIF", "TIFF", "BMP"):
        Image.new("RGB", (32, 24), (200, 30, 30)).save(out := io.BytesIO(), kind)
        files.append(sent(client, out.getvalue(), f"boiler.{kind.lower()}"))
    Image.new("I;16", (32, 24), 32_768).save(out := io.BytesIO(), "TIFF")  # grey, as scanners write it
    files.append(sent(client, out.getvalue(), "scan.tiff"))
    id = chat(client, "Four of the boiler.", attachments=files)[0].data["sessionId"]
    model: Any = world.satchel.parts.models.given
    request = next(r for r in reversed(model.requests) if "Four of the boiler." in r.messages[-1].text)
    page = client.get(f"/chat/{id}").text
    for file in request.messages[-1].files:
        part = part_of(file, request.read_file, takes="all")
        assert (part.kind, part.media_type) == ("picture", "image/jpeg"), file.name
        with Image.open(io.BytesIO(base64.b64decode(part.content))) as seen:
            assert seen.size == (32, 24)
            if file.name == "scan.tiff":
                assert 120 < seen.convert("L").getpixel((5, 5)) < 136  # type: ignore[operator]
        shown = f"/chat/{id}/attached/{file.small_twin.file_name}"
        assert f'<img src="{shown}"' in page
        assert client.get(shown).headers["content-type"] == "image/jpeg"


@requirement("content:smaller")
def test_pictures_that_some_provider_does_not_take_are_sent_as_jpegs_and_shown_as_they_are(
    world: World, client: httpx2.Client
) -> None:
    pictures = {}
    for kind in ("GIF", "WEBP"):
        Image.new("RGB", (32, 24), (200, 30, 30)).save(out := io.BytesIO(), kind)
        pictures[f"cat.{kind.lower()}"] = out.getvalue()
    files = [sent(client, content, name) for name, content in pictures.items()]
    id = chat(client, "A cat that moves.", attachments=files)[0].data["sessionId"]
    model: Any = world.satchel.parts.models.given
    request = next(r for r in reversed(model.requests) if "A cat that moves." in r.messages[-1].text)
    for file in request.messages[-1].files:
        assert part_of(file, request.read_file, takes="all").media_type == "image/jpeg"
        assert client.get(f"/chat/{id}/attached/{file.file_name}").content == pictures[file.name]


@requirement("content:smaller")
@pytest.mark.anyio
async def test_pictures_are_made_smaller_in_one_run_and_one_that_ends_it_keeps_no_other_out(
    tmp_path: Path,
) -> None:
    runs: list[list[str]] = []

    class Box:
        async def run(self, spec: RunSpec) -> Any:
            names = [Path(path).name for path in spec.entry.args["paths"]]  # type: ignore[union-attr]
            runs.append([name.rpartition("-")[2] for name in names])
            if "bomb.webp" in runs[-1]:
                return SimpleNamespace(status=Status.MEMORY, result=None, error="It took too much memory.")
            jpeg = base64.b64encode(b"\xff\xd8\xff").decode()
            answer = [{"jpeg": jpeg}, {"error": "It is damaged."}][: len(names)]
            return SimpleNamespace(status=Status.OK, result=json.dumps(answer))

    async def sandbox() -> Any:
        return Box()

    webp = b"RIFF0000WEBP"
    good, bad, bomb = (
        keep(tmp_path, name, webp + name.encode()) for name in ("a.webp", "b.webp", "bomb.webp")
    )
    assert await make_smaller([good, bad, good], tmp_path, sandbox) == [
        "b.webp can't be shown to models. It is damaged."
    ]
    shown = part_of(bad, lambda file: kept_path(tmp_path, file).read_bytes(), takes="all")
    assert shown.content == "[b.webp: image/webp. It can't be read as a picture.]"
    kept_path(tmp_path, good.small_twin).unlink()
    assert await make_smaller([bomb, good], tmp_path, sandbox) == [
        "bomb.webp can't be shown to models. It takes more memory than a picture may use."
    ]
    assert kept_path(tmp_path, good.small_twin).exists()
    assert runs == [["a.webp", "b.webp"], ["bomb.webp", "a.webp"], ["bomb.webp"], ["a.webp"]]


@requirement("content:smaller")
def test_a_large_picture_reaches_models_as_a_smaller_one_and_leaves_nothing(
    world: World, client: httpx2.Client
) -> None:
    out = io.BytesIO()
    Image.frombytes("RGBA", (1100, 1100), random.Random(3).randbytes(1100 * 1100 * 4)).save(out, "PNG")
    assert len(out.getvalue()) > MOST_PICTURE
    exploding = b"\x89PNG\r\n\x1a\n" + bytes(4_000_000)
    files = [sent(client, out.getvalue(), "large.png"), sent(client, exploding, "broken.png")]
    Image.new("RGB", (2600, 40)).save(wide := io.BytesIO(), "PNG")
    files.append(sent(client, wide.getvalue(), "wide.png"))
    id = chat(client, "The big ones.", attachments=files)[0].data["sessionId"]
    model: Any = world.satchel.parts.models.given
    request = next(r for r in reversed(model.requests) if "The big ones." in r.messages[-1].text)
    large, broken, screenshot = request.messages[-1].files
    for file, size in ((large, (1100, 1100)), (screenshot, (2000, 31))):
        part = part_of(file, request.read_file, takes="all")
        assert (part.kind, part.media_type) == ("picture", "image/jpeg")
        with Image.open(io.BytesIO(content := base64.b64decode(part.content))) as small:
            assert (small.size, len(content) <= SMALL_BYTES) == (size, True)
    other = part_of(broken, request.read_file, takes="all")
    assert other.content == "[broken.png: image/png. It can't be read as a picture.]"
    [notice] = [one for one in world.satchel.notices if one.part == "pictures"]
    assert notice.text.startswith(
        "broken.png can't be shown to models. It is damaged, or has too many pixels"
    )
    branch = world.call(world.satchel.sessions.branch, id, 2)
    assert len([path for path in files_of(world) if path.name.endswith("large.png.small.jpg")]) == 2, branch
    memory = world.satchel.memory
    assert memory is not None
    [said] = [each for each in world.call(memory.list) if each.content == "The big ones."]
    world.call(world.satchel.forget, [said.id])
    assert not [path for path in files_of(world) if path.name.endswith(("large.png.small.jpg", "large.png"))]
