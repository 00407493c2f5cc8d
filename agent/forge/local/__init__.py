"""The adapter for a local tracker: a folder of Markdown files (issues) that people edit.  Its class is in
`forge.py`."""
