-- The comment that started the task (its id), and those that were obeyed (ids, newest last): each counts once, for all
-- hosts that share the ledger, whatever dies in between.
ALTER TABLE tasks ADD COLUMN started_by TEXT;
ALTER TABLE tasks ADD COLUMN obeyed TEXT;
CREATE UNIQUE INDEX idx_tasks_started_by ON tasks(task_source, instance, owner, repo, task_type, task_id, started_by)
    WHERE started_by IS NOT NULL;

-- Closed, and the person is not told yet: when it is tried (again).  NULL: told, or nobody has to be.
ALTER TABLE tasks ADD COLUMN tell_at TEXT;
CREATE INDEX idx_tasks_untold ON tasks(tell_at) WHERE tell_at IS NOT NULL;

-- The newest row of a key.
CREATE INDEX idx_tasks_key ON tasks(task_source, instance, owner, repo, task_type, task_id, created_at);
