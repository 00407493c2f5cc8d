-- Memory records, their sources and files (agent/memory/records.py).

-- name: record_insert
INSERT INTO memory_records (
    key, id, namespace, strategy, session_id, block, title, text, terms, sha, timestamp, created_at, status, reason,
    trust, pinned, uses, helped, hurt, expires_at, metadata
) VALUES (
    :key, :id, :namespace, :strategy, :session_id, :block, :title, :text, :terms, :sha, :timestamp, :created_at,
    :status, :reason, :trust, :pinned, 0, 0, 0, :expires_at, :metadata
);

-- name: record_row
SELECT * FROM memory_records WHERE id = :id;

-- name: record_of_sha
SELECT * FROM memory_records WHERE sha = :sha AND namespace = :namespace AND status IN ('active', 'quarantined')
ORDER BY key LIMIT 1;

-- name: record_block
-- The newest block of a session below a namespace, and how many records are in it.
SELECT block, COUNT(*) AS records FROM memory_records
WHERE block = (
    SELECT block FROM memory_records WHERE namespace = :namespace AND session_id = :session_id
    ORDER BY key DESC LIMIT 1
)
GROUP BY block;

-- name: record_merge
UPDATE memory_records SET uses = uses + 1, trust = MAX(trust, :trust) WHERE id = :id;

-- name: record_end
UPDATE memory_records SET status = :status, valid_to = :at, superseded_by = :by, reason = :reason WHERE id = :id;

-- name: record_promote
UPDATE memory_records SET status = 'active', valid_to = NULL, superseded_by = NULL, trust = :trust, reason = :reason
WHERE id = :id;

-- name: record_pin
UPDATE memory_records SET pinned = :pinned WHERE id = :id;

-- name: record_use
UPDATE memory_records SET uses = uses + 1, last_used_at = :at WHERE id = :id;

-- name: record_judge
UPDATE memory_records SET helped = helped + :helped, hurt = hurt + :hurt WHERE id = :id;

-- name: record_carry
-- Adds what was counted for an earlier version of the record.
UPDATE memory_records SET helped = helped + :helped, hurt = hurt + :hurt, uses = uses + :uses,
    pinned = max(pinned, :pinned), last_used_at = nullif(max(coalesce(last_used_at, ''), coalesce(:last_used_at, '')), '')
WHERE id = :id;

-- name: record_delete
DELETE FROM memory_records WHERE id = :id;

-- name: records_clear
DELETE FROM memory_records;

-- name: record_list
SELECT * FROM memory_records
WHERE namespace >= :first AND namespace < :end AND key > :after
    AND (:strategy IS NULL OR strategy = :strategy) AND (:status IS NULL OR status = :status)
ORDER BY key LIMIT :limit;

-- name: record_count
SELECT COUNT(*) AS records FROM memory_records WHERE namespace >= :first AND namespace < :end AND status = 'active';

-- name: record_candidates
-- Records that match by themselves, the best by BM25.
SELECT r.key AS key FROM memory_record_turns CROSS JOIN memory_records AS r ON r.key = memory_record_turns.rowid
WHERE memory_record_turns MATCH :match AND r.namespace >= :first AND r.namespace < :end AND r.trust >= :min_trust
    AND (r.expires_at IS NULL OR r.expires_at > :now)
ORDER BY bm25(memory_record_turns) LIMIT :most;

-- name: record_few
-- The active records of a namespace, at most so many.
SELECT key FROM memory_records
WHERE namespace >= :first AND namespace < :end AND status = 'active' AND trust >= :min_trust
    AND (expires_at IS NULL OR expires_at > :now)
LIMIT :most;

-- name: preferences_by_support
-- The newest :most active preferences of a namespace, with the number of sessions that they come from; best supported
-- first.  The order inside is that of idx_memory_records_namespace, so that no more rows are read.
SELECT r.key AS key, COUNT(DISTINCT e.session_id) AS sessions
FROM (
    SELECT key, id, pinned, helped, hurt, timestamp FROM memory_records
    WHERE namespace >= :first AND namespace < :end AND status = 'active' AND strategy = 'preferences'
        AND trust >= :min_trust AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY namespace DESC, status DESC, key DESC
    LIMIT :most
) AS r
LEFT JOIN memory_sources AS s ON s.record_id = r.id
LEFT JOIN memory_events AS e ON e.id = s.event_id
GROUP BY r.key
ORDER BY r.pinned DESC, COUNT(DISTINCT e.session_id) + r.helped - r.hurt DESC, r.timestamp DESC, r.key DESC;

-- name: record_rows
SELECT * FROM memory_records WHERE key IN (SELECT value FROM json_each(:keys));

-- name: source_insert
INSERT INTO memory_sources (record_id, event_id, source_id) VALUES (:record_id, :event_id, :source_id)
ON CONFLICT DO NOTHING;

-- name: sources_of
SELECT record_id, event_id, source_id FROM memory_sources
WHERE record_id IN (SELECT value FROM json_each(:ids)) ORDER BY record_id, event_id, source_id;

-- name: source_delete_event
DELETE FROM memory_sources WHERE event_id = :event_id;

-- name: source_delete_record
DELETE FROM memory_sources WHERE record_id = :id OR source_id = :id;

-- name: sources_clear
DELETE FROM memory_sources;

-- name: file_insert
INSERT INTO memory_record_files (path, record_id) VALUES (:path, :record_id) ON CONFLICT DO NOTHING;

-- name: files_of
SELECT record_id, path FROM memory_record_files
WHERE record_id IN (SELECT value FROM json_each(:ids)) ORDER BY record_id, path;

-- name: file_delete_record
DELETE FROM memory_record_files WHERE record_id = :id;

-- name: files_clear
DELETE FROM memory_record_files;

-- name: tombstone_insert
INSERT INTO memory_tombstones (sha, number) VALUES (:sha, :number) ON CONFLICT (sha) DO NOTHING;

-- name: tombstone_get
SELECT number FROM memory_tombstones WHERE sha = :sha;

-- name: tombstone_any
SELECT 1 AS found FROM memory_tombstones LIMIT 1;

-- name: tombstones_clear
DELETE FROM memory_tombstones;

-- name: record_worst
-- Active records below a namespace of least worth: not pinned, hurt more than they helped, used least, oldest.
SELECT id FROM memory_records
WHERE namespace >= :first AND namespace < :end AND status = 'active' AND pinned = 0 AND id <> :newest
ORDER BY helped - hurt, uses, COALESCE(last_used_at, created_at), key LIMIT :limit;

-- name: records_page
SELECT r.*, (SELECT group_concat(path, ' ') FROM memory_record_files WHERE record_id = r.id) AS files
FROM memory_records AS r WHERE r.key > :after ORDER BY r.key LIMIT :limit;

-- name: records_of
SELECT r.*, (SELECT group_concat(path, ' ') FROM memory_record_files WHERE record_id = r.id) AS files
FROM memory_records AS r WHERE r.id IN (SELECT value FROM json_each(:ids)) ORDER BY r.key;

-- name: sources_all
SELECT record_id, event_id, source_id FROM memory_sources;

-- name: pieces_kept
-- Of pieces of text (in hexadecimal) those that occur in a text that is kept.
SELECT asked.value AS piece FROM json_each(:pieces) AS asked
WHERE EXISTS (SELECT 1 FROM memory_log WHERE instr(CAST(payload AS BLOB), unhex(asked.value)))
    OR EXISTS (SELECT 1 FROM memory_events WHERE instr(CAST(terms AS BLOB), unhex(asked.value)))
    OR EXISTS (SELECT 1 FROM memory_records WHERE instr(CAST(terms AS BLOB), unhex(asked.value)));

-- name: records_expired
SELECT id FROM memory_records WHERE status IN ('active', 'quarantined') AND expires_at <= :now ORDER BY key;

-- name: records_by_status
SELECT strategy, status, COUNT(*) AS records FROM memory_records GROUP BY strategy, status ORDER BY strategy, status;
