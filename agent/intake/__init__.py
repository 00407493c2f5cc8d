"""Puts tasks into the ledger: the poller, its interval, the queue of issues that a poll has found, and the comments on
tasks that no worker has."""
