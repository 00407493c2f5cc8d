-- The three indexes of events (agent/memory/context_index.py).

-- name: event_turn_add
INSERT INTO memory_event_turns (rowid, terms) VALUES (:key, :terms);

-- name: event_turn_remove
DELETE FROM memory_event_turns WHERE rowid = :key;

-- name: event_turn_clear
INSERT INTO memory_event_turns (memory_event_turns) VALUES ('delete-all');

-- name: event_turn_optimize
INSERT INTO memory_event_turns (memory_event_turns) VALUES ('optimize');

-- name: event_window_add
INSERT INTO memory_event_windows (rowid, terms) VALUES (:key, :terms);

-- name: event_window_remove
DELETE FROM memory_event_windows WHERE rowid = :key;

-- name: event_window_clear
INSERT INTO memory_event_windows (memory_event_windows) VALUES ('delete-all');

-- name: event_window_optimize
INSERT INTO memory_event_windows (memory_event_windows) VALUES ('optimize');

-- name: event_session_add
INSERT INTO memory_event_sessions (rowid, terms) VALUES (:key, :terms);

-- name: event_session_remove
DELETE FROM memory_event_sessions WHERE rowid = :key;

-- name: event_session_clear
INSERT INTO memory_event_sessions (memory_event_sessions) VALUES ('delete-all');

-- name: event_session_optimize
INSERT INTO memory_event_sessions (memory_event_sessions) VALUES ('optimize');

-- name: event_block_terms
SELECT terms FROM memory_events WHERE block = :block ORDER BY id;

-- name: event_group_terms
-- The texts of one session from :low to :high, and :around more on either side.
SELECT id AS key, terms FROM memory_events
WHERE actor_id = :first AND session_id = :session_id
    AND id >= COALESCE((
        SELECT MIN(id) FROM (
            SELECT id FROM memory_events WHERE actor_id = :first AND session_id = :session_id AND id < :low
            ORDER BY id DESC LIMIT :around
        )
    ), :low)
    AND id <= COALESCE((
        SELECT MAX(id) FROM (
            SELECT id FROM memory_events WHERE actor_id = :first AND session_id = :session_id AND id > :high
            ORDER BY id LIMIT :around
        )
    ), :high)
ORDER BY id;

-- name: event_counts
SELECT term, doc FROM memory_event_words WHERE term IN (SELECT value FROM json_each(:terms));

-- name: event_total
SELECT COUNT(*) AS texts FROM memory_events;

-- name: event_turn_scores
-- `+rowid`: one pass over the matches.  FTS5 would start again for each key.
SELECT rowid AS key, -bm25(memory_event_turns) AS score FROM memory_event_turns
WHERE memory_event_turns MATCH :match AND +rowid IN (SELECT value FROM json_each(:keys));

-- name: event_window_scores
-- `+rowid`: one pass over the matches.  FTS5 would start again for each key.
SELECT rowid AS key, -bm25(memory_event_windows) AS score FROM memory_event_windows
WHERE memory_event_windows MATCH :match AND +rowid IN (SELECT value FROM json_each(:keys));

-- name: event_session_scores
-- `+rowid`: one pass over the matches.  FTS5 would start again for each key.
SELECT rowid AS key, -bm25(memory_event_sessions) AS score FROM memory_event_sessions
WHERE memory_event_sessions MATCH :match AND +rowid IN (SELECT value FROM json_each(:keys));

-- name: event_around
SELECT here.id AS key, o.id AS neighbour
FROM json_each(:keys) AS asked JOIN memory_events AS here ON here.id = asked.value JOIN memory_events AS o ON o.id IN (
    SELECT b.id FROM memory_events AS b
    WHERE b.actor_id = here.actor_id AND b.session_id = here.session_id AND b.id < here.id
    ORDER BY b.id DESC LIMIT :before
)
UNION ALL
SELECT here.id AS key, o.id AS neighbour
FROM json_each(:keys) AS asked JOIN memory_events AS here ON here.id = asked.value JOIN memory_events AS o ON o.id IN (
    SELECT b.id FROM memory_events AS b
    WHERE b.actor_id = here.actor_id AND b.session_id = here.session_id AND b.id > here.id
    ORDER BY b.id LIMIT :after
);
