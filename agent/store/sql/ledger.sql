-- The rows of `tasks` as the queue sees them (taskqueue/ledger.py): put, offer, claim, give back, ask.  What a task's own
-- process writes is in tasks.sql.  Times are text parameters made by clock.stamp; `was` and `attempt` are what the caller
-- saw, so that a row that moved meanwhile is left alone.  CAST gives a parameter that may be NULL its type.

-- name: ledger_put
INSERT INTO tasks (
    uuid, task_source, instance, owner, repo, task_type, task_id, status, created_at, "user", title, priority,
    not_before, parent_uuid, llm_provider, model, started_by
) VALUES (
    :uuid, :task_source, :instance, :owner, :repo, :task_type, :task_id, 'queued', :now, :user, :title, :priority,
    :not_before, :parent_uuid, :provider, :model, :started_by
)
ON CONFLICT DO NOTHING
RETURNING uuid;

-- name: ledger_restore
-- The row of a folder that has none, from what the folder says (run/restore.py).
INSERT INTO tasks (
    uuid, task_source, instance, owner, repo, task_type, task_id, status, created_at, started_at, completed_at, attempt,
    hostname, "user", title, llm_provider, model, context_length, outcome, error_code, error_message, last_seq,
    llm_call_count, tool_call_count, compression_count, total_tokens, prompt_tokens, completion_tokens, cached_tokens
) VALUES (
    :uuid, :task_source, :instance, :owner, :repo, :task_type, :task_id, :status, :created_at, :created_at,
    :completed_at, 1, :hostname, :user, :title, :llm_provider, :model, :context_length, :outcome, :error_code,
    :error_message, :last_seq, :llm_call_count, :tool_call_count, :compression_count, :total_tokens, :prompt_tokens,
    :completion_tokens, :cached_tokens
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

-- name: ledger_running_here
SELECT * FROM tasks WHERE status = 'running' AND hostname = :hostname ORDER BY created_at DESC, uuid;

-- name: ledger_overdue
SELECT * FROM tasks WHERE status = 'running' AND lease_until < :now ORDER BY created_at DESC, uuid;

-- name: ledger_paused_for
SELECT * FROM tasks WHERE status = 'paused' AND outcome = :outcome ORDER BY created_at DESC, uuid;

-- name: ledger_latest
SELECT * FROM tasks
WHERE task_source = :task_source AND instance = :instance AND owner = :owner AND repo = :repo
    AND task_type = :task_type AND task_id = :task_id
ORDER BY created_at DESC, uuid
LIMIT 1;

-- name: ledger_due
SELECT uuid FROM tasks
WHERE status = 'queued' AND (not_before IS NULL OR not_before <= :now)
    AND (reserved_until IS NULL OR reserved_until <= :now)
    AND (CAST(:outcome AS TEXT) IS NULL OR outcome = :outcome)
ORDER BY priority DESC, created_at, uuid
LIMIT :limit;

-- name: ledger_take
-- Reserves the next rows: within a priority round robin over (person, repository), that pair first which was last served
-- longest ago.  What is reserved counts as running, for the limits.  Rows that another host reserves at this moment are passed over.
-- Of one pair no more rows can be next than are taken, so that of thousands only :depth are looked at.
WITH free AS (
    SELECT uuid, priority, created_at, task_source, instance, owner, repo, COALESCE("user", '') AS person,
        ROW_NUMBER() OVER (
            PARTITION BY priority, task_source, instance, owner, repo, COALESCE("user", '') ORDER BY created_at, uuid
        ) AS round
    FROM tasks
    WHERE status = 'queued' AND (not_before IS NULL OR not_before <= :now)
        AND (reserved_until IS NULL OR reserved_until <= :now)
        AND (CAST(:outcome AS TEXT) IS NULL OR outcome = :outcome)
        AND CAST(:without AS TEXT) NOT LIKE '%' || uuid || '%'
), busy AS MATERIALIZED (
    SELECT task_source, instance, owner, repo, COALESCE("user", '') AS person, server FROM tasks
    WHERE CAST(:limited AS TEXT) IS NOT NULL AND (status = 'running' OR (status = 'queued' AND reserved_until > :now))
), first AS MATERIALIZED (
    SELECT free.*, (
        SELECT MAX(taken_at) FROM tasks AS old
        WHERE old.task_source = free.task_source AND old.instance = free.instance AND old.owner = free.owner
            AND old.repo = free.repo AND COALESCE(old."user", '') = free.person
    ) AS last
    FROM free
    WHERE round <= :depth AND (CAST(:limited AS TEXT) IS NULL OR (
        (SELECT COUNT(*) FROM busy WHERE busy.task_source = free.task_source AND busy.instance = free.instance
            AND busy.owner = free.owner AND busy.repo = free.repo) < :of_repository
        AND (SELECT COUNT(*) FROM busy WHERE busy.person = free.person) < :of_person
        AND (SELECT COUNT(*) FROM busy WHERE busy.server = :server) < :of_server
    ))
), next AS MATERIALIZED (
    SELECT one.uuid FROM tasks AS one JOIN first ON first.uuid = one.uuid
    WHERE one.status = 'queued' AND (one.reserved_until IS NULL OR one.reserved_until <= :now)
    ORDER BY first.priority DESC, first.round, COALESCE(first.last, ''), first.created_at, first.uuid
    LIMIT :limit
    -- postgresql: FOR UPDATE OF one SKIP LOCKED
)
UPDATE tasks SET reserved_by = :owner, reserved_until = :until, server = :server, taken_at = :now
WHERE uuid IN (SELECT uuid FROM next)
RETURNING uuid, priority, created_at;

-- name: ledger_give_up
-- Who reserved it does not start it after all.
UPDATE tasks SET reserved_by = NULL, reserved_until = NULL, taken_at = started_at
WHERE uuid = :uuid AND status = 'queued' AND reserved_by = :owner
RETURNING uuid;

-- name: ledger_give_up_all
-- What an earlier daemon of this place had reserved.
UPDATE tasks SET reserved_by = NULL, reserved_until = NULL, taken_at = started_at
WHERE status = 'queued' AND reserved_by IS NOT NULL AND substr(reserved_by, 1, length(CAST(:place AS TEXT))) = :place
RETURNING uuid;

-- name: ledger_offer
UPDATE tasks SET not_before = NULL WHERE uuid = :uuid AND status = 'queued' RETURNING uuid;

-- name: ledger_withdraw
-- Only while it is held back: once it was offered, somebody counts on it.
DELETE FROM tasks WHERE uuid = :uuid AND status = 'queued' AND attempt = 0 AND not_before IS NOT NULL RETURNING uuid;

-- name: ledger_publish
-- Rows for the broker, each handed to one caller: never published since they were queued, or before :before.  Not those
-- that wait to be published on the forge: what they need lies on one host, which takes them from here (run/later.py).
UPDATE tasks SET published_at = :now
WHERE status = 'queued' AND (published_at IS NULL OR published_at < :before) AND uuid IN (
    SELECT uuid FROM tasks
    WHERE status = 'queued' AND (not_before IS NULL OR not_before <= :now)
        AND (published_at IS NULL OR published_at < :before) AND COALESCE(outcome, '') <> 'publishing'
    ORDER BY priority DESC, created_at, uuid
    LIMIT :limit
)
RETURNING *;

-- name: ledger_claim
-- Errors of an earlier attempt go, unless they are those of an end that is kept already (agent/run/ending.py).
UPDATE tasks SET status = 'running', attempt = attempt + 1, lease_owner = :owner, lease_until = :lease_until,
    started_at = COALESCE(started_at, :now), heartbeat_at = :now, process_id = :process_id, hostname = :hostname,
    error_code = CASE WHEN outcome LIKE 'ending %' THEN error_code END,
    error_message = CASE WHEN outcome LIKE 'ending %' THEN error_message END,
    progress_at_claim = COALESCE(llm_call_count, 0) + COALESCE(tool_call_count, 0), tell_at = NULL,
    reserved_by = NULL, reserved_until = NULL, taken_at = :now
WHERE uuid = :uuid AND status = 'queued' AND (not_before IS NULL OR not_before <= :now)
RETURNING *;

-- name: ledger_beat
UPDATE tasks SET heartbeat_at = :now, lease_until = :lease_until
WHERE uuid = :uuid AND attempt = :attempt AND status = 'running'
RETURNING requested;

-- name: ledger_requested
SELECT requested FROM tasks WHERE uuid = :uuid;

-- name: ledger_queue
-- Back to the queue: given back by its holder, resumed by a person, or left by a dead one.  What was asked is done now.
UPDATE tasks SET status = 'queued', lease_owner = NULL, lease_until = NULL, published_at = NULL, not_before = :not_before,
    requested = :requested, deaths = :deaths
WHERE uuid = :uuid AND status = :was AND attempt = :attempt AND COALESCE(lease_until, '') = :lease_until
RETURNING uuid;

-- name: ledger_catch_up
-- The tool calls that a dead holder made since it last wrote its counters.
UPDATE tasks SET tool_call_count = :tool_calls
WHERE uuid = :uuid AND status = :was AND attempt = :attempt AND tool_call_count < :tool_calls
RETURNING uuid;

-- name: ledger_pause
-- What lies on one host to be published or told is still there, whoever pauses it.
UPDATE tasks SET status = 'paused', lease_owner = NULL, lease_until = NULL, requested = NULL, reserved_until = NULL,
    outcome = CASE WHEN outcome = 'publishing' OR outcome LIKE 'ending %' THEN outcome ELSE :outcome END
WHERE uuid = :uuid AND status = :was AND attempt = :attempt
RETURNING uuid;

-- name: ledger_end
-- Nobody who works on the task closes it, so somebody else tells the person: tell_at.  Why it once waited is no outcome,
-- and none of the reasons for a stop.
UPDATE tasks SET status = :status, completed_at = :now, tell_at = :now, lease_owner = NULL, lease_until = NULL,
    requested = NULL, deaths = :deaths, outcome = :outcome,
    error_code = COALESCE(:error_code, CASE WHEN :status <> 'stopped' THEN error_code END),
    error_message = COALESCE(:error_message, CASE WHEN :status <> 'stopped' THEN error_message END)
WHERE uuid = :uuid AND status = :was AND attempt = :attempt AND COALESCE(lease_until, '') = :lease_until
RETURNING uuid;

-- name: ledger_ask
UPDATE tasks SET requested = :requested
WHERE uuid = :uuid AND status = :was AND attempt = :attempt
RETURNING uuid;

-- name: ledger_obeyed
UPDATE tasks SET obeyed = :obeyed WHERE uuid = :uuid RETURNING uuid;

-- name: ledger_watched
-- The newest row of each key of one place, unless a worker has it, or it ended before :since.
SELECT * FROM tasks AS one
WHERE task_source = :source AND instance = :instance AND (
    status IN ('queued', 'paused') OR (status IN ('completed', 'failed', 'stopped') AND completed_at >= :since)
) AND NOT EXISTS (
    SELECT 1 FROM tasks AS newer
    WHERE newer.task_source = one.task_source AND newer.instance = one.instance AND newer.owner = one.owner
        AND newer.repo = one.repo AND newer.task_type = one.task_type AND newer.task_id = one.task_id
        AND (newer.created_at > one.created_at OR (newer.created_at = one.created_at AND newer.uuid < one.uuid))
)
ORDER BY created_at DESC, uuid;

-- name: ledger_follow
-- What is known at :old is known at :new from now on, but not where that place has an open task of the same key already.
UPDATE tasks SET instance = :new
WHERE task_source = :source AND instance = :old AND NOT EXISTS (
    SELECT 1 FROM tasks AS other
    WHERE other.task_source = tasks.task_source AND other.instance = :new AND other.owner = tasks.owner
        AND other.repo = tasks.repo AND other.task_type = tasks.task_type AND other.task_id = tasks.task_id
)
RETURNING uuid;

-- name: ledger_open_instances
SELECT task_source, instance, COUNT(*) AS count FROM tasks WHERE status IN ('queued', 'running', 'paused')
GROUP BY task_source, instance ORDER BY task_source, instance;

-- name: ledger_untold
SELECT * FROM tasks WHERE tell_at <= :now ORDER BY tell_at LIMIT :limit;

-- name: ledger_telling
-- One teller at a time: who gets the row has until :later.
UPDATE tasks SET tell_at = :later WHERE uuid = :uuid AND tell_at <= :now RETURNING uuid;

-- name: ledger_told
UPDATE tasks SET tell_at = NULL WHERE uuid = :uuid AND tell_at = :until RETURNING uuid;

-- name: ledger_to_tell
-- What became of a row that nobody works on is shown on the issue.  Who claims it shows it himself.
UPDATE tasks SET tell_at = :now WHERE uuid = :uuid RETURNING uuid;

-- name: ledger_tell_again
-- An older attempt may have shown something after what became of the row was shown.  Who works on it shows it himself.
UPDATE tasks SET tell_at = :now WHERE uuid = :uuid AND status <> 'running' RETURNING uuid;

-- name: ledger_counts
SELECT status, COUNT(*) AS count FROM tasks GROUP BY status;

-- name: ledger_groups
-- Since when the oldest of them is in its status: what waits is waiting from when it is due.
SELECT status, COALESCE(hostname, '') AS host, COUNT(*) AS count, MIN(CASE status
    WHEN 'queued' THEN CASE WHEN not_before > COALESCE(heartbeat_at, created_at) THEN not_before
        ELSE COALESCE(heartbeat_at, created_at) END
    WHEN 'running' THEN COALESCE(taken_at, started_at)
    WHEN 'paused' THEN COALESCE(heartbeat_at, created_at)
END) AS since
FROM tasks GROUP BY status, COALESCE(hostname, '') ORDER BY status, host;

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

-- name: ledger_ahead
-- Rows whose times a clock has set that was ahead, and that wait for them.
SELECT uuid FROM tasks
WHERE (status = 'queued' AND not_before > :later AND COALESCE(heartbeat_at, created_at) > :later) OR tell_at > :tell;

-- name: ledger_soon
UPDATE tasks SET not_before = CASE WHEN status = 'queued' AND not_before > :soon THEN :soon ELSE not_before END,
    tell_at = CASE WHEN tell_at > :tell THEN :now ELSE tell_at END
WHERE uuid = :uuid RETURNING uuid;
