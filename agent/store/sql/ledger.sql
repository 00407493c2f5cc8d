-- The rows of `tasks` as the queue sees them (taskqueue/ledger.py): put, offer, claim, give back, ask.  What a task's own
-- process writes is in tasks.sql.  Times are text parameters made by clock.stamp; `was` and `attempt` are what the caller
-- saw, so that a row that moved meanwhile is left alone.  CAST gives a parameter that may be NULL its type.

-- name: ledger_put
INSERT INTO tasks (
    uuid, task_source, instance, owner, repo, task_type, task_id, status, created_at, "user", title, priority,
    not_before, parent_uuid, llm_provider, model
) VALUES (
    :uuid, :task_source, :instance, :owner, :repo, :task_type, :task_id, 'queued', :now, :user, :title, :priority,
    :not_before, :parent_uuid, :provider, :model
)
ON CONFLICT DO NOTHING
RETURNING uuid;

-- name: ledger_get
SELECT * FROM tasks WHERE uuid = :uuid;

-- name: ledger_prefix
SELECT uuid FROM tasks WHERE substr(uuid, 1, length(CAST(:prefix AS TEXT))) = :prefix ORDER BY uuid LIMIT 5;

-- name: ledger_list
SELECT * FROM tasks
WHERE CAST(:status AS TEXT) IS NULL OR status = :status
ORDER BY created_at DESC, uuid
LIMIT :limit;

-- name: ledger_latest
SELECT * FROM tasks
WHERE task_source = :task_source AND instance = :instance AND owner = :owner AND repo = :repo
    AND task_type = :task_type AND task_id = :task_id
ORDER BY created_at DESC, uuid
LIMIT 1;

-- name: ledger_due
SELECT uuid FROM tasks
WHERE status = 'queued' AND (not_before IS NULL OR not_before <= :now)
ORDER BY priority DESC, created_at, uuid
LIMIT :limit;

-- name: ledger_offer
UPDATE tasks SET not_before = NULL WHERE uuid = :uuid AND status = 'queued' RETURNING uuid;

-- name: ledger_withdraw
DELETE FROM tasks WHERE uuid = :uuid AND status = 'queued' AND attempt = 0 RETURNING uuid;

-- name: ledger_publish
-- Rows for the broker, each handed to one caller: never published since they were queued, or before :before.
UPDATE tasks SET published_at = :now
WHERE status = 'queued' AND (published_at IS NULL OR published_at < :before) AND uuid IN (
    SELECT uuid FROM tasks
    WHERE status = 'queued' AND (not_before IS NULL OR not_before <= :now)
        AND (published_at IS NULL OR published_at < :before)
    ORDER BY priority DESC, created_at, uuid
    LIMIT :limit
)
RETURNING *;

-- name: ledger_claim
UPDATE tasks SET status = 'running', attempt = attempt + 1, lease_owner = :owner, lease_until = :lease_until,
    started_at = COALESCE(started_at, :now), heartbeat_at = :now, process_id = :process_id, hostname = :hostname,
    progress_at_claim = COALESCE(llm_call_count, 0) + COALESCE(tool_call_count, 0)
WHERE uuid = :uuid AND status = 'queued' AND (not_before IS NULL OR not_before <= :now)
RETURNING *;

-- name: ledger_beat
UPDATE tasks SET heartbeat_at = :now, lease_until = :lease_until
WHERE uuid = :uuid AND attempt = :attempt AND status = 'running'
RETURNING requested;

-- name: ledger_requested
SELECT requested FROM tasks WHERE uuid = :uuid;

-- name: ledger_queue
-- Back to the queue: given back by its holder, resumed by a person, or left by a dead one.
UPDATE tasks SET status = 'queued', lease_owner = NULL, lease_until = NULL, published_at = NULL, not_before = :not_before,
    requested = :requested, deaths = :deaths
WHERE uuid = :uuid AND status = :was AND attempt = :attempt AND COALESCE(lease_until, '') = :lease_until
RETURNING uuid;

-- name: ledger_pause
UPDATE tasks SET status = 'paused', lease_owner = NULL, lease_until = NULL, requested = NULL, outcome = :outcome
WHERE uuid = :uuid AND status = :was AND attempt = :attempt
RETURNING uuid;

-- name: ledger_end
UPDATE tasks SET status = :status, completed_at = :now, lease_owner = NULL, lease_until = NULL, requested = NULL,
    deaths = :deaths, outcome = COALESCE(:outcome, outcome), error_code = COALESCE(:error_code, error_code),
    error_message = COALESCE(:error_message, error_message)
WHERE uuid = :uuid AND status = :was AND attempt = :attempt AND COALESCE(lease_until, '') = :lease_until
RETURNING uuid;

-- name: ledger_ask
UPDATE tasks SET requested = :requested
WHERE uuid = :uuid AND status = :was AND attempt = :attempt
RETURNING uuid;

-- name: ledger_count_running
SELECT COUNT(*) AS count FROM tasks
WHERE status = 'running' AND substr(COALESCE(lease_owner, ''), 1, length(CAST(:prefix AS TEXT))) = :prefix;

-- name: ledger_counts
SELECT status, COUNT(*) AS count FROM tasks GROUP BY status;

-- name: ledger_today
-- A run belongs to the day on which it starts, and one that waits to start will start today.
SELECT
    COALESCE(SUM(CASE WHEN started_at >= :day OR (started_at IS NULL AND status IN ('queued', 'paused'))
        THEN 1 ELSE 0 END), 0) AS runs,
    COALESCE(SUM(CASE WHEN started_at >= :day OR heartbeat_at >= :day OR completed_at >= :day
        THEN cost ELSE 0 END), 0) AS cost
FROM tasks
WHERE instance = :instance AND owner = :owner AND repo = :repo
    AND (CAST(:source AS TEXT) IS NULL OR task_source = :source);
