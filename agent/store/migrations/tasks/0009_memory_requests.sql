-- How many of the task's requests for long-term memory the counters of the row include: they are sent after its end.
ALTER TABLE tasks ADD COLUMN memory_requests INTEGER NOT NULL DEFAULT 0;
