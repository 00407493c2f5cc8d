"""Storage that does not interpret the stored data: JSONL files, SQL databases with numbered migrations, storage for
replicas, facts learnt about models.

`context` (a task's folder) and `taskqueue` (the ledger) define what the lines and rows mean.
"""
