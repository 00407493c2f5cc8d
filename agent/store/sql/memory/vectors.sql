-- Vectors of records (agent/memory/vectors.py).

-- name: vector_put
-- Nothing is written for a record that was forgotten or ended while its vector was computed.
INSERT INTO memory_vectors (key, model, vector)
SELECT key, :model, :vector FROM memory_records WHERE key = :key AND status = 'active'
ON CONFLICT (key) DO UPDATE SET model = :model, vector = :vector;

-- name: vectors_of
SELECT key, vector FROM memory_vectors WHERE model = :model AND key IN (SELECT value FROM json_each(:keys));

-- name: vectors_missing
-- Active records without a vector of this model.
SELECT r.key AS key, r.title AS title, r.text AS text FROM memory_records AS r
LEFT JOIN memory_vectors AS v ON v.key = r.key AND v.model = :model
WHERE r.status = 'active' AND v.key IS NULL ORDER BY r.key LIMIT :limit;

-- name: vector_delete
DELETE FROM memory_vectors WHERE key = :key;

-- name: vectors_prune
-- Vectors of records that are not active any more, or were forgotten.
DELETE FROM memory_vectors WHERE key NOT IN (SELECT key FROM memory_records WHERE status = 'active');

-- name: vectors_clear
DELETE FROM memory_vectors;
