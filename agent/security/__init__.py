"""Filters text from outside before a model reads it, and the results of a model before they are published.

This package has pure functions only: `sanitise` and `fence` treat input, `redact`, `secrets` and `guarded_paths` treat
output, and `terminal` treats printed text.  `finding_catalogue` lists every finding that these functions can report.
`agent.sandbox` isolates commands.
"""
