-- The log of long-term memory that several hosts share, in PostgreSQL only (agent/memory/shared_log.py).  Each host
-- makes its own tables from it.  docs/memory.md describes the columns.
CREATE TABLE memory_log (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    operation TEXT NOT NULL,
    subject TEXT NOT NULL,
    who TEXT NOT NULL,
    reason TEXT NOT NULL,
    payload TEXT,
    client_token TEXT
);
CREATE UNIQUE INDEX idx_memory_log_token ON memory_log(client_token) WHERE client_token IS NOT NULL;

-- ANALYZE would copy texts into pg_statistic, where they would remain after they are forgotten.
ALTER TABLE memory_log ALTER COLUMN subject SET STATISTICS 0;
ALTER TABLE memory_log ALTER COLUMN reason SET STATISTICS 0;
ALTER TABLE memory_log ALTER COLUMN payload SET STATISTICS 0;

-- `unpurged`: the last forgetting whose bytes may still be in the file of the table.
CREATE TABLE memory_log_state (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    at TEXT NOT NULL
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
