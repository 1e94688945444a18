"""A call of an executable: JSON in, JSON out, and the envelope around it (seed-1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from satchel.tools import Effect
from tests.requirements import requirement
from tests.tools.external.executables import Bench, mark_of, processes_that_say, script

pytestmark = pytest.mark.anyio


@requirement("external:call:json", "external:envelope:success")
async def test_a_call_gets_json_on_stdin_and_its_json_comes_in_the_envelope(bench: Bench) -> None:
    envelope = await bench.run(
        """printf '{"got": '; cat; printf '}'""", {"text": 'grün\n"x"', "n": [1, None]}
    )
    assert envelope == {"tool_success": True, "result": {"got": {"text": 'grün\n"x"', "n": [1, None]}}}


@requirement("external:call:timeout", "external:envelope:partial", "external:codes")
async def test_a_call_that_takes_too_long_is_ended_as_a_whole_and_its_output_kept(
    bench: Bench, tmp_path: Path
) -> None:
    word, limit_s = mark_of(tmp_path), 0.25
    body = f"echo partial output...; echo why >&2; X={word} sleep 600 & X={word} sleep 600"
    envelope = {"stderr": ""}
    while not envelope["stderr"]:  # on a busy machine, it may not have printed anything by then
        limit_s *= 2
        envelope = await bench.run(body, run_timeout_s=limit_s)
    assert envelope == {
        "tool_success": False,
        "error": f"Tool 'probe' timed out after {limit_s:g}s",
        "error_code": "TOOL_TIMEOUT",
        "exit_code": None,
        "stdout": "partial output...\n",
        "stderr": "why\n",
    }
    assert processes_that_say(word) == []


async def test_the_loop_waits_a_little_longer_than_the_tool_may_take(bench: Bench) -> None:
    bench.put("probe", script("probe"))
    tool = await bench.tool("probe", run_timeout_s=30)
    assert tool.spec.timeout_s == 35


@requirement("external:envelope:failure", "external:codes")
async def test_a_failing_call_reports_its_exit_code_and_output(bench: Bench) -> None:
    assert await bench.run("echo half; echo broken >&2; exit 7") == {
        "tool_success": False,
        "error": "Tool 'probe' ended with exit code 7",
        "error_code": "TOOL_CRASHED",
        "exit_code": 7,
        "stdout": "half\n",
        "stderr": "broken\n",
    }


async def test_a_signal_is_reported_as_shells_do(bench: Bench) -> None:
    envelope = await bench.run("kill -SEGV $$")
    assert (envelope["error"], envelope["error_code"], envelope["exit_code"]) == (
        "Tool 'probe' was ended by signal 11",
        "TOOL_CRASHED",
        139,
    )


@requirement("external:codes")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("", "it printed nothing"),
        ("printf '{\"a\": '", "Expecting value"),
        ("echo '{}{}'", "Extra data"),
        ("echo '{\"a\": NaN}'", "NaN is not JSON"),
        ("printf '\"\\377\"'", "byte 2 is not UTF-8"),
    ],
)
async def test_output_that_is_not_json_is_reported_with_the_output(
    bench: Bench, body: str, problem: str
) -> None:
    envelope = await bench.run(body or ":")
    assert (envelope["error_code"], envelope["exit_code"]) == ("INVALID_OUTPUT", 0)
    assert problem in envelope["error"]


@requirement("external:credentials")
@pytest.mark.parametrize("code", [0, 1])
async def test_missing_credentials_are_the_tools_own_answer(bench: Bench, code: int) -> None:
    answer = {"error": "Set WEATHER_KEY; get one at example.com.", "error_code": "MISSING_CREDENTIALS"}
    envelope = await bench.run(f"echo '{json.dumps(answer)}'; exit {code}")
    if code == 0:
        assert envelope == {"tool_success": True, "result": answer}
    else:
        assert (
            envelope["tool_success"],
            envelope["error"],
            envelope["error_code"],
            envelope["exit_code"],
        ) == (
            False,
            answer["error"],
            "MISSING_CREDENTIALS",
            1,
        )


@requirement("external:progress")
async def test_progress_lines_are_reported_and_left_out_of_stderr(bench: Bench) -> None:
    envelope = await bench.run(
        """printf '{"progress": "one"}\\nno progress\\n{"progress": {"done": 2}}\\n' >&2; exit 1"""
    )
    assert bench.progress == [{"progress": "one"}, {"progress": {"done": 2}}]
    assert envelope["stderr"] == "no progress\n"


async def test_a_flood_of_progress_is_thinned_out(bench: Bench) -> None:
    envelope = await bench.run("""yes '{"progress": 1}' | head -n 5000 >&2; echo '{}'""")
    assert envelope["tool_success"]
    assert len(bench.progress) == 500 + 4  # and those whose number is 512, 1024, 2048 or 4096


async def test_a_long_result_is_whole(bench: Bench) -> None:
    envelope = await bench.run("""printf '"'; head -c 7000000 /dev/zero | tr '\\0' x; printf '"'""")
    assert envelope == {"tool_success": True, "result": "x" * 7_000_000}


async def test_an_input_that_is_no_json_is_refused(bench: Bench) -> None:
    envelope = await bench.run("cat", {"x": float("nan")})
    assert envelope["error_code"] == "INVALID_INPUT"


@requirement("external:codes")
async def test_a_missing_file_and_a_file_that_is_no_longer_executable_have_different_codes(
    bench: Bench,
) -> None:
    path = bench.put("probe", script("probe"))
    tool = await bench.tool("probe")
    path.chmod(0o644)
    assert (await tool.run({}, bench.context()))["error_code"] == "NOT_EXECUTABLE"
    path.unlink()
    assert (await tool.run({}, bench.context()))["error_code"] == "NOT_FOUND"
    path.mkdir()
    assert (await tool.run({}, bench.context()))["error_code"] == "NOT_EXECUTABLE"


async def test_a_file_that_was_only_touched_is_run(bench: Bench) -> None:
    path = bench.put("probe", script("probe", "echo 1"))
    tool = await bench.tool("probe")
    path.touch()
    assert (await tool.run({}, bench.context()))["result"] == 1


async def test_it_runs_in_the_sessions_folder_with_the_given_environment_alone(bench: Bench) -> None:
    envelope = await bench.run("""printf '["%s", "%s"]' "$PWD" "$SATCHEL_HOME" """)
    assert envelope["result"] == [str(bench.work), ""]


async def test_declared_effects_are_the_paths_in_its_input(bench: Bench) -> None:
    parameters = {"to": {"type": "string"}, "of": {"type": "array", "items": {"type": "string"}}}
    text = script("copy", parameters=parameters, effects={"reads": ["of"], "writes": ["to"]})
    bench.put("copy", text)
    tool = await bench.tool("copy")
    work = bench.work.resolve()
    (bench.work / "link").symlink_to("b")
    assert tool.effects({"to": "link", "of": ["x", "../y"]}, bench.context()) == [
        Effect(resource=f"path:{work / 'b'}", writes=True),
        Effect(resource=f"path:{work / 'x'}", writes=False),
        Effect(resource=f"path:{work.parent / 'y'}", writes=False),
    ]
    assert tool.effects({}, bench.context()) == []
