"""The adapter for GitHub and GitHub Enterprise, over the REST API.  The class of the adapter is in `forge.py`."""
