"""Which line of the user answers a question of a build: one rule for all interfaces."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from satchel.errors import NotFound, UsageError
from satchel.events import AskUser, BuildPosted
from satchel.runtime.build_news import BuildNews
from satchel.runtime.options import chosen_option

_YES_OR_NO: Final = frozenset(
    ("y", "yes", "n", "no", "ok", "okay", "sure", "allow", "deny", "never", "always")
)


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

    It does if it is one of the options of an open question, or if the question came after the user's last message and
    its build was not laid aside since.
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
    fitting = [each for each in before if option_of(text, each)] or [
        each for each in before if each.id in news.fresh
    ]
    if len({each.build_id for each in fitting}) > 1:
        names = " and ".join(each.capability for each in fitting)
        return Heard(note=f"{names} ask you. Say which one you mean: /answer NAME TEXT")
    if fitting:
        await session.answer(fitting[0].id, option_of(text, fitting[0]) or text, by=by)
        return Heard(answered=fitting[0])
    now = next((each for each in asked if each.id not in shown and _looks_like_answer(text, each)), None)
    if now is not None:
        options = f" ({', '.join(now.options)})" if now.options else ""
        return Heard(
            note=f"{now.capability} asks just now: {now.text}{options} If that is your answer, send it again."
        )
    if asked:
        return Heard(
            note="\n".join(
                f"{each.capability} still asks: {each.text} To answer: {_how(each, asked)}" for each in asked
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
    if news.asked and not news.went_on and _is_number(text):
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
    words = option_of(text, question) or text
    change = f"/capability change {question.capability} and what shall be different"
    if end.kind == "progress" and (not question.options or option_of(text, question)):
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


def option_of(text: str, question: BuildPosted) -> str:
    """The option of a question that a line names by its number or its words, or a plain yes or no; "" if it is none."""
    words = _plain(chosen_option(text, question.options))
    named = next((option for option in question.options if _plain(option) == words), "")
    if not named and question.options == ("yes", "no") and words in _YES_OR_NO:
        return words
    return named


def _plain(text: str) -> str:
    return text.strip().rstrip(".!").casefold()


def _looks_like_answer(text: str, question: BuildPosted) -> bool:
    return _plain(text) in _YES_OR_NO or _is_number(text) or bool(option_of(text, question))


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d{1,3}", _plain(text)) is not None


def _names_option(text: str, question: BuildPosted) -> bool:
    """Whether a line is an option in its words, which would hardly answer anything else."""
    words = _plain(text)
    return words not in _YES_OR_NO and words in map(_plain, question.options)


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
