-- The history of repositories: commits with the files that they touched, and the files at the tip.  Made from git, not
-- from the log (agent/memory/commit_index.py).
CREATE TABLE memory_histories (
    actor_id TEXT NOT NULL,
    repository TEXT NOT NULL,
    tip TEXT NOT NULL,
    PRIMARY KEY (actor_id, repository)
) WITHOUT ROWID;

CREATE TABLE memory_commits (
    key INTEGER PRIMARY KEY,
    actor_id TEXT NOT NULL,
    repository TEXT NOT NULL,
    sha TEXT NOT NULL,
    subject TEXT NOT NULL,
    files INTEGER NOT NULL
);
CREATE UNIQUE INDEX idx_memory_commits_sha ON memory_commits(actor_id, repository, sha);

CREATE TABLE memory_files (
    key INTEGER PRIMARY KEY,
    actor_id TEXT NOT NULL,
    repository TEXT NOT NULL,
    path TEXT NOT NULL,
    blob TEXT NOT NULL
);
CREATE UNIQUE INDEX idx_memory_files_path ON memory_files(actor_id, repository, path);

CREATE TABLE memory_touched (
    commit_key INTEGER NOT NULL,
    path TEXT NOT NULL,
    PRIMARY KEY (commit_key, path)
) WITHOUT ROWID;

CREATE VIRTUAL TABLE memory_commit_terms USING fts5(terms, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE memory_file_terms USING fts5(terms, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE memory_commit_words USING fts5vocab(memory_commit_terms, 'row');
CREATE VIRTUAL TABLE memory_file_words USING fts5vocab(memory_file_terms, 'row');
