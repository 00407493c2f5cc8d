"""Observation: events that the program's packages announce, and a structured log and metrics that listen to them.

The package `observe` makes no decision about a task and changes none, and an error of a listener stops neither the work
nor other listeners.
"""
