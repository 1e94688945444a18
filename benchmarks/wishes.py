"""How many wishes not to keep something, or to keep it between us, the forms of `satchel.memory.text.discretion` find.

    python benchmarks/wishes.py

`data/wishes.json` has 24 wishes to forget, 16 to keep something confidential and 24 sentences that look like one, in
each of five languages, by an author who had seen no code. Nothing was fitted to them, and nothing is to be.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from satchel.memory.text.discretion import wish_of


def main() -> None:
    """Print, for each language and kind, how many there are and how many are taken for what they are."""
    told: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for row in json.loads(
        Path(__file__).with_name("data").joinpath("wishes.json").read_text(encoding="utf-8")
    ):
        wish = wish_of(row["text"])
        found = wish.kind if wish is not None and wish.kind in ("forget", "confidential") else "none"
        for name in (f"{row['kind']} {row['lang']}", row["kind"]):
            told[name] += 1
            right[name] += found == row["kind"]
    print(json.dumps({name: f"{right[name]} of {told[name]}" for name in told}, indent=1))


if __name__ == "__main__":
    main()
