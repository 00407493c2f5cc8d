"""The adapter for Forgejo and Gitea, over the REST API v1.  Its class is in `forge.py`."""
