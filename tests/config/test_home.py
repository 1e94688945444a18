"""SATCHEL_HOME and the list of trusted folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from satchel.config import ensure_home, trust, untrust
from satchel.config.trusted import read_project, trust_record
from satchel.errors import ConfigError, StorageUnwritable
from tests.requirements import requirement


def is_trusted(home: Path, folder: Path) -> bool:
    """As `load` decides it."""
    record = trust_record(home, folder)
    return record is not None and not read_project(folder).changes_since(record)


@requirement("config:home:mode")
def test_the_home_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    home = ensure_home(tmp_path / "a" / "home")
    assert home.stat().st_mode & 0o777 == 0o700
    assert ensure_home(home) == home


@requirement("config:home:unusable")
def test_a_home_that_is_a_file_or_lies_in_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageUnwritable, match=r"SATCHEL_HOME is .*/file, which is a file\. Move it away"):
        ensure_home(tmp_path / "file")
    with pytest.raises(
        StorageUnwritable, match=r"could not be created: Not a directory\. Create it, or set SATCHEL_HOME"
    ):
        ensure_home(tmp_path / "file" / "home")


@requirement("config:project:trust")
def test_trust_is_for_one_folder_and_can_be_taken_back(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (project / "inner").mkdir(parents=True)
    assert not is_trusted(home, project)
    trust(home, project)
    trust(home, project / "inner" / "..")
    assert is_trusted(home, project)
    assert not is_trusted(home, project / "inner")
    assert untrust(home, project)
    assert not untrust(home, project)
    assert not is_trusted(home, project)


def test_a_damaged_list_of_trusted_folders_is_said_and_trusts_nothing(tmp_path: Path) -> None:
    (tmp_path / "trusted.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"trusted\.json is damaged"):
        is_trusted(tmp_path, tmp_path)


@requirement("config:set:whole-or-not")
def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from satchel.config import trust\n"
        "for n in range(20): trust(Path(sys.argv[1]), Path('/x') / sys.argv[2] / str(n))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "home"), name]) for name in ("a", "b")
    ]
    assert [process.wait(timeout=280) for process in processes] == [0, 0]
    assert all(is_trusted(tmp_path / "home", Path(f"/x/{name}/{n}")) for name in "ab" for n in range(20))
