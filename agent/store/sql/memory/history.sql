-- The history of repositories (agent/memory/commit_index.py, agent/memory/likely_files.py).

-- name: history_tip
SELECT tip FROM memory_histories WHERE actor_id = :actor_id AND repository = :repository;

-- name: history_tips
SELECT tip FROM memory_histories WHERE actor_id = :actor_id;

-- name: history_actors
SELECT DISTINCT actor_id FROM memory_histories;

-- name: history_put
INSERT INTO memory_histories (actor_id, repository, tip) VALUES (:actor_id, :repository, :tip)
ON CONFLICT (actor_id, repository) DO UPDATE SET tip = :tip;

-- name: commit_insert
INSERT INTO memory_commits (actor_id, repository, sha, subject, files)
VALUES (:actor_id, :repository, :sha, :subject, :files)
ON CONFLICT DO NOTHING
RETURNING key;

-- name: commit_terms_add
INSERT INTO memory_commit_terms (rowid, terms) VALUES (:key, :terms);

-- name: touched_insert
INSERT INTO memory_touched (commit_key, path)
SELECT :key, value FROM json_each(:paths) WHERE true ON CONFLICT DO NOTHING;

-- name: files_of_tree
SELECT key, path, blob FROM memory_files WHERE actor_id = :actor_id AND repository = :repository;

-- name: tree_file_put
INSERT INTO memory_files (actor_id, repository, path, blob) VALUES (:actor_id, :repository, :path, :blob)
ON CONFLICT (actor_id, repository, path) DO UPDATE SET blob = :blob
RETURNING key;

-- name: tree_file_delete
DELETE FROM memory_files WHERE key = :key;

-- name: file_terms_remove
DELETE FROM memory_file_terms WHERE rowid = :key;

-- name: file_terms_add
INSERT INTO memory_file_terms (rowid, terms) VALUES (:key, :terms);

-- name: commit_counts
SELECT term, doc FROM memory_commit_words WHERE term IN (SELECT value FROM json_each(:terms));

-- name: file_counts
SELECT term, doc FROM memory_file_words WHERE term IN (SELECT value FROM json_each(:terms));

-- name: commit_candidates
-- The commits that are most like the query.
SELECT c.key AS key, c.sha AS sha, c.repository AS repository, -bm25(memory_commit_terms) AS score
FROM memory_commit_terms CROSS JOIN memory_commits AS c ON c.key = memory_commit_terms.rowid
WHERE memory_commit_terms MATCH :match AND c.actor_id = :actor_id
ORDER BY score DESC, c.key DESC LIMIT :most;

-- name: file_candidates
-- The files at the tip whose content and path are most like the query.
SELECT f.path AS path, f.repository AS repository, -bm25(memory_file_terms) AS score
FROM memory_file_terms CROSS JOIN memory_files AS f ON f.key = memory_file_terms.rowid
WHERE memory_file_terms MATCH :match AND f.actor_id = :actor_id
ORDER BY score DESC, f.path LIMIT :most;

-- name: touched_by
-- The files of commits that are still there, and how many files each commit touched.
SELECT t.commit_key AS key, t.path AS path, c.files AS files
FROM json_each(:keys) AS asked CROSS JOIN memory_commits AS c ON c.key = asked.value
CROSS JOIN memory_touched AS t ON t.commit_key = c.key
CROSS JOIN memory_files AS f ON f.actor_id = c.actor_id AND f.repository = c.repository AND f.path = t.path;

-- name: path_is_known
SELECT path FROM memory_files
WHERE actor_id = :actor_id AND path IN (SELECT value FROM json_each(:paths));

-- name: commits_page
SELECT key, actor_id, sha, subject FROM memory_commits WHERE key > :after ORDER BY key LIMIT :limit;

-- name: commits_of_sha
SELECT key FROM memory_commits WHERE sha IN (SELECT value FROM json_each(:shas));

-- name: commit_delete
DELETE FROM memory_commits WHERE key = :key;

-- name: commit_terms_remove
DELETE FROM memory_commit_terms WHERE rowid = :key;

-- name: touched_delete
DELETE FROM memory_touched WHERE commit_key = :key;

-- name: files_of_actor
SELECT key FROM memory_files WHERE actor_id = :actor_id;

-- name: history_delete
DELETE FROM memory_histories WHERE actor_id = :actor_id;

-- name: commit_terms_optimize
INSERT INTO memory_commit_terms (memory_commit_terms) VALUES ('optimize');

-- name: file_terms_optimize
INSERT INTO memory_file_terms (memory_file_terms) VALUES ('optimize');
