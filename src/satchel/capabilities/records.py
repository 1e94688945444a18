"""What is known of a capability, as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from satchel.errors import UsageError
from satchel.plain import as_json

CapabilityStatus: TypeAlias = Literal["building", "proposed", "active", "failed", "disabled"]
VersionStatus: TypeAlias = Literal["ready", "proposed", "failed"]

_MAX_NAME = 60
"""With `cap_` before it, a tool's name, which both wire formats limit to 64 characters."""
_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{_MAX_NAME - 1}}}")
_PREFIX = "cap_"


def check_name(name: str) -> str:
    """Return `name` if it may be a capability's name.

    Raises:
        UsageError: It may not.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} can't be the name of a capability. A name has 1 to {_MAX_NAME} lowercase letters, "
            "digits and underscores, and begins with a letter: weather_lookup."
        )
    return name


def tool_name(name: str) -> str:
    """The name under which models call the capability."""
    return f"{_PREFIX}{name}"


def skill_name(name: str) -> str:
    """The capability's name as an Agent Skill: lowercase letters, digits and single hyphens between them."""
    return re.sub(r"_+", "-", name).strip("-")


CALLED: Final = "capability:"
"""Before the name of a capability, among hosts: a destination that is approved as they are."""
MCP: Final = "mcp:"
"""Before SERVER.TOOL, the same for a tool of an MCP server."""
MODEL: Final = "model"
"""The same for the user's language model."""


def is_called(host: str) -> bool:
    """Whether an entry among hosts is something that code calls through the broker, and no address."""
    return host == MODEL or host.startswith((CALLED, MCP))


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a capability may reach besides its input. All of it needs the user's approval.

    Attributes:
        hosts: Hosts with their ports ("api.open-meteo.com:443", "*.example.com:443"), and what it may call: other
            capabilities ("capability:split_bill"), tools of MCP servers ("mcp:files.read") and "model", sorted.
        secrets: Names of environment variables whose values it gets, sorted.
        state: It keeps files from one run to the next.
    """

    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    state: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to approve."""
        return bool(self.hosts or self.secrets or self.state)

    @property
    def calls(self) -> tuple[str, ...]:
        """What it may call, by the names that its code calls: a capability's own, "mcp:SERVER.TOOL", "model"."""
        return tuple(host.removeprefix(CALLED) for host in self.hosts if is_called(host))

    @property
    def network(self) -> tuple[str, ...]:
        """Its hosts on the network."""
        return tuple(host for host in self.hosts if not is_called(host))

    @property
    def items(self) -> tuple[tuple[str, str], ...]:
        """Each thing as its kind ("host", "secret", "state") and its value."""
        return (
            *(("host", host) for host in self.hosts),
            *(("secret", name) for name in self.secrets),
            *((("state", "files"),) if self.state else ()),
        )

    def without(self, approved: Access) -> Access:
        """What is left to approve."""
        return Access(
            hosts=tuple(host for host in self.hosts if host not in approved.hosts),
            secrets=tuple(name for name in self.secrets if name not in approved.secrets),
            state=self.state and not approved.state,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a version comes from.

    Attributes:
        made_by: "builder", "user" (edited by hand) or "import".
        source: The imported file or folder, or "".
    """

    made_by: Literal["builder", "user", "import"] = "builder"
    build_id: str = ""
    session_id: str = ""
    model: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How the runs of the active version went.

    Attributes:
        runs: All of them; `failures` of them failed. A call whose input was refused is not a run.
        median_ms: Of the last 50 runs; None before the first.
        peak_mb: The most memory that a run took.
        failing_since: When it began to fail, if the last three runs failed.
    """

    runs: int = 0
    failures: int = 0
    median_ms: float | None = None
    peak_mb: float = 0.0
    last_run_at: datetime | None = None
    failing_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """An entry of the catalogue.

    Attributes:
        name: See `check_name`; unique.
        description: One line.
        version: The active version, or 0 if no version is active.
        input_schema: JSON Schema of type "object".
        output_schema: JSON Schema of the result as JSON; {} if the result is text.
        requirements: Python packages, as in requirements.txt.
        build_id: The build that is open, or "". A capability that is active can be built anew.
        reasons: Why the last build failed.
        access: What the active version may reach; all of it is approved.
    """

    id: str
    name: str
    description: str
    status: CapabilityStatus
    version: int
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    tags: tuple[str, ...]
    requirements: tuple[str, ...]
    access: Access
    path: Path
    provenance: Provenance
    build_id: str
    reasons: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    reliability: Reliability = field(default_factory=Reliability)

    @property
    def tool_name(self) -> str:
        """See `tool_name`."""
        return tool_name(self.name)

    @property
    def is_skill(self) -> bool:
        """Whether its active version is a text to be followed, and no code: then it takes no input."""
        return bool(self.version) and not self.input_schema

    @property
    def folder(self) -> Path:
        """The folder of the active version."""
        return self.path / f"v{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a capability.

    Attributes:
        status: "ready" may become active; "proposed" waits for the user's approval; "failed" did not pass its cases
            after that.
        sha256: The digest of its manifest.json, which holds the digests of the other files.
        checks: The results of its cases, as `cases.result_to_json` gives them.
        reasons: Why it is not ready.
    """

    capability_id: str
    number: int
    status: VersionStatus
    sha256: str
    folder: Path
    provenance: Provenance
    checks: tuple[Mapping[str, Any], ...]
    reasons: tuple[str, ...]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A capability that is asked for.

    Attributes:
        description: What it shall do, in a sentence or more.
        input_schema: What its input shall be; {} leaves that to the Builder.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """The answer to a request.

    Attributes:
        capability: The entry, which may have been there before.
        build_id: The build that makes it; "" if nothing needs to be built.
        is_new: This request opened the build.
        similar: The entry was found by its meaning; it has another name than the one that was asked for.
    """

    capability: Capability
    build_id: str
    is_new: bool
    similar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The record of one run.

    Attributes:
        status: The sandbox's word: "ok", or what went wrong.
        input: The input of a run that failed; None otherwise.
    """

    number: int
    version: int
    status: str
    error: str
    input: Mapping[str, Any] | None
    wall_ms: float
    peak_mb: float
    backend: str
    started_at: datetime


def capability_to_json(capability: Capability) -> dict[str, Any]:
    """For `satchel capability list --json`, the HTTP interface and `lookup_capability`; what it may reach stands beside
    the rest.
    """
    found = as_json(capability)
    access = found.pop("access")
    return {**found, **access, "provenance": provenance_to_json(capability.provenance)}


def version_to_json(version: Version) -> dict[str, Any]:
    """For `satchel capability versions --json` and the HTTP interface."""
    return {
        "version": version.number,
        "status": version.status,
        "sha256": version.sha256,
        "path": str(version.folder),
        "provenance": provenance_to_json(version.provenance),
        "checks": list(version.checks),
        "reasons": list(version.reasons),
        "created_at": version.created_at.isoformat(),
    }


def run_to_json(run: Run) -> dict[str, Any]:
    """For `satchel capability show --json` and the HTTP interface."""
    return {name: value for name, value in as_json(run).items() if name != "number"}


def provenance_to_json(provenance: Provenance) -> dict[str, str]:
    """Only what is known."""
    return {name: value for name, value in as_json(provenance).items() if value}


def provenance_from_json(value: Mapping[str, Any]) -> Provenance:
    """The opposite."""
    names: Sequence[str] = ("build_id", "session_id", "model", "source")
    made_by = value.get("made_by")
    return Provenance(
        made_by=made_by if made_by in ("user", "import") else "builder",
        **{name: str(value.get(name, "")) for name in names},
    )
