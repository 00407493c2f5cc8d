-- memory.db: the log is the truth, and every other table but memory_jobs and the history of commits is made from it
-- (agent/memory/log_projection.py).  docs/memory.md describes the columns.
CREATE TABLE memory_log (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    operation TEXT NOT NULL,
    subject TEXT NOT NULL,
    who TEXT NOT NULL,
    reason TEXT NOT NULL,
    payload TEXT
);
CREATE INDEX idx_memory_log_subject ON memory_log(subject, number) WHERE operation <> 'event';

CREATE TABLE memory_events (
    id INTEGER PRIMARY KEY,
    actor_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    block INTEGER NOT NULL,
    timestamp TEXT NOT NULL,
    role TEXT NOT NULL,
    speaker TEXT NOT NULL,
    source TEXT NOT NULL,
    trust INTEGER NOT NULL,
    text TEXT NOT NULL,
    terms TEXT NOT NULL,
    sha TEXT NOT NULL,
    metadata TEXT NOT NULL,
    client_token TEXT
);
CREATE INDEX idx_memory_events_session ON memory_events(actor_id, session_id, id);
CREATE INDEX idx_memory_events_search ON memory_events(id, actor_id, session_id, timestamp, block);
CREATE INDEX idx_memory_events_block ON memory_events(block);
CREATE UNIQUE INDEX idx_memory_events_token ON memory_events(client_token) WHERE client_token IS NOT NULL;

CREATE TABLE memory_records (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    strategy TEXT NOT NULL,
    session_id TEXT NOT NULL,
    block INTEGER NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    terms TEXT NOT NULL,
    sha TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    created_at TEXT NOT NULL,
    valid_to TEXT,
    superseded_by TEXT,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    trust INTEGER NOT NULL,
    pinned INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    last_used_at TEXT,
    helped INTEGER NOT NULL,
    hurt INTEGER NOT NULL,
    expires_at TEXT,
    metadata TEXT NOT NULL
);
CREATE INDEX idx_memory_records_namespace ON memory_records(namespace, status, key);
CREATE INDEX idx_memory_records_search ON memory_records(key, namespace, trust, expires_at);
CREATE INDEX idx_memory_records_session ON memory_records(namespace, session_id, key);
CREATE INDEX idx_memory_records_block ON memory_records(block);
CREATE INDEX idx_memory_records_sha ON memory_records(sha, namespace);

-- A source is an event or another record: the other column is 0 or ''.
CREATE TABLE memory_sources (
    record_id TEXT NOT NULL,
    event_id INTEGER NOT NULL,
    source_id TEXT NOT NULL,
    PRIMARY KEY (record_id, event_id, source_id)
) WITHOUT ROWID;
CREATE INDEX idx_memory_sources_event ON memory_sources(event_id);
CREATE INDEX idx_memory_sources_source ON memory_sources(source_id);

CREATE TABLE memory_record_files (
    path TEXT NOT NULL,
    record_id TEXT NOT NULL,
    PRIMARY KEY (path, record_id)
) WITHOUT ROWID;
CREATE INDEX idx_memory_record_files_record ON memory_record_files(record_id);

-- What was forgotten, as hashes, so that it does not come back.
CREATE TABLE memory_tombstones (
    sha TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) WITHOUT ROWID;

-- `applied`: the number of the last entry of the log from which the tables were made.
CREATE TABLE memory_state (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE memory_jobs (
    id TEXT PRIMARY KEY,
    actor_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    strategy TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    lease_owner TEXT,
    lease_until TEXT
);
CREATE INDEX idx_memory_jobs_status ON memory_jobs(status, created_at);

-- Indexes of stems: what was said by itself, with its neighbours, with its whole session; likewise for records.
CREATE VIRTUAL TABLE memory_event_turns USING fts5(terms, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE memory_event_windows USING fts5(terms, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE memory_event_sessions USING fts5(terms, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE memory_record_turns USING fts5(terms, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE memory_record_windows USING fts5(terms, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE memory_record_sessions USING fts5(terms, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE memory_event_words USING fts5vocab(memory_event_turns, 'row');
CREATE VIRTUAL TABLE memory_record_words USING fts5vocab(memory_record_turns, 'row');
