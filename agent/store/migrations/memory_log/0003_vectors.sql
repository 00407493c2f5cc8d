-- Vectors of records, made by the plug-in `memory.embeddings` (agent/memory/vectors.py).  Made from the records, not from
-- the log.
CREATE TABLE memory_vectors (
    key INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    vector BLOB NOT NULL
);
