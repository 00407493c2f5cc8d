-- Events: what was said and done (agent/memory/events.py).

-- name: event_insert
INSERT INTO memory_events (
    id, actor_id, session_id, block, timestamp, role, speaker, source, trust, text, terms, sha, metadata, client_token
) VALUES (
    :id, :actor_id, :session_id, :block, :timestamp, :role, :speaker, :source, :trust, :text, :terms, :sha, :metadata,
    :client_token
);

-- name: event_get
SELECT * FROM memory_events WHERE id = :id;

-- name: event_of_token
SELECT id FROM memory_events WHERE client_token = :client_token;

-- name: event_block
-- The newest block of a session, and how many events are in it.
SELECT block, COUNT(*) AS events FROM memory_events
WHERE block = (
    SELECT block FROM memory_events WHERE actor_id = :actor_id AND session_id = :session_id ORDER BY id DESC LIMIT 1
)
GROUP BY block;

-- name: event_delete
DELETE FROM memory_events WHERE id = :id;

-- name: events_clear
DELETE FROM memory_events;

-- name: events_of_session
SELECT * FROM memory_events WHERE actor_id = :actor_id AND session_id = :session_id AND id > :after
ORDER BY id LIMIT :limit;

-- name: event_candidates
-- Events that match by themselves, the best by BM25.
SELECT e.id AS key FROM memory_event_turns CROSS JOIN memory_events AS e ON e.id = memory_event_turns.rowid
WHERE memory_event_turns MATCH :match AND e.actor_id = :actor_id
    AND (:session_id IS NULL OR e.session_id = :session_id) AND (:before IS NULL OR e.timestamp < :before)
ORDER BY bm25(memory_event_turns) LIMIT :most;

-- name: event_places
SELECT id, block, speaker FROM memory_events
WHERE id IN (SELECT value FROM json_each(:ids)) AND (:before IS NULL OR timestamp < :before);

-- name: event_terms
SELECT id, terms FROM memory_events WHERE id IN (SELECT value FROM json_each(:ids));

-- name: event_rows
SELECT * FROM memory_events WHERE id IN (SELECT value FROM json_each(:ids));

-- name: events_page
SELECT * FROM memory_events WHERE id > :after ORDER BY id LIMIT :limit;
