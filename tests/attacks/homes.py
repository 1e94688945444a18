"""What the attacks look at."""

from __future__ import annotations

from pathlib import Path


def bytes_below(folder: Path) -> bytes:
    """Everything that stands in the files below a folder, names included."""
    return b"\n".join(
        str(path).encode() + b"\n" + path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    )
