"""The client of MCP servers: starts them, lists their tools, and executes the model's calls of these tools.

The other packages use `servers.py`.  The SDK for MCP is imported only when a server is started.  docs/mcp.md has the
rules.
"""
