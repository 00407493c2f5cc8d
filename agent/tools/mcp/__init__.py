"""The client of MCP servers: starts the servers, lists their tools, and executes the model's calls of these tools.

Other packages use the client of MCP servers through `servers.py`. The SDK for MCP is imported only when a server is
started. docs/mcp.md has the rules.
"""
