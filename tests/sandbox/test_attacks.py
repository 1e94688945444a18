"""The same hostile code against every backend, as an ordinary user and as root, as a capability and as a command."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from satchel.sandbox.bwrap import find
from tests.requirements import requirement
from tests.sandbox.attacks import ATTACKS
from tests.sandbox.gauntlet import ENGINE_HOME, IMAGE
from tests.sandbox.ordinary import ROOT, USER, folder_of_a_user, python_of_a_user, python_of_root

IN_CONTAINERS = ("looks around in /sys", "looks into control groups")
"""An engine mounts /sys, read-only: names of devices and of the container's own control group can be read there."""


def engine(backend: str) -> dict[str, str]:
    """What Podman needs of the environment, and where the image is."""
    if backend != "podman":
        return {}
    named = {name: os.environ[name] for name in (IMAGE, "CONTAINERS_CONF") if name in os.environ}
    return {**named, ENGINE_HOME: os.environ.get("HOME", "/root")}


def gauntlet(backend: str, way: str, who: str) -> dict[str, dict[str, Any]]:
    if backend == "bubblewrap" and find("bwrap") is None:
        pytest.skip(
            "THE SANDBOX WAS NOT TESTED: bubblewrap isn't installed (sudo apt-get install bubblewrap)"
        )
    if backend == "podman" and not (IMAGE in os.environ and find("podman")):
        pytest.skip(f"PODMAN WAS NOT TESTED: install it and set {IMAGE} to an image that is there")
    python, environ = python_of_a_user() if who == "user" else python_of_root()
    owner = [str(USER)] if who == "root in a user's folder" else []
    with folder_of_a_user(root=who != "user") as folder:
        ended = subprocess.run(
            [*python, "-m", "tests.sandbox.gauntlet", backend, way, str(folder), *owner],
            cwd=ROOT,
            env={**environ, **engine(backend), "HOME": str(folder)},
            capture_output=True,
        )
    assert ended.returncode == 0, ended.stderr.decode()[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    return found


@requirement("sandbox:backends", "sandbox:clean", "sandbox:tree-dies")
@pytest.mark.parametrize(
    ("backend", "way", "who"),
    [
        ("bubblewrap", "run", "user"),
        ("bubblewrap", "bash", "user"),
        ("landlock", "run", "user"),
        ("landlock", "bash", "user"),
        ("bubblewrap", "run", "root"),
        ("bubblewrap", "bash", "root"),
        ("bubblewrap", "bash", "root in a user's folder"),
        ("podman", "run", "root"),
    ],
)
def test_every_attack_is_stopped(backend: str, way: str, who: str) -> None:
    found = gauntlet(backend, way, who)
    accepted = IN_CONTAINERS if backend == "podman" else ()
    through = {name: report for name, report in found.items() if report["through"]}
    assert {name: report for name, report in through.items() if name not in accepted} == {}
    tried = {attack.name for attack in ATTACKS if way == "run" or attack.bash}
    assert set(found) == tried
    wrong = {
        attack.name: (found[attack.name]["status"], found[attack.name]["said"])
        for attack in ATTACKS
        if attack.name in tried and attack.status not in (None, found[attack.name]["status"])
    }
    assert wrong == {}


def test_the_attacks_work_where_there_is_no_sandbox() -> None:
    found = gauntlet("unsafe", "run", "user")
    meant = {attack.name for attack in ATTACKS if attack.plain == "through"}
    assert {name for name in meant if not found[name]["through"]} == set()
    assert len(meant) >= 30
