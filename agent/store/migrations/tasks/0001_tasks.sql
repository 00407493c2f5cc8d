-- The table of docs/design/context.md, 2.2, unchanged, since queries are written for it.  IF NOT EXISTS takes over a
-- tasks.db that was made from that description alone.
CREATE TABLE IF NOT EXISTS tasks (
    uuid TEXT PRIMARY KEY,
    task_source TEXT NOT NULL,
    owner TEXT NOT NULL,
    repo TEXT NOT NULL,
    task_type TEXT NOT NULL,
    task_id TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT,
    completed_at TEXT,
    process_id INTEGER,
    hostname TEXT,
    llm_provider TEXT,
    model TEXT,
    context_length INTEGER,
    llm_call_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    total_tokens INTEGER DEFAULT 0,
    compression_count INTEGER DEFAULT 0,
    error_message TEXT,
    "user" TEXT
);

CREATE INDEX IF NOT EXISTS idx_tasks_status ON tasks(status);
CREATE INDEX IF NOT EXISTS idx_tasks_created_at ON tasks(created_at);
CREATE INDEX IF NOT EXISTS idx_tasks_user ON tasks("user");

-- Which instance of a source the task is from: the forge's host, or the local tracker's path.
ALTER TABLE tasks ADD COLUMN instance TEXT NOT NULL DEFAULT '';
-- The fence: counts claims.  Every write of a holder names the attempt that it holds.
ALTER TABLE tasks ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN lease_owner TEXT;
ALTER TABLE tasks ADD COLUMN lease_until TEXT;
ALTER TABLE tasks ADD COLUMN heartbeat_at TEXT;
-- Claims that ended without progress, and the number of the last message, which tells progress.
ALTER TABLE tasks ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN last_seq INTEGER NOT NULL DEFAULT 0;
-- pause, stop or resume, from outside; the holder obeys and clears it.
ALTER TABLE tasks ADD COLUMN requested TEXT;
ALTER TABLE tasks ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN not_before TEXT;
ALTER TABLE tasks ADD COLUMN published_at TEXT;
ALTER TABLE tasks ADD COLUMN outcome TEXT;
ALTER TABLE tasks ADD COLUMN error_code TEXT;
ALTER TABLE tasks ADD COLUMN title TEXT;
ALTER TABLE tasks ADD COLUMN branch TEXT;
ALTER TABLE tasks ADD COLUMN url TEXT;
ALTER TABLE tasks ADD COLUMN parent_uuid TEXT;
-- How far the comments of the issue were read (the forge's own cursor).
ALTER TABLE tasks ADD COLUMN comment_cursor TEXT;
ALTER TABLE tasks ADD COLUMN prompt_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN completion_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN cost DOUBLE PRECISION NOT NULL DEFAULT 0;

-- A table from elsewhere may hold several open rows of one key, left by crashes; only the newest can still be meant.
UPDATE tasks SET status = 'failed', error_code = 'superseded',
    error_message = 'left open by an earlier version, a newer row of the same task exists'
WHERE status IN ('queued', 'running', 'paused') AND EXISTS (
    SELECT 1 FROM tasks AS newer
    WHERE newer.task_source = tasks.task_source AND newer.instance = tasks.instance AND newer.owner = tasks.owner
        AND newer.repo = tasks.repo AND newer.task_type = tasks.task_type AND newer.task_id = tasks.task_id
        AND newer.status IN ('queued', 'running', 'paused')
        AND (newer.created_at > tasks.created_at OR (newer.created_at = tasks.created_at AND newer.uuid > tasks.uuid))
);

-- One open row per task key.
CREATE UNIQUE INDEX idx_tasks_open_key ON tasks(task_source, instance, owner, repo, task_type, task_id)
WHERE status IN ('queued', 'running', 'paused');

-- reported / estimated tokens, learnt per model from the providers' own numbers.
CREATE TABLE token_ratios (
    model TEXT PRIMARY KEY,
    ratio DOUBLE PRECISION NOT NULL,
    samples INTEGER NOT NULL,
    updated_at TEXT NOT NULL
);
