"""The forge Forgejo, and Gitea, over the REST API v1.  The adapter is in `forge.py`."""
