"""One process runs one task: it locks the folder, claims the row, works on the task, and exits.  `handler.py` has the
steps of the work."""
