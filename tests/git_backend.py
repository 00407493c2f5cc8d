"""The server side of git's smart HTTP: one request, answered by `git http-backend` (git-http-backend(1))."""

import subprocess
from urllib.parse import urlsplit


def answered(handler, env):
    """(status, [[field, value], ...], content) of git's answer to the request that an HTTP `handler` has.

    The repositories lie below `handler.server.root`.  `env` is added to what the server says of the request.
    """
    url = urlsplit(handler.path)
    body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    said = {
        "GIT_PROJECT_ROOT": handler.server.root,
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": url.path,
        "QUERY_STRING": url.query,
        "REQUEST_METHOD": handler.command,
        "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""),
    }
    done = subprocess.run(["git", "http-backend"], env={**env, **said}, input=body, capture_output=True, check=False)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    fields = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
    status = next((value for name, value in fields if name == "Status"), "200 OK")
    return int(status.split()[0]), [field for field in fields if field[0] != "Status"], content
