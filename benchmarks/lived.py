"""Lives that are lived message by message: what stands before a model, beside the plainest ways to remember.

    python benchmarks/lived.py [FOLDER] [--only LIFE ...] [--misses]
    python benchmarks/lived.py --only LIFE --model BASE_URL [--name MODEL] [--unjudged]      record, or go on recording
    python benchmarks/lived.py --peers mem0 …                                   ask other programs too, see peers/
    python benchmarks/lived.py --dry-run                                        how much a recording asks

A file of FOLDER (benchmarks/lived) is one life: the messages of one person over three weeks and two late returns, each
with what a good friend would have in mind (`needed`, with the earlier messages that say it), what would be wrong and
what is private, noted before anything was run, by an author who had seen no code. Each message is asked when its time
has come, with only what was said before it remembered; then it is stored as the user's turn. The first table counts by
the messages that say what is needed, without any language model:

    needed    needs whose messages all stand before the model, over all needs that an earlier conversation answers
    unasked   the same, of needs that the message doesn't ask for
    quiet     messages that need nothing and get no line
    lines     surfaced or found, mean over all messages
    tokens    of all that stands there beyond the conversation itself, estimated, mean over all messages

The second table is about the same lives with a language model: when a day is over it reads what was said for facts and
keeps the page, as in the program, and after each conversation it rewrites a notes file. Whatever stands before a
message is read by a judge, who is not told which column it reads (`judged.py`):

    needed, unasked    needs that are held, as above
    misleading         needs of which something else is stated as true
    wrong, private     statements that the author noted as wrong or not to be said here, and which are shown
    cost               tokens as above, but a tenth for what stood there with the message before in the conversation
    calls, background  calls of a model in the background and their tokens, for each message

All answers are in NAME-answers.jsonl beside the life and are played again without a model, so that anyone gets the same
table. What was never answered, because a prompt or what leads to a request has changed since, is counted and said.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
from judged import Case, Judge, Verdict
from peers.driving import PEERS, PeerProcess, start
from recorded import Cost, EndpointFailed, RecordedModel, Recording, request_of
from stand_in import StandIn

from satchel.clock import ManualClock
from satchel.config import load
from satchel.errors import ModelUnavailable
from satchel.memory import Episode, Memory
from satchel.memory.text.framing import estimate_tokens, tokens_of
from satchel.models import AbilityStore, ChatModel, open_model
from satchel.runtime.inventory import fetch_embedding_model

FOLDER = Path(__file__).with_name("lived")
LAST_TURNS = 10
FIRST_HITS = 5
EVERY, SILENT = 10, timedelta(minutes=10)
"""As `memory.distill_every` and `memory.distill_after_s` say."""
JUDGED_AT_ONCE = 8
NOTES_TOKENS = 800
NOTES_PROMPT = """You keep one notes file that stands before an assistant in every conversation with its user. You get
the file and the conversation that has just ended. Answer with the whole file anew, and nothing else: what a good friend
would have in mind next time. Date what can change. At most 800 tokens (2,800 letters); what is longer is cut off."""

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What stands before the model.

    Attributes:
        messages: The numbers of the messages that it comes from, where that is known.
        standing: What keeps its place in the conversation, as the model sees it.
        found: What comes with this message alone.
        lines: How many of these there are.
    """

    messages: frozenset[int] = frozenset()
    standing: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    lines: int = 0


@dataclass(slots=True, kw_only=True)
class Column:
    """One way to remember.

    Attributes:
        cost: What it asked of models in the background.
        has_model: Whether it is played only where a model answers, or its answers are recorded.
    """

    name: str
    cost: Cost = field(default_factory=Cost)
    has_model: bool = False

    async def before(self, message: Message, here: Sequence[Message]) -> Before:
        """What stands before a message; `here` was said before it in the same conversation."""
        raise NotImplementedError

    async def store(self, message: Message) -> None:
        """Take a message that was answered."""

    async def end(self, conversation: Sequence[Message]) -> None:
        """A conversation is over."""


@dataclass(slots=True, kw_only=True)
class Satchel(Column):
    """The program: what stands in a conversation from its beginning, and what is surfaced for a message.

    Attributes:
        models: Answer by task, if there is a model.
    """

    memory: Memory
    models: Mapping[str, RecordedModel] = field(default_factory=dict)
    standing: list[str] = field(default_factory=list)
    messages: set[int] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    surfaced: set[str] = field(default_factory=set)

    async def before(self, message: Message, here: Sequence[Message]) -> Before:
        """See `Column`; it is what the program's `Hub` does before each message."""
        said = [*(one["text"] for one in here), message["text"]]
        if await self.memory.guest_speaks(said):
            # Whoever says that it is somebody else gets what they ask for and is private to nobody, in each message.
            context = await self.memory.surface(said, exclude_session=f"c{message['conversation']}")
            return Before(
                messages=frozenset(
                    n for hit in context.memories if (n := hit.memory.source.turn) is not None
                ),
                found=(context.text,) if context.text else (),
                lines=len(context.memories),
            )
        if not here:
            standing = await self.memory.standing(
                confidential=True, exclude_session=f"c{message['conversation']}"
            )
            agenda = await self.memory.agenda(standing=standing.whole_ids)
            blocks = [block for block in (standing, agenda) if block]
            lines = [line for block in blocks for line in block.memories]
            shown = [memory for line in lines for memory in line.sources]
            self.standing = [block.text for block in blocks]
            self.messages = {number for one in shown if (number := one.source.turn) is not None}
            self.whole = {id for line in lines for id in line.whole_ids}
            self.known = {one.id for one in shown}
            self.surfaced = set()
        context = await self.memory.surface(
            [*(one["text"] for one in here[-2:]), message["text"]],
            exclude_session=f"c{message['conversation']}",
            exclude=self.surfaced,
            standing=self.whole,
            known=self.known,
        )
        numbers = {hit.memory.source.turn for hit in context.memories}
        self.messages |= {number for number in numbers if number is not None}
        found = (context.text,) if context.text else ()
        before = Before(
            messages=frozenset(self.messages),
            standing=tuple(self.standing),
            found=found,
            lines=len(context.memories),
        )
        # It stays in the conversation with the message.
        self.standing += found
        self.surfaced |= {hit.memory.id for hit in (*context.memories, *context.standing)}
        self.known |= self.surfaced
        return before

    async def store(self, message: Message) -> None:
        """See `Column`."""
        episode = Episode(
            session=f"c{message['conversation']}",
            turn=message["n"],
            speaker="user",
            text=message["text"],
            said_at=datetime.fromisoformat(message["at"]),
        )
        await self.memory.add_episodes([episode])

    async def end(self, conversation: Sequence[Message]) -> None:
        """Read what was said for facts when it is time, as the program does in the background."""
        del conversation
        if not self.models:
            return
        await self.memory.distill(
            model=self.models["extract"],
            small_model=self.models["gate"],
            closed=(EVERY, SILENT.total_seconds()),
        )
        if await self.memory.page_waits():  # As a user does who was shown it.
            await self.memory.accept_page()


@dataclass(slots=True, kw_only=True)
class NotesFile(Column):
    """One file that a model rewrites after each conversation."""

    recording: Recording
    text: str = ""

    async def before(self, message: Message, here: Sequence[Message]) -> Before:
        """See `Column`."""
        del message, here
        return Before(standing=(self.text,) if self.text else ())

    async def end(self, conversation: Sequence[Message]) -> None:
        """Let the model rewrite the file; what is too long is cut off after the last line that fits."""
        first = datetime.fromisoformat(conversation[0]["at"])
        said = "\n".join(
            f"{datetime.fromisoformat(one['at']):%H:%M} user: {one['text']}" for one in conversation
        )
        asked = f"The file:\n{self.text or '(empty)'}\n\nThe conversation of {first:%A %Y-%m-%d}:\n{said}"
        try:
            answer = await self.recording.answer("notes", request_of(NOTES_PROMPT, asked))
        except ModelUnavailable:
            return
        self.cost.add(NOTES_PROMPT + asked, answer)
        self.text, room = "", float(NOTES_TOKENS)
        for line in answer.strip().splitlines(keepends=True):
            room -= tokens_of(line)
            if room < 0:
                break
            self.text += line


@dataclass(slots=True, kw_only=True)
class FirstHits(Column):
    """Plain search: the first hits for the message's words, always."""

    memory: Memory

    async def before(self, message: Message, here: Sequence[Message]) -> Before:
        """See `Column`."""
        del here
        hits = await self.memory.search(message["text"], limit=FIRST_HITS)
        return Before(
            messages=frozenset(number for hit in hits if (number := hit.memory.source.turn) is not None),
            found=tuple(line_of(hit.memory.content, hit.memory.said_at) for hit in hits),
            lines=len(hits),
        )


@dataclass(slots=True, kw_only=True)
class LastTurns(Column):
    """What was said last, whatever it was."""

    said: list[Message] = field(default_factory=list)

    async def before(self, message: Message, here: Sequence[Message]) -> Before:
        """See `Column`."""
        del message, here
        last = self.said[-LAST_TURNS:]
        return Before(
            messages=frozenset(one["n"] for one in last), found=tuple(map(line_said, last)), lines=len(last)
        )

    async def store(self, message: Message) -> None:
        """See `Column`."""
        self.said.append(message)


@dataclass(slots=True, kw_only=True)
class Everything(LastTurns):
    """All that was ever said, in every request."""

    async def before(self, message: Message, here: Sequence[Message]) -> Before:
        """See `Column`."""
        del message, here
        return Before(
            messages=frozenset(one["n"] for one in self.said),
            standing=tuple(map(line_said, self.said)),
            lines=len(self.said),
        )


@dataclass(slots=True, kw_only=True)
class Peer(LastTurns):
    """Another program: each message is stored in it, and it is asked for its first hits, as `peers/` says.

    Attributes:
        process: None where only what it gave once is played again.
    """

    recording: Recording
    process: PeerProcess | None = None

    async def before(self, message: Message, here: Sequence[Message]) -> Before:
        """See `Column`. A hit that is a message is kept as its number, and shown with its day as in other columns."""
        del here
        asked = [[one["text"] for one in self.said], message["text"], FIRST_HITS]
        hits = self.recording.find(self.name, asked)
        if hits is None and self.process is not None:
            texts = (await self.process.call(do="ask", text=message["text"], limit=FIRST_HITS))["texts"]
            numbers = {one["text"].strip(): one["n"] for one in self.said}
            hits = [numbers.get(text.strip(), text) for text in texts]
            self.recording.keep(self.name, asked, hits, n=message["n"], of=self.process.version)
        elif hits is None:
            self.recording.missing[self.name] += 1
        said = {one["n"]: one for one in self.said}
        return Before(
            messages=frozenset(hit for hit in hits or () if hit in said),
            found=tuple(line_said(said[hit]) if hit in said else hit for hit in hits or ()),
            lines=len(hits or ()),
        )

    async def store(self, message: Message) -> None:
        """See `Column`."""
        self.said.append(message)
        if self.process is not None:
            await self.process.call(do="store", text=message["text"], at=message["at"], n=message["n"])


def line_of(text: str, at: datetime) -> str:
    """A message as a line, with its day."""
    return f'{at:%Y-%m-%d %a}, user: "{text}"'


def line_said(message: Message) -> str:
    """The same of a message of the file."""
    return line_of(message["text"], datetime.fromisoformat(message["at"]))


_ID = re.compile(r'^- |\b[0-9a-z]{8,16} (?=")|^[0-9a-z]{8,16} (?=\d{4}-)', re.MULTILINE)
_SOURCE = re.compile(r", session \S+ turn \d+")


def unmarked(text: str) -> tuple[str, ...]:
    """What stands before a model as a judge sees it: without the frame, the ids and the sources that name the program.

    Surfaced lines are texts of their own, so that a judge reads what several columns show only once.
    """
    if not text.startswith("<satchel-"):
        return (text,)
    lines = text.splitlines()[2:-1]
    if text.startswith("<satchel-memory>"):
        return tuple(json_words(_SOURCE.sub("", _ID.sub("", line))) for line in lines)
    return ("\n".join(_ID.sub("", line) for line in lines),)


def json_words(line: str) -> str:
    """A surfaced line with its words as they were said: the block escapes them."""
    head, _, words = line.partition('"')
    try:
        return f'{head}"{json.loads(chr(34) + words)}"'
    except ValueError:
        return line


@dataclass(slots=True)
class Counts:
    """What is added up over messages; see the head of this file."""

    needs: int = 0
    found: int = 0
    unasked: int = 0
    found_unasked: int = 0
    quiet: int = 0
    kept_quiet: int = 0
    lines: int = 0
    tokens: int = 0
    cost: float = 0.0
    messages: int = 0
    unjudged: int = 0
    held: int = 0
    held_unasked: int = 0
    misleading: int = 0
    wrong: int = 0
    private: int = 0
    calls: int = 0
    background: int = 0
    _stood: tuple[int, frozenset[str]] = (0, frozenset())

    def add(self, message: Message, before: Before, needs: Sequence[Message], earlier: set[int]) -> list[str]:
        """Count one message, and give what it needed and did not get."""
        missed = []
        for need in needs:
            got = set(need["from"]) & earlier <= before.messages
            self.needs += 1
            self.found += got
            self.unasked += not need["asked"]
            self.found_unasked += got and not need["asked"]
            if not got:
                missed.append(need["what"])
        if not message["needed"]:
            self.quiet += 1
            self.kept_quiet += not before.lines
        self.lines += before.lines
        self.messages += 1
        conversation, stood = self._stood
        if conversation != message["conversation"]:
            stood = frozenset()
        for text in (*before.standing, *before.found):
            tokens = estimate_tokens(text)
            self.tokens += tokens
            self.cost += tokens / 10 if text in stood else tokens
        self._stood = message["conversation"], frozenset(before.standing + before.found)
        return missed

    def judge(self, needs: Sequence[Message], verdict: Verdict | None) -> None:
        """Count what a judge said of one message."""
        if verdict is None:
            self.unjudged += 1
            return
        for need, letter in zip(needs, verdict.needs, strict=True):
            self.held += letter == "h"
            self.held_unasked += letter == "h" and not need["asked"]
            self.misleading += letter == "m"
        self.wrong += len(verdict.wrong)
        self.private += len(verdict.private)

    def row(self) -> str:
        """What is counted by messages, as cells of a table."""
        cells = [
            share(self.found, self.needs),
            share(self.found_unasked, self.unasked),
            share(self.kept_quiet, self.quiet),
        ]
        return " | ".join(
            (*cells, f"{self.lines / self.messages:.1f}", f"{self.tokens / self.messages:,.0f}")
        )

    def judged_row(self) -> str:
        """What a judge read, as cells of a table."""
        cells = [
            share(self.held, self.needs),
            share(self.held_unasked, self.unasked),
            str(self.misleading),
            str(self.wrong),
            str(self.private),
            share(self.kept_quiet, self.quiet),
            f"{self.tokens / self.messages:,.0f}",
            f"{self.cost / self.messages:,.0f}",
            f"{self.calls / self.messages:.2f}",
            f"{self.background / self.messages:,.0f}",
        ]
        return " | ".join(cells) + (f" ({self.unjudged} messages not judged)" if self.unjudged else "")


def share(part: int, whole: int) -> str:
    """A share as a cell."""
    return f"{part / whole:.2f} of {whole}" if whole else "–"


@dataclass(slots=True, kw_only=True)
class Options:
    """What is played.

    Attributes:
        conversations: Only the first so many; None for all of them.
        misses: Whether to print what the program missed.
        verdicts: Where to write what stood before each message with the verdicts, one JSON object for each.
        embedder: As `Memory.open` takes it.
        peers: Those that are asked, and not only played again.
        unjudged: Whether a judge is not asked, only played again: another model can judge later.
    """

    conversations: int | None = None
    misses: bool = False
    verdicts: Path | None = None
    embedder: str | None = None
    peers: Sequence[str] = ()
    unjudged: bool = False


async def live(
    told: Mapping[str, Any], recording: Recording, totals: Sequence[dict[str, Counts]], options: Options
) -> None:
    """Live one life, and add what is counted of each column to each of `totals`."""
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        columns = await columns_of(recording, clock, stack, options)
        names = [column.name for column in columns]
        counts = [some.setdefault(name, Counts()) for some in totals for name in names]
        by_name = {name: counts[place :: len(names)] for place, name in enumerate(names)}
        cases: list[tuple[Case, list[Message]]] = []
        talks = [list(some) for _, some in groupby(told["messages"], key=lambda one: one["conversation"])]
        talks = talks[: options.conversations]
        earlier: set[int] = set()
        for place, talk in enumerate(talks):
            for number, message in enumerate(talk):
                clock.at = datetime.fromisoformat(message["at"])
                # What was said in this conversation, the model has.
                needs = [need for need in message["needed"] if set(need["from"]) & earlier]
                shown: dict[str, tuple[str, ...]] = {}
                for column in columns:
                    before = await column.before(message, talk[:number])
                    missed = [one.add(message, before, needs, earlier) for one in by_name[column.name]][0]
                    if options.misses and missed and type(column) is Satchel and not column.has_model:
                        print(f"{told['life']} {message['n']}: {message['text'][:100]!r} misses {missed}")
                    texts = (*before.standing, *before.found)
                    shown[column.name] = tuple(one for text in texts for one in unmarked(text))
                if needs or message["wrong"] or message["private"]:
                    said = [one["text"] for one in talk[:number]]
                    what = [need["what"] for need in needs]
                    cases.append((Case(message=message, before=said, needs=what, columns=shown), needs))
                for column in columns:
                    await column.store(message)
            # The program looks at any time: after the silence, or after midnight.
            midnight = datetime.combine(clock.at.date() + timedelta(days=1), time(), clock.at.tzinfo)
            clock.at = max(clock.at + SILENT, midnight)
            if place + 1 < len(talks):
                clock.at = min(clock.at, datetime.fromisoformat(talks[place + 1][0]["at"]))
            # The columns don't depend on each other, so whoever answers them can do it at once.
            async with anyio.create_task_group() as group:
                for column in columns:
                    group.start_soon(column.end, talk)
            earlier |= {one["n"] for one in talk}
        for column in columns:
            for one in by_name[column.name]:
                one.calls += column.cost.calls
                one.background += column.cost.tokens
        if any(column.has_model for column in columns):
            await judge_all(recording, cases, by_name, options)


async def columns_of(
    recording: Recording, clock: ManualClock, stack: AsyncExitStack, options: Options
) -> list[Column]:
    """All columns; those with a model where one answers or did."""

    async def store() -> Memory:
        opened = Memory.open(":memory:", embedder=options.embedder, clock=clock, back_fill=False)
        return await stack.enter_async_context(opened)

    columns: list[Column] = []
    if recording.model is not None or recording.has("notes"):
        cost = Cost()
        models = {task: RecordedModel(recording, task, cost) for task in ("extract", "gate")}
        columns += [
            Satchel(
                name="Satchel with a model", memory=await store(), models=models, cost=cost, has_model=True
            ),
            NotesFile(name="a notes file", recording=recording, has_model=True),
        ]
    peers = []
    for name in PEERS:
        process = None
        if name in options.peers:
            try:
                process = await start(name, stack)
            except RuntimeError as error:
                print(f"{name} can't run here: {error}", file=sys.stderr)
        if process is not None or recording.has(name):
            peers.append(Peer(name=name, recording=recording, process=process))
    memory = await store()
    return [
        *columns,
        Satchel(name="Satchel, no language model", memory=memory),
        FirstHits(name=f"first {FIRST_HITS} of a search", memory=memory),
        LastTurns(name=f"the last {LAST_TURNS} messages"),
        Everything(name="everything"),
        *peers,
    ]


async def judge_all(
    recording: Recording,
    cases: Sequence[tuple[Case, Sequence[Message]]],
    counts: Mapping[str, Sequence[Counts]],
    options: Options,
) -> None:
    """Have what stood before the messages judged, a conversation at a time and several at once, and count it."""
    judge = Judge(recording, asks=not options.unjudged)
    verdicts: dict[tuple[int, str], Verdict | None] = {}
    limit = anyio.CapacityLimiter(JUDGED_AT_ONCE)

    async def judge_some(some: Sequence[Case]) -> None:
        async with limit:
            verdicts.update(await judge.judge(some))

    async with anyio.create_task_group() as group:
        for _, talk in groupby((case for case, _ in cases), key=lambda case: case.message["conversation"]):
            group.start_soon(judge_some, list(talk))
    for case, needs in cases:
        for name, texts in case.columns.items():
            verdict = verdicts[case.message["n"], name]
            for one in counts[name]:
                one.judge(needs, verdict)
            if options.verdicts is not None:
                write_verdict(options.verdicts, case, name, texts, verdict)


def write_verdict(path: Path, case: Case, name: str, texts: Sequence[str], verdict: Verdict | None) -> None:
    """Add one verdict with all that it is about to a file."""
    message = case.message
    line = {"n": message["n"], "message": message["text"], "column": name, "shows": list(texts)}
    if verdict is not None:
        line["needs"] = dict(zip(case.needs, verdict.needs, strict=True))
        line["wrong"] = [message["wrong"][number - 1] for number in verdict.wrong]
        line["private"] = [message["private"][number - 1] for number in verdict.private]
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def print_tables(name: str, counts: Mapping[str, Counts], with_model: Sequence[str]) -> None:
    """Print the figures of each column."""
    print(f"\n{name}\n| | needed | unasked | quiet | lines | tokens |\n|---|---|---|---|---|---|")
    for column, counted in counts.items():
        if column not in with_model:
            print(f"| {column} | {counted.row()} |")
    if not with_model:
        return
    heads = "needed | unasked | misleading | wrong | private | quiet | tokens | cost | calls | background"
    print(f"\n{name}, judged by reading\n| | {heads} |\n|{'---|' * 11}")
    for column, counted in counts.items():
        if column in with_model or not counted.unjudged:
            print(f"| {column} | {counted.judged_row()} |")


def print_sent(recordings: Sequence[Recording]) -> None:
    """Print what was asked of the model."""
    tasks = sorted({task for recording in recordings for task in recording.sent})
    if not tasks:
        return
    print("\n| asked | requests | characters each | of the answers |\n|---|---|---|---|")
    whole = [0, 0, 0]
    for task in tasks:
        some = [recording.sent[task] for recording in recordings]
        calls, asked, answered = (
            sum(one.calls for one in some),
            sum(one.asked for one in some),
            sum(one.answered for one in some),
        )
        whole = [whole[0] + calls, whole[1] + asked, whole[2] + answered]
        print(f"| {task} | {calls} | {asked / calls:,.0f} | {answered / calls:,.0f} |")
    print(f"| all | {whole[0]} | {whole[1] / whole[0]:,.0f} | {whole[2] / whole[0]:,.0f} |")


def model_at(url: str, name: str, stack: AsyncExitStack) -> ChatModel:
    """The model behind an endpoint that speaks OpenAI's chat completions."""
    home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    environ = {"OPENAI_API_KEY": "none", **os.environ, "OPENAI_BASE_URL": url}
    settings = load(environ, cwd=home, home=home)
    abilities = AbilityStore(home / "abilities.json", clock=ManualClock())
    return open_model(f"openai:{name}", settings, abilities=abilities, clock=ManualClock())


async def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of each life and over all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--misses", action="store_true", help="print what Satchel missed without a model")
    parser.add_argument("--model", metavar="BASE_URL", help="record: ask this endpoint what has no answer")
    parser.add_argument("--name", default="model", help="the model's name there")
    parser.add_argument(
        "--unjudged", action="store_true", help="record without asking for verdicts, see README"
    )
    parser.add_argument("--dry-run", action="store_true", help="count requests; a stand-in answers them")
    parser.add_argument("--conversations", type=int, help="play only so many of each life")
    parser.add_argument("--verdicts", type=Path, help="write what each column showed and the verdicts")
    parser.add_argument("--peers", nargs="*", default=[], choices=PEERS, help="ask these other programs too")
    parser.add_argument("--embedder", help="of Satchel and of the plain search; none goes by words alone")
    options = parser.parse_args(arguments)
    played = Options(
        conversations=options.conversations,
        misses=options.misses,
        verdicts=options.verdicts,
        embedder=options.embedder,
        peers=options.peers,
        unjudged=options.unjudged,
    )
    if played.embedder is None:
        # Without one of the two, the search finds other facts, the requests differ, and no recorded answer is found.
        settings = load(os.environ, cwd=Path.cwd())
        for name in ("minilm", "use-multilingual"):
            await fetch_embedding_model(settings, name)
    total: dict[str, Counts] = {}
    recordings: list[Recording] = []
    async with AsyncExitStack() as stack:
        model: ChatModel | None = None
        if options.dry_run:
            model = StandIn()
        elif options.model:
            model = model_at(options.model, options.name, stack)
            stack.push_async_callback(model.aclose)
        for path in sorted(options.folder.glob("*.json")):
            if options.only and path.stem not in options.only:
                continue
            answers = path.with_name(f"{path.stem}-answers.jsonl")
            recording = Recording(answers, model, writes=not options.dry_run)
            recordings.append(recording)
            counts: dict[str, Counts] = {}
            try:
                await live(json.loads(path.read_text(encoding="utf-8")), recording, [counts, total], played)
            except BaseExceptionGroup as group:
                if group.split(EndpointFailed)[1] is not None:
                    raise
                print(f"{path.stem}: {group.exceptions[0]}", file=sys.stderr)
                print("All answers until then are kept; the same command goes on there.", file=sys.stderr)
                return 1
            if (model is not None or played.peers) and played.conversations is None and not recording.missing:
                recording.tidy()
            if not options.dry_run:
                print_tables(path.stem, counts, with_model(counts))
    if not options.dry_run:
        print_tables("all", total, with_model(total))
    if model is not None:
        print_sent(recordings)
    missing = sum((recording.missing for recording in recordings), Counter[str]())
    unjudged = missing.pop("judge", 0)
    if unjudged:
        print(f"\n{unjudged} conversations have columns without verdicts; the judged tables leave them out.")
    if missing:
        said = ", ".join(f"{count} {task}" for task, count in sorted(missing.items()))
        print(
            f"\nSTALE: {missing.total()} requests have no recorded answer ({said}): a prompt, or what leads to a "
            "request, has changed since they were recorded. The figures with a model are not valid. "
            "Record again with --model BASE_URL.",
            file=sys.stderr,
        )
    return 0


def with_model(counts: Mapping[str, Counts]) -> list[str]:
    """The columns that only a model brings."""
    return [name for name in counts if name in ("Satchel with a model", "a notes file")]


if __name__ == "__main__":
    sys.exit(anyio.run(main))
