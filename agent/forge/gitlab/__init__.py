"""The adapter for GitLab, over the REST API v4.  Its class is in `forge.py`."""
