-- Model and tool calls at the time of the claim: a holder that dies with no more than that made no progress.
ALTER TABLE tasks ADD COLUMN progress_at_claim INTEGER NOT NULL DEFAULT 0;

-- What is due next, and what one repository did today.
CREATE INDEX idx_tasks_due ON tasks(priority DESC, created_at) WHERE status = 'queued';
CREATE INDEX idx_tasks_repository ON tasks(instance, owner, repo, started_at);
