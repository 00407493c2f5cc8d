"""The forge GitHub, and GitHub Enterprise, over the REST API.  The adapter is in `forge.py`."""
