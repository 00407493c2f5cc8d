"""The adapter for Forgejo and Gitea, over the REST API v1.  The class of the adapter is in `forge.py`."""
