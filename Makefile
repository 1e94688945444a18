# `make run` starts Satchel, `make test` shows that it works. Both set up everything that they need in .venv; a second
# call sets up nothing. They need Python 3.11 or newer, and a package index for the first time.

.DEFAULT_GOAL := help
.PHONY: help run test fuzz doors kills fleet conformance check format lock docs screenshots bench table clean

BIN := .venv/bin
SETUP := pyproject.toml src/satchel/version.py scripts/setup.sh

help: ## say what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null || grep '## ' Makefile

run: .venv/run.stamp ## start Satchel; ARGS="ask 'Hello'" gives it arguments
	@$(BIN)/satchel $(ARGS)

test: check ## everything: the checks, then all tests; ARGS="tests/memory -x" chooses
	$(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal $(ARGS)

fuzz: .venv/dev.stamp ## look for what the property tests have not met yet; what they find becomes an @example
	$(BIN)/python -m pytest -q -m hypothesis --hypothesis-profile=fuzz $(ARGS)

SEEDS := 0:20000
BACKEND := bubblewrap

doors: .venv/dev.stamp ## look for doors out of the workspace box; SEEDS=0:20000 and BACKEND=landlock choose
	@$(BIN)/python -m tests.sandbox.doors $(SEEDS) $(BACKEND)

KILLS := 30

kills: .venv/dev.stamp ## end worker, server and whoever asked with kill -9 while builds go on; KILLS=30 chooses
	@$(BIN)/python -m tests.cli.kills $(KILLS)

fleet: .venv/dev.stamp ## fifty people at two doors on one PostgreSQL, a process killed every 5 s, as root; ARGS="--people 20" chooses
	@$(BIN)/python -m tests.server.fleet $(ARGS)

conformance: .venv/dev.stamp ## run the public conformance suite of MCP against the server (needs npm)
	@$(BIN)/python -m tests.server.conformance

check: .venv/dev.stamp ## the fast part: style, types, layers, dependencies
	$(BIN)/ruff check --quiet --output-format concise .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry src

format: .venv/dev.stamp ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/dev.stamp ## write docs/reference anew
	$(BIN)/python docs/generate.py

screenshots: .venv/dev.stamp ## take the pictures in docs/images (needs Chromium); ARGS="chat sessions" chooses
	@$(BIN)/python docs/screenshots.py $(ARGS)

lock: ## resolve the dependencies anew (needs uv); UPGRADE=--upgrade takes newer versions
	uv pip compile pyproject.toml --group build $(LOCK) $(UPGRADE) -o requirements.lock
	uv pip compile pyproject.toml --group build --group dev --extra browser --extra documents --extra e2b --extra keyring \
	    --extra local --extra ocr --extra packages --extra passkeys --extra telemetry --extra web $(LOCK) $(UPGRADE) -c requirements.lock -o requirements-dev.lock

LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header

BENCHMARKS := start hook turn_cpu parallel_tools chain long_session remembered_turn many_sessions server sandbox discovery capabilities embedding memory_search growth retrieval surfacing ten_thousand lived background wishes

bench: .venv/dev.stamp ## measure beside baselines of the same run, ten minutes; BENCHMARKS="start chain" chooses, SET and TOOLS add
	@for name in $(BENCHMARKS); do \
	    echo "== $$name"; $(BIN)/python "benchmarks/$$name.py" || exit 1; done
	@test -z "$(SET)" || $(BIN)/python benchmarks/retrieval.py "$(SET)"
	@test -z "$(TOOLS)" || $(BIN)/python benchmarks/tool_search.py "$(TOOLS)"

table: .venv/dev.stamp ## measure search, lives and pairs on the sets in DATA, and write docs/concepts/figures.md
	@test -n "$(DATA)" || { echo "make table: name the folder with the sets: make table DATA=FOLDER"; exit 2; }
	@$(BIN)/python benchmarks/table.py "$(DATA)" --page docs/concepts/figures.md $(ARGS)

clean: ## remove the environment and all caches
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

.venv/run.stamp: requirements.lock $(SETUP)
	@scripts/setup.sh run
	@touch $@

.venv/dev.stamp: requirements-dev.lock $(SETUP)
	@scripts/setup.sh dev
	@touch $@ .venv/run.stamp
