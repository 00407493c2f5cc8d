"""Puts tasks into the ledger: the poller, its interval, the queue of found issues, and the comments on idle tasks."""
