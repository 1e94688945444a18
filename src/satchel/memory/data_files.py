"""What comes with memory in `data`: word lists and examples as text, one entry a line; # begins a comment."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "data"


def read_text_file(name: str) -> str:
    """The text of a file in `data`."""
    return (FOLDER / name).read_text(encoding="utf-8")


def read_lines(name: str) -> list[str]:
    """The entries of a file in `data`, in its order."""
    return [line for line in read_text_file(name).splitlines() if line and not line.startswith("#")]
