"""The communication with people on an issue: claims, comments, the status of a task, replies, commands."""
