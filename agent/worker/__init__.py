"""One process runs one task: it locks the folder, claims the row, handles the task, and exits.  `handler.py` handles
one task."""
