"""Spheres of a life: what belongs to another one than the message is not shown, and an agent gets what it was granted."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.memory import Memory, Page
from satchel.memory.toolset import MemoryTools
from satchel.models import ScriptedModel
from tests.memory.test_toolset import call
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

GIFT = "Which gift should I bring to the dinner with Mara?"


async def shown(memory: Memory, message: str, **more: object) -> list[str]:
    found = await memory.surface(message, threshold=0.0, **more)  # type: ignore[arg-type]
    return sorted(hit.memory.content for hit in found.memories)


@requirement("memory:spheres:closed")
async def test_a_memory_is_shown_only_if_the_message_opens_all_its_spheres_and_the_reason_is_told() -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(), back_fill=False) as memory:
        both = await memory.add("The dinner with Mara is paid by her debts.", spheres=["family", "money"])
        await memory.add("Mara likes tulips at dinner.", spheres=["family"])
        await memory.add("Dinner is at eight.")
        assert await shown(memory, GIFT, spheres=["family"]) == [
            "Dinner is at eight.",
            "Mara likes tulips at dinner.",
        ]
        assert len(await shown(memory, GIFT, spheres=["family", "money"])) == 3
        # Nobody said what the message is about, and nothing can tell: everything may be shown.
        assert len(await shown(memory, GIFT)) == 3
        recalled = await memory.recall(GIFT, threshold=0.0, spheres=["family"])
        assert [why for hit, why in recalled.left_out if hit.memory.id == both] == [
            "belongs to money, which the message is not about"
        ]
        await memory.edit(both, spheres=["family"])
        assert len(await shown(memory, GIFT, spheres=["family"])) == 3
        # What is asked for is found whatever it belongs to.
        assert len(await memory.search("dinner")) == 3


@requirement("memory:spheres:persons")
async def test_what_is_about_a_person_alone_is_shown_where_that_person_is_named() -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(), back_fill=False) as memory:
        await memory.add("Mara Lind likes tulips as a gift.", spheres=["person:Mara Lind"])
        assert await shown(memory, "Which gift does mara lind like?", spheres=["leisure"]) != []
        assert await shown(memory, "Which gift does Ben like?", spheres=["leisure"]) == []


@requirement("memory:spheres:likeness")
async def test_what_a_message_opens_is_judged_by_likeness_to_statements_of_the_table(
    minilm_home: Path,
) -> None:
    async with Memory.open(":memory:", home=minilm_home, clock=ManualClock(), back_fill=False) as memory:
        said = await memory.add("My brother pays his landlord for the prayer room.", spheres=["belief"])
        await memory.add("My brother pays his landlord for the garage.")
        message = "Can my brother sue his landlord about the invoice?"
        recalled = await memory.recall(message, threshold=0.0)
        why = "belongs to belief, which the message is not about"
        assert [reason for hit, reason in recalled.left_out if hit.memory.id == said] == [why]
        # A memory that nobody gave a sphere stays.
        assert [hit.memory.content for hit in recalled.context.memories] == [
            "My brother pays his landlord for the garage."
        ]


@requirement("memory:spheres:granted")
async def test_an_agent_gets_what_it_was_granted_and_nothing_without_a_sphere() -> None:
    async with Memory.open(":memory:", embedder="none", clock=ManualClock(), back_fill=False) as memory:
        await memory.add("I am allergic to latex gloves.", spheres=["health"])
        await memory.add("I work with latex at Novatek.", spheres=["work"])
        await memory.add("I work and am allergic to latex there.", spheres=["work", "health"])
        await memory.add("I bought latex paint.")
        assert len(await shown(memory, "What about latex?")) == 4
        assert await shown(memory, "What about latex?", granted=["work"]) == ["I work with latex at Novatek."]
        profile = await memory.standing(granted=["work"])
        await memory.distill(model=ScriptedModel([]))
        standing = await memory.standing(granted=["work"])
        assert isinstance(standing, Page)
        for one in (profile, standing):
            assert [line.words for line in one.memories] == ["I work with latex at Novatek."]
        assert {why for _, why in standing.left_out} == {"is of no sphere that was granted"}
        tools = MemoryTools(memory, granted=["work"])
        for name in ("recall_memory", "forget_memory"):
            text = (await call(tools, name, {"query": "latex"})).text
            assert ("Novatek" in text, "allergic" in text, "paint" in text) == (True, False, False)
        assert (await call(tools, "deep_memory", {"query": "latex"})).is_error
