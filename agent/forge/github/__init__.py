"""The adapter for GitHub and GitHub Enterprise, over the REST API.  Its class is in `forge.py`."""
