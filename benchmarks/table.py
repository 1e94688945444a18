"""The whole table of quality in one command: search and lives, on every set of a folder, beside baselines.

    python benchmarks/table.py DATA [--page docs/concepts/figures.md] [--only SET ...] [--refit FILE.py]
                               [--home FOLDER] [--results FOLDER]

    make table DATA=/path/to/the/sets

DATA holds the sets that `left_out.py` and `lives.py` (folders `life-*`) read. What was measured is kept set by set, so
that an interrupted run goes on where it stopped, also at another commit that changes neither memory nor models nor
benchmarks. A working tree with changes in these is always measured anew.

The page has figures on left-out data only. Search: the shipped weights, which are fitted to nothing, and weights that
the other sets choose (`chosen.py`). Lives that something was fitted to: each person, with everything fitted to the
others (`fit_surfacing.py`). What the shipped weights do on them is in the
results alone. With --refit, the given weights are measured instead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import chosen
import fit_surfacing
import left_out
import lives
from sets import CACHE, Refit, cached_embedder, closing, is_fitted, read, refit_from, second_of

from satchel.models.port import Embedder

ROOT = Path(__file__).parents[1]
KINDS = (
    *("direct", "paraphrase", "indirect", "correction", "preference", "temporal", "absent"),
    *("world", "task", "chat"),
)
STORE_TITLES = {"turns": "turns only", "facts": "with facts", "cues": "with facts and cues"}
COSTS = "## What it costs, before and after"
BASELINES = ("first 5", "first 10", "ideal profile")
"""What `lives.py` measures beside the program: plain search, and the facts marked for the profile."""
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)
LANGUAGES = {"de": "German", "en": "English", "es": "Spanish", "mul": "English and French", "zh": "Chinese"}


MEASURED = ("src/satchel/memory", "src/satchel/models", "benchmarks")
"""What the figures depend on."""


def commit() -> str:
    """The commit that is measured, with "+" where what is measured has changes."""
    name = _git("rev-parse", "--short=12", "HEAD")
    return name + "+" * bool(_git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED))


def measured_state() -> str:
    """The name of what is measured: the same at two commits that differ in nothing else."""
    trees = _git("rev-parse", *(f"HEAD:{folder}" for folder in MEASURED))
    return hashlib.sha256(trees.encode()).hexdigest()[:12]


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


Work = Callable[[Embedder], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that was measured, by set; `weights` is what `chosen.left_out` gives."""

    search: dict[str, Any]
    weights: dict[str, Any]
    lives: dict[str, Any]


def works(data: Path, refit: Refit | None, results: Path) -> dict[tuple[str, str], Work]:
    """What measures each set, by part ("search", "lives") and name."""
    found: dict[tuple[str, str], Work] = {}
    for name in left_out.sets_in(data):
        found["search", name] = partial(_search_set, data, name, refit=refit, results=results)
    for folder in sorted(path for path in data.glob("life-*") if path.is_dir()):
        found["lives", folder.name] = partial(_lives_in, folder, refit=refit)
    return found


async def _search_set(
    data: Path, name: str, embedder: Embedder, *, refit: Refit | None, results: Path
) -> dict[str, Any]:
    kept: dict[str, list[chosen.Asked]] = {}
    found = await left_out.measure(data, embedder=embedder, only=[name], refit=refit, kept=kept)
    _kept_at(results, name).write_bytes(pickle.dumps(kept[name]))
    return found


async def _lives_in(folder: Path, embedder: Embedder, *, refit: Refit | None) -> dict[str, Any]:
    """The shipped weights with the baselines; where they have seen a person, each one left out too."""
    names = [path.stem for path in lives.people_in(folder, ())]
    seen = refit is None and any(is_fitted("surfacing", folder.name, name) for name in names)
    found = await lives.measure(
        folder, embedder=embedder, refit=refit, thresholds=() if seen else lives.THRESHOLDS
    )
    if seen:
        measured = await fit_surfacing.measure(folder, embedder, second_of(embedder))
        found["left_out"] = fit_surfacing.left_out(measured, THRESHOLDS)
    return found


def _kept_at(results: Path, name: str) -> Path:
    return results / f"search-{name.replace('/', '-')}.pickle"


def measure(
    data: Path,
    *,
    results: Path,
    only: Sequence[str] = (),
    refit: Refit | None = None,
    embedder: str = "minilm",
    second: str = "none",
    home: Path | None = None,
) -> Measured:
    """Everything, by part and set; what is in `results` already is not measured again."""
    results.mkdir(parents=True, exist_ok=True)
    parts: dict[str, dict[str, Any]] = {"search": {}, "lives": {}}
    asked: dict[str, list[chosen.Asked]] = {}
    for (part, name), work in works(data, refit, results).items():
        if only and name not in only:
            continue
        path = results / f"{part}-{name.replace('/', '-')}.json"
        if not path.is_file():
            found = anyio.run(_with_embedder, work, embedder, second, home)
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        parts[part][name] = read(path)
        if part == "search":
            asked[name] = pickle.loads(_kept_at(results, name).read_bytes())
    return Measured(
        search={title: one for some in parts["search"].values() for title, one in some.items()},
        weights=chosen.left_out(asked),
        lives=parts["lives"],
    )


async def _with_embedder(work: Work, name: str, second: str, home: Path | None) -> dict[str, Any]:
    async with closing(cached_embedder(name, home=home, second=second)) as embedder:
        return await work(embedder)


def page(found: Measured, *, date: str, commit: str, embedder: str) -> str:
    """The page of left-out figures, in Markdown."""
    text = [
        "<!-- Generated by benchmarks/table.py: run `make table DATA=FOLDER`. -->\n",
        "# Figures on data that was left out\n",
        f"Measured on {date} at commit {commit}, embedded by {embedder}, without a language model. "
        "Intervals are 95 %, by bootstrap. [How search works](retrieval.md) explains the recipe, and [the benchmarks]"
        "(../../benchmarks/README.md) how to repeat this.\n",
    ]
    text += _search(found.search, found.weights)
    for name, one in found.lives.items():
        text += _lives(name, one)
    return "\n".join(text)


def _search(sets: dict[str, Any], weights: dict[str, Any]) -> list[str]:
    if not sets:
        return []
    lead = "The recipe's lead over the best baseline, in r@5 and MRR, with its interval: questions drawn"
    return [
        "## Search\n",
        "r@5 / r@20 / hit@20 / MRR. `recipe` is what ships: its weights are round numbers and fitted to no set. "
        "`chosen without it` has weights that are chosen by the questions of all other families of sets, out of 70 "
        "combinations. `seen` says what was done with a set while the recipe was made: constants were set with it "
        '("constants"), its figures were looked at when signals were chosen ("looked at"), or neither ("no"). `BM25` '
        "counts the bare words; `vector` is the embedder's one vector of a text; `passage` that of its best passage; "
        "`second` that of the embedder for other languages, where a set has some; the sums add "
        "BM25 and the cosine, each divided by its maximum.\n",
        "| set | seen | questions | recipe | chosen without it | BM25 | vector | passage | BM25 + vector "
        "| BM25 + passage | second | BM25 + second |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {title} | {one['seen']} | {one['questions']} | "
            + " | ".join(
                [
                    _search_cell(one["systems"]["recipe"]),
                    _search_cell(weights[title]["figures"]) if title in weights else "",
                    *(
                        _search_cell(one["systems"][name]) if name in one["systems"] else ""
                        for name in left_out.BASELINES
                    ),
                ]
            )
            + " |"
            for title, one in sets.items()
        ),
        "",
        f"{lead}; then whole conversations drawn.\n",
        "| set | r@5 of the recipe | its lead | by conversation | MRR of the recipe | its lead | by conversation |",
        "|---|---|---|---|---|---|---|",
        *(f"| {title} | {_leads(one)} |" for title, one in sets.items()),
        "",
        *_roles(sets),
        "By kind of question, r@5 / MRR:\n",
        "| set | kind | questions | recipe | BM25 | vector | passage | BM25 + passage |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {title} | {kind} | {figures['questions']} | "
            + " | ".join(
                _pair(figures[name]) for name in ("recipe", "bm25", "vector", "passage", "sum_passage")
            )
            + " |"
            for title, one in sets.items()
            if title in weights and len(one["kinds"]) > 1
            for kind, figures in one["kinds"].items()
        ),
        "",
    ]


def _roles(sets: dict[str, Any]) -> list[str]:
    """What it costs that speakers are stored as user and assistant instead of by name."""
    costs = [
        f"{title} {one['systems']['recipe']['r@20'] - sets[f'{title}, roles']['systems']['recipe']['r@20']:+.3f}"
        for title, one in sets.items()
        if f"{title}, roles" in sets
    ]
    return [f"What roles instead of names cost of r@20: {'; '.join(costs)}.\n"] if costs else []


def _search_cell(figures: dict[str, Any]) -> str:
    return " / ".join(_share(figures[name]) for name in ("r@5", "r@20", "hit@20", "mrr"))


def _pair(figures: dict[str, Any]) -> str:
    return f"{_share(figures['r@5'])} / {_share(figures['mrr'])}"


def _leads(found: dict[str, Any]) -> str:
    cells = []
    for figure in ("r@5", "mrr"):
        one, recipe = found["ahead"][figure], found["systems"]["recipe"]
        cells.append(f"{_share(recipe[figure])} {_range(recipe['intervals'][figure]['questions'])}")
        cells.append(
            f"{one['by']:+.3f} on {one['of'].replace('_', ' + ').replace('sum', 'BM25')} {_ends(one['questions'])}"
        )
        cells.append(_ends(one["conversations"]))
    return " | ".join(cells)


def _ends(ends: list[float] | None) -> str:
    return "" if ends is None else f"[{ends[0]:+.3f}, {ends[1]:+.3f}]"


def _range(ends: list[float] | None) -> str:
    return "" if ends is None else f"[{ends[0]:.3f}, {ends[1]:.3f}]"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _lives(name: str, one: dict[str, Any]) -> list[str]:
    tables = one["left_out"] if one["fitted"] else _as_left_out(one)
    text = [
        f"## What is shown before a message: `{name}`, {one['persons']} people\n",
        "`needed`: the share of what a good answer needs that is before the model. `precision`: the share of the shown "
        "lines that are needed or harmless. `nothing`: the share of world, task and chat messages with nothing shown. "
        "`tokens` and `lines` are means over all messages. `old alone`: messages for which an outdated value is shown "
        "without the new one.",
        "Everything that is fitted was fitted to the other people; a number is the setting `surface_threshold`.\n"
        if one["fitted"]
        else "Nothing was fitted to these people.\n",
        "| | needed | precision | nothing | tokens | lines | old alone |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {STORE_TITLES[store]}, {system} (baseline) | {_life_cells(figures['all'])} |"
            for store in STORE_TITLES
            for system, figures in one.get(store, {}).items()
            if system in BASELINES
        ),
        *(f"| {title} | {_life_cells(table['all'])} |" for title, table in tables.items()),
        *(_life_ends(title, table["intervals"]) for title, table in tables.items() if "kind" in table),
    ]
    for title, table in tables.items():
        # Of all stores only those as the program has them: two tables for each of sixteen say nothing more.
        for what in ("kind", "language"):
            if what in table and (", profile" in title or not one["fitted"]):
                text += [
                    "",
                    f"{title}, by {what}:\n",
                    "| | messages | needed | precision | nothing | tokens | lines | old alone |",
                    "|---|---|---|---|---|---|---|---|",
                    *(
                        f"| {LANGUAGES.get(label, label)} | {figures['messages']} | {_life_cells(figures)} |"
                        for label, figures in _in_order(table[what])
                    ),
                ]
    return [*text, ""]


def _life_ends(title: str, intervals: dict[str, Any]) -> str:
    ends = (f"{name} {_range(found['persons'])}" for name, found in intervals.items())
    return f"\n{title}, whole people drawn: {', '.join(ends)}."


def _as_left_out(one: dict[str, Any]) -> dict[str, Any]:
    """What `lives.measure` says of people whom nothing was fitted to, as `fit_surfacing.left_out` says it of others."""
    return {
        f"{STORE_TITLES[store]}, {system}": {"all": found["all"], "intervals": found["intervals"]}
        | (
            {what: found[f"by_{what}"] for what in ("kind", "language", "person")}
            if system == "surfaced"
            else {}
        )
        for store in STORE_TITLES
        for system, found in one.get(store, {}).items()
        if system not in BASELINES
    }


def _in_order(groups: dict[str, Any]) -> list[tuple[str, Any]]:
    """Kinds as the issue names them, everything else by name."""
    return sorted(groups.items(), key=lambda one: (KINDS.index(one[0]) if one[0] in KINDS else 0, one[0]))


def _life_cells(figures: dict[str, Any]) -> str:
    shares = [_share(figures[key]) for key in ("needed", "precision", "nothing")]
    stale = f"{figures['stale']} of {figures['of_stale']}"
    return " | ".join([*shares, f"{figures['tokens']:.0f}", f"{figures['lines']:.2f}", stale])


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="the folder with the sets")
    parser.add_argument("--page", type=Path, default=None, help="write the page to this file")
    parser.add_argument("--only", nargs="+", default=[], help="these sets")
    parser.add_argument("--refit", type=Path, help="a file with `left_out(set, part)`; see sets.py")
    parser.add_argument("--embedder", default="minilm", help="as in the settings")
    parser.add_argument("--second", default="use-multilingual", help="for other languages; or none")
    parser.add_argument("--home", type=Path, default=None, help="SATCHEL_HOME, for the model")
    parser.add_argument("--results", type=Path, default=None, help="where the results are kept")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        raise SystemExit(f"{arguments.data} is no folder. Type: make table DATA=FOLDER")
    name = commit()
    now = datetime.now(UTC)
    is_known = "+" not in name and not arguments.refit
    embedders = f"{arguments.embedder}-{arguments.second}".replace(":", "-").replace("/", "-")
    kept = f"table-{measured_state()}-{embedders}"
    folder = kept if is_known else f"{name}-{now:%Y%m%dT%H%M%S}"
    results = arguments.results or CACHE / folder

    found = measure(
        arguments.data,
        results=results,
        only=arguments.only,
        refit=refit_from(arguments.refit),
        embedder=arguments.embedder,
        second=arguments.second,
        home=arguments.home,
    )
    names = [one for one in (arguments.embedder, arguments.second) if one != "none"]
    text = page(found, date=f"{now:%Y-%m-%d}", commit=name, embedder=" and ".join(names))
    print(f"The results are in {results}.")
    if arguments.page:
        if arguments.page.exists():  # what `before_after.py` found stays at the end
            text += "".join(arguments.page.read_text(encoding="utf-8").partition(f"\n{COSTS}\n")[1:])
        arguments.page.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
