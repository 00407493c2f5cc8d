"""The only way out of a sandbox: a proxy in the worker that reaches hosts of an allow-list.

A command has a network namespace of its own, with nothing in it but `lo`.  Where hosts are allowed, a socket that
listens on a port of that `lo` is made inside before the command starts (`opener`) and handed to the worker, which
serves it as an HTTP proxy (`proxy`, `connection`): CONNECT for TLS, which is not looked into, and `http://` requests.
Names are judged and looked up by the worker (`dial`), and what is connected to is the address that was judged.  Nothing
of this stays inside: no process and no descriptor.
"""
