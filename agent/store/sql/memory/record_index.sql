-- The three indexes of records (agent/memory/context_index.py).

-- name: record_turn_add
INSERT INTO memory_record_turns (rowid, terms) VALUES (:key, :terms);

-- name: record_turn_remove
DELETE FROM memory_record_turns WHERE rowid = :key;

-- name: record_turn_clear
INSERT INTO memory_record_turns (memory_record_turns) VALUES ('delete-all');

-- name: record_turn_optimize
INSERT INTO memory_record_turns (memory_record_turns) VALUES ('optimize');

-- name: record_window_add
INSERT INTO memory_record_windows (rowid, terms) VALUES (:key, :terms);

-- name: record_window_remove
DELETE FROM memory_record_windows WHERE rowid = :key;

-- name: record_window_clear
INSERT INTO memory_record_windows (memory_record_windows) VALUES ('delete-all');

-- name: record_window_optimize
INSERT INTO memory_record_windows (memory_record_windows) VALUES ('optimize');

-- name: record_session_add
INSERT INTO memory_record_sessions (rowid, terms) VALUES (:key, :terms);

-- name: record_session_remove
DELETE FROM memory_record_sessions WHERE rowid = :key;

-- name: record_session_clear
INSERT INTO memory_record_sessions (memory_record_sessions) VALUES ('delete-all');

-- name: record_session_optimize
INSERT INTO memory_record_sessions (memory_record_sessions) VALUES ('optimize');

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

-- name: record_counts
SELECT term, doc FROM memory_record_words WHERE term IN (SELECT value FROM json_each(:terms));

-- name: record_total
-- The shadow table of FTS5 has a row for each text, and is counted without a scan.
SELECT COUNT(*) AS texts FROM memory_record_turns_docsize;

-- name: record_turn_scores
-- `+rowid`: one pass over the matches.  FTS5 would start again for each key.
SELECT rowid AS key, -bm25(memory_record_turns) AS score FROM memory_record_turns
WHERE memory_record_turns MATCH :match AND +rowid IN (SELECT value FROM json_each(:keys));

-- name: record_window_scores
-- `+rowid`: one pass over the matches.  FTS5 would start again for each key.
SELECT rowid AS key, -bm25(memory_record_windows) AS score FROM memory_record_windows
WHERE memory_record_windows MATCH :match AND +rowid IN (SELECT value FROM json_each(:keys));

-- name: record_session_scores
-- `+rowid`: one pass over the matches.  FTS5 would start again for each key.
SELECT rowid AS key, -bm25(memory_record_sessions) AS score FROM memory_record_sessions
WHERE memory_record_sessions MATCH :match AND +rowid IN (SELECT value FROM json_each(:keys));
