"""The adapter for GitLab, over the REST API v4.  The class of the adapter is in `forge.py`."""
