"""The benchmarks that say how good memory is: what they count, on sets of three entries."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from satchel.models import ModelRequest, ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import EmbedderInfo, EmbedRole, TokenEmbedder, TokenVectors, Vectors
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = ("chosen", "distilling", "left_out", "lives", "retrieval", "sets", "table")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name)


TURNS = [
    {"id": "m1", "session": "s1", "turn": 0, "speaker": "user", "text": "The kitchen will be sage green."},
    {"id": "m2", "session": "s1", "turn": 1, "speaker": "assistant", "text": "A calm choice."},
    {"id": "m3", "session": "s2", "turn": 0, "speaker": "user", "text": "No, the kitchen becomes cream."},
]
PERSON = {
    "person": "Ann",
    "language": "en",
    "about": "",
    "memories": [{**turn, "said_at": f"2026-01-0{at}T10:00:00+00:00"} for at, turn in enumerate(TURNS, 1)],
    "facts": [
        {
            "id": "f1",
            "text": "Ann's kitchen is sage green.",
            "type": "fact",
            "importance": 3,
            "sources": ["m1"],
        }
        | {"until": "2026-01-03", "replaced_by": "f2", "profile": False, "cues": ["buying a blind"]},
        {"id": "f2", "text": "Ann's kitchen is cream.", "type": "fact", "importance": 4, "sources": ["m3"]}
        | {"until": None, "replaced_by": None, "profile": True, "cues": ["buying a blind"]},
    ],
    "messages": [
        {"id": "q1", "at": "2026-02-01T10:00:00+00:00", "context": [], "text": "What colour is the kitchen?"}
        | {"kind": "correction", "must": ["m3"], "may": ["m2"], "stale": ["m1"], "why": ""},
        {"id": "q2", "at": "2026-02-01T10:00:00+00:00", "context": [], "text": "What is 7 times 8?"}
        | {"kind": "task", "must": [], "may": [], "stale": [], "why": ""},
    ],
}
TALK = {
    "id": "talk",
    "speakers": ["Ann", "Bob"],
    "sessions": [
        {
            "session": 1,
            "date": "2026-01-01",
            "turns": [{"id": "a", "speaker": "Ann", "text": "I bought a red canoe."}],
        },
        {
            "session": 2,
            "date": "2026-01-02",
            "turns": [{"id": "b", "speaker": "Bob", "text": "My cat has fleas."}],
        },
        {
            "session": 3,
            "date": "2026-01-03",
            "turns": [{"id": "c", "speaker": "Ann", "text": "The canoe leaks."}],
        },
    ],
    "questions": [
        {"id": "1", "question": "What did Ann buy, a canoe?", "category": "fact", "evidence": ["a"]}
    ],
}
EARLIER = {
    **TALK,
    "speakers": ["user", "assistant"],
    "questions": [
        {"id": "1", "question": "And the canoe?", "category": "turn", "evidence": [], "asked_before": 3}
        | {"evidence_sessions": [1, 3]},
    ],
}


def write_sets(folder: Path) -> Path:
    (folder / "life-tiny").mkdir(parents=True)
    for name, content in {
        "life-tiny/en-1.json": PERSON,
        "talk.json": {"source": "ours", "conversations": [TALK]},
        "earlier.json": {"source": "ours", "conversations": [EARLIER]},
    }.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


@requirement("memory:figures:lives")
@pytest.mark.parametrize(
    ("lines", "standing", "expected"),
    [
        pytest.param([("m3",)], (), {"found": 1, "good": 1, "stale": False}, id="the new value"),
        pytest.param([("m1",)], (), {"found": 0, "good": 0, "stale": True}, id="the old value alone"),
        pytest.param([("m1",), ("m3",)], (), {"found": 1, "good": 2, "stale": False}, id="old beside new"),
        pytest.param(
            [("m1",)], ("m3",), {"found": 1, "good": 1, "stale": False}, id="the new one in the profile"
        ),
        pytest.param(
            [("m1",), ("m2",)], (), {"found": 0, "good": 1, "stale": True}, id="old and a harmless one"
        ),
        pytest.param(
            [("m1", "m3")], (), {"found": 1, "good": 1, "stale": False}, id="a fact counts as its sources"
        ),
        pytest.param([], ("m3",), {"found": 1, "good": 0, "lines": 0, "stale": False}, id="profile alone"),
    ],
)
def test_a_stale_line_counts_only_beside_the_new_value(
    modules: dict[str, ModuleType],
    lines: list[tuple[str, ...]],
    standing: tuple[str, ...],
    expected: dict[str, Any],
) -> None:
    lives = modules["lives"]
    shown = lives.Shown(lines=tuple(lines), tokens=9, standing=frozenset(standing))
    found = lives.judge(PERSON, PERSON["messages"][0], shown)
    assert {name: getattr(found, name) for name in expected} == expected


@requirement("memory:figures:lives")
async def test_a_life_is_stored_with_its_facts_and_every_message_is_asked_for_itself(
    modules: dict[str, ModuleType],
) -> None:
    found = await modules["lives"].live(PERSON, embedder=HashingEmbedder(), name="facts", thresholds=[0.1])
    assert set(found) == {"surfaced", "threshold 0.1", "first 5", "first 10", "ideal profile"}
    searched = modules["lives"].figures(found["first 5"])
    # Of five memories the fact that was replaced is not found; the turn that it comes from still is.
    assert (searched["needed"], searched["nothing"], searched["stale"], searched["of_stale"]) == (
        1.0,
        0.0,
        0,
        1,
    )
    assert modules["lives"].figures(found["ideal profile"])["needed"] == 1.0
    assert [one.kind for one in found["surfaced"]] == ["correction", "task"]


@requirement("memory:figures:table")
async def test_questions_are_asked_with_only_the_earlier_sessions_stored_and_scored_by_sessions(
    modules: dict[str, ModuleType], tmp_path: Path
) -> None:
    left_out = modules["left_out"]
    (row,) = await left_out.ask(
        left_out.scopes_of({"conversations": [EARLIER]}, "earlier")[0], embedder=HashingEmbedder()
    )
    # Session 3 is evidence too, and was not there yet: one of one is found, not one of two.
    assert row.figures["bm25"]["r@5"] == row.figures["recipe"]["r@5"] == 1.0
    names = [name for name, _ in left_out.variants(left_out.scopes_of({"conversations": [TALK]}, "talk"))]
    assert names == ["", "roles", "roles, renamed", "words alone"]
    renamed = dict(left_out.variants(left_out.scopes_of({"conversations": [TALK]}, "talk")))[
        "roles, renamed"
    ][0]
    assert renamed.questions[0].text == "What did the user buy, a canoe?"
    assert [entry["speaker"] for entry in renamed.entries] == ["user", "assistant", "user"]


def test_chinese_is_counted_by_pairs_of_characters(modules: dict[str, ModuleType]) -> None:
    assert modules["left_out"].words_of("我喜欢tea, 4月2日去") == [
        "我喜",
        "喜欢",
        "tea",
        "4",
        "月",
        "2",
        "日去",
    ]


def test_an_interval_over_conversations_is_wider_where_their_questions_are_alike(
    modules: dict[str, ModuleType],
) -> None:
    interval = modules["sets"].interval
    rows, clusters = [1.0] * 20 + [0.0] * 20, ["a"] * 20 + ["b"] * 20
    low, high = interval(rows)
    assert 0.3 < low < 0.5 < high < 0.7
    assert interval(rows, clusters) == (0.0, 1.0)
    assert interval(rows, ["a"] * 40) is None
    # A share weighs a message by what it needs: 9 of 10 and 0 of 1 are .82, and not .45.
    low, high = interval([9, 0] * 20, of=[10, 1] * 20)
    assert 0.6 < low < 9 / 11 < high < 0.9


class Counting(TokenEmbedder):
    """Gives each text a vector and two tokens, and counts the texts."""

    def __init__(self) -> None:
        self.texts = 0

    @property
    def info(self) -> EmbedderInfo:
        return EmbedderInfo(id="counting", dimension=2, max_tokens=9, threshold=0.5, token_dimension=2)

    async def embed(self, texts: Any, role: EmbedRole) -> Vectors:
        self.texts += len(texts)
        return np.tile(np.array([[1, 0]], np.float32), (len(texts), 1))

    async def embed_tokens(self, texts: Any, role: EmbedRole) -> tuple[Vectors, list[TokenVectors]]:
        vectors = await self.embed(texts, role)
        own = TokenVectors(vectors=np.eye(2, dtype=np.float32), spans=np.array([[0, 1], [1, 2]], np.int32))
        return vectors, [own] * len(texts)

    async def aclose(self) -> None:
        pass


async def test_a_second_run_embeds_nothing(modules: dict[str, ModuleType], tmp_path: Path) -> None:
    texts = ["one", "two"]
    for expected in (2, 0):
        inner = Counting()
        kept = modules["sets"].CachedEmbedder(inner, tmp_path)
        vectors, tokens = await kept.embed_tokens(texts, "document")
        assert vectors.tolist() == (await kept.embed(texts, "document")).tolist() == [[1, 0], [1, 0]]
        assert [one.vectors.tolist() for one in tokens] == [[[1, 0], [0, 1]]] * 2
        assert tokens[0].spans.tolist() == [[0, 1], [1, 2]]
        await kept.aclose()
        assert inner.texts == expected


@requirement("memory:figures:table")
def test_one_command_measures_every_set_and_its_page_shows_left_out_figures_only(tmp_path: Path) -> None:
    data = write_sets(tmp_path / "data")
    refit = tmp_path / "refit.py"
    refit.write_text(
        "from contextlib import nullcontext\nleft_out = lambda name, part: nullcontext()\n", encoding="utf-8"
    )

    def run(page: str, *arguments: str) -> str:
        command = [sys.executable, str(BENCHMARKS / "table.py"), str(data), "--embedder", "hash"]
        command += ["--results", str(tmp_path / page), "--page", str(tmp_path / f"{page}.md"), *arguments]
        subprocess.run(command, check=True, timeout=500, capture_output=True)
        return (tmp_path / f"{page}.md").read_text(encoding="utf-8")

    sets = ("talk", "earlier", "life-tiny/en", "life-tiny", "own_facts")
    page = run("shipped", "--only", *sets)
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    rows = {line.split(" | ")[0].lstrip("| ") for line in lines}
    assert {"talk", "talk, words alone", "earlier", "life-tiny/en"} <= rows
    assert {"turns only, surfaced", "with facts, first 5 (baseline)", "with facts, threshold 0.3"} <= rows
    # What was seen while the recipe was made is marked, and has figures with weights that the other sets choose.
    (own,) = (line for line in lines if line.startswith("| own_facts | constants | 145 | "))
    (talk,) = (line for line in lines if line.startswith("| talk | no | "))
    assert all(line.split(" | ")[4].count(" / ") == 3 for line in (own, talk))
    # An interrupted run goes on where it stopped: what is there is not measured again.
    (tmp_path / "shipped" / "search-talk.json").unlink()
    measured = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "shipped").glob("*.json")}
    assert run("shipped", "--only", *sets) == page
    again = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "shipped").glob("*.json")}
    assert {name: at for name, at in again.items() if name in measured} == measured
    assert again.keys() - measured.keys() == {"search-talk.json"}
    assert "| talk | no | 1 | " in run("refitted", "--only", "talk", "--refit", str(refit))


def test_weights_are_chosen_by_the_other_families_of_sets(modules: dict[str, ModuleType]) -> None:
    chosen = modules["chosen"]

    def asked(right: str) -> Any:
        """A question whose answer `right` finds, and the other of two signals doesn't."""
        signals = {
            name: np.array([float(name == right), float(name != right)]) for name in ("words", "match")
        }
        return chosen.Asked(
            parts=signals,
            gate=np.zeros(2),
            sittings=np.array([-1, -1]),
            rows=np.arange(2),
            units=("answer", "other"),
            evidence=("answer",),
        )

    found = chosen.left_out({"a-1": [asked("words")], "a-2": [asked("words")], "b": [asked("match")]})
    # Each family gets what serves the other one.
    assert found["a-1"]["weights"]["words"] < found["a-1"]["weights"]["match"]
    assert found["b"]["weights"]["words"] > found["b"]["weights"]["match"]
    assert found["a-2"]["figures"]["mrr"] == found["b"]["figures"]["mrr"] == 0.5
    assert chosen.left_out({"a-1": [asked("words")]}) == {}


@requirement("memory:distill:gate-figures")
async def test_what_distilling_finds_and_costs_is_measured_beside_notes_by_hand_and_published(
    modules: dict[str, ModuleType], tmp_path: Path
) -> None:
    """One life, with a model that answers by rules; the published figures are of a real one."""
    turns = [
        {"id": f"m{number}", "session": f"s{number}", "turn": 0, "speaker": "user", "text": text,
         "said_at": "2026-05-06T14:00:00+02:00"}
        for number, text in enumerate(["hi"] * 4 + ["I have a cat called Mimi."] + ["hi"] * 5)
    ]  # fmt: skip
    message = {"id": "q1", "at": "2026-06-01T09:00:00+02:00", "kind": "world", "text": "How deep is the sea?"}
    life = {
        "memories": turns,
        "facts": [{"text": "The user's cat is called Mimi.", "sources": ["m4"]}],
        "messages": [message],
    }
    (tmp_path / "one.json").write_text(json.dumps(life))

    def reply(request: ModelRequest) -> str:
        if request.system.startswith("You decide"):
            return json.dumps({"worth": "Mimi" in request.messages[0].text, "reason": ""})
        fact = {"content": "The user has a cat called Mimi.", "quote": "I have a cat called Mimi"}
        return json.dumps({"facts": [fact]})

    benchmark = modules["distilling"]
    reads = list(benchmark.conversations(tmp_path, ["one"]))
    for one in reads:
        await benchmark.read(one, ScriptedModel(reply))
    assert [(one.name, len(one.noted), one.gate_said_yes, one.found) for one in reads] == [
        ("one s4", 1, True, ["The user has a cat called Mimi."]),
        ("one s9", 0, True, []),
        ("one world", 0, True, []),
        ("log", 0, False, []),
    ]
    assert [[row[:2] for row in one.spent] for one in reads] == [
        # What is refused there, because nobody said it, is asked for once more.
        [("extract", 1)], [("extract", 2)], [("extract", 2)], [("gate", 3)]
    ]  # fmt: skip
    page = (BENCHMARKS.parent / "docs" / "decisions" / "0038-distilling.md").read_text(encoding="utf-8")
    for figure in ("gate right | 16 of 16", "16 right", "1 missed", "for 100 messages"):
        assert figure in page
