"""The local tracker: a folder of Markdown files that people edit.  The adapter is in `forge.py`."""
