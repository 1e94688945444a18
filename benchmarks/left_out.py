"""Search beside plain baselines, on every set of a folder, with intervals: is the recipe better than what is simple?

    python benchmarks/left_out.py [DATA] [--only SET ...] [--refit FILE.py] [--home FOLDER] [--out FILE]

DATA is a folder with sets in the form that `retrieval.py` reads; the sets of data/ are always there. The persons in
`life-*` folders count as sets too, one for each language and one for the software people (`life-dev/work`): their
messages are the queries and what is needed for them (`must`) the evidence. A set whose questions have `asked_before`
and `evidence_sessions` is asked with only the earlier sessions stored, and scored by sessions: those of the hits in
their order, each counted once.

    recipe  what ships, on one memory for each entry
    bm25    k1 1.2, b 0.75, lower-case words, in scripts without spaces pairs of characters; the bare text
    vector  the cosine of the embedder's one vector of a text, cut where the model cuts
    passage the cosine of a text's best passage
    second  the same by the embedder for other languages, on sets that have some
    sum     bm25 / its maximum + a cosine / its maximum: `sum_vector`, `sum_passage`, `sum_second`

Sets with people's names are also asked with the speakers stored as user and assistant ("roles"; "roles, renamed":
in the questions too), and with the words alone, without speaker, date and session ("words alone").

A figure on a set that the recipe was fitted to (data/fitted.json) is marked; with --refit it is left out after all.
Intervals are 95 %, by bootstrap, drawing questions and drawing conversations; `ahead` is the recipe's difference from
the best baseline, in pairs. "Better" means that its interval lies above 0.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from chosen import Asked, recording
from retrieval import OWN, score, store
from sets import (
    Refit,
    cached_embedder,
    closing,
    fitted_on,
    interval,
    is_fitted,
    read,
    refit_from,
    second_of,
    without,
)

from satchel.memory import Memory
from satchel.memory.store import repository
from satchel.memory.text.languages import ENGLISH, language_of
from satchel.memory.text.passages import passages
from satchel.models.port import Embedder

BASELINES = ("bm25", "vector", "passage", "sum_vector", "sum_passage", "second", "sum_second")
OTHER_LANGUAGES = 0.1
"""The share of texts in other languages than English from which on the second embedder is measured alone too."""
SYSTEMS = ("recipe", *BASELINES)
FIGURES = ("r@5", "r@10", "r@20", "hit@20", "mrr")
LIMIT = 100
_TOKEN = re.compile(r"[぀-ヿ㐀-鿿가-힯]+|[^\W_぀-ヿ㐀-鿿가-힯]+")
_WITHOUT_SPACES = re.compile(r"[぀-ヿ㐀-鿿가-힯]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query, the entries or sessions that answer it, and the session before which it is asked, if any."""

    text: str
    kind: str
    evidence: tuple[str, ...]
    before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Memories that are searched together; `by_session` scores the sessions of the hits."""

    name: str
    speakers: tuple[str, ...]
    entries: tuple[dict[str, Any], ...]
    questions: tuple[Question, ...]
    by_session: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question's figures, by system, and what search had found before weights."""

    scope: str
    kind: str
    figures: dict[str, dict[str, float]]
    asked: Asked | None = None


def words_of(text: str) -> list[str]:
    """The words that the plain BM25 counts: lower case, pairs of characters where no spaces stand."""
    found: list[str] = []
    for word in _TOKEN.findall(text.lower()):
        if _WITHOUT_SPACES.match(word):
            found += [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
        else:
            found.append(word)
    return found


class Bm25:
    """Plain BM25 over the first texts of a list."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Count the words once."""
        counts = [Counter(words_of(text)) for text in texts]
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for at, count in enumerate(counts):
            for word, times in count.items():
                postings[word].append((at, times))
        self._postings = {word: np.array(found) for word, found in postings.items()}
        self._lengths = np.array([count.total() for count in counts], dtype=float)

    def scores(self, query: str, first: int) -> np.ndarray[Any, Any]:
        """The scores of the first so many texts, as if there were no others; shape (first,)."""
        lengths = self._lengths[:first]
        scores = np.zeros(first)
        norm = 1.2 * (0.25 + 0.75 * lengths / max(lengths.mean(), 1e-9))
        for word in dict.fromkeys(words_of(query)):
            posting = self._postings.get(word)
            if posting is None:
                continue
            posting = posting[: np.searchsorted(posting[:, 0], first)]
            at, times = posting[:, 0], posting[:, 1]
            rarity = np.log(1 + (first - len(at) + 0.5) / (len(at) + 0.5))
            scores[at] += rarity * times * 2.2 / (times + norm[at])
        return scores


class Baselines:
    """What is simple: words, vectors, and their sum."""

    def __init__(self, texts: Sequence[str], embedder: Embedder) -> None:
        """Use `prepare`."""
        self._texts = texts
        self._embedder = embedder
        self._bm25 = Bm25(texts)

    async def prepare(self) -> None:
        """Embed the texts."""
        cut = [passages(text) for text in self._texts]
        self._starts = np.cumsum([0, *(len(parts) for parts in cut)])
        parts = [part for parts in cut for part in parts]
        self._parts = await _embedded(parts, self._embedder)
        self._whole = await _embedded(self._texts, self._embedder)
        second = second_of(self._embedder)
        foreign = sum(language_of(text) != ENGLISH for text in self._texts)
        self._second = None
        if not isinstance(second, str) and foreign > OTHER_LANGUAGES * len(self._texts):
            self._second = (second, await _embedded(parts, second))

    async def ranked(self, query: str, first: int) -> dict[str, list[int]]:
        """The positions of the first texts, best first, by baseline."""
        (vector,) = await self._embedder.embed([query], "query")
        words = self._bm25.scores(query, first)
        whole = self._whole[:first] @ vector
        parts = self._parts[: self._starts[first]] @ vector
        best = np.maximum.reduceat(parts, self._starts[:first])
        scores = {
            "bm25": words,
            "vector": whole,
            "passage": best,
            "sum_vector": _scaled(words) + _scaled(whole),
            "sum_passage": _scaled(words) + _scaled(best),
        }
        if self._second is not None:
            second, rows = self._second
            (vector,) = await second.embed([query], "query")
            near = np.maximum.reduceat(rows[: self._starts[first]] @ vector, self._starts[:first])
            scores |= {"second": near, "sum_second": _scaled(words) + _scaled(near)}
        # Without a word in common there is nothing to rank by.
        return {
            name: [int(at) for at in np.argsort(-found, kind="stable")[:LIMIT] if found[at] > 0]
            for name, found in scores.items()
        }


async def _embedded(texts: Sequence[str], embedder: Embedder) -> np.ndarray[Any, Any]:
    return np.concatenate(
        [await embedder.embed(texts[at : at + 64], "document") for at in range(0, len(texts), 64)]
    )


def _scaled(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    top = float(scores.max(initial=0.0))
    return scores / top if top > 0 else scores


def scopes_of(data: dict[str, Any], name: str) -> list[Scope]:
    """The scopes of a set in any of its forms."""
    if "entries" in data:
        questions = tuple(
            Question(text=q["query"], kind=q.get("kind") or "all", evidence=tuple(q["evidence"]))
            for q in data["queries"]
        )
        return [Scope(name=name, speakers=(), entries=tuple(data["entries"]), questions=questions)]
    return [_conversation(found) for found in data["conversations"]]


def _conversation(found: dict[str, Any]) -> Scope:
    by_session = any("asked_before" in q for q in found["questions"])
    return Scope(
        name=str(found["id"]),
        speakers=tuple(found["speakers"]),
        entries=tuple(
            {**turn, "session": str(session["session"]), "date": session.get("date")}
            for session in found["sessions"]
            for turn in session["turns"]
        ),
        questions=tuple(
            Question(
                text=q["question"],
                kind=q["category"],
                evidence=tuple(map(str, q["evidence_sessions"] if by_session else q["evidence"])),
                before=q.get("asked_before"),
            )
            for q in found["questions"]
        ),
        by_session=by_session,
    )


def life(person: dict[str, Any]) -> Scope:
    """A person's turns, and the messages that need some of them."""
    return Scope(
        name=person["person"],
        speakers=("user", "assistant"),
        entries=tuple({**found, "date": found["said_at"]} for found in person["memories"]),
        questions=tuple(
            Question(text=found["text"], kind=found["kind"], evidence=tuple(found["must"]))
            for found in person["messages"]
        ),
    )


def variants(scopes: Sequence[Scope]) -> Iterator[tuple[str, list[Scope]]]:
    """The set as it is and, where its speakers have names, without them."""
    yield "", list(scopes)
    if not all(scope.speakers and set(scope.speakers) != {"user", "assistant"} for scope in scopes):
        return
    yield "roles", [_with_roles(scope, renamed=False) for scope in scopes]
    yield "roles, renamed", [_with_roles(scope, renamed=True) for scope in scopes]
    yield (
        "words alone",
        [
            replace(scope, entries=tuple({"id": one["id"], "text": one["text"]} for one in scope.entries))
            for scope in scopes
        ],
    )


def _with_roles(scope: Scope, *, renamed: bool) -> Scope:
    """The first speaker as the user and the other as the assistant; `renamed`, in the questions too."""
    role = dict(zip(scope.speakers, ("user", "assistant"), strict=False))

    def rename(text: str) -> str:
        for name, other in role.items():
            text = re.sub(
                re.escape(name) if _WITHOUT_SPACES.search(name) else rf"\b{re.escape(name)}\b",
                f"the {other}",
                text,
            )
        return text

    return replace(
        scope,
        entries=tuple({**one, "speaker": role.get(one["speaker"], one["speaker"])} for one in scope.entries),
        questions=tuple(replace(q, text=rename(q.text)) if renamed else q for q in scope.questions),
    )


def sets_in(folder: Path | None) -> dict[str, list[Scope]]:
    """All sets, by name: those of the folder and our own."""
    found: dict[str, list[Scope]] = {}
    for path in sorted(folder.glob("*.json")) if folder else []:
        data = read(path)
        if isinstance(data, dict) and ("conversations" in data or "entries" in data):
            found[path.stem] = scopes_of(data, path.stem)
    lives: dict[str, list[Scope]] = defaultdict(list)
    for path in sorted(folder.glob("life-*/*.json")) if folder else []:
        group = path.stem.rpartition("-")[0] or path.stem
        lives[f"{path.parent.name}/{group}"].append(replace(life(read(path)), name=path.stem))
    return found | dict(sorted(lives.items())) | {path.stem: scopes_of(read(path), path.stem) for path in OWN}


async def ask(scope: Scope, *, embedder: Embedder) -> list[Row]:
    """Store a scope, session by session where its questions want it, and ask everything of every system."""
    entries = list(scope.entries)
    baselines = Baselines([entry["text"] for entry in entries], embedder)
    await baselines.prepare()
    rows: list[Row] = []
    stored = 0
    names: dict[str, str] = {}
    by_rid: dict[int, str] = {}
    unit = {one["id"]: one["session"] if scope.by_session else one["id"] for one in entries}
    async with Memory.open(
        ":memory:",
        embedder=embedder,
        second_embedder=second_of(embedder),
        scope=scope.name,
        back_fill=False,
    ) as memory:
        for question in sorted(scope.questions, key=lambda q: q.before or 0):
            upto = _first_of(entries, question.before)
            if upto > stored:
                names |= await store(memory, entries[stored:upto])
                stored = upto
            known = {unit[one["id"]] for one in entries[:upto]}
            evidence = [id for id in dict.fromkeys(question.evidence) if id in known]
            if not evidence:
                continue
            with recording() as recorder:
                hits = await memory.search(question.text, limit=LIMIT)
            if recorder.parts is not None:
                new = [rid for rid in recorder.index["rid"][recorder.rows].tolist() if rid not in by_rid]
                records = await memory._space.read(repository.read_records, new)
                by_rid |= {rid: unit[names[record.id]] for rid, record in records.items()}
            orders = {"recipe": [names[hit.memory.id] for hit in hits]}
            for name, positions in (await baselines.ranked(question.text, upto)).items():
                orders[name] = [entries[at]["id"] for at in positions]
            rows.append(
                Row(
                    scope=scope.name,
                    kind=question.kind,
                    figures={
                        name: _scored([unit[id] for id in order], evidence) for name, order in orders.items()
                    },
                    asked=recorder.take(by_rid, evidence),
                )
            )
        if memory.degraded:
            raise SystemExit(f"Not measured: {memory.degraded}")
    return rows


def _first_of(entries: Sequence[dict[str, Any]], before: int | None) -> int:
    """How many entries are of earlier sessions; all without a limit."""
    if before is None:
        return len(entries)
    return sum(int(entry["session"]) < before for entry in entries)


def _scored(order: Sequence[str], evidence: Sequence[str]) -> dict[str, float]:
    ranks = {id: rank for rank, id in enumerate(dict.fromkeys(order), 1)}
    return score([ranks.get(id) for id in evidence])


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Means, intervals, and the recipe's lead over the best baseline, figure by figure."""
    clusters = [row.scope for row in rows]
    names = [name for name in SYSTEMS if all(name in row.figures for row in rows)]
    systems: dict[str, Any] = {}
    for name in names:
        systems[name] = {
            figure: round(statistics.fmean(row.figures[name][figure] for row in rows), 4)
            for figure in FIGURES
        }
    for name in names:
        systems[name]["intervals"] = {
            figure: {"questions": interval(values), "conversations": interval(values, clusters)}
            for figure in FIGURES
            for values in [[row.figures[name][figure] for row in rows]]
        }
    ahead = {}
    for figure in FIGURES:
        best = max(names[1:], key=lambda name: systems[name][figure])
        differences = [row.figures["recipe"][figure] - row.figures[best][figure] for row in rows]
        ahead[figure] = {
            "of": best,
            "by": round(statistics.fmean(differences), 4),
            "questions": interval(differences),
            "conversations": interval(differences, clusters),
        }
    kinds = sorted({row.kind for row in rows})
    return {
        "questions": len(rows),
        "conversations": len(set(clusters)),
        "systems": systems,
        "ahead": ahead,
        "kinds": {
            kind: {
                "questions": len(some),
                **{
                    name: {
                        f: round(statistics.fmean(r.figures[name][f] for r in some), 4)
                        for f in ("r@5", "mrr")
                    }
                    for name in names
                },
            }
            for kind in kinds
            for some in [[row for row in rows if row.kind == kind]]
        },
    }


async def measure(
    folder: Path | None,
    *,
    embedder: Embedder,
    only: Sequence[str] = (),
    refit: Refit | None = None,
    kept: dict[str, list[Asked]] | None = None,
) -> dict[str, Any]:
    """Every set and variant, by name; `kept` gets what search had found before weights, by set."""
    found: dict[str, Any] = {}
    for name, scopes in sets_in(folder).items():
        if only and name not in only:
            continue
        whole = name.partition("/")[0]
        for variant, changed in variants(scopes):
            rows: list[Row] = []
            for scope in changed:
                with without(refit, whole, scope.name):
                    rows += await ask(scope, embedder=embedder)
            title = f"{name}, {variant}" if variant else name
            found[title] = _described(scopes, whole, refit) | summary(rows)
            print(line(title, found[title]), flush=True)
            if variant:
                continue
            if kept is not None:
                kept[name] = [row.asked for row in rows if row.asked is not None]
            new = [scope for scope in scopes if _seen(whole, scope.name) == "no"]
            if 0 < len(new) < len(scopes):
                title = f"{name}, not looked at"
                names = {scope.name for scope in new}
                some = [row for row in rows if row.scope in names]
                found[title] = _described(new, whole, refit) | summary(some)
                print(line(title, found[title]), flush=True)
    return found


def _described(scopes: Sequence[Scope], whole: str, refit: Refit | None) -> dict[str, Any]:
    """What is known of a set before it is asked."""
    seen = sorted({_seen(whole, scope.name) for scope in scopes})
    return {
        "fitted": refit is None and any(is_fitted("search", whole, scope.name) for scope in scopes),
        "seen": seen[0] if len(seen) == 1 else "in part",
        "memories": sum(len(scope.entries) for scope in scopes),
    }


def _seen(whole: str, part: str) -> str:
    """What was done with a set while the recipe was made: "constants" were set with it, "looked at", or "no"."""
    if is_fitted("search", whole, part):
        return "constants"
    return "looked at" if {whole, f"{whole}/{part}"} & fitted_on("search_looked_at") else "no"


def line(title: str, found: dict[str, Any]) -> str:
    """One set in one line."""
    mark = " (fitted)" if found["fitted"] else ""
    cells = [f"{name} {_three(figures)}" for name, figures in found["systems"].items()]
    lead = found["ahead"]["r@5"]
    return (
        f"{title}{mark}: {found['questions']} questions; "
        + "; ".join(cells)
        + f"; r@5 ahead of {lead['of']} by {lead['by']:+.3f} {lead['questions']} {lead['conversations']}"
    )


def _three(figures: dict[str, float]) -> str:
    return "/".join(f"{figures[name]:.3f}".lstrip("0") for name in ("r@5", "r@20", "mrr"))


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", type=Path, nargs="?", help="the folder with the sets; without it, only our own"
    )
    parser.add_argument("--only", nargs="+", default=[], help="these sets")
    parser.add_argument("--embedder", default="minilm", help="as in the settings")
    parser.add_argument("--second", default="use-multilingual", help="for other languages; or none")
    parser.add_argument("--refit", type=Path, help="a file with `left_out(set, part)`; see sets.py")
    parser.add_argument("--home", type=Path, default=None, help="SATCHEL_HOME, for the model")
    parser.add_argument("--out", type=Path, default=None, help="write the JSON to this file")
    arguments = parser.parse_args()

    async def run() -> dict[str, Any]:
        async with closing(
            cached_embedder(arguments.embedder, home=arguments.home, second=arguments.second)
        ) as embedder:
            return await measure(
                arguments.data, embedder=embedder, only=arguments.only, refit=refit_from(arguments.refit)
            )

    result = anyio.run(run)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
