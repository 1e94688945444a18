"""Runs `satchel demo` and writes what it prints as docs/images/demo.svg.

    python docs/demo_picture.py

The picture is of a real run: ids, dates and times in it are those of that run. A test compares its steps with the demo's.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parent / "images" / "demo.svg"
COLUMNS = 112
HINT = "I only recall:"
"""Begins the paragraph that each answer without a model ends with; once is enough in a picture."""


def main() -> None:
    """Run, draw and write."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {"PATH": os.environ["PATH"], "HOME": folder, "LANG": "C.UTF-8"}
        ran = subprocess.run(
            [sys.executable, "-m", "satchel", "demo"], env=environ, capture_output=True, text=True, check=True
        )
    lines = ["$ satchel demo", ""]
    hinted = False
    for line in ran.stdout.rstrip().splitlines():
        if line.startswith(HINT):
            if hinted:
                continue
            hinted = True
        if line or lines[-1]:
            lines.append(line)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for line in lines:
        style = "bold" if re.match(r"\d\. |\$ |That was", line) else "cyan" if line.startswith("›") else ""
        console.print(Text(line, style=style), soft_wrap=False)
    drawn = console.export_svg(title="satchel demo", unique_id="demo")
    # Fonts would be fetched from elsewhere; every system has one of its own.
    drawn = re.sub(r"@font-face\s*\{.*?\}\s*", "", drawn, flags=re.DOTALL).replace(
        "Fira Code", "ui-monospace"
    )
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn, encoding="utf-8")
    print(f"{PICTURE.relative_to(Path.cwd())} written")


if __name__ == "__main__":
    main()
