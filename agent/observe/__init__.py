"""Watching: events that rooms announce, the structured log and the metrics that listen to them.

Not a place for decisions: nothing here changes what a task does, and a listener that fails fails alone.
"""
