"""Puts tasks into the ledger (the table of tasks): the poller and its interval, the issues that a poll has found, and
the comments on tasks on which no worker works."""
