"""The store as a whole against a plain model of it, through whatever order of calls, closings and reopenings."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.memory import Episode, Memory, Mode
from satchel.models.embedding import HashingEmbedder
from tests.requirements import requirement

WORDS = ("boat", "harbour", "lighthouse", "garden", "violin", "copper", "window", "saddle")

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), texts),
        st.tuples(st.just("say"), st.sampled_from(["s1", "s2"]), st.integers(1, 4), st.integers(0, 1), texts),
        st.tuples(st.just("forget"), st.integers(0, 50)),
        st.tuples(st.just("search"), st.sampled_from(WORDS)),
        st.tuples(st.just("reopen")),
        st.tuples(st.just("other"), texts),
    ),
    max_size=25,
)


@dataclass
class Model:
    """What should be there."""

    contents: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    forgotten_places: set[tuple[str, int, int]] = field(default_factory=set)
    forgotten_words: set[tuple[str, str]] = field(default_factory=set)


async def check(memory: Memory, model: Model) -> None:
    assert {found.id: found.content for found in await memory.list(limit=1000)} == model.contents


async def walk(path: Path, script: list[tuple[object, ...]]) -> None:
    model = Model()
    remaining = list(script)
    while True:
        async with (
            Memory.open(path, embedder=HashingEmbedder(), back_fill=False) as memory,
            Memory.open(path, embedder="none") as other,
        ):
            await check(memory, model)
            while remaining:
                match remaining.pop(0):
                    case ("add", str(text)):
                        model.contents[await memory.add(text)] = text
                    case ("other", str(text)):
                        model.contents[await other.add(text)] = text
                    case ("say", str(session), int(turn), int(position), str(text)):
                        place = (session, turn, position)
                        refused = place in model.forgotten_places or (session, text) in model.forgotten_words
                        ids = await memory.add_episodes(
                            [Episode(session=session, turn=turn, position=position, speaker="Ann", text=text)]
                        )
                        assert len(ids) == (0 if refused else 1)
                        for id in ids:
                            model.contents.setdefault(id, text)
                            model.places[id] = place
                    case ("forget", int(number)) if model.contents:
                        id = sorted(model.contents)[number % len(model.contents)]
                        receipt = await memory.forget(id)
                        assert [gone.id for gone in receipt.forgotten] == [id]
                        text = model.contents.pop(id)
                        if id in model.places:
                            model.forgotten_places.add(model.places[id])
                            model.forgotten_words.add((model.places[id][0], text))
                    case ("search", str(word)):
                        modes: tuple[Mode, ...] = ("lexical", "hybrid")
                        for mode in modes:
                            hits = await memory.search(word, limit=1000, mode=mode)
                            found = {hit.memory.id for hit in hits}
                            having = {id for id, text in model.contents.items() if word in text.split()}
                            # Neighbours of what has the word are found with it.
                            assert having <= found <= set(model.contents)
                            assert all(hit.memory.content == model.contents[hit.memory.id] for hit in hits)
                    case ("reopen",):
                        break
                    case _:
                        pass
            else:
                await check(other, model)
                return


@requirement("promise:forget:stays-forgotten")
@settings(max_examples=20)
@given(steps)
def test_whatever_is_done_the_store_holds_what_was_acknowledged_and_not_forgotten(
    script: list[tuple[object, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(walk, Path(folder) / "m.db", script)
