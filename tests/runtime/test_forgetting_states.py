"""Forgetting against everything else: in any order, with running sessions, nothing of what was forgotten is left.

Every statement carries a marker that stands nowhere else, so that a search through all files of the home, the pages of
the database that are free and its log included, tells whether a byte of it stayed.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from satchel.errors import UsageError
from satchel.models import FunctionModel, ModelRequest
from tests.requirements import requirement
from tests.runtime.world import opened

MARKER = re.compile(r"marker[0-9]{4}")
STATEMENT = re.compile(r"My (?:locker|garden|bicycle) code is marker[0-9]{4}, noted in May\.")
PLACES = ("locker", "garden", "bicycle")


def chat(request: ModelRequest) -> str:
    """Repeats every statement that it was shown, as a model may; as a distiller, draws a fact from each."""
    said = "\n".join(message.text for message in request.messages)
    found = list(dict.fromkeys(STATEMENT.findall(said)))
    if request.system.startswith("You decide"):
        return json.dumps({"worth": True, "reason": "a code"})
    if "quote" in request.system and "facts" in request.system:
        facts = [{"content": f"The user has {MARKER.findall(text)[0]}.", "quote": text} for text in found]
        return json.dumps({"facts": facts})
    return f"You told me: {' '.join(found)}" if found else "Noted."


class Forgetting(RuleBasedStateMachine):
    """A home with two sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="satchel-forgetting-"))
        self.outside = Path(tempfile.mkdtemp(prefix="satchel-exports-"))
        self.portal_manager = start_blocking_portal()
        self.portal = self.portal_manager.__enter__()
        self.requests: list[ModelRequest] = []
        self.said: list[str] = []
        self.gone: set[str] = set()
        self.ids: list[str] = []
        self.open()
        for session in self.sessions:
            self.call(session.run_turn, "Hello.")

    def open(self) -> None:
        def answer(request: ModelRequest) -> str:
            self.requests.append(request)
            return chat(request)

        self.model = FunctionModel(answer)
        self.manager = self.portal.wrap_async_context_manager(opened(self.folder, self.model))
        self.satchel: Any = self.manager.__enter__()
        wanted: list[str | None] = [*self.ids] or [None, None]
        self.sessions = [self.portal.call(self.satchel.session, id) for id in wanted]
        self.ids = [session.id for session in self.sessions]

    def teardown(self) -> None:
        self.manager.__exit__(None, None, None)
        self.portal_manager.__exit__(None, None, None)
        shutil.rmtree(self.folder)
        shutil.rmtree(self.outside)

    def call(self, function: Any, *args: Any, **options: Any) -> Any:
        return self.portal.call(lambda: function(*args, **options))

    def new_statement(self, place: str) -> str:
        text = f"My {place} code is marker{1000 + len(self.said)}, noted in May."
        self.said.append(text)
        return text

    @rule(place=st.sampled_from(PLACES), at=st.integers(0, 1))
    def say(self, place: str, at: int) -> None:
        self.call(self.sessions[at].run_turn, self.new_statement(place))

    @rule(place=st.sampled_from(PLACES))
    def note(self, place: str) -> None:
        self.call(self.satchel.memory.add, self.new_statement(place), tags=[place])

    @precondition(lambda self: self.said)
    @rule(data=st.data(), at=st.integers(0, 1))
    def restate(self, data: st.DataObject, at: int) -> None:
        text = data.draw(st.sampled_from(self.said))
        self.gone.discard(MARKER.findall(text)[0])
        self.call(self.sessions[at].run_turn, f"As I said: {text}")

    @rule(place=st.sampled_from(PLACES), at=st.integers(0, 1))
    def ask(self, place: str, at: int) -> None:
        """Surfaces what fits, and the model repeats it."""
        self.call(self.sessions[at].run_turn, f"What is my {place} code?")

    @rule()
    def distil(self) -> None:
        self.call(self.satchel.memory.distill, model=self.model)

    @rule(data=st.data())
    def supersede(self, data: st.DataObject) -> None:
        ids = [memory.id for memory in self.call(self.satchel.memory.list)]
        if len(ids) > 1:
            older, newer = data.draw(st.permutations(ids))[:2]
            with suppress(UsageError):  # the other way round already
                self.call(self.satchel.memory.supersede, older, newer)

    @rule(data=st.data())
    def edit(self, data: st.DataObject) -> None:
        kept = [memory for memory in self.call(self.satchel.memory.list) if MARKER.search(memory.content)]
        if kept:
            memory = data.draw(st.sampled_from(kept))
            self.call(
                self.satchel.memory.edit, memory.id, content=f"{memory.content} Checked.", why=memory.content
            )

    @rule(at=st.integers(0, 1))
    def compact(self, at: int) -> None:
        self.call(self.sessions[at].compact)

    @rule()
    def restart(self) -> None:
        self.manager.__exit__(None, None, None)
        self.open()

    @rule()
    def export(self) -> None:
        self.call(self.satchel.memory.export_to, self.outside / f"{len(list(self.outside.iterdir()))}.jsonl")

    def forgotten(self) -> None:
        """Whatever no memory holds any more was forgotten."""
        kept = {
            marker
            for memory in self.call(self.satchel.memory.list, limit=1000)
            for marker in markers_of(memory)
        }
        self.gone |= {MARKER.findall(text)[0] for text in self.said} - kept
        self.requests.clear()

    @rule(data=st.data())
    def forget_by_id(self, data: st.DataObject) -> None:
        ids = [memory.id for memory in self.call(self.satchel.memory.list)]
        if ids:
            self.call(self.satchel.forget, [data.draw(st.sampled_from(ids))])
            self.forgotten()

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def forget_by_query(self, data: st.DataObject) -> None:
        marker = MARKER.findall(data.draw(st.sampled_from(self.said)))[0]
        self.call(self.satchel.forget, query=marker)
        self.forgotten()
        assert marker in self.gone

    @rule(at=st.integers(0, 1))
    def forget_a_session(self, at: int) -> None:
        self.call(self.satchel.forget, session=self.ids[at])
        self.forgotten()

    @rule()
    def forget_everything(self) -> None:
        self.call(self.satchel.forget, scope="default")
        self.forgotten()
        assert self.gone == {MARKER.findall(text)[0] for text in self.said}

    @invariant()
    def nothing_of_it_is_left(self) -> None:
        if not self.gone:
            return
        assert [r for r in self.requests if self.gone & set(MARKER.findall(str(r)))] == []
        for memory in self.call(self.satchel.memory.list, limit=1000):
            assert not self.gone & set(markers_of(memory))
            assert not self.gone & set(MARKER.findall(str(self.call(self.satchel.memory.history, memory.id))))
        for file in (self.folder / "home").rglob("*"):
            if file.is_file() and not file.is_symlink():
                held = file.read_bytes()
                for marker in self.gone:
                    plain = marker.encode()
                    for form in (plain, plain.hex().encode(), marker.encode("utf-16-le")):
                        assert form not in held, (marker, file)


def markers_of(memory: Any) -> list[str]:
    return MARKER.findall(f"{memory.content} {memory.source.quote}")


Forgetting.TestCase.settings = settings(
    max_examples=6,
    stateful_step_count=12,
    deadline=None,
    # Shrinking a failure takes minutes; the steps that led to it are printed as they were.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@requirement("memory:forget:any-order")
class TestForgetting(Forgetting.TestCase):  # type: ignore[misc, valid-type]
    """The machine, as a test."""
