-- The log that several hosts share: statements of PostgreSQL (agent/memory/shared_log.py).

-- name: shared_append
-- All entries of a page in one statement, since each statement is a way to the server and back.
INSERT INTO memory_log (number, at, operation, subject, who, reason, payload, client_token)
SELECT number, at, operation, subject, who, reason, payload, client_token
FROM json_to_recordset(CAST(:entries AS JSON)) AS entries(
    number BIGINT, at TEXT, operation TEXT, subject TEXT, who TEXT, reason TEXT, payload TEXT, client_token TEXT
);

-- name: shared_from
-- Entries from :first on, that one included, in order; at most :limit, and about :most characters.
SELECT number, at, operation, subject, who, reason, payload FROM (
    SELECT number, at, operation, subject, who, reason, payload,
        SUM(COALESCE(LENGTH(payload), 0)) OVER (ORDER BY number) - COALESCE(LENGTH(payload), 0) AS before
    FROM (SELECT * FROM memory_log WHERE number >= :first ORDER BY number LIMIT :limit) AS page
) AS sized
WHERE before < :most OR number <= :first + 1
ORDER BY number;

-- name: shared_known
-- What tells one entry from another with its number.  Both remain when its text is forgotten.
SELECT at, operation FROM memory_log WHERE number = :number;

-- name: shared_blank
UPDATE memory_log SET payload = NULL, subject = '', reason = '', client_token = NULL
WHERE number IN (SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:numbers AS JSON)));

-- name: shared_last
SELECT COALESCE(MAX(number), 0) AS number FROM memory_log;

-- name: shared_unpurged
-- The last forgetting after which no host has rewritten the table, before :before.
SELECT value FROM memory_log_state WHERE name = 'unpurged' AND at < :before;

-- name: shared_unpurged_put
INSERT INTO memory_log_state (name, value, at) VALUES ('unpurged', :value, :at)
ON CONFLICT (name) DO UPDATE SET value = :value, at = :at;

-- name: shared_unpurged_drop
DELETE FROM memory_log_state WHERE name = 'unpurged' AND value = :value;

-- name: shared_position
-- The last number, and the forgetting after which the table has not been rewritten in time.
SELECT COALESCE(MAX(number), 0) AS number,
    (SELECT value FROM memory_log_state WHERE name = 'unpurged' AND at < :before) AS unpurged
FROM memory_log;
