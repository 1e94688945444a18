"""How the program starts: quickly, and with a sentence where the settings are wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.requirements import requirement


@requirement("config:error:exit-code", "cli:no-traceback")
def test_wrong_settings_end_a_command_with_2_and_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[agent]\nmax_round = 3\n")
    environ = {"HOME": str(tmp_path), "SATCHEL_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    program = "import sys; from satchel.cli import main; sys.exit(main(['ask', 'Hello']))"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f'satchel: {tmp_path}/config.toml, line 2: [agent] has no setting "max_round". Did you mean "max_rounds"? It has: '
        "max_rounds, model_timeout_s, tool_timeout_s, tool_workers, max_result_chars, sub_agent_rounds, sub_agent_tokens, mode.\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml"]


@requirement("cli:search:light")
def test_a_search_loads_only_what_searching_needs(tmp_path: Path) -> None:
    """Every start pays for what is imported; these were a sixth of the CPU of `satchel memory search`."""
    environ = {"HOME": str(tmp_path), "SATCHEL_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    environ["SATCHEL_MEMORY_EMBEDDER"] = "hash"
    program = "import sys; from satchel.cli import main; main(sys.argv[1:]); print(' '.join(sys.modules))"

    def run(*words: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program, "memory", *words],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
            timeout=280,
        ).stdout

    run("add", "The router is upstairs.")
    found, loaded = run("search", "router").splitlines()
    assert "The router is upstairs." in found
    needless = {
        "alembic",
        "numpy.ma",
        "openai",
        "anthropic",
        "satchel.loop",
        "satchel.tools.builtin.bash",
        "satchel.tools.boxed",
        "tree_sitter",
        "satchel.memory.text.credentials",
        "satchel.memory.text.dates",
        "satchel.memory.distill.engine",
        "satchel.memory.transfer.own_format",
        "satchel.memory.transfer.importing",
    }
    assert set(loaded.split()) & needless == set()
