"""Distils the pending episodes of a space: a small model judges each window, a larger one proposes facts, and the facts
that can be verified are stored.

A query finds the pending work, and each window is written in one transaction. A process that is killed loses only the
answer that it was waiting for, and nothing is stored twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

import anyio

from satchel.clock import local_day
from satchel.errors import BudgetExceeded, ModelError, ModelRejected
from satchel.memory.capture import NewMemory
from satchel.memory.distill import ledger
from satchel.memory.distill.asking import Asked, Unreadable, ask_extractor, ask_gate, short_ids
from satchel.memory.distill.checking import CheckedFact, check
from satchel.memory.distill.records import DistillReport, DistillStatus, Outcome, WindowResult
from satchel.memory.distill.windows import Piece, Window, windows_of
from satchel.memory.records import TRUST_RANK, Hit, MemoryRecord
from satchel.memory.repository import Draft, to_micros
from satchel.messages import Usage
from satchel.models.port import ChatModel

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.capture import Capture
    from satchel.memory.space import Space

__all__ = ["Distiller"]

_ATTEMPTS = 3
"""After this many answers that can't be parsed, a window is given up, and `doctor` reports it."""
_KNOWN_FACTS = 16
"""The most related facts that the extractor is shown (seed-2, 4.2: "existing relevant memories"): about 400 tokens."""
_KNOWN_TO_EACH = 4
"""Of these, the most that are looked for with each line; what one line corrects is not near to the whole window."""
_MAX_QUERIES = 12
_MAX_QUERY_CHARS = 500
_PROFILE_IMPORTANCE = 4
"""The least importance of what belongs in the profile, which takes the most important facts first."""

MaySpend = Callable[[], Awaitable[None]]
"""Raises `BudgetExceeded` if no more may be spent."""

_FIRST_PAUSE_S = 60.0
_LONGEST_PAUSE_S = 3600.0


class _Search(Protocol):
    async def __call__(self, query: str, *, limit: int, kind: Literal["fact"]) -> Sequence[Hit]: ...


@dataclass(slots=True, kw_only=True)
class _Run:
    """The options and the results so far of one run."""

    model: ChatModel
    small_model: ChatModel
    most_windows: int | None
    may_spend: MaySpend | None
    progress: Callable[[WindowResult], None]
    results: list[WindowResult] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    skip: list[str] = field(default_factory=list)
    stopped: str = ""


class Distiller:
    """Extracts facts from the episodes of one space."""

    def __init__(self, space: Space, capture: Capture, search: _Search) -> None:
        """Nothing is read before `run`.

        Args:
            space: The space to read and write.
            capture: Prepares facts for storage, as in `Memory.add`.
            search: Finds related facts in the store.
        """
        self._space = space
        self._capture = capture
        self._search = search
        self._lock = anyio.Lock()

    async def status(self) -> DistillStatus:
        """Return what is pending, done and failed; see `Memory.distill_status`."""
        return await self._space.read(ledger.read_status)

    async def is_due(self, *, every: int, after_s: float) -> bool:
        """Whether `every` episodes are pending, or one for `after_s` seconds, and the pause after a failure is over.

        Each failure doubles the pause, from a minute to an hour. It is computed from the store, so every process
        observes it.
        """
        now = self._space.now_micros()
        before = now - int(after_s * 1_000_000)

        def look(connection: Connection, space: int) -> bool:
            failures, failed_at = ledger.failing_since(connection, space)
            pause_s = min(_FIRST_PAUSE_S * 2 ** (min(failures, 10) - 1), _LONGEST_PAUSE_S) if failures else 0
            if now < failed_at + int(pause_s * 1_000_000):
                return False
            return ledger.is_due(connection, space, every=every, before=before)

        return await self._space.read(look)

    async def run(
        self,
        *,
        model: ChatModel,
        small_model: ChatModel,
        most_windows: int | None,
        may_spend: MaySpend | None,
        progress: Callable[[WindowResult], None],
    ) -> DistillReport:
        """Distil pending episodes; see `Memory.distill`."""
        async with self._lock:
            run = _Run(
                model=model,
                small_model=small_model,
                most_windows=most_windows,
                may_spend=may_spend,
                progress=progress,
            )
            while not run.stopped:

                def find(connection: Connection, held: Collection[str]) -> list[list[Piece]]:
                    found = ledger.next_session(connection, self._space.id, skip=run.skip, held=held)
                    return [found] if found else []

                async with self._space.claims.take("distill", find, name=self._claim_name) as taken:
                    windows = [window for episodes in taken.pieces for window in windows_of(episodes)]
                    if not windows:
                        break
                    await self._read_session(windows, run)
            pending = await self._space.read(ledger.count_pending)
            return DistillReport(
                windows=tuple(run.results), usage=run.usage, pending=pending, stopped=run.stopped
            )

    def _claim_name(self, episodes: Sequence[Piece]) -> str:
        return ledger.claim_name(self._space.id, episodes[0].session)

    async def _read_session(self, windows: Sequence[Window], run: _Run) -> None:
        """Read the windows of one session until it ends or the run has to stop."""
        for window in windows:
            if run.most_windows is not None and len(run.results) >= run.most_windows:
                run.stopped = f"The limit of {run.most_windows} windows a run was reached."
                return
            spent: list[Asked] = []
            try:
                if run.may_spend is not None:
                    await run.may_spend()
                result = await self._read(window, run.model, run.small_model, spent)
            except BudgetExceeded as error:
                run.stopped = str(error)
                return
            except ModelError as error:
                run.stopped = str(error)
                result = await self._failed(window, run.stopped, spent)
            run.usage = sum((asked.usage for asked in spent), run.usage)
            run.results.append(result)
            run.progress(result)
            if result.outcome == "failed":
                # The rest of this session is retried with this window; other sessions can go on.
                run.skip.append(window.session)
                return

    async def _read(
        self, window: Window, model: ChatModel, small_model: ChatModel, spent: list[Asked]
    ) -> WindowResult:
        reason = ""
        facts: list[tuple[CheckedFact, Draft]] = []
        dropped: list[str] = []
        try:
            verdict = await ask_gate(small_model, window, spent)
            reason = verdict.reason
            if verdict.worth:
                known = short_ids(await self._known_facts(window))
                for proposal in await ask_extractor(model, window, known, spent):
                    checked = check(proposal, window, known, locale=self._space.locale)
                    if isinstance(checked, str):
                        dropped.append(checked)
                        continue
                    if (
                        checked.known is not None
                        and proposal.relation == "restates"
                        and not _has_no_new_number(checked)
                    ):
                        # It claims to restate a fact but has other numbers, so it is stored as a new fact.
                        checked = replace(checked, known=None)
                    draft = await self._draft_of(checked)
                    if draft is not None:
                        facts.append((checked, draft))
        except (Unreadable, ModelRejected) as error:
            tries = await self._space.read(ledger.failures_of, ledger.place_of(window))
            if tries + 1 < _ATTEMPTS:
                return await self._failed(window, str(error), spent)
            return await self._write(window, [], (), spent, reason, error=str(error))
        return await self._write(window, facts, dropped, spent, reason)

    async def _write(
        self,
        window: Window,
        facts: Sequence[tuple[CheckedFact, Draft]],
        dropped: Sequence[str],
        spent: Sequence[Asked],
        reason: str,
        *,
        error: str = "",
    ) -> WindowResult:
        at, day = self._now()
        written = await self._space.write(
            ledger.write_window,
            window,
            facts,
            outcome="given_up" if error else "facts",
            dropped=dropped,
            error=error[:500],
            spent=spent,
            at=at,
            day=day,
        )
        if written is None:
            return _result(window, "nothing", reason="another process read it meanwhile")
        return replace(
            _result(
                window,
                "given_up" if error else "facts" if written.facts or written.confirmed else "nothing",
                reason=reason,
                error=error,
            ),
            facts=written.facts,
            confirmed=written.confirmed,
            dropped=written.dropped,
        )

    async def _failed(self, window: Window, error: str, spent: Sequence[Asked]) -> WindowResult:
        at, day = self._now()
        await self._space.write(ledger.write_failure, window, error=error, spent=spent, at=at, day=day)
        return _result(window, "failed", error=error)

    def _now(self) -> tuple[int, str]:
        now = self._space.clock.now()
        return to_micros(now), local_day(now)

    async def _known_facts(self, window: Window) -> list[MemoryRecord]:
        """The facts in the store that still hold and are nearest to the lines of a window."""
        # A person's lines first: only they are corrected by what they say.
        lines = sorted(window.new, key=lambda piece: -TRUST_RANK[piece.trust])[:_MAX_QUERIES]
        found: dict[str, MemoryRecord] = {}
        each = [
            [
                hit.memory
                for hit in await self._search(
                    piece.text[:_MAX_QUERY_CHARS], limit=_KNOWN_TO_EACH, kind="fact"
                )
            ]
            for piece in lines
        ]
        for place in range(_KNOWN_TO_EACH):
            found |= {some[place].id: some[place] for some in each if place < len(some)}
        return list(found.values())[:_KNOWN_FACTS]

    async def _draft_of(self, fact: CheckedFact) -> Draft | None:
        source, proposal = fact.source, fact.proposal
        place = (
            f"{self._space.user}\n{self._space.scope}\n{source.session}\n{source.turn}\n{source.position}\n"
        )
        digest = hashlib.sha256((place + " ".join(fact.content.lower().split())).encode()).hexdigest()
        return await self._capture.draft(
            NewMemory(
                id="f" + digest[:16],
                content=fact.content,
                tags=_normalised(proposal.tags),
                tier=proposal.tier,
                memory_type=proposal.memory_type,
                importance=max(proposal.importance, _PROFILE_IMPORTANCE)
                if proposal.in_profile and fact.trust == "user"
                else proposal.importance,
                speaker=source.speaker,
                said_at=source.said_at,
                valid_from=fact.valid_from,
                valid_to=fact.valid_to,
                session=source.session or None,
                turn=source.turn if source.session else None,
                quote=fact.quote,
                trust=fact.trust,
                cues=proposal.cues,
            )
        )


def _result(window: Window, outcome: Outcome, *, reason: str = "", error: str = "") -> WindowResult:
    turns = [piece.turn for piece in window.new]
    return WindowResult(
        session=window.session,
        first_turn=turns[0],
        last_turn=turns[-1],
        outcome=outcome,
        reason=reason,
        error=error,
    )


def _normalised(tags: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag for tag in (" ".join(tag.lower().split()) for tag in tags) if tag))


def _has_no_new_number(fact: CheckedFact) -> bool:
    """Whether every number in a restatement is in the fact that it restates."""
    assert fact.known is not None
    return set(re.findall(r"\d+", fact.proposal.content)) <= set(re.findall(r"\d+", fact.known.content))
