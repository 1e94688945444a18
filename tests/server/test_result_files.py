"""Files that tools return: kept with the session, seen by the model, shown to people, exported, forgotten."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docx
import pytest
from PIL import Image

from satchel.messages import FileBlock, ToolResultBlock
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.models.files import part_of
from satchel.runtime.tool_display import show_observation
from satchel.sessions import SessionInfo
from satchel.sessions.view import ToolCall
from satchel.tools.kept import kept_path
from tests.cli.test_documents import pdf
from tests.requirements import requirement
from tests.server.browsers import browser, open_page
from tests.server.test_attachments import PNG, files_of
from tests.server.world import Held, World, chat, serving


def reading(_: Held) -> ScriptedModel:
    """Reads the file that the message names, with the lines from 1 on if it says so."""

    def reply(request: ModelRequest) -> Reply | str:
        newest = request.messages[-1].text.split()
        if not newest:
            return "I have seen it."
        lines = {"offset": 1} if "lines" in newest else {}
        return Reply(calls=[Call(name="file_read", input={"path": newest[-1], **lines})])

    return ScriptedModel(reply)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(tmp_path_factory.mktemp("reads"), reading, server__requests_per_s=10_000) as world:
        yield world


def read(world: World, path: Path, *, how: str = "Read") -> tuple[str, ToolResultBlock]:
    """The session in which the model reads the file, and what it gets."""
    with world.client() as client:
        events = chat(client, f"{how} {path}")
    model: Any = world.satchel.parts.models.given
    [result] = [b for b in model.requests[-1].messages[-1].blocks if isinstance(b, ToolResultBlock)]
    return events[0].data["sessionId"], result


def work(world: World, name: str, content: bytes) -> Path:
    path = world.satchel.settings.cwd / name
    path.write_bytes(content)
    return path


def bytes_of(world: World, id: str, file: FileBlock) -> bytes:
    info: SessionInfo = world.call(world.satchel.sessions.info, id)
    return kept_path(info.path.with_suffix(".spill"), file).read_bytes()


@requirement("content:results")
def test_a_picture_that_is_read_is_seen_shown_exported_and_forgotten(world: World) -> None:
    id, result = read(world, work(world, "label.png", PNG))
    assert result.content == "label.png: image/png, 70 bytes."
    [file] = result.files
    assert (file.media_type, file.name, bytes_of(world, id, file)) == ("image/png", "label.png", PNG)
    with browser(world) as page:
        shown = open_page(page, f"/chat/{id}")
        [place] = shown.xpath("//p[@class='made']//img/@src")
        assert page.get(place).content == PNG
    export = world.call(lambda: world.satchel.sessions.export(id, form="markdown"))
    assert "*File: label.png (image/png)*" in export
    turns: list[Any] = []
    world.call(world.satchel.sessions.read_turns, id, turns.append)
    [call] = turns[-1].of(ToolCall)
    assert call.result.files == (file,)  # the log is read as it was written
    assert show_observation(call.result, {}).lines[-1].text == "label.png (image/png, 70 bytes)"

    memory = world.satchel.memory
    assert memory is not None
    [said] = [each for each in world.call(memory.list) if "label.png" in each.content and each.id]
    (world.satchel.settings.cwd / "label.png").unlink()
    world.call(world.satchel.forget, [said.id])
    assert not [path for path in files_of(world) if PNG in path.read_bytes()]


@requirement("content:smaller")
def test_a_large_picture_of_a_result_reaches_a_provider_that_takes_less(world: World) -> None:
    out = io.BytesIO()
    Image.frombytes("RGBA", (1100, 1100), random.Random(3).randbytes(1100 * 1100 * 4)).save(out, "PNG")
    _, result = read(world, work(world, "plot.png", out.getvalue()))
    model: Any = world.satchel.parts.models.given
    part = part_of(result.files[0], model.requests[-1].read_file, takes="all")
    assert (part.kind, part.media_type) == ("picture", "image/jpeg")


@requirement("content:results")
def test_a_pdf_that_is_read_is_sent_as_it_is_and_its_text_goes_with_it_or_comes_in_lines(
    world: World,
) -> None:
    path = work(world, "manual.pdf", pdf(["Bleed the radiator.", "Close the valve."]))
    id, result = read(world, path)
    assert result.files, result.content
    [file] = result.files
    assert (file.media_type, bytes_of(world, id, file)) == ("application/pdf", path.read_bytes())
    numbered = [
        "     1\t[page 1: Chapter 1]",
        "     2\tBleed the radiator.",
        "     3\t[page 2: Chapter 2]",
        "     4\tClose the valve.",
    ]
    assert bytes_of(world, id, file.text_twin).decode().splitlines() == numbered
    _, lines = read(world, path, how="Read the lines of")
    assert (lines.content.splitlines(), lines.files) == (numbered, ())

    word = docx.Document()
    word.add_heading("Warranty")
    word.add_paragraph("Two years.")
    word.save(str(world.satchel.settings.cwd / "w.docx"))
    _, text = read(world, world.satchel.settings.cwd / "w.docx")
    assert text.content.splitlines() == ["     1\t[Warranty]", "     2\tTwo years."]
    _, broken = read(world, work(world, "b.pdf", b"%PDF-1.7 nothing"))
    assert broken.is_error
    assert not broken.files
    assert "b.pdf could not be read. It is damaged" in broken.content


@requirement("content:notebooks")
def test_a_notebook_is_read_as_its_cells_with_its_pictures(world: World) -> None:
    picture = {"image/png": base64.b64encode(PNG).decode(), "text/plain": ["<Figure>"]}
    cells = [
        {"cell_type": "markdown", "source": ["# Sales\n", "By month."]},
        {
            "cell_type": "code",
            "source": "plot(1)",
            "outputs": [
                {"output_type": "stream", "text": ["hm\n"]},
                {"output_type": "display_data", "data": picture},
                {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": []},
            ],
        },
    ]
    notebook = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4}
    _, result = read(world, work(world, "n.ipynb", json.dumps(notebook).encode()))
    assert [line.partition("\t")[2] for line in result.content.splitlines()][1:] == [
        "[cell 1, markdown]",
        "# Sales",
        "By month.",
        "[cell 2, python]",
        "plot(1)",
        "[output]",
        "hm",
        "[output: the picture cell-2-1.png]",
        "[output]",
        "<Figure>",
        "[output]",
        "KeyError: 'x'",
    ]
    assert [file.name for file in result.files] == ["cell-2-1.png"]
    _, other = read(world, work(world, "o.ipynb", b'{"cells": 7}'))
    assert other.content == '     1\t{"cells": 7}'
