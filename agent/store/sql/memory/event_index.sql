-- The statements in which the indexes of events differ (agent/memory/full_text_index.py); the others are in
-- context_index.sql.

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

-- name: event_total
SELECT COUNT(*) AS texts FROM memory_events;

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
