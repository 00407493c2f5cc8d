"""What long-term memory takes from a task that has ended (docs/memory.md, "What goes in").

`job.py` is the work on one task, in a process of its own.
"""
