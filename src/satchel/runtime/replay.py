"""Restores a session's state from its log when the session is opened."""

from __future__ import annotations

import json
from typing import Final, assert_never

from satchel import events as kinds
from satchel.conversation import Conversation
from satchel.events import (
    BuildPosted,
    MemoryCaptured,
    MessageTakenBack,
    MessageWaiting,
    Observation,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    SessionBranched,
    SessionFiled,
    SessionStart,
    SessionTitled,
    TurnEnd,
    TurnStart,
    event_to_json,
)
from satchel.runtime.build_news import BuildNews
from satchel.spacing import FORGOTTEN
from satchel.tools.builtin.jobs import is_users, source_of

TITLE_TURNS: Final = 3
"""What a conversation is about is known by then; one that only greets keeps its first words."""
OWN = "own-"
"""What the ids of a session's own posts begin with."""


class Replay:
    """Visits the records of a log: `SessionStore.open` and `load` call it with each one, in order, in a worker thread.

    It keeps only what the session needs, so a large log does not fill the memory, and does not block the event loop.

    Attributes:
        questions: The questions and answers of the newest turn, while that turn is unfinished.
        posted: The posts that no message has delivered yet, by id.
        delivered: The ids of the other posts.
        waiting: The messages in line, by id, in their order.
        builds: What is known of the builds that the session asked for.
        jobs: The numbers of background commands of which nothing says that they have ended.
        newest_job: The highest number of one.
        project: The id of the project that it belongs to, or "".
        is_private: Whether nothing that is said in it becomes memory, now or later.
        is_titled: Whether it has a title, of the user or of a model, or needs none.
        is_redacted: Whether something that was said in the turns of which a model makes a title was forgotten.
        last_kept: Whether the newest turn is captured as memory: one that is not is marked as captured at its start.
    """

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.questions: list[QuestionAsked | QuestionAnswered] = []
        self.posted: dict[str, Posted] = {}
        self.delivered: set[str] = set()
        self.waiting: dict[str, MessageWaiting] = {}
        self.builds = BuildNews()
        self.jobs: set[int] = set()
        self.newest_job = 0
        self.project = ""
        self.is_private = False
        self.branch_turn = 0
        self.is_titled = False
        self.is_redacted = False
        self.last_kept = True

    def __call__(self, record: Record) -> None:
        """Take the next record."""
        self.conversation.take(record)
        if not self.is_redacted and self.conversation.turns <= TITLE_TURNS:
            self.is_redacted = FORGOTTEN in json.dumps(event_to_json(record.event), default=str)
        match event := record.event:
            case MemoryCaptured(ids=ids):
                self.last_kept = bool(ids)
                self.is_titled = self.is_titled or not ids
            case TurnStart():
                self.last_kept = True
                self.questions.clear()
                self.builds.begin_turn(event.message.text)
                for id in event.inbox:
                    self.posted.pop(id, None)
                    self.waiting.pop(id, None)
                    self.delivered.add(id)
            case TurnEnd():
                self.questions.clear()
            case QuestionAsked() | QuestionAnswered():
                self.questions.append(event)
            case Posted():
                self.posted[event.id] = event
                self.jobs -= {number for number in self.jobs if event.source == source_of(number)}
            case MessageWaiting():
                self.waiting[event.id] = event
            case MessageTakenBack(id=id):
                self.waiting.pop(id, None)
            case Observation(data={"status": "building", "build_id": str(build_id)}):
                self.builds.ask(build_id)
            case BuildPosted():
                self.builds.take(event)
            case Observation(call_id=call_id, data={"job": int(number), "running": bool(is_running)}):
                self.newest_job = max(self.newest_job, number)
                self.jobs = self.jobs | {number} if is_running else self.jobs - {number}
                if not is_running and not is_users(call_id):  # the model has read how it ended
                    told = source_of(number)
                    self.posted = {
                        id: post
                        for id, post in self.posted.items()
                        if post.source != told or not id.startswith(OWN)
                    }
            case SessionStart(private=private, project=project):
                self.is_private = self.is_private or private
                self.project = self.project or project
            case SessionFiled(project=str(project)):
                self.project = project
            # A model would give a branch the name of the other session; its first own words tell them apart.
            case SessionBranched(turn=turn):
                self.branch_turn, self.is_titled = turn, True
            case SessionTitled():
                self.is_titled = True
            case (
                Observation() | SessionFiled() | kinds.TurnResumed() | kinds.ContextAdded() | kinds.MemorySurfaced()
                | kinds.Assistant() | kinds.Permission() | kinds.Action() | kinds.RoundObserved() | kinds.AskUser()
                | kinds.Compaction() | kinds.ModelCalled() | kinds.SubAgentEvent() | kinds.Notice() | kinds.Failure()
                | kinds.Final() | kinds.SessionEnd() | kinds.Transient()
            ):  # fmt: skip
                pass
            case _:
                assert_never(event)
