"""The client of MCP servers: starts them, lists their tools, and calls a tool when the model does.

`servers.py` is the entrance.  Only `session.py`, `pipes.py` and `http.py` import the SDK, when a server is started.
docs/mcp.md has the rules.
"""
