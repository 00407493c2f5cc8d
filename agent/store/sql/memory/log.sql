-- The log of memory.db (agent/memory/log.py) and how far the tables follow it.

-- name: log_append
-- Without RETURNING: with it FTS5 writes what it has collected at each entry.
INSERT INTO memory_log (number, at, operation, subject, who, reason, payload)
VALUES (:number, :at, :operation, :subject, :who, :reason, :payload);

-- name: log_last
SELECT COALESCE(MAX(number), 0) AS number FROM memory_log WHERE number > 0;

-- name: log_entries
SELECT number, at, operation, subject, who, reason, payload FROM memory_log
WHERE number > :after ORDER BY number LIMIT :limit;

-- name: log_blank
UPDATE memory_log SET payload = NULL, subject = '', reason = '' WHERE number = :number;

-- name: log_of_subject
SELECT number, at, operation, subject, who, reason, payload FROM memory_log
WHERE subject = :subject AND operation <> 'event' ORDER BY number;

-- name: log_clear
DELETE FROM memory_log WHERE number > 0;

-- name: log_forgotten
SELECT payload FROM memory_log WHERE operation = 'forgotten' AND payload IS NOT NULL ORDER BY number;

-- name: log_set_aside
-- Entries above :after get negative numbers, in the opposite order.
UPDATE memory_log SET number = -number WHERE number > :after;

-- name: log_aside
SELECT number, at, operation, subject, who, reason, payload FROM memory_log
WHERE number < :below ORDER BY number DESC LIMIT :limit;

-- name: log_drop_aside
DELETE FROM memory_log WHERE number < 0;

-- name: log_blanked
SELECT number FROM memory_log WHERE payload IS NULL AND number > 0 AND number <= :most;

-- name: log_known
-- What tells one entry from another with its number.
SELECT at, operation FROM memory_log WHERE number = :number;

-- name: state_get
SELECT value FROM memory_state WHERE name = :name;

-- name: state_put
INSERT INTO memory_state (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = :value;

-- name: state_drop
DELETE FROM memory_state WHERE name = :name AND value = :value;
