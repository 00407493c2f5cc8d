"""Storage without knowledge of the content: JSONL files, one SQL connection, numbered migrations, learnt ratios.

`context` (a task's folder) and `taskqueue` (the ledger) define what the lines and rows mean.
"""
