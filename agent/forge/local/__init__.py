"""The adapter for a local tracker: a folder of Markdown files (issues) that people edit.  The class of the adapter is
in `forge.py`."""
