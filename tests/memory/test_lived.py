"""The benchmark of lived lives: it records what a model answers, plays it again without one, and has everything judged."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from tests.models.loopback import Answer, Asked, as_events, as_json, chat, loopback
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def lived(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module("lived")
    for name in ("lived", "judged", "recorded", "stand_in", "peers", "peers.driving"):
        sys.modules.pop(name)


def said(n: int, conversation: int, at: str, text: str, **noted: list[Any]) -> dict[str, Any]:
    empty: dict[str, list[Any]] = {"needed": [], "wrong": [], "private": []}
    return (
        {"n": n, "conversation": conversation, "at": f"2026-03-{at}:00+00:00", "text": text} | empty | noted
    )


LIFE = {
    "life": "ann",
    "messages": [
        said(1, 1, "02T09:00", "The user's horse is called Bollard. I owe Tom ten euros."),
        said(2, 2, "03T09:00", "The stable moved to Wittring."),
        said(
            3,
            3,
            "04T09:00",
            "Tom is here. What should I bring to the stable?",
            needed=[
                {"what": "The horse is called Bollard.", "from": [1], "asked": False},
                {"what": "The stable is in Wittring.", "from": [2], "asked": True},
            ],
            wrong=["The stable is in Forbach."],
            private=["She owes Tom ten euros."],
        ),
        said(4, 3, "04T09:05", "Thanks."),
    ],
}


def fact(content: str) -> dict[str, Any]:
    return {"content": content, "quote": content.rstrip("."), "importance": 4, "cues": [], "section": "home"}


def answered(asked: Asked) -> str:
    """What a model answers: facts that stand in the words, a notes file, verdicts by reading."""
    system, said = (message["content"] for message in asked.body["messages"][:2])
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    if "one notes file" in system:
        return "Horse: Bollard. Owes Tom 10 EUR (secret).\nStable: Forbach."
    if "numbered texts" in system:
        texts = {line["text"]: line["says"] for line in lines if "text" in line}
        return json.dumps(
            {
                "verdicts": [
                    verdict(line["n"], letter, " ".join(texts[number] for number in numbers))
                    for line in lines
                    if "columns" in line
                    for letter, numbers in line["columns"].items()
                ]
            }
        )
    stated = [line["text"].split(". ")[0].rstrip(".") + "." for line in lines if "text" in line]
    return json.dumps({"facts": [fact(one) for one in stated if one.startswith("The ")]})


def verdict(n: int, column: str, shown: str) -> dict[str, Any]:
    stable = "h" if "Wittring" in shown else "m" if "Forbach" in shown else "n"
    return {
        "n": n,
        "column": column,
        "needs": ("h" if "Bollard" in shown else "n") + stable,
        "wrong": [1] if "Forbach" in shown else [],
        "private": [1] if "owe" in shown.lower() else [],
    }


async def play(
    lived: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[dict[str, list[str]], str]:
    """The last table by its first cells, and what was printed as an error."""
    with anyio.fail_after(60):
        assert await lived.main([str(folder), "--embedder", "none", *more]) == 0
    printed = capsys.readouterr()
    tables = printed.out.partition("\nall, judged")[2].partition("\n\n")[0] or printed.out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables.splitlines() if "|" in line]
    return {row[0]: row[1:] for row in rows}, printed.err


@requirement("memory:figures:lived")
async def test_what_a_model_answered_is_judged_recorded_and_played_again(
    lived: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ann.json").write_text(json.dumps(LIFE), encoding="utf-8")
    async with loopback(lambda asked: as_events(chat(answered(asked)))) as endpoint:
        recorded, _ = await play(lived, tmp_path, capsys, "--model", f"{endpoint.url}/v1")
    # Needed, of that unasked, misleading, wrong, private.
    assert recorded["Satchel with a model"][:5] == ["1.00 of 2", "1.00 of 1", "0", "0", "0"]
    assert recorded["a notes file"][:5] == ["0.50 of 2", "1.00 of 1", "1", "1", "1"]
    assert recorded["everything"][:5] == ["1.00 of 2", "1.00 of 1", "0", "0", "1"]
    # Three conversations are read, and noted down, for four messages; the readings say where on the page facts stand.
    assert recorded["Satchel with a model"][8] == "0.75"
    assert recorded["a notes file"][8] == "0.75"
    # The notes file stood there with the message before: it costs a tenth there.
    assert recorded["a notes file"][6:8] == ["13", "9"]

    def judged(asked: Asked) -> bool:
        return "numbered texts" in asked.body["messages"][0]["content"]

    # One request for the one conversation that needs something, and nothing in it says who shows what.
    (request,) = filter(judged, endpoint.asked)
    asked = request.body["messages"][1]["content"]
    assert "Bollard" in asked
    assert not [word for word in ("satchel", "notes file", "search", "session") if word in asked.lower()]

    # Without a model the same table comes.
    again, said = await play(lived, tmp_path, capsys)
    assert again == recorded
    assert said == ""

    # A prompt that changed makes what hangs on it stale, and this is said.
    monkeypatch.setattr(lived, "NOTES_PROMPT", "Take notes.")
    stale, said = await play(lived, tmp_path, capsys)
    assert stale["a notes file"] == ["0.00 of 2", "0.00 of 1", "0", "0", "0", *stale["a notes file"][5:]]
    assert "3 requests have no recorded answer (3 notes)" in said


PEER = """
import json, sys
said = []
print(json.dumps({"ready": "parrot 1.0"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "store":
        said.append(asked["text"])
    print(json.dumps({"texts": said[-asked.get("limit", 0):] + ["Polly!"]}), flush=True)
"""


@requirement("memory:figures:lived")
async def test_another_program_is_a_column_that_is_played_again_without_it(
    lived: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ann.json").write_text(json.dumps(LIFE), encoding="utf-8")
    driving = importlib.import_module("peers.driving")
    for folder in ("peers", "home/mem0/bin"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(driving, "HOME", tmp_path / "home")
    # What is there before any peer is installed.
    assert await lived.main([str(tmp_path), "--embedder", "none", "--peers", "mem0"]) == 0
    assert "mem0 can't run here: mem0 is not installed" in capsys.readouterr().err

    (tmp_path / "home" / "mem0" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "peers" / "use_mem0.py").write_text(PEER, encoding="utf-8")
    (tmp_path / "peers" / "embeddings.py").write_text("print(1, flush=True)\ninput()", encoding="utf-8")
    monkeypatch.setattr(driving, "HERE", tmp_path / "peers")
    asked, _ = await play(lived, tmp_path, capsys, "--peers", "mem0")
    # Both needs, since it shows all that was said, and a line of its own with each message.
    assert asked["mem0"][:4] == ["1.00 of 2", "1.00 of 1", "0.00 of 3", "2.5"]
    again, said = await play(lived, tmp_path, capsys)
    assert (again, said) == (asked, "")


@requirement("memory:figures:lived")
async def test_an_endpoint_that_fails_loses_nothing_and_the_recording_goes_on_where_it_stopped(
    lived: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ann.json").write_text(json.dumps(LIFE), encoding="utf-8")

    def answer(left: list[None], asked: Asked) -> Answer:
        if not left:
            return as_json({"error": {"message": "no"}}, status=400)
        left.pop()
        return as_events(chat(answered(asked)))

    async with loopback(partial(answer, [None] * 5)) as endpoint:
        with anyio.fail_after(60):
            given = ["--embedder", "none", "--model", f"{endpoint.url}/v1"]
            assert await lived.main([str(tmp_path), *given]) == 1
    assert "the same command goes on" in capsys.readouterr().err
    async with loopback(lambda asked: as_events(chat(answered(asked)))) as endpoint:
        rows, _ = await play(lived, tmp_path, capsys, "--model", f"{endpoint.url}/v1")
    assert rows["Satchel with a model"][0] == "1.00 of 2"
    bodies = [json.dumps(asked.body["messages"]) for asked in endpoint.asked]
    assert not [body for body in bodies if "one notes file" in body and "owe Tom" in body]
