"""Network access of a sandbox: a proxy in the worker that connects only to hosts of an allow-list.

A command has its own network namespace, with only `lo` in it. If hosts are allowed, a program inside the sandbox
(`socket_opener`) creates a socket that listens on a port of the command's own `lo`, before the command starts, and
passes it to the worker. The worker serves the socket as an HTTP proxy (`proxy`, `connection`): CONNECT for TLS, which
the proxy does not decrypt, and `http://` requests. The worker checks and resolves the names of hosts (`dial`), and
connects only to a checked address, or through the proxy that this host itself needs. When the command starts, the
sandbox contains no process and no descriptor of the proxy.
"""
