"""Histories against a model of them: whatever is edited, superseded and undone, in whatever order."""

from __future__ import annotations

import anyio
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from satchel.clock import ManualClock
from satchel.errors import UsageError
from satchel.memory import Memory

WORDS = st.sampled_from(["red", "green", "blue", "grey", "pink"])


class Histories(RuleBasedStateMachine):
    """Memories, what they say, and the changes that can be taken back."""

    ids = Bundle("ids")
    changes = Bundle("changes")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.portal_manager = start_blocking_portal()
        self.portal = self.portal_manager.__enter__()
        self.memory_manager = self.portal.wrap_async_context_manager(
            Memory.open(":memory:", embedder="none", clock=self.clock)
        )
        self.memory = self.memory_manager.__enter__()
        self.contents: dict[str, str] = {}
        self.steps: dict[str, list[tuple[str, object, object]]] = {}

    def teardown(self) -> None:
        self.memory_manager.__exit__(None, None, None)
        self.portal_manager.__exit__(None, None, None)

    @initialize()
    def begin(self) -> None:
        """Nothing is there."""

    @rule(target=ids, word=WORDS)
    def add(self, word: str) -> str:
        id: str = self.portal.call(self.memory.add, f"It is {word}")
        self.contents[id] = f"It is {word}"
        return id

    @rule(target=changes, id=ids, word=WORDS)
    def edit(self, id: str, word: str) -> tuple[str, str, str, str] | None:
        self.clock.advance(1)

        async def edit() -> str | None:
            return await self.memory.edit(id, content=f"It is {word}")

        before, after = self.contents[id], f"It is {word}"
        change = self.portal.call(edit)
        assert (change is None) == (before == after)
        self.contents[id] = after
        return None if change is None else (change, id, before, after)

    @rule(target=changes, change=changes)
    def undo(self, change: tuple[str, str, str, str] | None) -> tuple[str, str, str, str] | None:
        if change is None:
            return None
        name, id, before, after = change
        try:
            made = self.portal.call(self.memory.undo, name)
        except UsageError:
            assert self.contents[id] != after
            return None
        assert self.contents[id] == after
        self.contents[id] = before
        return (made, id, after, before)

    @rule(older=ids, newer=ids)
    def supersede_and_take_back(self, older: str, newer: str) -> None:
        async def both() -> None:
            before = (await self.memory.get(older)).valid_to
            try:
                change = await self.memory.supersede(older, newer)
            except UsageError:
                assert older == newer
                return
            assert change is not None
            assert (await self.memory.get(older)).valid_to is not None
            await self.memory.undo(change)
            assert (await self.memory.get(older)).valid_to == before
            assert await self.memory.edges(older) == ()

        self.portal.call(both)

    @invariant()
    def memories_say_what_the_model_says_and_histories_lead_there(self) -> None:
        async def check() -> None:
            with anyio.fail_after(60):
                for id, content in self.contents.items():
                    assert (await self.memory.get(id)).content == content
                    said = None
                    for change in await self.memory.history(id):
                        if "content" in change.after:
                            assert said is None or change.before["content"] == said
                            said = change.after["content"]
                    assert said == content

        self.portal.call(check)


Histories.TestCase.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestHistories = Histories.TestCase
