"""Every command but the conversations: data to stdout, the rest to stderr, honest exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import anyio
import psycopg
import pytest
from sqlalchemy.engine import make_url

from satchel.runtime.endpoints import greet
from tests.cli.conftest import Run, serving
from tests.cli.programs import calls, scripted, speaks
from tests.models.loopback import Answer, Asked, Loopback, as_json
from tests.postgresql import server_of
from tests.requirements import requirement

SHELLFISH = "My sister Mara is allergic to shellfish."


@requirement("cli:version")
def test_the_version_is_printed_without_loading_models_storage_or_the_runtime() -> None:
    program = (
        "import sys\nfrom satchel.cli import main\ncode = main(['--version'])\n"
        "heavy = {'satchel.models', 'satchel.storage', 'satchel.runtime', 'satchel.memory', 'sqlalchemy', 'numpy', 'rich', "
        "'asyncio', 'prompt_toolkit', 'openai', 'anthropic', 'onnxruntime', 'satchel.server', 'fastapi', 'uvicorn', "
        "'starlette', 'textual'}\n"
        "print(code, sorted(heavy & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "satchel 0.1.0\n0 []\n"


def test_help_names_every_command(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    for command in ("chat", "ask", "session", "memory", "model", "config", "usage", "doctor", "demo"):
        assert f"\n  {command} " in ran.out


@pytest.mark.parametrize("group", ["memory", "tool", "session", "model", "config", "mcp-server"])
def test_the_help_of_a_group_cuts_no_sentence(run: Run, group: str) -> None:
    ran = run(group, "--help")
    assert ran.code == 0
    assert "..." not in ran.out.partition("Commands:")[2]


@requirement("cli:no-traceback")
@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["memory", "nope"],
        ["memory", "search"],
        ["memory", "search", "x", "--limit", "0"],
        ["memory", "add"],
        ["memory", "add", "x", "--said-at", "yesterday"],
        ["session", "search", "  "],
        ["config", "set", "agent.max_rounds", "many"],
        ["config", "set", "agent.nope", "1"],
        ["ask", "  "],
        ["ask", "--session", "a", "--last", "x"],
        ["ask", "--json", "--stream-json", "x"],
        ["ask", "--mode", "nope", "x"],
        ["ask", "--allow", "bash(", "x"],
        ["ask", "--model", "nope:x", "x"],
        ["chat", "--session", "a", "--last"],
    ],
    ids=" ".join,
)
def test_misuse_ends_with_2_and_says_what_was_wrong(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.strip()
    assert "Traceback" not in ran.err


@requirement("cli:no-traceback")
@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["memry", "list"], "'memory'"),
        (["memory", "serch", "x"], "'search'"),
        (["config", "set", "memory.embeder", "x"], '"memory.embedder"'),
    ],
)
def test_what_is_misspelt_is_met_with_what_was_probably_meant(
    run: Run, arguments: list[str], meant: str
) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.strip().endswith(f"Did you mean {meant}?")


@requirement("cli:exit-codes")
@pytest.mark.parametrize(
    "arguments",
    [
        ["memory", "show", "nope"],
        ["memory", "forget", "nope", "--yes"],
        ["session", "show", "nope"],
        ["session", "export", "nope"],
        ["session", "delete", "nope", "--yes"],
        ["ask", "--session", "nope", "x"],
        ["config", "show", "nope"],
    ],
    ids=" ".join,
)
def test_what_is_not_there_ends_with_3(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (3, "")
    assert "nope" in ran.err
    assert "Traceback" not in ran.err


def test_a_broken_settings_file_is_named_with_its_line(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('model = "none"\n\n[agent]\nmax_round = 3\n')
    for arguments in (["ask", "x"], ["memory", "list"], ["doctor"], ["config", "show"]):
        ran = run(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert f"{home / 'config.toml'}, line 4" in ran.err
        assert "max_rounds" in ran.err


def test_an_internal_error_is_one_line_and_its_traceback_is_in_the_log(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_settings: object) -> None:
        raise ZeroDivisionError("the cat sat on it")

    monkeypatch.setattr("satchel.cli.config.show_settings", broken)
    ran = run("config", "show")
    assert (ran.code, ran.out) == (1, "")
    first, second = ran.err.strip().splitlines()
    assert first == "satchel: an internal error: ZeroDivisionError: the cat sat on it"
    (log,) = (tmp_path / "home" / "logs").iterdir()
    assert str(log) in second
    assert "Traceback (most recent call last)" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


@requirement("cli:memory", "cli:memory:search-json", "memory:forget:ids")
def test_memories_are_added_found_listed_shown_counted_and_forgotten(run: Run, tmp_path: Path) -> None:
    added = run("memory", "add", SHELLFISH, "--tag", "food", "--tag", "Mara", "--json")
    id = added.json["id"]
    other = run("memory", "add", "-", stdin="The spare key lies under the blue pot.\n")
    assert (other.code, other.err) == (0, "")

    (hit, *_) = run("memory", "search", "seafood", "allergic", "--json").json
    assert (hit["memory"]["id"], hit["memory"]["content"], hit["memory"]["tags"]) == (
        id,
        SHELLFISH,
        ["food", "Mara"],
    )
    assert set(hit) == {"memory", "score", "signals"}
    assert set(hit["memory"]["source"]) >= {"session", "turn"}
    assert [m["id"] for m in run("memory", "list", "--json").json] == [other.out.strip(), id]
    assert [m["id"] for m in run("memory", "list", "--tag", "food", "--json").json] == [id]
    assert run("memory", "show", id, "--json").json["content"] == SHELLFISH
    assert run("memory", "show", id).out == f"{SHELLFISH}\n"
    assert run("memory", "stats", "--json").json["memories"] == 2
    listed = run("memory", "list", "--limit", "1")
    assert other.out.strip() in listed.out
    assert "1 more" in listed.err

    unsure = run("memory", "forget", id)
    assert (unsure.code, unsure.out) == (2, "")
    assert SHELLFISH in unsure.err
    assert "--yes" in unsure.err
    gone = run("memory", "forget", id, "--yes", "--json")
    assert gone.code == 0
    assert [row["id"] for row in gone.json["receipt"] if row["where"] == "store"] == [id]
    again = run("memory", "forget", id, "--yes", "--json")
    assert (again.code, again.json) == (3, {"receipt": []})
    assert "There was nothing to forget." in again.err
    assert run("memory", "search", "shellfish", "--json").json == []
    everything = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert b"shellfish" not in everything


def test_nothing_found_is_no_failure(run: Run) -> None:
    for arguments in (
        ["memory", "search", "x"],
        ["memory", "list"],
        ["session", "search", "x"],
        ["session", "list"],
    ):
        ran = run(*arguments)
        assert (ran.code, ran.out) == (0, "")
        assert ran.err
        assert run(*arguments, "--json").json == []


@requirement("promise:forget:session-log")
def test_forgetting_what_was_said_takes_the_words_out_of_the_log(run: Run, tmp_path: Path) -> None:
    turn = run("ask", SHELLFISH, "--json", "--model", "none").json
    (memory,) = run("memory", "list", "--json").json
    assert memory["source"]["session"] == turn["session_id"]
    assert run("ask", "What about Mara?", "--json").json["memory"][0]["id"] == memory["id"]
    receipt = run("memory", "forget", memory["id"], "--yes", "--json").json["receipt"]
    assert {row["where"] for row in receipt} == {"store", "session_log"}
    everything = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert b"allergic" not in everything
    assert run("session", "search", "allergic", "--json").json == []
    assert run("ask", "What about Mara?", "--json").json["memory"] == []


@requirement("promise:forget:session-log")
def test_forgetting_takes_the_secret_out_of_the_log_that_memory_never_kept(run: Run, tmp_path: Path) -> None:
    said = "Mara lives in Bern; password: hunter2xyz99Qq_7"
    run("ask", "--model", "none", said)
    (memory,) = run("memory", "list", "--json").json
    assert "hunter2" not in memory["content"]
    run("memory", "forget", memory["id"], "--yes")
    everything = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert b"hunter2" not in everything
    assert b"Bern" not in everything


@requirement("cli:session", "sessions:show")
def test_sessions_are_listed_shown_searched_exported_and_deleted(run: Run, tmp_path: Path) -> None:
    turn = run("ask", SHELLFISH, "--json").json
    id = turn["session_id"]
    (listed,) = run("session", "list", "--json").json
    assert set(listed) >= {"id", "title", "started_at", "turns", "cwd", "model"}
    assert (listed["id"], listed["title"], listed["turns"]) == (id, SHELLFISH, 1)
    assert listed["cwd"] == str(tmp_path / "work")
    line = run("session", "list").out
    assert line.startswith(f"{id}  ")
    assert line.endswith(f"  {SHELLFISH}  (1 turn)\n")
    assert run("session", "list", "--here").out == line

    shown = run("session", "show", id[:4], "--json").json
    assert shown["id"] == id
    assert [event["type"] for event in shown["events"]][:2] == ["session_start", "turn_start"]
    assert run("session", "show", id).out.startswith(f"# {SHELLFISH}\n")
    (hit,) = run("session", "search", "allergic", "shell", "--json").json
    assert (hit["session"], hit["turn"], hit["kind"], hit["snippet"]) == (id, 1, "user", SHELLFISH)
    exported = run("session", "export", id, "-o", "out.md")
    assert (exported.code, exported.out) == (0, "")
    assert (tmp_path / "work" / "out.md").read_text().startswith(f"# {SHELLFISH}\n")
    assert run("session", "export", id, "-o", "out.md").code == 2
    assert json.loads(run("session", "export", id, "--format", "json").out)["id"] == id
    assert run("session", "export", id, "--format", "zip").code == 2
    assert run("session", "export", id, "--format", "zip", "-o", "out.zip").code == 0
    with zipfile.ZipFile(tmp_path / "work" / "out.zip") as archive:
        assert archive.namelist() == ["conversation.md", "conversation.json"]
    assert run("session", "export", "nope", "--format", "zip", "-o", "none.zip").code == 3
    assert not (tmp_path / "work" / "none.zip").exists()

    assert run("session", "rename", id, "Dinner", "for six").out.endswith("  Dinner for six  (1 turn)\n")
    assert run("session", "rename", id, " ").code == 2
    assert "at most 60 characters; this one has 61" in run("session", "rename", id, "x" * 61).err
    [listed] = run("session", "list", "--json").json
    assert (listed["title"], listed["turns"]) == ("Dinner for six", 1)
    assert run("session", "pin", id[:4]).out.endswith("  Dinner for six  (1 turn, pinned)\n")
    assert run("session", "pin", id, "nope").code == 3
    [filed] = run("session", "archive", id, "--json").json
    assert (filed["pinned"], filed["archived"]) == (True, True)
    assert run("session", "list", "--json").json == []
    assert [one["id"] for one in run("session", "list", "--archived", "--json").json] == [id]
    assert [one["id"] for one in run("session", "list", "--all", "--json").json] == [id]
    run("session", "unarchive", id)
    assert run("session", "unpin", id).out.endswith("  Dinner for six  (1 turn)\n")
    branched = run("session", "branch", id, "2", "--json").json
    assert (branched["branch_of"], branched["branch_turn"], branched["turns"]) == (id, 2, 1)
    assert run("session", "branch", id, "3").code == 3
    assert run("session", "delete", branched["id"], "--only", "--yes").code == 0
    assert run("session", "delete", id).code == 2
    assert run("session", "delete", id, "--yes", "--json").json == {"deleted": [id]}
    assert run("session", "list", "--json").json == []


@requirement("sessions:branches:one")
def test_a_conversation_and_its_branches_are_one_line_and_are_filed_and_deleted_together(run: Run) -> None:
    first = run("ask", SHELLFISH, "--json").json["session_id"]
    branches = [run("session", "branch", first, "1", "--json").json["id"] for _ in range(2)]
    for id in branches:
        assert run("ask", f"What of {id}?", "--session", id).code == 0
    (line,) = run("session", "list").out.splitlines()
    assert (line.split()[0], "3 branches" in line) == (branches[-1], True)
    assert SHELLFISH in line
    (entry,) = run("session", "list", "--json").json
    assert sorted(entry["branches"]) == sorted([first, *branches])
    assert {one["id"] for one in run("session", "list", "--all", "--json").json} == {first, *branches}
    run("session", "archive", branches[0])
    assert run("session", "list", "--json").json == []
    assert all(one["archived"] for one in run("session", "list", "--all", "--json").json)
    run("session", "rename", branches[0], "Dinner")
    assert {one["title"] for one in run("session", "list", "--all", "--json").json} == {"Dinner"}
    asked = run("session", "delete", first)
    assert (asked.code, asked.err.count("Dinner")) == (2, 3)
    deleted = run("session", "delete", first, "--yes", "--json").json["deleted"]
    assert sorted(deleted) == sorted([first, *branches])
    assert run("session", "list", "--all", "--json").json == []


@requirement("sessions:metadata")
def test_a_session_log_names_the_provider_and_the_model_and_what_each_answer_cost(run: Run) -> None:
    with serving(scripted(calls(("todo", {})), speaks("Done."))) as server:
        turn = run("ask", "Go.", "--json", server=server).json
    events = run("session", "show", turn["session_id"], "--json").json["events"]
    by_type = {event["type"]: event for event in events}
    assert (by_type["session_start"]["provider"], by_type["session_start"]["model"]) == ("openai", "m-1")
    answers = [event for event in events if event["type"] == "assistant"]
    assert [(a["provider"], a["model"], a["round"]) for a in answers] == [
        ("openai", "m-1", 1),
        ("openai", "m-1", 2),
    ]
    # What the endpoint reported for each answer, and together for the turn.
    assert [(a["usage"]["input_tokens"], a["usage"]["output_tokens"]) for a in answers] == [(7, 3), (7, 3)]
    total = by_type["turn_end"]["usage"]
    assert (total["input_tokens"], total["output_tokens"]) == (14, 6)
    assert (turn["usage"]["input_tokens"], turn["usage"]["output_tokens"]) == (14, 6)


@requirement("cli:config")
def test_settings_are_shown_set_and_taken_back(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "home" / "config.toml"
    assert run("config", "path").out == f"{path}\n"
    assert run("config", "set", "agent.max_rounds", "7").code == 0
    assert run("config", "show", "agent.max_rounds").out == f"agent.max_rounds = 7   ({path})\n"
    shown = {entry["key"]: entry for entry in run("config", "show", "--json").json}
    assert shown["agent.max_rounds"]["value"] == 7
    assert shown["memory.embedder"]["source"] == "SATCHEL_MEMORY_EMBEDDER"
    assert run("config", "set", "budget.day_usd", "2.5").code == 0
    assert run("config", "set", "budget.day_usd", "").code == 0
    assert run("config", "show", "budget.day_usd").out == "budget.day_usd = not set\n"
    assert run("config", "init").code == 2


@requirement("cli:config")
def test_who_gives_a_provider_another_host_is_told_that_its_key_goes_there(run: Run) -> None:
    address = ("config", "set", "providers.deepseek.base_url")
    assert run(*address, "https://other.example/v1").err.count("\n") == 1
    key = {"DEEPSEEK_API_KEY": "sk-of-somebody"}
    told = run(*address, "https://third.example/v1", environ=key).err
    assert "! The key in DEEPSEEK_API_KEY, which was given for https://other.example/v1, is sent" in told
    assert "sk-of" not in told
    assert run(*address, "https://third.example/v2", environ=key).err.count("\n") == 1
    assert run(*address, "HTTPS://Third.example:443/v2", environ=key).err.count("\n") == 1
    assert "this is not an address" in run(*address, "http://[::1", environ=key).err
    # Without an address, it is sent nowhere.
    assert run(*address, "", environ=key).err.count("\n") == 1
    assert "The key in DEEPSEEK_API_KEY is sent" in run(*address, "https://a.example/v1", environ=key).err


@requirement("cli:config")
def test_a_first_settings_file_is_written_without_questions(run: Run, tmp_path: Path) -> None:
    assert run("config", "init", "--model", "none", "--no-capture").code == 0
    assert run("config", "show", "memory.capture").out.startswith("memory.capture = false")
    run("ask", SHELLFISH)
    assert run("memory", "list", "--json").json == []


@requirement("cli:usage")
def test_usage_sums_by_day_and_model(run: Run) -> None:
    assert run("usage", "--json").json == []
    run("ask", "hello")
    (row,) = run("usage", "--json").json
    assert (row["model"], row["calls"], row["cost_usd"]) == ("none:recall", 1, 0.0)
    assert "none:recall" in run("usage").out
    assert "In the background" not in run("usage").out
    run("config", "set", "background.day_tokens", "20000")
    assert run("usage").out.splitlines()[-9:] == [
        "In the background today, of 20,000 tokens:",
        *(
            f"  {kind:10}      0 calls           0 tokens"
            for kind in ("gate", "extract", "judge", "title", "picture", "earn", "capability", "total")
        ),
    ]


@requirement("cli:doctor")
def test_doctor_reports_every_part(run: Run) -> None:
    ran = run("doctor", "--json")
    assert ran.code == 0
    parts = {check["part"]: check["state"] for check in ran.json}
    assert parts.items() >= {"home": "ok", "sessions": "ok", "memory": "ok"}.items()
    assert run("doctor").out.count("\n") == len(ran.json)


def test_doctor_says_that_a_sandbox_is_unknown_and_goes_on(run: Run) -> None:
    ran = run("doctor", "--json", environ={"SATCHEL_SANDBOX_BACKEND": "bublewrap"})
    checks = {check["part"]: check for check in ran.json}
    assert (ran.code, checks["sandbox"]["state"], checks["home"]["state"]) == (1, "failed", "ok")
    assert "'bublewrap', and there is no such sandbox. There are: bubblewrap," in checks["sandbox"]["text"]


def test_doctor_says_that_the_program_for_packages_is_missing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "packages" not in {check["part"] for check in run("doctor", "--json").json}
    monkeypatch.setitem(sys.modules, "uv", None)
    environ = {"PATH": "/nowhere"}
    checks = {check["part"]: check for check in run("doctor", "--json", environ=environ).json}
    assert checks["packages"]["state"] == "warning"
    assert 'pip install "satchel[packages]"' in checks["packages"]["text"]


def test_with_a_broken_database_doctor_exits_with_1_and_the_conversation_continues(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "satchel.db").write_bytes(b"this is no database" * 100)
    ran = run("doctor", "--json")
    assert ran.code == 1
    assert any(check["state"] == "failed" and "satchel.db" in check["text"] for check in ran.json)
    asked = run("ask", "hello")
    assert asked.code == 0
    assert "satchel.db" in asked.err
    assert run("memory", "list").code == 1
    assert run("session", "search", "hello", "--json").json[0]["snippet"] == "hello"


@requirement("cli:doctor")
def test_the_doctor_says_why_a_model_that_was_chosen_does_not_serve(run: Run) -> None:
    def model_of(name: str, server: Loopback | None = None, **environ: str) -> tuple[str, str]:
        ran = run("doctor", "--json", server=server, environ={**environ, "SATCHEL_MODEL": name})
        (check,) = [check for check in ran.json if check["part"] == "model"]
        assert (check["state"] == "failed") == (ran.code == 1)
        return check["state"], check["text"].partition(" can't answer: ")[2]

    assert model_of("anthropic:m") == ("failed", "ANTHROPIC_API_KEY is not set.")
    assert model_of("gguf:/no/file.gguf") == ("failed", "There is no model file /no/file.gguf.")
    state, why = model_of("ollama:m")
    assert (state, why.partition(":9 ")[2][:17]) == ("failed", "cannot be reached")
    with serving([as_json({}, status=401), as_json({"data": [{"id": "m"}]})]) as server:
        state, why = model_of("openai:m", server)
        assert (state, why.partition(" refuses ")[2]) == ("failed", "the key in OPENAI_API_KEY.")
        assert model_of("openai:m", server) == ("ok", "")
    refuses = as_json({"error": {"message": "No such model."}}, status=404)
    with serving([as_json({"data": [{"id": "m-1"}, {"id": "m-2"}]}), refuses]) as server:
        state, why = model_of("openai:m", server)
    assert state == "failed"
    assert "No such model." in why
    assert why.endswith("lists: m-1, m-2. Choose one: satchel config set model openai:MODEL")


@requirement("cli:doctor:slow")
def test_a_model_that_has_not_answered_yet_is_a_failure_only_if_a_conversation_would_not_wait(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(greet.__kwdefaults__ or {}, "limit_s", 1.0)
    waits = Answer(pieces=(b"",), hold=anyio.Event())
    with serving(lambda asked: as_json({"data": []}) if asked.body is None else waits) as server:
        for waits_s, expected in (("600", (0, "warning")), ("1", (1, "failed"))):
            ran = run("doctor", "--json", server=server, environ={"SATCHEL_AGENT_MODEL_TIMEOUT_S": waits_s})
            (check,) = [check for check in ran.json if check["part"] == "model"]
            assert (ran.code, check["state"]) == expected
            assert f"has not answered within 1 s. A conversation waits {waits_s} s" in check["text"]
            assert "agent.model_timeout_s" in check["text"]


@requirement("cli:doctor:404")
def test_the_doctor_notices_an_endpoint_that_always_answers_404(run: Run) -> None:
    def checked(answers: Callable[[Asked], Answer]) -> tuple[str, str]:
        with serving(answers) as server:
            ran = run("doctor", "--json", server=server)
            (check,) = [check for check in ran.json if check["part"] == "model"]
            return check["state"], check["text"].replace(server.url, "URL")

    state, why = checked(lambda _: as_json({}, status=404))
    assert state == "failed"
    assert "URL/v1/models answers 404." in why
    assert "URL/v1/chat/completions" in why
    assert "satchel config set providers.openai.base_url URL" in why
    # Some endpoints list no models and answer all the same.
    assert (
        checked(lambda asked: speaks("ready") if "chat" in asked.path else as_json({}, status=404))[0] == "ok"
    )


@requirement("cli:model")
def test_the_models_are_listed_with_the_reason_why_one_does_not_serve(run: Run) -> None:
    ran = run("model", "list", "--json")
    assert ran.code == 0
    assert ran.json["chosen"] == "none"
    states = {p["name"]: (p["state"], p["reason"]) for p in ran.json["providers"]}
    assert states["anthropic"] == ("not set up", "ANTHROPIC_API_KEY is not set")
    assert "none\n" in run("model", "list").out
    assert run("model", "list", "nope").code == 2


@requirement("cli:model")
def test_a_model_is_tried(run: Run) -> None:
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "k"}
    ran = run("model", "test", "none", "--json")
    assert (ran.code, ran.json["model"], ran.json["calls_tools"]) == (0, "none:recall", False)
    assert run("model", "test", "openai:m", environ=environ).code == 1


@requirement("cli:demo")
def test_the_demo_remembers_recalls_acts_forgets_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    ran = run("demo")
    assert ran.code == 0, ran.err
    told = ran.out
    assert told.count(f"› {SHELLFISH}") == 1
    recalled, forgotten = told.split("6. Forget.")
    assert "allergic to shellfish" in recalled.split("2. Recall.")[1]
    assert "Risotto" in recalled.split("4. Act.")[1]
    corrected = recalled.split("3. Correct.")[1].split("4. Act.")[0]
    assert corrected.count("shellfish and to walnuts") >= 2
    made = recalled.split("5. Make a tool.")[1]
    assert "540 g of rice for 6 guests" in made or "Capabilities can't run here" in made
    assert "Forgotten: " in forgotten
    assert "allergic" not in forgotten.split("Forgotten: ")[1].split("›")[-1]
    assert not (tmp_path / "home" / "satchel.db").exists()


@requirement("storage:postgres:errors")
def test_a_server_ends_if_its_database_stays_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.serving._AWAY_S", 1.0)
    ended = run("serve", "--port", "0", environ={"SATCHEL_DATABASE": "postgresql://nobody@127.0.0.1:1/none"})
    assert (ended.code, ended.out) == (1, "")
    waits, ends = ended.err.splitlines()[0], ended.err.splitlines()[-1]
    assert "can't be reached" in waits
    assert "Waiting for it, for 1 s at most." in waits
    assert "can't be reached" in ends
    assert "listens" not in ended.err


@requirement("storage:postgres:errors")
@pytest.mark.parametrize(
    ("user", "says"),
    [
        ("satchel_locked", "authentication failed"),  # whose password is another one
        ("satchel_unknown", "does not exist"),
        ("satchel_guest", "permission denied"),  # who may not make tables
    ],
)
def test_a_server_ends_if_its_database_does_not_let_it_in(
    run: Run, user: str, says: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = server_of(tmp_path_factory)
    schema = server.schema_for(tmp_path)
    address = server.url(schema)
    with psycopg.connect(address, autocommit=True) as admin:
        if user != "satchel_unknown":
            admin.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'right'".encode())
            admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {user}".encode())
        if user == "satchel_locked":
            rules = server.folder / "data" / "pg_hba.conf"
            rules.write_text(f"local all {user} scram-sha-256\n{rules.read_text()}")
            admin.execute("SELECT pg_reload_conf()")
    url = make_url(address).set(username=user, password="hunter2")
    try:
        ended = run(
            "serve", "--port", "0", environ={"SATCHEL_DATABASE": url.render_as_string(hide_password=False)}
        )
    finally:
        if user != "satchel_unknown":
            with psycopg.connect(address, autocommit=True) as admin:
                admin.execute(f"DROP OWNED BY {user}; DROP ROLE {user}".encode())
    assert (ended.code, ended.out) == (1, "")
    assert says in ended.err
    assert "Waiting" not in ended.err
    assert "listens" not in ended.err
    assert "hunter2" not in ended.err + "".join(
        each.read_text(errors="replace") for each in tmp_path.rglob("*") if each.is_file()
    )
