-- The statements that the indexes of events and of records have in common (agent/memory/full_text_index.py).
-- for each kind: event, record
-- for each part: turn, window, session

-- name: {kind}_{part}_add
INSERT INTO memory_{kind}_{part}s (rowid, terms) VALUES (:key, :terms);

-- name: {kind}_{part}_remove
DELETE FROM memory_{kind}_{part}s WHERE rowid = :key;

-- name: {kind}_{part}_clear
INSERT INTO memory_{kind}_{part}s (memory_{kind}_{part}s) VALUES ('delete-all');

-- name: {kind}_{part}_optimize
INSERT INTO memory_{kind}_{part}s (memory_{kind}_{part}s) VALUES ('optimize');

-- name: {kind}_{part}_scores
-- `+rowid`: one pass over the matches.  FTS5 would start again for each key.
SELECT rowid AS key, -bm25(memory_{kind}_{part}s) AS score FROM memory_{kind}_{part}s
WHERE memory_{kind}_{part}s MATCH :match AND +rowid IN (SELECT value FROM json_each(:keys));

-- name: {kind}_counts
SELECT term, doc FROM memory_{kind}_words WHERE term IN (SELECT value FROM json_each(:terms));
