"""Storage without meaning: JSONL files, one SQL connection, numbered migrations, learnt ratios.

What the lines and rows say belongs to `context` (a task's folder) and `taskqueue` (the ledger).
"""
