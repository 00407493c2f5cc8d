"""Makimono: a coding agent that keeps its whole state in files.  Start reading at `agent/loop.py`."""

__version__ = "0.1.0"
