"""Builds and their messages in the database, which is what the processes that ask, build and answer have in common."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    update,
)

from satchel.builder.records import (
    ADDED,
    DECLINED,
    EARNED,
    ENDED,
    Build,
    BuildMessage,
    BuildStatus,
    Direction,
    MessageType,
)
from satchel.builder.tables import build_messages, builds
from satchel.clock import Clock
from satchel.errors import NotFound, UsageError
from satchel.plain import storable
from satchel.storage import Database, Prepared

if TYPE_CHECKING:
    from satchel.capabilities.kept import Seal

_R = TypeVar("_R", Build, BuildMessage)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_TEXT = 20_000
"""Characters of one message: as many as an entry of a session's inbox may have."""
_MOST_MESSAGES = 1000
"""Messages of one build. A build has 25 rounds; only a Builder that reports in a loop reaches this."""

_WISH = "wish:"
"""What the ids of messages begin with that add to the task of a build while it is at work."""
_ANSWER, _GAVE_UP = "answer:", "gave-up:"
"""What the ids of the messages that close a question begin with; the question's id follows."""

_question, _closing = build_messages.alias("question"), build_messages.alias("closing")
_ASKS = (_question.c.type == literal_column("'question'")) & ~exists().where(
    _closing.c.build_id == _question.c.build_id,
    or_(
        *(_closing.c.id == literal_column(f"'{mark}'").concat(_question.c.id) for mark in (_ANSWER, _GAVE_UP))
    ),
)
_BUILD = select(
    builds,
    exists().where(_question.c.build_id == builds.c.id, _ASKS).label("asks"),
)
"""A build that was laid aside is in the queue, with an open question."""
_BUILDS = _BUILD.where(builds.c.user_id == bindparam("user")).order_by(builds.c.created_at, builds.c.id)
_OF_CAPABILITY = Prepared(_BUILDS.where(builds.c.capability_id == bindparam("capability")))
_OPEN = Prepared(_BUILDS.where(builds.c.status.not_in(map(literal, sorted(ENDED)))))
_MESSAGES = (
    select(build_messages, builds.c.name)
    .join(builds, builds.c.id == build_messages.c.build_id)
    .where(builds.c.user_id == bindparam("user"), build_messages.c.number > bindparam("after"))
    .order_by(build_messages.c.number)
)
_OF_BUILD = Prepared(_MESSAGES.where(build_messages.c.build_id == bindparam("build")))
_OF_SESSION = Prepared(_MESSAGES.where(builds.c.asked_by == bindparam("session")))
_NEWEST = Prepared(select(func.coalesce(func.max(build_messages.c.number), 0)))


class BuildQueue:
    """The builds of one user.

    Every method is one transaction. Times are the given clock's. All methods raise `StorageError` if the database is
    unusable.
    """

    def __init__(self, database: Database, *, clock: Clock, user_id: str, seal: Seal | None = None) -> None:
        """Take a seal with the home's key where the database is a server: there others may write answers, too."""
        self._database = database.of(user_id)
        self._clock = clock
        self._user = user_id
        self._seal = seal

    # Builds

    async def add(self, build: Build, *, question: Mapping[str, Any] | None = None) -> Build:
        """Store a new build. If there is one with its id already, that one is returned and nothing changes.

        Args:
            build: It is "queued".
            question: What the user is asked first (`EARNED`); it waits for the answer.
        """

        def write(connection: Connection) -> Build:
            found = _find(connection, build.id, self._user)
            if found is not None:
                return found
            connection.execute(insert(builds).values(_row(build, self._user)))
            if question is not None:
                self._insert(connection, build.id, EARNED, "to_user", "question", question)
            return build

        return await self._database.write(write, durable=True)

    async def get(self, build_id: str) -> Build:
        """A build by its id.

        Raises:
            NotFound: There is none.
        """
        return await self._database.read(lambda connection: self._get(connection, build_id))

    async def of_capability(self, capability_id: str) -> tuple[Build, ...]:
        """The builds of one capability, oldest first."""
        values = {"user": self._user, "capability": capability_id}
        rows = await self._database.read(lambda connection: _OF_CAPABILITY.named(connection, values))
        return tuple(_build(row) for row in rows)

    async def proposal(self, build_id: str) -> Mapping[str, Any]:
        """The payload of the question with which a build was proposed; {} if it was asked for."""
        asked = await self.message(build_id, EARNED)
        return {} if asked is None else asked.payload

    async def was_declined(self, name: str) -> bool:
        """Whether the user has said no to a proposal of this name."""
        same = (builds.c.user_id == self._user) & (builds.c.name == name) & (builds.c.outcome == DECLINED)
        return await self._database.read(lambda c: c.scalar(select(exists().where(same)))) is True

    async def open_builds(self) -> tuple[Build, ...]:
        """The builds that have not ended, oldest first."""
        rows = await self._database.read(lambda connection: _OPEN.named(connection, {"user": self._user}))
        return tuple(_build(row) for row in rows)

    async def adopt(self, build_id: str, session_id: str) -> None:
        """Have a build tell a session, if no session asked for it so far."""
        mine = (builds.c.id == build_id) & (builds.c.user_id == self._user) & (builds.c.asked_by == "")
        change = update(builds).where(mine).values(asked_by=session_id)
        await self._database.write(lambda connection: connection.execute(change))

    async def begin(self, build_id: str) -> Build:
        """Note that a process begins or continues a build. A build that has ended is returned as it is.

        Raises:
            NotFound: There is none.
        """

        def write(connection: Connection) -> Build:
            begun = {"status": "running", "attempts": builds.c.attempts + 1}
            self._change(connection, build_id, builds.c.status.not_in(ENDED), **begun)
            return self._get(connection, build_id)

        return await self._database.write(write)

    async def lay_aside(self, build_id: str) -> Build:
        """Let a build wait for the answers to its open questions without a process, and tell the user so.

        Returns:
            The build: "waiting", or "queued" if the answers have come meanwhile.

        Raises:
            NotFound: There is none.
        """

        def write(connection: Connection) -> Build:
            self._change(connection, build_id, builds.c.status == "running", status="queued")
            build = self._get(connection, build_id)
            if build.status == "waiting":
                asked = select(_question.c.payload).where(_question.c.build_id == build_id, _ASKS)
                questions = connection.execute(asked.order_by(_question.c.number)).scalars()
                text = (
                    "It waits for your answer, now or later (/answer TEXT, or satchel capability answer "
                    f"{build.name} TEXT): " + " ".join(json.loads(payload)["text"] for payload in questions)
                )
                # Once for each time: how often it was begun tells them apart.
                id, payload = f"waits:{build.attempts}", {"text": text, "status": build.status}
                self._insert(connection, build_id, id, "to_user", "progress", payload)
            return build

        return await self._database.write(write, durable=True)

    async def end(
        self,
        build_id: str,
        status: BuildStatus,
        text: str,
        *,
        is_own: bool = False,
        heard: Collection[str] = (),
    ) -> Build:
        """End a build, and tell the user in the same transaction. The first end holds; a second changes nothing.

        Args:
            build_id: Of the build.
            status: "active", "proposed" or "failed".
            text: What came of it.
            is_own: The outcome can't quote what others wrote.
            heard: The ids of the wishes that are in what was registered.
        """

        def write(connection: Connection) -> Build:
            outcome = text[:_MOST_TEXT]
            is_open = builds.c.status.not_in(ENDED)
            late = [f"“{wish}”" for id, wish in _wishes(connection, build_id).items() if id not in heard]
            if status != "failed" and late:
                outcome += f" It came too late, and is not in it: {' '.join(late)} Ask for it as a change."
            if self._change(connection, build_id, is_open, status=status, outcome=storable(outcome)):
                payload = {"text": outcome, "status": status, "is_own": is_own}
                type: MessageType = "error" if status == "failed" else "complete"
                self._insert(connection, build_id, "end", "to_user", type, payload)
            return self._get(connection, build_id)

        return await self._database.write(write, durable=True)

    # Messages

    async def tell(
        self,
        build_id: str,
        *,
        id: str,
        type: MessageType,
        payload: Mapping[str, Any],
        direction: Direction = "to_user",
    ) -> BuildMessage:
        """Store a message and return it. One with the id of an earlier message is not stored again.

        Raises:
            UsageError: The build has too many messages.
        """
        return await self._database.write(
            lambda connection: self._insert(connection, build_id, id, direction, type, payload), durable=True
        )

    async def answer(self, build_id: str, question_id: str, text: str | None, *, by: str) -> BuildMessage:
        """Store the user's answer to a question. The first answer holds.

        An answer that comes after the Builder has stopped waiting reaches it as well, as long as the build goes on.

        Args:
            build_id: Of the build.
            question_id: The id of the question's message.
            text: None declines.
            by: The client, such as "terminal".

        Raises:
            NotFound: There is no such question.
            UsageError: It has an answer, or the build has ended.
        """

        def write(connection: Connection) -> BuildMessage:
            question = _message_by_id(connection, build_id, question_id)
            build = _find(connection, build_id, self._user)
            if build is None or question is None or question.type != "question":
                raise NotFound(f"The build {build_id} has no question {question_id!r}.")
            earlier = _message_by_id(connection, build_id, _answer_id(question_id))
            if earlier is not None:
                by_whom, words = earlier.payload.get("by"), earlier.payload.get("text")
                raise UsageError(
                    f"“{question.text}” has been answered already{f' by {by_whom}' if by_whom else ''}: "
                    + ("it was left to the Builder." if words is None else f"“{words}”.")
                )
            if build.has_ended:
                raise UsageError(
                    f"The build of {build.name} has ended ({build.status}), so it can't take an answer. "
                    f"To have it changed: satchel capability repair {build.name}"
                )
            given = None if text is None else text[:_MOST_TEXT]
            payload = {"question_id": question_id, "text": given, "by": by}
            if self._seal is not None:
                payload["proof"] = self._seal.signed(_agreed(question, given), of="answer").split()[0]
            id = _answer_id(question_id)
            return self._insert(connection, build_id, id, "to_builder", "answer", payload)

        return await self._database.write(write, durable=True)

    async def add_wish(self, build_id: str, wish: str) -> None:
        """Add to the task of a build. Its Builder is told with the next result; if it registers before that, its end
        tells the user what is not in it. The same wish is not added twice.

        Raises:
            NotFound: There is no such build.
            UsageError: It has ended.
        """
        wish = wish.strip()[:_MOST_TEXT]

        def write(connection: Connection) -> None:
            build = self._get(connection, build_id)
            if build.has_ended:
                raise UsageError(
                    f"The build of {build.name} had just ended ({build.status}), so this is not in it: {wish}"
                )
            before = _wishes(connection, build_id)
            if wish and f"\n{wish}\n" not in f"\n{build.task}\n" and wish not in before.values():
                id, payload = f"{_WISH}{len(before) + 1}", {"text": f"{ADDED}{wish}"}
                self._insert(connection, build_id, id, "to_builder", "progress", payload)

        await self._database.write(write, durable=True)

    async def wishes(self, build_id: str) -> set[str]:
        """The ids of what was added to the task of a build."""
        return set(await self._database.read(lambda connection: _wishes(connection, build_id)))

    async def answer_to(self, build_id: str, question_id: str) -> BuildMessage | None:
        """The answer to a question, or None. With a seal, one without its proof is removed, and the question is open
        again.
        """
        answer = await self.message(build_id, _answer_id(question_id))
        if answer is None or self._seal is None:
            return answer
        if (question := await self.message(build_id, question_id)) is not None:
            said = _agreed(question, answer.payload.get("text"))
            if self._seal.proven(f"{answer.payload.get('proof')} {said}", of="answer"):
                return answer
        forged = delete(build_messages).where(build_messages.c.number == answer.number)
        await self._database.write(lambda connection: connection.execute(forged))
        return None

    async def message(self, build_id: str, id: str) -> BuildMessage | None:
        """A message by its id, or None."""
        return await self._database.read(lambda connection: _message_by_id(connection, build_id, id))

    async def give_up(self, build_id: str, question_id: str, text: str) -> BuildMessage | None:
        """Note that the Builder stops waiting for an answer, and tell the user so; unless the answer is there.

        Returns:
            The answer that came at the last moment, or None.
        """

        def write(connection: Connection) -> BuildMessage | None:
            answer = _message_by_id(connection, build_id, _answer_id(question_id))
            if answer is None:
                payload = {"text": text, "question_id": question_id}
                self._insert(connection, build_id, _gave_up_id(question_id), "to_user", "progress", payload)
            return answer

        return await self._database.write(write, durable=True)

    async def messages(self, build_id: str, *, after: int = 0) -> tuple[BuildMessage, ...]:
        """The messages of one build with numbers above `after`, in order."""
        return await self._read_messages(_OF_BUILD, {"build": build_id}, after=after)

    async def messages_for(self, session_id: str, *, after: int = 0) -> tuple[BuildMessage, ...]:
        """The messages of all builds that a session asked for, with numbers above `after`, in order."""
        return await self._read_messages(_OF_SESSION, {"session": session_id}, after=after)

    async def _read_messages(
        self, query: Prepared, whose: Mapping[str, str], *, after: int
    ) -> tuple[BuildMessage, ...]:
        values = {"user": self._user, "after": after, **whose}
        rows = await self._database.read(lambda connection: query.named(connection, values))
        return tuple(_message(row) for row in rows)

    async def open_questions(self, *, asked_by: str | None = None) -> tuple[BuildMessage, ...]:
        """The questions that wait for an answer, oldest first, of all builds or of those that one session asked for."""
        query = (
            select(_question, builds.c.name)
            .join(builds, builds.c.id == _question.c.build_id)
            .where(builds.c.user_id == self._user, builds.c.status.not_in(ENDED), _ASKS)
            .where(*([] if asked_by is None else [builds.c.asked_by == asked_by]))
            .order_by(_question.c.number)
        )
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return tuple(_message(row) for row in rows)

    async def untold(self) -> tuple[BuildMessage, ...]:
        """What builds that were proposed, so that no session asked for them, have for the user and nobody has read."""
        query = (
            select(build_messages, builds.c.name)
            .join(builds, builds.c.id == build_messages.c.build_id)
            .where(builds.c.user_id == self._user, builds.c.id.startswith(EARNED), builds.c.asked_by == "")
            .where(build_messages.c.direction == "to_user", build_messages.c.read == 0)
            .order_by(build_messages.c.number)
        )
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return tuple(_message(row) for row in rows)

    async def is_open(self, question: BuildMessage) -> bool:
        """Whether a question waits for an answer."""
        return any(open.number == question.number for open in await self.open_questions())

    async def mark_read(self, numbers: Collection[int]) -> None:
        """Note that messages reached the other side."""
        if numbers:
            change = update(build_messages).where(build_messages.c.number.in_(numbers)).values(read=1)
            await self._database.write(lambda connection: connection.execute(change))

    async def version(self) -> int:
        """A number that changes with every new message of any build: one short read, for polling."""
        ((newest,),) = await self._database.read(lambda connection: _NEWEST.run(connection, {}))
        return int(newest)

    def _insert(
        self,
        connection: Connection,
        build_id: str,
        id: str,
        direction: Direction,
        type: MessageType,
        payload: Mapping[str, Any],
    ) -> BuildMessage:
        if (earlier := _message_by_id(connection, build_id, id)) is not None:
            return earlier
        count = select(func.count()).where(build_messages.c.build_id == build_id)
        if type == "progress" and connection.execute(count).scalar_one() >= _MOST_MESSAGES:
            raise UsageError(f"The build has {_MOST_MESSAGES:,} messages. It can't report any more.")
        connection.execute(
            insert(build_messages).values(
                id=id,
                build_id=build_id,
                direction=direction,
                type=type,
                payload=_json(payload),
                read=0,
                created_at=self._now(),
            )
        )
        stored = _message_by_id(connection, build_id, id)
        assert stored is not None
        return stored

    def _get(self, connection: Connection, build_id: str) -> Build:
        found = _find(connection, build_id, self._user)
        if found is None:
            raise NotFound(f"There is no build {build_id!r}.")
        return found

    def _change(
        self, connection: Connection, build_id: str, condition: ColumnElement[bool], **values: Any
    ) -> int:
        """Change a build if the condition holds; how many were changed."""
        mine = (builds.c.id == build_id, builds.c.user_id == self._user, condition)
        change = update(builds).where(*mine).values(**values, updated_at=self._now())
        return connection.execute(change).rowcount

    def _now(self) -> int:
        return _to_us(self._clock.now())


def _wishes(connection: Connection, build_id: str) -> dict[str, str]:
    """What was added to the task of a build, by the ids of the messages, oldest first."""
    query = select(build_messages, builds.c.name).join(builds, builds.c.id == build_messages.c.build_id)
    added = query.where(build_messages.c.build_id == build_id, build_messages.c.id.startswith(_WISH))
    rows = connection.execute(added.order_by(build_messages.c.number))
    return {row.id: _message(row).wish for row in rows}


def _agreed(question: BuildMessage, text: str | None) -> str:
    """What an answer is given to, and the answer."""
    return json.dumps([question.build_id, question.id, question.payload, text], sort_keys=True)


def _answer_id(question_id: str) -> str:
    return f"{_ANSWER}{question_id}"


def _gave_up_id(question_id: str) -> str:
    return f"{_GAVE_UP}{question_id}"


def _json(value: Mapping[str, Any]) -> str:
    # Escaped, because SQLite refuses lone surrogates.
    return json.dumps(value, ensure_ascii=True, default=str)


def _to_us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _from_us(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def _find(connection: Connection, build_id: str, user_id: str) -> Build | None:
    query = _BUILD.where(builds.c.id == storable(build_id), builds.c.user_id == user_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else _build(row)


def _message_by_id(connection: Connection, build_id: str, id: str) -> BuildMessage | None:
    query = (
        select(build_messages, builds.c.name)
        .join(builds, builds.c.id == build_messages.c.build_id)
        .where(build_messages.c.build_id == storable(build_id), build_messages.c.id == storable(id))
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _message(row)


def _row(build: Build, user_id: str) -> dict[str, Any]:
    return {
        **{each.name: getattr(build, each.name) for each in fields(build)},
        "user_id": user_id,
        "task": storable(build.task),
        "executor": "",  # of a former version
        "created_at": _to_us(build.created_at),
        "updated_at": _to_us(build.updated_at),
    }


def _build(row: Any) -> Build:
    is_waiting = row.status == "queued" and row.asks
    return _record(
        Build,
        row,
        status="waiting" if is_waiting else row.status,
        created_at=_from_us(row.created_at),
        updated_at=_from_us(row.updated_at),
    )


def _message(row: Any) -> BuildMessage:
    payload = json.loads(row.payload)
    return _record(
        BuildMessage, row, payload=payload, read=bool(row.read), created_at=_from_us(row.created_at)
    )


def _record(kind: type[_R], row: Any, **converted: Any) -> _R:
    """A row's columns as the fields of their names."""
    return kind(**{each.name: getattr(row, each.name) for each in fields(kind)} | converted)
