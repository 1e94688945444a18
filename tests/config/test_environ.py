"""What libraries are told through the environment stays in this process."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, os
from satchel.config import prepare_libraries, process_environ
prepare_libraries()
name = "OPENBLAS_NUM_THREADS"
print(json.dumps([os.environ.get(name), process_environ().get(name)]))
"""


def told(environ: dict[str, str]) -> list[str | None]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True, timeout=280
    )
    found: list[str | None] = json.loads(ended.stdout)
    return found


def test_variables_that_satchel_sets_for_libraries_are_not_inherited_by_processes() -> None:
    assert told({}) == ["1", None]


def test_what_the_user_set_for_a_library_stays_and_is_handed_on() -> None:
    assert told({"OPENBLAS_NUM_THREADS": "2"}) == ["2", "2"]
