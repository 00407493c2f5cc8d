-- A daemon reserves a row before it starts a worker for it, so that no other host starts one too.  server: whose model the
-- task is started with.  taken_at: when it was last reserved or claimed, which tells when a person and repository was last served.
ALTER TABLE tasks ADD COLUMN reserved_by TEXT;
ALTER TABLE tasks ADD COLUMN reserved_until TEXT;
ALTER TABLE tasks ADD COLUMN server TEXT;
ALTER TABLE tasks ADD COLUMN taken_at TEXT;

-- Who was last served when; what runs on one host, and whose lease is over.
CREATE INDEX idx_tasks_served ON tasks(task_source, instance, owner, repo, COALESCE("user", ''), taken_at);
CREATE INDEX idx_tasks_running_host ON tasks(hostname) WHERE status = 'running';
CREATE INDEX idx_tasks_running_lease ON tasks(lease_until) WHERE status = 'running';
