"""`Memory`: what a program that remembers needs, alone or inside the agent."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, get_args

import anyio
from sqlalchemy import Connection

from satchel.clock import Clock, SystemClock, local_day
from satchel.config import process_environ
from satchel.errors import NotFound, SatchelError, StorageLocked, UsageError
from satchel.memory import decay, distill, lexicon, modes, repository
from satchel.memory.array_candidates import ArrayCandidates
from satchel.memory.arrays import Floats
from satchel.memory.checking import (
    DECAY_RATE,
    PRIORITY,
    clean,
    clean_tags,
    content_of,
    importance_of,
    one_of,
    printable,
    share_of,
    whole,
)
from satchel.memory.checkup import Inspector
from satchel.memory.comparing import Comparison, ask_model, judge_pair
from satchel.memory.decay import DecayCycle
from satchel.memory.deep import DeepAnswer, search_deeply
from satchel.memory.echoes import may_repeat, said_only
from satchel.memory.embedding import AskedWith, DenseArm
from satchel.memory.filters import Filter, Filters, Visible, filter_of
from satchel.memory.forgetting import forget_now, has_unkeyed, ids_to_forget, preview, rekey
from satchel.memory.grouping import (
    CANDIDATE_COSINE,
    CANDIDATE_COVERAGE,
    MOST_CANDIDATES,
    Grouped,
    PendingFact,
    count_pending_facts,
    in_order,
    pending_facts,
    with_later_words,
    write_findings,
)
from satchel.memory.hashing import KEY_FILE, WordHasher
from satchel.memory.keeper import Keeper
from satchel.memory.mover import Mover
from satchel.memory.places import settle
from satchel.memory.ports import Candidates
from satchel.memory.question import Question, read_question
from satchel.memory.ranking import Found, Ranked
from satchel.memory.records import (
    Context,
    Episode,
    Hit,
    Kind,
    MemoryRecord,
    MemoryType,
    Mode,
    Moment,
    Recall,
    Receipt,
    Stats,
    Tier,
    Trust,
)
from satchel.memory.redaction import strip_private
from satchel.memory.reindexing import Reindexed, reindex
from satchel.memory.relevance import CONSIDERED, judge, judge_by_words
from satchel.memory.repository import Draft, place_hash, to_micros
from satchel.memory.space import Space
from satchel.memory.surfacing import (
    Said,
    block_of,
    is_mere_question,
    restates,
    said_texts,
    says,
    strip_injected,
)
from satchel.memory.thread import OneThread
from satchel.models.embedding import OwnEmbedding, as_embedder, open_embedder
from satchel.models.port import ChatModel, Embedder
from satchel.storage import Database

if TYPE_CHECKING:
    from satchel.memory.distill import (
        Asked,
        Distiller,
        DistillReport,
        DistillStatus,
        MaySpend,
        SpentRow,
        WindowResult,
    )

__all__ = ["Memory"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

_FILL_BEFORE_SEARCH = 10_000
"""Memories without vectors that a search embeds first: a minute or two, once, after an import. What is complete is
worth more than what is quick; above that the newest are done, and the user is told of the rest."""
_FILL_BEFORE_SURFACING = 1_024  # The same before a turn, which somebody waits for: five seconds.
_GROUP_AT_ONCE = 32
_GROUP_BEFORE_SEARCH = 256
"""Facts that a search compares first, so that it does not give what was taken back a moment ago: a millisecond each, a
fifth of what their vectors take. More than that come from an import, and are compared in the background."""
_FILL_IDLE_S = 2.0  # A program that stores something and ends at once need not load a model for it.
_READ_INLINE_CHARS = 20_000  # 5 ms of reading; a longer text is read on memory's own thread.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surfaced:
    """What `surface` shows, and what came near, each with the reason why it is not shown."""

    context: Context = field(default_factory=Context)
    left_out: tuple[tuple[Hit, str], ...] = ()


class Memory(Keeper, Mover, Inspector):
    """The memories of one user in one scope: what it finds and changes is theirs, and never another's.

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
        hasher: WordHasher,
        redacts: bool = True,
        decay_cycle: DecayCycle = "day",
    ) -> None:
        """Use `open`."""
        self.user = user
        self.scope = scope
        self._database = database
        self._space = space
        self._clock = clock
        self._dense = dense
        self._hasher = hasher
        self._redacts = redacts
        self._by_request = one_of(decay_cycle, DecayCycle, "cycle of decay") == "request"
        self._grouped_at = -1
        self._compared_to = 0  # The change up to which no fact is left to be compared.
        self._busy_at = float("-inf")
        self._thread = OneThread("satchel-memory")
        self._candidates: Candidates = ArrayCandidates(database, space, self._thread)
        self._shared = Space(
            id=space,
            user=user,
            scope=scope,
            backend=database,
            candidates=self._candidates,
            clock=clock,
            hasher=hasher,
            thread=self._thread,
            redacts=redacts,
            by_request=self._by_request,
        )
        self._wake = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        where: str | Path | Database,
        *,
        embedder: Embedder | OwnEmbedding | str | None = None,
        user: str = "default",
        scope: str = "default",
        clock: Clock | None = None,
        home: Path | None = None,
        back_fill: bool = True,
        redact: bool = True,
        decay_cycle: DecayCycle = "day",
    ) -> AsyncIterator[Memory]:
        """Open a store, and close it at the end.

        Args:
            where: A path, an "sqlite:///" URL, ":memory:", or a database that is open already and stays open.
            embedder: One of your own, which stays open: an `Embedder`, or anything with `embed(texts, role)`, awaited
                or not, that gives a row of numbers for each text; a name for `open_embedder`; None for the default,
                "minilm", which is fetched once into `home`; "none" to go by words alone.
            user: Whose memories; nothing of another user's is ever seen.
            scope: Which of them, by any name, such as "default" (the user's own), "project:NAME" or "session:ID":
                a scope is a store of its own, and no call ever sees another's.
            clock: Tells the time.
            home: SATCHEL_HOME, for the models in it and the key for hashes of what is forgotten. Without it, that key
                is kept beside the database's file.
            back_fill: Whether vectors are made in the background too, and not by searches alone.
            redact: Whether secrets are taken out of what is stored, before it is; see `satchel.memory.redaction`.
            decay_cycle: What rates of decay count: days, or chat requests, which are the calls of `surface`.

        Raises:
            StorageError: The database cannot be opened; see `Database.open`.
            ConfigError: There is no such embedder or database.
        """
        clock = clock or SystemClock()
        user, scope = clean(user, "user"), clean(scope, "scope")
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
                dense = DenseArm(as_embedder(embedder), database, space, clock)
            memory = cls(
                database,
                space,
                user=user,
                scope=scope,
                clock=clock,
                dense=dense,
                hasher=WordHasher(_key_file(database, home)),
                redacts=redact,
                decay_cycle=decay_cycle,
            )
            stack.callback(memory._thread.close)
            if await database.read(repository.has_old_words):
                while await database.write(lambda connection: repository.reread_words(connection, limit=500)):
                    pass
            if await database.read(has_unkeyed):
                await database.write(lambda connection: rekey(connection, memory._hasher))
                await database.scrub()
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

    @cached_property
    def _distiller(self) -> Distiller:
        return distill.Distiller(
            self._database,
            self._space,
            clock=self._clock,
            owner=f"{self.user}\n{self.scope}",
            search=self.search,
            draft=self._draft,
        )

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
        said_at: Moment | None = None,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
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
            tags=clean_tags(tags),
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
        self._busy_at = anyio.current_time()
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
        unplaced: set[int] = set()

        def id_at(row: Mapping[str, Any], position: int) -> str:
            place = f"{self.user}\n{self.scope}\n{row['source_session']}"
            return "e" + place_hash(place, row["source_turn"], position)[:16]

        for episode in episodes:
            session = clean(str(episode.session), "session")
            turn = whole(episode.turn, "turn")
            position = episode.position
            if position is None:
                position = counted.get((session, turn), 0)
            position = whole(position, "position")
            counted[session, turn] = position + 1
            draft = await self._draft(
                id=id_at({"source_session": session, "source_turn": turn}, position),
                content=strip_private(await self._said_only(printable(episode.text))),
                tags=(),
                kind="episode",
                tier="short_term",
                memory_type="conversation",
                importance=3,
                priority=None,
                decay_rate=decay.EPISODE_DECAY_RATE,
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
                if episode.position is None:
                    unplaced.add(len(drafts))
                drafts.append(draft)
        if not drafts:
            return ()

        def write(connection: Connection) -> list[str]:
            settled = settle(connection, self._space, drafts, unplaced, id_at) if unplaced else drafts
            return repository.insert_drafts(connection, self._space, settled)

        ids = await self._database.write(write)
        self._stored()
        return tuple(ids)

    async def _said_only(self, text: str) -> str:
        """The text without what Satchel itself put into the conversation."""
        if not may_repeat(text):
            return strip_injected(text)
        return await self._database.read(lambda connection: said_only(connection, self._space, text))

    async def forget(
        self,
        ids: str | Iterable[str] = (),
        *,
        query: str | None = None,
        session: str | None = None,
        before: datetime | None = None,
        scope: str | None = None,
        dry_run: bool = False,
    ) -> Receipt:
        """Remove memories for good: the words, their vectors, their index entries, edges, tags and changes, and every
        fact that rests on nothing else. Where an agent's words or a fact repeat them, "[forgotten]" replaces them; what
        they had superseded holds again.

        A hash of where they came from is left, so that the same source cannot bring them back. The words are
        overwritten in the database's file and in its log. Copies elsewhere (session logs, backups) are up to the
        caller.

        Args:
            ids: Which ones; those that are not there are named in the receipt.
            query: Instead: those that have every telling word of it, whatever its ending, in their words or tags; and
                no others, however near in meaning.
            session: Instead or besides: those that come from this conversation.
            before: Instead or besides: those that were said before then.
            scope: Everything in this memory's scope, which has to be named.
            dry_run: Remove nothing, and tell what would be.

        Raises:
            UsageError: Nothing says which ones, or ids and conditions are mixed, or the scope is another one.
            StorageError: It could not be written; nothing was removed.
        """
        now = self._clock.now()
        wanted = [ids] if isinstance(ids, str) else list(ids)
        if query is not None or session is not None or before is not None or scope is not None:
            if wanted:
                raise UsageError("Say which memories to forget by their ids or by conditions, not by both.")
            if scope is not None and scope != self.scope:
                raise UsageError(
                    f"This memory's scope is {self.scope!r}, and not {scope!r}; nothing was removed."
                )
            having = None if query is None else await self._having(query)
            filtered = Filter(session=session, until=self._aware(before))
            wanted = await self._database.read(
                lambda connection: ids_to_forget(connection, self._space, filtered, having)
            )
        function = preview if dry_run else forget_now
        done = await self._database.write(
            lambda connection: function(connection, self._space, wanted, to_micros(now), self._hasher),
            durable=not dry_run,
        )
        # Also where nothing was there: an earlier call may have been interrupted right before this.
        emptied = dry_run or await self._database.scrub()
        return Receipt(
            forgotten=tuple(done.forgotten),
            missing=tuple(done.missing),
            forgotten_at=now,
            log_emptied=emptied,
            dry_run=dry_run,
            echoes=tuple(done.echoes),
            still_said=tuple(done.still_said),
            requoted=tuple(done.requoted),
            reopened=tuple(done.reopened),
        )

    async def _having(self, query: str) -> frozenset[int]:
        """The rids of the memories that have every telling word of a text."""
        stems = set(lexicon.stems_of(printable(query)))
        if not stems:
            raise UsageError("There is no telling word in this; nothing was removed.")
        await self._refresh()
        return await self._candidates.having(list(stems))

    async def distill(
        self,
        *,
        model: ChatModel,
        small_model: ChatModel | None = None,
        most_windows: int | None = None,
        may_spend: MaySpend | None = None,
        progress: Callable[[WindowResult], None] = lambda _: None,
    ) -> DistillReport:
        """Draw facts from what was said and not yet read for them, window by window.

        A small model says whether a window holds anything worth remembering; a larger one proposes facts, told of
        those that are known. Kept is what has its quote in the words; the days that its date words mean are worked
        out and written beside them. A fact rests on its episodes (`derived_from`), is trusted no more than they are,
        and goes with them. Each window is one transaction: whatever interrupts a run, nothing is lost and nothing
        doubled, and doing it again goes on where it stopped.

        Args:
            model: Proposes the facts; never one that only recalls.
            small_model: Judges what is worth it; None takes `model`.
            most_windows: Stop after so many.
            may_spend: Awaited before each window; raises `BudgetExceeded` where no more may be spent.
            progress: Told of each window.

        Returns:
            What was read and stored, and why the run ended early, if it did; models that fail are told there.

        Raises:
            UsageError: The model is none.
            StorageError: The store does not serve; what was written before stays.
        """
        small_model = model if small_model is None else small_model
        if "none" in (model.provider, small_model.provider):
            raise UsageError(
                "Facts are drawn by a language model, and there is none. `satchel model list` helps."
            )
        report = await self._distiller.run(
            model=model,
            small_model=small_model,
            most_windows=most_windows,
            may_spend=may_spend,
            progress=progress,
        )
        if report.facts:
            self._stored()
        return report

    async def distill_status(self) -> DistillStatus:
        """What waits to be read for facts, what was read, what failed, and what it cost."""
        return await self._distiller.status()

    async def note_cost(self, asked: Sequence[Asked]) -> None:
        """Count what calls of language models cost that were made for memory."""
        day = local_day(self._clock.now())
        await self._database.write(lambda connection: distill.add_usage(connection, self._space, asked, day))

    async def deep(
        self,
        question: str,
        *,
        model: ChatModel | None = None,
        as_of: datetime | None = None,
        tags: Iterable[str] = (),
        progress: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None,
    ) -> DeepAnswer:
        """Answer a question from several angles at once; see `deep.search_deeply`.

        Args:
            question: What is asked.
            model: A small one expands the question and writes the answer; None goes without.
            as_of: What was believed then.
            tags: Only memories with all of these.
            progress: Told of each step: "expanding", "searching", "found".
        """
        return await search_deeply(
            self, printable(question), model=model, as_of=as_of, tags=clean_tags(tags), progress=progress
        )

    async def spent(self) -> tuple[SpentRow, ...]:
        """What memory's own calls of language models cost, by local day and model, the newest day first."""
        return tuple(
            await self._database.read(lambda connection: distill.read_spent(connection, self._space))
        )

    async def distill_is_due(self, *, every: int, after_s: float) -> bool:
        """Whether so many messages wait to be read for facts, or one for so many seconds."""
        return await self._distiller.is_due(every=every, after_s=after_s)

    # Reading.

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        mode: Mode = "hybrid",
        include_superseded: bool = False,
        threshold: float = modes.SEMANTIC_THRESHOLD,
        progress: Callable[[int, int], None] = lambda *_: None,
        **filters: Unpack[Filters],
    ) -> tuple[Hit, ...]:
        """Find memories, best first. What no longer holds is left out, unless it is asked for.

        Memories that have no vector yet are embedded first, the newest 10,000 of them at most.

        Args:
            query: A question or some words; an empty one finds nothing.
            limit: At most so many.
            mode: "hybrid" goes by words and by meaning, and lets importance, recency and priority move a score by a
                tenth each; "lexical" goes by words alone, "dense" by meaning alone; "semantic" is cosine x
                importance / 3 x recency (seed-2), "keyword" is priority and what words and tags hit (seed-0).
            include_superseded: Also what has ceased to hold by now.
            threshold: Of the mode "semantic": only scores above it are given.
            progress: Of that embedding: how many are done, and of how many.
            filters: Which ones, see `Filters`; with `as_of`, what was believed then.

        Raises:
            UsageError: The mode is unknown, or a filter's value, or the limit is no positive number.
            StorageError: The store could not be read.
        """
        if mode not in get_args(Mode):
            raise UsageError(f"There is no search mode {mode!r}; the modes are {', '.join(get_args(Mode))}.")
        if limit < 1:
            raise UsageError(f"A search for {limit} memories finds nothing; ask for 1 or more.")
        query = printable(query)
        self._busy_at = anyio.current_time()
        if mode not in ("lexical", "keyword"):  # Words alone wake no embedder.
            await self._refresh()
            await self._group_few()
        wanted = filter_of(filters, self._aware)
        superseded_too = include_superseded or wanted.as_of is not None
        visible = await self._visible(wanted, include_superseded=superseded_too)
        if mode == "keyword":
            return await self._by_keywords(query, visible, limit=limit)
        fill = _FILL_BEFORE_SEARCH
        if mode == "semantic":
            return await self._by_meaning(
                query, visible, limit=limit, threshold=threshold, fill=fill, progress=progress
            )
        _, found, _ = await self._find(
            query,
            limit=limit,
            mode=mode,
            fill=fill,
            progress=progress,
            visible=visible,
            boosted=mode == "hybrid",
        )
        hits = await self._hits([(ranked, ranked.score) for ranked in found.ranked])
        return hits if mode != "hybrid" else await self._with_factors(hits)

    async def _visible(self, wanted: Filter, *, include_superseded: bool) -> Visible:
        """Which memories a search may give."""
        now = to_micros(self._clock.now())

        def read(connection: Connection) -> Visible:
            allowed = (
                None
                if wanted.is_empty
                else frozenset(repository.matching_rids(connection, self._space, wanted))
            )
            hidden: list[int] = []
            if not include_superseded:
                hidden += repository.expired_rids(connection, self._space, now)
            return Visible(allowed=allowed, hidden=frozenset(hidden))

        return await self._database.read(read)

    async def _with_factors(self, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """The same hits, telling what importance, recency and priority made of their scores."""
        passed = await self._requests_since([hit.memory.id for hit in hits])
        now = self._clock.now()
        return tuple(
            replace(
                hit,
                signals={
                    **hit.signals,
                    **{
                        f"times_{name}": round(factor, 6)
                        for name, factor in decay.boost_signals(
                            hit.memory, now, cycles=passed.get(hit.memory.id)
                        ).items()
                    },
                },
            )
            for hit in hits
        )

    async def _by_keywords(self, query: str, visible: Visible, *, limit: int) -> tuple[Hit, ...]:
        now = self._clock.now()
        keywords = modes.keywords_of(query)
        scored = await self._database.read(
            lambda connection: modes.score_by_keywords(
                connection,
                self._space,
                keywords,
                now=now,
                by_request=self._by_request,
                only=visible.allowed,
                without=visible.hidden,
            )
        )
        return await self._scored_hits(scored[:limit])

    async def _by_meaning(
        self,
        query: str,
        visible: Visible,
        *,
        limit: int,
        threshold: float,
        fill: int,
        progress: Callable[[int, int], None],
    ) -> tuple[Hit, ...]:
        _, found, vector = await self._find(query, limit=1, mode="dense", fill=fill, progress=progress)
        if vector is None or not found.ranked:
            return ()
        cosines = await self._candidates.cosines(vector, visible=visible)
        now = self._clock.now()
        scored = await self._database.read(
            lambda connection: modes.score_by_meaning(
                connection, self._space, dict(cosines), now=now, threshold=threshold
            )
        )
        return await self._scored_hits(scored[:limit])

    async def _scored_hits(self, scored: Sequence[modes.Scored]) -> tuple[Hit, ...]:
        records = await self._database.read(
            lambda connection: repository.read_records(
                connection, self._space, [found.rid for found in scored]
            )
        )
        return tuple(
            Hit(memory=records[found.rid], score=round(found.score, 6), signals=found.signals)
            for found in scored
            if found.rid in records
        )

    async def surface(
        self,
        messages: Sequence[Said] | Said,
        *,
        budget_tokens: int = 500,
        limit: int = 5,
        exclude: Collection[str] = (),
        exclude_session: str | None = None,
        threshold: float | None = None,
        as_of: datetime | None = None,
        include_superseded: bool = False,
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
            as_of: What was believed then, instead of what holds now.
            include_superseded: Also what has ceased to hold.

        Returns:
            The marked block and its memories, each with its relevance as score; empty where nothing is
            relevant.

        Raises:
            UsageError: A message is of no known form.
            StorageError: The store could not be read.
        """
        found = await self._surfaced(
            messages,
            budget_tokens=budget_tokens,
            limit=limit,
            exclude=exclude,
            exclude_session=exclude_session,
            threshold=threshold,
            as_of=as_of,
            include_superseded=include_superseded,
        )
        now = to_micros(self._clock.now())
        ids = [hit.memory.id for hit in found.context.memories]

        def note(connection: Connection) -> None:
            if self._by_request:
                repository.count_request(connection, self._space)
            if ids:
                repository.note_uses(connection, repository.rids_of(connection, self._space, ids), now)

        if ids or self._by_request:
            # Another process may hold the database: that a memory was used is worth less than the memory.
            with suppress(StorageLocked):
                await self._database.write(note)
        return found.context

    async def recall(
        self,
        messages: Sequence[Said] | Said,
        *,
        budget_tokens: int = 500,
        limit: int = 5,
        exclude: Collection[str] = (),
        exclude_session: str | None = None,
        threshold: float | None = None,
    ) -> Recall:
        """Tell what `surface` would show now, and why not more. Nothing is counted as used.

        Args:
            messages: As in `surface`, and so is the rest.
            budget_tokens: Of the block.
            limit: At most so many memories.
            exclude: Ids that were shown already.
            exclude_session: The conversation that is going on.
            threshold: How sure to be.

        Raises:
            UsageError: A message is of no known form.
            StorageError: The store could not be read.
        """
        found = await self._surfaced(
            messages,
            budget_tokens=budget_tokens,
            limit=limit,
            exclude=exclude,
            exclude_session=exclude_session,
            threshold=threshold,
        )
        said = said_texts(messages)[-3:]
        if not said:
            return Recall(context=found.context)
        near = await self.search(said[-1][1], limit=2 * CONSIDERED, include_superseded=True)
        passed = await self._requests_since([hit.memory.id for hit in near])
        now = self._clock.now()
        reasons = {hit.memory.id: why for hit, why in found.left_out}
        shown = {hit.memory.id for hit in found.context.memories}
        left_out = list(found.left_out)
        known = _without_blanks(text for _, text in said)
        for hit in near:
            id, ends = hit.memory.id, hit.memory.valid_to
            if id in shown or id in reasons:
                continue
            if ends is not None and ends <= now:
                why = "no longer holds"
            elif decay.priority_now(hit.memory, now, cycles=passed.get(id)) < decay.FLOOR:
                why = "faded: it was not used for long"
            elif says(hit.memory.content, known):
                why = "says what was just said"
            else:
                why = "not relevant enough"
            left_out.append((hit, why))
        return Recall(context=found.context, left_out=tuple(left_out))

    async def _requests_since(self, ids: Sequence[str]) -> Mapping[str, int]:
        """Chat requests since each memory was last used; empty where decay counts days."""
        if not self._by_request:
            return {}
        return await self._database.read(
            lambda connection: repository.requests_since(connection, self._space, ids)
        )

    async def _surfaced(
        self,
        messages: Sequence[Said] | Said,
        *,
        budget_tokens: int,
        limit: int,
        exclude: Collection[str],
        exclude_session: str | None,
        threshold: float | None,
        as_of: datetime | None = None,
        include_superseded: bool = False,
    ) -> _Surfaced:
        said = said_texts(messages)[-3:]
        if not said or limit < 1:
            return _Surfaced()
        at_least = 0.5 if threshold is None else threshold
        await self._refresh()
        await self._group_few()
        visible = await self._visible(
            Filter(as_of=self._aware(as_of)),
            include_superseded=include_superseded or as_of is not None,
        )
        question, passing, considered = await self._judged(
            said[-1][1], at_least=at_least, fill=_FILL_BEFORE_SURFACING, visible=visible
        )
        if not passing and len(said) > 1:
            # "And what can she eat?" means something only after what came before.
            together = "\n".join(text for _, text in said)
            question, passing, considered = await self._judged(
                together, at_least=at_least, fill=0, visible=visible
            )
        if not passing:
            return _Surfaced()
        sure = {ranked.rid for ranked, _ in passing}
        hits = with_later_words(
            await self._hits(passing),
            await self._hits([(ranked, 0.0) for ranked in considered if ranked.rid not in sure]),
        )
        known = _without_blanks(text for _, text in said)
        fresh: list[Hit] = []
        left_out: list[tuple[Hit, str]] = []
        for hit in hits:
            if hit.memory.id in exclude:
                left_out.append((hit, "was shown in this session already"))
            elif exclude_session is not None and hit.memory.source.session == exclude_session:
                left_out.append((hit, "was said in this session"))
            elif says(hit.memory.content, known):
                left_out.append((hit, "says what was just said"))
            elif is_mere_question(hit.memory):
                left_out.append((hit, "only asks"))
            else:
                fresh.append(hit)
        context = block_of(fresh, stems=question.stems, budget_tokens=budget_tokens, limit=limit)
        shown = {hit.memory.id for hit in context.memories}
        for hit in fresh:
            if hit.memory.id not in shown:
                restated = any(restates(hit.memory.content, one.memory.content) for one in context.memories)
                left_out.append((hit, "restates what is shown" if restated else "no room left"))
        return _Surfaced(context=context, left_out=tuple(left_out))

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
        limit: int = 100,
        offset: int = 0,
        **filters: Unpack[Filters],
    ) -> tuple[MemoryRecord, ...]:
        """Memories that fit every filter given, those said last first.

        Args:
            limit: At most so many.
            offset: How many to skip.
            filters: Which ones, see `Filters`.

        Raises:
            UsageError: A filter has a value that there is none of.
        """
        wanted = filter_of(filters, self._aware)
        found = await self._database.read(
            lambda connection: repository.list_records(
                connection, self._space, wanted, limit=max(0, limit), offset=max(0, offset)
            )
        )
        return tuple(found)

    async def count(self, **filters: Unpack[Filters]) -> int:
        """How many memories fit every filter given; see `list`."""
        wanted = filter_of(filters, self._aware)
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

    async def reindex(
        self,
        *,
        calibrate: bool = False,
        drop_old: bool = False,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> Reindexed:
        """Give every memory of the database the vectors that it lacks, those of all users and scopes.

        Where the embedder is another than the one in use, its vectors are made beside the old ones, which serve other
        processes until all are there; then it takes over in one transaction. Interrupted, it goes on where it was.

        Args:
            calibrate: Show the embedder again the example messages that surfacing measures with. With an embedder that
                is new to the store this happens by itself.
            drop_old: Remove vectors of embedders out of use at once; otherwise they stay for a week.
            progress: How many memories are done, and of how many.

        Raises:
            UsageError: The store goes by words alone.
        """
        if self._dense is None:
            raise UsageError(
                'There is no embedder (memory.embedder is "none"): name one to make vectors with.'
            )
        return await reindex(self._dense, calibrate=calibrate, drop_old=drop_old, progress=progress)

    @property
    def degraded(self) -> str | None:
        """What does not serve as it should, in words for the user, or None: the embedder, most likely."""
        return None if self._dense is None else self._dense.notice

    # What is near what.

    async def compare(self, older: str, newer: str, *, model: ChatModel | None = None) -> Comparison:
        """How a newer statement stands to an older one, with this memory's embedder.

        Args:
            older: What was said first.
            newer: What was said later.
            model: A language model to ask; where it does not answer, the comparison without one is given.
        """
        if model is not None and older.strip() and newer.strip():
            found = await ask_model(model, older, newer)
            if found is not None:
                return found
        similarity: float | None = None
        if self._dense is not None and older.strip() and newer.strip():
            rows = await self._dense.vectors_of([older, newer])
            similarity = None if rows is None else float(rows[0] @ rows[1])
        return judge_pair(older, newer, similarity)

    async def group(self, *, limit: int | None = None, model: ChatModel | None = None) -> Grouped:
        """Compare facts that were not compared yet with those near them, and tie what belongs together.

        A restatement is tied to what it restates; what is corrected with confidence is superseded, else both are
        tied as contradicting. Nothing is merged or removed, and `undo` takes everything back. It also goes on in the
        background while nobody searches, and a search does the last few itself.

        Args:
            limit: At most so many facts, or None for all.
            model: A language model that is asked about each pair that is no clear matter.
        """
        total = Grouped()
        while limit is None or total.compared < limit:
            done = await self._group_some(
                _GROUP_AT_ONCE if limit is None else min(_GROUP_AT_ONCE, limit - total.compared),
                model=model,
                fill=_FILL_BEFORE_SEARCH,
            )
            if not done.compared:
                break
            total += done
        return total

    async def _group_some(self, limit: int, *, model: ChatModel | None, fill: int) -> Grouped:
        dense = self._dense
        if dense is not None:
            await dense.open()
        await self._refresh()
        missing = self._candidates.count - self._candidates.embedded
        # Finding what has no vector reads the whole space.
        if dense is not None and missing:
            await dense.fill(limit=min(fill, missing))
            await self._refresh()
        serving = self._candidates.model if dense is not None and dense.trouble is None else None
        facts = await self._database.read(
            lambda connection: pending_facts(
                connection, self._space, model=serving, limit=limit, since=self._compared_to
            )
        )
        if not facts:
            return Grouped()
        near = await self._candidates.near(
            {fact.rid: (fact.content, fact.vectors) for fact in facts},
            limit=MOST_CANDIDATES,
            cosine=CANDIDATE_COSINE,
            coverage=CANDIDATE_COVERAGE,
        )
        wanted = sorted({rid for found in near.values() for rid in found} | {fact.rid for fact in facts})
        records = await self._database.read(
            lambda connection: repository.read_records(connection, self._space, wanted)
        )
        findings = [await self._compared(fact, near.get(fact.rid, {}), records, model) for fact in facts]
        at = to_micros(self._clock.now())

        def write(connection: Connection) -> Grouped:
            total = Grouped()
            for fact, found in zip(facts, findings, strict=True):
                total += write_findings(connection, self._space, fact, found, at)
            return total

        return await self._database.write(write)

    async def _compared(
        self,
        fact: PendingFact,
        near: Mapping[int, float | None],
        records: Mapping[int, MemoryRecord],
        model: ChatModel | None,
    ) -> Sequence[tuple[MemoryRecord, MemoryRecord, Comparison]]:
        findings = []
        for rid, cosine in near.items():
            if fact.rid not in records or rid not in records or records[rid].kind != "fact":
                continue
            older, newer = in_order(records[rid], records[fact.rid], one_first=rid < fact.rid)
            found = judge_pair(older.content, newer.content, cosine)
            if model is not None and found.confidence < 1:
                found = await ask_model(model, older.content, newer.content) or found
            findings.append((older, newer, found))
        return findings

    async def _group_few(self) -> None:
        """Compare the facts that were stored a moment ago, where they are few: for who searches right after."""
        changed = self._candidates.changed
        if changed == self._grouped_at:
            return
        pending = await self._count_pending()
        if 0 < pending <= _GROUP_BEFORE_SEARCH:
            await self._group_some(_GROUP_BEFORE_SEARCH, model=None, fill=_FILL_BEFORE_SURFACING)
            await self._refresh()
            pending = await self._count_pending()
        if not pending:
            self._compared_to = changed
        self._grouped_at = self._candidates.changed

    async def _count_pending(self) -> int:
        return await self._database.read(
            lambda connection: count_pending_facts(
                connection, self._space, since=self._compared_to, limit=_GROUP_BEFORE_SEARCH + 1
            )
        )

    # Inside.

    async def _draft(self, **given: Any) -> Draft | None:
        """Check what was given and read its words; None where it has none."""
        content = content_of(given["content"])
        if not content:
            return None
        content = await self._redacted(content)
        tier: Tier = one_of(given["tier"], Tier, "tier")
        priority = PRIORITY[tier] if given["priority"] is None else share_of(given["priority"], "priority")
        decay_rate = (
            DECAY_RATE[tier] if given["decay_rate"] is None else share_of(given["decay_rate"], "decay rate")
        )
        now = self._clock.now()
        said_at = self._aware(given["said_at"]) or now
        valid_from, valid_to = self._aware(given["valid_from"]), self._aware(given["valid_to"])
        if valid_from is not None and valid_to is not None and valid_to < valid_from:
            raise UsageError(
                f"It would cease to hold ({valid_to}) before it begins to ({valid_from}); nothing was stored."
            )
        session = given["session"]
        turn = given["turn"]
        tags = tuple([await self._redacted(tag) for tag in given["tags"]])
        quote = None if given["quote"] is None else await self._redacted(printable(given["quote"]))
        words = (
            lexicon.read_text(content, tags)
            if len(content) <= _READ_INLINE_CHARS
            else await self._run(lexicon.read_text, content, tags)
        )
        placed = turn is not None and given["position"] is not None
        return Draft(
            id=given["id"],
            tags=tags,
            words=words,
            words_hash=None
            if session is None
            else self._hasher.words(session, content, turn=turn if placed else None),
            row={
                "kind": one_of(given["kind"], Kind, "kind"),
                "content": content,
                "content_hash": repository.content_hash(content),
                "tier": tier,
                "memory_type": one_of(given["memory_type"], MemoryType, "memory type"),
                "importance": importance_of(given["importance"]),
                "priority": priority,
                "decay_rate": decay_rate,
                "speaker": printable(given["speaker"])[:200],
                "said_at": to_micros(said_at),
                "said_offset_min": repository.offset_minutes(said_at),
                "valid_from": None if valid_from is None else to_micros(valid_from),
                "valid_to": None if valid_to is None else to_micros(valid_to),
                "source_session": None if session is None else clean(session, "session"),
                "source_turn": None if turn is None else whole(turn, "turn"),
                "source_position": given["position"],
                "source_quote": quote,
                "trust": one_of(given["trust"], Trust, "trust"),
                "created_at": to_micros(now),
            },
        )

    async def _redacted(self, text: str) -> str:
        """See `Space.redacted`."""
        return await self._shared.redacted(text)

    def _stored(self) -> None:
        self._wake.set()

    async def _run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function on memory's own thread; a cancelled caller waits for it."""
        return await self._thread.run(function, *args)

    async def _refresh(self) -> None:
        """Take in what this and other processes changed since the last time."""
        dense = self._dense
        if dense is None:
            await self._candidates.refresh()
        else:
            await self._candidates.refresh(model=dense.model, dimension=dense.dimension)

    async def _find(
        self,
        query: str,
        *,
        limit: int,
        mode: Mode,
        fill: int,
        visible: Visible | None = None,
        boosted: bool = False,
        for_showing: bool = False,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> tuple[Question, Found, Floats | None]:
        dense = None if mode == "lexical" else self._dense
        if dense is not None:
            await dense.open()
        await self._refresh()
        candidates = self._candidates
        question = read_question(query, candidates.speakers.items())
        if not candidates.count or not query.strip():
            return question, Found(), None
        asked: AskedWith | None = None
        if dense is not None:
            missing = candidates.count - candidates.embedded
            if missing and fill:
                total = min(missing, fill)
                if await dense.fill(limit=total, progress=lambda done: progress(done, total)):
                    await self._refresh()
            asked = await dense.question(question.text)
            if candidates.model is None and dense.model is not None:
                # Its first answer told what it is called in the store.
                await self._refresh()
            dense.waiting = 0 if asked is None else candidates.count - candidates.embedded
        found = await candidates.find(
            question,
            asked,
            mode=mode,
            limit=limit,
            visible=visible,
            factors=self._factors if boosted else self._none_for_faded if for_showing else None,
            for_showing=for_showing,
        )
        return question, found, None if asked is None else asked.vector

    async def _factors(self, rids: Sequence[int]) -> Mapping[int, float]:
        """What importance, recency and priority make of the scores of these memories."""
        now = self._clock.now()
        return await self._database.read(
            lambda connection: modes.boosts_of(
                connection, self._space, rids, now=now, by_request=self._by_request
            )
        )

    async def _none_for_faded(self, rids: Sequence[int]) -> Mapping[int, float]:
        """Brings the scores of what faded to nothing, and leaves the others."""
        now = to_micros(self._clock.now())
        faded = await self._database.read(
            lambda connection: repository.faded_rids(
                connection, self._space, rids, at=now, floor=decay.FLOOR, by_request=self._by_request
            )
        )
        return dict.fromkeys(faded, 0.0)

    async def _judged(
        self, text: str, *, at_least: float, fill: int, visible: Visible
    ) -> tuple[Question, Sequence[tuple[Ranked, float]], Sequence[Ranked]]:
        """What is worth showing for a text, surest first; and everything that was judged, best first."""
        question, found, vector = await self._find(
            text, limit=CONSIDERED, mode="hybrid", fill=fill, visible=visible, for_showing=True
        )
        found = replace(found, ranked=tuple(hit for hit in found.ranked if hit.score > 0))
        gate = None if vector is None or self._dense is None or not found.ranked else await self._dense.gate()
        if gate is None or vector is None:
            passing = judge_by_words(found.ranked, at_least=at_least)
        else:
            passing = judge(found, gate, vector, at_least=at_least)
        return question, passing, found.ranked[:CONSIDERED]

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

    async def _group_when_idle(self) -> None:
        """Compare what was not, a little at a time, and not while somebody searches or stores."""
        while True:
            if anyio.current_time() - self._busy_at >= _FILL_IDLE_S:
                done = await self._group_some(_GROUP_AT_ONCE, model=None, fill=_FILL_BEFORE_SEARCH)
                if not done.compared:
                    return
            await anyio.sleep(_FILL_IDLE_S / 10)

    async def _back_fill(self, dense: DenseArm) -> None:
        """Embed in the background, whenever something was stored and the program lives on for a moment."""
        while True:
            await anyio.sleep(_FILL_IDLE_S)
            self._wake = anyio.Event()
            try:
                await dense.keep_up()
                await self._group_when_idle()
            except SatchelError as error:
                dense.trouble = str(error)
            except Exception:  # noqa: BLE001 - A background job: a defect in it must not end what the user is doing.
                _log.exception("Embedding memories in the background failed.")
            await self._wake.wait()


def _key_file(database: Database, home: Path | None) -> Path | None:
    """Where the key for hashes of forgotten words is kept; None for a database in memory that has no home."""
    if home is not None:
        return home / KEY_FILE
    return None if database.is_in_memory else Path(database.place).parent / KEY_FILE


def _without_blanks(texts: Iterable[str]) -> set[str]:
    return {" ".join(text.split()) for text in texts}
