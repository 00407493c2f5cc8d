-- The statements in which the indexes of records differ (agent/memory/full_text_index.py); the others are in
-- context_index.sql.

-- name: record_block_terms
SELECT terms FROM memory_records WHERE block = :block AND status = 'active' ORDER BY key;

-- name: record_group_terms
-- The texts of one session from :low to :high, and :around more on either side.
SELECT key, terms FROM memory_records
WHERE namespace = :first AND session_id = :session_id AND status = 'active'
    AND key >= COALESCE((
        SELECT MIN(key) FROM (
            SELECT key FROM memory_records WHERE namespace = :first AND session_id = :session_id AND key < :low AND status = 'active'
            ORDER BY key DESC LIMIT :around
        )
    ), :low)
    AND key <= COALESCE((
        SELECT MAX(key) FROM (
            SELECT key FROM memory_records WHERE namespace = :first AND session_id = :session_id AND key > :high AND status = 'active'
            ORDER BY key LIMIT :around
        )
    ), :high)
ORDER BY key;

-- name: record_total
-- The shadow table of FTS5 has a row for each text, and is counted without a scan.
SELECT COUNT(*) AS texts FROM memory_record_turns_docsize;
