"""Whether questions about real documents find the right page: remembers a folder, asks, and prints a table.

The documents are not part of the project (`data/document_questions.json` names their packages). Put them into a folder:

    python benchmarks/documents.py FOLDER [--questions FILE] [--home HOME]

Each question has the file that answers it, and a regular expression that the answering passage matches. We wrote both
before we saw what was found. The output is a Markdown table: file, question, page found, and the rank of the first
passage of this file that matches, of ten; then how many were first, and among the first three and ten. Without `--home`
a new home is used, where memory goes by words alone. One that holds the documents already does not read them again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

QUESTIONS = Path(__file__).parent / "data" / "document_questions.json"
CONFIG = 'model = "none"\n[background]\nmodels = "off"\n[memory]\nembedder = "none"\n'


def satchel(home: Path, *words: str) -> Any:
    """What a command prints as JSON; its other output is passed on."""
    done = subprocess.run(
        [sys.executable, "-m", "satchel", "memory", *words, "--json"],
        env={**os.environ, "SATCHEL_HOME": str(home)},
        stdout=subprocess.PIPE,
        check=False,
    )
    return json.loads(done.stdout)


def found(home: Path, question: str, file: str, pattern: str) -> tuple[int, str]:
    """The rank of the first passage of the file that matches, from 1, and its page or part; 0 for none of ten."""
    for rank, hit in enumerate(satchel(home, "search", question, "--limit", "10"), 1):
        # "document:UNIT:HASH:NONCE:PATH"
        memory = hit["memory"]
        unit, _, _, path = (memory["source"]["session"] or ":::").removeprefix("document:").split(":", 3)
        if Path(path).name == file and re.search(pattern, " ".join(memory["content"].split())):
            return rank, f"{unit} {memory['source']['turn']}"
    return 0, "–"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--home", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as new:
        home = given.home or Path(new)
        if given.home is None:
            (home / "config.toml").write_text(CONFIG)
        satchel(home, "add-file", str(given.folder))
        ranks = []
        print("| file | question | found | rank |\n|---|---|---|---|")
        for one in json.loads(given.questions.read_text())["questions"]:
            rank, place = found(home, one["question"], one["file"], one["answer"])
            ranks.append(rank)
            print(f"| {one['file']} | {one['question']} | {place} | {rank or '–'} |", flush=True)
        counts = [sum(1 <= rank <= most for rank in ranks) for most in (1, 3, 10)]
        print(f"\nOf {len(ranks)}: {counts[0]} first, {counts[1]} in the first three, {counts[2]} in ten.")


if __name__ == "__main__":
    main()
