"""Observation: events that the program's packages announce, and a structured log and metrics that listen to them.

Nothing here decides about a task or changes it, and an error of a listener stops neither the work nor other listeners.
"""
