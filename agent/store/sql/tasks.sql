-- Queries of a task's own process on its row of `tasks` (context/task_row.py).  Claims, leases of others and the queue
-- are in ledger.sql.  Times are text parameters, made by clock.stamp.  The attempt fences every write.

-- name: task_register
INSERT INTO tasks (
    uuid, task_source, instance, owner, repo, task_type, task_id, status, created_at, started_at, heartbeat_at,
    lease_owner, lease_until, attempt, process_id, hostname, llm_provider, model, context_length, "user", title
) VALUES (
    :uuid, :task_source, :instance, :owner, :repo, :task_type, :task_id, 'running', :now, :now, :now,
    :lease_owner, :lease_until, 1, :process_id, :hostname, :llm_provider, :model, :context_length, :user, :title
)
ON CONFLICT DO NOTHING
RETURNING attempt;

-- name: task_get
SELECT * FROM tasks WHERE uuid = :uuid;

-- name: task_open_of_key
SELECT uuid, status FROM tasks
WHERE task_source = :task_source AND instance = :instance AND owner = :owner AND repo = :repo
    AND task_type = :task_type AND task_id = :task_id AND status IN ('queued', 'running', 'paused');

-- name: task_take
-- The process with the folder's lock takes a row that was not claimed through the ledger.
UPDATE tasks SET status = 'running', attempt = attempt + 1, requested = NULL, completed_at = NULL,
    error_message = NULL, error_code = NULL, lease_owner = :lease_owner, lease_until = :lease_until
WHERE uuid = :uuid AND status IN ('queued', 'running', 'paused')
RETURNING attempt;

-- name: task_started
-- Records the process that works on the task, and its model.
UPDATE tasks SET started_at = COALESCE(started_at, :now), heartbeat_at = :now, process_id = :process_id,
    hostname = :hostname, llm_provider = :llm_provider, model = :model, context_length = :context_length,
    "user" = COALESCE("user", :user), title = COALESCE(title, :title)
WHERE uuid = :uuid AND attempt = :attempt AND status = 'running'
RETURNING attempt;

-- name: task_beat
UPDATE tasks SET heartbeat_at = :now, lease_until = :lease_until, last_seq = :last_seq,
    llm_call_count = :llm_call_count, tool_call_count = :tool_call_count, compression_count = :compression_count,
    total_tokens = :total_tokens, prompt_tokens = :prompt_tokens, completion_tokens = :completion_tokens,
    cached_tokens = :cached_tokens, cost = :cost
WHERE uuid = :uuid AND attempt = :attempt AND status = 'running'
RETURNING requested;

-- name: task_requests
-- The share of the counters from requests outside the conversation, and from estimates without a server's report.
UPDATE tasks SET other_call_count = :other_call_count, estimated_tokens = :estimated_tokens
WHERE uuid = :uuid AND attempt = :attempt
RETURNING status;

-- name: task_status
UPDATE tasks SET status = :status, error_message = COALESCE(:error_message, error_message),
    error_code = COALESCE(:error_code, error_code), completed_at = :completed_at
WHERE uuid = :uuid AND attempt = :attempt
RETURNING status;

-- name: task_add_statistics
-- `update_statistics` of docs/design/context.md, 4.1.
UPDATE tasks SET llm_call_count = llm_call_count + :llm_calls, tool_call_count = tool_call_count + :tool_calls,
    total_tokens = total_tokens + :tokens, compression_count = compression_count + :compressions
WHERE uuid = :uuid AND attempt = :attempt
RETURNING status;

-- name: task_close
-- Writes the outcome of the end, which replaces the reason of an earlier wait.
UPDATE tasks SET status = :status, completed_at = :now, tell_at = :tell_at, remember_at = :remember_at,
    requested = NULL, lease_owner = NULL, lease_until = NULL, error_message = :error_message, error_code = :error_code,
    outcome = :outcome, title = COALESCE(:title, title), last_seq = :last_seq,
    llm_call_count = :llm_call_count, tool_call_count = :tool_call_count, compression_count = :compression_count,
    total_tokens = :total_tokens, prompt_tokens = :prompt_tokens, completion_tokens = :completion_tokens,
    cached_tokens = :cached_tokens, cost = :cost
WHERE uuid = :uuid AND attempt = :attempt AND status IN ('queued', 'running', 'paused')
RETURNING status;

-- name: task_pause
-- A request of a person in the meantime has priority over the reason: a stop ends the task, a pause replaces the
-- reason. The process that pauses the task notifies people until tell_at. The daemon notifies them of a stop.
-- worker/handler.py stores a decided end.
UPDATE tasks SET status = CASE WHEN requested = 'stop' THEN 'stopped' ELSE 'paused' END,
    completed_at = CASE WHEN requested = 'stop' THEN :now ELSE completed_at END,
    tell_at = CASE WHEN requested = 'stop' THEN :now ELSE CAST(:tell_at AS TEXT) END,
    remember_at = CASE WHEN requested = 'stop' THEN CAST(:remember_at AS TEXT) ELSE remember_at END,
    outcome = CASE requested WHEN 'stop' THEN 'stopped' WHEN 'pause' THEN 'paused' ELSE :reason END,
    error_code = CASE WHEN requested = 'stop' THEN NULL ELSE error_code END,
    error_message = CASE WHEN requested = 'stop' THEN NULL ELSE error_message END,
    requested = NULL, lease_owner = NULL, lease_until = NULL,
    last_seq = :last_seq,
    llm_call_count = :llm_call_count, tool_call_count = :tool_call_count, compression_count = :compression_count,
    total_tokens = :total_tokens, prompt_tokens = :prompt_tokens, completion_tokens = :completion_tokens,
    cached_tokens = :cached_tokens, cost = :cost
WHERE uuid = :uuid AND attempt = :attempt AND status = 'running'
RETURNING status;

-- name: task_set
-- A parameter that is NULL does not change its column.  A decided end (agent/worker/final_state.py) and its reason
-- stay, even while its notification waits for something.
UPDATE tasks SET title = COALESCE(:title, title), branch = COALESCE(:branch, branch), url = COALESCE(:url, url),
    outcome = CASE WHEN outcome LIKE 'ending %' THEN outcome ELSE COALESCE(:outcome, outcome) END,
    error_code = CASE WHEN outcome LIKE 'ending %' THEN error_code ELSE COALESCE(:error_code, error_code) END,
    error_message = CASE WHEN outcome LIKE 'ending %' THEN error_message ELSE COALESCE(:error_message, error_message) END,
    parent_uuid = COALESCE(:parent_uuid, parent_uuid),
    comment_cursor = COALESCE(:comment_cursor, comment_cursor), priority = COALESCE(:priority, priority),
    model = COALESCE(:model, model), context_length = COALESCE(:context_length, context_length),
    learnt_window = COALESCE(:learnt_window, learnt_window), learnt_model = COALESCE(:learnt_model, learnt_model),
    head_commit = COALESCE(:head_commit, head_commit), base_commit = COALESCE(:base_commit, base_commit)
WHERE uuid = :uuid AND attempt = :attempt
RETURNING status;

-- name: task_list
SELECT * FROM tasks
WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)
ORDER BY created_at DESC, uuid
LIMIT :limit;

-- name: task_closed_before
-- Tasks that cleanup removes: every closed task that ended before :before (ISO text of one form compares like time),
-- except one that an open task continues, because that task reads it at its start.
SELECT uuid, status, completed_at FROM tasks AS one
WHERE status IN ('completed', 'failed', 'stopped') AND COALESCE(completed_at, created_at) < :before AND NOT EXISTS (
    SELECT 1 FROM tasks AS next WHERE next.parent_uuid = one.uuid AND next.status IN ('queued', 'running', 'paused')
)
ORDER BY completed_at;

-- name: task_delete
DELETE FROM tasks WHERE uuid = :uuid AND status IN ('completed', 'failed', 'stopped') AND NOT EXISTS (
    SELECT 1 FROM tasks AS next WHERE next.parent_uuid = :uuid AND next.status IN ('queued', 'running', 'paused')
)
RETURNING uuid;

-- name: ratio_get
SELECT ratio, samples FROM token_ratios WHERE model = :model;

-- name: ratio_put
INSERT INTO token_ratios (model, ratio, samples, updated_at) VALUES (:model, :ratio, 1, :now)
ON CONFLICT (model) DO UPDATE SET ratio = :ratio, samples = token_ratios.samples + 1, updated_at = :now;
