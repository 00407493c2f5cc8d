-- Extraction jobs (agent/memory/store.py).

-- name: job_list
SELECT * FROM memory_jobs WHERE :status IS NULL OR status = :status ORDER BY created_at, id;

-- name: job_restart
UPDATE memory_jobs SET status = 'queued', attempts = 0, error = '', updated_at = :now, lease_owner = NULL,
    lease_until = NULL
WHERE id = :id AND status = 'failed'
RETURNING id;

-- name: jobs_by_status
SELECT status, COUNT(*) AS jobs FROM memory_jobs GROUP BY status ORDER BY status;

-- name: job_put
-- A job of a memory that had its own ledger.
INSERT INTO memory_jobs (
    id, actor_id, session_id, strategy, status, attempts, error, created_at, updated_at, lease_owner, lease_until
) VALUES (:id, :actor_id, :session_id, :strategy, :status, :attempts, :error, :created_at, :updated_at, NULL, NULL)
ON CONFLICT (id) DO NOTHING;

-- name: job_error_clear
UPDATE memory_jobs SET error = '' WHERE id = :id;

-- name: job_delete
DELETE FROM memory_jobs WHERE id = :id;

-- name: job_begin
-- A job that had failed begins again with its first try; one that is done does not begin.
INSERT INTO memory_jobs (
    id, actor_id, session_id, strategy, status, attempts, error, created_at, updated_at, lease_owner, lease_until
) VALUES (:id, :actor_id, :session_id, :strategy, 'running', 1, '', :now, :now, :owner, :until)
ON CONFLICT (id) DO UPDATE SET status = 'running', updated_at = :now, lease_owner = :owner, lease_until = :until,
    attempts = CASE WHEN memory_jobs.status = 'failed' THEN 1 ELSE memory_jobs.attempts + 1 END
    WHERE memory_jobs.status <> 'done'
RETURNING attempts;

-- name: job_end
UPDATE memory_jobs SET status = :status, error = :error, attempts = attempts - :less, updated_at = :now,
    lease_owner = NULL, lease_until = NULL
WHERE id = :id
RETURNING id;
