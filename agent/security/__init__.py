"""What stands between text from outside and a model, and between a model's work and the world.

Pure functions: `sanitise` and `fence` for what comes in, `redact`, `secrets` and `paths` for what goes out, `terminal`
for what is printed.  `rules` names every finding.  Isolation of commands is `agent.sandbox`.
"""
