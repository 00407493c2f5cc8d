-- Queries of the page (agent/dashboard/).  They only read.  A parameter that is NULL selects nothing out.
-- for each column: created_at, status, title, total_tokens, cost, heartbeat_at
-- for each direction: asc, desc

-- name: page_tasks_{column}_{direction}
SELECT * FROM tasks
WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)
    AND (CAST(:host AS TEXT) IS NULL OR hostname = :host)
    AND (CAST(:repository AS TEXT) IS NULL OR owner || '/' || repo = :repository)
    AND (CAST(:text AS TEXT) IS NULL OR LOWER(
        uuid || ' ' || COALESCE(title, '') || ' ' || owner || '/' || repo || '#' || task_id || ' ' || COALESCE("user", '')
        || ' ' || COALESCE(branch, '') || ' ' || COALESCE(error_code, '') || ' ' || COALESCE(url, '')
    ) LIKE :text ESCAPE '!')
ORDER BY {column} {direction}, uuid
LIMIT :limit OFFSET :offset;

-- name: page_count
SELECT status, COUNT(*) AS count FROM tasks
WHERE (CAST(:host AS TEXT) IS NULL OR hostname = :host)
    AND (CAST(:repository AS TEXT) IS NULL OR owner || '/' || repo = :repository)
    AND (CAST(:text AS TEXT) IS NULL OR LOWER(
        uuid || ' ' || COALESCE(title, '') || ' ' || owner || '/' || repo || '#' || task_id || ' ' || COALESCE("user", '')
        || ' ' || COALESCE(branch, '') || ' ' || COALESCE(error_code, '') || ' ' || COALESCE(url, '')
    ) LIKE :text ESCAPE '!')
GROUP BY status;

-- name: page_hosts
SELECT DISTINCT hostname FROM tasks WHERE hostname IS NOT NULL ORDER BY hostname LIMIT 200;

-- name: page_repositories
SELECT DISTINCT owner, repo FROM tasks ORDER BY owner, repo LIMIT 200;

-- name: page_errors
SELECT uuid, title, status, error_code, error_message, COALESCE(completed_at, heartbeat_at, created_at) AS at FROM tasks
WHERE error_code IS NOT NULL OR error_message IS NOT NULL
ORDER BY COALESCE(completed_at, heartbeat_at, created_at) DESC
LIMIT :limit;

-- name: page_days
SELECT substr(COALESCE(completed_at, started_at), 1, 10) AS day, COUNT(*) AS count, SUM(cost) AS cost FROM tasks
WHERE COALESCE(completed_at, started_at) >= :since
GROUP BY substr(COALESCE(completed_at, started_at), 1, 10) ORDER BY 1;

-- name: page_times
SELECT created_at, started_at, completed_at FROM tasks
WHERE completed_at IS NULL OR completed_at >= :since
LIMIT 100000;

-- name: page_state
-- Sums that differ after a change that people look at, for ledgers that have no counter of changes.
SELECT COUNT(*) AS count, MAX(created_at) AS created, MAX(completed_at) AS completed, MAX(heartbeat_at) AS heartbeat,
    SUM(CASE WHEN requested IS NULL THEN 0 ELSE 1 END) AS requests, SUM(llm_call_count) AS calls,
    SUM(CASE status WHEN 'queued' THEN 1 WHEN 'running' THEN 1000 WHEN 'paused' THEN 1000000 ELSE 0 END) AS statuses
FROM tasks;
