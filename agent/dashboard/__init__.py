"""The dashboard: a web page that shows what runs, what waits and why, what a task did and what it cost.

The command `dashboard` starts the server (`server.py`); docs/dashboard.md describes the page. The package `dashboard`
reads only parts of the files of tasks and uses indexes of the ledger, holds no state of tasks in memory, and takes no
lock for which a daemon or a worker waits.
"""
