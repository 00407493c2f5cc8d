"""The communication with people on an issue: claims, comments, status, replies, commands."""
