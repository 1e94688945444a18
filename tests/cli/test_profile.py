from __future__ import annotations

import json

from tests.cli.conftest import Run
from tests.requirements import requirement

NO_EMBEDDER = {"SATCHEL_MEMORY_EMBEDDER": "none"}


@requirement("memory:profile:cli")
def test_the_command_line_shows_profile_and_agenda_and_pins(run: Run) -> None:
    def satchel(*arguments: str, code: int = 0, **more: str) -> tuple[str, str]:
        ran = run("memory", *arguments, environ={**NO_EMBEDDER, **more})
        assert ran.code == code, ran.err
        return ran.out.strip(), ran.err

    assert "Nothing is known yet" in satchel("profile")[1]
    assert "Nothing is known of today" in satchel("agenda")[1]
    work, _ = satchel("add", "The user works in Leeds", "--importance", "5")
    fern, _ = satchel("add", "The spare key is under the fern", "--importance", "1")
    pinned = json.loads(satchel("pin", fern[:8], "--json")[0])
    assert pinned[0]["memory"]["pinned"]
    out, err = satchel("profile")
    assert [line.split()[0] for line in out.splitlines()] == [work, fern]
    assert "(more; pinned;" in out
    assert "of 300 tokens" in err
    small = json.loads(satchel("profile", "--json", SATCHEL_MEMORY_PROFILE_TOKENS="58")[0])
    assert [line["id"] for line in small["lines"]] == [fern]
    assert [(line["id"], line["reason"]) for line in small["left_out"]] == [(work, "no room left")]
    assert "is off" in satchel("profile", SATCHEL_MEMORY_PROFILE_TOKENS="0")[1]
    satchel("undo", pinned[0]["change"])
    assert "It was not pinned." in satchel("unpin", fern)[1]
    satchel("pin", "m0000000", code=3)
    satchel("add", "Dentist tomorrow at ten")
    agenda = json.loads(satchel("agenda", "--json")[0])
    assert [line["words"] for line in agenda["lines"]] == ["Dentist tomorrow at ten"]
