"""Distils the pending episodes of a space: a small model judges each window of a conversation, a larger one proposes
facts from those that are worth it, and the facts that can be verified are stored.

A query finds the pending work. Each verdict and each window is written in one transaction as soon as it is known. A
process that is killed loses only the answer that it was waiting for, and nothing is stored twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio

from satchel.clock import local_day
from satchel.errors import BudgetExceeded, ModelError, ModelRejected
from satchel.memory.distill import ledger
from satchel.memory.distill.asking import Known, Proposal, Unreadable, ask_extractor, ask_gate, gate_version
from satchel.memory.distill.checking import CheckedFact, check, find_quote
from satchel.memory.distill.records import DistillReport, DistillStatus, Outcome, WindowResult
from satchel.memory.distill.windows import EpisodePart, Window, windows_of
from satchel.memory.records import TRUST_RANK, FactTime, Hit, MemoryRecord, Tier
from satchel.memory.store.page_lines import PageFacts
from satchel.memory.store.repository import MemoryDraft
from satchel.memory.store.spending import Asked, add_usage
from satchel.memory.text.discretion import beside_wish, telling_words, wish_of
from satchel.memory.text.languages import function_words
from satchel.memory.text.statements import without_days
from satchel.messages import Usage
from satchel.models.port import ChatModel

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.show.page.service import Pages
    from satchel.memory.store.capture import Capture
    from satchel.memory.store.space import Space

T = TypeVar("T")

_ATTEMPTS = 3
"""After this many answers that can't be parsed, a window is given up, and `doctor` reports it."""
_KNOWN_FACTS = 6
"""The most related facts that the extractor is shown beside the page (seed-2, 4.2: "existing relevant memories")."""
_KNOWN_TO_EACH = 3
"""Of these, the most that are looked for with each line; what one line corrects is not near to the whole window."""
_MAX_QUERIES = 12
_MAX_QUERY_CHARS = 500
_PROFILE_IMPORTANCE = 4
"""The least importance of what belongs in the profile, which takes the most important facts first."""
_OF_PROFILE = ("answers", "user", "people", "limits", "home", "work")
"""The sections of the page that say who the user is."""
_MOST_REFUSED = 10
"""Refused notes that are asked for once more."""
_MEANWHILE = "another process read it meanwhile"

MaySpend = Callable[[], Awaitable[None]]
"""Raises `BudgetExceeded` if no more may be spent."""

_FIRST_PAUSE_S = 60.0
_LONGEST_PAUSE_S = 3600.0
_WRITING_S = 2.0
"""How long a call that is cancelled may take to write what it cost."""


@dataclass(slots=True, kw_only=True)
class DistillRun:
    """The options of one run, see `Memory.distill`, and its results so far."""

    model: ChatModel
    small_model: ChatModel
    most_windows: int | None
    closed: tuple[int, float] | None
    may_spend: MaySpend | None
    page_tokens: int
    progress: Callable[[WindowResult], None]
    results: list[WindowResult] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    skip: list[str] = field(default_factory=list)
    stopped: str = ""

    def leaves(self, session: str) -> bool:
        """Whether the rest of a session isn't read in this run."""
        return bool(self.stopped) or session in self.skip


class Distiller:
    """Extracts facts from the episodes of one space."""

    def __init__(
        self, space: Space, capture: Capture, search: Callable[..., Awaitable[Sequence[Hit]]], page: Pages
    ) -> None:
        """Nothing is read before `run`."""
        self._space = space
        self._capture = capture
        self._search = search
        self._page = page
        self._lock = anyio.Lock()

    async def status(self) -> DistillStatus:
        """Return what is pending, done and failed; see `Memory.distill_status`."""
        return await self._space.read(ledger.read_status)

    async def newest(self) -> int:
        """See `Memory.newest_episode`."""
        return await self._space.read(ledger.newest)

    async def is_due(self, *, every: int, after_s: float) -> bool:
        """Whether a conversation has `every` pending episodes, or some and none for `after_s` seconds, and the pause
        after a failure is over.

        Each failure doubles the pause, from a minute to an hour. It is computed from the store, so every process
        observes it.
        """
        now = self._space.now_micros()
        closing = self._closing(every, after_s)

        def look(connection: Connection, space: int) -> bool:
            failures, failed_at = ledger.failing_since(connection, space)
            pause_s = min(_FIRST_PAUSE_S * 2 ** (min(failures, 10) - 1), _LONGEST_PAUSE_S) if failures else 0
            if now < failed_at + int(pause_s * 1_000_000):
                return False
            return ledger.has_closed(connection, space, closing)

        return await self._space.read(look)

    def _closing(self, every: int, after_s: float) -> ledger.Closing:
        return every, self._space.now_micros() - int(after_s * 1_000_000)

    async def run(self, run: DistillRun) -> DistillReport:
        """Distil pending episodes; see `Memory.distill`."""
        async with self._lock:
            await self._read_sessions(run)
            if run.page_tokens > 0:  # What was stored by hand gets a place too.
                await self._page.note({}, (), budget_tokens=run.page_tokens)
            pending = await self._space.read(ledger.count_pending)
            return DistillReport(
                windows=tuple(run.results), usage=run.usage, pending=pending, stopped=run.stopped
            )

    async def _read_sessions(self, run: DistillRun) -> None:
        gate = gate_version()
        closing = None if run.closed is None else self._closing(*run.closed)

        def find(connection: Connection, held: Collection[str]) -> list[list[EpisodePart]]:
            found = ledger.next_session(
                connection, self._space.id, closing=closing, gate=gate, skip=run.skip, held=held
            )
            return [found] if found else []

        while not run.stopped:
            async with self._space.claims.take("distill", find, name=self._claim_name) as taken:
                windows = [window for episodes in taken for window in windows_of(episodes)]
                if not windows:
                    return
                for window in windows:
                    if run.leaves(window.session):
                        break
                    # To read a conversation of one window costs little more than to ask whether to.
                    await self._read_window(window, run, is_judged=window.is_worth or len(windows) == 1)

    def _claim_name(self, episodes: Sequence[EpisodePart]) -> str:
        return ledger.claim_name(self._space.id, episodes[0].session)

    async def _read_window(self, window: Window, run: DistillRun, *, is_judged: bool) -> None:
        """Let the gate judge a window unless it `is_judged`, and read it if it is worth it."""
        if not any(piece.text.strip() for piece in window.new):
            await self._settle(window, "nothing", run, reason="the user asked not to keep it")
            return
        if not await self._may_go_on(run):
            return
        reason = ""
        try:
            if not is_judged:
                verdict = await self._paid(run, partial(ask_gate, run.small_model, window))
                reason = verdict.reason
                if not verdict.worth:
                    await self._settle(window, "nothing", run, reason=reason)
                    return
                at = self._space.now_micros()
                await self._space.write(ledger.write_worth, window, gate=gate_version(), at=at)
            result = await self._read(window, run, reason)
        except (ModelError, Unreadable) as error:
            await self._failed(window, error, run)
        else:
            self._report(result, run)

    async def _paid(self, run: DistillRun, ask: Callable[[list[Asked]], Awaitable[T]]) -> T:
        """Ask a model, and count what that costs, also where the call fails or is cancelled."""
        spent: list[Asked] = []
        try:
            return await ask(spent)
        finally:
            if spent:
                run.usage = sum((one.usage for one in spent), run.usage)
                with anyio.move_on_after(_WRITING_S, shield=True):
                    await self._space.write(add_usage, spent, local_day(self._space.clock.now()))

    async def _may_go_on(self, run: DistillRun) -> bool:
        if run.most_windows is not None and len(run.results) >= run.most_windows:
            run.stopped = f"The limit of {run.most_windows} windows a run was reached."
        elif run.may_spend is not None:
            try:
                await run.may_spend()
            except BudgetExceeded as error:
                run.stopped = str(error)
        return not run.stopped

    def _report(self, result: WindowResult, run: DistillRun) -> None:
        run.results.append(result)
        run.progress(result)
        if result.outcome == "failed":
            # The rest of this session is retried with this window; other sessions can go on.
            run.skip.append(result.session)

    async def _read(self, window: Window, run: DistillRun, reason: str) -> WindowResult:
        """Let the extractor read a window, and store what can be verified."""
        known = await self._known(window, run.page_tokens)
        there = known.facts
        reading = await self._paid(run, partial(ask_extractor, run.model, window, known))
        good, refused = self._checked(reading.facts, window, there)
        dropped: list[str] = []
        if refused:
            taken = {fact.proposal.content for fact in good}
            new = [proposal for proposal, _ in refused]
            with suppress(ModelError, Unreadable):
                asking = partial(ask_extractor, run.model, window, known, refused=refused[:_MOST_REFUSED])
                again = await self._paid(run, asking)
                new = [one for one in again.facts if one.content not in taken][: len(refused)]
            more, left = self._checked(new, window, there, is_again=True)
            good += more
            dropped = [why for _, why in left]
        facts: list[tuple[CheckedFact, MemoryDraft]] = []
        for checked in _held_together(good, window, there):
            draft = await self._draft_of(checked, window)
            if draft is not None:
                facts.append((checked, draft))
        at = self._space.now_micros()
        so_far = replace(_result(window, "nothing", reason=reason), dropped=tuple(dropped))
        result = await self._space.write(ledger.write_window, window, facts, so_far, at=at)
        if result is None:
            return _result(window, "nothing", reason=_MEANWHILE)
        stored = [(fact, draft) for fact, draft in facts if draft.id in result.facts]
        sections = {draft.id: fact.proposal.section for fact, draft in stored}
        # What says all of a known fact and more takes its place, if it may stand there.
        replaced = [
            fact.known.id
            for fact, _ in stored
            if fact.known and fact.proposal.relation == "elaborates" and fact.trust != "outside"
        ]
        if run.page_tokens > 0 and (sections or replaced or reading.off):
            await self._page.note(sections, reading.off, replaced=replaced, budget_tokens=run.page_tokens)
        return result

    def _checked(
        self,
        proposals: Sequence[Proposal],
        window: Window,
        known: Mapping[str, MemoryRecord],
        *,
        is_again: bool = False,
    ) -> tuple[list[CheckedFact], list[tuple[Proposal, str]]]:
        """What may be stored, and what is refused, each with the reason."""
        good: list[CheckedFact] = []
        refused: list[tuple[Proposal, str]] = []
        for proposal in proposals:
            checked = check(proposal, window, known, locale=self._space.locale, is_again=is_again)
            if isinstance(checked, str):
                refused.append((proposal, checked))
            elif checked.known and proposal.relation == "restates" and not _has_no_new_number(checked):
                # It claims to restate a fact but has other numbers, so it is stored as a new fact.
                good.append(replace(checked, known=None))
            else:
                good.append(checked)
        return good, refused

    async def _failed(self, read: Window, error: ModelError | Unreadable, run: DistillRun) -> None:
        """Retry what can't be read now. What a model rejects or can't answer readably is given up after some
        attempts.
        """
        outcome: Outcome = "failed"
        if isinstance(error, ModelRejected | Unreadable):
            tries = await self._space.read(ledger.failures_of, ledger.place_of(read))
            if tries + 1 >= _ATTEMPTS:
                outcome = "given_up"
        else:
            run.stopped = str(error)
        await self._settle(read, outcome, run, error=str(error))

    async def _settle(
        self, read: Window, outcome: Outcome, run: DistillRun, *, reason: str = "", error: str = ""
    ) -> None:
        """Write and report what became of a window that no facts are drawn from now."""
        written = await self._space.write(
            ledger.write_outcome, read, outcome, error=error, at=self._space.now_micros()
        )
        self._report(_result(read, outcome, reason=reason if written else _MEANWHILE, error=error), run)

    async def _known(self, window: Window, page_tokens: int) -> Known:
        """The page, and the facts beside it that still hold and are nearest to the lines of a window."""
        known = Known(page=await self._page.facts(page_tokens) if page_tokens > 0 else PageFacts())
        # A person's lines first: only they are corrected by what they say.
        lines = sorted(window.new, key=lambda piece: -TRUST_RANK[piece.trust])[:_MAX_QUERIES]
        there = known.facts
        found: dict[str, MemoryRecord] = {}
        each = [
            [
                hit.memory
                for hit in await self._search(
                    piece.text[:_MAX_QUERY_CHARS], limit=_KNOWN_TO_EACH + len(there), kind="fact"
                )
                # What was not to be kept is told to no model again.
                if hit.memory.id not in there and hit.memory.discretion != "withheld"
            ][:_KNOWN_TO_EACH]
            for piece in lines
        ]
        for place in range(_KNOWN_TO_EACH):
            found |= {some[place].id: some[place] for some in each if place < len(some)}
        return replace(known, near=tuple(list(found.values())[:_KNOWN_FACTS]))

    async def _draft_of(self, fact: CheckedFact, window: Window) -> MemoryDraft | None:
        source, proposal = fact.source, fact.proposal
        place = (
            f"{self._space.user}\n{self._space.scope}\n{source.session}\n{source.turn}\n{source.position}\n"
        )
        digest = hashlib.sha256((place + " ".join(fact.content.lower().split())).encode()).hexdigest()
        return await self._capture.draft(
            fact.content,
            id="f" + digest[:16],
            tags=[" ".join(tag.lower().split()) for tag in proposal.tags],
            tier=_tier_of(fact.time),
            memory_type=proposal.memory_type,
            importance=max(proposal.importance, _PROFILE_IMPORTANCE)
            if proposal.section in _OF_PROFILE and fact.trust == "user"
            else proposal.importance,
            speaker=source.speaker,
            said_at=source.said_at,
            valid_from=fact.valid_from,
            valid_to=fact.valid_to,
            time=fact.time,
            session=source.session or None,
            turn=source.turn if source.session else None,
            quote=fact.quote,
            trust=fact.trust,
            cues=proposal.cues,
            discretion="confidential" if proposal.is_confidential else "open",
            # The user reads why: only words that were said.
            kept_from=proposal.confidential
            if any(find_quote(proposal.confidential, piece.text) for piece in window.pieces)
            else "",
            spheres=proposal.spheres,
        )


def _result(read: Window, outcome: Outcome, *, reason: str = "", error: str = "") -> WindowResult:
    turns = [piece.turn for piece in read.new]
    return WindowResult(
        session=read.session,
        turns=(turns[0], turns[-1]),
        outcome=outcome,
        reason=reason,
        error=error,
    )


def _held_together(
    facts: Sequence[CheckedFact], window: Window, known: Mapping[str, MemoryRecord]
) -> list[CheckedFact]:
    """The facts, those among the confidential that would give a confidential one of their conversation away: they share
    a telling word with it that the user said there and nobody is called, which neither the lines they rest on nor a
    known open fact have.
    """
    ended = {fact.known.id for fact in facts if fact.known and fact.proposal.relation == "corrects"}
    hidden = [fact for fact in facts if fact.proposal.is_confidential]
    before = [
        fact
        for id, fact in known.items()
        if fact.discretion == "confidential" and fact.source.session == window.session and id not in ended
    ]
    secrets = [fact.content for fact in hidden] + [fact.content for fact in before]
    if not secrets:
        return list(facts)
    openly = [fact.content for fact in known.values() if fact.discretion == "open"]
    noted = [text.replace("\uff1a", ":") for text in (*secrets, *(fact.content for fact in facts))]
    called = [text.partition(":")[0] for text in noted if ":" in text]
    # Whoever notes "prefers" gives nothing away with it.
    lines = [piece.text for fact in hidden for piece in fact.sources] + [
        fact.source.quote or "" for fact in before
    ]
    secret = _told_in(secrets) & _told_in(lines) - _told_in([*openly, *called, "The user", *function_words()])
    found = []
    for fact in facts:
        said = [_openly_said(piece.text) for piece in fact.sources]
        if not fact.proposal.is_confidential and _told_in([fact.content]) & secret - _told_in(said):
            fact = replace(fact, proposal=replace(fact.proposal, section="confidential"))
        found.append(fact)
    return found


def _told_in(texts: Iterable[str]) -> set[int]:
    """The telling words of some texts, without those of days, which a program computed."""
    return {word for text in texts for word in telling_words(without_days(text))}


def _openly_said(text: str) -> str:
    wish = wish_of(text)
    return beside_wish(text) if wish is not None and wish.kind == "confidential" else text


def _tier_of(time: FactTime | None) -> Tier:
    """What is over within days or weeks fades soon; what comes round or lasts doesn't."""
    return "short_term" if time is not None and time.kind in ("event", "deadline", "period") else "long_term"


def _has_no_new_number(fact: CheckedFact) -> bool:
    assert fact.known is not None
    return set(re.findall(r"\d+", fact.proposal.content)) <= set(re.findall(r"\d+", fact.known.content))
