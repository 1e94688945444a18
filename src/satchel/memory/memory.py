"""`Memory`: what a program that remembers needs, alone or inside the agent. It composes the services of this room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack

from satchel.clock import Clock, SystemClock, local_day
from satchel.config import process_environ
from satchel.config.home import replacing
from satchel.errors import NotFound, StorageError, StorageLocked, StorageUnwritable, UsageError
from satchel.memory import checkup, transfer
from satchel.memory.checkup import Checkup, Repaired
from satchel.memory.find import folding
from satchel.memory.find.candidates.engine import Candidates
from satchel.memory.find.deep import DeepAnswer, search_deeply
from satchel.memory.find.embedding import Fill
from satchel.memory.find.reindexing import Reindexed, reindex
from satchel.memory.find.search import Search
from satchel.memory.find.two_arms import arms_of
from satchel.memory.journal import MemoryJournal
from satchel.memory.records import (
    Context,
    Episode,
    Hit,
    MemoryRecord,
    Mode,
    Moment,
    Recall,
    Receipt,
    Stats,
    StoredDocument,
)
from satchel.memory.show import agenda, profile
from satchel.memory.show.agenda import AGENDA_TOKENS, Agenda
from satchel.memory.show.page.records import PAGE_TOKENS, UNREAD_TOKENS, Page
from satchel.memory.show.page.rendering import with_last
from satchel.memory.show.page.service import Pages
from satchel.memory.show.profile import ID_CHARS, LATELY, PROFILE_TOKENS, Profile
from satchel.memory.show.surface import Showing, Surface
from satchel.memory.spheres import clean_spheres
from satchel.memory.store import graph, history, lifecycle, page_rows, repository, spending, statement_rows
from satchel.memory.store.capture import Capture
from satchel.memory.store.checking import Edits, NewFields, clean, clean_tags, one_of, printable
from satchel.memory.store.claims import Claims
from satchel.memory.store.counts import DayCount, TagCount, Ways, read_days, read_tags, read_ways
from satchel.memory.store.decay import DecayCycle
from satchel.memory.store.discretion_rows import guest_in, name_of
from satchel.memory.store.filters import Filters
from satchel.memory.store.forgetting import forget, has_unkeyed, rekey, release
from satchel.memory.store.graph import Edge, Related, Successor
from satchel.memory.store.history import Change
from satchel.memory.store.marks import Rebuilt
from satchel.memory.store.page_lines import PageVersion
from satchel.memory.store.space import Space
from satchel.memory.store.spending import Asked, SpentRow
from satchel.memory.store.thread import OneThread
from satchel.memory.text.block import Said, said_texts
from satchel.memory.text.discretion import announced
from satchel.memory.text.framing import SHORT_ID_CHARS
from satchel.memory.text.hashing import KEY_FILE, WordHasher
from satchel.memory.upkeep import BEFORE_PROFILE, BEFORE_SEARCH, BEFORE_SURFACING, Upkeep
from satchel.models.embedding import (
    DEFAULT_EMBEDDER,
    DEFAULT_SECOND_EMBEDDER,
    OwnEmbedding,
    as_embedder,
    open_embedder,
)
from satchel.models.port import ChatModel, Embedder
from satchel.storage import Database
from satchel.tasks import background_tasks

if TYPE_CHECKING:
    from satchel.memory.distill.engine import Distiller, MaySpend
    from satchel.memory.distill.records import DistillReport, DistillStatus, WindowResult
    from satchel.memory.transfer.formats import NamedReader
    from satchel.memory.transfer.report import ExportReport, ImportReport, TransferProgress

_MAX_DEPTH = 20


def _ignore(*_: object) -> None:
    """Where nobody wants to know about progress."""


class Memory:
    """The memories of one user in one scope. Nothing of another user's or scope's is ever found or changed.

    What was acknowledged survives the death of the process. Every method raises `StorageError` where the store can't be
    read or written; what was acknowledged before stays. One that is told the id of a memory raises `NotFound` where
    there is none with it. One that changes a memory returns the change's id, for `undo`, or None if nothing changed.
    Nothing is sent anywhere except to the embedder and the models that were asked for. Several processes may have the
    same store open.
    """

    def __init__(self, space: Space, journal: MemoryJournal | None, embed_within_s: float | None) -> None:
        """Use `open`."""
        self.user = space.user
        self.scope = space.scope
        self._space = space
        self._capture = Capture(space)
        self._search = Search(space)
        self._surface = Surface(space, self._search)
        self._journal = journal
        self.rebuilt = Rebuilt()
        self._upkeep = Upkeep(space, journal, embed_within_s)

    async def rebuild(self) -> Rebuilt:
        """Compare all of the journal, the copy of the memories outside of the database, with the database: store what
        is missing, make again the corrections that are missing, and forget again what was forgotten.

        A database that is new or lost its end takes what it lacks when it is opened; `rebuilt` says what that was.

        Raises:
            UsageError: The store was opened without a home, and has no journal.
        """
        if self._journal is None:
            raise UsageError("This store has no journal: it was opened without a home.")
        return await self._journal.sync(whole=True)

    @cached_property
    def _distiller(self) -> Distiller:
        from satchel.memory.distill.engine import Distiller  # noqa: PLC0415 - most processes don't distil

        return Distiller(self._space, self._capture, self.search, self._pages)

    @cached_property
    def _pages(self) -> Pages:
        return Pages(self._space, self._capture)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        where: str | Path | Database,
        *,
        embedder: Embedder | OwnEmbedding | str | None = None,
        second_embedder: Embedder | OwnEmbedding | str | None = None,
        user: str = "default",
        scope: str = "default",
        clock: Clock | None = None,
        home: Path | None = None,
        back_fill: bool = True,
        embed_within_s: float | None = None,
        redact: bool = True,
        decay_cycle: DecayCycle = "day",
        locale: str = "",
    ) -> AsyncIterator[Memory]:
        """Open a store, and close it at the end.

        Args:
            where: A path, an "sqlite:///" or a "postgresql://" URL, ":memory:", or an open database, which stays open.
            embedder: An `Embedder`, or anything with `embed(texts, role)`, awaited or not, that returns a row of
                numbers for each text; it stays open. Or a name for `open_embedder`. None is the default, "minilm",
                which is fetched once into `home`; "none" searches by words alone.
            second_embedder: Likewise, for texts in languages that the first doesn't read. None is "use-multilingual"
                beside "minilm", and none beside others; "none" is none. It is fetched and loaded once there is such a
                text, in the background.
            user: Whose memories.
            scope: Which of them, by any name, such as "default" (the user's own), "project:NAME" or "session:ID". A
                scope is a store of its own.
            clock: Tells the time.
            home: SATCHEL_HOME, for the embedding models and the key for hashes of what is forgotten. Without it, the
                key is kept beside the database's file, or in a table of the server.
            back_fill: Whether vectors are made in the background too, and not only before a search.
            embed_within_s: The most time that a search, `surface` or `recall` spends on vectors that are missing, the
                newest first; memories without one are found by their words. None sets no limit of time: up to 10,000
                are made before a search, and 1,024 before `surface`.
            redact: Whether secrets are removed before anything is stored; see `satchel.memory.store.redaction`.
            decay_cycle: What rates of decay count: days, or chat requests, which are the calls of `surface`.
            locale: The user's, as "en_GB"; see `resolve_dates`.

        Raises:
            StorageError: The database can't be opened; see `Database.open`.
            ConfigError: There is no such embedder or database.
        """
        clock = clock or SystemClock()
        user, scope = clean(user, "user"), clean(scope, "scope")
        by_request = one_of(decay_cycle, DecayCycle, "cycle of decay") == "request"
        async with AsyncExitStack() as stack:
            database = (
                where
                if isinstance(where, Database)
                else await stack.enter_async_context(Database.open(where, clock=clock))
            )
            own = database.of(user)
            number = await own.read(lambda connection: repository.find_space(connection, user, scope))
            if number is None:
                number = await own.write(lambda connection: repository.open_space(connection, user, scope))
            claims = Claims(database, clock)
            dense = None
            if embedder != "none":
                if second_embedder is None and embedder in (None, DEFAULT_EMBEDDER):
                    second_embedder = DEFAULT_SECOND_EMBEDDER
                first = await _opened(embedder or DEFAULT_EMBEDDER, home, clock, stack)
                second = None
                if second_embedder is not None and second_embedder != "none":
                    second = await _opened(second_embedder, home, clock, stack)
                dense = arms_of(first, second, database, number, clock, claims)
            hasher = await _hasher(database, home)
            await _bring_up_to_date(database, hasher)
            thread = OneThread("satchel-memory")
            stack.callback(thread.close)
            candidates = Candidates(own, number, thread, dense)
            stack.callback(candidates.close)
            if database.is_scrub_due:
                await database.scrub()
            space = Space(
                id=number,
                user=user,
                scope=scope,
                backend=own,
                claims=claims,
                candidates=candidates,
                dense=dense,
                clock=clock,
                hasher=hasher,
                thread=thread,
                redacts=redact,
                by_request=by_request,
                locale=locale,
            )
            journal = None if home is None or database.is_in_memory else MemoryJournal(space, home)
            memory = cls(space, journal, embed_within_s)
            if journal is not None and await journal.is_behind():
                memory.rebuilt = await journal.sync()
            async with background_tasks() as group:
                if back_fill:
                    group.start_soon(memory._upkeep.run, dense)
                try:
                    yield memory
                finally:
                    with suppress(StorageError):
                        await memory._upkeep.copy()

    @property
    def server(self) -> Database | None:
        """The database, if it is on a server."""
        database = self._space.backend
        return None if database.is_in_memory or database.file is not None else database

    # Storing.

    async def add(self, content: str, **fields: Unpack[NewFields]) -> str:
        """Store one memory, word for word.

        Args:
            content: Up to 16 million characters. NUL characters and lone surrogates become U+FFFD.
            fields: What else is known of it, see `NewFields`.

        Returns:
            Its id. It is in the store when this returns.

        Raises:
            UsageError: A value is empty, out of range or unknown, or its source was forgotten.
        """
        id = await self._capture.add(content, **fields)
        self._upkeep.stored()
        return id

    async def add_episodes(self, episodes: Iterable[Episode], *, durable: bool = False) -> tuple[str, ...]:
        """Store what was said, word for word, in one transaction.

        An episode's id follows from user, scope, session, turn and position, so that storing it again changes nothing.
        What Satchel itself injected is removed first. An episode without words, and one whose source was forgotten, is
        left out.

        Args:
            episodes: What was said.
            durable: Return only when they are on the disk, so that a power failure can't take them back.

        Returns:
            The ids of those that are in the store now, in the order given.

        Raises:
            UsageError: One is malformed, or has no position and its turn has other words there; nothing was stored.
        """
        ids = await self._capture.add_episodes(episodes, durable=durable)
        self._upkeep.stored()
        return ids

    async def lacking(self, episodes: Iterable[Episode]) -> int:
        """Count the episodes that `add_episodes` would store: they are not here, and nobody forgot them.

        They have their positions.

        Raises:
            UsageError: One is malformed.
        """
        return await self._capture.lacking(episodes)

    async def put_document(
        self,
        path: str,
        passages: Sequence[tuple[int | None, str, str]],
        *,
        title: str,
        digest: str,
        written_at: Moment,
        again: bool = False,
    ) -> int:
        """Store a document in one transaction, in place of what was stored from this path.

        Each passage is a memory from outside: it is found, and never on the page, in the profile or on the agenda.

        Args:
            path: Where the document is; its name among documents.
            passages: Page or None, heading or "", and text, in order. None of them removes the document.
            title: What it is called.
            digest: Of its bytes, in hex.
            written_at: When it was written.
            again: Only if something is stored from this path: it may have been forgotten meanwhile.

        Returns:
            The number of passages that are stored.

        Raises:
            NotFound: With `again`, nothing is stored from this path.
            UsageError: A value is malformed; nothing was changed.
        """
        from satchel.memory.store import documents  # noqa: PLC0415 - most processes have none

        stored = await documents.put(
            self._space, path, passages, title=title, digest=digest, written_at=written_at, again=again
        )
        await self._upkeep.copy()
        self._upkeep.stored()
        return stored

    async def remove_documents(self, sources: Sequence[str]) -> None:
        """Remove the documents with these sources, in one transaction. Their words elsewhere stay.

        Many at once, because the journal is written anew when something is taken out of it.
        """
        from satchel.memory.store import documents  # noqa: PLC0415 - as above

        await documents.remove(self._space, sources)
        await self._upkeep.copy()
        self._upkeep.stored()

    async def documents(self) -> tuple[StoredDocument, ...]:
        """The documents that are remembered, by their paths."""
        from satchel.memory.store import documents  # noqa: PLC0415 - as above

        return tuple(await self._space.read(documents.documents))

    async def forget(
        self,
        ids: str | Iterable[str] = (),
        *,
        query: str | None = None,
        session: str | None = None,
        before: datetime | None = None,
        scope: str | None = None,
        shown_in: Collection[str] = (),
        dry_run: bool = False,
    ) -> Receipt:
        """Remove memories for good: the words, their vectors, index entries, edges, tags and changes, and every fact
        that rests on nothing else. Where an agent's words or a fact repeat them, "[forgotten]" replaces them. What they
        had superseded holds again.

        A hash of where they came from is left, so that the same source can't bring them back. The words are overwritten
        in the database's file and in its log. Copies elsewhere (session logs, backups) are up to the caller.

        Args:
            ids: Which ones; the receipt names those that are not there.
            query: Instead: those that have every telling word of it, whatever its ending, in their words or tags; and
                no others, however near in meaning.
            session: Instead or besides: those that come from this conversation.
            before: Instead or besides: those that were said before then.
            scope: Everything in this memory's scope, which has to be named.
            shown_in: Conversations in which models were shown them: there, parts of them that an answer repeats go too.
            dry_run: Remove nothing, and say what would be removed.

        Raises:
            UsageError: Nothing says which ones, or ids and conditions are mixed, or the scope is another one.
        """
        named = [await self.full_id(id) for id in ([ids] if isinstance(ids, str) else ids)]
        receipt = await forget(
            self._space,
            named,
            query=query,
            session=session,
            before=before,
            scope=scope,
            shown_in=shown_in,
            dry_run=dry_run,
        )
        if not dry_run:
            await self._upkeep.copy()
        return receipt

    async def carry(self, session: str, into: Memory) -> None:
        """Copy what comes from a conversation to another scope, with its ids, history and edges; `release` then removes
        it here. What is there already stays as it is.

        Raises:
            StorageError: It can't be read or written, or the other scope refuses some of it.
        """
        ids = [record.id for record in await self.list(session=session, limit=await self.count() or 1)]
        with TemporaryDirectory(prefix="satchel-") as folder:
            await self.export_to(Path(folder) / "moved.jsonl", session=session)
            await into.import_from(Path(folder) / "moved.jsonl", source="satchel")
        if lost := set(ids) - await into.known(ids):
            raise StorageError(
                f"{len(lost)} of the memories of session {session} could not be moved, so they stay where they were."
            )

    async def release(self, session: str) -> int:
        """Remove what comes from a conversation that belongs to another scope now, and what rests on it alone. Unlike
        what was forgotten, it may be stored here again. Returns how many memories went.
        """
        space = self._space
        if not await self.count(session=session):
            return 0
        await space.backend.expect_scrub()
        gone = await space.write_durably(release, session, at=space.now_micros())
        await space.backend.scrub()
        await self._upkeep.copy()
        return gone

    async def scopes(self) -> Sequence[str]:
        """The user's scopes that memories were stored in, this one and others, and not removed since."""
        return await self._space.read(lambda connection, _: repository.scopes_of(connection, self.user))

    async def remove_scope(self, scope: str) -> None:
        """Remove another scope of the user for good: all of its memories, what is noted of them and of their cost, and
        the journal. Nobody in this process has it open.

        Raises:
            UsageError: It is this memory's own scope.
        """
        if scope == self.scope:
            raise UsageError(f"{scope} is the scope that is open.")
        backend = self._space.backend
        await backend.expect_scrub()
        await backend.write(
            lambda connection: repository.remove_space(connection, self.user, scope), durable=True
        )
        await backend.scrub()
        if self._journal is not None:
            await self._journal.remove(scope)

    # Reading.

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        mode: Mode = "hybrid",
        include_superseded: bool = False,
        threshold: float | None = None,
        relevant_only: bool = False,
        clearly: bool = False,
        progress: Callable[[int, int], None] = _ignore,
        **filters: Unpack[Filters],
    ) -> tuple[Hit, ...]:
        """Find memories, best first. What no longer holds is left out, unless it is asked for.

        Memories that have no vector yet are embedded first, the newest 10,000 of them at most, or as many as the time
        allows that `open` was given for that.

        Args:
            query: A question or some words; an empty one finds nothing.
            limit: The most that are returned.
            mode: "hybrid" goes by words and by meaning, and lets importance, recency and priority move a score by a
                tenth each; "lexical" goes by words alone; "semantic" is cosine x importance / 3 x recency (seed-2),
                "keyword" is priority and what words and tags hit (seed-0).
            include_superseded: Also what no longer holds.
            threshold: Only scores above it are returned. None takes 0.45 in the mode "semantic" (seed-2) and all in the
                others, where a score orders the hits of one question and says little beside another's.
            relevant_only: In the modes "hybrid" and "lexical", leave out what is found only because something
                always is nearest: memories that share no telling word with the query, and whose meaning is no nearer
                to it than that of two unrelated messages.
            clearly: With `relevant_only`, also leave out what is near in meaning alone, unless something stands out:
                for a list of what somebody typed, where what is near to an invented word only disturbs.
            progress: Told how many memories were embedded, and of how many.
            filters: Which ones, see `Filters`; with `as_of`, what was believed then.

        Raises:
            UsageError: The mode or a filter's value is unknown, or the limit is no positive number.
        """
        if mode not in ("lexical", "keyword"):
            await self._upkeep.prepare(most=BEFORE_SEARCH, progress=progress)
        elif mode == "lexical":  # Words alone wake no embedder.
            await self._space.candidates.refresh()
        return await self._search.hits(
            query,
            limit=limit,
            mode=mode,
            include_superseded=include_superseded,
            threshold=threshold,
            relevant_only=relevant_only,
            clearly=clearly,
            filters=filters,
        )

    async def surface(
        self,
        messages: Sequence[Said] | Said,
        *,
        budget_tokens: int = 500,
        limit: int = 8,
        exclude: Collection[str] = (),
        exclude_session: str | None = None,
        standing: Collection[str] = (),
        known: Collection[str] = (),
        threshold: float | None = None,
        judge: ChatModel | None = None,
        spheres: Collection[str] | None = None,
        granted: Collection[str] = (),
    ) -> Context:
        """Find what a model should be shown now: what bears on the last three messages, or nothing.

        Args:
            messages: The conversation, oldest first; its last three messages count, the newest most.
            budget_tokens: The block is never longer, by an estimate that is rather too high.
            limit: The most memories that are shown.
            exclude: Ids that were shown already.
            exclude_session: The conversation that is going on: what was said in it stands before the model anyway.
            standing: Ids of what stands in the model's profile and agenda: it is found, and not shown again.
            known: Ids of all that is before the model, also in part: what has superseded one of them since is shown.
            threshold: How sure to be, 0 to 1; None takes 0.5. docs/concepts/retrieval.md has the curve: what is needed
                and shown against what is shown in vain.
            judge: A small and fast language model that chooses among the first twenty candidates. If it doesn't answer
                within 0.8 s, or not with their numbers, the choice is made without it.
            spheres: The parts of the user's life that the message is about, as in `add`, where the caller knows: what
                belongs to another one is not shown. None judges by likeness.
            granted: Show only memories all of whose spheres are among these; empty shows all.

        Returns:
            The marked block and its memories, each with its relevance as score; empty where nothing is relevant.

        Raises:
            UsageError: A message is of no known form.
        """
        await self._upkeep.prepare(most=BEFORE_SURFACING, with_gate=True)
        showing = Showing(
            budget_tokens=budget_tokens,
            limit=limit,
            exclude=exclude,
            exclude_session=exclude_session,
            standing=standing,
            known=known,
            threshold=threshold,
            judge=judge,
            spheres=None if spheres is None else clean_spheres(spheres).split(),
            granted=granted,
            is_guests=await self.guest_speaks(messages, session=exclude_session),
        )
        found = await self._surface.shown(messages, showing)
        context = found.context
        with suppress(StorageLocked):  # What it cost is worth less than the answer that waits.
            await self.note_cost(found.cost)
        await self._upkeep.note_shown([hit.memory.id for hit in (*context.memories, *context.standing)])
        return context

    async def recall(
        self,
        messages: Sequence[Said] | Said,
        *,
        budget_tokens: int = 500,
        limit: int = 8,
        exclude: Collection[str] = (),
        exclude_session: str | None = None,
        threshold: float | None = None,
        spheres: Collection[str] | None = None,
    ) -> Recall:
        """Say what `surface` would show now, and why not more. Nothing is counted as used.

        The arguments are those of `surface`.

        Raises:
            UsageError: A message is of no known form.
        """
        await self._upkeep.prepare(most=BEFORE_SEARCH, with_gate=True)
        showing = Showing(
            budget_tokens=budget_tokens,
            limit=limit,
            exclude=exclude,
            exclude_session=exclude_session,
            threshold=threshold,
            spheres=None if spheres is None else clean_spheres(spheres).split(),
            is_guests=await self.guest_speaks(messages, session=exclude_session),
        )
        return await self._surface.recall(messages, showing)

    async def just_held_back(self, ids: Sequence[str]) -> tuple[MemoryRecord, ...]:
        """What is held back of some turns, and by them: the turns before that they point to, and facts drawn from them.

        `ids` are those of the messages that were stored last.
        """
        return tuple(await self._space.read(lifecycle.held_back_with, ids))

    async def guest_speaks(self, messages: Sequence[Said] | Said, *, session: str | None = None) -> bool:
        """Whether somebody else than the user is writing, as they said in the conversation ("It's his wife here", or
        "Heike here" where facts are about a Heike): until the user is back, only what is asked for and private to
        nobody is shown, and nothing that is said is the user's.

        `session` is where what was said earlier in the conversation is stored.
        """
        for wish in announced(text for role, text in said_texts(messages) if role == "user"):
            whose = await self._space.read(name_of, wish.name) if wish.name else ""
            is_guests = wish.is_guests(whose)
            if is_guests is not None:
                return is_guests
        return session is not None and await self._space.read(guest_in, session)

    async def profile(self, *, budget_tokens: int = PROFILE_TOKENS, granted: Collection[str] = ()) -> Profile:
        """Say what holds about the user at all times, for a model that is to know it in every conversation.

        What the user pinned comes first, then current facts in the user's own words by importance, then the user's own
        lasting statements about themselves where no fact says them. What came from outside is never in it. The same
        store gives the same bytes. Nothing is counted as used.

        The block is not longer than `budget_tokens`, by an estimate that is rather too high, but for what is today and
        deadlines that must not be missed; 0 gives an empty one.
        `granted` is as in `surface`.
        """
        return await self._profile(budget_tokens, granted)

    async def page(
        self,
        *,
        budget_tokens: int = PAGE_TOKENS,
        proposed: bool = False,
        confidential: bool = True,
        granted: Collection[str] = (),
    ) -> Page | None:
        """Show the standing page: facts about the user in their own words, and what the user wrote into it.

        What was forgotten or superseded, or is over is left out. What is pinned stands on it. The
        same store gives the same bytes on a day. Nothing is counted as used.

        `proposed` shows a first page too that the user has not accepted yet, and `confidential` what is kept from
        somebody: for the user's own eyes and conversations. The block is never longer than `budget_tokens`, by an
        estimate that is rather too high; 0 gives None. `granted` is as in `surface`.

        Returns:
            None where no page was written.
        """
        return await self._pages.page(
            budget_tokens=budget_tokens, proposed=proposed, confidential=confidential, granted=granted
        )

    async def standing(
        self,
        *,
        page_tokens: int = PAGE_TOKENS,
        profile_tokens: int = PROFILE_TOKENS,
        granted: Collection[str] = (),
        confidential: bool = False,
        lately: bool = True,
        exclude_session: str | None = None,
    ) -> Page | Profile:
        """Say what a model is to know in every conversation: the page where there is one, else the profile.

        Unless the conversation goes on already (`lately`), the user's last turns stand below it, whole: below the page
        in up to `UNREAD_TOKENS` those that nobody has read yet, below the profile in up to twice as many tokens as it
        has; nothing that was said in `exclude_session`. The other arguments are those of `page` and `profile`; 0 tokens
        go without one.
        """
        found = await self.page(budget_tokens=page_tokens, confidential=confidential, granted=granted)
        if not found:
            return await self._profile(
                profile_tokens,
                granted,
                lately_tokens=LATELY * profile_tokens * lately,
                exclude_session=exclude_session,
            )
        last = await profile.lately(
            self._space,
            budget_tokens=UNREAD_TOKENS * lately,
            granted=granted,
            exclude_session=exclude_session,
            unread=True,
        )
        return with_last(found, last)

    async def _profile(
        self,
        budget_tokens: int,
        granted: Collection[str],
        *,
        lately_tokens: int = 0,
        exclude_session: str | None = None,
    ) -> Profile:
        if budget_tokens <= 0:
            return Profile()
        await self._upkeep.read_statements(most=BEFORE_PROFILE)
        return await profile.compose(
            self._space,
            budget_tokens=budget_tokens,
            granted=granted,
            lately_tokens=lately_tokens,
            exclude_session=exclude_session,
        )

    async def page_versions(self, *, limit: int = 20) -> tuple[PageVersion, ...]:
        """Return what the page was, the newest version first."""
        return tuple(await self._space.read(page_rows.versions, limit=limit))

    async def edit_page(self, text: str, *, base: int | None = None) -> PageVersion:
        """Take the user's own version of the page.

        Each line that is new or changed becomes a memory of the user's, and stays on the page as it is. What a line
        that is gone stood on is not written onto the page again.

        Args:
            text: The page: headings that begin with "#", and a line for each statement, perhaps with "(until
                2026-05-01)" at its end; see `page.editing.as_text`.
            base: The number of the version that was edited; None takes the newest. What was written since is kept.

        Raises:
            NotFound: There is no such version.
            UsageError: A line is below no known heading or too long; nothing was changed.
        """
        version = await self._pages.edit(text, base=base)
        self._upkeep.stored()
        return version

    async def restore_page(self, number: int | None = None) -> PageVersion:
        """Make an earlier version of the page the newest one; None takes the one before it.

        Raises:
            NotFound: There is no such version.
        """
        version = await self._pages.restore(number)
        self._upkeep.stored()
        return version

    async def page_waits(self) -> bool:
        """Whether a first page was proposed, and the user has not accepted it yet."""
        version = await self._space.read(page_rows.newest)
        return version is not None and version.state == "proposed"

    async def accept_page(self) -> bool:
        """Let a first page that was proposed stand before models. False if none waits for that."""
        return await self._space.write(page_rows.accept)

    async def agenda(
        self,
        *,
        budget_tokens: int = AGENDA_TOKENS,
        granted: Collection[str] = (),
        standing: Collection[str] = (),
        exclude_session: str | None = None,
    ) -> Agenda:
        """Say what the user said will happen today or in the next days, soonest first; birthdays every year.

        It goes by the days that date words mean (see `resolve_dates`) and by the clock's local day. What is past, was
        superseded or forgotten, or was called off or moved by a later statement about it, is left out.

        The block is not longer than `budget_tokens`, by an estimate that is rather too high, but for what is today and
        deadlines that must not be missed; 0 gives an empty one.
        `granted` is as in `surface`. `standing` are the ids of what stands before the model already with all its words:
        of those, facts with a time are left out; and so is what was said today in `exclude_session`.
        """
        if budget_tokens <= 0:
            return Agenda(day=self._space.clock.now().date())
        await self._upkeep.read_statements(most=BEFORE_PROFILE)
        return await agenda.compose(
            self._space,
            budget_tokens=budget_tokens,
            granted=granted,
            standing=standing,
            exclude_session=exclude_session,
        )

    async def deep(
        self,
        question: str,
        *,
        model: ChatModel | None = None,
        as_of: Moment | None = None,
        tags: Iterable[str] = (),
        progress: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None,
    ) -> DeepAnswer:
        """Answer a question from several angles at once; see `deep.search_deeply`.

        A small `model` expands the question and writes the answer; None goes without. `as_of` asks what was believed
        then. `progress` is told of each step: "expanding", "searching", "found".
        """
        return await search_deeply(
            self,
            printable(question),
            model=model,
            as_of=self._space.aware(as_of),
            tags=clean_tags(tags),
            progress=progress,
        )

    async def as_written(self, memories: Sequence[MemoryRecord], moment: Moment) -> tuple[MemoryRecord, ...]:
        """Return memories as they stood at a moment, without what edits wrote later.

        Raises:
            UsageError: The moment is no time.
        """
        return await self._search.as_written(memories, self._space.aware(moment))

    async def get(self, id: str) -> MemoryRecord:
        """Return one memory."""
        id = await self.full_id(id)
        found = await self._space.read(repository.records_by_id, [id])
        if id not in found:
            raise NotFound(f"There is no memory {id!r} of user {self.user!r} in scope {self.scope!r}.")
        return found[id]

    async def full_id(self, id: str) -> str:
        """Return the id that begins so, as profile and agenda write ids; the same where none or several do."""
        if not SHORT_ID_CHARS <= len(id) < ID_CHARS:
            return id
        found = await self._space.read(statement_rows.find_beginning, id)
        return found[0] if len(found) == 1 else id

    async def list(
        self, *, limit: int = 100, offset: int = 0, facts_first: bool = False, **filters: Unpack[Filters]
    ) -> tuple[MemoryRecord, ...]:
        """Return the memories that fit every filter given, those said last first; with `facts_first` the facts before
        all others.

        Raises:
            UsageError: A filter's value is unknown.
        """
        return await self._search.list(filters, limit=limit, offset=offset, facts_first=facts_first)

    async def evidence(self, ids: Sequence[str]) -> Mapping[str, tuple[MemoryRecord, ...]]:
        """Return the turns that each of some facts rests on, in the order in which they were said.

        Returns:
            By id: what was said in the turn that a fact names as its source, and what else it was drawn from. Memories
            that rest on no turn are not in it.
        """
        return await self._space.read(folding.read_evidence, ids)

    async def count(self, **filters: Unpack[Filters]) -> int:
        """Count the memories that fit every filter given; see `list`."""
        return await self._space.read(repository.count_rows, self._space.filter_of(filters))

    async def stats(self) -> Stats:
        """Count what is in the store."""
        dense = self._space.dense
        if dense is not None:
            await dense.open()
        if dense is None or dense.model is None:
            return await self._space.read(repository.read_stats, None, ())
        models = (dense.model, *([] if dense.second is None else [dense.second.model]))
        return await self._space.read(repository.read_stats, dense.embedder.info.id, models)

    async def by_day(self) -> tuple[DayCount, ...]:
        """Count what is in the store by the day it was said, and by kind, the oldest day first."""
        return await self._space.read(read_days)

    async def tags(self, *, limit: int = 100) -> tuple[TagCount, ...]:
        """Return the tags that most memories have, with how many have them."""
        return await self._space.read(read_tags, limit)

    async def ways(self) -> Ways:
        """Return whom and what the memories that hold are about: names and spheres, with how many speak of each."""
        return await self._space.read(read_ways, now=self._space.now_micros())

    # Changing.

    async def edit(self, id: str, *, by: str = "user", why: str = "", **edits: Unpack[Edits]) -> str | None:
        """Change a memory; what is not given stays. The words it had before stay in its history.

        `edits` says what is to change, see `Edits`. `by` says who wants it, and `why` what for; both are kept in the
        history.

        Raises:
            UsageError: A value is empty, out of range or unknown; nothing was changed.
        """
        fields = await lifecycle.checked(self._space, edits)
        note = lifecycle.note_of(self._space, by, why)
        change = await self._space.write(lifecycle.edit, await self.full_id(id), fields, note)
        if "content" in fields:
            self._upkeep.stored()
        return change

    async def pin(self, id: str) -> str | None:
        """Have a memory stand in the profile, before everything that isn't pinned.

        Raises:
            UsageError: It came from outside, or a hundred are pinned.
        """
        note = lifecycle.note_of(self._space)
        return await self._space.write(lifecycle.pin, await self.full_id(id), note, pinned=True)

    async def unpin(self, id: str) -> str | None:
        """Take a pin back; the memory may still be in the profile by its importance."""
        note = lifecycle.note_of(self._space)
        return await self._space.write(lifecycle.pin, await self.full_id(id), note, pinned=False)

    async def link(
        self,
        source: str,
        target: str,
        relation: str = "related",
        weight: float = 1.0,
        *,
        by: str = "user",
        why: str = "",
    ) -> str | None:
        """Add an edge, as in "`source` elaborates `target`"; an edge that is there gets the weight.

        The relation is one of `graph.RELATIONS`, or any word; a weight of 0 is never followed, 1 is the strongest.

        Raises:
            UsageError: They are the same, or the relation is empty, or the weight is out of range.
        """
        return await self._link(source, target, relation, lifecycle.checked_weight(weight), by, why)

    async def unlink(
        self, source: str, target: str, relation: str = "related", *, why: str = ""
    ) -> str | None:
        """Remove an edge."""
        return await self._link(source, target, relation, None, lifecycle.USER, why)

    async def _link(
        self, source: str, target: str, relation: str, weight: float | None, by: str, why: str
    ) -> str | None:
        note, relation = lifecycle.note_of(self._space, by, why), clean(relation, "relation").strip()
        source, target = await self.full_id(source), await self.full_id(target)
        return await self._space.write(lifecycle.link, source, target, relation, weight, note)

    async def supersede(
        self, older: str, newer: str, *, valid_to: datetime | None = None, by: str = "user", why: str = ""
    ) -> str | None:
        """Let a newer memory take the place of an older one, which stays, with an end to its validity.

        Search and surfacing leave out the older one from then on, unless they are asked `as_of` an earlier moment.

        A `valid_to` of None takes the time from which the newer one holds as the end of the older one.

        Raises:
            UsageError: They are the same, or somebody said before that it is the other way round.
            Refused: `by` is not "user", and the newer one is not trusted enough: what comes from outside never ends
                what the user or the agent said.
        """
        note, end = lifecycle.note_of(self._space, by, why), self._space.micros(valid_to)
        older, newer = await self.full_id(older), await self.full_id(newer)
        return await self._space.write(lifecycle.supersede, older, newer, note, valid_to=end)

    async def keep(self, id: str) -> str:
        """Note in the history that a memory was looked at and is right; nothing else changes."""
        note = lifecycle.note_of(self._space)
        return await self._space.write(lifecycle.keep, await self.full_id(id), note)

    async def merge(self, ids: Iterable[str], content: str) -> tuple[str, tuple[str, ...]]:
        """Make one fact of several. The one that was said last gets the words `content`, and what all of them rest on,
        their tags, spheres, pins, greatest importance and strictest discretion; it supersedes the others.

        Returns:
            Its id; and the changes in the order in which to undo them.

        Raises:
            UsageError: They are fewer than two, or not all facts, or there are no words; nothing was changed.
        """
        fields = await lifecycle.checked(self._space, {"content": content})
        note = lifecycle.note_of(self._space)
        wanted = list(dict.fromkeys([await self.full_id(id) for id in ids]))
        kept, done = await self._space.write(lifecycle.merge, wanted, fields["content"], note)
        self._upkeep.stored()
        return kept, tuple(done)

    async def undo(self, change_id: str, *later: str, why: str = "") -> str:
        """Take a change back, and after it those that are named besides: all of them or none. That is a change itself:
        undoing it again brings the first one back.

        Returns:
            The id of the change that undoing `change_id` is.

        Raises:
            NotFound: There is no such change.
            UsageError: It was a storing or a forgetting, or what it changed was changed again since.
        """
        note = lifecycle.note_of(self._space, why=why)
        change = await self._space.write(history.undo_changes, (change_id, *later), note)
        self._upkeep.stored()
        return change

    async def note_use(self, ids: Iterable[str]) -> None:
        """Count that memories were used now, which reinforces them; ids that are not there are left out."""
        wanted = list(ids)
        if wanted:
            await self._space.write(repository.note_uses, wanted, self._space.now_micros())

    async def history(self, id: str) -> tuple[Change, ...]:
        """Return every change of a memory, oldest first; the first one is that it was stored.

        Of a forgotten one only that is left, with a hash of its words.

        Raises:
            NotFound: Nothing is known of this id.
        """
        return tuple(await self._space.read(history.read_changes, await self.full_id(id)))

    async def known(self, ids: Sequence[str]) -> frozenset[str]:
        """Return which of these ids belong to memories."""
        return frozenset(await self._space.read(repository.known_ids, ids) if ids else ())

    async def words_said(self, ids: Sequence[str]) -> tuple[tuple[MemoryRecord, tuple[str, ...]], ...]:
        """Return memories, each with all the words it ever had, the present ones first: what forgetting looks for."""
        return tuple(await self._space.read(lifecycle.words_said, ids))

    async def later(
        self, ids: Sequence[str], *, holding: bool = False
    ) -> Mapping[str, tuple[Successor, ...]]:
        """Return what was said later and takes the place of some memories, or may take it.

        A turn is out of date, too, if a fact that was drawn from it was superseded.

        With `holding`, only what holds now: what no longer does is replaced by what took its own place.

        Returns:
            By id, the later memories, the certain ones first; memories that hold are not in it.
        """
        now = self._space.now_micros()
        return await self._space.read(lifecycle.later, ids, now=now, holding=holding)

    async def edges(self, id: str) -> tuple[Edge, ...]:
        """Return the edges that begin or end at a memory, the strongest first."""
        return tuple(await self._space.read(graph.read_edges, await self.full_id(id)))

    async def related(
        self, id: str, depth: int = 2, relations: Collection[str] | None = None, *, limit: int = 100
    ) -> tuple[Related, ...]:
        """Return what can be reached from a memory along edges in either direction: nearest first, then the strongest.

        `depth` is the most steps, 1 to 20; `relations` says which edges are followed, None follows all.

        Raises:
            UsageError: The depth or the limit is out of range.
        """
        if not 1 <= depth <= _MAX_DEPTH or limit < 1:
            raise UsageError(f"A walk has 1 to {_MAX_DEPTH} steps and a limit of 1 or more.")
        start = await self.full_id(id)
        found = await self._space.read(graph.walk, start, depth=depth, relations=relations, limit=limit)
        return tuple(found)

    async def keep_up(self) -> bool:
        """Do now what goes on in the background otherwise: embed, compare and read for the profile what was stored or
        changed since the last call, by any process.

        Returns:
            Whether there was anything to do.
        """
        return await self._upkeep.catch_up()

    # Distilling.

    async def distill(
        self,
        *,
        model: ChatModel,
        small_model: ChatModel | None = None,
        most_windows: int | None = None,
        closed: tuple[int, float] | None = None,
        may_spend: MaySpend | None = None,
        page_tokens: int = PAGE_TOKENS,
        progress: Callable[[WindowResult], Awaitable[None]] | None = None,
    ) -> DistillReport:
        """Draw facts from what was said and not yet read for them, window by window.

        A small model says whether a window holds anything worth remembering; a larger one proposes facts. It is shown
        the page and related facts, says which of them are corrected and where the new ones stand, and takes off the
        page what is over. A fact is kept if its quote is in the words; the days that its date words mean are
        worked out and written beside them. A fact rests on its episodes (`derived_from`), is trusted no more than they
        are, and goes with them. Each window is one transaction: whatever interrupts a run, nothing is lost and nothing
        doubled, and the next run goes on where it stopped.

        Args:
            model: Proposes the facts; never one that only recalls.
            small_model: Judges what is worth it; None takes `model`.
            most_windows: Stop after so many.
            closed: Read only conversations with so many unread messages, or without a new one for so many seconds; and
                only where one has so many, is of an earlier day, or they fill a window together. None reads all.
            may_spend: Awaited before each window; raises `BudgetExceeded` where no more may be spent.
            page_tokens: Of the page; 0 goes without one.
            progress: Awaited with each window as soon as it is stored.

        Returns:
            What was read and stored, and why the run ended early, if it did, failing models included.

        Raises:
            UsageError: The model is "none".
        """
        small_model = model if small_model is None else small_model
        if "none" in (model.provider, small_model.provider):
            raise UsageError(
                "Facts are drawn by a language model, and there is none. `satchel model list` helps."
            )
        from satchel.memory.distill.engine import DistillRun  # noqa: PLC0415 - most processes don't distil

        report = await self._distiller.run(
            DistillRun(
                model=model,
                small_model=small_model,
                most_windows=most_windows,
                closed=closed,
                may_spend=may_spend,
                page_tokens=page_tokens,
                progress=progress,
            )
        )
        if report.facts:
            self._upkeep.stored()
        return report

    async def distill_status(self) -> DistillStatus:
        """What waits to be read for facts, what was read, what failed, and what it cost."""
        return await self._distiller.status()

    async def distill_is_due(self, *, every: int, after_s: float) -> bool:
        """Whether `distill` would read something, with `closed` = (every, after_s)."""
        return await self._distiller.is_due(every=every, after_s=after_s)

    async def newest_episode(self) -> int:
        """A number that grows with each episode that any process stores; 0 without one."""
        return await self._distiller.newest()

    async def note_cost(self, asked: Sequence[Asked]) -> None:
        """Count what calls of language models cost that were made for memory."""
        if asked:
            await self._space.write(spending.add_usage, asked, local_day(self._space.clock.now()))

    async def spent(self, *, everywhere: bool = False) -> tuple[SpentRow, ...]:
        """What memory's own calls of language models cost, by local day and model, the newest day first; with
        `everywhere` in all scopes of the user.
        """
        return tuple(await self._space.read(spending.read_spent, everywhere=everywhere))

    # Moving.

    async def export_to(
        self,
        where: str | Path | BinaryIO,
        **filters: Unpack[Filters],
    ) -> ExportReport:
        """Write memories as JSON lines: everything but vectors and indexes, which are made anew.

        What an empty store imports and exports again has the same bytes. What was forgotten is noted too (by hashes),
        unless a filter chooses among the memories.

        Args:
            where: A path, which is replaced when all is written; or a stream of bytes, which stays open.
            filters: Which ones, see `Filters`.

        Raises:
            StorageUnwritable: The file can't be written; what was there is untouched.
        """
        wanted = self._space.filter_of(filters)
        if not isinstance(where, str | Path):
            return await self._space.read(transfer.write, wanted, where.write)
        try:
            with replacing(Path(where)) as stream:
                return await self._space.read(transfer.write, wanted, stream.write)
        except OSError as error:
            raise StorageUnwritable(
                f"{where} can't be written: {error.strerror}. It was not changed."
            ) from error

    async def import_from(
        self,
        where: str | Path,
        *,
        source: str = "auto",
        dry_run: bool = False,
        progress: Callable[[TransferProgress], None] = _ignore,
        reader: NamedReader | None = None,
        conversations: transfer.TakeConversation | None = None,
        elsewhere: Collection[str] = (),
    ) -> ImportReport:
        """Take in memories from a file, a folder or an archive; `docs/guides/moving.md` says what becomes of each.

        What is in the store already stays as it is: ids follow from the files, so that importing again adds nothing,
        and an interrupted import goes on when it is called again. What was forgotten is not taken in again from the
        same source. Files are read as streams, whatever their size.

        Args:
            where: A file, a .zip, or a folder, which is searched with its subfolders.
            source: The format, such as "chatgpt"; "auto" looks at each file.
            dry_run: Only count.
            progress: Told after every batch.
            reader: Reads all files instead, whatever `source` says: of a format that is not built in.
            conversations: Gets each conversation as soon as its memories are stored.
            elsewhere: The sessions whose memories are in another scope, and so are left out.

        Raises:
            NotFound: There is nothing there.
            UsageError: The source is unknown, or the one file is of no known format.
            StorageError: It can't be read, or the store could not be written; what was reported is stored.
        """
        intake = transfer.Intake(
            space=self._space, dry_run=dry_run, take_conversation=conversations, elsewhere=elsewhere
        )
        report = await intake.read(Path(where), source, progress, reader=reader)
        self._upkeep.stored()
        return report

    # Upkeep.

    async def check(self) -> Checkup:
        """Look at every memory and every index, and ask the embedder whether it serves."""
        return await checkup.check(self._space)

    async def repair(self, *, secrets: bool = False) -> Repaired:
        """Repair what `check` finds: indexes, rows that belong to nothing, injected text, missing vectors.

        With `secrets`, they are removed too. That can't be undone: their words stay nowhere in the store.
        """
        done = await checkup.repair(self._space, secrets=secrets)
        if done.emptied:
            await self._upkeep.copy()
        return done

    async def embed_pending(self) -> int:
        """Give memories that have no vector yet one now, instead of leaving it to searches and the background.

        Returns:
            How many were embedded; fewer than there are if the embedder fails, see `degraded`.
        """
        if self._space.dense is None:
            return 0
        await self._space.dense.open()
        return await self._space.dense.fill(Fill(fetch=True))

    async def reindex(
        self,
        *,
        drop_old: bool = False,
        progress: Callable[[int, int], None] = _ignore,
    ) -> Reindexed:
        """Give every memory of the database the vectors that it lacks, those of all users and scopes.

        The vectors of a new embedder are made beside the old ones, which serve other processes until all are there;
        then the new embedder takes over in one transaction. An interrupted call goes on where it was.

        Args:
            drop_old: Remove vectors of embedders out of use at once; otherwise they stay for a week.
            progress: How many memories are done, and of how many.

        Raises:
            UsageError: The store goes by words alone.
        """
        if self._space.dense is None:
            raise UsageError(
                'There is no embedder (memory.embedder is "none"): name one to make vectors with.'
            )
        done = await reindex(self._space.dense, drop_old=drop_old, progress=progress)
        await self._space.candidates.refresh()
        return done

    @property
    def degraded(self) -> str | None:
        """What does not serve as it should, in words for the user, or None: the embedder, most likely."""
        return None if self._space.dense is None else self._space.dense.notice


async def _opened(
    embedder: Embedder | OwnEmbedding | str, home: Path | None, clock: Clock, stack: AsyncExitStack
) -> Embedder:
    """The embedder that was named, which is closed with the stack, or given, which isn't."""
    if not isinstance(embedder, str):
        return as_embedder(embedder)
    environ = process_environ()
    home = home or Path(environ.get("SATCHEL_HOME") or Path.home() / ".satchel")
    found = open_embedder(embedder, home=home, environ=environ, clock=clock)
    stack.push_async_callback(found.aclose)
    return found


async def _hasher(database: Database, home: Path | None) -> WordHasher:
    """The hashes of forgotten words: with the key of the home or, without one, of the database; one in memory has a key
    for as long as it is open.
    """
    is_server = database.file is None and not database.is_in_memory
    folder = database.file.parent if home is None and database.file is not None else home
    if folder is not None:
        hasher = WordHasher(folder / KEY_FILE)
    else:
        hasher = WordHasher(await database.own_key() if is_server else None)
    if is_server:
        await database.bind(hasher.mark)
    return hasher


async def _bring_up_to_date(database: Database, hasher: WordHasher) -> None:
    """Redo what an older version derived: the words of the lexical index, and hashes without a key. Remove the arrays
    that it kept in files.
    """
    if database.file is not None:
        rmtree(f"{database.file}.arrays", ignore_errors=True)
    if await database.read(repository.has_old_words):
        while await database.write(repository.reread_words):
            pass
    if await database.read(has_unkeyed):
        await database.write(lambda connection: rekey(connection, hasher))
        await database.scrub()
