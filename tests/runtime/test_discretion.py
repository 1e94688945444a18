"""What is marked as private, and what is secret, never reaches the disk; the model sees it while the session is open."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.config import trust
from satchel.models import Call, Reply, ScriptedModel
from satchel.runtime import Satchel
from tests.memory.labelled_secrets import ANTHROPIC
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio


def bytes_on_disk(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted((folder / "home").rglob("*")) if path.is_file())


async def memories_of(satchel: Satchel) -> list[str]:
    assert satchel.memory is not None
    return [record.content for record in await satchel.memory.list()]


@requirement("memory:capture:private-turn", "memory:capture:redacted")
async def test_private_parts_and_secrets_reach_the_model_and_never_the_disk(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            Reply(calls=[Call(name="bash", input={"command": f"echo {ANTHROPIC}"})], thinking=ANTHROPIC),
            f"Done with {ANTHROPIC}. I won't tell that you are seriously ill.",
            "Again.",
        ]
    )
    said = f"Use {ANTHROPIC}, please. <private>seriously ill</private>"
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        session = await satchel.session()
        await session.run_turn(said)
        assert model.requests[0].messages[-1].text == said
        assert await memories_of(satchel) == [
            "Done with [redacted:anthropic-key]. I won't tell that you are .",
            "Use [redacted:anthropic-key], please. ",
        ]
    on_disk = bytes_on_disk(tmp_path)
    assert ANTHROPIC.encode() not in on_disk
    assert b"seriously ill" not in on_disk
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(session.id)
        await session.run_turn("And now?")
    assert model.requests[-1].messages[0].text == "Use [redacted:anthropic-key], please. [private]"


@requirement("memory:capture:redacted")
async def test_who_switches_redaction_off_keeps_the_words_and_private_parts_stay_private(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, ScriptedModel(["Yes."]), memory__redact=False) as satchel:
        session = await satchel.session()
        await session.run_turn("My PIN is 4921. <private>seriously ill</private>")
        assert await memories_of(satchel) == ["Yes.", "My PIN is 4921. "]
    on_disk = bytes_on_disk(tmp_path)
    assert (b"4921" in on_disk, b"seriously ill" in on_disk) == (True, False)


@requirement("memory:capture:off")
async def test_a_trusted_project_switches_capture_off_for_its_folder(tmp_path: Path) -> None:
    settings = tmp_path / "work" / ".satchel" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[memory]\ncapture = false\n")
    for trusted, kept in ((False, ["Yes.", "One."]), (True, ["Yes.", "One."])):
        if trusted:
            trust(tmp_path / "home", tmp_path / "work")
        async with opened(tmp_path, ScriptedModel(["Yes."])) as satchel:
            session = await satchel.session()
            await session.run_turn("Two." if trusted else "One.")
            assert await memories_of(satchel) == kept
