CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE memory_spaces (
	id INTEGER NOT NULL, 
	user_id TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	changed BIGINT NOT NULL, requests BIGINT DEFAULT 0 NOT NULL, arrays TEXT, journal TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_memory_spaces_user_scope UNIQUE (user_id, scope)
);

CREATE TABLE memories (
	rid INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	space_id BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	content TEXT NOT NULL, 
	content_hash TEXT NOT NULL, 
	tier TEXT NOT NULL, 
	memory_type TEXT NOT NULL, 
	importance INTEGER NOT NULL, 
	priority FLOAT NOT NULL, 
	decay_rate FLOAT NOT NULL, 
	speaker TEXT NOT NULL, 
	said_at BIGINT NOT NULL, 
	said_offset_min INTEGER NOT NULL, 
	valid_from BIGINT, 
	valid_to BIGINT, 
	source_session TEXT, 
	source_turn BIGINT, 
	source_position BIGINT, 
	source_quote TEXT, 
	trust TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	changed BIGINT NOT NULL, request BIGINT DEFAULT 0 NOT NULL, pinned INTEGER DEFAULT 0 NOT NULL, discretion TEXT DEFAULT 'open' NOT NULL, kept_from TEXT DEFAULT '' NOT NULL, spheres TEXT DEFAULT '' NOT NULL, time TEXT, 
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

CREATE INDEX ix_memories_source ON memories (space_id, source_session, source_turn);

CREATE TABLE memory_uses (
	rid BIGINT NOT NULL, 
	last_accessed BIGINT NOT NULL, 
	access_count BIGINT NOT NULL, request BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (rid), 
	CONSTRAINT fk_memory_uses_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE TABLE memory_tags (
	rid BIGINT NOT NULL, 
	tag TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	PRIMARY KEY (rid, tag), 
	CONSTRAINT fk_memory_tags_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE INDEX ix_memory_tags_tag ON memory_tags (tag);

CREATE TABLE memory_words (
	rid BIGINT NOT NULL, 
	version INTEGER NOT NULL, 
	words INTEGER NOT NULL, 
	features INTEGER NOT NULL, 
	stems BLOB NOT NULL, 
	PRIMARY KEY (rid), 
	CONSTRAINT fk_memory_words_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE INDEX ix_memory_words_version ON memory_words (version);

CREATE TABLE memory_edges (
	source_rid BIGINT NOT NULL, 
	target_rid BIGINT NOT NULL, 
	relation TEXT NOT NULL, 
	weight FLOAT NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (source_rid, target_rid, relation), 
	CONSTRAINT ck_memory_edges_self CHECK (source_rid <> target_rid), 
	CONSTRAINT ck_memory_edges_relation CHECK (length(relation) > 0), 
	CONSTRAINT fk_memory_edges_source FOREIGN KEY(source_rid) REFERENCES memories (rid) ON DELETE CASCADE, 
	CONSTRAINT fk_memory_edges_target FOREIGN KEY(target_rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE INDEX ix_memory_edges_target ON memory_edges (target_rid, relation);

CREATE TABLE embedding_models (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	dimension INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	examples_hash TEXT, 
	examples_vectors BLOB, retired_at BIGINT, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_embedding_models_name UNIQUE (name), 
	CONSTRAINT ck_embedding_models_dimension CHECK (dimension > 0), 
	CONSTRAINT ck_embedding_models_state CHECK (state IN ('building', 'active', 'retired'))
);

CREATE UNIQUE INDEX uq_embedding_models_active ON embedding_models (state) WHERE state = 'active';

CREATE TABLE memory_vectors (
	rid BIGINT NOT NULL, 
	model_id BIGINT NOT NULL, 
	space_id BIGINT NOT NULL, 
	changed BIGINT NOT NULL, 
	vectors BLOB NOT NULL, 
	PRIMARY KEY (rid, model_id), 
	CONSTRAINT fk_memory_vectors_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE, 
	CONSTRAINT fk_memory_vectors_model FOREIGN KEY(model_id) REFERENCES embedding_models (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_vectors_changed ON memory_vectors (space_id, model_id, changed);

CREATE TABLE memory_tombstones (
	rid BIGINT NOT NULL, 
	space_id BIGINT NOT NULL, 
	place_hash TEXT, 
	words_hash TEXT, 
	forgotten_at BIGINT NOT NULL, 
	changed BIGINT NOT NULL, 
	PRIMARY KEY (rid), 
	CONSTRAINT fk_memory_tombstones_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_tombstones_changed ON memory_tombstones (space_id, changed);

CREATE INDEX ix_memory_tombstones_place ON memory_tombstones (space_id, place_hash);

CREATE INDEX ix_memory_tombstones_words ON memory_tombstones (space_id, words_hash);

CREATE TABLE session_log (
	name TEXT NOT NULL, 
	session_id TEXT NOT NULL, 
	inode INTEGER NOT NULL, 
	mtime_ns INTEGER NOT NULL, 
	size INTEGER NOT NULL, 
	"offset" INTEGER NOT NULL, 
	lines INTEGER NOT NULL, 
	summary TEXT NOT NULL, entry TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TABLE session_settled (
	name TEXT NOT NULL, 
	inode INTEGER NOT NULL, 
	mtime_ns INTEGER NOT NULL, 
	size INTEGER NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TABLE session_passage (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	seq INTEGER NOT NULL, 
	turn INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	at TEXT NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX ix_session_passage_name ON session_passage (name);

CREATE VIRTUAL TABLE session_fts USING fts5(text, content='session_passage', content_rowid='id', tokenize='unicode61 remove_diacritics 2');

CREATE TRIGGER session_passage_insert AFTER INSERT ON session_passage BEGIN INSERT INTO session_fts (rowid, text) VALUES (new.id, new.text); END;

CREATE TRIGGER session_passage_delete AFTER DELETE ON session_passage BEGIN INSERT INTO session_fts (session_fts, rowid, text) VALUES ('delete', old.id, old.text); END;

CREATE TABLE memory_distilled (
	rid BIGINT NOT NULL, 
	chars BIGINT NOT NULL, 
	distilled_at BIGINT NOT NULL, worth_by TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (rid), 
	CONSTRAINT fk_memory_distilled_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE TABLE memory_distill_windows (
	id INTEGER NOT NULL, 
	space_id BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	place TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	facts INTEGER NOT NULL, 
	dropped INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT ck_memory_distill_windows_outcome CHECK (outcome IN ('facts', 'nothing', 'failed', 'given_up')), 
	CONSTRAINT fk_memory_distill_windows_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_distill_windows_place ON memory_distill_windows (space_id, place);

CREATE TABLE memory_usage (
	id INTEGER NOT NULL, 
	space_id BIGINT NOT NULL, 
	day TEXT NOT NULL, 
	purpose TEXT NOT NULL, 
	provider TEXT NOT NULL, 
	model TEXT NOT NULL, 
	calls INTEGER NOT NULL, 
	input_tokens BIGINT NOT NULL, 
	output_tokens BIGINT NOT NULL, 
	cache_read_tokens BIGINT NOT NULL, 
	cache_write_tokens BIGINT NOT NULL, 
	cost_usd FLOAT, 
	estimated INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_memory_usage UNIQUE (space_id, day, purpose, provider, model), 
	CONSTRAINT fk_memory_usage_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

CREATE INDEX ix_memories_valid_to ON memories (space_id, valid_to) WHERE valid_to IS NOT NULL;

CREATE TABLE memory_changes (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	space_id BIGINT NOT NULL, 
	memory_id TEXT NOT NULL, 
	other_id TEXT, 
	action TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	who TEXT NOT NULL, 
	why TEXT NOT NULL, 
	"before" TEXT NOT NULL, 
	"after" TEXT NOT NULL, 
	undoes BIGINT, 
	CONSTRAINT fk_memory_changes_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_changes_memory ON memory_changes (space_id, memory_id);

CREATE INDEX ix_memory_changes_other ON memory_changes (space_id, other_id);

CREATE TABLE memory_earlier_words (
	space_id BIGINT NOT NULL, 
	words_hash TEXT NOT NULL, 
	PRIMARY KEY (space_id, words_hash), 
	CONSTRAINT fk_memory_earlier_words_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE
);

CREATE TABLE memory_tokens (
	rid BIGINT NOT NULL, 
	model_id BIGINT NOT NULL, 
	tokens BLOB NOT NULL, 
	PRIMARY KEY (rid, model_id), 
	CONSTRAINT fk_memory_tokens_vectors FOREIGN KEY(rid, model_id) REFERENCES memory_vectors (rid, model_id) ON DELETE CASCADE
);

CREATE TABLE session_inbox (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	session_id TEXT NOT NULL, 
	source TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	text TEXT NOT NULL, 
	untrusted INTEGER NOT NULL, 
	posted_at BIGINT NOT NULL, 
	CONSTRAINT uq_session_inbox_id UNIQUE (id), 
	CONSTRAINT ck_session_inbox_untrusted CHECK (untrusted IN (0, 1))
);

CREATE INDEX ix_session_inbox_session ON session_inbox (session_id, number);

CREATE TABLE capabilities (
	id TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	description TEXT NOT NULL, 
	status TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	input_schema TEXT NOT NULL, 
	output_schema TEXT NOT NULL, 
	tags TEXT NOT NULL, 
	requirements TEXT NOT NULL, 
	hosts TEXT NOT NULL, 
	secrets TEXT NOT NULL, 
	state INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	provenance TEXT NOT NULL, 
	build_id TEXT NOT NULL, 
	reasons TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	runs INTEGER NOT NULL, 
	failures INTEGER NOT NULL, 
	failures_in_row INTEGER NOT NULL, 
	failing_since BIGINT, 
	recent_ms TEXT NOT NULL, 
	peak_mb FLOAT NOT NULL, 
	last_run_at BIGINT, changed BIGINT DEFAULT '0' NOT NULL, proof TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_capabilities_user_name UNIQUE (user_id, name), 
	CONSTRAINT ck_capabilities_status CHECK (status IN ('building', 'proposed', 'active', 'failed', 'disabled')), 
	CONSTRAINT ck_capabilities_state CHECK (state IN (0, 1))
);

CREATE TABLE capability_versions (
	capability_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	status TEXT NOT NULL, 
	sha256 TEXT NOT NULL, 
	archive BLOB NOT NULL, 
	provenance TEXT NOT NULL, 
	checks TEXT NOT NULL, 
	reasons TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT uq_capability_versions_number UNIQUE (capability_id, number), 
	CONSTRAINT ck_capability_versions_status CHECK (status IN ('ready', 'proposed', 'failed')), 
	CONSTRAINT fk_capability_versions_capability FOREIGN KEY(capability_id) REFERENCES capabilities (id) ON DELETE CASCADE
);

CREATE TABLE capability_approvals (
	capability_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	value TEXT NOT NULL, 
	approved_at BIGINT NOT NULL, 
	CONSTRAINT uq_capability_approvals_value UNIQUE (capability_id, kind, value), 
	CONSTRAINT ck_capability_approvals_kind CHECK (kind IN ('host', 'secret', 'state')), 
	CONSTRAINT fk_capability_approvals_capability FOREIGN KEY(capability_id) REFERENCES capabilities (id) ON DELETE CASCADE
);

CREATE TABLE capability_runs (
	number INTEGER NOT NULL, 
	capability_id TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	status TEXT NOT NULL, 
	error TEXT NOT NULL, 
	input TEXT NOT NULL, 
	wall_ms FLOAT NOT NULL, 
	peak_mb FLOAT NOT NULL, 
	backend TEXT NOT NULL, 
	started_at BIGINT NOT NULL, 
	PRIMARY KEY (number), 
	CONSTRAINT fk_capability_runs_capability FOREIGN KEY(capability_id) REFERENCES capabilities (id) ON DELETE CASCADE
);

CREATE INDEX ix_capability_runs_capability ON capability_runs (capability_id, number);

CREATE TABLE capability_vectors (
	capability_id TEXT NOT NULL, 
	model TEXT NOT NULL, 
	text_hash TEXT NOT NULL, 
	vector BLOB NOT NULL, 
	CONSTRAINT uq_capability_vectors_model UNIQUE (capability_id, model), 
	CONSTRAINT fk_capability_vectors_capability FOREIGN KEY(capability_id) REFERENCES capabilities (id) ON DELETE CASCADE
);

CREATE TABLE capability_changes (
	user_id TEXT NOT NULL, 
	changed BIGINT NOT NULL, 
	PRIMARY KEY (user_id)
);

CREATE TABLE builds (
	id TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	capability_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	task TEXT NOT NULL, 
	asked_by TEXT NOT NULL, 
	session_id TEXT NOT NULL, 
	model TEXT NOT NULL, 
	status TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	executor TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_builds_session UNIQUE (session_id), 
	CONSTRAINT ck_builds_kind CHECK (kind IN ('build', 'repair')), 
	CONSTRAINT ck_builds_status CHECK (status IN ('queued', 'running', 'active', 'proposed', 'failed'))
);

CREATE INDEX ix_builds_capability ON builds (capability_id);

CREATE INDEX ix_builds_asked_by ON builds (asked_by);

CREATE INDEX ix_builds_status ON builds (status);

CREATE TABLE build_messages (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	build_id TEXT NOT NULL, 
	direction TEXT NOT NULL, 
	type TEXT NOT NULL, 
	payload TEXT NOT NULL, 
	read INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT fk_build_messages_build FOREIGN KEY(build_id) REFERENCES builds (id), 
	CONSTRAINT uq_build_messages_id UNIQUE (build_id, id), 
	CONSTRAINT ck_build_messages_direction CHECK (direction IN ('to_user', 'to_builder')), 
	CONSTRAINT ck_build_messages_type CHECK (type IN ('question', 'answer', 'progress', 'complete', 'error')), 
	CONSTRAINT ck_build_messages_read CHECK (read IN (0, 1))
);

CREATE TABLE executors (
	id TEXT NOT NULL, 
	host TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	started_at BIGINT NOT NULL, 
	seen_at BIGINT NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE memory_claims (
	work TEXT NOT NULL, 
	piece TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	until BIGINT NOT NULL, 
	PRIMARY KEY (work, piece)
);

CREATE INDEX ix_memories_pinned ON memories (space_id) WHERE pinned = 1;

CREATE INDEX ix_memories_importance ON memories (space_id, importance, said_at) WHERE kind = 'fact';

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
	lasting FLOAT, 
	first_day INTEGER, 
	last_day INTEGER, 
	yearly INTEGER, 
	change TEXT, every TEXT, 
	PRIMARY KEY (rid, place), 
	CONSTRAINT fk_memory_statements_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE INDEX ix_memory_statements_lasting ON memory_statements (space_id, lasting) WHERE lasting IS NOT NULL;

CREATE INDEX ix_memory_statements_days ON memory_statements (space_id, last_day) WHERE last_day IS NOT NULL;

CREATE INDEX ix_memory_statements_yearly ON memory_statements (space_id, yearly) WHERE yearly IS NOT NULL;

CREATE INDEX ix_memory_statements_change ON memory_statements (space_id) WHERE change IS NOT NULL;

CREATE TABLE memory_cues (
	rid BIGINT NOT NULL, 
	place INTEGER NOT NULL, 
	cue TEXT NOT NULL, 
	PRIMARY KEY (rid, place), 
	CONSTRAINT ck_memory_cues_cue CHECK (length(cue) > 0), 
	CONSTRAINT fk_memory_cues_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE
);

CREATE TABLE memory_cue_vectors (
	rid BIGINT NOT NULL, 
	model_id BIGINT NOT NULL, 
	space_id BIGINT NOT NULL, 
	changed BIGINT NOT NULL, 
	vectors BLOB NOT NULL, 
	PRIMARY KEY (rid, model_id), 
	CONSTRAINT fk_memory_cue_vectors_memory FOREIGN KEY(rid) REFERENCES memories (rid) ON DELETE CASCADE, 
	CONSTRAINT fk_memory_cue_vectors_model FOREIGN KEY(model_id) REFERENCES embedding_models (id) ON DELETE CASCADE
);

CREATE INDEX ix_memory_cue_vectors_changed ON memory_cue_vectors (space_id, model_id, changed);

CREATE TABLE session_client_place (
	"key" TEXT NOT NULL, 
	session_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	block TEXT NOT NULL, 
	memory_ids TEXT NOT NULL, 
	written_at BIGINT NOT NULL, 
	PRIMARY KEY ("key")
);

CREATE INDEX ix_session_client_place_session ON session_client_place (session_id, number);

CREATE INDEX ix_session_client_place_written ON session_client_place (written_at);

CREATE TABLE memory_pages (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	space_id BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	written_at BIGINT NOT NULL, 
	"by" TEXT NOT NULL, 
	model TEXT NOT NULL, 
	state TEXT NOT NULL, 
	changed BIGINT NOT NULL, 
	lines TEXT NOT NULL, 
	CONSTRAINT fk_memory_pages_space FOREIGN KEY(space_id) REFERENCES memory_spaces (id) ON DELETE CASCADE, 
	CONSTRAINT uq_memory_pages_number UNIQUE (space_id, number), 
	CONSTRAINT ck_memory_pages_by CHECK ("by" IN ('model', 'user')), 
	CONSTRAINT ck_memory_pages_state CHECK (state IN ('used', 'proposed'))
);

CREATE INDEX ix_memories_discretion ON memories (space_id) WHERE discretion <> 'open';

CREATE INDEX ix_memory_statements_every ON memory_statements (space_id, every) WHERE every IS NOT NULL;

CREATE TABLE capability_removals (
	id TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	proof TEXT NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX ix_session_log_entry ON session_log (entry);

CREATE TABLE session_entry (
	entry TEXT NOT NULL, 
	place TEXT NOT NULL, 
	pinned INTEGER NOT NULL, 
	last_at BIGINT NOT NULL, 
	spent_day TEXT NOT NULL, 
	PRIMARY KEY (entry)
);

CREATE INDEX ix_session_entry_place ON session_entry (place, pinned, last_at, entry);

CREATE INDEX ix_session_entry_spent_day ON session_entry (spent_day);

CREATE TABLE session_folder (
	name TEXT NOT NULL, 
	mtime_ns BIGINT NOT NULL, 
	PRIMARY KEY (name)
);

INSERT INTO alembic_version VALUES ('0028_list_of_conversations');
