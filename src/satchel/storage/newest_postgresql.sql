CREATE TABLE embedding_models (
	id BIGSERIAL NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	dimension INTEGER NOT NULL,
	state TEXT COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	examples_hash TEXT COLLATE "C",
	examples_vectors BYTEA,
	retired_at BIGINT,
	PRIMARY KEY (id),
	CONSTRAINT uq_embedding_models_name UNIQUE (name),
	CONSTRAINT ck_embedding_models_dimension CHECK (dimension > 0),
	CONSTRAINT ck_embedding_models_state CHECK (state IN ('building', 'active', 'retired'))
);

CREATE UNIQUE INDEX uq_embedding_models_active ON embedding_models (state) WHERE state = 'active';

ALTER TABLE embedding_models ALTER COLUMN "name" SET STATISTICS 0, ALTER COLUMN "state" SET STATISTICS 0, ALTER COLUMN "examples_hash" SET STATISTICS 0, ALTER COLUMN "examples_vectors" SET STATISTICS 0;

CREATE TABLE memory_claims (
	work TEXT COLLATE "C" NOT NULL,
	piece TEXT COLLATE "C" NOT NULL,
	owner TEXT COLLATE "C" NOT NULL,
	until BIGINT NOT NULL,
	PRIMARY KEY (work, piece)
);

ALTER TABLE memory_claims ALTER COLUMN "work" SET STATISTICS 0, ALTER COLUMN "piece" SET STATISTICS 0, ALTER COLUMN "owner" SET STATISTICS 0;

CREATE TABLE memory_spaces (
	id BIGSERIAL NOT NULL,
	user_id TEXT COLLATE "C" NOT NULL,
	scope TEXT COLLATE "C" NOT NULL,
	changed BIGINT NOT NULL,
	requests BIGINT DEFAULT 0 NOT NULL,
	arrays TEXT COLLATE "C",
	journal TEXT COLLATE "C",
	PRIMARY KEY (id),
	CONSTRAINT uq_memory_spaces_user_scope UNIQUE (user_id, scope)
);

ALTER TABLE memory_spaces ALTER COLUMN "user_id" SET STATISTICS 0, ALTER COLUMN "scope" SET STATISTICS 0, ALTER COLUMN "arrays" SET STATISTICS 0, ALTER COLUMN "journal" SET STATISTICS 0;

CREATE TABLE memories (
	rid BIGSERIAL NOT NULL,
	id TEXT COLLATE "C" NOT NULL,
	space_id BIGINT NOT NULL,
	kind TEXT COLLATE "C" NOT NULL,
	content TEXT COLLATE "C" NOT NULL,
	content_hash TEXT COLLATE "C" NOT NULL,
	tier TEXT COLLATE "C" NOT NULL,
	memory_type TEXT COLLATE "C" NOT NULL,
	importance INTEGER NOT NULL,
	priority FLOAT(53) NOT NULL,
	decay_rate FLOAT(53) NOT NULL,
	speaker TEXT COLLATE "C" NOT NULL,
	said_at BIGINT NOT NULL,
	said_offset_min INTEGER NOT NULL,
	valid_from BIGINT,
	valid_to BIGINT,
	source_session TEXT COLLATE "C",
	source_turn BIGINT,
	source_position BIGINT,
	source_quote TEXT COLLATE "C",
	trust TEXT COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	changed BIGINT NOT NULL,
	request BIGINT DEFAULT 0 NOT NULL,
	pinned INTEGER DEFAULT 0 NOT NULL,
	time TEXT COLLATE "C",
	discretion TEXT COLLATE "C" DEFAULT 'open' NOT NULL,
	kept_from TEXT COLLATE "C" DEFAULT '' NOT NULL,
	spheres TEXT COLLATE "C" DEFAULT '' NOT NULL,
	PRIMARY KEY (rid),
	CONSTRAINT uq_memories_space_id UNIQUE (space_id, id),
	CONSTRAINT ck_memories_kind CHECK (kind IN ('episode', 'fact', 'summary')),
	CONSTRAINT ck_memories_content CHECK (length(content) > 0),
	CONSTRAINT ck_memories_tier CHECK (tier IN ('short_term', 'long_term')),
	CONSTRAINT ck_memories_type CHECK (memory_type IN ('general', 'decision', 'insight', 'fact', 'preference', 'project', 'conversation')),
	CONSTRAINT ck_memories_importance CHECK (importance BETWEEN 1 AND 5),
	CONSTRAINT ck_memories_priority CHECK (priority BETWEEN 0 AND 1),
	CONSTRAINT ck_memories_decay_rate CHECK (decay_rate >= 0),
	CONSTRAINT ck_memories_trust CHECK (trust IN ('user', 'agent', 'outside')),
	CONSTRAINT fk_memories_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

CREATE INDEX ix_memories_changed ON memories (space_id, changed);

CREATE INDEX ix_memories_discretion ON memories (space_id) WHERE discretion <> 'open';

CREATE INDEX ix_memories_importance ON memories (space_id, importance, said_at) WHERE kind = 'fact';

CREATE INDEX ix_memories_pinned ON memories (space_id) WHERE pinned = 1;

CREATE INDEX ix_memories_source ON memories (space_id, source_session, source_turn);

CREATE INDEX ix_memories_valid_to ON memories (space_id, valid_to) WHERE valid_to IS NOT NULL;

ALTER TABLE memories ALTER COLUMN "id" SET STATISTICS 0, ALTER COLUMN "kind" SET STATISTICS 0, ALTER COLUMN "content" SET STATISTICS 0, ALTER COLUMN "content_hash" SET STATISTICS 0, ALTER COLUMN "tier" SET STATISTICS 0, ALTER COLUMN "memory_type" SET STATISTICS 0, ALTER COLUMN "speaker" SET STATISTICS 0, ALTER COLUMN "source_session" SET STATISTICS 0, ALTER COLUMN "source_quote" SET STATISTICS 0, ALTER COLUMN "trust" SET STATISTICS 0, ALTER COLUMN "time" SET STATISTICS 0, ALTER COLUMN "discretion" SET STATISTICS 0, ALTER COLUMN "kept_from" SET STATISTICS 0, ALTER COLUMN "spheres" SET STATISTICS 0;

CREATE TABLE memory_changes (
	id BIGSERIAL NOT NULL,
	space_id BIGINT NOT NULL,
	memory_id TEXT COLLATE "C" NOT NULL,
	other_id TEXT COLLATE "C",
	action TEXT COLLATE "C" NOT NULL,
	at BIGINT NOT NULL,
	who TEXT COLLATE "C" NOT NULL,
	why TEXT COLLATE "C" NOT NULL,
	before TEXT COLLATE "C" NOT NULL,
	after TEXT COLLATE "C" NOT NULL,
	undoes BIGINT,
	PRIMARY KEY (id),
	CONSTRAINT fk_memory_changes_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_changes_memory ON memory_changes (space_id, memory_id);

CREATE INDEX ix_memory_changes_other ON memory_changes (space_id, other_id);

ALTER TABLE memory_changes ALTER COLUMN "memory_id" SET STATISTICS 0, ALTER COLUMN "other_id" SET STATISTICS 0, ALTER COLUMN "action" SET STATISTICS 0, ALTER COLUMN "who" SET STATISTICS 0, ALTER COLUMN "why" SET STATISTICS 0, ALTER COLUMN "before" SET STATISTICS 0, ALTER COLUMN "after" SET STATISTICS 0;

CREATE TABLE memory_distill_windows (
	id BIGSERIAL NOT NULL,
	space_id BIGINT NOT NULL,
	at BIGINT NOT NULL,
	place TEXT COLLATE "C" NOT NULL,
	outcome TEXT COLLATE "C" NOT NULL,
	facts INTEGER NOT NULL,
	dropped INTEGER NOT NULL,
	error TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT ck_memory_distill_windows_outcome CHECK (outcome IN ('facts', 'nothing', 'failed', 'given_up')),
	CONSTRAINT fk_memory_distill_windows_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_distill_windows_place ON memory_distill_windows (space_id, place);

ALTER TABLE memory_distill_windows ALTER COLUMN "place" SET STATISTICS 0, ALTER COLUMN "outcome" SET STATISTICS 0, ALTER COLUMN "error" SET STATISTICS 0;

CREATE TABLE memory_earlier_words (
	space_id BIGINT NOT NULL,
	words_hash TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (space_id, words_hash),
	CONSTRAINT fk_memory_earlier_words_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

ALTER TABLE memory_earlier_words ALTER COLUMN "words_hash" SET STATISTICS 0;

CREATE TABLE memory_pages (
	id BIGSERIAL NOT NULL,
	space_id BIGINT NOT NULL,
	number INTEGER NOT NULL,
	written_at BIGINT NOT NULL,
	by TEXT COLLATE "C" NOT NULL,
	model TEXT COLLATE "C" NOT NULL,
	state TEXT COLLATE "C" NOT NULL,
	changed BIGINT NOT NULL,
	lines TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT uq_memory_pages_number UNIQUE (space_id, number),
	CONSTRAINT ck_memory_pages_by CHECK ("by" IN ('model', 'user')),
	CONSTRAINT ck_memory_pages_state CHECK (state IN ('used', 'proposed')),
	CONSTRAINT fk_memory_pages_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

ALTER TABLE memory_pages ALTER COLUMN "by" SET STATISTICS 0, ALTER COLUMN "model" SET STATISTICS 0, ALTER COLUMN "state" SET STATISTICS 0, ALTER COLUMN "lines" SET STATISTICS 0;

CREATE TABLE memory_tombstones (
	rid BIGINT NOT NULL,
	space_id BIGINT NOT NULL,
	place_hash TEXT COLLATE "C",
	words_hash TEXT COLLATE "C",
	forgotten_at BIGINT NOT NULL,
	changed BIGINT NOT NULL,
	PRIMARY KEY (rid),
	CONSTRAINT fk_memory_tombstones_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_tombstones_changed ON memory_tombstones (space_id, changed);

CREATE INDEX ix_memory_tombstones_place ON memory_tombstones (space_id, place_hash);

CREATE INDEX ix_memory_tombstones_words ON memory_tombstones (space_id, words_hash);

ALTER TABLE memory_tombstones ALTER COLUMN "place_hash" SET STATISTICS 0, ALTER COLUMN "words_hash" SET STATISTICS 0;

CREATE TABLE memory_usage (
	id BIGSERIAL NOT NULL,
	space_id BIGINT NOT NULL,
	day TEXT COLLATE "C" NOT NULL,
	purpose TEXT COLLATE "C" NOT NULL,
	provider TEXT COLLATE "C" NOT NULL,
	model TEXT COLLATE "C" NOT NULL,
	calls INTEGER NOT NULL,
	input_tokens BIGINT NOT NULL,
	output_tokens BIGINT NOT NULL,
	cache_read_tokens BIGINT NOT NULL,
	cache_write_tokens BIGINT NOT NULL,
	cost_usd FLOAT(53),
	estimated INTEGER NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT uq_memory_usage UNIQUE (space_id, day, purpose, provider, model),
	CONSTRAINT fk_memory_usage_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

ALTER TABLE memory_usage ALTER COLUMN "day" SET STATISTICS 0, ALTER COLUMN "purpose" SET STATISTICS 0, ALTER COLUMN "provider" SET STATISTICS 0, ALTER COLUMN "model" SET STATISTICS 0;

CREATE TABLE memory_cue_vectors (
	rid BIGINT NOT NULL,
	model_id BIGINT NOT NULL,
	space_id BIGINT NOT NULL,
	changed BIGINT NOT NULL,
	vectors BYTEA NOT NULL,
	PRIMARY KEY (rid, model_id),
	CONSTRAINT fk_memory_cue_vectors_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE,
	CONSTRAINT fk_memory_cue_vectors_model FOREIGN KEY(model_id) REFERENCES embedding_models (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_cue_vectors_changed ON memory_cue_vectors (space_id, model_id, changed);

ALTER TABLE memory_cue_vectors ALTER COLUMN "vectors" SET STATISTICS 0;

CREATE TABLE memory_cues (
	rid BIGINT NOT NULL,
	place INTEGER NOT NULL,
	cue TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (rid, place),
	CONSTRAINT ck_memory_cues_cue CHECK (length(cue) > 0),
	CONSTRAINT fk_memory_cues_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

ALTER TABLE memory_cues ALTER COLUMN "cue" SET STATISTICS 0;

CREATE TABLE memory_distilled (
	rid BIGINT NOT NULL,
	chars BIGINT NOT NULL,
	distilled_at BIGINT NOT NULL,
	worth_by TEXT COLLATE "C" DEFAULT '' NOT NULL,
	PRIMARY KEY (rid),
	CONSTRAINT fk_memory_distilled_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

ALTER TABLE memory_distilled ALTER COLUMN "worth_by" SET STATISTICS 0;

CREATE TABLE memory_edges (
	source_rid BIGINT NOT NULL,
	target_rid BIGINT NOT NULL,
	relation TEXT COLLATE "C" NOT NULL,
	weight FLOAT(53) NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (source_rid, target_rid, relation),
	CONSTRAINT ck_memory_edges_self CHECK (source_rid <> target_rid),
	CONSTRAINT ck_memory_edges_relation CHECK (length(relation) > 0),
	CONSTRAINT fk_memory_edges_source FOREIGN KEY(source_rid) REFERENCES memories (rid) ON DELETE CASCADE,
	CONSTRAINT fk_memory_edges_target FOREIGN KEY(target_rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE INDEX ix_memory_edges_target ON memory_edges (target_rid, relation);

ALTER TABLE memory_edges ALTER COLUMN "relation" SET STATISTICS 0;

CREATE TABLE memory_readings (
	rid BIGINT NOT NULL,
	version INTEGER NOT NULL,
	PRIMARY KEY (rid),
	CONSTRAINT fk_memory_readings_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE TABLE memory_statements (
	rid BIGINT NOT NULL,
	place INTEGER NOT NULL,
	space_id BIGINT NOT NULL,
	start INTEGER NOT NULL,
	length INTEGER NOT NULL,
	lasting FLOAT(53),
	first_day INTEGER,
	last_day INTEGER,
	yearly INTEGER,
	change TEXT COLLATE "C",
	every TEXT COLLATE "C",
	PRIMARY KEY (rid, place),
	CONSTRAINT fk_memory_statements_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE INDEX ix_memory_statements_change ON memory_statements (space_id) WHERE change IS NOT NULL;

CREATE INDEX ix_memory_statements_days ON memory_statements (space_id, last_day) WHERE last_day IS NOT NULL;

CREATE INDEX ix_memory_statements_every ON memory_statements (space_id, every) WHERE every IS NOT NULL;

CREATE INDEX ix_memory_statements_lasting ON memory_statements (space_id, lasting) WHERE lasting IS NOT NULL;

CREATE INDEX ix_memory_statements_yearly ON memory_statements (space_id, yearly) WHERE yearly IS NOT NULL;

ALTER TABLE memory_statements ALTER COLUMN "change" SET STATISTICS 0, ALTER COLUMN "every" SET STATISTICS 0;

CREATE TABLE memory_tags (
	rid BIGINT NOT NULL,
	tag TEXT COLLATE "C" NOT NULL,
	position INTEGER NOT NULL,
	PRIMARY KEY (rid, tag),
	CONSTRAINT fk_memory_tags_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE INDEX ix_memory_tags_tag ON memory_tags (tag);

ALTER TABLE memory_tags ALTER COLUMN "tag" SET STATISTICS 0;

CREATE TABLE memory_uses (
	rid BIGINT NOT NULL,
	last_accessed BIGINT NOT NULL,
	access_count BIGINT NOT NULL,
	request BIGINT DEFAULT 0 NOT NULL,
	PRIMARY KEY (rid),
	CONSTRAINT fk_memory_uses_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE TABLE memory_vectors (
	rid BIGINT NOT NULL,
	model_id BIGINT NOT NULL,
	space_id BIGINT NOT NULL,
	changed BIGINT NOT NULL,
	vectors BYTEA NOT NULL,
	PRIMARY KEY (rid, model_id),
	CONSTRAINT fk_memory_vectors_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE,
	CONSTRAINT fk_memory_vectors_model FOREIGN KEY(model_id) REFERENCES embedding_models (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_vectors_changed ON memory_vectors (space_id, model_id, changed);

ALTER TABLE memory_vectors ALTER COLUMN "vectors" SET STATISTICS 0;

CREATE TABLE memory_words (
	rid BIGINT NOT NULL,
	version INTEGER NOT NULL,
	words INTEGER NOT NULL,
	features INTEGER NOT NULL,
	stems BYTEA NOT NULL,
	PRIMARY KEY (rid),
	CONSTRAINT fk_memory_words_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE INDEX ix_memory_words_version ON memory_words (version);

ALTER TABLE memory_words ALTER COLUMN "stems" SET STATISTICS 0;

CREATE TABLE memory_tokens (
	rid BIGINT NOT NULL,
	model_id BIGINT NOT NULL,
	tokens BYTEA NOT NULL,
	PRIMARY KEY (rid, model_id),
	CONSTRAINT fk_memory_tokens_vectors FOREIGN KEY(rid, model_id) REFERENCES memory_vectors (rid, model_id) ON DELETE CASCADE
);

ALTER TABLE memory_tokens ALTER COLUMN "tokens" SET STATISTICS 0;

CREATE TABLE capabilities (
	id TEXT COLLATE "C" NOT NULL,
	user_id TEXT COLLATE "C" NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	description TEXT COLLATE "C" NOT NULL,
	status TEXT COLLATE "C" NOT NULL,
	version INTEGER NOT NULL,
	input_schema TEXT COLLATE "C" NOT NULL,
	output_schema TEXT COLLATE "C" NOT NULL,
	tags TEXT COLLATE "C" NOT NULL,
	requirements TEXT COLLATE "C" NOT NULL,
	hosts TEXT COLLATE "C" NOT NULL,
	secrets TEXT COLLATE "C" NOT NULL,
	state INTEGER NOT NULL,
	path TEXT COLLATE "C" NOT NULL,
	provenance TEXT COLLATE "C" NOT NULL,
	build_id TEXT COLLATE "C" NOT NULL,
	reasons TEXT COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	runs INTEGER NOT NULL,
	failures INTEGER NOT NULL,
	failures_in_row INTEGER NOT NULL,
	failing_since BIGINT,
	recent_ms TEXT COLLATE "C" NOT NULL,
	peak_mb FLOAT NOT NULL,
	last_run_at BIGINT,
	changed BIGINT DEFAULT '0' NOT NULL,
	proof TEXT COLLATE "C" DEFAULT '' NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT uq_capabilities_user_name UNIQUE (user_id, name),
	CONSTRAINT ck_capabilities_status CHECK (status IN ('building', 'proposed', 'active', 'failed', 'disabled')),
	CONSTRAINT ck_capabilities_state CHECK (state IN (0, 1))
);

ALTER TABLE capabilities ALTER COLUMN "id" SET STATISTICS 0, ALTER COLUMN "user_id" SET STATISTICS 0, ALTER COLUMN "name" SET STATISTICS 0, ALTER COLUMN "description" SET STATISTICS 0, ALTER COLUMN "status" SET STATISTICS 0, ALTER COLUMN "input_schema" SET STATISTICS 0, ALTER COLUMN "output_schema" SET STATISTICS 0, ALTER COLUMN "tags" SET STATISTICS 0, ALTER COLUMN "requirements" SET STATISTICS 0, ALTER COLUMN "hosts" SET STATISTICS 0, ALTER COLUMN "secrets" SET STATISTICS 0, ALTER COLUMN "path" SET STATISTICS 0, ALTER COLUMN "provenance" SET STATISTICS 0, ALTER COLUMN "build_id" SET STATISTICS 0, ALTER COLUMN "reasons" SET STATISTICS 0, ALTER COLUMN "recent_ms" SET STATISTICS 0, ALTER COLUMN "proof" SET STATISTICS 0;

CREATE TABLE capability_changes (
	user_id TEXT COLLATE "C" NOT NULL,
	changed BIGINT NOT NULL,
	PRIMARY KEY (user_id)
);

ALTER TABLE capability_changes ALTER COLUMN "user_id" SET STATISTICS 0;

CREATE TABLE capability_removals (
	id TEXT COLLATE "C" NOT NULL,
	user_id TEXT COLLATE "C" NOT NULL,
	proof TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (id)
);

ALTER TABLE capability_removals ALTER COLUMN "id" SET STATISTICS 0, ALTER COLUMN "user_id" SET STATISTICS 0, ALTER COLUMN "proof" SET STATISTICS 0;

CREATE TABLE capability_approvals (
	capability_id TEXT COLLATE "C" NOT NULL,
	kind TEXT COLLATE "C" NOT NULL,
	value TEXT COLLATE "C" NOT NULL,
	approved_at BIGINT NOT NULL,
	CONSTRAINT uq_capability_approvals_value UNIQUE (capability_id, kind, value),
	CONSTRAINT ck_capability_approvals_kind CHECK (kind IN ('host', 'secret', 'state')),
	CONSTRAINT fk_capability_approvals_capability FOREIGN KEY(capability_id) REFERENCES capabilities (id) ON DELETE CASCADE
);

ALTER TABLE capability_approvals ALTER COLUMN "capability_id" SET STATISTICS 0, ALTER COLUMN "kind" SET STATISTICS 0, ALTER COLUMN "value" SET STATISTICS 0;

CREATE TABLE capability_runs (
	number BIGSERIAL NOT NULL,
	capability_id TEXT COLLATE "C" NOT NULL,
	version INTEGER NOT NULL,
	status TEXT COLLATE "C" NOT NULL,
	error TEXT COLLATE "C" NOT NULL,
	input TEXT COLLATE "C" NOT NULL,
	wall_ms FLOAT NOT NULL,
	peak_mb FLOAT NOT NULL,
	backend TEXT COLLATE "C" NOT NULL,
	started_at BIGINT NOT NULL,
	PRIMARY KEY (number),
	CONSTRAINT fk_capability_runs_capability FOREIGN KEY(capability_id) REFERENCES capabilities (id) ON DELETE CASCADE
);

CREATE INDEX ix_capability_runs_capability ON capability_runs (capability_id, number);

ALTER TABLE capability_runs ALTER COLUMN "capability_id" SET STATISTICS 0, ALTER COLUMN "status" SET STATISTICS 0, ALTER COLUMN "error" SET STATISTICS 0, ALTER COLUMN "input" SET STATISTICS 0, ALTER COLUMN "backend" SET STATISTICS 0;

CREATE TABLE capability_vectors (
	capability_id TEXT COLLATE "C" NOT NULL,
	model TEXT COLLATE "C" NOT NULL,
	text_hash TEXT COLLATE "C" NOT NULL,
	vector BYTEA NOT NULL,
	CONSTRAINT uq_capability_vectors_model UNIQUE (capability_id, model),
	CONSTRAINT fk_capability_vectors_capability FOREIGN KEY(capability_id) REFERENCES capabilities (id) ON DELETE CASCADE
);

ALTER TABLE capability_vectors ALTER COLUMN "capability_id" SET STATISTICS 0, ALTER COLUMN "model" SET STATISTICS 0, ALTER COLUMN "text_hash" SET STATISTICS 0, ALTER COLUMN "vector" SET STATISTICS 0;

CREATE TABLE capability_versions (
	capability_id TEXT COLLATE "C" NOT NULL,
	number INTEGER NOT NULL,
	status TEXT COLLATE "C" NOT NULL,
	sha256 TEXT COLLATE "C" NOT NULL,
	archive BYTEA NOT NULL,
	provenance TEXT COLLATE "C" NOT NULL,
	checks TEXT COLLATE "C" NOT NULL,
	reasons TEXT COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT uq_capability_versions_number UNIQUE (capability_id, number),
	CONSTRAINT ck_capability_versions_status CHECK (status IN ('ready', 'proposed', 'failed')),
	CONSTRAINT fk_capability_versions_capability FOREIGN KEY(capability_id) REFERENCES capabilities (id) ON DELETE CASCADE
);

ALTER TABLE capability_versions ALTER COLUMN "capability_id" SET STATISTICS 0, ALTER COLUMN "status" SET STATISTICS 0, ALTER COLUMN "sha256" SET STATISTICS 0, ALTER COLUMN "archive" SET STATISTICS 0, ALTER COLUMN "provenance" SET STATISTICS 0, ALTER COLUMN "checks" SET STATISTICS 0, ALTER COLUMN "reasons" SET STATISTICS 0;

CREATE TABLE builds (
	id TEXT COLLATE "C" NOT NULL,
	user_id TEXT COLLATE "C" NOT NULL,
	capability_id TEXT COLLATE "C" NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	kind TEXT COLLATE "C" NOT NULL,
	task TEXT COLLATE "C" NOT NULL,
	asked_by TEXT COLLATE "C" NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	model TEXT COLLATE "C" NOT NULL,
	status TEXT COLLATE "C" NOT NULL,
	outcome TEXT COLLATE "C" NOT NULL,
	attempts INTEGER NOT NULL,
	executor TEXT COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT uq_builds_session UNIQUE (session_id),
	CONSTRAINT ck_builds_kind CHECK (kind IN ('build', 'repair')),
	CONSTRAINT ck_builds_status CHECK (status IN ('queued', 'running', 'active', 'proposed', 'failed'))
);

CREATE INDEX ix_builds_asked_by ON builds (asked_by);

CREATE INDEX ix_builds_capability ON builds (capability_id);

CREATE INDEX ix_builds_status ON builds (status);

ALTER TABLE builds ALTER COLUMN "id" SET STATISTICS 0, ALTER COLUMN "user_id" SET STATISTICS 0, ALTER COLUMN "capability_id" SET STATISTICS 0, ALTER COLUMN "name" SET STATISTICS 0, ALTER COLUMN "kind" SET STATISTICS 0, ALTER COLUMN "task" SET STATISTICS 0, ALTER COLUMN "asked_by" SET STATISTICS 0, ALTER COLUMN "session_id" SET STATISTICS 0, ALTER COLUMN "model" SET STATISTICS 0, ALTER COLUMN "status" SET STATISTICS 0, ALTER COLUMN "outcome" SET STATISTICS 0, ALTER COLUMN "executor" SET STATISTICS 0;

CREATE TABLE build_messages (
	number BIGSERIAL NOT NULL,
	id TEXT COLLATE "C" NOT NULL,
	build_id TEXT COLLATE "C" NOT NULL,
	direction TEXT COLLATE "C" NOT NULL,
	type TEXT COLLATE "C" NOT NULL,
	payload TEXT COLLATE "C" NOT NULL,
	read INTEGER NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (number),
	CONSTRAINT uq_build_messages_id UNIQUE (build_id, id),
	CONSTRAINT ck_build_messages_direction CHECK (direction IN ('to_user', 'to_builder')),
	CONSTRAINT ck_build_messages_type CHECK (type IN ('question', 'answer', 'progress', 'complete', 'error')),
	CONSTRAINT ck_build_messages_read CHECK (read IN (0, 1)),
	CONSTRAINT fk_build_messages_build FOREIGN KEY(build_id) REFERENCES builds (id)
);

ALTER TABLE build_messages ALTER COLUMN "id" SET STATISTICS 0, ALTER COLUMN "build_id" SET STATISTICS 0, ALTER COLUMN "direction" SET STATISTICS 0, ALTER COLUMN "type" SET STATISTICS 0, ALTER COLUMN "payload" SET STATISTICS 0;

CREATE TABLE conversation_costs (
	day TEXT COLLATE "C" NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	cost FLOAT NOT NULL,
	PRIMARY KEY (day, session_id)
);

ALTER TABLE conversation_costs ALTER COLUMN "day" SET STATISTICS 0, ALTER COLUMN "session_id" SET STATISTICS 0;

CREATE TABLE conversation_files (
	session_id TEXT COLLATE "C" NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	sha256 TEXT COLLATE "C" NOT NULL,
	size BIGINT NOT NULL,
	PRIMARY KEY (session_id, name)
);

ALTER TABLE conversation_files ALTER COLUMN "session_id" SET STATISTICS 0, ALTER COLUMN "name" SET STATISTICS 0, ALTER COLUMN "sha256" SET STATISTICS 0;

CREATE TABLE conversation_lines (
	session_id TEXT COLLATE "C" NOT NULL,
	seq INTEGER NOT NULL,
	line BYTEA NOT NULL,
	PRIMARY KEY (session_id, seq)
);

ALTER TABLE conversation_lines ALTER COLUMN "session_id" SET STATISTICS 0, ALTER COLUMN "line" SET STATISTICS 0;

CREATE TABLE conversation_parts (
	session_id TEXT COLLATE "C" NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	part INTEGER NOT NULL,
	content BYTEA NOT NULL,
	PRIMARY KEY (session_id, name, part)
);

ALTER TABLE conversation_parts ALTER COLUMN "session_id" SET STATISTICS 0, ALTER COLUMN "name" SET STATISTICS 0, ALTER COLUMN "content" SET STATISTICS 0;

CREATE TABLE conversation_requests (
	number BIGSERIAL NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	epoch INTEGER NOT NULL,
	last_seq INTEGER NOT NULL,
	at BIGINT NOT NULL,
	content BYTEA,
	answer BYTEA,
	PRIMARY KEY (number)
);

ALTER TABLE conversation_requests ALTER COLUMN "session_id" SET STATISTICS 0, ALTER COLUMN "content" SET STATISTICS 0, ALTER COLUMN "answer" SET STATISTICS 0;

CREATE TABLE conversation_uploads (
	sha256 TEXT COLLATE "C" NOT NULL,
	content BYTEA NOT NULL,
	at BIGINT NOT NULL,
	PRIMARY KEY (sha256)
);

ALTER TABLE conversation_uploads ALTER COLUMN "sha256" SET STATISTICS 0, ALTER COLUMN "content" SET STATISTICS 0;

CREATE TABLE conversations (
	session_id TEXT COLLATE "C" NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	generation INTEGER NOT NULL,
	last_seq INTEGER NOT NULL,
	writer TEXT COLLATE "C" NOT NULL,
	epoch INTEGER NOT NULL,
	until BIGINT NOT NULL,
	handover INTEGER DEFAULT '0' NOT NULL,
	chosen TEXT COLLATE "C" DEFAULT '' NOT NULL,
	PRIMARY KEY (session_id)
);

ALTER TABLE conversations ALTER COLUMN "session_id" SET STATISTICS 0, ALTER COLUMN "name" SET STATISTICS 0, ALTER COLUMN "writer" SET STATISTICS 0, ALTER COLUMN "chosen" SET STATISTICS 0;

CREATE TABLE session_client_place (
	key TEXT COLLATE "C" NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	number BIGINT NOT NULL,
	block TEXT COLLATE "C" NOT NULL,
	memory_ids TEXT COLLATE "C" NOT NULL,
	written_at BIGINT NOT NULL,
	PRIMARY KEY (key)
);

CREATE INDEX ix_session_client_place_session ON session_client_place (session_id, number);

CREATE INDEX ix_session_client_place_written ON session_client_place (written_at);

ALTER TABLE session_client_place ALTER COLUMN "key" SET STATISTICS 0, ALTER COLUMN "session_id" SET STATISTICS 0, ALTER COLUMN "block" SET STATISTICS 0, ALTER COLUMN "memory_ids" SET STATISTICS 0;

CREATE TABLE session_entry (
	entry TEXT COLLATE "C" NOT NULL,
	place TEXT COLLATE "C" NOT NULL,
	pinned INTEGER NOT NULL,
	last_at BIGINT NOT NULL,
	spent_day TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (entry)
);

CREATE INDEX ix_session_entry_place ON session_entry (place, pinned, last_at, entry);

CREATE INDEX ix_session_entry_spent_day ON session_entry (spent_day);

ALTER TABLE session_entry ALTER COLUMN "entry" SET STATISTICS 0, ALTER COLUMN "place" SET STATISTICS 0, ALTER COLUMN "spent_day" SET STATISTICS 0;

CREATE TABLE session_folder (
	name TEXT COLLATE "C" NOT NULL,
	mtime_ns BIGINT NOT NULL,
	PRIMARY KEY (name)
);

ALTER TABLE session_folder ALTER COLUMN "name" SET STATISTICS 0;

CREATE TABLE session_inbox (
	number SERIAL NOT NULL,
	id TEXT COLLATE "C" NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	source TEXT COLLATE "C" NOT NULL,
	kind TEXT COLLATE "C" NOT NULL,
	text TEXT COLLATE "C" NOT NULL,
	untrusted INTEGER NOT NULL,
	posted_at BIGINT NOT NULL,
	PRIMARY KEY (number),
	UNIQUE (id)
);

CREATE INDEX ix_session_inbox_session ON session_inbox (session_id, number);

ALTER TABLE session_inbox ALTER COLUMN "id" SET STATISTICS 0, ALTER COLUMN "session_id" SET STATISTICS 0, ALTER COLUMN "source" SET STATISTICS 0, ALTER COLUMN "kind" SET STATISTICS 0, ALTER COLUMN "text" SET STATISTICS 0;

CREATE TABLE session_log (
	name TEXT COLLATE "C" NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	inode INTEGER NOT NULL,
	mtime_ns INTEGER NOT NULL,
	size INTEGER NOT NULL,
	"offset" INTEGER NOT NULL,
	lines INTEGER NOT NULL,
	summary TEXT COLLATE "C" NOT NULL,
	entry TEXT COLLATE "C" DEFAULT '' NOT NULL,
	PRIMARY KEY (name)
);

CREATE INDEX ix_session_log_entry ON session_log (entry);

ALTER TABLE session_log ALTER COLUMN "name" SET STATISTICS 0, ALTER COLUMN "session_id" SET STATISTICS 0, ALTER COLUMN "summary" SET STATISTICS 0, ALTER COLUMN "entry" SET STATISTICS 0;

CREATE TABLE session_passage (
	id SERIAL NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	seq INTEGER NOT NULL,
	turn INTEGER NOT NULL,
	kind TEXT COLLATE "C" NOT NULL,
	at TEXT COLLATE "C" NOT NULL,
	text TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (id)
);

CREATE INDEX ix_session_passage_name ON session_passage (name);

ALTER TABLE session_passage ALTER COLUMN "name" SET STATISTICS 0, ALTER COLUMN "kind" SET STATISTICS 0, ALTER COLUMN "at" SET STATISTICS 0, ALTER COLUMN "text" SET STATISTICS 0;

CREATE TABLE session_settled (
	name TEXT COLLATE "C" NOT NULL,
	inode INTEGER NOT NULL,
	mtime_ns INTEGER NOT NULL,
	size INTEGER NOT NULL,
	PRIMARY KEY (name)
);

ALTER TABLE session_settled ALTER COLUMN "name" SET STATISTICS 0;

CREATE TABLE browser_logins (
	digest TEXT COLLATE "C" NOT NULL,
	kind TEXT COLLATE "C" NOT NULL,
	token TEXT COLLATE "C" NOT NULL,
	until BIGINT NOT NULL,
	PRIMARY KEY (digest)
);

ALTER TABLE browser_logins ALTER COLUMN "digest" SET STATISTICS 0, ALTER COLUMN "kind" SET STATISTICS 0, ALTER COLUMN "token" SET STATISTICS 0;

ALTER TABLE session_passage ADD COLUMN words TSVECTOR;

ALTER TABLE session_passage ALTER COLUMN words SET STATISTICS 0;

CREATE INDEX ix_session_passage_words ON session_passage USING gin (words);

ALTER TABLE memory_spaces ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_spaces USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR user_id = current_setting('satchel.user', true));

ALTER TABLE memories ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memories USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR space_id = ANY (ARRAY(SELECT id FROM memory_spaces)));

ALTER TABLE memory_changes ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_changes USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR space_id = ANY (ARRAY(SELECT id FROM memory_spaces)));

ALTER TABLE memory_distill_windows ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_distill_windows USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR space_id = ANY (ARRAY(SELECT id FROM memory_spaces)));

ALTER TABLE memory_earlier_words ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_earlier_words USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR space_id = ANY (ARRAY(SELECT id FROM memory_spaces)));

ALTER TABLE memory_pages ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_pages USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR space_id = ANY (ARRAY(SELECT id FROM memory_spaces)));

ALTER TABLE memory_tombstones ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_tombstones USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR space_id = ANY (ARRAY(SELECT id FROM memory_spaces)));

ALTER TABLE memory_usage ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_usage USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR space_id = ANY (ARRAY(SELECT id FROM memory_spaces)));

ALTER TABLE memory_cue_vectors ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_cue_vectors USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_cue_vectors.rid));

ALTER TABLE memory_cues ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_cues USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_cues.rid));

ALTER TABLE memory_distilled ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_distilled USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_distilled.rid));

ALTER TABLE memory_edges ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_edges USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_edges.source_rid) AND EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_edges.target_rid));

ALTER TABLE memory_readings ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_readings USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_readings.rid));

ALTER TABLE memory_statements ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_statements USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_statements.rid));

ALTER TABLE memory_tags ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_tags USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_tags.rid));

ALTER TABLE memory_uses ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_uses USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_uses.rid));

ALTER TABLE memory_vectors ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_vectors USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_vectors.rid));

ALTER TABLE memory_words ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_words USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memories owner WHERE owner.rid = memory_words.rid));

ALTER TABLE memory_tokens ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON memory_tokens USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR EXISTS (SELECT FROM memory_vectors owner WHERE owner.rid = memory_tokens.rid AND owner.model_id = memory_tokens.model_id));

ALTER TABLE capabilities ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON capabilities USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR user_id = current_setting('satchel.user', true));

ALTER TABLE capability_changes ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON capability_changes USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR user_id = current_setting('satchel.user', true));

ALTER TABLE capability_removals ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON capability_removals USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR user_id = current_setting('satchel.user', true));

ALTER TABLE capability_approvals ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON capability_approvals USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR capability_id = ANY (ARRAY(SELECT id FROM capabilities)));

ALTER TABLE capability_runs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON capability_runs USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR capability_id = ANY (ARRAY(SELECT id FROM capabilities)));

ALTER TABLE capability_vectors ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON capability_vectors USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR capability_id = ANY (ARRAY(SELECT id FROM capabilities)));

ALTER TABLE capability_versions ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON capability_versions USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR capability_id = ANY (ARRAY(SELECT id FROM capabilities)));

ALTER TABLE builds ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON builds USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR user_id = current_setting('satchel.user', true));

ALTER TABLE build_messages ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_user ON build_messages USING ((SELECT coalesce(current_setting('satchel.user', true), '') = '') OR build_id = ANY (ARRAY(SELECT id FROM builds)));
