"""Our loopback GitHub behind Prism, which checks every request and every answer against GitHub's own document.

A request or an answer that the document does not allow comes back as an error of Prism's, and the test fails.  Two
features that the document's subset lacks are added: GraphQL, and `/repositories/{id}/…`, which GitHub uses in its
`Link` headers and redirects.  There is one Prism and one server per process, with fresh state for each test.
"""

from __future__ import annotations

import copy
import json
import re
from contextlib import contextmanager

from ports import free_port

from forges.github_place import GitHubPlace
from forges.github_server import GitHubServer
from forges.github_shapes import document
from forges.github_state import State
from forges.programs import PRISM, node, running


def _filled(path):
    """The part of a path that our server's routes know, with a value for each parameter."""
    return re.sub(r"\{[^}]*\}", "1", path.removeprefix("/repos/{owner}/{repo}"))


def with_additions():
    """The part of the document that our server answers, with the same rules for `/repositories/{id}/…` as for
    `/repos/{owner}/{repo}/…`.  A smaller document starts sooner."""
    whole = copy.deepcopy(document() | {"paths": {}})
    by_id = {"name": "repository_id", "in": "path", "required": True, "schema": {"type": "integer"}}
    for path, item in document()["paths"].items():
        known = (re.fullmatch(pattern, _filled(path)) for _, pattern, _ in GitHubServer.routes)
        if not any(known) and path not in ("/user", "/search/issues"):
            continue
        whole["paths"][path] = copy.deepcopy(item)
        if path.startswith("/repos/{owner}/{repo}"):
            other = copy.deepcopy(item)
            for operation in other.values():
                if isinstance(operation, dict) and "parameters" in operation:
                    names = ("#/components/parameters/owner", "#/components/parameters/repo")
                    kept = [one for one in operation["parameters"] if one.get("$ref") not in names]
                    operation["parameters"] = [by_id, *kept]
            whole["paths"][path.replace("/repos/{owner}/{repo}", "/repositories/{repository_id}")] = other
    query = {"type": "object", "required": ["query"], "properties": {"query": {"type": "string"}}}
    whole["paths"]["/graphql"] = {
        "post": {
            "operationId": "graphql",
            "requestBody": {"required": True, "content": {"application/json": {"schema": query}}},
            "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}}},
        }
    }
    return whole


@contextmanager
def prism(folder):
    """(our server, the address of Prism before it, its log), inside the block."""
    file, log, port = folder / "github.json", folder / "prism.log", free_port()
    file.write_text(json.dumps(with_additions()))
    with GitHubServer() as server:
        argv = [*node(PRISM), "proxy", "--errors", "--port", str(port), str(file), server.base]
        with running(argv, port, log):
            yield server, f"http://127.0.0.1:{port}", log


class GitHubPrismPlace(GitHubPlace):
    """The same people; the adapter's requests go through Prism."""

    peer = staticmethod(prism)

    def start(self, peer):
        self.server, self.address, self.log = peer
        self.server.state = State(self.server.base)
        self.server.journal.clear()
        # GitHub uses the host name of the request.
        self.repo = self.server.state.repo("acme", "web", f"{self.address}/acme/web.git")
        self.said = self.log.stat().st_size

    def close(self):
        self.forge.close()
        said = self.log.read_bytes()[self.said :].decode()
        assert "terminated with error" not in said, said
