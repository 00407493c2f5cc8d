-- What refusals have taught about a model on a server (llm/client.py, facts), as a JSON object.
CREATE TABLE learnt_models (
    server TEXT NOT NULL,
    model TEXT NOT NULL,
    facts TEXT NOT NULL,
    learnt_at TEXT NOT NULL,
    PRIMARY KEY (server, model)
);
