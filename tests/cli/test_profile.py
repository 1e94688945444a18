from __future__ import annotations

import json
from pathlib import Path

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
    assert "of 900 tokens" in err
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


@requirement("memory:page:cli")
def test_the_command_line_shows_edits_compares_and_restores_the_page(run: Run, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\ncat "$NEW_PAGE" > "$1"\n')
    editor.chmod(0o700)

    def satchel(*arguments: str, code: int = 0, **more: str) -> tuple[str, str]:
        ran = run("memory", *arguments, environ={**NO_EMBEDDER, **more})
        assert ran.code == code, ran.err
        return ran.out.strip(), ran.err

    def edit(text: str) -> tuple[str, str]:
        (tmp_path / "new").write_text(text)
        return satchel("page", "--edit", EDITOR=str(editor), NEW_PAGE=str(tmp_path / "new"))

    assert "There is no page yet" in satchel("page")[1]
    satchel("page", "--accept", code=3)
    shown, told = edit("<!-- above -->\n# People\nLinh can't stand dairy\n")
    assert "Linh can't stand dairy  (yours; " in shown
    assert "Written as version 1." in told
    edit("# People\nLinh can't stand dairy\nBollard is a dog (until 2999-12-31)\n")
    page = json.loads(satchel("page", "--json")[0])
    assert [(line["words"], line["until"]) for line in page["lines"]] == [
        ("Linh can't stand dairy", None),
        ("Bollard is a dog", "2999-12-31"),
    ]
    assert satchel("page", "--diff")[0].splitlines()[-1] == "+ Bollard is a dog (until 2999-12-31)"
    assert "Bollard is a dog" in satchel("profile")[0]
    satchel("page", "--undo", "--diff", code=2)
    assert "Bollard" not in satchel("page", "--undo")[0]
    assert "Bollard" in satchel("page", "--restore", "2")[0]
    versions = satchel("page", "--versions")[0].splitlines()
    assert [line.split(",")[0] for line in versions] == [f"version {number}" for number in (4, 3, 2, 1)]
    assert "is off" in satchel("page", SATCHEL_MEMORY_PAGE_TOKENS="0")[1]
