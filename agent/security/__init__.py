"""Filters text from outside before a model reads it, and the results of a model before they are published.

For example, `sanitise` and `fence` treat input, `redact`, `secrets` and `guarded_paths` treat output, and `terminal`
treats printed text.  `finding_catalogue` lists every finding that the modules of this package can report.
`agent.sandbox` isolates commands.
"""
