"""Builds the parts of a task's run: adapters, folders in base_dir, task sources."""
