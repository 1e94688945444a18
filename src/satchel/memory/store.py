"""`Memory`: what a program that remembers needs, alone or inside the agent."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

import anyio

from satchel.clock import Clock, SystemClock
from satchel.config import process_environ
from satchel.errors import NotFound, SatchelError, UsageError
from satchel.memory import lexicon, repository
from satchel.memory.arrays import Floats
from satchel.memory.embedding import AskedWith, DenseArm
from satchel.memory.index import Index
from satchel.memory.question import Question, read_question
from satchel.memory.ranking import Factors, Found, Ranked, choose, rank
from satchel.memory.records import (
    Context,
    Episode,
    Hit,
    Kind,
    MemoryRecord,
    MemoryType,
    Mode,
    Receipt,
    Stats,
    Tier,
    Trust,
)
from satchel.memory.redaction import may_hold_secrets, redact, strip_private
from satchel.memory.relevance import CONSIDERED, judge, judge_by_words
from satchel.memory.repository import Draft, Filter, place_hash, to_micros
from satchel.memory.surfacing import Said, block_of, is_mere_question, said_texts, strip_injected
from satchel.memory.vector_rows import read_tokens
from satchel.models.embedding import open_embedder
from satchel.models.port import Embedder
from satchel.storage import Database

__all__ = ["Memory"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

MAX_CONTENT_CHARS = 16_000_000
"""Of one memory: more than the longest prompt that is let in, and less than what would fill a machine's
memory.
"""

# seed-0, "Memory tiers and decay": the middle of each tier's range.
_PRIORITY: dict[Tier, float] = {"short_term": 0.55, "long_term": 0.85}
_DECAY_RATE: dict[Tier, float] = {"short_term": 0.02, "long_term": 0.005}

_UNPRINTABLE = re.compile("[\x00\ud800-\udfff]")

_FILL_BEFORE_SEARCH = 10_000
"""Memories without vectors that a search embeds first: a minute or two, once, after an import. What is complete is
worth more than what is quick; above that the newest are done, and the user is told of the rest."""
_FILL_BEFORE_SURFACING = 1_024  # The same before a turn, which somebody waits for: five seconds.
_FILL_IDLE_S = 2.0  # A program that stores something and ends at once need not load a model for it.
_READ_INLINE_CHARS = 20_000  # 5 ms of reading; a longer text is read on memory's own thread.


class Memory:
    """The memories of one user in one scope.

    Everything that was acknowledged survives the death of the process; nothing is sent anywhere but to the
    embedder
    that was asked for. Several processes may have the same store open.
    """

    def __init__(
        self,
        database: Database,
        space: int,
        *,
        user: str,
        scope: str,
        clock: Clock,
        dense: DenseArm | None,
        redacts: bool = True,
    ) -> None:
        """Use `open`."""
        self.user = user
        self.scope = scope
        self._database = database
        self._space = space
        self._clock = clock
        self._dense = dense
        self._redacts = redacts
        self._index = Index()
        self._refreshing = anyio.Lock()
        # One thread owns the index: what changes it and what reads it never meet.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="satchel-memory")
        self._wake = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        where: str | Path | Database,
        *,
        embedder: Embedder | str | None = None,
        user: str = "default",
        scope: str = "default",
        clock: Clock | None = None,
        home: Path | None = None,
        back_fill: bool = True,
        redact: bool = True,
    ) -> AsyncIterator[Memory]:
        """Open a store, and close it at the end.

        Args:
            where: A path, an "sqlite:///" URL, ":memory:", or a database that is open already and stays open.
            embedder: One of your own, which stays open; a name for `open_embedder`; None for the default,
            "minilm",
                which is fetched once into `home`; "none" to go by words alone.
            user: Whose memories; nothing of another user's is ever seen.
            scope: Which of them: a scope is a store of its own.
            clock: Tells the time.
            home: SATCHEL_HOME, for the models in it.
            back_fill: Whether vectors are made in the background too, and not by searches alone.
            redact: Whether secrets are taken out of what is stored, before it is; see `satchel.memory.redaction`.

        Raises:
            StorageError: The database cannot be opened; see `Database.open`.
            ConfigError: There is no such embedder or database.
        """
        clock = clock or SystemClock()
        user, scope = _clean(user, "user"), _clean(scope, "scope")
        async with AsyncExitStack() as stack:
            database = (
                where
                if isinstance(where, Database)
                else await stack.enter_async_context(Database.open(where, clock=clock))
            )
            space = await database.read(lambda connection: repository.find_space(connection, user, scope))
            if space is None:
                space = await database.write(
                    lambda connection: repository.open_space(connection, user, scope)
                )
            dense = None
            if embedder != "none":
                if embedder is None or isinstance(embedder, str):
                    environ = process_environ()
                    embedder = open_embedder(
                        "minilm" if embedder is None else embedder,
                        home=home or Path(environ.get("SATCHEL_HOME") or Path.home() / ".satchel"),
                        environ=environ,
                        clock=clock,
                    )
                    stack.push_async_callback(embedder.aclose)
                dense = DenseArm(embedder, database, space, clock)
            memory = cls(database, space, user=user, scope=scope, clock=clock, dense=dense, redacts=redact)
            stack.callback(memory._pool.shutdown)
            while await database.write(lambda connection: repository.reread_words(connection, limit=500)):
                pass
            failure: Exception | None = None
            async with anyio.create_task_group() as group:
                if dense is not None and back_fill:
                    group.start_soon(memory._back_fill, dense)
                try:
                    yield memory
                except Exception as error:  # noqa: BLE001 - raised again below, bare: not in the task group's wrapper
                    failure = error
                group.cancel_scope.cancel()
            if failure is not None:
                raise failure

    # Writing.

    async def add(
        self,
        content: str,
        *,
        tags: Iterable[str] = (),
        tier: Tier = "long_term",
        kind: Kind = "fact",
        memory_type: MemoryType = "general",
        importance: int = 3,
        priority: float | None = None,
        decay_rate: float | None = None,
        speaker: str = "",
        said_at: datetime | None = None,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        session: str | None = None,
        turn: int | None = None,
        quote: str | None = None,
        trust: Trust = "user",
    ) -> str:
        """Store one memory, word for word.

        Args:
            content: Any length up to 16 million characters; NUL characters and lone surrogates become U+FFFD.
            tags: Words it should also be found by.
            tier: How long it is meant to matter.
            kind: What it is.
            memory_type: What it is about.
            importance: 1 (trivial) to 5 (critical).
            priority: 0 to 1; None takes the tier's own.
            decay_rate: What the priority loses a day, 0 to 1; None takes the tier's own.
            speaker: Who said it.
            said_at: When; None takes the clock's time. Without an offset it is read as local time.
            valid_from: From when on it holds.
            valid_to: Until when it holds.
            session: The conversation that it comes from.
            turn: The exchange in it.
            quote: The words in it that it rests on.
            trust: Whose words they are.

        Returns:
            Its id. It is in the store when this returns.

        Raises:
            UsageError: Something is empty, out of range or unknown, or its source was forgotten.
            StorageError: It could not be written.
        """
        draft = await self._draft(
            id="m" + secrets.token_hex(8),
            content=content,
            tags=_clean_tags(tags),
            kind=kind,
            tier=tier,
            memory_type=memory_type,
            importance=importance,
            priority=priority,
            decay_rate=decay_rate,
            speaker=speaker,
            said_at=said_at,
            valid_from=valid_from,
            valid_to=valid_to,
            session=session,
            turn=turn,
            position=None,
            quote=quote,
            trust=trust,
        )
        if draft is None:
            raise UsageError("There are no words to remember in this; nothing was stored.")
        ids = await self._database.write(
            lambda connection: repository.insert_drafts(connection, self._space, [draft], fresh=True)
        )
        if not ids:
            raise UsageError(
                f"These words of session {session} were forgotten, and what is forgotten is not stored again from the "
                "same source. Store them without the session if you mean to keep them."
            )
        self._wake.set()
        return ids[0]

    async def add_episodes(self, episodes: Iterable[Episode]) -> tuple[str, ...]:
        """Store what was said, word for word, in one transaction.

        An episode's id follows from user, scope, session, turn and position: storing it again changes
        nothing. What
        Satchel itself injected is taken out first; an episode without words, and one whose source was
        forgotten, is
        left out.

        Returns:
            The ids of those that are in the store now, in the order given.

        Raises:
            UsageError: One is malformed; nothing was stored.
            StorageError: They could not be written; nothing was stored.
        """
        counted: dict[tuple[str, int], int] = {}
        drafts: list[Draft] = []
        for episode in episodes:
            session = _clean(str(episode.session), "session")
            turn = _whole(episode.turn, "turn")
            position = episode.position
            if position is None:
                position = counted.get((session, turn), 0)
            position = _whole(position, "position")
            counted[session, turn] = position + 1
            draft = await self._draft(
                id="e" + place_hash(f"{self.user}\n{self.scope}\n{session}", turn, position)[:16],
                content=strip_private(strip_injected(episode.text)),
                tags=(),
                kind="episode",
                tier="short_term",
                memory_type="conversation",
                importance=3,
                priority=None,
                decay_rate=None,
                speaker=episode.speaker,
                said_at=episode.said_at,
                valid_from=None,
                valid_to=None,
                session=session,
                turn=turn,
                position=position,
                quote=None,
                trust=episode.trust,
            )
            if draft is not None:
                drafts.append(draft)
        if not drafts:
            return ()
        ids = await self._database.write(
            lambda connection: repository.insert_drafts(connection, self._space, drafts)
        )
        self._wake.set()
        return tuple(ids)

    async def forget(self, ids: str | Iterable[str]) -> Receipt:
        """Remove memories for good: the words, their vectors, their index entries, edges and tags, and every
        fact that
        rests on nothing else.

        What is left is a hash of where they came from, so that the same source cannot bring them back. The
        words are
        overwritten in the database's file and taken out of its log; copies elsewhere (session logs, backups)
        are the
        caller's to mend.

        Args:
            ids: Which ones; those that are not there are named in the receipt.

        Raises:
            StorageError: It could not be written; nothing was removed.
        """
        wanted = [ids] if isinstance(ids, str) else list(ids)
        now = self._clock.now()
        forgotten, missing = await self._database.write(
            lambda connection: repository.remove(connection, self._space, wanted, to_micros(now)),
            durable=True,
        )
        emptied = await self._database.scrub() if forgotten else True
        return Receipt(
            forgotten=tuple(forgotten), missing=tuple(missing), forgotten_at=now, log_emptied=emptied
        )

    # Reading.

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        mode: Mode = "hybrid",
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> tuple[Hit, ...]:
        """Find memories, best first.

        Memories that have no vector yet are embedded first, the newest 10,000 of them at most.

        Args:
            query: A question or some words; an empty one finds nothing.
            limit: At most so many.
            mode: "hybrid" goes by words and by meaning, "lexical" by words alone, "dense" by meaning alone.
            progress: Of that embedding: how many are done, and of how many.

        Raises:
            UsageError: The mode is unknown or the limit is no positive number.
            StorageError: The store could not be read.
        """
        if mode not in get_args(Mode):
            raise UsageError(f"There is no search mode {mode!r}; the modes are {', '.join(get_args(Mode))}.")
        if limit < 1:
            raise UsageError(f"A search for {limit} memories finds nothing; ask for 1 or more.")
        _, found, _ = await self._find(
            _printable(query), limit=limit, mode=mode, fill=_FILL_BEFORE_SEARCH, progress=progress
        )
        return await self._hits([(ranked, ranked.score) for ranked in found.ranked])

    async def surface(
        self,
        messages: Sequence[Said] | Said,
        *,
        budget_tokens: int = 500,
        limit: int = 5,
        exclude: Collection[str] = (),
        exclude_session: str | None = None,
        threshold: float | None = None,
    ) -> Context:
        """Find what a model should be shown now: what bears on the last three messages, or nothing.

        Args:
            messages: The conversation, oldest first; its last three messages count, the newest most.
            budget_tokens: The block is never longer, by an estimate that is rather too high.
            limit: At most so many memories.
            exclude: Ids that were shown already.
            exclude_session: The conversation that is going on: what was said in it stands before the model anyway.
            threshold: How sure to be, 0 to 1; None takes 0.5, where nine of ten messages that are shown something
                are shown what helps.

        Returns:
            The marked block and its memories, each with its relevance as score; empty where nothing is
            relevant.

        Raises:
            UsageError: A message is of no known form.
            StorageError: The store could not be read.
        """
        said = said_texts(messages)[-3:]
        if not said or limit < 1:
            return Context()
        at_least = 0.5 if threshold is None else threshold
        question, passing = await self._judged(said[-1][1], at_least=at_least, fill=_FILL_BEFORE_SURFACING)
        if not passing and len(said) > 1:
            # "And what can she eat?" means something only after what came before.
            whole = "\n".join(text for _, text in said)
            question, passing = await self._judged(whole, at_least=at_least, fill=0)
        if not passing:
            return Context()
        hits = await self._hits(passing)
        known = {" ".join(text.split()) for _, text in said}
        fresh = [
            hit
            for hit in hits
            if hit.memory.id not in exclude
            and (exclude_session is None or hit.memory.source.session != exclude_session)
            and " ".join(hit.memory.content.split()) not in known
            and not is_mere_question(hit.memory)
        ]
        context = block_of(fresh, stems=question.stems, budget_tokens=budget_tokens, limit=limit)
        if context:
            shown = {hit.memory.id for hit in context.memories}
            rids = [
                found.rid for (found, _), hit in zip(passing, hits, strict=False) if hit.memory.id in shown
            ]
            now = to_micros(self._clock.now())
            await self._database.write(lambda connection: repository.note_uses(connection, rids, now))
        return context

    async def get(self, id: str) -> MemoryRecord:
        """One memory.

        Raises:
            NotFound: There is none with this id.
        """
        found = await self._database.read(
            lambda connection: repository.records_by_id(connection, self._space, [id])
        )
        if id not in found:
            raise NotFound(f"There is no memory {id!r} of user {self.user!r} in scope {self.scope!r}.")
        return found[id]

    async def list(
        self,
        *,
        kind: Kind | None = None,
        tier: Tier | None = None,
        memory_type: MemoryType | None = None,
        tags: Iterable[str] = (),
        speaker: str | None = None,
        session: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> tuple[MemoryRecord, ...]:
        """Memories that fit every filter given, those said last first.

        Args:
            kind: What they are.
            tier: Their tier.
            memory_type: What they are about.
            tags: All of them must be there.
            speaker: Who said them.
            session: The conversation they come from.
            since: Said then or later; without an offset it is read as local time, and so is `until`.
            until: Said before then.
            limit: At most so many.
            offset: How many to skip.
        """
        wanted = self._filter(kind, tier, memory_type, tags, speaker, session, since, until)
        found = await self._database.read(
            lambda connection: repository.list_records(
                connection, self._space, wanted, limit=max(0, limit), offset=max(0, offset)
            )
        )
        return tuple(found)

    async def count(
        self,
        *,
        kind: Kind | None = None,
        tier: Tier | None = None,
        memory_type: MemoryType | None = None,
        tags: Iterable[str] = (),
        speaker: str | None = None,
        session: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> int:
        """How many memories fit every filter given; see `list`."""
        wanted = self._filter(kind, tier, memory_type, tags, speaker, session, since, until)
        return await self._database.read(
            lambda connection: repository.count_rows(connection, self._space, wanted)
        )

    async def stats(self) -> Stats:
        """Counts over the store."""
        dense = self._dense
        if dense is not None:
            await dense.open()
        model = None if dense is None or dense.model is None else (dense.model, dense.embedder.info.id)
        return await self._database.read(
            lambda connection: repository.read_stats(connection, self._space, model)
        )

    async def embed_pending(
        self, *, limit: int | None = None, progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Give memories that have no vector yet one now, instead of leaving it to searches and the
        background.

        Args:
            limit: At most so many, or None for all.
            progress: Told how many are done, now and then.

        Returns:
            How many were embedded; fewer than there are when the embedder fails, see `degraded`.
        """
        if self._dense is None:
            return 0
        await self._dense.open()
        return await self._dense.fill(limit=limit, progress=progress)

    @property
    def degraded(self) -> str | None:
        """What does not serve as it should, in words for the user, or None: the embedder, most likely."""
        return None if self._dense is None else self._dense.notice

    # Inside.

    async def _draft(self, **given: Any) -> Draft | None:
        """Check what was given and read its words; None where it has none."""
        content = await self._discreet(_printable(given["content"]))
        if not content.strip():
            return None
        if len(content) > MAX_CONTENT_CHARS:
            raise UsageError(
                f"A memory has at most {MAX_CONTENT_CHARS:,} characters, and this one has {len(content):,}. "
                "Store it in parts."
            )
        tier: Tier = _one_of(given["tier"], Tier, "tier")
        importance = _whole(given["importance"], "importance")
        if not 1 <= importance <= 5:
            raise UsageError(f"The importance is {importance}; it goes from 1 (trivial) to 5 (critical).")
        priority = _PRIORITY[tier] if given["priority"] is None else float(given["priority"])
        if not 0 <= priority <= 1:
            raise UsageError(f"The priority is {priority:g}; it goes from 0 to 1.")
        decay_rate = _DECAY_RATE[tier] if given["decay_rate"] is None else float(given["decay_rate"])
        if not 0 <= decay_rate <= 1:
            raise UsageError(f"The decay rate is {decay_rate:g} a day; it goes from 0 to 1.")
        now = self._clock.now()
        said_at = self._aware(given["said_at"]) or now
        valid_from, valid_to = self._aware(given["valid_from"]), self._aware(given["valid_to"])
        session = given["session"]
        turn = given["turn"]
        tags = tuple([await self._discreet(tag) for tag in given["tags"]])
        quote = None if given["quote"] is None else await self._discreet(_printable(given["quote"]))
        words = (
            lexicon.read_text(content, tags)
            if len(content) <= _READ_INLINE_CHARS
            else await self._run(lexicon.read_text, content, tags)
        )
        return Draft(
            id=given["id"],
            tags=tags,
            words=words,
            row={
                "kind": _one_of(given["kind"], Kind, "kind"),
                "content": content,
                "content_hash": repository.content_hash(content),
                "tier": tier,
                "memory_type": _one_of(given["memory_type"], MemoryType, "memory type"),
                "importance": importance,
                "priority": priority,
                "decay_rate": decay_rate,
                "speaker": _printable(given["speaker"])[:200],
                "said_at": to_micros(said_at),
                "said_offset_min": repository.offset_minutes(said_at),
                "valid_from": None if valid_from is None else to_micros(valid_from),
                "valid_to": None if valid_to is None else to_micros(valid_to),
                "source_session": None if session is None else _clean(session, "session"),
                "source_turn": None if turn is None else _whole(turn, "turn"),
                "source_position": given["position"],
                "source_quote": quote,
                "trust": _one_of(given["trust"], Trust, "trust"),
                "created_at": to_micros(now),
            },
        )

    async def _discreet(self, text: str) -> str:
        """The text without secrets. Looking closely takes a library that is loaded once, off the event loop."""
        if not self._redacts or not may_hold_secrets(text):
            return text
        return await self._run(redact, text)

    def _aware(self, moment: datetime | None) -> datetime | None:
        """A time with its offset; one without is read on the clock's own."""
        if moment is None or moment.utcoffset() is not None:
            return moment
        return moment.replace(tzinfo=self._clock.now().tzinfo)

    def _filter(
        self,
        kind: Kind | None,
        tier: Tier | None,
        memory_type: MemoryType | None,
        tags: Iterable[str],
        speaker: str | None,
        session: str | None,
        since: datetime | None,
        until: datetime | None,
    ) -> Filter:
        return Filter(
            kind=kind,
            tier=tier,
            memory_type=memory_type,
            tags=_clean_tags(tags),
            speaker=speaker,
            session=session,
            since=self._aware(since),
            until=self._aware(until),
        )

    async def _run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function on memory's own thread; a cancelled caller waits for it."""
        running = asyncio.wrap_future(self._pool.submit(function, *args))
        with anyio.CancelScope(shield=True):
            await asyncio.wait([running])
        return running.result()

    async def _refresh(self) -> Index:
        """Take in what this and other processes changed since the last time."""
        async with self._refreshing:
            index = self._index
            if index.needs_rebuild:
                index = self._index = Index()
            dense = self._dense
            if dense is not None and dense.model is not None:
                index.dimension = dense.dimension
                index.use_model(dense.model)
            changes = await self._database.read(
                lambda connection: repository.load_changes(
                    connection,
                    self._space,
                    since=index.changed,
                    model=index.model,
                    vectors_since=index.vectors_changed,
                )
            )
            if changes is not None:
                await self._run(index.apply, changes)
            return index

    async def _find(
        self,
        query: str,
        *,
        limit: int,
        mode: Mode,
        fill: int,
        factors: Factors | None = None,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> tuple[Question, Found, Floats | None]:
        dense = None if mode == "lexical" else self._dense
        if dense is not None:
            await dense.open()
        index = await self._refresh()
        question = read_question(query, index.speaker_numbers.items())
        if not index.alive_count or not query.strip():
            return question, Found(), None
        asked: AskedWith | None = None
        if dense is not None:
            missing = index.alive_count - index.embedded_count
            if missing and fill:
                total = min(missing, fill)
                if await dense.fill(limit=total, progress=lambda done: progress(done, total)):
                    index = await self._refresh()
            asked = await dense.question(question.text)
            if index.model is None and dense.model is not None:
                # Its first answer told what it is called in the store.
                index = await self._refresh()
            dense.waiting = 0 if asked is None else index.alive_count - index.embedded_count
        vector, tokens = (None, None) if asked is None else asked
        chosen = await self._run(
            lambda: choose(index, question, vector, limit=limit, mode=mode, with_tokens=tokens is not None)
        )
        if chosen is None:
            return question, Found(), vector
        read: Mapping[int, bytes] = {}
        model = index.model
        if chosen.lacking_tokens and model is not None:
            read = await self._database.read(
                lambda connection: read_tokens(connection, model, chosen.lacking_tokens)
            )

        def order() -> Found:
            if index.model == model:
                index.take_tokens(read)
            return rank(index, question, chosen, limit=limit, mode=mode, tokens=tokens, factors=factors)

        return question, await self._run(order), vector

    async def _judged(
        self, text: str, *, at_least: float, fill: int
    ) -> tuple[Question, Sequence[tuple[Ranked, float]]]:
        """What is worth showing for a text, surest first."""
        question, found, vector = await self._find(text, limit=CONSIDERED, mode="hybrid", fill=fill)
        gate = None if vector is None or self._dense is None or not found.ranked else await self._dense.gate()
        if gate is None or vector is None:
            return question, judge_by_words(found.ranked, at_least=at_least)
        return question, judge(found, gate, vector, at_least=at_least)

    async def _hits(self, found: Sequence[tuple[Ranked, float]]) -> tuple[Hit, ...]:
        """Fetch the memories behind rows; those that were forgotten meanwhile are left out."""
        records = await self._database.read(
            lambda connection: repository.read_records(
                connection, self._space, [ranked.rid for ranked, _ in found]
            )
        )
        return tuple(
            Hit(memory=records[ranked.rid], score=round(score, 6), signals=ranked.signals)
            for ranked, score in found
            if ranked.rid in records
        )

    async def _back_fill(self, dense: DenseArm) -> None:
        """Embed in the background, whenever something was stored and the program lives on for a moment."""
        while True:
            await anyio.sleep(_FILL_IDLE_S)
            self._wake = anyio.Event()
            try:
                await dense.open()
                await dense.fill()
            except SatchelError as error:
                dense.trouble = str(error)
            except Exception:  # noqa: BLE001 - A background job: a defect in it must not end what the user is doing.
                _log.exception("Embedding memories in the background failed.")
            await self._wake.wait()


def _printable(text: str) -> str:
    """The text as UTF-8 can hold it and SQLite can compare it: no NUL, no lone surrogate."""
    return _UNPRINTABLE.sub("\ufffd", text)


def _clean(name: str, what: str) -> str:
    """A name that keys are made of."""
    cleaned = _printable(name)
    if not cleaned.strip() or len(cleaned) > 1000:
        raise UsageError(f"The {what} is empty or longer than 1,000 characters; give it a name.")
    return cleaned


def _clean_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags without blanks around them and without repetitions, in order."""
    if isinstance(tags, str):
        tags = tags.split(",")
    return tuple(dict.fromkeys(tag for tag in (_printable(tag).strip() for tag in tags) if tag))


def _whole(value: object, what: str) -> int:
    """A whole number that a database can hold."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise UsageError(f"The {what} is {value!r}; it is a whole number.")
    return value


def _one_of(value: str, allowed: Any, what: str) -> Any:
    """A value of a closed set."""
    if value not in get_args(allowed):
        raise UsageError(f"There is no {what} {value!r}; there are {', '.join(get_args(allowed))}.")
    return value
