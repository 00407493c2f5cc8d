"""One process per task: it locks, claims and handles the task, and then exits.  `handler.py` handles one task."""
