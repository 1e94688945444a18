"""The specification as data: what the design and its seeds require, and which requirements the tests verify.

A test that verifies an entry carries `@requirement("its:id")`. `tests/test_requirements.py` checks both directions:
every id in a test belongs to an entry that is built, every built entry has a test, and no test claims an entry that is
only planned. To mark an entry as built, write its test and change `planned` to `built` here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import pytest

__all__ = ["REQUIREMENTS", "Requirement", "requirement"]

T = TypeVar("T", bound=Callable[..., object])
LATER: Final = "later"
"""Instead of an issue's number: no issue brings it yet. `tests/test_requirements.py` names the few that may say so."""

OPEN_ISSUES: Final[Mapping[int, str]] = {
    8: "one runtime for many clients, permissions that hold, MCP, the terminal",
    9: "capabilities, the Builder, the sandbox, skills",
    10: "memory: its structure, forgetting, secrets, dates",
    11: "memory: ranking, profile, agenda, cues, comparing, distilling",
    12: "faces: HTTP, web pages, terminal screen, other agents, voice",
}
"""The issues that a planned entry may name, with what they bring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One sentence of the specification.

    Attributes:
        id: "room:subject:detail".
        source: The document and section that requires it.
        sentence: What holds once it is built, in words that a test can check.
        status: "built": a test verifies it. "planned": it is still to come. "measured": a benchmark measures it,
            because no test may depend on time or on data that is not in the repository.
        issue: The issue that builds it, one of `OPEN_ISSUES` while it is planned; or `LATER`.
        benchmark: The module in benchmarks/ that measures it.
    """

    id: str
    source: str
    sentence: str
    status: Literal["built", "planned", "measured"]
    issue: int | Literal["later"]
    benchmark: str = ""


def built(issue: int, id: str, source: str, sentence: str) -> Requirement:
    return Requirement(id=id, source=source, sentence=sentence, status="built", issue=issue)


def planned(issue: int | Literal["later"], id: str, source: str, sentence: str) -> Requirement:
    return Requirement(id=id, source=source, sentence=sentence, status="planned", issue=issue)


def measured(issue: int, id: str, source: str, sentence: str, *, benchmark: str) -> Requirement:
    return Requirement(
        id=id, source=source, sentence=sentence, status="measured", issue=issue, benchmark=benchmark
    )


def requirement(*ids: str) -> Callable[[T], T]:
    """Declare which requirements a test verifies, by their ids.

    Raises:
        KeyError: There is no such entry.
    """
    for id in ids:
        if id not in _IDS:
            raise KeyError(f"tests/requirements.py has no entry {id!r}.")

    def mark(test: T) -> T:
        for id in ids:
            test = pytest.mark.requirement(id)(test)
        return test

    return mark


# One entry per line, so that a search prints the whole entry.
# fmt: off
REQUIREMENTS: Final[tuple[Requirement, ...]] = (
    # ---- The promises (DESIGN 1)
    built(2, "promise:remembers:verbatim", "DESIGN 1.1", "Every turn is kept word for word, without being asked."),
    built(3, "promise:remembers:source", "DESIGN 1.1", "Every distilled fact leads back to the exact turn that it came from."),
    built(2, "promise:remembers:nothing-irrelevant", "DESIGN 1.1", "Recall returns nothing rather than something irrelevant."),
    built(2, "promise:durable:kill", "DESIGN 1.2", "After kill -9 at any moment what was acknowledged is there, and every session opens again."),
    built(2, "promise:durable:interrupted-tool", "DESIGN 1.2", "A session whose tool was running when it was killed says so to the model."),
    built(2, "promise:forget:row-vector-index", "DESIGN 1.3", "forget removes the row, its vector and its index entry, and returns a receipt."),
    built(3, "promise:forget:edges-and-facts", "DESIGN 1.3", "forget removes the edges and every fact that was distilled from it alone."),
    built(2, "promise:forget:session-log", "DESIGN 1.3", "forget removes the words from the session log."),
    built(2, "promise:forget:stays-forgotten", "DESIGN 1.3", "The same source can't bring back what was forgotten."),
    planned(9, "promise:sandbox:model-code", "DESIGN 1.4", "Code that the model wrote never runs outside a sandbox unless the user said so in those words."),
    planned(9, "promise:sandbox:no-silent-fallback", "DESIGN 1.4", "Without a sandbox nothing runs, and the message says how to get one."),
    planned(9, "promise:capability:tested-first", "DESIGN 1.5", "A tool that the agent made is tested before it is used."),
    built(9, "promise:capability:versions", "DESIGN 1.5", "A capability keeps all its versions and can be rolled back."),
    built(2, "promise:cache:stable-prefix", "DESIGN 1.6", "Tools and system text keep their bytes during a session; memory is appended and replayed byte for byte."),
    planned(9, "promise:cache:constant-capabilities", "DESIGN 1.6", "Context cost does not grow with the number of capabilities."),
    built(2, "promise:offline:memory-whole", "DESIGN 1.7", "Without key, network and service memory works whole, and the program says what a language model would add."),
    planned(LATER, "promise:postgres:same-code", "DESIGN 1.7", "With PostgreSQL behind it, the same code serves many processes and machines."),
    built(2, "promise:degrade:goes-on", "DESIGN 1.8", "When a part is down the conversation goes on, and the user is told what is missing."),

    # ---- The house (DESIGN 2, style)
    built(2, "house:layers", "DESIGN 2", "Rooms import downwards only; rooms on one line are blind to each other; an unlisted room is an error."),
    built(2, "house:architecture-page", "style 4", "ARCHITECTURE.md shows the layers that import-linter holds."),
    built(2, "house:module-docstrings", "style 3", "Every module says in one sentence what it is for."),
    built(2, "house:no-second-version", "style 6", "No module, class or function is a _v2 of another."),
    built(2, "house:doors", "style 3", "Environment, processes, databases and the time of day are each reached through one room."),
    built(2, "house:public-names", "style 3", "Every name in an __all__ can be imported, and __init__ files hold no code."),
    built(2, "house:no-machine-names", "brief", "No path or host of a machine stands in the tree."),
    built(2, "house:requirements-both-ways", "style 4", "Every entry that is built has a test, and no test claims what is not built."),
    built(8, "house:planned-by-an-issue", "issue 8", "Every planned entry names the issue that brings it; what has none yet is listed by name."),
    built(2, "house:lock:hashed", "issue 2", "The locks carry a hash for every package and no host."),
    built(2, "house:lock:complete", "issue 2", "Every dependency of the package is in the lock."),
    built(2, "house:ci", "issue 2", ".ci/run calls make test."),
    built(2, "house:vocabulary:json", "DESIGN 2", "Messages and events are plain frozen data that go to JSON and back unchanged."),
    built(2, "house:errors:who-acts", "DESIGN 3.3", "Every error class has an exit code: 2 misused, 3 not found, 4 refused, 1 everything else."),
    built(2, "house:bench", "issue 2", "make bench runs every benchmark that needs nothing from outside."),
    built(2, "house:import:light", "style 3", "Importing satchel loads no runtime; importing satchel.memory loads no loop, no command line and no SDK."),
    built(2, "docs:settings", "DESIGN 2", "Every setting is documented in one generated page that is up to date."),
    built(2, "docs:events", "style 4", "Every event is documented in one generated page that is up to date."),
    built(2, "docs:cli", "style 4", "Every command is documented in one generated page that is up to date."),
    built(2, "docs:readme-runs", "style 4", "The Python programs of the README run."),
    built(2, "docs:links", "style 4", "Every link between the documents leads somewhere."),

    # ---- Places and configuration (DESIGN 3.1, 3.2; seed-3)
    built(2, "config:home:default", "DESIGN 3.1", "SATCHEL_HOME is ~/.satchel where it is not set."),
    built(2, "config:home:mode", "DESIGN 3.1", "SATCHEL_HOME is made with mode 0700, and only when something is written."),
    built(2, "config:home:unusable", "issue 2", "A home that is a file or can't be made gives a clear sentence."),
    built(2, "config:project:trust", "DESIGN 3.1", "A project's settings count only once the user trusted the folder."),
    built(8, "config:project:content", "issue 8", "Trust covers what a project's settings, tools and AGENTS.md say when the user looks; a change is ignored until it is trusted."),
    built(8, "config:project:grants", "issue 8", "config trust names everything that it grants before it asks, and marks what is new."),
    built(8, "config:secrets:arguments", "issue 8", "config show hides secrets in the arguments and addresses of MCP servers."),
    built(2, "config:project:nearest", "DESIGN 3.1", "The project is the nearest folder upwards that holds files for Satchel; the home is none."),
    built(2, "config:precedence", "DESIGN 3.2", "The command line beats the environment, that beats the project, that beats the user's file, that beats the default."),
    built(2, "config:environ:every-key", "DESIGN 3.2", "Every key can be set as SATCHEL_<SECTION>_<KEY>."),
    built(2, "config:environ:unknown", "DESIGN 3.2", "A variable that looks like a setting and is none is an error that names the closest one."),
    built(2, "config:error:toml", "issue 2", "A broken file is reported with file, line and column."),
    built(2, "config:error:unknown-key", "issue 2", "An unknown key is reported with file, line, key, what is allowed, and the closest one."),
    built(2, "config:error:value", "issue 2", "A value that is not allowed is reported with file, line, key and what is allowed."),
    built(2, "config:error:exit-code", "issue 2", "A wrong configuration ends the command with exit code 2 and no traceback."),
    built(2, "config:defaults", "DESIGN 3.2", "The defaults are those of the design: 10 rounds, 30 s, 16 workers, 30,000 characters, ask, 500 tokens, 5 memories."),
    built(2, "config:providers:builtin", "DESIGN 3.2", "anthropic, openai, ollama, gguf and none exist without being written down."),
    built(2, "config:providers:own", "DESIGN 3.2", "A provider of one's own takes kind, base_url, env_api_key and tool_use."),
    built(2, "config:providers:environ", "brief", "ANTHROPIC_BASE_URL, OPENAI_BASE_URL and OLLAMA_HOST move the built-in providers."),
    built(8, "config:providers:model", "seed-3 config", "A provider's entry may name its default model; provider alone, without a model, then means that one."),
    built(2, "config:secrets:never-shown", "brief", "No key is in a repr, in an error message or in config show."),
    built(2, "config:secrets:not-inherited", "brief", "Started processes don't get the providers' keys."),
    built(2, "config:permissions:rules", "DESIGN 3.2", "[[permissions]] takes action and tool; the nearer file's rules come first."),
    built(2, "config:set:keeps-comments", "brief", "config set changes one value and keeps everything else in the file, comments included."),
    built(2, "config:set:whole-or-not", "issue 2", "A write that fails leaves the old file; two processes that write lose nothing."),
    built(2, "config:initial", "seed-3", "A missing configuration leads to interactive setup, which writes a file that loads."),
    built(2, "config:hostile", "brief", "Any bytes as a settings file give settings or a ConfigError."),

    # ---- Models (DESIGN 4, issue 2, seed-3)
    built(2, "models:choice:order", "DESIGN 3.2", "With nothing configured a key in the environment serves, then a running Ollama, else none."),
    built(2, "models:choice:says-why", "DESIGN 3.2", "The program says which model it took and how to change it."),
    built(2, "models:choice:none-reachable", "issue 2", "When no model is reachable it says which were tried, why each failed, and what to type."),
    built(2, "models:anthropic:wire", "issue 2", "anthropic:… speaks the Messages format over the official SDK, streaming."),
    built(2, "models:openai:wire", "issue 2", "openai:… speaks Chat Completions to any base URL over the official SDK, streaming."),
    built(2, "models:openai:tool-definitions", "seed-3 LLM adapter", "Tools are sent as {type: function, function: {name, description, parameters}} with tool_choice auto."),
    built(2, "models:same-blocks", "issue 2", "The same conversation over both wire formats gives identical events."),
    built(2, "models:gguf:in-process", "issue 2", "gguf:PATH runs a model in the process with constrained JSON."),
    built(2, "models:gguf:real", "issue 2", "A real local model is driven through streaming and the JSON layer, in-process and over its server."),
    built(2, "models:none:answers", "issue 2", "none captures, answers with quoted memories and their sources, and says in one line how to add a model."),
    built(2, "models:scripted", "issue 2", "A scripted model for tests ships in the package."),
    built(2, "models:lazy-import", "DESIGN 2", "A provider's SDK is imported only when it is used."),
    built(2, "models:stream:text-thinking-arguments", "DESIGN 4", "Text, thinking and tool arguments stream."),
    built(2, "models:retry:passing", "issue 2", "429, 5xx, overload and cut connections are retried with backoff, honouring retry-after."),
    built(2, "models:retry:nothing-twice", "issue 2", "What was already streamed is not repeated."),
    built(2, "models:cut-stream", "issue 2", "A stream that ends without its finish reason is a cut connection."),
    built(2, "models:error:auth-once", "issue 2", "A wrong key is said once and not retried."),
    built(2, "models:error:typed", "issue 2", "Errors are typed by who must act: key, request, window, endpoint."),
    built(2, "models:error:overflow", "issue 2", "A request longer than the window is a ContextOverflow for each provider's wording."),
    built(2, "models:usage", "DESIGN 4", "Tokens come from the provider's usage, cached ones told apart; estimates are marked."),
    built(2, "models:cost", "DESIGN 4", "Prices come from a maintained library; an unknown price stays unknown."),
    built(2, "models:cache:control", "DESIGN 4", "Prompt caching is switched on where a provider has it."),
    built(2, "models:cache:broken-prefix", "DESIGN 4", "A broken prefix is reported with its cause."),
    built(2, "models:layers:native", "seed-3 §1", "Native tool use is the first layer."),
    built(2, "models:layers:json", "seed-3 §1", "Where tools can't be sent, JSON in text is parsed: action, actions, final, with or without fences and prose."),
    built(8, "models:layers:unasked", "DESIGN 4", "Where tools were taken and the whole answer is such JSON, calls of offered tools run, a final is unwrapped, and calls are remembered."),
    built(2, "models:layers:text", "seed-3 §1", "Where neither parses, the whole text is the answer."),
    built(8, "models:layers:quoted", "issue 8", "A call in JSON that the model quotes in the middle of a sentence or after > is text."),
    built(2, "models:layers:found-once", "DESIGN 4", "tool_use auto finds out at the first refusal and remembers it per model and endpoint."),
    built(2, "models:arguments:unparsed", "DESIGN 4", "Arguments that don't parse are never replaced by {}."),
    built(2, "models:thinking:replayed", "issue 2", "Thinking blocks are replayed with their signature unchanged."),
    built(2, "models:text:hostile", "issue 2", "NUL bytes and lone surrogates in a prompt are handled."),
    built(2, "models:embedder:unit-rows", "DESIGN 2", "embed gives float32 rows of unit length, one for each text."),
    built(2, "models:embedder:default", "notes/models", "The embedded default is all-MiniLM-L6-v2, loaded lazily, in its own thread."),
    built(2, "models:embedder:weights-checked", "notes/models", "The weights are fetched once, checked by sha256, and a wrong hash is refused."),
    built(2, "models:embedder:hashing", "style 4", "A hashing embedder for tests ships in the package."),
    built(3, "models:embedder:nomic-prefixes", "seed-2 §3", "nomic-embed-text gets search_query: and search_document: prefixes."),
    built(3, "models:embedder:endpoint", "issue 3", "Any OpenAI-compatible /v1/embeddings serves as embedder."),
    built(3, "models:embedder:bad-output", "issue 3", "An embedder that returns NaN, the wrong dimension or nothing is an error, and nothing is lost."),

    # ---- The loop (DESIGN 4, seed-3, seed-0 part 1)
    built(2, "loop:rounds:max", "seed-0 §1", "A turn asks the model at most max_rounds times, 10 by default, then closes with an honest message."),
    built(2, "loop:rounds:end", "seed-3 §3", "A round without tool calls ends the turn with its text."),
    built(2, "loop:trace:accumulates", "seed-0 §1", "Results go back as tool_result blocks of a user message, and later rounds see the whole trace."),
    built(2, "loop:calls:concurrent", "seed-3 §2", "Calls of one round run at the same time and are answered in the order asked."),
    built(2, "loop:calls:isolation", "seed-3 §2", "One failing call does not affect the others."),
    built(2, "loop:calls:own-pool", "DESIGN 4", "Blocking tools run on the loop's own pool of tool_workers threads."),
    built(2, "loop:calls:colliding-effects", "DESIGN 4", "Calls whose effects collide run in the order asked; the others stay concurrent."),
    built(2, "loop:calls:eight", "issue 2", "A round with eight calls of 0.2 s ends in under twice the time of one."),
    built(2, "loop:observation:single", "seed-3 §3", "One call's observation is recorded as {observation, tool}."),
    built(2, "loop:observation:merged", "seed-3 §3", "Observations of several calls are merged as [tool1]: result1, blank line, [tool2]: result2."),
    built(2, "loop:input:validated", "DESIGN 4", "Input is validated against the tool's schema; the model is told the exact path of what is wrong."),
    built(2, "loop:input:unparsed", "DESIGN 4", "For arguments that don't parse the model gets the parse error."),
    built(2, "loop:unknown-tool", "seed-3 registry", "An unknown tool gives an error result that names it, and the turn goes on."),
    built(2, "loop:exception", "style 3", "A tool's exception is an error result for the model, with its traceback in the log."),
    built(2, "loop:timeout", "DESIGN 4", "A call that exceeds tool_timeout_s is stopped and answered with an error result."),
    built(2, "loop:result:cap", "DESIGN 4", "A result over max_result_chars is cut, and the rest is in a file that file_read can page through."),
    built(2, "loop:ask-user:ends-turn", "seed-0 §1", "ask_user ends the turn with the pending question."),
    built(2, "loop:ask-user:answer", "DESIGN 4", "The next message is delivered as the result of the open ask_user call."),
    planned(9, "loop:request-capability:build-id", "seed-0 §1", "request_capability hands its build_id to whoever started the turn."),
    built(2, "loop:budget:tokens", "DESIGN 4", "turn_tokens is a hard stop with an honest end."),
    built(8, "loop:budget:day", "issue 8", "The daily budget counts what all sessions spent today, and nothing that they spent before."),
    built(2, "loop:budget:money", "DESIGN 4", "session_usd and day_usd are hard stops."),
    built(2, "loop:cancel:valid-history", "DESIGN 4", "Cancellation at any point leaves a valid history."),
    built(2, "loop:hooks", "DESIGN 4", "on_turn_start, on_action, on_observation and on_final are called; one that throws is reported and stops nothing."),
    built(2, "loop:middlewares", "seed-3 entry API", "Middlewares may change what a tool gets, and what the model sees of its result."),
    built(2, "loop:events:tool-order", "seed-0 SSE", "Each call gives its start, its progress and its result, in this order."),
    built(2, "loop:write-ahead", "DESIGN 4", "action is on disk before the tool starts, observation after it ended."),
    built(2, "loop:prompt:stable", "DESIGN 4", "System text and tools keep their bytes during a session."),
    built(2, "loop:prompt:six-rules", "seed-3 prompt", "The system text carries the six rules: brevity, concurrency, todo, quality, file:line, concise refusal."),
    built(2, "loop:prompt:agents-md", "DESIGN 4", "AGENTS.md of a trusted project is part of the system text."),
    built(2, "loop:compaction:auto", "DESIGN 4", "The history is compacted when the window fills, also in the middle of a turn."),
    built(2, "loop:compaction:steered", "DESIGN 4", "/compact takes a focus."),
    built(2, "loop:compaction:pairs", "DESIGN 4", "Compaction never splits a call from its result."),
    built(2, "loop:tokens:calibrated", "DESIGN 4", "Estimates need no network and are calibrated by the provider's usage."),
    built(2, "loop:history:always-valid", "issue 2", "With random models, tools, failures and cancellations the history stays valid for both wire formats."),
    built(2, "loop:bounded:nonsense", "issue 2", "Endless text, a thousand calls in one answer, and the same call for ever are bounded."),
    built(2, "loop:flat-rounds", "issue 2", "The work of a round does not grow with the rounds before it beyond sending them."),
    built(8, "loop:flat-turns", "issue 8", "The work of a turn does not grow with the turns before it."),
    built(8, "loop:conversation:replay", "issue 8", "What a live session holds and what the replay of its log gives are equal."),
    built(8, "loop:question:resumes", "issue 8", "A call that goes on with the user's answer does so after the answer and its action are on disk."),
    built(8, "loop:turn:resumed", "issue 8", "A turn that the program left unfinished goes on where it stopped and runs no call twice."),
    built(8, "loop:client-side", "DESIGN 4", "A turn may end with calls that the caller runs; the next message brings their results, in any order."),
    built(8, "loop:one-way", "issue 8", "A call that the user asks for runs like a model's: schema, hooks, limits, cut and spill, events, errors."),
    built(8, "loop:data", "issue 8", "A result's data reaches the log, where it is JSON and not too large, and the record of the call."),
    built(8, "loop:hooks:context", "issue 8", "A hook may add text to the user's message; it is bounded, marked where it comes from outside, and replayed."),
    built(8, "loop:hooks:requests", "issue 8", "A hook sees each request to the model."),
    built(8, "loop:tokens:counter", "issue 8", "A caller's token counter serves until a provider counts; one that lies or raises is reported once."),
    built(2, "loop:no-disk", "DESIGN 2", "The loop imports no disk, no SQL, no HTTP and no configuration."),
    built(2, "loop:assistant-callback", "seed-3 entry API", "What the model says can be followed while it is said."),
    # What a program that embeds it may bring (seed-3 entry API, DESIGN 3.5)
    built(8, "rooms:no-circles", "issue 8", "No modules import each other in a circle, imports for types included."),

    # ---- Sessions and their clients (DESIGN 4, issue 8)
    built(8, "clients:follow", "DESIGN 4", "Any number of clients follow a session and see the same events with the same numbers."),
    built(8, "clients:replay", "DESIGN 4", "A client gets every event from a number on, live or replayed; a number that does not exist is refused."),
    built(8, "clients:slow", "issue 8", "Streamed text is coalesced for a slow client, and of a call's progress only the newest waits."),
    built(8, "clients:answer", "DESIGN 4", "Any client answers a question."),
    built(8, "clients:stop", "issue 8", "Any client stops a turn."),
    built(8, "clients:leave", "issue 8", "A client that stops listening ends nothing; the last one to leave closes the session."),
    built(8, "clients:join", "issue 8", "A client that joins an open session takes its mode, tools and system text as they are."),
    built(8, "clients:inbox", "DESIGN 4", "What is posted into a session is shown at once and delivered once with the next message."),
    built(8, "clients:inbox:secrets", "issue 8", "A post is written down without secrets and private parts."),
    built(8, "clients:inbox:bounded", "issue 8", "Posts from outside are quoted line by line, and a flood of posts is delivered in parts."),
    built(8, "clients:question:ids", "issue 8", "Two calls that ask at once get their own answers."),
    built(8, "clients:notices", "issue 8", "A notice is heard by every open session."),
    built(8, "clients:close", "issue 8", "A tool that fails at closing leaves no session locked."),
    built(8, "clients:background", "issue 8", "A background task that fails ends nothing else and is reported."),
    built(8, "clients:busy", "issue 8", "Turns and compaction exclude each other, and a turn can be interrupted while it gets ready."),
    built(8, "questions:once", "issue 8", "Of two answers to one question the first holds, and the other client is told."),
    built(8, "questions:durable", "DESIGN 4", "A permission question survives a restart; its answer is on disk before the call runs, and the turn goes on."),
    built(8, "questions:typed-ahead", "issue 8", "A key that was typed before a question was on the screen never answers it."),
    built(8, "questions:tool", "DESIGN 4", "A running tool's question is answered by any client; where nobody can answer it gets none."),
    built(8, "prompt:time", "DESIGN 4", "Every message carries day, time and zone at its tail, replayed byte for byte; the first one the surroundings."),
    built(8, "tools:bridge:always", "DESIGN 6", "A tool that appears during a session is reached through a bridge that is always in the prompt."),
    built(8, "embed:embedder", "DESIGN 3.5", "The embedder may be a name, an Embedder or a function."),

    built(8, "embed:tools", "seed-3 entry API", "A session takes the program's own tools: plain functions, Tool objects and toolsets."),
    built(8, "embed:system", "seed-3 entry API", "A session takes its own system prompt, a text or a callable that gives one."),
    built(8, "embed:token-counter", "seed-3 entry API", "A session takes its own token counter; one that fails or lies is reported and bounded."),
    built(8, "embed:sinks", "seed-3 entry API", "A session takes its own history sinks, which receive every logged event in order."),
    built(8, "embed:model", "seed-3 LLM adapter", "The model may be a name, a ChatModel or a callable; a callable may give text, blocks or a message."),
    built(8, "embed:hooks", "seed-3 entry API", "Hooks may append context to a turn and see each request that goes to the model."),
    built(8, "embed:examples", "issue 8", "Each of these is documented with an example that a test runs."),

    # ---- Sessions (seed-3 history, DESIGN 3.1, 9)
    built(2, "sessions:path", "seed-3 config", "A log lies at sessions/<sanitized-cwd>/<yyyy-mm-dd>_<HHMMss>_<id>.jsonl."),
    built(2, "sessions:events", "seed-3 history", "session_start, turn_start, assistant, action, observation, final, turn_end and session_end are logged."),
    built(2, "sessions:metadata", "seed-3 history", "Provider, model and token usage are in the log."),
    built(8, "sessions:metadata:tokenizer", "seed-3 history", "The log names the tokenizer that counted the tokens."),
    built(2, "sessions:observations:each-and-merged", "seed-3 history", "Each call's observation is logged, and the merged one."),
    built(2, "sessions:one-writer", "brief", "Only one process writes a session; a second one is told so."),
    built(2, "sessions:torn-line", "issue 2", "A torn last line is tolerated, and nothing is lost before it."),
    built(8, "sessions:damaged:calls", "issue 8", "Whatever line of a log is damaged, no call runs a second time or without permission."),
    built(2, "sessions:resume:interrupted", "DESIGN 4", "On load an action without an observation is answered with 'interrupted; outcome unknown; check before repeating'."),
    built(2, "sessions:resume:not-started", "brief", "On load a call without an action is answered as not started."),
    built(2, "sessions:resume:question", "brief", "On load an open ask_user call stays open."),
    built(2, "sessions:list", "DESIGN 3.3", "session list gives id, title, started_at, turns, cwd and model."),
    built(2, "sessions:show", "DESIGN 3.3", "session show gives the events."),
    built(2, "sessions:export", "issue 2", "A session is exported as Markdown and as JSON."),
    built(2, "sessions:search", "issue 2", "Full-text search goes over all sessions."),
    built(2, "sessions:delete", "DESIGN 3.3", "session delete removes the log and its index."),
    built(2, "sessions:redact", "DESIGN 1.3", "What was forgotten is redacted in the log, which stays readable."),
    built(2, "sessions:full-disk", "issue 2", "A full disk or a read-only home gives a clear sentence and no half-written session."),
    measured(8, "sessions:many", "issue 8", "While sixty sessions take a turn a second together and a 77 MB log is read, p95 of a turn without its model is at most three times that of one session alone.", benchmark="many_sessions"),
    built(8, "sessions:replay", "issue 8", "The records after a number are read without decoding those before it."),
    built(8, "sessions:inbox", "issue 8", "Any process may post into a session; the entry waits in the database and is delivered once, also after a kill."),
    built(8, "sessions:inbox:forgotten", "issue 8", "Deleting a session and forgetting words reach what waits in its inbox."),
    built(8, "sessions:ephemeral", "issue 8", "An ephemeral session leaves nothing on disk."),
    built(2, "sessions:recaptured", "DESIGN 9", "What the journal acknowledged and the database lacks is captured again on opening, once."),

    # ---- Tools (DESIGN 6, seed-0 part 1, seed-3 registry)
    built(2, "tools:registry:order", "seed-0 §1", "Built-in tools come first, in a fixed order."),
    built(2, "tools:registry:names", "DESIGN 6", "Names are unique and fit [a-zA-Z0-9_-]{1,64}."),
    built(2, "tools:registry:disabled", "DESIGN 3.2", "Tools named in [tools] disabled are not offered."),
    built(2, "tools:annotations", "DESIGN 6", "Tools carry read_only, destructive, idempotent and open_world."),
    built(2, "tools:context", "seed-0 ToolContext", "A tool gets what it may use from its context and is testable alone."),
    built(8, "tools:context:messages", "seed-0 ToolContext", "A tool's context holds the conversation so far."),
    built(8, "tools:context:memory", "seed-0 ToolContext", "A tool's context gives access to memory: store and search."),
    planned(9, "tools:context:catalogue", "seed-0 ToolContext", "A tool's context gives access to the catalogue of capabilities."),
    built(8, "tools:pins", "issue 8 §2", "What the user approved of external tools and of MCP servers is kept in one store of pins."),
    built(2, "tools:bash:runs", "DESIGN 6", "bash runs a command and gives stdout, stderr and the exit code."),
    built(2, "tools:bash:cwd", "issue 2", "bash keeps its working directory for the session."),
    built(2, "tools:bash:progress", "issue 2", "bash streams its output as progress."),
    built(2, "tools:bash:group", "issue 2", "bash kills the whole process group at timeout, cancel and exit."),
    built(8, "tools:bash:git", "issue 8", "In bash, git takes files of a checkout for no repository unless the command names it."),
    built(2, "tools:file-read:pages", "issue 2", "file_read pages and numbers lines."),
    built(2, "tools:file-read:binary", "issue 2", "file_read recognises binary files, images and encodings."),
    built(2, "tools:file-read:huge", "issue 2", "A 1 GB file is read in pages without loading it."),
    built(2, "tools:file-write", "DESIGN 6", "file_write writes a whole file or leaves the old one."),
    built(2, "tools:file-edit:exact", "issue 2", "file_edit replaces exactly, says how many matches there are, and shows a diff."),
    built(2, "tools:file-edit:changed", "issue 2", "file_edit refuses a file that changed since it was read."),
    built(2, "tools:glob", "issue 2", "glob respects .gitignore."),
    built(2, "tools:grep", "issue 2", "grep respects .gitignore and uses ripgrep where it is there, with the same answers."),
    built(8, "tools:search:fence", "issue 8", "grep and glob leave out what file_read does not read unasked: hidden and private files elsewhere, and what a rule protects."),
    built(2, "tools:files:symlinks", "issue 2", "Nothing follows a symlink out of where it may go."),
    built(2, "tools:files:names", "issue 2", "File names with newlines and bytes that are no text are handled."),
    built(2, "tools:think", "DESIGN 6", "think keeps a thought and changes nothing."),
    built(2, "tools:todo", "DESIGN 6", "todo keeps a list for the session and shows it."),
    built(2, "tools:ask-user", "seed-0 §1", "ask_user takes a question and suggested answers."),
    built(2, "tools:store-memory", "seed-0 creation", "store_memory takes content, tags and tier."),
    built(2, "tools:recall-memory", "seed-0 retrieval", "recall_memory finds memories by keywords and by meaning."),
    planned(10, "tools:recall-memory:floor", "seed-0 retrieval", "recall_memory gives only what clears a floor, or says that nothing fits."),
    built(2, "tools:forget-memory", "DESIGN 6", "forget_memory forgets and answers with the receipt."),
    built(3, "tools:deep-memory", "seed-0 retrieval", "deep_memory expands, searches side by side and synthesises, with progress."),
    planned(9, "tools:capability-tools", "seed-0 §1", "lookup_capability, request_capability, execute_capability and read_docs are tools."),
    built(4, "tools:many:bridge", "DESIGN 6", "Above [tools] defer_above definitions stay out of the prompt, and tool_search, tool_describe and tool_call reach them."),
    built(4, "tools:many:found", "issue 4", "Among a thousand tools the right one is found, and the prompt is no longer than with a dozen."),
    built(8, "tools:invisible-characters", "issue 8", "Invisible characters of strangers never reach the model unmarked: names with them are refused, prose shows them."),

    # ---- Permissions (DESIGN 6)
    built(2, "permissions:mode:ask", "DESIGN 6", "ask asks the user on a terminal for a round's calls in one batch."),
    built(2, "permissions:mode:ask-headless", "DESIGN 6", "Without a terminal ask means refuse, with exit code 4, and says which rule would allow it."),
    built(2, "permissions:mode:auto", "issue 2", "auto runs what only reads and asks for the rest."),
    built(2, "permissions:mode:bypass", "issue 2", "bypass runs everything."),
    built(2, "permissions:rule:pattern", "DESIGN 6", "A rule names a tool, or a tool and a pattern: bash(git *) does not allow git x; rm y."),
    built(4, "permissions:rule:programs", "issue 4", "A star in a rule that allows does not stand for words by which one program starts another."),
    built(8, "permissions:rule:understood", "issue 8", "A star covers only plain commands that were read completely, as bash runs them."),
    built(8, "permissions:always", "issue 8", "Always proposes a star only for programs that are known to be harmless with any word it stands for."),
    built(4, "permissions:rule:deny", "issue 4", "A rule that denies holds for every part of a call: commands in disguise, folders above, fields of strangers' tools."),
    built(8, "tools:schema:bounded", "issue 8", "A stranger's JSON Schema is checked, and inputs against it, in bounded time and without fetching anything."),
    built(8, "permissions:rule:url-spelling", "issue 8", "A rule about a URL holds for every spelling of its host and path, and one that allows fits nothing beside it."),
    built(4, "permissions:keys", "issue 4", "No mode reads by itself where keys and passwords are."),
    built(2, "permissions:rule:allow-option", "issue 2", "--allow RULE holds for one command."),
    built(2, "permissions:logged", "issue 4", "Every decision is in the session log."),
    built(4, "permissions:mode:plan", "DESIGN 6", "plan allows only what reads, and shows what would be done."),
    built(4, "permissions:remembered", "DESIGN 6", "A decision holds once, for the session, or is written down."),
    built(4, "permissions:strangers", "issue 4", "An annotation that a stranger's server claims never widens what it may do."),

    # ---- External tools (seed-1)
    built(4, "external:discovery:folders", "seed-1 data flow", "Executables in SATCHEL_HOME/tools, a trusted project's .satchel/tools and [tools] dirs are found."),
    built(4, "external:discovery:parallel", "seed-1 discovery", "All are asked for --schema side by side, one second each."),
    built(4, "external:discovery:failed", "seed-1 data flow", "One that fails is skipped with a reason that tool list shows."),
    built(4, "external:discovery:background", "seed-1 phase 6", "The prompt is there at once; a message waits until discovery is complete."),
    built(8, "external:discovery:waiting", "seed-1 phase 6", "While the first message waits for discovery, the user is told so."),
    built(8, "external:discovery:states", "seed-1 scan states", "A scan is not started, in progress, complete or failed; a refresh that fails says so and ends with an error."),
    built(4, "external:discovery:cached", "DESIGN 6", "An unchanged file (path, size, mtime, inode) is not asked again."),
    built(4, "external:discovery:override", "issue 4", "A user's tool overrides a shipped one of the same name, with a notice."),
    built(4, "external:schema:format", "seed-1 schema", "--schema prints name, description, parameters of {type, description, required}, and returns."),
    built(4, "external:schema:openai", "seed-1 transformation", "It becomes OpenAI's {type: function, function: …}, the required flags collected, returns left out."),
    built(4, "external:schema:anthropic", "DESIGN 6", "It becomes Anthropic's {name, description, input_schema}."),
    built(4, "external:schema:empty", "seed-1 transformation", "No parameters become an empty object without a required list."),
    built(4, "external:schema:json-schema", "issue 4", "A full JSON Schema in parameters is accepted too."),
    built(4, "external:schema:none", "seed-1 registry", "An empty registry leaves tools out of the request."),
    built(8, "external:schema:returns", "seed-1 schema", "What a tool says that it returns is shown by /tool NAME and tool show, and is not sent to the model."),
    built(4, "external:call:json", "seed-1 executor", "A call gets its arguments as JSON on stdin and prints JSON on stdout."),
    built(4, "external:call:timeout", "seed-1 executor", "A call ends after 30 s, settable, with its whole process group."),
    built(4, "external:call:background", "seed-1 threading", "A running tool does not block the screen."),
    built(4, "external:envelope:success", "seed-1 wrapper", 'A result is wrapped as {"tool_success": true, "result": …}.'),
    built(4, "external:envelope:failure", "seed-1 wrapper", "A failure is wrapped with error, error_code, exit_code, stdout and stderr."),
    built(4, "external:envelope:partial", "seed-1 result", "Partial output before a timeout is in the envelope."),
    built(4, "external:codes", "DESIGN 6", "TOOL_TIMEOUT, TOOL_CRASHED, INVALID_OUTPUT, INVALID_INPUT, NOT_FOUND and NOT_EXECUTABLE are told apart."),
    built(4, "external:credentials", "seed-1 credentials", "Satchel neither checks nor stores a tool's credentials; MISSING_CREDENTIALS is passed on."),
    built(4, "external:pinned", "DESIGN 6", "A changed executable is shown and approved again."),
    built(4, "external:progress", "issue 4", 'Lines {"progress": …} on stderr become progress.'),
    built(4, "external:ownership", "issue 4", "Folders and files that others can write to are refused with the reason."),
    built(4, "external:shipped", "seed-1 phases 1-2", "bash, file_read, file_write, file_edit, glob and grep ship as stand-alone executables under the contract."),
    built(4, "external:command:tool", "seed-1 commands", "/tool lists names and descriptions; /tool NAME shows the schema; an unknown name gets a hint."),
    built(4, "external:command:refresh", "seed-1 commands", "/refresh scans again and says 'Tools refreshed. N tools available.'"),
    built(8, "external:command:logged", "seed-1 commands", "/tool and /refresh are in the session log."),
    built(8, "external:command:empty", "seed-1 commands", "/tool says 'No tools available.' where there are none."),
    built(4, "external:new", "issue 4", "satchel tool new writes a working tool with a test, in Python, bash or Node."),
    built(4, "external:hostile", "issue 4", "A tool that hangs, floods, forks, dies or lies costs a reason or an error result, and no process is left."),

    # ---- MCP client (seed-3, DESIGN 6)
    built(4, "mcp:stdio", "DESIGN 6", "A stdio server is started lazily, one process a server, and its tools are offered as mcp__server__tool."),
    built(4, "mcp:http", "DESIGN 6", "A streamable HTTP server is reached; SSE is the last resort."),
    built(4, "mcp:protocol", "DESIGN 6", "The newest protocol is tried first, with fallback."),
    built(4, "mcp:elicitation", "DESIGN 6", "Elicitation becomes ask_user."),
    built(4, "mcp:progress", "DESIGN 6", "Progress becomes tool_progress."),
    built(4, "mcp:down", "DESIGN 6", "A server that is down takes its tools away with a notice and comes back with backoff."),
    built(4, "mcp:pinned", "DESIGN 6", "Definitions are pinned."),
    built(4, "mcp:list-changed", "issue 4", "tools/list_changed is followed."),
    built(4, "mcp:environment", "issue 4", "A server gets only the environment that its entry names."),
    built(4, "mcp:import", "issue 4", "A .mcp.json or Claude Desktop file is imported."),
    built(8, "mcp:oauth", "issue 8 §3", "A remote server is logged in to with OAuth; tokens are renewed, kept from everyone else, and revoked."),
    built(8, "mcp:oauth:hostile", "issue 8 bad input", "An OAuth server that loops, gives no token or asks for a private address costs a clear error."),
    built(8, "mcp:commands", "DESIGN 3.3", "satchel mcp-server adds, lists, tries and removes servers."),
    built(4, "mcp:real-servers", "issue 4", "Servers that no one here wrote are listed, called, elicited, killed and back."),
    built(8, "mcp:where-servers-start", "DESIGN 6", "Servers start in the home unless the folder is trusted."),
    built(8, "mcp:tasks", "issue 8", "A call that a server runs as a task is followed to its result, and cancelled with the call; a tool that needs tasks where there are none is not offered."),
    built(8, "mcp:resources", "DESIGN 6", "Resources are listed and read: by the model, and by a mention in a message; bounded, and marked as from outside."),
    built(8, "mcp:prompts", "DESIGN 6", "A server's prompts are commands with arguments."),
    built(8, "mcp:roots", "DESIGN 6", "A server is told of the workspace where it is trusted, else of nothing."),
    built(8, "mcp:instructions", "DESIGN 6", "A server's instructions are quoted, marked as from outside, bounded and pinned."),
    built(8, "mcp:sampling", "issue 8", "A server has the model answer something only where the user allows it, with bounds on tokens and count."),

    # ---- The web (DESIGN 6, seed-0)
    built(4, "web:search", "DESIGN 6", "web_search has SearXNG, Brave, Tavily and DuckDuckGo behind one port."),
    built(8, "web:progress", "seed-0 SSE", "web_search, web_fetch and browser report their progress; web_search tells how many results it found."),
    built(4, "web:fetch", "issue 4", "web_fetch gives readable text within limits, also of PDF."),
    built(4, "web:fetch:private", "issue 4", "web_fetch refuses private addresses, redirects to them and names that resolve to them."),
    built(4, "web:browser", "DESIGN 6", "browser opens, reads, clicks, types and takes screenshots."),
    built(8, "sessions:redacted:every-field", "issue 8", "Secrets and private words reach the log by no field of any event, nor the settings by a rule."),
    built(4, "web:untrusted", "issue 4", "What comes from the web is marked untrusted, and so is what is derived from it."),
    built(8, "web:untrusted:local", "issue 8", "What commands print and what files outside of the session's folder hold is marked untrusted."),
    built(8, "web:untrusted:asked", "issue 8", "Once the model has read something untrusted, a URL of its choice is asked for in auto and plan, unless a rule allows it."),

    # ---- Memory: the store (seed-2 §4.1, seed-0 part 3, DESIGN 5)
    built(2, "memory:alone", "DESIGN 2", "Memory is usable alone, with no loop and no server."),
    built(2, "memory:add", "DESIGN 3.5", "add keeps a text with tags and tier, and gives its id."),
    built(2, "memory:get", "seed-2 §4.1", "get gives a memory by id."),
    built(2, "memory:list", "DESIGN 3.3", "list gives memories, newest first."),
    built(2, "memory:stats", "DESIGN 3.3", "stats counts memories by kind and tells the size of the store."),
    built(2, "memory:episodes:verbatim", "DESIGN 5", "Episodes are turns, word for word, with speaker, session, turn and time."),
    built(2, "memory:episodes:idempotent", "brief", "The same episode added again changes nothing."),
    built(2, "memory:episodes:same-transaction", "DESIGN 5", "Episodes are written before the turn is acknowledged."),
    built(2, "memory:writes:no-embedder", "brief", "Writes never wait for the embedder; vectors are filled in from what is missing."),
    built(3, "memory:fields", "DESIGN 5", "Memories carry kind, tier, memory_type, importance 1-5, priority 0-1, decay_rate, tags, validity, source, trust, scope and user."),
    built(3, "memory:types", "seed-2 §4.1", "memory_type is decision, insight, fact, preference, project, conversation or general."),
    built(3, "memory:edges", "seed-2 §4.1", "Edges related, supersedes, contradicts, elaborates, restates, derived_from, or any word, with a weight."),
    built(3, "memory:access", "seed-2 §4.1", "Use updates last_accessed and access_count."),
    planned(10, "memory:access:recency", "seed-0 scoring", "The recency that moves a score counts from the last use, as in seed-0, or a decision says why not."),
    built(3, "memory:tiers:defaults", "seed-0 tiers", "short_term decays by 0.02 a cycle, long_term by 0.005; their priorities begin at 0.5-0.6 and 0.8-0.9."),
    built(3, "memory:decay:when-read", "DESIGN 5", "Decay is computed when read; no request updates every row."),
    built(3, "memory:decay:floor", "seed-0 tiers", "Below priority 0.05 a memory stops surfacing, and search still finds it."),
    built(3, "memory:decay:cycle", "DESIGN 5", "A cycle is a day, or a chat request with decay_cycle = request."),
    built(3, "memory:decay:reinforced", "DESIGN 5", "Use reinforces a memory."),
    planned(11, "memory:decay:archive", "seed-2 §9.3", "Old memories that nobody uses are archived, can be listed, and come back when they are used."),
    built(3, "memory:scopes", "issue 3", "Scopes user, project and session are enforced on every call."),
    built(2, "memory:users", "brief", "One user's memories are never another's."),

    # ---- Memory: search (seed-2 §4.1, §4.3; seed-0; DESIGN 5; notes/retrieval)
    built(2, "memory:search:hybrid", "DESIGN 5", "search unites a lexical and a dense arm and adds their normalised scores."),
    built(2, "memory:search:explains", "DESIGN 5", "Every hit explains itself in signals."),
    built(2, "memory:search:by-meaning", "seed-2 §2", "'WiFi problem' finds 'network configuration'."),
    built(2, "memory:search:lexical-alone", "DESIGN 5", "The lexical arm alone serves when no embedder can, and the user is told."),
    built(2, "memory:search:hostile-query", "issue 2", "Any text is a query: empty, operators of the index, NUL bytes, megabytes."),
    measured(2, "memory:search:quality", "issue 2", "On locomo-dev with the default embedder r@20 is at least 0.84, hit@20 0.88, MRR 0.50.", benchmark="retrieval"),
    built(3, "memory:search:conversation", "notes/retrieval", "Turns are found by what stands around them, stored as episodes or one by one, with speakers or as a transcript's lines."),
    built(3, "memory:search:tokens", "notes/retrieval", "Question and memories are compared token by token, each with the turn before it."),
    built(3, "memory:search:weights-data", "issue 3", "The weights are data: learned, none negative, each explained."),
    built(3, "memory:search:complete", "issue 3", "A search embeds what is missing first, up to 10,000 memories, and says how far it is."),
    measured(3, "memory:search:quality-full", "issue 3", "On locomo-dev r@10 is at least 0.84, r@20 0.90, hit@20 0.94, MRR 0.64.", benchmark="retrieval"),
    built(3, "memory:search:semantic-mode", "seed-2 §4.3", "mode semantic scores similarity x importance/3 x recency, 1.0 under 7 days, 0.5 over 90."),
    built(3, "memory:search:semantic-threshold", "seed-2 §4.3", "mode semantic gives only what scores above 0.45."),
    planned(10, "memory:search:threshold-option", "seed-2 §4.1", "search takes seed-2's threshold and limit as options."),
    built(3, "memory:search:keyword-mode", "seed-0 retrieval", "mode keyword scores priority + 0.3 a tag + 0.2 a content match + up to 0.2 recency over 24 h."),
    built(3, "memory:search:weights-bounded", "DESIGN 5", "Importance, recency and priority move a score by at most 10 % each."),
    built(3, "memory:search:as-of", "DESIGN 5", "as_of answers what was believed then."),
    measured(2, "memory:search:fast-1000", "seed-2 phase 1", "A thousand memories are searched in under 100 ms.", benchmark="memory_search"),
    built(3, "memory:deep:expand", "seed-0 retrieval", "Deep memory expands the question into 3-5 angles, by a small model or by feedback."),
    built(3, "memory:deep:fuse", "seed-0 retrieval", "Its searches run side by side; results are fused, deduplicated and capped at 10."),
    built(3, "memory:deep:synthesise", "seed-0 retrieval", "It answers with citations."),
    built(3, "memory:deep:progress", "seed-0 retrieval", "It reports expanding, searching and found."),
    built(3, "memory:graph:depth", "seed-0 graph", "Related memories are found breadth-first to depth N; cycles are harmless."),

    # ---- Memory: surfacing (seed-2 §4.3, §4.5; DESIGN 5)
    built(2, "memory:surface:last-messages", "seed-2 §4.3", "The last three messages are what is searched for."),
    built(2, "memory:surface:threshold", "seed-2 §4.3", "Only what clears the embedder's threshold is shown."),
    built(2, "memory:surface:budget", "seed-2 §2", "At most budget_tokens, 500 by default, and at most limit memories are shown."),
    built(2, "memory:surface:once", "seed-2 §4.3", "What was shown in this session is not shown again."),
    built(2, "memory:surface:nothing", "DESIGN 5", "Nothing relevant: nothing injected."),
    built(2, "memory:surface:marked", "DESIGN 4", "What is shown rides in the newest user message as a marked block that says what it is."),
    built(2, "memory:surface:recorded", "issue 2", "The JSON of ask names what was shown with session, turn and score."),
    built(2, "memory:surface:instructions", "issue 3", "Instructions in stored text never reach the prompt as instructions, and can't end the block."),
    built(3, "memory:surface:restatements", "DESIGN 5", "Restatements are collapsed."),
    built(3, "memory:surface:measured", "issue 3", "Precision and recall of surfacing are measured on answerable and unanswerable questions."),

    # ---- Memory: capture and distilling (seed-2 §4.2, DESIGN 5)
    built(2, "memory:capture:every-exchange", "DESIGN 5", "Every exchange is captured, what the user said and what was answered."),
    built(2, "memory:capture:echo", "DESIGN 5", "What Satchel injected is never captured."),
    built(2, "memory:capture:off", "DESIGN 5", "Capture can be switched off globally, per project and per session."),
    built(2, "memory:capture:private", "DESIGN 5", "A private session is not captured."),
    built(3, "memory:capture:redacted", "DESIGN 5", "Secrets are redacted before anything is written."),
    built(3, "memory:capture:private-turn", "DESIGN 5", "A <private> turn is not captured."),
    built(3, "memory:distill:gate", "seed-2 §4.2", "A small model says whether a window holds anything worth keeping."),
    built(3, "memory:distill:extract", "seed-2 §4.2", "A larger one extracts content, importance, memory_type and tags."),
    planned(11, "memory:distill:extractor", "seed-2 §4.2", "The extractor's model has a setting of its own; its default is the provider's middle model, never its largest."),
    planned(11, "memory:distill:gate-figures", "seed-2 phase 2", "The gate's accuracy, the facts found, missed and invented, and the cost are published, measured on withheld data."),
    built(3, "memory:distill:windows", "seed-2 §4.2", "Windows have about 500 tokens with about 100 overlap; tool output and system text are left out."),
    built(3, "memory:distill:trigger", "seed-2 §4.2", "It runs every N messages or M seconds, in the background."),
    built(3, "memory:distill:quotes", "DESIGN 5", "A fact whose quote is not in the source is dropped."),
    built(3, "memory:distill:dates", "DESIGN 5", "Relative dates are resolved against the turn's date."),
    built(3, "memory:distill:crash", "DESIGN 5", "A crash loses nothing and a repeat changes nothing."),
    built(3, "memory:distill:existing", "seed-2 §4.2", "The extractor sees the memories that exist."),
    built(3, "memory:dedup:threshold", "seed-2 §4.2", "Similarity above a threshold (0.45; seed-2 has 0.85) makes a pair a candidate, and comparing decides."),
    built(3, "memory:dedup:grouped", "DESIGN 5", "Near-duplicates are grouped and never merged away; everything is reversible."),
    planned(10, "memory:dedup:importance", "seed-2 §4.2", "A fact's importance rises when it is restated, or a decision says why not."),
    built(3, "memory:supersede", "DESIGN 5", "A correction gives the old memory a valid_to."),
    built(3, "memory:compare", "issue 3", "compare answers restates, corrects, elaborates, related or unrelated, with a confidence."),

    # ---- Memory: care (DESIGN 5, issue 3)
    built(2, "memory:forget:ids", "DESIGN 3.3", "memory forget ID… gives a receipt, and exit code 3 when there was nothing."),
    built(3, "memory:forget:query", "issue 3", "forget takes a query, a session, a date or a scope, with a preview."),
    built(2, "memory:forget:tombstone", "issue 3", "A tombstone keeps the same source from coming back; the receipt holds hashes only."),
    built(10, "memory:forget:quote", "issue 10", "A fact that rests on something else as well does not quote what was forgotten."),
    built(10, "memory:forget:reopens", "issue 10", "What a forgotten memory had superseded holds again."),
    built(10, "memory:forget:same-words", "issue 10", "Forgetting words said in one turn keeps no later turn with the same words away."),
    built(10, "memory:forget:echoes", "issue 10", "Forgotten words leave the answers and facts that repeat them, and the receipt names these."),
    built(10, "memory:forget:unguessable", "issue 10", "No guess can be tested against what is kept of forgotten words."),
    built(3, "memory:history", "issue 3", "Every change is kept with before, after, who and why, and can be undone."),
    built(3, "memory:export:round-trip", "DESIGN 5", "The export is imported again without a difference."),
    built(3, "memory:import:mcp", "seed-2 §9.4", "The JSONL of the MCP reference memory server is imported."),
    built(3, "memory:import:transcripts", "DESIGN 5", "Claude Code and Codex transcripts and ChatGPT exports are imported, idempotently, dates kept."),
    built(3, "memory:embedder:migration", "DESIGN 5", "A new embedder is back-filled beside the old one and switched over in one transaction."),
    built(3, "memory:embedder:calibrated", "issue 3", "The program calibrates an embedder: at its first use in a store, and on demand."),
    built(2, "memory:embedder:never-mixed", "DESIGN 5", "A store that was opened with another embedder never mixes vectors."),
    built(3, "memory:doctor", "issue 3", "memory doctor prints rates and health, and repairs with --fix."),
    built(2, "memory:resilient", "seed-2 §2.8", "If memory is down, sessions work and say so."),
    built(2, "memory:two-processes", "issue 3", "Two processes write to one store at once and lose nothing."),

    # ---- Storage (DESIGN 9)
    built(2, "storage:sqlite:wal", "seed-2 §7", "SQLite runs in WAL mode with busy_timeout and foreign keys on."),
    built(2, "storage:sqlite:immediate", "DESIGN 9", "Whatever may write begins IMMEDIATE, on one writer's thread."),
    built(2, "storage:migrations:backup", "DESIGN 9", "A migration makes a backup first and compares row counts."),
    built(2, "storage:migrations:newer", "DESIGN 9", "A database newer than the program is refused and not touched."),
    built(2, "storage:migrations:oldest", "style 5", "The oldest database migrates to the newest schema."),
    built(2, "storage:errors:locked", "issue 2", "A locked database gives a clear sentence."),
    built(8, "storage:home-removed", "issue 8", "A home that disappears while it is open gives an error that names the path; nothing hangs, and closing goes well."),
    built(2, "storage:errors:corrupt", "issue 2", "A corrupt database gives a clear sentence and is not touched."),
    built(2, "storage:errors:full", "issue 2", "A full disk or a read-only place gives a clear sentence and loses nothing."),
    built(2, "storage:index:derived", "DESIGN 9", "The text index is derived, rebuildable, and never fails a write."),
    planned(LATER, "storage:postgres", "DESIGN 9", "PostgreSQL serves the same metadata, with pgvector where it is installed."),
    built(3, "storage:backup", "DESIGN 3.3", "backup and restore move everything in one file."),

    # ---- Processes and sandbox (DESIGN 8)
    built(2, "sandbox:process:group", "issue 2", "A process runs in its own group; the whole group ends at timeout, cancel and exit."),
    built(4, "sandbox:process:killed", "issue 4", "What tools left running is ended when Satchel itself was killed with -9."),
    built(2, "sandbox:process:output", "brief", "Its output streams and is capped."),
    planned(9, "sandbox:backends", "DESIGN 8", "bubblewrap with seccomp, then Landlock with seccomp, then refuse; probed by doing."),
    planned(9, "sandbox:network", "DESIGN 8", "Own network namespace always; hosts only through a proxy that refuses private addresses."),
    planned(9, "sandbox:clean", "DESIGN 8", "No home, no environment, read-only system, private /tmp, limits, and never uid 0 inside."),
    planned(9, "sandbox:tree-dies", "DESIGN 8", "The whole tree dies at the end."),

    # ---- The command line (DESIGN 3.3, issue 2)
    built(2, "cli:streams", "DESIGN 3.3", "Data goes to stdout, everything else to stderr."),
    built(2, "cli:exit-codes", "DESIGN 3.3", "Exit codes are 0 done, 1 failed, 2 misused, 3 not found, 4 refused, 130 interrupted."),
    built(2, "cli:no-traceback", "DESIGN 3.3", "A user's mistake gives no traceback."),
    built(2, "cli:version", "issue 2", "satchel --version imports neither models nor storage."),
    built(2, "cli:search:light", "issue 2", "satchel memory search loads neither a loop nor what only imports, distilling or dates need."),
    built(2, "cli:bare:stdin", "DESIGN 3.3", "satchel without a terminal reads the prompt from stdin, answers and leaves."),
    built(2, "cli:ask:json", "DESIGN 3.3", "ask --json gives session_id, turn, status, text, pending_question, build_id, usage, steps and memory."),
    built(2, "cli:ask:stream-json", "DESIGN 3.3", "ask --stream-json gives one event a line."),
    built(2, "cli:ask:stdin", "DESIGN 3.3", "ask - reads the prompt from stdin."),
    built(2, "cli:ask:session", "DESIGN 3.3", "ask --session ID and --last go on with a session."),
    built(2, "cli:ask:no-memory", "DESIGN 3.3", "ask --no-memory neither shows nor keeps memories."),
    built(2, "cli:ask:remembers", "issue 2", "A new process recalls what an earlier one was told, with its source."),
    built(2, "cli:ask:question", "issue 2", "ask ends with the open question; the next ask --session ID answers it."),
    built(2, "cli:ask:broken-pipe", "issue 2", "A reader that goes away ends the program quietly."),
    built(2, "cli:chat:plain", "issue 2", "chat --plain has a line editor with history, completion, multi-line input and streamed Markdown."),
    built(2, "cli:chat:interrupt", "issue 2", "Ctrl-C interrupts the turn and not the program."),
    built(2, "cli:chat:slash", "DESIGN 6", "/ commands run locally, without the model."),
    built(8, "cli:results:calls", "issue 8.4", "A tool's call is shown as one line that says what it does, in every face by the same table."),
    built(8, "cli:results:readable", "issue 8.4", "A tool's result is shown as a summary and a few lines: the ends of an output, a short difference, a checklist; never as raw JSON."),
    built(8, "cli:question:once", "issue 8.4", "A question of the model is printed once, its options are numbered, and a number chooses one."),
    built(8, "cli:resume:recap", "issue 8.4", "A conversation that goes on shows its last exchanges and when they were."),
    built(8, "cli:markdown:lists", "issue 8.4", "Ordered lists keep their numbers, task lists their marks, code its lines, and tables stay readable."),
    built(8, "cli:slash:shared", "issue 8.1", "The / commands are one table for every face, and return what they found instead of printing it."),
    built(2, "cli:wizard", "issue 2", "The first run on a terminal asks two questions that can be skipped; never without a terminal."),
    built(8, "cli:wizard:checks", "issue 8.4", "The wizard asks again after a typo, checks an address and its key, lists its models, and writes nothing that does not work unless the user says so."),
    built(8, "cli:doctor:404", "issue 8.4", "doctor sends a model that its endpoint does not list a short message, and names the address where that fails."),
    built(8, "config:set:provider", "issue 8.4", "A model of an unknown provider is refused when it is set, with the known providers and how to add one."),
    built(2, "cli:memory", "issue 2", "memory add, search, list, show, forget and stats, with --json."),
    built(2, "cli:memory:search-json", "DESIGN 3.3", "memory search --json gives [{memory, score, signals}]."),
    built(2, "cli:session", "DESIGN 3.3", "session list, show, search, export and delete, with --json."),
    built(2, "cli:model", "DESIGN 3.3", "model list and model test."),
    built(2, "cli:config", "DESIGN 3.3", "config show, path, set and init."),
    built(2, "cli:usage", "DESIGN 3.3", "usage sums tokens and money by day and model."),
    built(2, "cli:doctor", "DESIGN 3.3", "doctor says of each part whether it serves, and what to do."),
    built(2, "cli:demo", "DESIGN 3.3", "demo shows remember, recall, act and forget with the real program, and needs no key."),
    built(4, "cli:tool", "DESIGN 3.3", "tool list, show, run and refresh."),
    built(3, "cli:memory:all-verbs", "DESIGN 3.3", "memory recall, edit, link, related, history, export, import, reindex, distill and doctor."),
    planned(9, "cli:capability", "DESIGN 3.3", "capability list, show, build, run, test, versions, activate, rollback, disable, enable, export, import, remove."),
    planned(12, "cli:serve", "DESIGN 3.3", "serve starts HTTP API, SSE, web pages and MCP."),
    planned(12, "cli:connect", "DESIGN 3.3", "connect sets up hooks, MCP entry or proxy in another agent after showing the change."),
    planned(12, "cli:service", "seed-2 phase 5", "service install, status and remove run the server as a systemd user unit."),
    planned(12, "cli:install", "seed-2 phase 3", "Installing the wheel with uv or pipx puts satchel on the PATH, with completion for bash, zsh and fish."),
    planned(12, "cli:hook", "DESIGN 3.3", "hook takes one hook event of another agent."),
    built(3, "cli:backup", "DESIGN 3.3", "backup and restore."),

    # ---- Python (DESIGN 3.5)
    built(2, "python:memory", "DESIGN 3.5", "Memory.open, add, add_episodes, search and surface work as the design writes them."),
    built(2, "python:satchel", "DESIGN 3.5", "Satchel.open, session, run_turn and stream work as the design writes them."),
    built(2, "python:turn", "DESIGN 3.5", "A turn has text, status, steps and usage."),

    # ---- HTTP and other faces (DESIGN 3.4, 10; seed-0; seed-2)
    planned(12, "http:chat:sse", "seed-0 SSE", "POST /api/chat streams tool_start, tool_progress, tool_result, text_delta, memory and response."),
    planned(12, "http:chat:resume", "DESIGN 3.4", "A client resumes with Last-Event-ID."),
    planned(12, "http:builder:status", "seed-0 queue", "GET /api/builder/status streams a build's messages; answers come by POST."),
    planned(12, "http:observe", "DESIGN 3.4", "POST /api/observe captures a conversation that is held elsewhere."),
    planned(12, "http:context", "DESIGN 3.4", "POST /api/context gives at most budget_tokens of relevant memory, or nothing, in under 500 ms."),
    planned(12, "http:search-time", "seed-2 phase 3", "Search over HTTP answers in under 500 ms."),
    planned(12, "http:memories", "DESIGN 3.4", "Memories are listed, searched, changed and deleted over HTTP."),
    planned(12, "http:openai", "DESIGN 3.4", "POST /v1/chat/completions serves the agent as a model."),
    planned(12, "http:anthropic-proxy", "DESIGN 3.4", "POST /v1/messages forwards, adds memory at the tail, and captures."),
    planned(12, "http:mcp", "DESIGN 3.4", "POST /mcp serves MCP over streamable HTTP."),
    planned(12, "http:token", "DESIGN 3.4", "Bearer token, loopback by default, Host checked."),
    planned(12, "web-pages:memories", "seed-2 phase 5", "Memories are browsed, searched, edited, deleted and counted in the browser."),
    planned(12, "web-pages:chat", "DESIGN 10", "Chat with voice, tool cards, builder cards and approvals in the browser."),
    planned(12, "tui:screen", "DESIGN 10", "The full-screen terminal shows conversation, tools, memory, approvals and cost."),
    planned(12, "mcp-server:memory", "seed-2 §4.5", "satchel mcp offers memory and the active capabilities to other agents."),
    planned(12, "acp:agent", "DESIGN 3.3", "satchel acp is an Agent Client Protocol agent on stdio."),

    # ---- Capabilities and the Builder (seed-0 part 2, DESIGN 7)
    planned(9, "capabilities:prefix", "seed-0 §1", "Active capabilities are offered as cap_<name>, after the built-in tools."),
    planned(9, "capabilities:dispatch", "seed-0 §1", "A call to cap_<name> runs the capability of that name."),
    planned(9, "capabilities:description", "seed-0 registration", "The description that a model sees begins with '[Capability] '."),
    built(9, "capabilities:fields", "seed-0 catalog", "The catalogue holds id, name, description, version, status, input and output schema, tags, path and both timestamps."),
    planned(9, "capabilities:run:active-only", "seed-0 phase 4", "Only an active capability runs."),
    planned(9, "capabilities:lookup:unknown", "seed-0 part 4", "lookup_capability answers {found: false} for an unknown name, and id, name, description, status and input_schema for a known one."),
    planned(9, "capabilities:announced", "seed-0 part 4", "A finished build is announced in the conversation and usable in the next turn."),
    built(9, "capabilities:folder", "seed-0 phase 3", "main.py, requirements.txt, manifest.json, SKILL.md with RUN.md as a link, and tests/cases.jsonl."),
    built(9, "capabilities:status", "seed-0 catalog", "building, active, failed, disabled and proposed."),
    planned(9, "capabilities:request:dedup", "seed-0 phase 1", "A request is deduplicated by name and by meaning."),
    built(9, "capabilities:request:background", "seed-0 phase 1", "A request writes the catalogue row and an event; the conversation goes on."),
    planned(9, "capabilities:request:answer", "seed-0 phase 1", "request_capability answers {status: building, capability_id}; a second request for the same one starts no second build."),
    planned(9, "capabilities:search", "seed-0 catalog", "Active capabilities are found by name and description."),
    planned(9, "capabilities:docs-on-demand", "seed-0 RUN.md", "One line in the prompt; the schema by lookup_capability, the document by read_docs."),
    planned(9, "capabilities:run:fresh", "seed-0 phase 4", "Every call gets a fresh sandbox, three minutes at most."),
    planned(9, "capabilities:run:channels", "DESIGN 7", "Arguments and result travel on their own descriptors, never through stdout."),
    planned(9, "capabilities:run:requirements", "DESIGN 7", "Requirements are a content-addressed layer that is installed once."),
    built(9, "capabilities:users-edits", "DESIGN 7", "What the user edited is never overwritten."),
    built(9, "capabilities:reliability", "DESIGN 7", "A run's outcome and duration are recorded and shown."),
    planned(9, "builder:tools", "seed-0 phase 2", "write_file, run_code, run_command, ask_user, report_progress and register_capability."),
    planned(9, "builder:limits", "seed-0 phase 2", "At most 25 iterations and 10 minutes."),
    planned(9, "builder:answer-tokens", "seed-0 phase 2", "An answer of the Builder's model has at most 4,096 tokens."),
    planned(9, "builder:packages", "seed-0 phase 2", "The Builder may install packages, and is asked to keep them few and free of charge."),
    planned(9, "builder:cases", "DESIGN 7", "Registration runs the capability's own cases in a fresh sandbox and refuses what fails."),
    planned(9, "builder:question", "seed-0 queue", "A question to the user waits 60 s."),
    planned(9, "builder:messages", "seed-0 queue", "question, answer, progress, complete and error are stored and ordered; a late subscriber sees all."),
    planned(9, "builder:messages:fields", "seed-0 queue", "A build's message has a direction (to_user, to_builder), a type, a payload and whether it was read."),
    planned(9, "builder:durable", "DESIGN 7", "A build survives kill -9 and goes on where it stopped."),
    planned(9, "builder:repair", "DESIGN 7", "A capability that begins to fail is marked and can be repaired with the failing input."),
)
# fmt: on

_IDS: Final = frozenset(entry.id for entry in REQUIREMENTS)
