-- When a closed task has to be taken into long-term memory (again).  NULL: that is done, or was never wanted.
ALTER TABLE tasks ADD COLUMN remember_at TEXT;
-- merged or closed: how the pull request of an ended task was seen last.
ALTER TABLE tasks ADD COLUMN pull_state TEXT;

CREATE INDEX idx_tasks_unremembered ON tasks(remember_at) WHERE remember_at IS NOT NULL;
