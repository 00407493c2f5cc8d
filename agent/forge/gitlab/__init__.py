"""The forge GitLab over the REST API v4.  The adapter is in `forge.py`."""
