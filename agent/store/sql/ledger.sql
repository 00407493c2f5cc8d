-- Queries of the queue on the rows of `tasks` (taskqueue/ledger.py): enqueue, offer, claim, release, request.  The
-- writes of a task's own process are in tasks.sql.  Times are text parameters made by clock.stamp.  `was` and `attempt`
-- are the values that the caller read, so that a row that has changed since is left unchanged.  CAST gives a parameter
-- that may be NULL its type.

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
-- The lost row of a task, with the values that its folder contains (intake/restore_rows.py).
INSERT INTO tasks (
    uuid, task_source, instance, owner, repo, task_type, task_id, status, created_at, started_at, completed_at, attempt,
    hostname, "user", title, llm_provider, model, context_length, outcome, error_code, error_message, last_seq,
    llm_call_count, tool_call_count, compression_count, total_tokens, prompt_tokens, completion_tokens, cached_tokens,
    cost, priority, parent_uuid, started_by, comment_cursor, branch, url, head_commit, base_commit
) VALUES (
    :uuid, :task_source, :instance, :owner, :repo, :task_type, :task_id, :status, :created_at, :created_at,
    :completed_at, :attempt, :hostname, :user, :title, :llm_provider, :model, :context_length, :outcome, :error_code,
    :error_message, :last_seq, :llm_call_count, :tool_call_count, :compression_count, :total_tokens, :prompt_tokens,
    :completion_tokens, :cached_tokens, :cost, :priority, :parent_uuid, :started_by, :comment_cursor, :branch, :url,
    :head_commit, :base_commit
)
ON CONFLICT DO NOTHING
RETURNING uuid;

-- name: ledger_get
SELECT * FROM tasks WHERE uuid = :uuid;

-- name: ledger_prefix
SELECT uuid FROM tasks WHERE substr(uuid, 1, length(CAST(:prefix AS TEXT))) = :prefix ORDER BY uuid LIMIT 5;

-- name: ledger_list
SELECT * FROM tasks ORDER BY created_at DESC, uuid LIMIT :limit;

-- name: ledger_list_status
-- A query of its own: with `:status IS NULL OR status = :status` SQLite reads every row.
SELECT * FROM tasks WHERE status = :status ORDER BY created_at DESC, uuid LIMIT :limit;

-- name: ledger_running_here
SELECT * FROM tasks WHERE status = 'running' AND hostname = :hostname ORDER BY created_at DESC, uuid;

-- name: ledger_perhaps_dead
SELECT * FROM tasks WHERE status = 'running' AND (hostname = :hostname OR lease_until < :now)
ORDER BY created_at DESC, uuid;

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
-- Reserves the next rows.  Within a priority it goes round robin over (person, repository), first the pair that was
-- served longest ago.  Reserved rows count as running, for the limits.  Rows that another host reserves at the same
-- time are skipped.  The limits are counted once, not for each waiting row.  Of one pair at most as many rows as are
-- reserved can be next, so only the first :depth of each pair are considered.
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
), full_repository AS MATERIALIZED (
    SELECT task_source, instance, owner, repo FROM busy GROUP BY task_source, instance, owner, repo
    HAVING COUNT(*) >= :of_repository
), full_person AS MATERIALIZED (
    SELECT person FROM busy GROUP BY person HAVING COUNT(*) >= :of_person
), first AS MATERIALIZED (
    SELECT free.*, (
        SELECT MAX(taken_at) FROM tasks AS old
        WHERE old.task_source = free.task_source AND old.instance = free.instance AND old.owner = free.owner
            AND old.repo = free.repo AND COALESCE(old."user", '') = free.person
    ) AS last
    FROM free
    WHERE round <= :depth AND (CAST(:limited AS TEXT) IS NULL OR (
        (task_source, instance, owner, repo) NOT IN (SELECT task_source, instance, owner, repo FROM full_repository)
        AND person NOT IN (SELECT person FROM full_person)
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
-- The owner of the reservation does not start the task.
UPDATE tasks SET reserved_by = NULL, reserved_until = NULL, taken_at = started_at
WHERE uuid = :uuid AND status = 'queued' AND reserved_by = :owner
RETURNING uuid;

-- name: ledger_give_up_all
-- The reservations of an earlier daemon of this place.
UPDATE tasks SET reserved_by = NULL, reserved_until = NULL, taken_at = started_at
WHERE status = 'queued' AND reserved_by IS NOT NULL AND substr(reserved_by, 1, length(CAST(:place AS TEXT))) = :place
RETURNING uuid;

-- name: ledger_offer
UPDATE tasks SET not_before = NULL WHERE uuid = :uuid AND status = 'queued' RETURNING uuid;

-- name: ledger_withdraw
-- Only while the row is delayed: after the offer a worker may already start it.
DELETE FROM tasks WHERE uuid = :uuid AND status = 'queued' AND attempt = 0 AND not_before IS NOT NULL RETURNING uuid;

-- name: ledger_publish
-- Rows for the broker, each returned to one caller: not published since they were queued, or published before :before.
-- Rows that wait for publication on the forge are left out: their work is on one host, which reserves them in the
-- ledger (worker/unpublished_work.py).
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
-- Removes the error of an earlier attempt, unless it belongs to a stored end (agent/worker/final_state.py).
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
-- Puts a row into the queue: released by its holder, resumed by a person, or left by a dead holder.  Ends any request.
UPDATE tasks SET status = 'queued', lease_owner = NULL, lease_until = NULL, published_at = NULL, not_before = :not_before,
    requested = :requested, deaths = :deaths
WHERE uuid = :uuid AND status = :was AND attempt = :attempt AND COALESCE(lease_until, '') = :lease_until
RETURNING uuid;

-- name: ledger_catch_up
-- Adds the tool calls of a dead holder since it last wrote its counters.
UPDATE tasks SET tool_call_count = :tool_calls
WHERE uuid = :uuid AND status = :was AND attempt = :attempt AND tool_call_count < :tool_calls
RETURNING uuid;

-- name: ledger_pause
-- Keeps the outcome of a row with work on one host that waits for publication or notification.
UPDATE tasks SET status = 'paused', lease_owner = NULL, lease_until = NULL, requested = NULL, reserved_until = NULL,
    outcome = CASE WHEN outcome = 'publishing' OR outcome LIKE 'ending %' THEN outcome ELSE :outcome END
WHERE uuid = :uuid AND status = :was AND attempt = :attempt
RETURNING uuid;

-- name: ledger_end
-- Closes a row without its worker, so another process has to notify people: tell_at.  The reason of an earlier wait is
-- removed from the outcome, and for a stop from the error too.
UPDATE tasks SET status = :status, completed_at = :now, tell_at = :now, remember_at = :remember_at, lease_owner = NULL,
    lease_until = NULL, requested = NULL, deaths = :deaths, outcome = :outcome,
    error_code = COALESCE(:error_code, CASE WHEN :status <> 'stopped' THEN error_code END),
    error_message = COALESCE(:error_message, CASE WHEN :status <> 'stopped' THEN error_message END)
WHERE uuid = :uuid AND status = :was AND attempt = :attempt AND COALESCE(lease_until, '') = :lease_until
RETURNING uuid;

-- name: ledger_ask
UPDATE tasks SET requested = :requested
WHERE uuid = :uuid AND status = :was AND attempt = :attempt
RETURNING uuid;

-- name: ledger_requested_by
UPDATE tasks SET requested_by = CAST(:who AS TEXT) WHERE uuid = :uuid RETURNING uuid;

-- name: ledger_obeyed
UPDATE tasks SET obeyed = :obeyed WHERE uuid = :uuid RETURNING uuid;

-- name: ledger_watched
-- The newest row of each key of one forge, unless it is running or ended before :since.
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
-- Moves the rows of the instance :old to :new, except those with a key that :new already has.
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
-- One process at a time sends the notification. It has time until :later.
UPDATE tasks SET tell_at = :later WHERE uuid = :uuid AND tell_at <= :now RETURNING uuid;

-- name: ledger_told
UPDATE tasks SET tell_at = NULL WHERE uuid = :uuid AND tell_at = :until RETURNING uuid;

-- name: ledger_to_tell
-- Makes a notification due for a row without a worker.  A worker that claims the row shows its state itself.
UPDATE tasks SET tell_at = :now WHERE uuid = :uuid RETURNING uuid;

-- name: ledger_tell_again
-- An older attempt may have shown something else after the notification.  A worker shows the state of its row itself.
UPDATE tasks SET tell_at = :now WHERE uuid = :uuid AND status <> 'running' RETURNING uuid;

-- name: ledger_unremembered
-- Of one host, whose disk has the folders of its tasks, or of all.
SELECT * FROM tasks
WHERE remember_at <= :now AND (CAST(:hostname AS TEXT) IS NULL OR hostname = :hostname)
ORDER BY remember_at, uuid
LIMIT :limit;

-- name: ledger_remembering
-- One process at a time does the job. It has time until :later.
UPDATE tasks SET remember_at = :later WHERE uuid = :uuid AND remember_at <= :now RETURNING uuid;

-- name: ledger_remember_later
UPDATE tasks SET remember_at = :later WHERE uuid = :uuid AND remember_at = :until RETURNING uuid;

-- name: ledger_remembered
UPDATE tasks SET remember_at = NULL WHERE uuid = :uuid AND remember_at = :until RETURNING uuid;

-- name: ledger_remember_again
UPDATE tasks SET remember_at = :now WHERE uuid = :uuid AND status IN ('completed', 'failed', 'stopped') RETURNING uuid;

-- name: ledger_pull_seen
-- A task that was never claimed has nothing to remember.
UPDATE tasks SET pull_state = :state, remember_at = :now
WHERE uuid = :uuid AND status IN ('completed', 'failed', 'stopped') AND attempt > 0 AND COALESCE(pull_state, '') <> :state
RETURNING uuid;

-- name: ledger_count_memory
-- The requests for long-term memory beyond the first :was, which the counters include already.
UPDATE tasks SET llm_call_count = COALESCE(llm_call_count, 0) + :requests,
    other_call_count = other_call_count + :requests, total_tokens = COALESCE(total_tokens, 0) + :tokens,
    prompt_tokens = prompt_tokens + :prompt, completion_tokens = completion_tokens + :completion,
    cached_tokens = cached_tokens + :cached, estimated_tokens = estimated_tokens + :estimated, cost = cost + :cost,
    memory_requests = memory_requests + :requests
WHERE uuid = :uuid AND memory_requests = :was
RETURNING uuid;

-- name: ledger_counts
SELECT status, COUNT(*) AS count FROM tasks GROUP BY status;

-- name: ledger_groups
-- `since`: the time when the oldest row got its status. A delayed row waits from the time when it is due.
SELECT status, COALESCE(hostname, '') AS host, COUNT(*) AS count, MIN(CASE status
    WHEN 'queued' THEN CASE WHEN not_before > COALESCE(heartbeat_at, created_at) THEN not_before
        ELSE COALESCE(heartbeat_at, created_at) END
    WHEN 'running' THEN COALESCE(taken_at, started_at)
    WHEN 'paused' THEN COALESCE(heartbeat_at, created_at)
END) AS since
FROM tasks GROUP BY status, COALESCE(hostname, '') ORDER BY status, host;

-- name: ledger_heard_of
-- The time of the last write of a host that a row contains.
SELECT MAX(COALESCE(heartbeat_at, completed_at, started_at, created_at)) AS at FROM tasks WHERE hostname = :hostname;

-- name: ledger_today
-- A run belongs to the day on which it starts. One that waits to start counts for today.
SELECT
    COALESCE(SUM(CASE WHEN started_at >= :day OR (started_at IS NULL AND status IN ('queued', 'paused'))
        THEN 1 ELSE 0 END), 0) AS runs,
    COALESCE(SUM(CASE WHEN started_at >= :day OR heartbeat_at >= :day OR completed_at >= :day
        THEN cost ELSE 0 END), 0) AS cost
FROM tasks
WHERE instance = :instance AND owner = :owner AND repo = :repo
    AND (CAST(:source AS TEXT) IS NULL OR task_source = :source);

-- name: ledger_ahead
-- Rows that wait for a time that was set while a clock was ahead.
SELECT uuid FROM tasks
WHERE (status = 'queued' AND not_before > :later AND COALESCE(heartbeat_at, created_at) > :later) OR tell_at > :tell
    OR remember_at > :tell;

-- name: ledger_soon
UPDATE tasks SET not_before = CASE WHEN status = 'queued' AND not_before > :soon THEN :soon ELSE not_before END,
    tell_at = CASE WHEN tell_at > :tell THEN :now ELSE tell_at END,
    remember_at = CASE WHEN remember_at > :tell THEN :now ELSE remember_at END
WHERE uuid = :uuid RETURNING uuid;
