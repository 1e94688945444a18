"""Which line of the user answers a question of a build: one rule for all interfaces."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from satchel.errors import NotFound, UsageError
from satchel.events import AskUser, BuildPosted
from satchel.runtime.build_news import BuildNews
from satchel.runtime.options import option_of
from satchel.wording import yes_or_no


class AskedSession(Protocol):
    """What this needs of a session, local or shared; `Session` documents the members."""

    @property
    def pending_question(self) -> AskUser | None: ...  # noqa: D102
    @property
    def build_news(self) -> BuildNews: ...  # noqa: D102
    async def catch_up(self) -> None: ...  # noqa: D102
    async def answer(self, id: str, text: str | None = None, *, by: str = "") -> object: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What became of a line.

    Attributes:
        answered: The question that it answered, or None.
        note: What the user is told beside that, or "".
        is_message: It goes to the model.
    """

    answered: BuildPosted | None = None
    note: str = ""
    is_message: bool = False


async def hear_line(session: AskedSession, text: str, *, by: str) -> Heard:
    """Hand a line to the build that it answers, if it answers one.

    It does if it names an option of an open question: its number, its words, or a plain yes or no. A question without
    options is answered by anything, if it came after the user's last message and its build was not laid aside since.
    What is neither goes to the model, decides nothing, and the question is shown once more.
    Where it fits the questions of several builds, nobody gets it. A line that looks like the answer to a question that
    was settled since then, or that is asked at this very moment and was not shown before, is no message, either; nor is
    a number alone while a build is at work that the conversation asked for, since it may have come too early.

    Args:
        session: In which it was typed.
        text: The line.
        by: The name of this client.

    Raises:
        NotFound, UsageError: The question was settled at the same moment.
        StorageError: The answer could not be stored.
    """
    if session.pending_question is not None:
        return Heard(is_message=True)
    shown = set(session.build_news.questions)
    await session.catch_up()
    news = session.build_news
    asked = tuple(news.questions.values())
    before = [each for each in asked if each.id in shown]
    fitting = [each for each in before if option_of(text, each.options)] or [
        each for each in before if each.id in news.fresh and not each.options
    ]
    if len({each.build_id for each in fitting}) > 1:
        names = " and ".join(each.capability for each in fitting)
        return Heard(note=f"{names} ask you. Say which one you mean: /answer NAME TEXT")
    if fitting:
        await session.answer(fitting[0].id, text, by=by)
        return Heard(answered=fitting[0])
    now = next((each for each in asked if each.id not in shown and _looks_like_answer(text, each)), None)
    if now is not None:
        return Heard(
            note=f"{now.capability} asks just now: {_shown(now)} If that is your answer, send it again."
        )
    if asked:
        return Heard(
            note="\n".join(
                f"{each.capability} still asks: {_shown(each)} To answer: {_how(each, asked)}"
                for each in asked
                if each.id in news.to_repeat
            ),
            is_message=True,
        )
    settled = next(
        (
            (question, end)
            for question, end in reversed(news.settled)
            if _looks_like_answer(text, question) and (not news.went_on or _names_option(text, question))
        ),
        None,
    )
    if settled is not None:
        return await hear_late(session, text, *settled, by=by)
    if news.under_way and _is_number(text):
        return Heard(
            note="What is being built has not asked you anything yet. If it does, you are shown the question. If you "
            "meant something else, say it in more words."
        )
    return Heard(is_message=True)


async def hear_late(
    session: AskedSession, text: str, question: BuildPosted, end: BuildPosted, *, by: str
) -> Heard:
    """Take an answer to a question that is settled: the Builder gets it if it went on without one and is still at work.

    Args:
        session: In which it was typed.
        text: The answer.
        question: What was asked.
        end: What settled it.
        by: The name of this client.
    """
    words = option_of(text, question.options) or text
    change = f"/capability change {question.capability} and what shall be different"
    if end.kind == "progress" and (not question.options or option_of(text, question.options)):
        with suppress(NotFound, UsageError):  # its build has ended
            await session.answer(question.id, words, by=by)
            return Heard(
                answered=question,
                note=f"The Builder of {question.capability} went on without it, and is told now: {words}. If that is "
                f"too late: {change}.",
            )
    ways = "" if end.kind == "error" else f" To have it changed: {change}."
    return Heard(
        note=f"{_what_became(question, end)}{ways} If you meant something else, say it in more words."
    )


def _looks_like_answer(text: str, question: BuildPosted) -> bool:
    return yes_or_no(text) is not None or _is_number(text) or bool(option_of(text, question.options))


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d{1,3}[.!]?", text.strip()) is not None


def _names_option(text: str, question: BuildPosted) -> bool:
    """Whether a line is an option in its words, which would hardly answer anything else."""
    return yes_or_no(text) is None and not _is_number(text) and bool(option_of(text, question.options))


def _shown(question: BuildPosted) -> str:
    return f"{question.text} ({', '.join(question.options)})" if question.options else question.text


def _how(question: BuildPosted, asked: tuple[BuildPosted, ...]) -> str:
    alone = len({each.build_id for each in asked}) == 1
    return "/answer TEXT" if alone else f"/answer {question.capability} TEXT"


def _what_became(question: BuildPosted, end: BuildPosted) -> str:
    match end.kind:
        case "answer":
            words = f"was answered: “{end.text}”." if end.text else "was left to the Builder."
            return f"“{question.text}” {words}"
        case "progress":
            return f"“{question.text}” is settled: {end.text}"
        case "complete" | "error" | "question":
            return f"The build of {question.capability}, which asked “{question.text}”, has ended."
