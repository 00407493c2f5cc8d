"""Makimono: a coding agent whose whole mind is on disk.  Start reading at `agent/loop.py`."""

__version__ = "0.1.0"
