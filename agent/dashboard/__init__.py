"""The page: what runs, what waits and why, what a task did and what it cost, in a browser.

The command `dashboard` starts the server (`server.py`); docs/dashboard.md describes the page.  The room reads the files
of tasks by windows and the ledger by index, holds no state of tasks in memory, and takes no lock that a daemon or a
worker waits for.
"""
