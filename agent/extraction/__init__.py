"""Extracts long-term memories from ended tasks (docs/memory.md, "What goes in").

`job.py` does the work for one task; it runs in a process of its own.
"""
