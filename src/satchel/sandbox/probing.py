"""Whether a backend works here, found out by running something in it with the arguments of a real run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from satchel.errors import SandboxError
from satchel.sandbox.backend import BaseBackend
from satchel.sandbox.port import Limits, Probe, PythonEntry, RunSpec

APPARMOR_SWITCH = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
NO_PROGRAM = (
    "Install bubblewrap: sudo apt install bubblewrap (Debian, Ubuntu), sudo dnf install bubblewrap (Fedora), "
    "sudo pacman -S bubblewrap (Arch)."
)
APPARMOR = (
    "AppArmor keeps bwrap from creating a user namespace. Allow it with a profile: see 'Ubuntu' in "
    "docs/guides/sandbox.md, then: sudo apparmor_parser -r /etc/apparmor.d/bwrap."
)
NO_NAMESPACES = (
    "This system or container forbids user namespaces. In a container, start it with a seccomp profile that allows "
    "them, and run Satchel as an ordinary user; outside, set the sysctl user.max_user_namespaces above 0."
)
SMALL = Limits(wall_s=20, cpu_s=10, memory_mb=256)
CODE = "def run(args):\n    import os\n    return f\"{os.getuid()} {args['word']}\"\n"


async def probe_by_doing(sandbox: BaseBackend) -> Probe:
    """Run a function in the sandbox and look at what it says."""
    with tempfile.TemporaryDirectory(prefix="satchel-probe-") as folder:
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "main.py"), "x") as file:  # noqa: ASYNC230 - two lines
            file.write(CODE)
        try:
            result = await sandbox.play_once(
                RunSpec(entry=PythonEntry(code_dir=Path(folder), args={"word": "up"}), limits=SMALL),
                folder=None,
                on_output=None,
            )
        # OSError: root of a user namespace that has no other users can give a box none of its own.
        except (SandboxError, OSError) as error:
            return Probe(name=sandbox.name, works=False, reason=str(error), fix=fix_for(str(error)))
    uid, _, word = (result.result or "").partition(" ")
    if word != "up" or uid == "0":
        why = result.error or result.stderr.strip() or f"a test program ran as uid {uid}"
        return Probe(name=sandbox.name, works=False, reason=why, fix=fix_for(why))
    return Probe(name=sandbox.name, works=True, features=sandbox.features)


def fix_for(reason: str) -> str:
    """What to do about a failure, by its words."""
    if "could not be started" in reason or "isn't installed" in reason:
        return NO_PROGRAM
    restricted = _restricted_by_apparmor()
    if restricted and any(
        word in reason for word in ("uid map", "RTM_NEWADDR", "Permission denied", "namespace")
    ):
        return APPARMOR
    if "namespace" in reason or "Operation not permitted" in reason or "No space left" in reason:
        return NO_NAMESPACES
    if os.geteuid() == 0 and "ordinary user" in reason:
        return "Run Satchel as an ordinary user."
    return ""


def _restricted_by_apparmor() -> bool:
    try:
        return APPARMOR_SWITCH.read_text().strip() == "1"
    except OSError:
        return False
