"""Conversations of other programs: imported, opened, gone on with, found, forgotten, and imported again."""

from __future__ import annotations

import base64
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from satchel.clock import ManualClock
from satchel.errors import SessionInUse
from satchel.events import Assistant, Event, Final, Record
from satchel.memory.transfer.report import ImportReport, TransferProgress
from satchel.models import ModelRequest, ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from satchel.runtime.backup import back_up, restore
from satchel.runtime.capture import catch_up
from satchel.runtime.importing import import_into
from satchel.runtime.retention import retain
from satchel.server.mcp.resources import Resources, session_uri
from satchel.server.mcp.skills import ServedSkills
from satchel.sessions import FORGOTTEN, to_markdown
from satchel.sessions.branches import versions
from satchel.sessions.files import FileLogs
from satchel.sessions.journal import FileJournal
from tests.forking import Program
from tests.postgresql import server_of
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n of a loaf"
CAT = b"\x89PNG\r\n\x1a\n of a cat"
ID = "chatgpt:67c1aaaa-0000-4000-8000-000000000001"


def node(
    id: str, parent: str | None, role: str, text: str | Sequence[Any], at: float, **metadata: Any
) -> dict[str, Any]:
    parts = [text] if isinstance(text, str) else list(text)
    message = {
        "id": id,
        "author": {"role": role},
        "create_time": at,
        "content": {"content_type": "text" if isinstance(text, str) else "multimodal_text", "parts": parts},
        "metadata": metadata,
    }
    return {"id": id, "parent": parent, "children": [], "message": message}


FIRST = (
    node("q1", None, "user", [{"asset_pointer": "file-service://file-Abc1"}, "What loaf is this?"], 1.75e9),
    node("a1", "q1", "assistant", "A rye loaf.", 1.75e9 + 5, model_slug="gpt-4o"),
    node("q2", "a1", "user", "My oven is called Vesuvius. Draw a cat on it.", 1.75e9 + 60),
    node(
        "t2",
        "q2",
        "tool",
        [{"asset_pointer": "sediment://file_Dall2"}],
        1.75e9 + 62,
        attachments=[{"id": "file_Dall2", "name": "cat.png"}],
    ),
    node("a2", "t2", "assistant", "There it sits.", 1.75e9 + 65, model_slug="gpt-4o"),
    node("b2", "q2", "assistant", "I can't draw zebras.", 1.75e9 + 63, model_slug="gpt-4o"),
)
LATER = (
    node("q3", "a2", "user", "And a dog?", 1.75e9 + 120),
    node("a3", "q3", "assistant", "It barks.", 1.75e9 + 125, model_slug="gpt-4o"),
)


def chatgpt(where: Path, nodes: Sequence[Mapping[str, Any]] = FIRST, *, current: str = "a2") -> Path:
    mapping = {one["id"]: {**one, "children": []} for one in nodes}
    for one in nodes:
        if one["parent"]:
            mapping[one["parent"]]["children"].append(one["id"])
    found = {"conversation_id": ID.partition(":")[2], "title": "The loaf", "current_node": current}
    with zipfile.ZipFile(where, "w") as archive:
        archive.writestr("conversations.json", json.dumps([{**found, "mapping": mapping}]))
        archive.writestr("file-Abc1-loaf.png", PNG)
        archive.writestr("dalle/file_Dall2-0.png", CAT)
    return where


def claude(where: Path) -> Path:
    messages = [
        {
            "uuid": "m1",
            "sender": "human",
            "text": "My tomatoes are yellow.",
            "created_at": "2025-06-01T10:00:01Z",
            "attachments": [{"file_name": "soil.pdf", "extracted_content": "pH 7.9"}],
        },
        {
            "uuid": "m2",
            "sender": "assistant",
            "text": "",
            "created_at": "2025-06-01T10:00:09Z",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "They lack magnesium."},
            ],
        },
    ]
    found = {"uuid": "c1a0dead-1", "name": "Tomatoes", "chat_messages": messages}
    where.write_text(json.dumps([found]))
    return where


def gemini(where: Path, *, without: str = "nothing", more: Sequence[dict[str, Any]] = ()) -> Path:
    def asked(time: str, title: str, html: str) -> dict[str, Any]:
        (where.parent / f"{time[:10]}-{len(html)}.png").write_bytes(PNG + html.encode())
        answer = {"safeHtmlItem": [{"html": html}], "attachedFiles": [f"{time[:10]}-{len(html)}.png"]}
        return {"header": "Gemini Apps", "title": title, "time": time, **answer}

    found = [
        *more,
        asked("2025-07-02T09:00:00Z", "Prompted And the sun?", "<p>A star.</p>"),
        asked("2025-07-01T10:05:00Z", "Prompted How heavy?", "<ul><li>7.3e22 kg</li></ul>"),
        asked("2025-07-01T10:00:00Z", "Prompted How far is the moon?", "<p>About <b>384,400 km</b>.</p>"),
        {"header": "Gemini Apps", "title": "Used Gemini Apps", "time": "2025-07-01T09:00:00Z"},
    ]
    where.write_text(json.dumps([one for one in found if without not in one["title"]]))
    return where


def echo() -> ScriptedModel:
    """A model that says back all that it was sent."""

    def reply(request: ModelRequest) -> str:
        return "You sent: " + " | ".join(
            f"{one.role}: {one.text} ({len(one.files)})" for one in request.messages
        )

    return ScriptedModel(reply)


async def take(satchel: Satchel, where: Path, **options: Any) -> ImportReport:
    assert satchel.memory is not None
    return await import_into(satchel.home, satchel.memory, where, **options)


async def shown(satchel: Satchel, id: str) -> str:
    log = await satchel.sessions.load(id)
    return to_markdown(await satchel.sessions.info(id), log.records)


def pictures(folder: Path) -> list[Path]:
    return list((folder / "home" / "sessions").rglob("*.png"))


def holding(home: Path, words: bytes) -> list[Path]:
    return [file for file in home.rglob("*") if file.is_file() and words in file.read_bytes()]


@pytest.fixture(params=["files", "server"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> str:
    if request.param == "files":
        return ""
    server = server_of(tmp_path_factory)
    return server.copy(tmp_path)


@requirement("sessions:imported")
async def test_an_answer_of_gemini_keeps_its_links_tables_and_code(tmp_path: Path) -> None:
    html = (
        '<p>See <a href="https://moon.example/">the <i>moon</i></a>:</p><table><tr><th>a</th><th>b</th></tr>'
        "<tr><td><code>x</code></td><td>2</td></tr></table><pre><code>y = 1</code></pre>"
    )
    asked = {"header": "Gemini Apps", "title": "Prompted Draw up", "time": "2025-08-01T10:00:00Z"}
    async with opened(tmp_path, echo()) as satchel:
        await take(
            satchel, gemini(tmp_path / "MyActivity.json", more=[asked | {"safeHtmlItem": [{"html": html}]}])
        )
        [id] = [info.id for info in await satchel.sessions.list() if info.title == "Draw up"]
        text = await shown(satchel, id)
    assert "See [the *moon*](https://moon.example/):" in text
    assert "\n\n| a | b |\n|---|---|\n| `x` | 2 |\n" in text
    assert "```\ny = 1\n```" in text


@requirement("sessions:imported")
async def test_links_stand_where_chatgpt_shows_its_sources(tmp_path: Path) -> None:
    mark, old = "\ue200cite\ue202turn0search1\ue201", "【4†source】"
    cards = "\ue200i\ue202turn0image2\ue201"
    # Of these, there is no source: the words of some are in the mark itself.
    named = (
        'In \ue200entity\ue202["city","Lyon","a city"]\ue201, \ue200link_title\ue202Rye\ue202turn0search3\ue201 and '
        "\ue200url\ue202oats\ue202https://oats.example/\ue201 \ue203are sown\ue204."
    )
    said = f"Rye {mark} is old {old}, and sour.{cards} {mark} {named}"
    sources = [
        {"matched_text": mark, "alt": "([rye](https://rye.example/))"},
        {"matched_text": old, "alt": "[a book](https://book.example/)"},
        {"matched_text": mark, "alt": "([sour](https://sour.example/))"},
        {"matched_text": mark, "alt": "(one more than there are marks)"},
        {"matched_text": " ", "alt": ""},
        {"matched_text": cards, "alt": None},
    ]
    answer = node("a1", "q1", "assistant", said, 1.75e9 + 5, content_references=sources)
    async with opened(tmp_path, echo()) as satchel:
        await take(satchel, chatgpt(tmp_path / "export.zip", [FIRST[0], answer], current="a1"))
        assert (
            "Rye ([rye](https://rye.example/)) is old [a book](https://book.example/), and sour. "
            "([sour](https://sour.example/)) In Lyon, Rye and [oats](https://oats.example/) are sown.\n"
        ) in await shown(satchel, ID)


@requirement("sessions:imported")
async def test_a_chatgpt_conversation_is_read_found_gone_on_with_and_forgotten(
    tmp_path: Path, database: str
) -> None:
    async with opened(tmp_path, echo(), database=database) as satchel:
        report = await take(satchel, chatgpt(tmp_path / "export.zip"))
        assert (report.new, dict(report.conversations)) == (4, {"new": 1})
        main, branch = sorted(await satchel.sessions.list(), key=lambda info: len(info.id))
        assert (main.id, main.title, main.source, main.turns) == (ID, "The loaf", "ChatGPT", 2)
        assert main.started_at.timestamp() == 1.75e9
        assert (branch.branch_of, branch.branch_turn) == (ID, 2)
        both = {turn: (one.number, one.count) for turn, one in versions(branch, [main, branch]).items()}
        assert both == {2: (2, 2)}
        text = await shown(satchel, ID)
        parts = ("What loaf is this?", "loaf.png", "A rye loaf.", "Vesuvius", "cat.png", "There it sits.")
        assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
        assert "zebras" not in text
        assert "zebras" in await shown(satchel, branch.id)
        kept = {
            path.read_bytes() for path in (tmp_path / "home/sessions").rglob("attached/*") if ID in str(path)
        }
        assert kept == {PNG, CAT}
        hits = await satchel.sessions.search("rye")
        assert {hit.session_id for hit in hits} == {ID}
        assert {hit.session_id for hit in await satchel.sessions.search("zebras")} == {branch.id}
        assert await satchel.home.usage() == ()
        session = await satchel.session(ID)
        turn = await session.run_turn("And a dog?")
        assert turn.turn == 3
        sent = (
            "user: What loaf is this? (1)",
            "assistant: A rye loaf.",
            "Vesuvius",
            "assistant: There it sits.",
        )
        assert all(part in turn.text for part in sent)
        assert satchel.memory is not None
        known = await satchel.memory.list(session=ID)
        assert sorted((one.source.turn, one.source.position) for one in known) == [
            (turn, position) for turn in (1, 2, 3) for position in (0, 1)
        ]
        receipt = await satchel.forget([one.id for one in known if one.content.startswith("My oven")])
        assert {entry.session_id for entry in receipt.logs.sessions} == {ID, branch.id}
        # It has no words left to come back with, and it was gone on with here.
        assert dict((await take(satchel, tmp_path / "export.zip")).conversations) == {"gone on": 1}
        for id in (ID, branch.id):
            assert "Vesuvius" not in await shown(satchel, id)
    assert holding(tmp_path / "home", b"Vesuvius") == []
    async with opened(tmp_path, echo(), database=database) as satchel:
        assert satchel.memory is not None
        assert len(await satchel.memory.list(session=ID)) == 5


@requirement("sessions:imported:files")
async def test_a_file_that_several_conversations_name_is_on_the_disk_once_and_goes_with_the_last(
    tmp_path: Path,
) -> None:
    content = PNG + os.urandom(1 << 20)

    def export(*names: str) -> Path:
        folder = tmp_path / "export"
        folder.mkdir(exist_ok=True)
        (folder / "file-Abc1-loaf.png").write_bytes(content)
        asked = [{"asset_pointer": "file-service://file-Abc1"}]
        found = []
        for number, name in enumerate(names):
            ask = node(f"q{name}", None, "user", [*asked, f"What is loaf {name}?"], 1.75e9 + number)
            mapping = {f"q{name}": ask}
            found.append(
                {"conversation_id": name, "title": name, "current_node": f"q{name}", "mapping": mapping}
            )
        (folder / "conversations.json").write_text(json.dumps(found))
        return folder

    def spent(home: Path) -> int:
        return sum({(state := file.stat()).st_ino: state.st_size for file in pictures(home)}.values())

    async with opened(tmp_path, echo()) as satchel:
        await take(satchel, export("a", "b"))
        # A later import, and a branch, name it as well.
        await take(satchel, export("a", "b", "c"))
        branch = await satchel.sessions.branch("chatgpt:a", turn=2)
        assert (await satchel.sessions.info(branch)).source == "ChatGPT"
        assert (len(pictures(tmp_path)), spent(tmp_path)) == (4, len(content))
        archive = tmp_path / "backup.tar.gz"
        back_up(tmp_path / "home", tmp_path / "home/satchel.db", archive, clock=ManualClock())
        assert archive.stat().st_size < 2 * len(content)
        restore(archive, tmp_path / "other" / "home", clock=ManualClock())
        assert (len(pictures(tmp_path / "other")), spent(tmp_path / "other")) == (4, len(content))
        assert all(file.read_bytes() == content for file in pictures(tmp_path / "other"))
        assert satchel.memory is not None
        for left, name in ((2, "a"), (1, "b"), (0, "c")):
            told = [one.id for one in await satchel.memory.list() if f"loaf {name}" in one.content]
            await satchel.forget(told)
            assert len(pictures(tmp_path)) == left
            assert all(file.read_bytes() == content for file in pictures(tmp_path))
    assert holding(tmp_path / "home", content[:100]) == []


@requirement("sessions:imported")
async def test_exports_of_claude_and_gemini_become_conversations(tmp_path: Path) -> None:
    async with opened(tmp_path, echo()) as satchel:
        await take(satchel, claude(tmp_path / "conversations.json"))
        await take(satchel, gemini(tmp_path / "MyActivity.json"))
        infos = sorted(await satchel.sessions.list(), key=lambda info: info.started_at)
        assert [(info.source, info.title, info.turns) for info in infos] == [
            ("Claude", "Tomatoes", 1),
            ("Gemini", "How far is the moon?", 2),
            ("Gemini", "And the sun?", 1),
        ]
        tomatoes = await shown(satchel, infos[0].id)
        assert "soil.pdf.txt" in tomatoes
        assert "They lack magnesium." in tomatoes
        moon = await shown(satchel, infos[1].id)
        assert "About **384,400 km**." in moon
        assert "- 7.3e22 kg" in moon
        # What was deleted there, or kept for so long only, leaves a conversation that begins later.
        late = gemini(tmp_path / "MyActivity.json", without="moon")
        assert dict((await take(satchel, late)).conversations) == {"known": 2}
        assert len(await satchel.sessions.list()) == 3
        more = {"header": "Gemini Apps", "title": "Prompted How old?", "time": "2025-07-01T10:09:00Z"}
        await take(satchel, gemini(late, without="moon", more=[more]))
        assert len(pictures(tmp_path)) == 4
        assert satchel.memory is not None
        await satchel.forget([one.id for one in await satchel.memory.list() if "heavy" in one.content])
        assert len(pictures(tmp_path)) == 2
        turn = await (await satchel.session(infos[0].id)).run_turn("And the roses?")
        assert "user: My tomatoes are yellow. (1) | assistant: They lack magnesium." in turn.text


@requirement("sessions:imported:again")
async def test_a_newer_export_adds_messages_and_what_was_deleted_stays_so(
    tmp_path: Path, database: str
) -> None:
    async with opened(tmp_path, echo(), database=database) as satchel:
        assert satchel.memory is not None
        await take(satchel, chatgpt(tmp_path / "export.zip"))
        again = await take(satchel, tmp_path / "export.zip")
        assert (again.new, dict(again.conversations)) == (0, {"known": 1})
        rye = [one.id for one in await satchel.memory.list(session=ID) if "rye" in one.content]
        await satchel.forget(rye)
        newer = chatgpt(tmp_path / "newer.zip", (*FIRST, *LATER), current="a3")
        assert dict((await take(satchel, newer)).conversations) == {"longer": 1}
        text = await shown(satchel, ID)
        assert "rye" not in text
        assert [text.count(one) for one in ("There it sits.", "And a dog?", "It barks.")] == [1, 1, 1]
        info = await satchel.sessions.info(ID)
        assert (info.turns, info.last_at.timestamp()) == (3, 1.75e9 + 125)
        assert len(await satchel.sessions.list()) == 2
        # The branch that is shown now is another one: what is here stays what it was, and its end becomes a branch.
        switched = chatgpt(tmp_path / "switched.zip", (*FIRST, *LATER), current="b2")
        await take(satchel, switched)
        assert "It barks." in await shown(satchel, ID)
        assert len(await satchel.sessions.list()) == 2
        await satchel.delete_session(ID)
        assert dict((await take(satchel, newer)).conversations) == {"deleted": 1}
        assert ID not in {info.id for info in await satchel.sessions.list()}


@requirement("sessions:imported:again")
async def test_memories_that_were_imported_before_get_their_conversation_without_what_was_forgotten(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, echo()) as satchel:
        assert satchel.memory is not None
        await satchel.memory.import_from(chatgpt(tmp_path / "export.zip"))
        await satchel.forget([one.id for one in await satchel.memory.list() if "Vesuvius" in one.content])
        known = await satchel.memory.count()
        assert dict((await take(satchel, tmp_path / "export.zip")).conversations) == {"new": 1}
        assert await satchel.memory.count() == known
        assert "There it sits." in await shown(satchel, ID)
    assert holding(tmp_path / "home", b"Vesuvius") == []


@requirement("sessions:imported:again")
async def test_more_conversations_and_pictures_are_looked_for_no_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(numbers: range, nodes: Sequence[Mapping[str, Any]], current: str) -> Path:
        place = chatgpt(tmp_path / "export.zip", nodes, current=current)
        with zipfile.ZipFile(place) as archive:
            text = archive.read("conversations.json").decode()
        with zipfile.ZipFile(place, "w") as archive:
            for number in numbers:
                one = text.replace("000000000001", f"{number:012}")
                archive.writestr(f"conversations-{number:03}.json", one)
            archive.writestr("file-Abc1-loaf.png", PNG)
        return place

    found = []
    async with opened(tmp_path, echo()) as satchel:
        for numbers in (range(1), range(10, 13)):
            for nodes, current, outcome in ((FIRST, "a2", "new"), ((*FIRST, *LATER), "a3", "longer")):
                place = export(numbers, nodes, current)
                with monkeypatch.context() as counting:
                    lists, opens = Mock(wraps=FileLogs.paths), Mock(wraps=zipfile.ZipFile)
                    counting.setattr(FileLogs, "paths", lambda *given, lists=lists: lists(*given))
                    counting.setattr(zipfile, "ZipFile", opens)
                    assert dict((await take(satchel, place)).conversations) == {outcome: len(numbers)}
                found.append((outcome, lists.call_count, opens.call_count))
    assert found[:2] == found[2:]


@requirement("sessions:imported:agents")
async def test_a_transcript_that_grows_is_one_conversation_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "0b6f6c1e.jsonl"

    def line(kind: str, text: str, second: int) -> dict[str, Any]:
        return {
            "type": kind,
            "uuid": f"u{second}",
            "sessionId": "0b6f6c1e-5a55",
            "cwd": "/srv/harbour",
            "timestamp": f"2026-03-02T09:00:{second:02}Z",
            "message": {"role": kind, "content": text},
        }

    # The first line of a file has no folder.
    first = {"type": "summary", "sessionId": "0b6f6c1e-5a55", "summary": "Another one"}
    lines = [first, line("user", "Which database?", 1), line("assistant", "Let me look.", 2)]
    more = [line("assistant", "PostgreSQL.", 3), line("user", "Good.", 4), line("assistant", "Done.", 5)]
    async with opened(tmp_path, echo()) as satchel:
        for written, outcome in ((lines, "new"), ([*lines, *more], "longer"), ([*lines, *more], "known")):
            path.write_text("".join(json.dumps(one) + "\n" for one in written))
            assert dict((await take(satchel, path)).conversations) == {outcome: 1}
        (info,) = await satchel.sessions.list()
        assert (info.id, info.source, info.cwd) == (
            "claude-code:0b6f6c1e-5a55",
            "Claude Code",
            "/srv/harbour",
        )
        text = (await shown(satchel, info.id)).partition("## 1.")[2]  # after the title
        said = ("Which database?", "Let me look.", "PostgreSQL.", "Good.", "Done.")
        assert [text.count(one) for one in said] == [1] * 5
        assert [text.index(one) for one in said] == sorted(text.index(one) for one in said)
        # Of an answer in two messages, one is forgotten alone.
        last = [
            line("user", "And the index?", 6),
            line("assistant", "Umm.", 7),
            line("assistant", "A B-tree.", 8),
        ]
        for later in ([], [line("user", "Thanks.", 9)]):
            path.write_text("".join(json.dumps(one) + "\n" for one in [*lines, *more, *last, *later]))
            await take(satchel, path)
        text = await shown(satchel, info.id)
        assert [text.count(one) for one in ("Umm.", "A B-tree.", "Thanks.")] == [1] * 3
        assert satchel.memory is not None
        await satchel.forget([one.id for one in await satchel.memory.list() if one.content == "Umm."])
        text = await shown(satchel, info.id)
        assert "A B-tree." in text
        assert "Umm." not in text
        records = (await satchel.sessions.load(info.id)).records
        finals = [record.event.text for record in records if isinstance(record.event, Final)]
        assert finals[-1] == f"{FORGOTTEN}\n\nA B-tree."  # each message is a paragraph of its own


@requirement("sessions:imported:agents")
async def test_pictures_of_transcripts_are_kept_with_their_messages_and_forgotten_with_them(
    tmp_path: Path,
) -> None:
    data, other = (base64.b64encode(content).decode() for content in (PNG, CAT))
    source = {"type": "base64", "media_type": "image/png", "data": data}
    pasted = [{"type": "text", "text": "What loaf is this?"}, {"type": "image", "source": source}]
    alone = [{"type": "image", "source": {**source, "data": "%%%"}}]
    claude_code = [
        {
            "type": "user",
            "uuid": f"u{n}",
            "sessionId": "5a55",
            "message": {"role": "user", "content": content},
        }
        for n, content in enumerate((pasted, alone))
    ]
    url = f"data:image/png;base64,{other}"
    parts = [{"type": "input_text", "text": "And this cat?"}, {"type": "input_image", "image_url": url}]
    codex = [
        {"type": "session_meta", "payload": {"id": "c0de", "cwd": "/w"}},
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": parts}},
    ]
    transcripts = tmp_path / "transcripts"
    transcripts.mkdir()
    for name, lines in (("5a55", claude_code), ("rollout-1", codex)):
        (transcripts / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    async with opened(tmp_path, echo()) as satchel:
        assert dict((await take(satchel, transcripts)).conversations) == {"new": 2}
        assert sorted(path.read_bytes() for path in pictures(tmp_path)) == sorted([PNG, CAT])
        assert "*Attached: picture-1 (image/png)*" in await shown(satchel, "claude-code:5a55")
        assert satchel.memory is not None
        await satchel.forget([one.id for one in await satchel.memory.list() if "loaf" in one.content])
        assert [path.read_bytes() for path in pictures(tmp_path)] == [CAT]


@requirement("sessions:imported:again")
async def test_a_picture_without_words_goes_with_the_next_and_changes_no_number(tmp_path: Path) -> None:
    picture = {
        "type": "input_image",
        "image_url": f"data:image/png;base64,{base64.b64encode(CAT).decode()}",
    }
    lines = [
        ("user", {"type": "input_text", "text": "Gate 7."}),
        ("user", picture),
        ("assistant", {"type": "output_text", "text": "A cat."}),
        ("user", {"type": "input_text", "text": "Yes."}),
    ]
    transcript = tmp_path / "rollout-1.jsonl"

    def write(lines: list[tuple[str, dict[str, str]]]) -> None:
        items = [{"type": "message", "role": role, "content": [block]} for role, block in lines]
        whole = [
            {"type": "session_meta", "payload": {"id": "c0de", "cwd": "/w"}},
            *({"type": "response_item", "payload": item} for item in items),
        ]
        transcript.write_text("".join(json.dumps(one) + "\n" for one in whole))

    async with opened(tmp_path, echo()) as satchel:
        write([line for line in lines if line[1] is not picture])  # as an earlier version read it
        await take(satchel, transcript)
        write([*lines, ("user", {"type": "input_text", "text": "And a dog."})])
        report = await take(satchel, transcript)
        assert (report.new, dict(report.conversations)) == (1, {"longer": 1})
    other = tmp_path / "other"
    other.mkdir()
    async with opened(other, echo()) as satchel:
        await take(satchel, transcript)
        text = await shown(satchel, "codex:c0de")
        assert text.index("Yes.") < text.index("*Attached: picture-1 (image/png)*") < text.index("And a dog.")


@requirement("sessions:imported")
async def test_what_two_imported_conversations_have_in_common_is_forgotten_in_both(tmp_path: Path) -> None:
    def line(session: str, kind: str, text: str, second: int) -> str:
        return json.dumps(
            {
                "type": kind,
                "uuid": f"u{second}",
                "sessionId": session,
                "cwd": "/srv/harbour",
                "timestamp": f"2026-03-02T09:00:{second:02}Z",
                "message": {"role": kind, "content": text},
            }
        )

    # Claude Code goes on with an old conversation under a new name, and repeats its messages.
    common = [("user", "Gate 7.", 1), ("assistant", "Noted.", 2)]
    for name, more in (("0b6f", []), ("1c7e", [("user", "And the boats?", 3), ("assistant", "Four.", 4)])):
        lines = [line(name, *one) for one in [*common, *more]]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    async with opened(tmp_path, echo()) as satchel:
        for name in ("0b6f", "1c7e"):
            await take(satchel, tmp_path / f"{name}.jsonl")
        await satchel.sessions.branch("claude-code:1c7e", 2)
        assert len(holding(tmp_path / "home" / "sessions", b"Gate 7.")) == 3
        assert satchel.memory is not None
        await satchel.forget([one.id for one in await satchel.memory.list() if one.content == "Gate 7."])
        assert holding(tmp_path / "home" / "sessions", b"Gate 7.") == []
        assert "Four." in await shown(satchel, "claude-code:1c7e")


@requirement("sessions:imported:again")
async def test_an_import_leaves_a_log_that_was_made_meanwhile(tmp_path: Path) -> None:
    async with opened(tmp_path, echo()) as satchel:
        await take(satchel, chatgpt(tmp_path / "export.zip"))
        log = await satchel.sessions.load(ID)
        await (await satchel.session(ID)).run_turn("And a dog?")
    async with opened(tmp_path, echo()) as satchel:
        with pytest.raises(SessionInUse):
            await satchel.sessions.write(log.path, ID, log.records)
        assert "And a dog?" in await shown(satchel, ID)


@requirement("sessions:imported:again")
async def test_an_import_that_was_killed_while_it_added_messages_doubles_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, echo()) as satchel:
        await take(satchel, chatgpt(tmp_path / "export.zip"))
    append = FileJournal.append

    async def dies(journal: FileJournal, events: Sequence[Event], **options: Any) -> Sequence[Record]:
        if any(isinstance(event, Assistant) for event in events):
            raise KeyboardInterrupt
        return await append(journal, events, **options)

    newer = chatgpt(tmp_path / "newer.zip", (*FIRST, *LATER), current="a3")
    async with opened(tmp_path, echo()) as satchel:
        monkeypatch.setattr(FileJournal, "append", dies)
        with pytest.raises(KeyboardInterrupt):
            await take(satchel, newer)
        monkeypatch.undo()
    async with opened(tmp_path, echo()) as satchel:
        await catch_up(satchel.sessions, satchel.home.memory_in)
        await take(satchel, newer)
        assert satchel.memory is not None
        said = [one.content for one in await satchel.memory.list(session=ID)]
        assert [said.count(text) for text in ("And a dog?", "It barks.")] == [1, 1]
        assert (await shown(satchel, ID)).count("It barks.") == 1


@requirement("sessions:imported:again")
async def test_a_conversation_that_was_moved_to_a_project_stays_in_it(tmp_path: Path) -> None:
    async with opened(tmp_path, echo()) as satchel:
        assert satchel.memory is not None
        await take(satchel, chatgpt(tmp_path / "export.zip"))
        await satchel.move(ID, satchel.home.projects.create("Barn").id)
        newer = chatgpt(tmp_path / "newer.zip", (*FIRST, *LATER), current="a3")
        report = await take(satchel, newer)
        assert (report.new, dict(report.conversations)) == (0, {"in a project": 1})
        assert await satchel.memory.count() == 0


@requirement("sessions:imported:again", "sessions:retention")
async def test_the_days_that_a_conversation_is_kept_begin_with_its_import(tmp_path: Path) -> None:
    async with opened(tmp_path, echo()) as satchel:
        await take(satchel, chatgpt(tmp_path / "export.zip"))
        written = max(info.path.stat().st_mtime for info in await satchel.sessions.list())
    clock = ManualClock(datetime.fromtimestamp(written, UTC))
    settings = settings_in(tmp_path, sessions__delete_after_days=30)
    async with Satchel.open(settings, clock=clock, embedder=HashingEmbedder(), upkeep="none") as satchel:
        assert (await retain(satchel.home)).deleted == ()
        clock.advance(31 * 86_400.0)
        assert ID in (await retain(satchel.home)).deleted
        # The user did not delete it.
        assert dict((await take(satchel, tmp_path / "export.zip")).conversations) == {"new": 1}


@requirement("sessions:imported:again")
async def test_what_was_forgotten_does_not_come_back_in_a_branch_or_another_conversation(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, echo()) as satchel:
        assert satchel.memory is not None
        await satchel.memory.import_from(chatgpt(tmp_path / "export.zip", FIRST[:5]))
        await satchel.forget([one.id for one in await satchel.memory.list() if "Vesuvius" in one.content])
        other = node("c2", "a1", "user", "Something else.", 1.75e9 + 300)
        await take(satchel, chatgpt(tmp_path / "newer.zip", (*FIRST[:5], other), current="c2"))
        _, branch = sorted(await satchel.sessions.list(), key=lambda info: len(info.id))
        assert FORGOTTEN in await shown(satchel, branch.id)
        await take(satchel, gemini(tmp_path / "MyActivity.json"))
        said = [one for one in await satchel.memory.list() if one.content.endswith(("heavy?", "kg"))]
        await satchel.forget([one.id for one in said])
        late = await take(satchel, gemini(tmp_path / "MyActivity.json", without="moon"))
        assert (late.new, dict(late.conversations)) == (0, {"known": 1, "deleted": 1})
        # The file has a conversation twice, with another current branch; all of both was forgotten.
        mapping = {id: node(id, None, "user", f"My boat is {id}.", 1.75e9) for id in ("Erebus", "Terror")}
        both = [{"id": "b0a7", "current_node": id, "mapping": mapping} for id in mapping]
        (tmp_path / "twice.json").write_text(json.dumps(both))
        await satchel.memory.import_from(tmp_path / "twice.json")
        boats = await satchel.memory.list(session="chatgpt:b0a7")
        assert len(boats) == 2
        await satchel.forget([one.id for one in boats])
        report = await take(satchel, tmp_path / "twice.json")
        assert dict(report.conversations) == {"deleted": 2}
    assert holding(tmp_path / "home", b"How heavy") == []
    assert holding(tmp_path / "home", b"Vesuvius") == []


@requirement("sessions:imported")
async def test_other_agents_read_an_imported_conversation_at_its_listed_address(tmp_path: Path) -> None:
    async with opened(tmp_path, echo()) as satchel:
        await take(satchel, chatgpt(tmp_path / "export.zip"))
        resources = Resources(satchel, ServedSkills(satchel, Mock()))
        found = await resources.read(session_uri(await satchel.sessions.info(ID)))
        assert "A rye loaf." in getattr(found, "text", "")


_KILLED = """
import sys, anyio
from pathlib import Path
from tests.runtime.world import opened
from satchel.runtime.importing import import_into
async def main():
    async with opened(Path(sys.argv[1])) as satchel:
        await import_into(satchel.home, satchel.memory, sys.argv[2], progress=lambda at: print(at.new, flush=True))
anyio.run(main)
"""


@requirement("sessions:imported:again")
async def test_an_import_that_was_killed_goes_on_without_doubling(tmp_path: Path) -> None:
    found = json.loads(claude(tmp_path / "one.json").read_text())[0]
    text = json.dumps(found)
    many = [
        json.loads(text.replace("c1a0dead-1", f"c1a0dead-{n}").replace('"m', f'"n{n}m')) for n in range(400)
    ]
    (tmp_path / "conversations.json").write_text(json.dumps(many))
    with Program("-c", _KILLED, tmp_path, tmp_path / "conversations.json") as worker:
        worker.stdout.readline()  # a batch is stored
        worker.kill()
    seen: list[TransferProgress] = []
    async with opened(tmp_path, echo()) as satchel:
        assert satchel.memory is not None
        before = len(await satchel.sessions.list())
        assert before < 400
        report = await take(satchel, tmp_path / "conversations.json", progress=seen.append)
        assert report.conversations["new"] + report.conversations.get("known", 0) == 400
        assert len(await satchel.sessions.list()) == 400
        assert await satchel.memory.count() == 800
        assert seen[-1].conversations == 400
